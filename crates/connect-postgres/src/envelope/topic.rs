//! Names of topics.

/// Longest name a broker takes.
const TOPIC_LEN_MAX: usize = 249;

/// The topic of a table's changes: prefix, schema and table joined by dots. Every character outside
/// `[A-Za-z0-9._-]` becomes `_`, one for each UTF-16 code unit; then it is cut to 249 characters.
///
/// Two tables may end in one topic: whoever captures them compares the names, and warns where a name differs from
/// what was joined.
///
/// ```
/// use crabka_connect_postgres::envelope::topic;
///
/// assert_eq!(topic::for_table("shop", "public", "orders"), "shop.public.orders");
/// assert_eq!(topic::for_table("shop", "public", "We\"ird.Näme😀"), "shop.public.We_ird.N_me__");
/// ```
pub fn for_table(prefix: &str, schema: &str, table: &str) -> String {
    let joined = format!("{prefix}.{schema}.{table}");
    let topic: String = joined
        .encode_utf16()
        .take(TOPIC_LEN_MAX)
        .map(|unit| match u8::try_from(unit) {
            Ok(byte) if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-') => {
                char::from(byte)
            }
            _ => '_',
        })
        .collect();
    match topic.as_str() {
        "." => "_".to_owned(),
        ".." => "__".to_owned(),
        _ => topic,
    }
}

/// The topic of logical messages.
pub fn for_messages(prefix: &str) -> String {
    format!("{prefix}.message")
}

/// The topic of heartbeats.
pub fn for_heartbeats(prefix: &str) -> String {
    format!("__debezium-heartbeat.{prefix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut() {
        let topic = for_table("p", "s", &"x".repeat(300));
        assert_eq!(topic.len(), 249);
        // A surrogate pair may be cut in the middle: each half is an underscore anyway.
        assert_eq!(for_table("p", "s", &format!("{}😀", "x".repeat(244))).len(), 249);
    }

    #[test]
    fn dots_alone_are_no_name() {
        assert_eq!(for_table("", "", ""), "__");
    }
}
