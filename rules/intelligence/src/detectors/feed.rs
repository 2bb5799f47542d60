//! The task that follows the change feed for detectors: frames are gathered for a moment, their documents matched and scored on a compute
//! thread, and results are written with the position before the next frames are.
//!
//! While results cannot be written nothing is scored: the lease holds the log, and after that a gap is told. Text models change
//! with each line. They are stored now and then, with the frame behind their last line; after a crash the lines from there on are observed
//! again, and those before the position give no results.

mod model_failure;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millrace_catalog::frame::AppliedFrame;
use millrace_engine::{FeedItem, FeedReader};
use millrace_percolator::Matching;
use millrace_runtime::{Error as StorageError, Instant, Priority};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout_at};

use super::algorithm::ModelType;
use super::frame_scoring::FrameScoring;
use super::history;
use super::loading::{first_bucket, load, match_request};
use super::model::{DetectorModel, ModelSnapshot};
use super::position::{self, FeedPosition, READER, RefusedResult};
use super::results::ScoredDocument;
use super::scoring::{LiveDetector, ScoringTally, SeriesProgress, ValueModel};
use super::stored::StoredDetector;
use super::{series, training};
use crate::IntelligenceContext;
use crate::error::{Error, Result};

/// Time for which frames are gathered: each step has a cost of its own, whose share is small in steps of many documents.
const GATHERED: Duration = Duration::from_millis(100);
/// Frames that are gathered, and their operations and bytes.
const MAX_FRAMES: usize = 1_024;
const MAX_ROWS: usize = 20_000;
const MAX_BYTES: usize = 32 << 20;
/// Interval between two checks for closed buckets and changed detectors.
const TICK: Duration = Duration::from_secs(1);
/// Interval at which the position is stored where no result takes it along.
const POSITION_EVERY: Duration = Duration::from_secs(30);
/// Interval at which text models are stored.
const SNAPSHOT_EVERY: Duration = Duration::from_secs(30);
/// Frames that a text model without new lines may hold the log by.
const MAX_BEHIND: u64 = 10_000;
/// Wait before something that failed is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// Wait before the buckets of a detector are read again that could not be read.
const READ_AGAIN: Duration = Duration::from_secs(10);

/// The task that follows the feed; it ends with this.
#[derive(Debug)]
pub(crate) struct FeedFollower(Mutex<Option<JoinHandle<()>>>);

impl FeedFollower {
    /// Waits until it has ended, once the context says that it is to.
    pub(crate) async fn stop(&self) {
        let task = self.0.lock().take();
        if let Some(task) = task
            && let Err(error) = task.await
        {
            tracing::error!(%error, "following the feed for AI rules has failed");
        }
    }
}

impl Drop for FeedFollower {
    fn drop(&mut self) {
        if let Some(task) = self.0.lock().take() {
            task.abort();
        }
    }
}

/// Starts to follow the feed.
pub(crate) fn follow(shared: &Arc<IntelligenceContext>) -> FeedFollower {
    FeedFollower(Mutex::new(Some(tokio::spawn(run(Arc::clone(shared))))))
}

async fn run(shared: Arc<IntelligenceContext>) {
    let mut stopping = shared.stopping.subscribe();
    loop {
        if shared.check_stopping().is_err() {
            return;
        }
        let wait = match follow_live(&shared).await {
            Ok(()) => None,
            Err(_) if shared.check_stopping().is_err() => return,
            Err(error) => {
                shared.detectors.set_fault(Some(format!("AI rules do not score what arrives: {error}")));
                Some(RETRY)
            }
        };
        tokio::select! {
            _ = stopping.changed() => {}
            () = shared.detectors.changed.notified(), if wait.is_none() => {}
            () = sleep(wait.unwrap_or_default()), if wait.is_some() => {}
        }
    }
}

/// Detectors that score what arrives.
fn live(shared: &IntelligenceContext) -> Vec<Arc<StoredDetector>> {
    shared.store.detectors().into_iter().filter(|kept| kept.is_live()).collect()
}

