//! Hits that are elements of nested paths: those of inner hits and of `top_hits` within `nested`.
//!
//! A hit is shown like a document whose source is the element at its place and nothing else; `_nested` tells
//! the place.

use std::cell::OnceCell;
use std::sync::Arc;

use bytes::Bytes;
use millrace_dsl::query::Query;
use millrace_dsl::source_filter::SourceFilter;
use millrace_mapping::Mapping;
use millrace_mapping::source::{Members, Scanner};
use millrace_matching::table::TableSnapshot;
use millrace_scoring::collect::Address;
use millrace_scoring::nested::{Elements, MatchingElement, nested_ordinals};
use millrace_scoring::source::Source;
use millrace_scoring::steps::in_steps;
use millrace_segment::{RowParts, StoredRow};
use millrace_work::QueryContext;
use millrace_work::compute::Compute;
use millrace_work::error::{Error, Result};
use serde_json::{Value, json};

use crate::fetch::{grouped, segment};
use crate::response::{Hit, RenderOptions};

/// Bytes of the hit of an element beside its source and its id.
const HIT_BYTES: usize = 1_024;

/// Rendering of elements.
#[derive(Clone, Copy, Debug)]
pub struct ElementRendering<'a> {
    /// Parts that are shown.
    pub shown: &'a RenderOptions,
    /// Query whose matches are highlighted.
    pub query: &'a Query,
    /// `true` if scores are shown.
    pub scored: bool,
    /// Value of `now`.
    pub now_ms: i64,
    /// The work that holds them.
    pub work: &'a QueryContext,
}

impl ElementRendering<'_> {
    /// Makes the hits of elements.
    pub fn hits(
        &self,
        table: &millrace_matching::table::TableIndex,
        source: &Source,
        outer: &Outer<'_>,
        paths: &[String],
        elements: &[MatchingElement],
        sorts: Vec<Option<Value>>,
    ) -> Result<Vec<Hit>> {
        let phases = &self.shown.phases;
        let mut rows: Vec<(u32, StoredRow)> = Vec::with_capacity(elements.len());
        for element in elements {
            self.work.check()?;
            let wrapped = wrapped(outer.document, paths, &outer.joined(element));
            let bytes = wrapped.map_or_else(Bytes::new, Bytes::from);
            self.work.hold(HIT_BYTES + outer.stored.id.len() + bytes.len())?;
            let stored = StoredRow {
                row: element.element,
                source: bytes,
                routing: None,
                ignored: Vec::new(),
                ..outer.stored.clone()
            };
            rows.push((element.element, stored));
        }
        let mut extras = match phases.reads_source() {
            true => phases.sources(table, &[], self.query, &rows, self.now_ms, self.work)?,
            false => vec![Default::default(); rows.len()],
        };
        if phases.reads_columns() {
            let stored: Vec<StoredRow> = rows.iter().map(|(_, stored)| stored.clone()).collect();
            // Columns are read in ascending order of elements.
            let numbers: Vec<u32> = rows.iter().map(|(number, _)| *number).collect();
            let values = phases.column_values(table, source.reader.as_ref(), &numbers, &stored, self.work)?;
            for (extras, values) in extras.iter_mut().zip(values) {
                for (name, value) in values {
                    extras.fields.entry(name).or_insert(value);
                }
            }
        }
        let allowed = SourceFilter::of_mapping(&table.mapping);
        let last = paths.last().map_or("", String::as_str);
        let mut hits = Vec::with_capacity(rows.len());
        for (((element, (_, mut row)), extras), sort) in elements.iter().zip(rows).zip(extras).zip(sorts) {
            if !row.source.is_empty() {
                let no_json = || Error::Execution(format!("the source of an element of [{}]", row.id));
                let allowed_text = allowed.apply_to_text(&row.source).ok_or_else(no_json)?;
                let shown = self.shown.source.apply_to_text(&allowed_text).ok_or_else(no_json)?;
                row.source = match allowed {
                    SourceFilter::None => Bytes::new(),
                    _ => Bytes::copy_from_slice(inside(&shown, last)),
                };
            }
            hits.push(Hit {
                index: table.meta.name.to_string(),
                nested: Some(identity(paths, &outer.joined(element))),
                row,
                score: self.scored.then_some(element.score),
                sort,
                matched_queries: Vec::new(),
                extras,
                inner_hits: Vec::new(),
                explanation: None,
            });
        }
        Ok(hits)
    }
}

/// An element that is to be shown.
#[derive(Clone, Debug)]
pub struct WantedElement {
    /// Its segment and number.
    pub address: Address,
    /// Its score.
    pub score: f32,
    /// Its sort values.
    pub sort: Option<Value>,
}

