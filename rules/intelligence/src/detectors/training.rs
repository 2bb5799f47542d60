//! A run of a detector: its window read, its models trained and stored, and history scored.
//!
//! Documents are read with the rights of the detector's user. The window is cut into slices, and of each slice a bounded number of documents
//! is read, so that a sample of a long window has documents of all of it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use millrace_anomaly::{FeatureTable, MAX_LINE_BYTES};
use millrace_engine::Session;
use millrace_query::SearchService;
use millrace_runtime::Priority;
use millrace_runtime::tasks::TaskHandle;
use serde::Deserialize;
use serde_json::{Value, json};

use super::algorithm::{DetectorAlgorithm, ModelType};
use super::definition::DetectorDefinition;
use super::model::{self, DetectorModel, ModelSnapshot, TrainingInput};
use super::position::write_results;
use super::registry::Phase;
use super::scoring::SeriesProgress;
use super::stored::{ModelSummary, StoredDetector};
use super::{features, forecasts, history, loading, series};
use crate::error::{Error, Result, catch_model_panic};
use crate::run::{became, cancelled, is_of_value};
use crate::samples::Reader;
use crate::training_job::run_training;
use crate::{IntelligenceContext, fill};

/// Slices of a window, and documents that are read of each: 100,000 in all.
const SLICES: i64 = 50;
const SLICE_DOCUMENTS: usize = 2_000;
/// Bytes of their values in memory beyond which no more documents of a slice are taken.
const SLICE_BYTES: usize = 4 << 20;
/// Member of a model's details that is `false` where training read a sample of lines.
pub(super) const RATES: &str = "rates";
/// Values of which is told why they have no model.
const MAX_TOLD: usize = 10;

/// Names the file of the model of a value.
pub(super) fn model_name(build: u64, place: usize) -> String {
    format!("{build}-{place}")
}

/// Names the files of the models that serve.
pub(super) fn model_names(kept: &StoredDetector) -> Vec<String> {
    let values = kept.serving.as_ref().map_or(0, |serving| serving.values().len());
    (0..values).map(|place| model_name(kept.state.build, place)).collect()
}

/// Reader of the documents of a window.
struct WindowReader<'a> {
    search: &'a SearchService,
    session: &'a Session,
    definition: &'a DetectorDefinition,
}

#[derive(Debug, Deserialize)]
struct WindowDocuments {
    hits: Hits,
}

#[derive(Debug, Deserialize)]
struct Hits {
    hits: Vec<Hit>,
}

#[derive(Debug, Deserialize)]
struct Hit {
    #[serde(rename = "_source", default)]
    source: Value,
}

/// Sources of documents of a window, in the order of their times.
#[derive(Debug, Default)]
struct WindowSources {
    sources: Vec<Value>,
    /// A slice may have more documents than were taken.
    is_sample: bool,
}

/// Estimates the memory of a value.
fn heap_bytes(value: &Value) -> usize {
    let within = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(heap_bytes).sum(),
        Value::Object(members) => members.iter().map(|(name, value)| name.len() + heap_bytes(value)).sum(),
        _ => 0,
    };
    within + size_of::<Value>()
}

impl WindowReader<'_> {
    /// Reads the sources of a sample of the documents of a value.
    async fn read(&self, value: Option<&str>, from_ms: i64, to_ms: i64) -> Result<WindowSources> {
        let Self { search, session, definition } = self;
        let time = &definition.time_field;
        let expression = definition.expression();
        let mut included = definition.fields.clone();
        included.push(time.clone());
        let mut read = WindowSources::default();
        for slice in 0..SLICES {
            let at = |slice: i64| from_ms + (to_ms - from_ms) * slice / SLICES;
            let range = json!({"gte": at(slice), "lt": at(slice + 1), "format": "epoch_millis"});
            let mut filter = vec![definition.query.clone(), json!({"range": {time: range}})];
            if let (Some(by), Some(value)) = (&definition.multiply_by, value) {
                filter.push(json!({"term": {by: value}}));
            }
            let body = json!({
                "size": SLICE_DOCUMENTS,
                "track_total_hits": false,
                "_source": included,
                "query": {"bool": {"filter": filter}},
                "sort": [{time: "asc"}],
            });
            let found = search.read::<WindowDocuments>(session, &expression, body, Priority::Spare).await?;
            read.is_sample |= found.hits.hits.len() >= SLICE_DOCUMENTS;
            let mut bytes = 0;
            for hit in found.hits.hits {
                if bytes > SLICE_BYTES {
                    read.is_sample = true;
                    break;
                }
                bytes += heap_bytes(&hit.source);
                read.sources.push(hit.source);
            }
        }
        Ok(read)
    }
}

