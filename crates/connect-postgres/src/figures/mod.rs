//! What a source tells about itself while it runs: counts, positions, and why nothing moves.
//!
//! Written by the session once per read or batch, and by the source once per poll; the counts of a table alone once per
//! row, by one addition to an atomic that nobody else writes. No lock, clock call or allocation per row. Read from anywhere, at any time, through [`SourceFigures::snapshot`]. They
//! outlive a source, so that the next one of the same run goes on counting:
//! [`PostgresSource::with_figures`](crate::PostgresSource::with_figures).

mod slot;
mod tables;
mod unacknowledged;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crabka_pgrepl::Lsn;
use tokio::time::Instant;

pub use self::slot::{PAGE_HEADER_BYTES, SlotLook};
pub use self::tables::TableSnapshot;
use self::unacknowledged::Unacknowledged;
pub(crate) use self::{slot::SharedSql, tables::TableFigures};
use crate::catalog::TableName;
use crate::position::Position;

/// What the replication stream is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamState {
    /// There is none.
    Closed,
    /// One is being started: the server, publication and slot are looked at, the slot is created if it is missing.
    Starting,
    /// It is read.
    Streaming,
    /// Its queue is full: nothing is read, the server still hears from us.
    WaitingForRoom,
    /// It was closed because its queue was full for too long; the next one begins when there is room.
    Unread,
}

impl StreamState {
    /// The name used in JSON and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Starting => "starting",
            Self::Streaming => "streaming",
            Self::WaitingForRoom => "waiting_for_room",
            Self::Unread => "unread",
        }
    }

    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Closed, Self::Starting, Self::Streaming, Self::WaitingForRoom, Self::Unread];
}

/// The transaction that is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadingTransaction {
    /// Top-level transaction id.
    pub xid: u32,
    /// Changes read so far, captured or not.
    pub changes: u64,
    /// Bytes of their pgoutput messages.
    pub bytes: u64,
    /// Commit time, microseconds since 1970-01-01 UTC.
    pub commit_time_us: i64,
    /// Since when it is read.
    pub since: Duration,
}

/// Figures of a source at one moment. Counts are since [`SourceFigures`] was made; what is read again counts again.
#[derive(Debug, Clone)]
pub struct SourceSnapshot {
    /// What the stream is doing.
    pub state: StreamState,
    /// For how long.
    pub state_for: Duration,
    /// How often a stream was begun.
    pub sessions: u64,
    /// Highest position the server has sent.
    pub received: Option<Lsn>,
    /// Everything that committed before it was handed to the host.
    pub polled: Option<Lsn>,
    /// What the server was told, or is about to be.
    pub acknowledged: Option<Lsn>,
    /// End of the server's WAL, as far as it is known.
    pub server_wal_end: Option<Lsn>,
    /// Time since anything was read from the server; `None` before.
    pub last_read: Option<Duration>,
    /// Time since `received` or `pgoutput_bytes` grew; `None` before.
    pub last_moved: Option<Duration>,
    /// Time since a change was read; `None` before.
    pub last_data: Option<Duration>,
    /// Bytes of server messages that wait between the session and `poll`.
    pub queue_bytes: u64,
    /// Limit of `queue_bytes`.
    pub queue_bytes_max: u64,
    /// The transaction that is being read.
    pub transaction: Option<ReadingTransaction>,
    /// Bytes of pgoutput messages.
    pub pgoutput_bytes: u64,
    /// Transactions read to their end.
    pub transactions: u64,
    /// Changes of each captured table that was seen.
    pub tables: Vec<TableSnapshot>,
    /// Logical messages.
    pub messages: u64,
    /// Heartbeats made.
    pub heartbeats: u64,
    /// Changes of tables that are not captured.
    pub uncaptured: u64,
    /// TRUNCATE of captured tables, left out by configuration.
    pub truncates_skipped: u64,
    /// Notices and warnings of the server.
    pub notices: u64,
    /// Commit time of the oldest change that was read and is not acknowledged, microseconds since 1970-01-01 UTC.
    pub oldest_unacknowledged_us: Option<i64>,
    /// The last look at the slot; `None` before the first one.
    pub slot: Option<Arc<SlotLook>>,
}

