//! The life of indices: policies of indices and of snapshots, and retention by space.
//!
//! [`Lifecycle`] is the way in. `millrace-api` hands it what users ask of policies; it changes indices through the
//! [`Engine`](millrace_engine::Engine) and makes snapshots through the [`SnapshotService`](millrace_snapshot::SnapshotService), as the
//! server's own work. `docs/lifecycle.md` is the users' side.
//!
//! - [`policy`]: what a policy of indices says; [`stored_policy`]: it as a document
//! - [`managed`]: where each index is in its policy; [`decide`]: its next step
//! - [`execute`], [`pass`]: actions, and the steps of an index until it has to wait
//! - [`shrink`]: the action of that name
//! - [`retention`]: the oldest indices go where space is short; [`document_retention`]: documents of the server's own by their age
//! - [`index_age`]: the times from which on the age of an index counts; [`written`]: the names that write to an index
//! - [`snapshot_policy`]: creation and deletion of snapshots by schedule
//! - [`restored_policies`]: policies of a restore
//! - [`runner`]: the event loop that has all of it done
//! - [`hooks`]: the parts of the server that these use
//! - [`management`]: requests about managed indices; [`explain`]: their answers

mod decide;
mod document_retention;
mod error;
mod execute;
mod explain;
mod hooks;
mod index_age;
mod managed;
mod management;
mod pass;
mod policy;
mod restored_policies;
mod retention;
mod runner;
mod shrink;
mod snapshot_policy;
mod stored_policy;
mod written;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use millrace_catalog::access::{Action, Principal};
use millrace_engine::{DocumentMirror, Engine, RefreshPolicy};
use millrace_runtime::{EventLoop, EventSender, Instant, sync};
use millrace_snapshot::SnapshotService;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{Semaphore, oneshot};

pub use document_retention::DocumentDeleter;
pub use error::{Error, Result};
pub use explain::LifecycleFigures;
pub use hooks::{LifecycleAudit, LifecycleHooks, PolicyMessage, PolicyNotifier, PolicyOwners};
pub use management::{ManagementFailure, ManagementReport};
pub use policy::{IndexPolicy, parse_ilm};
pub use snapshot_policy::SnapshotPolicy;
pub use stored_policy::{INDEX_POLICIES, StoredPolicy};

use managed::ManagedIndex;
use runner::RunnerMessage;

/// Policies of a kind that there may be.
const MAX_POLICIES: usize = 1_000;
/// Longest id of a policy, in bytes.
const MAX_ID_BYTES: usize = 512;
/// Passes over indices that run at once.
const MAX_PASSES: usize = 4;
/// Force merges and snapshots of policies of indices that run at once, beside the passes.
const MAX_LONG_ACTIONS: usize = 2;
/// Longest wait of a stop for work in flight. Each action is repeated or found done by the next start.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of a stored policy that stay free for its times, which change later.
const RESERVED_BYTES: usize = 256;

/// Context that the parts share.
#[derive(Debug)]
pub(crate) struct LifecycleContext {
    pub(crate) engine: Arc<Engine>,
    pub(crate) snapshots: SnapshotService,
    pub(crate) policies: DocumentMirror<StoredPolicy>,
    pub(crate) managed: DocumentMirror<ManagedIndex>,
    pub(crate) snapshot_policies: DocumentMirror<SnapshotPolicy>,
    pub(crate) hooks: LifecycleHooks,
    /// Permits of passes over indices.
    pub(crate) passes: Semaphore,
    /// Permits of actions that last.
    pub(crate) long_actions: Semaphore,
    /// Held by a change of policies from its reading to its writing.
    changing: tokio::sync::Mutex<()>,
}

impl LifecycleContext {
    /// Tells the audit of a change.
    pub(crate) fn audit(&self, action: Action, method: &'static str, path: &[&str]) {
        if let Some(auditor) = &self.hooks.auditor {
            auditor.record(action, method, path);
        }
    }

