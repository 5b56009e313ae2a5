//! Cuts the byte stream into frames: a type byte, a length that counts itself, a body.
//!
//! One buffer is filled by large reads and handed out in slices that share its memory. A length over the limit is
//! refused when its header is seen, before its body is buffered. A buffer that had to grow for one huge frame is given
//! up as soon as that frame has left.

use bytes::{Buf, Bytes, BytesMut};

use crate::Error;

/// Type byte and length.
const HEADER: usize = 5;

/// One message of the server, without its header.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) tag: u8,
    pub(crate) body: Bytes,
}

/// The receive buffer.
#[derive(Debug)]
pub(crate) struct FrameBuffer {
    buffer: BytesMut,
    /// Size of an ordinary allocation, in bytes.
    chunk: usize,
    /// Largest frame with its header, in bytes.
    limit: usize,
    /// The allocation in use is larger than `chunk`.
    oversized: bool,
}

impl FrameBuffer {
    /// `chunk` bytes are asked of the socket at once; a frame of more than `limit` bytes is an error.
    pub(crate) fn new(chunk: usize, limit: usize) -> Self {
        Self { buffer: BytesMut::new(), chunk, limit, oversized: false }
    }

    /// The next whole frame, if it has arrived.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, Error> {
        let Some((tag, total)) = self.head()? else { return Ok(None) };
        if self.buffer.len() < total {
            return Ok(None);
        }
        let mut frame = self.buffer.split_to(total);
        frame.advance(HEADER);
        Ok(Some(Frame { tag, body: frame.freeze() }))
    }

    /// Type byte and whole length of the frame that comes next.
    fn head(&self) -> Result<Option<(u8, usize)>, Error> {
        let Some(([tag, length @ ..], _)) = self.buffer.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length);
        let total = u64::from(length).saturating_add(1);
        if length < 4 {
            return Err(Error::protocol(format!(
                "message {:?} has an impossible length: {length}",
                char::from(*tag)
            )));
        }
        match usize::try_from(total) {
            Ok(total) if total <= self.limit => Ok(Some((*tag, total))),
            _ => Err(Error::FrameTooLarge { tag: char::from(*tag), length: total, limit: self.limit }),
        }
    }

    /// The buffer with room for the next read.
    pub(crate) fn room(&mut self) -> Result<&mut BytesMut, Error> {
        let held = self.buffer.len();
        let missing = self.head()?.map_or(0, |(_, total)| total.saturating_sub(held));
        let spare = self.buffer.capacity().saturating_sub(held);
        if self.oversized {
            if held.saturating_add(missing) <= self.chunk {
                // The huge frame has left.
                self.renew();
            } else if spare < missing.min(self.chunk).max(1) {
                self.buffer.reserve(missing.min(held).max(self.chunk));
            }
        } else if missing > self.chunk {
            // Grow with what arrives, not with what is announced.
            if spare < self.chunk {
                self.buffer.reserve(missing.min(held.max(self.chunk)));
                self.oversized = true;
            }
        } else if spare < missing.max(self.chunk / 4) && !self.buffer.try_reclaim(missing.max(self.chunk / 2))
        {
            self.renew();
        }
        Ok(&mut self.buffer)
    }

    /// Moves the unfinished frame into a fresh allocation.
    fn renew(&mut self) {
        let held = self.buffer.len();
        let mut fresh = BytesMut::with_capacity(held.saturating_add(self.chunk));
        fresh.extend_from_slice(&self.buffer);
        self.oversized = held > self.chunk;
        self.buffer = fresh;
    }

    /// Whether a whole frame waits to be taken (or a broken one to be reported).
    pub(crate) fn ready(&self) -> bool {
        match self.head() {
            Ok(Some((_, total))) => self.buffer.len() >= total,
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// No byte is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }
}
