//! `crabka slots list` and `crabka slots drop`: what the server keeps for whom, and the end of it.
//!
//! Nothing but `drop` ever drops a slot, and it says what it ends and what stays behind.

use std::io::{BufRead, IsTerminal};

use clap::{Args, Subcommand};
use crabka_connect::ConnectError;
use crabka_connect_postgres::catalog::{self, SlotState, quote_identifier};
use crabka_connect_postgres::setup::DropSlot;
use crabka_connect_postgres::{PostgresSourceConfig, SqlConnection};
use serde_json::{Value, json};

use crate::cli::{ConfigFile, Global};
use crate::config::Config;
use crate::exit::Failure;
use crate::output::{bytes_in_words, print, table};
use crate::{pipeline, stored};

/// `crabka slots ...`
#[derive(Debug, Subcommand)]
pub(crate) enum SlotsCommand {
    /// Every slot of the server: who reads it, how much WAL it keeps, and which one is of this configuration.
    List(ListArgs),
    /// Drop a slot; its position is gone for good. Shows it and asks first.
    Drop(DropArgs),
}

/// Flags of `list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// Flags of `drop`.
#[derive(Debug, Args)]
pub(crate) struct DropArgs {
    /// Name of the slot.
    name: String,
    #[command(flatten)]
    config: ConfigFile,
    /// Do not ask. Needed where standard input is no terminal.
    #[arg(long)]
    yes: bool,
    /// Also drop a slot that is in use, whose reader is then ended, or that is not of this connector.
    #[arg(long)]
    force: bool,
}

/// Does what was asked for.
pub(crate) async fn slots(what: SlotsCommand, global: &Global) -> Result<(), Failure> {
    match what {
        SlotsCommand::List(args) => list(args, global).await,
        SlotsCommand::Drop(args) => drop_slot(args, global).await,
    }
}

