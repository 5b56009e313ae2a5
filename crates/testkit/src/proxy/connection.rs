//! Accepts connections, pairs each with one to the server, and ends them as the faults say.

use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::lane::{self, Lane};
use super::{Accept, Direction, Ending, Faults, Record, Side};

/// After an accept or a bind that fails, such as with no file descriptor left.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Runs until the proxy is dropped; dropping the set ends the connections.
pub(crate) async fn accept_loop(
    listener: std::net::TcpListener,
    address: SocketAddr,
    mut faults: watch::Receiver<Faults>,
    record: Arc<Record>,
) {
    let mut connections = JoinSet::new();
    let mut listener = TcpListener::from_std(listener).ok();
    loop {
        let accept = {
            let now = faults.borrow_and_update();
            if now.closed {
                return;
            }
            now.accept
        };
        if accept == Accept::Refused {
            listener = None;
        } else if listener.is_none() {
            listener = TcpListener::bind(address).await.ok();
        }
        tokio::select! {
            // The faults first: a connection that arrives after a change is treated as the change says.
            biased;
            changed = faults.changed() => if changed.is_err() { return },
            Some(_) = connections.join_next() => {}
            client = next(listener.as_ref(), accept) => match client {
                Some(client) => {
                    record.accepted.fetch_add(1, Ordering::Relaxed);
                    record.open.fetch_add(1, Ordering::Relaxed);
                    let (faults, record) = (faults.clone(), Arc::clone(&record));
                    connections.spawn(async move {
                        serve(client, faults, &record).await;
                        record.open.fetch_sub(1, Ordering::Relaxed);
                    });
                }
                None => tokio::time::sleep(RETRY_PAUSE).await,
            },
        }
    }
}

async fn next(listener: Option<&TcpListener>, accept: Accept) -> Option<TcpStream> {
    match (listener, accept) {
        (Some(listener), Accept::Open) => listener.accept().await.ok().map(|(client, _)| client),
        (None, Accept::Open | Accept::Paused) => None,
        _ => std::future::pending().await,
    }
}

async fn serve(client: TcpStream, mut faults: watch::Receiver<Faults>, record: &Arc<Record>) {
    let (target, born) = {
        let now = faults.borrow();
        (now.target.clone(), now.endings)
    };
    let ended = |faults: &Faults| faults.endings > born;
    // An ending that comes meanwhile waits for the connection: the server may have accepted it already.
    let Ok(server) = TcpStream::connect(&target).await else {
        record.failed.fetch_add(1, Ordering::Relaxed);
        reset(&client);
        return;
    };
    let (client, server) = (Arc::new(client), Arc::new(server));
    let mut lanes = JoinSet::new();
    for direction in [Direction::ToServer, Direction::ToClient] {
        let (from, to) = match direction {
            Direction::ToServer => (&client, &server),
            Direction::ToClient => (&server, &client),
        };
        // Segments leave as they were cut here.
        let _ = to.set_nodelay(true);
        let lane = Lane { from: Arc::clone(from), to: Arc::clone(to), direction };
        lanes.spawn(lane::run(lane, faults.clone(), Arc::clone(record)));
    }
    let ending = tokio::select! {
        outcome = run_out(&mut lanes) => if outcome { None } else { Some(Ending::Reset) },
        ending = faults.wait_for(ended) => ending.ok().map(|faults| faults.ending),
    };
    lanes.shutdown().await;
    match ending {
        None | Some(Ending::Close) => {}
        Some(Ending::Reset) => {
            reset(&client);
            reset(&server);
        }
        Some(Ending::HalfOpen(gone)) => {
            let (left, lost) = if gone == Side::Client { (server, client) } else { (client, server) };
            drop(lost);
            let now = faults.borrow().endings;
            tokio::select! {
                () = lane::swallow(&left) => {}
                _ = faults.wait_for(|faults| faults.endings > now) => {}
            }
        }
    }
}

/// `true` when both lanes came to the end of their streams, `false` as soon as one broke.
async fn run_out(lanes: &mut JoinSet<bool>) -> bool {
    while let Some(outcome) = lanes.join_next().await {
        if !outcome.unwrap_or(false) {
            return false;
        }
    }
    true
}

/// Makes the close that follows a RST.
fn reset(socket: &TcpStream) {
    let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
}

/// Passes the end of a stream on.
pub(crate) fn end_of_stream(socket: &TcpStream) {
    let _ = SockRef::from(socket).shutdown(Shutdown::Write);
}