/// Figures of a source that change while it runs. See the [module](self).
#[derive(Debug)]
pub struct SourceFigures {
    created: Instant,
    state: AtomicU8,
    state_since_ms: AtomicU64,
    sessions: AtomicU64,
    received: AtomicU64,
    polled: AtomicU64,
    acknowledged: AtomicU64,
    has_read: AtomicBool,
    read_at_ms: AtomicU64,
    moved_at_ms: AtomicU64,
    has_data: AtomicBool,
    data_at_ms: AtomicU64,
    queue_bytes: AtomicU64,
    queue_bytes_max: AtomicU64,
    /// 0: none.
    transaction_xid: AtomicU32,
    transaction_changes: AtomicU64,
    transaction_bytes: AtomicU64,
    transaction_commit_us: AtomicI64,
    transaction_since_ms: AtomicU64,
    counts: Counts,
    tables: tables::Tables,
    unacknowledged: Mutex<Unacknowledged>,
    slot: Mutex<Option<Arc<SlotLook>>>,
    /// Since when every start has found the slot read by another session.
    held_since: Mutex<Option<Instant>>,
    sql: SharedSql,
}

/// What is counted without a table.
#[derive(Debug, Default)]
struct Counts {
    pgoutput_bytes: AtomicU64,
    transactions: AtomicU64,
    messages: AtomicU64,
    heartbeats: AtomicU64,
    uncaptured: AtomicU64,
    truncates_skipped: AtomicU64,
    notices: AtomicU64,
}

/// What a session has read since it told the figures last; plain numbers, so that a row costs nothing but additions.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) pgoutput_bytes: u64,
    pub(crate) transactions: u64,
    pub(crate) messages: u64,
    pub(crate) heartbeats: u64,
    pub(crate) uncaptured: u64,
    pub(crate) truncates_skipped: u64,
    pub(crate) notices: u64,
    /// Bytes came from the server. The session tells what it knows at other times, too.
    pub(crate) heard: bool,
    /// A change that gives a record was among it.
    pub(crate) data: bool,
}

/// A transaction that is being read, as the session knows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    pub(crate) xid: u32,
    pub(crate) changes: u64,
    pub(crate) bytes: u64,
    pub(crate) commit_time_us: i64,
}

impl Default for SourceFigures {
    fn default() -> Self {
        Self {
            created: Instant::now(),
            state: AtomicU8::new(StreamState::Closed as u8),
            state_since_ms: AtomicU64::new(0),
            sessions: AtomicU64::new(0),
            received: AtomicU64::new(0),
            polled: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
            has_read: AtomicBool::new(false),
            read_at_ms: AtomicU64::new(0),
            moved_at_ms: AtomicU64::new(0),
            has_data: AtomicBool::new(false),
            data_at_ms: AtomicU64::new(0),
            queue_bytes: AtomicU64::new(0),
            queue_bytes_max: AtomicU64::new(0),
            transaction_xid: AtomicU32::new(0),
            transaction_changes: AtomicU64::new(0),
            transaction_bytes: AtomicU64::new(0),
            transaction_commit_us: AtomicI64::new(0),
            transaction_since_ms: AtomicU64::new(0),
            counts: Counts::default(),
            tables: tables::Tables::default(),
            unacknowledged: Mutex::default(),
            slot: Mutex::default(),
            held_since: Mutex::default(),
            sql: SharedSql::default(),
        }
    }
}

