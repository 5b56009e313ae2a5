//! Loopback ports for servers that are stopped and started again on the same port.

use std::net::{Ipv4Addr, TcpListener};

use rand::RngExt;

use crate::error::Error;

/// Below the range the kernel gives to outgoing connections: nobody takes the port by accident while its server is
/// down.
const RANGE: std::ops::Range<u16> = 15_000..32_000;

/// A port on 127.0.0.1 that nobody listens on now. Another process may still take it first; whoever starts a server
/// on it tries another one then.
pub(crate) fn free_port() -> Result<u16, Error> {
    let mut random = rand::rng();
    let mut last = None;
    for _ in 0..200 {
        let port = random.random_range(RANGE);
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return Ok(port),
            Err(error) => last = Some(error),
        }
    }
    let source = last.unwrap_or_else(|| std::io::ErrorKind::AddrInUse.into());
    Err(Error::Io { what: format!("no free port between {} and {}", RANGE.start, RANGE.end), source })
}
