//! Findings about the server: version, WAL level, room for slot and sender, retention, encoding, recovery.

use std::collections::HashMap;

use crabka_connect::ConnectError;

use super::{CheckRequest, Facts, Finding, id};
use crate::catalog::ServerInfo;
use crate::sql::{SqlConnection, column};

type Findings = Result<Vec<Finding>, ConnectError>;

/// The majors we are tested with.
const OLDEST_MAJOR: u32 = 14;
const NEWEST_MAJOR: u32 = 18;

pub(super) const IDS: &[&str] = &[id::SERVER_VERSION, id::WAL_LEVEL];
pub(super) const ROOM_IDS: &[&str] = &[id::REPLICATION_SLOTS_FREE, id::WAL_SENDERS_FREE];
pub(super) const RETENTION_IDS: &[&str] = &[id::MAX_SLOT_WAL_KEEP_SIZE, id::IDLE_REPLICATION_SLOT_TIMEOUT];

pub(super) fn findings(server: &ServerInfo) -> Findings {
    Ok(vec![version(server), wal_level(server)])
}

/// Whether the server is of a version we know.
pub(crate) fn version(server: &ServerInfo) -> Finding {
    let major = server.version_num / 10_000;
    let version = &server.version;
    if major < OLDEST_MAJOR {
        Finding::error(id::SERVER_VERSION, format!("PostgreSQL is older than {OLDEST_MAJOR}: {version}"))
            .mended_by(format!("upgrade the server to PostgreSQL {OLDEST_MAJOR} or later"))
    } else if major > NEWEST_MAJOR {
        Finding::warning(
            id::SERVER_VERSION,
            format!("PostgreSQL is newer than any version tested: {version}"),
        )
        .mended_by("upgrade crabka when a release names this version")
    } else {
        Finding::ok(id::SERVER_VERSION, format!("PostgreSQL {version}"))
    }
}

/// Whether WAL carries what logical decoding needs.
pub(crate) fn wal_level(server: &ServerInfo) -> Finding {
    if server.wal_level != "logical" {
        return Finding::error(id::WAL_LEVEL, format!("wal_level is not logical: {}", server.wal_level))
            .mended_by("ALTER SYSTEM SET wal_level = 'logical', then restart the server");
    }
    let whose = if server.in_recovery {
        "wal_level of this standby is logical; the primary's shows when the slot is created"
    } else {
        "wal_level is logical"
    };
    Finding::ok(id::WAL_LEVEL, whose)
}

/// Whether the server is a standby, and whether what that asks for is there.
pub(super) async fn recovery(sql: &SqlConnection, facts: &Facts) -> Findings {
    if !facts.server()?.in_recovery {
        return Ok(vec![Finding::ok(id::IN_RECOVERY, "the server is a primary")]);
    }
    if !sql.is_at_least(16) {
        return Ok(vec![
            Finding::error(
                id::IN_RECOVERY,
                "the server is a standby, which PostgreSQL 15 and older cannot decode on",
            )
            .mended_by("connect to the primary"),
        ]);
    }
    let query = "SELECT current_setting('hot_standby_feedback')::bool AS feedback, \
        coalesce(current_setting('primary_slot_name', true), '') <> '' AS slot";
    let row = sql.query_one("reading the standby's settings", query, &[]).await?;
    let mut findings = Vec::new();
    if !column::<bool>(&row, "feedback")? {
        findings.push(
            Finding::warning(
                id::IN_RECOVERY,
                "the server is a standby with hot_standby_feedback off: the primary may remove rows that the slot \
                 needs, which invalidates it",
            )
            .mended_by("ALTER SYSTEM SET hot_standby_feedback = on; SELECT pg_reload_conf() on the standby"),
        );
    }
    if !column::<bool>(&row, "slot")? {
        findings.push(
            Finding::warning(
                id::IN_RECOVERY,
                "the server is a standby without primary_slot_name: feedback is lost while it is disconnected",
            )
            .mended_by("create a physical slot on the primary and set primary_slot_name on the standby"),
        );
    }
    if facts.slot()?.is_none() {
        findings.push(
            Finding::warning(
                id::IN_RECOVERY,
                "the slot's creation waits for the next running-transactions record of the primary",
            )
            .mended_by("SELECT pg_log_standby_snapshot() on the primary"),
        );
    }
    if findings.is_empty() {
        findings.push(Finding::ok(id::IN_RECOVERY, "the server is a standby, set up for decoding"));
    }
    Ok(findings)
}