/// Trains the models of a detector, and has them serve; returns a message.
///
/// # Errors
/// The reason why no model was built; the models of before serve on.
pub(super) async fn run(
    shared: &Arc<IntelligenceContext>,
    kept: &Arc<StoredDetector>,
    task: &TaskHandle,
    now_ms: i64,
) -> Result<String> {
    let definition = &kept.definition;
    let session = shared.session_of(&kept.state.owner).await?.in_task(task.clone());
    let frame = definition.window.bucket();
    let end_ms = if definition.model_type.is_series() { fill::settled(frame, now_ms) } else { now_ms };
    let from_ms = (end_ms - definition.window.ms()).max(0);
    let values = definition.values();
    let (mut models, mut failed, mut samples, mut details) = (Vec::new(), Vec::new(), 0, None);
    for value in &values {
        check_goes_on(shared, kept, task)?;
        let trained = async {
            let input = read(shared, &session, definition, *value, (from_ms, end_ms)).await?;
            let count = input.len();
            let (definition, value) = (Arc::clone(definition), value.map(str::to_owned));
            let training = move |cancelled: &AtomicBool| {
                let has_no_rates = input.is_sample() && definition.algorithm == DetectorAlgorithm::Drain;
                let train = || {
                    let model = model::train(&definition, value.as_deref(), input, cancelled)?;
                    let mut details = model.details(&definition);
                    if has_no_rates {
                        details.insert(RATES.to_owned(), json!(false));
                    }
                    Ok((model, details))
                };
                catch_model_panic(train).unwrap_or_else(|reason| Err(Error::ModelFailed(reason)))
            };
            let (model, details) = run_training(shared.engine.compute(), training).await??;
            Ok::<_, Error>((model, details, count))
        };
        match task.run(trained).await.map_err(cancelled)? {
            Ok((model, of_model, count)) => {
                samples += count;
                let is_without_rates = of_model.contains_key(RATES);
                let details = details.get_or_insert(of_model);
                if is_without_rates {
                    details.insert(RATES.to_owned(), json!(false));
                }
                models.push(Some(model));
            }
            Err(error) if task.check().is_err() || !is_of_value(&error) => return Err(error),
            Err(error) => {
                failed.push(
                    value.map_or_else(|| error.to_string(), |value| format!("value [{value}]: {error}")),
                );
                models.push(None);
            }
        }
    }
    if models.iter().all(Option::is_none) {
        return Err(Error::Run(describe(&failed)));
    }
    check_goes_on(shared, kept, task)?;
    let build = kept.state.build + 1;
    let next_frame = shared.engine.next_frame()?;
    if let Err(error) = store(shared, kept, build, next_frame, &models).await {
        discard_build(shared, &kept.id).await;
        return Err(error);
    }
    let untrained =
        models.iter().enumerate().filter(|(_, model)| model.is_none()).map(|(place, _)| place).collect();
    let summary = ModelSummary { trained_ms: end_ms, samples, details: details.unwrap_or_default() };
    let mut is_same = false;
    let serve = |now: &mut StoredDetector| {
        is_same = now.state.revision == kept.state.revision;
        if !is_same {
            return;
        }
        now.serve(Arc::clone(&kept.definition), &kept.state.owner);
        now.state.build = build;
        now.state.untrained = untrained;
        now.state.model = Some(summary);
        now.ran.preparation_date = Some(crate::time::iso(now_ms));
        now.ran.path_to_machine_state =
            Some(crate::artefacts::Artefacts::path_of(&now.id, &model_name(build, 0)));
        if definition.is_scheduled() && definition.model_type.is_scored() {
            now.state.since.get_or_insert(next_frame);
        }
    };
    let noted = shared.store.note_detector(&kept.id, serve).await;
    if noted.is_err() || !is_same {
        discard_build(shared, &kept.id).await;
        return Err(noted.err().unwrap_or_else(|| changed(kept)));
    }
    let serving = shared.store.detector(&kept.id).ok_or_else(|| Error::NotFound(kept.id.clone()))?;
    shared.artefacts.retain_models(&kept.id, &model_names(&serving)).await;
    shared.detectors.changed.notify_one();
    let scored = match definition.model_type {
        ModelType::Forecasting => forecasts::write(shared, &serving, &models, end_ms).await?,
        _ => score_history(shared, &serving, task, (from_ms, next_frame)).await?,
    };
    let unit = match definition.model_type {
        ModelType::Univariate | ModelType::Forecasting => "buckets",
        ModelType::Text => "lines",
        ModelType::Multivariate | ModelType::Clustering => "documents",
    };
    match failed.is_empty() {
        true => Ok(format!("the model is built from {samples} {unit}{scored}")),
        false => Err(Error::Run(format!(
            "{} of {} values have no model: {}",
            failed.len(),
            values.len(),
            describe(&failed)
        ))),
    }
}

