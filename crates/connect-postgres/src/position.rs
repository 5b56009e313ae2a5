//! Positions in the stream, and their form inside a [`SourceOffset`].
//!
//! A change's identity is `(commit_lsn, ordinal)`, never an LSN alone: rows of one COPY share their LSN, and LSNs of
//! interleaved transactions are not monotone. What is stored is where START_REPLICATION resumes (the end LSN of
//! the last complete transaction, or an idle position) and, inside a transaction, how many of its changes were
//! delivered.

use std::collections::BTreeMap;

use crabka_connect::{ConnectError, Scalar, SourceOffset};
use crabka_pgrepl::Lsn;

/// Version of the offset's fields; a newer one is refused.
const FORMAT: u64 = 1;

/// A place between two changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// Where START_REPLICATION resumes: everything that committed before it is delivered.
    pub resume_lsn: Lsn,
    /// End LSN of the last commit seen, for `source.sequence`; not a resume position of its own.
    pub last_commit_end_lsn: Option<Lsn>,
    /// The transaction that is partly delivered.
    pub open: Option<OpenTransaction>,
}

/// A transaction of which some changes are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenTransaction {
    /// LSN of its commit record.
    pub commit_lsn: Lsn,
    /// How many of its changes are delivered.
    pub delivered: u64,
}

impl Position {
    /// Between transactions, at `lsn`.
    pub fn at(lsn: Lsn) -> Self {
        Self { resume_lsn: lsn, last_commit_end_lsn: None, open: None }
    }
}

/// Names the stream an offset belongs to: the partition of its [`SourceOffset`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamIdentity {
    /// System identifier of the cluster.
    pub system_id: String,
    /// Database name.
    pub database: String,
    /// Replication slot.
    pub slot: String,
}

/// An offset of this source, read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPosition {
    /// The stream it belongs to.
    pub identity: StreamIdentity,
    /// The place in it.
    pub position: Position,
    /// What decided which changes are counted; see [`Fingerprint`].
    pub fingerprint: Fingerprint,
    /// The server's timeline when the position was reached; `None` on a standby, whose timeline changes under a running
    /// stream when it is promoted.
    pub timeline: Option<u32>,
}

/// Identifies the options that decide which changes of a transaction the server sends, and so what an ordinal counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// Over the given parts, in order.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        // FNV-1a: stable over releases and platforms, which std's hashers do not promise.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for part in parts {
            for byte in part.bytes().chain([0xFF]) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
        }
        Self(hash)
    }
}

impl StoredPosition {
    /// The offset to store.
    pub fn to_offset(&self) -> SourceOffset {
        let mut offset = SourceOffset::default();
        let identity = &self.identity;
        for (name, value) in
            [("system_id", &identity.system_id), ("database", &identity.database), ("slot", &identity.slot)]
        {
            offset.partition.insert(name.to_owned(), Scalar::from(value.as_str()));
        }
        let mut set = |name: &str, value: Scalar| offset.position.insert(name.to_owned(), value);
        set("version", Scalar::from(FORMAT));
        set("lsn", Scalar::from(self.position.resume_lsn.to_string()));
        set("fingerprint", Scalar::from(format!("{:016x}", self.fingerprint.0)));
        if let Some(timeline) = self.timeline {
            set("timeline", Scalar::from(u64::from(timeline)));
        }
        if let Some(lsn) = self.position.last_commit_end_lsn {
            set("last_commit_end_lsn", Scalar::from(lsn.to_string()));
        }
        if let Some(open) = self.position.open {
            set("transaction_commit_lsn", Scalar::from(open.commit_lsn.to_string()));
            set("transaction_changes_delivered", Scalar::from(open.delivered));
        }
        offset
    }

    /// Reads what [`to_offset`](Self::to_offset) wrote.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Offset`] that names the field which is missing, unknown or of the wrong form. Unknown fields are
    /// refused: nobody has said that ignoring them is safe.
    pub fn from_offset(offset: &SourceOffset) -> Result<Self, ConnectError> {
        let partition = Fields { map: &offset.partition, part: "partition" };
        let position = Fields { map: &offset.position, part: "position" };
        let version = position.number("version")?;
        if version != FORMAT {
            return Err(refused(format!("stored offset has position.version {version}, known is {FORMAT}")));
        }
        partition.only(&["system_id", "database", "slot"])?;
        position.only(&[
            "version",
            "lsn",
            "fingerprint",
            "timeline",
            "last_commit_end_lsn",
            "transaction_commit_lsn",
            "transaction_changes_delivered",
        ])?;
        let identity = StreamIdentity {
            system_id: partition.text("system_id")?.to_owned(),
            database: partition.text("database")?.to_owned(),
            slot: partition.text("slot")?.to_owned(),
        };
        let fingerprint = u64::from_str_radix(position.text("fingerprint")?, 16)
            .map(Fingerprint)
            .map_err(|_| position.malformed("fingerprint", "16 hexadecimal digits"))?;
        let open = match position.optional_lsn("transaction_commit_lsn")? {
            Some(commit_lsn) => Some(OpenTransaction {
                commit_lsn,
                delivered: position.number("transaction_changes_delivered")?,
            }),
            None if position.map.contains_key("transaction_changes_delivered") => {
                return Err(position.malformed("transaction_commit_lsn", "a log sequence number"));
            }
            None => None,
        };
        let resume_lsn = position
            .optional_lsn("lsn")?
            .filter(|lsn| *lsn != Lsn::ZERO)
            .ok_or_else(|| position.malformed("lsn", "a log sequence number other than 0/0"))?;
        if open.is_some_and(|open| open.commit_lsn < resume_lsn) {
            return Err(position.malformed("transaction_commit_lsn", "a log sequence number not below lsn"));
        }
        let last_commit_end_lsn = position.optional_lsn("last_commit_end_lsn")?;
        let timeline = match position.map.get("timeline") {
            Some(_) => Some(
                u32::try_from(position.number("timeline")?)
                    .map_err(|_| position.malformed("timeline", "a timeline"))?,
            ),
            None => None,
        };
        let position = Position { resume_lsn, last_commit_end_lsn, open };
        Ok(Self { identity, position, fingerprint, timeline })
    }
}

