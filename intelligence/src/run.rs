//! A run: samples read, a model trained or taken up again, predictions written.

use std::sync::Arc;
use std::time::Instant;

use millrace_forecast::{Algorithm, Series, Trained, seed, train};
use millrace_storage::access::Action;
use millrace_storage::{Priority, Session};
use serde_json::{Map, Value, json};

use crate::Shared;
use crate::artefacts::Artefacts;
use crate::definition::{Definition, ValueType};
use crate::error::{Error, Result};
use crate::results;
use crate::samples::{MAX_BUCKETS, Reader};
use crate::source::Source;
use crate::store::Kept;
use crate::time;
use crate::walk::Walk;

/// Predictions of a run, at most.
const MAX_PREDICTIONS: usize = 1_000_000;
/// Predictions that are held until they are written.
const HELD: usize = 5_000;
/// A sample of a forest is as much work as so many of others.
const FOREST_WEIGHT: i64 = 10;

/// What came of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Done {
    /// Predictions that were written.
    pub(crate) predictions: usize,
    /// Samples of the last window.
    pub(crate) samples: usize,
    /// Models that were taken up again.
    pub(crate) reused: usize,
    /// What of a rule's record it gives.
    pub(crate) prepared_ms: Option<i64>,
    pub(crate) machine_state_uid: Option<String>,
    pub(crate) path: Option<String>,
    pub(crate) search_source: Option<String>,
    pub(crate) threshold_time: Option<String>,
    pub(crate) origin_ms: Option<i64>,
    pub(crate) ends_ms: Option<i64>,
}

/// One window of a run: what is predicted from when.
struct Step {
    origin_ms: i64,
    series: Series,
    /// Whether it is the last of the run, whose model is kept.
    is_last: bool,
}

/// Runs a rule as at a time.
pub(crate) async fn run(shared: &Shared, kept: &Kept, now_ms: i64) -> Result<Done> {
    let definition = &kept.definition;
    let source = Source::of(&shared.engine, kept).await?;
    let mut done = Done { search_source: Some(source.text.clone()), ..Done::default() };
    let walk = Walk {
        start: definition.start,
        frame: definition.frame,
        probes: definition.max_probes,
        predictions: definition.max_predictions,
        walked_ms: kept.state.walked_ms,
        weight: if definition.algorithm == Algorithm::Rfrs { FOREST_WEIGHT } else { 1 },
    };
    let origins = walk.origins(now_ms).map_err(|reason| Error::invalid("start_date", reason))?;
    let (Some(first), Some(last)) = (origins.first(), origins.last().copied()) else { return Ok(done) };
    let from = first.saturating_sub(definition.max_probes as i64 * definition.frame.ms());
    // Nothing is logged from before there were clocks.
    let from = from.max(definition.frame.start(0));
    let count = definition.frame.between(from, last);
    if count > MAX_BUCKETS {
        let reason = format!("lies {count} buckets before now, probes included; {MAX_BUCKETS} are allowed");
        return Err(Error::invalid("start_date", reason));
    }
    let predictions = origins.len() * definition.runs().len() * definition.max_predictions;
    if predictions > MAX_PREDICTIONS && origins.len() > 1 {
        let reason = format!(
            "makes {predictions} predictions over history; {MAX_PREDICTIONS} are allowed: choose a later one"
        );
        return Err(Error::invalid("start_date", reason));
    }
    let session = shared.session_of(kept).await?;
    let (engine, search) = (&*shared.engine, &shared.search);
    let reader = Reader { search, session: &session, source: &source, definition, priority: Priority::Spare };
    for value in definition.runs() {
        shared.check_stopping()?;
        let began = Instant::now();
        let buckets = Arc::new(reader.read(value, from, last).await?);
        done.prepared_ms = Some(engine.clock().now_ms());
        let mut documents = Vec::new();
        for origin in &origins {
            shared.check_stopping()?;
            let series = window(definition, &buckets, definition.frame.between(from, *origin));
            let is_last = *origin == last;
            let series = series.map_err(|error| of_value(error.into(), value));
            // Of history there may be less than of now.
            let series = match series {
                Ok(series) if series.len() < definition.algorithm.least() && !is_last => continue,
                series => series?,
            };
            let step = Step { origin_ms: *origin, series, is_last };
            let trained = trained(shared, kept, value, &step, &mut done).await;
            let trained = trained.map_err(|error| of_value(error, value))?;
            done.samples = step.series.len();
            let seconds = began.elapsed().as_secs_f64();
            let kept_buckets = Arc::clone(&buckets);
            let (definition, id) = (Arc::clone(definition), kept.id.clone());
            let value = value.map(str::to_owned);
            let write = move || {
                let there = Bucketed { from_ms: from, buckets: &kept_buckets };
                Ok(written(&definition, &id, value.as_deref(), &step, &trained, there, seconds))
            };
            let (found, threshold_time, uid) = engine.compute().run(Priority::Spare, write).await??;
            done.predictions += found.len();
            documents.extend(found);
            // Of much history there would be too many to hold.
            if documents.len() >= HELD {
                results::write(engine, std::mem::take(&mut documents)).await?;
            }
            if is_last {
                (done.machine_state_uid, done.threshold_time) = (Some(uid), threshold_time);
            }
        }
        results::write(engine, documents).await?;
    }
    let ends = last + (definition.max_predictions as i64 - 1) * definition.frame.ms();
    (done.origin_ms, done.ends_ms) = (Some(last), Some(ends));
    Ok(done)
}

