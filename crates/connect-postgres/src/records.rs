//! From one change to the records that tell of it.
//!
//! A delete is a delete event and a tombstone; an update that changes the key is a delete, a tombstone and a
//! create. The position moves past a change only with the last of its records.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use crabka_connect::ConnectRecord;
use crabka_pgoutput::{Cell, Tuple};

use crate::assemble::Item;
use crate::event::{Body, ChangeEvent, ChangeKey, ChangePart, OldRow, Operation};
use crate::position::Position;
use crate::relation::Relation;

/// A typed record of this source.
pub type ChangeRecord = ConnectRecord<ChangeKey, ChangeEvent>;

/// Which records a delete becomes. A table without a key has no tombstones, so its deletes are always events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeleteRecords {
    /// A delete event, then a tombstone: what Debezium does by default.
    #[default]
    EventAndTombstone,
    /// A delete event only.
    Event,
    /// A tombstone only.
    Tombstone,
}

/// Topics that do not belong to a table.
#[derive(Debug, Clone)]
pub(crate) struct FixedTopics {
    pub(crate) message: Arc<str>,
    pub(crate) heartbeat: Arc<str>,
}

/// Expands changes into records.
#[derive(Debug)]
pub(crate) struct Expander {
    deletes: DeleteRecords,
    topics: FixedTopics,
}

/// A record, and the position behind it if it is the last one of its change.
pub(crate) type Placed = (ChangeRecord, Option<Position>);

impl Expander {
    pub(crate) fn new(deletes: DeleteRecords, topics: FixedTopics) -> Self {
        Self { deletes, topics }
    }

    /// Appends the records of `item`; the last of them carries its position.
    pub(crate) fn expand(&self, item: Item, out: &mut VecDeque<Placed>) {
        let Item { event, position } = item;
        match &event.body {
            Body::Heartbeat => {
                let key = ChangeKey::Heartbeat { source: Arc::clone(&event.source) };
                out.push_back((record(&self.topics.heartbeat, Some(key), Some(event)), Some(position)));
            }
            Body::Message(message) => {
                let key = ChangeKey::Message { prefix: message.prefix.clone() };
                out.push_back((record(&self.topics.message, Some(key), Some(event)), Some(position)));
            }
            Body::Truncate { relation, .. } => {
                let topic = Arc::clone(&relation.topic);
                out.push_back((record(&topic, None, Some(event)), Some(position)));
            }
            Body::Row { relation, old, new } => {
                let relation = Arc::clone(relation);
                match (event.operation, old.clone(), new.clone()) {
                    (Operation::Update, Some(old), Some(new)) if key_changed(&relation, &old, &new) => {
                        self.key_change(&relation, event, &old, new, out);
                    }
                    (Operation::Delete, Some(old), _) => self.delete(&relation, event, &old, out),
                    (_, old, Some(new)) => {
                        let key = row_key(&relation, new, old);
                        out.push_back((record(&relation.topic, key, Some(event)), None));
                    }
                    // A delete always carries an old row and everything else a new one: the decoder saw to it.
                    (_, _, None) => {}
                }
                if let Some((_, last)) = out.back_mut() {
                    *last = Some(position);
                }
            }
        }
    }

    fn delete(&self, relation: &Arc<Relation>, event: ChangeEvent, old: &OldRow, out: &mut VecDeque<Placed>) {
        let key = row_key(relation, old.tuple.clone(), None);
        if self.deletes != DeleteRecords::Tombstone || key.is_none() {
            out.push_back((record(&relation.topic, key.clone(), Some(event)), None));
        }
        if self.deletes != DeleteRecords::Event && key.is_some() {
            out.push_back((record(&relation.topic, key, None), None));
        }
    }

    fn key_change(
        &self,
        relation: &Arc<Relation>,
        event: ChangeEvent,
        old: &OldRow,
        new: Bytes,
        out: &mut VecDeque<Placed>,
    ) {
        let delete =
            ChangeEvent { operation: Operation::Delete, part: ChangePart::KeyChangeDelete, ..event.clone() };
        self.delete(relation, delete, old, out);
        let create = ChangeEvent { operation: Operation::Insert, part: ChangePart::KeyChangeCreate, ..event };
        let key = row_key(relation, new, Some(old.clone()));
        out.push_back((record(&relation.topic, key, Some(create)), None));
    }
}

fn record(topic: &Arc<str>, key: Option<ChangeKey>, value: Option<ChangeEvent>) -> ChangeRecord {
    let mut record = ConnectRecord::new(key, value);
    record.timestamp_ms = record.value.as_ref().and_then(|event: &ChangeEvent| {
        event.transaction.as_ref().map(|transaction| transaction.commit_time_us.div_euclid(1_000))
    });
    record.topic = Some(Arc::clone(topic));
    record
}

fn row_key(relation: &Arc<Relation>, tuple: Bytes, old: Option<OldRow>) -> Option<ChangeKey> {
    if relation.key.is_empty() {
        return None;
    }
    Some(ChangeKey::Row { relation: Arc::clone(relation), tuple, old })
}

/// Whether the key columns differ. An old tuple alone does not say so: an unchanged key column stored out of line
/// brings one too, and REPLICA IDENTITY FULL always does.
fn key_changed(relation: &Relation, old: &OldRow, new: &[u8]) -> bool {
    let (before, after) = (Tuple::from_bytes(&old.tuple), Tuple::from_bytes(new));
    relation.key.iter().any(|&index| {
        let known = old.full || relation.columns.get(index).is_some_and(|column| column.in_identity);
        known
            && match (before.cell(index), after.cell(index)) {
                (_, Some(Cell::Unchanged)) => false,
                (before, after) => before != after,
            }
    })
}
