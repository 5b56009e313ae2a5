//! Which table owns which topic: two tables must not end in one.

use std::collections::HashMap;

use crabka_connect::ConnectError;

use crate::catalog::TableName;
use crate::envelope::topic;

/// Topics by name, with the table that has each.
#[derive(Debug)]
pub(crate) struct TopicOwners {
    prefix: String,
    /// Topics of messages and heartbeats.
    reserved: Vec<String>,
    owners: HashMap<String, TableName>,
}

impl TopicOwners {
    pub(crate) fn new(prefix: String, reserved: Vec<String>) -> Self {
        Self { prefix, reserved, owners: HashMap::new() }
    }

    /// First part of every topic.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Topics that no table may have.
    pub(crate) fn reserved(&self) -> &[String] {
        &self.reserved
    }

    /// The topic of a table, which from now on belongs to it.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Configuration`] that names both when the topic belongs to something else already: names are
    /// sanitised, so different tables can end in one topic.
    pub(crate) fn claim(&mut self, table: &TableName) -> Result<String, ConnectError> {
        let topic = topic::for_table(&self.prefix, &table.schema, &table.table);
        if self.reserved.contains(&topic) {
            return Err(ConnectError::configuration(format!(
                "table {table} would share the topic of messages or heartbeats: {topic}"
            ))
            .with_fix("set another source.topic_prefix, or leave the table out of source.tables"));
        }
        match self.owners.get(&topic) {
            Some(owner) if owner != table => Err(ConnectError::configuration(format!(
                "tables {owner} and {table} would share one topic: {topic}"
            ))
            .with_fix("leave one of them out of source.tables, or rename one with ALTER TABLE … RENAME")),
            Some(_) => Ok(topic),
            None => {
                self.owners.insert(topic.clone(), table.clone());
                Ok(topic)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(schema: &str, table: &str) -> TableName {
        TableName { schema: schema.into(), table: table.into() }
    }

    #[test]
    fn kaf_08_a_topic_has_one_owner() {
        let mut owners = TopicOwners::new("p".into(), vec!["p.message".into(), "p.public.heartbeat".into()]);
        assert_eq!(owners.claim(&table("public", "a b")).unwrap(), "p.public.a_b");
        assert_eq!(owners.claim(&table("public", "a b")).unwrap(), "p.public.a_b");
        let error = owners.claim(&table("public", "a_b")).unwrap_err();
        assert!(matches!(error, ConnectError::Configuration(_)));
        assert!(
            error.message().contains("public.\"a b\"") && error.message().contains("public.a_b"),
            "{error}"
        );
        owners.claim(&table("x.y", "z")).unwrap();
        assert!(owners.claim(&table("x", "y.z")).is_err());
        assert!(owners.claim(&table("public", "heartbeat")).is_err());
    }
}
