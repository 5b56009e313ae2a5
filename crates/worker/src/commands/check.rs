//! `crabka check`: everything that would keep a run from working, found at once, each with what fixes it.
//!
//! Changes nothing. What could not be looked at is told apart from what was found wrong, also by the exit code.

use std::borrow::Cow;
use std::time::Duration;

use clap::Args;
use crabka_connect::{ConnectError, SourceOffset};
use crabka_connect_kafka::KafkaSinkConfig;
use crabka_connect_postgres::catalog::{TableName, TablePattern};
use crabka_connect_postgres::check::{self, CheckRequest, Finding, Report, Severity};
use crabka_connect_postgres::envelope::topic;
use crabka_connect_postgres::{PostgresSourceConfig, SlotMode, SqlConnection};

use crate::cli::{ConfigFile, Global};
use crate::config::{CheckpointConfig, Config, SinkConfig};
use crate::exit::Failure;
use crate::output::print;
use crate::{pipeline, stored, worker_status};

/// How long Kafka is looked at.
const KAFKA_LIMIT: Duration = Duration::from_secs(20);

/// Flags of the verb.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// Print one JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

/// Looks, prints, and ends with an error when something is wrong or could not be looked at.
pub(crate) async fn check(args: CheckArgs, global: &Global) -> Result<(), Failure> {
    let config = Config::load(&args.config.with(global))?;
    let source = pipeline::source(&config)?;
    let (stored, sink, checkpoint, http) = tokio::join!(
        stored::read(&config),
        look_at_sink(&config, &source),
        look_at_checkpoint(&config),
        look_at_http(&config)
    );
    let forget = match &stored {
        Ok(Some(offset)) => stored::removal(&config, offset)?,
        Ok(None) | Err(_) => None,
    };
    let mut report = look_at_postgres(&source, forget).await;
    report.findings.extend(sink?);
    let checkpoint = checkpoint?;
    // What keeps the store from being opened is told already.
    let broken = checkpoint.iter().any(|finding| finding.severity > Severity::Warning);
    report.findings.extend(checkpoint);
    if !broken && !matches!(config.checkpoint, CheckpointConfig::Memory) {
        report.findings.push(look_at_stored(&config, &stored));
    }
    report.findings.extend(http);
    if args.json {
        let json = serde_json::to_string_pretty(&report)
            .map_err(|error| ConnectError::bug("the report has no JSON form").with_source(error))?;
        print(&format!("{json}\n"))?;
    } else {
        print(&format!("{report}\n"))?;
    }
    verdict(&report)
}

fn verdict(report: &Report) -> Result<(), Failure> {
    let count = |severity| report.of(severity).count();
    match report.worst() {
        Severity::Ok | Severity::Warning => Ok(()),
        Severity::CouldNotLook => {
            let message =
                format!("could not look at everything: {} findings are open", count(Severity::CouldNotLook));
            Err(ConnectError::transient(message).into())
        }
        Severity::Error => {
            let message =
                format!("something would keep the run from working: {} errors", count(Severity::Error));
            Err(ConnectError::configuration(message)
                .with_fix("act on the errors above, then check again")
                .into())
        }
    }
}

async fn look_at_postgres(source: &PostgresSourceConfig, forget_offset: Option<String>) -> Report {
    let sql = match SqlConnection::connect(&source.connection).await {
        Ok(sql) => sql,
        Err(error) => return Report::unreachable(&error),
    };
    let topic_of = |table: &TableName| topic::for_table(&source.topic_prefix, &table.schema, &table.table);
    let mut request = CheckRequest::new(&source.slot, &source.publication, source.tables.clone());
    request.via_root = source.publish_via_partition_root;
    let creates = source.slot_mode == SlotMode::CreateIfMissing;
    request.creates_publication = creates;
    request.creates_slot = creates;
    request.topic = Some(&topic_of);
    request.reserved_topics = fixed_topics(source);
    request.forget_offset = forget_offset;
    request.application = Some(source.connection.application_name().to_owned());
    check::check(&sql, &request).await
}

/// Topics that do not belong to a table.
fn fixed_topics(source: &PostgresSourceConfig) -> Vec<String> {
    let heartbeat = source.heartbeat_topic.clone();
    vec![
        topic::for_messages(&source.topic_prefix),
        heartbeat.unwrap_or_else(|| topic::for_heartbeats(&source.topic_prefix)),
    ]
}

