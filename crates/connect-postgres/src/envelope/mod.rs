//! From typed changes to bytes: `debezium` and `flat`.
pub mod topic;