/// Follows the feed while there are live detectors.
async fn follow_live(shared: &Arc<IntelligenceContext>) -> Result<()> {
    if live(shared).is_empty() {
        shared.detectors.set_fault(None);
        return Ok(shared.engine.release_lease(READER).await?);
    }
    let mut scorer = Scorer::recover(shared).await?;
    shared.detectors.set_fault(None);
    let mut reader = shared.engine.follow(Some(scorer.begin()))?;
    let mut stopping = shared.stopping.subscribe();
    let mut next_tick = Instant::now();
    loop {
        if shared.check_stopping().is_err() {
            scorer.store_models().await;
            return Ok(());
        }
        let event = tokio::select! {
            _ = stopping.changed() => None,
            () = shared.detectors.changed.notified() => { next_tick = Instant::now(); None }
            item = reader.next() => Some(item?),
            () = tokio::time::sleep_until(next_tick) => None,
        };
        match event {
            None => {}
            Some(FeedItem::Gap { from, to }) => scorer.skip(from, to),
            Some(FeedItem::Frame(first)) => {
                let (frames, gap) = gather(&mut reader, first).await?;
                scorer.sync().await?;
                scorer.score(frames).await?;
                if let Some((from, to)) = gap {
                    scorer.skip(from, to);
                }
            }
        }
        if Instant::now() >= next_tick {
            scorer.sync().await?;
            if scorer.detectors.is_empty() && live(shared).is_empty() {
                scorer.commit(Vec::new()).await?;
                return Ok(shared.engine.release_lease(READER).await?);
            }
            scorer.tick().await?;
            next_tick = Instant::now() + TICK;
        }
    }
}

/// Takes the frames that come within a moment; those behind a gap are not among them.
async fn gather(
    reader: &mut FeedReader,
    first: Arc<AppliedFrame>,
) -> Result<(Vec<Arc<AppliedFrame>>, Option<(u64, u64)>)> {
    let until = Instant::now() + GATHERED;
    let rows_of = |frame: &AppliedFrame| frame.parts.iter().map(|part| part.ops.len()).sum::<usize>();
    let (mut rows, mut bytes) = (rows_of(&first), first.heap_bytes());
    let mut frames = vec![first];
    while rows < MAX_ROWS && bytes < MAX_BYTES && frames.len() < MAX_FRAMES {
        match timeout_at(until, reader.next()).await {
            Err(_) => break,
            Ok(item) => match item? {
                FeedItem::Gap { from, to } => return Ok((frames, Some((from, to)))),
                FeedItem::Frame(frame) => {
                    rows += rows_of(&frame);
                    bytes += frame.heap_bytes();
                    frames.push(frame);
                }
            },
        }
    }
    Ok((frames, None))
}

/// The detectors with their models, and the position behind what they have scored.
struct Scorer {
    shared: Arc<IntelligenceContext>,
    position: FeedPosition,
    /// `None` while a job has it.
    matching: Option<Matching>,
    detectors: BTreeMap<String, LiveDetector>,
    /// Progress of detectors that are live, but not loaded yet.
    waiting: BTreeMap<String, SeriesProgress>,
    /// Builds of detectors whose models cannot be used.
    unusable: BTreeMap<String, u64>,
    /// First frame that was not scored.
    next: u64,
    committed: Instant,
    stored: Instant,
    read_again: BTreeMap<String, Instant>,
    /// First result that was refused for good since the last commit.
    refused: Option<RefusedResult>,
}

impl Scorer {
    /// Goes on where the position is.
    async fn recover(shared: &Arc<IntelligenceContext>) -> Result<Self> {
        let engine = &shared.engine;
        let position = FeedPosition::claim(engine).await?;
        let mut waiting = position.progress();
        waiting.retain(|id, _| shared.store.detector(id).is_some_and(|kept| kept.is_live()));
        // Detectors that have not joined read what they have missed from what is stored.
        let next = match (position.next(), waiting.is_empty()) {
            (Some(next), false) => next,
            (next, _) => engine.feed_end()?.max(next.unwrap_or(0)),
        };
        let now = Instant::now();
        let mut scorer = Self {
            matching: Some(Matching::new(engine, &shared.accounts, Priority::Follow)),
            shared: Arc::clone(shared),
            position,
            detectors: BTreeMap::new(),
            waiting,
            unusable: BTreeMap::new(),
            next,
            committed: now,
            stored: now,
            read_again: BTreeMap::new(),
            refused: None,
        };
        // Before anything may cut the log that is needed.
        engine.take_lease(READER, Some(next)).await?;
        scorer.sync().await?;
        Ok(scorer)
    }

    /// Returns the first frame that is read: of those behind the position, and of those that text models have not observed.
    fn begin(&self) -> u64 {
        let observed = self.detectors.values().filter(|one| one.definition.model_type == ModelType::Text);
        observed.map(|one| one.observed).filter(|observed| *observed > 0).fold(self.next, u64::min)
    }

