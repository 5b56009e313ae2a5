//! Which type is decoded how: the one table.
//!
//! <https://www.postgresql.org/docs/17/catalog-pg-type.html>

use super::error::Malformed;
use super::value::{Render, Value};
use super::{
    bits, bytea, float, geometric, hstore, integer, interval, money, network, numeric, system, text,
    textsearch, time, timestamp, uuid,
};

/// What kind of value a type has; domains count as their base type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// boolean
    Bool,
    /// int2, int4, int8, oid
    Integer,
    /// float4, float8
    Float,
    /// numeric
    Numeric,
    /// money
    Money,
    /// text, varchar, char(n), citext
    Text,
    /// name, "char"
    Name,
    /// An enum.
    Enum,
    /// bytea
    Bytea,
    /// json, jsonb
    Json,
    /// xml
    Xml,
    /// uuid
    Uuid,
    /// date
    Date,
    /// time
    Time,
    /// timetz
    TimeTz,
    /// timestamp
    Timestamp,
    /// timestamptz
    TimestampTz,
    /// interval
    Interval,
    /// bit, varbit
    Bits,
    /// point
    Point,
    /// hstore
    Hstore,
    /// Any array.
    Array,
    /// Any other type: its value is the server's text.
    ServerText,
}

type Decode = for<'a> fn(&'a [u8]) -> Result<Value<'a>, Malformed>;

/// How a type that does not contain others is decoded.
#[derive(Debug)]
pub(super) struct Codec {
    pub(super) kind: Kind,
    pub(super) text: Decode,
    pub(super) binary: Binary,
}

/// How the binary form is read.
#[derive(Debug)]
pub(super) enum Binary {
    /// To the same value as the text.
    Decode(Decode),
    /// To the server's text.
    Render(Render),
    /// It does not tell what the text tells.
    Unknown,
}

/// What a built-in type is.
#[derive(Debug)]
pub(super) enum Builtin {
    Plain(Codec),
    Range { bound: u32 },
    Multirange { bound: u32 },
}

/// A built-in type: its oid, the oid of its array type, its name.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) oid: u32,
    pub(super) array_oid: u32,
    pub(super) name: &'static str,
    pub(super) builtin: Builtin,
}

const fn value(kind: Kind, text: Decode, binary: Decode) -> Builtin {
    Builtin::Plain(Codec { kind, text, binary: Binary::Decode(binary) })
}

const fn server_text(render: Render) -> Builtin {
    Builtin::Plain(Codec { kind: Kind::ServerText, text: text::server_text, binary: Binary::Render(render) })
}

const fn text_only() -> Builtin {
    Builtin::Plain(Codec { kind: Kind::ServerText, text: text::server_text, binary: Binary::Unknown })
}

const fn range(bound: u32) -> Builtin {
    Builtin::Range { bound }
}

const fn multirange(bound: u32) -> Builtin {
    Builtin::Multirange { bound }
}

const fn entry(oid: u32, array_oid: u32, name: &'static str, builtin: Builtin) -> Entry {
    Entry { oid, array_oid, name, builtin }
}

/// An array's separator of elements; `;` for box alone among the built-in types.
pub(super) fn delimiter(element: u32) -> u8 {
    const BOX: u32 = 603;
    if element == BOX { b';' } else { b',' }
}

/// Any enum.
pub(super) static ENUM: Codec =
    Codec { kind: Kind::Enum, text: text::text, binary: Binary::Decode(text::text) };

/// Any type that is not known better.
pub(super) static UNKNOWN: Codec =
    Codec { kind: Kind::ServerText, text: text::server_text, binary: Binary::Unknown };

/// Types of extensions, by extension and name: their oids differ from database to database.
pub(super) static EXTENSIONS: &[(&str, &str, Codec)] = &[
    ("citext", "citext", Codec { kind: Kind::Text, text: text::text, binary: Binary::Decode(text::text) }),
    (
        "hstore",
        "hstore",
        Codec { kind: Kind::Hstore, text: hstore::from_text, binary: Binary::Decode(hstore::from_binary) },
    ),
    ("ltree", "ltree", VERSIONED),
    ("ltree", "lquery", VERSIONED),
    ("ltree", "ltxtquery", VERSIONED),
];

/// The text behind a version byte.
const VERSIONED: Codec =
    Codec { kind: Kind::ServerText, text: text::server_text, binary: Binary::Render(text::render_versioned) };

