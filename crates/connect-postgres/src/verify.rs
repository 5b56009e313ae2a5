//! Whether a slot can be used, and whether a stored position can be honoured. Pure, so that each rule has its test.
//!
//! PostgreSQL itself checks none of this: a start position behind the slot is moved forward in silence, one beyond the
//! server's WAL streams nothing without an error.

use crabka_connect::ConnectError;
use crabka_pgrepl::Lsn;

use crate::catalog::SlotRow;
use crate::position::{StoredPosition, StreamIdentity};

/// What the server says of itself at the start of a session.
#[derive(Debug, Clone)]
pub(crate) struct ServerState {
    pub(crate) identity: StreamIdentity,
    /// End of its WAL.
    pub(crate) wal_end: Lsn,
    /// Its timeline.
    pub(crate) timeline: u32,
    /// Where its history left the timeline of the stored position, if it ever was on that one and is not now.
    pub(crate) left_stored_timeline_at: Option<Lsn>,
}

/// Errors a slot that cannot be streamed from, whatever the position.
pub(crate) fn usable_slot(slot: &SlotRow, database: &str) -> Result<(), ConnectError> {
    if let Some(fault) = slot.fault(database) {
        return Err(fault.to_error(slot));
    }
    let name = &slot.name;
    if slot.two_phase {
        return Err(ConnectError::configuration(format!(
            "replication slot is two-phase, which this source does not read: {name}"
        ))
        .with_fix(format!(
            "ALTER_REPLICATION_SLOT {name} (TWO_PHASE false) on PostgreSQL 18, or make a new slot without two_phase"
        )));
    }
    Ok(())
}

/// Errors a stored position that this server and slot cannot honour.
pub(crate) fn honoured(
    stored: &StoredPosition,
    server: &ServerState,
    slot: Option<&SlotRow>,
) -> Result<(), ConnectError> {
    same_stream(&stored.identity, &server.identity)?;
    let resume = stored.position.resume_lsn;
    let name = &stored.identity.slot;
    let Some(slot) = slot else { return Err(gone_slot(stored)) };
    usable_slot(slot, &server.identity.database)
        .map_err(|error| error.context(format!("stored position {resume}")))?;
    if let Some(confirmed) = slot.confirmed_flush_lsn.filter(|confirmed| *confirmed > resume) {
        return Err(ConnectError::offset(format!(
            "replication slot {name} is ahead of the stored position, so changes between are gone from it (somebody else \
             consumed them, or the slot was made anew): stored {resume}, available from {confirmed}"
        ))
        .with_fix(start_anew(name)));
    }
    same_history(stored, server)?;
    if resume > server.wal_end {
        return Err(ConnectError::offset(format!(
            "the stored position is beyond the server's WAL, so it belongs to another history of this server: stored \
             {resume}, server at {}",
            server.wal_end
        ))
        .with_fix("restore the server to a state that contains the position, or remove the stored offset to start anew"));
    }
    Ok(())
}

/// What a refused START_REPLICATION means, by the slot's row as it is after the refusal.
pub(crate) fn refused_start(
    identity: &StreamIdentity,
    stored: Option<&StoredPosition>,
    slot: Option<&SlotRow>,
    refusal: ConnectError,
) -> ConnectError {
    match (slot, stored) {
        (None, Some(stored)) => gone_slot(stored),
        (None, None) => missing_slot(&identity.slot),
        (Some(slot), _) => usable_slot(slot, &identity.database).err().unwrap_or(refusal),
    }
}

fn gone_slot(stored: &StoredPosition) -> ConnectError {
    let name = &stored.identity.slot;
    ConnectError::offset(format!(
        "a position is stored but the replication slot is gone: slot {name}, position {}",
        stored.position.resume_lsn
    ))
    .with_fix(start_anew(name))
}

/// The error for a slot that is not there and need not have been.
pub(crate) fn missing_slot(name: &str) -> ConnectError {
    ConnectError::configuration(format!("replication slot does not exist: {name}"))
        .with_fix("run `crabka init`")
}

