//! Sources without some of their parts: one walk for all who leave something out, each of whom says what.

use serde_json::{Map, Value};

/// What stays of the value at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stays {
    /// All of it.
    Whole,
    /// Nothing.
    Nothing,
    /// What stays of its members; `itself`: the value does so even where none of them do.
    Inside {
        /// Whether the path is wanted itself.
        itself: bool,
    },
}

/// Leaves parts out of the members of a source. `of` is asked of each path (dotted; items of an array have that of the
/// array), and told whether what it is in stays itself. `empty_items`: an object in an array of which nothing is left stays
/// where the array does itself.
pub fn leave_out(
    members: Map<String, Value>,
    empty_items: bool,
    of: impl Fn(&str, bool) -> Stays,
) -> Map<String, Value> {
    Walk { of, empty_items, path: String::new() }.members(members, false)
}

struct Walk<F> {
    of: F,
    empty_items: bool,
    path: String,
}

impl<F: Fn(&str, bool) -> Stays> Walk<F> {
    fn members(&mut self, members: Map<String, Value>, itself: bool) -> Map<String, Value> {
        let mut kept = Map::new();
        for (name, value) in members {
            let length = self.path.len();
            if length > 0 {
                self.path.push('.');
            }
            self.path.push_str(&name);
            let value = match (self.of)(&self.path, itself) {
                Stays::Whole => Some(value),
                Stays::Nothing => None,
                Stays::Inside { itself } => self.value(value, itself, itself),
            };
            kept.extend(value.map(|value| (name, value)));
            self.path.truncate(length);
        }
        kept
    }

    /// `empty`: whether the value stays where nothing is left in it.
    fn value(&mut self, value: Value, itself: bool, empty: bool) -> Option<Value> {
        match value {
            Value::Object(members) => {
                let kept = self.members(members, itself);
                (empty || !kept.is_empty()).then_some(Value::Object(kept))
            }
            Value::Array(items) => {
                let empty_item = itself && self.empty_items;
                let kept = items.into_iter().filter_map(|item| self.value(item, itself, empty_item));
                let kept: Vec<Value> = kept.collect();
                (empty || !kept.is_empty()).then_some(Value::Array(kept))
            }
            scalar => itself.then_some(scalar),
        }
    }
}
