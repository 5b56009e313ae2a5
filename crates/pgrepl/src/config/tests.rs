//! Connection strings, environment, password file.

use std::path::PathBuf;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::ErrorClass;

fn no_environment(name: &str) -> Option<String> {
    (name == "USER").then(|| "os_user".to_owned())
}

fn parse(text: &str) -> Config {
    Config::parse(text, &no_environment).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refusal(text: &str) -> String {
    let error = Config::parse(text, &no_environment).expect_err(text);
    assert_eq!(error.class(), ErrorClass::Configuration);
    error.to_string()
}

fn hosts(config: &Config) -> Vec<String> {
    config.hosts.iter().map(ToString::to_string).collect()
}

#[test]
fn urls() {
    for (text, user, dbname, hosts_are) in [
        ("postgres://", "os_user", "os_user", &["(default host):5432"][..]),
        ("postgresql://localhost", "os_user", "os_user", &["localhost:5432"]),
        ("postgres://localhost:5433/shop", "os_user", "shop", &["localhost:5433"]),
        ("postgres://app@localhost/shop", "app", "shop", &["localhost:5432"]),
        ("postgres://app:pw@localhost", "app", "app", &["localhost:5432"]),
        ("postgres://app@a,b:2,c/shop", "app", "shop", &["a:5432", "b:2", "c:5432"]),
        ("postgres://a:1,b:2/", "os_user", "os_user", &["a:1", "b:2"]),
        ("postgres://[::1]:5433,[2001:db8::1]/x", "os_user", "x", &["[::1]:5433", "[2001:db8::1]:5432"]),
        ("postgres://%2Fvar%2Frun:5433/x", "os_user", "x", &["/var/run/.s.PGSQL.5433"]),
        ("postgres:///x?host=/tmp&port=7", "os_user", "x", &["/tmp/.s.PGSQL.7"]),
        ("postgres://one/x?host=two", "os_user", "x", &["two:5432"]),
        ("postgres:///?dbname=d%20b&user=u", "u", "d b", &["(default host):5432"]),
        ("postgres://us%40er:p%3Aw@h/d%2Fb", "us@er", "d/b", &["h:5432"]),
        ("postgres://:6000", "os_user", "os_user", &["(default host):6000"]),
        ("postgres://@h", "os_user", "os_user", &["h:5432"]),
        ("postgres://h?user=x", "x", "x", &["h:5432"]),
    ] {
        let config = parse(text);
        assert_eq!((config.user(), config.dbname()), (user, dbname), "{text}");
        assert_eq!(hosts(&config), hosts_are, "{text}");
    }
    assert_eq!(parse("postgres://u:p%40s%20s@h").password.as_deref(), Some("p@s s"));
    assert_eq!(parse("postgres://h?ssl=true").ssl.mode, SslMode::Require);
    assert_eq!(parse("postgres://h?hostaddr=10.0.0.1").hosts[0].address, Some("10.0.0.1".parse().unwrap()));
    assert_eq!(hosts(&parse("postgres:///?hostaddr=10.0.0.1,::1&port=1,2")), ["10.0.0.1:1", "[::1]:2"]);
}

#[test]
fn keyword_lists() {
    let config =
        parse(r"host = a,b port=1,2 user='o\'neil' dbname = 'my \\ db' password=p\ q connect_timeout=7");
    assert_eq!((config.user(), config.dbname()), ("o'neil", r"my \ db"));
    assert_eq!(config.password.as_deref(), Some("p q"));
    assert_eq!(hosts(&config), ["a:1", "b:2"]);
    assert_eq!(config.connect_timeout, Some(Duration::from_secs(7)));
    assert_eq!(parse("").user(), "os_user");
    assert_eq!(parse("host='' dbname=x").hosts[0].host, Host::Default);
}

#[test]
fn what_is_wrong_is_named() {
    for (text, says) in [
        ("mysql://h/d", "mysql://"),
        ("just words", "neither a URL"),
        ("host=", ""),
        ("host='a", "quote of: host"),
        ("=x", "neither a URL"),
        (
            "postgres://h?sslmod=require",
            "unknown connection parameter sslmod; the nearest known one is: sslmode",
        ),
        ("hots=a", "the nearest known one is: host"),
        (
            "postgres://h?sslmode=strict",
            "sslmode takes disable, allow, prefer, require, verify-ca, verify-full, not: strict",
        ),
        ("postgres://h?sslmode", "a parameter without a value"),
        ("postgres://h:0", "a port that is not a number from 1 to 65535"),
        ("postgres://h:65536", "not a number from 1 to 65535"),
        ("postgres://h:port", "not a number from 1 to 65535"),
        ("postgres://[::1", "closing bracket"),
        ("postgres://[::1]x", "after an IPv6 address"),
        ("postgres://app:pw/x@h/d", "/ is to be written as %2F"),
        ("postgres://app:pw@word@h", "@ as %40"),
        ("port=65536", "not: 65536"),
        ("postgres://u%zz@h", "in its: user"),
        ("postgres://u@h/d%", "in its: database name"),
        ("postgres://u@h/d%00", "%00"),
        ("postgres://u@h/%ff", "not UTF-8"),
        ("postgres://a,b/?port=1,2,3", "2 hosts, 3 ports"),
        ("postgres://a,b/?hostaddr=1.2.3.4", "they name: 2 and 1"),
        ("postgres://a/?hostaddr=one", "not an IP address: one"),
        ("postgres://h?connect_timeout=soon", "connect_timeout must be a whole number, not: soon"),
        ("postgres://h?service=x", "service files are not supported"),
        ("postgres://h?replication=true", "leave it out"),
        ("postgres://h?client_encoding=LATIN1", "always UTF8"),
        ("postgres://h?gssencmode=require", "gssencmode takes disable, prefer"),
        ("postgres://h?sslrootcert=system&sslmode=require", "sslmode=verify-full"),
        ("postgres://h?sslnegotiation=direct", "needs sslmode=require"),
        ("postgres://h?sslcert=/x", "set sslkey"),
        ("host=@abstract", "abstract namespace"),
    ] {
        if says.is_empty() {
            parse(text);
        } else {
            let refusal = refusal(text);
            assert!(refusal.contains(says), "{text}: {refusal}");
        }
    }
    let nobody = Config::parse("postgres://h", &|_| None).unwrap_err().to_string();
    assert!(nobody.contains("PGUSER"), "{nobody}");
}

#[test]
fn refusals_do_not_repeat_the_password() {
    for text in [
        "postgres://u:hunter2%zz@h",
        "postgres://u:hunter2@h:99999",
        "postgres://u:hunter2@h?sslmod=x",
        "password='hunter2",
        "password=hunter2 nonsense",
    ] {
        assert!(!refusal(text).contains("hunter2"), "{text}");
    }
    let config = parse("postgres://u:hunter2@h/d");
    assert!(!format!("{config} {config:?} {config:#?}").contains("hunter2"));
    assert_eq!(config.to_string(), "user=u dbname=d host=h:5432");
}

#[test]
fn the_url_wins_over_the_environment() {
    let environment = |name: &str| {
        let value = match name {
            "PGHOST" => "env_host",
            "PGPORT" => "6000",
            "PGUSER" => "env_user",
            "PGDATABASE" => "env_db",
            "PGPASSWORD" => "env_password",
            "PGSSLMODE" => "require",
            "PGAPPNAME" => "env_app",
            "PGCONNECT_TIMEOUT" => "3",
            "PGCHANNELBINDING" => "require",
            "PGOPTIONS" => "-c geqo=off",
            "PGTARGETSESSIONATTRS" => "primary",
            _ => return None,
        };
        Some(value.to_owned())
    };
    let config = Config::parse("postgres://", &environment).unwrap();
    assert_eq!(hosts(&config), ["env_host:6000"]);
    assert_eq!(
        (config.user(), config.dbname(), config.application_name()),
        ("env_user", "env_db", "env_app")
    );
    assert_eq!(config.password.as_deref(), Some("env_password"));
    assert_eq!((config.ssl.mode, config.channel_binding), (SslMode::Require, ChannelBinding::Require));
    assert_eq!(config.connect_timeout, Some(Duration::from_secs(3)));
    assert_eq!(config.target, TargetSession::Primary);
    assert!(config.session_options().starts_with("-c geqo=off -c datestyle=ISO "));

    let text =
        "postgres://u:p@h:1/d?sslmode=disable&application_name=a&connect_timeout=0&channel_binding=disable";
    let config = Config::parse(text, &environment).unwrap();
    assert_eq!(hosts(&config), ["h:1"]);
    assert_eq!((config.user(), config.dbname(), config.application_name()), ("u", "d", "a"));
    assert_eq!(config.password.as_deref(), Some("p"));
    assert_eq!((config.ssl.mode, config.channel_binding), (SslMode::Disable, ChannelBinding::Disable));
    assert_eq!(config.connect_timeout, None);
}

#[test]
fn socket_settings() {
    let config = parse(
        "postgres://h?keepalives=0&keepalives_idle=5&keepalives_interval=6&keepalives_count=7&tcp_user_timeout=1500",
    );
    let expected = TcpConfig {
        keepalive: false,
        keepalive_idle: Duration::from_secs(5),
        keepalive_interval: Duration::from_secs(6),
        keepalive_count: 7,
        user_timeout: Some(Duration::from_millis(1500)),
    };
    assert_eq!(config.tcp, expected);
    assert_eq!(parse("postgres://h?tcp_user_timeout=0").tcp.user_timeout, None);
    assert_eq!(parse("postgres://h?keepalives_idle=0").tcp, TcpConfig::default());
}

#[test]
fn session_options_end_with_ours() {
    let config = parse("postgres://h?options=-c%20datestyle=German")
        .with_wal_sender_timeout(Some(Duration::from_secs(5)));
    let options = config.session_options();
    assert!(options.starts_with("-c datestyle=German -c datestyle=ISO -c "), "{options}");
    assert!(options.ends_with(" -c wal_sender_timeout=5000"), "{options}");
    assert!(!config.with_wal_sender_timeout(None).session_options().contains("wal_sender_timeout"));
}

fn look_up(content: &str, host: &str, port: u16, dbname: &str, user: &str) -> Option<String> {
    passfile::find(content, passfile::Wanted { host, port, dbname, user })
}

#[test]
fn password_files() {
    let content = "# h:5432:d:u:commented\n\
                   short:line\n\
                   h:5432:d:u:exact\n\
                   h:*:d:u:any port\n\
                   *:*:*:star:every\\:where\\\\\n\
                   ::1:bad\n\
                   \\:\\:1:5432:d\\:b:u:six\r\n\
                   h:5432:d:\\*:literal star\n\
                   h:5432:d:empty:\n";
    for (host, port, dbname, user, password) in [
        ("h", 5432, "d", "u", Some("exact")),
        ("h", 1, "d", "u", Some("any port")),
        ("x", 1, "y", "star", Some(r"every:where\")),
        ("::1", 5432, "d:b", "u", Some("six")),
        ("h", 5432, "d", "*", Some("literal star")),
        ("h", 5432, "d", "empty", None),
        ("h", 5432, "d", "other", None),
        ("short", 5432, "line", "u", None),
    ] {
        assert_eq!(
            look_up(content, host, port, dbname, user).as_deref(),
            password,
            "{host} {port} {dbname} {user}"
        );
    }
}

#[cfg(unix)]
#[test]
fn password_files_of_others_are_refused() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pgpass");
    assert_eq!(passfile::read(&path), Ok(None));
    assert!(passfile::read(directory.path()).unwrap_err().contains("not a plain file"));
    std::fs::write(&path, "*:*:*:*:x").unwrap();
    assert_eq!(passfile::read(&path.join("below")), Ok(None), "cannot be looked at");
    for (mode, fits) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o620, false)] {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        let outcome = passfile::read(&path);
        assert_eq!(outcome.is_ok(), fits, "{mode:o}");
        assert!(fits || outcome.unwrap_err().contains("chmod 0600"));
    }
}

