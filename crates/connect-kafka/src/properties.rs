//! From options to librdkafka's configuration.
//!
//! Three kinds of properties: those that hold the delivery guarantee (weakened only on explicit demand), those
//! that belong to an option or to the way this crate counts (refused, so that there is one place for each), and
//! all others, which are passed through.
//! Their meaning: <https://github.com/confluentinc/librdkafka/blob/v2.12.1/CONFIGURATION.md>.

use std::collections::BTreeMap;

use crabka_connect::ConnectError;
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;

use crate::classify;
use crate::config::KafkaSinkConfig;

/// Largest batch of several records, in bytes, before a topic's limit lowers it. Below the broker's default
/// `message.max.bytes` of 1,048,588, so that no batch is refused of which each record would be taken.
pub(crate) const BATCH_BYTES_MAX: usize = 1_000_000;

/// What makes a delivery report mean "durable, once, in order".
const DURABLE: [(&str, &str); 5] = [
    ("acks", "all"),
    ("enable.idempotence", "true"),
    ("max.in.flight.requests.per.connection", "5"),
    ("message.send.max.retries", "2147483647"),
    // 0 is "never": a record that expires alone would leave a gap that later records of its key jump over.
    // How long a batch may take is the sink's decision, for the batch as a whole.
    ("message.timeout.ms", "0"),
];

/// Properties that are not passed through, with what to use instead.
const RESERVED: [(&str, &str); 11] = [
    ("bootstrap.servers", "use the option bootstrap_servers"),
    ("message.max.bytes", "use the option record_bytes_max"),
    ("queue.buffering.max.messages", "use the option queue_records_max"),
    ("queue.buffering.max.kbytes", "use the option queue_bytes_max"),
    ("transactional.id", "remove it: this sink does not write in kafka transactions"),
    ("allow.auto.create.topics", "use the option create_topics"),
    ("delivery.report.only.error", "remove it: every delivery report is counted"),
    ("queuing.strategy", "remove it: records keep their order"),
    ("isolation.level", "remove it: it is set where it is needed"),
    ("enable.partition.eof", "remove it: it is set where it is needed"),
    ("enabled_events", "remove it: events are served by the sink"),
];

/// Properties of the connection, which every client of this crate shares.
const CONNECTION: [&str; 13] = [
    "security.",
    "sasl.",
    "ssl.",
    "enable.ssl.",
    "enable.sasl.",
    "https.",
    "socket.",
    "broker.",
    "client.",
    "reconnect.",
    "retry.",
    "api.",
    "debug",
];

/// librdkafka knows some properties under two names; one of them is used here.
fn canonical(name: &str) -> &str {
    match name {
        "metadata.broker.list" => "bootstrap.servers",
        "request.required.acks" => "acks",
        "delivery.timeout.ms" => "message.timeout.ms",
        "retries" => "message.send.max.retries",
        "queue.buffering.max.ms" => "linger.ms",
        "compression.codec" => "compression.type",
        "max.in.flight" => "max.in.flight.requests.per.connection",
        "sasl.mechanism" => "sasl.mechanisms",
        other => other,
    }
}

fn refuse_reserved(name: &str) -> Result<(), ConnectError> {
    match RESERVED.iter().find(|(reserved, _)| *reserved == name) {
        Some((_, instead)) => {
            Err(ConnectError::configuration(format!("kafka property is not passed through: {name}"))
                .with_fix(*instead))
        }
        None => Ok(()),
    }
}

fn weakens(name: &str, value: &str) -> bool {
    match name {
        "acks" => !matches!(value, "all" | "-1"),
        "enable.idempotence" => value != "true",
        "message.send.max.retries" => value != "2147483647",
        "message.timeout.ms" => value != "0",
        // More than five in flight is refused by librdkafka itself as long as idempotence is on; fewer is safe.
        _ => false,
    }
}