impl Shared {
    /// Makes the session that a rule reads with: its owner's, by what that user may do now.
    ///
    /// # Errors
    /// [`Error::Run`] where the owner is gone.
    pub(crate) async fn session_of(&self, kept: &Kept) -> Result<Session> {
        let owner = &kept.state.owner;
        let found = self.accounts.find_principal(owner).await;
        let found = found.map_err(|error| millrace_storage::Error::Internal(error.to_string()))?;
        let principal = found.ok_or_else(|| {
            Error::Run(format!(
                "its owner, user [{owner}], is deleted or disabled: have somebody else save the rule"
            ))
        })?;
        Ok(Session::new(&self.engine, principal, Action::Search)?)
    }
}

/// Says of which value an error is.
fn of_value(error: Error, value: Option<&str>) -> Error {
    match value {
        Some(value) => Error::Run(format!("value [{value}]: {error}")),
        None => error,
    }
}

/// Cuts the window before a place out of buckets.
fn window(
    definition: &Definition,
    buckets: &[Option<f64>],
    end: i64,
) -> Result<Series, millrace_forecast::Error> {
    let end = usize::try_from(end).unwrap_or_default().min(buckets.len());
    let mut window = buckets[end.saturating_sub(definition.max_probes)..end].to_vec();
    if definition.value_type == ValueType::Count {
        // Before the first document there is nothing to be counted.
        let first = window.iter().position(Option::is_some).unwrap_or(window.len());
        window[first..].iter_mut().for_each(|bucket| *bucket = Some(bucket.unwrap_or(0.0)));
    }
    Series::new(window)
}

/// Trains a model, or takes that of before up again where it was trained with the same.
async fn trained(
    shared: &Shared,
    kept: &Kept,
    value: Option<&str>,
    step: &Step,
    done: &mut Done,
) -> Result<Arc<Trained>> {
    let definition = &kept.definition;
    let (algorithm, predictions) = (definition.algorithm, definition.max_predictions);
    let seed = seed(&kept.id);
    if step.series.len() < algorithm.least() {
        let (there, needed) = (step.series.len(), algorithm.least());
        return Err(Error::Run(format!(
            "{algorithm} needs {needed} samples, and there are {there} in [{}] with a value of [{}]",
            definition.search, definition.field
        )));
    }
    if step.is_last
        && let Some(stored) = shared.artefacts.read(&kept.id, value).await
        && stored.is_of(algorithm, &step.series, predictions, seed)
    {
        done.reused += 1;
        done.path = Some(Artefacts::path(&kept.id, value));
        return Ok(Arc::new(stored));
    }
    let (series, is_last) = (step.series.clone(), step.is_last);
    let job = move || {
        Ok(train(algorithm, &series, predictions, seed).map(|trained| {
            let bytes = is_last.then(|| trained.to_bytes());
            (Arc::new(trained), bytes)
        }))
    };
    let (trained, bytes) = shared.engine.compute().run(Priority::Spare, job).await??;
    if let Some(bytes) = bytes
        && shared.artefacts.write(&kept.id, value, bytes).await
    {
        done.path = Some(Artefacts::path(&kept.id, value));
    }
    Ok(trained)
}

