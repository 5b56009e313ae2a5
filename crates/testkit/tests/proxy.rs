//! Each fault of the proxy, seen from both sides of a real connection.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, missing_docs)]

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use crabka_testkit::{Direction, FaultProxy, Side};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(5);
const SILENCE: Duration = Duration::from_millis(150);

struct Pair {
    proxy: FaultProxy,
    listener: TcpListener,
    client: TcpStream,
    server: TcpStream,
}

async fn pair() -> Pair {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = FaultProxy::start(listener.local_addr().unwrap()).unwrap();
    let (client, server) = join(&proxy, &listener).await;
    Pair { proxy, listener, client, server }
}

async fn join(proxy: &FaultProxy, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect(proxy.address()).await.unwrap();
    let (server, _) = timeout(SOON, listener.accept()).await.unwrap().unwrap();
    (client, server)
}

async fn passes(from: &mut TcpStream, to: &mut TcpStream, text: &[u8]) {
    from.write_all(text).await.unwrap();
    let mut read = vec![0; text.len()];
    timeout(SOON, to.read_exact(&mut read)).await.unwrap().unwrap();
    assert_eq!(read, text);
}

async fn is_silent(socket: &mut TcpStream) -> bool {
    timeout(SILENCE, socket.read_u8()).await.is_err()
}

async fn read_end(socket: &mut TcpStream) -> std::io::Result<usize> {
    timeout(SOON, socket.read(&mut [0; 16])).await.unwrap()
}

#[tokio::test]
async fn without_a_fault_everything_passes_and_is_counted_and_tapped() {
    let mut pair = pair().await;
    passes(&mut pair.client, &mut pair.server, b"before the tap").await;
    pair.proxy.tap(Direction::ToServer);
    pair.proxy.tap(Direction::ToClient);
    passes(&mut pair.client, &mut pair.server, b"question").await;
    passes(&mut pair.server, &mut pair.client, b"answer").await;
    assert_eq!(pair.proxy.tapped(Direction::ToServer), b"question");
    assert_eq!(pair.proxy.tapped(Direction::ToClient), b"answer");
    let counters = pair.proxy.counters();
    assert_eq!((counters.accepted, counters.open, counters.failed), (1, 1, 0));
    assert_eq!((counters.bytes_to_server, counters.bytes_to_client), (22, 6));
}

