//! Messages in the form of the `.txt` files beside the recordings.

use std::collections::HashMap;
use std::fmt::Write;

use crabka_pgoutput::{
    Cell, Insert, Message, OldTuple, OldTupleKind, Prepare, Relation, RollbackPrepared, StreamAbort,
    Truncate, Tuple, Update,
};

/// The lines so far.
pub(crate) struct Transcript {
    lines: Vec<String>,
    /// Relation names by oid, as last received.
    relations: HashMap<u32, String>,
    /// Whether runs of inserts become one line.
    fold: bool,
    run: Option<Run>,
}

/// Consecutive inserts into one table by one transaction, whose first columns count up.
struct Run {
    head: String,
    first: i64,
    last: i64,
    rows: usize,
}

impl Transcript {
    pub(crate) fn new(fold: bool) -> Self {
        Self { lines: Vec::new(), relations: HashMap::new(), fold, run: None }
    }

    pub(crate) fn push(&mut self, start: u64, message: &Message<'_>) {
        if let (true, Message::Insert(insert)) = (self.fold, message) {
            self.fold_insert(insert);
            return;
        }
        self.end_run();
        if let Message::Relation(relation) = message {
            self.relations.insert(relation.oid, qualified(relation.namespace, relation.name));
        }
        let line = format!("{:<12} {}", lsn(start), self.describe(message));
        self.lines.push(line);
    }

    pub(crate) fn finish(mut self) -> Vec<String> {
        self.end_run();
        self.lines
    }

    fn fold_insert(&mut self, insert: &Insert<'_>) {
        let Some(Cell::Text(id)) = insert.new.cell(0) else { panic!("a folded insert begins with a number") };
        let id: i64 = std::str::from_utf8(id).unwrap().parse().unwrap();
        let head = format!("INSERT {}{}", xid(insert.xid), self.relation(insert.relation));
        match &mut self.run {
            Some(run) if run.head == head && run.last + 1 == id => {
                run.last = id;
                run.rows += 1;
            }
            _ => {
                self.end_run();
                self.run = Some(Run { head, first: id, last: id, rows: 1 });
            }
        }
    }

    fn end_run(&mut self) {
        if let Some(Run { head, first, last, rows }) = self.run.take() {
            self.lines.push(format!("{head}  [x{rows} rows {first}..{last}]"));
        }
    }

    fn relation(&self, oid: u32) -> &str {
        self.relations.get(&oid).expect("the relation was sent before its rows")
    }

    fn describe(&self, message: &Message<'_>) -> String {
        match message {
            Message::Begin(m) => format!("BEGIN final_lsn={} xid={}", lsn(m.final_lsn), m.xid),
            Message::Commit(m) => {
                format!("COMMIT flags=0 commit_lsn={} end_lsn={}", lsn(m.commit_lsn), lsn(m.end_lsn))
            }
            Message::Origin(m) => format!("ORIGIN lsn={} name={}", lsn(m.lsn), quoted(m.name)),
            Message::Relation(m) => relation(m),
            Message::Type(m) => {
                format!("TYPE {}oid={} {}", xid(m.xid), m.oid, qualified(m.namespace, m.name))
            }
            Message::Insert(m) => {
                format!("INSERT {}{} N{}", xid(m.xid), self.relation(m.relation), row(m.new))
            }
            Message::Update(m) => self.update(m),
            Message::Delete(m) => {
                format!("DELETE {}{} {}", xid(m.xid), self.relation(m.relation), old(m.old))
            }
            Message::Truncate(m) => self.truncate(m),
            Message::LogicalMessage(m) => format!(
                "MESSAGE {}flags={} lsn={} prefix={} content=b'{}'",
                xid(m.xid),
                u8::from(m.transactional),
                lsn(m.lsn),
                quoted(m.prefix),
                m.content.escape_ascii()
            ),
            Message::StreamStart(m) => {
                format!("STREAM_START xid={} first={}", m.xid, u8::from(m.first_segment))
            }
            Message::StreamStop(_) => "STREAM_STOP".to_owned(),
            Message::StreamCommit(m) => format!(
                "STREAM_COMMIT xid={} flags=0 commit_lsn={} end_lsn={}",
                m.xid,
                lsn(m.commit_lsn),
                lsn(m.end_lsn)
            ),
            Message::StreamAbort(m) => stream_abort(m),
            Message::BeginPrepare(m) => format!(
                "BEGIN_PREPARE prepare_lsn={} end_lsn={} xid={} gid={}",
                lsn(m.prepare_lsn),
                lsn(m.end_lsn),
                m.xid,
                quoted(m.gid)
            ),
            Message::Prepare(m) => prepare("PREPARE", m),
            Message::StreamPrepare(m) => prepare("STREAM_PREPARE", m),
            Message::CommitPrepared(m) => format!(
                "COMMIT_PREPARED flags=0 lsn={} end_lsn={} xid={} gid={}",
                lsn(m.commit_lsn),
                lsn(m.end_lsn),
                m.xid,
                quoted(m.gid)
            ),
            Message::RollbackPrepared(m) => rollback_prepared(m),
        }
    }