#[test]
fn the_password_file_is_looked_up_by_what_was_written() {
    let spec = |host| HostSpec { host, address: None, port: 5432 };
    for (host, key) in [
        (Host::Default, "localhost"),
        (Host::Directory(PathBuf::from("/var/run/postgresql")), "localhost"),
        (Host::Directory(PathBuf::from("/srv/pg")), "/srv/pg"),
        (Host::Name("db.example.com".into()), "db.example.com"),
    ] {
        assert_eq!(Peer { spec: spec(host), encrypted: false }.password_key(), (key.to_owned(), 5432));
    }
}

fn percent(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "(postgres://)?[a-z%:@/?&=,\\[\\]' \\\\]{0,40}") {
        drop(Config::parse(&text, &no_environment));
    }

    #[test]
    fn every_name_survives_the_url(user in "[^\0]{1,20}", password in "[^\0]{1,20}", dbname in "[^\0]{1,20}") {
        let url = format!("postgres://{}:{}@h/{}", percent(&user), percent(&password), percent(&dbname));
        let config = parse(&url);
        prop_assert_eq!(config.user(), user.as_str());
        prop_assert_eq!(config.dbname(), dbname.as_str());
        prop_assert_eq!(config.password, Some(password));
    }

    #[test]
    fn every_name_survives_the_keyword_list(user in "[^\0]{1,20}", dbname in "[^\0]{1,20}") {
        let quoted = |text: &str| text.replace('\\', r"\\").replace('\'', r"\'");
        let config = parse(&format!("user='{}' dbname='{}'", quoted(&user), quoted(&dbname)));
        prop_assert_eq!(config.user(), user.as_str());
        prop_assert_eq!(config.dbname(), dbname.as_str());
    }

    #[test]
    fn every_password_survives_the_file(password in "[^\0\r\n]{1,20}", user in "[^\0\r\n]{1,10}") {
        let escaped = |text: &str| text.replace('\\', r"\\").replace(':', r"\:");
        let content = format!("h:1:d:{}:{}\n", escaped(&user), escaped(&password));
        prop_assert_eq!(look_up(&content, "h", 1, "d", &user), Some(password));
    }
}
