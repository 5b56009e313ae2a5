//! Which columns of a relation are its key, and in which order.
//!
//! The identity flags of a Relation message are the *replica identity*, which is the primary key only under REPLICA
//! IDENTITY DEFAULT, and carry no order. The catalogue knows the primary key, but as of now, not as of the change: it
//! is a hint that is used where it fits the relation and ignored where it does not.

use crate::relation::ReplicaIdentity;

/// A column, as far as the choice of the key looks at it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyColumn<'a> {
    pub(crate) name: &'a str,
    pub(crate) in_identity: bool,
}

/// What is known besides the Relation message.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct KeyHints<'a> {
    /// Primary key columns in key order, from the catalogue; empty when there is none or nothing is known.
    pub(crate) primary_key: &'a [String],
    /// Columns of the unique index that stands in for a missing primary key, from the catalogue.
    pub(crate) unique_index: &'a [String],
    /// The key that was chosen for this relation last.
    pub(crate) last: &'a [String],
}

/// Indices into `columns`, in key order; empty for a key-less table.
pub(crate) fn choose_key(
    columns: &[KeyColumn<'_>],
    identity: ReplicaIdentity,
    hints: KeyHints<'_>,
) -> Vec<usize> {
    let flagged: Vec<usize> =
        columns.iter().enumerate().filter(|(_, column)| column.in_identity).map(|(index, _)| index).collect();
    let located = |names: &[String]| -> Vec<usize> {
        names
            .iter()
            .map(|name| columns.iter().position(|column| column.name == name.as_str()))
            .collect::<Option<Vec<_>>>()
            .unwrap_or_default()
    };
    let (primary_key, last) = (located(hints.primary_key), located(hints.last));
    let key = match identity {
        // The flagged columns are the primary key; only their order is open.
        ReplicaIdentity::Default => {
            [primary_key, last].into_iter().find(|known| same_set(known, &flagged)).unwrap_or(flagged)
        }
        _ if !primary_key.is_empty() => primary_key,
        // Only the columns of the index are in an old row: a key of others, that of an index before, would be null.
        ReplicaIdentity::Index if last.iter().all(|column| flagged.contains(column)) && !last.is_empty() => {
            last
        }
        ReplicaIdentity::Index => flagged,
        ReplicaIdentity::Full | ReplicaIdentity::Nothing => last,
    };
    if key.is_empty() { located(hints.unique_index) } else { key }
}

fn same_set(a: &[usize], b: &[usize]) -> bool {
    a.len() == b.len() && a.iter().all(|index| b.contains(index))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    fn key(
        columns: &[(&str, bool)],
        identity: ReplicaIdentity,
        primary_key: &[&str],
        unique_index: &[&str],
        last: &[&str],
    ) -> Vec<usize> {
        let columns: Vec<_> =
            columns.iter().map(|&(name, in_identity)| KeyColumn { name, in_identity }).collect();
        let (primary_key, unique_index, last) = (names(primary_key), names(unique_index), names(last));
        let hints = KeyHints { primary_key: &primary_key, unique_index: &unique_index, last: &last };
        choose_key(&columns, identity, hints)
    }

    const AB: [(&str, bool); 3] = [("a", true), ("b", true), ("v", false)];
    const ALL: [(&str, bool); 3] = [("a", true), ("b", true), ("v", true)];
    const NONE: [(&str, bool); 3] = [("a", false), ("b", false), ("v", false)];

    #[test]
    fn default_identity_takes_the_flags_and_the_catalogues_order_when_it_names_the_same_columns() {
        use ReplicaIdentity::Default;
        assert_eq!(key(&AB, Default, &["b", "a"], &[], &[]), [1, 0]);
        // A primary key changed since: not the same set, so the flags decide.
        assert_eq!(key(&AB, Default, &["a"], &[], &[]), [0, 1]);
        assert_eq!(key(&AB, Default, &["v", "a"], &[], &["b", "a"]), [1, 0]);
        assert_eq!(key(&AB, Default, &[], &[], &[]), [0, 1]);
        assert!(key(&NONE, Default, &["a"], &[], &[]).is_empty());
        assert_eq!(key(&NONE, Default, &[], &["b"], &[]), [1]);
    }

    #[test]
    fn other_identities_take_the_catalogues_primary_key_then_the_last_known() {
        use ReplicaIdentity::{Full, Index, Nothing};
        assert_eq!(key(&ALL, Full, &["a"], &[], &[]), [0]);
        assert_eq!(key(&ALL, Full, &["gone"], &[], &["b"]), [1]);
        assert!(key(&ALL, Full, &[], &[], &[]).is_empty());
        assert_eq!(key(&ALL, Full, &[], &["v"], &[]), [2]);
        assert_eq!(key(&NONE, Nothing, &["b", "a"], &[], &[]), [1, 0]);
        assert_eq!(key(&AB, Index, &["v"], &[], &[]), [2]);
        assert_eq!(key(&AB, Index, &[], &[], &[]), [0, 1]);
        assert_eq!(key(&AB, Index, &[], &[], &["b", "a"]), [1, 0]);
        // The identity went over to another index: the key goes with it.
        assert_eq!(key(&AB, Index, &[], &[], &["v"]), [0, 1]);
        assert_eq!(key(&NONE, Index, &[], &["v"], &[]), [2]);
    }
}
