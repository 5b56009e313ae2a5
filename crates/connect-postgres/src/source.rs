//! `impl Source`: what the host drives.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use crabka_connect::{ConnectError, ConnectRecord, Source, SourceOffset};
use crabka_pgrepl::Lsn;
use tokio::time::timeout;

use crate::assemble::Item;
use crate::config::{PostgresSourceConfig, SlotMode};
use crate::event::{ChangeEvent, ChangeKey, SourceInfo};
use crate::figures::{SourceFigures, StreamState};
use crate::position::{Fingerprint, Position, StoredPosition, StreamIdentity};
use crate::records::{ChangeRecord, Expander, FixedTopics, Placed};
use crate::session::start::{self, Started};
use crate::session::starting::Starting;
use crate::session::{End, SessionHandle};
use crate::verify::same_stream;

/// How long `poll` waits on an idle stream before it says *caught up*. Short, because the host acknowledges between
/// polls.
const IDLE_WAIT: Duration = Duration::from_millis(5);

/// Changes of a PostgreSQL database, read from a logical replication slot.
///
/// The session with the server starts at the first [`poll`](Source::poll) or at [`seek`](Source::seek). After a
/// transient error the next poll starts a new one right behind the last record that was polled: a host may simply
/// back off and poll again.
///
/// # Positions
///
/// [`checkpoint`](Source::checkpoint) holds the resume LSN, and inside a transaction its commit LSN and the number of
/// its changes already polled. [`acknowledge`](Source::acknowledge) tells the server within milliseconds; the slot then
/// releases WAL. An idle position arrives as a heartbeat record, so that it takes the same way.
///
/// # Cancel safety
///
/// The future of `poll` and `poll_batch` may be dropped: no record is lost by it.
#[derive(Debug)]
pub struct PostgresSource {
    config: PostgresSourceConfig,
    source: Arc<SourceInfo>,
    figures: Arc<SourceFigures>,
    expander: Expander,
    fingerprint: Fingerprint,
    /// The stream, once the server has told it.
    identity: Option<StreamIdentity>,
    /// An offset that was sought and not reached yet. Until it is, no session starts anywhere else.
    sought: Option<SourceOffset>,
    /// Where the first session started: as long as nothing was polled, the next one starts there too.
    started_at: Option<Position>,
    /// Behind the last change of which all records were polled.
    position: Option<Position>,
    session: Option<SessionHandle>,
    /// A session on its way, of which the poll that began it was dropped.
    starting: Option<Starting>,
    items: std::vec::IntoIter<Item>,
    records: VecDeque<Placed>,
    /// Everything before it is durable and stored: the position sought, or that of the slot at a first start, moved on by
    /// `acknowledge`. What was polled behind it may still be on its way.
    durable: Option<Lsn>,
    /// The server's timeline; `None` on a standby.
    timeline: Option<u32>,
    /// A captured column cannot be read in binary.
    text_only: bool,
}

impl PostgresSource {
    /// A source that has not connected yet.
    ///
    /// # Errors
    ///
    /// As [`PostgresSourceConfig::validate`].
    pub fn new(config: PostgresSourceConfig) -> Result<Self, ConnectError> {
        config.validate()?;
        let topics = FixedTopics {
            message: config.message_topic().into(),
            heartbeat: config.heartbeat_topic().into(),
        };
        Ok(Self {
            source: Arc::new(SourceInfo {
                topic_prefix: config.topic_prefix.clone(),
                database: config.connection.dbname().to_owned(),
            }),
            figures: Arc::default(),
            expander: Expander::new(config.deletes, topics),
            fingerprint: config.fingerprint(),
            config,
            identity: None,
            sought: None,
            started_at: None,
            position: None,
            session: None,
            starting: None,
            items: Vec::new().into_iter(),
            records: VecDeque::new(),
            durable: None,
            timeline: None,
            text_only: false,
        })
    }

    /// Counts in figures that are there already: those of the source before this one in the same run.
    #[must_use]
    pub fn with_figures(mut self, figures: Arc<SourceFigures>) -> Self {
        self.figures = figures;
        self
    }

    /// What it tells about itself while it runs.
    pub fn figures(&self) -> Arc<SourceFigures> {
        Arc::clone(&self.figures)
    }

