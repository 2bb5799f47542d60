//! Nested paths: their numbers, and the kinds of rows that the values of a leaf belong to.

use super::PathId;
use super::tree::{Child, Mapping, Numbers, Object};

/// Least number of a nested path: the numbers below are those of leaves.
pub(super) const FIRST_NESTED_ID: u32 = 1 << 30;

/// A kind of rows that values belong to: documents, or the elements of a nested path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scope(u32);

impl Scope {
    /// Documents.
    pub(crate) const DOCUMENT: Self = Self(0);

    /// Elements of a nested path, by its number.
    pub(crate) fn of_nested(id: PathId) -> Self {
        Self(id.0 - FIRST_NESTED_ID + 1)
    }

    /// Place of the nested path among those of the mapping, in the order of their numbers; `None` for
    /// documents.
    pub(crate) fn nested(self) -> Option<usize> {
        self.0.checked_sub(1).map(|at| at as usize)
    }
}

impl Mapping {
    /// Returns the number of the `nested` object at exactly this path, by which segments know its elements.
    pub fn nested_id(&self, path: &str) -> Option<PathId> {
        match self.lookup(path)? {
            Child::Object(at) => self.object(at).nested_id,
            _ => None,
        }
    }

    /// Returns the path of a nested object by its number.
    pub fn nested_path_of(&self, id: PathId) -> Option<&str> {
        let at = *self.nested.get(id.0.checked_sub(FIRST_NESTED_ID)? as usize)?;
        self.objects.get(at as usize).map(|object| object.path.as_ref())
    }

    /// Returns whether there may be nested objects: `false` where there never was one.
    pub fn has_nested(&self) -> bool {
        !self.nested.is_empty()
    }

    /// Returns whether a number is that of a nested path, not of a leaf.
    pub fn is_nested_id(id: PathId) -> bool {
        id.0 >= FIRST_NESTED_ID
    }

    /// Gives a nested path its number: the one that it had, else the next.
    pub(super) fn number_nested(&mut self, path: &str, object: u32, numbers: Option<&Numbers>) -> PathId {
        let known = numbers.and_then(|numbers| numbers.nested.get(path).copied());
        let at = known.unwrap_or_else(|| {
            // A mapping that was stored without numbers of nested paths gets them behind those that it has.
            let given = numbers.map_or(0, |numbers| numbers.nested.len());
            (self.nested.len().max(given)) as u32
        });
        if self.nested.len() <= at as usize {
            self.nested.resize(at as usize + 1, u32::MAX);
        }
        self.nested[at as usize] = object;
        PathId(FIRST_NESTED_ID + at)
    }

    /// Lists the nested objects in the order of their numbers.
    pub(crate) fn nested_objects(&self) -> impl ExactSizeIterator<Item = &Object> {
        self.nested.iter().map(|at| self.object(*at))
    }

    /// Finds the nested object that an object lies in, itself excluded.
    pub(crate) fn enclosing_nested(&self, object: &Object) -> Option<PathId> {
        let mut at = object.parent;
        while at != 0 {
            let above = self.object(at);
            if above.nested_id.is_some() {
                return above.nested_id;
            }
            at = above.parent;
        }
        None
    }
}
