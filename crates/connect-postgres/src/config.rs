//! What the source needs to know.

use std::time::Duration;

use crabka_connect::ConnectError;
use crabka_pgrepl::StreamSettings;

use crate::catalog::{TableName, TablePattern};
use crate::envelope::topic;
use crate::position::Fingerprint;
use crate::records::DeleteRecords;
use crate::setup::SetupRequest;

/// What the server keeps of a name; the rest it cuts off, with no more than a notice.
const NAME_BYTES_MAX: usize = 63;

/// The form in which the server sends values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BinaryMode {
    /// The faster one over the usual shapes: text, see [`PostgresSourceConfig::binary`].
    #[default]
    Auto,
    /// Text, which every type has.
    Text,
    /// Binary, as long as every captured column has a binary form that decodes to the same value; else text.
    Binary,
}

/// Where the slot comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SlotMode {
    /// A permanent slot; made, with the publication, at a first start without a stored offset.
    #[default]
    CreateIfMissing,
    /// A permanent slot that must exist.
    Existing,
    /// A temporary slot, made at each start and gone with the connection: nothing survives a restart.
    Temporary,
}

/// Configuration of a [`PostgresSource`](crate::PostgresSource).
#[derive(Debug, Clone)]
pub struct PostgresSourceConfig {
    /// Connection data; the same for replication and for ordinary SQL.
    pub connection: crabka_pgrepl::Config,
    /// First part of every topic, and `source.name`.
    pub topic_prefix: String,
    /// Replication slot.
    pub slot: String,
    /// Where the slot comes from.
    pub slot_mode: SlotMode,
    /// Publication. An existing one is used as it is.
    pub publication: String,
    /// Captured tables; empty for all tables of the publication. Partitions and inheritance children of a listed
    /// table are captured with it.
    pub tables: Vec<TablePattern>,
    /// Never captured, whatever `tables` and the publication say: a table that is written because of what the source
    /// delivers, such as one that keeps checkpoints, would feed itself for ever. Its changes move the position on, as
    /// those of any other table that is not captured.
    pub excluded: Vec<TableName>,
    /// Whether a publication is made although the server then refuses UPDATE and DELETE of tables in it.
    pub allow_refused_updates: bool,
    /// `publish_via_partition_root` of a publication made by the source.
    pub publish_via_partition_root: bool,
    /// Text or binary values. `Auto` takes text: see `docs/adr/0004-auto-means-text.md`.
    pub binary: BinaryMode,
    /// Whether TRUNCATE becomes records. Off by default, as in Debezium (`skipped.operations`).
    pub truncate_events: bool,
    /// Whether `pg_logical_emit_message` becomes records.
    pub message_events: bool,
    /// Which records a delete becomes.
    pub deletes: DeleteRecords,
    /// Topic of heartbeats; default `__debezium-heartbeat.<topic_prefix>`.
    pub heartbeat_topic: Option<String>,
    /// How often an idle position is emitted as a heartbeat, at most.
    pub heartbeat_interval: Duration,
    /// How long the source may leave the socket unread because its queue is full. After that it closes the
    /// connection and comes back when there is room: an open but unread socket can block the server's checkpointer.
    pub unread_limit: Duration,
    /// Bytes of server messages that may wait in the queue between the session and `poll`.
    pub queue_bytes: usize,
    /// How long a slot that another session reads is waited for, before the source ends with [`ConnectError::Fenced`].
    /// Longer than `wal_sender_timeout`, which is 60 s for the sessions of a source: a connection of an earlier run whose
    /// end the server has not noticed is gone by then, and whoever still reads is another instance. `None` waits without
    /// end, ready to take over.
    ///
    /// The time is kept in the source's figures. A host that makes a new source after each error gives it those of the one
    /// before ([`PostgresSource::with_figures`](crate::PostgresSource::with_figures)): else it begins anew with each, and
    /// the limit is never reached.
    pub held_slot_limit: Option<Duration>,
    /// How long slot creation may wait for old transactions.
    pub slot_creation_timeout: Duration,
    /// Intervals of the standby status and of the watch over a silent server.
    pub stream: StreamSettings,
}