/// Whether there is room for one more slot and one more sender.
pub(super) async fn room(sql: &SqlConnection, request: &CheckRequest<'_>, facts: &Facts) -> Findings {
    let query = "SELECT current_setting('max_replication_slots')::int AS slots_max, \
        (SELECT count(*)::int FROM pg_replication_slots) AS slots, \
        current_setting('max_wal_senders')::int AS senders_max, \
        (SELECT count(*)::int FROM pg_stat_replication) AS senders, \
        ARRAY(SELECT slot_name::text FROM pg_replication_slots WHERE NOT active ORDER BY 1 LIMIT 10) AS unused";
    let row = sql.query_one("reading slots and senders", query, &[]).await?;
    let number = |name| column::<i32>(&row, name);
    let unused: Vec<String> = column(&row, "unused")?;
    let (slots, slots_max) = (number("slots")?, number("slots_max")?);
    let (senders, senders_max) = (number("senders")?, number("senders_max")?);

    let slot = facts.slot()?;
    let slots_text = format!("{slots} of {slots_max} replication slots are in use");
    let slots_finding = if slots < slots_max {
        Finding::ok(id::REPLICATION_SLOTS_FREE, slots_text)
    } else if slot.is_some() {
        Finding::ok(id::REPLICATION_SLOTS_FREE, format!("{slots_text}, ours among them"))
    } else {
        let mut fix =
            format!("ALTER SYSTEM SET max_replication_slots = {}, then restart the server", slots_max + 5);
        if !unused.is_empty() {
            fix.push_str(&format!(
                "; or SELECT pg_drop_replication_slot(…) one that nobody needs any more; not active now: {}",
                unused.join(", ")
            ));
        }
        Finding::error(id::REPLICATION_SLOTS_FREE, format!("no replication slot is free: {slots_text}"))
            .mended_by(fix)
    };

    let ours = slot.is_some_and(|slot| slot.active) && request.slot.is_some();
    let senders_text = format!("{senders} of {senders_max} WAL senders are in use");
    let senders_finding = if senders < senders_max {
        Finding::ok(id::WAL_SENDERS_FREE, senders_text)
    } else if ours {
        Finding::ok(id::WAL_SENDERS_FREE, format!("{senders_text}, the one on our slot among them"))
    } else {
        Finding::error(id::WAL_SENDERS_FREE, format!("no WAL sender is free: {senders_text}")).mended_by(
            format!(
                "ALTER SYSTEM SET max_wal_senders = {}, then restart the server; or stop a consumer that \
             SELECT pid, application_name FROM pg_stat_replication shows",
                senders_max + 5
            ),
        )
    };
    Ok(vec![slots_finding, senders_finding])
}

/// What invalidates a slot that is not read in time.
pub(super) async fn retention(sql: &SqlConnection) -> Findings {
    let query = "SELECT name::text AS name, setting::int8 AS setting, unit::text AS unit FROM pg_settings \
        WHERE name IN ('max_slot_wal_keep_size', 'max_wal_size', 'idle_replication_slot_timeout')";
    let mut settings = HashMap::new();
    for row in sql.query("reading retention settings", query, &[]).await? {
        let value: i64 = column(&row, "setting")?;
        let seconds_or_mb = match column::<Option<String>>(&row, "unit")?.as_deref() {
            Some("min") => value * 60,
            _ => value,
        };
        settings.insert(column::<String>(&row, "name")?, seconds_or_mb);
    }
    let of = |name: &str| settings.get(name).copied();
    Ok(vec![
        keep_size(of("max_slot_wal_keep_size"), of("max_wal_size")),
        idle_timeout(of("idle_replication_slot_timeout")),
    ])
}

