//! AI rules at work: forecasts of what saved searches find, run by schedule over aggregates, and detectors, whose models score what arrives.
//! Rules are kept as documents, and their results are written as documents.
//!
//! [`Intelligence`] is the way in. `millrace-api` hands it what users ask of rules; it reads buckets through
//! [`SearchService`] with the rights that `millrace-accounts` says the owner has, has the pure models of `millrace-forecast` predict, and
//! writes to `intelligence`. `docs/ai.md` is the users' side.
//!
//! - [`definition`], [`frame`], [`schedule`]: what a rule says
//! - [`store`]: rules as documents, with what runs maintain
//! - [`source`], [`kuery`]: the saved search that a rule reads
//! - [`samples`], [`walk`], [`run`], [`fill`], [`active_backfills`]: a run, from which times it predicts, and what became of that
//! - [`documents`], [`results`], [`artefacts`], [`run_record`]: what runs write: predictions, models for later, and what stands on the record
//! - [`scheduler`], [`in_flight`]: when rules run, and a run from its turn to what is noted of it
//! - [`picture`]: a rule's last predictions as a picture
//! - [`detectors`]: rules with a model, which score documents and buckets as they arrive

#[cfg(test)]
extern crate self as millrace_intelligence;

mod active_backfills;
mod artefacts;
mod definition;
mod detectors;
mod documents;
mod error;
mod fill;
mod frame;
mod in_flight;
mod kuery;
mod picture;
mod results;
mod run;
mod run_record;
mod samples;
mod scheduler;
mod source;
mod store;
mod time;
mod training_job;
mod walk;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use millrace_accounts::Accounts;
use millrace_catalog::access::{Caller, Principal};
use millrace_engine::Engine;
use millrace_query::SearchService;
use millrace_runtime::{Error as StorageError, EventLoop, Priority};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinError;
use uuid::Uuid;

use crate::active_backfills::ActiveBackfills;
use crate::artefacts::Artefacts;
use crate::definition::Definition;
use crate::detectors::{DetectorRegistry, FeedFollower};
use crate::source::Source;
use crate::store::{RuleDocument, State, Store, StoredRule};

pub use error::{Error, Result};
pub use store::INDEX as RULES_INDEX;

/// Runs at a time.
const TURNS: usize = 2;
/// Pictures that are drawn at a time; others wait.
const PICTURES: usize = 4;
/// Runs of a rule's schedule that end with the server, one after another, until they are not made up any more.
const MAX_TRIES: u32 = 2;
/// Name of the role that may do everything.
const ADMIN: &str = "admin";

/// AI rules at work; cheap to clone. They end with the last clone, as after a crash, but for runs under way:
/// [`Intelligence::stop`] has them end.
#[derive(Clone)]
pub struct Intelligence {
    shared: Arc<IntelligenceContext>,
    /// The loops of schedules and of predictions' outcomes; none once they are to end.
    event_loops: Arc<Mutex<Vec<EventLoop>>>,
    /// The task that scores what arrives.
    follower: Arc<FeedFollower>,
}

impl fmt::Debug for Intelligence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intelligence").field("rules", &self.shared.store.all().len()).finish_non_exhaustive()
    }
}

/// Context that the parts share.
#[derive(Debug)]
pub(crate) struct IntelligenceContext {
    pub(crate) engine: Arc<Engine>,
    /// Yields to what users ask.
    pub(crate) search: SearchService,
    /// For what users ask.
    pub(crate) asked: Arc<SearchService>,
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) store: Store,
    pub(crate) artefacts: Artefacts,
    /// Rules that run.
    running: Arc<Mutex<HashSet<String>>>,
    /// Rules whose predictions are filled in.
    pub(crate) fillings: ActiveBackfills,
    pub(crate) detectors: DetectorRegistry,
    turns: Arc<Semaphore>,
    pictures: Semaphore,
    /// Held for reading by each run until it is over, with what is filled in behind it.
    in_flight: Arc<tokio::sync::RwLock<()>>,
    pub(crate) stopping: watch::Sender<bool>,
}

/// Returns whether somebody may do everything with rules.
fn is_admin(asker: &Principal) -> bool {
    asker.privileges().is_unrestricted() || asker.roles().iter().any(|role| role == ADMIN)
}

/// Returns whether somebody may see and run a rule.
fn may_run(asker: &Principal, kept: &RuleDocument) -> bool {
    is_admin(asker) || asker.roles().iter().any(|role| kept.roles().contains(role))
}

/// Refuses who may not save rules.
pub(crate) fn check_saves(asker: &Principal) -> Result<()> {
    if let Caller::ApiKey { .. } = asker.caller() {
        let reason = "an AI rule runs with the rights of the user who saves it: it cannot be an API key's";
        return Err(Error::Forbidden(reason.to_owned()));
    }
    match is_admin(asker) {
        true => Ok(()),
        false => Err(Error::Forbidden(format!("AI rules are saved and deleted by the role [{ADMIN}] alone"))),
    }
}

