//! Random literals of each type, the awkward ones first.
#![allow(unreachable_pub)]

/// A small generator of random numbers: the same in every run.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// From `0` to `end`, without `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        low + i64::try_from(self.below(u64::try_from(high - low + 1).unwrap())).unwrap()
    }

    fn pick<'t>(&mut self, from: &[&'t str]) -> &'t str {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }

    fn digits(&mut self, most: u64) -> String {
        (0..1 + self.below(most)).map(|_| char::from(b'0' + u8::try_from(self.below(10)).unwrap())).collect()
    }

    /// Text with what containers must quote.
    fn word(&mut self) -> String {
        const PARTS: [&str; 24] = [
            "a", "b", "Z", " ", ",", ";", "\"", "\\", "{", "}", "(", ")", "[", "]", "'", "NULL", "null", "é",
            "😀", "\t", "\n", ":", "=>", "",
        ];
        (0..self.below(5)).map(|_| self.pick(&PARTS)).collect()
    }
}

type Literal = fn(&mut Random) -> String;

/// Each type as it stands in SQL, literals that are given, and how to make more.
const TYPES: &[(&str, &[&str], Literal)] = &[
    ("boolean", &["true", "false"], |r| (r.below(2) == 0).to_string()),
    ("int2", &["-32768", "32767"], |r| r.between(-32768, 32767).to_string()),
    ("int4", &["-2147483648", "2147483647"], |r| r.next().cast_signed().wrapping_shr(40).to_string()),
    ("int8", &["-9223372036854775808", "9223372036854775807"], |r| r.next().cast_signed().to_string()),
    ("oid", &["0", "4294967295"], |r| r.below(1 << 32).to_string()),
    ("xid", &["4294967295"], |r| r.below(1 << 32).to_string()),
    ("xid8", &["18446744073709551615"], |r| r.next().to_string()),
    (
        "float4",
        &["NaN", "-0", "1e-45", "3.4028235e38", "16777216", "999999", "1000000", "8589935104", "144683008"],
        float4,
    ),
    (
        "float8",
        &["Infinity", "-0", "5e-324", "1.7976931348623157e308", "18014398509481992", "1e15", "1e-5"],
        float8,
    ),
    ("numeric", &["0", "-0.00", "NaN", "1e1000", "-1e-1000", "10000", "9999.9999"], numeric),
    ("numeric(30,10)", &["0", "NaN"], |r| format!("{}.{}", r.digits(18), r.digits(10))),
    ("numeric(5,-3)", &["0", "-12345678", "499"], |r| r.between(-99_000_000, 99_000_000).to_string()),
    ("numeric(3,6)", &["0.000999"], |r| format!("0.{:06}", r.below(1000))),
    ("money", &["-92233720368547758.08", "92233720368547758.07", "0", "-0.01", "999.99", "1000"], |r| {
        format!("{}.{:02}", r.next().cast_signed() >> r.between(8, 60), r.below(100))
    }),
    ("text", &["", "NULL", "\\x00"], Random::word),
    ("char(7)", &["", "abc"], |r| r.word().chars().take(7).collect()),
    ("varchar(9)", &[""], |r| r.word().chars().take(9).collect()),
    ("\"char\"", &["", "a", "\\377", "\\200"], |r| format!("\\{:03o}", r.between(128, 255))),
    ("name", &[""], |r| r.word().chars().filter(|c| c.is_ascii()).collect()),
    ("public.citext", &["MiXed"], Random::word),
    ("bytea", &["\\x", "\\x00"], |r| format!("\\x{:016x}", r.next())),
    ("uuid", &[], |r| format!("{:016x}{:016x}", r.next(), r.next())),
    ("json", &["null", " { \"a\" : [ 1.00 , null ] } "], |r| {
        format!("{{\"k\": 1{}, \"k\":[ ]}}", r.digits(30))
    }),
    ("jsonb", &["null", "1e2", "\"\\u00e9\\n\""], |r| {
        format!("{{\"b\":1{},\"a\":[1.{}]}}", r.digits(9), r.digits(40))
    }),
    ("jsonpath", &["strict $.\"x y\""], |r| format!("$.a[{}] ? (@ > {})", r.below(9), r.below(99))),
    ("xml", &["<a b=\"c\">x&amp;y</a>", "<?xml version=\"1.0\" encoding=\"UTF-8\"?><a/>"], |r| {
        format!("<a>{}</a>", r.digits(9))
    }),
    (
        "date",
        &["infinity", "-infinity", "4713-01-01 BC", "5874897-12-31", "0001-12-31 BC", "2000-02-29"],
        |r| date(r, 5_874_897),
    ),
    ("time", &["24:00:00", "00:00:00"], clock),
    ("time(2)", &["23:59:59.99"], clock),
    ("timetz", &["24:00:00+00", "00:00:00-15:59:59", "12:00:00+13:00:01"], |r| {
        format!("{}{}", clock(r), offset(r))
    }),
    (
        "timestamp",
        &["infinity", "-infinity", "4713-01-01 00:00:00 BC", "294276-12-31 23:59:59.999999"],
        |r| format!("{} {}", date(r, 290_000), clock(r)),
    ),
    ("timestamp(3)", &["infinity", "294276-12-31 23:59:59.999"], |r| {
        format!("{} {}", date(r, 290_000), clock(r))
    }),
    ("timestamptz", &["infinity", "0001-01-01 00:00:00+00 BC"], |r| {
        format!("{} {}{}", date(r, 9999), clock(r), offset(r))
    }),
    (
        "interval",
        &["0", "-1 year", "178000000 years", "1 mon -1 day +02:03:04", "-00:00:00.000001", "100000 hours"],
        interval,
    ),
    ("bit(1)", &["0", "1"], |r| r.below(2).to_string()),
    ("bit(13)", &[], |r| format!("{:013b}", r.below(1 << 13))),
    ("varbit", &["", "0", "1"], |r| format!("{:b}", r.next() >> r.below(64))),
    ("inet", &["0.0.0.0/0", "::", "::1", "::ffff:1.2.3.4", "::1.2.3.4", "1::", "0:0:1::"], inet),
    ("cidr", &["10.0.0.0/8", "::/0", "2001:db8::/32"], |r| {
        format!("{}.{}.0.0/16", r.below(256), r.below(256))
    }),
    ("macaddr", &[], |r| format!("{:012x}", r.next() >> 16)),
    ("macaddr8", &[], |r| format!("{:016x}", r.next())),
    ("point", &["(NaN,Infinity)", "(-0,0)"], point),
    ("lseg", &[], |r| format!("[{},{}]", point(r), point(r))),
    ("box", &["(0,0),(1,1)"], |r| format!("{},{}", point(r), point(r))),
    ("line", &["{1,-1,0.5}"], |r| format!("{{{},1,{}}}", r.between(-9, 9), r.digits(4))),
    ("path", &["((0,0),(1,1))", "[(0,0)]"], |r| format!("[{},{},{}]", point(r), point(r), point(r))),
    ("polygon", &[], |r| format!("({},{},{})", point(r), point(r), point(r))),
    ("circle", &[], |r| format!("<{},{}>", point(r), r.digits(4))),
    ("tsvector", &["", "a:1A,3 fat:2B cat", "'it''s' '\"q\"' '\\\\'"], |r| {
        format!("'w{}':{}{} x", r.below(9), 1 + r.below(900), r.pick(&["A", "B", "C", ""]))
    }),
    (
        "tsquery",
        &["", "!(a & b) | c", "a <-> (b <2> c)", "(a <-> b) <-> c", "!!a", "!(a <-> b)", "'it''s'"],
        |r| tsquery(r, 4),
    ),
    ("pg_lsn", &["0/0", "FFFFFFFF/FFFFFFFF"], |r| format!("{:X}/{:X}", r.below(1 << 32), r.below(1 << 20))),
    ("tid", &["(0,0)", "(4294967295,65535)"], |r| format!("({},{})", r.below(1 << 32), r.below(1 << 16))),
    ("pg_snapshot", &["10:20:10,14,15", "1:1:"], |r| format!("{0}:{1}:{0}", 3 + r.below(9), 20 + r.below(9))),
    ("int2vector", &["", "1"], |r| format!("{} {}", r.between(-32768, 32767), r.below(9))),
    ("oidvector", &["4294967295"], |r| format!("{} {}", r.below(1 << 32), r.below(9))),
    ("regclass", &["pg_class"], |_| "pg_type".to_owned()),
    ("int4range", &["empty", "(,)", "[1,1]"], |r| format!("[{0},{1})", r.between(-9, 9), r.between(9, 99))),
    ("numrange", &["(1.5,2.5]"], |r| format!("[-{},{})", r.digits(30), r.digits(30))),
    ("tsrange", &["(,infinity]"], |r| format!("[2000-01-01,2001-01-01 {})", clock(r))),
    ("tstzrange", &["[\"2024-01-01 00:00:00+00\",infinity]"], |r| format!("(,\"2001-01-01 {}\"]", clock(r))),
    ("daterange", &["empty"], |r| format!("[2000-01-01,{}]", 3000 + r.below(99)).replace(']', "-01-01]")),
    ("public.floatrange", &["[-Infinity,1e-7)"], |r| format!("[-1e{},2.5)", r.below(300))),
    ("int4multirange", &["{}"], |r| format!("{{[1,3),[{},{})}}", r.between(5, 9), r.between(10, 99))),
    ("tstzmultirange", &["{}"], |r| format!("{{[2000-01-01,\"2001-01-01 {}\"),(2024-01-01,]}}", clock(r))),
    ("int4[]", &["{}", "[0:2]={1,NULL,3}", "[-1:0][5:6]={{1,2},{3,4}}", "{{{1}},{{2}}}"], |r| {
        format!("{{{},NULL}}", r.below(99))
    }),
    ("text[]", &["{NULL,\"NULL\",null}", "{\"\"}"], |r| array(r, Random::word)),
    ("numeric(9,2)[]", &["{NaN,1}"], |r| format!("{{{}.{},NULL}}", r.digits(7), r.digits(2))),
    ("bytea[]", &[], |r| format!("{{\"\\\\x{:04x}\",NULL}}", r.below(1 << 16))),
    ("box[]", &["{(1,1),(0,0);(3,3),(2,2)}"], |r| format!("{{{},{}}}", point(r), point(r))),
    ("jsonb[]", &[], |r| array(r, |r| format!("{{\"a\": \"{}\"}}", r.digits(3)))),
    ("timestamptz[]", &["{infinity,NULL}"], |r| array(r, |r| format!("{} {}", date(r, 9999), clock(r)))),
    ("int4range[]", &["{empty,\"[1,2)\"}"], |r| array(r, |r| format!("[{},99)", r.below(9)))),
    ("float8[]", &["{NaN,-Infinity}"], |r| array(r, float8)),
    ("public.mood", &["sad", "it's, \"ok\""], |_| "sad".to_owned()),
    ("public.mood[]", &["{sad,NULL}"], |r| array(r, |_| "it's, \"ok\"".to_owned())),
    ("public.price", &["1.1"], |r| format!("{}.{}", r.digits(5), r.digits(3))),
    ("public.price[]", &["{1.1,NULL}"], |r| format!("{{{}.{}}}", r.digits(5), r.digits(3))),
    ("public.prices", &["{1.1,NULL}"], |r| format!("{{{}.{}}}", r.digits(5), r.digits(3))),
    ("public.hstore", &["", "a=>NULL"], |r| format!("{}=>{}, z=>NULL", quoted(&r.word()), quoted(&r.word()))),
    ("public.ltree", &["", "Top.Science"], |r| format!("a{}.b{}", r.below(9), r.below(9))),
    ("public.lquery", &["*.a*{1,2}.!b"], |r| format!("a{}.*", r.below(9))),
    ("public.cube", &["(1,2),(3,4)"], |r| format!("({},{})", r.digits(3), r.digits(3))),
    ("public.pair", &["(,)", "(1,\"\")"], |r| format!("({},{})", r.below(9), quoted(&r.word()))),
    ("public.pair[]", &["{\"(1,a)\"}"], |r| array(r, |r| format!("({},{})", r.below(9), quoted(&r.word())))),
];