impl SourceFigures {
    /// The figures at this moment. Each is exact; between two of them the source may have gone on.
    pub fn snapshot(&self) -> SourceSnapshot {
        let now = self.ms(Instant::now());
        let age = |at: &AtomicU64| Duration::from_millis(now.saturating_sub(at.load(Relaxed)));
        let has_read = self.has_read.load(Relaxed);
        let slot = locked(&self.slot).clone();
        // Against the stream: what is told as received is never behind what is told as polled or acknowledged.
        let acknowledged = self.acknowledged_lsn();
        let polled = lsn(&self.polled);
        let received = self.received();
        let looked = slot.as_ref().and_then(|look| look.wal_end);
        let counts = &self.counts;
        SourceSnapshot {
            state: self.state(),
            state_for: age(&self.state_since_ms),
            sessions: self.sessions.load(Relaxed),
            received,
            polled,
            acknowledged,
            server_wal_end: received.max(looked),
            last_read: has_read.then(|| age(&self.read_at_ms)),
            last_moved: has_read.then(|| age(&self.moved_at_ms)),
            last_data: self.has_data.load(Relaxed).then(|| age(&self.data_at_ms)),
            queue_bytes: self.queue_bytes.load(Relaxed),
            queue_bytes_max: self.queue_bytes_max.load(Relaxed),
            transaction: self.transaction(now),
            pgoutput_bytes: counts.pgoutput_bytes.load(Relaxed),
            transactions: counts.transactions.load(Relaxed),
            tables: self.tables.snapshot(),
            messages: counts.messages.load(Relaxed),
            heartbeats: counts.heartbeats.load(Relaxed),
            uncaptured: counts.uncaptured.load(Relaxed),
            truncates_skipped: counts.truncates_skipped.load(Relaxed),
            notices: counts.notices.load(Relaxed),
            oldest_unacknowledged_us: locked(&self.unacknowledged).oldest(),
            slot,
        }
    }

    /// Another session reads the slot; for how long that has been seen in a row.
    pub(crate) fn slot_is_held(&self) -> Duration {
        locked(&self.held_since).get_or_insert_with(Instant::now).elapsed()
    }

    pub(crate) fn slot_is_free(&self) {
        *locked(&self.held_since) = None;
    }

    pub(crate) fn state(&self) -> StreamState {
        let state = self.state.load(Relaxed);
        StreamState::ALL.into_iter().find(|known| *known as u8 == state).unwrap_or(StreamState::Closed)
    }

    /// As [`SourceSnapshot::acknowledged`], alone: for who compares it with what is read after it.
    pub fn acknowledged_lsn(&self) -> Option<Lsn> {
        lsn(&self.acknowledged)
    }

    pub(crate) fn received(&self) -> Option<Lsn> {
        lsn(&self.received)
    }

    fn transaction(&self, now_ms: u64) -> Option<ReadingTransaction> {
        let xid = Some(self.transaction_xid.load(Relaxed)).filter(|xid| *xid != 0)?;
        Some(ReadingTransaction {
            xid,
            changes: self.transaction_changes.load(Relaxed),
            bytes: self.transaction_bytes.load(Relaxed),
            commit_time_us: self.transaction_commit_us.load(Relaxed),
            since: Duration::from_millis(now_ms.saturating_sub(self.transaction_since_ms.load(Relaxed))),
        })
    }

    fn ms(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.created).as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn state_is(&self, state: StreamState) {
        if self.state.swap(state as u8, Relaxed) != state as u8 {
            self.state_since_ms.store(self.ms(Instant::now()), Relaxed);
        }
    }

    /// A session begins at `position`. What was read behind it comes again.
    pub(crate) fn session_begins(&self, position: Position, received: Lsn, queue_bytes_max: usize) {
        self.sessions.fetch_add(1, Relaxed);
        self.received.store(received.as_u64(), Relaxed);
        self.queue_bytes.store(0, Relaxed);
        self.queue_bytes_max.store(count(queue_bytes_max), Relaxed);
        self.transaction_xid.store(0, Relaxed);
        locked(&self.unacknowledged).restart_at(position);
        let now = self.ms(Instant::now());
        self.read_at_ms.store(now, Relaxed);
        self.moved_at_ms.store(now, Relaxed);
        self.has_read.store(true, Relaxed);
        self.state_is(StreamState::Streaming);
    }

