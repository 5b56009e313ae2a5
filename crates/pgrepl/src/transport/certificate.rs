//! The few fields of an X.509 certificate that the TLS library does not tell: what its signature hashes with, whose
//! name it carries, how long it is valid.
//!
//! <https://www.rfc-editor.org/rfc/rfc5280#section-4.1>

use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

/// A certificate taken apart; slices of its DER form.
#[derive(Debug)]
pub(super) struct Certificate<'a> {
    /// 1 to 3.
    pub(super) version: u8,
    /// Contents of the key's algorithm identifier.
    pub(super) key_algorithm: &'a [u8],
    /// The key itself.
    pub(super) key: &'a [u8],
    /// Seconds since 1970.
    pub(super) not_before: u64,
    pub(super) not_after: u64,
    /// The last common name of the subject.
    pub(super) common_name: Option<&'a str>,
    /// It lists DNS names or addresses, so the common name does not count.
    pub(super) has_alternative_names: bool,
    /// Contents of the signature's algorithm identifier.
    signature_algorithm: &'a [u8],
}

mod der {
    pub(super) const INTEGER: u8 = 0x02;
    pub(super) const BIT_STRING: u8 = 0x03;
    pub(super) const OCTET_STRING: u8 = 0x04;
    pub(super) const OID: u8 = 0x06;
    pub(super) const UTC_TIME: u8 = 0x17;
    pub(super) const GENERALIZED_TIME: u8 = 0x18;
    pub(super) const SEQUENCE: u8 = 0x30;
    pub(super) const SET: u8 = 0x31;
    pub(super) const EXPLICIT_0: u8 = 0xa0;
    pub(super) const EXPLICIT_3: u8 = 0xa3;
    /// dNSName and iPAddress of a GeneralName.
    pub(super) const DNS_NAME: u8 = 0x82;
    pub(super) const IP_ADDRESS: u8 = 0x87;
}

/// Elements one after the other: tag, length, contents.
#[derive(Clone, Copy)]
struct Elements<'a>(&'a [u8]);

impl<'a> Elements<'a> {
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, first], mut rest) = self.0.split_first_chunk::<2>()?;
        let length = match first {
            short @ 0..=0x7f => usize::from(short),
            long => {
                // More than four bytes of length would be more than any certificate.
                let count = usize::from(long & 0x7f);
                if count == 0 || count > 4 {
                    return None;
                }
                let (bytes, after) = rest.split_at_checked(count)?;
                rest = after;
                bytes.iter().try_fold(0_usize, |length, byte| {
                    length.checked_mul(256)?.checked_add(usize::from(*byte))
                })?
            }
        };
        let (contents, after) = rest.split_at_checked(length)?;
        self.0 = after;
        Some((tag, contents))
    }

    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, contents)| contents)
    }

    fn expect_elements(&mut self, tag: u8) -> Option<Elements<'a>> {
        self.expect(tag).map(Elements)
    }

    /// An element that may be left out.
    fn optional(&mut self, tag: u8) -> Option<&'a [u8]> {
        if self.0.first() == Some(&tag) { self.expect(tag) } else { None }
    }
}

impl<'a> Certificate<'a> {
    /// `None` when the bytes are not a certificate.
    pub(super) fn parse(der: &'a [u8]) -> Option<Self> {
        let mut certificate = Elements(der).expect_elements(der::SEQUENCE)?;
        let mut body = certificate.expect_elements(der::SEQUENCE)?;
        let signature_algorithm = certificate.expect(der::SEQUENCE)?;
        let version = match body.optional(der::EXPLICIT_0) {
            None => 1,
            Some(version) => Elements(version).expect(der::INTEGER)?.last()?.checked_add(1)?,
        };
        body.expect(der::INTEGER)?; // serial number
        body.expect(der::SEQUENCE)?; // signature algorithm, again
        body.expect(der::SEQUENCE)?; // issuer
        let mut validity = body.expect_elements(der::SEQUENCE)?;
        let not_before = time(validity.next()?)?;
        let not_after = time(validity.next()?)?;
        let common_name = common_name(body.expect_elements(der::SEQUENCE)?);
        let mut key_info = body.expect_elements(der::SEQUENCE)?;
        let key_algorithm = key_info.expect(der::SEQUENCE)?;
        // The first byte of a bit string counts unused bits: none in a key.
        let key = key_info.expect(der::BIT_STRING)?.strip_prefix(&[0])?;
        let mut has_alternative_names = false;
        while let Some((tag, contents)) = body.next() {
            if tag == der::EXPLICIT_3 {
                has_alternative_names = lists_names(contents)?;
            }
        }
        Some(Self {
            version,
            key_algorithm,
            key,
            not_before,
            not_after,
            common_name,
            has_alternative_names,
            signature_algorithm,
        })
    }

