//! The agents of a server: in memory, and as documents of a system index.
//!
//! An enrolment and a deletion are durable before they are answered. Keep-alives change memory alone; [`AgentRegistry::flush`] stores
//! those that are due with one write, once a second. An agent is due where its facts or its noted status changed, and otherwise
//! [`STORE_INTERVAL`] after its last stored keep-alive. So a crash makes an agent look older by that much, until its next keep-alive.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use millrace_engine::{
    DocResult, Engine, Precondition, RefreshPolicy, SystemDocument, SystemDocuments, WriteOp,
};
use millrace_runtime::{Error as StoreError, Priority, Result as StoreResult, SharedClock};
use parking_lot::RwLock;
use tokio::runtime::Handle;
use tokio::sync::Mutex;

use crate::agent::{Agent, AgentStatus, HostFacts, HostFactsDocument};
use crate::config::AgentsConfig;
use crate::document::{self, StatusChange};
use crate::error::AgentError;
use crate::token::AgentToken;

/// Age of the stored keep-alive from which on a newer one is stored, where nothing else changed.
const STORE_INTERVAL: Duration = Duration::from_secs(30);
/// Agents of one write; further ones are in the next one.
const MAX_BATCH: usize = 4_000;
/// Agents that are looked at under one lock.
const FILTER_CHUNK: usize = 1_000;

/// The agents. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct AgentRegistry(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    engine: Arc<Engine>,
    clock: SharedClock,
    documents: SystemDocuments<Agent>,
    changes: SystemDocuments<StatusChange>,
    config: AgentsConfig,
    agents: RwLock<BTreeMap<String, TrackedAgent>>,
    /// Held by a writer from its decision to the change of memory.
    writing: Mutex<()>,
    /// No agent is noted as disconnected for silence before this time.
    started_ms: i64,
    /// Runtime of changes: that of the store, which outlives those of listeners.
    runtime: Handle,
}

/// An agent in memory, and the part of it that is stored.
#[derive(Debug)]
struct TrackedAgent {
    agent: Agent,
    stored_keepalive: Option<i64>,
    /// `true` if facts changed since the last write.
    is_changed: bool,
}

/// Proof of the right to enrol an agent again.
#[derive(Debug)]
pub(crate) enum ReplacementProof {
    /// None.
    Absent,
    /// A token, which may be that of the agent.
    Token(String),
    /// The leave of a user with the right to change agents.
    Administrator,
}

/// A request for enrolment.
#[derive(Debug)]
pub(crate) struct Enrolment {
    pub(crate) agent_id: String,
    pub(crate) host: String,
    pub(crate) facts: HostFacts,
    /// Address of the request.
    pub(crate) address: IpAddr,
    pub(crate) proof: ReplacementProof,
}

/// Result of an enrolment.
#[derive(Debug)]
pub(crate) struct EnrolledAgent {
    pub(crate) token: AgentToken,
    /// `true` if the agent was enrolled before.
    pub(crate) is_replacement: bool,
}

/// Documents that are due, and the state of memory once they are stored.
#[derive(Debug, Default)]
struct DueDocuments {
    changes: Vec<WriteOp>,
    ops: Vec<WriteOp>,
    agents: Vec<DueAgent>,
}

/// An agent that is being stored.
#[derive(Debug)]
struct DueAgent {
    id: String,
    registered: i64,
    facts: HostFactsDocument,
    last_keepalive: Option<i64>,
    status: AgentStatus,
}

