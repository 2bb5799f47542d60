//! Detectors: rules with a model (`model_type`) that is trained on a window, and scores documents and buckets as they arrive.
//!
//! [`change`] saves one, the scheduler of all AI rules has [`run()`] train it, and [`FeedFollower`] scores what the change feed brings. The
//! models are those of `millrace-anomaly` and `millrace-forecast`; documents are matched as those of alert rules are
//! (`millrace-percolator`). `docs/internals/delivery.md` argues why each document is scored once.
//!
//! - [`definition`], [`algorithm`], [`window`]: the users' fields
//! - [`stored`]: a detector as a document, and its status
//! - [`model`], [`training`]: models, and the input that they are trained on
//! - [`features`], [`scoring`], [`frame_scoring`], [`series`]: documents and buckets as models take them, and their scores
//! - [`loading`]: detectors with their models in memory
//! - [`feed`], [`position`], [`history`]: the change feed followed, the position in it, and stored documents
//! - [`results`], [`row_results`], [`forecasts`]: results as documents
//! - [`registry`]: phases and tallies, shared by the parts
//! - [`pictures`], [`templates`](templates()): answers about models and results

mod algorithm;
mod definition;
#[cfg(test)]
mod failure_tests;
mod features;
mod feed;
mod forecasts;
mod frame_columns;
mod frame_scoring;
mod history;
mod loading;
mod model;
mod pictures;
mod position;
mod registry;
mod results;
mod row_results;
mod scoring;
mod series;
mod stored;
mod training;
mod window;

use std::sync::Arc;

use millrace_catalog::access::Principal;
use millrace_runtime::tasks::{TaskDescription, TaskSpec};
use millrace_runtime::{Instant, Priority};
use serde_json::{Value, json};
use uuid::Uuid;

pub(crate) use self::feed::{FeedFollower, follow};
pub(crate) use self::pictures::draw;
pub(crate) use self::registry::DetectorRegistry;
pub(crate) use self::stored::StoredDetector;

use self::algorithm::ModelType;
use self::definition::DetectorDefinition;
use self::model::{DetectorModel, ModelSnapshot};
use self::registry::Phase;
use self::stored::DetectorState;
use crate::error::{Error, Result};
use crate::run::RunReport;
use crate::store::RuleDocument;
use crate::{IntelligenceContext, MAX_TRIES, check_saves, spawn_uncancelled, time};

/// Longest text of an error on a record, in characters.
const MAX_MESSAGE: usize = 2_000;

/// Saves a detector; returns its id and a message.
///
/// # Errors
/// [`Error::Invalid`] with the field, [`Error::Forbidden`], [`Error::Conflict`] for a name that is taken, [`Error::NotFound`].
pub(crate) async fn change(
    shared: &Arc<IntelligenceContext>,
    asker: &Principal,
    body: Value,
) -> Result<(String, String)> {
    check_saves(asker)?;
    let id = match body.get("id").or_else(|| body.get("_id")) {
        None | Some(Value::Null) => None,
        Some(Value::String(id)) => Some(id.clone()),
        Some(other) => return Err(Error::invalid("id", format!("must be a string, not [{other}]"))),
    };
    // Whether a schedule ever comes may take a while to find out.
    let parse = move || Ok(DetectorDefinition::parse(&body));
    let definition = shared.engine.compute().run(Priority::Foreground, parse).await??;
    let (shared, owner) = (Arc::clone(shared), asker.name().to_owned());
    let now_ms = shared.engine.clock().now_ms();
    results::check_index(&shared.engine, &definition, now_ms)?;
    let new = |id: String, definition, owner| {
        let state = DetectorState { owner, revision: 1, handled_ms: now_ms, ..DetectorState::default() };
        RuleDocument::Detector(Arc::new(StoredDetector::new(id, definition, state)))
    };
    let Some(id) = id else {
        let id = Uuid::new_v4().to_string();
        let document = new(id.clone(), definition, owner);
        spawn_uncancelled(async move { shared.store.create(document).await }).await?;
        return Ok((
            id,
            "the AI rule is saved; its first model is built at the next time of its schedule, or by a run"
                .to_owned(),
        ));
    };
    if shared.store.is_unreadable(&id) {
        let document = new(id.clone(), definition, owner);
        spawn_uncancelled(async move { shared.store.create(document).await }).await?;
        return Ok((id, "the AI rule is saved".to_owned()));
    }
    let RuleDocument::Detector(before) = &*shared.visible(asker, &id)? else {
        let reason = format!("[{id}] is that of a forecast: save it with POST /api/ai/update/{id}");
        return Err(Error::invalid("id", reason));
    };
    if before.definition.model_type != definition.model_type {
        let (was, is) = (before.definition.model_type.name(), definition.model_type.name());
        let reason = format!("is [{was}] of AI rule [{id}] and cannot become [{is}]: save another rule");
        return Err(Error::invalid("model_type", reason));
    }
    let next_frame = shared.engine.next_frame()?;
    let definition = Arc::new(definition);
    let change = move |kept: &mut StoredDetector| {
        kept.redefine(definition, &owner, now_ms);
        if kept.definition.is_scheduled() && kept.serving.is_some() && kept.state.since.is_none() {
            kept.state.since = Some(next_frame);
        }
    };
    let (changed, context) = (id.clone(), Arc::clone(&shared));
    spawn_uncancelled(async move { context.store.update_detector(&changed, change).await }).await?;
    shared.detectors.changed.notify_one();
    let message = match shared
        .store
        .detector(&id)
        .and_then(|kept| Some(kept.serving.as_ref()?.digest() == kept.definition.digest()))
    {
        Some(false) => "the AI rule is saved; the model of before serves until the new one is built",
        _ => "the AI rule is saved",
    };
    Ok((id, message.to_owned()))
}

