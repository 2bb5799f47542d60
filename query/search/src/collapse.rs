//! Collapsing: the best hit of each value of a field, and what else is shown of the groups.
//!
//! Matches come from the scan in any order: [`Groups`] keeps the best groups seen so far, as many as
//! the request can show, each with its best row: what falls out cannot come back but by a better
//! row, which then is its group's best. So the result is exact and memory is bounded by the window. Where the groups are
//! many and no row has several values, the scan leaves out what cannot be the best row of a group that is shown. The
//! inner hits of a group are searches of their own, over the same snapshot.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::kernels::cmp::distinct;
use datafusion::arrow::datatypes::{Float32Type, UInt32Type};
use datafusion::arrow::row::OwnedRow;
use datafusion::common::ScalarValue;
use futures::future::BoxFuture;
use millrace_dsl::collapse::Collapse;
use millrace_dsl::query::{self, BoolQuery, Query};
use millrace_dsl::sort::Mode;
use millrace_mapping::{ColumnKind, FieldType};
use millrace_matching::order::{Encoder, Order, SortColumn, number};
use millrace_matching::table::keys::{Key, KeyKind, KeySource, MissingKey, Rescale};
use millrace_matching::table::metadata_field::MetadataField;
use millrace_matching::table::{ROW, SCORE, SEGMENT, TableSnapshot};
use millrace_scoring::collect::Address;
use millrace_work::QueryContext;
use millrace_work::error::{Error, Result, ShardFailure};
use serde_json::{Value, json};

use crate::plan::FoundRows;
use crate::response::{Hit, HitList, InnerHitList, RenderOptions};
use crate::searcher::{Search, Searcher, shown, window};

/// Columns of the least and greatest value of the field; a row with several differs in them.
const LEAST: &str = "collapse_least";
const GREATEST: &str = "collapse_greatest";

/// Most groups whose best rows are looked for among the first.
const MOST_FIRST_GROUPS: usize = 64;

/// By which field matches are grouped.
#[derive(Clone, Debug)]
pub struct GroupBy {
    kind: KeyKind,
    /// `true` if floating point numbers print at single precision.
    single: bool,
    sources: Vec<Option<KeySource>>,
}

impl GroupBy {
    /// Finds the field in the indices of a snapshot.
    ///
    /// # Errors
    /// [`Error::SearchPhase`] where an index cannot be grouped so.
    pub fn new(collapse: &Collapse, snapshot: &TableSnapshot) -> Result<Self> {
        let name = &collapse.field;
        let mut grouping = Self { kind: KeyKind::Str, single: false, sources: Vec::new() };
        let mut known = None;
        for index in &snapshot.indices {
            let refused = |reason: String| {
                let error = Error::IllegalArgument(reason);
                let failure = error.into_shard_failure(&index.meta.name, &index.meta.uuid_text(), 0);
                Err(Error::SearchPhase { failures: vec![failure] })
            };
            let Some(field) = index.mapping.field(name) else {
                return refused(match MetadataField::is_name(name) {
                    true => unfit(name),
                    false => format!("no mapping found for `{name}` in order to collapse on"),
                });
            };
            let column = field.column_kind();
            let kind = match (&field.field_type, column) {
                (FieldType::Keyword, _) => KeyKind::Str,
                (FieldType::ScaledFloat { .. }, _) => return refused(unfit(name)),
                (_, ColumnKind::Int(_)) => KeyKind::I64,
                (_, ColumnKind::U64) => KeyKind::U64,
                (_, ColumnKind::F32 | ColumnKind::F64) => KeyKind::F64,
                _ => return refused(unfit(name)),
            };
            if !field.doc_values {
                return refused(format!("cannot collapse on field `{name}` without `doc_values`"));
            }
            if !field.index && !collapse.inner_hits.is_empty() {
                return refused(format!(
                    "cannot expand `inner_hits` for collapse field `{name}`, only indexed field can retrieve `inner_hits`"
                ));
            }
            let kind = match known {
                None => kind,
                Some(known) if known == kind => kind,
                Some(KeyKind::I64 | KeyKind::F64) if matches!(kind, KeyKind::I64 | KeyKind::F64) => {
                    KeyKind::F64
                }
                Some(_) => {
                    return refused(format!(
                        "cannot collapse on field `{name}` of different types across indices"
                    ));
                }
            };
            known = Some(kind);
            grouping.kind = kind;
            grouping.single = column == ColumnKind::F32;
            grouping.sources.push(Some(KeySource {
                column: field.column,
                terms: None,
                kind: column,
                ignore_above: field.column_limit().filter(|_| column == ColumnKind::Str),
                rescale: Rescale::None,
                single: column == ColumnKind::F32,
                distance: None,
                derived: None,
            }));
        }
        Ok(grouping)
    }

    /// Returns the keys that a table needs for grouping.
    pub fn keys(&self) -> [Key; 2] {
        [(LEAST, Mode::Min), (GREATEST, Mode::Max)].map(|(name, mode)| Key {
            name: name.to_owned(),
            kind: self.kind,
            nulls_first: false,
            mode,
            fill: MissingKey::Null,
            sources: self.sources.clone(),
        })
    }

