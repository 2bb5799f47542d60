//! [`ChunkBuilder`]: documents in, one chunk and the grown mapping out.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiter::Jiter;
use millrace_runtime::{Error, Result};

use super::chunk::Chunk;
use super::completion::Input;
use super::failure::{Failure, ParseResult};
use super::projection::Projection;
use super::scopes::Scopes;
use super::walk::Keys;
use crate::mapping::{Child, GrowthMark, Mapping, PathId};

/// Members of a document that replay gives up one by one before it gives up all of them.
const MAX_GIVEN_UP: usize = 16;

/// Parses documents into a [`Chunk`]; grows a private copy of the mapping by dynamic mapping.
#[derive(Debug)]
pub struct ChunkBuilder {
    /// The mapping as given.
    pub(super) base: Arc<Mapping>,
    /// The same, or a copy with new fields.
    pub(super) mapping: Arc<Mapping>,
    pub(super) columns: Scopes,
    pub(super) ignored: Vec<(u32, Arc<str>)>,
    pub(super) rows: u32,
    /// Buffer of unescaped strings, kept between documents.
    tape: Vec<u8>,
    pub(super) keys: Keys,
    /// `true` if what does not fit is kept in the source only, whatever the settings say.
    pub(super) lenient: bool,
    /// `true` if names that the mapping does not have become fields of it.
    pub(super) grows: bool,
    /// Member of the document that is being parsed, where `lenient`: counted from 1, or 0 behind them.
    pub(super) member: usize,
    /// Members that are kept in the source only.
    pub(super) given_up: Vec<usize>,
    /// Objects and arrays open at the moment.
    pub(super) depth: usize,
    /// Nested objects of the current document.
    pub(super) nested: usize,
    /// Path inside of a flat_object, and a leaf of it.
    pub(super) flat_path: String,
    pub(super) flat_leaf: String,
    /// Inputs of completions that wait for the end of the document.
    pub(super) completions: Vec<(u32, Vec<Input>)>,
    /// Projection of the document, where it is not all.
    pub(super) wanted: Option<Projection>,
    /// The mapping before the current document.
    before: GrowthMark,
}

impl ChunkBuilder {
    /// Starts a chunk over a mapping.
    pub fn new(mapping: Arc<Mapping>) -> Self {
        Self {
            before: mapping.mark(),
            base: mapping.clone(),
            mapping,
            columns: Scopes::default(),
            ignored: Vec::new(),
            rows: 0,
            tape: Vec::new(),
            keys: Keys::default(),
            lenient: false,
            grows: true,
            member: 0,
            given_up: Vec::new(),
            depth: 0,
            nested: 0,
            flat_path: String::new(),
            flat_leaf: String::new(),
            completions: Vec::new(),
            wanted: None,
        }
    }

    /// Looks only at values that go to some columns of the mapping: all others are passed over, whatever they are.
    pub fn only(mut self, columns: &BTreeSet<PathId>) -> Self {
        self.wanted = Some(Projection::new(&self.base, columns));
        self
    }

    /// Appends one document, whose id is only for messages. On error nothing of it stays, neither values
    /// nor new fields.
    ///
    /// # Errors
    /// [`Error::MapperParsing`] for what is no JSON object or does not fit the mapping,
    /// [`Error::StrictDynamicMapping`] for a new field where none may be, [`Error::IllegalArgument`]
    /// beyond a limit of the mapping.
    pub fn push(&mut self, id: &str, source: &[u8]) -> Result<()> {
        self.append(id, source, true).map(drop)
    }

