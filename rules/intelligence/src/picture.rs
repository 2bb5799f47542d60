//! A rule as a picture: its samples, the last predictions with a band around them, and the threshold.

use millrace_engine::Session;
use millrace_plot::{Band, Level, LineStyle, Plot, Series};
use millrace_runtime::Priority;
use serde_json::{Value, json};

use crate::definition::Definition;
use crate::error::{Error, Result};
use crate::run::became;
use crate::samples::Reader;
use crate::source::Source;
use crate::store::StoredRule;
use crate::{IntelligenceContext, results};

/// Samples before the predictions that are drawn for each of them, and at least.
const SAMPLES_EACH: usize = 4;
const LEAST_SAMPLES: usize = 100;
/// Standard deviations around the mean that hold 95 % of a normal distribution.
const DEVIATIONS: f64 = 1.96;

/// A prediction as it was stored.
struct StoredPrediction {
    at: i64,
    value: f64,
    rmse: Option<f64>,
}

/// Draws a rule.
pub(crate) async fn draw(
    shared: &IntelligenceContext,
    kept: &StoredRule,
    value: Option<&str>,
) -> Result<String> {
    let definition = &kept.definition;
    let runs = definition.runs();
    let value = match value {
        None => runs.first().copied().flatten(),
        Some(value) if runs.contains(&Some(value)) => Some(value),
        Some(_) => return Err(Error::invalid("value", "is none of [multiply_by_values] of the rule")),
    };
    let frame = definition.frame;
    let now_ms = shared.engine.clock().now_ms();
    let source = Source::new(&shared.engine, kept).await?;
    let predicted = predicted(shared, kept, value, now_ms).await?;
    let last = frame.start(now_ms);
    let origin = predicted.first().map_or(last, |first| frame.start(first.at).min(last));
    let before = definition.max_probes.min((SAMPLES_EACH * definition.max_predictions).max(LEAST_SAMPLES));
    let from = (origin - before as i64 * frame.ms()).max(frame.start(0));
    // What became of predictions since, but not more than of them.
    let to = last.min(origin + definition.max_predictions as i64 * frame.ms());
    let session = shared.session_of(&kept.state.owner).await?;
    let (engine, search) = (&*shared.engine, &*shared.asked);
    let series = definition.series_query(&source);
    let reader = Reader { search, session: &session, series: &series, priority: Priority::Foreground };
    let buckets = reader.read(value, from, to).await?;
    let first = reader.begins(value, from, &buckets).await?;
    let times = (0..).map(|place: i64| from + place * frame.ms());
    let measured = times.zip(buckets).skip(first);
    let measured = measured.map(|(time, bucket)| (time, became(definition.value_type, bucket))).collect();
    let band = predicted.iter().filter_map(|one| {
        let around = DEVIATIONS * one.rmse?;
        Some((one.at, one.value - around, one.value + around))
    });
    let of = value.map_or_else(String::new, |value| format!(" of {value}"));
    let (kind, field) = (definition.value_type.name(), &definition.field);
    let mut plot = Plot {
        title: format!("{}{of}: {} of {field}, {}", definition.name, definition.algorithm, frame.name()),
        values: format!("{kind} of {field}"),
        bands: vec![Band { name: "95 % by the RMSE".to_owned(), points: band.collect() }],
        series: vec![
            Series { name: "measured".to_owned(), look: LineStyle::Measured, points: measured },
            Series {
                name: "predicted".to_owned(),
                look: LineStyle::Predicted,
                points: predicted.iter().map(|one| (one.at, Some(one.value))).collect(),
            },
        ],
        ..Plot::default()
    };
    plot.bands.retain(|band| !band.points.is_empty());
    plot.series.retain(|series| !series.points.is_empty());
    if let Some(value) = definition.level() {
        plot.levels.push(Level { name: format!("threshold {value}"), value });
    }
    let svg = move || Ok(plot.svg());
    let svg = engine.compute().run(Priority::Foreground, svg).await?;
    svg.map_err(|error| Error::Run(error.to_string()))
}

/// Reads what was predicted last of a value, which may be less far ahead than what was predicted of others.
async fn predicted(
    shared: &IntelligenceContext,
    kept: &StoredRule,
    value: Option<&str>,
    now_ms: i64,
) -> Result<Vec<StoredPrediction>> {
    let Definition { name, algorithm, field, max_predictions, .. } = &*kept.definition;
    // What was predicted before the rule was changed may be of other buckets, and what comes from later is of a clock that was ahead.
    let filter = json!([
        {"term": {"model_uid": kept.id}},
        results::of_series(kept),
        {"term": {"model_name.keyword": name}},
        {"term": {"method_name": algorithm.name()}},
        results::of_value(value),
        {"range": {"start_date": {"lte": now_ms, "format": "epoch_millis"}}},
    ]);
    let body = json!({
        "size": max_predictions,
        "track_total_hits": false,
        "_source": [format!("{field}_pre"), "rmse"],
        "query": {"bool": {"filter": filter}},
        "sort": [{"start_date": "desc"}, {"@timestamp": "asc"}],
    });
    let own = Session::system(&shared.engine);
    let answer: Value = shared.asked.read(&own, results::INDEX, body, Priority::Foreground).await?;
    let hits = answer["hits"]["hits"].as_array().map(Vec::as_slice).unwrap_or_default();
    let newest = hits.first().map(|hit| &hit["sort"][0]);
    let last = hits.iter().take_while(|hit| Some(&hit["sort"][0]) == newest);
    let read = last.filter_map(|hit| {
        let source = &hit["_source"];
        Some(StoredPrediction {
            at: hit["sort"][1].as_i64()?,
            value: results::take(source, field, "pre")?,
            rmse: source["rmse"].as_f64(),
        })
    });
    Ok(read.collect())
}