/// Makes hits of elements of a nested path, in their order.
///
/// # Errors
/// Segments that cannot be read, or what the fields of an index do not allow.
pub async fn of_elements(
    snapshot: &Arc<TableSnapshot>,
    path: &Arc<str>,
    showing: ElementRendering<'_>,
    wanted: Vec<WantedElement>,
    compute: &Compute,
) -> Result<Vec<Hit>> {
    let mut made: Vec<Option<Hit>> = wanted.iter().map(|_| None).collect();
    let addresses: Vec<Address> = wanted.iter().map(|element| element.address).collect();
    let ElementRendering { scored, now_ms, .. } = showing;
    for (number, (places, _)) in grouped(&addresses) {
        let own: Vec<WantedElement> = places.iter().filter_map(|place| wanted.get(*place)).cloned().collect();
        let (snapshot, path, shown) = (Arc::clone(snapshot), Arc::clone(path), showing.shown.clone());
        let (query, work) = (showing.query.clone(), showing.work.clone());
        let read = move || {
            let showing = ElementRendering { shown: &shown, query: &query, scored, now_ms, work: &work };
            elements_of_segment(&snapshot, &path, showing, number, own)
        };
        for (place, hit) in places.into_iter().zip(compute.run(read).await?) {
            if let Some(made) = made.get_mut(place) {
                *made = Some(hit);
            }
        }
    }
    Ok(made.into_iter().flatten().collect())
}

fn elements_of_segment(
    snapshot: &TableSnapshot,
    path: &str,
    showing: ElementRendering<'_>,
    number: u32,
    wanted: Vec<WantedElement>,
) -> Result<Vec<Hit>> {
    let lost = || Error::Execution(format!("segment {number} has no elements of [{path}]"));
    let segment = segment(snapshot, number)?;
    let table = snapshot.indices.get(segment.index).ok_or_else(lost)?;
    let source = snapshot.source(number, segment, showing.work)?;
    let paths = nested_paths(&table.mapping, path);
    let id = |path: &String| table.mapping.nested_id(path);
    let own = paths.last().and_then(id).ok_or_else(lost)?;
    let (inside, nested) = Elements::source(&source, own)?.ok_or_else(lost)?;
    let mut around = Vec::new();
    for path in paths.iter().rev().skip(1).filter_map(id) {
        around.extend(source.reader.nested(path)?);
    }
    let document = |element: u32| nested.parents().get(element as usize).copied().ok_or_else(lost);
    let mut rows = wanted.iter().map(|wanted| document(wanted.address.row)).collect::<Result<Vec<u32>>>()?;
    let documents = rows.clone();
    rows.sort_unstable();
    rows.dedup();
    let (mut stored, held) = (Vec::with_capacity(rows.len()), showing.work.part());
    let parts = RowParts { source: true, versions: true };
    in_steps(source.reader.as_ref(), &rows, parts, showing.work, |some, bytes| {
        held.hold(bytes)?;
        stored.extend(some);
        Ok(())
    })?;
    let mut hits = Vec::with_capacity(wanted.len());
    for (wanted, row) in wanted.into_iter().zip(documents) {
        let place = rows.binary_search(&row).map_err(|_| lost())?;
        let stored = stored.get(place).ok_or_else(lost)?;
        let document = Document::new(&stored.source);
        let ordinals = nested_ordinals(&nested, &around, wanted.address.row);
        let element = MatchingElement { element: wanted.address.row, ordinals, score: wanted.score };
        let outer = Outer { document: &document, stored, ordinals: Vec::new() };
        hits.extend(showing.hits(table, &inside, &outer, &paths, &[element], vec![wanted.sort])?);
    }
    Ok(hits)
}

/// The text of a document, of which elements are shown as they are written.
#[derive(Debug)]
pub struct Document<'t> {
    text: &'t [u8],
    /// The elements of the outermost nested path, once one of them was looked for.
    elements: OnceCell<Vec<&'t [u8]>>,
}

impl<'t> Document<'t> {
    /// Takes the text of a source, which is JSON or empty.
    pub fn new(text: &'t [u8]) -> Self {
        Self { text, elements: OnceCell::new() }
    }

    /// Finds the text of an element; the first of the paths is the same whenever this is called.
    fn element(&self, paths: &[String], ordinals: &[u32]) -> Option<&'t [u8]> {
        let found = |text: &'t [u8], step: &str| {
            let mut elements = Vec::new();
            collect(text, step, &mut elements);
            elements
        };
        let mut at = self.text;
        for (depth, (step, ordinal)) in steps(paths).zip(ordinals).enumerate() {
            at = match depth {
                0 => *self.elements.get_or_init(|| found(at, step)).get(*ordinal as usize)?,
                _ => *found(at, step).get(*ordinal as usize)?,
            };
        }
        Some(at)
    }
}

