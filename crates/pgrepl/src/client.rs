//! A logged-in replication connection in command mode.
//!
//! <https://www.postgresql.org/docs/18/protocol-replication.html>

use std::collections::BTreeMap;

use postgres_protocol::message::frontend;

use crate::auth::log_in;
use crate::cancel::CancelHandle;
use crate::config::{Config, PINNED_SETTINGS};
use crate::link::Link;
use crate::login::ServerRole;
use crate::protocol::backend::{self, BackendKey, tag};
use crate::protocol::frame::Frame;
use crate::slot::{CreateSlot, CreatedSlot, drop_command};
use crate::start::StartReplication;
use crate::stream::ReplicationStream;
use crate::timeline::switch_point;
use crate::transport::{Peer, Transport};
use crate::{Error, Lsn};

const STARTING: &str = "starting the session";
const QUERYING: &str = "waiting for the answer to a command";

/// The answer to IDENTIFY_SYSTEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemIdentity {
    /// Unique to the cluster, kept by its standbys.
    pub system_id: String,
    /// Changes at each promotion.
    pub timeline: u32,
    /// How far the server's WAL is flushed; replayed, on a standby.
    pub position: Lsn,
    /// The database of the connection.
    pub dbname: Option<String>,
}

/// Rows in text form.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueryResult {
    /// Column names of the last statement that returned rows.
    pub columns: Vec<String>,
    /// Its rows; `None` is NULL.
    pub rows: Vec<Vec<Option<String>>>,
    /// The command tag of the last statement.
    pub tag: String,
}

impl QueryResult {
    /// A value of the first row by column name.
    pub fn value(&self, column: &str) -> Option<&str> {
        let index = self.columns.iter().position(|name| name == column)?;
        self.rows.first()?.get(index)?.as_deref()
    }
}

/// A replication connection (`replication=database`) that takes commands.
pub struct ReplicationClient {
    link: Link,
    parameters: BTreeMap<String, String>,
    key: Option<BackendKey>,
    config: Config,
    /// The answer to an earlier command, whose future was dropped, is still to be read.
    answer_pending: bool,
}

impl std::fmt::Debug for ReplicationClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplicationClient").field("peer", self.peer()).finish_non_exhaustive()
    }
}

impl ReplicationClient {
    /// Connects to the first host that works and logs in.
    ///
    /// # Errors
    ///
    /// Transient: no host could be reached. Configuration, authentication: what was refused, and what to change.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes whatever was opened.
    pub async fn connect(config: &Config) -> Result<Self, Error> {
        config
            .connect_with(|transport| async move {
                let client = Self::connect_over(transport, config).await?;
                let role = ServerRole::from_parameters(|name| client.parameter(name));
                Ok((client, role))
            })
            .await
    }

    /// Logs in over a transport that is already open.
    ///
    /// # Errors
    ///
    /// As [`ReplicationClient::connect`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the transport.
    pub async fn connect_over(transport: Transport, config: &Config) -> Result<Self, Error> {
        let mut client = Self {
            link: Link::new(transport, config.frame_limit),
            parameters: BTreeMap::new(),
            key: None,
            config: config.clone(),
            answer_pending: false,
        };
        log_in(&mut client.link, config).await?;
        loop {
            let frame = client.message(STARTING).await?;
            match frame.tag {
                tag::BACKEND_KEY_DATA => client.key = Some(backend::backend_key(&frame.body)?),
                tag::READY_FOR_QUERY => break,
                tag::ERROR_RESPONSE => {
                    return Err(Error::Server(Box::new(backend::server_message(&frame.body)?)));
                }
                tag::NEGOTIATE_PROTOCOL_VERSION => {}
                other => return Err(unexpected(other, STARTING)),
            }
        }
        client.pin_settings().await?;
        Ok(client)
    }

    /// Sets what the startup packet asked for, where a connection pooler in between has dropped it: the settings that
    /// a server reports by itself show that.
    async fn pin_settings(&mut self) -> Result<(), Error> {
        let differs =
            |name: &str, fits: fn(&str) -> bool| self.parameter(name).is_some_and(|value| !fits(value));
        let dropped = differs("DateStyle", |value| value.starts_with("ISO"))
            || differs("IntervalStyle", |value| value == "postgres")
            || differs("TimeZone", |value| value == "UTC")
            || differs("client_encoding", |value| value == "UTF8");
        if !dropped {
            return Ok(());
        }
        tracing::debug!("the startup options did not reach the server; setting them one by one");
        self.query("SET client_encoding = 'UTF8'").await?;
        for (name, value) in PINNED_SETTINGS {
            self.query(&format!("SET {name} = '{value}'")).await?;
        }
        if let Some(timeout) = self.config.wal_sender_timeout {
            self.query(&format!("SET wal_sender_timeout = {}", timeout.as_millis())).await?;
        }
        Ok(())
    }

    /// What the connection leads to; [`Config::pinned_to`] makes more connections to the same server.
    pub fn peer(&self) -> &Peer {
        self.link.transport.peer()
    }