    /// The `tls-server-end-point` hash of the certificate `der`: by the hash of its signature, SHA-256 in place of MD5
    /// and SHA-1. `None` where the signature has no hash of its own (Ed25519).
    ///
    /// <https://www.rfc-editor.org/rfc/rfc5929#section-4.1>
    pub(super) fn end_point_hash(&self, der: &[u8]) -> Option<Vec<u8>> {
        Some(match hash_of(self.signature_algorithm)? {
            Hash::Sha224 => Sha224::digest(der).to_vec(),
            Hash::Sha256 => Sha256::digest(der).to_vec(),
            Hash::Sha384 => Sha384::digest(der).to_vec(),
            Hash::Sha512 => Sha512::digest(der).to_vec(),
        })
    }
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
fn time((tag, contents): (u8, &[u8])) -> Option<u64> {
    let text = std::str::from_utf8(contents).ok()?.strip_suffix('Z')?;
    let mut digits = text;
    let mut number = |count: usize| {
        let (head, tail) = digits.split_at_checked(count)?;
        digits = tail;
        if head.bytes().all(|byte| byte.is_ascii_digit()) { head.parse::<u64>().ok() } else { None }
    };
    let year = match tag {
        der::UTC_TIME => number(2).map(|year| {
            if year < 50 { 2000_u64.saturating_add(year) } else { 1900_u64.saturating_add(year) }
        })?,
        der::GENERALIZED_TIME => number(4)?,
        _ => return None,
    };
    let (month, day) = (number(2)?, number(2)?);
    let (hour, minute, second) = (number(2)?, number(2)?, number(2)?);
    let days = days_since_1970(year, month, day)?;
    days.checked_mul(86_400)?
        .checked_add(hour.checked_mul(3_600)?)?
        .checked_add(minute.checked_mul(60)?)?
        .checked_add(second)
}

/// Days by the Gregorian calendar; a date before 1970 counts as its first day.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    // Years that begin in March put the leap day last.
    let shifted = if month > 2 { year } else { year.checked_sub(1)? };
    let from_march = month.checked_add(9)?.checked_rem(12)?;
    let leap_days = (shifted / 4).checked_sub(shifted / 100)?.checked_add(shifted / 400)?;
    let day_of_year =
        from_march.checked_mul(153)?.checked_add(2)?.checked_div(5)?.checked_add(day)?.checked_sub(1)?;
    let days = shifted.checked_mul(365)?.checked_add(leap_days)?.checked_add(day_of_year)?;
    // 1970-01-01 in the same count.
    Some(days.saturating_sub(719_468))
}

fn common_name<'a>(mut name: Elements<'a>) -> Option<&'a str> {
    const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
    let mut found = None;
    while let Some(mut set) = name.expect_elements(der::SET) {
        while let Some(mut pair) = set.expect_elements(der::SEQUENCE) {
            if pair.expect(der::OID) == Some(COMMON_NAME) {
                found = pair.next().and_then(|(_, text)| std::str::from_utf8(text).ok());
            }
        }
    }
    found
}

