//! The start-up check: everything that would keep a stream from working or cost data later, found at once, each with
//! the SQL or setting that mends it.
//!
//! The check reads only; the one thing it changes, the time limit of its own session, it puts back. Each probe has
//! its own time, and all have one together: a probe that blocks becomes a *could not look*, which is neither right nor wrong.

mod facts;
mod publication;
mod report;
mod role;
mod server;
mod slot;
mod tables;

use std::fmt;
use std::time::Duration;

use crabka_connect::ConnectError;
use tokio::time::{Instant, timeout_at};

use crate::catalog::{OLD_TRANSACTION, TableName, TablePattern};
use crate::sql::SqlConnection;

pub(crate) use facts::Facts;
pub(crate) use publication::{
    existence as publication_existence, operations as publication_operations, tables as publication_tables,
};
pub use report::{Finding, Report, Severity, id};
pub(crate) use role::publication_rights;
pub(crate) use server::{version as server_version, wal_level};
pub(crate) use slot::{ended_by, waits_for};
pub(crate) use tables::identity_findings;

/// The topic of a table.
pub type TopicOf<'a> = &'a (dyn Fn(&TableName) -> String + Send + Sync);

/// What a stream is going to be, so that a check can say what is in its way.
pub struct CheckRequest<'a> {
    /// Name of the slot; `None` when it is a temporary one of the session.
    pub slot: Option<String>,
    /// Name of the publication.
    pub publication: String,
    /// The configured tables; none means every table of the publication.
    pub tables: Vec<TablePattern>,
    /// Whether a publication created at start publishes partitions under the root's name.
    pub via_root: bool,
    /// Whether a missing publication is created at start.
    pub creates_publication: bool,
    /// Whether a missing slot is created at start.
    pub creates_slot: bool,
    /// Whether prepared transactions are read (a slot that sends them is an error otherwise).
    pub two_phase: bool,
    /// Whether rows are read by SQL, so that SELECT is needed and not only advised.
    pub reads_tables: bool,
    /// The topic of a table, to find those that share one.
    pub topic: Option<TopicOf<'a>>,
    /// Topics that no table may have: messages, transactions, heartbeat.
    pub reserved_topics: Vec<String>,
    /// Whether tables share topics on purpose.
    pub shares_topics: bool,
    /// `application_name` of our own sessions: a slot they read is in use as intended.
    pub application: Option<String>,
    /// What removes the offset that is stored, where there is one: a slot that is moved or made anew needs it.
    pub forget_offset: Option<String>,
    /// From which age on a transaction that the slot's creation waits for is reported.
    pub old_transaction_age: Duration,
    /// Time of one probe.
    pub probe_limit: Duration,
    /// Time of the whole check.
    pub total_limit: Duration,
}

impl CheckRequest<'_> {
    /// A request with the defaults: nothing is created, nothing but the stream is read.
    pub fn new(slot: impl Into<String>, publication: impl Into<String>, tables: Vec<TablePattern>) -> Self {
        Self {
            slot: Some(slot.into()),
            publication: publication.into(),
            tables,
            via_root: false,
            creates_publication: false,
            creates_slot: false,
            two_phase: false,
            reads_tables: false,
            topic: None,
            reserved_topics: Vec::new(),
            shares_topics: false,
            application: None,
            forget_offset: None,
            old_transaction_age: OLD_TRANSACTION,
            probe_limit: Duration::from_secs(5),
            total_limit: Duration::from_secs(30),
        }
    }
}

impl fmt::Debug for CheckRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckRequest")
            .field("slot", &self.slot)
            .field("publication", &self.publication)
            .field("tables", &self.tables)
            .finish_non_exhaustive()
    }
}

/// The clock of one check: cuts off each probe, and all of them together.
struct Bounded {
    probe_limit: Duration,
    end: Instant,
}

/// What a probe gets on top of the server's own limit, so that the server's cancel arrives first.
const PROBE_GRACE: Duration = Duration::from_millis(500);

impl Bounded {
    async fn run<T>(&self, probe: impl Future<Output = Result<T, ConnectError>>) -> Result<T, ConnectError> {
        let own_end = Instant::now() + self.probe_limit + PROBE_GRACE;
        let out_of_time = || ConnectError::transient("no answer in time");
        timeout_at(own_end.min(self.end), probe).await.unwrap_or_else(|_| Err(out_of_time()))
    }
}

/// Looks at everything that `request` depends on. Never fails: what could not be looked at is a finding.
///
/// # Cancel safety
///
/// Dropping the future leaves nothing behind but the shortened time limit of the session.
pub async fn check(sql: &SqlConnection, request: &CheckRequest<'_>) -> Report {
    let bounded = Bounded { probe_limit: request.probe_limit, end: Instant::now() + request.total_limit };
    let before = sql.statement_limit();
    let mut report = Report::default();
    if let Err(error) = bounded.run(sql.set_statement_limit(request.probe_limit)).await {
        report.take(&[id::CONNECTION], Err(error));
        return report;
    }
    probe_all(sql, request, &bounded, &mut report).await;
    if let Err(error) = bounded.run(sql.set_statement_limit(before)).await {
        report.take(&[id::CONNECTION], Err(error));
    }
    report
}

async fn probe_all(sql: &SqlConnection, request: &CheckRequest<'_>, bounded: &Bounded, report: &mut Report) {
    let facts = Facts::gather(sql, request, bounded).await;
    report.take(server::IDS, facts.server().and_then(server::findings));
    report.take(&[id::IN_RECOVERY], bounded.run(server::recovery(sql, &facts)).await);
    report.take(server::ROOM_IDS, bounded.run(server::room(sql, request, &facts)).await);
    report.take(server::RETENTION_IDS, bounded.run(server::retention(sql)).await);
    report.take(&[id::SERVER_ENCODING], bounded.run(server::encoding(sql)).await);
    report.take(role::IDS, bounded.run(role::attributes(sql)).await);
    report.take(&[id::PUBLICATION_RIGHTS], bounded.run(role::publication_rights(sql, request, &facts)).await);
    report.take(role::TABLE_IDS, bounded.run(role::tables(sql, request, &facts)).await);
    report.take(&[id::PUBLICATION_MISSING], publication::existence(request, &facts));
    report.take(&[id::PUBLICATION_OPERATIONS], publication::operations(&facts));
    report.take(publication::TABLE_IDS, publication::tables(request, &facts));
    report.take(tables::IDS, tables::findings(&facts));
    report.take(&[id::TOPIC_COLLISION], tables::topics(request, &facts));
    report.take(slot::IDS, bounded.run(slot::findings(sql, request, &facts)).await);
    report.take(&[id::OLD_TRANSACTIONS], bounded.run(slot::old_transactions(sql, request, &facts)).await);
}
