//! Findings: what was looked at, what came of it, and what mends it.

use std::borrow::Cow;
use std::fmt;

use crabka_connect::ConnectError;
use serde::Serialize;

/// The stable names of findings. Programs may rely on them; the texts may change.
pub mod id {
    /// The server can be reached and lets us in.
    pub const CONNECTION: &str = "connection";
    /// The server is of a supported version.
    pub const SERVER_VERSION: &str = "server_version";
    /// The server's encoding can be turned into UTF-8.
    pub const SERVER_ENCODING: &str = "server_encoding";
    /// Whether the server is a standby, and what that asks for.
    pub const IN_RECOVERY: &str = "in_recovery";
    /// `wal_level` is `logical`.
    pub const WAL_LEVEL: &str = "wal_level";
    /// There is room for the slot.
    pub const REPLICATION_SLOTS_FREE: &str = "replication_slots_free";
    /// There is room for the replication connection.
    pub const WAL_SENDERS_FREE: &str = "wal_senders_free";
    /// How much WAL a slot may hold before it is invalidated.
    pub const MAX_SLOT_WAL_KEEP_SIZE: &str = "max_slot_wal_keep_size";
    /// How long a slot may be unused before it is invalidated.
    pub const IDLE_REPLICATION_SLOT_TIMEOUT: &str = "idle_replication_slot_timeout";
    /// Transactions that the creation of the slot would wait for.
    pub const OLD_TRANSACTIONS: &str = "old_transactions";
    /// The role may open replication connections.
    pub const ROLE_REPLICATION: &str = "role_replication";
    /// Limits of the role that cut a long-lived session.
    pub const ROLE_LIMITS: &str = "role_limits";
    /// The role may read the tables.
    pub const TABLE_SELECT: &str = "table_select";
    /// Row-level security hides rows from the role.
    pub const ROW_SECURITY: &str = "row_security";
    /// The role may create the publication.
    pub const PUBLICATION_RIGHTS: &str = "publication_rights";
    /// The publication exists.
    pub const PUBLICATION_MISSING: &str = "publication_missing";
    /// The publication publishes every operation.
    pub const PUBLICATION_OPERATIONS: &str = "publication_operations";
    /// Whether changes of partitions come under their own names or the root's.
    pub const PUBLICATION_VIA_ROOT: &str = "publication_via_root";
    /// The publication has every configured table.
    pub const PUBLICATION_TABLE_MISSING: &str = "publication_table_missing";
    /// The publication has tables that are not configured.
    pub const PUBLICATION_TABLE_EXTRA: &str = "publication_table_extra";
    /// A publication that is to be created names tables one by one, so that later ones do not join.
    pub const PUBLICATION_FIXED_TABLES: &str = "publication_fixed_tables";
    /// Column lists cover the replica identity.
    pub const PUBLICATION_COLUMN_LIST: &str = "publication_column_list";
    /// Every configured table exists and can be published.
    pub const TABLE_MISSING: &str = "table_missing";
    /// Every published table has a replica identity.
    pub const REPLICA_IDENTITY: &str = "replica_identity";
    /// Every table has a key.
    pub const KEYLESS_TABLE: &str = "keyless_table";
    /// What `before` of each captured table will hold.
    pub const BEFORE_IMAGE: &str = "before_image";
    /// Key columns are part of the replica identity.
    pub const KEY_NOT_IN_IDENTITY: &str = "key_not_in_identity";
    /// No two tables share a topic.
    pub const TOPIC_COLLISION: &str = "topic_collision";
    /// The slot can be streamed from.
    pub const SLOT_STATE: &str = "slot_state";
    /// Who reads the slot now.
    pub const SLOT_OWNER: &str = "slot_owner";
    /// The slot does not send prepared transactions unasked.
    pub const TWO_PHASE_SLOT: &str = "two_phase_slot";
}

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Looked at, nothing wrong.
    Ok,
    /// Streaming works; something is lost, at risk, or not as configured.
    Warning,
    /// The look-up failed: neither right nor wrong is known.
    CouldNotLook,
    /// Streaming cannot start, or would not deliver what is configured.
    Error,
}

impl Severity {
    /// The word used in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::CouldNotLook => "could not look",
            Self::Error => "error",
        }
    }
}