/// Errors a position behind the point at which the server's history left the one it belongs to: a standby was promoted that
/// had not received everything.
fn same_history(stored: &StoredPosition, server: &ServerState) -> Result<(), ConnectError> {
    let Some(timeline) = stored.timeline.filter(|timeline| *timeline != server.timeline) else {
        return Ok(());
    };
    let resume = stored.position.resume_lsn;
    let lost = |what: String| {
        Err(ConnectError::offset(what).with_fix(
            "what was delivered behind that point does not exist on this server: compare the two, then remove the stored \
             offset to start anew",
        ))
    };
    match server.left_stored_timeline_at {
        Some(left_at) if resume <= left_at => Ok(()),
        Some(left_at) => lost(format!(
            "the stored position lies behind the point at which this server left its timeline: stored {resume} on \
             timeline {timeline}, left at {left_at} for timeline {}",
            server.timeline
        )),
        None => lost(format!(
            "the stored position belongs to a timeline that this server never was on: stored {resume} on timeline \
             {timeline}, server on {}",
            server.timeline
        )),
    }
}

/// Errors a position of another cluster, database or slot.
pub(crate) fn same_stream(stored: &StreamIdentity, server: &StreamIdentity) -> Result<(), ConnectError> {
    let differs = |what: &str, stored: &str, found: &str| {
        ConnectError::offset(format!(
            "the stored position belongs to another {what}: stored {stored}, found {found}"
        ))
        .with_fix("point the source at the server it was reading, or remove the stored offset to start anew")
    };
    if stored.system_id != server.system_id {
        return Err(differs("cluster (system identifier)", &stored.system_id, &server.system_id));
    }
    if stored.database != server.database {
        return Err(differs("database", &stored.database, &server.database));
    }
    if stored.slot != server.slot {
        return Err(differs("replication slot", &stored.slot, &server.slot));
    }
    Ok(())
}