    /// Sends a message to its webhook.
    ///
    /// # Errors
    /// The reason of the notifier, or that there is none.
    pub(crate) async fn send(&self, message: &PolicyMessage) -> Result<(), String> {
        match &self.hooks.notifier {
            Some(notifier) => notifier.send(message).await,
            None => Err("this server sends none".to_owned()),
        }
    }

    /// Returns the principal of a policy's owner, by what that user may do now.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a policy without an owner, and for an owner that is gone.
    pub(crate) async fn owner_of(&self, policy_id: &str, policy: &IndexPolicy) -> Result<Principal> {
        let Some(owners) = &self.hooks.owners else { return Ok(Principal::system()) };
        let Some(owner) = &policy.owner else {
            return Err(Error::Invalid(format!(
                "policy [{policy_id}] has no owner whose rights count: have a user put it, no API key, and change_policy to it"
            )));
        };
        let found = owners.find_principal(owner).await?;
        found.ok_or_else(|| {
            Error::Invalid(format!(
                "the owner of policy [{policy_id}], user [{owner}], is deleted or disabled: have somebody else put it"
            ))
        })
    }
}

/// The version of a policy's document that a change replaces: sequence number and primary term.
pub type PolicyCondition = Option<(u64, u64)>;

/// Policies at work; cheap to clone. They end with the last clone, as after a crash; [`Lifecycle::stop`] lets work come to its end.
#[derive(Clone)]
pub struct Lifecycle {
    context: Arc<LifecycleContext>,
    sender: EventSender<RunnerMessage>,
    event_loop: Arc<Mutex<Option<EventLoop>>>,
}

impl fmt::Debug for Lifecycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { context, .. } = self;
        f.debug_struct("Lifecycle")
            .field("policies", &context.policies.len())
            .field("managed", &context.managed.len())
            .finish_non_exhaustive()
    }
}

impl Lifecycle {
    /// Loads policies and managed indices, and goes on where these were.
    ///
    /// # Errors
    /// The store's.
    pub async fn start(
        engine: &Arc<Engine>,
        snapshots: SnapshotService,
        hooks: LifecycleHooks,
    ) -> Result<Self> {
        let unfinished = engine.delete_unfinished_resizes().await?;
        if unfinished > 0 {
            tracing::info!(unfinished, "targets of resizings that a crash ended are deleted");
        }
        let context = Arc::new(LifecycleContext {
            engine: Arc::clone(engine),
            snapshots,
            policies: DocumentMirror::load(engine).await?,
            managed: DocumentMirror::load(engine).await?,
            snapshot_policies: DocumentMirror::load(engine).await?,
            hooks,
            passes: Semaphore::new(MAX_PASSES),
            long_actions: Semaphore::new(MAX_LONG_ACTIONS),
            changing: tokio::sync::Mutex::default(),
        });
        restored_policies::rebase(&context.snapshot_policies).await?;
        restored_policies::register(&context);
        let (sender, event_loop) = runner::spawn(&context);
        Ok(Self { context, sender, event_loop: Arc::new(Mutex::new(Some(event_loop))) })
    }

    /// Starts no more work, and waits a few seconds for work in flight. The next start goes on with the rest.
    pub async fn stop(&self) {
        let Some(event_loop) = self.event_loop.lock().take() else { return };
        match event_loop.drain_until(Instant::now() + STOP_TIMEOUT).await {
            Ok(true) => {}
            Ok(false) => tracing::info!("work of policies was in flight at the stop; the next start goes on"),
            Err(error) => tracing::error!(%error, "the loop of policies has failed"),
        }
    }

    /// Does everything that is due now, whatever the interval between passes, and waits for it.
    pub async fn run_now(&self) {
        let (reply, answer) = oneshot::channel();
        if self.sender.send(RunnerMessage::RunNow(reply)).await.is_ok() {
            // A loop that has ended has nothing to do any more.
            let _ = answer.await;
        }
    }

    /// Lists the policies of indices.
    pub fn policies(&self) -> Vec<Arc<StoredPolicy>> {
        self.context.policies.all()
    }

