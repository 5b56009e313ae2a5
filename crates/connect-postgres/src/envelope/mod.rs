//! From typed changes to bytes: `debezium` and `flat`.
