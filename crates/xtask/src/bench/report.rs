//! The figures of a run: a table for people, JSON for programs.

use serde_json::{Value, json};

use super::drain::Drained;
use super::latency::Latency;
use super::options::{Client, Form};
use super::shape::Shape;

/// All drains of one shape in one form: per repeat one of each client, in the order in which they ran.
pub(super) struct Case {
    pub(super) shape: &'static Shape,
    pub(super) form: Form,
    pub(super) message_bytes: Option<f64>,
    pub(super) rounds: Vec<Vec<(Client, Drained)>>,
}

/// A client's figures over all rounds of a case: medians, and the largest peak.
struct Figures {
    client: Client,
    rows_per_second: f64,
    cpu_us_per_row: f64,
    start_up_ms: f64,
    peak_mb: f64,
    /// Against `pg_recvlogical` in the same round.
    rate_ratio: Option<f64>,
    cpu_ratio: Option<f64>,
    /// Against the null sink in the same round.
    null_ratio: Option<f64>,
}

impl Case {
    fn figures(&self) -> Vec<Figures> {
        let clients = Client::ALL.into_iter();
        clients.filter(|client| self.of(*client).next().is_some()).map(|client| self.figure(client)).collect()
    }

    fn of(&self, client: Client) -> impl Iterator<Item = Drained> {
        self.rounds.iter().flatten().filter(move |(who, _)| *who == client).map(|(_, drained)| *drained)
    }

    fn figure(&self, client: Client) -> Figures {
        let median_of = |figure: fn(&Drained) -> f64| {
            median(self.of(client).map(|drained| figure(&drained)).collect()).unwrap_or_default()
        };
        Figures {
            client,
            rows_per_second: median_of(Drained::rows_per_second),
            cpu_us_per_row: median_of(Drained::cpu_us_per_row),
            start_up_ms: median_of(|drained| drained.start_up.as_secs_f64() * 1e3),
            peak_mb: self.of(client).map(|drained| drained.peak_kb).max().unwrap_or(0) as f64 / 1024.0,
            rate_ratio: self.ratio(client, Client::Recvlogical, Drained::rows_per_second),
            cpu_ratio: self.ratio(client, Client::Recvlogical, Drained::cpu_us_per_row),
            null_ratio: match client {
                Client::Kafka => self.ratio(client, Client::Null, Drained::rows_per_second),
                Client::Recvlogical | Client::Null => None,
            },
        }
    }

    /// The median of the ratios of each round: what disturbs the machine for longer than a round cancels out.
    fn ratio(&self, client: Client, yardstick: Client, figure: fn(&Drained) -> f64) -> Option<f64> {
        if client == yardstick {
            return None;
        }
        let of = |round: &[(Client, Drained)], wanted| {
            round.iter().find(|(who, _)| *who == wanted).map(|(_, drained)| figure(drained))
        };
        let ratios = self.rounds.iter().filter_map(|round| Some(of(round, client)? / of(round, yardstick)?));
        median(ratios.collect())
    }

    fn json(&self) -> Value {
        let rounds = self.rounds.iter().map(|round| {
            let drains = round.iter().map(|(client, drained)| {
                json!({
                    "client": client.name(), "rows": drained.rows, "seconds": drained.took.as_secs_f64(),
                    "start_up_seconds": drained.start_up.as_secs_f64(), "cpu_seconds": drained.cpu.as_secs_f64(),
                    "peak_kb": drained.peak_kb,
                })
            });
            drains.collect::<Value>()
        });
        let figures = self.figures().into_iter().map(|figures| {
            json!({
                "client": figures.client.name(), "rows_per_second": figures.rows_per_second,
                "cpu_us_per_row": figures.cpu_us_per_row, "start_up_ms": figures.start_up_ms,
                "peak_mb": figures.peak_mb, "rate_to_pg_recvlogical": figures.rate_ratio,
                "cpu_to_pg_recvlogical": figures.cpu_ratio, "rate_to_null": figures.null_ratio,
            })
        });
        json!({
            "shape": self.shape.name, "form": self.form.name(), "message_bytes": self.message_bytes,
            "figures": figures.collect::<Value>(), "rounds": rounds.collect::<Value>(),
        })
    }
}

/// The middle, or the mean of the two in the middle.
pub(super) fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    let (low, high) = (figures.len().checked_sub(1)? / 2, figures.len() / 2);
    Some(f64::midpoint(*figures.get(low)?, *figures.get(high)?))
}

