//! A TCP proxy that does to a connection what networks do.
//!
//! ```text
//! client ──► listener ──► reader ─► bounded queue ─► writer ──► server      lane to the server
//! client ◄── writer ◄─ bounded queue ◄─ reader ◄── server                   lane to the client
//! ```
//!
//! The proxy has a thread and a runtime of its own: its calls are plain functions, and its delays are real also in a
//! test whose tokio clock is paused. Every fault can be changed while connections are open.

mod connection;
mod lane;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::error::Error;
use crate::process;

/// A way through the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// What the client sends.
    ToServer,
    /// What the server sends.
    ToClient,
}

/// One end of a proxied connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Who connected to the proxy.
    Client,
    /// Whom the proxy connected to.
    Server,
}

/// What a lane does to the bytes that pass it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LaneFaults {
    blackhole: bool,
    delay: Duration,
    bytes_per_s: Option<u64>,
    chunk_bytes: Option<usize>,
    chunk_pause: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Accept {
    #[default]
    Open,
    /// The kernel still completes handshakes; nobody answers.
    Paused,
    /// Nobody listens.
    Refused,
}

/// An end for all connections that are open at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Ending {
    #[default]
    Close,
    Reset,
    /// This side is gone; the other one is not told and gets no answer any more.
    HalfOpen(Side),
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    target: String,
    accept: Accept,
    to_server: LaneFaults,
    to_client: LaneFaults,
    /// Connections born before the latest ending are ended by it.
    endings: u64,
    ending: Ending,
    closed: bool,
}

impl Faults {
    fn lane(&self, direction: Direction) -> LaneFaults {
        match direction {
            Direction::ToServer => self.to_server,
            Direction::ToClient => self.to_client,
        }
    }

