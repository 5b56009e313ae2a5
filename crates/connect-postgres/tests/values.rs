//! What the specification says of single values: each line an input as the server's text, the `debezium` and the
//! `flat` form.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod rows;

use crabka_connect::ErrorClass;
use crabka_connect_postgres::types::{TypeEntry, TypeKind, TypeRegistry};
use rows::{b, t, written};

const fn numeric(precision: i32, scale: i32) -> i32 {
    ((precision << 16) | (scale & 0x7FF)) + 4
}

fn check(type_oid: u32, typmod: i32, text: &str, debezium: &str, flat: &str) {
    let written = written(type_oid, typmod, &TypeRegistry::default(), t(text)).unwrap();
    assert_eq!(
        (written.debezium.as_str(), written.flat.as_str()),
        (debezium, flat),
        "{type_oid}/{typmod} {text}"
    );
    assert_eq!((written.debezium_text, written.flat_text), (None, None), "{type_oid}/{typmod} {text}");
}

/// `debezium` is null and the header has the text; `flat` holds the value.
fn check_not_held(type_oid: u32, typmod: i32, text: &str, debezium: &str, flat: &str) {
    let written = written(type_oid, typmod, &TypeRegistry::default(), t(text)).unwrap();
    assert_eq!(
        (written.debezium.as_str(), written.flat.as_str()),
        (debezium, flat),
        "{type_oid}/{typmod} {text}"
    );
    let header = serde_json::json!({ "after": { "v": text } }).to_string();
    assert_eq!(
        (written.debezium_text, written.flat_text),
        (Some(header), None),
        "{type_oid}/{typmod} {text}"
    );
}

#[test]
fn numbers() {
    check(16, -1, "t", "true", "true");
    check(21, -1, "-32768", "-32768", "-32768");
    check(23, -1, "2147483647", "2147483647", "2147483647");
    check(20, -1, "-9223372036854775808", "-9223372036854775808", "-9223372036854775808");
    check(26, -1, "4294967295", "4294967295", "4294967295");
    check(700, -1, "3.3", "3.3", "3.3");
    check(701, -1, "4.44", "4.44", "4.44");
    check(701, -1, "-0", "-0.0", "-0.0");
    check(700, -1, "1.6777216e+07", "16777216.0", "16777216.0");
    check(701, -1, "NaN", "\"NaN\"", "\"NaN\"");
    check(700, -1, "-Infinity", "\"-Infinity\"", "\"-Infinity\"");
    check(701, -1, "Infinity", "\"Infinity\"", "\"Infinity\"");
}

#[test]
fn decimals() {
    for (precision, scale, text, encoded) in [
        (3, 2, "1.10", "bg=="),
        (3, 2, "-1.10", "kg=="),
        (10, 2, "3.30", "AUo="),
        (6, 4, "22.2200", "A2P4"),
        (5, 2, "127.50", "Mc4="),
        (5, 0, "0", "AA=="),
        (5, 2, "0.00", "AA=="),
        (5, 0, "128", "AIA="),
        (5, 0, "-128", "gA=="),
        (5, 0, "-1", "/w=="),
        (5, 0, "-129", "/38="),
        (5, 0, "255", "AP8="),
        (5, 0, "-256", "/wA="),
        // Scales below zero and above the precision, from PostgreSQL 15 on.
        (2, -3, "12000", "DA=="),
        (2, 5, "0.00012", "DA=="),
        (1000, 1000, "0", "AA=="),
    ] {
        check(1700, numeric(precision, scale), text, &format!("\"{encoded}\""), &format!("\"{text}\""));
    }
    for (text, scale, encoded) in [
        ("10.1111", 4, "AYr3"),
        ("10", 0, "Cg=="),
        ("10.10", 1, "ZQ=="),
        ("0", 0, "AA=="),
        ("0.00", 0, "AA=="),
        ("100", 0, "ZA=="),
        ("-0.00012", 5, "9A=="),
    ] {
        check(
            1700,
            -1,
            text,
            &format!("{{\"scale\":{scale},\"value\":\"{encoded}\"}}"),
            &format!("\"{text}\""),
        );
    }
}

