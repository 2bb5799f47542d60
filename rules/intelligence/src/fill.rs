//! Predictions get to know what became of them: `_cur`, once the predicted bucket is over.

use millrace_catalog::metadata::IndicesOptions;
use millrace_engine::Session;
use millrace_runtime::{Error as StorageError, Priority};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::error::Result;
use crate::frame::TimeFrame;
use crate::run::{became, is_of_value};
use crate::samples::{MAX_BUCKETS, Reader};
use crate::source::Source;
use crate::store::StoredRule;
use crate::{IntelligenceContext, results};

/// Time after its end at which a bucket counts as over: documents come a moment after their time.
const GRACE_MS: i64 = 30_000;
/// Predictions of a page.
const PAGE: usize = 1_000;
/// Values of `multiply_by_field` of which predictions are filled in, at most, those with the most of them, beside the rule's own: ten times
/// what a rule may have.
const MAX_VALUES: usize = 1_000;

#[derive(Debug, Deserialize)]
struct Answer {
    hits: Hits,
}

#[derive(Debug, Deserialize)]
struct Hits {
    hits: Vec<Hit>,
}

#[derive(Debug, Deserialize)]
struct Hit {
    #[serde(rename = "_id")]
    id: String,
    sort: (i64, String),
}

#[derive(Debug, Deserialize)]
struct PredictionRecord {
    aggregations: Option<Aggregations>,
}

#[derive(Debug, Deserialize)]
struct Aggregations {
    values: Values,
    /// Those of all documents together.
    whole: PredictionDocument,
}

#[derive(Debug, Deserialize)]
struct Values {
    sum_other_doc_count: u64,
    buckets: Vec<OfValue>,
}

#[derive(Debug, Deserialize)]
struct OfValue {
    key: String,
}

#[derive(Debug, Deserialize)]
struct PredictionDocument {
    doc_count: u64,
}

/// Returns the start of the first bucket that is not over for good.
pub(crate) fn settled(frame: TimeFrame, now_ms: i64) -> i64 {
    frame.start(now_ms.saturating_sub(GRACE_MS))
}

/// Returns the predicted times that are over and were not filled in yet, as starts of buckets: from one to before another.
pub(crate) fn pending(kept: &StoredRule, now_ms: i64) -> Option<(i64, i64)> {
    let frame = kept.definition.frame;
    let (from, ends) = (kept.state.filled_ms?, kept.state.ends_ms?);
    let to = settled(frame, now_ms).min(frame.start(ends) + frame.ms());
    let from = frame.start(from).max(to.saturating_sub(MAX_BUCKETS / 2 * frame.ms()));
    (from < to).then_some((from, to))
}

/// Fills in what is over. Returns up to when.
///
/// # Errors
/// [`Error::Run`](crate::Error::Run) while no index that the rule reads is open to its owner; the search's, the store's.
pub(crate) async fn fill(
    shared: &IntelligenceContext,
    kept: &StoredRule,
    now_ms: i64,
) -> Result<Option<i64>> {
    let Some((from, to)) = pending(kept, now_ms) else { return Ok(None) };
    let definition = &kept.definition;
    let source = Source::new(&shared.engine, kept).await?;
    let series = definition.series_query(&source);
    let session = shared.session_of(&kept.state.owner).await?;
    let (engine, search) = (&shared.engine, &shared.search);
    let reader = Reader { search, session: &session, series: &series, priority: Priority::Spare };
    let own = Session::system(&shared.engine);
    for value in predicted(shared, kept, &own, from, to).await? {
        shared.check_stopping()?;
        let value = value.as_deref();
        // Before and behind: one may be opened, or closed, between.
        reader.check_there()?;
        let known = match known(&reader, value, from, to).await {
            // Runs say on the record what is wrong with it: others need not wait.
            Err(error) if value.is_some() && is_of_value(&error) => {
                tracing::debug!(rule = kept.id, value, %error, "what became of a value is not known");
                continue;
            }
            known => known?,
        };
        reader.check_there()?;
        let mut after: Option<(i64, String)> = None;
        loop {
            shared.check_stopping()?;
            let body = body(kept, value, from, to, after.as_ref());
            let answer: Answer = search.read(&own, results::INDEX, body, Priority::Spare).await?;
            let hits = answer.hits.hits;
            let Some(last) = hits.last() else { break };
            after = Some(last.sort.clone());
            let count = hits.len();
            let found = hits.into_iter().filter_map(|hit| {
                let place = usize::try_from(definition.frame.between(from, hit.sort.0)).ok()?;
                let current = (*known.get(place)?)?;
                let mut document = Map::new();
                results::put(&mut document, &definition.field, "cur", current);
                Some((hit.id, Value::Object(document)))
            });
            results::fill(engine, found.collect()).await?;
            if count < PAGE {
                break;
            }
        }
    }
    // Those in a closed index were not found; where it is gone there is nothing to be filled in.
    match own.resolve(results::INDEX, &IndicesOptions::open_only()) {
        Ok(_) | Err(StorageError::IndexNotFound { .. }) => Ok(Some(to)),
        Err(error) => Err(error.into()),
    }
}