async fn list(args: ListArgs, global: &Global) -> Result<(), Failure> {
    let config = Config::load(&args.config.with(global))?;
    let source = pipeline::source(&config)?;
    let sql = SqlConnection::connect(&source.connection).await?;
    let server = catalog::server_info(&sql).await?;
    let slots = catalog::slots(&sql).await?;
    let ours = |state: &SlotState| {
        state.slot.name == source.slot && state.slot.database.as_ref() == Some(&server.database)
    };
    if args.json {
        let slots: Vec<Value> = slots.iter().map(|state| in_json(state, ours(state))).collect();
        return print(&format!("{:#}\n", json!({ "server_version": server.version, "slots": slots })));
    }
    let mut rows = vec![
        [
            "",
            "slot",
            "plugin",
            "database",
            "read by",
            "wal_status",
            "retained",
            "restart",
            "confirmed",
            "state",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    rows.extend(slots.iter().map(|state| in_words(state, ours(state))));
    print(&table(&rows))?;
    match slots.iter().any(ours) {
        true => print("* is the slot of this configuration\n"),
        false => print(&format!("the slot of this configuration does not exist: {}\n", source.slot)),
    }
}

fn in_words(state: &SlotState, ours: bool) -> Vec<String> {
    let slot = &state.slot;
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let position =
        |lsn: Option<crabka_pgrepl::Lsn>| lsn.map_or_else(|| "-".to_owned(), |lsn| lsn.to_string());
    let mut condition = Vec::new();
    if let Some(reason) = slot.lost_because() {
        condition.push(format!("lost: {reason}"));
    }
    if slot.temporary {
        condition.push("temporary".to_owned());
    }
    if let Some(since) = &state.inactive_since {
        condition.push(format!("unused since {since}"));
    }
    vec![
        if ours { "*" } else { "" }.to_owned(),
        slot.name.clone(),
        slot.plugin.clone().unwrap_or_else(|| slot.slot_type.clone()),
        text(&slot.database),
        state.holder.as_ref().map_or_else(|| "-".to_owned(), |holder| format!("pid {}", holder.pid)),
        text(&slot.wal_status),
        state.retained_bytes.map_or_else(|| "-".to_owned(), bytes_in_words),
        position(slot.restart_lsn),
        position(slot.confirmed_flush_lsn),
        condition.join(", "),
    ]
}

fn in_json(state: &SlotState, ours: bool) -> Value {
    let slot = &state.slot;
    let holder = state.holder.as_ref().map(|holder| {
        json!({
            "pid": holder.pid, "user": holder.user, "application": holder.application, "address": holder.address,
        })
    });
    json!({
        "name": slot.name,
        "ours": ours,
        "plugin": slot.plugin,
        "type": slot.slot_type,
        "database": slot.database,
        "temporary": slot.temporary,
        "active": slot.active,
        "holder": holder,
        "wal_status": slot.wal_status,
        "safe_wal_bytes": slot.safe_wal_size,
        "retained_bytes": state.retained_bytes,
        "restart_lsn": slot.restart_lsn.map(|lsn| lsn.to_string()),
        "confirmed_flush_lsn": slot.confirmed_flush_lsn.map(|lsn| lsn.to_string()),
        "two_phase": slot.two_phase,
        "failover": slot.failover,
        "synced": slot.synced,
        "inactive_since": state.inactive_since,
        "lost_because": slot.lost_because(),
    })
}

async fn drop_slot(args: DropArgs, global: &Global) -> Result<(), Failure> {
    let config = Config::load(&args.config.with(global))?;
    let source = pipeline::source(&config)?;
    let sql = SqlConnection::connect(&source.connection).await?;
    let request = DropSlot { name: args.name.clone(), ours: Some(source.slot.clone()), force: args.force };
    let state = request.look(&sql).await?;
    print(&describe(&state))?;
    if !args.yes {
        if !std::io::stdin().is_terminal() {
            let message =
                "nothing was dropped: standard input is no terminal to ask on, so --yes must be given";
            return Err(Failure::Usage(message.to_owned()));
        }
        let question = "drop it? its position is gone for good, and what was not read can never be [y/N] ";
        if !confirmed(question, &mut std::io::stdin().lock())? {
            return print("nothing was dropped\n");
        }
    }
    let dropped = request.carry_out(&sql).await?;
    if let Some(holder) = &dropped.ended {
        print(&format!("ended the session that read it: {holder}\n"))?;
    }
    let released = dropped.state.retained_bytes.map_or_else(|| "no".to_owned(), bytes_in_words);
    print(&format!("dropped the replication slot {}, {released} WAL released\n", args.name))?;
    if args.name == source.slot {
        print(&left_behind(&config, &source, &sql).await?)?;
    }
    Ok(())
}

/// The slot as it is now, and what dropping it gives up.
fn describe(state: &SlotState) -> String {
    let slot = &state.slot;
    let kind = match (&slot.plugin, &slot.database) {
        (Some(plugin), Some(database)) => format!("plugin {plugin}, database {database}"),
        _ => slot.slot_type.clone(),
    };
    let read = match &state.holder {
        Some(holder) => format!("in use by {holder}"),
        None => "in use by nobody".to_owned(),
    };
    let kept = state.retained_bytes.map_or_else(|| "no".to_owned(), bytes_in_words);
    let position = slot.confirmed_flush_lsn.map_or_else(|| "none".to_owned(), |lsn| lsn.to_string());
    let lost = slot.lost_because().map(|reason| format!("  lost: {reason}\n")).unwrap_or_default();
    format!(
        "replication slot {}: {kind}, {read}\n  keeps {kept} WAL, last confirmed position: {position}\n{lost}",
        slot.name
    )
}

/// Asks. Only a clear yes is one.
fn confirmed(question: &str, answers: &mut impl BufRead) -> Result<bool, Failure> {
    print(question)?;
    let mut answer = String::new();
    answers.read_line(&mut answer).map_err(|error| {
        ConnectError::transient("the answer cannot be read from standard input").with_source(error)
    })?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// What else there is of a pipeline whose slot is gone, each with what removes it.
async fn left_behind(
    config: &Config,
    source: &PostgresSourceConfig,
    sql: &SqlConnection,
) -> Result<String, ConnectError> {
    let mut text = String::new();
    let publication = &source.publication;
    if catalog::publication(sql, publication).await?.is_some() {
        let name = quote_identifier(publication);
        text.push_str(&format!(
            "still there: the publication {publication}, which refuses updates of tables without a replica identity; \
             it is removed by: DROP PUBLICATION {name}\n"
        ));
    }
    let place = stored::place(config);
    let stays = "as long as it stays, the next start stops with a lost position";
    match stored::read(config).await {
        Ok(None) => {}
        Ok(Some(offset)) => {
            let removal = stored::removal(config, &offset)?.unwrap_or_default();
            text.push_str(&format!(
                "still there: the stored offset ({place}); {stays}; it is removed by: {removal}\n"
            ));
        }
        Err(error) => text.push_str(&format!(
            "perhaps still there: the stored offset ({place}), which cannot be read; {stays}: {error}\n"
        )),
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ops_24_only_a_clear_yes_is_one() {
        for (answer, expected) in [
            ("y\n", true),
            ("YES\n", true),
            (" yes \n", true),
            ("\n", false),
            ("", false),
            ("no\n", false),
            ("yes please\n", false),
        ] {
            assert_eq!(confirmed("", &mut answer.as_bytes()).unwrap(), expected, "{answer:?}");
        }
    }
}
