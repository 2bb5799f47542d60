//! A run: samples read, a model trained or taken up again, predictions written.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use millrace_catalog::access::Action;
use millrace_engine::Session;
use millrace_forecast::{Algorithm, Series, TrainedModel, seed, train_cancellable};
use millrace_runtime::tasks::{TaskCancelled, TaskHandle};
use millrace_runtime::{Instant, Priority};

use crate::artefacts::Artefacts;
use crate::definition::{Definition, ValueType};
use crate::documents::{BATCH, Documents, MeasuredSeries};
use crate::error::{Error, Result};
use crate::samples::Reader;
use crate::source::Source;
use crate::store::StoredRule;
use crate::training_job::run_training;
use crate::walk::Walk;
use crate::{IntelligenceContext, fill, results, run_record};

/// A sample of a forest is as much work as so many of others.
const FOREST_WEIGHT: i64 = 10;
/// Values of which is told why they were not predicted.
const MAX_TOLD: usize = 10;

/// Report of a run, also of one that failed on its way.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RunReport {
    /// Predictions that were written.
    pub(crate) predictions: usize,
    /// Samples of the last window.
    pub(crate) samples: usize,
    /// Models that were taken up again.
    pub(crate) reused: usize,
    /// Time of preparation that goes into the rule's record.
    pub(crate) prepared_ms: Option<i64>,
    pub(crate) machine_state_uid: Option<String>,
    pub(crate) path: Option<String>,
    pub(crate) search_source: Option<String>,
    pub(crate) threshold_time: Option<String>,
    /// The last predicted time.
    pub(crate) ends_ms: Option<i64>,
    /// Before this time what was written has its `_cur`, or never gets one.
    pub(crate) filled_ms: Option<i64>,
    /// Up to when all of history was gone over.
    pub(crate) walked_ms: Option<i64>,
    /// Outcome of a detector's run, in words.
    pub(crate) message: Option<String>,
}

/// One window of a run: its predictions, and their begin.
struct Step {
    series: Series,
    /// `true` if it is the last of the run, whose model is kept.
    is_last: bool,
}

/// Predictions that are to be written, by their ids: a batch or two at most.
type PendingPredictions = Vec<(String, Bytes)>;

/// Inputs of a run, for each value.
#[derive(Clone, Copy)]
struct RunInputs<'a> {
    shared: &'a IntelligenceContext,
    kept: &'a Arc<StoredRule>,
    task: &'a TaskHandle,
    reader: Reader<'a>,
    origins: &'a [i64],
    /// The start of the first bucket that is read, and of the first that is not over for good.
    from_ms: i64,
    settled_ms: i64,
}

/// Runs a rule as at a time, as a task. A value that cannot be predicted stops no other. A cancellation keeps what was written.
///
/// # Errors
/// Why nothing more was predicted, or which values were not; what was written until then is in `done`.
pub(crate) async fn run(
    shared: &IntelligenceContext,
    kept: &Arc<StoredRule>,
    task: &TaskHandle,
    now_ms: i64,
    done: &mut RunReport,
) -> Result<()> {
    let definition = &kept.definition;
    let source = Source::new(&shared.engine, kept).await?;
    done.search_source = Some(source.text.clone());
    let (frame, values) = (definition.frame, definition.runs());
    let walk = Walk {
        start: definition.start,
        frame,
        probes: definition.max_probes,
        predictions: definition.max_predictions,
        values: values.len(),
        walked_ms: kept.state.walked_ms,
        weight: if definition.algorithm == Algorithm::Rfrs { FOREST_WEIGHT } else { 1 },
    };
    let origins = walk.origins(now_ms).map_err(|reason| Error::invalid("start_date", reason))?;
    let (Some(first), Some(last)) = (origins.first(), origins.last().copied()) else { return Ok(()) };
    let from_ms = first.saturating_sub(definition.max_probes as i64 * frame.ms());
    // Nothing is logged from before there were clocks.
    let from_ms = from_ms.max(frame.start(0));
    let settled_ms = fill::settled(frame, shared.engine.clock().now_ms());
    done.ends_ms = Some(last + (definition.max_predictions as i64 - 1) * frame.ms());
    done.filled_ms = Some(settled_ms.min(last));
    let session = shared.session_of(&kept.state.owner).await?.in_task(task.clone());
    let (search, priority, series) = (&shared.search, Priority::Spare, definition.series_query(&source));
    let reader = Reader { search, session: &session, series: &series, priority };
    let course = RunInputs { shared, kept, task, reader, origins: &origins, from_ms, settled_ms };
    let (mut failed, mut whole) = (Vec::new(), Ok(()));
    for value in &values {
        let mut waiting = PendingPredictions::new();
        let predicted = course.predict(*value, &mut waiting, done).await;
        // What was predicted of history before is not predicted again.
        match (value, predicted) {
            (_, Err(error)) if task.check().is_err() || !is_of_value(&error) => return Err(error),
            (Some(value), Err(error)) => failed.push(format!("value [{value}]: {error}")),
            (Some(_), Ok(())) => {}
            (None, predicted) => whole = predicted,
        }
        course.write(&mut waiting, done).await?;
    }
    done.walked_ms = Some(last);
    match failed.is_empty() {
        true => whole,
        false => Err(Error::Run(describe_failures(&failed, values.len()))),
    }
}