    fn lane_mut(&mut self, direction: Direction) -> &mut LaneFaults {
        match direction {
            Direction::ToServer => &mut self.to_server,
            Direction::ToClient => &mut self.to_client,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct LaneRecord {
    bytes: AtomicU64,
    tap: Mutex<Option<Vec<u8>>>,
}

impl LaneRecord {
    fn note(&self, bytes: &[u8]) {
        self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if let Some(tap) = self.tap.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            tap.extend_from_slice(bytes);
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Record {
    accepted: AtomicU64,
    open: AtomicU64,
    failed: AtomicU64,
    to_server: LaneRecord,
    to_client: LaneRecord,
}

impl Record {
    fn lane(&self, direction: Direction) -> &LaneRecord {
        match direction {
            Direction::ToServer => &self.to_server,
            Direction::ToClient => &self.to_client,
        }
    }
}

/// What has passed a proxy so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyCounters {
    /// Connections accepted since the start.
    pub accepted: u64,
    /// Connections open now; a half-open one counts until its remaining side has gone too.
    pub open: u64,
    /// Connections whose server could not be reached.
    pub failed: u64,
    /// Bytes passed on to servers.
    pub bytes_to_server: u64,
    /// Bytes passed on to clients.
    pub bytes_to_client: u64,
}

/// A TCP proxy on a loopback port. Dropping it closes the port and all connections.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    faults: watch::Sender<Faults>,
    record: Arc<Record>,
    thread: Option<JoinHandle<()>>,
}

impl FaultProxy {
    /// A proxy before `target` (`host:port`), without any fault, on a free port of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when there is no port or no thread for it.
    pub fn start(target: impl ToString) -> Result<Self, Error> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, crate::port::free_port()?))
            .map_err(Error::io("listening on a loopback port"))?;
        listener.set_nonblocking(true).map_err(Error::io("listening on a loopback port"))?;
        let address = listener.local_addr().map_err(Error::io("listening on a loopback port"))?;
        let (faults, seen) = watch::channel(Faults { target: target.to_string(), ..Faults::default() });
        let record = Arc::new(Record::default());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::io("starting a runtime for the proxy"))?;
        let thread = {
            let record = Arc::clone(&record);
            std::thread::Builder::new()
                .name("fault-proxy".into())
                .spawn(move || runtime.block_on(connection::accept_loop(listener, address, seen, record)))
                .map_err(Error::io("starting a thread for the proxy"))?
        };
        Ok(Self { address, faults, record, thread: Some(thread) })
    }

    /// Where clients connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Port of [`address`](Self::address), on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Sends connections made from now on to another server.
    pub fn set_target(&self, target: impl ToString) {
        self.faults.send_modify(|faults| faults.target = target.to_string());
    }

    /// Closes every open connection, as a process that ends (FIN on both sides). New ones are accepted.
    pub fn cut(&self) {
        self.end(Ending::Close);
    }

    /// Resets every open connection (RST on both sides). New ones are accepted.
    pub fn reset(&self) {
        self.end(Ending::Reset);
    }

    /// `gone` loses its side of every open connection; the other side is told nothing, and what it sends is taken
    /// and never answered, as when a machine has lost its power.
    pub fn half_open(&self, gone: Side) {
        self.end(Ending::HalfOpen(gone));
    }

    /// Nothing passes this way any more, not even the end of the stream: senders fill their buffers and wait. What
    /// was held back is passed on after [`heal`](Self::heal), as a network does that comes back.
    pub fn blackhole(&self, direction: Direction) {
        self.change(direction, |lane| lane.blackhole = true);
    }

    /// Each byte arrives this much later; the throughput stays.
    pub fn delay(&self, direction: Direction, delay: Duration) {
        self.change(direction, |lane| lane.delay = delay);
    }

    /// No more than this many bytes a second pass each connection this way.
    pub fn throttle(&self, direction: Direction, bytes_per_s: u64) {
        self.change(direction, |lane| lane.bytes_per_s = Some(bytes_per_s.max(1)));
    }

    /// Bytes pass in pieces of at most `bytes`, with `pause` after each.
    pub fn trickle(&self, direction: Direction, bytes: usize, pause: Duration) {
        self.change(direction, |lane| {
            lane.chunk_bytes = Some(bytes.max(1));
            lane.chunk_pause = pause;
        });
    }

    /// Each byte is a segment of its own.
    pub fn byte_at_a_time(&self, direction: Direction) {
        self.trickle(direction, 1, Duration::ZERO);
    }

    /// Accepts no connection: clients are connected by the kernel, and nobody answers them.
    pub fn pause_accept(&self) {
        self.faults.send_modify(|faults| faults.accept = Accept::Paused);
    }

    /// Does not listen: clients are refused.
    pub fn refuse(&self) {
        self.faults.send_modify(|faults| faults.accept = Accept::Refused);
    }

    /// Accepts connections again, those that waited included.
    pub fn resume_accept(&self) {
        self.faults.send_modify(|faults| faults.accept = Accept::Open);
    }

    /// Ends every fault: lanes pass bytes at full speed, connections are accepted.
    pub fn heal(&self) {
        self.faults.send_modify(|faults| {
            faults.to_server = LaneFaults::default();
            faults.to_client = LaneFaults::default();
            faults.accept = Accept::Open;
        });
    }

    /// What has passed so far.
    #[must_use]
    pub fn counters(&self) -> ProxyCounters {
        ProxyCounters {
            accepted: self.record.accepted.load(Ordering::Relaxed),
            open: self.record.open.load(Ordering::Relaxed),
            failed: self.record.failed.load(Ordering::Relaxed),
            bytes_to_server: self.record.to_server.bytes.load(Ordering::Relaxed),
            bytes_to_client: self.record.to_client.bytes.load(Ordering::Relaxed),
        }
    }

    /// Waits until the counters satisfy `condition`; `false` when they do not within `limit`.
    pub async fn wait_until(&self, limit: Duration, condition: impl Fn(&ProxyCounters) -> bool) -> bool {
        let began = Instant::now();
        while !condition(&self.counters()) {
            if began.elapsed() > limit {
                return false;
            }
            let pause = || {
                std::thread::sleep(Duration::from_millis(2));
                Ok(())
            };
            if process::blocking(pause).await.is_err() {
                return false;
            }
        }
        true
    }

    /// Begins to keep a copy of the bytes passed on this way, all connections in one; what was kept before is dropped.
    pub fn tap(&self, direction: Direction) {
        *self.record.lane(direction).tap.lock().unwrap_or_else(PoisonError::into_inner) = Some(Vec::new());
    }

    /// What the tap has kept; empty without one.
    #[must_use]
    pub fn tapped(&self, direction: Direction) -> Vec<u8> {
        self.record
            .lane(direction)
            .tap
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
            .unwrap_or_default()
    }

    fn end(&self, ending: Ending) {
        self.faults.send_modify(|faults| {
            faults.endings += 1;
            faults.ending = ending;
        });
    }

    fn change(&self, direction: Direction, change: impl FnOnce(&mut LaneFaults)) {
        self.faults.send_modify(|faults| change(faults.lane_mut(direction)));
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.faults.send_modify(|faults| faults.closed = true);
        if let Some(thread) = self.thread.take() {
            // A panic in the proxy's thread has been printed there.
            let _ = thread.join();
        }
    }
}