#[test]
fn numerics_that_are_no_numbers() {
    for text in ["NaN", "Infinity", "-Infinity"] {
        check_not_held(1700, -1, text, "null", &format!("\"{text}\""));
        check_not_held(1700, numeric(10, 2), text, "null", &format!("\"{text}\""));
    }
    check_not_held(1231, -1, "{1.5,NaN}", "[{\"scale\":1,\"value\":\"Dw==\"},null]", "[\"1.5\",\"NaN\"]");
}

#[test]
fn money() {
    check(790, -1, "$1,234.11", "\"AeIT\"", "\"1234.11\"");
    check(790, -1, "-$1,234.11", "\"/h3t\"", "\"-1234.11\"");
    check(790, -1, "$0.00", "\"AA==\"", "\"0.00\"");
    check(790, -1, "-$92,233,720,368,547,758.08", "\"gAAAAAAAAAA=\"", "\"-92233720368547758.08\"");
}

#[test]
fn text() {
    check(25, -1, "", "\"\"", "\"\"");
    check(1042, 14, "cone      ", "\"cone      \"", "\"cone      \"");
    check(25, -1, "a\"b\\c\nd\u{1}😀", "\"a\\\"b\\\\c\\nd\\u0001😀\"", "\"a\\\"b\\\\c\\nd\\u0001😀\"");
    check(18, -1, "\\377", "\"\\\\377\"", "\"\\\\377\"");
    check(18, -1, "", "\"\"", "\"\"");
    check(
        2950,
        -1,
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "\"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11\"",
        "\"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11\"",
    );
    check(869, -1, "192.168.2.0/12", "\"192.168.2.0/12\"", "\"192.168.2.0/12\"");
    check(142, -1, "<a b=\"c\"/>", "\"<a b=\\\"c\\\"/>\"", "\"<a b=\\\"c\\\"/>\"");
    check(17, -1, "\\x010203", "\"AQID\"", "\"AQID\"");
    check(17, -1, "\\x", "\"\"", "\"\"");
}

#[test]
fn json() {
    check(114, -1, "{\"a\": 1.00,  \"a\":2}", "\"{\\\"a\\\": 1.00,  \\\"a\\\":2}\"", "{\"a\":1.00,\"a\":2}");
    check(3802, -1, "12345678901234567890.123", "\"12345678901234567890.123\"", "12345678901234567890.123");
    // JSON null is not SQL NULL.
    let null = written(3802, -1, &TypeRegistry::default(), t("null")).unwrap();
    assert_eq!((null.debezium.as_str(), null.debezium_text), ("\"null\"", None));
    assert_eq!(
        (null.flat.as_str(), null.flat_text.as_deref()),
        ("null", Some("{\"after\":{\"v\":\"null\"}}"))
    );
}

#[test]
fn bits() {
    check(1560, 1, "1", "true", "\"1\"");
    check(1562, 1, "0", "false", "\"0\"");
    check_not_held(1562, 1, "", "null", "\"\"");
    check(1560, 2, "11", "\"Aw==\"", "\"11\"");
    check(1560, 7, "1000000", "\"QA==\"", "\"1000000\"");
    check(1560, 2, "00", "\"\"", "\"00\"");
    check(1562, 5, "101", "\"BQ==\"", "\"101\"");
    check(1562, -1, "", "\"\"", "\"\"");
    let high = format!("1{}", "0".repeat(63));
    check(1560, 64, &high, "\"AAAAAAAAAIA=\"", &format!("\"{high}\""));
}

#[test]
fn points() {
    let wkb = "AQEAAAAAAAAAAADwPwAAAAAAAPA/";
    let expected = format!("{{\"x\":1.0,\"y\":1.0,\"wkb\":\"{wkb}\",\"srid\":null}}");
    check(600, -1, "(1,1)", &expected, "{\"x\":1.0,\"y\":1.0}");
}

