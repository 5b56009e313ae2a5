//! Names of tables: read as SQL reads identifiers, written so that any name survives.
//!
//! <https://www.postgresql.org/docs/18/sql-syntax-lexical.html#SQL-SYNTAX-IDENTIFIERS>.

use std::fmt;
use std::str::FromStr;

use crabka_connect::ConnectError;

/// The longest identifier, in bytes of UTF-8; the server cuts longer ones off, so they never match.
const IDENTIFIER_BYTES_MAX: usize = 63;

/// `name` as a quoted identifier: `"We""ird"`.
pub fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `text` as a string literal, whatever `standard_conforming_strings` says.
pub fn quote_literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') {
        format!(" E'{}'", quoted.replace('\\', "\\\\"))
    } else {
        format!("'{quoted}'")
    }
}

/// Names that are listed in one message.
const LISTED_MAX: usize = 20;

/// The names for a message: the first ones, and how many more there are.
pub(crate) fn some_of(mut names: Vec<String>) -> String {
    let more = names.len().saturating_sub(LISTED_MAX);
    names.truncate(LISTED_MAX);
    if more > 0 {
        names.push(format!("{more} more"));
    }
    names.join(", ")
}

/// Whether a name needs no quotes to be read back as it is (key words apart).
fn is_plain(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|first| first.is_ascii_lowercase() || first == '_')
        && characters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '$')
}

fn write_name(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    if is_plain(name) { f.write_str(name) } else { f.write_str(&quote_identifier(name)) }
}

/// A table, as the server spells schema and name. Printed as `public.orders`, with quotes where a name needs them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableName {
    /// Schema.
    pub schema: String,
    /// Name.
    pub table: String,
}

impl TableName {
    /// Both parts as quoted identifiers, for SQL.
    pub fn quoted(&self) -> String {
        format!("{}.{}", quote_identifier(&self.schema), quote_identifier(&self.table))
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_name(f, &self.schema)?;
        f.write_str(".")?;
        write_name(f, &self.table)
    }
}

/// Which tables: one, all of a schema (`app.*`), or all (`*.*`).
///
/// The parts are read like SQL identifiers: without quotes folded to lower case, in double quotes taken as they are
/// (`"We""ird.Näme"`).
///
/// ```
/// use crabka_connect_postgres::catalog::TablePattern;
///
/// let pattern: TablePattern = r#"Shop."We""ird.Näme""#.parse().unwrap();
/// assert!(pattern.matches("shop", r#"We"ird.Näme"#));
/// assert!("shop.*".parse::<TablePattern>().unwrap().matches("shop", "orders"));
/// assert!("orders".parse::<TablePattern>().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TablePattern {
    /// One table.
    Table(TableName),
    /// Every table of a schema.
    Schema(String),
    /// Every table.
    All,
}

impl TablePattern {
    /// Whether it covers that table.
    pub fn matches(&self, schema: &str, table: &str) -> bool {
        match self {
            Self::Table(name) => name.schema == schema && name.table == table,
            Self::Schema(name) => name == schema,
            Self::All => true,
        }
    }
}

impl fmt::Display for TablePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table(name) => name.fmt(f),
            Self::Schema(schema) => {
                write_name(f, schema)?;
                f.write_str(".*")
            }
            Self::All => f.write_str("*.*"),
        }
    }
}

impl FromStr for TablePattern {
    type Err = ConnectError;

    fn from_str(text: &str) -> Result<Self, ConnectError> {
        let wrong = |problem: &str| {
            ConnectError::configuration(format!("table name {problem}: {text}")).with_fix(
                "write schema.table as in SQL: public.orders, \"My Schema\".\"My Table\", public.* for a whole schema",
            )
        };
        let (schema, rest) = part(text).map_err(&wrong)?;
        let rest = rest.strip_prefix('.').ok_or_else(|| {
            wrong(if rest.is_empty() { "has no schema" } else { "has a character that needs double quotes" })
        })?;
        let (table, rest) = part(rest).map_err(&wrong)?;
        if !rest.is_empty() {
            let problem = if rest.starts_with('.') {
                "has more than two parts"
            } else {
                "has a character that needs double quotes"
            };
            return Err(wrong(problem));
        }
        match (schema, table) {
            (Some(schema), Some(table)) => Ok(Self::Table(TableName { schema, table })),
            (Some(schema), None) => Ok(Self::Schema(schema)),
            (None, None) => Ok(Self::All),
            (None, Some(_)) => Err(wrong("names one table of every schema, which is not supported")),
        }
    }
}

