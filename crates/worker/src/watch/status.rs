//! `/status`: a [`View`] as JSON. What each member means is in `docs/STATUS.md`.

use std::time::Duration;

use crabka_connect_postgres::catalog::RestartHolder;
use crabka_connect_postgres::figures::{SlotLook, SourceSnapshot, TableSnapshot};
use crabka_pgrepl::Lsn;
use serde_json::{Map, Value, json};

use super::{View, ms};

impl View {
    pub(crate) fn to_json(&self) -> Value {
        let reason = self.reason();
        let mut status = serde_json::to_value(&self.status).unwrap_or_default();
        let more = json!({
            "at_ms": self.at_ms,
            "version": env!("CARGO_PKG_VERSION"),
            "ready": reason.ready,
            "reason": { "code": reason.code.as_str(), "text": reason.text },
            "errors": errors(self),
            "positions": positions(self),
            "bytes_behind": self.bytes_behind(),
            "oldest_unacknowledged_at_ms": self.oldest_unacknowledged_at_ms(),
            "lag_ms": self.lag_ms(),
            "in_flight": self.status.in_flight.map(|batch| json!({
                "records": batch.records,
                "bytes": batch.bytes,
                "since_ms": self.in_flight_for().map(ms),
            })),
            "stream": stream(&self.source),
            "slot": self.source.slot.as_deref().map(slot),
            "sink": {
                "type": self.sink.kind,
                "delivered": self.sink.kafka.as_ref().map(|counters| counters.delivered()),
                "dead_lettered": self.sink.kafka.as_ref().map(|counters| counters.dead_lettered()),
            },
        });
        if let (Value::Object(status), Value::Object(more)) = (&mut status, more) {
            status.extend(more);
        }
        status
    }
}

fn errors(view: &View) -> Map<String, Value> {
    view.run.errors().map(|(class, count)| (class.as_str().to_owned(), count.into())).collect()
}

fn lsn(lsn: Option<Lsn>) -> Option<String> {
    lsn.map(|lsn| lsn.to_string())
}

fn positions(view: &View) -> Value {
    json!({
        "received": lsn(view.source.received),
        "polled": lsn(view.source.polled),
        "delivered": lsn(view.delivered()),
        "checkpointed": lsn(view.checkpointed()),
        "acknowledged": lsn(view.source.acknowledged),
        "server": lsn(view.source.server_wal_end),
    })
}

fn stream(source: &SourceSnapshot) -> Value {
    let table = |table: &TableSnapshot| {
        json!({
            "schema": table.schema,
            "table": table.table,
            "insert": table.insert,
            "update": table.update,
            "delete": table.delete,
            "truncate": table.truncate,
        })
    };
    json!({
        "state": source.state.as_str(),
        "state_ms": ms(source.state_for),
        "sessions": source.sessions,
        "last_read_ms": source.last_read.map(ms),
        "last_moved_ms": source.last_moved.map(ms),
        "queue_bytes": source.queue_bytes,
        "queue_bytes_max": source.queue_bytes_max,
        "transaction": source.transaction.map(|transaction| json!({
            "xid": transaction.xid,
            "changes": transaction.changes,
            "bytes": transaction.bytes,
            "since_ms": ms(transaction.since),
            "commit_at_ms": transaction.commit_time_us.div_euclid(1_000),
        })),
        "pgoutput_bytes": source.pgoutput_bytes,
        "transactions": source.transactions,
        "tables": source.tables.iter().map(table).collect::<Vec<_>>(),
        "messages": source.messages,
        "heartbeats": source.heartbeats,
        "uncaptured": source.uncaptured,
        "truncates_skipped": source.truncates_skipped,
        "notices": source.notices,
    })
}

fn slot(look: &SlotLook) -> Value {
    let row = look.row.as_ref();
    json!({
        "name": look.slot,
        "read_ms": ms(look.at.elapsed()),
        "error": look.error,
        "exists": look.exists(),
        "active_pid": row.and_then(|row| row.active_pid),
        "restart_lsn": row.and_then(|row| lsn(row.restart_lsn)),
        "confirmed_flush_lsn": row.and_then(|row| lsn(row.confirmed_flush_lsn)),
        "wal_status": row.and_then(|row| row.wal_status.as_deref()),
        "invalidation_reason": row.and_then(|row| row.invalidation_reason.as_deref()),
        "wal_retained_bytes": look.wal_retained_bytes,
        "safe_wal_size_bytes": row.and_then(|row| row.safe_wal_size),
        "max_slot_wal_keep_size_bytes": look.max_slot_wal_keep_bytes,
        "retained_bytes_per_second": look.retained_bytes_per_second.map(f64::round),
        "lost_in_ms": look.lost_in().map(ms),
        "held_by_hidden": look.held_by.as_ref().and_then(RestartHolder::hidden),
        "held_by": look.held_by.as_ref().and_then(RestartHolder::transaction).map(|holder| json!({
            "pid": holder.pid,
            "gid": holder.gid,
            "user": holder.user,
            "database": holder.database,
            "application": holder.application,
            "age_ms": holder.age.map(|age: Duration| ms(age)),
            "ended_by": holder.ended_by(),
        })),
    })
}
