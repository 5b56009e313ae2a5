//! START_REPLICATION for `pgoutput`, with the options each server version knows.
//!
//! <https://www.postgresql.org/docs/18/protocol-logical-replication.html>

use crate::{Error, Lsn, StreamSettings, quote};

/// How large transactions are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Streaming {
    /// Each transaction whole, after its commit.
    #[default]
    Off,
    /// Large ones while they run (protocol 2, PostgreSQL 14).
    On,
    /// The same with positions in aborts (protocol 4, PostgreSQL 16).
    Parallel,
}

/// Which changes are sent by where they come from (PostgreSQL 16).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// All.
    Any,
    /// Only those made on this server.
    None,
}

/// A replication stream to start.
#[derive(Debug, Clone)]
pub struct StartReplication {
    slot: String,
    start: Lsn,
    acknowledged: Lsn,
    protocol_version: u32,
    publications: Vec<String>,
    binary: bool,
    messages: bool,
    streaming: Streaming,
    two_phase: bool,
    origin: Option<Origin>,
    pub(crate) settings: StreamSettings,
}

impl StartReplication {
    /// From `start` on (the stored `end_lsn`; `0/0` for the slot's own position), protocol 1, text values.
    pub fn new(slot: impl Into<String>, start: Lsn) -> Self {
        Self {
            slot: slot.into(),
            start,
            acknowledged: start,
            protocol_version: 1,
            publications: Vec::new(),
            binary: false,
            messages: false,
            streaming: Streaming::Off,
            two_phase: false,
            origin: None,
            settings: StreamSettings::default(),
        }
    }

    /// Where the stream starts.
    pub(crate) fn start(&self) -> Lsn {
        self.start
    }

    /// What is durable when the stream starts, and so what the first status reports as flushed. The start position
    /// without this.
    ///
    /// Lower than the start position when something that was received before is still on its way: the server must
    /// not forget it yet. Never higher.
    #[must_use]
    pub fn acknowledged(mut self, position: Lsn) -> Self {
        self.acknowledged = position.min(self.start);
        self
    }

    /// What is durable when the stream starts.
    pub(crate) fn durable(&self) -> Lsn {
        self.acknowledged
    }

    /// `pgoutput` protocol version, 1 to 4.
    #[must_use]
    pub fn protocol_version(mut self, version: u32) -> Self {
        self.protocol_version = version;
        self
    }

