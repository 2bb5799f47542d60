//! Sources as text: members as they are written, and what is left of a source without some of its parts.
//!
//! Who leaves something out says what: [`leave_out_of_text`] keeps the text of all that stays, [`leave_out`] does the same to values that
//! were read already.

mod members;
mod scan;

use serde_json::{Map, Value};

pub use members::{Member, Members, ObjectText, merged};
pub use scan::Scanner;

/// Deepest nesting of a text that is looked into: documents nest less deep.
const MAX_DEPTH: usize = 1_000;

/// Projection of the value at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathProjection {
    /// All of it.
    Whole,
    /// Nothing.
    Nothing,
    /// Projection of its members; `itself`: the value remains even where none of them do.
    Inside {
        /// `true` if the path is wanted itself.
        itself: bool,
    },
}

/// Leaves parts out of the members of a source. `of` is asked of each path (dotted; items of an array have that of the
/// array), and told whether what it is in stays itself. `empty_items`: an object in an array of which nothing is left stays
/// where the array does itself.
pub fn leave_out(
    members: Map<String, Value>,
    empty_items: bool,
    of: impl Fn(&str, bool) -> PathProjection,
) -> Map<String, Value> {
    Walk { of, empty_items, path: String::new() }.members(members, false)
}

struct Walk<F> {
    of: F,
    empty_items: bool,
    path: String,
}

impl<F: Fn(&str, bool) -> PathProjection> Walk<F> {
    fn members(&mut self, members: Map<String, Value>, itself: bool) -> Map<String, Value> {
        let mut kept = Map::new();
        for (name, value) in members {
            let length = self.path.len();
            if length > 0 {
                self.path.push('.');
            }
            self.path.push_str(&name);
            let value = match (self.of)(&self.path, itself) {
                PathProjection::Whole => Some(value),
                PathProjection::Nothing => None,
                PathProjection::Inside { itself } => self.value(value, itself, itself),
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

/// Leaves parts out of the text of a source, as [`leave_out`] does of its members. `None` where the text is no JSON; one that is no
/// object stays as it is.
pub fn leave_out_of_text(
    source: &[u8],
    empty_items: bool,
    of: impl Fn(&str, bool) -> PathProjection,
) -> Option<Vec<u8>> {
    let mut scanner = Scanner::new(source);
    if scanner.peek()? != b'{' {
        return Some(source.to_vec());
    }
    let out = Vec::with_capacity(source.len());
    let mut walk = TextWalk { of, empty_items, path: String::new(), scanner, out };
    walk.members(false, 0)?;
    walk.scanner.is_at_end().then_some(walk.out)
}

struct TextWalk<'t, F> {
    of: F,
    empty_items: bool,
    path: String,
    scanner: Scanner<'t>,
    out: Vec<u8>,
}

impl<F: Fn(&str, bool) -> PathProjection> TextWalk<'_, F> {
    /// Writes what stays of an object, and tells whether any of its members do.
    fn members(&mut self, itself: bool, depth: usize) -> Option<bool> {
        if depth > MAX_DEPTH {
            return None;
        }
        self.out.push(b'{');
        let mut kept = false;
        let mut more = self.scanner.open(b'}')?;
        while more {
            let written = self.scanner.string()?;
            self.scanner.expect(b':')?;
            let length = self.path.len();
            if length > 0 {
                self.path.push('.');
            }
            match memchr::memchr(b'\\', written) {
                None => self.path.push_str(std::str::from_utf8(written.get(1..written.len() - 1)?).ok()?),
                Some(_) => self.path.push_str(&serde_json::from_slice::<String>(written).ok()?),
            }
            let before = self.out.len();
            if kept {
                self.out.push(b',');
            }
            self.out.extend_from_slice(written);
            self.out.push(b':');
            let stays = match (self.of)(&self.path, itself) {
                PathProjection::Whole => self.copy().map(|()| true)?,
                PathProjection::Nothing => self.scanner.skip().map(|_| false)?,
                PathProjection::Inside { itself } => self.value(itself, itself, depth)?,
            };
            if !stays {
                self.out.truncate(before);
            }
            kept |= stays;
            self.path.truncate(length);
            more = self.scanner.goes_on(b'}')?;
        }
        self.out.push(b'}');
        Some(kept)
    }

    /// Writes what stays of a value. `empty`: whether it stays where nothing is left in it.
    fn value(&mut self, itself: bool, empty: bool, depth: usize) -> Option<bool> {
        match self.scanner.peek()? {
            b'{' => Some(self.members(itself, depth + 1)? || empty),
            b'[' => {
                if depth > MAX_DEPTH {
                    return None;
                }
                let empty_item = itself && self.empty_items;
                self.out.push(b'[');
                let mut kept = false;
                let mut more = self.scanner.open(b']')?;
                while more {
                    let before = self.out.len();
                    if kept {
                        self.out.push(b',');
                    }
                    let stays = self.value(itself, empty_item, depth + 1)?;
                    if !stays {
                        self.out.truncate(before);
                    }
                    kept |= stays;
                    more = self.scanner.goes_on(b']')?;
                }
                self.out.push(b']');
                Some(kept || empty)
            }
            _ if itself => self.copy().map(|()| true),
            _ => self.scanner.skip().map(|_| false),
        }
    }

    fn copy(&mut self) -> Option<()> {
        let value = self.scanner.skip()?;
        self.out.extend_from_slice(value);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_values_are_left_the_same() {
        let sources = [
            r#"{"a":{"b":1,"c":{"d":[1,{"e":2,"f":3},[],{}]}},"g":[],"h":{},"i":"x"}"#,
            r#"{ "a" : [ { "b" : [ [ 1 , 2 ] , { "c" : null } ] } , 3 ] , "a.b" : true , "\u0067" : -1.5e3 }"#,
            "{}",
        ];
        let rules: [fn(&str, bool) -> PathProjection; 5] = [
            |_, _| PathProjection::Whole,
            |_, _| PathProjection::Nothing,
            |path, above| match path.starts_with("a.b") || above {
                true => PathProjection::Whole,
                false => PathProjection::Inside { itself: false },
            },
            |path, _| {
                if path.contains('c') {
                    PathProjection::Nothing
                } else {
                    PathProjection::Inside { itself: true }
                }
            },
            |path, _| PathProjection::Inside { itself: path.len() % 2 == 1 },
        ];
        for source in sources {
            for (number, rule) in rules.into_iter().enumerate() {
                for empty_items in [false, true] {
                    let Value::Object(members) = serde_json::from_str(source).unwrap() else { panic!() };
                    let expected = Value::Object(leave_out(members, empty_items, rule));
                    let text = leave_out_of_text(source.as_bytes(), empty_items, rule).unwrap();
                    let found: Value = serde_json::from_slice(&text).unwrap();
                    assert_eq!(found, expected, "{source} rule {number}");
                }
            }
        }
    }

    #[test]
    fn numbers_stay_as_they_are_written() {
        let source = br#"{"n":123456789012345678901234567890,"m":[1.0,1e2],"x":0}"#;
        let text = leave_out_of_text(source, false, |path, _| match path {
            "x" => PathProjection::Nothing,
            _ => PathProjection::Inside { itself: true },
        });
        assert_eq!(text.unwrap(), br#"{"n":123456789012345678901234567890,"m":[1.0,1e2]}"#);
        assert!(leave_out_of_text(b"{\"a\":", false, |_, _| PathProjection::Whole).is_none());
    }
}