/// Properties of any client: the connection and nothing else.
pub(crate) fn connection(
    bootstrap_servers: &str,
    properties: &BTreeMap<String, String>,
) -> Result<ClientConfig, ConnectError> {
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", bootstrap_servers);
    client.set("client.id", "crabka");
    client.set("socket.keepalive.enable", "true");
    // With OpenSSL linked in, its built-in path holds no certificates: look where distributions keep theirs.
    if !properties.keys().any(|name| name.starts_with("ssl.ca.")) {
        client.set("ssl.ca.location", "probe");
    }
    // Filtering is done by the tracing subscriber.
    client.set_log_level(RDKafkaLogLevel::Info);
    for (name, value) in properties {
        let name = canonical(name);
        refuse_reserved(name)?;
        if CONNECTION.iter().any(|prefix| name.starts_with(prefix)) {
            client.set(name, value);
        }
    }
    // Never the broker's automatic creation, whatever it has switched on: topics are made on purpose.
    client.set("allow.auto.create.topics", "false");
    Ok(client)
}

/// Properties of a producer whose delivery reports mean "durable".
pub(crate) fn durable_producer(
    bootstrap_servers: &str,
    properties: &BTreeMap<String, String>,
) -> Result<ClientConfig, ConnectError> {
    let mut client = connection(bootstrap_servers, properties)?;
    for (name, value) in DURABLE {
        client.set(name, value);
    }
    Ok(client)
}

/// Properties of the sink's producer. `batch_bytes_max`: see [`BATCH_BYTES_MAX`].
pub(crate) fn sink_producer(
    config: &KafkaSinkConfig,
    batch_bytes_max: usize,
) -> Result<ClientConfig, ConnectError> {
    let mut client = durable_producer(&config.bootstrap_servers, &config.properties)?;
    client.set("linger.ms", config.linger_ms.to_string());
    client.set("compression.type", config.compression.as_str());
    // Java's default: murmur2 of the key, and records without a key spread over the partitions.
    client.set("partitioner", "murmur2_random");
    client.set("message.max.bytes", config.record_bytes_max.to_string());
    client.set("queue.buffering.max.messages", config.queue_records_max.to_string());
    client.set("queue.buffering.max.kbytes", config.queue_bytes_max.div_ceil(1024).to_string());
    let mut batch_bytes = batch_bytes_max;
    for (name, value) in &config.properties {
        let name = canonical(name);
        if weakens(name, value) {
            weaken(config, name, value)?;
        }
        if name == "batch.size" {
            batch_bytes = batch_bytes.min(value.parse().unwrap_or(batch_bytes));
            continue;
        }
        client.set(name, value);
    }
    client.set("batch.size", batch_bytes.to_string());
    Ok(client)
}

fn weaken(config: &KafkaSinkConfig, name: &str, value: &str) -> Result<(), ConnectError> {
    if !config.allow_weaker_durability {
        return Err(ConnectError::configuration(format!(
            "kafka property weakens the delivery guarantee: {name}={value}"
        ))
        .with_fix("remove it, or accept lost or repeated records with allow_weaker_durability = true"));
    }
    tracing::warn!(property = name, value, "kafka property weakens the delivery guarantee");
    Ok(())
}

/// What librdkafka makes of a configuration: its own defaults included, secrets left out.
pub(crate) fn effective(
    client: &ClientConfig,
    names: &[&str],
) -> Result<BTreeMap<String, String>, ConnectError> {
    let native = client.create_native_config().map_err(refused)?;
    let mut values = BTreeMap::new();
    for name in names {
        values.insert((*name).to_owned(), native.get(name).map_err(refused)?);
    }
    Ok(values)
}

/// A configuration that librdkafka refuses. The value is never shown: it may be a secret.
pub(crate) fn refused(error: KafkaError) -> ConnectError {
    match error {
        KafkaError::ClientConfig(_, description, name, _) if !is_secret(&name) => {
            ConnectError::configuration(format!("kafka property is not accepted: {name}"))
                .with_fix(format!("correct it: {description}"))
        }
        KafkaError::ClientConfig(_, _, name, _) => {
            ConnectError::configuration(format!("kafka property is not accepted: {name}"))
        }
        KafkaError::ClientCreation(reason) => {
            ConnectError::configuration(format!("kafka client cannot be created: {reason}"))
        }
        other => classify::error(&other, "kafka client cannot be created"),
    }
}

