//! What the fuzz targets and the replay of their corpus run. Feature `fuzz`; not part of the API.
//!
//! A body panics when a promise is broken, and on nothing else.

#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use bytes::Bytes;

use crate::protocol::backend::{self, CopyData, tag};
use crate::protocol::frame::FrameBuffer;
use crate::{Config, Error};

/// Bytes asked of the socket at once, in the frame reader of [`frames`].
const CHUNK: usize = 64;
/// Largest frame in [`frames`]: what is announced beyond it is refused.
const FRAME_LIMIT: usize = 1 << 20;
/// Stands for a password.
const CANARY: &str = "kT7q_Zx9";

/// A byte stream of the server: the first byte says how many bytes a read brings (plus one), the rest is received.
///
/// The frames are those of the stream whatever the reads bring; memory grows with what arrives and not with what is
/// announced; a body of any bytes is a message or an error.
pub fn frames(input: &[u8]) {
    let Some((&size, stream)) = input.split_first() else { return };
    let size = usize::from(size) + 1;
    let mut buffer = FrameBuffer::new(CHUNK, FRAME_LIMIT);
    let (mut received, mut taken) = (0, 0);
    while received < stream.len() {
        let Ok(room) = buffer.room() else {
            assert!(buffer.next().is_err(), "what has no room is an error to the reader too");
            return;
        };
        let spare = room.capacity() - room.len();
        assert!(spare > 0, "a read into no room looks like the end of the stream");
        assert!(room.capacity() <= 2 * received + 4 * CHUNK, "memory for what was only announced");
        let count = size.min(spare).min(stream.len() - received);
        room.extend_from_slice(&stream[received..received + count]);
        received += count;
        loop {
            match buffer.next() {
                Ok(None) => break,
                Err(_) => return,
                Ok(Some(frame)) => {
                    let end = taken + 5 + frame.body.len();
                    assert_eq!(frame.tag, stream[taken], "the frame's type");
                    assert!(frame.body == stream[taken + 5..end], "the frame's body");
                    taken = end;
                    message(frame.tag, &frame.body);
                }
            }
        }
        assert!(!buffer.ready(), "no frame is left over");
    }
    assert_eq!(buffer.is_empty(), taken == stream.len(), "what was not taken is held");
}

/// The body of every message that the server may send. A count in it makes no memory that its bytes do not fill.
fn message(kind: u8, body: &Bytes) {
    let within = |count: usize| assert!(count <= body.len(), "more fields than bytes");
    match kind {
        tag::AUTHENTICATION => drop(backend::authentication(body)),
        tag::BACKEND_KEY_DATA => drop(backend::backend_key(body)),
        tag::COMMAND_COMPLETE => drop(backend::command_complete(body)),
        tag::DATA_ROW => within(backend::data_row(body).map_or(0, |row| row.len())),
        tag::ROW_DESCRIPTION => within(backend::row_description(body).map_or(0, |names| names.len())),
        tag::ERROR_RESPONSE | tag::NOTICE_RESPONSE => drop(backend::server_message(body)),
        tag::PARAMETER_STATUS => drop(backend::parameter_status(body)),
        tag::COPY_DATA => match backend::copy_data(body.clone()) {
            Ok(CopyData::XLogData { payload, .. }) => {
                assert!(payload == body.slice(25..), "the payload is everything behind the head")
            }
            Ok(CopyData::KeepAlive { .. }) => assert_eq!(body.len(), 18),
            Err(_) => {}
        },
        _ => {}
    }
}

/// A connection URL or list of keywords, alone and behind a password: neither an error nor what is shown of a
/// configuration holds the password, wherever the text goes wrong behind it.
pub fn url(input: &[u8]) {
    let Some(text) = str::from_utf8(input).ok().filter(|text| !text.contains(CANARY)) else { return };
    drop(parse(text));
    let mut texts = vec![
        format!("postgres://app:{CANARY}{text}"),
        format!("postgres://app:pw/{CANARY}{text}@localhost/shop"),
        format!("password={CANARY} {text}"),
        format!("user=app password='{CANARY} {text}"),
    ];
    // Where the place ends before the second @, what stands behind the first one is a host and no password.
    if !text.contains(['/', '?']) {
        texts.push(format!("postgres://app:pw@{CANARY}{text}@localhost/shop"));
    }
    for text in texts {
        let shown = match parse(&text) {
            Ok(config) => format!("{config:?} {config}"),
            Err(error) => format!("{error:?} {error}"),
        };
        assert!(!shown.contains(CANARY), "the password is shown");
    }
}

/// Without the environment of the process, which is not part of the input.
fn parse(text: &str) -> Result<Config, Error> {
    Config::parse(text, &|name| (name == "USER").then(|| "app".to_owned()))
}
