//! OPS-03: each sslmode against each kind of certificate, for both connections.

use crabka_connect::{ConnectError, ErrorClass};
use crabka_connect_postgres::SqlConnection;
use crabka_connect_postgres::classify::replication_error;
use crabka_pgrepl::{Config, ReplicationClient};
use crabka_testkit::PgServer;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};

/// An authority: its certificate as PEM, and what it signs with.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// Certificate and key of a server, as PEM.
    fn sign(&self, host: &str, years: (i32, i32)) -> (String, String) {
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        params.not_before = date_time_ymd(years.0, 1, 1);
        params.not_after = date_time_ymd(years.1, 1, 1);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// One server with several certificates, of which it shows one at a time.
async fn server(certificates: &[(&str, (String, String))]) -> PgServer {
    let mut builder = PgServer::builder().setting("ssl", "on");
    for (name, (certificate, key)) in certificates {
        builder = builder
            .file(format!("{name}.crt"), certificate.as_str())
            .file(format!("{name}.key"), key.as_str());
    }
    let first = certificates[0].0;
    builder = builder.setting("ssl_cert_file", format!("{first}.crt"));
    builder.setting("ssl_key_file", format!("{first}.key")).start().await.unwrap()
}

async fn show(server: &PgServer, name: &str) {
    let loaded_at = async || -> String {
        let sql = server.connect("postgres").await.unwrap();
        sql.query_one("SELECT pg_conf_load_time()::text", &[]).await.unwrap().get(0)
    };
    let before = loaded_at().await;
    server.set("ssl_cert_file", &format!("{name}.crt")).await.unwrap();
    server.set("ssl_key_file", &format!("{name}.key")).await.unwrap();
    server.reload().await.unwrap();
    // A new backend inherits the time at which the postmaster has read its files.
    while loaded_at().await == before {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

const ENCRYPTED: &str = "SELECT ssl::text FROM pg_stat_ssl WHERE pid = pg_backend_pid()";

async fn over_replication(config: &Config) -> Result<bool, ConnectError> {
    let failed = |error| replication_error("connecting", error);
    let mut client = ReplicationClient::connect(config).await.map_err(failed)?;
    let answer = client.query(ENCRYPTED).await.map_err(failed)?;
    Ok(answer.value("ssl") == Some("true"))
}

async fn over_sql(config: &Config) -> Result<bool, ConnectError> {
    let sql = SqlConnection::connect(config).await?;
    let encrypted = sql.query_one("looking", ENCRYPTED, &[]).await?.get::<_, &str>(0) == "true";
    sql.close().await;
    Ok(encrypted)
}

/// What comes of a mode and a certificate.
#[derive(Debug, Clone, Copy)]
enum Outcome {
    Plain,
    Encrypted,
    /// Refused, with these words.
    Refused(&'static str),
}

use Outcome::{Encrypted, Plain, Refused};

/// What libpq does with a certificate that is good, has expired, is another host's, is signed by nobody known. `ROOT` is
/// the file of the known authority.
const TABLE: &[(&str, [Outcome; 4])] = &[
    ("sslmode=disable", [Plain, Plain, Plain, Plain]),
    ("sslmode=allow", [Plain, Plain, Plain, Plain]),
    ("sslmode=prefer", [Encrypted, Encrypted, Encrypted, Encrypted]),
    ("", [Encrypted, Encrypted, Encrypted, Encrypted]),
    ("sslmode=require", [Encrypted, Encrypted, Encrypted, Encrypted]),
    // With an authority to hold it to, `require` verifies as `verify-ca` does.
    ("sslmode=require&sslrootcert=ROOT", [Encrypted, Refused(OLD), Encrypted, Refused(STRANGER)]),
    ("sslmode=verify-ca&sslrootcert=ROOT", [Encrypted, Refused(OLD), Encrypted, Refused(STRANGER)]),
    (
        "sslmode=verify-full&sslrootcert=ROOT",
        [Encrypted, Refused(OLD), Refused("another host"), Refused(STRANGER)],
    ),
    // Whatever the system trusts, it is not the test's authorities.
    ("sslrootcert=system", [Refused(""), Refused(""), Refused(""), Refused("")]),
];

const OLD: &str = "has expired";
const STRANGER: &str = "not signed by an authority";

#[tokio::test]
async fn ops_03_each_mode_with_each_certificate_for_both_connections() {
    crabka_testkit::needs!(postgres);
    let (known, unknown) = (Authority::new(), Authority::new());
    let valid = (2020, 2100);
    // In the order of the table's columns. Both authorities have the same name, as one has that was made anew.
    let certificates = [
        ("good", known.sign("localhost", valid)),
        ("expired", known.sign("localhost", (2001, 2002))),
        ("wrong_host", known.sign("db.example.com", valid)),
        ("unknown", unknown.sign("localhost", valid)),
    ];
    let root = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(root.path(), &known.pem).unwrap();
    let root = root.path().display().to_string();
    let server = server(&certificates).await;
    for (index, (name, _)) in certificates.iter().enumerate() {
        if index > 0 {
            show(&server, name).await;
        }
        for (parameters, outcomes) in TABLE {
            let parameters = parameters.replace("ROOT", &root);
            let url = format!("postgres://postgres@localhost:{}/postgres?{parameters}", server.port());
            // Nothing of the environment, and no root certificate of the home directory.
            let config = Config::parse(&url, &|_| None).unwrap();
            for (connection, outcome) in
                [("replication", over_replication(&config).await), ("sql", over_sql(&config).await)]
            {
                let what = format!("{connection}, {name}, {parameters}: {outcome:?}");
                match (outcomes[index], outcome) {
                    (Plain, Ok(encrypted)) => assert!(!encrypted, "{what}"),
                    (Encrypted, Ok(encrypted)) => assert!(encrypted, "{what}"),
                    (Refused(words), Err(error)) => {
                        assert_eq!(error.class(), ErrorClass::Configuration, "{what}");
                        assert!(error.to_string().contains(words), "{what}");
                    }
                    _ => panic!("{what}"),
                }
            }
        }
    }
}
