//! A row of a table: cells of the wire, read by column.

use crabka_pgoutput::{Cell, Tuple};

use crate::event::OldRow;
use crate::relation::{Relation, ReplicaIdentity};

/// A view of one row.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    relation: &'a Relation,
    tuple: Tuple<'a>,
    /// `true`: an old row of which only the identity columns were sent.
    key_only: bool,
    old: Option<(Tuple<'a>, bool)>,
}

impl<'a> Row<'a> {
    /// An old row.
    pub fn old(relation: &'a Relation, old: &'a OldRow) -> Self {
        Self { relation, tuple: Tuple::from_bytes(&old.tuple), key_only: !old.full, old: None }
    }

    /// A new row, with the old one for values that were not sent again.
    pub fn new(relation: &'a Relation, tuple: &'a [u8], old: Option<&'a OldRow>) -> Self {
        Self {
            relation,
            tuple: Tuple::from_bytes(tuple),
            key_only: false,
            old: old.map(|old| (Tuple::from_bytes(&old.tuple), old.full)),
        }
    }

    /// The table.
    pub fn relation(&self) -> &'a Relation {
        self.relation
    }

    /// Whether only the identity columns were sent; the other cells are null and mean nothing.
    pub fn is_key_only(&self) -> bool {
        self.key_only
    }

    /// The cell of a column. An unchanged value is taken from the old row where that has it.
    pub fn cell(&self, index: usize) -> Option<Cell<'a>> {
        match self.tuple.cell(index)? {
            Cell::Unchanged => Some(self.old_cell(index).unwrap_or(Cell::Unchanged)),
            cell => Some(cell),
        }
    }

    fn old_cell(&self, index: usize) -> Option<Cell<'a>> {
        let (old, full) = self.old?;
        let in_identity = self.relation.columns.get(index)?.in_identity
            && self.relation.identity != ReplicaIdentity::Nothing;
        if full || in_identity { old.cell(index) } else { None }
    }
}