    /// Takes up what has changed of detectors.
    async fn sync(&mut self) -> Result<()> {
        let live: BTreeMap<String, Arc<StoredDetector>> =
            live(&self.shared).into_iter().map(|kept| (kept.id.clone(), kept)).collect();
        self.detectors.retain(|id, _| live.contains_key(id));
        self.waiting.retain(|id, _| live.contains_key(id));
        self.unusable.retain(|id, _| live.contains_key(id));
        self.read_again.retain(|id, _| live.contains_key(id));
        let shared = Arc::clone(&self.shared);
        shared.detectors.retain(|id| shared.store.detector(id).is_some());
        for kept in live.into_values() {
            let known = self.detectors.get_mut(&kept.id);
            let build = known.as_ref().map(|known| known.stored.state.build);
            if let Some(known) = known
                && build == Some(kept.state.build)
            {
                if !Arc::ptr_eq(&known.stored, &kept) {
                    let owner_changed = known.stored.state.serving_owner != kept.state.serving_owner;
                    if let Some(serving) = &kept.serving {
                        known.definition = Arc::clone(serving);
                    }
                    known.stored = Arc::clone(&kept);
                    if owner_changed && let Some(matching) = &mut self.matching {
                        matching.request(match_request(known));
                    }
                }
                continue;
            }
            if self.unusable.get(&kept.id) == Some(&kept.state.build)
                || self.read_again.get(&kept.id).is_some_and(|again| Instant::now() < *again)
            {
                continue;
            }
            match self.adopt(&kept).await {
                Ok(()) | Err(Error::NotFound(_)) => {}
                Err(error @ Error::Storage(StorageError::PositionMoved { .. })) => return Err(error),
                Err(error) if shared.check_stopping().is_err() => return Err(error),
                // The others go on meanwhile.
                Err(error) => self.postpone(&kept, &error).await?,
            }
        }
        if let Some(matching) = &mut self.matching {
            for id in matching.requested().into_iter().filter(|id| !self.detectors.contains_key(id)) {
                matching.remove(&id);
            }
        }
        Ok(())
    }

