//! One direction of one connection: a reader that stamps what arrives, a bounded queue, a writer that obeys the faults.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::connection::end_of_stream;
use super::{Direction, Faults, LaneFaults, Record};

/// What one read takes at most.
const READ_BYTES: usize = 16 * 1024;

/// Reads that wait for their time to be written: enough for a delayed lane to keep its throughput.
const DELAYED_READS: usize = 256;

/// Reads that wait where there is no delay: a sender soon feels a slow lane.
const READS: usize = 2;

/// A throttled lane writes this often.
const THROTTLE_STEP: Duration = Duration::from_millis(20);

pub(crate) struct Lane {
    pub(crate) from: Arc<TcpStream>,
    pub(crate) to: Arc<TcpStream>,
    pub(crate) direction: Direction,
}

/// Runs to the end of the stream, which is passed on (`true`), or until a socket breaks (`false`).
pub(crate) async fn run(lane: Lane, faults: watch::Receiver<Faults>, record: Arc<Record>) -> bool {
    let (queue, arrived) = mpsc::channel(DELAYED_READS);
    let reading = read(&lane, faults.clone(), queue);
    let writing = write(&lane, faults, arrived, &record);
    tokio::try_join!(reading, writing).is_ok()
}

async fn read(
    lane: &Lane,
    mut faults: watch::Receiver<Faults>,
    queue: mpsc::Sender<(Instant, Vec<u8>)>,
) -> io::Result<()> {
    loop {
        let delayed = !open(&mut faults, lane.direction).await?.delay.is_zero();
        let room_needed = if delayed { 1 } else { DELAYED_READS + 1 - READS };
        let Ok(mut room) = queue.reserve_many(room_needed).await else { return Ok(()) };
        lane.from.readable().await?;
        if faults.borrow().lane(lane.direction).blackhole {
            continue;
        }
        let mut buffer = vec![0; READ_BYTES];
        match lane.from.try_read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                buffer.truncate(count);
                if let Some(place) = room.next() {
                    place.send((Instant::now(), buffer));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

async fn write(
    lane: &Lane,
    mut faults: watch::Receiver<Faults>,
    mut arrived: mpsc::Receiver<(Instant, Vec<u8>)>,
    record: &Record,
) -> io::Result<()> {
    while let Some((since, bytes)) = arrived.recv().await {
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let now = open(&mut faults, lane.direction).await?;
            let due = since + now.delay;
            if due > Instant::now() {
                // A change of the faults may bring the time forward, or close the lane.
                let _ = tokio::time::timeout_at(due, faults.changed()).await;
                continue;
            }
            let (piece, later) = rest.split_at(piece_bytes(&now).min(rest.len()));
            // Before the write: whoever has received a byte finds it counted.
            record.lane(lane.direction).note(piece);
            write_all(&lane.to, piece).await?;
            rest = later;
            pause_after(&now, piece.len()).await;
        }
    }
    open(&mut faults, lane.direction).await?;
    end_of_stream(&lane.to);
    Ok(())
}

/// Waits while the lane is a black hole, and tells its faults.
async fn open(faults: &mut watch::Receiver<Faults>, direction: Direction) -> io::Result<LaneFaults> {
    let now = faults.wait_for(|faults| !faults.lane(direction).blackhole).await;
    now.map(|faults| faults.lane(direction)).map_err(|_| io::ErrorKind::ConnectionAborted.into())
}

fn piece_bytes(faults: &LaneFaults) -> usize {
    let by_rate = faults.bytes_per_s.map(|rate| {
        let step = rate.saturating_mul(THROTTLE_STEP.as_millis() as u64) / 1000;
        usize::try_from(step.max(1)).unwrap_or(READ_BYTES)
    });
    by_rate.unwrap_or(READ_BYTES).min(faults.chunk_bytes.unwrap_or(READ_BYTES))
}

async fn pause_after(faults: &LaneFaults, written: usize) {
    let by_rate = faults.bytes_per_s.map(|rate| Duration::from_secs_f64(written as f64 / rate as f64));
    let pause = faults.chunk_pause.max(by_rate.unwrap_or(Duration::ZERO));
    if !pause.is_zero() {
        tokio::time::sleep(pause).await;
    } else if faults.chunk_bytes.is_some() {
        tokio::task::yield_now().await;
    }
}

async fn write_all(socket: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        socket.writable().await?;
        match socket.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Takes what a socket sends and forgets it, until its end.
pub(crate) async fn swallow(socket: &TcpStream) {
    let mut buffer = vec![0; READ_BYTES];
    while socket.readable().await.is_ok() {
        match socket.try_read(&mut buffer) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}
