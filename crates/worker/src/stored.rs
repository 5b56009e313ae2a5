//! The stored offset, looked at beside a run or without one, and what removes it.

use std::time::Duration;

use crabka_connect::{ConnectError, FileCheckpointStore, SourceOffset};
use crabka_connect_kafka::KafkaCheckpointStore;
use crabka_connect_postgres::catalog::quote_literal;

use crate::config::{CheckpointConfig, Config};
use crate::pipeline;

/// How long the store is waited for.
const LIMIT: Duration = Duration::from_secs(20);

/// The offset that the next start would go on from; `None` when there is none. Changes nothing, and disturbs no run.
///
/// # Errors
///
/// Those of the store; transient when it does not answer in time.
pub(crate) async fn read(config: &Config) -> Result<Option<SourceOffset>, ConnectError> {
    let reading = async {
        match &config.checkpoint {
            CheckpointConfig::Memory => Ok(None),
            CheckpointConfig::File(file) => FileCheckpointStore::peek(&file.path, &config.name).await,
            CheckpointConfig::Postgres(_) => pipeline::checkpoint_store(config)?.load(&config.name).await,
            CheckpointConfig::Kafka(options) => {
                let mut kafka = pipeline::kafka_checkpoint(config, options)?;
                kafka.create_topic = false;
                let mut store = KafkaCheckpointStore::open(kafka).await?;
                let offset = store.peek(&config.name).await;
                store.close().await;
                offset
            }
        }
    };
    let in_vain = || ConnectError::transient("the checkpoint store gives no answer in time");
    tokio::time::timeout(LIMIT, reading).await.unwrap_or_else(|_| Err(in_vain()))
}

/// Where offsets are kept, in words.
pub(crate) fn place(config: &Config) -> String {
    match &config.checkpoint {
        CheckpointConfig::Memory => "nowhere".to_owned(),
        CheckpointConfig::File(file) => format!("file {}", file.path),
        CheckpointConfig::Postgres(options) => format!("table {}", options.table),
        CheckpointConfig::Kafka(options) => format!("kafka topic {}", options.topic),
    }
}

/// The SQL or command that removes an offset that is stored; `None` when nothing is kept.
///
/// # Errors
///
/// Of the configuration class when the store's options cannot be used.
pub(crate) fn removal(config: &Config, offset: &SourceOffset) -> Result<Option<String>, ConnectError> {
    Ok(match &config.checkpoint {
        CheckpointConfig::Memory => None,
        CheckpointConfig::File(file) => Some(format!("rm '{}'", file.path.replace('\'', "'\\''"))),
        CheckpointConfig::Postgres(options) => {
            let table = pipeline::checkpoint_table(options)?.quoted();
            let name = quote_literal(&config.name);
            Some(format!("DELETE FROM {table} WHERE connector = {name}"))
        }
        CheckpointConfig::Kafka(options) => {
            Some(pipeline::kafka_checkpoint(config, options)?.removal_command(&config.name, offset))
        }
    })
}
