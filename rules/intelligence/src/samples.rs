//! Samples: buckets of a saved search, each a number by the rule's `value_type`. They come from aggregations alone, a page of buckets at a
//! time; no document is read.

use millrace_catalog::metadata::IndicesOptions;
use millrace_engine::Session;
use millrace_query::SearchService;
use millrace_runtime::Priority;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::definition::ValueType;
use crate::error::{Error, Result};
use crate::frame::TimeFrame;

/// Buckets of an aggregation. The cluster's own bound, `search.max_buckets`, is 65,535 unless somebody lowers it.
const PAGE: i64 = 50_000;
/// Buckets of an aggregation that are tried where that bound is lower.
const LEAST_PAGE: i64 = 100;
/// Buckets of a series, at most: those of a window, and of history that is gone over.
pub(crate) const MAX_BUCKETS: i64 = 200_000;

/// Series of buckets that is read.
#[derive(Clone, Debug)]
pub(crate) struct SeriesQuery {
    /// Indices.
    pub(crate) expression: String,
    /// The field that puts documents into buckets.
    pub(crate) time_field: String,
    /// Query that documents match.
    pub(crate) query: Value,
    /// The field that is counted or measured.
    pub(crate) field: String,
    /// The field that has the value of a series.
    pub(crate) multiply_by: Option<String>,
    pub(crate) value_type: ValueType,
    pub(crate) frame: TimeFrame,
}

/// Reader of samples: its principal and its sources.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    pub(crate) search: &'a SearchService,
    /// With the owner's rights.
    pub(crate) session: &'a Session,
    pub(crate) series: &'a SeriesQuery,
    /// Priority of the threads that read answers.
    pub(crate) priority: Priority,
}

#[derive(Debug, Deserialize)]
struct Answer {
    aggregations: Option<Aggregations>,
}

#[derive(Debug, Deserialize)]
struct Aggregations {
    buckets: Buckets,
}

#[derive(Debug, Deserialize)]
struct Buckets {
    buckets: Vec<Bucket>,
}

#[derive(Debug, Deserialize)]
struct Bucket {
    key: i64,
    doc_count: u64,
    value: Option<Metric>,
}

#[derive(Debug, Deserialize)]
struct EarlierPrediction {
    hits: Hits,
}

#[derive(Debug, Deserialize)]
struct Hits {
    hits: Vec<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
struct Metric {
    value: Option<f64>,
}

impl Reader<'_> {
    /// Reads the buckets between two starts, of documents with a value of `multiply_by_field` where one is given; `None` for those without a
    /// document, and those without a number.
    ///
    /// # Errors
    /// [`Error::Run`] for too many; what the search answers.
    pub(crate) async fn read(
        &self,
        value: Option<&str>,
        from_ms: i64,
        to_ms: i64,
    ) -> Result<Vec<Option<f64>>> {
        let frame = self.series.frame;
        let count = frame.between(from_ms, to_ms).max(0);
        if count > MAX_BUCKETS {
            return Err(Error::Run(format!("{count} buckets would be read; {MAX_BUCKETS} are allowed")));
        }
        let mut buckets: Vec<Option<f64>> = vec![None; usize::try_from(count).unwrap_or_default()];
        let (mut page, mut at) = (PAGE, 0);
        while at < count {
            let ahead = page.min(count - at);
            let (begin, end) = (from_ms + at * frame.ms(), from_ms + (at + ahead) * frame.ms());
            let body = self.body(value, begin, end);
            let expression = &self.series.expression;
            let answer = self.search.read::<Answer>(self.session, expression, body, self.priority).await;
            let answer = match answer {
                Err(error) if page > LEAST_PAGE && is_too_many(&error) => {
                    page = (page / 2).max(LEAST_PAGE);
                    continue;
                }
                answer => answer?,
            };
            for bucket in answer.aggregations.map(|all| all.buckets.buckets).unwrap_or_default() {
                let place = usize::try_from(frame.between(from_ms, bucket.key)).unwrap_or(usize::MAX);
                let number = match self.series.value_type {
                    ValueType::Count => Some(bucket.doc_count as f64),
                    _ => bucket.value.and_then(|metric| metric.value),
                };
                if let Some(slot) = buckets.get_mut(place) {
                    *slot = number.filter(|_| bucket.doc_count > 0);
                }
            }
            at += ahead;
        }
        Ok(buckets)
    }