    /// Names the key that tells the group of a row, where no row has several values.
    pub(crate) fn key(&self) -> &'static str {
        LEAST
    }

    /// Returns whether the best rows of the groups that a search wants are looked for among the first: not of so many groups that
    /// looking through what is kept of them costs more, nor where rows that are never looked at might be refused or counted.
    pub(crate) fn is_told(&self, search: &Search<'_>) -> bool {
        let wanted = search.from.saturating_add(search.size);
        (1..=MOST_FIRST_GROUPS).contains(&wanted)
            && search.terminate_after == 0
            && search.snapshot.segments.iter().all(|segment| {
                let source = self.sources.get(segment.index).and_then(Option::as_ref);
                source.is_none_or(|source| !segment.reader.is_list(source.column))
            })
    }

    fn render(&self, value: &ScalarValue) -> Value {
        match value {
            ScalarValue::Int64(Some(value)) => json!(value),
            ScalarValue::UInt64(Some(value)) => json!(value),
            ScalarValue::Float64(Some(value)) => number(*value, self.single),
            ScalarValue::Utf8View(Some(value)) => json!(value),
            _ => Value::Null,
        }
    }
}

fn unfit(name: &str) -> String {
    format!("unknown type for collapse field `{name}`, only keywords and numbers are accepted")
}

/// The best row of a group.
#[derive(Debug)]
struct GroupTop {
    group: ScalarValue,
    keys: Vec<ScalarValue>,
    score: f32,
    address: Address,
}

/// The best groups so far.
#[derive(Debug)]
pub(crate) struct Groups {
    grouping: GroupBy,
    most: usize,
    keys: Vec<String>,
    scored: bool,
    encoder: Encoder,
    /// By place in the order, which no two rows share.
    best: BTreeMap<OwnedRow, GroupTop>,
    places: HashMap<ScalarValue, OwnedRow>,
}

impl Groups {
    /// Makes an empty set for so many groups under an order.
    pub(crate) fn new(grouping: GroupBy, order: &Order, scored: bool, most: usize) -> Result<Self> {
        Ok(Self {
            grouping,
            most,
            keys: order.keys.iter().map(|key| key.name.clone()).collect(),
            scored,
            encoder: order.encoder()?,
            best: BTreeMap::new(),
            places: HashMap::new(),
        })
    }

    /// Takes in the rows of a batch.
    ///
    /// # Errors
    /// A row with several values of the field.
    pub(crate) fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let column = |name: &str| {
            batch
                .column_by_name(name)
                .ok_or_else(|| Error::Execution(format!("the plan's result lacks column [{name}]")))
        };
        let keys: Vec<&ArrayRef> = self.keys.iter().map(|name| column(name)).collect::<Result<_>>()?;
        let (least, greatest) = (column(LEAST)?, column(GREATEST)?);
        let segments = column(SEGMENT)?.as_primitive::<UInt32Type>();
        let numbers = column(ROW)?.as_primitive::<UInt32Type>();
        let scores = if self.scored { Some(column(SCORE)?.as_primitive::<Float32Type>()) } else { None };
        let rows = self.encoder.of_columns(|own| match own {
            SortColumn::Key(number) => Ok(Arc::clone(keys[number])),
            SortColumn::Score => column(SCORE).cloned(),
            SortColumn::Segment => column(SEGMENT).cloned(),
            SortColumn::Row => column(ROW).cloned(),
        })?;
        if let Some(at) = distinct(least, greatest)?.values().set_indices().next() {
            return Err(several(numbers.value(at)));
        }
        for (at, place) in rows.iter().enumerate() {
            let full = self.best.len() >= self.most;
            if full && self.best.last_key_value().is_none_or(|(last, _)| last.row() <= place) {
                continue;
            }
            let group = ScalarValue::try_from_array(least, at)?;
            if let Some(own) = self.places.get(&group) {
                if own.row() <= place {
                    continue;
                }
                self.best.remove(own);
            } else if full && let Some((_, worst)) = self.best.pop_last() {
                self.places.remove(&worst.group);
            }
            let keys =
                keys.iter().map(|key| Ok(ScalarValue::try_from_array(key, at)?)).collect::<Result<_>>()?;
            let best = GroupTop {
                group: group.clone(),
                keys,
                score: scores.map_or(0.0, |scores| scores.value(at)),
                address: Address { segment: segments.value(at), row: numbers.value(at) },
            };
            self.places.insert(group, place.owned());
            self.best.insert(place.owned(), best);
        }
        Ok(())
    }

    /// Returns the rows of the groups in order, but the first `from`.
    pub(crate) fn finish(self, from: usize) -> Result<FoundRows> {
        let mut rows = FoundRows::default();
        let mut keys: Vec<Vec<ScalarValue>> = vec![Vec::new(); self.keys.len()];
        for best in self.best.into_values().skip(from) {
            rows.groups.push(self.grouping.render(&best.group));
            rows.scores.push(best.score);
            rows.addresses.push(best.address);
            for (column, value) in keys.iter_mut().zip(best.keys) {
                column.push(value);
            }
        }
        if !rows.addresses.is_empty() {
            rows.keys = keys
                .into_iter()
                .map(|values| Ok(ScalarValue::iter_to_array(values)?))
                .collect::<Result<_>>()?;
        }
        Ok(rows)
    }
}

