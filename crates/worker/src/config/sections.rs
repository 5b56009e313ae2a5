//! Every option there is.

use crabka_connect_postgres::envelope::DEFAULT_PLACEHOLDER;

use super::option::{Group, Preset, options};
use super::secret::ConnectionUrl;
use super::value::{Properties, choices};

options! {
    /// What concerns the whole connector.
    Top in "" {
        /// Name of the connector: its checkpoint is kept under this name, and slot, publication and topics are
        /// called after it unless they are named themselves.
        name: String = Preset::Required, check not_empty;
    }
}

choices! {
    /// In which form the server sends values.
    Binary {
        /// The source decides.
        Auto = "auto",
        /// Binary where every captured column has a binary form.
        On = "true",
        /// Text.
        Off = "false",
    }
}

choices! {
    /// Operations that give no records, as in Debezium.
    SkippedOperations {
        /// TRUNCATE.
        Truncate = "t",
        /// Nothing is skipped.
        None = "none",
    }
}

options! {
    /// Where changes come from.
    Source in "source" {
        /// The server: a libpq URL. `PG*` variables and `.pgpass` complete it.
        url: ConnectionUrl = Preset::Required;
        /// Tables to capture, as `schema.table`; a name that is not plain is quoted as in SQL. Empty: every table of
        /// the publication.
        tables: Vec<String> = Preset::Is(Vec::new());
        /// Replication slot.
        slot: Option<String> = Preset::Means(None, "`name`, every character outside `[a-z0-9_]` as `_`"), check set;
        /// Publication. An existing one is used as it is.
        publication: Option<String> = Preset::Means(None, "`name`"), check set;
        /// Whether a missing publication and slot are created at the first start. If not, `crabka init` creates them.
        create: bool = Preset::Is(true);
        /// Whether a publication is created although the server then refuses UPDATE and DELETE of some of its tables,
        /// those without a replica identity. If not, `crabka init` names them and creates nothing.
        allow_refused_updates: bool = Preset::Is(false);
        /// `publish_via_partition_root` of a publication that is created: changes of a partition come as changes of
        /// the partitioned table.
        publish_via_partition_root: bool = Preset::Is(false);
        /// First part of every topic, and `source.name` of the events (Debezium: `topic.prefix`).
        topic_prefix: Option<String> = Preset::Means(None, "`name`"), check set;
        /// Whether the server sends values in binary. `auto` takes the form that is faster over the usual tables, which is text.
        binary: Binary = Preset::Is(Binary::Auto);
        /// Operations that give no records (Debezium: `skipped.operations`): `t` skips TRUNCATE.
        skipped_operations: SkippedOperations = Preset::Is(SkippedOperations::Truncate);
        /// Whether `pg_logical_emit_message` gives records.
        logical_messages: bool = Preset::Is(true);
        /// Topic of the heartbeats that carry an idle position to the checkpoint.
        heartbeat_topic: Option<String> = Preset::Means(None, "`__debezium-heartbeat.` and the topic prefix"),
            check set;
        /// How often an idle position is written as a heartbeat, at most.
        heartbeat_interval_ms: u64 = Preset::Is(5_000), in 100..=3_600_000;
        /// How long the connection may stay unread because nobody takes the changes. Then it is closed and opened
        /// again when there is room: an open connection that is not read can block the server.
        unread_limit_ms: u64 = Preset::Is(60_000), in 1_000..=3_600_000;
        /// Server messages that may wait to be taken.
        queue_bytes: u64 = Preset::Is(16_777_216), in 65_536..=17_179_869_184;
        /// Largest message taken from the server: a row is one message, and in text a `bytea` is twice as long as its
        /// value. A larger one ends the run before any of it is read. The server itself makes none over 1 GiB.
        frame_bytes_max: u64 = Preset::Is(1_073_741_824), in 65_536..=1_073_741_824;
        /// How often the slot is looked at for `/status` and metrics: WAL retained, safety, who holds it back.
        slot_interval_ms: u64 = Preset::Is(5_000), in 100..=3_600_000;
        /// How long a slot that another session reads is waited for. It may be a connection of an earlier run, which the
        /// server ends within a minute when it is dead. Who still reads after that is another instance, and the run ends
        /// with the class `fenced`. 0 stands by: waits without end, and takes over when that session ends.
        held_slot_limit_ms: u64 = Preset::Is(120_000), in 0..=86_400_000;
        /// How long the creation of the slot may wait for transactions that are still open.
        slot_creation_timeout_ms: u64 = Preset::Is(60_000), in 1_000..=86_400_000;
    }
}