/// Literals per type besides the given ones.
const RANDOM_PER_TYPE: usize = 60;

/// The literals of every type.
pub fn samples(random: &mut Random) -> Vec<(&'static str, Vec<String>)> {
    TYPES
        .iter()
        .map(|(sql_type, given, literal)| {
            let given = given.iter().map(|&literal| literal.to_owned());
            let made: Vec<String> = (0..RANDOM_PER_TYPE).map(|_| literal(random)).collect();
            (*sql_type, given.chain(made).collect())
        })
        .collect()
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn array(random: &mut Random, element: Literal) -> String {
    let elements: Vec<String> = (0..1 + random.below(4)).map(|_| quoted(&element(random))).collect();
    format!("{{{},NULL}}", elements.join(","))
}

fn float8(random: &mut Random) -> String {
    let number = match random.below(3) {
        0 => f64::from_bits(random.next()),
        // Round numbers above the mantissa's range, where half-way points have few digits.
        1 => (random.below(1 << 53) as f64) * 10f64.powi(i32::try_from(random.below(12)).unwrap()),
        _ => random.between(-99_999, 99_999) as f64 / 1000.0,
    };
    if number.is_finite() { format!("{number:e}") } else { "NaN".to_owned() }
}

fn float4(random: &mut Random) -> String {
    let number = match random.below(3) {
        0 => f32::from_bits(u32::try_from(random.below(1 << 32)).unwrap()),
        1 => (random.below(1 << 24) as f32) * 10f32.powi(i32::try_from(random.below(8)).unwrap()),
        _ => random.between(-99_999, 99_999) as f32 / 1000.0,
    };
    if number.is_finite() { format!("{number:e}") } else { "NaN".to_owned() }
}

fn numeric(random: &mut Random) -> String {
    let sign = random.pick(&["", "-"]);
    match random.below(3) {
        0 => format!("{sign}{}", random.digits(50)),
        1 => {
            format!("{sign}0.{}{}", "0".repeat(usize::try_from(random.below(20)).unwrap()), random.digits(20))
        }
        _ => format!("{sign}{}.{}", random.digits(40), random.digits(40)),
    }
}

fn date(random: &mut Random, last_year: i64) -> String {
    let (year, month, day) = (random.between(-4712, last_year), random.between(1, 12), random.between(1, 28));
    let year = if random.below(2) == 0 { random.between(1900, 2100) } else { year };
    match year {
        1.. => format!("{year:04}-{month:02}-{day:02}"),
        _ => format!("{:04}-{month:02}-{day:02} BC", 1 - year),
    }
}

fn clock(random: &mut Random) -> String {
    let fraction = random.below(1_000_000);
    let kept = random.pick(&["1", "1000", "1000000"]).parse::<u64>().unwrap();
    format!(
        "{:02}:{:02}:{:02}.{:06}",
        random.below(23),
        random.below(60),
        random.below(60),
        fraction / kept * kept
    )
}

fn offset(random: &mut Random) -> String {
    let (sign, hours) = (random.pick(&["+", "-"]), random.below(15));
    match random.below(3) {
        0 => format!("{sign}{hours:02}"),
        1 => format!("{sign}{hours:02}:{:02}", random.below(60)),
        _ => format!("{sign}{hours:02}:{:02}:{:02}", random.below(60), random.below(60)),
    }
}

fn interval(random: &mut Random) -> String {
    let mut part = |unit: &str| match random.below(3) {
        0 => String::new(),
        _ => format!("{} {unit} ", random.between(-99_999, 99_999)),
    };
    let text = ["years", "months", "days", "hours", "minutes", "microseconds"].map(&mut part).concat();
    if text.is_empty() { "0".to_owned() } else { text }
}

fn inet(random: &mut Random) -> String {
    if random.below(2) == 0 {
        return format!(
            "{}.{}.0.{}/{}",
            random.below(256),
            random.below(256),
            random.below(256),
            random.below(33)
        );
    }
    let groups: Vec<String> = (0..8)
        .map(|_| if random.below(2) == 0 { "0".to_owned() } else { format!("{:x}", random.below(1 << 16)) })
        .collect();
    format!("{}/{}", groups.join(":"), random.below(129))
}

fn point(random: &mut Random) -> String {
    format!("({},{})", float8(random), random.between(-9, 9))
}

fn tsquery(random: &mut Random, depth: u32) -> String {
    if depth == 0 || random.below(4) == 0 {
        return format!(
            "'{}'{}",
            random.pick(&["a", "b b", "it''s"]),
            random.pick(&["", ":*", ":AB", ":*CD"])
        );
    }
    let left = tsquery(random, depth - 1);
    match random.below(5) {
        0 => format!("!({left})"),
        1 => format!("({left}) & ({})", tsquery(random, depth - 1)),
        2 => format!("({left}) | ({})", tsquery(random, depth - 1)),
        3 => format!("({left}) <-> ({})", tsquery(random, depth - 1)),
        _ => format!("({left}) <{}> ({})", random.below(9), tsquery(random, depth - 1)),
    }
}