impl RunInputs<'_> {
    /// Refuses to go on where the task is cancelled, the server is stopping, or the rule is no longer what it was.
    fn check_goes_on(&self) -> Result<()> {
        self.task.check().map_err(cancelled)?;
        self.shared.check_goes_on(self.kept)
    }

    /// Predicts all that is to be predicted of a value.
    async fn predict(
        &self,
        value: Option<&str>,
        waiting: &mut PendingPredictions,
        done: &mut RunReport,
    ) -> Result<()> {
        let Self { shared, kept, task, reader, origins, from_ms, settled_ms } = *self;
        let (definition, engine) = (&kept.definition, &*shared.engine);
        let last = origins.last().copied().unwrap_or(from_ms);
        self.check_goes_on()?;
        let began = Instant::now();
        let read = async {
            let buckets = Arc::new(reader.read(value, from_ms, last).await?);
            let begins = reader.begins(value, from_ms, &buckets).await?;
            Ok::<_, Error>((buckets, begins))
        };
        let (buckets, begins) = task.run(read).await.map_err(cancelled)??;
        done.prepared_ms = Some(engine.clock().now_ms());
        let measured = MeasuredSeries { from_ms, settled_ms, buckets: Arc::clone(&buckets) };
        for origin in origins {
            self.check_goes_on()?;
            let end = definition.frame.between(from_ms, *origin);
            let series = window(definition, &buckets, begins, end)?;
            let step = Step { series, is_last: *origin == last };
            // Of history there may be less than of now.
            if step.series.len() < definition.algorithm.least() && !step.is_last {
                continue;
            }
            let documents = match self.documents(value, *origin, &step, &measured, began, done).await {
                // What cannot be forecast of history keeps nothing else from being forecast.
                Err(Error::Forecast(_)) if !step.is_last => continue,
                documents => documents?,
            };
            for from in (0..documents.len()).step_by(BATCH) {
                let of = Arc::clone(&documents);
                waiting.extend(engine.compute().run(Priority::Spare, move || Ok(of.batch(from))).await?);
                if waiting.len() >= BATCH {
                    self.write(waiting, done).await?;
                }
            }
            if step.is_last {
                done.machine_state_uid = Some(documents.machine_state_uid.clone());
                done.threshold_time.clone_from(&documents.threshold_time);
            }
        }
        Ok(())
    }

    /// Makes the documents of one step.
    async fn documents(
        &self,
        value: Option<&str>,
        origin_ms: i64,
        step: &Step,
        measured: &MeasuredSeries,
        began: Instant,
        done: &mut RunReport,
    ) -> Result<Arc<Documents>> {
        let trained = trained(self.shared, (self.kept, self.task), value, step, done).await?;
        done.samples = step.series.len();
        let seconds = began.elapsed().as_secs_f64();
        let (kept, measured, value) = (Arc::clone(self.kept), measured.clone(), value.map(str::to_owned));
        let make =
            move || Ok(Documents::new(&kept, value.as_deref(), origin_ms, &trained, measured, seconds));
        Ok(Arc::new(self.shared.engine.compute().run(Priority::Spare, make).await??))
    }

    /// Writes what waits; before the first of it, the times that it is of are noted.
    async fn write(&self, waiting: &mut PendingPredictions, done: &mut RunReport) -> Result<()> {
        let Self { shared, kept, .. } = *self;
        let documents = std::mem::take(waiting);
        if documents.is_empty() {
            return Ok(());
        }
        // Whoever has changed the rule meanwhile gets none of it: its times would not be noted.
        self.check_goes_on()?;
        if done.predictions == 0 {
            let announced: &RunReport = done;
            let mut is_same = false;
            let announce = |now: &mut StoredRule| {
                is_same = now.state.revision == kept.state.revision;
                if is_same {
                    run_record::announce(now, announced);
                    shared.fillings.announce(&now.id, announced.filled_ms);
                }
            };
            shared.store.note(&kept.id, announce).await?;
            if !is_same {
                return Err(changed(kept));
            }
        }
        results::write(&shared.engine, documents, &mut done.predictions).await
    }
}

