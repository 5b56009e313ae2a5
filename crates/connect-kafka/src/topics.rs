//! Topics are made on purpose: looked up, created as configured, compared when they exist; never by the
//! broker's automatic creation, and never changed.

use std::sync::Arc;
use std::time::Duration;

use crabka_connect::ConnectError;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tokio::time::Instant;

use crate::classify;
use crate::config::{DEFAULT_PARTITIONS, TopicSettings};
use crate::events::Events;
use crate::findings::{Finding, Severity};
use crate::properties;

/// The finding of a topic whose configuration cannot be read.
const UNREADABLE: &str = "topic_configuration";

/// An existing topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TopicFacts {
    pub(crate) partitions: i32,
    pub(crate) replicas: i32,
    /// `None` when the configuration may not be read.
    pub(crate) config: Option<TopicConfig>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TopicConfig {
    pub(crate) cleanup_policy: String,
    /// `max.message.bytes`: of a batch as it is sent.
    pub(crate) batch_bytes_max: usize,
}

impl TopicFacts {
    /// Whether the topic takes no record without a key.
    pub(crate) fn is_compacted(&self) -> bool {
        self.config
            .as_ref()
            .is_some_and(|config| config.cleanup_policy.split(',').any(|p| p.trim() == "compact"))
    }

    pub(crate) fn batch_bytes_max(&self) -> Option<usize> {
        self.config.as_ref().map(|config| config.batch_bytes_max)
    }
}

/// The administrative client.
pub(crate) struct Topics {
    /// `None` only while it is dropped.
    admin: Option<Arc<AdminClient<Events>>>,
    timeout: Duration,
    /// Whether the topics' configuration is read.
    describes: bool,
}

impl Topics {
    pub(crate) fn new(connection: &ClientConfig, timeout: Duration) -> Result<Self, ConnectError> {
        let admin = AdminClient::from_config_and_context(connection, Events::default())
            .map_err(properties::refused)?;
        Ok(Self { admin: Some(Arc::new(admin)), timeout, describes: true })
    }

    /// Does not ask for the configuration of topics unless `describes`.
    pub(crate) fn describing(mut self, describes: bool) -> Self {
        self.describes = describes;
        self
    }

    fn admin(&self) -> Result<&Arc<AdminClient<Events>>, ConnectError> {
        self.admin.as_ref().ok_or_else(|| ConnectError::bug("kafka admin client is used after it was closed"))
    }

    fn options(&self) -> AdminOptions {
        AdminOptions::new().request_timeout(Some(self.timeout)).operation_timeout(Some(self.timeout))
    }

    /// What the cluster knows of a topic; `None` when it does not exist. Tried again on a transient error, as long as
    /// one request may take.
    pub(crate) async fn look(&self, topic: &str) -> Result<Option<TopicFacts>, ConnectError> {
        let deadline = Instant::now() + self.timeout;
        loop {
            match self.look_once(topic).await {
                Err(error) if error.is_transient() && Instant::now() < deadline => pause().await,
                looked => return looked,
            }
        }
    }

    async fn look_once(&self, topic: &str) -> Result<Option<TopicFacts>, ConnectError> {
        let Some(counted) = self.metadata(topic).await? else { return Ok(None) };
        let config = if self.describes { self.describe(topic).await? } else { None };
        Ok(Some(TopicFacts { config, ..counted }))
    }

