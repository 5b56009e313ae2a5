//! What one benchmark run is to measure.

use std::path::PathBuf;

use super::shape::{SHAPES, Shape};

/// How the server sends values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Binary,
}

impl Form {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Binary => "binary",
        }
    }
}

/// Who drains the backlog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Client {
    /// `pg_recvlogical` into `/dev/null`: the yardstick.
    Recvlogical,
    /// `crabka run` with the `debezium` envelope and the `null` sink.
    Null,
    /// `crabka run` with the `debezium` envelope, into Kafka, checkpoint included.
    Kafka,
}

impl Client {
    pub(super) const ALL: [Self; 3] = [Self::Recvlogical, Self::Null, Self::Kafka];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Recvlogical => "pg_recvlogical",
            Self::Null => "crabka null",
            Self::Kafka => "crabka kafka",
        }
    }
}

#[derive(Debug)]
pub(super) struct Options {
    pub(super) shapes: Vec<&'static Shape>,
    pub(super) forms: Vec<Form>,
    pub(super) clients: Vec<Client>,
    /// Share of each shape's rows, in percent.
    pub(super) percent: u64,
    pub(super) repeats: usize,
    /// Transactions per second of the latency runs; none leaves them out.
    pub(super) rates: Vec<u32>,
    pub(super) latency_seconds: u32,
    pub(super) major: Option<u32>,
    /// Options over those of the worker's configuration: `runtime.max_batch_records=4096`.
    pub(super) set: Vec<String>,
    /// A built command to measure instead of the one of this tree.
    pub(super) worker: Option<PathBuf>,
    pub(super) json: Option<PathBuf>,
    /// Only the criterion benches of decoder, converter, runtime and sink.
    pub(super) micro: bool,
}

impl Options {
    pub(super) fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self {
            shapes: Vec::new(),
            forms: vec![Form::Text, Form::Binary],
            clients: Client::ALL.to_vec(),
            percent: 100,
            repeats: 3,
            rates: vec![1_000, 5_000],
            latency_seconds: 20,
            major: None,
            set: Vec::new(),
            worker: None,
            json: None,
            micro: false,
        };
        let mut only_latency = false;
        let mut arguments = arguments.iter();
        while let Some(flag) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("a value is missing after {flag}"));
            match flag.as_str() {
                "--shape" => options.shapes.push(shape(value()?)?),
                "--form" => options.forms = vec![form(value()?)?],
                "--percent" => options.percent = number(flag, value()?)?,
                "--repeats" => options.repeats = number(flag, value()?)?,
                "--no-kafka" => options.clients.retain(|client| *client != Client::Kafka),
                "--no-latency" => options.rates.clear(),
                "--latency" => only_latency = true,
                "--rate" => options.rates = vec![number(flag, value()?)?],
                "--seconds" => options.latency_seconds = number(flag, value()?)?,
                "--major" => options.major = Some(number(flag, value()?)?),
                "--set" => options.set.push(value()?.clone()),
                "--worker" => options.worker = Some(value()?.into()),
                "--json" => options.json = Some(value()?.into()),
                "--micro" => options.micro = true,
                _ => return Err(format!("unknown argument, see `cargo xtask help`: {flag}")),
            }
        }
        if only_latency {
            options.clients.clear();
        }
        if options.shapes.is_empty() {
            options.shapes = SHAPES.iter().collect();
        }
        Ok(options)
    }

    /// Rows of a shape in this run.
    pub(super) fn rows(&self, shape: &Shape) -> u64 {
        (shape.rows * self.percent / 100).max(1)
    }

    pub(super) fn needs_kafka(&self) -> bool {
        self.clients.contains(&Client::Kafka) || !self.rates.is_empty()
    }
}

fn shape(name: &str) -> Result<&'static Shape, String> {
    SHAPES.iter().find(|shape| shape.name == name).ok_or_else(|| {
        let names: Vec<&str> = SHAPES.iter().map(|shape| shape.name).collect();
        format!("no such shape, there are {}: {name}", names.join(", "))
    })
}

fn form(name: &str) -> Result<Form, String> {
    match name {
        "text" => Ok(Form::Text),
        "binary" => Ok(Form::Binary),
        _ => Err(format!("--form is text or binary: {name}")),
    }
}

fn number<T: std::str::FromStr + PartialEq + From<u8>>(flag: &str, text: &str) -> Result<T, String> {
    match text.parse() {
        Ok(number) if number != T::from(0) => Ok(number),
        _ => Err(format!("{flag} needs a number above 0: {text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(&arguments)
    }

    #[test]
    fn everything_is_measured_unless_told_otherwise() {
        let all = parse("").unwrap();
        assert_eq!((all.shapes.len(), all.forms.len(), all.clients.len()), (SHAPES.len(), 2, 3));
        assert_eq!(all.rates, [1_000, 5_000]);
        let one = parse("--shape wide --form binary --percent 10 --no-kafka --no-latency").unwrap();
        assert_eq!(one.shapes[0].name, "wide");
        assert_eq!(one.rows(one.shapes[0]), one.shapes[0].rows / 10);
        assert_eq!((one.forms, one.clients.len()), (vec![Form::Binary], 2));
        assert!(parse("--latency").unwrap().clients.is_empty());
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for line in ["--shape tall", "--shape", "--form hex", "--percent 0", "--repeats x", "--fast"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
