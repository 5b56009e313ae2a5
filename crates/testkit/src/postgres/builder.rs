//! What a throw-away cluster is to be like.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use super::install::PgInstall;
use super::server::PgServer;
use crate::error::Error;

/// Settings that every test cluster starts with; a builder's own settings come after them and win.
const DEFAULTS: &[(&str, &str)] = &[
    ("wal_level", "logical"),
    ("max_replication_slots", "64"),
    ("max_wal_senders", "64"),
    ("max_connections", "200"),
    ("max_prepared_transactions", "64"),
    ("max_worker_processes", "16"),
    ("shared_buffers", "64MB"),
    ("fsync", "off"),
    ("jit", "off"),
    ("timezone", "UTC"),
    ("log_timezone", "UTC"),
    ("log_line_prefix", "%m [%p] %q%a "),
    ("logging_collector", "off"),
    ("log_destination", "stderr"),
];

/// Everybody may come in, from this machine only.
const DEFAULT_HBA: &str = "\
local all all trust
host all all 127.0.0.1/32 trust
host all all ::1/128 trust
local replication all trust
host replication all 127.0.0.1/32 trust
host replication all ::1/128 trust
";

/// Describes a cluster before it is started; made by [`PgServer::builder`].
#[derive(Debug, Clone, Default)]
pub struct PgServerBuilder {
    pub(crate) major: Option<u32>,
    pub(crate) install: Option<PgInstall>,
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) hba: Vec<String>,
    pub(crate) files: Vec<(String, Vec<u8>)>,
    pub(crate) start_timeout: Option<Duration>,
    /// Files to begin with, instead of those of a new cluster.
    pub(crate) backup: Option<Arc<TempDir>>,
}

impl PgServerBuilder {
    /// Major version, such as 17. Without it the version is [`DEFAULT_MAJOR`](super::DEFAULT_MAJOR) where installed.
    #[must_use]
    pub fn major(mut self, major: u32) -> Self {
        self.major = Some(major);
        self
    }

    /// These very programs, such as one of [`PgInstall::all`].
    #[must_use]
    pub fn install(mut self, install: PgInstall) -> Self {
        self.install = Some(install);
        self
    }

    /// A line of `postgresql.conf`; the value is quoted here. The last one of a name wins.
    #[must_use]
    pub fn setting(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.settings.push((name.into(), value.to_string()));
        self
    }

    /// Writes reach the disk before a commit is answered. Off by default: a killed *process* loses nothing either way.
    #[must_use]
    pub fn fsync(self, on: bool) -> Self {
        self.setting("fsync", if on { "on" } else { "off" })
    }

    /// A line of `pg_hba.conf`, before the default ones, which trust everybody on loopback and on the socket:
    /// `hostssl all app 127.0.0.1/32 scram-sha-256`.
    #[must_use]
    pub fn hba(mut self, line: impl Into<String>) -> Self {
        self.hba.push(line.into());
        self
    }

    /// A file in the data directory, mode 0600 and owned by the server's account: certificates, keys, `pg_ident.conf`.
    #[must_use]
    pub fn file(mut self, name: impl Into<String>, contents: impl Into<Vec<u8>>) -> Self {
        self.files.push((name.into(), contents.into()));
        self
    }

    /// How long a start may take; 60 s without this.
    #[must_use]
    pub fn start_timeout(mut self, limit: Duration) -> Self {
        self.start_timeout = Some(limit);
        self
    }

    /// Begins with these files instead of a new cluster's.
    pub(crate) fn backup(mut self, backup: TempDir) -> Self {
        self.backup = Some(Arc::new(backup));
        self
    }

    /// Makes the cluster and starts it; it accepts connections when this returns.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] without such a server on this machine, [`Error::NotReady`] with the end of its log when it
    /// does not come up, [`Error::LeftOut`] in a quick run.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the server comes up in the background and is stopped at once.
    pub async fn start(self) -> Result<PgServer, Error> {
        PgServer::launch(self).await
    }

    pub(crate) fn default_settings() -> Vec<(String, String)> {
        DEFAULTS.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    pub(crate) fn hba_file(&self) -> String {
        let mut text = String::new();
        for line in &self.hba {
            text.push_str(line);
            text.push('\n');
        }
        text.push_str(DEFAULT_HBA);
        text
    }
}
