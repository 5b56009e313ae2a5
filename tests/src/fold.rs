//! The oracle: change events applied to a map must give what SELECT shows.

use std::collections::BTreeMap;

use serde_json::Value;
use tokio_postgres::Client;

/// A table's content as change events tell it: key JSON to row JSON.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Fold {
    rows: BTreeMap<String, Value>,
}

impl Fold {
    /// Applies one event.
    ///
    /// # Panics
    ///
    /// When the event cannot follow what was applied before and `repeats` are not allowed: a create of a key that is
    /// there, an update or delete of one that is not.
    pub fn apply(&mut self, key: &Value, value: &Value, repeats: bool) {
        let id = key.to_string();
        if value.is_null() {
            assert!(!self.rows.contains_key(&id), "a tombstone before its delete: {id}");
            return;
        }
        let after = value["after"].clone();
        match value["op"].as_str().expect("an operation") {
            "c" => {
                let old = self.rows.insert(id.clone(), after);
                assert!(repeats || old.is_none(), "created twice: {id}");
            }
            "u" => {
                let old = self.rows.insert(id.clone(), after);
                assert!(repeats || old.is_some(), "updated before it was created: {id}");
            }
            "d" => {
                let old = self.rows.remove(&id);
                assert!(repeats || old.is_some(), "deleted before it was created: {id}");
            }
            other => panic!("unexpected operation {other}"),
        }
    }

    /// The rows in key order.
    pub fn rows(&self) -> impl Iterator<Item = &Value> {
        self.rows.values()
    }

    /// Compares with the table: every column must be of a type whose JSON is the same in both.
    ///
    /// # Panics
    ///
    /// When they differ.
    pub async fn assert_equals(&self, sql: &Client, table: &str, key: &str) {
        let query = format!(
            "SELECT json_build_object('{key}', {key})::text, row_to_json({table})::text FROM {table}"
        );
        let mut expected = BTreeMap::new();
        for row in sql.query(&query, &[]).await.expect("the table is readable") {
            let parse = |index| serde_json::from_str::<Value>(row.get(index)).expect("valid JSON");
            expected.insert(parse(0).to_string(), parse(1));
        }
        assert_eq!(self.rows.len(), expected.len(), "number of rows");
        for (key, row) in &expected {
            assert_eq!(self.rows.get(key), Some(row), "row {key}");
        }
    }
}
