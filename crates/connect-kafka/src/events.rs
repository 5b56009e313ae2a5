//! What librdkafka tells on the side: its log, its errors, and the delivery reports.

use std::sync::{Arc, Mutex, PoisonError};

use rdkafka::ClientContext;
use rdkafka::Message;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{NoCustomPartitioner, ProducerContext};
use tokio::time::Instant;

use crate::classify;
use crate::ledger::{Failure, Ledger, Rejection};
use crate::quiet::Quiet;

/// Of the whole process: each attempt to open a sink or store has clients of its own, which report the same.
static NO_CONNECTION: Quiet = Quiet::new();

/// Says that a connection does not come about, unless that was said a moment ago.
fn warn_of_no_connection(message: std::fmt::Arguments<'_>) {
    match NO_CONNECTION.say(Instant::now()) {
        Some(0) => tracing::warn!(target: "librdkafka", "{message}"),
        Some(left_out) => tracing::warn!(target: "librdkafka", left_out, "{message}"),
        None => tracing::debug!(target: "librdkafka", "{message}"),
    }
}

fn is_no_connection(code: Option<RDKafkaErrorCode>) -> bool {
    use RDKafkaErrorCode::{AllBrokersDown, BrokerTransportFailure, OperationTimedOut, Resolve};
    matches!(code, Some(AllBrokersDown | BrokerTransportFailure | OperationTimedOut | Resolve))
}

/// The error that a client reported last, outside of any request: why it cannot connect, for example.
#[derive(Debug, Clone, Default)]
pub(crate) struct Events {
    last: Arc<Mutex<Option<(RDKafkaErrorCode, String)>>>,
}

impl Events {
    pub(crate) fn last_error(&self) -> Option<(RDKafkaErrorCode, String)> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn remember(&self, code: RDKafkaErrorCode, reason: &str) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        // "all brokers down" follows the reason why each of them is; the reason is worth more.
        if code != RDKafkaErrorCode::AllBrokersDown || last.is_none() {
            *last = Some((code, reason.to_owned()));
        }
    }
}

impl ClientContext for Events {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        match level {
            // Of a connection; comes again as an error, and at every attempt.
            RDKafkaLogLevel::Error | RDKafkaLogLevel::Warning if facility == "FAIL" => {
                warn_of_no_connection(format_args!("{message}"));
            }
            // librdkafka retries what it logs as an error; what is final comes back as an error of a request.
            RDKafkaLogLevel::Emerg
            | RDKafkaLogLevel::Alert
            | RDKafkaLogLevel::Critical
            | RDKafkaLogLevel::Error
            | RDKafkaLogLevel::Warning => tracing::warn!(target: "librdkafka", facility, "{message}"),
            RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => {
                tracing::info!(target: "librdkafka", facility, "{message}");
            }
            RDKafkaLogLevel::Debug => tracing::debug!(target: "librdkafka", facility, "{message}"),
        }
    }

    fn stats_raw(&self, statistics: &[u8]) {
        tracing::debug!(target: "librdkafka", statistics = %String::from_utf8_lossy(statistics), "statistics");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = classify::code_of(&error);
        if is_no_connection(code) {
            warn_of_no_connection(format_args!("{error}: {reason}"));
        } else {
            tracing::warn!(target: "librdkafka", "{error}: {reason}");
        }
        if let Some(code) = code {
            self.remember(code, reason);
        }
    }
}

impl ConsumerContext for Events {}

/// Which errors reject a record (kept whole for a dead letter) rather than fail its batch.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rejectable {
    pub(crate) unauthorized: bool,
}

impl Rejectable {
    pub(crate) fn covers(self, code: RDKafkaErrorCode) -> bool {
        match code {
            // Kept even when the policy is to stop: the error names size and key columns.
            RDKafkaErrorCode::MessageSizeTooLarge | RDKafkaErrorCode::MessageBatchTooLarge => true,
            RDKafkaErrorCode::TopicAuthorizationFailed => self.unauthorized,
            _ => false,
        }
    }
}

/// Context of a producer: counts delivery reports into a ledger.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reports {
    pub(crate) events: Events,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) rejectable: Rejectable,
}

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.events.log(level, facility, message);
    }

    fn stats_raw(&self, statistics: &[u8]) {
        self.events.stats_raw(statistics);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.events.error(error, reason);
    }
}

impl ProducerContext<NoCustomPartitioner> for Reports {
    /// The record's timestamp in milliseconds, 0 for none: librdkafka does not tell it for a record that failed, and
    /// a number travels without an allocation.
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, timestamp_ms: usize) {
        let (error, message) = match result {
            Ok(_) => return self.ledger.report_delivered(),
            Err(failed) => failed,
        };
        let code = classify::code_of(error).unwrap_or(RDKafkaErrorCode::Unknown);
        if self.rejectable.covers(code) {
            let timestamp_ms = i64::try_from(timestamp_ms).ok().filter(|ms| *ms > 0);
            self.ledger.report_rejected(Rejection { code, timestamp_ms, message: message.detach() });
        } else {
            self.ledger.report_failed(|| Failure {
                code,
                topic: message.topic().to_owned(),
                partition: message.partition(),
            });
        }
    }
}