/// The first part of a dotted name, `None` for `*`, and what follows it.
fn part(text: &str) -> Result<(Option<String>, &str), &'static str> {
    let text = text.trim();
    if let Some(rest) = text.strip_prefix('*') {
        return Ok((None, rest.trim_start()));
    }
    let (name, rest) = match text.strip_prefix('"') {
        Some(quoted) => quoted_identifier(quoted)?,
        None => plain_identifier(text)?,
    };
    if name.len() > IDENTIFIER_BYTES_MAX {
        return Err("has a part longer than 63 bytes, which the server cuts off");
    }
    Ok((Some(name), rest.trim_start()))
}

fn quoted_identifier(text: &str) -> Result<(String, &str), &'static str> {
    let mut name = String::new();
    let mut rest = text;
    loop {
        let (before, after) = rest.split_once('"').ok_or("has no closing double quote")?;
        name.push_str(before);
        match after.strip_prefix('"') {
            Some(more) => {
                name.push('"');
                rest = more;
            }
            None if name.is_empty() => return Err("has an empty part"),
            None if name.contains('\0') => return Err("has a zero byte"),
            None => return Ok((name, after)),
        }
    }
}

fn plain_identifier(text: &str) -> Result<(String, &str), &'static str> {
    let starts = |c: char| c.is_ascii_alphabetic() || c == '_' || !c.is_ascii();
    let end = text.find(|c: char| !(starts(c) || c.is_ascii_digit() || c == '$')).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    match name.chars().next() {
        Some(first) if starts(first) => Ok((name.to_ascii_lowercase(), rest)),
        Some(_) => Err("has a part that begins with a digit or $ and needs double quotes"),
        None if rest.is_empty() || rest.starts_with('.') => Err("has an empty part"),
        None => Err("has a character that needs double quotes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(schema: &str, table: &str) -> TablePattern {
        TablePattern::Table(TableName { schema: schema.into(), table: table.into() })
    }

    #[test]
    fn patterns_are_read_as_sql_reads_identifiers() {
        let good = [
            ("public.orders", table("public", "orders")),
            (" Public . ORDERS ", table("public", "orders")),
            (r#""Public"."We""ird.Näme""#, table("Public", r#"We"ird.Näme"#)),
            (r#"Größe.a$1"#, table("größe", "a$1")),
            (r#""*"."*""#, table("*", "*")),
            ("app.*", TablePattern::Schema("app".into())),
            ("*.*", TablePattern::All),
        ];
        for (text, pattern) in good {
            assert_eq!(text.parse::<TablePattern>().unwrap(), pattern, "{text}");
        }
        for text in [
            "", "orders", ".x", "a.", "a.b.c", "a b.c", "a.b c", "1a.b", "a.$b", "\"a.b", "\"\".b", "*.b",
            "a-b.c", "a.b*",
        ] {
            assert!(text.parse::<TablePattern>().is_err(), "{text}");
        }
        assert!(format!("public.{}", "x".repeat(64)).parse::<TablePattern>().is_err());
    }

    #[test]
    fn what_is_printed_is_read_back() {
        for pattern in [
            table("public", "orders"),
            table("a b", "We\"ird.Näme"),
            TablePattern::Schema("*".into()),
            TablePattern::All,
        ] {
            assert_eq!(pattern.to_string().parse::<TablePattern>().unwrap(), pattern);
        }
        assert_eq!(table("public", "We\"ird.Näme").to_string(), "public.\"We\"\"ird.Näme\"");
    }

    #[test]
    fn a_message_lists_a_bounded_number_of_names() {
        let names = |count: usize| (1..=count).map(|index| format!("t{index}")).collect::<Vec<_>>();
        assert_eq!(some_of(names(2)), "t1, t2");
        assert_eq!(some_of(names(LISTED_MAX)), names(LISTED_MAX).join(", "));
        assert_eq!(some_of(names(10_000)), format!("{}, 9980 more", names(LISTED_MAX).join(", ")));
    }

    #[test]
    fn literals_survive_quotes_and_backslashes() {
        assert_eq!(quote_literal("it's"), "'it''s'");
        assert_eq!(quote_literal(r"a\'b"), r" E'a\\''b'");
        assert_eq!(quote_identifier("We\"ird.Näme"), "\"We\"\"ird.Näme\"");
    }
}