async fn look_at_sink(config: &Config, source: &PostgresSourceConfig) -> Result<Vec<Finding>, ConnectError> {
    match &config.sink {
        SinkConfig::Kafka(_) => {
            let mut topics = fixed_topics(source);
            topics.extend(source.tables.iter().filter_map(|pattern| match pattern {
                TablePattern::Table(table) => {
                    Some(topic::for_table(&source.topic_prefix, &table.schema, &table.table))
                }
                TablePattern::Schema(_) | TablePattern::All => None,
            }));
            Ok(look_at_kafka("sink", &pipeline::kafka_sink(config)?, &topics).await)
        }
        SinkConfig::File(file) => Ok(vec![look_at_file("sink_file", &file.path)]),
        SinkConfig::Stdout | SinkConfig::Null => Ok(Vec::new()),
    }
}

async fn look_at_checkpoint(config: &Config) -> Result<Vec<Finding>, ConnectError> {
    match &config.checkpoint {
        CheckpointConfig::Kafka(options) => {
            let store = pipeline::kafka_checkpoint(config, options)?;
            let mut kafka = KafkaSinkConfig::new(store.bootstrap_servers);
            kafka.properties = store.properties;
            kafka.create_topics = store.create_topic;
            Ok(look_at_kafka("checkpoint", &kafka, &[store.topic]).await)
        }
        CheckpointConfig::File(file) => Ok(vec![look_at_file("checkpoint_file", &file.path)]),
        // The table is looked at by reading it.
        CheckpointConfig::Postgres(_) => Ok(Vec::new()),
        CheckpointConfig::Memory => Ok(vec![Finding::warning(
            "checkpoint_memory",
            "the position is kept in memory: after a restart the stream goes on where the slot is, \
             and what was delivered since comes again",
        )]),
    }
}

async fn look_at_kafka(part: &str, kafka: &KafkaSinkConfig, topics: &[String]) -> Vec<Finding> {
    let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
    let findings = crabka_connect_kafka::check(kafka, &topics, KAFKA_LIMIT).await;
    findings.into_iter().map(|finding| from_kafka(part, finding)).collect()
}

fn from_kafka(part: &str, finding: crabka_connect_kafka::Finding) -> Finding {
    use crabka_connect_kafka::Severity as Kafka;
    Finding {
        id: Cow::Owned(format!("{part}_{}", finding.name)),
        severity: match finding.severity {
            Kafka::Ok => Severity::Ok,
            Kafka::Warning => Severity::Warning,
            Kafka::Unknown => Severity::CouldNotLook,
            Kafka::Error => Severity::Error,
        },
        subject: Some(finding.subject),
        message: finding.message,
        fix: finding.fix,
    }
}

/// Files are opened, and locked, by the run alone: it may be running now.
fn look_at_file(id: &'static str, path: &str) -> Finding {
    let path = std::path::Path::new(path);
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => std::path::Path::new("."),
    };
    let finding = match (folder.is_dir(), path.exists(), path.is_file()) {
        (false, _, _) => Finding::error(id, "the folder does not exist")
            .mended_by(format!("mkdir -p {}", folder.display())),
        (true, false, _) => Finding::ok(id, "will be made"),
        (true, true, true) => Finding::ok(id, "is there"),
        (true, true, false) => Finding::error(id, "is not a file").mended_by("name a file"),
    };
    finding.about(path.display())
}

/// Whether what is stored can be read: a run stops at a damaged position, and never starts anew over it.
fn look_at_stored(config: &Config, stored: &Result<Option<SourceOffset>, ConnectError>) -> Finding {
    let id = match &config.checkpoint {
        CheckpointConfig::Postgres(_) => "checkpoint_table",
        CheckpointConfig::File(_) | CheckpointConfig::Kafka(_) | CheckpointConfig::Memory => {
            "checkpoint_position"
        }
    };
    let finding = match stored {
        Ok(Some(_)) => Finding::ok(id, "holds a position of this connector"),
        Ok(None) => Finding::ok(id, "holds no position of this connector yet"),
        Err(error) if error.is_transient() => Finding::could_not_look(id, error),
        Err(error) => {
            let finding = Finding::error(id, error.message());
            Finding { fix: error.fix().map(str::to_owned), ..finding }
        }
    };
    finding.about(stored::place(config))
}

/// Whether the address can be listened on. A run of this connector that listens there now is in its right.
async fn look_at_http(config: &Config) -> Option<Finding> {
    const ID: &str = "http_listen";
    let address = config.http.listen.as_ref()?;
    let bound = tokio::net::TcpListener::bind(address).await;
    let finding = match bound {
        Ok(_) => Finding::ok(ID, "can be listened on"),
        Err(error) => match worker_status::fetch(address).await {
            Ok(status) if status["connector"] == config.name => {
                Finding::ok(ID, "a run of this connector listens there")
            }
            Ok(_) | Err(_) => Finding::error(ID, format!("cannot be listened on: {error}"))
                .mended_by("choose another address or port, or end the program that has it"),
        },
    };
    Some(finding.about(address))
}