    /// It is [`StreamState::Closed`] now, or [`StreamState::Unread`].
    pub(crate) fn session_ends(&self, state: StreamState) {
        self.transaction_xid.store(0, Relaxed);
        self.state_is(state);
    }

    /// What the session has read by `now`; empties the tally.
    pub(crate) fn read(&self, tally: &mut Tally, received: Lsn, reading: Option<Reading>, now: Instant) {
        let now = self.ms(now);
        let tally = std::mem::take(tally);
        let received = received.as_u64();
        if self.received.swap(received, Relaxed) != received || tally.pgoutput_bytes > 0 {
            self.moved_at_ms.store(now, Relaxed);
        }
        if tally.heard {
            self.read_at_ms.store(now, Relaxed);
        }
        if tally.data {
            self.data_at_ms.store(now, Relaxed);
            self.has_data.store(true, Relaxed);
        }
        for (count, more) in [
            (&self.counts.pgoutput_bytes, tally.pgoutput_bytes),
            (&self.counts.transactions, tally.transactions),
            (&self.counts.messages, tally.messages),
            (&self.counts.heartbeats, tally.heartbeats),
            (&self.counts.uncaptured, tally.uncaptured),
            (&self.counts.truncates_skipped, tally.truncates_skipped),
            (&self.counts.notices, tally.notices),
        ] {
            if more > 0 {
                count.fetch_add(more, Relaxed);
            }
        }
        let Some(reading) = reading else {
            self.transaction_xid.store(0, Relaxed);
            return;
        };
        self.transaction_changes.store(reading.changes, Relaxed);
        self.transaction_bytes.store(reading.bytes, Relaxed);
        self.transaction_commit_us.store(reading.commit_time_us, Relaxed);
        if self.transaction_xid.swap(reading.xid, Relaxed) != reading.xid {
            self.transaction_since_ms.store(now, Relaxed);
        }
    }

    /// A batch waits in the queue. `commit_time_us` is that of its first change that has one.
    pub(crate) fn queued(&self, bytes: usize, behind: Position, commit_time_us: Option<i64>) {
        self.queue_bytes.fetch_add(count(bytes), Relaxed);
        if let Some(commit_time_us) = commit_time_us {
            locked(&self.unacknowledged).push(behind, commit_time_us);
        }
    }

    /// A batch was taken from the queue.
    pub(crate) fn taken(&self, bytes: usize) {
        let bytes = count(bytes);
        // The session may have ended, and its queue with it.
        let _ = self.queue_bytes.try_update(Relaxed, Relaxed, |queued| Some(queued.saturating_sub(bytes)));
    }

    pub(crate) fn queue_is_gone(&self) {
        self.queue_bytes.store(0, Relaxed);
    }

    pub(crate) fn polled(&self, position: Position) {
        self.polled.store(position.resume_lsn.as_u64(), Relaxed);
    }

    pub(crate) fn acknowledged(&self, position: Position) {
        self.acknowledged.fetch_max(position.resume_lsn.as_u64(), Relaxed);
        locked(&self.unacknowledged).acknowledged(position);
    }

    /// Where the changes of a table are counted.
    pub(crate) fn table(&self, name: &TableName) -> Arc<TableFigures> {
        self.tables.of(name)
    }

    pub(crate) fn sql(&self) -> &SharedSql {
        &self.sql
    }

    pub(crate) fn looked(&self, look: SlotLook) {
        *locked(&self.slot) = Some(Arc::new(look));
    }

    pub(crate) fn last_look(&self) -> Option<Arc<SlotLook>> {
        locked(&self.slot).clone()
    }
}

fn lsn(at: &AtomicU64) -> Option<Lsn> {
    Some(Lsn::new(at.load(Relaxed))).filter(|lsn| *lsn > Lsn::ZERO)
}

fn count(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}

/// A panic of another holder leaves figures that are as good as before.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