#[test]
fn dates_and_times() {
    check(1082, -1, "2016-11-04", "17109", "\"2016-11-04\"");
    check(1082, -1, "infinity", "2147483647", "\"infinity\"");
    check(1082, -1, "-infinity", "-2147483648", "\"-infinity\"");
    check(1082, -1, "0044-03-15 BC", "-735160", "\"-0043-03-15\"");
    check(1083, 3, "13:51:30.123", "49890123", "\"13:51:30.123\"");
    check(1083, -1, "13:51:30", "49890000000", "\"13:51:30\"");
    check(1083, -1, "24:00:00", "86400000000", "\"24:00:00\"");
    check(1266, -1, "13:51:30.123789+02", "\"11:51:30.123789Z\"", "\"13:51:30.123789+02\"");
    check(1266, -1, "24:00:00+00", "\"24:00:00Z\"", "\"24:00:00+00\"");
    check(1266, -1, "00:00:00-15:59:59", "\"15:59:59Z\"", "\"00:00:00-15:59:59\"");
    check(1266, -1, "12:00:00+13:00:01", "\"22:59:59Z\"", "\"12:00:00+13:00:01\"");
}

#[test]
fn timestamps() {
    check(1114, 3, "2016-11-04 13:51:30.123", "1478267490123", "\"2016-11-04T13:51:30.123\"");
    check(1114, -1, "2016-11-04 13:51:30.123456", "1478267490123456", "\"2016-11-04T13:51:30.123456\"");
    check(1114, 6, "4713-12-31 23:59:59.999999 BC", "-210831897600000001", "\"-4712-12-31T23:59:59.999999\"");
    check(1114, -1, "infinity", "9223372036825200000", "\"infinity\"");
    check(1114, -1, "-infinity", "-9223372036832400000", "\"-infinity\"");
    check(1114, 0, "294276-12-31 23:59:59", "9224318015999000", "\"+294276-12-31T23:59:59\"");
    check_not_held(1114, -1, "294276-12-31 23:59:59.999999", "null", "\"+294276-12-31T23:59:59.999999\"");
    for (typmod, text, debezium) in [
        (-1, "2020-04-01 11:51:02+00", "2020-04-01T11:51:02.000000Z"),
        (3, "2020-04-01 11:51:02.5+00", "2020-04-01T11:51:02.500Z"),
        (0, "2020-04-01 11:51:02+00", "2020-04-01T11:51:02Z"),
        (-1, "21016-11-04 06:51:30.123456+00", "+21016-11-04T06:51:30.123456Z"),
        (-1, "4714-12-31 23:59:59.999999+00 BC", "-4713-12-31T23:59:59.999999Z"),
        (-1, "0001-01-01 00:00:00+00 BC", "0000-01-01T00:00:00.000000Z"),
        (-1, "1883-11-18 12:03:58-04:56:02", "1883-11-18T17:00:00.000000Z"),
        (-1, "infinity", "infinity"),
        (-1, "-infinity", "-infinity"),
    ] {
        let written = written(1184, typmod, &TypeRegistry::default(), t(text)).unwrap();
        assert_eq!(written.debezium, format!("\"{debezium}\""), "{text}");
    }
    check(
        1184,
        -1,
        "2020-04-01 11:51:02.5+00",
        "\"2020-04-01T11:51:02.500000Z\"",
        "\"2020-04-01T11:51:02.5Z\"",
    );
}

#[test]
fn intervals() {
    check(1186, -1, "1 year 2 mons 3 days 04:05:06.78", "37091106780000", "\"P1Y2M3DT4H5M6.78S\"");
    check(1186, -1, "00:00:00", "0", "\"P0Y0M0DT0H0M0S\"");
    check(1186, -1, "-1 years", "-31557600000000", "\"P-1Y0M0DT0H0M0S\"");
    check(1186, -1, "1 mon -1 days +02:03:04", "2550784000000", "\"P0Y1M-1DT2H3M4S\"");
    check(1186, -1, "100000:00:00", "360000000000000", "\"P0Y0M0DT100000H0M0S\"");
    check(1186, -1, "-00:00:00.000001", "-1", "\"P0Y0M0DT0H0M-0.000001S\"");
    check_not_held(1186, -1, "infinity", "null", "\"infinity\"");
    check_not_held(1186, -1, "178000000 years", "null", "\"P178000000Y0M0DT0H0M0S\"");
}

