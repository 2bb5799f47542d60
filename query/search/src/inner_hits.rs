//! Inner hits of nested clauses: which elements of a hit matched, shown as hits of their own.
//!
//! [`Definitions`] gathers the definitions of a query, those of nested clauses within nested clauses
//! below theirs. For the hits of a segment, `millrace_scoring::nested` tells the matching elements; they are ordered, cut to
//! their window, and shown as [`crate::element_hits`] says.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use millrace_dsl::inner_hits::InnerHits;
use millrace_dsl::query::{NestedQuery, Query, Role};
use millrace_dsl::sort::SortKey;
use millrace_matching::lower;
use millrace_matching::order::Order;
use millrace_matching::table::TableSnapshot;
use millrace_matching::table::derived_key::DerivedKey;
use millrace_matching::table::resolve::{IndexContext, resolve, setting};
use millrace_matching::table::statistics::Functions;
use millrace_scoring::collect::Address;
use millrace_scoring::nested::{Elements, MatchingElement, NestedNode, matching_elements};
use millrace_scoring::node::{Node, ResolvedPredicate};
use millrace_scoring::one_batch::read_rows;
use millrace_scoring::source::Source;
use millrace_segment::StoredRow;
use millrace_work::QueryContext;
use millrace_work::compute::Compute;
use millrace_work::error::{Error, Result, ShardFailure};
use serde_json::Value;

use crate::element_hits::{Document, ElementRendering, Outer, nested_paths};
use crate::fetch::phases::refused;
use crate::fetch::{grouped, segment};
use crate::response::{Hit, HitList, InnerHitList, RenderOptions};
use crate::searcher::{implied, shown};

/// Greatest `from + size` of inner hits where the index does not say.
const MAX_WINDOW: usize = 100;
/// Documents that are parsed for their inner hits at a time.
const PARSED_ROWS: usize = 64;

/// The definitions of one level of a query.
#[derive(Clone, Debug, Default)]
pub(crate) struct Definitions(Vec<Arc<Definition>>);

/// The inner hits of one nested clause.
#[derive(Debug)]
struct Definition {
    name: Arc<str>,
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
    pub(crate) fn new(query: &Query) -> Result<Self> {
        let mut definitions = Self::default();
        definitions.gather(query)?;
        Ok(definitions)
    }