fn several(row: u32) -> Error {
    let failure = ShardFailure {
        index: String::new(),
        index_uuid: String::new(),
        shard: 0,
        error_type: "illegal_state_exception".to_owned(),
        reason: format!("failed to collapse {row}, the collapse field must be single valued"),
        caused_by: None,
        status: 400,
    };
    Error::SearchPhase { failures: vec![failure] }
}

/// State that the searches for inner hits share with the search whose hits they are of.
#[derive(Clone, Copy, Debug)]
pub struct Expansion<'a> {
    /// Snapshot that is searched.
    pub snapshot: &'a Arc<TableSnapshot>,
    /// The request's query, if it has one.
    pub query: Option<&'a Query>,
    /// `true` if statistics of all shards are joined.
    pub global_statistics: bool,
    /// Value of `now`.
    pub now_ms: i64,
    /// The work that it is done for.
    pub work: &'a QueryContext,
}

impl Expansion<'_> {
    /// Shows the value of each hit's group, and finds its inner hits; returns how many hits have theirs, all but the last ones of
    /// work whose time is over.
    ///
    /// # Errors
    /// What a search of the inner hits refuses.
    pub fn run<'a>(
        &'a self,
        searcher: &'a Searcher,
        collapse: &'a Collapse,
        groups: &'a [Value],
        hits: &'a mut [Hit],
    ) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            let mut shared = Vec::with_capacity(collapse.inner_hits.len());
            for inner in &collapse.inner_hits {
                let name: Arc<str> = inner.name.as_deref().unwrap_or_default().into();
                shared.push((name, Arc::new(shown(&inner.body, self.snapshot)?)));
            }
            for (at, (hit, group)) in hits.iter_mut().zip(groups).enumerate() {
                match self.hit(searcher, collapse, &shared, group, hit).await {
                    Ok(()) => {}
                    Err(Error::TimedOut) if self.work.timed_out() => return Ok(at),
                    Err(error) => return Err(error),
                }
            }
            Ok(hits.len())
        })
    }

    /// Shows the value of a hit's group, and finds its inner hits.
    async fn hit(
        &self,
        searcher: &Searcher,
        collapse: &Collapse,
        shared: &[(Arc<str>, Arc<RenderOptions>)],
        group: &Value,
        hit: &mut Hit,
    ) -> Result<()> {
        if !group.is_null() {
            hit.extras.fields.entry(&collapse.field).or_insert_with(|| json!([group]));
        }
        for (inner, (name, shown)) in collapse.inner_hits.iter().zip(shared) {
            self.work.check()?;
            let query = self.group_query(&collapse.field, group)?;
            let list =
                Box::pin(self.inner(searcher, &inner.body, shown, inner.collapse.as_deref(), &query)).await?;
            hit.inner_hits.push(InnerHitList { name: Arc::clone(name), list, shown: Arc::clone(shown) });
        }
        Ok(())
    }

    /// The request's query within one group.
    fn group_query(&self, field: &str, group: &Value) -> Result<Query> {
        let mut query = BoolQuery { must: self.query.cloned().into_iter().collect(), ..BoolQuery::default() };
        match group {
            Value::Null => query.must_not.push(query::parse(&json!({"exists": {"field": field}}))?),
            value => query.filter.push(query::parse(&json!({"term": {field: {"value": value}}}))?),
        }
        Ok(query.into())
    }

    async fn inner(
        &self,
        searcher: &Searcher,
        body: &millrace_dsl::body::SearchBody,
        shown: &RenderOptions,
        collapse: Option<&Collapse>,
        query: &Query,
    ) -> Result<HitList> {
        let (from, size) = window(body, self.snapshot, false)?;
        let grouping = collapse.map(|collapse| GroupBy::new(collapse, self.snapshot)).transpose()?;
        let search = Search {
            sort: &body.sort,
            from,
            size,
            track_scores: body.track_scores,
            track: Some(crate::searcher::TRACKED_HITS),
            global_statistics: self.global_statistics,
            collapse: grouping.as_ref(),
            ..Search::new(Arc::clone(self.snapshot), query, self.now_ms, self.work)
        };
        let found = searcher.find(search).await?;
        let mut hits = searcher.hits(self.snapshot, query, &found, shown, self.now_ms, self.work).await?;
        // What was not found or read to its end is not shown.
        self.work.check()?;
        if let Some(collapse) = collapse {
            for (hit, group) in hits.iter_mut().zip(&found.rows.groups) {
                if !group.is_null() {
                    hit.extras.fields.entry(&collapse.field).or_insert_with(|| json!([group]));
                }
            }
        }
        Ok(HitList { total: found.total, max_score: found.max_score, hits })
    }
}
