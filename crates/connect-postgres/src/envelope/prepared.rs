//! What is the same for all rows of one version of a table, prepared once.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Prepared output by version of the relation. Bounded: a long-running stream sees ever new versions.
#[derive(Debug)]
pub(super) struct PreparedCache<T> {
    entries: HashMap<u64, Arc<T>>,
    /// Versions in the order they came.
    order: VecDeque<u64>,
    /// Rows of one table mostly come together.
    last: Option<(u64, Arc<T>)>,
}

/// Versions kept. Each takes about as much memory as the names of the table's columns.
const VERSIONS_MAX: usize = 4096;

impl<T> PreparedCache<T> {
    pub(super) fn new() -> Self {
        Self { entries: HashMap::new(), order: VecDeque::new(), last: None }
    }

    /// The entry of that version if `fits` accepts it, else a new one.
    #[inline]
    pub(super) fn get_or_prepare<E>(
        &mut self,
        version: u64,
        fits: impl Fn(&T) -> bool,
        prepare: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        if let Some((last, entry)) = &self.last
            && *last == version
            && fits(entry)
        {
            return Ok(Arc::clone(entry));
        }
        let entry = match self.entries.get(&version).filter(|entry| fits(entry)) {
            Some(entry) => Arc::clone(entry),
            None => self.insert(version, prepare()?),
        };
        self.last = Some((version, Arc::clone(&entry)));
        Ok(entry)
    }

    fn insert(&mut self, version: u64, entry: T) -> Arc<T> {
        let entry = Arc::new(entry);
        if self.entries.insert(version, Arc::clone(&entry)).is_none() {
            self.order.push_back(version);
        }
        if self.order.len() > VERSIONS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.entries.remove(&oldest);
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_version_goes_first() {
        let mut cache = PreparedCache::new();
        let mut prepared = Vec::new();
        let mut get = |version| {
            let prepare = || {
                prepared.push(version);
                Ok::<_, ()>(version)
            };
            cache.get_or_prepare(version, |_| true, prepare).unwrap();
        };
        let newest = VERSIONS_MAX as u64;
        (0..=newest).for_each(&mut get);
        get(newest);
        get(1);
        get(0);
        assert_eq!(prepared.len(), VERSIONS_MAX + 2);
        assert_eq!(prepared.last(), Some(&0));
        assert_eq!(cache.entries.len(), VERSIONS_MAX);
    }

    #[test]
    fn an_entry_that_does_not_fit_is_replaced() {
        let mut cache = PreparedCache::new();
        cache.get_or_prepare::<()>(1, |_| true, || Ok("first")).unwrap();
        assert_eq!(
            *cache.get_or_prepare::<()>(1, |&entry| entry == "second", || Ok("second")).unwrap(),
            "second"
        );
        assert_eq!(*cache.get_or_prepare::<()>(1, |_| true, || Ok("third")).unwrap(), "second");
    }
}
