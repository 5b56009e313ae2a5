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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CHUNK: usize = 1024;
    const LIMIT: usize = 1 << 20;

    fn encode(frames: &[(u8, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (tag, body) in frames {
            bytes.push(*tag);
            bytes.extend_from_slice(&u32::try_from(body.len() + 4).unwrap().to_be_bytes());
            bytes.extend_from_slice(body);
        }
        bytes
    }

    /// Puts in as much as one read of `size` bytes would.
    fn receive(buffer: &mut FrameBuffer, bytes: &mut &[u8], size: usize) {
        let room = buffer.room().unwrap();
        let spare = room.capacity() - room.len();
        assert!(spare > 0, "a read into no room would look like the end of the stream");
        let (head, tail) = bytes.split_at(size.min(spare).min(bytes.len()));
        room.extend_from_slice(head);
        *bytes = tail;
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_chunking_gives_the_same_frames(
            frames in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..5000)), 0..20),
            sizes in prop::collection::vec(1_usize..4000, 1..50),
            keep in any::<bool>(),
        ) {
            let bytes = encode(&frames);
            let mut rest = bytes.as_slice();
            let mut buffer = FrameBuffer::new(CHUNK, LIMIT);
            let mut sizes = sizes.iter().cycle();
            let mut seen = Vec::new();
            // Slices that stay alive keep the buffer from using its memory again.
            let mut kept = Vec::new();
            while !rest.is_empty() {
                receive(&mut buffer, &mut rest, *sizes.next().unwrap());
                while let Some(frame) = buffer.next().unwrap() {
                    seen.push((frame.tag, frame.body.to_vec()));
                    if keep {
                        kept.push(frame.body);
                    }
                }
            }
            prop_assert_eq!(&seen, &frames);
            prop_assert!(buffer.is_empty());
            if keep {
                let bodies: Vec<_> = frames.iter().map(|(_, body)| body.as_slice()).collect();
                prop_assert_eq!(kept.iter().map(|body| &body[..]).collect::<Vec<_>>(), bodies);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut buffer = FrameBuffer::new(CHUNK, LIMIT);
            let mut rest = bytes.as_slice();
            while !rest.is_empty() && buffer.room().is_ok() {
                receive(&mut buffer, &mut rest, 7);
                while let Ok(Some(_)) = buffer.next() {}
            }
        }
    }

    #[test]
    fn a_frame_over_the_limit_is_refused_by_its_header() {
        let mut buffer = FrameBuffer::new(CHUNK, LIMIT);
        buffer.room().unwrap().extend_from_slice(&[b'd', 0, 0x10, 0, 0]);
        assert!(buffer.ready());
        let error = buffer.next().unwrap_err();
        assert!(
            matches!(error, Error::FrameTooLarge { tag: 'd', length: 0x10_0001, limit: LIMIT }),
            "{error}"
        );
        assert!(buffer.room().is_err());

        let mut buffer = FrameBuffer::new(CHUNK, LIMIT);
        buffer.room().unwrap().extend_from_slice(&[b'd', 0, 0x0f, 0xff, 0xff]);
        assert!(buffer.next().unwrap().is_none(), "exactly the limit is accepted");
        // Nothing near the announced size is set aside before it arrives.
        let room = buffer.room().unwrap();
        assert!(room.capacity() <= 4 * CHUNK, "{}", room.capacity());
    }

    #[test]
    fn impossible_lengths_are_refused() {
        for length in 0..4 {
            let mut buffer = FrameBuffer::new(CHUNK, LIMIT);
            buffer.room().unwrap().extend_from_slice(&[b'd', 0, 0, 0, length]);
            assert!(matches!(buffer.next(), Err(Error::Protocol { .. })));
        }
    }

    #[test]
    fn a_huge_frame_does_not_keep_the_buffer_huge() {
        let frames = [(b'd', vec![7; 900_000]), (b'k', vec![1; 10]), (b'd', vec![2; 100])];
        let bytes = encode(&frames);
        let mut rest = bytes.as_slice();
        let mut buffer = FrameBuffer::new(CHUNK, LIMIT);
        let mut seen = 0;
        let mut largest = 0;
        while !rest.is_empty() {
            receive(&mut buffer, &mut rest, 500);
            largest = largest.max(buffer.buffer.capacity());
            while let Some(frame) = buffer.next().unwrap() {
                assert_eq!(frame.body, frames[seen].1);
                seen += 1;
            }
        }
        assert_eq!(seen, 3);
        assert!(largest < 2_000_000, "twice the frame at most: {largest}");
        let room = buffer.room().unwrap();
        assert!(room.capacity() <= 2 * CHUNK, "{}", room.capacity());
    }

    #[test]
    fn memory_is_used_again_when_nobody_holds_a_slice() {
        let bytes = encode(&[(b'd', vec![3; 95])]);
        let mut buffer = FrameBuffer::new(CHUNK, LIMIT);
        buffer.room().unwrap();
        let first = buffer.buffer.as_ptr();
        for _ in 0..1000 {
            let mut rest = bytes.as_slice();
            receive(&mut buffer, &mut rest, 100);
            assert_eq!(buffer.next().unwrap().unwrap().body.len(), 95);
            buffer.room().unwrap();
            let here = buffer.buffer.as_ptr();
            assert!((here as usize).wrapping_sub(first as usize) < CHUNK, "another allocation");
        }
    }
}