/// One answer of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Stable name; see [`id`].
    pub id: Cow<'static, str>,
    /// How much it matters.
    pub severity: Severity,
    /// What it is about, where there is more than one: a table, a slot, a topic.
    pub subject: Option<String>,
    /// What was found.
    pub message: String,
    /// The SQL, setting or command that mends it.
    pub fix: Option<String>,
}

impl Finding {
    fn new(id: impl Into<Cow<'static, str>>, severity: Severity, message: impl Into<String>) -> Self {
        Self { id: id.into(), severity, subject: None, message: message.into(), fix: None }
    }

    /// Nothing wrong.
    pub fn ok(id: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(id, Severity::Ok, message)
    }

    /// Something at risk.
    pub fn warning(id: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(id, Severity::Warning, message)
    }

    /// Something that keeps the stream from working.
    pub fn error(id: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(id, Severity::Error, message)
    }

    /// A look-up that failed, with why.
    pub fn could_not_look(id: impl Into<Cow<'static, str>>, error: &ConnectError) -> Self {
        let finding = Self::new(id, Severity::CouldNotLook, error.message());
        Self { fix: error.fix().map(str::to_owned), ..finding }
    }

    /// Says what it is about.
    #[must_use]
    pub fn about(mut self, subject: impl fmt::Display) -> Self {
        self.subject = Some(subject.to_string());
        self
    }

    /// Says what mends it.
    #[must_use]
    pub fn mended_by(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.severity.as_str(), self.id)?;
        if let Some(subject) = &self.subject {
            write!(f, " ({subject})")?;
        }
        write!(f, ": {}", self.message)?;
        match &self.fix {
            Some(fix) => write!(f, "\n    to fix: {fix}"),
            None => Ok(()),
        }
    }
}

/// All answers of a check. `Display` is the human form; serialised it has the same content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The findings, in the order of looking.
    pub findings: Vec<Finding>,
}

impl Report {
    /// The report of a server that could not be reached: nothing else was looked at. What may work later is no finding
    /// about the configuration.
    pub fn unreachable(error: &ConnectError) -> Self {
        let finding = Finding::could_not_look(id::CONNECTION, error);
        let severity = if error.is_transient() { Severity::CouldNotLook } else { Severity::Error };
        Self { findings: vec![Finding { severity, ..finding }] }
    }

    /// The findings of that severity.
    pub fn of(&self, severity: Severity) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| finding.severity == severity)
    }

    /// The findings of that name.
    pub fn named<'a>(&'a self, id: &'a str) -> impl Iterator<Item = &'a Finding> {
        self.findings.iter().filter(move |finding| finding.id == id)
    }

    /// The gravest severity; [`Severity::Ok`] for an empty report.
    pub fn worst(&self) -> Severity {
        self.findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok)
    }

    /// All errors of the report as one configuration error; `None` when there are none. What could not be looked at
    /// is no error: whatever is wrong there shows when the stream starts.
    pub fn to_error(&self) -> Option<ConnectError> {
        let errors: Vec<&Finding> = self.of(Severity::Error).collect();
        if errors.is_empty() {
            return None;
        }
        let text = |finding: &Finding| match &finding.subject {
            Some(subject) => format!("{} ({subject}): {}", finding.id, finding.message),
            None => format!("{}: {}", finding.id, finding.message),
        };
        let message = errors.iter().map(|finding| text(finding)).collect::<Vec<_>>().join("; ");
        let fixes: Vec<&str> = errors.iter().filter_map(|finding| finding.fix.as_deref()).collect();
        let error = ConnectError::configuration(message);
        Some(if fixes.is_empty() { error } else { error.with_fix(fixes.join("; ")) })
    }

    /// Adds what a probe found, or one *could not look* for each name it answers for.
    pub(crate) fn take(&mut self, ids: &[&'static str], found: Result<Vec<Finding>, ConnectError>) {
        match found {
            Ok(findings) => self.findings.extend(findings),
            Err(error) => self.findings.extend(ids.iter().map(|id| Finding::could_not_look(*id, &error))),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        let count = |severity| self.of(severity).count();
        write!(
            f,
            "{} errors, {} warnings, {} could not be looked at, {} ok",
            count(Severity::Error),
            count(Severity::Warning),
            count(Severity::CouldNotLook),
            count(Severity::Ok)
        )
    }
}