impl AgentRegistry {
    /// Reads the stored agents.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn load(engine: &Arc<Engine>, config: AgentsConfig) -> StoreResult<Self> {
        let documents = SystemDocuments::<Agent>::new(engine);
        let mut agents = BTreeMap::new();
        for decoded in documents.load().await? {
            match decoded {
                Ok(stored) => {
                    let stored_keepalive = stored.document.last_keepalive;
                    let tracked =
                        TrackedAgent { agent: stored.document, stored_keepalive, is_changed: false };
                    agents.insert(stored.id, tracked);
                }
                Err(unreadable) => {
                    tracing::warn!(
                        id = unreadable.id,
                        reason = unreadable.reason,
                        "a stored agent cannot be read"
                    );
                }
            }
        }
        let clock = Arc::clone(engine.clock());
        let started_ms = clock.now_ms();
        Ok(Self(Arc::new(Inner {
            engine: Arc::clone(engine),
            clock,
            documents,
            changes: SystemDocuments::with_principal(engine, document::changes_principal()),
            config,
            agents: RwLock::new(agents),
            writing: Mutex::default(),
            started_ms,
            runtime: Handle::current(),
        })))
    }

    /// Returns the configuration.
    pub(crate) fn config(&self) -> &AgentsConfig {
        &self.0.config
    }

    /// Returns the time of the clock.
    pub(crate) fn now_ms(&self) -> i64 {
        self.0.clock.now_ms()
    }

    /// Decides the status of an agent at a time.
    pub(crate) fn status(&self, agent: &Agent, now_ms: i64) -> AgentStatus {
        self.0.config.thresholds.status(agent.last_keepalive, now_ms)
    }

    /// Returns an agent.
    pub(crate) fn get(&self, id: &str) -> Option<Agent> {
        self.0.agents.read().get(id).map(|tracked| tracked.agent.clone())
    }

    /// Returns all agents that a predicate holds for, in the order of their ids.
    pub(crate) fn filter(&self, predicate: impl Fn(&Agent) -> bool) -> Vec<Agent> {
        let (mut selected, mut behind) = (Vec::new(), Bound::Unbounded);
        loop {
            // Keep-alives wait for no more than a chunk.
            let agents = self.0.agents.read();
            let chunk = agents.range::<String, _>((behind.as_ref(), Bound::Unbounded)).take(FILTER_CHUNK);
            let mut last = None;
            for (id, TrackedAgent { agent, .. }) in chunk {
                last = Some(id);
                if predicate(agent) {
                    selected.push(agent.clone());
                }
            }
            match last {
                Some(id) => behind = Bound::Excluded(id.clone()),
                None => return selected,
            }
        }
    }

    /// Counts the agents of each status.
    pub(crate) fn count_by_status(&self) -> BTreeMap<AgentStatus, usize> {
        let now_ms = self.now_ms();
        let mut counts: BTreeMap<_, _> = AgentStatus::ALL.into_iter().map(|status| (status, 0)).collect();
        for tracked in self.0.agents.read().values() {
            *counts.entry(self.status(&tracked.agent, now_ms)).or_default() += 1;
        }
        counts
    }

    /// Checks whether a token is that of an agent.
    pub(crate) fn is_token_of(&self, id: &str, token: &str) -> bool {
        self.0.agents.read().get(id).is_some_and(|tracked| tracked.agent.token_hash.matches(token))
    }

    /// Runs a computation over the agents on a compute thread.
    ///
    /// # Errors
    /// The computation panicked.
    pub(crate) async fn compute<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> StoreResult<T> {
        let registry = self.clone();
        self.0.engine.compute().run(Priority::Foreground, move || Ok(work(&registry))).await
    }

    /// Enrols an agent and stores it. It runs to its end where the caller goes away, so memory and store stay the same.
    ///
    /// # Errors
    /// [`AgentError::Conflict`], [`AgentError::Full`], the store's.
    pub(crate) async fn enrol(&self, enrolment: Enrolment) -> Result<EnrolledAgent, AgentError> {
        let registry = self.clone();
        self.spawn_uncancelled(async move { registry.enrol_uncancelled(enrolment).await }).await
    }

    async fn enrol_uncancelled(&self, enrolment: Enrolment) -> Result<EnrolledAgent, AgentError> {
        let Enrolment { agent_id, host, facts, address, proof } = enrolment;
        let inner = &*self.0;
        let _writing = inner.writing.lock().await;
        let is_replacement = {
            let agents = inner.agents.read();
            match (agents.get(&agent_id), proof) {
                (None, _) if agents.len() >= inner.config.max_agents => {
                    return Err(AgentError::Full(inner.config.max_agents));
                }
                (None, _) => false,
                (Some(_), ReplacementProof::Administrator) => true,
                (Some(known), ReplacementProof::Token(token)) if known.agent.token_hash.matches(&token) => {
                    true
                }
                (Some(_), _) => return Err(AgentError::Conflict(agent_id)),
            }
        };
        let token = AgentToken::generate();
        let agent = Agent {
            agent_id: agent_id.clone(),
            facts: HostFactsDocument::new(host, facts, address),
            registered: inner.clock.now_ms(),
            registered_from: address,
            last_keepalive: None,
            status: AgentStatus::NeverConnected,
            token_hash: token.hash(),
        };
        inner.documents.put(&agent_id, &agent, Precondition::Any, RefreshPolicy::None).await?;
        let tracked = TrackedAgent { agent, stored_keepalive: None, is_changed: false };
        inner.agents.write().insert(agent_id, tracked);
        Ok(EnrolledAgent { token, is_replacement })
    }

    /// Notes a keep-alive, which a later [`AgentRegistry::flush`] stores; returns the status from then on.
    ///
    /// # Errors
    /// [`AgentError::UnknownAgent`].
    pub(crate) fn note_keepalive(&self, id: &str, facts: HostFacts) -> Result<AgentStatus, AgentError> {
        let now_ms = self.now_ms();
        let mut agents = self.0.agents.write();
        let tracked = agents.get_mut(id).ok_or_else(|| AgentError::UnknownAgent(id.to_owned()))?;
        tracked.agent.last_keepalive = Some(now_ms);
        tracked.is_changed |= tracked.agent.facts.update(facts);
        Ok(self.status(&tracked.agent, now_ms))
    }

    /// Deletes an agent with its token. It runs to its end where the caller goes away.
    ///
    /// # Errors
    /// [`AgentError::UnknownAgent`], the store's.
    pub(crate) async fn delete(&self, id: String) -> Result<(), AgentError> {
        let registry = self.clone();
        self.spawn_uncancelled(async move {
            let inner = &*registry.0;
            let _writing = inner.writing.lock().await;
            if !inner.agents.read().contains_key(&id) {
                return Err(AgentError::UnknownAgent(id));
            }
            let deleted = inner.documents.delete(&id, Precondition::Any, RefreshPolicy::None).await?;
            if deleted.result == DocResult::NotFound {
                tracing::warn!(id, "a deleted agent had no document");
            }
            inner.agents.write().remove(&id);
            Ok(())
        })
        .await
    }

    /// Stores keep-alives that are due, and notes changes of status, with one write. Returns the number of stored agents.
    ///
    /// # Errors
    /// The store's. What was not stored stays due.
    pub(crate) async fn flush(&self) -> StoreResult<usize> {
        self.write_due(false).await
    }

    /// Stores all keep-alives that are not stored yet: the end of the service.
    ///
    /// # Errors
    /// As [`AgentRegistry::flush`].
    pub(crate) async fn flush_all(&self) -> StoreResult<usize> {
        let mut stored = 0;
        loop {
            match self.write_due(true).await? {
                0 => return Ok(stored),
                written => stored += written,
            }
        }
    }

    async fn write_due(&self, all: bool) -> StoreResult<usize> {
        let inner = &*self.0;
        let _writing = inner.writing.lock().await;
        let due = self.compute(move |registry| registry.due(all)).await?;
        if due.ops.is_empty() {
            return Ok(0);
        }
        // The changes come first: an agent that is stored as disconnected is never noted as that again.
        if !due.changes.is_empty() {
            for result in inner.changes.write(due.changes, RefreshPolicy::None).await? {
                match result {
                    // An attempt before had noted it, and had not stored the agent.
                    Ok(_) | Err(StoreError::VersionConflict { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        let results = inner.documents.write(due.ops, RefreshPolicy::None).await?;
        let (mut stored, mut failure) = (0, None);
        let mut agents = inner.agents.write();
        for (written, result) in due.agents.into_iter().zip(results) {
            if let Err(error) = result {
                failure = Some(error);
                continue;
            }
            stored += 1;
            // One that was enrolled again meanwhile cannot be: the writer's lock is held.
            let Some(tracked) = agents.get_mut(&written.id) else { continue };
            debug_assert_eq!(tracked.agent.registered, written.registered, "no enrolment comes between");
            tracked.agent.status = written.status;
            tracked.stored_keepalive = written.last_keepalive;
            tracked.is_changed = tracked.agent.facts != written.facts;
        }
        drop(agents);
        match failure {
            Some(error) => Err(error),
            None => Ok(stored),
        }
    }

    /// Gathers what is to be stored now.
    fn due(&self, all: bool) -> DueDocuments {
        let now_ms = self.now_ms();
        let mut due = DueDocuments::default();
        for (id, tracked) in &*self.0.agents.read() {
            let TrackedAgent { agent, stored_keepalive, is_changed } = tracked;
            let status = self.noted_status(agent, now_ms);
            let is_old = match (agent.last_keepalive, stored_keepalive) {
                (Some(last), Some(stored)) if all => last != *stored,
                (Some(last), Some(stored)) => {
                    u128::from(last.abs_diff(*stored)) >= STORE_INTERVAL.as_millis()
                }
                (last, _) => last.is_some(),
            };
            if !(is_old || *is_changed || status != agent.status) {
                continue;
            }
            if status != agent.status {
                let change = StatusChange::new(agent, status, now_ms);
                let op = StatusChange::put_op(Some(change.id()), change.encode(), Precondition::Absent);
                due.changes.push(op);
            }
            let document = Agent { status, ..agent.clone() };
            due.ops.push(Agent::put_op(Some(id.clone()), document.encode(), Precondition::Any));
            due.agents.push(DueAgent {
                id: id.clone(),
                registered: agent.registered,
                facts: document.facts,
                last_keepalive: agent.last_keepalive,
                status,
            });
            if due.agents.len() >= MAX_BATCH {
                break;
            }
        }
        due
    }

    /// Runs work to its end, whether somebody waits for it or not.
    async fn spawn_uncancelled<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, AgentError>> + Send + 'static,
    ) -> Result<T, AgentError> {
        match self.0.runtime.spawn(work).await {
            Ok(result) => result,
            Err(error) => Err(StoreError::Internal(format!("a change of an agent failed: {error}")).into()),
        }
    }

    /// Decides the status that `agent_status` is to have. Pending agents keep theirs: a keep-alive may be late. After a start agents
    /// have time to come back, as the server's own pause is no silence of theirs.
    fn noted_status(&self, agent: &Agent, now_ms: i64) -> AgentStatus {
        match self.status(agent, now_ms) {
            AgentStatus::Active => AgentStatus::Active,
            AgentStatus::Disconnected => {
                let since_start = self.0.config.thresholds.status(Some(self.0.started_ms), now_ms);
                if since_start == AgentStatus::Disconnected {
                    AgentStatus::Disconnected
                } else {
                    agent.status
                }
            }
            AgentStatus::Pending | AgentStatus::NeverConnected => agent.status,
        }
    }
}
