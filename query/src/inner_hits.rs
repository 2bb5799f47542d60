//! Inner hits of nested clauses: which elements of a hit matched, shown as hits of their own.
//!
//! [`Definitions`] gathers the definitions of a query, those of nested clauses within nested clauses
//! below theirs. For the hits of a segment, `score::nested` tells the matching elements; they are ordered, cut to
//! their window, and shown like documents whose source is the element at its place and nothing else.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float32Array, UInt32Array, new_null_array};
use arrow::compute::SortOptions;
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, SortField};
use bytes::Bytes;
use datafusion::logical_expr::Expr;
use millrace_storage::mapping::{Mapping, PathId};
use millrace_storage::segment::{RowParts, StoredRow};
use serde_json::{Map, Value, json};

use crate::compute::Compute;
use crate::dsl::inner_hits::InnerHits;
use crate::dsl::lower;
use crate::dsl::query::{NestedQuery, Query};
use crate::dsl::sort::SortKey;
use crate::dsl::source_filter::SourceFilter;
use crate::error::{Error, Result, ShardFailure};
use crate::fetch::phases::refused;
use crate::fetch::{grouped, segment};
use crate::order::Order;
use crate::response::{Hit, HitList, InnerHitList, Shown};
use crate::score::collect::Address;
use crate::score::nested::{Elements, MatchingElement, NestedNode, matching_elements, nested_ordinals};
use crate::score::prepare::Source;
use crate::search::{implied, shown};
use crate::table::derived::Derived;
use crate::table::node::{Node, Resolved};
use crate::table::predicate::Predicate;
use crate::table::resolve::{IndexContext, resolve, setting};
use crate::table::statistics::Functions;
use crate::table::{ROW, SCORE, SEGMENT, TableSnapshot};

/// Greatest `from + size` of inner hits where the index does not say.
const MAX_WINDOW: usize = 100;

/// The definitions of one level of a query.
#[derive(Clone, Debug, Default)]
pub(crate) struct Definitions(Vec<Arc<Definition>>);

/// The inner hits of one nested clause.
#[derive(Debug)]
struct Definition {
    name: String,
    clause: Arc<NestedQuery>,
    inner: InnerHits,
    /// Those of the nested clauses within.
    below: Definitions,
}

