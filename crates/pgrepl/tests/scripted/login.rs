//! What a server may ask for at login, and what it may not get away with.

use crabka_pgrepl::{Config, Error, ErrorClass, ReplicationClient};

use super::server::{Walsender, config, message, parameter, report};

async fn login(
    config: &Config,
    script: impl AsyncFnOnce(&mut Walsender),
) -> Result<ReplicationClient, Error> {
    let (mut server, transport) = Walsender::pipe(1 << 16);
    let (client, ()) = tokio::join!(ReplicationClient::connect_over(transport, config), async {
        server.startup().await;
        script(&mut server).await;
        drop(server);
    });
    client
}

fn request(kind: i32, data: &[u8]) -> Vec<u8> {
    message(b'R', &[&kind.to_be_bytes(), data].concat())
}

#[tokio::test(start_paused = true)]
async fn the_startup_packet_asks_for_logical_replication() {
    let (mut server, transport) = Walsender::pipe(1 << 16);
    let config = config();
    let client = tokio::spawn(async move { ReplicationClient::connect_over(transport, &config).await });
    let packet = server.startup().await;
    drop(server);
    assert!(client.await.unwrap().is_err());
    assert_eq!(packet[..4], 0x0003_0000_u32.to_be_bytes());
    let text = String::from_utf8(packet[4..].to_vec()).unwrap();
    let fields: Vec<_> = text.split('\0').collect();
    for (name, value) in
        [("user", "u"), ("database", "d"), ("replication", "database"), ("client_encoding", "UTF8")]
    {
        let at = fields.iter().position(|field| *field == name).unwrap();
        assert_eq!(fields[at + 1], value, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn methods_that_are_not_supported_are_named() {
    for (kind, name) in [(2, "Kerberos V5"), (7, "GSSAPI"), (9, "SSPI"), (99, "method 99")] {
        let error =
            login(&config(), async |server| server.send(&request(kind, b"")).await).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Authentication);
        assert!(error.to_string().ends_with(name), "{error}");
    }
    let error = login(&config(), async |server| server.send(&request(10, b"OAUTHBEARER\0\0")).await)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("OAUTHBEARER"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_proves_nothing_is_not_believed() {
    let config = config().with_password("p");
    let error = login(&config, async |server| {
        server.send(&request(10, b"SCRAM-SHA-256\0\0")).await;
        server.frame().await.unwrap();
        server.send(&request(0, b"")).await;
    })
    .await
    .unwrap_err();
    assert_eq!(error.class(), ErrorClass::Authentication, "{error}");

    // Neither is one that invents an exchange.
    for script in [request(11, b"r=x"), request(12, b"v=x")] {
        let error = login(&config, async move |server| server.send(&script).await).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Protocol, "{error}");
    }
    let error = login(&config, async |server| {
        server.send(&request(10, b"SCRAM-SHA-256\0\0")).await;
        server.frame().await.unwrap();
        server.send(&request(11, b"r=other,s=c2FsdA==,i=4096")).await;
    })
    .await
    .unwrap_err();
    assert_eq!(error.class(), ErrorClass::Authentication, "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_starting_is_transient() {
    let error = login(&config(), async |server| {
        server.send(&report(b'E', "FATAL", "57P03", "the database system is starting up")).await;
    })
    .await
    .unwrap_err();
    assert!(error.is_transient(), "{error}");
    let error = login(&config(), async |_| {}).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn notices_and_an_older_protocol_are_accepted() {
    let client = login(&config(), async |server| {
        server.send(&message(b'v', &[0, 3, 0, 0, 0, 0, 0, 0])).await;
        server.send(&report(b'N', "WARNING", "01000", "collation version mismatch")).await;
        server.send(&request(0, b"")).await;
        server.send(&report(b'N', "WARNING", "01000", "again")).await;
        server.send(&parameter("server_version", "17.2 (Debian 17.2-1)")).await;
        // A cancel key of the length that protocol 3.2 allows.
        server.send(&message(b'K', &[&[0, 0, 0, 9][..], &[7; 32]].concat())).await;
        server.send(&message(b'Z', b"I")).await;
    })
    .await
    .unwrap();
    assert_eq!((client.server_version_num(), client.backend_pid()), (170_002, Some(9)));
    assert!(!format!("{:?}", client.cancel_handle()).contains('7'));
}

/// A pooler may drop `options`; what the server reports shows it.
#[tokio::test(start_paused = true)]
async fn settings_that_a_pooler_dropped_are_set_one_by_one() {
    let mut statements = Vec::new();
    let client = login(&config(), async |server| {
        server.send(&request(0, b"")).await;
        for (name, value) in
            [("server_version", "16.1"), ("DateStyle", "ISO, MDY"), ("TimeZone", "Asia/Kathmandu")]
        {
            server.send(&parameter(name, value)).await;
        }
        server.send(&message(b'Z', b"I")).await;
        while statements.last().is_none_or(|sql: &String| !sql.contains("wal_sender_timeout")) {
            let (tag, body) = server.frame().await.unwrap();
            assert_eq!(tag, b'Q');
            statements.push(String::from_utf8(body).unwrap());
            server.send(&message(b'C', b"SET\0")).await;
            server.send(&message(b'Z', b"I")).await;
        }
    })
    .await;
    client.unwrap();
    assert_eq!(statements.len(), crabka_pgrepl::PINNED_SETTINGS.len() + 2);
    assert!(statements.contains(&"SET timezone = 'UTC'\0".to_owned()), "{statements:?}");
}

#[test]
fn everything_can_be_spawned() {
    fn sendable<T: Send>(_: T) {}
    async fn whole(config: Config) -> Result<(), Error> {
        let mut client = ReplicationClient::connect(&config).await?;
        client.identify_system().await?;
        client.create_replication_slot(&crabka_pgrepl::CreateSlot::new("s")).await?;
        let start = crabka_pgrepl::StartReplication::new("s", crabka_pgrepl::Lsn::ZERO).publications(["p"]);
        let mut stream = client.start_replication(&start).await?;
        stream.fill().await?;
        drop(tokio::time::timeout(std::time::Duration::from_secs(1), stream.keep_alive()).await);
        stream.close(std::time::Duration::from_secs(1)).await?;
        config.connect_transport().await.map(drop)
    }
    sendable(whole(config()));
}