    /// A parameter that the server reports, such as `server_version`, `server_encoding`, `in_hot_standby`.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    /// The version as a number: 150018 for 15.18; 0 when the server did not say.
    pub fn server_version_num(&self) -> u32 {
        self.parameter("server_version").map_or(0, version_num)
    }

    /// Process id of the server's backend.
    pub fn backend_pid(&self) -> Option<i32> {
        self.key.as_ref().map(|key| key.pid)
    }

    /// Cancels what this connection is doing, from another task.
    pub fn cancel_handle(&self) -> Option<CancelHandle> {
        let key = self.key.clone()?;
        Some(CancelHandle::new(self.config.clone().pinned_to(self.peer()), key))
    }

    /// The next message that is not a notice or a changed parameter.
    async fn message(&mut self, during: &'static str) -> Result<Frame, Error> {
        loop {
            let frame = self.link.frame(during).await?;
            match frame.tag {
                tag::NOTICE_RESPONSE => {
                    let notice = backend::server_message(&frame.body)?;
                    tracing::debug!(
                        severity = notice.severity(),
                        sqlstate = notice.sqlstate(),
                        "server notice: {}",
                        notice.message()
                    );
                }
                tag::PARAMETER_STATUS => {
                    let (name, value) = backend::parameter_status(&frame.body)?;
                    self.parameters.insert(name, value);
                }
                tag::NOTIFICATION_RESPONSE => {}
                _ => return Ok(frame),
            }
        }
    }

    /// Sends a command, after reading to its end the answer to an abandoned one.
    async fn send_command(&mut self, sql: &str) -> Result<(), Error> {
        while self.answer_pending {
            if self.message(QUERYING).await?.tag == tag::READY_FOR_QUERY {
                self.answer_pending = false;
            }
        }
        // Checked first: the encoder would leave half a message behind.
        if sql.contains('\0') {
            return Err(Error::config("a command contains a zero byte and cannot be sent"));
        }
        frontend::query(sql, &mut self.link.out)
            .map_err(|error| Error::config(format!("a command cannot be sent: {error}")))?;
        self.answer_pending = true;
        Ok(())
    }

    /// Runs SQL or a replication command by the simple query protocol and collects its rows.
    ///
    /// # Errors
    ///
    /// Server: the command failed; the connection can be used again. Transient, protocol: it cannot.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the command goes on at the server; its answer is read and discarded before the next
    /// command. To stop it at the server use [`ReplicationClient::cancel_handle`].
    pub async fn query(&mut self, sql: &str) -> Result<QueryResult, Error> {
        self.send_command(sql).await?;
        let mut result = QueryResult::default();
        let mut failure = None;
        loop {
            let frame = self.message(QUERYING).await?;
            match frame.tag {
                tag::ROW_DESCRIPTION => {
                    result.columns = backend::row_description(&frame.body)?;
                    result.rows.clear();
                }
                tag::DATA_ROW => result.rows.push(backend::data_row(&frame.body)?),
                tag::COMMAND_COMPLETE => result.tag = backend::command_complete(&frame.body)?,
                tag::EMPTY_QUERY_RESPONSE => {}
                tag::ERROR_RESPONSE => {
                    let message = backend::server_message(&frame.body)?;
                    // Nothing follows: the server is hanging up.
                    if message.severity() == "FATAL" || message.severity() == "PANIC" {
                        return Err(Error::Server(Box::new(message)));
                    }
                    failure = Some(message);
                }
                tag::COPY_OUT_RESPONSE | tag::COPY_DATA | tag::COPY_DONE => {}
                tag::COPY_IN_RESPONSE => {
                    frontend::copy_fail("copying in is not supported on this connection", &mut self.link.out)
                        .map_err(|error| Error::io("cannot refuse COPY", error))?;
                }
                tag::READY_FOR_QUERY => {
                    self.answer_pending = false;
                    return match failure {
                        None => Ok(result),
                        Some(message) => Err(Error::Server(Box::new(message))),
                    };
                }
                other => return Err(unexpected(other, QUERYING)),
            }
        }
    }

    /// Which cluster this is and where its WAL ends.
    ///
    /// # Errors
    ///
    /// As [`ReplicationClient::query`].
    ///
    /// # Cancel safety
    ///
    /// As [`ReplicationClient::query`].
    pub async fn identify_system(&mut self) -> Result<SystemIdentity, Error> {
        let answer = self.query("IDENTIFY_SYSTEM").await?;
        let field = |name: &str| {
            answer
                .value(name)
                .ok_or_else(|| Error::protocol(format!("IDENTIFY_SYSTEM returned no value for {name}")))
        };
        Ok(SystemIdentity {
            system_id: field("systemid")?.to_owned(),
            timeline: field("timeline")?
                .parse()
                .map_err(|_| Error::protocol("IDENTIFY_SYSTEM returned a timeline that is not a number"))?,
            position: position(field("xlogpos")?)?,
            dbname: answer.value("dbname").map(str::to_owned),
        })
    }