    /// Finds the place of the first of these buckets, which begin at a time, that is a sample. A count is one from the first document on, however
    /// long ago that was; before it there is nothing to be counted.
    ///
    /// # Errors
    /// What the search answers.
    pub(crate) async fn begins(
        &self,
        value: Option<&str>,
        from_ms: i64,
        buckets: &[Option<f64>],
    ) -> Result<usize> {
        let first = buckets.iter().position(Option::is_some).unwrap_or(buckets.len());
        // Where the first has documents, there is none before that matters.
        if !self.series.value_type.is_zero_when_empty() || first == 0 {
            return Ok(first);
        }
        let (time, mut filter) = (&self.series.time_field, self.filter(value));
        filter.push(json!({"range": {time: {"lt": from_ms, "format": "epoch_millis"}}}));
        // Any document will do: the first that is found ends the search.
        let body = json!({
            "size": 1,
            "_source": false,
            "track_total_hits": false,
            "terminate_after": 1,
            "query": {"bool": {"filter": filter}},
            "sort": ["_doc"],
        });
        let expression = &self.series.expression;
        let answer =
            self.search.read::<EarlierPrediction>(self.session, expression, body, self.priority).await?;
        Ok(if answer.hits.hits.is_empty() { first } else { 0 })
    }

    /// Refuses what was read where none of the indices is open that the owner may search: searches find nothing there, and say nothing
    /// of it.
    ///
    /// # Errors
    /// [`Error::Run`]; the store's.
    pub(crate) fn check_there(&self) -> Result<()> {
        let options = IndicesOptions { ignore_unavailable: true, ..IndicesOptions::open_only() };
        let expression = &self.series.expression;
        if !self.session.resolve(expression, &options)?.is_empty() {
            return Ok(());
        }
        let owner = self.session.principal().name();
        Err(Error::Run(format!(
            "no index of [{expression}] is open that user [{owner}], its owner, may search"
        )))
    }

    /// The conditions on documents that are counted or measured, whenever they are of.
    fn filter(&self, value: Option<&str>) -> Vec<Value> {
        let SeriesQuery { query, field, multiply_by, .. } = self.series;
        let mut filter = vec![query.clone(), json!({"exists": {"field": field}})];
        if let (Some(by), Some(value)) = (multiply_by, value) {
            filter.push(json!({"term": {by: value}}));
        }
        filter
    }

    fn body(&self, value: Option<&str>, from_ms: i64, to_ms: i64) -> Value {
        let SeriesQuery { field, frame, value_type, time_field: time, .. } = self.series;
        let mut filter = self.filter(value);
        filter.push(json!({"range": {time: {"gte": from_ms, "lt": to_ms, "format": "epoch_millis"}}}));
        let mut buckets = json!({"date_histogram": frame.histogram(time)});
        if *value_type != ValueType::Count {
            buckets["aggs"] = json!({"value": {value_type.name(): {"field": field}}});
        }
        json!({
            "size": 0,
            "track_total_hits": false,
            "query": {"bool": {"filter": filter}},
            "aggs": {"buckets": buckets},
        })
    }
}

/// Returns whether the cluster's bound of buckets is lower than a page.
fn is_too_many(error: &millrace_query::Error) -> bool {
    use millrace_query::Error;
    match error {
        Error::TooManyBuckets { .. } => true,
        Error::Reducing(error) => is_too_many(error),
        Error::SearchPhase { failures } => {
            failures.iter().any(|failure| failure.error_type == "too_many_buckets_exception")
        }
        _ => false,
    }
}
