//! A transport with its receive buffer and its pending output.
//!
//! Whatever was received or waits to be sent lives here and not in a future: dropping a future at any point loses
//! nothing.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWrite};

use crate::Error;
use crate::protocol::frame::{Frame, FrameBuffer};
use crate::transport::{Transport, tls_error};

/// Bytes asked of the socket at once.
const READ_CHUNK: usize = 256 * 1024;

pub(crate) struct Link {
    pub(crate) transport: Transport,
    pub(crate) frames: FrameBuffer,
    /// Encoded messages not yet taken by the socket.
    pub(crate) out: BytesMut,
    unflushed: bool,
    /// The server has closed its side, or reading has failed.
    end: Option<io::Result<()>>,
}

impl Link {
    pub(crate) fn new(transport: Transport, frame_limit: usize) -> Self {
        Self {
            transport,
            frames: FrameBuffer::new(READ_CHUNK, frame_limit),
            out: BytesMut::new(),
            unflushed: false,
            end: None,
        }
    }

    /// Hands pending output to the socket.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.out.is_empty() {
            let written = ready!(Pin::new(&mut self.transport).poll_write(cx, &self.out))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.out.advance(written);
            self.unflushed = true;
        }
        if self.unflushed {
            ready!(Pin::new(&mut self.transport).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Forgets pending output, after sending has failed.
    pub(crate) fn discard_output(&mut self) {
        self.out.clear();
        self.unflushed = false;
    }

    /// Everything was handed to the socket.
    pub(crate) fn is_sent(&self) -> bool {
        self.out.is_empty() && !self.unflushed
    }

    /// Reads what the socket holds, up to the buffer's room; zero bytes mean that the server's side has ended.
    pub(crate) fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, Error>> {
        if self.end.is_some() {
            return Poll::Ready(Ok(0));
        }
        let mut received: usize = 0;
        loop {
            let room = self.frames.room()?;
            let outcome = pin!(self.transport.read_buf(room)).poll(cx);
            match outcome {
                Poll::Pending if received == 0 => return Poll::Pending,
                Poll::Pending => return Poll::Ready(Ok(received)),
                Poll::Ready(Ok(0)) => self.end = Some(Ok(())),
                // TLS says so where the other side did not take its leave; the socket alone would not.
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.end = Some(Ok(()))
                }
                Poll::Ready(Err(error)) => self.end = Some(Err(error)),
                Poll::Ready(Ok(count)) => {
                    received = received.saturating_add(count);
                    // TLS hands out one record at a time: go on until the socket is empty or a chunk is full.
                    if received < READ_CHUNK / 2 {
                        continue;
                    }
                }
            }
            return Poll::Ready(Ok(received));
        }
    }

    /// The server's side has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// The error that the end of the server's side amounts to.
    pub(crate) fn end_error(&mut self, during: &'static str) -> Error {
        match self.end.replace(Ok(())) {
            Some(Err(source)) => match tls_error(&source) {
                Some(message) => Error::tls(message),
                None => Error::io(format!("the connection broke while {during}"), source),
            },
            _ if !self.frames.is_empty() => Error::io(
                format!("the connection was cut inside a message while {during}"),
                io::ErrorKind::UnexpectedEof.into(),
            ),
            _ => Error::Closed { during },
        }
    }

    /// Sends all pending output.
    ///
    /// # Cancel safety
    ///
    /// Safe: what was not sent stays pending.
    pub(crate) async fn send(&mut self, doing: &'static str) -> Result<(), Error> {
        poll_fn(|cx| self.poll_send(cx))
            .await
            .map_err(|source| Error::io(format!("cannot send while {doing}"), source))
    }

    /// The next message; sends pending output while waiting.
    ///
    /// # Cancel safety
    ///
    /// Safe: what was received stays in the buffer.
    pub(crate) async fn frame(&mut self, during: &'static str) -> Result<Frame, Error> {
        loop {
            if let Some(frame) = self.frames.next()? {
                return Ok(frame);
            }
            if self.end.is_some() {
                return Err(self.end_error(during));
            }
            poll_fn(|cx| {
                // A failing write is not reported here: the server's reason for hanging up is still to be read.
                if let Poll::Ready(Err(_)) = self.poll_send(cx) {
                    self.discard_output();
                }
                self.poll_receive(cx)
            })
            .await?;
        }
    }
}