    /// Everything that committed before it has been polled: behind the last record, or where the stream started as long
    /// as there is none. `None` before the first session.
    ///
    /// Unlike [`checkpoint`](Source::checkpoint) it is known on a server where nothing happens.
    pub fn position(&self) -> Option<Lsn> {
        self.position.or(self.started_at).map(|position| position.resume_lsn)
    }

    /// Starts a session where the last one left off, if none is running.
    ///
    /// Never at the slot's own position once a session has run: the slot may be another one by now.
    async fn connect(&mut self) -> Result<(), ConnectError> {
        if self.session.is_some() {
            return Ok(());
        }
        if let Some(offset) = self.sought.clone() {
            return self.start_at(&offset).await;
        }
        let stored = match (&self.identity, self.position.or(self.started_at)) {
            (Some(identity), Some(position)) => Some(self.stored_position(identity.clone(), position)),
            _ => None,
        };
        self.start(stored).await
    }

    async fn start(&mut self, stored: Option<StoredPosition>) -> Result<(), ConnectError> {
        let starting = self.starting.get_or_insert_with(|| {
            self.figures.state_is(StreamState::Starting);
            let (config, source) = (self.config.clone(), Arc::clone(&self.source));
            let figures = Arc::clone(&self.figures);
            let (durable, text_only) = (self.durable, self.text_only);
            Starting::spawn(move |stopped| async move {
                let stop = async { drop(stopped.await) };
                start::start(&config, &source, &figures, stored, durable, text_only, stop).await
            })
        });
        let started = starting.finished().await;
        self.starting = None;
        if started.is_err() {
            self.figures.session_ends(StreamState::Closed);
        }
        let Started { session, identity, position, timeline } = started?;
        // The start may have begun in an earlier poll.
        session.acknowledge(self.durable.unwrap_or(Lsn::ZERO));
        self.durable = self.durable.or(Some(position.resume_lsn));
        self.timeline = timeline;
        self.identity = Some(identity);
        self.started_at = Some(position);
        self.figures.polled(self.position.unwrap_or(position));
        self.figures.acknowledged(Position::at(self.durable.unwrap_or(position.resume_lsn)));
        self.session = Some(session);
        Ok(())
    }

    async fn give_up_starting(&mut self) {
        if let Some(starting) = self.starting.take() {
            starting.stop().await;
            self.figures.session_ends(StreamState::Closed);
        }
    }

    async fn start_at(&mut self, offset: &SourceOffset) -> Result<(), ConnectError> {
        let mut stored = StoredPosition::from_offset(offset)?;
        if stored.fingerprint != self.fingerprint && stored.position.open.take().is_some() {
            tracing::warn!(
                position = %stored.position.resume_lsn,
                "publication or filters changed in the middle of a transaction: delivering it again from its start"
            );
        }
        let position = stored.position;
        self.durable = self.durable.max(Some(position.resume_lsn));
        self.start(Some(stored)).await?;
        self.position = Some(position);
        self.sought = None;
        Ok(())
    }

    /// Waits for changes, at most [`IDLE_WAIT`] once the session runs. `false`: caught up.
    async fn receive(&mut self) -> Result<bool, ConnectError> {
        loop {
            self.connect().await?;
            let Some(session) = self.session.as_mut() else { return Ok(false) };
            match timeout(IDLE_WAIT, session.batches.recv()).await {
                Err(_elapsed) => return Ok(false),
                Ok(Some(batch)) => {
                    self.figures.taken(batch.bytes);
                    self.items = batch.items.into_iter();
                    return Ok(true);
                }
                Ok(None) => self.session_ended().await?,
            }
        }
    }

    async fn session_ended(&mut self) -> Result<(), ConnectError> {
        let Some(session) = self.session.take() else { return Ok(()) };
        match session.end().await? {
            End::TextNeeded if self.config.slot_mode == SlotMode::Temporary => {
                return Err(ConnectError::configuration(
                    "a column has no binary form that can be read, and a temporary slot cannot be read again as text",
                )
                .with_fix("set source.binary to false"));
            }
            End::TextNeeded => self.text_only = true,
            // There is room again, or the next poll makes the session anew.
            End::Unread | End::Stopped => {}
        }
        Ok(())
    }

    async fn stop_session(&mut self) -> Result<(), ConnectError> {
        let Some(session) = self.session.take() else { return Ok(()) };
        let stopped = session.stop().await;
        self.figures.queue_is_gone();
        stopped.map(drop)
    }

