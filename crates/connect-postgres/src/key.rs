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
    /// Whether the catalogue still has the table: an empty list above then says that it has no such key.
    pub(crate) table_exists: bool,
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
    let (primary_key, unique_index) = (located(hints.primary_key), located(hints.unique_index));
    let last = located(hints.last);
    let key = match identity {
        // The flagged columns are the primary key; only their order is open.
        ReplicaIdentity::Default => {
            [primary_key, last].into_iter().find(|known| same_set(known, &flagged)).unwrap_or(flagged)
        }
        _ if !primary_key.is_empty() => primary_key,
        ReplicaIdentity::Index if same_set(&last, &flagged) => last,
        // Fewer columns than the index has were a primary key that is dropped with its table. Of a table that is still
        // there they are an index before, and no longer unique. Others are not in an old row: the key would be null.
        ReplicaIdentity::Index if !hints.table_exists && !last.is_empty() && is_subset(&last, &flagged) => {
            last
        }
        ReplicaIdentity::Index => flagged,
        // The index that was the key may be gone as well; a key that does not fit may have had its columns renamed.
        ReplicaIdentity::Full | ReplicaIdentity::Nothing
            if hints.table_exists && hints.primary_key.is_empty() =>
        {
            if hints.unique_index.is_empty() {
                Vec::new()
            } else {
                first_of([unique_index.clone(), last])
            }
        }
        ReplicaIdentity::Full | ReplicaIdentity::Nothing => last,
    };
    first_of([key, unique_index])
}

/// The first that is a key at all.
fn first_of(keys: [Vec<usize>; 2]) -> Vec<usize> {
    keys.into_iter().find(|key| !key.is_empty()).unwrap_or_default()
}

fn same_set(a: &[usize], b: &[usize]) -> bool {
    a.len() == b.len() && is_subset(a, b)
}

fn is_subset(a: &[usize], b: &[usize]) -> bool {
    a.iter().all(|index| b.contains(index))
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
        let hints = KeyHints {
            primary_key: &primary_key,
            unique_index: &unique_index,
            table_exists: true,
            last: &last,
        };
        choose_key(&columns, identity, hints)
    }

    /// The catalogue has no such table any more.
    fn key_of_gone(columns: &[(&str, bool)], identity: ReplicaIdentity, last: &[&str]) -> Vec<usize> {
        let columns: Vec<_> =
            columns.iter().map(|&(name, in_identity)| KeyColumn { name, in_identity }).collect();
        choose_key(&columns, identity, KeyHints { last: &names(last), ..KeyHints::default() })
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

    #[test]
    fn a_key_of_before_counts_as_long_as_the_catalogue_does_not_say_that_it_is_gone() {
        use ReplicaIdentity::{Full, Index, Nothing};
        // The identity went from an index on (a) to one on (a, b): rows that differ in b alone need keys that differ.
        assert_eq!(key(&AB, Index, &[], &["a", "b"], &["a"]), [0, 1]);
        assert_eq!(key(&AB, Index, &["gone"], &[], &["a"]), [0, 1]);
        // The primary key was dropped with its table.
        assert_eq!(key_of_gone(&AB, Index, &["a"]), [0]);
        assert_eq!(key_of_gone(&AB, Index, &["v"]), [0, 1]);
        assert_eq!(key_of_gone(&AB, Index, &[]), [0, 1]);
        for (identity, columns) in [(Full, &ALL), (Nothing, &NONE)] {
            assert_eq!(key(columns, identity, &[], &["a", "b"], &["a"]), [0, 1]);
            assert!(key(columns, identity, &[], &[], &["a"]).is_empty());
            assert_eq!(key(columns, identity, &[], &["renamed"], &["a"]), [0]);
            assert_eq!(key_of_gone(columns, identity, &["a"]), [0]);
        }
    }
}
