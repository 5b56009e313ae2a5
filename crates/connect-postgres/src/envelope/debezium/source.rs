//! The `source` block: where a change comes from. What does not change from row to row is written once.

use std::sync::Arc;

use bytes::{BufMut, BytesMut};

use super::super::json;
use crate::event::{ChangeEvent, SourceInfo};
use crate::relation::Relation;
use crate::types::write;

/// The members that name the table, for what belongs to none.
pub(super) const NO_TABLE: &[u8] = b",\"schema\":\"\",\"table\":\"\",\"txId\":";

/// From behind `ts_ns` to the name of the member `txId`.
pub(super) fn table_part(relation: &Relation) -> Vec<u8> {
    let mut out = BytesMut::new();
    out.put_slice(b",\"schema\":");
    json::string(&mut out, &relation.schema);
    out.put_slice(b",\"table\":");
    json::string(&mut out, &relation.table);
    out.put_slice(b",\"txId\":");
    out.into()
}

/// Writes source blocks; keeps what belongs to the source of the last event.
#[derive(Debug, Default)]
pub(super) struct SourceBlock {
    of: Option<Arc<SourceInfo>>,
    /// Up to the value of `ts_ms`.
    head: BytesMut,
    /// From behind `ts_ms` to the name of the member `sequence`.
    database: BytesMut,
}

impl SourceBlock {
    fn prepare(&mut self, source: &Arc<SourceInfo>) {
        if self.of.as_ref().is_some_and(|of| Arc::ptr_eq(of, source)) {
            return;
        }
        self.head.clear();
        self.head.put_slice(b"{\"version\":");
        json::string(&mut self.head, env!("CARGO_PKG_VERSION"));
        self.head.put_slice(b",\"connector\":\"postgresql\",\"name\":");
        json::string(&mut self.head, &source.topic_prefix);
        self.head.put_slice(b",\"ts_ms\":");
        self.database.clear();
        self.database.put_slice(b",\"snapshot\":\"false\",\"db\":");
        json::string(&mut self.database, &source.database);
        self.database.put_slice(b",\"sequence\":\"[");
        self.of = Some(Arc::clone(source));
    }

    /// Appends the block. What is outside a transaction happens now.
    pub(super) fn write(&mut self, out: &mut BytesMut, event: &ChangeEvent, table_part: &[u8], now_ns: i64) {
        self.prepare(&event.source);
        let transaction = event.transaction.as_deref();
        let time_us = transaction.map_or(now_ns.div_euclid(1000), |transaction| transaction.commit_time_us);
        out.put_slice(&self.head);
        write::integer(out, time_us.div_euclid(1000));
        out.put_slice(&self.database);
        match transaction.and_then(|transaction| transaction.previous_end_lsn) {
            Some(lsn) => {
                out.put_slice(b"\\\"");
                write::integer(out, signed(lsn.as_u64()));
                out.put_slice(b"\\\"");
            }
            None => out.put_slice(b"null"),
        }
        out.put_slice(b",\\\"");
        write::integer(out, signed(event.lsn.as_u64()));
        out.put_slice(b"\\\"]\",\"ts_us\":");
        write::integer(out, time_us);
        out.put_slice(b",\"ts_ns\":");
        // A time beyond 2262 does not fit; it is cut, as it is nobody's commit time.
        write::integer(out, time_us.saturating_mul(1000));
        out.put_slice(table_part);
        match transaction {
            Some(transaction) => write::integer(out, transaction.xid),
            None => out.put_slice(b"null"),
        }
        out.put_slice(b",\"lsn\":");
        write::integer(out, signed(event.lsn.as_u64()));
        out.put_slice(b",\"xmin\":null,\"origin\":");
        match transaction.and_then(|transaction| transaction.origin.as_ref()) {
            Some(origin) => {
                json::string(out, &origin.name);
                out.put_slice(b",\"origin_lsn\":");
                write::integer(out, signed(origin.lsn.as_u64()));
                out.put_u8(b'}');
            }
            None => out.put_slice(b"null,\"origin_lsn\":null}"),
        }
    }
}

/// Debezium prints positions as signed numbers.
fn signed(lsn: u64) -> i64 {
    lsn.cast_signed()
}
