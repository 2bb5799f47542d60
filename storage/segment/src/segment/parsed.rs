//! Documents that are parsed and not indexed: which rows have a value that is asked for.
//!
//! Of documents that arrive, few match any filter. Their values are looked through as they were parsed, and only the documents that
//! have some that a filter asks for are made a segment ([`Segment::of_documents`](super::Segment::of_documents)). Values are those
//! that the segment would have, at least: what is left out of an index for its length is found here.

use std::collections::BTreeSet;
use std::sync::Arc;

use millrace_mapping::document::{Chunk, ChunkBuilder, Column, Strings, Values};
use millrace_mapping::{Mapping, PathId};
use millrace_runtime::Result;
use roaring::RoaringBitmap;

use crate::bundle::{self, Indexing};

/// Documents as columns, a row each.
#[derive(Debug)]
pub struct ParsedDocuments {
    mapping: Arc<Mapping>,
    chunk: Chunk,
}

/// Path of a field or a column, of documents or of the elements of a nested path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnPath {
    /// Number of the nested path.
    pub nested: Option<PathId>,
    /// Number of the field or column.
    pub path: PathId,
}

/// A column, and the documents of its rows where these are elements.
struct ResolvedColumn<'a> {
    column: &'a Column,
    parents: Option<&'a [u32]>,
}

impl ResolvedColumn<'_> {
    /// Adds the document of the value at a position.
    fn add(&self, at: usize, rows: &mut RoaringBitmap) {
        let row = self.column.rows.get(at).copied();
        let document = match self.parents {
            None => row,
            Some(parents) => row.and_then(|row| parents.get(row as usize).copied()),
        };
        rows.extend(document);
    }

    /// Adds the documents with a distinct string that is wanted.
    fn strings(&self, strings: &Strings, mut is_wanted: impl FnMut(&[u8]) -> bool, rows: &mut RoaringBitmap) {
        let wanted: Vec<bool> =
            (0..strings.distinct()).map(|key| is_wanted(strings.get(key as u32))).collect();
        if !wanted.contains(&true) {
            return;
        }
        for (at, key) in strings.keys.iter().enumerate() {
            if wanted.get(*key as usize).copied().unwrap_or(false) {
                self.add(at, rows);
            }
        }
    }

    fn each<T>(&self, values: &[T], mut is_wanted: impl FnMut(&T) -> bool, rows: &mut RoaringBitmap) {
        for (at, value) in values.iter().enumerate() {
            if is_wanted(value) {
                self.add(at, rows);
            }
        }
    }
}

