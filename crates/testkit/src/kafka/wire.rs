//! The one question asked of a broker: does it answer metadata, and name a broker that can be reached?
//!
//! <https://kafka.apache.org/41/design/protocol/>, Metadata request version 1.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

const METADATA_API_KEY: i16 = 3;
const METADATA_API_VERSION: i16 = 1;
const CORRELATION: i32 = 1;
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Number of brokers that the server at `address` (`host:port`) knows; an error text when it does not answer.
pub(crate) fn broker_count(address: &str, limit: Duration) -> Result<u32, String> {
    let socket_address = address
        .to_socket_addrs()
        .map_err(|error| error.to_string())?
        .next()
        .ok_or_else(|| format!("no address: {address}"))?;
    let mut socket = TcpStream::connect_timeout(&socket_address, limit).map_err(|error| error.to_string())?;
    socket.set_read_timeout(Some(limit)).map_err(|error| error.to_string())?;
    socket.set_write_timeout(Some(limit)).map_err(|error| error.to_string())?;
    ask(&mut socket).map_err(|error| error.to_string())
}

fn ask(socket: &mut (impl Read + Write)) -> std::io::Result<u32> {
    socket.write_all(&request())?;
    let mut length = [0; 4];
    socket.read_exact(&mut length)?;
    let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if !(8..=ANSWER_BYTES_MAX).contains(&length) {
        return Err(std::io::Error::other(format!("not an answer of kafka: length {length}")));
    }
    let mut answer = vec![0; length];
    socket.read_exact(&mut answer)?;
    let word = |at: usize| i32::from_be_bytes([answer[at], answer[at + 1], answer[at + 2], answer[at + 3]]);
    if word(0) != CORRELATION {
        return Err(std::io::Error::other("not an answer of kafka: another correlation id"));
    }
    Ok(u32::try_from(word(4)).unwrap_or(0))
}

fn request() -> Vec<u8> {
    let client = b"crabka-testkit";
    let mut body = Vec::new();
    body.extend(METADATA_API_KEY.to_be_bytes());
    body.extend(METADATA_API_VERSION.to_be_bytes());
    body.extend(CORRELATION.to_be_bytes());
    body.extend((client.len() as i16).to_be_bytes());
    body.extend(client);
    // No topics.
    body.extend(0_i32.to_be_bytes());
    let mut frame = (body.len() as i32).to_be_bytes().to_vec();
    frame.extend(body);
    frame
}
