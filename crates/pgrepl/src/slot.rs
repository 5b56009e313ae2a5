//! CREATE_REPLICATION_SLOT and DROP_REPLICATION_SLOT, in the form each server version understands.
//!
//! <https://www.postgresql.org/docs/18/protocol-replication.html#PROTOCOL-REPLICATION-CREATE-REPLICATION-SLOT>

use crate::{Error, Lsn, quote};

/// What happens to the snapshot that belongs to the slot's first position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SlotSnapshot {
    /// Other sessions may import it, until the next command on this connection.
    Export,
    /// The current transaction reads with it: `REPEATABLE READ`, and `READ ONLY` since PostgreSQL 16.
    Use,
    /// None is kept.
    #[default]
    Nothing,
}

/// A logical replication slot to create.
///
/// ```
/// use crabka_pgrepl::{CreateSlot, SlotSnapshot};
/// let slot = CreateSlot::new("orders").snapshot(SlotSnapshot::Export);
/// assert_eq!(
///     slot.command(150_000)?,
///     r#"CREATE_REPLICATION_SLOT "orders" LOGICAL "pgoutput" (SNAPSHOT 'export')"#,
/// );
/// # Ok::<(), crabka_pgrepl::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateSlot {
    name: String,
    plugin: String,
    temporary: bool,
    snapshot: SlotSnapshot,
    two_phase: bool,
    failover: bool,
}

impl CreateSlot {
    /// A permanent slot for `pgoutput`; no snapshot, no two-phase, no failover.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            plugin: "pgoutput".into(),
            temporary: false,
            snapshot: SlotSnapshot::Nothing,
            two_phase: false,
            failover: false,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Another output plugin.
    #[must_use]
    pub fn plugin(mut self, plugin: impl Into<String>) -> Self {
        self.plugin = plugin.into();
        self
    }

    /// The slot vanishes with the session, and at any error in it.
    #[must_use]
    pub fn temporary(mut self, temporary: bool) -> Self {
        self.temporary = temporary;
        self
    }

    /// What happens to the snapshot.
    #[must_use]
    pub fn snapshot(mut self, snapshot: SlotSnapshot) -> Self {
        self.snapshot = snapshot;
        self
    }

    /// Prepared transactions are decoded at PREPARE TRANSACTION (PostgreSQL 15 and later).
    #[must_use]
    pub fn two_phase(mut self, two_phase: bool) -> Self {
        self.two_phase = two_phase;
        self
    }

    /// The slot is synchronised to standbys (PostgreSQL 17 and later; not for temporary slots).
    #[must_use]
    pub fn failover(mut self, failover: bool) -> Self {
        self.failover = failover;
        self
    }

    /// The command for a server of this `server_version_num`.
    ///
    /// # Errors
    ///
    /// Configuration: an option that this version does not have.
    pub fn command(&self, server_version_num: u32) -> Result<String, Error> {
        let name = quote::slot(&self.name)?;
        let plugin = quote::plugin(&self.plugin)?;
        if self.two_phase && server_version_num < 150_000 {
            return Err(too_old("two-phase slots", 15, server_version_num));
        }
        if self.failover && server_version_num < 170_000 {
            return Err(too_old("failover slots", 17, server_version_num));
        }
        if self.failover && self.temporary {
            return Err(Error::config(
                "a temporary slot cannot be a failover slot; leave one of the two out",
            ));
        }
        let temporary = if self.temporary { " TEMPORARY" } else { "" };
        let head = format!("CREATE_REPLICATION_SLOT {name}{temporary} LOGICAL {plugin}");
        if server_version_num < 150_000 {
            let word = match self.snapshot {
                SlotSnapshot::Export => "EXPORT_SNAPSHOT",
                SlotSnapshot::Use => "USE_SNAPSHOT",
                SlotSnapshot::Nothing => "NOEXPORT_SNAPSHOT",
            };
            return Ok(format!("{head} {word}"));
        }
        let word = match self.snapshot {
            SlotSnapshot::Export => "export",
            SlotSnapshot::Use => "use",
            SlotSnapshot::Nothing => "nothing",
        };
        let two_phase = if self.two_phase { ", TWO_PHASE" } else { "" };
        let failover = if self.failover { ", FAILOVER" } else { "" };
        Ok(format!("{head} (SNAPSHOT '{word}'{two_phase}{failover})"))
    }
}