    /// Where the history of the server, which is on timeline `current` now, left another timeline; `None` when it never
    /// was on that one. What lies behind that position on the other timeline is not part of this server's history.
    ///
    /// # Errors
    ///
    /// As [`ReplicationClient::query`].
    ///
    /// # Cancel safety
    ///
    /// As [`ReplicationClient::query`].
    pub async fn left_timeline_at(&mut self, current: u32, timeline: u32) -> Result<Option<Lsn>, Error> {
        let answer = self.query(&format!("TIMELINE_HISTORY {current}")).await?;
        let history =
            answer.value("content").ok_or_else(|| Error::protocol("TIMELINE_HISTORY returned no content"))?;
        switch_point(history, timeline)
    }

    /// Creates a slot.
    ///
    /// The server waits for every running transaction of the whole cluster that has written something, possibly for
    /// ever, and `statement_timeout` does not end that: put a time limit around it and cancel by
    /// [`ReplicationClient::cancel_handle`], which leaves no slot behind.
    ///
    /// # Errors
    ///
    /// Configuration: an option this server does not have. Server: 42710 the slot exists, 53400 no slot is free, 42501
    /// the role lacks REPLICATION, 57014 cancelled.
    ///
    /// # Cancel safety
    ///
    /// As [`ReplicationClient::query`]: the half-made slot stays until the wait ends.
    ///
    /// # Durability
    ///
    /// A permanent slot holds WAL from this moment on, until it is dropped.
    pub async fn create_replication_slot(&mut self, slot: &CreateSlot) -> Result<CreatedSlot, Error> {
        let command = slot.command(self.server_version_num())?;
        let answer = self.query(&command).await?;
        let field = |name: &str| {
            answer.value(name).ok_or_else(|| {
                Error::protocol(format!("CREATE_REPLICATION_SLOT returned no value for {name}"))
            })
        };
        Ok(CreatedSlot {
            name: field("slot_name")?.to_owned(),
            consistent_point: position(field("consistent_point")?)?,
            snapshot: answer.value("snapshot_name").map(str::to_owned),
        })
    }

    /// Drops a slot; with `wait` an active one as soon as it is free.
    ///
    /// # Errors
    ///
    /// Server: 42704 there is none; 55006 it is active and `wait` is false.
    ///
    /// # Cancel safety
    ///
    /// As [`ReplicationClient::query`].
    ///
    /// # Durability
    ///
    /// The position is gone for good; the WAL it held is released.
    pub async fn drop_replication_slot(&mut self, name: &str, wait: bool) -> Result<(), Error> {
        self.query(&drop_command(name, wait)?).await.map(drop)
    }

    /// Starts streaming.
    ///
    /// A start position beyond the server's WAL is accepted by the server and loses data: compare it with
    /// [`ReplicationClient::identify_system`] first.
    ///
    /// # Errors
    ///
    /// Configuration: an option this server does not have. Server: 55006 the slot is in use, 42704 it does not exist,
    /// 55000 it cannot be used (its row in `pg_replication_slots` says why).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn start_replication(mut self, start: &StartReplication) -> Result<ReplicationStream, Error> {
        let command = start.command(self.server_version_num())?;
        let sender_timeout = match self.config.wal_sender_timeout {
            Some(timeout) => Some(timeout),
            None => self.wal_sender_timeout().await?,
        };
        self.send_command(&command).await?;
        let frame = self.message("starting the stream").await?;
        match frame.tag {
            tag::COPY_BOTH_RESPONSE => Ok(ReplicationStream::new(self.link, start, sender_timeout)),
            tag::ERROR_RESPONSE => Err(Error::Server(Box::new(backend::server_message(&frame.body)?))),
            other => Err(unexpected(other, "starting the stream")),
        }
    }

    /// The server's own `wal_sender_timeout`.
    async fn wal_sender_timeout(&mut self) -> Result<Option<std::time::Duration>, Error> {
        let sql = "SELECT setting FROM pg_catalog.pg_settings WHERE name = 'wal_sender_timeout'";
        let answer = self.query(sql).await?;
        let milliseconds = answer.value("setting").and_then(|text| text.parse().ok()).unwrap_or(0);
        Ok((milliseconds > 0).then(|| std::time::Duration::from_millis(milliseconds)))
    }
}

fn position(text: &str) -> Result<Lsn, Error> {
    text.parse().map_err(|_| Error::protocol("the server returned a position that is not HEX/HEX"))
}

fn unexpected(tag: u8, during: &str) -> Error {
    Error::protocol(format!("unexpected message while {during}: {:?}", char::from(tag)))
}

/// `15.18 (Debian 15.18-1)` is 150018, `18beta1` is 180000.
fn version_num(text: &str) -> u32 {
    let leading = |text: &str| {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().unwrap_or(0)
    };
    let major = leading(text);
    let minor = text.split_once('.').map_or(0, |(_, minor)| leading(minor));
    major.saturating_mul(10_000).saturating_add(minor)
}

#[cfg(test)]
mod tests {
    use super::version_num;

    #[test]
    fn versions_become_numbers() {
        for (text, number) in [
            ("15.18 (Debian 15.18-1.pgdg12+1)", 150_018),
            ("18.3", 180_003),
            ("18beta1", 180_000),
            ("19devel", 190_000),
            ("", 0),
        ] {
            assert_eq!(version_num(text), number, "{text}");
        }
    }
}