impl Definitions {
    /// Gathers the definitions of a query; excluded clauses have none.
    ///
    /// # Errors
    /// A malformed definition, or two of one name.
    pub(crate) fn of(query: &Query) -> Result<Self> {
        let mut definitions = Self::default();
        definitions.gather(query)?;
        Ok(definitions)
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn gather(&mut self, query: &Query) -> Result<()> {
        match query {
            Query::Bool(query) => query
                .filter
                .iter()
                .chain(&query.must)
                .chain(&query.should)
                .try_for_each(|clause| self.gather(clause)),
            Query::Boosting(query) => {
                self.gather(&query.positive)?;
                self.gather(&query.negative)
            }
            Query::ConstantScore(query) => self.gather(&query.filter),
            Query::DisMax(query) => query.queries.iter().try_for_each(|clause| self.gather(clause)),
            Query::FunctionScore(query) => self.gather(&query.query),
            Query::Nested(clause) => {
                let Some(definition) = &clause.inner_hits else { return Ok(()) };
                let inner = InnerHits::parse(definition)?;
                let name = inner.name.clone().unwrap_or_else(|| clause.path.clone());
                if self.0.iter().any(|other| other.name == name) {
                    return Err(Error::IllegalArgument(format!(
                        "[inner_hits] already contains an entry for key [{name}]"
                    )));
                }
                let below = Self::of(&clause.query)?;
                self.0.push(Arc::new(Definition { name, clause: Arc::clone(clause), inner, below }));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Finds the inner hits of hits, whose rows have their sources.
    ///
    /// # Errors
    /// A window that is too large, or what the fields of an index do not allow.
    pub(crate) async fn fill(
        &self,
        snapshot: &Arc<TableSnapshot>,
        addresses: &[Address],
        hits: &mut [Hit],
        compute: &Compute,
        now_ms: i64,
    ) -> Result<()> {
        for definition in &self.0 {
            let plan = Arc::new(Plan::new(definition, snapshot, None, now_ms)?);
            for (number, (places, rows)) in grouped(addresses) {
                let stored: Vec<StoredRow> = places.iter().map(|place| hits[*place].row.clone()).collect();
                let (plan, snapshot) = (Arc::clone(&plan), Arc::clone(snapshot));
                let lists = compute.run(move || plan.of_segment(&snapshot, number, &rows, &stored)).await?;
                for (place, list) in places.into_iter().zip(lists) {
                    hits[place].inner_hits.extend(list);
                }
            }
        }
        Ok(())
    }
}

/// A definition with what it means for each index.
#[derive(Debug)]
struct Plan {
    definition: Arc<Definition>,
    shown: Shown,
    order: Order,
    /// Whether scores are computed.
    scored: bool,
    /// By index; none where the index lacks the path.
    resolved: Vec<Option<Resolved>>,
    /// The enclosing clause's path and this one's within it, where there is one.
    within: bool,
    functions: Functions,
    below: Vec<Plan>,
    now_ms: i64,
}

impl Plan {
    fn new(
        definition: &Arc<Definition>,
        snapshot: &TableSnapshot,
        around: Option<&NestedQuery>,
        now_ms: i64,
    ) -> Result<Self> {
        let body = &definition.inner.body;
        let clause = Query::Nested(Arc::clone(&definition.clause));
        let scoring = |clause: Query| lower::lower(&clause);
        // A clause within another is resolved within it, for its elements to be joined to the other's.
        let expression = match around {
            None => scoring(clause),
            Some(around) => scoring(Query::Nested(Arc::new(NestedQuery { query: clause, ..around.clone() }))),
        };
        let predicate = Predicate::from_expr(&expression)
            .ok_or_else(|| Error::Execution("a nested clause is no predicate".to_owned()))?;
        let mut resolved = Vec::with_capacity(snapshot.indices.len());
        for index in &snapshot.indices {
            let window = body.from.unwrap_or(0).saturating_add(body.size.unwrap_or(0));
            let limit = setting(&index.meta, "index.max_inner_result_window", MAX_WINDOW);
            if window > limit {
                let name = definition.inner.name.as_deref().unwrap_or("null");
                let reason = format!(
                    "Inner result window is too large, the inner hit definition's [{name}]'s from + size must be less than or equal to: [{limit}] but was [{window}]. This limit can be set by changing the [index.max_inner_result_window] index level setting."
                );
                return Err(refused(index, Error::IllegalArgument(reason)));
            }
            let context = IndexContext { meta: &index.meta, mapping: &index.mapping, now_ms };
            let known = index.mapping.nested_id(&definition.clause.path).is_some();
            resolved.push(match known {
                true => Some(resolve(&predicate, context).map_err(|error| refused(index, error))?),
                false => None,
            });
        }
        let sort: &[SortKey] = implied(&body.sort);
        let (order, failed) = Order::new(sort, snapshot, now_ms)?;
        if let Some((place, error)) = failed.into_iter().next()
            && let Some(index) = snapshot.indices.get(place)
        {
            return Err(refused(index, error));
        }
        if body.seq_no_primary_term {
            return Err(without_seq_no());
        }
        let below = definition.below.0.iter();
        Ok(Self {
            shown: Shown { id: true, ..shown(body, snapshot)? },
            scored: order.by_score() || body.track_scores,
            order,
            resolved,
            within: around.is_some(),
            functions: Functions::new(snapshot.shards, false),
            below: below
                .map(|below| Plan::new(below, snapshot, Some(&definition.clause), now_ms))
                .collect::<Result<_>>()?,
            definition: Arc::clone(definition),
            now_ms,
        })
    }

    /// Finds the inner hits of some rows of a segment.
    fn of_segment(
        &self,
        snapshot: &TableSnapshot,
        number: u32,
        rows: &[u32],
        stored: &[StoredRow],
    ) -> Result<Vec<Option<InnerHitList>>> {
        let segment = segment(snapshot, number)?;
        let reader = Arc::clone(&segment.reader);
        let source = Source {
            number,
            shard: snapshot.shard_number(segment),
            inverted: reader.inverted()?,
            reader,
            functions: Arc::default(),
        };
        let mut documents = Vec::with_capacity(stored.len());
        for stored in stored {
            documents.push(match stored.source.is_empty() {
                true => Value::Null,
                false => serde_json::from_slice(&stored.source).map_err(|error| {
                    Error::Execution(format!("the source of [{}] is not JSON: {error}", stored.id))
                })?,
            });
        }
        let outer: Vec<Outer<'_>> = documents
            .iter()
            .zip(stored)
            .map(|(document, stored)| Outer { document, stored, ordinals: Vec::new() })
            .collect();
        self.lists(snapshot, segment.index, segment.shard, &source, rows, &outer)
    }

    /// Finds the inner hits of documents, or of elements of the enclosing clause's path.
    fn lists(
        &self,
        snapshot: &TableSnapshot,
        index: usize,
        shard: u32,
        source: &Source,
        rows: &[u32],
        outer: &[Outer<'_>],
    ) -> Result<Vec<Option<InnerHitList>>> {
        let (Some(Some(resolved)), Some(table)) = (self.resolved.get(index), snapshot.indices.get(index))
        else {
            return Ok(rows.iter().map(|_| None).collect());
        };
        let Some(node) = self.node(resolved) else {
            return Ok(rows.iter().map(|_| Some(self.list(0, None, Vec::new()))).collect());
        };
        let functions = self.functions.of(snapshot, &self.resolved, index, shard, true)?;
        let source = Source { functions, ..source.clone() };
        let found = matching_elements(node, &source, rows)?;
        let paths = nested_paths(&table.mapping, &self.definition.clause.path);
        let path = node.chain.first().copied();
        let inside = path.map(|path| Elements::source(&source, path)).transpose()?.flatten();
        let mut lists = Vec::with_capacity(rows.len());
        for (elements, outer) in found.into_iter().zip(outer) {
            let total = elements.len() as u64;
            let Some((inside, _)) = &inside else {
                lists.push(Some(self.list(total, None, Vec::new())));
                continue;
            };
            let best = elements.iter().map(|element| element.score).max_by(f32::total_cmp);
            let (elements, sorts) = self.window(index, inside, elements)?;
            let mut hits = self.showing().hits(table, inside, outer, &paths, &elements, sorts)?;
            if !self.below.is_empty() {
                let inner: Vec<Outer<'_>> = elements
                    .iter()
                    .map(|element| Outer { ordinals: outer.joined(element), ..*outer })
                    .collect();
                let rows: Vec<u32> = elements.iter().map(|element| element.element).collect();
                for below in &self.below {
                    let lists = below.lists(snapshot, index, shard, inside, &rows, &inner)?;
                    for (hit, list) in hits.iter_mut().zip(lists) {
                        hit.inner_hits.extend(list);
                    }
                }
            }
            let shows = self.definition.inner.body.size != Some(0);
            lists.push(Some(self.list(total, best.filter(|_| self.scored && shows), hits)));
        }
        Ok(lists)
    }

    /// The nested clause among what was resolved.
    fn node<'r>(&self, resolved: &'r Resolved) -> Option<&'r NestedNode> {
        let Node::Nested(outer) = &resolved.node else { return None };
        match (&outer.inner, self.within) {
            (_, false) => Some(outer),
            (Node::Nested(inner), true) => Some(inner),
            _ => None,
        }
    }

    fn list(&self, total: u64, max_score: Option<f32>, hits: Vec<Hit>) -> InnerHitList {
        InnerHitList {
            name: self.definition.name.clone(),
            list: HitList { total: Some((total, false)), max_score, hits },
            shown: self.shown.clone(),
        }
    }

    /// Orders elements and cuts them to the window; with the sort values to show.
    fn window(
        &self,
        index: usize,
        source: &Source,
        elements: Vec<MatchingElement>,
    ) -> Result<(Vec<MatchingElement>, Vec<Option<Value>>)> {
        let body = &self.definition.inner.body;
        let (from, size) = (body.from.unwrap_or(0), body.size.unwrap_or(0));
        if !self.order.explicit {
            let elements: Vec<_> = elements.into_iter().skip(from).take(size).collect();
            let sorts = vec![None; elements.len()];
            return Ok((elements, sorts));
        }
        let mut elements = elements;
        elements.sort_unstable_by_key(|element| element.element);
        let count = elements.len();
        let mut keys: Vec<ArrayRef> = Vec::with_capacity(self.order.keys.len());
        for key in &self.order.keys {
            // Elements have no metadata of their own, and are what a nested key would look for.
            let own = key.sources.get(index).and_then(Option::as_ref);
            let own = own.filter(|own| matches!(own.derived, None | Some(Derived::Elements(_))));
            let column = own.map(|source| source.column);
            let column = column.map(|column| column_of(source, column, &elements)).transpose()?;
            keys.push(match column {
                None => key.compute(index, None, count)?,
                Some(column) if *column.data_type() == DataType::Null => key.compute(index, None, count)?,
                Some(column) => key.compute(index, Some(&column), count)?,
            });
        }
        let mut columns: Vec<ArrayRef> = Vec::new();
        let mut fields = Vec::new();
        for sort in self.order.sort_expressions() {
            let Expr::Column(column) = &sort.expr else { continue };
            let values: ArrayRef = match column.name.as_str() {
                SCORE => Arc::new(Float32Array::from_iter_values(elements.iter().map(|e| e.score))),
                SEGMENT => Arc::new(UInt32Array::from_value(source.number, count)),
                ROW => Arc::new(UInt32Array::from_iter_values(elements.iter().map(|e| e.element))),
                name => match self.order.keys.iter().position(|key| key.name == name) {
                    Some(at) => Arc::clone(&keys[at]),
                    None => continue,
                },
            };
            let options = SortOptions { descending: !sort.asc, nulls_first: sort.nulls_first };
            fields.push(SortField::new_with_options(values.data_type().clone(), options));
            columns.push(values);
        }
        let rows = RowConverter::new(fields)?.convert_columns(&columns)?;
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by(|a, b| rows.row(*a).cmp(&rows.row(*b)));
        let mut cut = Vec::new();
        let mut sorts = Vec::new();
        for at in order.into_iter().skip(from).take(size) {
            let element = &elements[at];
            let address = Address { segment: source.number, row: element.element };
            sorts.push(Some(self.order.render(&keys, at, index, element.score, address)));
            cut.push(element.clone());
        }
        Ok((cut, sorts))
    }

    fn showing(&self) -> Showing<'_> {
        Showing {
            shown: &self.shown,
            query: &self.definition.clause.query,
            scored: self.scored,
            now_ms: self.now_ms,
        }
    }
}

/// How elements are shown.
#[derive(Clone, Copy, Debug)]
struct Showing<'a> {
    shown: &'a Shown,
    /// What is highlighted.
    query: &'a Query,
    scored: bool,
    now_ms: i64,
}

impl Showing<'_> {
    /// Makes the hits of elements.
    fn hits(
        &self,
        table: &crate::table::TableIndex,
        source: &Source,
        outer: &Outer<'_>,
        paths: &[String],
        elements: &[MatchingElement],
        sorts: Vec<Option<Value>>,
    ) -> Result<Vec<Hit>> {
        let phases = &self.shown.phases;
        let mut rows: Vec<(u32, StoredRow)> = Vec::with_capacity(elements.len());
        for element in elements {
            let wrapped = wrapped(outer.document, paths, &outer.joined(element));
            let bytes = match wrapped {
                Some(wrapped) => Bytes::from(wrapped.to_string()),
                None => Bytes::new(),
            };
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
            true => phases.sources(table, self.query, &rows, self.now_ms)?,
            false => vec![Default::default(); rows.len()],
        };
        if phases.reads_columns() {
            let stored: Vec<StoredRow> = rows.iter().map(|(_, stored)| stored.clone()).collect();
            // Columns are read in ascending order of elements.
            let numbers: Vec<u32> = rows.iter().map(|(number, _)| *number).collect();
            let values = phases.column_values(table, source.reader.as_ref(), &numbers, &stored)?;
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
                let wrapped: Value = serde_json::from_slice(&row.source)
                    .map_err(|error| Error::Execution(format!("the source of an element: {error}")))?;
                let mut own = self.shown.source.apply(allowed.apply(wrapped));
                for name in last.split('.') {
                    own = own.get_mut(name).map_or_else(|| json!({}), Value::take);
                }
                row.source = match allowed {
                    SourceFilter::None => Bytes::new(),
                    _ => Bytes::from(own.to_string()),
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
pub(crate) struct WantedElement {
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
pub(crate) async fn of_elements(
    snapshot: &Arc<TableSnapshot>,
    path: &Arc<str>,
    shown: &Shown,
    scored: bool,
    wanted: Vec<WantedElement>,
    compute: &Compute,
    now_ms: i64,
) -> Result<Vec<Hit>> {
    let mut made: Vec<Option<Hit>> = wanted.iter().map(|_| None).collect();
    let addresses: Vec<Address> = wanted.iter().map(|element| element.address).collect();
    for (number, (places, _)) in grouped(&addresses) {
        let own: Vec<WantedElement> = places.iter().filter_map(|place| wanted.get(*place)).cloned().collect();
        let (snapshot, path, shown) = (Arc::clone(snapshot), Arc::clone(path), shown.clone());
        let read = move || elements_of_segment(&snapshot, &path, &shown, scored, number, own, now_ms);
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
    shown: &Shown,
    scored: bool,
    number: u32,
    wanted: Vec<WantedElement>,
    now_ms: i64,
) -> Result<Vec<Hit>> {
    let lost = || Error::Execution(format!("segment {number} has no elements of [{path}]"));
    let segment = segment(snapshot, number)?;
    let table = snapshot.indices.get(segment.index).ok_or_else(lost)?;
    let reader = Arc::clone(&segment.reader);
    let source = Source {
        number,
        shard: snapshot.shard_number(segment),
        inverted: reader.inverted()?,
        reader,
        functions: Arc::default(),
    };
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
    let stored = source.reader.fetch(&rows, RowParts { source: true, versions: true })?;
    let showing = Showing { shown, query: &Query::match_all(), scored, now_ms };
    let mut hits = Vec::with_capacity(wanted.len());
    for (wanted, row) in wanted.into_iter().zip(documents) {
        let place = rows.binary_search(&row).map_err(|_| lost())?;
        let stored = stored.get(place).ok_or_else(lost)?;
        let parsed = match stored.source.is_empty() {
            true => Value::Null,
            false => serde_json::from_slice(&stored.source).map_err(|error| {
                Error::Execution(format!("the source of [{}] is not JSON: {error}", stored.id))
            })?,
        };
        let ordinals = nested_ordinals(&nested, &around, wanted.address.row);
        let element = MatchingElement { element: wanted.address.row, ordinals, score: wanted.score };
        let outer = Outer { document: &parsed, stored, ordinals: Vec::new() };
        hits.extend(showing.hits(table, &inside, &outer, &paths, &[element], vec![wanted.sort])?);
    }
    Ok(hits)
}

/// What elements lie in: a document, perhaps an element of it.
#[derive(Clone, Debug)]
struct Outer<'a> {
    document: &'a Value,
    stored: &'a StoredRow,
    /// Places of the elements around, from the outside in.
    ordinals: Vec<u32>,
}

impl Outer<'_> {
    fn joined(&self, element: &MatchingElement) -> Vec<u32> {
        self.ordinals.iter().chain(&element.ordinals).copied().collect()
    }
}

/// Lists the nested paths that a path goes through, from the outside in, itself included.
fn nested_paths(mapping: &Mapping, path: &str) -> Vec<String> {
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
fn wrapped(document: &Value, paths: &[String], ordinals: &[u32]) -> Option<Value> {
    let mut at = document;
    for (step, ordinal) in steps(paths).zip(ordinals) {
        let mut elements = Vec::new();
        collect(at, step, &mut elements);
        at = elements.get(*ordinal as usize)?;
    }
    let mut wrapped = at.clone();
    for name in paths.last()?.rsplit('.') {
        let mut around = Map::new();
        around.insert(name.to_owned(), wrapped);
        wrapped = Value::Object(around);
    }
    Some(wrapped)
}

/// Collects the objects at a dotted path; names may have dots themselves.
fn collect<'v>(value: &'v Value, path: &str, found: &mut Vec<&'v Value>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, path, found)),
        Value::Object(_) if path.is_empty() => found.push(value),
        Value::Object(members) => {
            for (name, member) in members {
                if let Some(rest) = path.strip_prefix(name.as_str())
                    && (rest.is_empty() || rest.starts_with('.'))
                {
                    collect(member, rest.trim_start_matches('.'), found);
                }
            }
        }
        _ => {}
    }
}

/// Reads a column of some elements, which are in ascending order.
fn column_of(source: &Source, column: PathId, elements: &[MatchingElement]) -> Result<ArrayRef> {
    let wanted = elements.iter().map(|element| element.element).collect();
    let mut parts: Vec<ArrayRef> = Vec::new();
    source.reader.read(&[column], Some(wanted), &mut |batch| {
        parts.extend(batch.columns.first().cloned());
        true
    })?;
    match parts.as_slice() {
        [] => Ok(new_null_array(&DataType::Null, elements.len())),
        [one] => Ok(Arc::clone(one)),
        many => {
            let parts: Vec<&dyn arrow::array::Array> = many.iter().map(AsRef::as_ref).collect();
            Ok(arrow::compute::concat(&parts)?)
        }
    }
}

fn without_seq_no() -> Error {
    let failure = ShardFailure {
        index: String::new(),
        index_uuid: String::new(),
        shard: 0,
        error_type: "unsupported_operation_exception".to_owned(),
        reason: "nested documents are not assigned sequence numbers".to_owned(),
        caused_by: None,
        status: 400,
    };
    Error::SearchPhase { failures: vec![failure] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_found_by_their_places() {
        let paths = ["ne".to_owned(), "ne.in.sub".to_owned()];
        let document = json!({"ne": [null, {"in": {"sub": {"s": 1}}}, {"in.sub": [[{"s": 2}], {"s": 3}]}]});
        assert_eq!(wrapped(&document, &paths, &[1, 1]), Some(json!({"ne": {"in": {"sub": {"s": 3}}}})));
        assert_eq!(wrapped(&document, &paths[..1], &[0]), Some(json!({"ne": {"in": {"sub": {"s": 1}}}})));
        assert_eq!(wrapped(&document, &paths, &[7, 1]), None);
        assert_eq!(
            identity(&paths, &[1, 2]),
            json!({"field": "ne", "offset": 1, "_nested": {"field": "in.sub", "offset": 2}})
        );
    }

    #[test]
    fn names_of_definitions_differ() {
        let nested = |name: &str| json!({"nested": {"path": "ne", "query": {"match_all": {}}, "inner_hits": {"name": name}}});
        let parse = |first: &str, second: &str| {
            let query = json!({"bool": {"should": [nested(first), nested(second)], "must_not": nested("z")}});
            Definitions::of(&crate::dsl::query::parse(&query).unwrap())
        };
        assert_eq!(parse("x", "y").unwrap().0.len(), 2);
        insta::assert_snapshot!(
            parse("x", "x").unwrap_err(),
            @"[inner_hits] already contains an entry for key [x]"
        );
    }
}