impl Intelligence {
    /// Loads the rules and follows their schedules. Those that ran when the server ended do not any more.
    ///
    /// # Errors
    /// The store's.
    pub async fn start(
        engine: &Arc<Engine>,
        search: &Arc<SearchService>,
        accounts: &Arc<Accounts>,
    ) -> Result<Self> {
        let store = Store::load(engine).await?;
        store.rebase_restored(&engine.metadata()).await?;
        let shared = Arc::new(IntelligenceContext {
            engine: Arc::clone(engine),
            search: search.spare(),
            asked: Arc::clone(search),
            accounts: Arc::clone(accounts),
            store,
            artefacts: Artefacts::new(engine),
            running: Arc::default(),
            fillings: ActiveBackfills::default(),
            detectors: DetectorRegistry::default(),
            turns: Arc::new(Semaphore::new(TURNS)),
            pictures: Semaphore::new(PICTURES),
            in_flight: Arc::default(),
            stopping: watch::Sender::new(false),
        });
        for kept in shared.store.all().into_iter().filter(|kept| kept.ran.pid != 0) {
            let noted = shared.store.note(&kept.id, |kept| mark_interrupted(kept, engine.clock().now_ms()));
            if let Err(error) = noted.await {
                tracing::warn!(rule = kept.id, %error, "an AI rule is still marked as running");
            }
        }
        for kept in shared.store.all().into_iter().filter(|kept| kept.state.search_digest.is_empty()) {
            shared.adopt_search(&kept).await;
        }
        detectors::recover(&shared).await;
        shared.artefacts.sweep(shared.store.all(), &shared.store.detectors()).await;
        results::bring_up_to_date(engine).await;
        let event_loops = scheduler::spawn(&shared);
        let follower = detectors::follow(&shared);
        Ok(Self { shared, event_loops: Arc::new(Mutex::new(event_loops)), follower: Arc::new(follower) })
    }

    /// Starts no more runs, and waits for those that are under way: they end at their next step.
    pub async fn stop(&self) {
        self.shared.stopping.send_replace(true);
        let event_loops = std::mem::take(&mut *self.event_loops.lock());
        for event_loop in event_loops {
            if let Err(error) = event_loop.drain().await {
                tracing::error!(%error, "following the schedules of AI rules has failed");
            }
        }
        self.follower.stop().await;
        // Runs that were asked for follow no schedule.
        drop(self.shared.in_flight.write().await);
    }