fn start_anew(slot: &str) -> String {
    format!(
        "either restore the slot {slot} with a backup of the server, or accept the gap: remove the stored offset (and \
         make the slot with `crabka init` if it is missing) to start at the slot's own position"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::{Fingerprint, Position};

    fn identity() -> StreamIdentity {
        StreamIdentity { system_id: "7".into(), database: "shop".into(), slot: "orders".into() }
    }

    fn stored(lsn: u64) -> StoredPosition {
        StoredPosition {
            identity: identity(),
            position: Position::at(Lsn::new(lsn)),
            fingerprint: Fingerprint::of([]),
            timeline: Some(1),
        }
    }

    fn server(wal_end: u64) -> ServerState {
        ServerState {
            identity: identity(),
            wal_end: Lsn::new(wal_end),
            timeline: 1,
            left_stored_timeline_at: None,
        }
    }

    fn slot(confirmed: u64) -> SlotRow {
        SlotRow {
            name: "orders".into(),
            plugin: Some("pgoutput".into()),
            slot_type: "logical".into(),
            database: Some("shop".into()),
            temporary: false,
            active: false,
            active_pid: None,
            restart_lsn: Some(Lsn::new(1)),
            confirmed_flush_lsn: Some(Lsn::new(confirmed)),
            wal_status: Some("reserved".into()),
            safe_wal_size: None,
            two_phase: false,
            conflicting: None,
            invalidation_reason: None,
            failover: None,
            synced: None,
        }
    }

    fn lost(result: Result<(), ConnectError>, words: &[&str]) {
        let error = result.unwrap_err();
        assert!(matches!(error, ConnectError::Offset(_)), "{error}");
        assert!(error.fix().is_some(), "{error}");
        for word in words {
            assert!(error.message().contains(word), "{word}: {error}");
        }
    }

    #[test]
    fn a_slot_at_or_behind_the_position_is_normal() {
        assert!(honoured(&stored(0x100), &server(0x200), Some(&slot(0x100))).is_ok());
        assert!(honoured(&stored(0x100), &server(0x100), Some(&slot(0x10))).is_ok());
    }

    #[test]
    fn del_26_a_slot_ahead_of_the_position_is_lost() {
        lost(honoured(&stored(0x100), &server(0x200), Some(&slot(0x101))), &["0/100", "0/101", "orders"]);
    }

    #[test]
    fn del_63_a_position_beyond_the_servers_wal_is_lost() {
        lost(honoured(&stored(0x201), &server(0x200), Some(&slot(0x100))), &["0/201", "0/200"]);
    }

    #[test]
    fn del_25_a_stored_position_without_a_slot_is_lost() {
        lost(honoured(&stored(0x100), &server(0x200), None), &["orders", "0/100"]);
    }

    #[test]
    fn a_refused_start_is_told_by_what_the_slot_is_now() {
        let refusal = || ConnectError::configuration("the server's words").with_sqlstate("55000");
        let told = |stored: Option<&StoredPosition>, slot: Option<&SlotRow>| {
            let error = refused_start(&identity(), stored, slot, refusal());
            (error.class(), error.message().to_owned())
        };
        use crabka_connect::ErrorClass::{Configuration, LostPosition};
        let position = stored(0x100);
        let (class, message) = told(Some(&position), None);
        assert!(class == LostPosition && message.contains("0/100"), "{message}");
        let (class, message) = told(None, None);
        assert!(class == Configuration && message.contains("does not exist"), "{message}");
        let invalidated = SlotRow { wal_status: Some("lost".into()), ..slot(0) };
        for stored in [None, Some(&position)] {
            let (class, message) = told(stored, Some(&invalidated));
            assert!(class == LostPosition && message.contains("lost"), "{message}");
        }
        let (class, message) = told(Some(&position), Some(&slot(0x10)));
        assert!(class == Configuration && message == "the server's words", "{message}");
    }

    #[test]
    fn del_27_a_lost_slot_is_a_lost_position() {
        let invalidated = SlotRow { wal_status: Some("lost".into()), confirmed_flush_lsn: None, ..slot(0) };
        lost(honoured(&stored(0x100), &server(0x200), Some(&invalidated)), &["orders", "lost"]);
    }

    #[test]
    fn del_32_a_position_of_another_cluster_database_or_slot_is_lost() {
        let others: [(&str, StreamIdentity); 3] = [
            ("system identifier", StreamIdentity { system_id: "8".into(), ..identity() }),
            ("database", StreamIdentity { database: "other".into(), ..identity() }),
            ("slot", StreamIdentity { slot: "other".into(), ..identity() }),
        ];
        for (word, identity) in others {
            let server = ServerState { identity, ..server(0x200) };
            lost(honoured(&stored(0x100), &server, Some(&slot(0x100))), &[word]);
        }
    }

    #[test]
    fn del_33_a_position_behind_the_promotion_of_a_lagging_standby_is_lost() {
        let promoted = |left_at: Option<u64>| ServerState {
            timeline: 2,
            left_stored_timeline_at: left_at.map(Lsn::new),
            ..server(0x900)
        };
        let check = |left_at| honoured(&stored(0x100), &promoted(left_at), Some(&slot(0x80)));
        assert!(check(Some(0x100)).is_ok());
        lost(check(Some(0xFF)), &["0/100", "0/FF", "timeline 1", "timeline 2"]);
        lost(check(None), &["0/100", "timeline 1"]);
        let on_a_standby = StoredPosition { timeline: None, ..stored(0x100) };
        assert!(honoured(&on_a_standby, &promoted(Some(0xFF)), Some(&slot(0x80))).is_ok());
    }

    #[test]
    fn del_65_a_two_phase_slot_is_a_configuration_error() {
        let slot = SlotRow { two_phase: true, ..slot(0x100) };
        let error = usable_slot(&slot, "shop").unwrap_err();
        assert!(matches!(error, ConnectError::Configuration(_)));
        assert!(error.message().contains("two-phase") && error.message().contains("orders"));
    }
}
