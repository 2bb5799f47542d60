//! The columns of documents and, apart from them, of the elements of each nested path.

use millrace_runtime::Result;

use super::chunk::{Chunk, Elements};
use super::columns::Columns;
use crate::mapping::{ColumnKind, PathId, Scope};

/// Columns under construction for every kind of rows; values go to all scopes that they belong to.
#[derive(Debug, Default)]
pub(super) struct Scopes {
    documents: Columns,
    /// By the place of the nested path among those of the mapping.
    nested: Vec<Nested>,
    row: u32,
}

/// The elements of a nested path under construction.
#[derive(Debug, Default)]
struct Nested {
    columns: Columns,
    /// Number of the path, and of the one that it lies in.
    path: Option<(PathId, Option<PathId>)>,
    parents: Vec<u32>,
    within: Vec<u32>,
    /// Elements of the documents before the current one.
    before: usize,
}

impl Scopes {
    /// Starts a document.
    pub(super) fn begin(&mut self, row: u32) {
        self.row = row;
        self.documents.begin(row, row);
        for nested in &mut self.nested {
            nested.before = nested.parents.len();
            nested.columns.begin(row, 0);
        }
    }

    /// Removes everything that the current document has appended.
    pub(super) fn rollback(&mut self) {
        self.documents.rollback();
        for nested in &mut self.nested {
            nested.columns.rollback();
            nested.parents.truncate(nested.before);
            nested.within.truncate(nested.before);
        }
    }

    /// Starts an element of a nested path, which lies in the current element of `outer` if given.
    pub(super) fn open(&mut self, path: PathId, outer: Option<PathId>) {
        let within = outer.and_then(|outer| {
            let outer = self.nested.get(Scope::of_nested(outer).nested()?)?;
            Some(outer.parents.len().saturating_sub(1) as u32)
        });
        let at = Scope::of_nested(path).nested().unwrap_or(0);
        if at >= self.nested.len() {
            let row = self.row;
            self.nested.resize_with(at + 1, || {
                let mut nested = Nested::default();
                nested.columns.begin(row, 0);
                nested
            });
        }
        let nested = &mut self.nested[at];
        nested.path = Some((path, outer));
        // Bounded by `index.mapping.nested_objects.limit` a document and the bytes of a request.
        nested.columns.go_to(nested.parents.len() as u32);
        nested.parents.push(self.row);
        nested.within.extend(within);
    }

    /// Ends construction: the chunk of `rows` documents, without what was ignored.
    pub(super) fn finish(self, rows: u32) -> Chunk {
        let nested = self.nested.into_iter().filter(|nested| !nested.parents.is_empty());
        let nested = nested.filter_map(|mut nested| {
            let (path, outer) = nested.path?;
            nested.parents.shrink_to_fit();
            nested.within.shrink_to_fit();
            let rows = nested.parents.len() as u32;
            Some(Elements {
                path,
                outer,
                parents: nested.parents,
                within: nested.within,
                chunk: Chunk { rows, columns: nested.columns.finish(), ..Chunk::default() },
            })
        });
        Chunk { rows, nested: nested.collect(), columns: self.documents.finish(), ignored: Vec::new() }
    }

    #[inline]
    fn each(&mut self, scopes: &[Scope], mut push: impl FnMut(&mut Columns) -> Result<()>) -> Result<()> {
        for scope in scopes {
            match scope.nested() {
                None => push(&mut self.documents)?,
                // A value that is copied into a nested object from outside has no element to be in.
                Some(at) => match self.nested.get_mut(at) {
                    Some(nested) if nested.parents.len() > nested.before => push(&mut nested.columns)?,
                    _ => {}
                },
            }
        }
        Ok(())
    }

    /// Counts the values that a column has in the current document, outside of nested objects.
    pub(super) fn count(&self, id: PathId) -> usize {
        self.documents.count(id)
    }

    /// Returns whether a column has a string in the current row of a scope that `is` says so of.
    pub(super) fn has_str(&self, scope: Scope, id: PathId, is: impl Fn(&[u8]) -> bool) -> bool {
        let columns = match scope.nested() {
            None => Some(&self.documents),
            Some(at) => self.nested.get(at).map(|nested| &nested.columns),
        };
        columns.is_some_and(|columns| columns.strings(id).any(is))
    }

    /// Appends a string to the current rows of scopes.
    #[inline]
    pub(super) fn push_str(&mut self, scopes: &[Scope], id: PathId, value: &[u8]) -> Result<()> {
        self.each(scopes, |columns| columns.push_str(id, value))
    }

    #[inline]
    pub(super) fn push_i64(
        &mut self,
        scopes: &[Scope],
        id: PathId,
        kind: ColumnKind,
        value: i64,
    ) -> Result<()> {
        self.each(scopes, |columns| {
            columns.push_i64(id, kind, value);
            Ok(())
        })
    }

    #[inline]
    pub(super) fn push_u64(&mut self, scopes: &[Scope], id: PathId, value: u64) -> Result<()> {
        self.each(scopes, |columns| {
            columns.push_u64(id, value);
            Ok(())
        })
    }

    #[inline]
    pub(super) fn push_f64(
        &mut self,
        scopes: &[Scope],
        id: PathId,
        kind: ColumnKind,
        value: f64,
    ) -> Result<()> {
        self.each(scopes, |columns| {
            columns.push_f64(id, kind, value);
            Ok(())
        })
    }

    #[inline]
    pub(super) fn push_bool(&mut self, scopes: &[Scope], id: PathId, value: bool) -> Result<()> {
        self.each(scopes, |columns| {
            columns.push_bool(id, value);
            Ok(())
        })
    }

    #[inline]
    pub(super) fn push_ip(&mut self, scopes: &[Scope], id: PathId, value: [u8; 16]) -> Result<()> {
        self.each(scopes, |columns| {
            columns.push_ip(id, value);
            Ok(())
        })
    }

    #[inline]
    pub(super) fn push_point(&mut self, scopes: &[Scope], id: PathId, value: [f64; 2]) -> Result<()> {
        self.each(scopes, |columns| {
            columns.push_point(id, value);
            Ok(())
        })
    }
}
