//! Rules whose predictions are filled in just now, and the announcements of runs meanwhile: the predictions of such a run may not
//! have been there to be found.

use std::collections::HashMap;

use parking_lot::Mutex;

/// Rules that are filled in: two that do would meet at the same documents. With each, the least time that runs announced since.
#[derive(Debug, Default)]
pub(crate) struct ActiveBackfills(Mutex<HashMap<String, Option<i64>>>);

impl ActiveBackfills {
    /// Begins with a rule; `None` where somebody is at it.
    pub(crate) fn begin<'a>(&'a self, id: &'a str) -> Option<BackfillGuard<'a>> {
        let mut fillings = self.0.lock();
        if fillings.contains_key(id) {
            return None;
        }
        fillings.insert(id.to_owned(), None);
        Some(BackfillGuard { of: self, id })
    }

    /// Takes note of the time from which a run's predictions want filling in.
    pub(crate) fn announce(&self, id: &str, from_ms: Option<i64>) {
        if let Some(least) = self.0.lock().get_mut(id) {
            *least = least.iter().copied().chain(from_ms).min();
        }
    }
}

/// One of them, for as long as there is this.
#[derive(Debug)]
pub(crate) struct BackfillGuard<'a> {
    of: &'a ActiveBackfills,
    id: &'a str,
}

impl BackfillGuard<'_> {
    /// Returns before which time all is filled in, once that was done up to a time.
    pub(crate) fn reached(&self, to_ms: i64) -> i64 {
        let announced = self.of.0.lock().get(self.id).copied().flatten();
        announced.map_or(to_ms, |announced| announced.min(to_ms))
    }
}

impl Drop for BackfillGuard<'_> {
    fn drop(&mut self) {
        self.of.0.lock().remove(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_announce_meanwhile_is_not_filled_in() {
        let fillings = ActiveBackfills::default();
        fillings.announce("a", Some(1));
        let filling = fillings.begin("a").unwrap();
        assert!(fillings.begin("a").is_none() && fillings.begin("b").is_some());
        assert_eq!(filling.reached(100), 100, "what was announced before was there");
        fillings.announce("a", Some(120));
        assert_eq!(filling.reached(100), 100);
        for announced in [Some(90), Some(95), None] {
            fillings.announce("a", announced);
            assert_eq!(filling.reached(100), 90);
        }
        fillings.announce("b", Some(5));
        assert_eq!(filling.reached(100), 90);
        drop(filling);
        assert_eq!(fillings.begin("a").unwrap().reached(100), 100);
    }
}
