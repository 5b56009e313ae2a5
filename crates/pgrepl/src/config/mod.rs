//! Where to connect, as whom, and how safely: libpq's parameters.
//!
//! What the URL says wins over the environment (`PG*`), which wins over the password file and the defaults.
//!
//! <https://www.postgresql.org/docs/18/libpq-connect.html>

mod parameters;
mod parse;
mod passfile;
mod startup;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

pub use startup::PINNED_SETTINGS;

use crate::Error;
use crate::transport::Peer;

/// Largest message taken from the server, in bytes: a `bytea` of 300 MB is one message of 629 MB in text form.
const FRAME_LIMIT_BYTES: usize = 1 << 30;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const WAL_SENDER_TIMEOUT: Duration = Duration::from_secs(60);
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(60);

/// How a connection is made: hosts, credentials, TLS, session settings.
///
/// From a URL, with the process environment for what the URL leaves open:
///
/// ```
/// let config: crabka_pgrepl::Config = "postgres://app@db1.example.com,db2.example.com:5433/shop".parse()?;
/// assert_eq!(config.dbname(), "shop");
/// # Ok::<(), crabka_pgrepl::Error>(())
/// ```
///
/// `Debug` and `Display` never show the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    pub(crate) hosts: Vec<HostSpec>,
    user: String,
    dbname: String,
    password: Option<String>,
    passfile: Option<PathBuf>,
    pub(crate) ssl: SslConfig,
    pub(crate) channel_binding: ChannelBinding,
    pub(crate) target: TargetSession,
    pub(crate) connect_timeout: Option<Duration>,
    pub(crate) tcp: TcpConfig,
    application_name: String,
    options: Option<String>,
    pub(crate) wal_sender_timeout: Option<Duration>,
    pub(crate) frame_limit: usize,
    pub(crate) allow_insecure_password: bool,
}

/// One of the places to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostSpec {
    pub(crate) host: Host,
    /// Address to use instead of looking the name up.
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Host {
    /// None given: the usual socket directories, else `localhost`.
    Default,
    /// A name or an address.
    Name(String),
    /// Directory of the server's socket.
    Directory(PathBuf),
}

impl fmt::Display for HostSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.port;
        match &self.host {
            Host::Default => write!(f, "(default host):{port}"),
            Host::Name(name) if name.contains(':') => write!(f, "[{name}]:{port}"),
            Host::Name(name) => write!(f, "{name}:{port}"),
            Host::Directory(directory) => write!(f, "{}/.s.PGSQL.{port}", directory.display()),
        }
    }
}

/// How much TLS is asked for; ignored on Unix sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum SslMode {
    /// Never.
    Disable,
    /// Only if the server refuses a plain connection.
    Allow,
    /// If the server offers it.
    #[default]
    Prefer,
    /// Always. The certificate is not checked unless a root certificate is given.
    Require,
    /// Always, and the certificate must come from a trusted authority.
    VerifyCa,
    /// As `VerifyCa`, and it must be made out to the host's name.
    VerifyFull,
}

/// TLS settings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SslConfig {
    pub(crate) mode: SslMode,
    pub(crate) root_cert: RootCert,
    pub(crate) client_cert: Option<ClientCert>,
    /// Start with the TLS handshake instead of asking for it (PostgreSQL 17 and later).
    pub(crate) direct: bool,
    /// Server name indication.
    pub(crate) sni: bool,
    /// Refuse TLS 1.2.
    pub(crate) tls13_only: bool,
}

/// Which authorities are trusted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum RootCert {
    /// None named and no default file there; the path is where it would be.
    #[default]
    None,
    File(PathBuf),
    /// The operating system's.
    System,
}

/// PEM files of a client certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientCert {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

/// Whether SCRAM must be, may be or is not tied to the TLS session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ChannelBinding {
    /// Not used.
    Disable,
    /// Used when both sides can.
    #[default]
    Prefer,
    /// The connection fails without it.
    Require,
}

/// Which kind of server is wanted, `target_session_attrs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum TargetSession {
    #[default]
    Any,
    ReadWrite,
    ReadOnly,
    Primary,
    Standby,
    PreferStandby,
}

/// Socket settings; without effect on Unix sockets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TcpConfig {
    pub(crate) keepalive: bool,
    pub(crate) keepalive_idle: Duration,
    pub(crate) keepalive_interval: Duration,
    pub(crate) keepalive_count: u32,
    /// How long sent data may stay unacknowledged; `None` leaves it to the system.
    pub(crate) user_timeout: Option<Duration>,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            keepalive: true,
            keepalive_idle: Duration::from_secs(30),
            keepalive_interval: Duration::from_secs(10),
            keepalive_count: 3,
            user_timeout: Some(TCP_USER_TIMEOUT),
        }
    }
}