/// Whether the extensions hold a subject alternative name of the kinds that identify a host.
fn lists_names(extensions: &[u8]) -> Option<bool> {
    const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
    let mut extensions = Elements(extensions).expect_elements(der::SEQUENCE)?;
    while let Some(mut extension) = extensions.expect_elements(der::SEQUENCE) {
        if extension.expect(der::OID) != Some(SUBJECT_ALT_NAME) {
            continue;
        }
        while let Some((tag, contents)) = extension.next() {
            if tag != der::OCTET_STRING {
                continue;
            }
            let mut names = Elements(contents).expect_elements(der::SEQUENCE)?;
            while let Some((kind, _)) = names.next() {
                if kind == der::DNS_NAME || kind == der::IP_ADDRESS {
                    return Some(true);
                }
            }
        }
    }
    Some(false)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hash {
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

/// The hash of a signature algorithm, by its identifier's contents.
fn hash_of(algorithm: &[u8]) -> Option<Hash> {
    const PKCS1: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
    const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04];
    let mut fields = Elements(algorithm);
    let oid = fields.expect(der::OID)?;
    if let Some(kind) = oid.strip_prefix(PKCS1) {
        return match kind {
            [4 | 5 | 11] => Some(Hash::Sha256),
            [12] => Some(Hash::Sha384),
            [13] => Some(Hash::Sha512),
            [14] => Some(Hash::Sha224),
            [10] => pss_hash(fields),
            _ => None,
        };
    }
    match oid.strip_prefix(ECDSA)? {
        [1] | [3, 2] => Some(Hash::Sha256),
        [3, 1] => Some(Hash::Sha224),
        [3, 3] => Some(Hash::Sha384),
        [3, 4] => Some(Hash::Sha512),
        _ => None,
    }
}

/// RSASSA-PSS names its hash in its parameters; nothing said is SHA-1.
fn pss_hash(mut fields: Elements<'_>) -> Option<Hash> {
    const SHA2: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02];
    let mut parameters = fields.expect_elements(der::SEQUENCE)?;
    let Some(hash) = parameters.optional(der::EXPLICIT_0) else { return Some(Hash::Sha256) };
    let oid = Elements(hash).expect_elements(der::SEQUENCE)?.expect(der::OID)?;
    match oid.strip_prefix(SHA2) {
        None | Some([1]) => Some(Hash::Sha256),
        Some([2]) => Some(Hash::Sha384),
        Some([3]) => Some(Hash::Sha512),
        Some([4]) => Some(Hash::Sha224),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_become_seconds() {
        for (tag, text, seconds) in [
            (der::UTC_TIME, "700101000000Z", 0),
            (der::UTC_TIME, "000229235959Z", 951_868_799),
            (der::GENERALIZED_TIME, "20261201093000Z", 1_796_117_400),
            (der::GENERALIZED_TIME, "99991231235959Z", 253_402_300_799),
        ] {
            assert_eq!(time((tag, text.as_bytes())), Some(seconds), "{text}");
        }
        assert_eq!(time((der::UTC_TIME, b"7001010000Z")), None);
        assert_eq!(time((der::UTC_TIME, b"70+101000000Z")), None);
    }

    #[test]
    fn cut_certificates_are_refused() {
        let whole =
            rcgen::generate_simple_self_signed(["db.example.com".into()]).unwrap().cert.der().to_vec();
        let parsed = Certificate::parse(&whole).unwrap();
        assert_eq!((parsed.version, parsed.has_alternative_names), (3, true));
        assert_eq!(parsed.end_point_hash(&whole).unwrap(), Sha256::digest(&whole).to_vec());
        for length in 0..whole.len() {
            assert!(Certificate::parse(&whole[..length]).is_none(), "{length} bytes");
        }
    }

    #[test]
    fn the_hash_follows_the_signature() {
        let pkcs1 =
            |kind| [&[0x06, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, kind][..], &[5, 0]].concat();
        let ecdsa = |kind| vec![0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 3, kind];
        let ed25519 = vec![0x06, 3, 0x2b, 0x65, 0x70];
        for (algorithm, hash) in [
            (pkcs1(4), Some(Hash::Sha256)),
            (pkcs1(5), Some(Hash::Sha256)),
            (pkcs1(11), Some(Hash::Sha256)),
            (pkcs1(12), Some(Hash::Sha384)),
            (pkcs1(13), Some(Hash::Sha512)),
            (ecdsa(2), Some(Hash::Sha256)),
            (ecdsa(3), Some(Hash::Sha384)),
            (ecdsa(4), Some(Hash::Sha512)),
            (ed25519, None),
        ] {
            assert_eq!(hash_of(&algorithm), hash, "{algorithm:x?}");
        }
    }
}
