//! The parameters by name: which exist, which environment variable stands in for each, what values they take.
//!
//! <https://www.postgresql.org/docs/18/libpq-connect.html#LIBPQ-PARAMKEYWORDS>
//! <https://www.postgresql.org/docs/18/libpq-envars.html>

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::parse::Parameters;
use super::{
    CONNECT_TIMEOUT, ChannelBinding, ClientCert, Config, FRAME_LIMIT_BYTES, Host, HostSpec, RootCert,
    SslConfig, SslMode, TargetSession, TcpConfig, WAL_SENDER_TIMEOUT,
};
use crate::Error;

const DEFAULT_PORT: u16 = 5432;

/// Every parameter with the environment variable of the same meaning.
const KNOWN: &[(&str, Option<&str>)] = &[
    ("application_name", Some("PGAPPNAME")),
    ("channel_binding", Some("PGCHANNELBINDING")),
    ("client_encoding", None),
    ("connect_timeout", Some("PGCONNECT_TIMEOUT")),
    ("dbname", Some("PGDATABASE")),
    ("fallback_application_name", None),
    ("gssencmode", Some("PGGSSENCMODE")),
    ("host", Some("PGHOST")),
    ("hostaddr", Some("PGHOSTADDR")),
    ("keepalives", None),
    ("keepalives_count", None),
    ("keepalives_idle", None),
    ("keepalives_interval", None),
    ("options", Some("PGOPTIONS")),
    ("passfile", Some("PGPASSFILE")),
    ("password", Some("PGPASSWORD")),
    ("port", Some("PGPORT")),
    ("ssl_min_protocol_version", Some("PGSSLMINPROTOCOLVERSION")),
    ("sslcert", Some("PGSSLCERT")),
    ("sslkey", Some("PGSSLKEY")),
    ("sslmode", Some("PGSSLMODE")),
    ("sslnegotiation", Some("PGSSLNEGOTIATION")),
    ("sslrootcert", Some("PGSSLROOTCERT")),
    ("sslsni", Some("PGSSLSNI")),
    ("target_session_attrs", Some("PGTARGETSESSIONATTRS")),
    ("tcp_user_timeout", None),
    ("user", Some("PGUSER")),
];

/// Parameters of libpq that this client does not have, each with what to do instead.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("krbsrvname", "GSSAPI is not supported; use SCRAM or a client certificate"),
    ("gsslib", "GSSAPI is not supported; use SCRAM or a client certificate"),
    ("load_balance_hosts", "hosts are tried in the order given; leave it out"),
    ("replication", "the connection decides this itself; leave it out"),
    ("require_auth", "use channel_binding=require to insist on SCRAM over TLS"),
    ("requirepeer", "it is not supported; leave it out"),
    ("service", "service files are not supported; write the parameters into the URL"),
    ("sslcompression", "TLS compression is never used; leave it out"),
    ("sslcrl", "revocation lists are not supported; leave it out"),
    ("sslcrldir", "revocation lists are not supported; leave it out"),
    ("sslpassword", "encrypted keys are not supported; store the key decrypted with mode 0600"),
    ("ssl_max_protocol_version", "TLS 1.2 and 1.3 are offered; leave it out"),
];

/// The parameters given and the environment behind them.
struct Settings<'a> {
    given: BTreeMap<String, String>,
    environment: &'a dyn Fn(&str) -> Option<String>,
}

impl Settings<'_> {
    /// The value of a parameter; an empty one counts as not given, as in libpq.
    fn get(&self, name: &str) -> Option<String> {
        let given = self.given.get(name).cloned().filter(|value| !value.is_empty());
        given.or_else(|| {
            let (_, variable) = KNOWN.iter().find(|(known, _)| *known == name)?;
            (*variable).and_then(|variable| (self.environment)(variable)).filter(|value| !value.is_empty())
        })
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, Error> {
        self.get(name)
            .map(|value| {
                value.trim().parse().map_err(|_| {
                    Error::config(format!(
                        "the connection parameter {name} must be a whole number, not: {value}"
                    ))
                })
            })
            .transpose()
    }

    fn choice<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> Result<Option<T>, Error> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match choices.iter().find(|(word, _)| *word == value) {
            Some((_, choice)) => Ok(Some(*choice)),
            None => {
                let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
                Err(Error::config(format!(
                    "the connection parameter {name} takes {}, not: {value}",
                    words.join(", ")
                )))
            }
        }
    }

    /// A file in `~/.postgresql`, if it is there.
    fn home_file(&self, name: &str) -> Option<PathBuf> {
        let path = Path::new(&(self.environment)("HOME")?).join(".postgresql").join(name);
        path.exists().then_some(path)
    }
}

