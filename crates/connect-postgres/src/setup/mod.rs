//! Publication and slot, created on request: what `crabka init` does, and the source at its first start.
//!
//! [`plan`] says what would be done and changes nothing; [`apply`] does it. The publication comes before the slot,
//! always: changes between the two would be decoded with a catalogue that lacks it. What exists is used as it is; a
//! difference to the configuration is a finding, never an ALTER.

mod drop;
mod publication;
mod slot;

use std::fmt;
use std::time::Duration;

use crabka_connect::ConnectError;
use crabka_pgrepl::{Config, CreateSlot, CreatedSlot, ReplicationClient};
use serde::Serialize;

use crate::catalog::TablePattern;
use crate::check::{self, CheckRequest, Facts, Finding, Report, Severity};
use crate::classify::replication_error;
use crate::sql::SqlConnection;

pub use drop::{DropSlot, DroppedSlot};
pub(crate) use publication::{create_publication_sql, expansion};
pub use slot::{SlotWait, abandoned_creations_cancelled, create_slot};

/// What is to exist.
#[derive(Debug, Clone)]
pub struct SetupRequest {
    /// Name of the slot; `None` when only the publication is wanted.
    pub slot: Option<String>,
    /// Name of the publication.
    pub publication: String,
    /// The tables of a new publication; none means every table.
    pub tables: Vec<TablePattern>,
    /// Whether a new publication sends changes of partitions under the root's name.
    pub via_root: bool,
    /// Whether a new publication may hold tables of which the server then refuses UPDATE and DELETE.
    pub allow_refused_updates: bool,
    /// Whether a new slot is kept in step on standbys (17 and later).
    pub failover: bool,
    /// Whether a new slot sends prepared transactions (15 and later).
    pub two_phase: bool,
    /// How long the slot's creation may wait for running transactions, and when it says so.
    pub wait: SlotWait,
}

impl SetupRequest {
    /// A request with the defaults.
    pub fn new(slot: impl Into<String>, publication: impl Into<String>, tables: Vec<TablePattern>) -> Self {
        Self {
            slot: Some(slot.into()),
            publication: publication.into(),
            tables,
            via_root: false,
            allow_refused_updates: false,
            failover: false,
            two_phase: false,
            wait: SlotWait::default(),
        }
    }

    fn as_check(&self) -> CheckRequest<'static> {
        let mut request = CheckRequest::new(String::new(), self.publication.clone(), self.tables.clone());
        request.slot.clone_from(&self.slot);
        request.via_root = self.via_root;
        request.two_phase = self.two_phase;
        request.creates_publication = true;
        request.creates_slot = true;
        request.total_limit = Duration::from_secs(60);
        request
    }
}

/// How a step is carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Statement {
    /// SQL over an ordinary connection.
    Sql(String),
    /// A command of the replication protocol.
    Replication(String),
}

/// One thing that has to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// What it does.
    pub description: String,
    /// How.
    pub statement: Statement,
}

/// What has to be done, and what stands in the way or would follow from it. `Display` is what `--dry-run` prints.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Plan {
    /// In order; empty when everything exists.
    pub steps: Vec<Step>,
    /// Warnings and errors; with an error, [`apply`] does nothing.
    pub findings: Vec<Finding>,
    #[serde(skip)]
    slot: Option<CreateSlot>,
    /// Oids of the tables that a new publication locks.
    #[serde(skip)]
    tables: Vec<u32>,
}

impl Plan {
    /// Why nothing can be done; `None` when nothing stands in the way.
    pub fn refusal(&self) -> Option<ConnectError> {
        Report { findings: self.findings.clone() }.to_error()
    }

