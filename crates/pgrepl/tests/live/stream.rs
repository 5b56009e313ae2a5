//! Slots and streams.

use std::time::Duration;

use crabka_pgrepl::{
    Config, CreateSlot, Error, ErrorClass, Lsn, ReplicationClient, ReplicationStream, SlotSnapshot,
    StartReplication, StreamEvent, StreamSettings,
};
use crabka_testkit::{Direction, FaultProxy, PgServer, StopMode, pg_available_majors};
use tokio::time::{Instant, timeout};

use super::{PASSWORD, config, one, server, url};

/// A database of its own with table `t` in publication `p`, and a permanent slot.
pub(super) struct Place {
    database: String,
    pub(super) slot: String,
    config: Config,
    sql: tokio_postgres::Client,
}

impl Place {
    async fn on(server: &PgServer, url_of: impl Fn(&str) -> String) -> Self {
        let database = server.create_database("pgrepl").await.unwrap();
        let slot = format!("s_{database}");
        let config = config(&url_of(&database));
        let sql = server.connect(&database).await.unwrap();
        sql.batch_execute("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION p FOR TABLE t")
            .await
            .unwrap();
        let place = Self { database, slot, config, sql };
        place.client().await.create_replication_slot(&CreateSlot::new(&place.slot)).await.unwrap();
        place
    }

    pub(super) async fn new(server: &PgServer) -> Self {
        Self::on(server, |database| server.url(database)).await
    }

    pub(super) async fn client(&self) -> ReplicationClient {
        ReplicationClient::connect(&self.config).await.unwrap()
    }

    pub(super) async fn start(&self, at: Lsn) -> Result<ReplicationStream, Error> {
        let start = StartReplication::new(&self.slot, at).publications(["p"]);
        self.client().await.start_replication(&start).await
    }

    pub(super) async fn run(&self, sql: &str) {
        self.sql.batch_execute(sql).await.unwrap();
    }

    pub(super) async fn confirmed(&self) -> Lsn {
        let sql = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1";
        let text: String = self.sql.query_one(sql, &[&self.slot]).await.unwrap().get(0);
        text.parse().unwrap()
    }
}

/// Tags of the messages up to and with the `commits`-th commit, and the end of the last one.
pub(super) async fn read(stream: &mut ReplicationStream, commits: usize) -> (String, Lsn) {
    let mut tags = String::new();
    loop {
        while let Some(event) = stream.try_next().unwrap() {
            match event {
                StreamEvent::Wal { end, payload, .. } => {
                    tags.push(char::from(payload[0]));
                    if tags.matches('C').count() == commits {
                        return (tags, end);
                    }
                }
                StreamEvent::Ended => panic!("ended after {tags}"),
                _ => {}
            }
        }
        timeout(Duration::from_secs(20), stream.fill()).await.expect("data in time").unwrap();
    }
}

/// What the stream says when it ends.
pub(super) async fn end(stream: &mut ReplicationStream) -> Result<(), Error> {
    loop {
        while let Some(event) = stream.try_next()? {
            if event == StreamEvent::Ended {
                return Ok(());
            }
        }
        timeout(Duration::from_secs(20), stream.fill()).await.expect("an end in time")?;
    }
}