/// Finds of what there are predictions between two times: of values, also of those that the rule has no more, or of all documents together.
async fn predicted(
    shared: &IntelligenceContext,
    kept: &StoredRule,
    own: &Session,
    from_ms: i64,
    to_ms: i64,
) -> Result<Vec<Option<String>>> {
    if kept.definition.multiply_by.is_none() {
        return Ok(vec![None]);
    }
    let field = "multiply_by_value";
    let body = json!({
        "size": 0,
        "track_total_hits": false,
        "query": {"bool": {"filter": conditions(kept, from_ms, to_ms)}},
        "aggs": {
            "values": {"terms": {"field": field, "size": MAX_VALUES}},
            "whole": {"missing": {"field": field}},
        },
    });
    let answer: PredictionRecord = shared.search.read(own, results::INDEX, body, Priority::Spare).await?;
    let Some(Aggregations { values, whole }) = answer.aggregations else { return Ok(Vec::new()) };
    let mut found: Vec<_> = values.buckets.into_iter().map(|of| Some(of.key)).collect();
    if values.sum_other_doc_count > 0 {
        tracing::debug!(
            rule = kept.id,
            "of more than {MAX_VALUES} values with predictions some never get to know what became of them"
        );
        for of_rule in kept.definition.runs() {
            let of_rule = of_rule.map(str::to_owned);
            if of_rule.is_some() && !found.contains(&of_rule) {
                found.push(of_rule);
            }
        }
    }
    found.extend((whole.doc_count > 0).then_some(None));
    Ok(found)
}

/// Reads what the buckets between two starts became, as far as that is known: a count is none before the first document.
async fn known(
    reader: &Reader<'_>,
    value: Option<&str>,
    from_ms: i64,
    to_ms: i64,
) -> Result<Vec<Option<f64>>> {
    let buckets = reader.read(value, from_ms, to_ms).await?;
    let begins = reader.begins(value, from_ms, &buckets).await?;
    let places = buckets.into_iter().enumerate();
    let known =
        places.map(|(place, bucket)| became(reader.series.value_type, bucket).filter(|_| place >= begins));
    Ok(known.collect())
}

/// The conditions on predictions that are to be filled in.
fn conditions(kept: &StoredRule, from_ms: i64, to_ms: i64) -> Vec<Value> {
    let within = json!({"range": {"@timestamp": {"gte": from_ms, "lt": to_ms, "format": "epoch_millis"}}});
    // What was predicted before the rule was changed may be of something else.
    vec![json!({"term": {"model_uid": kept.id}}), results::of_series(kept), within]
}

fn body(
    kept: &StoredRule,
    value: Option<&str>,
    from_ms: i64,
    to_ms: i64,
    after: Option<&(i64, String)>,
) -> Value {
    let mut filter = conditions(kept, from_ms, to_ms);
    filter.push(results::of_value(value));
    // Those that have their `_cur` are among them: a clock that was ahead may have filled it in.
    let mut body = json!({
        "size": PAGE,
        "_source": false,
        "track_total_hits": false,
        "query": {"bool": {"filter": filter}},
        "sort": [{"@timestamp": "asc"}, {"predictionUID": "asc"}],
    });
    if let Some((time, uid)) = after {
        body["search_after"] = json!([time, uid]);
    }
    body
}