    /// Logs the warnings, for whoever does not print the plan.
    pub fn log_warnings(&self) {
        for finding in self.findings.iter().filter(|finding| finding.severity == Severity::Warning) {
            let (subject, fix) = (finding.subject.as_deref(), finding.fix.as_deref());
            tracing::warn!(finding = %finding.id, subject, fix, "{}", finding.message);
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        if self.steps.is_empty() {
            return f.write_str("nothing to do");
        }
        for (index, step) in self.steps.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            let (over, text) = match &step.statement {
                Statement::Sql(text) => ("sql", text),
                Statement::Replication(text) => ("replication", text),
            };
            write!(f, "{separator}{}. {}\n    {over}: {text}", index + 1, step.description)?;
        }
        Ok(())
    }
}

/// What was done.
#[derive(Debug, Clone, Default)]
pub struct Applied {
    /// Whether the publication was created.
    pub publication_created: bool,
    /// The slot, if it was created; `None` when it was there.
    pub slot_created: Option<CreatedSlot>,
}

/// Works out what is missing. Reads only.
///
/// # Errors
///
/// As [`SqlConnection::query`]. What would keep [`apply`] from working is no error here but a finding.
///
/// # Cancel safety
///
/// Dropping the future leaves nothing behind.
pub async fn plan(sql: &SqlConnection, request: &SetupRequest) -> Result<Plan, ConnectError> {
    let facts = Facts::read(sql, &request.as_check()).await?;
    let mut plan = Plan::default();
    plan.findings.push(check::server_version(facts.server()?));
    plan.findings.push(check::wal_level(facts.server()?));
    publication::plan(sql, request, &facts, &mut plan).await?;
    if let Some(name) = &request.slot {
        plan_slot(sql, request, name, &facts, &mut plan)?;
    }
    plan.findings.retain(|finding| finding.severity > Severity::Ok);
    Ok(plan)
}

fn plan_slot(
    sql: &SqlConnection,
    request: &SetupRequest,
    name: &str,
    facts: &Facts,
    plan: &mut Plan,
) -> Result<(), ConnectError> {
    if let Some(row) = facts.slot()? {
        if let Some(fault) = row.fault(&facts.server()?.database) {
            let error = fault.to_error(row);
            let finding = Finding::error(check::id::SLOT_STATE, error.message()).about(name);
            plan.findings.push(match error.fix() {
                Some(fix) => finding.mended_by(fix),
                None => finding,
            });
        }
        return Ok(());
    }
    let slot = CreateSlot::new(name).two_phase(request.two_phase).failover(request.failover);
    let command = slot
        .command(sql.version_num())
        .map_err(|error| replication_error("planning the replication slot", error))?;
    plan.steps.push(Step {
        description: format!("create the logical replication slot {name}, which holds WAL from then on"),
        statement: Statement::Replication(command),
    });
    plan.slot = Some(slot);
    Ok(())
}

/// Does what [`plan`] found. `stop` ends the wait of a slot's creation: it is then cancelled at the server.
///
/// # Errors
///
/// Configuration: an error among the plan's findings, a missing right. Transient: the slot's creation or a table
/// lock was waited for in vain; the message names who is in the way.
///
/// # Cancel safety
///
/// As [`create_slot`]: better ended with `stop`.
///
/// # Durability
///
/// A slot holds WAL from its creation until it is dropped.
pub async fn apply(
    sql: &SqlConnection,
    config: &Config,
    request: &SetupRequest,
    plan: &Plan,
    stop: impl Future<Output = ()>,
) -> Result<Applied, ConnectError> {
    if let Some(refusal) = plan.refusal() {
        return Err(refusal);
    }
    let mut applied = Applied::default();
    for step in &plan.steps {
        if let Statement::Sql(statement) = &step.statement {
            applied.publication_created |=
                publication::create(sql, &request.publication, statement, &plan.tables).await?;
        }
    }
    if let Some(slot) = &plan.slot {
        let mut client = ReplicationClient::connect(&config.clone().pinned_to(sql.peer()))
            .await
            .map_err(|error| replication_error("connecting for replication", error))?;
        applied.slot_created = Some(create_slot(sql, &mut client, slot, &request.wait, stop).await?);
    }
    Ok(applied)
}
