//! The start of a session: look at server, publication and slot, check the position, then stream.

use std::sync::Arc;

use crabka_connect::ConnectError;
use crabka_pgrepl::{CreateSlot, Lsn, ReplicationClient, SlotSnapshot, StartReplication, SystemIdentity};

use super::held;
use super::relations::RelationCache;
use super::topics::TopicOwners;
use super::{QUEUE_BATCHES, Session, SessionHandle, SessionOptions};
use crate::assemble::Assembler;
use crate::catalog::{self, PublicationRow, ServerInfo, SlotRow, TableName, TablePattern};
use crate::classify::replication_error;
use crate::config::{BinaryMode, PostgresSourceConfig, SlotMode};
use crate::event::SourceInfo;
use crate::figures::SourceFigures;
use crate::position::{Position, StoredPosition, StreamIdentity};
use crate::setup;
use crate::sql::SqlConnection;
use crate::verify::{self, ServerState};

/// The oldest server that is supported.
const VERSION_MIN: u32 = 140_000;

/// A running session and the stream it reads.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) session: SessionHandle,
    pub(crate) identity: StreamIdentity,
    /// Where it started.
    pub(crate) position: Position,
    /// The server's timeline; `None` on a standby.
    pub(crate) timeline: Option<u32>,
}

/// Starts at `stored`, or without one at the slot's own position. The server is told that everything up to `durable` is
/// durable (the start position without it): what was received behind that may still be on its way. `stop` ends the
/// creation of a slot early.
pub(crate) async fn start(
    config: &PostgresSourceConfig,
    source: &Arc<SourceInfo>,
    figures: &Arc<SourceFigures>,
    stored: Option<StoredPosition>,
    durable: Option<Lsn>,
    text_only: bool,
    stop: impl Future<Output = ()>,
) -> Result<Started, ConnectError> {
    let sql = {
        let _turn = figures.sql().turn().await;
        let sql = Arc::new(SqlConnection::connect(&config.connection).await?);
        figures.sql().share(&sql);
        sql
    };
    let server = catalog::server_info(&sql).await?;
    supported(&server)?;
    let identity = StreamIdentity {
        system_id: server.system_identifier.to_string(),
        database: server.database.clone(),
        slot: config.slot.clone(),
    };
    // First of all: a stored position must never be answered by making a slot.
    if let Some(stored) = &stored {
        verify::same_stream(&stored.identity, &identity)?;
    }
    held::refuse_while_held(config, &sql, &server.database, figures).await?;
    // The same server for both connections, also where a URL names several.
    let connection = config.connection.clone().pinned_to(sql.peer());
    let mut client = ReplicationClient::connect(&connection).await.map_err(connecting)?;
    let system = client.identify_system().await.map_err(connecting)?;
    let position =
        place(config, &sql, &mut client, (&server, &system), &identity, stored.as_ref(), stop).await?;
    let publication = published(config, &sql).await?;
    warn_of_unpublished(config, &sql).await?;
    refuse_keys_outside_identities(config, &publication, &sql).await?;
    let reserved = vec![config.message_topic(), config.heartbeat_topic()];
    let topics = TopicOwners::new(config.topic_prefix.clone(), reserved);
    let mut relations =
        RelationCache::new(sql, Arc::clone(figures), topics, config.tables.clone(), config.excluded.clone());
    relations.claim_topics(&publication).await?;
    let binary = config.binary == BinaryMode::Binary && !text_only;
    let start = StartReplication::new(&config.slot, position.resume_lsn)
        .publications([&config.publication])
        .messages(config.message_events)
        .binary(binary)
        .acknowledged(durable.unwrap_or(position.resume_lsn))
        .settings(config.stream);
    let stream = match client.start_replication(&start).await {
        Ok(stream) => stream,
        Err(error) => {
            let error = replication_error("starting replication", error);
            return Err(refused_start(relations.sql(), &identity, stored.as_ref(), error).await);
        }
    };
    tracing::info!(
        slot = %config.slot, publication = %config.publication, position = %position.resume_lsn, binary,
        server = %server.version, "streaming"
    );
    let options = SessionOptions {
        batch_bytes: config.queue_bytes / QUEUE_BATCHES,
        unread_limit: config.unread_limit,
        heartbeat_interval: config.heartbeat_interval,
        truncate_events: config.truncate_events,
        binary,
    };
    let assembler = Assembler::new(Arc::clone(source), position);
    let session = Session::spawn(stream, relations, assembler, options, Arc::clone(figures));
    let timeline = (!server.in_recovery).then_some(system.timeline);
    Ok(Started { session, identity, position, timeline })
}

