//! `${NAME}` in the strings of the configuration file.
//!
//! `${NAME}` is the value of the environment variable, `${NAME:-text}` the text when the variable is not set or
//! empty, `$$` a dollar sign. What a variable holds is not looked at again, and nothing but the file is expanded.

/// Looks up an environment variable.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Expands `text` once. The error says what is wrong, never the text.
pub(crate) fn expand(text: &str, lookup: Lookup<'_>) -> Result<String, String> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, after) = rest.split_at(at);
        expanded.push_str(before);
        if let Some(tail) = after.strip_prefix("$$") {
            expanded.push('$');
            rest = tail;
        } else if let Some(tail) = after.strip_prefix("${") {
            let (reference, tail) =
                tail.split_once('}').ok_or("`${` without `}` (write `$$` for a dollar sign)")?;
            expanded.push_str(&resolve(reference, lookup)?);
            rest = tail;
        } else {
            expanded.push('$');
            rest = &after[1..];
        }
    }
    expanded.push_str(rest);
    Ok(expanded)
}

fn resolve(reference: &str, lookup: Lookup<'_>) -> Result<String, String> {
    let (name, default) = match reference.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (reference, None),
    };
    let mut letters = name.chars();
    let well_formed = letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    if !well_formed {
        return Err(
            "`${...}` does not name an environment variable (write `$$` for a dollar sign)".to_owned()
        );
    }
    match (lookup(name), default) {
        (Some(value), Some(default)) if value.is_empty() => Ok(default.to_owned()),
        (Some(value), _) => Ok(value),
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(format!("environment variable is not set: {name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str) -> Result<String, String> {
        expand(text, &|name| match name {
            "USER_NAME" => Some("app".to_owned()),
            "NESTED" => Some("${USER_NAME}$$".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        })
    }

    #[test]
    fn variables_are_expanded_once() {
        assert_eq!(with("a ${USER_NAME} b${USER_NAME}").unwrap(), "a app bapp");
        assert_eq!(with("${NESTED}").unwrap(), "${USER_NAME}$$");
        assert_eq!(with("${MISSING:-x:-y}").unwrap(), "x:-y");
        assert_eq!(with("${EMPTY:-x}").unwrap(), "x");
        assert_eq!(with("${EMPTY}").unwrap(), "");
    }

    #[test]
    fn dollar_signs_can_be_written() {
        assert_eq!(with("$${USER_NAME}").unwrap(), "${USER_NAME}");
        assert_eq!(with("pa$word$").unwrap(), "pa$word$");
    }

    #[test]
    fn errors_name_the_variable_and_not_the_text() {
        assert_eq!(with("pw${MISSING}").unwrap_err(), "environment variable is not set: MISSING");
        for text in ["pw${", "pw${}", "pw${a b}", "pw${1A}"] {
            assert!(!with(text).unwrap_err().contains("pw"), "{text}");
        }
    }
}
