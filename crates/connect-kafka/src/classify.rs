//! What each of Kafka's errors leads to: one place, by error code.
//!
//! Codes of the broker: <https://kafka.apache.org/40/design/protocol/#error-codes>; codes of librdkafka itself
//! are negative.

use std::fmt::Display;

use crabka_connect::{ConnectError, ErrorClass};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

/// The code inside an error, if it has one. rdkafka's own accessor leaves out those of the admin client.
pub(crate) fn code_of(error: &KafkaError) -> Option<RDKafkaErrorCode> {
    match error {
        KafkaError::AdminOp(code) => Some(*code),
        other => other.rdkafka_error_code(),
    }
}

/// Who must act on an error code.
///
/// What is not named here is transient: librdkafka has retried it already, and a new client may succeed. That
/// holds for the fatal errors of the idempotent producer too (a broker that forgot or rejects the sequence):
/// a new producer identity and the whole batch again is the cure.
pub(crate) fn class_of(code: RDKafkaErrorCode) -> ErrorClass {
    use RDKafkaErrorCode as Code;
    match code {
        Code::MessageSizeTooLarge
        | Code::MessageBatchTooLarge
        | Code::InvalidMessageSize
        | Code::InvalidTimestamp
        | Code::InvalidRecord => ErrorClass::Data,

        Code::TopicAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::GroupAuthorizationFailed
        | Code::TransactionalIdAuthorizationFailed
        | Code::Authentication
        | Code::SaslAuthenticationFailed
        | Code::UnsupportedSASLMechanism
        | Code::SecurityDisabled
        | Code::SSL
        | Code::UnknownTopic
        | Code::UnknownTopicOrPartition
        | Code::UnknownPartition
        | Code::InvalidTopic
        | Code::InvalidPartitions
        | Code::InvalidReplicationFactor
        | Code::InvalidReplicaAssignment
        | Code::InvalidConfig
        | Code::PolicyViolation
        | Code::InvalidRequiredAcks
        | Code::UnsupportedCompressionType
        | Code::UnsupportedForMessageFormat
        | Code::UnsupportedVersion
        | Code::UnsupportedFeature
        | Code::InvalidArgument
        | Code::NotConfigured => ErrorClass::Configuration,

        Code::Fenced | Code::ProducerFenced => ErrorClass::Fenced,

        _ => ErrorClass::Transient,
    }
}

/// Whether the brokers refuse who we say we are.
pub(crate) fn is_refused_credentials(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(code, Code::Authentication | Code::SaslAuthenticationFailed | Code::UnsupportedSASLMechanism)
}

/// Whether a connection is refused for a reason that waiting does not cure.
pub(crate) fn is_refused_connection(code: RDKafkaErrorCode) -> bool {
    is_refused_credentials(code) || matches!(code, RDKafkaErrorCode::SSL | RDKafkaErrorCode::SecurityDisabled)
}

/// Whether an error says that a topic may not be used by this client.
pub(crate) fn is_unauthorized(error: &ConnectError) -> bool {
    use std::error::Error as _;
    let code = error.source().and_then(|source| source.downcast_ref::<KafkaError>()).and_then(code_of);
    code == Some(RDKafkaErrorCode::TopicAuthorizationFailed)
}

/// What the operator can do about an error code.
fn fix_of(code: RDKafkaErrorCode, topic: Option<&str>) -> Option<String> {
    use RDKafkaErrorCode as Code;
    let name = topic.unwrap_or("NAME");
    match code {
        Code::TopicAuthorizationFailed => Some(format!(
            "kafka-acls.sh --bootstrap-server HOST:PORT --add --allow-principal User:NAME --operation Write \
             --operation Describe --operation DescribeConfigs --topic {name}"
        )),
        Code::ClusterAuthorizationFailed => Some(
            "kafka-acls.sh --bootstrap-server HOST:PORT --add --allow-principal User:NAME --operation \
             IdempotentWrite --cluster"
                .to_owned(),
        ),
        Code::Authentication | Code::SaslAuthenticationFailed | Code::UnsupportedSASLMechanism => {
            Some("check the properties sasl.mechanism, sasl.username and sasl.password".to_owned())
        }
        Code::SSL | Code::SecurityDisabled => Some(
            "set the property ssl.ca.location to the PEM file of the authority that signed the broker's certificate; check \
             security.protocol and the broker's listener"
                .to_owned(),
        ),
        Code::UnknownTopic | Code::UnknownTopicOrPartition => Some(format!(
            "kafka-topics.sh --bootstrap-server HOST:PORT --create --topic {name}, or set create_topics = true"
        )),
        Code::InvalidReplicationFactor => {
            Some("set replication_factor to at most the number of brokers".to_owned())
        }
        Code::InvalidTimestamp => Some(
            "compare the clocks, or raise the topic's message.timestamp.after.max.ms and \
             message.timestamp.before.max.ms"
                .to_owned(),
        ),
        _ => None,
    }
}

/// An error of the class that the code leads to.
pub(crate) fn with_code(code: RDKafkaErrorCode, topic: Option<&str>, message: impl Display) -> ConnectError {
    let message = format!("{message}: {code}");
    let error = match class_of(code) {
        ErrorClass::Data => ConnectError::data(message),
        ErrorClass::Configuration => ConnectError::configuration(message),
        ErrorClass::Fenced => ConnectError::fenced(message),
        ErrorClass::LostPosition => ConnectError::offset(message),
        ErrorClass::Bug => ConnectError::bug(message),
        ErrorClass::Transient => ConnectError::transient(message),
    };
    let error = error.with_source(KafkaError::Global(code));
    match fix_of(code, topic) {
        Some(fix) => error.with_fix(fix),
        None => error,
    }
}

/// An error of the class that it leads to; without a code it is transient.
pub(crate) fn error(error: &KafkaError, message: impl Display) -> ConnectError {
    match code_of(error) {
        Some(code) => with_code(code, None, message),
        None => ConnectError::transient(format!("{message}: {error}")).with_source(error.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_its_codes() {
        for (code, class) in [
            (RDKafkaErrorCode::MessageSizeTooLarge, ErrorClass::Data),
            (RDKafkaErrorCode::TopicAuthorizationFailed, ErrorClass::Configuration),
            (RDKafkaErrorCode::UnknownTopic, ErrorClass::Configuration),
            (RDKafkaErrorCode::Fatal, ErrorClass::Transient),
            (RDKafkaErrorCode::OutOfOrderSequenceNumber, ErrorClass::Transient),
            (RDKafkaErrorCode::MessageTimedOut, ErrorClass::Transient),
            (RDKafkaErrorCode::NotEnoughReplicas, ErrorClass::Transient),
            (RDKafkaErrorCode::AllBrokersDown, ErrorClass::Transient),
            (RDKafkaErrorCode::ProducerFenced, ErrorClass::Fenced),
        ] {
            assert_eq!(with_code(code, Some("t"), "x").class(), class, "{code}");
        }
    }

    #[test]
    fn a_configuration_error_names_topic_and_fix() {
        let error = with_code(RDKafkaErrorCode::TopicAuthorizationFailed, Some("orders"), "cannot write");
        assert!(error.fix().unwrap().contains("--topic orders"), "{error}");
    }

    #[test]
    fn the_code_of_an_admin_operation_is_seen() {
        let refused = KafkaError::AdminOp(RDKafkaErrorCode::ClusterAuthorizationFailed);
        assert_eq!(error(&refused, "x").class(), ErrorClass::Configuration);
    }
}
