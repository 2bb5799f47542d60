//! The task that follows the change feed for detectors: frames are gathered for a moment, their documents matched and scored on a compute
//! thread, and results are written with the position before the next frames are.
//!
//! While results cannot be written nothing is scored: the lease holds the log, and after that a gap is told. Text models change
//! with each line. They are stored now and then, with the frame behind their last line; after a crash the lines from there on are observed
//! again, and those before the position give no results.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millrace_alerting::{MatchRequest, Matching};
use millrace_catalog::frame::AppliedFrame;
use millrace_engine::{FeedItem, FeedReader};
use millrace_runtime::{Error as StorageError, Instant, Priority};
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout_at};

use super::algorithm::ModelType;
use super::history;
use super::model::{self, DetectorModel, ModelSnapshot};
use super::position::{FeedPosition, READER};
use super::scoring::{LiveDetector, ScoringTally, SeriesProgress, ValueModel, score_frames};
use super::stored::StoredDetector;
use super::{results, series, training};
use crate::IntelligenceContext;
use crate::error::{Error, Result};

/// Time for which frames are gathered.
const GATHERED: Duration = Duration::from_millis(20);
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
                return Ok(());
            }
            scorer.tick().await?;
            next_tick = Instant::now() + TICK;
        }
    }
}

fn rows_of(frame: &AppliedFrame) -> usize {
    frame.parts.iter().map(|part| part.ops.len()).sum()
}

