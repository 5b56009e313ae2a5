//! `/metrics`: a [`View`] in the OpenMetrics text format, which Prometheus reads.
//!
//! A metric is declared once, in [`declared`]: name, unit, labels, help, and how it is read. The exposition and the
//! reference (`docs/METRICS.md`) are made from the declarations.
//!
//! <https://prometheus.io/docs/practices/naming/>, <https://prometheus.io/docs/specs/om/open_metrics_spec/>

mod declared;
mod reference;

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use self::declared::METRICS;
pub(crate) use self::reference::reference;
use super::View;

/// Content type of the exposition.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// First part of every name.
const PREFIX: &str = "crabka";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// A declared metric.
struct Metric {
    kind: Kind,
    /// Without prefix, unit and `_total`.
    name: &'static str,
    unit: Option<&'static str>,
    /// Names of the labels, in the order of a sample's values; `connector` comes before them.
    labels: &'static [&'static str],
    help: &'static str,
    read: fn(&View, &mut Samples),
}

impl Metric {
    /// The name in queries; a histogram has `_bucket`, `_sum` and `_count` behind it.
    fn full_name(&self) -> String {
        let unit = self.unit.map(|unit| format!("_{unit}")).unwrap_or_default();
        let total = if self.kind == Kind::Counter { "_total" } else { "" };
        format!("{PREFIX}_{}{unit}{total}", self.name)
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Value {
    Integer(u64),
    Float(f64),
    Histogram { sum: f64, buckets: Vec<(f64, u64)> },
}

/// The samples of one metric: values of its labels, and the value.
#[derive(Debug, Default)]
struct Samples(Vec<(Vec<String>, Value)>);

impl Samples {
    fn integer(&mut self, labels: &[&str], value: impl Into<Option<u64>>) {
        if let Some(value) = value.into() {
            self.push(labels, Value::Integer(value));
        }
    }

    fn float(&mut self, labels: &[&str], value: impl Into<Option<f64>>) {
        if let Some(value) = value.into() {
            self.push(labels, Value::Float(value));
        }
    }

    fn flag(&mut self, labels: &[&str], set: bool) {
        self.integer(labels, u64::from(set));
    }

    fn push(&mut self, labels: &[&str], value: Value) {
        self.0.push((labels.iter().map(|label| (*label).to_owned()).collect(), value));
    }
}

/// The exposition of a run.
pub(crate) fn exposition(view: View) -> String {
    let connector = view.status.connector.clone();
    let labels = [("connector".into(), connector.into())];
    let mut registry = Registry::with_prefix_and_labels(PREFIX, labels.into_iter());
    registry.register_collector(Box::new(Exposed(Arc::new(view))));
    let mut out = String::new();
    // Writing into a string does not fail.
    let _ = text::encode(&mut out, &registry);
    out
}

struct Exposed(Arc<View>);

impl fmt::Debug for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exposed")
    }
}

impl Collector for Exposed {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for metric in METRICS {
            let mut samples = Samples::default();
            (metric.read)(&self.0, &mut samples);
            let unit = metric.unit.map(|unit| Unit::Other(unit.to_owned()));
            let kind = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let mut family = encoder.encode_descriptor(metric.name, metric.help, unit.as_ref(), kind)?;
            for (values, value) in &samples.0 {
                let labels: Vec<(&str, &str)> =
                    metric.labels.iter().copied().zip(values.iter().map(String::as_str)).collect();
                if labels.is_empty() {
                    sample(&mut family, metric.kind, value)?;
                } else {
                    sample(&mut family.encode_family(&labels)?, metric.kind, value)?;
                }
            }
        }
        Ok(())
    }
}

fn sample(encoder: &mut MetricEncoder<'_>, kind: Kind, value: &Value) -> Result<(), fmt::Error> {
    match (kind, value) {
        (Kind::Counter, Value::Integer(value)) => encoder.encode_counter::<NoLabelSet, _, u64>(value, None),
        (Kind::Counter, Value::Float(value)) => encoder.encode_counter::<NoLabelSet, _, u64>(value, None),
        (_, Value::Integer(value)) => encoder.encode_gauge(value),
        (_, Value::Float(value)) => encoder.encode_gauge(value),
        (_, Value::Histogram { sum, buckets }) => {
            let count = buckets.iter().map(|(_, count)| count).sum();
            encoder.encode_histogram::<NoLabelSet>(*sum, count, buckets, None)
        }
    }
}

#[cfg(test)]
mod tests;