#[test]
fn arrays() {
    check(1007, -1, "{}", "[]", "[]");
    check(1007, -1, "{1,NULL,3}", "[1,null,3]", "[1,null,3]");
    check(1007, -1, "{{1,2},{3,4}}", "[[1,2],[3,4]]", "[[1,2],[3,4]]");
    check(1000, -1, "{t,f,NULL}", "[true,false,null]", "[true,false,null]");
    check(1014, 14, "{\"ab        \"}", "[\"ab        \"]", "[\"ab        \"]");
    check(1231, numeric(5, 2), "{1.10,NULL}", "[\"bg==\",null]", "[\"1.10\",null]");
    check(
        1009,
        -1,
        r#"{a,"b c","",NULL,"NULL","null","x\"y","back\\slash","com,ma","{br}"," lead",é}"#,
        r#"["a","b c","",null,"NULL","null","x\"y","back\\slash","com,ma","{br}"," lead","é"]"#,
        r#"["a","b c","",null,"NULL","null","x\"y","back\\slash","com,ma","{br}"," lead","é"]"#,
    );
    let boxes = "[\"(1,1),(0,0)\",\"(3,3),(2,2)\"]";
    check(1020, -1, "{(1,1),(0,0);(3,3),(2,2)}", boxes, boxes);
    check(1183, -1, "{24:00:00}", "[86400000000]", "[\"24:00:00\"]");
    check(3807, -1, r#"{"{\"a\": \"x,y\"}"}"#, r#"["{\"a\": \"x,y\"}"]"#, r#"[{"a":"x,y"}]"#);
    for (text, list) in [("[0:2]={1,2,3}", "[1,2,3]"), ("[-1:0][5:6]={{1,2},{3,4}}", "[[1,2],[3,4]]")] {
        let written = written(1007, -1, &TypeRegistry::default(), t(text)).unwrap();
        let header = Some(format!("{{\"after\":{{\"v\":\"{text}\"}}}}"));
        assert_eq!((written.debezium, written.debezium_text), (list.to_owned(), header.clone()));
        assert_eq!((written.flat, written.flat_text), (list.to_owned(), header));
    }
}

#[test]
fn types_without_a_form_are_text() {
    for (type_oid, text) in [
        (3904, "[1,5)"),
        (3908, "[\"2024-01-01 00:00:00\",\"2024-01-02 00:00:00\")"),
        (4451, "{[1,3),[5,7)}"),
        (3614, "'a':1A,3 'it''s'"),
        (603, "(1,1),(0,0)"),
        (718, "<(1,2),3.5>"),
        (3220, "16/B374D848"),
        (5069, "18446744073709551615"),
        (2205, "pg_class"),
        (22, "1 2 3"),
        (99_999, "(1,\"a b\",)"),
    ] {
        let json = serde_json::to_string(text).unwrap();
        check(type_oid, -1, text, &json, &json);
    }
}

fn registry() -> TypeRegistry {
    let mut registry = TypeRegistry::default();
    let mut add = |oid, name: &str, kind, extension: Option<&str>| {
        registry.insert(TypeEntry {
            oid,
            schema: "app".to_owned(),
            name: name.to_owned(),
            kind,
            extension: extension.map(str::to_owned),
        });
    };
    add(20_001, "amount", TypeKind::Domain { base: 1700, typmod: numeric(5, 2) }, None);
    add(20_002, "price", TypeKind::Domain { base: 20_001, typmod: -1 }, None);
    add(20_003, "_price", TypeKind::Array { element: 20_002, delimiter: b',' }, None);
    add(20_004, "mood", TypeKind::Enum { labels: vec!["sad".to_owned()] }, None);
    add(20_005, "_mood", TypeKind::Array { element: 20_004, delimiter: b',' }, None);
    add(20_006, "moods", TypeKind::Domain { base: 20_005, typmod: -1 }, None);
    add(20_007, "comp", TypeKind::Composite, None);
    add(20_008, "_comp", TypeKind::Array { element: 20_007, delimiter: b',' }, None);
    add(20_009, "hstore", TypeKind::Base, Some("hstore"));
    add(20_010, "hstore", TypeKind::Base, None);
    add(20_011, "floatrange", TypeKind::Range { subtype: 701 }, None);
    add(20_012, "floatmultirange", TypeKind::Multirange { range: 20_011 }, None);
    add(20_013, "circular", TypeKind::Domain { base: 20_013, typmod: -1 }, None);
    add(20_014, "ltree", TypeKind::Base, Some("ltree"));
    add(20_015, "citext", TypeKind::Base, Some("citext"));
    registry
}

#[test]
fn domains_are_their_base_types() {
    let registry = registry();
    let debezium = |oid, text: &str| written(oid, -1, &registry, t(text)).unwrap().debezium;
    assert_eq!(debezium(20_001, "1.10"), "\"bg==\"");
    assert_eq!(debezium(20_002, "1.10"), "\"bg==\"");
    assert_eq!(debezium(20_003, "{1.10,NULL}"), "[\"bg==\",null]");
    assert_eq!(debezium(20_006, "{sad,NULL,\"it's ok\"}"), "[\"sad\",null,\"it's ok\"]");
    assert_eq!(debezium(20_013, "whatever"), "\"whatever\"");
}

#[test]
fn extension_types_are_known_by_extension() {
    let registry = registry();
    let text = r#""key1"=>"val1", "q\"\\"=>NULL"#;
    let hstore = written(20_009, -1, &registry, t(text)).unwrap();
    assert_eq!(hstore.debezium, r#""{\"key1\":\"val1\",\"q\\\"\\\\\":null}""#);
    assert_eq!(hstore.flat, r#"{"key1":"val1","q\"\\":null}"#);
    assert_eq!(written(20_009, -1, &registry, t("")).unwrap().debezium, "\"{}\"");
    // A type of that name that somebody made is not the extension's.
    assert_eq!(written(20_010, -1, &registry, t("x")).unwrap().debezium, "\"x\"");
    assert_eq!(written(20_015, -1, &registry, t("MiXed")).unwrap().debezium, "\"MiXed\"");
}

#[test]
fn binary_is_refused_where_it_does_not_tell_the_text() {
    use crabka_connect_postgres::types::ColumnType;
    let registry = registry();
    let known = |oid| ColumnType::resolve(oid, -1, &registry).binary_is_known();
    for oid in [16, 25, 1700, 1007, 3904, 4451, 3615, 20_002, 20_003, 20_006, 20_009, 20_011, 20_012, 20_014]
    {
        assert!(known(oid), "{oid}");
    }
    for oid in [2205, 24, 1033, 1034, 2210, 20_007, 20_008, 20_010, 20_013, 99_999] {
        assert!(!known(oid), "{oid}");
        let error = written(oid, -1, &registry, b(&[0, 0, 0, 1])).unwrap_err();
        assert_eq!(error.class(), ErrorClass::Data);
    }
}

#[test]
fn malformed_values_name_table_column_and_type_and_show_nothing() {
    for (type_oid, text) in [
        (23, "12x"),
        (23, "2147483648"),
        (23, ""),
        (20, "9223372036854775808"),
        (16, "true"),
        (1700, "1.2.3"),
        (1700, "."),
        (1700, "1."),
        (701, "1e999"),
        (701, "secret"),
        (1082, "2023-02-30"),
        (1114, "2023-02-03"),
        (1114, "2023-02-03 25:00:00"),
        (1184, "2023-02-03 05:00:00"),
        (1186, "1 fortnight"),
        (1186, ""),
        (2950, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1g"),
        (17, "\\x0"),
        (17, "\\xgg"),
        (17, "\\000escape"),
        (790, "1.234,00 €"),
        (1560, "12"),
        (600, "(1,2"),
        (1007, "{1,2"),
        (1007, "{1,,2}"),
        (1007, "{1,2}x"),
        (1007, "1"),
        (1007, "{1 2}"),
        (1009, "{\"a}"),
    ] {
        let error = written(type_oid, -1, &TypeRegistry::default(), t(text)).expect_err(text);
        assert_eq!(error.class(), ErrorClass::Data, "{text}");
        let message = error.to_string();
        assert!(message.starts_with("table public.t, column v: text form of type "), "{message}");
        assert!(text.len() < 3 || !message.contains(text), "{message}");
    }
    let error = written(25, -1, &TypeRegistry::default(), b(&[0xFF])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "table public.t, column v: binary form of type text cannot be read: not UTF-8; to fix: set source.binary = \
         false to receive values as text"
    );
}