fn describe(failed: &[String]) -> String {
    let told = failed.iter().take(MAX_TOLD).map(String::as_str).collect::<Vec<_>>().join("; ");
    match failed.len().saturating_sub(MAX_TOLD) {
        0 => told,
        more => format!("{told}; and {more} more"),
    }
}

fn changed(kept: &StoredDetector) -> Error {
    Error::Conflict(format!("AI rule [{}] was changed while it ran", kept.id))
}

/// Refuses to go on where the task is cancelled, the server is stopping, or the detector is no longer what it was.
fn check_goes_on(shared: &IntelligenceContext, kept: &StoredDetector, task: &TaskHandle) -> Result<()> {
    task.check().map_err(cancelled)?;
    shared.check_stopping()?;
    let now = shared.store.detector(&kept.id).ok_or_else(|| Error::NotFound(kept.id.clone()))?;
    match now.state.revision == kept.state.revision {
        true => Ok(()),
        false => Err(changed(kept)),
    }
}

/// Reads the input of a model: between two times.
async fn read(
    shared: &IntelligenceContext,
    session: &Session,
    definition: &Arc<DetectorDefinition>,
    value: Option<&str>,
    (from_ms, end_ms): (i64, i64),
) -> Result<TrainingInput> {
    if definition.model_type.is_series() {
        let query = definition.series_query();
        let frame = query.frame;
        let reader = Reader { search: &shared.search, session, series: &query, priority: Priority::Spare };
        let from_ms = frame.start(from_ms);
        let buckets = reader.read(value, from_ms, end_ms).await?;
        if buckets.iter().all(Option::is_none) {
            reader.check_there()?;
            return Err(nothing(definition));
        }
        let begins = reader.begins(value, from_ms, &buckets).await?;
        let buckets = buckets.into_iter().skip(begins).map(|bucket| became(query.value_type, bucket));
        let first = from_ms.div_euclid(frame.ms()) + begins as i64;
        return Ok(TrainingInput::Series { first, buckets: buckets.collect() });
    }
    let reader = WindowReader { search: &shared.search, session, definition };
    let read = reader.read(value, from_ms, end_ms).await?;
    if read.sources.is_empty() {
        return Err(nothing(definition));
    }
    let definition = Arc::clone(definition);
    let prepare = move || Ok(prepare(&definition, read));
    shared.engine.compute().run(Priority::Spare, prepare).await?
}

/// Turns sources into rows or lines.
fn prepare(definition: &DetectorDefinition, read: WindowSources) -> Result<TrainingInput> {
    let WindowSources { sources, is_sample } = read;
    if definition.model_type == ModelType::Text {
        let bucket_ms = definition.window.bucket().ms();
        let line = |source: &Value| {
            let time_ms = features::time_ms(source, &definition.time_field)?;
            let mut text = features::text(source, definition.field())?;
            text.truncate(text.floor_char_boundary(MAX_LINE_BYTES));
            Some((time_ms.div_euclid(bucket_ms), text))
        };
        let lines: Vec<(i64, String)> = sources.iter().filter_map(line).collect();
        if lines.len() < definition.min_documents {
            return Err(Error::Run(format!(
                "{} of {} documents of [{}] within [time_frame] have a text in [{}], and [min_documents] is {}: choose a \
                 longer window, another field, or fewer documents",
                lines.len(),
                sources.len(),
                definition.index,
                definition.field(),
                definition.min_documents
            )));
        }
        return Ok(TrainingInput::Lines { lines, is_sample });
    }
    let failed = |error: millrace_anomaly::Error| Error::Run(error.to_string());
    let mut table = FeatureTable::new(definition.fields.len()).map_err(failed)?;
    for source in &sources {
        table.push(&features::row(source, &definition.fields)).map_err(failed)?;
    }
    Ok(TrainingInput::Rows(table))
}