    /// Moves up to `limit` records from what was received to `out`.
    fn hand_out(&mut self, limit: usize, out: &mut Vec<ChangeRecord>) -> usize {
        let mut count = 0;
        while count < limit {
            if let Some((record, position)) = self.records.pop_front() {
                out.push(record);
                count += 1;
                // Behind the first record of a first change there is no position yet but the one before it.
                self.position = position.or(self.position).or(self.started_at);
            } else if let Some(item) = self.items.next() {
                self.expander.expand(item, &mut self.records);
            } else if let Some(batch) =
                self.session.as_mut().and_then(|session| session.batches.try_recv().ok())
            {
                self.figures.taken(batch.bytes);
                self.items = batch.items.into_iter();
            } else {
                break;
            }
        }
        if let Some(position) = self.position.filter(|_| count > 0) {
            self.figures.polled(position);
        }
        count
    }

    fn stored_position(&self, identity: StreamIdentity, position: Position) -> StoredPosition {
        StoredPosition { identity, position, fingerprint: self.fingerprint, timeline: self.timeline }
    }

    fn stored(&self, offset: &SourceOffset) -> Result<StoredPosition, ConnectError> {
        let stored = StoredPosition::from_offset(offset)?;
        if let Some(identity) = &self.identity {
            same_stream(&stored.identity, identity)?;
        }
        Ok(stored)
    }
}

#[async_trait]
impl Source<ChangeKey, ChangeEvent> for PostgresSource {
    async fn poll(&mut self) -> Result<Option<ConnectRecord<ChangeKey, ChangeEvent>>, ConnectError> {
        let mut out = Vec::with_capacity(1);
        self.poll_batch(1, &mut out).await?;
        Ok(out.pop())
    }

    fn checkpoint(&self) -> Option<SourceOffset> {
        let (identity, position) = (self.identity.clone()?, self.position?);
        Some(self.stored_position(identity, position).to_offset())
    }

    /// Checks the position against the server and starts streaming there.
    ///
    /// After an error the source stays bound to this offset: a later poll tries it again, and a position that cannot be
    /// honoured is refused by every poll.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Offset`] when the position cannot be honoured: other cluster, database or slot; slot missing, lost
    /// or confirmed past the position; position beyond the server's WAL; unknown fields. Other classes when the server
    /// cannot be reached or used.
    async fn seek(&mut self, offset: SourceOffset) -> Result<(), ConnectError> {
        self.sought = Some(offset.clone());
        self.position = None;
        // What was acknowledged lies behind another position, which this server may not have reached.
        self.durable = None;
        self.items = Vec::new().into_iter();
        self.records.clear();
        self.give_up_starting().await;
        if let Err(error) = self.stop_session().await {
            tracing::debug!(%error, "the session before the seek had failed");
        }
        self.start_at(&offset).await
    }

    /// Releases WAL up to the offset's position. The server hears of it within milliseconds.
    ///
    /// An offset below the last acknowledged one changes nothing.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Offset`] when the offset belongs to another stream, or lies beyond everything this server has
    /// sent: PostgreSQL would accept that unchecked and never deliver what commits below it.
    async fn acknowledge(&mut self, offset: &SourceOffset) -> Result<(), ConnectError> {
        let position = self.stored(offset)?.position;
        let lsn = position.resume_lsn;
        // What was polled came from this server; a session that has ended in between does not make it untrue.
        let polled = self.position.map_or(Lsn::ZERO, |position| position.resume_lsn);
        let received = self.session.as_ref().map_or(Lsn::ZERO, SessionHandle::received).max(polled);
        if lsn > received {
            return Err(ConnectError::offset(format!(
                "refusing to acknowledge a position the server has not sent: acknowledged {lsn}, received {received}"
            )));
        }
        self.durable = self.durable.max(Some(lsn));
        self.figures.acknowledged(position);
        if let Some(session) = &self.session {
            session.acknowledge(lsn);
        }
        Ok(())
    }

    /// Ends the session, and a creation of the slot that is still on its way. The last acknowledged position is sent to the server before.
    async fn close(&mut self) -> Result<(), ConnectError> {
        self.give_up_starting().await;
        self.stop_session().await
    }

    async fn poll_batch(&mut self, limit: usize, out: &mut Vec<ChangeRecord>) -> Result<usize, ConnectError> {
        let count = self.hand_out(limit, out);
        if count > 0 || limit == 0 || !self.receive().await? {
            return Ok(count);
        }
        Ok(self.hand_out(limit, out))
    }
}