    /// Returns a policy of indices.
    pub fn policy(&self, id: &str) -> Option<Arc<StoredPolicy>> {
        self.context.policies.get(id)
    }

    /// Stores a policy of indices; returns whether it is new. One that is there is replaced by its version alone. Its snapshots and
    /// shrunken indices are made with the rights of `owner`.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::Conflict`] for another version, [`Error::TooMany`], the store's.
    pub async fn put_policy(
        &self,
        id: &str,
        body: &Value,
        condition: PolicyCondition,
        owner: Option<&str>,
    ) -> Result<(Arc<StoredPolicy>, bool)> {
        let policy = IndexPolicy::parse(id, body, self.context.engine.clock().now_ms())?.with_owner(owner);
        self.store_policy(id, policy, None, Some(condition)).await
    }

    /// Stores a policy of `_ilm`, whatever was there; lists what of it has no effect on one node.
    ///
    /// # Errors
    /// As [`Lifecycle::put_policy`].
    pub async fn put_ilm_policy(&self, id: &str, body: &Value, owner: Option<&str>) -> Result<Vec<String>> {
        let (policy, ignored) = parse_ilm(id, body, self.context.engine.clock().now_ms())?;
        let policy = policy.with_owner(owner);
        self.store_policy(id, policy, Some(body["policy"].clone()), None).await?;
        Ok(ignored)
    }

    /// Stores a policy; `condition` is `None` where any version may be replaced.
    async fn store_policy(
        &self,
        id: &str,
        policy: IndexPolicy,
        ilm: Option<Value>,
        condition: Option<PolicyCondition>,
    ) -> Result<(Arc<StoredPolicy>, bool)> {
        if id.is_empty() || id.len() > MAX_ID_BYTES {
            return Err(Error::Invalid(format!("the id of a policy has 1 to {MAX_ID_BYTES} bytes")));
        }
        check_stored_size(id, &policy.body, policy::MAX_BYTES)?;
        let _one = self.context.changing.lock().await;
        let before = self.context.policies.get(id);
        if let Some(condition) = condition {
            check_condition(id, before.as_ref().map(|before| before.document_version()), condition)?;
        }
        if before.is_none() && self.context.policies.len() >= MAX_POLICIES {
            return Err(too_many());
        }
        let policy = self.check_templates(id, policy).await?;
        let stored = StoredPolicy::new(id, policy, ilm, before.as_deref());
        let stored = self.context.policies.put(stored, RefreshPolicy::None).await?;
        Ok((stored, before.is_none()))
    }

    /// Refuses templates whose indices another policy takes with the same priority.
    async fn check_templates(&self, id: &str, policy: IndexPolicy) -> Result<IndexPolicy> {
        if policy.templates.is_empty() {
            return Ok(policy);
        }
        let (id, others) = (id.to_owned(), self.context.policies.all());
        // Many patterns take their time.
        let checked = sync::blocking(move || {
            let others = others.iter().filter(|other| other.id != id);
            let conflict = policy.find_conflict(&id, others.map(|other| (other.id.as_str(), &*other.policy)));
            Ok((policy, conflict))
        });
        match checked.await? {
            (policy, None) => Ok(policy),
            (_, Some(reason)) => Err(Error::Invalid(reason)),
        }
    }

    /// Deletes a policy of indices; the indices under it keep it as it was. Returns what was deleted.
    ///
    /// # Errors
    /// [`Error::NotFound`], the store's.
    pub async fn delete_policy(&self, id: &str) -> Result<Arc<StoredPolicy>> {
        let _one = self.context.changing.lock().await;
        let before = self.context.policies.get(id);
        let before = before.ok_or_else(|| Error::NotFound("Policy not found".to_owned()))?;
        self.context.policies.delete(id, None, RefreshPolicy::None).await?;
        Ok(before)
    }