#[tokio::test]
async fn ten_megabytes_pass_unchanged_in_both_directions() {
    let Pair { proxy: _proxy, listener: _listener, client, server } = pair().await;
    let data: Vec<u8> = (0..10_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let (mut client_reads, mut client_writes) = client.into_split();
    let (mut server_reads, mut server_writes) = server.into_split();
    let mut at_server = Vec::new();
    let mut at_client = Vec::new();
    let send = async {
        tokio::try_join!(client_writes.write_all(&data), server_writes.write_all(&data)).unwrap();
        client_writes.shutdown().await.unwrap();
        server_writes.shutdown().await.unwrap();
    };
    let all = async {
        let read = async {
            tokio::try_join!(
                server_reads.read_to_end(&mut at_server),
                client_reads.read_to_end(&mut at_client)
            )
            .unwrap()
        };
        tokio::join!(send, read)
    };
    timeout(Duration::from_secs(30), all).await.unwrap();
    assert!(at_server == data && at_client == data);
}

#[tokio::test]
async fn the_end_of_one_stream_leaves_the_other_open() {
    let mut pair = pair().await;
    pair.client.shutdown().await.unwrap();
    assert_eq!(read_end(&mut pair.server).await.unwrap(), 0);
    passes(&mut pair.server, &mut pair.client, b"late answer").await;
    drop(pair.server);
    assert_eq!(read_end(&mut pair.client).await.unwrap(), 0);
    assert!(pair.proxy.wait_until(SOON, |counters| counters.open == 0).await);
}

#[tokio::test]
async fn a_cut_closes_and_a_reset_resets_both_sides() {
    let mut pair = pair().await;
    pair.proxy.cut();
    assert_eq!(read_end(&mut pair.client).await.unwrap(), 0);
    assert_eq!(read_end(&mut pair.server).await.unwrap(), 0);

    let (mut client, mut server) = join(&pair.proxy, &pair.listener).await;
    passes(&mut client, &mut server, b"a new connection works").await;
    pair.proxy.reset();
    assert_eq!(read_end(&mut client).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(read_end(&mut server).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert!(pair.proxy.wait_until(SOON, |counters| counters.open == 0 && counters.accepted == 2).await);
}

#[tokio::test]
async fn a_black_hole_takes_one_direction_and_gives_it_back() {
    let mut pair = pair().await;
    pair.proxy.blackhole(Direction::ToClient);
    passes(&mut pair.client, &mut pair.server, b"still heard").await;
    pair.server.write_all(b"held back").await.unwrap();
    assert!(is_silent(&mut pair.client).await);
    pair.proxy.heal();
    let mut read = [0; 9];
    timeout(SOON, pair.client.read_exact(&mut read)).await.unwrap().unwrap();
    assert_eq!(&read, b"held back");
}

#[tokio::test]
async fn a_black_hole_fills_the_senders_buffers_and_hides_its_end() {
    let mut pair = pair().await;
    pair.proxy.blackhole(Direction::ToServer);
    let flood = async {
        let chunk = vec![7; 1 << 16];
        loop {
            pair.client.write_all(&chunk).await.unwrap();
        }
    };
    assert!(timeout(Duration::from_millis(500), flood).await.is_err(), "the sender was never held up");
    drop(pair.client);
    assert!(is_silent(&mut pair.server).await, "neither bytes nor the end of the stream get through");
}

#[tokio::test]
async fn half_open_tells_the_side_that_is_left_nothing() {
    let mut pair = pair().await;
    pair.proxy.half_open(Side::Server);
    assert_eq!(read_end(&mut pair.server).await.unwrap(), 0);
    pair.client.write_all(b"anybody there").await.unwrap();
    assert!(is_silent(&mut pair.client).await);
    assert_eq!(pair.proxy.counters().open, 1);
    pair.proxy.cut();
    assert_eq!(read_end(&mut pair.client).await.unwrap(), 0);

    let (mut client, mut server) = join(&pair.proxy, &pair.listener).await;
    pair.proxy.half_open(Side::Client);
    assert_eq!(read_end(&mut client).await.unwrap(), 0);
    server.write_all(b"anybody there").await.unwrap();
    assert!(is_silent(&mut server).await);
}

#[tokio::test]
async fn a_delay_is_latency_and_costs_no_throughput() {
    let mut pair = pair().await;
    let delay = Duration::from_millis(200);
    pair.proxy.delay(Direction::ToServer, delay);
    let began = Instant::now();
    let (client, server) = (&mut pair.client, &mut pair.server);
    let data = vec![1; 1 << 20];
    let mut read = vec![0; data.len()];
    let (sent, received) = tokio::join!(client.write_all(&data), timeout(SOON, server.read_exact(&mut read)));
    sent.unwrap();
    received.unwrap().unwrap();
    let took = began.elapsed();
    assert!(took >= delay, "took {took:?}");
    // 64 reads of 16 KiB, each delayed after the other, would take 12.8 s.
    assert!(took < delay * 15, "took {took:?}");
}

#[tokio::test]
async fn a_throttled_lane_keeps_its_rate() {
    let mut pair = pair().await;
    pair.proxy.throttle(Direction::ToClient, 100_000);
    let began = Instant::now();
    passes(&mut pair.server, &mut pair.client, &[5; 40_000]).await;
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(350), "took {took:?}");
    passes(&mut pair.client, &mut pair.server, &[5; 400_000]).await;
}

#[tokio::test]
async fn byte_at_a_time_and_trickle_cut_what_arrives() {
    let mut pair = pair().await;
    pair.proxy.trickle(Direction::ToServer, 3, Duration::from_millis(15));
    pair.client.write_all(b"0123456789").await.unwrap();
    let mut sizes = Vec::new();
    while sizes.iter().sum::<usize>() < 10 {
        sizes.push(read_end(&mut pair.server).await.unwrap());
    }
    assert!(sizes.len() >= 3 && sizes[0] <= 3, "{sizes:?}");
    pair.proxy.heal();
    pair.proxy.byte_at_a_time(Direction::ToServer);
    passes(&mut pair.client, &mut pair.server, &[9; 5000]).await;
}

#[tokio::test]
async fn connections_wait_are_refused_and_are_accepted_again() {
    let pair = pair().await;
    pair.proxy.pause_accept();
    let mut waiting = TcpStream::connect(pair.proxy.address()).await.unwrap();
    assert!(is_silent(&mut waiting).await);
    assert_eq!(pair.proxy.counters().accepted, 1);
    pair.proxy.resume_accept();
    let (mut server, _) = timeout(SOON, pair.listener.accept()).await.unwrap().unwrap();
    passes(&mut waiting, &mut server, b"at last").await;

    pair.proxy.refuse();
    let refused = async {
        loop {
            match TcpStream::connect(pair.proxy.address()).await {
                Err(error) => return error.kind(),
                Ok(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    assert_eq!(timeout(SOON, refused).await.unwrap(), ErrorKind::ConnectionRefused);
    passes(&mut waiting, &mut server, b"what is open stays open").await;
    pair.proxy.resume_accept();
    let accepted = async {
        while TcpStream::connect(pair.proxy.address()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, accepted).await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_reset_and_counted() {
    let pair = pair().await;
    pair.proxy.set_target("127.0.0.1:1");
    let mut client = TcpStream::connect(pair.proxy.address()).await.unwrap();
    assert_eq!(read_end(&mut client).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(pair.proxy.counters().failed, 1);
}

#[tokio::test]
async fn a_dropped_proxy_closes_everything() {
    let mut pair = pair().await;
    let address = pair.proxy.address();
    drop(pair.proxy);
    assert_eq!(read_end(&mut pair.client).await.unwrap(), 0);
    assert!(TcpStream::connect(address).await.is_err());
}
