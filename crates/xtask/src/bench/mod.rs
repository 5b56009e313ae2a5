//! `cargo xtask bench`: how fast `crabka` drains a backlog, next to `pg_recvlogical` on the same backlog in the same run,
//! and how long a commit takes until it is in Kafka.
//!
//! Every client gets a slot at the same position of the same WAL. Its time runs from the start of its process until the
//! server has its confirmation of everything; what starting takes is a part of it, and shown beside it.

mod backlog;
mod drain;
mod latency;
mod machine;
mod options;
mod process;
mod report;
mod shape;

use std::path::{Path, PathBuf};

use crabka_testkit::{KafkaBroker, PgInstall};

use self::backlog::Backlog;
use self::drain::Bench;
use self::options::{Client, Form, Options};
use self::report::{Case, Report};
use self::shape::Shape;
use crate::{cargo, provision};

/// Rows of the drains before the first that counts, in percent of a shape's: Java compiles what it runs often.
const WARM_UP_PERCENT: u64 = 20;

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let options = Options::parse(arguments)?;
    if options.micro {
        return micro();
    }
    let plan = provision::everything(&[options.major.unwrap_or(crabka_testkit::DEFAULT_MAJOR)])?;
    plan.print();
    plan.carry_out()?;
    let worker = match &options.worker {
        Some(worker) => worker.clone(),
        None => {
            cargo::step("build", &["build", "--release", "--package", "crabka"], &[])?;
            target_dir()?.join("release").join("crabka")
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let dir = target_dir()?.join("bench");
    std::fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let mut report = Report::default();
    let measured = runtime.block_on(measure(&options, &worker, &dir, &mut report));
    // What there is by now is told in any case.
    report.print();
    let json = options.json.clone().unwrap_or_else(|| dir.join("report.json"));
    std::fs::write(&json, format!("{:#}\n", report.json()))
        .map_err(|error| format!("{}: {error}", json.display()))?;
    println!("written: {}", json.display());
    measured
}

/// The benches of single parts, each with its own output.
fn micro() -> Result<(), String> {
    for (package, bench) in [
        ("crabka-pgoutput", "decode"),
        ("crabka-connect-postgres", "convert"),
        ("crabka-connect", "runtime"),
        ("crabka-connect-kafka", "sink"),
    ] {
        cargo::step("bench", &["bench", "--package", package, "--bench", bench], &[])?;
    }
    Ok(())
}

async fn measure(options: &Options, worker: &Path, dir: &Path, report: &mut Report) -> Result<(), String> {
    let install = PgInstall::find(options.major).map_err(|error| error.to_string())?;
    let broker = if options.needs_kafka() {
        println!("== start kafka");
        let builder = KafkaBroker::builder().heap_mb(1024).setting("log.retention.check.interval.ms", 5_000);
        Some(builder.start().await.map_err(|error| error.to_string())?)
    } else {
        None
    };
    let bench = Bench {
        worker,
        recvlogical: &recvlogical(&install)?,
        kafka: broker.as_ref().map(KafkaBroker::bootstrap_servers),
        set: &options.set,
        dir,
    };
    report.machine = machine::describe(&install, broker.as_ref(), worker);
    if !options.clients.is_empty() {
        warm_up(&bench, options).await?;
        for shape in &options.shapes {
            shape_cases(&bench, options, shape, &mut report.cases).await?;
        }
    }
    if let (Some(broker), false) = (&broker, options.rates.is_empty()) {
        latency::measure(&bench, options, &broker.bootstrap_servers(), &mut report.latencies).await?;
    }
    Ok(())
}

/// Beside the server's programs, which may be links into the directory that has them all; else another version's.
fn recvlogical(install: &PgInstall) -> Result<PathBuf, String> {
    let name = "pg_recvlogical";
    let linked = std::fs::canonicalize(install.bin().join("postgres")).unwrap_or_default();
    let beside = [install.bin().join(name), linked.with_file_name(name)];
    let others = PgInstall::all().into_iter().map(|install| install.bin().join(name));
    let found = beside.into_iter().chain(others).find(|program| program.is_file());
    found.ok_or_else(|| {
        "no pg_recvlogical: install PostgreSQL's client programs (postgresql-client)".to_owned()
    })
}

/// One drain by each client that nobody counts.
async fn warm_up(bench: &Bench<'_>, options: &Options) -> Result<(), String> {
    let Some(shape) = options.shapes.first() else { return Ok(()) };
    let rows = (options.rows(shape) * WARM_UP_PERCENT / 100).max(1);
    println!("== warm up: {} {rows} rows", shape.name);
    let backlog = Backlog::make(shape, rows, options.major).await?;
    for client in &options.clients {
        bench.drain(&backlog, *client, Form::Text).await?;
    }
    Ok(())
}

/// All clients and forms on one backlog, in turn, as many rounds as asked for.
async fn shape_cases(
    bench: &Bench<'_>,
    options: &Options,
    shape: &'static Shape,
    all: &mut Vec<Case>,
) -> Result<(), String> {
    let rows = options.rows(shape);
    println!("== {}: {}, {rows} rows", shape.name, shape.what);
    let backlog = Backlog::make(shape, rows, options.major).await?;
    let first = all.len();
    for form in &options.forms {
        let message_bytes = if shape.typical { Some(backlog.message_bytes(*form).await?) } else { None };
        all.push(Case { shape, form: *form, message_bytes, rounds: Vec::new() });
    }
    for round in 0..options.repeats {
        for case in &mut all[first..] {
            let mut drains: Vec<(Client, _)> = Vec::new();
            for client in &options.clients {
                let drained = bench.drain(&backlog, *client, case.form).await?;
                println!(
                    "   round {}  {:6} {:14} {:>9.0} rows/s {:>6.2} us/row {:>6.1} MB",
                    round + 1,
                    case.form.name(),
                    client.name(),
                    drained.rows_per_second(),
                    drained.cpu_us_per_row(),
                    drained.peak_kb as f64 / 1024.0,
                );
                drains.push((*client, drained));
            }
            case.rounds.push(drains);
        }
    }
    Ok(())
}

/// Cargo's: this program lies in `debug` below it.
fn target_dir() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    program.ancestors().nth(2).map(Path::to_path_buf).ok_or_else(|| "no target directory".to_owned())
}
