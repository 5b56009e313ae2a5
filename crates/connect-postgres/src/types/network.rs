//! Server text of inet, cidr, macaddr and macaddr8 from their binary forms.
//!
//! <https://www.postgresql.org/docs/17/datatype-net-types.html>

use bytes::{BufMut, BytesMut};

use super::error::Malformed;
use super::read::{Reader, exact};
use super::write;

const FAMILY_V4: u8 = 2;
const FAMILY_V6: u8 = 3;

/// inet hides a full-length mask.
pub(super) fn render_inet(bytes: &[u8], out: &mut BytesMut) -> Result<(), Malformed> {
    render_address(bytes, out, false)
}

/// cidr always shows the mask.
pub(super) fn render_cidr(bytes: &[u8], out: &mut BytesMut) -> Result<(), Malformed> {
    render_address(bytes, out, true)
}

fn render_address(bytes: &[u8], out: &mut BytesMut, always_mask: bool) -> Result<(), Malformed> {
    let mut reader = Reader::new(bytes);
    let (family, mask, _is_cidr, length) = (reader.u8()?, reader.u8()?, reader.u8()?, reader.u8()?);
    let full = match (family, length) {
        (FAMILY_V4, 4) => {
            for (index, byte) in reader.array::<4>()?.iter().enumerate() {
                if index > 0 {
                    out.put_u8(b'.');
                }
                write::integer(out, *byte);
            }
            32
        }
        (FAMILY_V6, 16) => {
            write_v6(out, reader.array()?);
            128
        }
        _ => return Err(Malformed("unknown address family")),
    };
    reader.finish()?;
    if mask > full {
        return Err(Malformed("mask longer than the address"));
    }
    if always_mask || mask != full {
        out.put_u8(b'/');
        write::integer(out, mask);
    }
    Ok(())
}

/// Groups of hexadecimal digits; the longest run of two or more zero groups, the first of equal ones, is `::`.
/// Addresses that begin with six zero groups, or five and one of ones, end in dotted form.
fn write_v6(out: &mut BytesMut, address: [u8; 16]) {
    let groups: [u16; 8] =
        std::array::from_fn(|index| u16::from_be_bytes([address[index * 2], address[index * 2 + 1]]));
    let (mut run_start, mut run_length) = (8, 0);
    let mut index = 0;
    while index < 8 {
        let length = groups[index..].iter().take_while(|&&group| group == 0).count();
        if length >= 2 && length > run_length {
            (run_start, run_length) = (index, length);
        }
        index += length.max(1);
    }
    let dotted = run_start == 0 && (run_length == 6 || run_length == 5 && groups[5] == 0xFFFF);
    index = 0;
    while index < 8 {
        if index == run_start {
            out.put_slice(b"::");
            index += run_length;
            continue;
        }
        if index != 0 && index != run_start + run_length {
            out.put_u8(b':');
        }
        if dotted && index == 6 {
            for (place, byte) in address[12..].iter().enumerate() {
                if place > 0 {
                    out.put_u8(b'.');
                }
                write::integer(out, *byte);
            }
            return;
        }
        let hex = [groups[index] >> 12, groups[index] >> 8 & 15, groups[index] >> 4 & 15, groups[index] & 15];
        let skipped = hex[..3].iter().take_while(|&&digit| digit == 0).count();
        for digit in &hex[skipped..] {
            // Lossless: below sixteen.
            let digit = *digit as u8;
            out.put_u8(if digit < 10 { b'0' + digit } else { b'a' + digit - 10 });
        }
        index += 1;
    }
}

pub(super) fn render_macaddr(bytes: &[u8], out: &mut BytesMut) -> Result<(), Malformed> {
    write_pairs(out, &exact::<6>(bytes)?);
    Ok(())
}

pub(super) fn render_macaddr8(bytes: &[u8], out: &mut BytesMut) -> Result<(), Malformed> {
    write_pairs(out, &exact::<8>(bytes)?);
    Ok(())
}

fn write_pairs(out: &mut BytesMut, bytes: &[u8]) {
    for (index, byte) in bytes.iter().enumerate() {
        if index > 0 {
            out.put_u8(b':');
        }
        write::hex(out, &[*byte]);
    }
}