/// Takes the frames that come within a moment; those behind a gap are not among them.
async fn gather(
    reader: &mut FeedReader,
    first: Arc<AppliedFrame>,
) -> Result<(Vec<Arc<AppliedFrame>>, Option<(u64, u64)>)> {
    let until = Instant::now() + GATHERED;
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

/// Makes the request that the documents of a detector match.
pub(super) fn match_request(detector: &LiveDetector) -> MatchRequest {
    let definition = &detector.definition;
    let expression = definition.expression();
    MatchRequest {
        id: detector.stored.id.clone(),
        owner: detector.stored.state.serving_owner.clone(),
        parts: expression.split(',').filter(|part| !part.starts_with('-')).map(str::to_owned).collect(),
        expression,
        body: json!({"query": definition.query}),
        second: None,
        include_updates: false,
        allow_alerts: false,
        timestamp_field: definition.time_field.clone(),
    }
}

/// Reads the models of a detector that serve; `None` where one of them cannot be used, so that they are trained anew.
///
/// # Errors
/// The store's.
pub(super) async fn load(
    shared: &IntelligenceContext,
    stored: &Arc<StoredDetector>,
) -> Result<Option<LiveDetector>> {
    let Some(definition) = stored.serving.clone() else { return Ok(None) };
    let mut files = Vec::new();
    for place in 0..definition.values().len() {
        let name = training::model_name(stored.state.build, place);
        files.push(shared.artefacts.read_bytes(&stored.id, &name).await);
    }
    let failed: Vec<usize> = stored.state.untrained.clone();
    let decode = move || {
        let decoded = files.into_iter().enumerate().map(|(place, bytes)| match bytes {
            Some(bytes) => ModelSnapshot::decode(&bytes).map(Some),
            None if failed.contains(&place) => Ok(None),
            None => Err("its file is missing".to_owned()),
        });
        Ok(decoded.collect::<Result<Vec<_>, String>>())
    };
    let snapshots = match shared.engine.compute().run(Priority::Background, decode).await? {
        Ok(snapshots) => snapshots,
        Err(reason) => {
            tracing::warn!(rule = stored.id, reason, "a stored model cannot be used: it is trained anew");
            return Ok(None);
        }
    };
    let observed = snapshots.iter().flatten().map(|snapshot| snapshot.next_frame).min().unwrap_or(0);
    let models = snapshots.into_iter().map(|snapshot| ValueModel::new(snapshot?.model)).collect();
    Ok(Some(LiveDetector {
        cutoff: model::cutoff(&definition)?,
        definition,
        models,
        since: stored.state.since.unwrap_or(0),
        observed,
        progress: SeriesProgress::default(),
        tally: ScoringTally { problem: None, ..shared.detectors.tally(&stored.id) },
        has_observed: false,
        stored: Arc::clone(stored),
    }))
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
            if self.unusable.get(&kept.id) == Some(&kept.state.build) {
                continue;
            }
            self.adopt(&kept).await?;
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
            self.unusable.insert(kept.id.clone(), kept.state.build);
            // Its next run is due at once.
            let anew = |kept: &mut StoredDetector| kept.state.handled_ms = 0;
            return shared.store.note_detector(&kept.id, anew).await;
        };
        let before = self.detectors.remove(&kept.id);
        let joined =
            before.as_ref().map(|before| before.progress.clone()).or_else(|| self.waiting.remove(&kept.id));
        if let Some(before) = before {
            detector.tally = before.tally;
            detector.tally.problem = None;
        }
        match joined {
            Some(progress) => detector.progress = progress,
            None => {
                detector.progress.next = first_bucket(&detector);
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
        if let Some(matching) = &mut self.matching {
            matching.request(match_request(&detector));
        }
        shared.detectors.publish(&kept.id, &detector.tally);
        self.detectors.insert(kept.id.clone(), detector);
        // That it has joined is durable before it is asked of more.
        self.commit(Vec::new()).await
    }

    /// Scores the documents of frames, and writes the results.
    async fn score(&mut self, frames: Vec<Arc<AppliedFrame>>) -> Result<()> {
        let Some(last) = frames.last().map(|frame| frame.number) else { return Ok(()) };
        let Some(mut matching) = self.matching.take() else {
            return Err(StorageError::Internal("the filters of AI rules are gone".to_owned()).into());
        };
        let (mut detectors, committed) = (std::mem::take(&mut self.detectors), self.next);
        let job = move || {
            let evaluable = matching.run(&frames);
            let documents = score_frames(&mut detectors, evaluable, committed, None);
            let problems = matching.problems();
            for (id, reason) in problems.into_iter().chain(matching.take_told()) {
                if let Some(detector) = detectors.get_mut(&id) {
                    detector.tally.problem = Some(reason);
                }
            }
            Ok((matching, detectors, documents))
        };
        let (matching, detectors, documents) =
            self.shared.engine.compute().run(Priority::Follow, job).await?;
        (self.matching, self.detectors) = (Some(matching), detectors);
        self.next = self.next.max(last + 1);
        let is_due = self.committed.elapsed() >= POSITION_EVERY && self.moved() > 1;
        let is_late = self.detectors.values().any(|detector| !detector.progress.late.is_empty());
        if !documents.is_empty() || is_due || is_late {
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

    /// Writes results with the position, however long that takes, or until the server stops.
    async fn commit(&mut self, documents: Vec<results::ScoredDocument>) -> Result<()> {
        let mut progress = self.waiting.clone();
        progress.extend(self.detectors.iter().map(|(id, detector)| (id.clone(), detector.progress.clone())));
        loop {
            let written = self.position.commit(&self.shared.engine, &documents, self.next, &progress).await;
            match written {
                Ok(refused) => {
                    self.shared.detectors.set_fault(refused);
                    break;
                }
                Err(error @ Error::Storage(StorageError::PositionMoved { .. })) => return Err(error),
                Err(error) if self.shared.check_stopping().is_err() => return Err(error),
                Err(error) => {
                    let reason =
                        format!("results of AI rules cannot be written, so nothing is scored: {error}");
                    self.shared.detectors.set_fault(Some(reason));
                }
            }
            sleep(RETRY).await;
        }
        self.committed = Instant::now();
        self.move_lease()
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
        let mut all = Vec::new();
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
                    all.extend(scored.documents);
                }
                Err(error) => {
                    detector.tally.problem = Some(format!("buckets cannot be scored: {error}"));
                    self.read_again.insert(id.clone(), Instant::now() + READ_AGAIN);
                }
            }
        }
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
                let snapshot = ModelSnapshot { model: DetectorModel::Text((**model).clone()), next_frame };
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

/// Returns the number of the first bucket that a detector scores: that of `start_date`, or the first behind its training.
fn first_bucket(detector: &LiveDetector) -> i64 {
    let latest = detector.models.iter().flatten().filter_map(|model| match model {
        ValueModel::Series(model) => Some(model.latest() + 1),
        _ => None,
    });
    let behind = latest.max().unwrap_or(0);
    let start =
        detector.definition.start_ms.map(|ms| ms.div_euclid(detector.definition.window.bucket().ms()));
    start.map_or(behind, |start| start.min(behind))
}