/// Says that the task of a run was cancelled.
pub(crate) fn cancelled(cancelled: TaskCancelled) -> Error {
    Error::Run(cancelled.to_string())
}

fn changed(kept: &StoredRule) -> Error {
    Error::Conflict(format!("AI rule [{}] was changed while it ran", kept.id))
}

/// Returns whether an error is of what was found with a value, so that others may do better.
pub(crate) fn is_of_value(error: &Error) -> bool {
    match error {
        Error::Run(_) | Error::Forecast(_) | Error::ModelFailed(_) => true,
        // It may be no value of the field's type.
        Error::Query(error) => error.status() == 400,
        _ => false,
    }
}

/// Says of which values nothing was predicted, and why.
fn describe_failures(failed: &[String], values: usize) -> String {
    let reasons = failed.iter().take(MAX_TOLD).map(String::as_str).collect::<Vec<_>>().join("; ");
    match failed.len() {
        1 => reasons,
        count if count <= MAX_TOLD => format!("{count} of {values} values are not predicted: {reasons}"),
        count => {
            let more = count - MAX_TOLD;
            format!("{count} of {values} values are not predicted: {reasons}; and {more} more")
        }
    }
}

impl IntelligenceContext {
    /// Refuses to go on with a run where the server is stopping, or the rule is no longer what it was.
    fn check_goes_on(&self, kept: &StoredRule) -> Result<()> {
        self.check_stopping()?;
        let now = self.store.get(&kept.id).ok_or_else(|| Error::NotFound(kept.id.clone()))?;
        match now.state.revision == kept.state.revision {
            true => Ok(()),
            false => Err(changed(kept)),
        }
    }

    /// Makes the session that a rule reads with: its owner's, by what that user may do now.
    ///
    /// # Errors
    /// [`Error::Run`] where the owner is gone.
    pub(crate) async fn session_of(&self, owner: &str) -> Result<Session> {
        let found = self.accounts.find_principal(owner).await;
        let found = found.map_err(|error| millrace_runtime::Error::Internal(error.to_string()))?;
        let principal = found.ok_or_else(|| {
            Error::Run(format!(
                "its owner, user [{owner}], is deleted or disabled: have somebody else save the rule"
            ))
        })?;
        Ok(Session::new(&self.engine, principal, Action::Search)?)
    }
}

/// Cuts the window before a place out of buckets, the first of which that is a sample is at `begins`.
fn window(definition: &Definition, buckets: &[Option<f64>], begins: usize, end: i64) -> Result<Series> {
    let end = usize::try_from(end).unwrap_or_default().min(buckets.len());
    let begin = end.saturating_sub(definition.max_probes).max(begins).min(end);
    let mut window = buckets[begin..end].to_vec();
    if definition.value_type.is_zero_when_empty() {
        window.iter_mut().for_each(|bucket| *bucket = Some(bucket.unwrap_or(0.0)));
    }
    Ok(Series::new(window)?)
}

/// Trains a model, or takes that of before up again where it was trained with the same.
async fn trained(
    shared: &IntelligenceContext,
    (kept, task): (&StoredRule, &TaskHandle),
    value: Option<&str>,
    step: &Step,
    done: &mut RunReport,
) -> Result<Arc<TrainedModel>> {
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
    let training = move |cancelled: &AtomicBool| {
        train_cancellable(algorithm, &series, predictions, seed, cancelled).map(|trained| {
            let bytes = is_last.then(|| trained.to_bytes());
            (Arc::new(trained), bytes)
        })
    };
    let training = task.run(run_training(shared.engine.compute(), training));
    let (trained, bytes) = training.await.map_err(cancelled)???;
    if let Some(bytes) = bytes
        && shared.artefacts.write(&kept.id, value, bytes).await
    {
        done.path = Some(Artefacts::path(&kept.id, value));
    }
    Ok(trained)
}

/// Returns the actual value of a bucket that is over.
pub(crate) fn became(value_type: ValueType, bucket: Option<f64>) -> Option<f64> {
    match value_type.is_zero_when_empty() {
        true => Some(bucket.unwrap_or(0.0)),
        false => bucket,
    }
}
