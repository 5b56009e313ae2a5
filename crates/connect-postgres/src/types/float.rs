//! float4 and float8, and the server's shortest exact text for them (`extra_float_digits` above 0).
//!
//! <https://www.postgresql.org/docs/17/datatype-numeric.html#DATATYPE-FLOAT>

use bytes::{BufMut, BytesMut};

use super::error::Malformed;
use super::read::{exact, utf8};
use super::value::Value;
use super::write;

const NOT_A_NUMBER: Malformed = Malformed("not a number");

pub(super) fn float4_text(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    Ok(Value::Float32(parse_float4(bytes)?))
}

pub(super) fn float4_binary(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    Ok(Value::Float32(f32::from_be_bytes(exact(bytes)?)))
}

pub(super) fn float8_text(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    Ok(Value::Float64(parse_float8(bytes)?))
}

pub(super) fn float8_binary(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    Ok(Value::Float64(f64::from_be_bytes(exact(bytes)?)))
}

fn parse_float4(bytes: &[u8]) -> Result<f32, Malformed> {
    match bytes {
        b"NaN" => Ok(f32::NAN),
        b"Infinity" => Ok(f32::INFINITY),
        b"-Infinity" => Ok(f32::NEG_INFINITY),
        _ => utf8(bytes)?.parse().ok().filter(|number: &f32| number.is_finite()).ok_or(NOT_A_NUMBER),
    }
}

pub(super) fn parse_float8(bytes: &[u8]) -> Result<f64, Malformed> {
    match bytes {
        b"NaN" => Ok(f64::NAN),
        b"Infinity" => Ok(f64::INFINITY),
        b"-Infinity" => Ok(f64::NEG_INFINITY),
        _ => utf8(bytes)?.parse().ok().filter(|number: &f64| number.is_finite()).ok_or(NOT_A_NUMBER),
    }
}

/// What the server prints for a float4.
pub(crate) fn write_float4(out: &mut BytesMut, number: f32) {
    if let Some(word) = special(f64::from(number)) {
        return out.put_slice(word.as_bytes());
    }
    let (fraction, exponent) = (number.to_bits() & 0x7F_FFFF, (number.to_bits() >> 23 & 0xFF) as i32);
    let exact = Exact {
        mantissa: u64::from(if exponent == 0 { fraction } else { fraction | 1 << 23 }),
        exponent: exponent.max(1) - 150,
        lowest_of_binade: fraction == 0 && exponent > 1,
    };
    let number_abs = number.abs();
    let longer = |after_first| format!("{number_abs:.after_first$e}");
    let digits = exact.digits(ryu::Buffer::new().format_finite(number_abs), longer);
    digits.write(out, number.is_sign_negative(), 6);
}

/// What the server prints for a float8.
pub(crate) fn write_float8(out: &mut BytesMut, number: f64) {
    if let Some(word) = special(number) {
        return out.put_slice(word.as_bytes());
    }
    let (fraction, exponent) =
        (number.to_bits() & 0xF_FFFF_FFFF_FFFF, (number.to_bits() >> 52 & 0x7FF) as i32);
    let exact = Exact {
        mantissa: if exponent == 0 { fraction } else { fraction | 1 << 52 },
        exponent: exponent.max(1) - 1075,
        lowest_of_binade: fraction == 0 && exponent > 1,
    };
    let number_abs = number.abs();
    let longer = |after_first| format!("{number_abs:.after_first$e}");
    let digits = exact.digits(ryu::Buffer::new().format_finite(number_abs), longer);
    digits.write(out, number.is_sign_negative(), 15);
}

fn special(number: f64) -> Option<&'static str> {
    match number {
        _ if number.is_nan() => Some("NaN"),
        f64::INFINITY => Some("Infinity"),
        f64::NEG_INFINITY => Some("-Infinity"),
        _ if number == 0.0 => Some(if number.is_sign_negative() { "-0" } else { "0" }),
        _ => None,
    }
}

/// A positive decimal: `digits` without zeros at either end, times ten to the `exponent`.
struct Decimal {
    digits: u64,
    count: usize,
    exponent: i32,
}

/// Reads what a float printer wrote: `12.5`, `1.6777216e7`, `1e-45`.
fn scientific(text: &str) -> Decimal {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let mut exponent: i32 = exponent.parse().unwrap_or(0);
    let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    exponent -= i32::try_from(fraction.len()).unwrap_or(0);
    let mut digits = 0u64;
    for byte in integer.bytes().chain(fraction.bytes()) {
        // At most 17 significant digits and a few zeros: no overflow.
        digits = digits * 10 + u64::from(byte - b'0');
    }
    while digits != 0 && digits.is_multiple_of(10) {
        digits /= 10;
        exponent += 1;
    }
    Decimal { digits, count: itoa::Buffer::new().format(digits).len(), exponent }
}