/// The slot was in order when it was looked at. That it was dropped or lost until the command came is told by codes that
/// mean wrong settings as well: its row says what it is now.
async fn refused_start(
    sql: &SqlConnection,
    identity: &StreamIdentity,
    stored: Option<&StoredPosition>,
    refusal: ConnectError,
) -> ConnectError {
    if !matches!(refusal.sqlstate(), Some("42704" | "55000")) {
        return refusal;
    }
    match catalog::slot(sql, &identity.slot).await {
        Ok(slot) => verify::refused_start(identity, stored, slot.as_ref(), refusal),
        // What the server said first tells more than that it cannot be asked.
        Err(error) => {
            tracing::debug!(%error, "the slot cannot be looked at again");
            refusal
        }
    }
}

/// An existing publication is used as it is. A table that was configured later is not in it, and would be silent.
async fn warn_of_unpublished(config: &PostgresSourceConfig, sql: &SqlConnection) -> Result<(), ConnectError> {
    let named: Vec<&TableName> = config
        .tables
        .iter()
        .filter_map(|pattern| match pattern {
            TablePattern::Table(name) => Some(name),
            TablePattern::Schema(_) | TablePattern::All => None,
        })
        .collect();
    for table in catalog::not_published(sql, &config.publication, &named).await? {
        tracing::warn!(
            %table, publication = %config.publication,
            "the publication does not have a configured table, whose changes do not come: run `crabka check`"
        );
    }
    Ok(())
}

/// Without all key columns in an old row deletes would have keys with nulls, and key changes would go unseen.
async fn refuse_keys_outside_identities(
    config: &PostgresSourceConfig,
    publication: &PublicationRow,
    sql: &SqlConnection,
) -> Result<(), ConnectError> {
    if !(publication.update || publication.delete) {
        return Ok(());
    }
    let outside = catalog::keys_outside_identities(sql, &config.publication).await?;
    match outside
        .iter()
        .find(|table| table.is_covered_by(&config.tables) && !config.excluded.contains(&table.name))
    {
        Some(table) => Err(ConnectError::configuration(format!(
            "the primary key is not in the replica identity, so that deletes could not be told by key: {}",
            table.name
        ))
        .with_fix(format!(
            "ALTER TABLE {0} REPLICA IDENTITY DEFAULT, or ALTER TABLE {0} REPLICA IDENTITY FULL",
            table.name.quoted()
        ))),
        None => Ok(()),
    }
}

fn supported(server: &ServerInfo) -> Result<(), ConnectError> {
    if server.version_num < VERSION_MIN {
        return Err(ConnectError::configuration(format!(
            "PostgreSQL 14 or newer is needed, the server is {}",
            server.version
        )));
    }
    if server.wal_level != "logical" {
        return Err(ConnectError::configuration(format!(
            "wal_level is {}, logical is needed",
            server.wal_level
        ))
        .with_fix("ALTER SYSTEM SET wal_level = 'logical'; then restart the server"));
    }
    Ok(())
}