choices! {
    /// How changes are encoded.
    EnvelopeType {
        /// Debezium's change events in JSON, without schemas.
        Debezium = "debezium",
        /// One JSON object with the row's columns.
        Flat = "flat",
    }
}

options! {
    /// How changes are encoded.
    Envelope in "envelope" {
        /// `debezium`: change events as Debezium writes them in JSON, without schemas. `flat`: one object with the row's
        /// columns and `__op`, `__table`, `__lsn`, `__commit_ts`.
        r#type: EnvelopeType = Preset::Is(EnvelopeType::Debezium);
    }
}

choices! {
    /// What is written for a column of an old row that was not sent and is NOT NULL.
    AbsentColumns {
        /// A zero of its type.
        Filler = "filler",
        /// `null`.
        Null = "null",
    }
}

options! {
    /// Debezium's names and defaults, where it has the option.
    DebeziumEnvelope in "envelope" only "type" = "debezium" {
        /// Whether every record carries the three `__debezium.context.*` headers (`extended.headers.enabled`).
        extended_headers: bool = Preset::Is(true);
        /// Whether a delete is followed by a tombstone (`tombstones.on.delete`).
        tombstones_on_delete: bool = Preset::Is(true);
        /// What stands for a value stored out of line that the change did not touch (`unavailable.value.placeholder`);
        /// after `hex:` its bytes.
        unavailable_value_placeholder: String = Preset::Is(DEFAULT_PLACEHOLDER.to_owned());
        /// What stands for NOT NULL columns of an old row that the server did not send: a zero of the type, as Debezium
        /// writes it, or `null`.
        absent_columns: AbsentColumns = Preset::Is(AbsentColumns::Filler);
        /// Digits after the point of `money` in records (`money.fraction.digits`).
        money_fraction_digits: u32 = Preset::Is(2), in 0..=18;
        /// Digits after the point of the server's own `money`: `SELECT scale(1::money::numeric)`.
        money_server_digits: u32 = Preset::Is(2), in 0..=18;
    }
}

options! {
    /// The row's columns in readable JSON.
    FlatEnvelope in "envelope" only "type" = "flat" {
        /// Whether a delete is an object with `"__deleted":true` that a tombstone follows; else it is the tombstone alone.
        delete_objects: bool = Preset::Is(false);
        /// Digits after the point of the server's own `money`: `SELECT scale(1::money::numeric)`.
        money_server_digits: u32 = Preset::Is(2), in 0..=18;
    }
}

choices! {
    /// Where records go.
    SinkType {
        /// Kafka topics.
        Kafka = "kafka",
        /// Lines appended to a file.
        File = "file",
        /// Lines on standard output.
        Stdout = "stdout",
        /// Nowhere.
        Null = "null",
    }
}

options! {
    /// Where records go.
    Sink in "sink" {
        /// `kafka`: topics. `file`: lines of JSON, as `crabka tail` prints them, synced to the disk before a batch
        /// counts as delivered. `stdout`: the same lines. `null`: nowhere, to measure a source.
        r#type: SinkType = Preset::Required;
    }
}

choices! {
    /// Codec of the batches sent to Kafka.
    Compression {
        /// As they are.
        None = "none",
        /// gzip.
        Gzip = "gzip",
        /// Snappy.
        Snappy = "snappy",
        /// LZ4.
        Lz4 = "lz4",
        /// Zstandard.
        Zstd = "zstd",
    }
}

choices! {
    /// Kafka's `cleanup.policy`.
    CleanupPolicy {
        /// Old segments are deleted.
        Delete = "delete",
        /// The newest record of each key stays.
        Compact = "compact",
        /// Both.
        CompactDelete = "compact,delete",
    }
}

choices! {
    /// What happens to a record that Kafka will never take.
    Rejected {
        /// The run stops; the position does not move.
        Stop = "stop",
        /// The record goes to the dead-letter topic.
        DeadLetter = "dead_letter",
    }
}

