//! `crabka tail`: decoded changes of a server on standard output, without keeping anything.
//!
//! Drives the source with a loop of its own, as a program that embeds it would. Nothing is ever acknowledged, so an
//! existing slot stays where it is; without one a temporary slot is made, and a publication that is dropped at the end.

mod leftovers;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use clap::{Args, ValueEnum};
use crabka_connect::{ConnectError, ConnectRecord, Converter, Source, write_line};
use crabka_connect_postgres::catalog::quote_identifier;
use crabka_connect_postgres::{
    ChangeEvent, ChangeKey, Operation, PostgresSource, PostgresSourceConfig, SlotMode, SqlConnection,
};
use crabka_connect_postgres::{check, setup};
use crabka_pgrepl::Lsn;

use crate::cli::Global;
use crate::config::{Config, Entries};
use crate::exit::Failure;
use crate::output::{Lines, Written};
use crate::pipeline;
use crate::signals::Signals;

/// Records taken at a time. Each is polled by itself, because each line says the position behind it.
const BATCH: usize = 1_000;

/// How often an idle position is seen, and with it the end of `--exit-when-caught-up`.
const HEARTBEAT_MS: &str = "200";

/// Flags of the verb.
#[derive(Debug, Args)]
pub(crate) struct TailArgs {
    /// The server: a libpq URL. Passwords are better given in PGPASSWORD or .pgpass: everybody on the machine can
    /// read a command line.
    url: String,
    /// Table to capture, as schema.table; may be given more than once. Without it, every table.
    #[arg(long = "table", value_name = "SCHEMA.TABLE")]
    tables: Vec<String>,
    /// How changes are encoded.
    #[arg(long, value_enum, default_value = "debezium")]
    envelope: EnvelopeArg,
    /// Read from this existing slot instead of a temporary one; it stays where it is.
    #[arg(long, value_name = "NAME", requires = "publication")]
    from_slot: Option<String>,
    /// Use this existing publication instead of a temporary one.
    #[arg(long, value_name = "NAME")]
    publication: Option<String>,
    /// End once everything that was committed when the command started has been printed.
    #[arg(long)]
    exit_when_caught_up: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum EnvelopeArg {
    Debezium,
    Flat,
}

/// Prints changes until a signal, the end that was asked for, or an error.
pub(crate) async fn tail(args: TailArgs, global: &Global) -> Result<(), Failure> {
    let mut signals = Signals::catch()?;
    let config = configuration(&args, global)?;
    let mut source = pipeline::source(&config)?;
    let looked = async {
        let sql = SqlConnection::connect(&source.connection).await?;
        // Before the slot: a change that commits while the slot is made is printed, and need not be waited for.
        let target = if args.exit_when_caught_up { Some(wal_position(&sql).await?) } else { None };
        Ok::<_, ConnectError>((sql, target))
    };
    // Nothing is made yet, so a signal need not wait for a server that does not answer.
    let (sql, target) = tokio::select! {
        looked = looked => looked?,
        signal = signals.first() => {
            tracing::debug!(signal, "ending");
            return Ok(());
        }
    };
    let own_name = leftovers::name_of_this_session(&sql).await?;
    if args.from_slot.is_none() {
        source.slot_mode = SlotMode::Temporary;
        source.slot.clone_from(&own_name);
    }
    let own_publication = args.publication.is_none();
    if own_publication {
        source.publication = own_name;
        leftovers::remove(&sql).await;
        create_publication(&sql, &source).await?;
    }
    let converter = pipeline::converter(&config)?;
    let printed = tokio::select! {
        printed = print_changes(source.clone(), converter, target) => printed,
        signal = signals.first() => {
            tracing::debug!(signal, "ending");
            Ok(())
        }
    };
    if own_publication {
        let sql =
            if sql.client().is_closed() { SqlConnection::connect(&source.connection).await? } else { sql };
        let drop = format!("DROP PUBLICATION IF EXISTS {}", quote_identifier(&source.publication));
        signals.until(sql.simple("dropping the temporary publication", &drop), || ()).await?;
    }
    printed
}

/// The configuration of a tail: what its flags say, and what `--set` says over them.
fn configuration(args: &TailArgs, global: &Global) -> Result<Config, Failure> {
    let mut entries = Entries::default();
    for (option, value) in &global.set {
        entries.set(option, value, "--set");
    }
    for (option, _) in &global.set {
        let section = option.split('.').next().unwrap_or_default();
        if ["sink", "checkpoint", "runtime", "http"].contains(&section) {
            let message = format!("--set: {option} has no effect on crabka tail");
            return Err(ConnectError::configuration(message).with_fix("leave it out").into());
        }
    }
    // Both are named anew by the session that makes them.
    let own_name = leftovers::PREFIX;
    let tables: Vec<String> = args.tables.iter().map(|name| crate::config::quoted(name)).collect();
    let envelope = match args.envelope {
        EnvelopeArg::Debezium => "debezium",
        EnvelopeArg::Flat => "flat",
    };
    for (section, option, value) in [
        ("", "name", "tail"),
        ("source", "url", args.url.as_str()),
        ("source", "tables", &format!("[{}]", tables.join(", "))),
        ("source", "slot", args.from_slot.as_deref().unwrap_or(own_name)),
        ("source", "publication", args.publication.as_deref().unwrap_or(own_name)),
        ("source", "create", "false"),
        ("source", "heartbeat_interval_ms", HEARTBEAT_MS),
        ("envelope", "type", envelope),
        ("sink", "type", "stdout"),
        ("checkpoint", "store", "memory"),
    ] {
        entries.preset(section, option, value, "crabka tail");
    }
    Ok(Config::from_entries(entries)?)
}

/// How far the server's WAL is written.
async fn wal_position(sql: &SqlConnection) -> Result<Lsn, ConnectError> {
    let doing = "reading the server's WAL position";
    let query = "SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END)::text";
    let row = sql.query_one(doing, query, &[]).await?;
    let text: String = row.try_get(0).map_err(|error| ConnectError::bug(doing).with_source(error))?;
    text.parse().map_err(|_| ConnectError::bug(format!("{doing}: not a position: {text}")))
}

/// Makes the publication that is dropped at the end. Refused where it would make an application's UPDATE fail.
async fn create_publication(sql: &SqlConnection, source: &PostgresSourceConfig) -> Result<(), ConnectError> {
    let mut request = source.setup_request();
    request.slot = None;
    // Refused below, with what this verb can do about it.
    request.allow_refused_updates = true;
    let plan = setup::plan(sql, &request).await?;
    // A run may take that on; a look must not change what applications can do.
    if let Some(finding) = plan.findings.iter().find(|finding| finding.id == check::id::REPLICA_IDENTITY) {
        let table = finding.subject.as_deref().unwrap_or("a table");
        let error = ConnectError::configuration(format!("{table}: {}", finding.message));
        let fix = finding.fix.as_deref().unwrap_or("ALTER TABLE ... REPLICA IDENTITY FULL");
        return Err(
            error.with_fix(format!("name other tables with --table, use a publication of yours, or {fix}"))
        );
    }
    for finding in &plan.findings {
        tracing::warn!("{finding}");
    }
    setup::apply(sql, &source.connection, &request, &plan, std::future::pending()).await.map(drop)
}

/// Prints until `target` is passed or standard output has no reader any more.
async fn print_changes(
    source: PostgresSourceConfig,
    mut converter: Box<dyn Converter<ChangeKey, ChangeEvent>>,
    target: Option<Lsn>,
) -> Result<(), Failure> {
    let mut source = PostgresSource::new(source)?;
    let mut lines = Lines::new();
    let mut buffer = BytesMut::new();
    loop {
        let mut idle = false;
        for _ in 0..BATCH {
            let Some(record) = source.poll().await? else {
                idle = true;
                break;
            };
            if record.value.as_ref().is_some_and(|event| event.operation == Operation::Heartbeat) {
                continue;
            }
            let line = encode(record, converter.as_mut(), &mut buffer, source.checkpoint())?;
            write_line(&line, lines.buffer());
        }
        if lines.write()? == Written::NobodyReads {
            return Ok(());
        }
        if idle && target.is_some_and(|target| source.position().is_some_and(|position| position >= target)) {
            source.close().await?;
            return Ok(());
        }
    }
}

fn encode(
    record: ConnectRecord<ChangeKey, ChangeEvent>,
    converter: &mut dyn Converter<ChangeKey, ChangeEvent>,
    buffer: &mut BytesMut,
    offset: Option<crabka_connect::SourceOffset>,
) -> Result<ConnectRecord<Bytes, Bytes>, ConnectError> {
    let mut line = converter.encode(record, buffer)?;
    line.offset = offset.map(Arc::new);
    Ok(line)
}