impl Config {
    /// Reads a URL or a `name=value` list; `environment` answers for the `PG*` variables, `HOME` and `USER`.
    ///
    /// # Errors
    ///
    /// Configuration: a parameter that does not exist (the nearest known one is named), a value out of range.
    pub fn parse(text: &str, environment: &dyn Fn(&str) -> Option<String>) -> Result<Self, Error> {
        parameters::resolve(parse::parameters(text)?, environment)
    }

    /// The user to log in as.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The database to connect to.
    pub fn dbname(&self) -> &str {
        &self.dbname
    }

    /// `application_name` of the session.
    pub fn application_name(&self) -> &str {
        &self.application_name
    }

    /// The least TLS that is accepted.
    pub fn ssl_mode(&self) -> SslMode {
        self.ssl.mode
    }

    /// Whether SCRAM must be tied to the TLS session.
    pub fn channel_binding(&self) -> ChannelBinding {
        self.channel_binding
    }

    /// The password for a connection to `peer`: the one given, else the first match of the password file.
    ///
    /// # Errors
    ///
    /// Configuration: the password file cannot be read, or others can read it too.
    pub fn password_for(&self, peer: &Peer) -> Result<Option<String>, Error> {
        if self.password.is_some() {
            return Ok(self.password.clone());
        }
        let Some(path) = &self.passfile else { return Ok(None) };
        let content = passfile::read(path).map_err(Error::config)?;
        let (host, port) = peer.password_key();
        let wanted = passfile::Wanted { host: &host, port, dbname: &self.dbname, user: &self.user };
        Ok(content.and_then(|content| passfile::find(&content, wanted)))
    }

    /// Where passwords are looked up when none is given.
    pub(crate) fn passfile(&self) -> Option<&Path> {
        self.passfile.as_deref()
    }

    /// Logs in with this password.
    #[must_use]
    pub fn with_password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Another database on the same server.
    #[must_use]
    pub fn with_dbname(mut self, dbname: impl Into<String>) -> Self {
        self.dbname = dbname.into();
        self
    }

    /// Shows under this name in `pg_stat_replication` and `pg_stat_activity`.
    #[must_use]
    pub fn with_application_name(mut self, name: impl Into<String>) -> Self {
        self.application_name = name.into();
        self
    }

    /// `wal_sender_timeout` of the session: after how long without a sign of us the server gives the connection up.
    /// `None` leaves it to the server. Default 60 s.
    #[must_use]
    pub fn with_wal_sender_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.wal_sender_timeout = timeout;
        self
    }

    /// Largest message accepted from the server, in bytes. Default 1 GiB.
    #[must_use]
    pub fn with_frame_limit(mut self, bytes: usize) -> Self {
        self.frame_limit = bytes;
        self
    }

    /// Allows the password to be sent in clear or as MD5 over TCP without TLS. Default: refused.
    #[must_use]
    pub fn with_insecure_password_allowed(mut self, allowed: bool) -> Self {
        self.allow_insecure_password = allowed;
        self
    }

    /// Whether the password may be sent in clear or as MD5 over TCP without TLS.
    pub fn insecure_password_allowed(&self) -> bool {
        self.allow_insecure_password
    }

    /// How long each address may take to be connected, `None` for ever. Default 10 s.
    #[must_use]
    pub fn with_connect_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// The same settings for the very server, address and kind of encryption of `peer`, so that a second connection
    /// reaches the same server as the first.
    #[must_use]
    pub fn pinned_to(mut self, peer: &Peer) -> Self {
        self.hosts = vec![peer.spec.clone()];
        if !peer.encrypted {
            self.ssl.mode = SslMode::Disable;
        } else if self.ssl.mode < SslMode::Require {
            // Not `Require`, which would start to verify where a root certificate lies in its default place.
            self.ssl.mode = SslMode::Prefer;
        }
        self.target = TargetSession::Any;
        self
    }
}

impl FromStr for Config {
    type Err = Error;

    /// As [`Config::parse`] with the environment of the process.
    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text, &|name| std::env::var(name).ok())
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user={} dbname={} host=", self.user, self.dbname)?;
        for (index, host) in self.hosts.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            write!(f, "{separator}{host}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("hosts", &self.hosts)
            .field("user", &self.user)
            .field("dbname", &self.dbname)
            .field("password", &self.password.as_ref().map(|_| "[redacted]"))
            .field("passfile", &self.passfile)
            .field("ssl", &self.ssl)
            .field("channel_binding", &self.channel_binding)
            .field("target", &self.target)
            .field("connect_timeout", &self.connect_timeout)
            .field("application_name", &self.application_name)
            .field("wal_sender_timeout", &self.wal_sender_timeout)
            .field("frame_limit", &self.frame_limit)
            .finish_non_exhaustive()
    }
}