    /// Takes a detector up, or its new models.
    async fn adopt(&mut self, kept: &Arc<StoredDetector>) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let Some(mut detector) = load(&shared, kept).await? else {
            // Its next run is due at once.
            self.leave(kept, |kept| kept.state.handled_ms = 0).await?;
            self.unusable.insert(kept.id.clone(), kept.state.build);
            return Ok(());
        };
        let before = self.detectors.remove(&kept.id);
        let joined =
            before.as_ref().map(|before| before.progress.clone()).or_else(|| self.waiting.remove(&kept.id));
        if let Some(before) = before {
            detector.tally = before.tally;
            detector.tally.problem = None;
        }
        let (bucket_ms, first) = (detector.definition.window.bucket().ms(), first_bucket(&detector));
        match joined {
            Some(mut progress) => {
                progress.rebase(bucket_ms, first);
                detector.progress = progress;
            }
            None => {
                detector.progress = SeriesProgress::at(first, bucket_ms);
                // Documents since it is live that others have been asked of already.
                if detector.since < self.next && detector.definition.model_type != ModelType::Univariate {
                    let (since, until) = (detector.since, self.next);
                    detector = history::score_stored(
                        &shared,
                        detector,
                        since..until,
                        None,
                        None,
                        Priority::Background,
                    )
                    .await?;
                }
                detector.since = detector.since.max(self.next);
            }
        }
        if let Some(reason) = detector.failure.take() {
            let since = kept.state.since.unwrap_or(self.next);
            return self.stop_detector(&kept.id, detector, since, Error::ModelFailed(reason)).await;
        }
        if let Some(matching) = &mut self.matching {
            matching.request(match_request(&detector));
        }
        shared.detectors.publish(&kept.id, &detector.tally);
        self.detectors.insert(kept.id.clone(), detector);
        // That it has joined is durable before it is asked of more.
        self.commit(Vec::new()).await
    }

    /// Tells why a detector cannot be taken up, which is tried again later.
    async fn postpone(&mut self, kept: &Arc<StoredDetector>, error: &Error) -> Result<()> {
        self.read_again.insert(kept.id.clone(), Instant::now() + READ_AGAIN);
        let problem = Some(format!("its models cannot be taken up, which is tried again: {error}"));
        match self.detectors.get_mut(&kept.id) {
            // The models of before serve on.
            Some(before) => before.tally.problem = problem,
            None => {
                let tally = ScoringTally { problem, ..self.shared.detectors.tally(&kept.id) };
                self.shared.detectors.publish(&kept.id, &tally);
            }
        }
        self.leave(kept, |_| {}).await
    }

    /// Lets the others go on without a detector that has no models in memory: once it has them, it reads what it has missed.
    async fn leave(&mut self, kept: &StoredDetector, change: impl FnOnce(&mut StoredDetector)) -> Result<()> {
        let is_series = |kept: &StoredDetector| kept.definition.model_type == ModelType::Univariate;
        let is_missed = self.waiting.contains_key(&kept.id) && !is_series(kept);
        let at = self.next;
        let note = |kept: &mut StoredDetector| {
            change(kept);
            if is_missed {
                kept.state.since = kept.state.since.map(|since| since.max(at));
            }
        };
        match self.shared.store.note_detector(&kept.id, note).await {
            Ok(()) | Err(Error::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
        if is_missed {
            self.waiting.remove(&kept.id);
        }
        Ok(())
    }

    /// Scores the documents of frames, and writes the results.
    async fn score(&mut self, frames: Vec<Arc<AppliedFrame>>) -> Result<()> {
        let Some(last) = frames.last().map(|frame| frame.number) else { return Ok(()) };
        let Some(mut matching) = self.matching.take() else {
            return Err(StorageError::Internal("the filters of AI rules are gone".to_owned()).into());
        };
        let committed = self.next;
        let job = move || {
            let evaluable = matching.run(&frames);
            Ok((matching, FrameScoring::new(evaluable, committed, None)))
        };
        let compute = self.shared.engine.compute().clone();
        let (mut matching, mut scoring) = compute.run(Priority::Follow, job).await?;
        let mut has_pieces = false;
        let documents = loop {
            let mut detectors = std::mem::take(&mut self.detectors);
            let job = move || {
                let documents = scoring.run(&mut detectors);
                Ok((scoring, detectors, documents))
            };
            let documents;
            (scoring, self.detectors, documents) = compute.run(Priority::Follow, job).await?;
            if scoring.is_done() {
                break documents;
            }
            self.append(documents).await?;
            has_pieces = true;
        };
        for (id, reason) in matching.problems().into_iter().chain(matching.take_told()) {
            if let Some(detector) = self.detectors.get_mut(&id) {
                detector.tally.problem = Some(reason);
            }
        }
        self.matching = Some(matching);
        self.stop_failed(committed).await?;
        self.next = self.next.max(last + 1);
        let is_due = self.committed.elapsed() >= POSITION_EVERY && self.moved() > 1;
        let is_late = self.detectors.values().any(|detector| !detector.progress.late.is_empty());
        if has_pieces || !documents.is_empty() || is_due || is_late {
            self.commit(documents).await?;
        }
        self.publish();
        Ok(())
    }

    /// Returns how many frames the stored position is behind: one alone is that of the position itself.
    fn moved(&self) -> u64 {
        self.next.saturating_sub(self.position.next().unwrap_or(0))
    }

    fn publish(&self) {
        for (id, detector) in &self.detectors {
            self.shared.detectors.publish(id, &detector.tally);
        }
    }

    /// Writes results with the position.
    async fn commit(&mut self, documents: Vec<ScoredDocument>) -> Result<()> {
        let mut progress = self.waiting.clone();
        progress.extend(self.detectors.iter().map(|(id, detector)| (id.clone(), detector.progress.clone())));
        let documents = Arc::new(documents);
        loop {
            let written = self.position.commit(&self.shared.engine, &documents, self.next, &progress).await;
            if self.is_written(written).await? {
                break;
            }
        }
        position::free(&self.shared.engine, documents);
        let refused = self.refused.take();
        self.shared.detectors.set_fault(refused.map(|refused| refused.reason));
        self.committed = Instant::now();
        self.move_lease()
    }

    /// Writes results that a commit follows.
    async fn append(&mut self, documents: Vec<ScoredDocument>) -> Result<()> {
        let documents = Arc::new(documents);
        loop {
            let written = position::append_results(&self.shared.engine, &documents).await;
            if self.is_written(written).await? {
                position::free(&self.shared.engine, documents);
                return Ok(());
            }
        }
    }

    /// Takes the outcome of a write; false where it is to be tried again, which is after a pause, however often.
    ///
    /// # Errors
    /// The position has moved, or the server stops.
    async fn is_written(&mut self, written: Result<Option<RefusedResult>>) -> Result<bool> {
        match written {
            Ok(None) => return Ok(true),
            Ok(Some(refused)) => {
                for detector in self.detectors.values_mut() {
                    if refused.index.starts_with(&detector.definition.result_prefix) {
                        detector.tally.problem = Some(refused.reason.clone());
                    }
                }
                self.refused.get_or_insert(refused);
                return Ok(true);
            }
            Err(error @ Error::Storage(StorageError::PositionMoved { .. })) => return Err(error),
            Err(error) if self.shared.check_stopping().is_err() => return Err(error),
            Err(error) => {
                let reason = format!("results of AI rules cannot be written, so nothing is scored: {error}");
                self.shared.detectors.set_fault(Some(reason));
            }
        }
        sleep(RETRY).await;
        Ok(false)
    }

    /// Lets the log go that neither the position nor a text model needs any more.
    fn move_lease(&self) -> Result<()> {
        Ok(self
            .shared
            .engine
            .move_lease(READER, self.begin().min(self.position.next().unwrap_or(self.next)))?)
    }

    /// Tells that frames are gone before they were scored.
    fn skip(&mut self, from: u64, to: u64) {
        // Text models may have wanted to observe what is written already.
        if to <= self.next {
            tracing::warn!(
                from,
                to,
                "templates of AI rules lack the lines of frames that were cut from the log"
            );
            return;
        }
        self.next = to;
        for detector in self.detectors.values_mut() {
            detector.tally.problem = Some(format!(
                "frames {from} to {} were cut from the log before their documents were scored: run the rule over them with \
                 [start_date]",
                to.saturating_sub(1)
            ));
        }
        self.publish();
    }

    /// Does what is due: closed buckets, text models, an idle lease.
    async fn tick(&mut self) -> Result<()> {
        self.score_buckets().await?;
        if self.stored.elapsed() >= SNAPSHOT_EVERY {
            self.store_models().await;
        }
        self.move_lease()
    }

    /// Scores the buckets that have closed.
    async fn score_buckets(&mut self) -> Result<()> {
        let now_ms = self.shared.engine.clock().now_ms();
        let (mut all, first) = (Vec::new(), self.next);
        for (id, detector) in &mut self.detectors {
            if detector.definition.model_type != ModelType::Univariate
                || self.read_again.get(id).is_some_and(|again| Instant::now() < *again)
            {
                continue;
            }
            match series::score_closed(&self.shared, detector, now_ms, Priority::Follow).await {
                Ok(None) => {}
                Ok(Some(scored)) => {
                    detector.progress = scored.progress;
                    detector.tally.scored += scored.documents.len() as u64;
                    detector.tally.anomalies += scored.anomalies;
                    detector.tally.problem = None;
                    for (place, model) in scored.models {
                        if let Some(known) = detector.models.get_mut(place) {
                            *known = Some(ValueModel::Series(model));
                        }
                    }
                    all.extend(scored.documents);
                }
                Err(Error::ModelFailed(reason)) => detector.failure = Some(reason),
                Err(error) => {
                    detector.tally.problem = Some(format!("buckets cannot be scored: {error}"));
                    self.read_again.insert(id.clone(), Instant::now() + READ_AGAIN);
                }
            }
        }
        self.stop_failed(first).await?;
        if !all.is_empty() {
            self.commit(all).await?;
        }
        self.publish();
        Ok(())
    }

    /// Stores the text models that have observed lines; what cannot be stored is tried again.
    async fn store_models(&mut self) {
        self.stored = Instant::now();
        // Results up to here are written.
        let next_frame = self.position.next().unwrap_or(self.next).min(self.next);
        for (id, detector) in &mut self.detectors {
            let behind = next_frame.saturating_sub(detector.observed);
            if !detector.has_observed
                && (detector.definition.model_type != ModelType::Text || behind < MAX_BEHIND)
            {
                continue;
            }
            let mut is_stored = true;
            for (place, model) in detector.models.iter().enumerate() {
                let Some(ValueModel::Text(model)) = model else { continue };
                let snapshot = ModelSnapshot { model: DetectorModel::Text(Arc::clone(model)), next_frame };
                let encode = move || Ok(snapshot.encode());
                let Ok(bytes) = self.shared.engine.compute().run(Priority::Background, encode).await else {
                    return;
                };
                let name = training::model_name(detector.stored.state.build, place);
                if let Err(reason) = self.shared.artefacts.write_bytes(id, &name, bytes).await {
                    detector.tally.problem = Some(format!("its templates are not stored: {reason}"));
                    is_stored = false;
                }
            }
            if is_stored {
                (detector.observed, detector.has_observed) = (next_frame, false);
            }
        }
    }
}