/// Everything that was measured, and on what.
#[derive(Default)]
pub(super) struct Report {
    pub(super) machine: Vec<(&'static str, String)>,
    pub(super) cases: Vec<Case>,
    pub(super) latencies: Vec<Latency>,
}

impl Report {
    pub(super) fn print(&self) {
        println!("== figures");
        for (name, value) in &self.machine {
            println!("{name:>12}  {value}");
        }
        if !self.cases.is_empty() {
            println!(
                "\n{:8} {:6} {:14} {:>10} {:>7} {:>6} {:>8} {:>7} | {:>6} {:>6} {:>6}",
                "shape",
                "form",
                "client",
                "rows/s",
                "us/row",
                "MB",
                "start ms",
                "bytes",
                "rate",
                "cpu",
                "null"
            );
        }
        let ratio = |ratio: Option<f64>| ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
        for case in &self.cases {
            let bytes = case.message_bytes.map_or_else(String::new, |bytes| format!("{bytes:.0}"));
            for figures in case.figures() {
                println!(
                    "{:8} {:6} {:14} {:>10.0} {:>7.2} {:>6.1} {:>8.0} {:>7} | {:>6} {:>6} {:>6}",
                    case.shape.name,
                    case.form.name(),
                    figures.client.name(),
                    figures.rows_per_second,
                    figures.cpu_us_per_row,
                    figures.peak_mb,
                    figures.start_up_ms,
                    bytes,
                    ratio(figures.rate_ratio),
                    ratio(figures.cpu_ratio),
                    ratio(figures.null_ratio),
                );
            }
        }
        if !self.cases.is_empty() {
            println!(
                "rate, cpu: rows/s and client CPU per row as ratios to pg_recvlogical in the same round; null: rows/s \
                 as a ratio to the null sink. Medians over the rounds; MB is the largest peak."
            );
        }
        for form in self.faster_form() {
            println!("{form}");
        }
        self.latencies.iter().for_each(Latency::print);
    }

    /// The rate of binary against text, over the shapes that a usual table has.
    fn faster_form(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for client in [Client::Recvlogical, Client::Null] {
            let mut logs = Vec::new();
            let mut told = Vec::new();
            for text in self.cases.iter().filter(|case| case.form == Form::Text && case.shape.typical) {
                let is_its_twin =
                    |case: &&Case| case.form == Form::Binary && case.shape.name == text.shape.name;
                let Some(binary) = self.cases.iter().find(is_its_twin) else { continue };
                let rate =
                    |case: &Case| median(case.of(client).map(|drained| drained.rows_per_second()).collect());
                if let (Some(text_rate), Some(binary_rate)) = (rate(text), rate(binary)) {
                    logs.push((binary_rate / text_rate).ln());
                    told.push(format!("{} {:.2}", text.shape.name, binary_rate / text_rate));
                }
            }
            if logs.len() > 1 {
                let mean = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
                let told = told.join(", ");
                lines.push(format!("binary to text, {}: {told}; geometric mean {mean:.2}", client.name()));
            }
        }
        lines
    }

    pub(super) fn json(&self) -> Value {
        let machine: serde_json::Map<String, Value> =
            self.machine.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        json!({
            "machine": machine,
            "cases": self.cases.iter().map(Case::json).collect::<Value>(),
            "latencies": self.latencies.iter().map(Latency::json).collect::<Value>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::shape::SHAPES;
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_two_in_the_middle() {
        assert_eq!(median(vec![4.0, 1.0, 2.0, 100.0]), Some(3.0));
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(Vec::new()), None);
    }

    #[test]
    fn ratios_compare_within_a_round() {
        let drained = |seconds, cpu_ms| Drained {
            rows: 1_000,
            took: Duration::from_secs(seconds),
            start_up: Duration::ZERO,
            cpu: Duration::from_millis(cpu_ms),
            peak_kb: 2_048,
        };
        // The second round is four times as slow for both.
        let rounds = [1, 4].map(|slow| {
            vec![
                (Client::Recvlogical, drained(slow, 10 * slow)),
                (Client::Null, drained(2 * slow, 15 * slow)),
            ]
        });
        let case = Case { shape: &SHAPES[0], form: Form::Text, message_bytes: None, rounds: rounds.to_vec() };
        let figures = case.figures();
        assert_eq!(figures.len(), 2, "nothing is told of a client that was not measured");
        assert_eq!((figures[1].rate_ratio, figures[1].cpu_ratio), (Some(0.5), Some(1.5)));
        assert_eq!(figures[0].rate_ratio, None);
        assert!((figures[1].peak_mb - 2.0).abs() < 1e-9);
    }
}