#[rustfmt::skip]
pub(super) static BUILTINS: &[Entry] = &[
    entry(16, 1000, "bool", value(Kind::Bool, integer::bool_text, integer::bool_binary)),
    entry(17, 1001, "bytea", value(Kind::Bytea, bytea::from_text, bytea::from_binary)),
    entry(18, 1002, "\"char\"", value(Kind::Name, text::char_text, text::char_binary)),
    entry(19, 1003, "name", value(Kind::Name, text::text, text::text)),
    entry(20, 1016, "int8", value(Kind::Integer, integer::int8_text, integer::int8_binary)),
    entry(21, 1005, "int2", value(Kind::Integer, integer::int2_text, integer::int2_binary)),
    entry(22, 1006, "int2vector", server_text(system::render_int2vector)),
    entry(23, 1007, "int4", value(Kind::Integer, integer::int4_text, integer::int4_binary)),
    entry(24, 1008, "regproc", text_only()),
    entry(25, 1009, "text", value(Kind::Text, text::text, text::text)),
    entry(26, 1028, "oid", value(Kind::Integer, integer::oid_text, integer::oid_binary)),
    entry(27, 1010, "tid", server_text(system::render_tid)),
    entry(28, 1011, "xid", server_text(integer::render_u32)),
    entry(29, 1012, "cid", server_text(integer::render_u32)),
    entry(30, 1013, "oidvector", server_text(system::render_oidvector)),
    entry(114, 199, "json", value(Kind::Json, text::json, text::json)),
    entry(142, 143, "xml", value(Kind::Xml, text::xml, text::xml)),
    entry(600, 1017, "point", value(Kind::Point, geometric::point_text, geometric::point_binary)),
    entry(601, 1018, "lseg", server_text(geometric::render_lseg)),
    entry(602, 1019, "path", server_text(geometric::render_path)),
    entry(603, 1020, "box", server_text(geometric::render_box)),
    entry(604, 1027, "polygon", server_text(geometric::render_polygon)),
    entry(628, 629, "line", server_text(geometric::render_line)),
    entry(650, 651, "cidr", server_text(network::render_cidr)),
    entry(700, 1021, "float4", value(Kind::Float, float::float4_text, float::float4_binary)),
    entry(701, 1022, "float8", value(Kind::Float, float::float8_text, float::float8_binary)),
    entry(718, 719, "circle", server_text(geometric::render_circle)),
    entry(774, 775, "macaddr8", server_text(network::render_macaddr8)),
    entry(790, 791, "money", value(Kind::Money, money::from_text, money::from_binary)),
    entry(829, 1040, "macaddr", server_text(network::render_macaddr)),
    entry(869, 1041, "inet", server_text(network::render_inet)),
    entry(1033, 1034, "aclitem", text_only()),
    entry(1042, 1014, "bpchar", value(Kind::Text, text::text, text::text)),
    entry(1043, 1015, "varchar", value(Kind::Text, text::text, text::text)),
    entry(1082, 1182, "date", value(Kind::Date, timestamp::date_text, timestamp::date_binary)),
    entry(1083, 1183, "time", value(Kind::Time, time::time_text, time::time_binary)),
    entry(1114, 1115, "timestamp", value(Kind::Timestamp, timestamp::timestamp_text, timestamp::timestamp_binary)),
    entry(1184, 1185, "timestamptz", value(Kind::TimestampTz, timestamp::timestamptz_text, timestamp::timestamptz_binary)),
    entry(1186, 1187, "interval", value(Kind::Interval, interval::from_text, interval::from_binary)),
    entry(1266, 1270, "timetz", value(Kind::TimeTz, time::timetz_text, time::timetz_binary)),
    entry(1560, 1561, "bit", value(Kind::Bits, bits::from_text, bits::from_binary)),
    entry(1562, 1563, "varbit", value(Kind::Bits, bits::from_text, bits::from_binary)),
    entry(1700, 1231, "numeric", value(Kind::Numeric, numeric::from_text, numeric::from_binary)),
    entry(1790, 2201, "refcursor", server_text(text::render_text)),
    entry(2202, 2207, "regprocedure", text_only()),
    entry(2203, 2208, "regoper", text_only()),
    entry(2204, 2209, "regoperator", text_only()),
    entry(2205, 2210, "regclass", text_only()),
    entry(2206, 2211, "regtype", text_only()),
    entry(2950, 2951, "uuid", value(Kind::Uuid, uuid::from_text, uuid::from_binary)),
    entry(2970, 2949, "txid_snapshot", server_text(system::render_snapshot)),
    entry(3220, 3221, "pg_lsn", server_text(system::render_pg_lsn)),
    entry(3614, 3643, "tsvector", server_text(textsearch::render_tsvector)),
    entry(3615, 3645, "tsquery", server_text(textsearch::render_tsquery)),
    entry(3642, 3644, "gtsvector", text_only()),
    entry(3734, 3735, "regconfig", text_only()),
    entry(3769, 3770, "regdictionary", text_only()),
    entry(3802, 3807, "jsonb", value(Kind::Json, text::json, text::jsonb_binary)),
    entry(3904, 3905, "int4range", range(23)),
    entry(3906, 3907, "numrange", range(1700)),
    entry(3908, 3909, "tsrange", range(1114)),
    entry(3910, 3911, "tstzrange", range(1184)),
    entry(3912, 3913, "daterange", range(1082)),
    entry(3926, 3927, "int8range", range(20)),
    entry(4072, 4073, "jsonpath", server_text(text::render_versioned)),
    entry(4089, 4090, "regnamespace", text_only()),
    entry(4096, 4097, "regrole", text_only()),
    entry(4191, 4192, "regcollation", text_only()),
    entry(4451, 6150, "int4multirange", multirange(23)),
    entry(4532, 6151, "nummultirange", multirange(1700)),
    entry(4533, 6152, "tsmultirange", multirange(1114)),
    entry(4534, 6153, "tstzmultirange", multirange(1184)),
    entry(4535, 6155, "datemultirange", multirange(1082)),
    entry(4536, 6157, "int8multirange", multirange(20)),
    entry(5038, 5039, "pg_snapshot", server_text(system::render_snapshot)),
    entry(5069, 271, "xid8", server_text(integer::render_u64)),
];
