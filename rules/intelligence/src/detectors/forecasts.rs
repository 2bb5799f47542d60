//! Forecasts of detectors as documents of `intelligence`, with bounds, beside those of forecasts of the other variant.
//!
//! `<field>_pre` is the mean, `<field>_lower` and `<field>_upper` hold 95 % of what may come, `<field>_lower80` and `<field>_upper80` 80 %. Each
//! run writes the actual values of earlier forecasts whose buckets are over into `<field>_cur`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use millrace_engine::Session;
use millrace_forecast::ForecastInterval;
use millrace_runtime::Priority;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::model::DetectorModel;
use super::stored::StoredDetector;
use crate::IntelligenceContext;
use crate::error::{Error, Result, catch_model_panic};
use crate::run::became;
use crate::samples::{MAX_BUCKETS, Reader};
use crate::{results, time};

/// Forecasts that get their actual value in a run, at most; the oldest first.
const MAX_FILLED: usize = 5_000;
/// Time for which a forecast without an actual value waits for late documents.
const LATE_MS: i64 = 86_400_000;

/// Names the forecasts of a model from a time.
fn machine_state_uid(kept: &StoredDetector, value: Option<&str>, origin_ms: i64) -> String {
    let value = value.map_or_else(String::new, |value| format!("[{value}]"));
    let (name, algorithm) = (&kept.definition.name, kept.definition.algorithm.name());
    format!("{name}{value}_{algorithm}_{}", time::underscored(origin_ms))
}

/// Writes what the models forecast from a time on, and the actual values of earlier forecasts; returns a part of the run's message.
///
/// # Errors
/// The forecast's; the store's.
pub(super) async fn write(
    shared: &Arc<IntelligenceContext>,
    kept: &Arc<StoredDetector>,
    models: &[Option<DetectorModel>],
    origin_ms: i64,
) -> Result<String> {
    let definition = &kept.definition;
    let mut written = 0;
    for (value, model) in definition.values().into_iter().zip(models) {
        let Some(DetectorModel::Forecast(model)) = model.clone() else { continue };
        let steps = definition.forecast_steps;
        let forecast = move || {
            let described = || model.forecast(steps).map(|intervals| (intervals, model.description()));
            Ok(catch_model_panic(described).map_err(Error::ModelFailed))
        };
        let (intervals, method) = shared.engine.compute().run(Priority::Spare, forecast).await???;
        let documents = documents(kept, value, origin_ms, &intervals, &method);
        results::write(&shared.engine, documents, &mut written).await?;
    }
    results::refresh(&shared.engine).await?;
    fill(shared, kept, origin_ms).await?;
    Ok(format!("; {written} buckets are forecast"))
}

fn documents(
    kept: &StoredDetector,
    value: Option<&str>,
    origin_ms: i64,
    intervals: &[ForecastInterval],
    method: &str,
) -> Vec<(String, Bytes)> {
    let definition = &kept.definition;
    let frame = definition.window.bucket();
    let state_uid = machine_state_uid(kept, value, origin_ms);
    let document = |(ahead, interval): (usize, &ForecastInterval)| {
        let at_ms = origin_ms + ahead as i64 * frame.ms();
        let uid = results::prediction_uid(&state_uid, at_ms);
        let mut document = Map::new();
        for (name, of) in [
            ("@timestamp", json!(time::iso(at_ms))),
            ("model_name", json!(definition.name)),
            ("model_uid", json!(kept.id)),
            ("machine_state_uid", json!(state_uid)),
            ("method_name", json!(definition.algorithm.name())),
            ("method", json!(method)),
            ("time_frame", json!(format!("{}s", frame.ms() / 1_000))),
            ("start_date", json!(time::iso(origin_ms))),
            ("predictionUID", json!(uid)),
        ] {
            document.insert(name.to_owned(), of);
        }
        if !definition.roles.is_empty() {
            document.insert("roles".to_owned(), json!(definition.roles));
        }
        if let (Some(field), Some(value)) = (&definition.multiply_by, value) {
            document.insert("multiply_by_field".to_owned(), json!(field));
            document.insert("multiply_by_value".to_owned(), json!(value));
        }
        for (ending, number) in [
            ("pre", interval.mean),
            ("lower", interval.lower95),
            ("upper", interval.upper95),
            ("lower80", interval.lower80),
            ("upper80", interval.upper80),
        ] {
            results::put(&mut document, definition.field(), ending, number);
        }
        (uid, Bytes::from(Value::Object(document).to_string()))
    };
    intervals.iter().enumerate().map(document).collect()
}

