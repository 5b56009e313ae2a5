//! Bodies of the server's messages.
//!
//! <https://www.postgresql.org/docs/18/protocol-message-formats.html>

use bytes::{Buf, Bytes};

use super::cursor::Cursor;
use crate::error::ServerMessage;
use crate::{Error, Lsn};

/// Type bytes of the server's messages.
pub(crate) mod tag {
    pub(crate) const AUTHENTICATION: u8 = b'R';
    pub(crate) const BACKEND_KEY_DATA: u8 = b'K';
    pub(crate) const COMMAND_COMPLETE: u8 = b'C';
    pub(crate) const COPY_BOTH_RESPONSE: u8 = b'W';
    pub(crate) const COPY_DATA: u8 = b'd';
    pub(crate) const COPY_DONE: u8 = b'c';
    pub(crate) const COPY_IN_RESPONSE: u8 = b'G';
    pub(crate) const COPY_OUT_RESPONSE: u8 = b'H';
    pub(crate) const DATA_ROW: u8 = b'D';
    pub(crate) const EMPTY_QUERY_RESPONSE: u8 = b'I';
    pub(crate) const ERROR_RESPONSE: u8 = b'E';
    pub(crate) const NEGOTIATE_PROTOCOL_VERSION: u8 = b'v';
    pub(crate) const NOTICE_RESPONSE: u8 = b'N';
    pub(crate) const NOTIFICATION_RESPONSE: u8 = b'A';
    pub(crate) const PARAMETER_STATUS: u8 = b'S';
    pub(crate) const READY_FOR_QUERY: u8 = b'Z';
    pub(crate) const ROW_DESCRIPTION: u8 = b'T';
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// ErrorResponse and NoticeResponse.
pub(crate) fn server_message(body: &[u8]) -> Result<ServerMessage, Error> {
    let mut cursor = Cursor::new("ErrorResponse", body);
    let mut message = ServerMessage::default();
    let mut localized = String::new();
    loop {
        match cursor.u8("field type")? {
            0 => break,
            b'S' => localized = text(cursor.cstr("severity")?),
            b'V' => message.severity = text(cursor.cstr("severity")?),
            b'C' => message.sqlstate = text(cursor.cstr("code")?),
            b'M' => message.message = text(cursor.cstr("message")?),
            b'D' => message.detail = Some(text(cursor.cstr("detail")?)),
            b'H' => message.hint = Some(text(cursor.cstr("hint")?)),
            _ => drop(cursor.cstr("unnamed field")?),
        }
    }
    if message.severity.is_empty() {
        message.severity = localized;
    }
    Ok(message)
}

/// ParameterStatus: name and value.
pub(crate) fn parameter_status(body: &[u8]) -> Result<(String, String), Error> {
    let mut cursor = Cursor::new("ParameterStatus", body);
    let name = text(cursor.cstr("name")?);
    let value = text(cursor.cstr("value")?);
    cursor.end()?;
    Ok((name, value))
}

/// What identifies a backend to a CancelRequest.
#[derive(Clone)]
pub(crate) struct BackendKey {
    pub(crate) pid: i32,
    pub(crate) secret: Vec<u8>,
}

/// BackendKeyData.
pub(crate) fn backend_key(body: &[u8]) -> Result<BackendKey, Error> {
    let mut cursor = Cursor::new("BackendKeyData", body);
    Ok(BackendKey { pid: cursor.i32("process")?, secret: cursor.rest().to_vec() })
}

/// What the server wants next of a client that proves who it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Authentication<'a> {
    Ok,
    Cleartext,
    Md5 { salt: [u8; 4] },
    Sasl { mechanisms: Vec<&'a [u8]> },
    SaslContinue(&'a [u8]),
    SaslFinal(&'a [u8]),
    Unsupported(i32),
}

/// AuthenticationXXX.
pub(crate) fn authentication(body: &[u8]) -> Result<Authentication<'_>, Error> {
    let mut cursor = Cursor::new("Authentication", body);
    Ok(match cursor.i32("kind")? {
        0 => Authentication::Ok,
        3 => Authentication::Cleartext,
        5 => {
            let salt = cursor.bytes(4, "salt")?;
            Authentication::Md5 {
                salt: salt.try_into().map_err(|_| Error::protocol("salt is not four bytes"))?,
            }
        }
        10 => {
            let mut mechanisms = Vec::new();
            loop {
                match cursor.cstr("mechanism")? {
                    [] => break Authentication::Sasl { mechanisms },
                    name => mechanisms.push(name),
                }
            }
        }
        11 => Authentication::SaslContinue(cursor.rest()),
        12 => Authentication::SaslFinal(cursor.rest()),
        other => Authentication::Unsupported(other),
    })
}

/// RowDescription: the column names.
pub(crate) fn row_description(body: &[u8]) -> Result<Vec<String>, Error> {
    let mut cursor = Cursor::new("RowDescription", body);
    let count = cursor.u16("number of columns")?;
    let mut names = Vec::new();
    for _ in 0..count {
        names.push(text(cursor.cstr("column name")?));
        // table oid, attribute number, type oid, type length, type modifier, format
        cursor.bytes(18, "column description")?;
    }
    cursor.end()?;
    Ok(names)
}

/// DataRow in text form.
pub(crate) fn data_row(body: &[u8]) -> Result<Vec<Option<String>>, Error> {
    let mut cursor = Cursor::new("DataRow", body);
    let count = cursor.u16("number of columns")?;
    let mut row = Vec::new();
    for _ in 0..count {
        row.push(match usize::try_from(cursor.i32("length of a value")?) {
            Ok(length) => Some(text(cursor.bytes(length, "value")?)),
            Err(_) => None,
        });
    }
    cursor.end()?;
    Ok(row)
}

/// CommandComplete: the command tag.
pub(crate) fn command_complete(body: &[u8]) -> Result<String, Error> {
    Ok(text(Cursor::new("CommandComplete", body).cstr("tag")?))
}

/// CopyData of a replication stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CopyData {
    /// `w`: WAL start, WAL end, server time (µs since 2000), payload.
    XLogData { start: Lsn, end: Lsn, send_time_us: i64, payload: Bytes },
    /// `k`: WAL end, server time (µs since 2000), whether a status is wanted.
    KeepAlive { wal_end: Lsn, time_us: i64, reply_requested: bool },
}

/// Bytes before the payload of `w`: tag, start, end, time.
const XLOG_DATA_HEAD: usize = 25;

/// A CopyData body; the payload shares its memory.
pub(crate) fn copy_data(mut body: Bytes) -> Result<CopyData, Error> {
    let mut cursor = Cursor::new("CopyData", &body);
    match cursor.u8("type")? {
        b'w' => {
            let start = Lsn::new(cursor.u64("WAL start")?);
            let end = Lsn::new(cursor.u64("WAL end")?);
            let send_time_us = cursor.i64("send time")?;
            body.advance(XLOG_DATA_HEAD);
            Ok(CopyData::XLogData { start, end, send_time_us, payload: body })
        }
        b'k' => {
            let wal_end = Lsn::new(cursor.u64("WAL end")?);
            let time_us = cursor.i64("time")?;
            let reply_requested = cursor.u8("reply flag")? != 0;
            cursor.end()?;
            Ok(CopyData::KeepAlive { wal_end, time_us, reply_requested })
        }
        other => {
            Err(Error::protocol(format!("unknown replication message in CopyData: {:?}", char::from(other))))
        }
    }
}