/// Returns the members of a record that are not stored.
pub(crate) fn status(shared: &IntelligenceContext, kept: &StoredDetector) -> Value {
    let phase = shared.detectors.phase(&kept.id);
    let tally = shared.detectors.tally(&kept.id);
    let mut status = json!({"status": kept.status(phase.map(Phase::name))});
    if kept.is_live() || tally.scored > 0 {
        status["scored_documents"] = json!(tally.scored);
        status["anomalies"] = json!(tally.anomalies);
    }
    let mut messages = tally.messages(&kept.definition);
    if kept
        .state
        .model
        .as_ref()
        .is_some_and(|model| model.details.get(training::RATES) == Some(&json!(false)))
    {
        messages.push(
            "the window has more lines than training reads, so no template counts as unusually frequent: choose a shorter \
             [time_frame], or a narrower [query]"
                .to_owned(),
        );
    }
    if !messages.is_empty() {
        status["status_message"] = json!(messages.join("; "));
    }
    status
}

/// Notes the runs that the server did not live to see the end of.
pub(crate) async fn recover(shared: &Arc<IntelligenceContext>) {
    let now_ms = shared.engine.clock().now_ms();
    for kept in shared.store.detectors().into_iter().filter(|kept| kept.ran.pid != 0) {
        let noted = shared.store.note_detector(&kept.id, |kept| mark_interrupted(kept, now_ms));
        if let Err(error) = noted.await {
            tracing::warn!(rule = kept.id, %error, "an AI rule is still marked as running");
        }
    }
    for kept in shared.store.detectors() {
        shared.artefacts.retain_models(&kept.id, &training::model_names(&kept)).await;
    }
}

/// Notes that a run did not end. One that may be what ended the server is not made up again and again.
pub(crate) fn mark_interrupted(kept: &mut StoredDetector, now_ms: i64) {
    if kept.state.tries >= MAX_TRIES {
        kept.state.handled_ms = kept.state.handled_ms.max(now_ms);
    }
    kept.ran.pid = 0;
    kept.ran.exit_code = Some(1);
    kept.ran.error_description = Some("interrupted".to_owned());
    kept.ran.error_message = Some("the server ended while the rule ran".to_owned());
}

