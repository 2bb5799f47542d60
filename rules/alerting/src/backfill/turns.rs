//! Order of backfills: there are fewer slots than rules that may want one.
//!
//! Who gets one keeps it until it is live, and gives it up only where it does not catch up while others wait: then these come
//! first, and it begins anew behind them. What it has raised is there by then.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Times at which rules last got a slot.
#[derive(Debug, Default)]
pub(super) struct BackfillSlots {
    /// In the order in which they were given.
    given: HashMap<String, u64>,
    last: u64,
}

impl BackfillSlots {
    /// Gives free places to those that have had none for longest, and returns them, and those that wait.
    pub(super) fn give<T>(
        &mut self,
        mut wanting: Vec<T>,
        free: usize,
        id: impl Fn(&T) -> &str,
    ) -> (Vec<T>, Vec<T>) {
        // Those that never had any come first.
        wanting.sort_by_key(|one| self.given.get(id(one)).copied());
        let waiting = wanting.split_off(free.min(wanting.len()));
        for one in &wanting {
            self.last += 1;
            self.given.insert(id(one).to_owned(), self.last);
        }
        (wanting, waiting)
    }

    /// Forgets rules that do not catch up any more.
    pub(super) fn only(&mut self, catches_up: impl Fn(&str) -> bool) {
        self.given.retain(|id, _| catches_up(id));
    }
}

/// Rules that wait for a place.
#[derive(Debug, Default)]
pub(super) struct WaitingRules(AtomicUsize);

impl WaitingRules {
    /// Notes how many there are.
    pub(super) fn set(&self, count: usize) {
        self.0.store(count, Ordering::Relaxed);
    }

    /// Tells whether there is one to give a place up for: once for each.
    pub(super) fn take_one(&self) -> bool {
        let one_less = |count: usize| count.checked_sub(1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_give_their_places_up_get_them_back_behind_all_others() {
        let mut turns = BackfillSlots::default();
        let mut give = |wanting: &[&'static str], free| turns.give(wanting.to_vec(), free, |id| id);
        assert_eq!(give(&["a", "b", "c", "d"], 2), (vec!["a", "b"], vec!["c", "d"]));
        // One gives its place up, and another rule comes.
        assert_eq!(give(&["a", "c", "d", "e"], 1), (vec!["c"], vec!["d", "e", "a"]));
        assert_eq!(give(&["a", "b", "d", "e"], 1), (vec!["d"], vec!["e", "a", "b"]));
        assert_eq!(give(&["a", "b", "e"], 0), (vec![], vec!["e", "a", "b"]));
        assert_eq!(give(&["a", "b", "e"], 2), (vec!["e", "a"], vec!["b"]));
        // What was live since is new.
        turns.only(|id| id != "e");
        let wanting = vec!["a", "b", "c", "d", "e"];
        assert_eq!(turns.give(wanting, 5, |id| id).0, ["e", "b", "c", "d", "a"]);
    }

    #[test]
    fn for_each_rule_that_waits_one_gives_its_place_up() {
        let waiting = WaitingRules::default();
        assert!(!waiting.take_one());
        waiting.set(2);
        assert_eq!([(); 3].map(|()| waiting.take_one()), [true, true, false]);
    }
}