/// One of the two maps of an offset.
struct Fields<'a> {
    map: &'a BTreeMap<String, Scalar>,
    part: &'static str,
}

impl Fields<'_> {
    fn malformed(&self, name: &str, expected: &str) -> ConnectError {
        refused(format!("stored offset: {}.{name} is not {expected}", self.part))
    }

    fn text(&self, name: &str) -> Result<&str, ConnectError> {
        self.map.get(name).and_then(Scalar::as_str).ok_or_else(|| self.malformed(name, "a string"))
    }

    fn number(&self, name: &str) -> Result<u64, ConnectError> {
        self.map.get(name).and_then(Scalar::as_u64).ok_or_else(|| self.malformed(name, "a number"))
    }

    fn optional_lsn(&self, name: &str) -> Result<Option<Lsn>, ConnectError> {
        if !self.map.contains_key(name) {
            return Ok(None);
        }
        self.text(name)?.parse().map(Some).map_err(|_| self.malformed(name, "a log sequence number"))
    }

    fn only(&self, known: &[&str]) -> Result<(), ConnectError> {
        match self.map.keys().find(|name| !known.contains(&name.as_str())) {
            Some(name) => Err(refused(format!(
                "stored offset has a field this version does not know: {}.{name}",
                self.part
            ))),
            None => Ok(()),
        }
    }
}

fn refused(message: String) -> ConnectError {
    ConnectError::offset(message).with_fix(
        "use the release that wrote it, or remove the stored offset to start at the slot's own position",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored() -> StoredPosition {
        StoredPosition {
            identity: StreamIdentity {
                system_id: "7".into(),
                database: "shop".into(),
                slot: "orders".into(),
            },
            position: Position {
                resume_lsn: Lsn::new(0x16_0000_0010),
                last_commit_end_lsn: Some(Lsn::new(0x10)),
                open: Some(OpenTransaction { commit_lsn: Lsn::new(0x16_0000_0100), delivered: 3 }),
            },
            fingerprint: Fingerprint::of(["p"]),
            timeline: Some(2),
        }
    }

    #[test]
    fn an_offset_round_trips_and_is_byte_stable() {
        let offset = stored().to_offset();
        assert_eq!(StoredPosition::from_offset(&offset).unwrap(), stored());
        let json = offset.to_json();
        assert_eq!(
            json,
            concat!(
                r#"{"partition":{"database":"shop","slot":"orders","system_id":"7"},"position":{"#,
                r#""fingerprint":"08d5c907b5763fb0","last_commit_end_lsn":"0/10","lsn":"16/10","#,
                r#""timeline":2,"transaction_changes_delivered":3,"transaction_commit_lsn":"16/100","version":1}}"#
            )
        );
        assert_eq!(SourceOffset::from_json(json.as_bytes()).unwrap(), offset);
    }

    #[test]
    fn del_22_an_offset_of_another_version_is_refused_by_field_name() {
        type Damage = fn(&mut SourceOffset);
        let cases: [(&str, Damage); 11] = [
            ("position.version", |o| drop(o.position.insert("version".into(), Scalar::from(2_u64)))),
            ("position.version", |o| drop(o.position.remove("version"))),
            ("position.lsn", |o| drop(o.position.insert("lsn".into(), Scalar::from("0/0")))),
            ("position.lsn", |o| drop(o.position.insert("lsn".into(), Scalar::from(7_u64)))),
            ("position.lsn", |o| drop(o.position.remove("lsn"))),
            ("position.fingerprint", |o| drop(o.position.insert("fingerprint".into(), Scalar::from("xyz")))),
            ("position.timeline", |o| drop(o.position.insert("timeline".into(), Scalar::from("one")))),
            ("position.extra", |o| drop(o.position.insert("extra".into(), Scalar::Null))),
            ("partition.shard", |o| drop(o.partition.insert("shard".into(), Scalar::from(1_u64)))),
            ("partition.slot", |o| drop(o.partition.remove("slot"))),
            ("position.transaction_commit_lsn", |o| drop(o.position.remove("transaction_commit_lsn"))),
        ];
        for (field, damage) in cases {
            let mut offset = stored().to_offset();
            damage(&mut offset);
            let error = StoredPosition::from_offset(&offset).unwrap_err();
            assert!(matches!(error, ConnectError::Offset(_)), "{field}");
            assert!(error.message().contains(field), "{field}: {error}");
        }
    }

    #[test]
    fn a_fingerprint_depends_on_every_part_and_on_their_borders() {
        assert_ne!(Fingerprint::of(["a", "b"]), Fingerprint::of(["ab"]));
        assert_ne!(Fingerprint::of(["a", "b"]), Fingerprint::of(["b", "a"]));
        assert_eq!(Fingerprint::of(["a", "b"]), Fingerprint::of(["a", "b"]));
    }
}