impl Decimal {
    /// As the server does: with an exponent when the number is below 0.0001 or has more than `fixed` digits
    /// before the point.
    fn write(&self, out: &mut BytesMut, negative: bool, fixed: i32) {
        if negative {
            out.put_u8(b'-');
        }
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(self.digits).as_bytes();
        // Lossless: there are at most 17 digits.
        let count = digits.len() as i32;
        let magnitude = self.exponent + count - 1;
        if !(-4..fixed).contains(&magnitude) {
            out.put_u8(digits[0]);
            if count > 1 {
                out.put_u8(b'.');
                out.put_slice(&digits[1..]);
            }
            out.put_slice(if magnitude < 0 { b"e-" } else { b"e+" });
            write::padded(out, u64::from(magnitude.unsigned_abs()), 2);
        } else if magnitude < 0 {
            out.put_slice(b"0.");
            out.put_bytes(b'0', (-1 - magnitude) as usize);
            out.put_slice(digits);
        } else if self.exponent >= 0 {
            out.put_slice(digits);
            out.put_bytes(b'0', self.exponent as usize);
        } else {
            let (integer, fraction) = digits.split_at((magnitude + 1) as usize);
            out.put_slice(integer);
            out.put_u8(b'.');
            out.put_slice(fraction);
        }
    }
}

/// A float as the number it is: mantissa times two to the exponent.
struct Exact {
    mantissa: u64,
    exponent: i32,
    /// The neighbour below is only half as far away as the one above.
    lowest_of_binade: bool,
}

impl Exact {
    /// The digits that the server prints: the shortest that are no boundary. `shortest` may be one; `longer` prints the
    /// number with that many digits after its first.
    fn digits(&self, shortest: &str, longer: impl Fn(usize) -> String) -> Decimal {
        let mut digits = scientific(shortest);
        // A longer text may end in zeros and be the same decimal again: what counts is how much was asked for. It ends
        // with the number itself, which is no boundary.
        let mut after_first = digits.count;
        while self.is_boundary(&digits) {
            digits = scientific(&longer(after_first));
            after_first += 1;
        }
        digits
    }

    /// Whether the decimal lies exactly half-way to a neighbouring float. Such a decimal may be the shortest that
    /// reads back rightly, by the rule that ties go to even; the server never relies on that rule.
    fn is_boundary(&self, decimal: &Decimal) -> bool {
        // Half-way points have more digits than the float itself, unless both are integers above the mantissa's
        // range; and there five to the power of `exponent` divides a number below two to the power of 54.
        let Some(power) = u32::try_from(decimal.exponent).ok().filter(|power| (1..=23).contains(power))
        else {
            return false;
        };
        let decimal = reduced(u128::from(decimal.digits) * 5u128.pow(power), decimal.exponent);
        let above = (u128::from(self.mantissa) * 2 + 1, self.exponent - 1);
        let below = if self.lowest_of_binade {
            (u128::from(self.mantissa) * 4 - 1, self.exponent - 2)
        } else {
            (u128::from(self.mantissa) * 2 - 1, self.exponent - 1)
        };
        decimal == above || decimal == below
    }
}

/// The same number with an odd mantissa.
fn reduced(mantissa: u128, exponent: i32) -> (u128, i32) {
    let zeros = mantissa.trailing_zeros();
    // Lossless: at most 128.
    (mantissa >> zeros, exponent + zeros as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float8(number: f64) -> String {
        let mut out = BytesMut::new();
        write_float8(&mut out, number);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn half_way_decimals_are_not_used() {
        // 1.801439850948199e16 reads back as 18014398509481992 only because ties go to even.
        assert_eq!("1.801439850948199e16".parse::<f64>().unwrap(), 18014398509481992.0);
        assert_eq!(float8(18014398509481992.0), "1.8014398509481992e+16");
        assert_eq!(float8(18014398509481984.0), "1.8014398509481984e+16");
    }

    #[test]
    fn a_half_way_decimal_followed_by_zeros_is_not_used_either() {
        // 1.44683e8 lies half-way, and 1.446830e8 is the same.
        let mut out = BytesMut::new();
        write_float4(&mut out, 144_683_008.0);
        assert_eq!(out, "1.4468301e+08");
    }

    #[test]
    fn every_float4_of_the_binades_with_half_way_decimals_comes_to_an_end() {
        let mut out = BytesMut::new();
        for power in 24..40 {
            for step in 0..5_000 {
                let number = 2f32.powi(power) + 2f32.powi(power - 23) * (step * 1_677) as f32;
                out.clear();
                write_float4(&mut out, number);
                let read: f32 = str::from_utf8(&out).unwrap().parse().unwrap();
                assert_eq!(read, number);
            }
        }
    }

    #[test]
    fn exponent_from_fifteen_digits() {
        assert_eq!(float8(999999999999999.0), "999999999999999");
        assert_eq!(float8(1e15), "1e+15");
        assert_eq!(float8(-1.5e-7), "-1.5e-07");
        assert_eq!(float8(0.00012), "0.00012");
        assert_eq!(float8(100.0), "100");
        assert_eq!(float8(12.5), "12.5");
    }
}
