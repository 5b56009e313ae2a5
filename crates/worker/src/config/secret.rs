//! Values that are never shown: not by `Debug`, not by `config show`, not in an error.

use std::fmt;

/// What stands where a secret would.
pub(crate) const REDACTED: &str = "[redacted]";

/// A text that only [`expose`](Secret::expose) gives away.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one who needs it to connect.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

/// A libpq connection URL: shown without the password and without any parameter that may be secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ConnectionUrl(Secret);

/// Parameters of a connection URL that are no secret.
const SHOWN_PARAMETERS: &[&str] = &[
    "application_name",
    "channel_binding",
    "connect_timeout",
    "dbname",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_idle",
    "port",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslnegotiation",
    "sslrootcert",
    "target_session_attrs",
    "user",
];

impl ConnectionUrl {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(Secret::new(text))
    }

    /// The URL with its password.
    pub(crate) fn expose(&self) -> &str {
        self.0.expose()
    }

    /// The URL as it may be shown. What does not look like a URL is not shown at all.
    pub(crate) fn shown(&self) -> String {
        let text = self.expose();
        let Some((scheme, rest)) = text.split_once("://") else {
            return REDACTED.to_owned();
        };
        if !matches!(scheme, "postgres" | "postgresql") {
            return REDACTED.to_owned();
        }
        // The last `@` of the whole text ends the password: one that was not percent-encoded may itself hold
        // `/`, `?` or `@`, and showing too little is the safe mistake.
        let (user, rest) = match rest.rsplit_once('@') {
            Some((user, rest)) => match user.split_once(':') {
                Some((user, _)) => (format!("{user}:***@"), rest),
                None => (format!("{user}@"), rest),
            },
            None => (String::new(), rest),
        };
        let (place, parameters) = match rest.split_once('?') {
            Some((place, parameters)) => (place, parameters),
            None => (rest, ""),
        };
        let mut shown = format!("{scheme}://{user}{place}");
        for (index, parameter) in parameters.split('&').filter(|part| !part.is_empty()).enumerate() {
            shown.push(if index == 0 { '?' } else { '&' });
            match parameter.split_once('=') {
                Some((name, _)) if SHOWN_PARAMETERS.contains(&name) => shown.push_str(parameter),
                Some((name, _)) => shown.push_str(&format!("{name}=***")),
                None => shown.push_str("***"),
            }
        }
        shown
    }
}

impl fmt::Debug for ConnectionUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

/// Whether a property of that name (librdkafka's, for example) holds a secret.
pub(crate) fn is_secret_property(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["password", "passwd", "secret", "token", "pem", "credential", "jaas", "oauthbearer.config"]
        .iter()
        .any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(url: &str) -> String {
        ConnectionUrl::new(url).shown()
    }

    #[test]
    fn a_url_is_shown_without_its_password() {
        assert_eq!(shown("postgres://app:pw@localhost/shop"), "postgres://app:***@localhost/shop");
        assert_eq!(shown("postgres://app@localhost/shop"), "postgres://app@localhost/shop");
        assert_eq!(shown("postgres:///shop?host=/tmp&port=5"), "postgres:///shop?host=/tmp&port=5");
        assert_eq!(
            shown("postgresql://h1,h2/shop?sslmode=require&password=pw&sslpassword=pw2&odd"),
            "postgresql://h1,h2/shop?sslmode=require&password=***&sslpassword=***&***"
        );
    }

    #[test]
    fn an_unencoded_password_is_not_shown_either() {
        for url in [
            "postgres://app:CAN/ARY@localhost/shop",
            "postgres://app:CAN?ARY@localhost/shop",
            "postgres://app:CAN@ARY@localhost/shop",
            "postgres://app:CAN#ARY@localhost/shop",
            "postgres://app:CAN:ARY@localhost/shop?sslmode=disable",
            "host=localhost password=CANARY",
            "mysql://app:CANARY@localhost",
        ] {
            let text = shown(url);
            assert!(!text.contains("CAN") && !text.contains("ARY"), "{text}");
            assert!(!format!("{:?}", ConnectionUrl::new(url)).contains("ARY"));
        }
    }

    #[test]
    fn secret_properties_are_known_by_their_names() {
        for name in ["sasl.password", "ssl.key.password", "ssl.key.pem", "sasl.oauthbearer.client.secret"] {
            assert!(is_secret_property(name), "{name}");
        }
        for name in ["linger.ms", "sasl.username", "security.protocol"] {
            assert!(!is_secret_property(name), "{name}");
        }
    }
}
