//! Addresses and sockets.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, UnixStream, lookup_host};

use super::SOCKET_DIRECTORIES;
use crate::Error;
use crate::config::{Host, HostSpec, TcpConfig};

/// One address of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// All addresses of a host, in the order in which they are tried.
pub(super) async fn addresses(spec: &HostSpec) -> Result<Vec<Address>, Error> {
    if let Some(address) = spec.address {
        return Ok(vec![Address::Tcp(SocketAddr::new(address, spec.port))]);
    }
    let name = match &spec.host {
        Host::Directory(directory) => return Ok(vec![Address::Unix(socket_path(directory, spec.port))]),
        Host::Default => {
            let paths = SOCKET_DIRECTORIES.map(|directory| socket_path(Path::new(directory), spec.port));
            let present: Vec<_> = paths.into_iter().filter(|path| path.exists()).map(Address::Unix).collect();
            if !present.is_empty() {
                return Ok(present);
            }
            "localhost"
        }
        Host::Name(name) => name.as_str(),
    };
    let found: Vec<_> = lookup_host((name, spec.port))
        .await
        .map_err(|error| Error::io(format!("cannot find the address of {name}"), error))?
        .map(Address::Tcp)
        .collect();
    if found.is_empty() {
        return Err(Error::io(format!("cannot find the address of {name}"), io::ErrorKind::NotFound.into()));
    }
    Ok(found)
}

fn socket_path(directory: &Path, port: u16) -> PathBuf {
    directory.join(format!(".s.PGSQL.{port}"))
}

pub(super) async fn tcp(address: SocketAddr, config: &TcpConfig) -> Result<TcpStream, Error> {
    let context = || format!("cannot connect to {address}");
    let stream = TcpStream::connect(address).await.map_err(|error| Error::io(context(), error))?;
    tune(&stream, config)
        .map_err(|error| Error::io(format!("cannot set up the socket to {address}"), error))?;
    Ok(stream)
}

fn tune(stream: &TcpStream, config: &TcpConfig) -> io::Result<()> {
    // A status is a small message that must not wait for more.
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    if config.keepalive {
        let keepalive =
            TcpKeepalive::new().with_time(config.keepalive_idle).with_interval(config.keepalive_interval);
        socket.set_tcp_keepalive(&keepalive.with_retries(config.keepalive_count))?;
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Some(timeout) = config.user_timeout {
        socket.set_tcp_user_timeout(Some(timeout))?;
    }
    Ok(())
}

pub(super) async fn unix(path: &Path) -> Result<UnixStream, Error> {
    UnixStream::connect(path)
        .await
        .map_err(|error| Error::io(format!("cannot connect to the socket {}", path.display()), error))
}
