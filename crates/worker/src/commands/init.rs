//! `crabka init`: makes publication and slot, and on request what `migrations/` has; prints what it does first.

use clap::{Args, ValueEnum};
use crabka_connect::ConnectError;
use crabka_connect_postgres::setup;
use crabka_connect_postgres::{CHECKPOINT_TABLE_SQL, SqlConnection};

use crate::cli::{ConfigFile, Global};
use crate::config::Config;
use crate::exit::Failure;
use crate::output::print;
use crate::pipeline;
use crate::signals::Signals;

const ROLE_SQL: &str = include_str!("../../../../migrations/001_role.sql");

/// Flags of the verb.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// Print what would be done, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Also apply optional SQL of migrations/, in the database of source.url; may be given more than once.
    #[arg(long = "with", value_enum, value_name = "SQL")]
    with: Vec<Optional>,
}

/// SQL that `init` applies on request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Optional {
    /// The role `crabka`, which may stream and nothing else.
    Role,
    /// The table of checkpoint.store = "postgres".
    Checkpoint,
}

impl Optional {
    fn description(self) -> &'static str {
        match self {
            Self::Role => "apply migrations/001_role.sql: a role that may stream and nothing else",
            Self::Checkpoint => {
                "apply migrations/003_checkpoint.sql: the table of checkpoint.store = \"postgres\""
            }
        }
    }

    fn sql(self) -> &'static str {
        match self {
            Self::Role => ROLE_SQL,
            Self::Checkpoint => CHECKPOINT_TABLE_SQL,
        }
    }
}

/// Prints the plan, and carries it out unless this is a dry run.
pub(crate) async fn init(args: InitArgs, global: &Global) -> Result<(), Failure> {
    let config = Config::load(&args.config.with(global))?;
    let source = pipeline::source(&config)?;
    let mut signals = Signals::catch()?;
    let request = source.setup_request();
    let planned = async {
        let sql = SqlConnection::connect(&source.connection).await?;
        let plan = setup::plan(&sql, &request).await?;
        Ok::<_, ConnectError>((sql, plan))
    };
    let (sql, plan) = tokio::select! {
        planned = planned => planned?,
        signal = signals.first() => {
            return Err(ConnectError::transient(format!("ended before anything was made, by {signal}")).into());
        }
    };
    print(&format!("{plan}\n"))?;
    for optional in &args.with {
        let code =
            optional.sql().lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n    ");
        print(&format!("-  {}\n    {}\n", optional.description(), code.trim()))?;
    }
    if let Some(refusal) = plan.refusal() {
        return Err(refusal.into());
    }
    if args.dry_run {
        return print("dry run: nothing was changed\n");
    }
    for optional in &args.with {
        sql.simple(optional.description(), optional.sql()).await?;
    }
    // The creation of a slot waits for old transactions; a signal ends it in order, so that no half-made slot stays.
    let stop = async {
        let signal = signals.first().await;
        tracing::info!(signal, "ending: the creation of the slot is cancelled");
    };
    let applied = setup::apply(&sql, &source.connection, &request, &plan, stop).await?;
    if applied.publication_created {
        print(&format!("created the publication {}\n", source.publication))?;
    }
    if applied.slot_created.is_some() {
        print(&format!("created the replication slot {}\n", source.slot))?;
    }
    print("done\n")
}