pub(super) fn resolve(
    parameters: Parameters,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Config, Error> {
    let mut given = BTreeMap::new();
    for (name, value) in parameters {
        check_name(&name)?;
        given.insert(name, value);
    }
    let settings = Settings { given, environment };
    check_fixed(&settings)?;
    let user = settings
        .get("user")
        .or_else(|| environment("USER").filter(|user| !user.is_empty()))
        .or_else(|| environment("LOGNAME").filter(|user| !user.is_empty()))
        .ok_or_else(|| {
            Error::config("no user to log in as; write it into the URL (postgres://USER@...) or set PGUSER")
        })?;
    let passfile = settings
        .get("passfile")
        .map(PathBuf::from)
        .or_else(|| environment("HOME").map(|home| Path::new(&home).join(".pgpass")));
    let config = Config {
        hosts: hosts(&settings)?,
        dbname: settings.get("dbname").unwrap_or_else(|| user.clone()),
        user,
        password: settings.get("password"),
        passfile,
        ssl: ssl(&settings)?,
        channel_binding: channel_binding(&settings)?,
        target: target(&settings)?,
        connect_timeout: match settings.number::<i64>("connect_timeout")? {
            None => Some(CONNECT_TIMEOUT),
            Some(seconds) => {
                u64::try_from(seconds).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
            }
        },
        tcp: tcp(&settings)?,
        application_name: settings
            .get("application_name")
            .or_else(|| settings.get("fallback_application_name"))
            .unwrap_or_else(|| "crabka".into()),
        options: settings.get("options"),
        wal_sender_timeout: Some(WAL_SENDER_TIMEOUT),
        frame_limit: FRAME_LIMIT_BYTES,
        allow_insecure_password: false,
    };
    for text in [&config.user, &config.dbname, &config.application_name] {
        if text.contains('\0') {
            return Err(Error::config("a connection parameter contains a zero byte"));
        }
    }
    Ok(config)
}

fn check_name(name: &str) -> Result<(), Error> {
    if KNOWN.iter().any(|(known, _)| *known == name) {
        return Ok(());
    }
    if let Some((_, instead)) = UNSUPPORTED.iter().find(|(known, _)| *known == name) {
        return Err(Error::config(format!("the connection parameter {name} is not supported: {instead}")));
    }
    let names = KNOWN.iter().map(|(known, _)| *known);
    let nearest = names.min_by_key(|known| strsim::damerau_levenshtein(known, name)).unwrap_or_default();
    Err(Error::config(format!("unknown connection parameter {name}; the nearest known one is: {nearest}")))
}

/// Parameters of which only one value makes sense here.
fn check_fixed(settings: &Settings<'_>) -> Result<(), Error> {
    if let Some(encoding) = settings.get("client_encoding")
        && !["utf8", "utf-8", "unicode"].contains(&encoding.to_ascii_lowercase().as_str())
    {
        return Err(Error::config(format!(
            "client_encoding is always UTF8 here; leave it out, it is set to: {encoding}"
        )));
    }
    settings.choice("gssencmode", &[("disable", ()), ("prefer", ())])?;
    Ok(())
}

fn hosts(settings: &Settings<'_>) -> Result<Vec<HostSpec>, Error> {
    let list = |name| settings.get(name).map(|value| value.split(',').map(str::to_owned).collect::<Vec<_>>());
    let names = list("host");
    let addresses = list("hostaddr");
    let ports = list("port").unwrap_or_default();
    let count = names.as_ref().or(addresses.as_ref()).map_or(1, Vec::len);
    if let (Some(names), Some(addresses)) = (&names, &addresses)
        && names.len() != addresses.len()
    {
        return Err(Error::config(format!(
            "host and hostaddr must name the same number of places, they name: {} and {}",
            names.len(),
            addresses.len()
        )));
    }
    if ports.len() > 1 && ports.len() != count {
        return Err(Error::config(format!(
            "give one port for all hosts or one for each: {count} hosts, {} ports",
            ports.len()
        )));
    }
    (0..count)
        .map(|index| {
            let nth = |list: &Option<Vec<String>>| {
                list.as_ref()
                    .and_then(|list| list.get(index))
                    .map(|text| text.trim().to_owned())
                    .filter(|text| !text.is_empty())
            };
            let address = nth(&addresses)
                .map(|text| {
                    text.parse().map_err(|_| Error::config(format!("hostaddr is not an IP address: {text}")))
                })
                .transpose()?;
            let host = match nth(&names) {
                Some(name) if name.starts_with('/') => Host::Directory(PathBuf::from(name)),
                Some(name) if name.starts_with('@') => {
                    return Err(Error::config(format!(
                        "sockets in the abstract namespace are not supported: {name}"
                    )));
                }
                Some(name) => Host::Name(name),
                None => {
                    address.map_or(Host::Default, |address: std::net::IpAddr| Host::Name(address.to_string()))
                }
            };
            let port = port(if ports.len() > 1 { ports.get(index) } else { ports.first() })?;
            Ok(HostSpec { host, address, port })
        })
        .collect()
}

fn port(text: Option<&String>) -> Result<u16, Error> {
    match text.map(|text| text.trim()).filter(|text| !text.is_empty()) {
        None => Ok(DEFAULT_PORT),
        Some(text) => match text.parse() {
            Ok(port) if port > 0 => Ok(port),
            _ => Err(Error::config(format!("a port is a number from 1 to 65535, not: {text}"))),
        },
    }
}

fn ssl(settings: &Settings<'_>) -> Result<SslConfig, Error> {
    let mode = settings.choice(
        "sslmode",
        &[
            ("disable", SslMode::Disable),
            ("allow", SslMode::Allow),
            ("prefer", SslMode::Prefer),
            ("require", SslMode::Require),
            ("verify-ca", SslMode::VerifyCa),
            ("verify-full", SslMode::VerifyFull),
        ],
    )?;
    let root_cert = match settings.get("sslrootcert") {
        Some(system) if system == "system" => RootCert::System,
        Some(path) => RootCert::File(PathBuf::from(path)),
        None => settings.home_file("root.crt").map_or(RootCert::None, RootCert::File),
    };
    let mode = match (mode, &root_cert) {
        (None, RootCert::System) => SslMode::VerifyFull,
        (Some(weak), RootCert::System) if weak != SslMode::VerifyFull => {
            return Err(Error::config(
                "sslrootcert=system trusts every public authority, so the host name must be checked too; set \
                 sslmode=verify-full",
            ));
        }
        (mode, _) => mode.unwrap_or_default(),
    };
    let direct =
        settings.choice("sslnegotiation", &[("postgres", false), ("direct", true)])?.unwrap_or(false);
    if direct && mode < SslMode::Require {
        return Err(Error::config("sslnegotiation=direct needs sslmode=require, verify-ca or verify-full"));
    }
    let cert = settings.get("sslcert").map(PathBuf::from).or_else(|| settings.home_file("postgresql.crt"));
    let key = settings.get("sslkey").map(PathBuf::from).or_else(|| settings.home_file("postgresql.key"));
    let client_cert = match (cert, key) {
        (Some(cert), Some(key)) => Some(ClientCert { cert, key }),
        (Some(cert), None) => {
            return Err(Error::config(format!(
                "set sslkey to the private key of the client certificate: {}",
                cert.display()
            )));
        }
        (None, _) => None,
    };
    let flag = [("1", true), ("0", false)];
    let sni = settings.choice("sslsni", &flag)?.unwrap_or(true);
    let tls13_only = settings
        .choice(
            "ssl_min_protocol_version",
            &[("TLSv1.2", false), ("TLSv1.3", true), ("TLSv1", false), ("TLSv1.1", false)],
        )?
        .unwrap_or(false);
    Ok(SslConfig { mode, root_cert, client_cert, direct, sni, tls13_only })
}

fn channel_binding(settings: &Settings<'_>) -> Result<ChannelBinding, Error> {
    let choices = [
        ("disable", ChannelBinding::Disable),
        ("prefer", ChannelBinding::Prefer),
        ("require", ChannelBinding::Require),
    ];
    Ok(settings.choice("channel_binding", &choices)?.unwrap_or_default())
}

fn target(settings: &Settings<'_>) -> Result<TargetSession, Error> {
    let choices = [
        ("any", TargetSession::Any),
        ("read-write", TargetSession::ReadWrite),
        ("read-only", TargetSession::ReadOnly),
        ("primary", TargetSession::Primary),
        ("standby", TargetSession::Standby),
        ("prefer-standby", TargetSession::PreferStandby),
    ];
    Ok(settings.choice("target_session_attrs", &choices)?.unwrap_or_default())
}

fn tcp(settings: &Settings<'_>) -> Result<TcpConfig, Error> {
    let mut tcp = TcpConfig::default();
    if let Some(keepalives) = settings.number::<i32>("keepalives")? {
        tcp.keepalive = keepalives != 0;
    }
    // Zero means "the default" for each of these.
    let seconds = |name| -> Result<Option<Duration>, Error> {
        Ok(settings
            .number::<u32>(name)?
            .filter(|value| *value > 0)
            .map(|value| Duration::from_secs(value.into())))
    };
    tcp.keepalive_idle = seconds("keepalives_idle")?.unwrap_or(tcp.keepalive_idle);
    tcp.keepalive_interval = seconds("keepalives_interval")?.unwrap_or(tcp.keepalive_interval);
    if let Some(count) = settings.number::<u32>("keepalives_count")?.filter(|count| *count > 0) {
        tcp.keepalive_count = count;
    }
    match settings.number::<u32>("tcp_user_timeout")? {
        None => {}
        Some(0) => tcp.user_timeout = None,
        Some(milliseconds) => tcp.user_timeout = Some(Duration::from_millis(milliseconds.into())),
    }
    Ok(tcp)
}
