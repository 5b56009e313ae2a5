//! The backlogs that are drained.

/// One kind of backlog: a table, and what is done to it.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    /// Changes in the backlog.
    pub(super) rows: u64,
    /// Counts for the choice of the default form: the one-transaction shape only asks for memory.
    pub(super) typical: bool,
    /// Makes the table `bench`, and fills it with what is to be there before the backlog.
    pub(super) table: &'static str,
    /// Makes the backlog; `$rows` stands for its size.
    pub(super) fill: &'static str,
}

/// Seven columns, about 190 bytes of pgoutput in text.
const NARROW_TABLE: &str = "\
CREATE TABLE bench (
    id bigint PRIMARY KEY, customer int NOT NULL, quantity int NOT NULL, placed_at timestamptz NOT NULL,
    price numeric(12,2) NOT NULL, note text, paid boolean NOT NULL)";

macro_rules! narrow_row {
    () => {
        "g, g % 100000, g % 97, '2026-01-01'::timestamptz + g * interval '1.000123 second', \
         (g * 37 % 1000000)::numeric / 100, md5(g::text) || ' ' || md5((g + 1)::text) || ', as \"quoted\" text of some length', \
         g % 3 = 0"
    };
}

/// In transactions of 1,000 rows.
macro_rules! in_thousands {
    ($statement:expr) => {
        concat!(
            "DO $do$ BEGIN FOR t IN 0 .. ($rows - 1) / 1000 LOOP ",
            $statement,
            "; COMMIT; END LOOP; END $do$"
        )
    };
}

pub(super) const SHAPES: &[Shape] = &[
    Shape {
        name: "narrow",
        what: "inserts of 7 columns, 1,000 a transaction",
        rows: 1_000_000,
        typical: true,
        table: NARROW_TABLE,
        fill: in_thousands!(concat!(
            "INSERT INTO bench SELECT ",
            narrow_row!(),
            " FROM generate_series(t * 1000 + 1, least(t * 1000 + 1000, $rows)) g"
        )),
    },
    Shape {
        name: "wide",
        what: "inserts of 32 columns with 1 kB of text, 1,000 a transaction",
        rows: 200_000,
        typical: true,
        table: "\
CREATE TABLE bench (
    id bigint PRIMARY KEY, i1 int, i2 int, i3 int, i4 int, i5 int, b1 bigint, b2 bigint, b3 bigint, f1 float8, f2 float8,
    n1 numeric, n2 numeric, t1 timestamptz, t2 timestamptz, t3 timestamp, d1 date, u1 uuid, j1 jsonb, o1 boolean,
    o2 boolean, s1 text, s2 text, s3 text, s4 text, s5 text, s6 text, s7 text, s8 varchar(40), z1 text, z2 int,
    body text)",
        fill: in_thousands!(
            "INSERT INTO bench SELECT g, g, g % 10, g % 100, g % 1000, -g, g, g::bigint * 1000003, -g, g / 7.0, g * 1e10, \
             g / 3.0, g::numeric * 1000000007, '2026-01-01'::timestamptz + g * interval '1 second', now(), \
             '2026-01-01'::timestamp - g * interval '1 minute', '2026-01-01'::date + (g % 3650)::int, \
             md5(g::text)::uuid, jsonb_build_object('a', g, 'b', md5(g::text)), g % 2 = 0, g % 3 = 0, \
             md5(g::text), 'state ' || g % 7, 'Zürich', md5((g + 1)::text), 'line 1' || chr(10) || 'line 2', \
             md5((g + 2)::text), md5((g + 3)::text), 'short', NULL, NULL, repeat(md5(g::text), 32) \
             FROM generate_series(t * 1000 + 1, least(t * 1000 + 1000, $rows)) g"
        ),
    },
    Shape {
        name: "updates",
        what: "updates of 2 of 7 columns, 1,000 a transaction",
        rows: 500_000,
        typical: true,
        // Room in the pages, so that the updates stay beside their rows as in a table that is vacuumed.
        table: concat!(
            "CREATE TABLE bench (id bigint PRIMARY KEY, customer int NOT NULL, quantity int NOT NULL, \
             placed_at timestamptz NOT NULL, price numeric(12,2) NOT NULL, note text, paid boolean NOT NULL) \
             WITH (fillfactor = 40); INSERT INTO bench SELECT ",
            narrow_row!(),
            " FROM generate_series(1, 50000) g"
        ),
        fill: in_thousands!(
            "UPDATE bench SET quantity = quantity + 1, price = price + 0.01 \
             WHERE id BETWEEN (t % 50) * 1000 + 1 AND least((t % 50) * 1000 + 1000, (t % 50) * 1000 + $rows - t * 1000)"
        ),
    },
    Shape {
        name: "small",
        what: "inserts of 7 columns, 1 a transaction",
        rows: 300_000,
        typical: true,
        table: NARROW_TABLE,
        fill: concat!(
            "DO $do$ BEGIN FOR g IN 1 .. $rows LOOP INSERT INTO bench SELECT ",
            narrow_row!(),
            "; COMMIT; END LOOP; END $do$"
        ),
    },
    Shape {
        name: "huge",
        what: "inserts of 7 columns, all in 1 transaction",
        rows: 1_000_000,
        typical: false,
        table: NARROW_TABLE,
        fill: concat!("INSERT INTO bench SELECT ", narrow_row!(), " FROM generate_series(1, $rows) g"),
    },
];

impl Shape {
    pub(super) fn fill(&self, rows: u64) -> String {
        self.fill.replace("$rows", &rows.to_string())
    }

    /// One more change, in a transaction of its own: when it is through, so is everything before it.
    pub(super) fn marker(&self) -> &'static str {
        match self.name {
            "wide" => "INSERT INTO bench (id) VALUES (0)",
            "updates" => "UPDATE bench SET quantity = 0 WHERE id = 1",
            _ => "INSERT INTO bench VALUES (0, 0, 0, now(), 0, NULL, false)",
        }
    }
}
