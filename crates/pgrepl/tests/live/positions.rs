//! What a server makes of start positions, acknowledged positions, publications and wrong commands: on each version.
//!
//! <https://www.postgresql.org/docs/18/protocol-replication.html>.

use std::time::Duration;

use crabka_pgrepl::{CreateSlot, Error, ErrorClass, Lsn, ReplicationStream, StartReplication, StreamEvent};
use crabka_testkit::{PgServer, needs, pg_available_majors};
use tokio::time::timeout;

use super::stream::{Place, end, read};

/// Ends the stream in order.
async fn close(stream: ReplicationStream) {
    stream.close(Duration::from_secs(30)).await.unwrap();
}

/// Starts, as often as it takes the server to notice that the stream before has ended.
async fn start(place: &Place, at: Lsn) -> ReplicationStream {
    loop {
        match place.start(at).await {
            Ok(stream) => return stream,
            Err(error) if error.sqlstate() == Some("55006") => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// The ids of the next rows, at least `count`: the first column of each Insert, as text.
async fn ids(stream: &mut ReplicationStream, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    while ids.len() < count {
        while let Some(event) = stream.try_next().unwrap() {
            let StreamEvent::Wal { payload, .. } = event else { continue };
            if payload[0] == b'I' {
                // I, relation oid, N, number of columns, t, length, text
                let length = usize::try_from(u32::from_be_bytes(payload[9..13].try_into().unwrap())).unwrap();
                ids.push(String::from_utf8(payload[13..13 + length].to_vec()).unwrap());
            }
        }
        if ids.len() < count {
            timeout(Duration::from_secs(60), stream.fill()).await.expect("rows in time").unwrap();
        }
    }
    ids
}

async fn places() -> Vec<(u32, Place)> {
    let mut places = Vec::new();
    for major in pg_available_majors() {
        places.push((major, Place::new(PgServer::shared(major).await.unwrap()).await));
    }
    places
}

#[tokio::test]
async fn pgc_65_where_a_stream_starts() {
    needs!(postgres);
    for (major, place) in places().await {
        let mut stream = start(&place, Lsn::ZERO).await;
        let mut ends = Vec::new();
        for id in 1..=4 {
            place.run(&format!("INSERT INTO t VALUES ({id}, 'x')")).await;
            ends.push(read(&mut stream, 1).await.1);
        }
        close(stream).await;
        let before = place.confirmed().await;
        for (at, expected) in [
            (Lsn::ZERO, &["1", "2", "3", "4"][..]),
            (ends[0], &["2", "3", "4"][..]),
            (ends[1], &["3", "4"][..]),
        ] {
            let mut stream = start(&place, at).await;
            assert_eq!(ids(&mut stream, expected.len()).await, expected, "PostgreSQL {major}, from {at}");
            // Closing must not move the slot: nothing was acknowledged.
            drop(stream);
        }
        // Beyond the server's WAL there is silence and no error: who starts there must have checked before.
        let mut stream = start(&place, Lsn::new(0xFF << 32)).await;
        place.run("INSERT INTO t VALUES (5, 'x')").await;
        let quiet = async {
            loop {
                while let Some(event) = stream.try_next().unwrap() {
                    assert!(!matches!(event, StreamEvent::Wal { .. }), "PostgreSQL {major}");
                }
                stream.fill().await.unwrap();
            }
        };
        assert!(timeout(Duration::from_millis(300), quiet).await.is_err());
        drop(stream);
        assert!(place.confirmed().await <= before.max(ends[1]), "PostgreSQL {major}");
    }
}

#[tokio::test]
async fn pgc_66_what_an_acknowledge_does() {
    needs!(postgres);
    for (major, place) in places().await {
        let what = format!("PostgreSQL {major}");
        let mut stream = start(&place, Lsn::ZERO).await;
        let mut ends = Vec::new();
        for id in 1..=4 {
            place.run(&format!("INSERT INTO t VALUES ({id}, 'x')")).await;
            ends.push(read(&mut stream, 1).await.1);
        }
        // What was not received is refused here: the server would take it and lose what commits below it.
        let beyond = Lsn::new(stream.received().as_u64() + (1 << 20));
        let error = stream.acknowledge(beyond).unwrap_err();
        assert!(matches!(error, Error::AcknowledgeAhead { .. }), "{what}: {error}");
        stream.acknowledge(ends[1]).unwrap();
        close(stream).await;
        assert_eq!(place.confirmed().await, ends[1], "{what}");
        // An older one changes nothing.
        let mut stream = start(&place, Lsn::ZERO).await;
        assert_eq!(ids(&mut stream, 2).await, ["3", "4"], "{what}");
        stream.acknowledge(ends[0]).unwrap();
        close(stream).await;
        assert_eq!(place.confirmed().await, ends[1], "{what}");
        let mut stream = start(&place, ends[1]).await;
        ids(&mut stream, 2).await;
        while stream.received() < ends[3] {
            stream.fill().await.unwrap();
            while stream.try_next().unwrap().is_some() {}
        }
        stream.acknowledge(ends[3]).unwrap();
        close(stream).await;
        assert_eq!(place.confirmed().await, ends[3], "{what}");
    }
}

#[tokio::test]
async fn pgc_67_each_wrong_command_has_its_code_and_class() {
    needs!(postgres);
    for (major, place) in places().await {
        let server = PgServer::shared(major).await.unwrap();
        let other = Place::new(server).await;
        let stream = start(&place, Lsn::ZERO).await;
        let mut found = Vec::new();
        let mut note = |what: &'static str, error: Error| {
            found.push((what, error.sqlstate().unwrap_or_default().to_owned(), error.class()));
        };
        note("a second start", place.start(Lsn::ZERO).await.unwrap_err());
        let dropped = place.client().await.drop_replication_slot(&place.slot, false).await;
        note("drop of an active slot", dropped.unwrap_err());
        let starts = async |slot: &str, version: u32| {
            let start = StartReplication::new(slot, Lsn::ZERO).publications(["p"]).protocol_version(version);
            other.client().await.start_replication(&start).await.expect_err("refused")
        };
        note("a slot that is missing", starts("not_there", 1).await);
        close(stream).await;
        note("a slot of another database", starts(&place.slot, 1).await);
        // Refused before the server is asked, where it is known not to have the version, or by the server.
        let error = starts(&other.slot, 9).await;
        assert!(matches!(error.class(), ErrorClass::Configuration | ErrorClass::Server), "{error}");
        assert!(error.sqlstate().is_none_or(|code| code == "0A000"), "PostgreSQL {major}: {error}");
        let created = other.client().await.create_replication_slot(&CreateSlot::new("Bad-Name")).await;
        note("a slot's name", created.unwrap_err());
        assert_eq!(
            found,
            [
                ("a second start", "55006".to_owned(), ErrorClass::Transient),
                ("drop of an active slot", "55006".to_owned(), ErrorClass::Transient),
                ("a slot that is missing", "42704".to_owned(), ErrorClass::Server),
                ("a slot of another database", "55000".to_owned(), ErrorClass::Server),
                // Refused before the server is asked.
                ("a slot's name", String::new(), ErrorClass::Configuration),
            ],
            "PostgreSQL {major}"
        );
    }
}

#[tokio::test]
async fn pgc_72_a_stream_is_closed_while_idle_and_in_the_middle_of_a_transaction() {
    needs!(postgres);
    for (major, place) in places().await {
        let stream = start(&place, Lsn::ZERO).await;
        close(stream).await;
        let mut stream = start(&place, Lsn::ZERO).await;
        place.run("INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(1, 100000) g").await;
        assert!(ids(&mut stream, 10).await.len() >= 10, "PostgreSQL {major}");
        close(stream).await;
        // The slot is free, and the transaction comes again from its first row.
        let mut stream = start(&place, Lsn::ZERO).await;
        assert_eq!(ids(&mut stream, 2).await[..2], ["1", "2"], "PostgreSQL {major}");
    }
}

/// Filters of several publications are joined per operation; column lists must agree.
#[tokio::test]
async fn pgc_40_pgc_41_several_publications() {
    needs!(postgres);
    for (major, place) in places().await.into_iter().filter(|(major, _)| *major >= 15) {
        let what = format!("PostgreSQL {major}");
        place
            .run(
                "CREATE PUBLICATION few FOR TABLE t WHERE (id < 10) WITH (publish = 'insert'); \
                 CREATE PUBLICATION many FOR TABLE t WHERE (id > 100) WITH (publish = 'insert, update'); \
                 CREATE TABLE c (id int PRIMARY KEY, a int, b int); \
                 CREATE PUBLICATION one FOR TABLE c (id, a); CREATE PUBLICATION two FOR TABLE c (id, b)",
            )
            .await;
        // The publications must exist where the slot stands.
        let slot = format!("{}_several", place.slot);
        let mut client = place.client().await;
        client.create_replication_slot(&CreateSlot::new(&slot).temporary(true)).await.unwrap();
        place.run("INSERT INTO t VALUES (5, 'a'), (50, 'a'), (500, 'a')").await;
        place.run("UPDATE t SET v = 'b'").await;
        let start = StartReplication::new(&slot, Lsn::ZERO).publications(["few", "many"]);
        let mut stream = client.start_replication(&start).await.unwrap();
        assert_eq!(read(&mut stream, 2).await.0, "BRIICBUC", "{what}: two inserts, one update");

        let slot = format!("{}_conflict", place.slot);
        let mut client = place.client().await;
        client.create_replication_slot(&CreateSlot::new(&slot).temporary(true)).await.unwrap();
        place.run("INSERT INTO c VALUES (1, 2, 3)").await;
        let start = StartReplication::new(&slot, Lsn::ZERO).publications(["one", "two"]);
        let mut stream = client.start_replication(&start).await.unwrap();
        let error = end(&mut stream).await.unwrap_err();
        assert_eq!((error.sqlstate(), error.class()), (Some("0A000"), ErrorClass::Server), "{what}: {error}");
        assert!(error.to_string().contains("public.c"), "{what}: {error}");
    }
}