    /// Replaces the rules in memory by those that are stored, once a restore has replaced their index. Runs in flight come to their end.
    ///
    /// # Errors
    /// The store's; the rules of before then go on until the next start.
    pub async fn reload(&self) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        spawn_uncancelled(async move {
            let now_ms = shared.engine.clock().now_ms();
            shared.store.reload(now_ms, |id| shared.is_running(id)).await?;
            shared.detectors.changed.notify_one();
            Ok(())
        })
        .await
    }

    /// Lists the rules that the asker may run, by name, each as it is stored: `_index`, `_type`, `_id`, `_source`, and `id`.
    pub fn list(&self, asker: &Principal) -> Vec<Record> {
        let mut seen = self.shared.store.documents();
        seen.retain(|kept| may_run(asker, kept));
        seen.sort_by(|one, other| one.name().cmp(other.name()));
        seen.into_iter().map(|document| self.shared.record(document)).collect()
    }

    /// Shows one of them.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn show(&self, asker: &Principal, id: &str) -> Result<Value> {
        Ok(self.shared.record(self.shared.visible(asker, id)?).value())
    }

    /// Saves a new rule; returns its id. It runs with the asker's rights.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the field, [`Error::Forbidden`], [`Error::Conflict`] for a name that is taken; nothing is stored then.
    pub async fn create(&self, asker: &Principal, body: Value) -> Result<String> {
        let id = Uuid::new_v4().to_string();
        self.save(asker, id.clone(), body).await?;
        Ok(id)
    }

    async fn save(&self, asker: &Principal, id: String, body: Value) -> Result<()> {
        let shared = &self.shared;
        let (definition, search_digest) = shared.read(asker, body).await?;
        let state = State {
            owner: asker.name().to_owned(),
            search_digest,
            revision: 1,
            handled_ms: shared.engine.clock().now_ms(),
            ..State::default()
        };
        let (shared, kept) = (Arc::clone(shared), StoredRule::new(id, definition, state));
        let document = RuleDocument::Forecast(Arc::new(kept));
        spawn_uncancelled(async move { shared.store.create(document).await }).await
    }

    /// Puts a rule in the place of another one, or of one that cannot be read; it runs with the asker's rights from then on.
    ///
    /// # Errors
    /// As [`Intelligence::create`]; [`Error::NotFound`].
    pub async fn update(&self, asker: &Principal, id: &str, body: Value) -> Result<()> {
        let shared = &self.shared;
        check_saves(asker)?;
        if shared.store.is_unreadable(id) {
            return self.save(asker, id.to_owned(), body).await;
        }
        if let RuleDocument::Detector(_) = &*shared.visible(asker, id)? {
            let reason = "is that of a rule with [model_type]: save it with POST /api/ai/change";
            return Err(Error::invalid("id", reason));
        }
        let (definition, search_digest) = shared.read(asker, body).await?;
        let definition = Arc::new(definition);
        let now_ms = shared.engine.clock().now_ms();
        let owner = asker.name().to_owned();
        let change = move |kept: &mut StoredRule| {
            let series_uid = results::series_uid(kept);
            kept.definition = definition;
            kept.state.owner = owner;
            kept.state.search_digest = search_digest;
            kept.state.revision += 1;
            kept.state.handled_ms = now_ms;
            kept.state.walked_ms = None;
            // Predictions of before are no longer its own.
            if series_uid != results::series_uid(kept) {
                (kept.state.filled_ms, kept.state.ends_ms) = (None, None);
            }
        };
        let (shared, id) = (Arc::clone(shared), id.to_owned());
        spawn_uncancelled(async move {
            shared.store.update(&id, change).await?;
            shared.artefacts.keep_of(shared.store.get(&id)).await;
            Ok(())
        })
        .await
    }

    /// Deletes a rule with its models, or one that cannot be read; its predictions stay.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Forbidden`], the store's.
    pub async fn delete(&self, asker: &Principal, id: &str) -> Result<()> {
        check_saves(asker)?;
        if !self.shared.store.is_unreadable(id) {
            self.shared.visible(asker, id)?;
        }
        let (shared, id) = (Arc::clone(&self.shared), id.to_owned());
        spawn_uncancelled(async move {
            shared.store.delete(&id).await?;
            shared.detectors.changed.notify_one();
            shared.artefacts.remove(&id).await;
            Ok(())
        })
        .await
    }

    /// Runs a rule now, and says what came of it.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Conflict`] while it runs; why it failed, which stands on its record, too.
    pub async fn run(&self, asker: &Principal, id: &str) -> Result<String> {
        self.shared.visible(asker, id)?;
        let running = self.shared.begin(id);
        let running = running.ok_or_else(|| Error::Conflict(format!("AI rule [{id}] is running")))?;
        let done = Arc::clone(&self.shared).run_uncancelled(running, None).await?;
        if let Some(message) = done.message {
            return Ok(message);
        }
        Ok(match done.predictions {
            0 => "nothing is predicted before [start_date]".to_owned(),
            predictions => {
                let (samples, reused) =
                    (done.samples, if done.reused > 0 { ", by the model of before" } else { "" });
                format!("{predictions} predictions from {samples} samples{reused}")
            }
        })
    }

    /// Draws the samples of a rule and what was predicted last, as SVG; of one value where it is multiplied.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Invalid`] for another value; why samples cannot be read.
    pub async fn plot(&self, asker: &Principal, id: &str, value: Option<&str>) -> Result<String> {
        let document = self.shared.visible(asker, id)?;
        let _turn = self.shared.pictures.acquire().await.map_err(no_turn)?;
        match &*document {
            RuleDocument::Forecast(kept) => picture::draw(&self.shared, kept, value).await,
            RuleDocument::Detector(kept) => detectors::draw(&self.shared, kept, value).await,
        }
    }

    /// Saves a detector: a new one, or one in the place of that with the `id` of the body. It runs with the asker's rights. Returns its id
    /// and a message.
    ///
    /// # Errors
    /// As [`Intelligence::create`]; [`Error::NotFound`].
    pub async fn change(&self, asker: &Principal, body: Value) -> Result<(String, String)> {
        detectors::change(&self.shared, asker, body).await
    }

    /// Lists the log templates of a detector of text, the most frequent first; of one value where it is multiplied.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Invalid`] for another value, or a detector of something else; none before the first training.
    pub async fn templates(&self, asker: &Principal, id: &str, value: Option<&str>) -> Result<Value> {
        let document = self.shared.visible(asker, id)?;
        let _turn = self.shared.pictures.acquire().await.map_err(no_turn)?;
        match &*document {
            RuleDocument::Detector(kept) => detectors::templates(&self.shared, kept, value).await,
            RuleDocument::Forecast(_) => {
                Err(Error::invalid("id", "names a forecast: only rules of [text] have templates"))
            }
        }
    }

    /// Returns the user with whose rights a rule runs, for any caller; `None` where there is no such rule.
    pub fn owner(&self, id: &str) -> Option<String> {
        self.shared.store.document(id).map(|kept| kept.owner().to_owned())
    }

    /// Returns the obstacles of rules; nothing where all is well.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = self.shared.store.unreadable();
        faults.extend(self.shared.detectors.faults());
        faults
    }
}

