//! The status of a running worker, asked for over its own HTTP endpoint.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use crabka_connect::ConnectError;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long a worker may take to answer.
const LIMIT: Duration = Duration::from_secs(5);

/// More than any status has.
const ANSWER_BYTES_MAX: u64 = 4 << 20;

/// What `/status` of the worker on `listen` says.
///
/// # Errors
///
/// Transient when nobody answers, or what answers is no worker.
pub(crate) async fn fetch(listen: &str) -> Result<Value, ConnectError> {
    let failed = |what: String| ConnectError::transient(format!("no worker answers on {listen}: {what}"));
    let address = reachable(listen).ok_or_else(|| failed("not an address".to_owned()))?;
    let answer = tokio::time::timeout(LIMIT, get(address, "/status"))
        .await
        .map_err(|_| failed("no answer in time".to_owned()))?
        .map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| failed("no HTTP".to_owned()))?;
    if head.split(' ').nth(1) != Some("200") {
        return Err(failed("it has no /status".to_owned()));
    }
    serde_json::from_str(body).map_err(|_| failed("its /status is not JSON".to_owned()))
}

/// HTTP/1.0, so that the body comes as it is and ends with the connection.
async fn get(address: SocketAddr, path: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await?;
    Ok(answer)
}

/// Where a listener can be reached from this machine: one on every address, on the loopback one.
fn reachable(listen: &str) -> Option<SocketAddr> {
    let mut address: SocketAddr = listen.parse().ok()?;
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    Some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_on_every_address_is_reached_on_loopback() {
        for (listen, expected) in
            [("0.0.0.0:80", "127.0.0.1:80"), ("[::]:80", "[::1]:80"), ("10.0.0.1:80", "10.0.0.1:80")]
        {
            assert_eq!(reachable(listen), Some(expected.parse().unwrap()));
        }
        assert_eq!(reachable("no address"), None);
    }
}