/// Finds out where to start, and makes publication and slot where that is allowed.
async fn place(
    config: &PostgresSourceConfig,
    sql: &SqlConnection,
    client: &mut ReplicationClient,
    (server, system): (&ServerInfo, &SystemIdentity),
    identity: &StreamIdentity,
    stored: Option<&StoredPosition>,
    stop: impl Future<Output = ()>,
) -> Result<Position, ConnectError> {
    if config.slot_mode == SlotMode::Temporary {
        return match stored {
            None => temporary_slot(config, sql, client, stop).await,
            Some(stored) => Err(gone_with_its_connection(config, stored)),
        };
    }
    let slot = catalog::slot(sql, &config.slot).await?;
    if let Some(stored) = stored {
        let state = ServerState {
            identity: identity.clone(),
            wal_end: system.position,
            timeline: system.timeline,
            left_stored_timeline_at: left_stored_timeline_at(client, system.timeline, stored.timeline)
                .await?,
        };
        verify::honoured(stored, &state, slot.as_ref())?;
        return Ok(stored.position);
    }
    let slot = match slot {
        Some(slot) => slot,
        None if config.slot_mode == SlotMode::CreateIfMissing => {
            create_missing(config, sql, stop).await?;
            catalog::slot(sql, &config.slot).await?.ok_or_else(|| verify::missing_slot(&config.slot))?
        }
        None => return Err(verify::missing_slot(&config.slot)),
    };
    slot_position(&slot, &server.database)
}

async fn left_stored_timeline_at(
    client: &mut ReplicationClient,
    current: u32,
    stored: Option<u32>,
) -> Result<Option<Lsn>, ConnectError> {
    match stored {
        // The first timeline has no history, and no history speaks of later ones.
        Some(stored) if stored < current => {
            client.left_timeline_at(current, stored).await.map_err(connecting)
        }
        _ => Ok(None),
    }
}

/// Makes the publication, then the slot: a publication made later does not exist at the slot's position.
async fn create_missing(
    config: &PostgresSourceConfig,
    sql: &SqlConnection,
    stop: impl Future<Output = ()>,
) -> Result<(), ConnectError> {
    let request = config.setup_request();
    let plan = setup::plan(sql, &request).await?;
    plan.log_warnings();
    setup::apply(sql, &config.connection, &request, &plan, stop).await?;
    Ok(())
}

async fn temporary_slot(
    config: &PostgresSourceConfig,
    sql: &SqlConnection,
    client: &mut ReplicationClient,
    stop: impl Future<Output = ()>,
) -> Result<Position, ConnectError> {
    // Before the slot: it must exist at the slot's position.
    published(config, sql).await?;
    let slot = CreateSlot::new(&config.slot).temporary(true).snapshot(SlotSnapshot::Nothing);
    let wait = config.setup_request().wait;
    let created = setup::create_slot(sql, client, &slot, &wait, stop).await?;
    Ok(Position::at(created.consistent_point))
}

fn gone_with_its_connection(config: &PostgresSourceConfig, stored: &StoredPosition) -> ConnectError {
    ConnectError::offset(format!(
        "a temporary slot ends with its connection, and cannot be read on: slot {}, position {}",
        config.slot, stored.position.resume_lsn
    ))
    .with_fix("start anew without a stored position, or use a permanent slot")
}

/// The publication, which must exist.
async fn published(
    config: &PostgresSourceConfig,
    sql: &SqlConnection,
) -> Result<PublicationRow, ConnectError> {
    catalog::publication(sql, &config.publication).await?.ok_or_else(|| {
        ConnectError::configuration(format!("publication does not exist: {}", config.publication)).with_fix(
            "run `crabka init`; if a slot exists already, drop it first: a publication must exist before its slot is \
             made",
        )
    })
}

fn connecting(error: crabka_pgrepl::Error) -> ConnectError {
    replication_error("connecting for replication", error)
}

fn slot_position(slot: &SlotRow, database: &str) -> Result<Position, ConnectError> {
    verify::usable_slot(slot, database)?;
    Ok(Position::at(slot.confirmed_flush_lsn.unwrap_or(Lsn::ZERO)))
}