options! {
    /// Kafka topics. Always idempotent, acknowledged by all in-sync replicas, and in order per key.
    KafkaSink in "sink" only "type" = "kafka" {
        /// Brokers to start from, `host:port`, separated by commas.
        bootstrap_servers: String = Preset::Required, check not_empty;
        /// librdkafka properties, passed through: `security.protocol`, `sasl.*`, `ssl.*` and any other that has no
        /// option here.
        properties: Properties = Preset::Is(Properties::default());
        /// Lets `properties` lower the delivery guarantee (`acks`, `enable.idempotence`, retries, `message.timeout.ms`).
        allow_weaker_durability: bool = Preset::Is(false);
        /// Codec of the batches.
        compression: Compression = Preset::Is(Compression::None);
        /// How long to wait for more records before a request is sent.
        linger_ms: u32 = Preset::Is(0), in 0..=900_000;
        /// Whether missing topics are created. The broker is never asked to create them by itself.
        create_topics: bool = Preset::Is(true);
        /// Whether the configuration of topics is read, for their size limit and cleanup policy. For a broker that does
        /// not answer such requests.
        describe_topics: bool = Preset::Is(true);
        /// Whether Kafka's timestamp of a record is the commit time instead of the time at which it is produced. Retention by
        /// time goes by it: what is caught up with may be deleted at once.
        source_timestamps: bool = Preset::Is(false);
        /// Partitions of a topic that is created.
        partitions: Option<i32> = Preset::Means(None, "6"), check positive;
        /// Replicas of a topic that is created; an existing one is compared with it.
        replication_factor: Option<i32> = Preset::Means(None, "the broker's"), check positive;
        /// `cleanup.policy` of a topic that is created; an existing one is compared with it.
        cleanup_policy: Option<CleanupPolicy> = Preset::Means(None, "the broker's");
        /// Further configuration of a topic that is created, as `retention.ms`; an existing one is compared with it.
        topic_config: Properties = Preset::Is(Properties::default());
        /// What happens to a record over the size limit of its topic.
        on_too_large: Rejected = Preset::Is(Rejected::Stop);
        /// What happens to a record whose topic may not be written.
        on_unauthorized: Rejected = Preset::Is(Rejected::Stop);
        /// Topic of the records that are rejected with `dead_letter`.
        dead_letter_topic: Option<String> = Preset::Means(None, "must be given with `dead_letter`"), check set;
        /// Size of the largest record that is sent at all.
        record_bytes_max: u64 = Preset::Is(100_000_000), in 1_000..=1_000_000_000;
        /// Records in the producer's queue.
        queue_records_max: u64 = Preset::Is(100_000), in 1..=10_000_000;
        /// Size of the producer's queue.
        queue_bytes_max: u64 = Preset::Is(134_217_728), in 1_000..=2_147_482_624;
        /// Time without any delivery report after which a batch counts as failed, and is tried again.
        delivery_timeout_ms: u64 = Preset::Is(120_000), in 1..=86_400_000;
        /// How long closing waits for records on their way.
        flush_timeout_ms: u64 = Preset::Is(10_000), in 1..=86_400_000;
        /// How long one administrative request may take: metadata, creating and describing topics.
        request_timeout_ms: u64 = Preset::Is(30_000), in 1..=86_400_000;
    }
}

options! {
    /// The file that lines are appended to.
    FileSink in "sink" only "type" = "file" {
        /// Path of the file.
        path: String = Preset::Required, check not_empty;
    }
}

choices! {
    /// Where the position is kept.
    CheckpointStore {
        /// A compacted topic.
        Kafka = "kafka",
        /// A file.
        File = "file",
        /// A table of a PostgreSQL database.
        Postgres = "postgres",
        /// This process.
        Memory = "memory",
    }
}

options! {
    /// Where the position is kept between runs.
    Checkpoint in "checkpoint" {
        /// `kafka`: a compacted topic. `file`: a file that is replaced as a whole. `postgres`: the table of
        /// `migrations/`. `memory`: nowhere; a restart goes on where the slot is.
        store: CheckpointStore = Preset::Required;
    }
}

options! {
    /// The compacted topic that holds the position.
    KafkaCheckpoint in "checkpoint" only "store" = "kafka" {
        /// Brokers to start from.
        bootstrap_servers: Option<String> = Preset::Means(None, "those of the sink"), check set;
        /// librdkafka properties of the connection.
        properties: Option<Properties> = Preset::Means(None, "those of the sink");
        /// Topic. Several connectors may share it.
        topic: String = Preset::Is("crabka-offsets".to_owned()), check not_empty;
        /// Whether the topic is created when it is missing.
        create_topic: bool = Preset::Is(true);
        /// Replicas of the topic when it is created.
        replication_factor: Option<i32> = Preset::Means(None, "the broker's"), check positive;
        /// How long one load or save may take.
        timeout_ms: u64 = Preset::Is(30_000), in 1..=86_400_000;
    }
}

