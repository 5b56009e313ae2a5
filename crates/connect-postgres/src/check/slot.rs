//! Findings about the slot: its state, who reads it, what its creation would wait for.

use crabka_connect::ConnectError;

use super::{CheckRequest, Facts, Finding, id};
use crate::catalog::{self, Blocker, SlotFault, SlotRow, quote_literal};
use crate::sql::SqlConnection;

type Findings = Result<Vec<Finding>, ConnectError>;

pub(super) const IDS: &[&str] = &[id::SLOT_STATE, id::SLOT_OWNER, id::TWO_PHASE_SLOT];

pub(super) async fn findings(sql: &SqlConnection, request: &CheckRequest<'_>, facts: &Facts) -> Findings {
    let Some(name) = &request.slot else {
        return Ok(IDS
            .iter()
            .map(|id| Finding::ok(*id, "the slot is a temporary one of the session"))
            .collect());
    };
    let Some(slot) = facts.slot()? else {
        let state = if request.creates_slot {
            Finding::ok(id::SLOT_STATE, format!("replication slot will be created: {name}"))
        } else {
            Finding::error(id::SLOT_STATE, format!("replication slot does not exist: {name}")).mended_by(
                "run `crabka init`; a stored position from before cannot be continued with a new slot",
            )
        };
        return Ok(vec![
            state,
            Finding::ok(id::SLOT_OWNER, "there is no slot yet"),
            Finding::ok(id::TWO_PHASE_SLOT, "there is no slot yet"),
        ]);
    };
    let mut findings = vec![state(sql, slot, &facts.server()?.database).await?];
    findings.push(owner(sql, request, slot).await?);
    findings.push(two_phase(sql, request, slot));
    Ok(findings)
}

async fn state(sql: &SqlConnection, slot: &SlotRow, database: &str) -> Result<Finding, ConnectError> {
    let id = id::SLOT_STATE;
    let Some(fault) = slot.fault(database) else {
        return Ok(match slot.wal_status.as_deref() {
            Some("unreserved") => Finding::warning(
                id,
                "replication slot holds back more WAL than allowed and may be lost at the next checkpoint",
            )
            .about(&slot.name)
            .mended_by("start the source now, or raise max_slot_wal_keep_size"),
            _ => Finding::ok(id, "replication slot can be streamed from").about(&slot.name),
        });
    };
    let error = fault.to_error(slot);
    let finding = match &fault {
        SlotFault::InCreation(_) => {
            let blockers = catalog::transactions_with_xid(sql).await?;
            Finding::warning(id, format!("{}; {}", error.message(), waits_for(&blockers)))
                .mended_by(ended_by(&blockers))
        }
        SlotFault::Synced => Finding::warning(id, error.message()),
        SlotFault::Physical | SlotFault::Plugin(_) | SlotFault::Database(_) | SlotFault::Lost(_) => {
            Finding::error(id, error.message())
        }
    };
    let finding = finding.about(&slot.name);
    Ok(match (error.fix(), &finding.fix) {
        (Some(fix), None) => finding.mended_by(fix),
        _ => finding,
    })
}

async fn owner(
    sql: &SqlConnection,
    request: &CheckRequest<'_>,
    slot: &SlotRow,
) -> Result<Finding, ConnectError> {
    let id = id::SLOT_OWNER;
    let Some(holder) = catalog::slot_holder(sql, &slot.name).await? else {
        return Ok(Finding::ok(id, "nobody reads the slot").about(&slot.name));
    };
    if holder.application.is_some() && holder.application == request.application {
        return Ok(Finding::ok(id, format!("an instance of this connector reads the slot: {holder}"))
            .about(&slot.name));
    }
    Ok(Finding::warning(id, format!("another session reads the slot, and only one can: {holder}"))
        .about(&slot.name)
        .mended_by(format!("stop it, or SELECT pg_terminate_backend({})", holder.pid)))
}

fn two_phase(sql: &SqlConnection, request: &CheckRequest<'_>, slot: &SlotRow) -> Finding {
    let id = id::TWO_PHASE_SLOT;
    if !slot.two_phase || request.two_phase {
        return Finding::ok(id, "prepared transactions come when they are committed, as configured")
            .about(&slot.name);
    }
    let literal = quote_literal(&slot.name);
    let fix = if sql.is_at_least(18) {
        format!(
            "over a replication connection: ALTER_REPLICATION_SLOT {} (TWO_PHASE false)",
            catalog::quote_identifier(&slot.name)
        )
    } else {
        format!(
            "SELECT pg_drop_replication_slot({literal}), then `crabka init` and a new snapshot; or choose another slot name"
        )
    };
    Finding::error(id, "replication slot is two_phase: it sends transactions before they are committed")
        .about(&slot.name)
        .mended_by(fix)
}

/// What the creation of the slot would wait for.
pub(super) async fn old_transactions(
    sql: &SqlConnection,
    request: &CheckRequest<'_>,
    facts: &Facts,
) -> Findings {
    let id = id::OLD_TRANSACTIONS;
    let to_create = request.slot.is_none() || facts.slot()?.is_none();
    if !to_create {
        return Ok(vec![Finding::ok(id, "the slot exists: nothing has to be waited for")]);
    }
    let mut blockers = catalog::transactions_with_xid(sql).await?;
    blockers.retain(|blocker| blocker.age.is_none_or(|age| age >= request.old_transaction_age));
    if blockers.is_empty() {
        return Ok(vec![Finding::ok(id, "no old transaction is running")]);
    }
    Ok(vec![
        Finding::warning(
            id,
            format!("creating the slot waits until these transactions have ended; {}", waits_for(&blockers)),
        )
        .mended_by(ended_by(&blockers)),
    ])
}

/// The transactions, at most ten.
pub(crate) fn waits_for(blockers: &[Blocker]) -> String {
    if blockers.is_empty() {
        return "no running transaction can be seen".to_owned();
    }
    let shown = blockers.iter().take(10).map(|blocker| format!("[{blocker}]")).collect::<Vec<_>>().join(" ");
    let more = if blockers.len() > 10 { format!(" and {} more", blockers.len() - 10) } else { String::new() };
    format!("waiting for: {shown}{more}")
}

/// The SQL that ends them, at most ten.
pub(crate) fn ended_by(blockers: &[Blocker]) -> String {
    let statements: Vec<String> = blockers.iter().take(10).map(Blocker::ended_by).collect();
    format!("commit or end them: {}", statements.join("; "))
}
