//! A slot that another session reads: the end of a connection of our own that the server has not noticed yet, or another
//! instance.
//!
//! Each start looks, and fails as long as somebody reads: the host starts again from the position that is stored then,
//! which whoever reads moves on. A dead connection is ended by the server after `wal_sender_timeout`; who reads for
//! longer than that is alive, and is never disturbed.
//!
//! <https://www.postgresql.org/docs/18/runtime-config-replication.html#GUC-WAL-SENDER-TIMEOUT>.

use std::time::Duration;

use crabka_connect::ConnectError;

use crate::catalog::{self, SlotHolder, quote_identifier};
use crate::config::{PostgresSourceConfig, SlotMode};
use crate::figures::SourceFigures;
use crate::sql::SqlConnection;

/// What the server itself answers to who wants to read it too.
const OBJECT_IN_USE: &str = "55006";

/// Errors while somebody reads the slot.
///
/// # Errors
///
/// Transient with the SQLSTATE of a slot in use, up to [`PostgresSourceConfig::held_slot_limit`]; fenced from then on.
pub(super) async fn refuse_while_held(
    config: &PostgresSourceConfig,
    sql: &SqlConnection,
    database: &str,
    figures: &SourceFigures,
) -> Result<(), ConnectError> {
    let Some(holder) = reader(config, sql, database).await? else {
        figures.slot_is_free();
        return Ok(());
    };
    let (name, held) = (quote_identifier(&config.slot), figures.slot_is_held());
    if config.held_slot_limit.is_some_and(|limit| held >= limit) {
        return Err(fenced(&name, &holder, held));
    }
    Err(ConnectError::transient(format!(
        "another session reads the replication slot {name}, seen for {} s: {holder}",
        held.as_secs()
    ))
    .with_sqlstate(OBJECT_IN_USE))
}

/// Who reads the slot. What else may be wrong with it is for others to tell.
async fn reader(
    config: &PostgresSourceConfig,
    sql: &SqlConnection,
    database: &str,
) -> Result<Option<SlotHolder>, ConnectError> {
    if config.slot_mode == SlotMode::Temporary {
        return Ok(None);
    }
    let state = catalog::slot_state(sql, &config.slot).await?;
    Ok(state.filter(|state| state.slot.fault(database).is_none()).and_then(|state| state.holder))
}

fn fenced(name: &str, holder: &SlotHolder, held: Duration) -> ConnectError {
    ConnectError::fenced(format!(
        "another instance has been reading the replication slot {name} for {} s: {holder}",
        held.as_secs()
    ))
    .with_fix(format!(
        "nothing, if it is meant to read; else stop it there, or SELECT pg_terminate_backend({}); to wait for its end \
         instead, set source.held_slot_limit_ms to 0",
        holder.pid
    ))
}
