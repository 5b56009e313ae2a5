//! A host of the source with a loop of its own: polls, converts, keeps the offset, acknowledges when told.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use crabka_connect::{ConnectError, Converter, Source, SourceOffset, SystemClock};
use crabka_connect_postgres::envelope::{DebeziumConverter, DebeziumOptions};
use crabka_connect_postgres::{PostgresSource, PostgresSourceConfig};
use serde_json::Value;
use tokio::time::{Instant, timeout};

use crate::Database;

/// How long something that must come may take.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(60);

/// A record, encoded and parsed again.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Topic.
    pub topic: String,
    /// Key; null where there is none.
    pub key: Value,
    /// Key as written: parsed JSON does not keep the order of its members.
    pub key_text: String,
    /// Value; null for a tombstone.
    pub value: Value,
    /// Headers in order.
    pub headers: Vec<(String, String)>,
    /// The source's position behind the record.
    pub offset: Option<SourceOffset>,
}

impl Seen {
    /// `op` of the envelope, `x` for a tombstone, `h` for a heartbeat.
    pub fn op(&self) -> &str {
        if self.value.is_null() {
            return "x";
        }
        self.value["op"].as_str().unwrap_or("h")
    }

    /// A column of `after`, or of `before` where there is no `after`.
    pub fn column(&self, name: &str) -> &Value {
        let row = if self.value["after"].is_null() { &self.value["before"] } else { &self.value["after"] };
        &row[name]
    }

    /// Topic behind the prefix, operation, key, row before and row after.
    pub fn told(&self) -> Value {
        let table = self.topic.strip_prefix("t.").unwrap_or(&self.topic);
        serde_json::json!([table, self.op(), self.key, self.value["before"], self.value["after"]])
    }

    /// The header of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// An integer column.
    pub fn int(&self, name: &str) -> i64 {
        self.column(name).as_i64().unwrap_or_else(|| panic!("no integer column {name}: {:?}", self.value))
    }
}

/// Drives one [`PostgresSource`].
pub struct Reader {
    source: PostgresSource,
    converter: DebeziumConverter,
    /// Whether heartbeats are returned like other records. Off by default.
    pub with_heartbeats: bool,
}

impl Reader {
    /// Without a stored offset.
    pub fn new(config: PostgresSourceConfig) -> Self {
        let converter = DebeziumConverter::new(DebeziumOptions::default(), Arc::new(SystemClock)).unwrap();
        Self { source: PostgresSource::new(config).unwrap(), converter, with_heartbeats: false }
    }

    /// The offset of a run that has read and acknowledged the one change of `sql`, and has ended.
    pub async fn offset_behind(
        config: &PostgresSourceConfig,
        database: &Database,
        sql: &str,
    ) -> SourceOffset {
        let mut reader = Self::new(config.clone());
        reader.started().await;
        database.run(sql).await;
        reader.take(1).await;
        let offset = reader.acknowledge().await;
        reader.close().await;
        offset
    }

    /// From a stored offset, or without one.
    pub async fn resumed(
        config: PostgresSourceConfig,
        offset: Option<SourceOffset>,
    ) -> Result<Self, ConnectError> {
        let mut reader = Self::new(config);
        let Some(offset) = offset else { return Ok(reader) };
        // The server may not have noticed yet that the reader before is gone: as a host does, try again.
        let deadline = Instant::now() + ARRIVAL_LIMIT;
        loop {
            match reader.source.seek(offset.clone()).await {
                Ok(()) => return Ok(reader),
                Err(error) if error.is_transient() && Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// One poll, retried while the error is transient, as a host does.
    pub async fn poll(&mut self) -> Result<Option<Seen>, ConnectError> {
        let record = match self.source.poll().await {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(None),
            Err(error) if error.is_transient() => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let encoded = self.converter.encode(record, &mut BytesMut::new())?;
        let json = |bytes: Option<bytes::Bytes>| {
            bytes.map_or(Value::Null, |bytes| serde_json::from_slice(&bytes).expect("valid JSON"))
        };
        let headers = encoded.headers.iter().map(|header| {
            let value = header.value.as_deref().map(|value| String::from_utf8_lossy(value).into_owned());
            (header.name.to_string(), value.unwrap_or_default())
        });
        let headers = headers.collect();
        Ok(Some(Seen {
            headers,
            key_text: String::from_utf8_lossy(encoded.key.as_deref().unwrap_or_default()).into_owned(),
            topic: encoded.topic.as_deref().unwrap_or_default().to_owned(),
            key: json(encoded.key),
            value: json(encoded.value),
            offset: self.source.checkpoint(),
        }))
    }

    /// Starts the session, so that a slot exists and what is written from now on is seen.
    pub async fn started(&mut self) {
        let deadline = Instant::now() + ARRIVAL_LIMIT;
        while let Err(error) = self.source.poll().await.map(|record| assert!(record.is_none(), "nothing yet"))
        {
            assert!(error.is_transient() && Instant::now() < deadline, "{error}");
        }
    }

    /// The next `count` records; panics when they do not come.
    pub async fn take(&mut self, count: usize) -> Vec<Seen> {
        let mut seen = Vec::with_capacity(count);
        let deadline = Instant::now() + ARRIVAL_LIMIT;
        while seen.len() < count {
            assert!(Instant::now() < deadline, "{} of {count} records came: {seen:?}", seen.len());
            match self.poll().await.unwrap() {
                Some(record) if record.op() == "h" && !self.with_heartbeats => {}
                Some(record) => seen.push(record),
                None => {}
            }
        }
        seen
    }

    /// Polls for a while and panics if a record other than a heartbeat comes.
    pub async fn quiet(&mut self, time: Duration) {
        let deadline = Instant::now() + time;
        while Instant::now() < deadline {
            if let Some(record) = self.poll().await.unwrap() {
                assert!(record.op() == "h", "unexpected record: {record:?}");
            }
        }
    }

    /// The position behind the last record.
    pub fn checkpoint(&self) -> Option<SourceOffset> {
        self.source.checkpoint()
    }

    /// Acknowledges it, as a host that has made everything durable.
    pub async fn acknowledge(&mut self) -> SourceOffset {
        let offset = self.checkpoint().expect("a position");
        self.source.acknowledge(&offset).await.unwrap();
        offset
    }

    /// One poll of the source with every error passed on; what comes is acknowledged at once.
    pub async fn poll_and_acknowledge(&mut self) -> Result<(), ConnectError> {
        if self.source.poll().await?.is_some() {
            let offset = self.source.checkpoint().expect("a position");
            self.source.acknowledge(&offset).await?;
        }
        Ok(())
    }

    /// The source itself.
    pub fn source(&mut self) -> &mut PostgresSource {
        &mut self.source
    }

    /// A graceful end.
    pub async fn close(mut self) {
        timeout(Duration::from_secs(10), self.source.close()).await.expect("close ends").unwrap();
    }
}