/// A limit below `max_wal_size` can pass between two checkpoints, in the time of an ordinary restart of ours.
fn keep_size(keep_mb: Option<i64>, max_wal_mb: Option<i64>) -> Finding {
    let id = id::MAX_SLOT_WAL_KEEP_SIZE;
    let advised_mb = max_wal_mb.unwrap_or(1024).max(1024);
    match keep_mb {
        Some(mb) if (0..advised_mb).contains(&mb) => Finding::warning(
            id,
            format!("a slot is lost once it holds back more WAL than max_slot_wal_keep_size, which is small: {mb} MB"),
        )
        .mended_by(format!(
            "ALTER SYSTEM SET max_slot_wal_keep_size = '{} MB'; SELECT pg_reload_conf()",
            advised_mb * 10
        )),
        Some(mb) if mb >= 0 => Finding::ok(id, format!("a slot may hold back {mb} MB of WAL")),
        _ => Finding::ok(id, "a slot may hold back WAL without limit: watch the disk while the source is stopped"),
    }
}

/// A day covers a stop over night.
fn idle_timeout(timeout_s: Option<i64>) -> Finding {
    const DAY_S: i64 = 24 * 60 * 60;
    let id = id::IDLE_REPLICATION_SLOT_TIMEOUT;
    match timeout_s {
        Some(seconds) if (1..DAY_S).contains(&seconds) => Finding::warning(
            id,
            format!("a slot is lost after the source was stopped for this long: {seconds} s"),
        )
        .mended_by("ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf()"),
        Some(seconds) if seconds >= DAY_S => Finding::ok(id, format!("a slot may be unused for {seconds} s")),
        _ => Finding::ok(id, "a slot may be unused for any time"),
    }
}

/// Whether every character of the database has a form in UTF-8.
pub(super) async fn encoding(sql: &SqlConnection) -> Findings {
    let query = "SELECT d.name, d.name = 'UTF8' OR EXISTS (SELECT FROM pg_conversion c \
        WHERE c.conforencoding = pg_char_to_encoding(d.name) AND c.contoencoding = pg_char_to_encoding('UTF8') \
        AND c.condefault) AS converts FROM (SELECT getdatabaseencoding()::text) d(name)";
    let row = sql.query_one("reading the encoding", query, &[]).await?;
    let name: String = column(&row, "name")?;
    let new_database = "copy the data into a database with ENCODING 'UTF8'";
    Ok(vec![if name == "SQL_ASCII" {
        Finding::warning(
            id::SERVER_ENCODING,
            "the database is SQL_ASCII: it holds bytes of any encoding, and a value that is not UTF-8 stops the stream",
        )
        .mended_by(new_database)
    } else if column(&row, "converts")? {
        Finding::ok(id::SERVER_ENCODING, format!("the database's encoding is {name}"))
    } else {
        Finding::error(
            id::SERVER_ENCODING,
            format!("the server cannot turn the database's encoding into UTF-8: {name}"),
        )
        .mended_by(new_database)
    }])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Severity;

    fn server(version_num: u32, wal_level: &str) -> ServerInfo {
        ServerInfo {
            version_num,
            version: "x".into(),
            in_recovery: false,
            wal_level: wal_level.into(),
            system_identifier: 1,
            database_oid: 5,
            database: "d".into(),
            server_encoding: "UTF8".into(),
            role: "r".into(),
        }
    }

    #[test]
    fn ops_06_versions_before_14_are_refused() {
        for (version, severity) in [
            (130_023, Severity::Error),
            (140_000, Severity::Ok),
            (180_004, Severity::Ok),
            (190_000, Severity::Warning),
        ] {
            assert_eq!(super::version(&server(version, "logical")).severity, severity, "{version}");
        }
    }

    #[test]
    fn a_slot_limit_below_one_checkpoint_cycle_is_a_warning() {
        let severity = |keep, max| keep_size(keep, max).severity;
        assert_eq!(severity(Some(-1), Some(1024)), Severity::Ok);
        assert_eq!(severity(Some(0), Some(1024)), Severity::Warning);
        assert_eq!(severity(Some(64), Some(1024)), Severity::Warning);
        assert_eq!(severity(Some(2048), Some(4096)), Severity::Warning);
        assert_eq!(severity(Some(4096), Some(4096)), Severity::Ok);
        assert_eq!(severity(None, None), Severity::Ok);
    }

    #[test]
    fn an_idle_limit_below_a_day_is_a_warning() {
        assert_eq!(idle_timeout(None).severity, Severity::Ok);
        assert_eq!(idle_timeout(Some(0)).severity, Severity::Ok);
        assert_eq!(idle_timeout(Some(3600)).severity, Severity::Warning);
        assert_eq!(idle_timeout(Some(86_400)).severity, Severity::Ok);
    }
}