fn nothing(definition: &DetectorDefinition) -> Error {
    Error::Run(format!(
        "no document of [{}] within the last {} matches [query] and has a time in [{}]: choose a longer [time_frame], or another \
         query",
        definition.index,
        definition.window.text(),
        definition.time_field
    ))
}

/// Deletes the models of a build that does not serve: they count against the space of all models.
async fn discard_build(shared: &IntelligenceContext, id: &str) {
    let serving = shared.store.detector(id).map(|now| model_names(&now)).unwrap_or_default();
    shared.artefacts.retain_models(id, &serving).await;
}

/// Stores the models of a build.
async fn store(
    shared: &IntelligenceContext,
    kept: &StoredDetector,
    build: u64,
    next_frame: u64,
    models: &[Option<DetectorModel>],
) -> Result<()> {
    for (place, model) in models.iter().enumerate() {
        let Some(model) = model.clone() else { continue };
        let encode = move || Ok(ModelSnapshot { model, next_frame }.encode());
        let bytes = shared.engine.compute().run(Priority::Spare, encode).await?;
        let written = shared.artefacts.write_bytes(&kept.id, &model_name(build, place), bytes).await;
        written.map_err(|reason| Error::Run(format!("the model cannot be stored: {reason}")))?;
    }
    Ok(())
}

/// Scores history where that is asked for: from `start_date` on once, and the window of a run by hand.
async fn score_history(
    shared: &Arc<IntelligenceContext>,
    kept: &Arc<StoredDetector>,
    task: &TaskHandle,
    (window_ms, next_frame): (i64, u64),
) -> Result<String> {
    let definition = &kept.definition;
    let is_live = definition.is_scheduled();
    let from_ms = match definition.start_ms {
        Some(start_ms) if is_live && kept.state.walked_ms == Some(start_ms) => return Ok(String::new()),
        Some(start_ms) => start_ms,
        None if is_live => return Ok(String::new()),
        None => window_ms,
    };
    // The follower of the feed scores the buckets of a live detector from `start_date` on.
    if is_live && definition.model_type == ModelType::Univariate {
        return Ok(String::new());
    }
    shared.detectors.set_phase(&kept.id, Phase::Scoring);
    let Some(mut detector) = loading::load(shared, kept).await? else {
        return Err(Error::Run("the model that was built cannot be read: see the server's log".to_owned()));
    };
    let before = detector.tally.clone();
    let after = if definition.model_type == ModelType::Univariate {
        let bucket_ms = definition.window.bucket().ms();
        detector.progress = SeriesProgress::at(from_ms.div_euclid(bucket_ms), bucket_ms);
        let now_ms = shared.engine.clock().now_ms();
        let scored = series::score_closed(shared, &detector, now_ms, Priority::Spare);
        let scored = task.run(scored).await.map_err(cancelled)??;
        if let Some(scored) = scored {
            detector.tally.scored += scored.documents.len() as u64;
            detector.tally.anomalies += scored.anomalies;
            let refused = write_results(&shared.engine, scored.documents).await?;
            detector.tally.problem = refused.map(|refused| refused.reason);
        }
        detector.tally
    } else {
        let frames = 0..next_frame;
        let scored =
            history::score_stored(shared, detector, frames, Some(from_ms), Some(task), Priority::Spare);
        // Results are the same if they are written again: the task may end anywhere.
        let scored = task.run(scored).await.map_err(cancelled)??;
        if let Some(reason) = scored.failure {
            return Err(Error::ModelFailed(reason));
        }
        scored.tally
    };
    shared.detectors.publish(&kept.id, &after);
    if is_live {
        let walked = |now: &mut StoredDetector| now.state.walked_ms = definition.start_ms;
        shared.store.note_detector(&kept.id, walked).await?;
    }
    let (scored, anomalies) = (after.scored - before.scored, after.anomalies - before.anomalies);
    Ok(format!("; {scored} results are written, {anomalies} of them anomalies"))
}
