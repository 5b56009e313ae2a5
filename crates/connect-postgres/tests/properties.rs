//! What must hold for any input: nothing panics, whatever is accepted gives JSON, text and binary agree, and
//! decimals are those of an independent computation.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod rows;

use std::str::FromStr;

use base64::Engine;
use crabka_connect_postgres::types::{ColumnType, Form, TypeRegistry};
use num_bigint::BigInt;
use proptest::prelude::*;
use rows::{C, b, t, written};

/// Built-in types with a form or a rendering of their own, and arrays of some.
const TYPES: &[(u32, i32)] = &[
    (16, -1),
    (17, -1),
    (18, -1),
    (19, -1),
    (20, -1),
    (21, -1),
    (22, -1),
    (23, -1),
    (25, -1),
    (26, -1),
    (27, -1),
    (28, -1),
    (30, -1),
    (114, -1),
    (142, -1),
    (600, -1),
    (601, -1),
    (602, -1),
    (603, -1),
    (604, -1),
    (628, -1),
    (650, -1),
    (700, -1),
    (701, -1),
    (718, -1),
    (774, -1),
    (790, -1),
    (829, -1),
    (869, -1),
    (1042, 9),
    (1082, -1),
    (1083, -1),
    (1083, 3),
    (1114, -1),
    (1114, 2),
    (1184, -1),
    (1184, 0),
    (1186, -1),
    (1266, -1),
    (1560, 1),
    (1562, -1),
    (1700, -1),
    (1700, 655_366),
    (1790, -1),
    (2205, -1),
    (2950, -1),
    (2970, -1),
    (3220, -1),
    (3614, -1),
    (3615, -1),
    (3802, -1),
    (3904, -1),
    (3906, -1),
    (3910, -1),
    (4072, -1),
    (4451, -1),
    (4534, -1),
    (5069, -1),
    (99_999, -1),
    (1000, -1),
    (1007, -1),
    (1009, -1),
    (1020, -1),
    (1231, -1),
    (1001, -1),
    (3807, -1),
    (3905, -1),
];

fn any_type() -> impl Strategy<Value = (u32, i32)> {
    proptest::sample::select(TYPES)
}

/// Bytes with a shape: mostly what forms are made of, so that decoders get past their first check.
fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![4 => Just(0u8), 2 => 0u8..8, 2 => any::<u8>(), 1 => Just(b'a'), 1 => Just(0xFF)];
    proptest::collection::vec(byte, 0..48)
}

fn any_text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[-+0-9.:, eETZBCNaInfity\\\\x{}()\\[\\]\"=<>&|!']{0,32}".prop_map(String::into_bytes),
        any::<String>().prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..16),
    ]
}

/// `written` checks that both envelopes give JSON.
fn accepts((type_oid, typmod): (u32, i32), cell: C) -> bool {
    written(type_oid, typmod, &TypeRegistry::default(), cell).is_ok()
}

/// A numeric in binary: from its decimal digits, as the server packs them.
fn numeric_binary(negative: bool, integer: &str, fraction: &str) -> Vec<u8> {
    let padded = format!("{}{integer}", "0".repeat((4 - integer.len() % 4) % 4));
    let weight = i64::try_from(padded.len() / 4).unwrap() - 1;
    let all = format!("{padded}{fraction}{}", "0".repeat((4 - fraction.len() % 4) % 4));
    let mut digits: Vec<u16> = (0..all.len()).step_by(4).map(|at| all[at..at + 4].parse().unwrap()).collect();
    let leading = digits.iter().take_while(|&&digit| digit == 0).count();
    digits.drain(..leading);
    while digits.last() == Some(&0) {
        digits.pop();
    }
    let (weight, negative) =
        if digits.is_empty() { (0, false) } else { (weight - i64::try_from(leading).unwrap(), negative) };
    let mut bytes = Vec::new();
    bytes.extend(u16::try_from(digits.len()).unwrap().to_be_bytes());
    bytes.extend(i16::try_from(weight).unwrap().to_be_bytes());
    bytes.extend((if negative { 0x4000u16 } else { 0 }).to_be_bytes());
    bytes.extend(u16::try_from(fraction.len()).unwrap().to_be_bytes());
    bytes.extend(digits.iter().flat_map(|digit| digit.to_be_bytes()));
    bytes
}

