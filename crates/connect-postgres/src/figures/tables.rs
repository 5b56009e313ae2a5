//! Changes by table and kind.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use super::locked;
use crate::catalog::TableName;
use crate::event::Operation;

/// Tables that are counted apart. Partitions come and go; whoever reads the figures should not keep them all for ever.
const TABLES_MAX: usize = 1_000;

/// The name under which the tables beyond the limit are counted together.
const OTHERS: &str = "(others)";

/// Changes of one table.
#[derive(Debug, Default)]
pub(crate) struct TableFigures {
    insert: AtomicU64,
    update: AtomicU64,
    delete: AtomicU64,
    truncate: AtomicU64,
}

impl TableFigures {
    /// Counts a change. Only tables' own operations are counted here.
    pub(crate) fn count(&self, operation: Operation) {
        let count = match operation {
            Operation::Insert => &self.insert,
            Operation::Update => &self.update,
            Operation::Delete => &self.delete,
            Operation::Truncate => &self.truncate,
            Operation::Message | Operation::Heartbeat => return,
        };
        count.fetch_add(1, Relaxed);
    }
}

/// Changes of one table at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSnapshot {
    /// Schema, as the server spells it.
    pub schema: String,
    /// Name, as the server spells it.
    pub table: String,
    /// INSERT.
    pub insert: u64,
    /// UPDATE.
    pub update: u64,
    /// DELETE.
    pub delete: u64,
    /// TRUNCATE that gives a record.
    pub truncate: u64,
}

#[derive(Debug, Default)]
pub(super) struct Tables(Mutex<BTreeMap<(String, String), Arc<TableFigures>>>);

impl Tables {
    /// Locks, and so is called when a table is announced and not for its rows.
    pub(super) fn of(&self, name: &TableName) -> Arc<TableFigures> {
        let mut tables = locked(&self.0);
        let key = (name.schema.clone(), name.table.clone());
        let key = if tables.len() < TABLES_MAX || tables.contains_key(&key) {
            key
        } else {
            (String::new(), OTHERS.to_owned())
        };
        Arc::clone(tables.entry(key).or_default())
    }

    pub(super) fn snapshot(&self) -> Vec<TableSnapshot> {
        locked(&self.0)
            .iter()
            .map(|((schema, table), figures)| TableSnapshot {
                schema: schema.clone(),
                table: table.clone(),
                insert: figures.insert.load(Relaxed),
                update: figures.update.load(Relaxed),
                delete: figures.delete.load(Relaxed),
                truncate: figures.truncate.load(Relaxed),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_beyond_the_limit_are_counted_together() {
        let tables = Tables::default();
        let name = |index: usize| TableName { schema: "public".to_owned(), table: format!("t{index}") };
        for index in 0..TABLES_MAX + 3 {
            tables.of(&name(index)).count(Operation::Insert);
        }
        tables.of(&name(0)).count(Operation::Delete);
        let snapshot = tables.snapshot();
        assert_eq!(snapshot.len(), TABLES_MAX + 1);
        let of = |table: &str| snapshot.iter().find(|known| known.table == table).unwrap();
        assert_eq!((of(OTHERS).insert, of("t0").insert, of("t0").delete), (3, 1, 1));
    }
}
