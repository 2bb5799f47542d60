//! Scores of stored documents: of history before the first model, of the window of a run by hand, and of what a detector has missed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use millrace_percolator::Matching;
use millrace_query::QueryContext;
use millrace_runtime::tasks::TaskHandle;
use millrace_runtime::{Error as StorageError, Priority};

use super::frame_scoring::FrameScoring;
use super::loading::match_request;
use super::position::write_results;
use super::scoring::LiveDetector;
use crate::IntelligenceContext;
use crate::error::{Error, Result};
use crate::run::cancelled;

/// Documents are stored before their event time by this at most: clocks of senders that are ahead.
const SKEW_MS: i64 = 86_400_000;
/// Frames that are scored at once, and their operations: a cancelled task ends behind them.
const MAX_FRAMES: usize = 256;
const MAX_ROWS: usize = 4_000;
/// Results that are scored and written at once.
const MAX_RESULTS: usize = 2_000;

/// Scores the documents of stored frames, from an event time on, and writes the results. The ids are those of the feed: a document that
/// both come by has one result. A detector whose model has failed comes back at once, with its failure.
///
/// # Errors
/// The store's; a cancellation; [`Error::NotFound`] and [`Error::Conflict`] once the detector is deleted or changed.
pub(super) async fn score_stored(
    shared: &Arc<IntelligenceContext>,
    mut detector: LiveDetector,
    frames: Range<u64>,
    from_ms: Option<i64>,
    task: Option<&TaskHandle>,
    priority: Priority,
) -> Result<LiveDetector> {
    let (engine, id) = (&shared.engine, detector.stored.id.clone());
    let (revision, build) = (detector.stored.state.revision, detector.stored.state.build);
    let since = std::mem::replace(&mut detector.since, frames.start);
    let mut matching = Matching::new(engine, &shared.accounts, priority);
    matching.request(match_request(&detector));
    let work = QueryContext::default();
    // A caller that goes away ends the choice of rows, too.
    let _ends = work.until_dropped();
    let of_choice = work.clone();
    let find = move || {
        let chosen = matching.stored(&of_choice);
        Ok((matching, chosen))
    };
    let (mut matching, (indices, choice)) = engine.compute().run(priority, find).await?;
    let times = from_ms.map_or(i64::MIN, |from| from.saturating_sub(SKEW_MS))..i64::MAX;
    let mut reading = engine.read_back_chosen(&indices, frames, times, &choice).await?.at(priority);
    let mut detectors = BTreeMap::from([(id.clone(), detector)]);
    loop {
        shared.check_stopping()?;
        let now = shared.store.detector(&id).ok_or_else(|| Error::NotFound(id.clone()))?;
        // The follower of the feed goes on with its models while another definition waits for a run.
        let is_same = if task.is_some() { now.state.revision == revision } else { now.state.build == build };
        if !is_same {
            return Err(Error::Conflict(format!("AI rule [{id}] was changed while history was scored")));
        }
        if let Some(task) = task {
            task.check().map_err(cancelled)?;
        }
        let (mut some, mut rows) = (Vec::new(), 0);
        while some.len() < MAX_FRAMES
            && rows < MAX_ROWS
            && let Some(frame) = reading.next().await?
        {
            rows += frame.parts.iter().map(|part| part.ops.len()).sum::<usize>();
            some.push(frame);
        }
        if some.is_empty() {
            break;
        }
        let job = move || {
            let evaluable = matching.run(&some);
            Ok((matching, FrameScoring::new(evaluable, 0, from_ms).in_pieces_of(MAX_RESULTS)))
        };
        let mut scoring;
        (matching, scoring) = engine.compute().run(priority, job).await?;
        while !scoring.is_done() {
            let job = move || {
                let documents = scoring.run(&mut detectors);
                Ok((scoring, detectors, documents))
            };
            let documents;
            (scoring, detectors, documents) = engine.compute().run(priority, job).await?;
            if let Some(refused) = write_results(engine, documents).await?
                && let Some(detector) = detectors.get_mut(&id)
            {
                detector.tally.problem = Some(refused.reason);
            }
        }
        for (id, reason) in matching.problems().into_iter().chain(matching.take_told()) {
            if let Some(detector) = detectors.get_mut(&id) {
                detector.tally.problem = Some(reason);
            }
        }
        for (id, detector) in &detectors {
            shared.detectors.publish(id, &detector.tally);
        }
        if detectors.values().any(|detector| detector.failure.is_some()) {
            break;
        }
    }
    let mut detector = detectors
        .remove(&id)
        .ok_or_else(|| StorageError::Internal("the models of an AI rule are gone".to_owned()))?;
    detector.since = since;
    Ok(detector)
}
