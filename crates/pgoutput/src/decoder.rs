//! One message at a time, and the little state that their layouts depend on.
//!
//! <https://www.postgresql.org/docs/17/protocol-logical-replication.html>

use crate::reader::Reader;
use crate::{
    Begin, BeginPrepare, Commit, CommitPrepared, DecodeError, Delete, Insert, LogicalMessage, Origin,
    Prepare, Relation, RollbackPrepared, StreamAbort, StreamCommit, StreamStart, StreamStop, Truncate, Type,
    Update,
};

/// One pgoutput message. Cells, names and contents are slices of the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// `B`
    Begin(Begin),
    /// `C`
    Commit(Commit),
    /// `O`
    Origin(Origin<'a>),
    /// `R`
    Relation(Relation<'a>),
    /// `Y`
    Type(Type<'a>),
    /// `I`
    Insert(Insert<'a>),
    /// `U`
    Update(Update<'a>),
    /// `D`
    Delete(Delete<'a>),
    /// `T`
    Truncate(Truncate<'a>),
    /// `M`
    LogicalMessage(LogicalMessage<'a>),
    /// `S`
    StreamStart(StreamStart),
    /// `E`
    StreamStop(StreamStop),
    /// `c`
    StreamCommit(StreamCommit),
    /// `A`
    StreamAbort(StreamAbort),
    /// `b`
    BeginPrepare(BeginPrepare<'a>),
    /// `P`
    Prepare(Prepare<'a>),
    /// `K`
    CommitPrepared(CommitPrepared<'a>),
    /// `r`
    RollbackPrepared(RollbackPrepared<'a>),
    /// `p`
    StreamPrepare(Prepare<'a>),
}

impl Message<'_> {
    /// The byte that a message of this kind begins with.
    pub const fn tag(&self) -> u8 {
        match self {
            Self::Begin(_) => b'B',
            Self::Commit(_) => b'C',
            Self::Origin(_) => b'O',
            Self::Relation(_) => b'R',
            Self::Type(_) => b'Y',
            Self::Insert(_) => b'I',
            Self::Update(_) => b'U',
            Self::Delete(_) => b'D',
            Self::Truncate(_) => b'T',
            Self::LogicalMessage(_) => b'M',
            Self::StreamStart(_) => b'S',
            Self::StreamStop(_) => b'E',
            Self::StreamCommit(_) => b'c',
            Self::StreamAbort(_) => b'A',
            Self::BeginPrepare(_) => b'b',
            Self::Prepare(_) => b'P',
            Self::CommitPrepared(_) => b'K',
            Self::RollbackPrepared(_) => b'r',
            Self::StreamPrepare(_) => b'p',
        }
    }

    /// The name of this kind of message, as errors use it.
    pub const fn name(&self) -> &'static str {
        match name_of(self.tag()) {
            Some(name) => name,
            None => UNKNOWN,
        }
    }
}

const UNKNOWN: &str = "message";

#[inline]
const fn name_of(tag: u8) -> Option<&'static str> {
    Some(match tag {
        b'B' => "Begin",
        b'C' => "Commit",
        b'O' => "Origin",
        b'R' => "Relation",
        b'Y' => "Type",
        b'I' => "Insert",
        b'U' => "Update",
        b'D' => "Delete",
        b'T' => "Truncate",
        b'M' => "Message",
        b'S' => "Stream Start",
        b'E' => "Stream Stop",
        b'c' => "Stream Commit",
        b'A' => "Stream Abort",
        b'b' => "Begin Prepare",
        b'P' => "Prepare",
        b'K' => "Commit Prepared",
        b'r' => "Rollback Prepared",
        b'p' => "Stream Prepare",
        _ => return None,
    })
}

/// Decodes the messages of one replication connection, in the order received.
///
/// Two layouts depend on the session. Between Stream Start and Stream Stop relations, types, changes and logical
/// messages carry an xid; the decoder sees for itself when it is there. Stream Abort is 16 bytes longer when
/// `streaming 'parallel'` was asked for; that must be said. A new connection needs a new decoder.
///
/// ```
/// use crabka_pgoutput::{Cell, Decoder, Message};
///
/// let mut decoder = Decoder::new();
/// let payload = b"I\0\0\x40\0N\0\x02t\0\0\0\x0242n";
/// let Message::Insert(insert) = decoder.decode(payload)? else { panic!("not an Insert") };
/// assert_eq!(insert.relation, 16384);
/// assert_eq!(insert.new.cells().collect::<Vec<_>>(), [Cell::Text(b"42"), Cell::Null]);
/// # Ok::<(), crabka_pgoutput::DecodeError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Decoder {
    streaming_parallel: bool,
    in_stream: bool,
}

impl Decoder {
    /// For a new connection, without `streaming 'parallel'`.
    pub const fn new() -> Self {
        Self { streaming_parallel: false, in_stream: false }
    }

    /// Whether START_REPLICATION was given `streaming 'parallel'` (protocol 4, PostgreSQL 16 and later).
    #[must_use]
    pub const fn streaming_parallel(mut self, on: bool) -> Self {
        self.streaming_parallel = on;
        self
    }

    /// Whether the last message left a chunk of a streamed transaction open.
    pub const fn in_stream(&self) -> bool {
        self.in_stream
    }

    /// Decodes the payload of one WAL data message.
    ///
    /// Shape: `payload` is exactly one message, tag first. The result borrows from it; nothing is copied or
    /// allocated, and the time is linear in its length.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] for everything that is not exactly one message of protocol 1 to 4: an unknown tag, kind or
    /// flag, a field that the input ends in, a name that is not UTF-8, bytes behind the message, a Stream Start
    /// inside a chunk, a Stream Stop outside. The state of the decoder stays as it was.
    #[inline]
    pub fn decode<'a>(&mut self, payload: &'a [u8]) -> Result<Message<'a>, DecodeError> {
        let mut reader = Reader::new(payload);
        let tag = reader.u8("tag")?;
        let in_stream = self.in_stream;
        // Rows first: they are nearly all there is.
        let message = match tag {
            b'I' => {
                reader.enter("Insert");
                Message::Insert(Insert::decode(&mut reader, in_stream)?)
            }
            b'U' => {
                reader.enter("Update");
                Message::Update(Update::decode(&mut reader, in_stream)?)
            }
            b'D' => {
                reader.enter("Delete");
                Message::Delete(Delete::decode(&mut reader, in_stream)?)
            }
            _ => self.decode_other(tag, &mut reader)?,
        };
        reader.finish()?;
        match message {
            Message::StreamStart(_) => self.in_stream = true,
            Message::StreamStop(_) => self.in_stream = false,
            _ => {}
        }
        Ok(message)
    }

    fn decode_other<'a>(&self, tag: u8, reader: &mut Reader<'a>) -> Result<Message<'a>, DecodeError> {
        let Some(name) = name_of(tag) else {
            return Err(reader.wrong_byte("tag", "unknown message tag", tag));
        };
        reader.enter(name);
        let in_stream = self.in_stream;
        Ok(match tag {
            b'B' => Message::Begin(Begin::decode(reader)?),
            b'C' => Message::Commit(Commit::decode(reader)?),
            b'O' => Message::Origin(Origin::decode(reader)?),
            b'R' => Message::Relation(Relation::decode(reader, in_stream)?),
            b'Y' => Message::Type(Type::decode(reader, in_stream)?),
            b'T' => Message::Truncate(Truncate::decode(reader, in_stream)?),
            b'M' => Message::LogicalMessage(LogicalMessage::decode(reader, in_stream)?),
            b'S' if in_stream => {
                return Err(reader.wrong_byte("tag", "a chunk is open already", tag));
            }
            b'S' => Message::StreamStart(StreamStart::decode(reader)?),
            b'E' if !in_stream => return Err(reader.wrong_byte("tag", "no chunk is open", tag)),
            b'E' => Message::StreamStop(StreamStop {}),
            b'c' => Message::StreamCommit(StreamCommit::decode(reader)?),
            b'A' => Message::StreamAbort(StreamAbort::decode(reader, self.streaming_parallel)?),
            b'b' => Message::BeginPrepare(BeginPrepare::decode(reader)?),
            b'P' => Message::Prepare(Prepare::decode(reader)?),
            b'K' => Message::CommitPrepared(CommitPrepared::decode(reader)?),
            b'r' => Message::RollbackPrepared(RollbackPrepared::decode(reader)?),
            b'p' => Message::StreamPrepare(Prepare::decode(reader)?),
            _ => return Err(reader.wrong_byte("tag", "unknown message tag", tag)),
        })
    }
}