    /// Lists the policies of snapshots.
    pub fn snapshot_policies(&self) -> Vec<Arc<SnapshotPolicy>> {
        self.context.snapshot_policies.all()
    }

    /// Returns a policy of snapshots.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn snapshot_policy(&self, name: &str) -> Result<Arc<SnapshotPolicy>> {
        let found = self.context.snapshot_policies.get(name);
        found.ok_or_else(|| Error::NotFound(format!("Snapshot management policy [{name}] not found")))
    }

    /// Stores a policy of snapshots: a new one, or one in the place of a version.
    ///
    /// # Errors
    /// As [`Lifecycle::put_policy`]; [`Error::NotFound`] for the version of none.
    pub async fn put_snapshot_policy(
        &self,
        name: &str,
        body: &Value,
        condition: PolicyCondition,
    ) -> Result<Arc<SnapshotPolicy>> {
        let _one = self.context.changing.lock().await;
        let before = self.context.snapshot_policies.get(name);
        if before.is_none() && condition.is_some() {
            self.snapshot_policy(name)?;
        }
        check_condition(name, before.as_ref().map(|before| before.document_version()), condition)?;
        if before.is_none() && self.context.snapshot_policies.len() >= MAX_POLICIES {
            return Err(too_many());
        }
        let now_ms = self.context.engine.clock().now_ms();
        let policy = SnapshotPolicy::parse(name, body, now_ms, before.as_deref())?;
        check_stored_size(name, &policy.body, snapshot_policy::MAX_BYTES)?;
        Ok(self.context.snapshot_policies.put(policy, RefreshPolicy::None).await?)
    }

    /// Starts or stops a policy of snapshots.
    ///
    /// # Errors
    /// [`Error::NotFound`], the store's.
    pub async fn enable_snapshot_policy(&self, name: &str, enabled: bool) -> Result<()> {
        let _one = self.context.changing.lock().await;
        let policy = self.snapshot_policy(name)?;
        if policy.enabled != enabled {
            let policy = policy.with_enabled(enabled, self.context.engine.clock().now_ms());
            self.context.snapshot_policies.put(policy, RefreshPolicy::None).await?;
        }
        Ok(())
    }

    /// Deletes a policy of snapshots; its snapshots stay. Returns what was deleted.
    ///
    /// # Errors
    /// [`Error::NotFound`], the store's.
    pub async fn delete_snapshot_policy(&self, name: &str) -> Result<Arc<SnapshotPolicy>> {
        let _one = self.context.changing.lock().await;
        let policy = self.snapshot_policy(name)?;
        self.context.snapshot_policies.delete(name, None, RefreshPolicy::None).await?;
        Ok(policy)
    }
}

/// Refuses a policy that has more bytes with its defaults than a start reads.
fn check_stored_size(id: &str, body: &Value, bound: usize) -> Result<()> {
    match body.to_string().len() + RESERVED_BYTES > bound {
        true => Err(Error::Invalid(format!("policy [{id}] has more than [{bound}] bytes with its defaults"))),
        false => Ok(()),
    }
}

fn too_many() -> Error {
    Error::TooMany(format!("there are [{MAX_POLICIES}] policies already, the most that there may be"))
}

/// Refuses a change of another version than the one that is there.
fn check_condition(id: &str, current: Option<(u64, u64)>, condition: PolicyCondition) -> Result<()> {
    match (current, condition) {
        (current, condition) if current == condition => Ok(()),
        (Some((seq_no, term)), None) => Err(Error::Conflict(format!(
            "[{id}]: version conflict, document already exists (current seqNo [{seq_no}], primary term [{term}])"
        ))),
        (current, Some((seq_no, term))) => {
            let found = current.map_or_else(
                || "but no document was found".to_owned(),
                |(seq_no, term)| format!("current document has seqNo [{seq_no}] and primary term [{term}]"),
            );
            Err(Error::Conflict(format!(
                "[{id}]: version conflict, required seqNo [{seq_no}], primary term [{term}]. {found}"
            )))
        }
        (None, None) => Ok(()),
    }
}