fn agree(type_oid: u32, typmod: i32, text: &str, binary: &[u8]) {
    let registry = TypeRegistry::default();
    let column_type = ColumnType::resolve(type_oid, typmod, &registry);
    assert_eq!(column_type.server_text(Form::Binary, binary).unwrap(), text);
    let [from_text, from_binary] =
        [t(text), b(binary)].map(|cell| written(type_oid, typmod, &registry, cell).unwrap());
    assert_eq!(from_text, from_binary);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn no_bytes_make_a_decoder_panic(which in any_type(), bytes in any_bytes()) {
        accepts(which, b(&bytes));
    }

    #[test]
    fn no_text_makes_a_decoder_panic(which in any_type(), bytes in any_text()) {
        accepts(which, C::Text(bytes));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn integers_agree(number in any::<i64>(), half in any::<i32>(), small in any::<i16>(), oid in any::<u32>()) {
        agree(20, -1, &number.to_string(), &number.to_be_bytes());
        agree(23, -1, &half.to_string(), &half.to_be_bytes());
        agree(21, -1, &small.to_string(), &small.to_be_bytes());
        agree(26, -1, &oid.to_string(), &oid.to_be_bytes());
        agree(5069, -1, &number.cast_unsigned().to_string(), &number.to_be_bytes());
    }

    #[test]
    fn floats_keep_their_bits(double in any::<u64>().prop_map(f64::from_bits), single in any::<u32>().prop_map(f32::from_bits)) {
        let registry = TypeRegistry::default();
        let text = |oid, bytes: &[u8]| ColumnType::resolve(oid, -1, &registry).server_text(Form::Binary, bytes).unwrap();
        if double.is_finite() {
            prop_assert_eq!(text(701, &double.to_be_bytes()).parse::<f64>().unwrap().to_bits(), double.to_bits());
        }
        if single.is_finite() {
            prop_assert_eq!(text(700, &single.to_be_bytes()).parse::<f32>().unwrap().to_bits(), single.to_bits());
        }
        agree(701, -1, &text(701, &double.to_be_bytes()), &double.to_be_bytes());
        agree(700, -1, &text(700, &single.to_be_bytes()), &single.to_be_bytes());
    }

    #[test]
    fn texts_agree(text in any::<String>().prop_filter("no zero byte", |text| !text.contains('\0'))) {
        agree(25, -1, &text, text.as_bytes());
        let elements = text.as_bytes();
        let mut array = [1u32, 0, 25, 1, 1, u32::try_from(elements.len()).unwrap()].map(u32::to_be_bytes).concat();
        array.extend(elements);
        let registry = TypeRegistry::default();
        let printed = ColumnType::resolve(1009, -1, &registry).server_text(Form::Binary, &array).unwrap();
        agree(1009, -1, &printed, &array);
        let expected = serde_json::to_value([&text]).unwrap();
        let written = written(1009, -1, &registry, b(&array)).unwrap();
        prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&written.debezium).unwrap(), expected);
    }

    #[test]
    fn timestamps_agree(us in -211_813_488_000_000_000..9_223_371_331_200_000_000i64, days in -2_451_545..2_145_031_949i32) {
        let registry = TypeRegistry::default();
        for oid in [1114, 1184] {
            let printed = ColumnType::resolve(oid, -1, &registry).server_text(Form::Binary, &us.to_be_bytes()).unwrap();
            agree(oid, -1, &printed, &us.to_be_bytes());
        }
        let printed = ColumnType::resolve(1082, -1, &registry).server_text(Form::Binary, &days.to_be_bytes()).unwrap();
        agree(1082, -1, &printed, &days.to_be_bytes());
    }

    #[test]
    fn intervals_agree(us in any::<i64>().prop_filter("refused by the server", |us| *us != i64::MIN), days in any::<i32>(), months in any::<i32>()) {
        let binary = [&us.to_be_bytes()[..], &days.to_be_bytes(), &months.to_be_bytes()].concat();
        let registry = TypeRegistry::default();
        let printed = ColumnType::resolve(1186, -1, &registry).server_text(Form::Binary, &binary).unwrap();
        agree(1186, -1, &printed, &binary);
    }

    #[test]
    fn money_agrees(units in any::<i64>()) {
        let registry = TypeRegistry::default();
        let printed = ColumnType::resolve(790, -1, &registry).server_text(Form::Binary, &units.to_be_bytes()).unwrap();
        agree(790, -1, &printed, &units.to_be_bytes());
    }

    #[test]
    fn decimals_are_exact(
        negative in any::<bool>(),
        integer in "0|[1-9][0-9]{0,60}",
        fraction in "[0-9]{0,50}",
        extra in 0i32..4,
    ) {
        let digits = format!("{integer}{fraction}");
        let zero = digits.bytes().all(|digit| digit == b'0');
        let sign = if negative && !zero { "-" } else { "" };
        let point = if fraction.is_empty() { "" } else { "." };
        let text = format!("{sign}{integer}{point}{fraction}");
        let binary = numeric_binary(negative, &integer, &fraction);
        let scale = i32::try_from(fraction.len()).unwrap() + extra;
        let typmod = (1000 << 16 | scale) + 4;
        agree(1700, typmod, &text, &binary);
        agree(1700, -1, &text, &binary);

        let number = BigInt::from_str(&format!("{sign}{digits}{}", "0".repeat(usize::try_from(extra).unwrap()))).unwrap();
        let encode = |number: &BigInt| base64::engine::general_purpose::STANDARD.encode(number.to_signed_bytes_be());
        let registry = TypeRegistry::default();
        prop_assert_eq!(written(1700, typmod, &registry, t(&text)).unwrap().debezium, format!("\"{}\"", encode(&number)));
        let kept = fraction.trim_end_matches('0');
        let number = BigInt::from_str(&format!("{sign}{integer}{kept}")).unwrap();
        let variable = format!("{{\"scale\":{},\"value\":\"{}\"}}", kept.len(), encode(&number));
        prop_assert_eq!(written(1700, -1, &registry, b(&binary)).unwrap().debezium, variable);
    }
}

#[test]
fn the_largest_numerics_are_exact() {
    let integer = format!("9{}", "0123456789".repeat(13_107));
    let fraction = "7".repeat(16_383);
    let number = BigInt::from_str(&format!("-{integer}{fraction}")).unwrap();
    let encoded = base64::engine::general_purpose::STANDARD.encode(number.to_signed_bytes_be());
    let text = format!("-{integer}.{fraction}");
    let written = written(1700, -1, &TypeRegistry::default(), t(&text)).unwrap();
    assert_eq!(written.debezium, format!("{{\"scale\":16383,\"value\":\"{encoded}\"}}"));
    assert_eq!(written.flat, format!("\"{text}\""));
}
