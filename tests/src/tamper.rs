//! A proxy that changes what a server says, message by message: for what no server says by itself.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Looks at a pgoutput message and may change it; `false` leaves it out.
type Change = dyn FnMut(&mut Vec<u8>) -> bool + Send;

/// Bytes before the pgoutput message in a frame of WAL data: tag, length, `w`, two positions, a time.
const WAL_HEADER: usize = 1 + 4 + 1 + 8 + 8 + 8;

/// A TCP proxy to a server without TLS that passes each pgoutput message through a function.
#[derive(Debug)]
pub struct TamperProxy {
    port: u16,
}

impl TamperProxy {
    /// Listens on a port of its own and connects to `server_port`, both on loopback. Its threads end with their
    /// connections; the listener stays for as long as the test process.
    pub fn start(
        server_port: u16,
        change: impl FnMut(&mut Vec<u8>) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let change: Arc<Mutex<Change>> = Arc::new(Mutex::new(change));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)) else { continue };
                let (Ok(mut from_client), Ok(mut to_server)) = (client.try_clone(), server.try_clone())
                else {
                    continue;
                };
                std::thread::spawn(move || {
                    let _ = io::copy(&mut from_client, &mut to_server);
                    let _ = to_server.shutdown(Shutdown::Write);
                });
                let change = Arc::clone(&change);
                std::thread::spawn(move || {
                    let _ = pass(&server, &client, &change);
                    let _ = client.shutdown(Shutdown::Both);
                });
            }
        });
        Ok(Self { port })
    }

    /// URL of a database of the server, through the proxy.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }
}

fn pass(mut server: &TcpStream, mut client: &TcpStream, change: &Mutex<Change>) -> io::Result<()> {
    loop {
        let mut frame = vec![0; 5];
        server.read_exact(&mut frame)?;
        let length = u32::from_be_bytes([frame[1], frame[2], frame[3], frame[4]]);
        frame.resize(1 + length as usize, 0);
        server.read_exact(&mut frame[5..])?;
        if frame[0] == b'd' && frame.len() > WAL_HEADER && frame[5] == b'w' {
            let mut message = frame.split_off(WAL_HEADER);
            let mut change = change.lock().expect("no change has panicked");
            if !change(&mut message) {
                continue;
            }
            frame.append(&mut message);
            let length = u32::try_from(frame.len() - 1).expect("a frame's length");
            frame[1..5].copy_from_slice(&length.to_be_bytes());
        }
        client.write_all(&frame)?;
    }
}
