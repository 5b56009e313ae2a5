//! Every metric there is.

use std::time::Duration;

use crabka_connect::{LATENCY_BOUNDS_MS, Phase};
use crabka_connect_postgres::StreamState;
use crabka_pgrepl::Lsn;

use super::{Kind, Metric, Samples, Value};
use crate::watch::{Code, View};

const PHASES: [Phase; 8] = [
    Phase::Starting,
    Phase::Running,
    Phase::Paused,
    Phase::BackingOff,
    Phase::Draining,
    Phase::Stopped,
    Phase::Aborted,
    Phase::Failed,
];

/// Values of `pg_replication_slots.wal_status`.
const WAL_STATUSES: [&str; 4] = ["reserved", "extended", "unreserved", "lost"];

const fn counter(name: &'static str, help: &'static str, read: fn(&View, &mut Samples)) -> Metric {
    Metric { kind: Kind::Counter, name, unit: None, labels: &[], help, read }
}

const fn gauge(name: &'static str, help: &'static str, read: fn(&View, &mut Samples)) -> Metric {
    Metric { kind: Kind::Gauge, ..counter(name, help, read) }
}

impl Metric {
    const fn unit(self, unit: &'static str) -> Self {
        Self { unit: Some(unit), ..self }
    }

    const fn by(self, labels: &'static [&'static str]) -> Self {
        Self { labels, ..self }
    }
}