options! {
    /// The file that holds the position.
    FileCheckpoint in "checkpoint" only "store" = "file" {
        /// Path of the file.
        path: String = Preset::Required, check not_empty;
    }
}

options! {
    /// The database that holds the position, in the table `crabka_checkpoint`.
    PostgresCheckpoint in "checkpoint" only "store" = "postgres" {
        /// The server: a libpq URL.
        url: Option<ConnectionUrl> = Preset::Means(None, "`source.url`");
        /// The table, made by `migrations/003_checkpoint.sql` or `crabka init --with checkpoint`. It is never captured:
        /// each checkpoint would bring the next one.
        table: String = Preset::Is("public.crabka_checkpoint".to_owned()), check not_empty;
    }
}

options! {
    /// Batches, retries and the end of a run.
    Runtime in "runtime" {
        /// Records in a batch.
        max_batch_records: u64 = Preset::Is(16_384), in 1..=10_000_000;
        /// Encoded size of a batch. Two batches exist at a time: one on its way and one being filled.
        max_batch_bytes: u64 = Preset::Is(8_388_608), in 1..=17_179_869_184;
        /// Age at which a batch is sent although the source has more. A source that is caught up does not wait.
        max_batch_age_ms: u64 = Preset::Is(500), in 1..=3_600_000;
        /// Pause after the first transient error; each next one is twice as long.
        retry_first_delay_ms: u64 = Preset::Is(200), in 1..=3_600_000;
        /// Longest pause between two attempts.
        retry_max_delay_ms: u64 = Preset::Is(30_000), in 1..=86_400_000;
        /// Attempts without progress after which the run ends with the error.
        retry_max_attempts: Option<u32> = Preset::Means(None, "never gives up"), check at_least_one;
        /// How long a graceful end waits for the batch on its way, and then for source and sink to close.
        drain_timeout_ms: u64 = Preset::Is(30_000), in 1..=3_600_000;
        /// How long the stream or a batch may stand still before the run is not ready.
        stall_limit_ms: u64 = Preset::Is(30_000), in 100..=3_600_000;
        /// How often a line in the log says how far the run is.
        progress_interval_ms: u64 = Preset::Is(60_000), in 100..=86_400_000;
    }
}

options! {
    /// The HTTP endpoints `/live`, `/ready`, `/status` and `/metrics`.
    Http in "http" {
        /// Address and port to listen on, for example `127.0.0.1:8080`.
        listen: Option<String> = Preset::Means(None, "does not listen"), check address;
    }
}

/// Every group of options, in the order of the reference.
pub(crate) const GROUPS: &[&Group] = &[
    Top::GROUP,
    Source::GROUP,
    Envelope::GROUP,
    DebeziumEnvelope::GROUP,
    FlatEnvelope::GROUP,
    Sink::GROUP,
    KafkaSink::GROUP,
    FileSink::GROUP,
    Checkpoint::GROUP,
    KafkaCheckpoint::GROUP,
    FileCheckpoint::GROUP,
    PostgresCheckpoint::GROUP,
    Runtime::GROUP,
    Http::GROUP,
];

fn not_empty(text: &str) -> Result<(), String> {
    if text.is_empty() { Err("must not be empty".to_owned()) } else { Ok(()) }
}

fn set(text: &Option<String>) -> Result<(), String> {
    text.as_deref().map_or(Ok(()), not_empty)
}

fn positive(number: &Option<i32>) -> Result<(), String> {
    match number {
        Some(number) if *number < 1 => Err(format!("must be at least 1: {number}")),
        _ => Ok(()),
    }
}

fn at_least_one(number: &Option<u32>) -> Result<(), String> {
    if *number == Some(0) { Err("must be at least 1: 0".to_owned()) } else { Ok(()) }
}

fn address(text: &Option<String>) -> Result<(), String> {
    match text {
        Some(text) if text.parse::<std::net::SocketAddr>().is_err() => {
            Err(format!("must be an IP address and a port, as 127.0.0.1:8080: {text}"))
        }
        _ => Ok(()),
    }
}