#[tokio::test]
async fn a_stream_resumes_exactly_at_the_stored_position() {
    let place = Place::new(server().await).await;
    place.run("INSERT INTO t VALUES (1, 'a')").await;
    place.run("INSERT INTO t VALUES (2, 'b'), (3, 'c')").await;
    let mut stream = place.start(Lsn::ZERO).await.unwrap();
    let (tags, stored) = read(&mut stream, 1).await;
    assert_eq!(tags, "BRIC");
    let (tags, _) = read(&mut stream, 1).await;
    assert_eq!(tags, "BIIC");
    drop(stream);
    let mut stream = timeout(Duration::from_secs(10), async {
        loop {
            match place.start(stored).await {
                Ok(stream) => break stream,
                // The server has not noticed yet that the first stream is gone.
                Err(error) if error.sqlstate() == Some("55006") && error.is_transient() => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    })
    .await
    .unwrap();
    assert_eq!(read(&mut stream, 1).await.0, "BRIIC");
    stream.close(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn strange_names_survive() {
    let place = Place::new(server().await).await;
    place.run(r#"CREATE PUBLICATION "We""ird.Näme, it's" FOR TABLE t; INSERT INTO t VALUES (1, 'x')"#).await;
    let start = StartReplication::new(&place.slot, Lsn::ZERO).publications([r#"We"ird.Näme, it's"#]);
    // The publication must exist where the slot starts.
    place.client().await.drop_replication_slot(&place.slot, true).await.unwrap();
    place.client().await.create_replication_slot(&CreateSlot::new(&place.slot)).await.unwrap();
    place.run("INSERT INTO t VALUES (2, 'y')").await;
    let mut stream = place.client().await.start_replication(&start).await.unwrap();
    assert_eq!(read(&mut stream, 1).await.0, "BRIC");
}

/// DEL-37: the server's time-out is off, and the acknowledge arrives all the same, at once.
#[tokio::test]
async fn an_acknowledge_is_visible_at_the_server_within_milliseconds() {
    let mut place = Place::new(server().await).await;
    place.config = place.config.with_wal_sender_timeout(Some(Duration::ZERO));
    let mut stream = place.start(Lsn::ZERO).await.unwrap();
    place.run("INSERT INTO t VALUES (1, 'a')").await;
    let (_, commit_end) = read(&mut stream, 1).await;
    assert!(place.confirmed().await < commit_end);
    assert!(timeout(Duration::from_millis(100), stream.fill()).await.is_err() || stream.try_next().is_ok());
    stream.acknowledge(commit_end).unwrap();
    let before = Instant::now();
    let reading = async {
        loop {
            stream.fill().await.unwrap();
            while stream.try_next().unwrap().is_some() {}
        }
    };
    let watching = async {
        while place.confirmed().await < commit_end {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! { () = reading => {}, () = watching => {} }
    assert!(before.elapsed() < Duration::from_millis(500), "{:?}", before.elapsed());
}

#[tokio::test]
async fn closing_leaves_the_last_position_at_the_server() {
    let place = Place::new(server().await).await;
    let mut stream = place.start(Lsn::ZERO).await.unwrap();
    place.run("INSERT INTO t VALUES (1, 'a')").await;
    let (_, commit_end) = read(&mut stream, 1).await;
    stream.acknowledge(commit_end).unwrap();
    stream.close(Duration::from_secs(5)).await.unwrap();
    assert_eq!(place.confirmed().await, commit_end);
    // And the slot is free.
    place.client().await.drop_replication_slot(&place.slot, false).await.unwrap();
}

/// DEL-35, DEL-36, PGC-70: nobody reads for three times the server's patience.
#[tokio::test]
async fn a_consumer_without_room_is_kept_connected() {
    let mut place = Place::new(server().await).await;
    place.config = place.config.with_wal_sender_timeout(Some(Duration::from_secs(1)));
    let mut stream = place.start(Lsn::ZERO).await.unwrap();
    place.run("INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 20000) g").await;
    assert!(timeout(Duration::from_secs(3), stream.keep_alive()).await.is_err());
    let (tags, _) = read(&mut stream, 1).await;
    assert_eq!(tags.len(), 20_003);
}

/// DEL-38: the network swallows everything and resets nothing.
#[tokio::test]
async fn a_half_open_connection_is_detected_on_both_sides() {
    let server = server().await;
    let mut place = Place::new(server).await;
    let proxy = FaultProxy::start(format!("127.0.0.1:{}", server.port())).unwrap();
    place.config = config(&format!("postgres://postgres@127.0.0.1:{}/{}", proxy.port(), place.database))
        .with_wal_sender_timeout(Some(Duration::from_secs(2)));
    let settings =
        StreamSettings { silence_limit: Some(Duration::from_secs(2)), ..StreamSettings::default() };
    let start = StartReplication::new(&place.slot, Lsn::ZERO).publications(["p"]).settings(settings);
    let mut stream = place.client().await.start_replication(&start).await.unwrap();
    // Alive for longer than the limit: the server answers when asked.
    assert!(timeout(Duration::from_secs(5), async { end(&mut stream).await }).await.is_err());
    place.run("INSERT INTO t VALUES (1, 'before')").await;
    read(&mut stream, 1).await;
    proxy.blackhole(Direction::ToServer);
    proxy.blackhole(Direction::ToClient);
    place.run("INSERT INTO t VALUES (2, 'behind the hole')").await;
    let began = Instant::now();
    let error = end(&mut stream).await.unwrap_err();
    assert!(matches!(error, Error::PeerSilent { .. }) && error.is_transient(), "{error}");
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    // The socket stays open, and the server lets the slot go by the session's own time-out.
    let free = "SELECT 1 FROM pg_replication_slots WHERE slot_name = $1 AND NOT active";
    timeout(Duration::from_secs(15), async {
        while place.sql.query_opt(free, &[&place.slot]).await.unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .unwrap();
    drop(stream);
}

#[tokio::test]
async fn errors_keep_their_sqlstate() {
    let place = Place::new(server().await).await;
    let stream = place.start(Lsn::ZERO).await.unwrap();
    let error = place.start(Lsn::ZERO).await.unwrap_err();
    assert_eq!((error.sqlstate(), error.class()), (Some("55006"), ErrorClass::Transient), "{error}");
    drop(stream);

    let missing = StartReplication::new("no_such_slot", Lsn::ZERO).publications(["p"]);
    let error = place.client().await.start_replication(&missing).await.unwrap_err();
    assert_eq!((error.sqlstate(), error.class()), (Some("42704"), ErrorClass::Server), "{error}");

    let other = Place::new(server().await).await;
    let mut stream = other
        .client()
        .await
        .start_replication(&StartReplication::new(&other.slot, Lsn::ZERO).publications(["not_there"]))
        .await
        .unwrap();
    other.run("INSERT INTO t VALUES (1, 'a')").await;
    let error = end(&mut stream).await.unwrap_err();
    assert_eq!(error.sqlstate(), Some("42704"), "{error}");

    let third = Place::new(server().await).await;
    let mut stream = third.start(Lsn::ZERO).await.unwrap();
    let terminate = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1";
    third.sql.execute(terminate, &[&third.slot]).await.unwrap();
    let error = end(&mut stream).await.unwrap_err();
    assert_eq!((error.sqlstate(), error.class()), (Some("57P01"), ErrorClass::Transient), "{error}");
}

/// DEL-20, DEL-61 (i): a consumer that acknowledges keepalives lets the server stop.
#[tokio::test]
async fn a_fast_shutdown_is_not_held_up() {
    let server = PgServer::start().await.unwrap();
    let place = Place::new(&server).await;
    let mut stream = place.start(Lsn::ZERO).await.unwrap();
    place
        .run("INSERT INTO t VALUES (1, 'a'); CREATE TABLE elsewhere AS SELECT generate_series(1, 1000)")
        .await;
    read(&mut stream, 1).await;
    let consumer = tokio::spawn(async move {
        let mut requests = 0_u32;
        loop {
            while let Some(event) = stream.try_next()? {
                match event {
                    StreamEvent::Ended => return Ok::<_, Error>(requests),
                    StreamEvent::KeepAlive { reply_requested: true, .. } => requests += 1,
                    _ => {}
                }
            }
            stream.acknowledge(stream.received())?;
            stream.fill().await?;
        }
    });
    let began = Instant::now();
    server.stop(StopMode::Fast).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    consumer.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_exported_snapshot_can_be_imported() {
    let place = Place::new(server().await).await;
    place.run("INSERT INTO t VALUES (1, 'before')").await;
    let mut exporter = place.client().await;
    let slot = CreateSlot::new(format!("{}_x", place.slot)).temporary(true).snapshot(SlotSnapshot::Export);
    let created = exporter.create_replication_slot(&slot).await.unwrap();
    place.run("INSERT INTO t VALUES (2, 'after')").await;
    let mut reader = place.client().await;
    let snapshot = created.snapshot.unwrap();
    reader.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await.unwrap();
    reader.query(&format!("SET TRANSACTION SNAPSHOT '{snapshot}'")).await.unwrap();
    assert_eq!(one(&mut reader, "SELECT string_agg(v, ' ') FROM public.t").await, "before");
    // The other half is in the stream.
    let start = StartReplication::new(created.name, created.consistent_point).publications(["p"]);
    let mut stream = exporter.start_replication(&start).await.unwrap();
    assert_eq!(read(&mut stream, 1).await.0, "BRIC");

    let mut user = place.client().await;
    user.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await.unwrap();
    let slot = CreateSlot::new(format!("{}_u", place.slot)).temporary(true).snapshot(SlotSnapshot::Use);
    assert_eq!(user.create_replication_slot(&slot).await.unwrap().snapshot, None);
    assert_eq!(one(&mut user, "SELECT count(*) FROM public.t").await, "2");
}

#[tokio::test]
async fn a_slot_creation_that_waits_can_be_cancelled() {
    let server = PgServer::start().await.unwrap();
    let place = Place::new(&server).await;
    let blocker = server.connect(&place.database).await.unwrap();
    blocker.batch_execute("BEGIN; INSERT INTO t VALUES (1, 'open')").await.unwrap();
    let mut client = place.client().await;
    let cancel = client.cancel_handle().unwrap();
    let slot = CreateSlot::new("waits");
    assert!(timeout(Duration::from_millis(500), client.create_replication_slot(&slot)).await.is_err());
    cancel.cancel().await.unwrap();
    // The cancelled command's answer is not taken for the next one's.
    assert_eq!(
        one(&mut client, "SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'waits'").await,
        "0"
    );

    let creating = async { client.create_replication_slot(&slot).await };
    let cancelling = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        cancel.cancel().await.unwrap();
    };
    let (created, ()) = tokio::join!(creating, cancelling);
    assert_eq!(created.unwrap_err().sqlstate(), Some("57014"));
    blocker.batch_execute("COMMIT").await.unwrap();
    client.create_replication_slot(&slot).await.unwrap();
}

#[tokio::test]
async fn the_frame_limit_stops_a_huge_row() {
    let mut place = Place::new(server().await).await;
    place.config = place.config.with_frame_limit(1_000_000);
    let mut stream = place.start(Lsn::ZERO).await.unwrap();
    place.run("INSERT INTO t VALUES (1, repeat('x', 900000))").await;
    assert_eq!(read(&mut stream, 1).await.0, "BRIC");
    place.run("INSERT INTO t VALUES (2, repeat('x', 1000000))").await;
    let error = end(&mut stream).await.unwrap_err();
    assert!(matches!(error, Error::FrameTooLarge { tag: 'd', limit: 1_000_000, .. }), "{error}");
}

#[tokio::test]
async fn megabytes_arrive_whole_in_clear_over_tls_and_over_the_socket() {
    let server = server().await;
    let tls = |database: &str| {
        url(server, "scram_user", "localhost", "sslmode=require&channel_binding=require")
            .replace("/postgres?", &format!("/{database}?"))
            .replace(
                "scram_user@",
                &format!(
                    "scram_user:{}@",
                    PASSWORD.replace(' ', "%20").replace('\\', "%5C").replace(':', "%3A")
                ),
            )
    };
    let urls: [&dyn Fn(&str) -> String; 3] =
        [&|database| server.url(database), &tls, &|database| server.unix_url(database)];
    for url_of in urls {
        let place = Place::on(server, url_of).await;
        let mut stream = place.start(Lsn::ZERO).await.unwrap();
        // 19 MB in one row, many times the size of a read; then many small ones.
        place.run("INSERT INTO t VALUES (0, repeat(md5('x'), 600000))").await;
        place.run("INSERT INTO t SELECT g, md5(g::text) FROM generate_series(1, 50000) g").await;
        let (mut rows, mut bytes, mut commits) = (0, 0, 0);
        while commits < 2 {
            while let Some(event) = stream.try_next().unwrap() {
                let StreamEvent::Wal { payload, .. } = event else { continue };
                match payload[0] {
                    b'I' => {
                        rows += 1;
                        bytes += payload.len();
                    }
                    b'C' => commits += 1,
                    _ => {}
                }
            }
            timeout(Duration::from_secs(30), stream.fill()).await.unwrap().unwrap();
        }
        assert_eq!(rows, 50_001);
        assert!(bytes > 600_000 * 32 + 50_000 * 32, "{bytes}");
    }
}

/// Every installed major: the forms of the commands it understands.
#[tokio::test]
async fn every_server_version_understands_its_commands() {
    use crabka_pgrepl::{Origin, Streaming};
    for major in pg_available_majors().into_iter().filter(|major| *major >= 14) {
        let server = PgServer::builder().major(major).start().await.unwrap();
        let place = Place::new(&server).await;
        let mut client = place.client().await;
        assert_eq!(client.server_version_num() / 10_000, major);
        for snapshot in [SlotSnapshot::Export, SlotSnapshot::Nothing] {
            let slot = CreateSlot::new("temporary").temporary(true).snapshot(snapshot).two_phase(major >= 15);
            let created = client.create_replication_slot(&slot).await.unwrap();
            assert_eq!(created.snapshot.is_some(), snapshot == SlotSnapshot::Export);
            client.drop_replication_slot("temporary", false).await.unwrap();
        }
        if major >= 17 {
            let slot = CreateSlot::new("failover").failover(true);
            client.create_replication_slot(&slot).await.unwrap();
            assert_eq!(
                one(&mut client, "SELECT failover FROM pg_replication_slots WHERE slot_name = 'failover'")
                    .await,
                "t"
            );
        }
        let identity = client.identify_system().await.unwrap();
        assert_eq!((identity.timeline, identity.dbname.as_deref()), (1, Some(place.database.as_str())));
        let version = match major {
            14 => 2,
            15 => 3,
            _ => 4,
        };
        let mut start = StartReplication::new(&place.slot, identity.position)
            .publications(["p"])
            .protocol_version(version)
            .binary(true)
            .messages(true)
            .streaming(if major >= 16 { Streaming::Parallel } else { Streaming::On });
        if major >= 16 {
            start = start.origin(Origin::Any);
        }
        let mut stream = client.start_replication(&start).await.unwrap();
        place.run("INSERT INTO t VALUES (1, 'a'); SELECT pg_logical_emit_message(true, 'p', 'x')").await;
        assert!(read(&mut stream, 1).await.0.starts_with("BRI"), "{major}");
        stream.close(Duration::from_secs(5)).await.unwrap();
    }
}