    async fn metadata(&self, topic: &str) -> Result<Option<TopicFacts>, ConnectError> {
        let (admin, name, timeout) = (Arc::clone(self.admin()?), topic.to_owned(), self.timeout);
        let looked = tokio::task::spawn_blocking(move || {
            let metadata = admin.inner().fetch_metadata(Some(&name), timeout)?;
            let Some(found) = metadata.topics().iter().find(|found| found.name() == name) else {
                return Ok(Err(RDKafkaErrorCode::UnknownTopicOrPartition));
            };
            if let Some(error) = found.error() {
                return Ok(Err(RDKafkaErrorCode::from(error)));
            }
            let partitions = i32::try_from(found.partitions().len()).unwrap_or(i32::MAX);
            let replicas = found.partitions().iter().map(|partition| partition.replicas().len()).min();
            let leaders = found.partitions().iter().all(|partition| partition.leader() >= 0);
            Ok(Ok((partitions, replicas.unwrap_or(0), leaders)))
        })
        .await
        .map_err(|error| ConnectError::bug("kafka metadata thread ended").with_source(error))?
        .map_err(|error: KafkaError| {
            classify::error(&error, format_args!("kafka topic {topic} cannot be looked up"))
        })?;
        match looked {
            Ok((_, _, false)) | Err(RDKafkaErrorCode::LeaderNotAvailable) => {
                Err(ConnectError::transient(format!("kafka topic has a partition without a leader: {topic}")))
            }
            Ok((partitions, replicas, true)) => {
                let replicas = i32::try_from(replicas).unwrap_or(i32::MAX);
                Ok(Some(TopicFacts { partitions, replicas, config: None }))
            }
            Err(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => Ok(None),
            Err(code) => Err(classify::with_code(
                code,
                Some(topic),
                format_args!("kafka topic {topic} cannot be looked up"),
            )),
        }
    }

    /// `None` when this client may not read the configuration.
    async fn describe(&self, topic: &str) -> Result<Option<TopicConfig>, ConnectError> {
        let failed = |error: &KafkaError| {
            classify::error(error, format_args!("configuration of kafka topic {topic} cannot be read"))
                .with_fix("set describe_topics = false if these brokers do not know DescribeConfigs")
        };
        let mut described = self
            .admin()?
            .describe_configs([&ResourceSpecifier::Topic(topic)], &self.options())
            .await
            .map_err(|error| failed(&error))?;
        let resource = match described.pop() {
            Some(Ok(resource)) => resource,
            Some(Err(
                RDKafkaErrorCode::TopicAuthorizationFailed | RDKafkaErrorCode::ClusterAuthorizationFailed,
            ))
            | None => return Ok(None),
            Some(Err(code)) => return Err(failed(&KafkaError::AdminOp(code))),
        };
        let value = |name| resource.get(name).and_then(|entry| entry.value.as_deref());
        // A cluster that hides these two tells us as little as one that refuses.
        Ok(value("max.message.bytes").and_then(|bytes| bytes.parse().ok()).map(|batch_bytes_max| {
            TopicConfig {
                cleanup_policy: value("cleanup.policy").unwrap_or("delete").to_owned(),
                batch_bytes_max,
            }
        }))
    }

    /// Where an existing topic differs from what is configured. What was not asked for on purpose is no finding.
    pub(crate) fn differences(
        &self,
        topic: &str,
        facts: &TopicFacts,
        settings: &TopicSettings,
    ) -> Vec<Finding> {
        let mut findings = differences(topic, facts, settings);
        findings.retain(|finding| self.describes || finding.name != UNREADABLE);
        findings
    }

    /// Creates a topic; `validate_only` asks whether it could. An existing one is no error.
    pub(crate) async fn create(
        &self,
        topic: &str,
        settings: &TopicSettings,
        validate_only: bool,
    ) -> Result<(), ConnectError> {
        // -1 is "the broker's default".
        let replication = TopicReplication::Fixed(settings.replication_factor.unwrap_or(-1));
        let mut wanted = NewTopic::new(topic, settings.partitions.unwrap_or(DEFAULT_PARTITIONS), replication);
        if let Some(policy) = settings.cleanup_policy {
            wanted = wanted.set("cleanup.policy", policy.as_str());
        }
        for (name, value) in &settings.config {
            wanted = wanted.set(name, value);
        }
        let failed = format!("kafka topic {topic} cannot be created");
        let created = self
            .admin()?
            .create_topics([&wanted], &self.options().validate_only(validate_only))
            .await
            .map_err(|error| classify::error(&error, &failed))?;
        match created.into_iter().next() {
            Some(Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => Ok(()),
            Some(Err((
                _,
                code @ (RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::ClusterAuthorizationFailed),
            ))) => Err(ConnectError::configuration(format!("{failed}: {code}"))
                .with_source(KafkaError::AdminOp(code))
                .with_fix(format!(
                    "{}, or allow it with kafka-acls.sh --bootstrap-server HOST:PORT --add --allow-principal \
                     User:NAME --operation Create --topic {topic}",
                    create_command(topic, settings)
                ))),
            Some(Err((_, code))) => Err(classify::with_code(code, Some(topic), failed)),
            None => Err(ConnectError::transient(format!("{failed}: the broker gave no answer"))),
        }
    }

    /// The topic as it is, created when it is missing and `create` allows it.
    ///
    /// # Errors
    ///
    /// Configuration when it is missing and may not be created; transient when the cluster does not answer.
    pub(crate) async fn ensure(
        &self,
        topic: &str,
        settings: &TopicSettings,
        create: bool,
    ) -> Result<TopicFacts, ConnectError> {
        let deadline = Instant::now() + self.timeout;
        let mut created = false;
        loop {
            let error = match self.look(topic).await? {
                Some(facts) => return Ok(facts),
                // A new topic takes a moment until every broker knows it.
                None if created => {
                    ConnectError::transient(format!("kafka topic was created and is not there yet: {topic}"))
                }
                None if create => match self.create(topic, settings, false).await {
                    Ok(()) => {
                        tracing::info!(topic, "kafka topic created");
                        created = true;
                        continue;
                    }
                    Err(error) if error.is_transient() => error,
                    Err(error) => return Err(error),
                },
                None => {
                    return Err(ConnectError::configuration(format!("kafka topic does not exist: {topic}"))
                        .with_fix(format!(
                            "{}, or set create_topics = true",
                            create_command(topic, settings)
                        )));
                }
            };
            if Instant::now() >= deadline {
                return Err(error);
            }
            pause().await;
        }
    }
}

impl Drop for Topics {
    fn drop(&mut self) {
        let admin = self.admin.take();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // Joins a thread; not on a runtime thread.
            runtime.spawn_blocking(move || drop(admin));
        }
    }
}

async fn pause() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

/// The command that creates a topic by hand.
pub(crate) fn create_command(topic: &str, settings: &TopicSettings) -> String {
    let partitions = settings.partitions.unwrap_or(DEFAULT_PARTITIONS);
    let mut command = format!(
        "kafka-topics.sh --bootstrap-server HOST:PORT --create --topic {topic} --partitions {partitions}"
    );
    if let Some(replicas) = settings.replication_factor {
        command.push_str(&format!(" --replication-factor {replicas}"));
    }
    let policy = settings.cleanup_policy.map(|policy| ("cleanup.policy", policy.as_str()));
    let others = settings.config.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in policy.into_iter().chain(others) {
        command.push_str(&format!(" --config {name}={value}"));
    }
    command
}

/// Where an existing topic differs from what is configured. Nothing of it is changed by us.
fn differences(topic: &str, facts: &TopicFacts, settings: &TopicSettings) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(wanted) = settings.partitions
        && facts.partitions != wanted
    {
        let message = format!("topic has {} partitions, configured are {wanted}", facts.partitions);
        let finding = Finding::new("topic_partitions", Severity::Warning, topic, message);
        findings.push(if facts.partitions < wanted {
            finding.with_fix(format!(
                "kafka-topics.sh --bootstrap-server HOST:PORT --alter --topic {topic} --partitions {wanted} (keys \
                 move to other partitions), or set partitions = {}",
                facts.partitions
            ))
        } else {
            finding.with_fix(format!("set partitions = {}", facts.partitions))
        });
    }
    if let Some(wanted) = settings.replication_factor
        && facts.replicas != wanted
    {
        let message = format!("topic has {} replicas, configured are {wanted}", facts.replicas);
        findings.push(
            Finding::new("topic_replication", Severity::Warning, topic, message)
                .with_fix("kafka-reassign-partitions.sh, or change replication_factor"),
        );
    }
    if let (Some(wanted), Some(config)) = (settings.cleanup_policy, &facts.config)
        && !wanted.is(&config.cleanup_policy)
    {
        let message =
            format!("topic has cleanup.policy {}, configured is {}", config.cleanup_policy, wanted.as_str());
        findings.push(Finding::new("topic_cleanup_policy", Severity::Warning, topic, message).with_fix(format!(
            "kafka-configs.sh --bootstrap-server HOST:PORT --alter --topic {topic} --add-config cleanup.policy=[{}]",
            wanted.as_str()
        )));
    }
    if facts.config.is_none() {
        let message = "the topic's configuration cannot be read: cleanup policy and size limit are not known";
        findings.push(Finding::new(UNREADABLE, Severity::Unknown, topic, message).with_fix(format!(
            "kafka-acls.sh --bootstrap-server HOST:PORT --add --allow-principal User:NAME --operation DescribeConfigs \
             --topic {topic}"
        )));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::CleanupPolicy;

    fn facts() -> TopicFacts {
        TopicFacts {
            partitions: 1,
            replicas: 1,
            config: Some(TopicConfig { cleanup_policy: "delete".into(), batch_bytes_max: 1_048_588 }),
        }
    }

    #[test]
    fn only_what_is_configured_is_compared() {
        assert_eq!(differences("t", &facts(), &TopicSettings::default()), []);
        let settings = TopicSettings {
            partitions: Some(3),
            replication_factor: Some(2),
            cleanup_policy: Some(CleanupPolicy::Compact),
            ..TopicSettings::default()
        };
        let names: Vec<_> =
            differences("t", &facts(), &settings).into_iter().map(|found| found.name).collect();
        assert_eq!(names, ["topic_partitions", "topic_replication", "topic_cleanup_policy"]);
    }

    #[test]
    fn an_unreadable_configuration_is_not_a_difference() {
        let facts = TopicFacts { config: None, ..facts() };
        let settings =
            TopicSettings { cleanup_policy: Some(CleanupPolicy::Compact), ..TopicSettings::default() };
        let found = differences("t", &facts, &settings);
        assert_eq!((found.len(), found[0].severity), (1, Severity::Unknown));
    }

    #[test]
    fn the_command_creates_what_is_configured() {
        let settings = TopicSettings {
            partitions: Some(1),
            replication_factor: Some(3),
            cleanup_policy: Some(CleanupPolicy::Compact),
            config: [("retention.ms".to_owned(), "5".to_owned())].into(),
        };
        let command = create_command("beat", &settings);
        assert!(
            command.ends_with(
                "--topic beat --partitions 1 --replication-factor 3 --config cleanup.policy=compact --config \
                 retention.ms=5"
            ),
            "{command}"
        );
    }
}