impl ParsedDocuments {
    /// Parses documents, ids and sources, as [`Segment::of_documents`](super::Segment::of_documents) does, with the values of some
    /// fields and their columns, all where absent.
    ///
    /// # Errors
    /// [`Error::TooLarge`](millrace_runtime::Error::TooLarge) for more documents or strings than fit into a chunk.
    pub fn new<'a>(
        mapping: &Arc<Mapping>,
        documents: impl Iterator<Item = (&'a str, &'a [u8])>,
        fields: Option<&BTreeSet<PathId>>,
    ) -> Result<Self> {
        let mut builder = ChunkBuilder::new(Arc::clone(mapping));
        if let Some(fields) = fields {
            let columns = fields.iter().filter_map(|id| mapping.field_by_id(*id)).map(|field| field.column);
            builder = builder.only(&columns.chain(fields.iter().copied()).collect());
        }
        for (id, source) in documents {
            builder.push_accepted(id, source)?;
        }
        Ok(Self { mapping: Arc::clone(mapping), chunk: builder.finish().0 })
    }

    /// Adds the rows with an exact value, as terms write it, that is wanted; returns false where that cannot be told.
    ///
    /// # Errors
    /// A normalizer or an analyzer that is missing.
    pub fn with_value(
        &self,
        place: ColumnPath,
        is_wanted: &mut dyn FnMut(&[u8]) -> bool,
        rows: &mut RoaringBitmap,
    ) -> Result<bool> {
        let Some(spec) = bundle::of_field(&self.mapping, place.path)? else { return Ok(false) };
        if matches!(spec.indexing, Indexing::Number | Indexing::Text { .. }) {
            return Ok(false);
        }
        let Some(found) = self.find(place.nested, spec.column) else { return Ok(true) };
        match &found.column.values {
            Values::Str(strings) => found.strings(strings, is_wanted, rows),
            Values::Ip(values) => found.each(values, |value| is_wanted(value), rows),
            Values::Bool(values) => found.each(values, |value| is_wanted(&[u8::from(*value)]), rows),
            Values::I64(_) | Values::U64(_) | Values::F64(_) | Values::GeoPoint(_) => return Ok(false),
        }
        Ok(true)
    }

    /// Adds the rows with a token of a text field that is wanted; returns false where that cannot be told.
    ///
    /// # Errors
    /// An analyzer that is missing.
    pub fn with_token(
        &self,
        place: ColumnPath,
        is_wanted: &mut dyn FnMut(&str) -> bool,
        rows: &mut RoaringBitmap,
    ) -> Result<bool> {
        let Some(spec) = bundle::of_field(&self.mapping, place.path)? else { return Ok(false) };
        let Indexing::Text { analyzer, .. } = spec.indexing else { return Ok(false) };
        let Some(found) = self.find(place.nested, spec.column) else { return Ok(true) };
        let Values::Str(strings) = &found.column.values else { return Ok(false) };
        let has_wanted = |value: &[u8]| {
            let Ok(text) = std::str::from_utf8(value) else { return true };
            let mut any = false;
            analyzer.run(text, &mut |token| any = any || is_wanted(&token.text));
            any
        };
        found.strings(strings, has_wanted, rows);
        Ok(true)
    }

    /// Adds the rows with a number of a column that is wanted, by its bits; returns false where that cannot be told.
    pub fn with_number(
        &self,
        place: ColumnPath,
        is_wanted: &mut dyn FnMut(u64) -> bool,
        rows: &mut RoaringBitmap,
    ) -> bool {
        let Some(found) = self.find(place.nested, place.path) else { return true };
        match &found.column.values {
            Values::I64(values) => found.each(values, |value| is_wanted(value.cast_unsigned()), rows),
            Values::U64(values) => found.each(values, |value| is_wanted(*value), rows),
            Values::F64(values) => found.each(values, |value| is_wanted(value.to_bits()), rows),
            Values::Str(_) | Values::Bool(_) | Values::Ip(_) | Values::GeoPoint(_) => return false,
        }
        true
    }

    /// Adds the rows with any value of a field; returns false where that cannot be told.
    ///
    /// # Errors
    /// An analyzer that is missing.
    pub fn with_any(&self, place: ColumnPath, rows: &mut RoaringBitmap) -> Result<bool> {
        let Some(spec) = bundle::of_field(&self.mapping, place.path)? else { return Ok(false) };
        if let Some(found) = self.find(place.nested, spec.column) {
            (0..found.column.rows.len()).for_each(|at| found.add(at, rows));
        }
        Ok(true)
    }

    fn find(&self, nested: Option<PathId>, column: PathId) -> Option<ResolvedColumn<'_>> {
        match nested {
            None => Some(ResolvedColumn { column: self.chunk.column(column)?, parents: None }),
            Some(path) => {
                let elements = self.chunk.nested.iter().find(|elements| elements.path == path)?;
                Some(ResolvedColumn {
                    column: elements.chunk.column(column)?,
                    parents: Some(&elements.parents),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;

    fn mapping() -> Arc<Mapping> {
        let body = json!({"properties": {
            "level": {"type": "keyword", "ignore_above": 5, "normalizer": "lowercase"}, "size": {"type": "long"},
            "ratio": {"type": "float"}, "ip": {"type": "ip"}, "other": {"type": "date"},
            "message": {"type": "text", "fields": {"raw": {"type": "keyword"}}},
            "deep": {"properties": {"copied": {"type": "keyword", "copy_to": "message"}, "x": {"type": "long"}}},
            "items": {"type": "nested", "properties": {"name": {"type": "keyword"}}}
        }});
        Arc::new(Mapping::parse(&body, &Map::new()).unwrap())
    }

    fn parsed(mapping: &Arc<Mapping>, documents: &[Value], fields: Option<&[&str]>) -> ParsedDocuments {
        let fields: Option<BTreeSet<PathId>> =
            fields.map(|fields| fields.iter().map(|path| mapping.field(path).unwrap().id).collect());
        let sources: Vec<String> = documents.iter().map(Value::to_string).collect();
        let documents = sources.iter().map(|source| ("1", source.as_bytes()));
        ParsedDocuments::new(mapping, documents, fields.as_ref()).unwrap()
    }

    #[test]
    fn rows_are_found_by_their_values() {
        let mapping = mapping();
        let documents = [
            json!({"level": "INFO", "size": 7, "ip": "10.0.0.1", "message": "Disk full", "items": [{"name": "a"}]}),
            json!({"level": ["warn", "info"], "size": [1, 9], "ratio": 0.5, "items": [{"name": "b"}, {"name": "a"}]}),
            // What is not asked for may be anything.
            json!({"other": "no date", "deep": {"copied": "disk", "x": "no number"}, "size": "8"}),
        ];
        let asked = ["level", "size", "ratio", "ip", "message", "message.raw", "items.name"];
        for fields in [None, Some(&asked[..])] {
            let parsed = parsed(&mapping, &documents, fields);
            let place = |path: &str| ColumnPath { nested: None, path: mapping.field(path).unwrap().id };
            let found = |ask: &dyn Fn(&mut RoaringBitmap) -> bool| {
                let mut rows = RoaringBitmap::new();
                assert!(ask(&mut rows));
                rows.iter().collect::<Vec<u32>>()
            };
            let value = |path: &str, wanted: &[u8]| {
                found(&|rows| parsed.with_value(place(path), &mut |value| value == wanted, rows).unwrap())
            };
            assert_eq!(value("level", b"info"), [0, 1]);
            assert_eq!(value("message.raw", b"Disk full"), [0]);
            let token = |wanted: &str| {
                found(&|rows| {
                    parsed.with_token(place("message"), &mut |token| token == wanted, rows).unwrap()
                })
            };
            assert_eq!(token("disk"), [0, 2]);
            let address = std::net::Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().octets();
            assert_eq!(value("ip", &address), [0]);
            let number = |path: &str, wanted: u64| {
                found(&|rows| parsed.with_number(place(path), &mut |bits| bits == wanted, rows))
            };
            assert_eq!((number("size", 9), number("size", 8)), (vec![1], vec![2]));
            assert_eq!(number("ratio", 0.5_f64.to_bits()), [1]);
            assert_eq!(found(&|rows| parsed.with_any(place("size"), rows).unwrap()), [0, 1, 2]);
            let items = mapping.field("items.name").unwrap().id;
            let nested = parsed.chunk.nested[0].path;
            let inside = ColumnPath { nested: Some(nested), path: items };
            let a = |rows: &mut RoaringBitmap| {
                parsed.with_value(inside, &mut |value| value == b"a", rows).unwrap()
            };
            assert_eq!(found(&a), [0, 1]);
            let outside = |rows: &mut RoaringBitmap| {
                parsed.with_value(place("items.name"), &mut |_| true, rows).unwrap()
            };
            assert!(found(&outside).is_empty());
            // A text has no values, a number no tokens.
            let rows = &mut RoaringBitmap::new();
            assert!(!parsed.with_value(place("message"), &mut |_| true, rows).unwrap());
            assert!(!parsed.with_token(place("size"), &mut |_| true, rows).unwrap());
            assert!(!parsed.with_number(place("level"), &mut |_| true, rows));
        }
    }

    #[test]
    fn only_what_is_asked_for_is_kept() {
        let mapping = mapping();
        let documents = [json!({"level": "info", "size": 7, "deep": {"x": 1}, "message": "disk"})];
        let parsed = parsed(&mapping, &documents, Some(&["size"]));
        let kept: Vec<PathId> = parsed.chunk.columns.iter().map(|column| column.id).collect();
        assert_eq!(kept, [mapping.field("size").unwrap().id]);
    }
}