fn too_old(what: &str, since: u32, server_version_num: u32) -> Error {
    Error::config(format!(
        "{what} need PostgreSQL {since} or later, the server is: {}",
        server_version_num / 10_000
    ))
}

/// A slot that was created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedSlot {
    /// Its name.
    pub name: String,
    /// Every transaction that commits from here on is in the stream, every earlier one in the snapshot.
    pub consistent_point: Lsn,
    /// For `SET TRANSACTION SNAPSHOT`, when it was exported.
    pub snapshot: Option<String>,
}

/// DROP_REPLICATION_SLOT.
pub(crate) fn drop_command(name: &str, wait: bool) -> Result<String, Error> {
    let wait = if wait { " WAIT" } else { "" };
    Ok(format!("DROP_REPLICATION_SLOT {}{wait}", quote::slot(name)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_gets_its_own_form() {
        use SlotSnapshot::{Export, Nothing, Use};
        let slot = |snapshot| CreateSlot::new("s").snapshot(snapshot);
        for (version, slot, command) in [
            (140_000, slot(Nothing), r#"CREATE_REPLICATION_SLOT "s" LOGICAL "pgoutput" NOEXPORT_SNAPSHOT"#),
            (140_020, slot(Export), r#"CREATE_REPLICATION_SLOT "s" LOGICAL "pgoutput" EXPORT_SNAPSHOT"#),
            (140_020, slot(Use), r#"CREATE_REPLICATION_SLOT "s" LOGICAL "pgoutput" USE_SNAPSHOT"#),
            (
                150_000,
                slot(Nothing),
                r#"CREATE_REPLICATION_SLOT "s" LOGICAL "pgoutput" (SNAPSHOT 'nothing')"#,
            ),
            (
                160_000,
                slot(Use).two_phase(true).temporary(true),
                r#"CREATE_REPLICATION_SLOT "s" TEMPORARY LOGICAL "pgoutput" (SNAPSHOT 'use', TWO_PHASE)"#,
            ),
            (
                180_000,
                slot(Export).two_phase(true).failover(true),
                r#"CREATE_REPLICATION_SLOT "s" LOGICAL "pgoutput" (SNAPSHOT 'export', TWO_PHASE, FAILOVER)"#,
            ),
        ] {
            assert_eq!(slot.command(version).unwrap(), command);
        }
        let refused = |slot: CreateSlot, version| slot.command(version).unwrap_err().to_string();
        assert!(
            refused(slot(Nothing).two_phase(true), 140_009)
                .ends_with("PostgreSQL 15 or later, the server is: 14")
        );
        assert!(
            refused(slot(Nothing).failover(true), 160_009)
                .ends_with("PostgreSQL 17 or later, the server is: 16")
        );
        assert!(refused(slot(Nothing).failover(true).temporary(true), 170_000).contains("temporary"));
    }

    #[test]
    fn names_the_server_cannot_have_are_refused_here() {
        let long = "a".repeat(64);
        for name in ["", "We\"ird", "Upper", "with-dash", "ä", "a\0b", "a b", &long] {
            let refusal = CreateSlot::new(name).command(170_000).unwrap_err().to_string();
            assert!(refusal.contains("1 to 63 lower-case letters"), "{refusal}");
        }
        CreateSlot::new(&long[1..]).command(170_000).unwrap();
        assert!(CreateSlot::new("s").plugin("x\" y").command(170_000).is_err());
        assert_eq!(drop_command("weird_1", true).unwrap(), r#"DROP_REPLICATION_SLOT "weird_1" WAIT"#);
    }
}