/// Notes that a run did not end. One that may be what ended the server is not made up again and again.
fn mark_interrupted(kept: &mut StoredRule, now_ms: i64) {
    let mut message = "the server ended while the rule ran".to_owned();
    let tries = kept.state.tries;
    if tries >= MAX_TRIES {
        kept.state.handled_ms = kept.state.handled_ms.max(now_ms);
        message.push_str(&format!(
            ", {tries} times: the run is not made up, the next is at the next time of the schedule"
        ));
    }
    kept.ran.pid = 0;
    kept.ran.exit_code = Some(1);
    kept.ran.error_description = Some("interrupted".to_owned());
    kept.ran.error_message = Some(message);
}

/// Goes on with something without a waiting caller, as when a client goes away: stored and remembered state stay the same.
pub(crate) async fn spawn_uncancelled<T: Send + 'static>(
    future: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let failed = |error: JoinError| Err(StorageError::Internal(error.to_string()).into());
    tokio::spawn(future).await.unwrap_or_else(failed)
}

fn no_turn(_: AcquireError) -> StorageError {
    StorageError::Internal("no AI rule has a turn".to_owned())
}

/// A rule that somebody may see.
#[derive(Clone, Debug)]
pub struct Record {
    document: Arc<RuleDocument>,
    /// Members that are not stored: the status of a detector.
    status: Value,
}

impl Record {
    /// Writes it as it is stored.
    pub fn value(&self) -> Value {
        let (id, mut source) = match &*self.document {
            RuleDocument::Forecast(kept) => (&kept.id, kept.to_json()),
            RuleDocument::Detector(kept) => (&kept.id, kept.to_json()),
        };
        if let (Value::Object(members), Value::Object(status)) = (&mut source, &self.status) {
            members.extend(status.clone());
        }
        json!({"id": id, "_index": store::INDEX, "_type": "_doc", "_id": id, "_source": source})
    }
}

impl IntelligenceContext {
    /// Finds a rule that somebody may see.
    pub(crate) fn visible(&self, asker: &Principal, id: &str) -> Result<Arc<RuleDocument>> {
        let document = self.store.document(id).filter(|document| may_run(asker, document));
        document.ok_or_else(|| Error::NotFound(id.to_owned()))
    }

    fn record(&self, document: Arc<RuleDocument>) -> Record {
        let status = match &*document {
            RuleDocument::Forecast(_) => Value::Null,
            RuleDocument::Detector(kept) => detectors::status(self, kept),
        };
        Record { document, status }
    }

    /// Reads a rule that somebody saves, and a digest of what it searches.
    async fn read(&self, asker: &Principal, body: Value) -> Result<(Definition, String)> {
        check_saves(asker)?;
        // Whether a schedule ever comes may take a while to find out.
        let definition = move || Ok(Definition::parse(&body));
        let definition = self.engine.compute().run(Priority::Foreground, definition).await??;
        let source = Source::read(&self.engine, definition.search_id()).await?;
        Ok((definition, source.digest))
    }

    /// Has a rule of a version before, which does not say what its search said, read what it says now.
    async fn adopt_search(&self, kept: &StoredRule) {
        let adopted = async {
            let source = Source::read(&self.engine, kept.definition.search_id()).await?;
            self.store.note(&kept.id, move |now| now.state.search_digest = source.digest).await
        };
        match adopted.await {
            Ok(()) => tracing::info!(
                rule = kept.id,
                "an AI rule of a version before reads what its saved search says now"
            ),
            Err(error) => {
                tracing::warn!(rule = kept.id, %error, "an AI rule of a version before has to be saved anew")
            }
        }
    }

    pub(crate) fn check_stopping(&self) -> Result<()> {
        match *self.stopping.borrow() || self.engine.is_stopping() {
            true => Err(StorageError::Stopped("the server is stopping".to_owned()).into()),
            false => Ok(()),
        }
    }

    /// Waits for a turn of those that there are at a time, but not while the server stops.
    pub(crate) async fn one_of(&self, turns: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit> {
        let mut stopping = self.stopping.subscribe();
        let turn = tokio::select! {
            turn = Arc::clone(turns).acquire_owned() => turn.map_err(no_turn)?,
            _ = stopping.wait_for(|stopping| *stopping) => {
                return Err(StorageError::Stopped("the server is stopping".to_owned()).into());
            }
        };
        self.check_stopping()?;
        Ok(turn)
    }
}