    fn update(&self, m: &Update<'_>) -> String {
        let old = m.old.map_or_else(String::new, |tuple| format!("{} ", old(tuple)));
        format!("UPDATE {}{} {old}N{}", xid(m.xid), self.relation(m.relation), row(m.new))
    }

    fn truncate(&self, m: &Truncate<'_>) -> String {
        let flags = u8::from(m.cascade) | u8::from(m.restart_identity) << 1;
        let words = [(m.cascade, " CASCADE"), (m.restart_identity, " RESTART_SEQS")];
        let words: String = words.iter().filter(|(on, _)| *on).map(|(_, word)| *word).collect();
        let names: Vec<_> = m.relations.iter().map(|oid| self.relation(oid)).collect();
        format!("TRUNCATE {}flags={flags}{words} rels=[{}]", xid(m.xid), names.join(", "))
    }
}

fn relation(m: &Relation<'_>) -> String {
    let columns: Vec<_> = m
        .columns
        .iter()
        .map(|column| {
            let mark = if column.key { "*" } else { "" };
            format!("{mark}{}:{}/{}", column.name, column.type_oid, column.type_modifier)
        })
        .collect();
    format!(
        "RELATION {}oid={} {} ri={} cols=[{}]",
        xid(m.xid),
        m.oid,
        qualified(m.namespace, m.name),
        char::from(m.identity.as_byte()),
        columns.join(", ")
    )
}

fn stream_abort(m: &StreamAbort) -> String {
    let mut line = format!("STREAM_ABORT xid={} subxid={}", m.xid, m.subxid);
    if let Some(abort) = m.abort {
        let time = if abort.time_us == 0 { "0" } else { "set" };
        write!(line, " abort_lsn={} abort_ts={time}", lsn(abort.lsn)).unwrap();
    }
    line
}

fn prepare(word: &str, m: &Prepare<'_>) -> String {
    let (prepare, end) = (lsn(m.prepare_lsn), lsn(m.end_lsn));
    format!("{word} flags=0 lsn={prepare} end_lsn={end} xid={} gid={}", m.xid, quoted(m.gid))
}

fn rollback_prepared(m: &RollbackPrepared<'_>) -> String {
    let (prepare, end) = (lsn(m.prepare_end_lsn), lsn(m.rollback_end_lsn));
    let gid = quoted(m.gid);
    format!(
        "ROLLBACK_PREPARED flags=0 prepare_end_lsn={prepare} rollback_end_lsn={end} xid={} gid={gid}",
        m.xid
    )
}

fn xid(xid: Option<u32>) -> String {
    xid.map_or_else(String::new, |xid| format!("xid={xid} "))
}

fn lsn(lsn: u64) -> String {
    format!("{:X}/{:X}", lsn >> 32, lsn & 0xffff_ffff)
}

fn qualified(namespace: &str, name: &str) -> String {
    let namespace = if namespace.is_empty() { "<pg_catalog>" } else { namespace };
    format!("{namespace}.{name}")
}

fn old(old: OldTuple<'_>) -> String {
    let kind = match old.kind {
        OldTupleKind::Key => 'K',
        OldTupleKind::Full => 'O',
    };
    format!("{kind}{}", row(old.tuple))
}

fn row(tuple: Tuple<'_>) -> String {
    let cells: Vec<_> = tuple.cells().map(cell).collect();
    format!("({})", cells.join(", "))
}

fn cell(cell: Cell<'_>) -> String {
    match cell {
        Cell::Null => "NULL".to_owned(),
        Cell::Unchanged => "<unchanged>".to_owned(),
        Cell::Text(text) => {
            let text = std::str::from_utf8(text).expect("the recorded sessions used UTF8");
            let length = text.chars().count();
            if length <= 60 {
                return quoted(text);
            }
            let head: String = text.chars().take(40).collect();
            quoted(&format!("{head}…({length})"))
        }
        Cell::Binary(bytes) if bytes.len() > 40 => format!("b:{}…({})", hex(&bytes[..24]), bytes.len()),
        Cell::Binary(bytes) => format!("b:{}", hex(bytes)),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        write!(out, "{byte:02x}").unwrap();
        out
    })
}

/// In single quotes; in double quotes when that spares escaping single ones.
fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if c.is_ascii_control() => write!(out, "\\x{:02x}", u32::from(c)).unwrap(),
            c => out.push(c),
        }
    }
    out.push(quote);
    out
}