impl PostgresSourceConfig {
    /// The defaults for a connector called `name`: slot, publication and topic prefix are named after it.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Configuration`] when `name` is empty.
    pub fn new(name: &str, connection: crabka_pgrepl::Config) -> Result<Self, ConnectError> {
        if name.is_empty() {
            return Err(ConnectError::configuration("connector name is empty"));
        }
        Ok(Self {
            connection,
            topic_prefix: name.to_owned(),
            slot: default_slot_name(name),
            slot_mode: SlotMode::default(),
            publication: name.to_owned(),
            tables: Vec::new(),
            excluded: Vec::new(),
            allow_refused_updates: false,
            publish_via_partition_root: false,
            binary: BinaryMode::default(),
            truncate_events: false,
            message_events: true,
            deletes: DeleteRecords::default(),
            heartbeat_topic: None,
            heartbeat_interval: Duration::from_secs(5),
            unread_limit: Duration::from_secs(60),
            queue_bytes: 16 << 20,
            held_slot_limit: Some(Duration::from_secs(120)),
            slot_creation_timeout: Duration::from_secs(60),
            stream: StreamSettings::default(),
        })
    }

    /// Whether a source can run with it.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Configuration`] when a table is asked for and excluded, or the server could not take a name as
    /// it is.
    pub fn validate(&self) -> Result<(), ConnectError> {
        self.check_names()?;
        let listed = |name: &&TableName| {
            self.tables.iter().any(|pattern| matches!(pattern, TablePattern::Table(table) if table == *name))
        };
        match self.excluded.iter().find(listed) {
            Some(name) => Err(ConnectError::configuration(format!(
                "a table that is written with each checkpoint cannot be captured, it would feed itself: {name}"
            ))
            .with_fix("leave it out of source.tables, or keep checkpoints in another table")),
            None => Ok(()),
        }
    }

    /// The server refuses a slot's name, and cuts off a publication's without an error: it would then be made under
    /// another name than it is looked for.
    fn check_names(&self) -> Result<(), ConnectError> {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let slot = &self.slot;
        if slot.is_empty() || slot.len() > NAME_BYTES_MAX || !slot.bytes().all(allowed) {
            return Err(ConnectError::configuration(format!(
                "a slot name is made of 1 to {NAME_BYTES_MAX} lower-case letters, digits and underscores, not: {slot}"
            ))
            .with_fix("name another slot in source.slot"));
        }
        let publication = &self.publication;
        if publication.is_empty() || publication.len() > NAME_BYTES_MAX {
            return Err(ConnectError::configuration(format!(
                "a publication name has 1 to {NAME_BYTES_MAX} bytes, not {}: {publication}",
                publication.len()
            ))
            .with_fix("name a shorter one in source.publication"));
        }
        Ok(())
    }

    /// What publication and slot must be, for [`setup::plan`](crate::setup::plan).
    pub fn setup_request(&self) -> SetupRequest {
        let mut request = SetupRequest::new(&self.slot, &self.publication, self.tables.clone());
        request.via_root = self.publish_via_partition_root;
        request.allow_refused_updates = self.allow_refused_updates;
        request.wait.limit = self.slot_creation_timeout;
        request
    }

    /// Topic of logical messages.
    pub fn message_topic(&self) -> String {
        topic::for_messages(&self.topic_prefix)
    }

    /// Topic of heartbeats.
    pub fn heartbeat_topic(&self) -> String {
        self.heartbeat_topic.clone().unwrap_or_else(|| topic::for_heartbeats(&self.topic_prefix))
    }

    /// Everything that decides which changes of a transaction the server sends, and so what their ordinals count.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let messages = if self.message_events { "messages" } else { "no messages" };
        Fingerprint::of([self.publication.as_str(), messages])
    }
}

/// The connector's name in the letters a slot name may have: `[a-z0-9_]`, at most 63.
fn default_slot_name(name: &str) -> String {
    name.chars()
        .map(|c| c.to_ascii_lowercase())
        .map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '_' })
        .take(NAME_BYTES_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_cannot_be_listed_and_excluded() {
        let table = |name: &str| TableName { schema: "public".to_owned(), table: name.to_owned() };
        let mut config =
            PostgresSourceConfig::new("orders", "postgres://app@localhost".parse().unwrap()).unwrap();
        config.excluded = vec![table("crabka_checkpoint")];
        config.tables = vec![TablePattern::Schema("public".to_owned()), TablePattern::Table(table("orders"))];
        config.validate().unwrap();
        config.tables.push(TablePattern::Table(table("crabka_checkpoint")));
        let error = config.validate().unwrap_err();
        assert!(matches!(error, ConnectError::Configuration(_)), "{error}");
        assert!(error.message().ends_with(": public.crabka_checkpoint"), "{error}");
    }

    #[test]
    fn slot_names_are_made_of_allowed_letters() {
        assert_eq!(default_slot_name("orders"), "orders");
        assert_eq!(default_slot_name("Orders-EU.1 é"), "orders_eu_1__");
        assert_eq!(default_slot_name(&"x".repeat(100)).len(), 63);
    }
}