#[derive(Debug, Deserialize)]
struct EarlierForecasts {
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
    #[serde(rename = "_source")]
    source: Value,
    sort: (i64,),
}

/// Writes the actual values of forecasts whose buckets are over.
async fn fill(shared: &Arc<IntelligenceContext>, kept: &Arc<StoredDetector>, end_ms: i64) -> Result<()> {
    let definition = &kept.definition;
    let field = definition.field();
    let query = definition.series_query();
    let frame = query.frame;
    let filled_ms = kept.state.filled_ms.unwrap_or(0);
    let body = json!({
        "size": MAX_FILLED,
        "track_total_hits": false,
        "_source": ["multiply_by_value"],
        "query": {"bool": {
            "filter": [
                {"term": {"model_uid": kept.id}},
                {"exists": {"field": format!("{field}_pre")}},
                {"range": {"@timestamp": {"gte": filled_ms, "lt": end_ms, "format": "epoch_millis"}}},
            ],
            "must_not": [{"exists": {"field": format!("{field}_cur")}}],
        }},
        "sort": [{"@timestamp": "asc"}],
    });
    let own = Session::system(&shared.engine);
    let found: EarlierForecasts = shared.search.read(&own, results::INDEX, body, Priority::Spare).await?;
    let times: Vec<i64> = found.hits.hits.iter().map(|hit| hit.sort.0).collect();
    let now_filled_ms = filled_until(filled_ms, end_ms, &times);
    let Some(first) = found.hits.hits.first().map(|hit| frame.start(hit.sort.0)) else { return Ok(()) };
    let from_ms = first.max(end_ms - MAX_BUCKETS * frame.ms());
    let session = shared.session_of(&kept.state.serving_owner).await?;
    let reader =
        Reader { search: &shared.search, session: &session, series: &query, priority: Priority::Spare };
    let mut by_value: BTreeMap<Option<String>, Vec<(String, i64)>> = BTreeMap::new();
    for hit in found.hits.hits {
        let value = hit.source["multiply_by_value"].as_str().map(str::to_owned);
        by_value.entry(value).or_default().push((hit.id, hit.sort.0));
    }
    let mut filled = Vec::new();
    for (value, forecasts) in by_value {
        let buckets = reader.read(value.as_deref(), from_ms, end_ms).await?;
        for (id, at_ms) in forecasts {
            let place = usize::try_from(frame.between(from_ms, at_ms)).ok();
            let bucket = place.and_then(|place| buckets.get(place)).copied();
            if let Some(current) = bucket.and_then(|bucket| became(query.value_type, bucket)) {
                let mut document = Map::new();
                results::put(&mut document, field, "cur", current);
                filled.push((id, Value::Object(document)));
            }
        }
    }
    results::fill(&shared.engine, filled).await?;
    if now_filled_ms > filled_ms {
        let moves = |kept: &mut StoredDetector| kept.state.filled_ms = Some(now_filled_ms);
        shared.store.note_detector(&kept.id, moves).await?;
    }
    Ok(())
}

/// Returns the time before which forecasts have their actual values, or never get one. Buckets without a document would otherwise
/// fill each read, and later forecasts would get none.
fn filled_until(before_ms: i64, end_ms: i64, times: &[i64]) -> i64 {
    let until_ms = match (times.first(), times.last()) {
        (Some(first), Some(last)) if times.len() >= MAX_FILLED => last + i64::from(first == last),
        _ => end_ms - LATE_MS,
    };
    before_ms.max(until_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forecasts_without_values_hold_later_ones_up_no_longer_than_a_read() {
        let full =
            |first: i64, step: i64| (0..MAX_FILLED as i64).map(|at| first + at * step).collect::<Vec<_>>();
        let last = 10 + (MAX_FILLED as i64 - 1) * 60;
        assert_eq!(filled_until(0, 10 * LATE_MS, &full(10, 60)), last);
        assert_eq!(filled_until(10, 10 * LATE_MS, &full(10, 0)), 11);
        assert_eq!(filled_until(10, 10 * LATE_MS, &[20]), 9 * LATE_MS);
        assert_eq!(filled_until(10, LATE_MS, &[20]), 10);
    }
}