/// Container of elements: a document, perhaps an element of it.
#[derive(Clone, Debug)]
pub struct Outer<'a> {
    /// The document's source.
    pub document: &'a Document<'a>,
    /// The document.
    pub stored: &'a StoredRow,
    /// Places of the elements around, from the outside in.
    pub ordinals: Vec<u32>,
}

impl Outer<'_> {
    /// Returns the places of an element and of those around it.
    pub fn joined(&self, element: &MatchingElement) -> Vec<u32> {
        self.ordinals.iter().chain(&element.ordinals).copied().collect()
    }
}

/// Lists the nested paths that a path goes through, from the outside in, itself included.
pub(crate) fn nested_paths(mapping: &Mapping, path: &str) -> Vec<String> {
    let mut paths = vec![path.to_owned()];
    let mut at = path;
    while let Some(around) = at.rsplit_once('.').and_then(|(above, _)| mapping.nested_path(above)) {
        paths.push(around.to_owned());
        at = around;
    }
    paths.reverse();
    paths
}

/// The names of paths, each below the one before it.
fn steps(paths: &[String]) -> impl Iterator<Item = &str> {
    let before = std::iter::once("").chain(paths.iter().map(String::as_str));
    paths.iter().zip(before).map(|(path, before)| {
        path.strip_prefix(before).map_or(path.as_str(), |rest| rest.trim_start_matches('.'))
    })
}

/// Renders `_nested`.
fn identity(paths: &[String], ordinals: &[u32]) -> Value {
    let mut nested: Option<Value> = None;
    let steps: Vec<&str> = steps(paths).collect();
    for (field, offset) in steps.into_iter().zip(ordinals).rev() {
        let mut own = json!({"field": field, "offset": offset});
        if let Some(inner) = nested.take() {
            own["_nested"] = inner;
        }
        nested = Some(own);
    }
    nested.unwrap_or(Value::Null)
}

/// Makes the source of an element: a document in which there is nothing but the element at its path.
fn wrapped(document: &Document<'_>, paths: &[String], ordinals: &[u32]) -> Option<Vec<u8>> {
    let element = document.element(paths, ordinals)?;
    let path = paths.last()?;
    let mut wrapped = Vec::with_capacity(element.len() + 2 * path.len() + 8);
    for name in path.split('.') {
        wrapped.push(b'{');
        serde_json::to_writer(&mut wrapped, name).ok()?;
        wrapped.push(b':');
    }
    wrapped.extend_from_slice(element);
    wrapped.resize(wrapped.len() + path.split('.').count(), b'}');
    Some(wrapped)
}

/// Returns the text at a path of names in an object; an empty object where there is nothing.
fn inside<'t>(mut text: &'t [u8], path: &str) -> &'t [u8] {
    for name in path.split('.') {
        text = Members::parse(text).and_then(|members| members.get(name)).unwrap_or(b"{}");
    }
    text
}

/// Collects the objects at a dotted path; names may have dots themselves.
fn collect<'t>(text: &'t [u8], path: &str, found: &mut Vec<&'t [u8]>) {
    let mut scanner = Scanner::new(text);
    match scanner.peek() {
        Some(b'[') => {
            let mut more = scanner.open(b']');
            while more == Some(true) {
                let Some(item) = scanner.skip() else { return };
                collect(item, path, found);
                more = scanner.goes_on(b']');
            }
        }
        Some(b'{') if path.is_empty() => found.push(text),
        Some(b'{') => {
            let Some(members) = Members::parse(text) else { return };
            for member in members.iter() {
                if let Some(rest) = path.strip_prefix(&*member.name)
                    && (rest.is_empty() || rest.starts_with('.'))
                {
                    collect(member.value, rest.trim_start_matches('.'), found);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_found_by_their_places() {
        let paths = ["ne".to_owned(), "ne.in.sub".to_owned()];
        let text = br#" {"ne": [null, {"in": {"sub": {"s": 1}}}, {"in.sub": [[{"s": 2}], {"s": 3e29}]}]}"#;
        let document = Document::new(text);
        let wrapped = |paths: &[String], ordinals: &[u32]| {
            wrapped(&document, paths, ordinals).map(|text| String::from_utf8(text).unwrap())
        };
        assert_eq!(wrapped(&paths, &[1, 1]).unwrap(), r#"{"ne":{"in":{"sub":{"s": 3e29}}}}"#);
        assert_eq!(wrapped(&paths[..1], &[0]).unwrap(), r#"{"ne":{"in": {"sub": {"s": 1}}}}"#);
        assert_eq!(wrapped(&paths, &[7, 1]), None);
        assert_eq!(inside(br#"{"a": {"b": [1.0]}}"#, "a.b"), b"[1.0]");
        assert_eq!(inside(b"{}", "a.b"), b"{}");
        assert_eq!(
            identity(&paths, &[1, 2]),
            json!({"field": "ne", "offset": 1, "_nested": {"field": "in.sub", "offset": 2}})
        );
    }
}
