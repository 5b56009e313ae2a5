//! From a configuration to a source, a converter, a sink, a checkpoint store and the runtime that drives them.
//!
//! The one place that names concrete sinks and stores: a new one is a variant of the configuration and a line here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use crabka_connect::{
    CheckpointStore, ConnectError, ConnectorRuntime, Converter, FileCheckpointStore, Limits, LineSink,
    MemoryCheckpointStore, NullSink, Observer, RetryPolicy, Sink, Source, SourceOffset, SystemClock,
};
use crabka_connect_kafka::{
    KafkaCheckpointConfig, KafkaCheckpointStore, KafkaSink, KafkaSinkConfig, KafkaSinkCounters, TopicSettings,
};
use crabka_connect_postgres::catalog::{TableName, TablePattern};
use crabka_connect_postgres::classify::replication_error;
use crabka_connect_postgres::envelope::{
    AbsentColumns, DebeziumConverter, DebeziumOptions, FlatConverter, FlatOptions, topic,
};
use crabka_connect_postgres::{
    BinaryMode, ChangeEvent, ChangeKey, PostgresCheckpointStore, PostgresSource, PostgresSourceConfig,
    SlotMode, SourceFigures,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::config::{
    self, Binary, CheckpointConfig, CleanupPolicy, Compression, Config, DebeziumEnvelope, EnvelopeConfig,
    FlatEnvelope, KafkaCheckpoint, PostgresCheckpoint, Properties, Rejected, SinkConfig, SkippedOperations,
};
use crate::watch::{SinkFigures, Watch};

/// The parts of a configuration, ready to run, and where they are watched from.
pub(crate) struct Pipeline {
    pub(crate) runtime: ConnectorRuntime<ChangeKey, ChangeEvent>,
    pub(crate) source: PostgresSourceConfig,
    pub(crate) watch: Watch,
}

/// The runtime of a configuration, ready to run. Nothing is connected yet.
///
/// # Errors
///
/// Of the configuration class when an option is refused by the part that it belongs to.
pub(crate) fn pipeline(
    config: &Config,
    observer: Option<Arc<dyn Observer>>,
) -> Result<Pipeline, ConnectError> {
    let source_config = source(config)?;
    let figures = Arc::<SourceFigures>::default();
    let kafka = Arc::<KafkaSinkCounters>::default();
    let (opened, counted) = (source_config.clone(), Arc::clone(&figures));
    let builder = ConnectorRuntime::builder(&config.name)
        .source(move || {
            let source = PostgresSource::new(opened.clone());
            let source = source.map(|source| source.with_figures(Arc::clone(&counted)));
            std::future::ready(source.map(|source| Box::new(source) as Box<dyn Source<_, _>>))
        })
        .sink(sink(config, &kafka)?)
        .boxed_converter(converter(config)?)
        .boxed_checkpoint_store(checkpoint_store(config)?)
        .limits(limits(config)?)
        .retry(retry(config));
    let runtime = match observer {
        Some(observer) => builder.observer(observer),
        None => builder,
    }
    .build()?;
    let sink = match &config.sink {
        SinkConfig::Kafka(_) => SinkFigures { kind: "kafka", kafka: Some(kafka) },
        SinkConfig::File(_) => SinkFigures { kind: "file", kafka: None },
        SinkConfig::Stdout => SinkFigures { kind: "stdout", kafka: None },
        SinkConfig::Null => SinkFigures { kind: "null", kafka: None },
    };
    let stall_limit = Duration::from_millis(config.runtime.stall_limit_ms);
    let watch = Watch::new(&runtime.handle(), figures, sink, stall_limit);
    Ok(Pipeline { runtime, source: source_config, watch })
}

/// The source's own configuration.
pub(crate) fn source(config: &Config) -> Result<PostgresSourceConfig, ConnectError> {
    let options = &config.source;
    let frame_limit = bytes("source.frame_bytes_max", options.frame_bytes_max)?;
    let connection = connection(options.url.expose())?.with_frame_limit(frame_limit);
    let mut source = PostgresSourceConfig::new(&config.name, connection)?;
    source.tables = tables(&options.tables)?;
    if let CheckpointConfig::Postgres(options) = &config.checkpoint {
        // Whatever database it is in: one URL may lead to the same database as another.
        source.excluded = vec![checkpoint_table(options)?];
    }
    if let Some(slot) = &options.slot {
        source.slot.clone_from(slot);
    }
    if let Some(publication) = &options.publication {
        source.publication.clone_from(publication);
    }
    if let Some(prefix) = &options.topic_prefix {
        source.topic_prefix.clone_from(prefix);
    }
    source.heartbeat_topic.clone_from(&options.heartbeat_topic);
    source.slot_mode = if options.create { SlotMode::CreateIfMissing } else { SlotMode::Existing };
    source.publish_via_partition_root = options.publish_via_partition_root;
    source.allow_refused_updates = options.allow_refused_updates;
    source.binary = match options.binary {
        Binary::Auto => BinaryMode::Auto,
        Binary::On => BinaryMode::Binary,
        Binary::Off => BinaryMode::Text,
    };
    source.truncate_events = options.skipped_operations == SkippedOperations::None;
    source.message_events = options.logical_messages;
    source.heartbeat_interval = Duration::from_millis(options.heartbeat_interval_ms);
    source.unread_limit = Duration::from_millis(options.unread_limit_ms);
    source.queue_bytes = bytes("source.queue_bytes", options.queue_bytes)?;
    source.deletes = match &config.envelope {
        EnvelopeConfig::Debezium(envelope) => debezium(config, envelope).delete_records(),
        EnvelopeConfig::Flat(envelope) => flat(envelope).delete_records(),
    };
    source.held_slot_limit =
        (options.held_slot_limit_ms > 0).then(|| Duration::from_millis(options.held_slot_limit_ms));
    source.slot_creation_timeout = Duration::from_millis(options.slot_creation_timeout_ms);
    source.validate()?;
    Ok(source)
}

/// How changes become bytes.
///
/// # Errors
///
/// Of the configuration class when an option cannot be used.
pub(crate) fn converter(config: &Config) -> Result<Box<dyn Converter<ChangeKey, ChangeEvent>>, ConnectError> {
    Ok(match &config.envelope {
        EnvelopeConfig::Debezium(envelope) => {
            let options = debezium(config, envelope);
            Box::new(DebeziumConverter::new(options, Arc::new(SystemClock))?)
        }
        EnvelopeConfig::Flat(envelope) => Box::new(FlatConverter::new(flat(envelope))),
    })
}

fn debezium(config: &Config, envelope: &DebeziumEnvelope) -> DebeziumOptions {
    DebeziumOptions {
        connector_name: config.name.clone(),
        extended_headers: envelope.extended_headers,
        tombstones_on_delete: envelope.tombstones_on_delete,
        unavailable_value_placeholder: envelope.unavailable_value_placeholder.clone(),
        absent_columns: match envelope.absent_columns {
            config::AbsentColumns::Filler => AbsentColumns::Filler,
            config::AbsentColumns::Null => AbsentColumns::Null,
        },
        money_server_digits: envelope.money_server_digits,
        money_fraction_digits: envelope.money_fraction_digits,
    }
}

fn flat(envelope: &FlatEnvelope) -> FlatOptions {
    FlatOptions { delete_objects: envelope.delete_objects, money_server_digits: envelope.money_server_digits }
}

/// The connection data of a URL.
fn connection(url: &str) -> Result<crabka_pgrepl::Config, ConnectError> {
    url.parse().map_err(|error| replication_error("reading the connection URL", error))
}

/// Tables as the configuration writes them.
pub(crate) fn tables(names: &[String]) -> Result<Vec<TablePattern>, ConnectError> {
    names
        .iter()
        .map(|name| name.parse().map_err(|error: ConnectError| error.context("source.tables")))
        .collect()
}

type SinkFactory =
    Box<dyn FnMut() -> BoxFuture<'static, Result<Box<dyn Sink<Bytes, Bytes>>, ConnectError>> + Send>;

/// Opens the sink of the configuration, as often as it is called.
fn sink(config: &Config, counters: &Arc<KafkaSinkCounters>) -> Result<SinkFactory, ConnectError> {
    Ok(match &config.sink {
        SinkConfig::Kafka(_) => {
            let kafka = kafka_sink(config)?;
            let counters = Arc::clone(counters);
            Box::new(move || {
                let (open, counters) = (KafkaSink::open(kafka.clone()), Arc::clone(&counters));
                open.map(|sink| sink.map(|sink| Box::new(sink.counting_in(counters)) as Box<dyn Sink<_, _>>))
                    .boxed()
            })
        }
        SinkConfig::File(file) => {
            let path = file.path.clone();
            Box::new(move || {
                let open = LineSink::append(path.clone());
                open.map(|sink| sink.map(|sink| Box::new(sink) as Box<dyn Sink<_, _>>)).boxed()
            })
        }
        SinkConfig::Stdout => {
            Box::new(|| std::future::ready(Ok(Box::new(LineSink::stdout()) as Box<_>)).boxed())
        }
        SinkConfig::Null => Box::new(|| std::future::ready(Ok(Box::new(NullSink::new()) as Box<_>)).boxed()),
    })
}

/// The checkpoint store of the configuration.
pub(crate) fn checkpoint_store(config: &Config) -> Result<Box<dyn CheckpointStore>, ConnectError> {
    Ok(match &config.checkpoint {
        CheckpointConfig::Kafka(options) => {
            let kafka = kafka_checkpoint(config, options)?;
            OnFirstUse::boxed(move || {
                let open = KafkaCheckpointStore::open(kafka.clone());
                open.map(|store| store.map(|store| Box::new(store) as Box<dyn CheckpointStore>)).boxed()
            })
        }
        CheckpointConfig::File(options) => {
            let path = options.path.clone();
            OnFirstUse::boxed(move || {
                let open = FileCheckpointStore::open(path.clone());
                open.map(|store| store.map(|store| Box::new(store) as Box<dyn CheckpointStore>)).boxed()
            })
        }
        CheckpointConfig::Postgres(options) => {
            let url = options.url.as_ref().unwrap_or(&config.source.url);
            let store = PostgresCheckpointStore::new(connection(url.expose())?);
            Box::new(store.with_table(checkpoint_table(options)?))
        }
        CheckpointConfig::Memory => Box::new(MemoryCheckpointStore::new()),
    })
}

pub(crate) fn checkpoint_table(options: &PostgresCheckpoint) -> Result<TableName, ConnectError> {
    match options.table.parse()? {
        TablePattern::Table(table) => Ok(table),
        TablePattern::Schema(_) | TablePattern::All => {
            let message = format!("checkpoint.table is not one table: {}", options.table);
            Err(ConnectError::configuration(message))
        }
    }
}

type OpenStore =
    Box<dyn FnMut() -> BoxFuture<'static, Result<Box<dyn CheckpointStore>, ConnectError>> + Send>;

/// A store that is opened when it is first used: then a broker that is away is an error that the runtime retries.
struct OnFirstUse {
    open: OpenStore,
    store: Option<Box<dyn CheckpointStore>>,
}

impl OnFirstUse {
    fn boxed(
        open: impl FnMut() -> BoxFuture<'static, Result<Box<dyn CheckpointStore>, ConnectError>> + Send + 'static,
    ) -> Box<dyn CheckpointStore> {
        Box::new(Self { open: Box::new(open), store: None })
    }

    async fn store(&mut self) -> Result<&mut Box<dyn CheckpointStore>, ConnectError> {
        let store = match self.store.take() {
            Some(store) => store,
            None => (self.open)().await?,
        };
        Ok(self.store.insert(store))
    }
}

#[async_trait]
impl CheckpointStore for OnFirstUse {
    async fn load(&mut self, connector: &str) -> Result<Option<SourceOffset>, ConnectError> {
        self.store().await?.load(connector).await
    }

    async fn save(&mut self, connector: &str, offset: &SourceOffset) -> Result<(), ConnectError> {
        self.store().await?.save(connector, offset).await
    }
}

/// The values in effect of options that are not set and follow from others.
pub(crate) fn follows(config: &Config) -> config::Follows {
    let mut follows = config::Follows::new();
    if let Ok(source) = source(config) {
        follows.insert(("source", "slot"), source.slot.clone());
        follows.insert(("source", "publication"), source.publication.clone());
        follows.insert(("source", "topic_prefix"), source.topic_prefix.clone());
        follows.insert(("source", "heartbeat_topic"), source.heartbeat_topic());
    }
    if let CheckpointConfig::Kafka(options) = &config.checkpoint
        && let Ok(kafka) = kafka_checkpoint(config, options)
    {
        follows.insert(("checkpoint", "bootstrap_servers"), kafka.bootstrap_servers);
    }
    follows
}

/// The Kafka sink's own configuration.
///
/// # Errors
///
/// Of the bug class when the sink is not Kafka.
pub(crate) fn kafka_sink(config: &Config) -> Result<KafkaSinkConfig, ConnectError> {
    let SinkConfig::Kafka(options) = &config.sink else {
        return Err(ConnectError::bug("the sink is not kafka"));
    };
    let mut kafka = KafkaSinkConfig::new(options.bootstrap_servers.clone());
    kafka.properties = map(&options.properties);
    kafka.allow_weaker_durability = options.allow_weaker_durability;
    kafka.compression = match options.compression {
        Compression::None => crabka_connect_kafka::Compression::None,
        Compression::Gzip => crabka_connect_kafka::Compression::Gzip,
        Compression::Snappy => crabka_connect_kafka::Compression::Snappy,
        Compression::Lz4 => crabka_connect_kafka::Compression::Lz4,
        Compression::Zstd => crabka_connect_kafka::Compression::Zstd,
    };
    kafka.linger_ms = options.linger_ms;
    kafka.create_topics = options.create_topics;
    kafka.describe_topics = options.describe_topics;
    kafka.source_timestamps = options.source_timestamps;
    kafka.topic = TopicSettings {
        partitions: options.partitions,
        replication_factor: options.replication_factor,
        cleanup_policy: options.cleanup_policy.map(|policy| match policy {
            CleanupPolicy::Delete => crabka_connect_kafka::CleanupPolicy::Delete,
            CleanupPolicy::Compact => crabka_connect_kafka::CleanupPolicy::Compact,
            CleanupPolicy::CompactDelete => crabka_connect_kafka::CleanupPolicy::CompactDelete,
        }),
        config: map(&options.topic_config),
    };
    kafka.on_too_large = rejected(options.on_too_large);
    kafka.on_unauthorized = rejected(options.on_unauthorized);
    kafka.dead_letter_topic.clone_from(&options.dead_letter_topic);
    kafka.record_bytes_max = bytes("sink.record_bytes_max", options.record_bytes_max)?;
    kafka.queue_records_max = bytes("sink.queue_records_max", options.queue_records_max)?;
    kafka.queue_bytes_max = bytes("sink.queue_bytes_max", options.queue_bytes_max)?;
    kafka.delivery_timeout_ms = options.delivery_timeout_ms;
    kafka.flush_timeout_ms = options.flush_timeout_ms;
    kafka.request_timeout_ms = options.request_timeout_ms;
    // Heartbeats have one key: more partitions would stay empty.
    let source = source(config)?;
    let heartbeats = source.heartbeat_topic.unwrap_or_else(|| topic::for_heartbeats(&source.topic_prefix));
    kafka.topics.insert(heartbeats, TopicSettings { partitions: Some(1), ..TopicSettings::default() });
    kafka.validate()?;
    Ok(kafka)
}

fn rejected(policy: Rejected) -> crabka_connect_kafka::Rejected {
    match policy {
        Rejected::Stop => crabka_connect_kafka::Rejected::Stop,
        Rejected::DeadLetter => crabka_connect_kafka::Rejected::DeadLetter,
    }
}

/// The Kafka checkpoint store's own configuration.
pub(crate) fn kafka_checkpoint(
    config: &Config,
    options: &KafkaCheckpoint,
) -> Result<KafkaCheckpointConfig, ConnectError> {
    let sink = match &config.sink {
        SinkConfig::Kafka(sink) => Some(sink),
        SinkConfig::File(_) | SinkConfig::Stdout | SinkConfig::Null => None,
    };
    let servers = options.bootstrap_servers.as_ref().or(sink.map(|sink| &sink.bootstrap_servers));
    let servers = servers.ok_or_else(|| {
        ConnectError::configuration("checkpoint.bootstrap_servers must be given: the sink is not kafka")
    })?;
    let mut kafka = KafkaCheckpointConfig::new(servers.clone());
    let properties = options.properties.as_ref().or(sink.map(|sink| &sink.properties));
    kafka.properties = properties.map(map).unwrap_or_default();
    kafka.topic.clone_from(&options.topic);
    kafka.replication_factor = options.replication_factor;
    kafka.create_topic = options.create_topic;
    kafka.timeout_ms = options.timeout_ms;
    Ok(kafka)
}

fn limits(config: &Config) -> Result<Limits, ConnectError> {
    let options = &config.runtime;
    Ok(Limits {
        max_batch_records: bytes("runtime.max_batch_records", options.max_batch_records)?,
        max_batch_bytes: bytes("runtime.max_batch_bytes", options.max_batch_bytes)?,
        max_batch_age: Duration::from_millis(options.max_batch_age_ms),
        drain_timeout: Duration::from_millis(options.drain_timeout_ms),
        ..Limits::default()
    })
}

fn retry(config: &Config) -> RetryPolicy {
    let options = &config.runtime;
    RetryPolicy {
        first_delay: Duration::from_millis(options.retry_first_delay_ms),
        max_delay: Duration::from_millis(options.retry_max_delay_ms),
        max_attempts: options.retry_max_attempts,
    }
}

fn map(properties: &Properties) -> BTreeMap<String, String> {
    properties.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// A size as this machine counts it.
fn bytes(option: &str, size: u64) -> Result<usize, ConnectError> {
    usize::try_from(size).map_err(|_| {
        ConnectError::configuration(format!("{option} is more than this machine can address: {size}"))
    })
}