/// Runs a detector, for a time of its schedule or by hand: trains its models, and has them serve.
///
/// # Errors
/// The reason why no model was built, which stands on its record, too.
pub(crate) async fn run(
    shared: &Arc<IntelligenceContext>,
    detector: &StoredDetector,
    due_ms: Option<i64>,
) -> Result<RunReport> {
    let id = detector.id.as_str();
    let (began, began_ms) = (Instant::now(), shared.engine.clock().now_ms());
    let starts = |kept: &mut StoredDetector| {
        kept.ran.pid = std::process::id();
        kept.ran.last_execute_mili = Some(began_ms);
        kept.ran.last_execute = Some(time::minute(began_ms));
        kept.ran.last_execute_timestamp = Some(time::minute(began_ms));
        kept.state.tries += u32::from(due_ms.is_some());
        kept.state.handled_ms = kept.state.handled_ms.min(began_ms);
    };
    shared.store.note_detector(id, starts).await?;
    let _phase = shared.detectors.begin(id, Phase::Building);
    let kept = shared.store.detector(id).ok_or_else(|| Error::NotFound(id.to_owned()))?;
    let description = TaskDescription::text(&format!("rule[{}], id[{id}]", kept.definition.name));
    let spec = TaskSpec::cancellable("cluster:console/intelligence/run").with_description(description);
    let task = shared.engine.tasks().start(spec);
    // Models score what arrives now: a run that is made up trains on the window of now, too.
    let outcome = task.scope(training::run(shared, &kept, &task, began_ms)).await;
    let stopped = outcome.is_err() && shared.check_stopping().is_err();
    let seconds = began.elapsed().as_secs_f64();
    let ends = |kept: &mut StoredDetector| {
        (kept.ran.pid, kept.state.tries) = (0, 0);
        kept.ran.processing_time = Some(seconds);
        if !stopped {
            kept.state.handled_ms = kept.state.handled_ms.max(due_ms.unwrap_or(i64::MIN));
        }
        note_outcome(kept, outcome.as_ref().err());
    };
    match shared.store.note_detector(id, ends).await {
        Err(Error::NotFound(_)) => shared.artefacts.remove(id).await,
        noted => noted?,
    }
    outcome.map(|message| RunReport { message: Some(message), ..RunReport::default() })
}

/// Notes that a run has failed in a way of its own.
///
/// # Errors
/// The store's.
pub(crate) async fn note_failure(shared: &IntelligenceContext, id: &str, outcome: &Result<()>) -> Result<()> {
    let ends = |kept: &mut StoredDetector| {
        (kept.ran.pid, kept.state.tries) = (0, 0);
        note_outcome(kept, outcome.as_ref().err());
    };
    shared.store.note_detector(id, ends).await
}

fn note_outcome(kept: &mut StoredDetector, error: Option<&Error>) {
    let ran = &mut kept.ran;
    ran.exit_code = Some(i32::from(error.is_some()));
    ran.error_description = error.map(|error| match error {
        Error::Invalid { field, .. } => field.clone(),
        Error::Query(_) => "search".to_owned(),
        Error::Storage(_) => "store".to_owned(),
        _ => "model".to_owned(),
    });
    ran.error_message = error.map(|error| error.to_string().chars().take(MAX_MESSAGE).collect());
}

/// Finds the place of a value that somebody asks for; the first without one.
fn place_of(definition: &DetectorDefinition, value: Option<&str>) -> Result<usize> {
    match value {
        None => Ok(0),
        Some(value) => definition
            .values()
            .iter()
            .position(|one| *one == Some(value))
            .ok_or_else(|| Error::invalid("value", "is none of [multiply_by_values] of the rule")),
    }
}

/// Lists the log templates of a detector of text, the most frequent first.
///
/// # Errors
/// [`Error::Invalid`] for another value, or a detector of something else; [`Error::Run`] before the first training.
pub(crate) async fn templates(
    shared: &IntelligenceContext,
    kept: &StoredDetector,
    value: Option<&str>,
) -> Result<Value> {
    if kept.definition.model_type != ModelType::Text {
        return Err(Error::invalid("id", "names a rule without templates: only rules of [text] have them"));
    }
    let not_trained = || Error::Run("the rule has no model yet: run it first".to_owned());
    let serving = kept.serving.as_ref().ok_or_else(not_trained)?;
    let place = place_of(serving, value)?;
    let name = training::model_name(kept.state.build, place);
    let bytes = shared.artefacts.read_bytes(&kept.id, &name).await.ok_or_else(not_trained)?;
    let bucket_ms = serving.window.bucket().ms();
    let list = move || {
        let snapshot = ModelSnapshot::decode(&bytes);
        Ok(snapshot.map(|snapshot| match snapshot.model {
            DetectorModel::Text(model) => model
                .templates()
                .into_iter()
                .map(|template| {
                    json!({
                        "id": template.id,
                        "template": template.text,
                        "count": template.count,
                        "example": template.example,
                        "first_seen": time::iso(template.first_bucket.saturating_mul(bucket_ms)),
                        "last_seen": time::iso(template.last_bucket.saturating_mul(bucket_ms)),
                    })
                })
                .collect(),
            _ => Value::Array(Vec::new()),
        }))
    };
    shared
        .engine
        .compute()
        .run(Priority::Foreground, list)
        .await?
        .map_err(|reason| Error::Run(format!("the model of the rule cannot be read, run it anew: {reason}")))
}
