//! The server's side of the pipe.

use bytes::{BufMut, BytesMut};
use crabka_pgrepl::{
    Config, Error, Lsn, ReplicationClient, ReplicationStream, StartReplication, StreamEvent, StreamSettings,
    Transport,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

pub(crate) const START: Lsn = Lsn::new(0x1000);

/// What a client has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) write: u64,
    pub(crate) flush: u64,
    pub(crate) apply: u64,
    pub(crate) ask: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Status(Status),
    CopyDone,
    Terminate,
    /// The pipe has ended.
    End,
}

pub(crate) struct Walsender {
    pub(crate) io: DuplexStream,
}

pub(crate) fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    bytes.put_u8(tag);
    bytes.put_u32(u32::try_from(body.len() + 4).unwrap());
    bytes.put_slice(body);
    bytes.to_vec()
}

pub(crate) fn wal(lsn: u64, payload: &[u8]) -> Vec<u8> {
    let mut body = BytesMut::new();
    body.put_u8(b'w');
    body.put_u64(lsn);
    body.put_u64(lsn);
    body.put_i64(77);
    body.put_slice(payload);
    message(b'd', &body)
}

pub(crate) fn keepalive(lsn: u64, reply_requested: bool) -> Vec<u8> {
    let mut body = BytesMut::new();
    body.put_u8(b'k');
    body.put_u64(lsn);
    body.put_i64(78);
    body.put_u8(u8::from(reply_requested));
    message(b'd', &body)
}

/// ErrorResponse (`E`) or NoticeResponse (`N`).
pub(crate) fn report(tag: u8, severity: &str, sqlstate: &str, text: &str) -> Vec<u8> {
    let mut body = BytesMut::new();
    for (field, value) in
        [(b'S', "ÜBERSETZT"), (b'V', severity), (b'C', sqlstate), (b'M', text), (b'D', "secret row")]
    {
        body.put_u8(field);
        body.put_slice(value.as_bytes());
        body.put_u8(0);
    }
    body.put_u8(0);
    message(tag, &body)
}

pub(crate) fn parameter(name: &str, value: &str) -> Vec<u8> {
    message(b'S', format!("{name}\0{value}\0").as_bytes())
}

pub(crate) fn config() -> Config {
    Config::parse("postgres://u@h/d", &|_| None).unwrap()
}

impl Walsender {
    /// A pair of ends; the pipe holds `capacity` bytes each way.
    pub(crate) fn pipe(capacity: usize) -> (Self, Transport) {
        let (server, client) = tokio::io::duplex(capacity);
        (Self { io: server }, Transport::from_io(client))
    }

    /// A stream in CopyBoth, with both ends in hand.
    pub(crate) async fn streaming(settings: StreamSettings) -> (Self, ReplicationStream) {
        Self::streaming_over(1 << 20, &config(), settings).await
    }

    pub(crate) async fn streaming_over(
        capacity: usize,
        config: &Config,
        settings: StreamSettings,
    ) -> (Self, ReplicationStream) {
        let (mut server, transport) = Self::pipe(capacity);
        let client = async {
            let client = ReplicationClient::connect_over(transport, config).await?;
            let start = StartReplication::new("s", START).publications(["p"]).settings(settings);
            client.start_replication(&start).await
        };
        let script = async {
            server.accept().await;
            server.start_copy_both().await;
        };
        let (stream, ()) = tokio::join!(client, script);
        (server, stream.unwrap())
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.io.write_all(bytes).await.unwrap();
    }

    /// The startup packet; lets everybody in.
    pub(crate) async fn accept(&mut self) {
        self.startup().await;
        self.send(&message(b'R', &0_i32.to_be_bytes())).await;
        self.send(&parameter("server_version", "15.3")).await;
        self.send(&message(b'K', &[0, 0, 0, 1, 0, 0, 0, 2])).await;
        self.send(&message(b'Z', b"I")).await;
    }

    pub(crate) async fn startup(&mut self) -> Vec<u8> {
        let length = self.io.read_u32().await.unwrap();
        let mut packet = vec![0; usize::try_from(length).unwrap() - 4];
        self.io.read_exact(&mut packet).await.unwrap();
        packet
    }

    async fn start_copy_both(&mut self) {
        let (tag, body) = self.frame().await.unwrap();
        assert_eq!(tag, b'Q');
        let sql = String::from_utf8(body).unwrap();
        assert!(sql.starts_with("START_REPLICATION SLOT \"s\" LOGICAL 0/1000 ("), "{sql}");
        self.send(&message(b'W', &[0, 0, 0])).await;
    }

    pub(crate) async fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let tag = self.io.read_u8().await.ok()?;
        let length = self.io.read_u32().await.unwrap();
        let mut body = vec![0; usize::try_from(length).unwrap() - 4];
        self.io.read_exact(&mut body).await.unwrap();
        Some((tag, body))
    }

    pub(crate) async fn receive(&mut self) -> Received {
        let Some((tag, body)) = self.frame().await else { return Received::End };
        match tag {
            b'c' => Received::CopyDone,
            b'X' => Received::Terminate,
            b'd' => {
                assert_eq!((body[0], body.len()), (b'r', 34));
                let position = |at: usize| u64::from_be_bytes(body[at..at + 8].try_into().unwrap());
                assert!(body[33] <= 1);
                Received::Status(Status {
                    write: position(1),
                    flush: position(9),
                    apply: position(17),
                    ask: body[33] == 1,
                })
            }
            other => panic!("unexpected message: {:?}", char::from(other)),
        }
    }

    pub(crate) async fn status(&mut self) -> Status {
        match self.receive().await {
            Received::Status(status) => status,
            other => panic!("{other:?}"),
        }
    }
}

/// Reads until the stream ends or fails; what came, and the failure.
pub(crate) async fn drain(stream: &mut ReplicationStream) -> (Vec<StreamEvent>, Option<Error>) {
    let mut events = Vec::new();
    loop {
        loop {
            match stream.try_next() {
                Ok(Some(StreamEvent::Ended)) => {
                    events.push(StreamEvent::Ended);
                    return (events, None);
                }
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(error) => return (events, Some(error)),
            }
        }
        if let Err(error) = stream.fill().await {
            return (events, Some(error));
        }
    }
}
