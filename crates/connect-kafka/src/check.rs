//! What can be found out before anything runs: brokers, credentials, topics.

use std::sync::Arc;
use std::time::Duration;

use crabka_connect::ConnectError;

use crate::config::{KafkaSinkConfig, TopicSettings};
use crate::events::Rejectable;
use crate::findings::{Finding, Severity};
use crate::producer::Producer;
use crate::properties::{self, BATCH_BYTES_MAX};
use crate::topics::{TopicFacts, Topics};

/// Looks at the configuration, the brokers and the topics, within `limit`. Changes nothing: a missing topic is
/// only asked for with a request that validates.
///
/// The right to write a topic cannot be seen without writing and is not among the findings.
///
/// # Cancel safety
///
/// Nothing is left behind.
pub async fn check(config: &KafkaSinkConfig, topics: &[&str], limit: Duration) -> Vec<Finding> {
    let mut findings = Vec::new();
    if tokio::time::timeout(limit, look(config, topics, limit, &mut findings)).await.is_err() {
        let message = format!("not everything was looked at within {} ms", limit.as_millis());
        findings.push(Finding::new("time_limit", Severity::Unknown, &config.bootstrap_servers, message));
    }
    findings
}

fn of_error(name: &'static str, subject: &str, error: &ConnectError) -> Finding {
    // What may go away by itself was not looked at; everything else was, and is wrong.
    let severity = if error.is_transient() { Severity::Unknown } else { Severity::Error };
    let finding = Finding::new(name, severity, subject, error.message());
    match error.fix() {
        Some(fix) => finding.with_fix(fix),
        None => finding,
    }
}

async fn look(config: &KafkaSinkConfig, topics: &[&str], limit: Duration, findings: &mut Vec<Finding>) {
    // Each request gets less than the whole, so that one that hangs is told by its name.
    let request = config.request_timeout().min(limit.mul_f64(0.8));
    let prepared = config.validate().and_then(|()| properties::sink_producer(config, BATCH_BYTES_MAX));
    let prepared = prepared.and_then(|client| Producer::new(&client, Rejectable::default(), Arc::default()));
    let producer = match prepared {
        Ok(producer) => producer,
        Err(error) => {
            findings.push(of_error("kafka_configuration", &config.bootstrap_servers, &error));
            return;
        }
    };
    findings.push(Finding::new(
        "kafka_configuration",
        Severity::Ok,
        &config.bootstrap_servers,
        "options and properties are accepted",
    ));
    match producer.reach(request).await {
        Ok(cluster) => {
            let message = format!("brokers answer, cluster: {cluster}");
            findings.push(Finding::new("broker_reachable", Severity::Ok, &config.bootstrap_servers, message));
        }
        Err(error) => {
            findings.push(of_error("broker_reachable", &config.bootstrap_servers, &error));
            return;
        }
    }
    let connected = properties::connection(&config.bootstrap_servers, &config.properties)
        .and_then(|connection| Topics::new(&connection, request))
        .map(|topics| topics.describing(config.describe_topics));
    let admin = match connected {
        Ok(admin) => admin,
        Err(error) => {
            findings.push(of_error("kafka_configuration", &config.bootstrap_servers, &error));
            return;
        }
    };
    let mut largest = None;
    for topic in topics {
        let facts =
            look_at_topic(&admin, topic, &config.settings_of(topic), config.create_topics, findings).await;
        largest = largest.max(facts.and_then(|facts| facts.batch_bytes_max()));
    }
    if let Some(topic) = config.dead_letter_topic.as_deref() {
        let settings = config.dead_letter_settings(topic);
        let facts = look_at_topic(&admin, topic, &settings, config.create_topics, findings).await;
        if let (Some(limit), Some(largest)) = (facts.and_then(|facts| facts.batch_bytes_max()), largest)
            && limit <= largest
        {
            let message = format!("the dead-letter topic takes no larger records than the others: {limit}");
            findings.push(Finding::new("dead_letter_limit", Severity::Warning, topic, message).with_fix(
                format!(
                    "kafka-configs.sh --bootstrap-server HOST:PORT --alter --topic {topic} --add-config \
                     max.message.bytes={}",
                    settings.config.get("max.message.bytes").map_or("BYTES", String::as_str)
                ),
            ));
        }
    }
}

async fn look_at_topic(
    admin: &Topics,
    topic: &str,
    settings: &TopicSettings,
    create: bool,
    findings: &mut Vec<Finding>,
) -> Option<TopicFacts> {
    match admin.look(topic).await {
        Ok(Some(facts)) => {
            let limit = facts
                .batch_bytes_max()
                .map_or_else(|| "not readable".to_owned(), |limit| format!("{limit} bytes"));
            let message = format!("topic exists, partitions: {}, largest record: {limit}", facts.partitions);
            findings.push(Finding::new("topic_exists", Severity::Ok, topic, message));
            findings.extend(admin.differences(topic, &facts, settings));
            Some(facts)
        }
        Ok(None) if create => {
            findings.push(match admin.create(topic, settings, true).await {
                Ok(()) => {
                    Finding::new("topic_exists", Severity::Ok, topic, "topic is missing and will be created")
                }
                Err(error) => of_error("topic_exists", topic, &error),
            });
            None
        }
        Ok(None) => {
            let command = crate::topics::create_command(topic, settings);
            findings.push(
                Finding::new("topic_exists", Severity::Error, topic, "topic does not exist")
                    .with_fix(format!("{command}, or set create_topics = true")),
            );
            None
        }
        Err(error) => {
            findings.push(of_error("topic_exists", topic, &error));
            None
        }
    }
}
