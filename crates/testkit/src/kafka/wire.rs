//! The one question asked of a broker: which brokers are there, and where? One that answers it is ready.
//!
//! <https://kafka.apache.org/41/design/protocol/>, Metadata request version 1.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

const METADATA_API_KEY: i16 = 3;
const METADATA_API_VERSION: i16 = 1;
const CORRELATION: i32 = 1;
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Addresses (`host:port`) of the brokers that the server at `address` tells its clients to go to; an error text when
/// it does not answer.
pub(crate) fn brokers(address: &str, limit: Duration) -> Result<Vec<String>, String> {
    let socket_address = address
        .to_socket_addrs()
        .map_err(|error| error.to_string())?
        .next()
        .ok_or_else(|| format!("no address: {address}"))?;
    let mut socket = TcpStream::connect_timeout(&socket_address, limit).map_err(|error| error.to_string())?;
    socket.set_read_timeout(Some(limit)).map_err(|error| error.to_string())?;
    socket.set_write_timeout(Some(limit)).map_err(|error| error.to_string())?;
    let answer = ask(&mut socket).map_err(|error| error.to_string())?;
    parse(&answer).ok_or_else(|| "not a metadata answer of kafka".into())
}

fn ask(socket: &mut (impl Read + Write)) -> std::io::Result<Vec<u8>> {
    socket.write_all(&request())?;
    let mut length = [0; 4];
    socket.read_exact(&mut length)?;
    let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length > ANSWER_BYTES_MAX {
        return Err(std::io::Error::other(format!("not an answer of kafka: length {length}")));
    }
    let mut answer = vec![0; length];
    socket.read_exact(&mut answer)?;
    Ok(answer)
}

/// Correlation id, then an array of brokers: node id, host, port, rack (nullable).
fn parse(answer: &[u8]) -> Option<Vec<String>> {
    let mut rest = answer;
    if take_i32(&mut rest)? != CORRELATION {
        return None;
    }
    let count = take_i32(&mut rest)?;
    let mut brokers = Vec::new();
    for _ in 0..count {
        take_i32(&mut rest)?;
        let host = take_string(&mut rest)?;
        let port = take_i32(&mut rest)?;
        take_string(&mut rest)?;
        brokers.push(format!("{host}:{port}"));
    }
    Some(brokers)
}

fn take_i32(rest: &mut &[u8]) -> Option<i32> {
    let (head, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(i32::from_be_bytes(*head))
}

/// A length of -1 means no string.
fn take_string(rest: &mut &[u8]) -> Option<String> {
    let (head, tail) = rest.split_first_chunk()?;
    let length = usize::try_from(i16::from_be_bytes(*head)).unwrap_or(0);
    let text = std::str::from_utf8(tail.get(..length)?).ok()?;
    *rest = &tail[length..];
    Some(text.to_owned())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Vec<u8> {
        let mut bytes = CORRELATION.to_be_bytes().to_vec();
        bytes.extend(1_i32.to_be_bytes());
        bytes.extend(7_i32.to_be_bytes());
        bytes.extend(4_i16.to_be_bytes());
        bytes.extend(b"here");
        bytes.extend(9092_i32.to_be_bytes());
        bytes.extend((-1_i16).to_be_bytes());
        bytes
    }

    #[test]
    fn reads_where_the_brokers_are() {
        assert_eq!(parse(&answer()), Some(vec!["here:9092".to_owned()]));
    }

    #[test]
    fn an_answer_that_is_cut_short_is_no_answer() {
        let whole = answer();
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end]), None, "{end} bytes");
        }
    }
}