    /// The publications, by their exact names.
    #[must_use]
    pub fn publications<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.publications = names.into_iter().map(Into::into).collect();
        self
    }

    /// Values in the binary form of their types.
    #[must_use]
    pub fn binary(mut self, binary: bool) -> Self {
        self.binary = binary;
        self
    }

    /// Logical messages too.
    #[must_use]
    pub fn messages(mut self, messages: bool) -> Self {
        self.messages = messages;
        self
    }

    /// How large transactions are sent.
    #[must_use]
    pub fn streaming(mut self, streaming: Streaming) -> Self {
        self.streaming = streaming;
        self
    }

    /// Prepared transactions at their PREPARE (protocol 3, PostgreSQL 15). The slot keeps it for ever.
    #[must_use]
    pub fn two_phase(mut self, two_phase: bool) -> Self {
        self.two_phase = two_phase;
        self
    }

    /// Changes by origin.
    #[must_use]
    pub fn origin(mut self, origin: Origin) -> Self {
        self.origin = Some(origin);
        self
    }

    /// Feedback and read settings of the stream.
    #[must_use]
    pub fn settings(mut self, settings: StreamSettings) -> Self {
        self.settings = settings;
        self
    }

    /// The command for a server of this `server_version_num`.
    ///
    /// # Errors
    ///
    /// Configuration: an option that this version, or the protocol version asked for, does not have.
    pub fn command(&self, server_version_num: u32) -> Result<String, Error> {
        self.check(server_version_num)?;
        let mut names = Vec::new();
        for name in &self.publications {
            names.push(quote::identifier(name, "a publication name")?);
        }
        let names = quote::literal(&names.join(","), "a publication name")?;
        let mut options = vec![
            format!("\"proto_version\" '{}'", self.protocol_version),
            format!("\"publication_names\" {names}"),
        ];
        let mut option = |name: &str, value: &str| options.push(format!("\"{name}\" '{value}'"));
        if self.binary {
            option("binary", "true");
        }
        if self.messages {
            option("messages", "true");
        }
        match self.streaming {
            Streaming::Off => {}
            Streaming::On => option("streaming", "on"),
            Streaming::Parallel => option("streaming", "parallel"),
        }
        if self.two_phase {
            option("two_phase", "on");
        }
        match self.origin {
            None => {}
            Some(Origin::Any) => option("origin", "any"),
            Some(Origin::None) => option("origin", "none"),
        }
        let slot = quote::slot(&self.slot)?;
        Ok(format!("START_REPLICATION SLOT {slot} LOGICAL {} ({})", self.start, options.join(", ")))
    }

    fn check(&self, version: u32) -> Result<(), Error> {
        if self.publications.is_empty() {
            return Err(Error::config("no publication to stream; name at least one"));
        }
        let streaming = self.streaming != Streaming::Off;
        let parallel = self.streaming == Streaming::Parallel;
        // (in use, name, first server version, first protocol version)
        let needs = [
            (self.binary, "binary", 140_000, 1),
            (self.messages, "messages", 140_000, 1),
            (streaming, "streaming", 140_000, 2),
            (self.two_phase, "two_phase", 150_000, 3),
            (parallel, "streaming 'parallel'", 160_000, 4),
            (self.origin.is_some(), "origin", 160_000, 1),
            (self.protocol_version >= 2, "proto_version 2", 140_000, 1),
            (self.protocol_version >= 3, "proto_version 3", 150_000, 1),
            (self.protocol_version >= 4, "proto_version 4", 160_000, 1),
        ];
        for (used, name, since, protocol) in needs {
            if used && version < since {
                return Err(Error::config(format!(
                    "the pgoutput option {name} needs PostgreSQL {} or later, the server is: {}",
                    since / 10_000,
                    version / 10_000
                )));
            }
            if used && self.protocol_version < protocol {
                return Err(Error::config(format!(
                    "the pgoutput option {name} needs protocol version {protocol}, not: {}",
                    self.protocol_version
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> StartReplication {
        StartReplication::new("s", Lsn::new(0x16_B374_D848)).publications(["p"])
    }

    #[test]
    fn options_are_written_only_where_they_are_used() {
        assert_eq!(
            start().command(140_000).unwrap(),
            r#"START_REPLICATION SLOT "s" LOGICAL 16/B374D848 ("proto_version" '1', "publication_names" '"p"')"#
        );
        let all = start()
            .protocol_version(4)
            .binary(true)
            .messages(true)
            .streaming(Streaming::Parallel)
            .two_phase(true)
            .origin(Origin::None);
        let command = all.command(160_000).unwrap();
        let tail = r#""binary" 'true', "messages" 'true', "streaming" 'parallel', "two_phase" 'on', "origin" 'none')"#;
        assert!(command.ends_with(tail), "{command}");
    }

    #[test]
    fn publication_names_are_quoted_twice() {
        let names = [r#"We"ird.Näme"#, "it's, two", "plain"];
        let command = StartReplication::new("s", Lsn::ZERO).publications(names).command(170_000).unwrap();
        let written = r#""publication_names" '"We""ird.Näme","it''s, two","plain"')"#;
        assert!(command.ends_with(written), "{command}");
    }

    #[test]
    fn options_the_server_lacks_are_refused_here() {
        for (start, version, says) in [
            (
                start().protocol_version(3),
                140_000,
                "proto_version 3 needs PostgreSQL 15 or later, the server is: 14",
            ),
            (start().protocol_version(4), 150_000, "needs PostgreSQL 16"),
            (start().streaming(Streaming::On), 150_000, "needs protocol version 2, not: 1"),
            (
                start().protocol_version(2).streaming(Streaming::Parallel),
                160_000,
                "needs protocol version 4, not: 2",
            ),
            (start().protocol_version(2).two_phase(true), 160_000, "needs protocol version 3"),
            (start().origin(Origin::Any), 150_000, "origin needs PostgreSQL 16"),
            (start().publications(Vec::<String>::new()), 160_000, "no publication"),
            (start().publications([""]), 160_000, "is empty"),
        ] {
            let refusal = start.command(version).unwrap_err().to_string();
            assert!(refusal.contains(says), "{refusal}");
        }
    }
}
