//! What the catalogue says *now*: server, slots, publications, keys, types.
//!
//! Queries differ by server version where the catalogue does; none names a column that a supported server (14 to
//! 18) lacks. What the stream says of a table at one of its points may be older than anything read here: for
//! decoding, all of this is a hint.
//!
//! <https://www.postgresql.org/docs/18/catalogs.html>, <https://www.postgresql.org/docs/18/views.html>.

mod name;
mod publication;
mod published;
mod relation;
mod retention;
mod server;
mod slot;
mod tables;
mod transactions;
mod types;

pub(crate) use name::some_of;
pub use name::{TableName, TablePattern, quote_identifier, quote_literal};
pub use publication::{PublicationRow, PublicationTable, publication};
pub use published::{keys_outside_identities, not_published, published_tables, published_with_equal_topics};
pub use relation::{ColumnHint, RelationHints, ancestors, relation_hints, relations};
pub use retention::{RestartHolder, SlotState, restart_held_by, slot_state, slots};
pub use server::{ServerInfo, WalState, server_info, wal_position, wal_state};
pub use slot::{PLUGIN, SlotFault, SlotHolder, SlotRow, slot, slot_holder};
pub use tables::{TableRow, leaf_partitions, tables_matching};
pub use transactions::{Blocker, OLD_TRANSACTION, transactions_with_xid};
pub use types::types;