fn is_secret(name: &str) -> bool {
    ["password", "secret", "key.pem", "private.key", "assertion", "sasl.oauthbearer.config"]
        .iter()
        .any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, value: &str) -> KafkaSinkConfig {
        let mut config = KafkaSinkConfig::new("localhost:9092");
        config.properties.insert(name.to_owned(), value.to_owned());
        config
    }

    fn settings(config: &KafkaSinkConfig) -> BTreeMap<String, String> {
        let client = sink_producer(config, BATCH_BYTES_MAX).unwrap();
        effective(&client, &["acks", "enable.idempotence", "message.timeout.ms", "batch.size", "partitioner"])
            .unwrap()
    }

    #[test]
    fn the_default_build_has_tls_sasl_and_every_codec() {
        let client = sink_producer(&KafkaSinkConfig::new("localhost:9092"), BATCH_BYTES_MAX).unwrap();
        let features = effective(&client, &["builtin.features"]).unwrap().remove("builtin.features").unwrap();
        let features: Vec<&str> = features.split(',').map(str::trim).collect();
        for wanted in ["ssl", "sasl_plain", "sasl_scram", "sasl_oauthbearer", "gzip", "snappy", "lz4", "zstd"]
        {
            assert!(features.contains(&wanted), "{wanted} is missing in {features:?}");
        }
    }

    #[test]
    fn kaf_03_weaker_settings_need_an_explicit_option() {
        for (name, value) in [
            ("acks", "1"),
            ("request.required.acks", "0"),
            ("enable.idempotence", "false"),
            ("retries", "3"),
            ("delivery.timeout.ms", "1000"),
        ] {
            let mut config = with(name, value);
            let error = sink_producer(&config, BATCH_BYTES_MAX).unwrap_err();
            assert!(error.to_string().contains("allow_weaker_durability"), "{name}: {error}");
            config.allow_weaker_durability = true;
            sink_producer(&config, BATCH_BYTES_MAX).unwrap();
        }
        let explicit = with("acks", "-1");
        assert_eq!(settings(&explicit)["acks"], "-1");
    }

    #[test]
    fn both_names_of_a_property_mean_the_same() {
        let mut config = with("request.required.acks", "all");
        config.properties.insert("delivery.timeout.ms".into(), "0".into());
        let settings = settings(&config);
        assert_eq!(settings["acks"], "-1");
        assert_eq!(settings["message.timeout.ms"], "0");
    }

    #[test]
    fn properties_with_an_option_are_refused() {
        for (name, instead) in [
            ("metadata.broker.list", "bootstrap_servers"),
            ("message.max.bytes", "record_bytes_max"),
            ("queue.buffering.max.kbytes", "queue_bytes_max"),
            ("transactional.id", "transactions"),
        ] {
            let error = sink_producer(&with(name, "1"), BATCH_BYTES_MAX).unwrap_err();
            assert!(error.to_string().contains(instead), "{error}");
        }
    }

    #[test]
    fn the_smaller_batch_limit_holds() {
        assert_eq!(settings(&with("batch.size", "5000"))["batch.size"], "5000");
        assert_eq!(settings(&with("batch.size", "9000000"))["batch.size"], BATCH_BYTES_MAX.to_string());
    }

    #[test]
    fn unknown_and_wrong_properties_are_configuration_errors_without_their_value() {
        let client = sink_producer(&with("no.such.thing", "hunter2"), BATCH_BYTES_MAX).unwrap();
        let error = effective(&client, &["acks"]).unwrap_err();
        assert!(error.to_string().contains("no.such.thing"), "{error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
        let client = sink_producer(&with("ssl.key.pem", "hunter2"), BATCH_BYTES_MAX).unwrap();
        if let Err(error) = effective(&client, &["acks"]) {
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}