/// The metrics, in the order of the exposition and the reference.
pub(super) const METRICS: &[Metric] = &[
    gauge("build", "1; the label is the version of the program.", |_, out| {
        out.integer(&[env!("CARGO_PKG_VERSION")], 1);
    })
    .by(&["version"]),
    gauge("ready", "1 while `/ready` answers 200.", |view, out| out.flag(&[], view.reason().ready)),
    gauge("reason", "1 for what the run does, or why nothing moves; the codes are in STATUS.md.", |view, out| {
        let reason = view.reason();
        Code::ALL.iter().for_each(|code| out.flag(&[code.as_str()], *code == reason.code));
    })
    .by(&["code"]),
    gauge("phase", "1 for the phase of the run.", |view, out| {
        PHASES.iter().for_each(|phase| out.flag(&[phase.as_str()], *phase == view.status.phase));
    })
    .by(&["phase"]),
    gauge("start_time", "When the run was started, since 1970-01-01 UTC.", |view, out| {
        out.float(&[], Some(view.status.started_at_ms).filter(|at| *at > 0).map(seconds_of_ms));
    })
    .unit("seconds"),
    counter(
        "records",
        "Records: `received` from the source, `delivered` (durable in the sink), `checkpointed`, `acknowledged` to \
         the server. What is read again counts again.",
        |view, out| {
            out.integer(&["received"], view.status.records_received);
            out.integer(&["delivered"], view.status.records_delivered);
            out.integer(&["checkpointed"], view.status.records_checkpointed);
            out.integer(&["acknowledged"], view.status.records_acknowledged);
        },
    )
    .by(&["step"]),
    counter("delivered", "Encoded bytes of the batches that are durable and checkpointed.", |view, out| {
        out.integer(&[], view.status.bytes);
    })
    .unit("bytes"),
    counter(
        "batches",
        "Batches: `durable` in the sink, `failed`, `retried` (the first one after a failed one, which repeats it).",
        |view, out| {
            out.integer(&["durable"], view.run.batches_durable());
            out.integer(&["failed"], view.run.batches_failed());
            out.integer(&["retried"], view.run.batches_retried());
        },
    )
    .by(&["outcome"]),
    Metric {
        kind: Kind::Histogram,
        ..gauge(
            "commit_to_durable",
            "Time from the commit in PostgreSQL, by the server's clock, until the record's batch is durable in the sink.",
            latency,
        )
    }
    .unit("seconds"),
    counter("errors", "Errors, by the class that says who must act.", |view, out| {
        view.run.errors().for_each(|(class, count)| out.integer(&[class.as_str()], count));
    })
    .by(&["class"]),
    counter("retries", "How often source and sink were reopened after a transient error.", |view, out| {
        out.integer(&[], view.status.retries);
    }),
    gauge("attempts", "Failed attempts in a row since a position was saved.", |view, out| {
        out.integer(&[], u64::from(view.status.attempts));
    }),
    gauge("next_attempt", "Time until the next attempt, while the run waits for it.", |view, out| {
        let next = view.status.next_attempt_at_ms;
        out.float(&[], next.map(|at| seconds_of_ms(at.saturating_sub(view.at_ms).max(0))));
    })
    .unit("seconds"),
    gauge("last_progress_time", "When a position was saved last, since 1970-01-01 UTC.", |view, out| {
        out.float(&[], view.status.last_progress_at_ms.map(seconds_of_ms));
    })
    .unit("seconds"),
    gauge("in_flight_records", "Records of the batch on its way to the sink.", |view, out| {
        out.integer(&[], view.status.in_flight.map_or(0, |batch| batch.records));
    }),
    gauge("in_flight", "Encoded size of the batch on its way to the sink.", |view, out| {
        out.integer(&[], view.status.in_flight.map_or(0, |batch| batch.bytes));
    })
    .unit("bytes"),
    gauge("in_flight_age", "How long the batch is on its way to the sink; 0: there is none.", |view, out| {
        out.float(&[], view.in_flight_for().map_or(0.0, |age| age.as_secs_f64()));
    })
    .unit("seconds"),
    counter("sink_records", "Records of the Kafka sink: `delivered` to their topic, `dead_lettered`.", |view, out| {
        if let Some(counters) = &view.sink.kafka {
            out.integer(&["delivered"], counters.delivered());
            out.integer(&["dead_lettered"], counters.dead_lettered());
        }
    })
    .by(&["outcome"]),
    gauge(
        "position",
        "Positions in the WAL as bytes: `received`, `polled`, `delivered`, `checkpointed`, `acknowledged`, and the \
         `server`'s end.",
        |view, out| {
            out.integer(&["received"], view.source.received.map(Lsn::as_u64));
            out.integer(&["polled"], view.source.polled.map(Lsn::as_u64));
            out.integer(&["delivered"], view.delivered().map(Lsn::as_u64));
            out.integer(&["checkpointed"], view.checkpointed().map(Lsn::as_u64));
            out.integer(&["acknowledged"], view.source.acknowledged.map(Lsn::as_u64));
            out.integer(&["server"], view.source.server_wal_end.map(Lsn::as_u64));
        },
    )
    .unit("bytes")
    .by(&["of"]),
    gauge("behind", "WAL between what was acknowledged and the server's end.", |view, out| {
        out.integer(&[], view.bytes_behind());
    })
    .unit("bytes"),
    gauge("lag", "Age of the oldest change that is not acknowledged; 0 while the run is idle.", |view, out| {
        out.float(&[], view.lag_ms().map(seconds_of_ms));
    })
    .unit("seconds"),
    gauge("stream_state", "1 for what the replication stream does.", |view, out| {
        StreamState::ALL.iter().for_each(|state| out.flag(&[state.as_str()], *state == view.source.state));
    })
    .by(&["state"]),
    counter("stream_sessions", "How often the replication stream was begun; reconnects are those but one.", |view, out| {
        out.integer(&[], view.source.sessions);
    }),
    gauge("stream_last_read", "Time since anything was read from the server.", |view, out| {
        out.float(&[], view.source.last_read.map(|age| age.as_secs_f64()));
    })
    .unit("seconds"),
    gauge("stream_last_moved", "Time since the received position, or the bytes read, went up.", |view, out| {
        out.float(&[], view.source.last_moved.map(|age| age.as_secs_f64()));
    })
    .unit("seconds"),
    gauge("queue", "Server messages that wait to be taken by the runtime.", |view, out| {
        out.integer(&[], view.source.queue_bytes);
    })
    .unit("bytes"),
    gauge("queue_limit", "Limit of the queue.", |view, out| {
        out.integer(&[], Some(view.source.queue_bytes_max).filter(|max| *max > 0));
    })
    .unit("bytes"),
    counter("changes", "Changes of captured tables that were read.", changes).by(&["schema", "table", "kind"]),
    counter("logical_messages", "Logical messages that were read.", |view, out| {
        out.integer(&[], view.source.messages);
    }),
    counter("heartbeats", "Heartbeats that carry an idle position.", |view, out| {
        out.integer(&[], view.source.heartbeats);
    }),
    counter(
        "changes_without_record",
        "Changes that give no record: `uncaptured` table, `truncate` left out by configuration.",
        |view, out| {
            out.integer(&["uncaptured"], view.source.uncaptured);
            out.integer(&["truncate"], view.source.truncates_skipped);
        },
    )
    .by(&["why"]),
    counter("pgoutput", "Bytes of pgoutput messages that were read.", |view, out| {
        out.integer(&[], view.source.pgoutput_bytes);
    })
    .unit("bytes"),
    counter("transactions", "Transactions that were read to their end.", |view, out| {
        out.integer(&[], view.source.transactions);
    }),
    counter("notices", "Notices and warnings of the server.", |view, out| out.integer(&[], view.source.notices)),
    gauge("transaction_changes", "Changes read so far of the transaction that is being read; 0: none is.", |view, out| {
        out.integer(&[], view.source.transaction.map_or(0, |transaction| transaction.changes));
    }),
    gauge("transaction", "Bytes read so far of the transaction that is being read; 0: none is.", |view, out| {
        out.integer(&[], view.source.transaction.map_or(0, |transaction| transaction.bytes));
    })
    .unit("bytes"),
    gauge("transaction_age", "How long the transaction is being read; 0: none is.", |view, out| {
        out.float(&[], view.source.transaction.map_or(0.0, |transaction| transaction.since.as_secs_f64()));
    })
    .unit("seconds"),
    gauge("slot_exists", "1 when the last look has found the slot.", |view, out| {
        let exists = view.source.slot.as_ref().and_then(|look| look.exists());
        out.integer(&[], exists.map(u64::from));
    }),
    gauge("slot_active", "1 while a session reads the slot.", |view, out| {
        let row = view.source.slot.as_ref().and_then(|look| look.row.as_ref());
        out.integer(&[], row.map(|row| u64::from(row.active)));
    }),
    gauge("slot_position", "Positions of the slot in the WAL as bytes: `restart` and `confirmed_flush`.", |view, out| {
        let row = view.source.slot.as_ref().and_then(|look| look.row.as_ref());
        out.integer(&["restart"], row.and_then(|row| row.restart_lsn).map(Lsn::as_u64));
        out.integer(&["confirmed_flush"], row.and_then(|row| row.confirmed_flush_lsn).map(Lsn::as_u64));
    })
    .unit("bytes")
    .by(&["of"]),
    gauge("slot_wal_retained", "WAL that the server keeps for the slot.", |view, out| {
        out.integer(&[], view.source.slot.as_ref().and_then(|look| look.wal_retained_bytes));
    })
    .unit("bytes"),
    gauge("slot_wal_safe", "WAL that may still be written before the slot is in danger; none without a limit.", |view, out| {
        let row = view.source.slot.as_ref().and_then(|look| look.row.as_ref());
        let safe = row.and_then(|row| row.safe_wal_size);
        out.integer(&[], safe.map(|safe| u64::try_from(safe).unwrap_or(0)));
    })
    .unit("bytes"),
    gauge("slot_wal_limit", "`max_slot_wal_keep_size`; none without a limit.", |view, out| {
        out.integer(&[], view.source.slot.as_ref().and_then(|look| look.max_slot_wal_keep_bytes));
    })
    .unit("bytes"),
    gauge("slot_wal_status", "1 for the slot's `wal_status`.", |view, out| {
        let row = view.source.slot.as_ref().and_then(|look| look.row.as_ref());
        if let Some(status) = row.and_then(|row| row.wal_status.as_deref()) {
            WAL_STATUSES.iter().for_each(|known| out.flag(&[known], *known == status));
        }
    })
    .by(&["status"]),
    gauge("slot_lost_in", "Time until the slot is in danger at the rate of the last minute; none: never.", |view, out| {
        let look = view.source.slot.as_ref();
        out.float(&[], look.and_then(|look| look.lost_in()).map(|left| left.as_secs_f64()));
    })
    .unit("seconds"),
    gauge("slot_held_for", "Age of the old transaction that holds the slot's restart position back; 0: none does, none: ages are hidden.", |view, out| {
        let age = view.source.slot.as_ref().and_then(|look| match &look.held_by {
            None => Some(Duration::ZERO),
            Some(holder) => holder.transaction().and_then(|transaction| transaction.age),
        });
        out.float(&[], age.map(|age| age.as_secs_f64()));
    })
    .unit("seconds"),
    gauge("slot_look_age", "How old what is known of the slot is.", |view, out| {
        out.float(&[], view.source.slot.as_ref().map(|look| look.at.elapsed().as_secs_f64()));
    })
    .unit("seconds"),
    gauge("slot_look_failed", "1 when the last look at the slot failed.", |view, out| {
        out.integer(&[], view.source.slot.as_ref().map(|look| u64::from(look.error.is_some())));
    }),
];

fn changes(view: &View, out: &mut Samples) {
    for table in &view.source.tables {
        for (kind, count) in [
            ("insert", table.insert),
            ("update", table.update),
            ("delete", table.delete),
            ("truncate", table.truncate),
        ] {
            out.integer(&[&table.schema, &table.table, kind], count);
        }
    }
}

fn latency(view: &View, out: &mut Samples) {
    let latency = view.run.latency();
    let bounds = LATENCY_BOUNDS_MS.into_iter().map(seconds).chain([f64::INFINITY]);
    let buckets = bounds.zip(latency.buckets).collect();
    out.push(&[], Value::Histogram { sum: seconds(latency.sum_ms), buckets });
}

fn seconds(ms: u64) -> f64 {
    Duration::from_millis(ms).as_secs_f64()
}

fn seconds_of_ms(ms: i64) -> f64 {
    seconds(u64::try_from(ms).unwrap_or(0))
}
