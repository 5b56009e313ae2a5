//! OPS-05: user, database, password and application name are data, however they are given.

use crabka_connect_postgres::SqlConnection;
use crabka_pgrepl::{Config, ReplicationClient};
use crabka_testkit::PgServer;

const USER: &str = r#"we ird"'@/?%#&=,é\ $1"#;
const DATABASE: &str = r#"da ta"'@/?%#&=:,ü\ $USER %41"#;
const PASSWORD: &str = r#"pa ss"'@/?%#&=:,ö\ ${HOME} %41"#;
const APPLICATION: &str = r#"ap p"'@/?%#&=:,\ -c geqo=off %41"#;

fn percent(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', r"\\").replace('\'', r"\'"))
}

/// Both connections, as the server sees them.
async fn seen(config: &Config) -> [Vec<String>; 2] {
    let query = "SELECT current_user::text, current_database()::text, current_setting('application_name')";
    let mut client = ReplicationClient::connect(config).await.unwrap();
    let answer = client.query(query).await.unwrap();
    let replication = answer.rows[0].iter().map(|value| value.clone().unwrap()).collect();
    let sql = SqlConnection::connect(config).await.unwrap();
    let row = sql.query_one("looking", query, &[]).await.unwrap();
    let over_sql = (0..3).map(|index| row.get(index)).collect();
    sql.close().await;
    [replication, over_sql]
}

#[tokio::test]
async fn ops_05_both_connections_get_exactly_what_was_given() {
    crabka_testkit::needs!(postgres);
    let server = PgServer::builder()
        .hba("local all postgres trust")
        .hba("host all postgres 127.0.0.1/32 trust")
        .hba("host all all 127.0.0.1/32 scram-sha-256")
        .start()
        .await
        .unwrap();
    let client = server.connect("postgres").await.unwrap();
    let name = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let literal = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let (user, database, password) = (name(USER), name(DATABASE), literal(PASSWORD));
    client.batch_execute(&format!("CREATE ROLE {user} LOGIN REPLICATION PASSWORD {password}")).await.unwrap();
    client.batch_execute(&format!("CREATE DATABASE {database}")).await.unwrap();

    let port = server.port();
    let home = tempfile::tempdir().unwrap();
    let passfile = home.path().join("passwords: é");
    let escaped = |text: &str| text.replace('\\', r"\\").replace(':', r"\:");
    let line =
        [&*escaped("127.0.0.1"), &port.to_string(), &escaped(DATABASE), &escaped(USER), &escaped(PASSWORD)];
    std::fs::write(&passfile, line.join(":")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&passfile, mode).unwrap();
    let passfile = passfile.display().to_string();

    let [u, d, p, a] = [USER, DATABASE, PASSWORD, APPLICATION];
    let nothing = |_: &str| None;
    let environment = |name: &str| {
        let value = match name {
            "PGHOST" => "127.0.0.1",
            "PGPORT" => return Some(port.to_string()),
            "PGUSER" => u,
            "PGDATABASE" => d,
            "PGPASSWORD" => p,
            "PGAPPNAME" => a,
            _ => return None,
        };
        Some(value.to_owned())
    };
    let file = |name: &str| (name == "PGPASSFILE").then(|| passfile.clone());
    type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;
    let url = |password: &str, parameters: &str| {
        let (user, database, application) = (percent(u), percent(d), percent(a));
        format!(
            "postgres://{user}{password}@127.0.0.1:{port}/{database}?application_name={application}{parameters}"
        )
    };
    let keywords = format!(
        "host=127.0.0.1 port={port} user={} dbname={} application_name={}",
        quoted(u),
        quoted(d),
        quoted(a)
    );
    let ways: [(&str, String, Environment<'_>); 6] = [
        ("url", url(&format!(":{}", percent(p)), ""), &nothing),
        ("keywords", format!("{keywords} password={}", quoted(p)), &nothing),
        ("environment", "postgres://".to_owned(), &environment),
        ("password file", url("", &format!("&passfile={}", percent(&passfile))), &nothing),
        ("password file by environment", keywords, &file),
        ("password as a parameter", url("", &format!("&password={}", percent(p))), &nothing),
    ];
    for (way, text, environment) in ways {
        let config = Config::parse(&text, environment).unwrap_or_else(|error| panic!("{way}: {error}"));
        for seen in seen(&config).await {
            assert_eq!(seen, [USER, DATABASE, APPLICATION], "{way}");
        }
        let shown = format!("{config:?} {config}");
        assert!(!shown.contains(PASSWORD) && !shown.contains(&percent(PASSWORD)), "{way}");
    }
}
