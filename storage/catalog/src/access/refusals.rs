//! Refusals of parts of a request while the rest of it was done: items of bulks, documents and searches of many.

use std::sync::Arc;

use millrace_runtime::error::Error;
use parking_lot::Mutex;

/// Most parts that are told apart; further ones are counted.
const MAX_TOLD: usize = 20;
/// Longest name that is kept, in bytes.
const MAX_NAME: usize = 512;

/// Equal parts of a request that were refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepeatedRefusal {
    /// Name of the action.
    pub action: &'static str,
    /// Index or expression as the caller gave it, the beginning of a long one; `None` where the action is not allowed on any.
    pub index: Option<String>,
    /// Number of refusals.
    pub count: u64,
}

/// All of a request. Cheap to clone: clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Refusals(Arc<Mutex<RefusalRecord>>);

#[derive(Debug, Default)]
struct RefusalRecord {
    told: Vec<RepeatedRefusal>,
    others: u64,
    /// `true` if an index refuses everybody.
    blocked: bool,
}

impl Refusals {
    /// Takes note of the refusal of a part, and of a block; of other errors not.
    pub fn note(&self, error: &Error) {
        match error {
            Error::Unauthorized { action, index, .. } => self.note_of(action, index.as_deref()),
            Error::Blocked { .. } => self.0.lock().blocked = true,
            _ => {}
        }
    }

    /// Takes note of the refusal of an action on an index.
    pub fn note_of(&self, action: &'static str, index: Option<&str>) {
        let index = index.map(|name| name.get(..name.floor_char_boundary(MAX_NAME)).unwrap_or_default());
        let noted = &mut *self.0.lock();
        let alike = |known: &RepeatedRefusal| known.action == action && known.index.as_deref() == index;
        match noted.told.iter().position(alike) {
            Some(at) => noted.told[at].count += 1,
            None if noted.told.len() < MAX_TOLD => {
                noted.told.push(RepeatedRefusal { action, index: index.map(str::to_owned), count: 1 });
            }
            None => noted.others += 1,
        }
    }

    /// Returns what was noted, twenty kinds at most, and how many there are of further ones.
    pub fn noted(&self) -> (Vec<RepeatedRefusal>, u64) {
        let noted = self.0.lock();
        (noted.told.clone(), noted.others)
    }

    /// Returns whether nothing was refused but by blocks of indices, which are no matter of rights.
    pub fn are_blocks(&self) -> bool {
        let noted = self.0.lock();
        noted.blocked && noted.told.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ones_are_counted_and_kinds_are_bounded() {
        let refusals = Refusals::default();
        assert_eq!(refusals.noted(), (Vec::new(), 0));
        for number in 0..100 {
            let (action, caller) = ("indices:data/write/index", "user [ann]".to_owned());
            let index = Some(format!("index-{}", number % 25));
            refusals.note(&Error::Unauthorized { action, caller, index });
        }
        refusals.note(&Error::Rejected("full".to_owned()));
        refusals.note_of("indices:data/read/get", Some(&"é".repeat(1_000)));
        let (told, others) = refusals.noted();
        assert_eq!((told.len(), told[0].count, others), (20, 4, 21));
        let blocked =
            || Error::Blocked { index: "a".to_owned(), reason: "FORBIDDEN/8/index write (api)".to_owned() };
        refusals.note(&blocked());
        assert!(!refusals.are_blocks(), "something else was refused, too");
        let blocks = Refusals::default();
        assert!(!blocks.are_blocks());
        blocks.note(&blocked());
        assert_eq!((blocks.are_blocks(), blocks.noted()), (true, (Vec::new(), 0)));
        let long = Refusals::default();
        long.note_of("indices:data/read/get", Some(&"é".repeat(1_000)));
        assert_eq!(long.noted().0[0].index.as_ref().map(String::len), Some(512));
    }
}
