//! Dropping a slot: only ever because somebody said so, and never one that is in use or of somebody else unless
//! that was said as well.

use std::time::Duration;

use crabka_connect::ConnectError;
use tokio::time::{Instant, sleep};
use tokio_postgres::types::Type;

use crate::catalog::{self, SlotHolder, SlotRow, SlotState, quote_identifier};
use crate::sql::SqlConnection;

/// How long the session that reads the slot may take to end.
const END_LIMIT: Duration = Duration::from_secs(5);

/// Which slot is dropped, and how much of what speaks against it is heeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropSlot {
    /// Name of the slot.
    pub name: String,
    /// The slot that is ours; any other is foreign. `None`: every slot of `pgoutput` in this database is ours.
    pub ours: Option<String>,
    /// Drops a slot that is in use or foreign too; the session that reads it is ended first.
    pub force: bool,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DroppedSlot {
    /// The slot as it was.
    pub state: SlotState,
    /// The session that read it, and was ended for it.
    pub ended: Option<SlotHolder>,
}

impl DropSlot {
    /// What speaks against dropping this slot, told from a session on `database`; empty when nothing does.
    pub fn reasons_to_keep(&self, state: &SlotState, database: &str) -> Vec<String> {
        let mut reasons = Vec::new();
        reasons.extend(foreign(&state.slot, database));
        if let Some(ours) = self.ours.as_ref().filter(|ours| **ours != self.name) {
            reasons
                .push(format!("it is not the slot of this connector, which is {}", quote_identifier(ours)));
        }
        if let Some(holder) = &state.holder {
            reasons.push(format!("it is in use by {holder}"));
        }
        reasons
    }

    /// The error for a slot that is kept, and for one that does not exist.
    fn refused(&self, reasons: &[String]) -> ConnectError {
        let name = quote_identifier(&self.name);
        ConnectError::configuration(format!(
            "replication slot is not dropped, {}: {name}",
            reasons.join("; ")
        ))
        .with_fix("end what reads it and make sure that nobody needs it, or drop it with --force")
    }

    /// Reads the slot, and refuses it when something speaks against dropping it.
    ///
    /// # Errors
    ///
    /// Configuration: there is no such slot, or it is in use or foreign and [`force`](Self::force) is not set. Else as
    /// [`SqlConnection::query`].
    pub async fn look(&self, sql: &SqlConnection) -> Result<SlotState, ConnectError> {
        let Some(state) = catalog::slot_state(sql, &self.name).await? else {
            let name = quote_identifier(&self.name);
            return Err(ConnectError::configuration(format!("replication slot does not exist: {name}"))
                .with_fix("`crabka slots list` shows those that do"));
        };
        let reasons = self.reasons_to_keep(&state, &catalog::server_info(sql).await?.database);
        if !self.force && !reasons.is_empty() {
            return Err(self.refused(&reasons));
        }
        Ok(state)
    }

    /// Drops the slot. No other path of this crate drops one.
    ///
    /// # Errors
    ///
    /// As [`look`](Self::look); transient when the session that reads the slot does not end.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the slot dropped or not.
    ///
    /// # Durability
    ///
    /// The slot's position is gone for good, and the WAL it held is released.
    pub async fn carry_out(&self, sql: &SqlConnection) -> Result<DroppedSlot, ConnectError> {
        let state = self.look(sql).await?;
        let ended = state.holder.clone();
        if let Some(holder) = &ended {
            tracing::warn!(slot = self.name, %holder, "ending the session that reads the slot, as told");
            let query = "SELECT pg_terminate_backend($1)";
            sql.query("ending the session on the slot", query, &[(&holder.pid, Type::INT4)]).await?;
            released(sql, &self.name).await?;
        }
        // A temporary slot ends with its session.
        if ended.is_some() && catalog::slot(sql, &self.name).await?.is_none() {
            return Ok(DroppedSlot { state, ended });
        }
        let doing = format!("dropping the replication slot {}", quote_identifier(&self.name));
        let query = "SELECT pg_drop_replication_slot($1)";
        sql.query(&doing, query, &[(&self.name, Type::TEXT)]).await?;
        tracing::info!(slot = self.name, "replication slot dropped");
        Ok(DroppedSlot { state, ended })
    }
}

/// Whose slot it is, when it cannot be one of ours on `database`. A lost slot may still be somebody else's.
fn foreign(slot: &SlotRow, database: &str) -> Option<String> {
    match (&slot.plugin, &slot.database) {
        _ if slot.slot_type != "logical" => Some("it is physical".to_owned()),
        (Some(plugin), _) if plugin != catalog::PLUGIN => {
            Some(format!("it belongs to the output plugin {plugin}"))
        }
        (_, Some(other)) if other != database => Some(format!("it belongs to the database {other}")),
        _ => None,
    }
}

async fn released(sql: &SqlConnection, name: &str) -> Result<(), ConnectError> {
    let end = Instant::now() + END_LIMIT;
    while let Some(holder) = catalog::slot_holder(sql, name).await? {
        if Instant::now() >= end {
            return Err(ConnectError::transient(format!(
                "replication slot {} is still in use by {holder}",
                quote_identifier(name)
            )));
        }
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