    /// Returns whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn gather(&mut self, query: &Query) -> Result<()> {
        let Query::Nested(clause) = query else {
            let parts = query.parts().into_iter().filter(|(role, _)| *role != Role::Apart);
            return parts.map(|(_, part)| part).try_for_each(|part| self.gather(part));
        };
        let Some(definition) = &clause.inner_hits else { return Ok(()) };
        let inner = InnerHits::parse(definition)?;
        let name = inner.name.clone().unwrap_or_else(|| clause.path.clone());
        if self.0.iter().any(|other| *other.name == *name) {
            return Err(Error::IllegalArgument(format!(
                "[inner_hits] already contains an entry for key [{name}]"
            )));
        }
        let below = Self::new(&clause.query)?;
        self.0.push(Arc::new(Definition { name: name.into(), clause: Arc::clone(clause), inner, below }));
        Ok(())
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
        work: &QueryContext,
    ) -> Result<()> {
        for definition in &self.0 {
            let plan = Arc::new(Plan::new(definition, snapshot, None, now_ms)?);
            for (number, (places, rows)) in grouped(addresses) {
                for (places, rows) in places.chunks(PARSED_ROWS).zip(rows.chunks(PARSED_ROWS)) {
                    let stored: Vec<StoredRow> =
                        places.iter().map(|place| hits[*place].row.clone()).collect();
                    let (plan, snapshot) = (Arc::clone(&plan), Arc::clone(snapshot));
                    let (rows, work) = (rows.to_vec(), work.clone());
                    let lists = compute
                        .run(move || plan.of_segment(&snapshot, number, &rows, &stored, &work))
                        .await?;
                    for (place, list) in places.iter().zip(lists) {
                        hits[*place].inner_hits.extend(list);
                    }
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
    shown: Arc<RenderOptions>,
    order: Order,
    /// `true` if scores are computed.
    scored: bool,
    /// By index; none where the index lacks the path.
    resolved: Vec<Option<ResolvedPredicate>>,
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
        // A clause within another is resolved within it, for its elements to be joined to the other's.
        let predicate = lower::lower(&match around {
            None => clause,
            Some(around) => NestedQuery { query: clause, ..around.clone() }.into(),
        });
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
            shown: Arc::new(RenderOptions { id: true, ..shown(body, snapshot)? }),
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
        work: &QueryContext,
    ) -> Result<Vec<Option<InnerHitList>>> {
        work.check()?;
        let segment = segment(snapshot, number)?;
        let source = snapshot.source(number, segment, work)?;
        let documents: Vec<Document<'_>> =
            stored.iter().map(|stored| Document::new(&stored.source)).collect();
        let outer: Vec<Outer<'_>> = documents
            .iter()
            .zip(stored)
            .map(|(document, stored)| Outer { document, stored, ordinals: Vec::new() })
            .collect();
        self.lists(snapshot, segment.index, segment.shard, &source, rows, &outer, work)
    }

    /// Finds the inner hits of documents, or of elements of the enclosing clause's path.
    #[allow(clippy::too_many_arguments)]
    fn lists(
        &self,
        snapshot: &TableSnapshot,
        index: usize,
        shard: u32,
        source: &Source,
        rows: &[u32],
        outer: &[Outer<'_>],
        work: &QueryContext,
    ) -> Result<Vec<Option<InnerHitList>>> {
        let (Some(Some(resolved)), Some(table)) = (self.resolved.get(index), snapshot.indices.get(index))
        else {
            return Ok(rows.iter().map(|_| None).collect());
        };
        let Some(node) = self.node(resolved) else {
            return Ok(rows.iter().map(|_| Some(self.list(0, None, Vec::new()))).collect());
        };
        let functions = self.functions.of(snapshot, &self.resolved, index, shard, true, &source.work)?;
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
            let mut hits = self.showing(work).hits(table, inside, outer, &paths, &elements, sorts)?;
            if !self.below.is_empty() {
                let inner: Vec<Outer<'_>> = elements
                    .iter()
                    .map(|element| Outer { ordinals: outer.joined(element), ..*outer })
                    .collect();
                let rows: Vec<u32> = elements.iter().map(|element| element.element).collect();
                for below in &self.below {
                    let lists = below.lists(snapshot, index, shard, inside, &rows, &inner, work)?;
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
    fn node<'r>(&self, resolved: &'r ResolvedPredicate) -> Option<&'r NestedNode> {
        let Node::Nested(outer) = &resolved.node else { return None };
        match (&outer.inner, self.within) {
            (_, false) => Some(outer),
            (Node::Nested(inner), true) => Some(inner),
            _ => None,
        }
    }

    fn list(&self, total: u64, max_score: Option<f32>, hits: Vec<Hit>) -> InnerHitList {
        InnerHitList {
            name: Arc::clone(&self.definition.name),
            list: HitList { total: Some((total, false)), max_score, hits },
            shown: Arc::clone(&self.shown),
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
            let own = own.filter(|own| matches!(own.derived, None | Some(DerivedKey::Elements(_))));
            let wanted = || elements.iter().map(|element| element.element).collect();
            let read =
                own.map(|own| read_rows(source.reader.as_ref(), &[own.column], wanted())).transpose()?;
            let column = read.iter().flatten().flat_map(|read| &read.columns).next();
            let column = column.filter(|column| *column.data_type() != DataType::Null);
            keys.push(key.compute(index, column, count)?);
        }
        let (rows, scores) = (elements.iter().map(|e| e.element), elements.iter().map(|e| e.score));
        let rows = self.order.encoder()?.of_segment(source.number, rows, &keys, scores)?;
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

    fn showing<'s>(&'s self, work: &'s QueryContext) -> ElementRendering<'s> {
        ElementRendering {
            shown: &self.shown,
            query: &self.definition.clause.query,
            scored: self.scored,
            now_ms: self.now_ms,
            work,
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
    use serde_json::json;

    use super::*;

    #[test]
    fn names_of_definitions_differ() {
        let nested = |name: &str| json!({"nested": {"path": "ne", "query": {"match_all": {}}, "inner_hits": {"name": name}}});
        let parse = |first: &str, second: &str| {
            let query = json!({"bool": {"should": [nested(first), nested(second)], "must_not": nested("z")}});
            Definitions::new(&millrace_dsl::query::parse(&query).unwrap())
        };
        assert_eq!(parse("x", "y").unwrap().0.len(), 2);
        insta::assert_snapshot!(
            parse("x", "x").unwrap_err(),
            @"[inner_hits] already contains an entry for key [x]"
        );
    }
}