    /// Appends one document as [`Self::push`] does, unless it has fields that the mapping lacks; returns whether it did.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn push_mapped(&mut self, id: &str, source: &[u8]) -> Result<bool> {
        self.append(id, source, false)
    }

    /// Appends one document, `adds`: with its new fields, if any; else not at all where it has some.
    fn append(&mut self, id: &str, source: &[u8], adds: bool) -> Result<bool> {
        if self.rows == u32::MAX - 1 {
            return Err(Error::TooLarge(format!("more than {} documents in one request", self.rows)));
        }
        let mark = self.mapping.mark();
        self.before = mark;
        let ignored = self.ignored.len();
        self.columns.begin(self.rows);
        self.keys.begin();
        self.depth = 0;
        self.nested = 0;
        self.member = 0;
        self.completions.clear();
        let mut json = Jiter::with_tape(source, std::mem::take(&mut self.tape));
        let parsed = self.document(&mut json, source).and_then(|()| self.check_timestamp());
        self.tape = json.into_tape();
        if parsed.is_ok() && (adds || !self.mapping.grown_since(mark)) {
            self.finish_ignored(ignored);
            self.rows += 1;
            return Ok(true);
        }
        self.columns.rollback();
        self.ignored.truncate(ignored);
        self.forget_fields(mark);
        parsed.map(|()| false).map_err(|failure| failure.into_error(id, source))
    }

    /// Appends a document that was accepted once, as recovery does. Limits, settings and mapping may have
    /// changed since, so that it would be refused now: what does not fit any more is kept in the source and listed as
    /// ignored. That is the value, where its field says so; else the member of the document that it is in; if all
    /// that is not enough, the document has nothing but its source, and a log line tells. The mapping does not
    /// grow: it has all fields of the document, since they were logged before it, and whatever else is in there was
    /// left alone then.
    ///
    /// # Errors
    /// [`Error::TooLarge`] beyond 2^32 documents.
    pub fn push_accepted(&mut self, id: &str, source: &[u8]) -> Result<()> {
        self.grows = false;
        let mut pushed = self.push(id, source);
        if pushed.is_err() {
            self.lenient = true;
            pushed = self.push(id, source);
        }
        while pushed.is_err() && self.member > 0 && self.given_up.len() < MAX_GIVEN_UP {
            self.given_up.push(self.member);
            pushed = self.push(id, source);
        }
        self.grows = true;
        self.lenient = false;
        self.given_up.clear();
        match pushed {
            Err(error) if self.rows < u32::MAX - 1 => {
                tracing::warn!(id, %error, "a document that was accepted once is replayed with its source alone");
                self.rows += 1;
                Ok(())
            }
            other => other,
        }
    }

    /// Checks that a document of a data stream has one time. What was accepted once is not checked again.
    fn check_timestamp(&self) -> ParseResult<()> {
        let Some(field) = &self.mapping.settings().timestamp_field else { return Ok(()) };
        if !self.grows || self.wanted.is_some() {
            return Ok(());
        }
        let values = match self.mapping.lookup(field) {
            Some(Child::Leaf(at)) => self.columns.count(self.mapping.leaf(at).field.column),
            _ => 0,
        };
        match values {
            1 => Ok(()),
            0 => Err(Failure::rule(format!("data stream timestamp field [{field}] is missing"))),
            _ => Err(Failure::rule(format!(
                "data stream timestamp field [{field}] encountered multiple values"
            ))),
        }
    }

    /// Counts the documents so far.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// Ends the chunk. `mapping` is the given one (same `Arc`) where no field is new.
    pub fn finish(self) -> (Chunk, Arc<Mapping>) {
        let Self { base, mut mapping, columns, mut ignored, rows, .. } = self;
        if mapping.grown_since(base.mark()) {
            Arc::make_mut(&mut mapping).seal(base.version() + 1);
        } else {
            mapping = base;
        }
        ignored.shrink_to_fit();
        (Chunk { ignored, ..columns.finish(rows) }, mapping)
    }

    /// Names a field of the current row whose value is not indexed.
    pub(super) fn ignore(&mut self, path: Arc<str>) {
        if self.ignored.last().is_none_or(|(row, last)| *row != self.rows || *last != path) {
            self.ignored.push((self.rows, path));
        }
    }

    /// Leaves each path once in the current row's part of `ignored`.
    fn finish_ignored(&mut self, from: usize) {
        if self.ignored.len() - from > 1 {
            let mut paths = self.ignored.split_off(from);
            paths.sort_unstable();
            paths.dedup();
            self.ignored.append(&mut paths);
        }
    }

    /// Makes the refusal of a document that adds a field both as an object and as a value; `None` where the mapping had it before.
    pub(super) fn contradiction(&self, child: Child) -> Option<Box<Failure>> {
        if !self.mapping.is_newer(child, self.before) {
            return None;
        }
        let path = match child {
            Child::Object(at) => &self.mapping.object(at).path,
            Child::Leaf(at) => &self.mapping.leaf(at).field.path,
            Child::Alias(_) => return None,
        };
        Some(Box::new(Failure::Mapping(Error::IllegalArgument(format!(
            "can't merge a non object mapping [{path}] with an object mapping"
        )))))
    }

    /// Removes the fields that were added since a mark.
    pub(super) fn forget_fields(&mut self, mark: GrowthMark) {
        if self.mapping.grown_since(mark) {
            Arc::make_mut(&mut self.mapping).rollback(mark);
        }
    }
}