/// Buckets with the start of the first.
#[derive(Clone, Copy)]
struct Bucketed<'a> {
    from_ms: i64,
    buckets: &'a [Option<f64>],
}

/// Documents by their ids, when the threshold is reached, and the name of the state.
type Written = (Vec<(String, Value)>, Option<String>, String);

/// Makes the documents of a step.
fn written(
    definition: &Definition,
    id: &str,
    value: Option<&str>,
    step: &Step,
    trained: &Trained,
    there: Bucketed<'_>,
    seconds: f64,
) -> Result<Written, Error> {
    let (frame, origin) = (definition.frame, step.origin_ms);
    let forecast = trained.forecast(definition.max_predictions)?;
    let uid = results::machine_state_uid(definition, value, origin);
    let (score, line) = (trained.score(), trained.line());
    let reached = definition.level().filter(|_| definition.algorithm == Algorithm::Tl);
    let reached = reached.and_then(|level| trained.reaches(level)).and_then(|buckets| {
        // Samples stand for their buckets: the last one of the window began one before the origin.
        let ms = (origin - frame.ms()) as f64 + buckets * frame.ms() as f64;
        (ms.abs() < 253_402_300_800_000.0).then(|| time::iso(ms as i64))
    });
    let mut common = Map::new();
    for (name, of) in [
        ("model_name", json!(definition.name)),
        ("model_uid", json!(id)),
        ("machine_state_uid", json!(uid)),
        ("method_name", json!(definition.algorithm.name())),
        ("time_frame", json!(frame.name())),
        ("start_date", json!(time::iso(origin))),
        ("processing_time", json!(seconds)),
        ("rmse", json!(score.rmse)),
        ("rmse_normalized", json!(score.rmse_normalized)),
        ("overall_efficiency", json!(score.overall_efficiency)),
    ] {
        common.insert(name.to_owned(), of);
    }
    // Who may see the rule sees what it predicts.
    if !definition.roles.is_empty() {
        common.insert("roles".to_owned(), json!(definition.roles));
    }
    if let (Some(line), Algorithm::Tl | Algorithm::Lrst) = (line, definition.algorithm) {
        common.insert("linear_function_a".to_owned(), json!(line.slope));
        common.insert("linear_function_b".to_owned(), json!(line.intercept));
    }
    if let Some(level) = definition.level() {
        common.insert("threshold".to_owned(), json!(level));
        common.insert("threshold_time".to_owned(), json!(reached));
    }
    if let (Some(field), Some(value)) = (&definition.multiply_by, value) {
        common.insert("multiply_by_field".to_owned(), json!(field));
        common.insert("multiply_by_value".to_owned(), json!(value));
    }
    let documents = forecast.iter().enumerate().map(|(ahead, predicted)| {
        let at = origin + ahead as i64 * frame.ms();
        let prediction = results::prediction_uid(&uid, at);
        let mut document = common.clone();
        document.insert("@timestamp".to_owned(), json!(time::iso(at)));
        document.insert("predictionUID".to_owned(), json!(prediction));
        results::put(&mut document, &definition.field, "pre", *predicted);
        let place = usize::try_from(frame.between(there.from_ms, at)).unwrap_or(usize::MAX);
        if let Some(current) = there.buckets.get(place).and_then(|bucket| became(definition, *bucket)) {
            results::put(&mut document, &definition.field, "cur", current);
        }
        (prediction, Value::Object(document))
    });
    Ok((documents.collect(), reached, uid))
}

/// What a bucket that is over was.
pub(crate) fn became(definition: &Definition, bucket: Option<f64>) -> Option<f64> {
    match definition.value_type {
        ValueType::Count => Some(bucket.unwrap_or(0.0)),
        _ => bucket,
    }
}
