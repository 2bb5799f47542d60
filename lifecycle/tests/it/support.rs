//! A store with a clock that tests move, and policies over it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use millrace_catalog::access::{Action, ActionSet, Caller, Grant, NamePattern, Principal, Privileges};
use millrace_catalog::metadata::{
    ClusterSettingsUpdate, IndexMeta, IndicesOptions, Metadata, MetadataChange, TemplateKind, Uuid,
    parse_index_template,
};
use millrace_engine::{Action as WriteAction, Config, Engine, RefreshPolicy, WriteOp};
use millrace_lifecycle::{
    DocumentDeleter, Lifecycle, LifecycleAudit, LifecycleHooks, PolicyMessage, PolicyNotifier, PolicyOwners,
};
use millrace_runtime::{Error, ManualClock, Result};
use millrace_snapshot::{Config as SnapshotConfig, SnapshotService};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// Time at which the clock of a test begins: 2026-01-01.
pub(crate) const START_MS: i64 = 1_767_225_600_000;
pub(crate) const DAY_MS: i64 = 86_400_000;

/// Notes what policies do, which documents are to be deleted, and the messages. The user `ann` may make snapshots of the index `a`,
/// every other one may do everything, and `gone` is none.
#[derive(Debug, Default)]
pub(crate) struct RecordedAudit(pub(crate) Mutex<Vec<String>>);

impl PolicyNotifier for RecordedAudit {
    fn send<'a>(&'a self, message: &'a PolicyMessage) -> BoxFuture<'a, Result<(), String>> {
        let PolicyMessage { key, text, webhook, .. } = message;
        let line = format!("{key} {} {text}", webhook["http_post_url"]);
        let is_first = !self.0.lock().contains(&line);
        self.0.lock().push(line);
        // The first try arrives, and its answer is lost.
        Box::pin(async move { if is_first { Err("no answer".to_owned()) } else { Ok(()) } })
    }
}

impl PolicyOwners for RecordedAudit {
    fn find_principal<'a>(&'a self, owner: &'a str) -> BoxFuture<'a, Result<Option<Principal>>> {
        let principal = match owner {
            "gone" => None,
            "ann" => {
                let grant = Grant {
                    names: vec![NamePattern::parse("a").unwrap()],
                    actions: ActionSet::new(&[Action::CreateSnapshot, Action::Search]),
                    system: false,
                    documents: None,
                    fields: None,
                };
                let cluster = ActionSet::new(&[Action::CreateSnapshot]);
                let privileges = Arc::new(Privileges::new(cluster, vec![grant]));
                Some(Principal::new(Caller::User("ann".into()), Vec::new(), privileges))
            }
            _ => Some(Principal::system()),
        };
        Box::pin(async move { Ok(principal) })
    }
}

impl DocumentDeleter for RecordedAudit {
    fn delete_before<'a>(
        &'a self,
        index: &'a str,
        field: &'a str,
        before_ms: i64,
    ) -> BoxFuture<'a, Result<u64>> {
        self.0.lock().push(format!("{index} {field} {before_ms}"));
        Box::pin(async { Ok(0) })
    }
}

impl LifecycleAudit for RecordedAudit {
    fn record(&self, action: Action, method: &'static str, path: &[&str]) {
        self.0.lock().push(format!("{} {method} {}", action.name(), path.join("/")));
    }
}

pub(crate) struct Store {
    pub(crate) engine: Arc<Engine>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) snapshots: SnapshotService,
    pub(crate) audit: Arc<RecordedAudit>,
}

impl Store {
    pub(crate) async fn open(dir: &Path, now_ms: i64) -> Self {
        let clock = Arc::new(ManualClock::new(now_ms));
        let opened = async {
            loop {
                let config = Config { data_dir: dir.join("data"), ..Config::default() };
                match Engine::open(config, clock.clone()).await {
                    Err(Error::Locked(_)) => tokio::task::yield_now().await,
                    other => break other.unwrap(),
                }
            }
        };
        let opened = tokio::time::timeout(Duration::from_secs(30), opened).await;
        let engine = opened.expect("the store before lets go of its directory");
        let config = SnapshotConfig { path_repo: vec![dir.join("backups")], ..SnapshotConfig::default() };
        let snapshots = SnapshotService::open(Arc::clone(&engine), config).await.unwrap();
        let audit = Arc::new(RecordedAudit::default());
        let hooks = LifecycleHooks {
            auditor: Some(audit.clone()),
            deleter: Some(audit.clone()),
            notifier: Some(audit.clone()),
            owners: Some(audit.clone()),
        };
        let lifecycle = Lifecycle::start(&engine, snapshots.clone(), hooks).await.unwrap();
        Self { engine, clock, lifecycle, snapshots, audit }
    }

    /// Ends as after a kill: policies do not come to their end.
    pub(crate) async fn kill(self) {
        let Self { engine, lifecycle, .. } = self;
        drop(lifecycle);
        engine.shutdown().await.unwrap();
    }

    pub(crate) async fn register_repository(&self) {
        let body = json!({"type": "fs", "settings": {"location": "one"}});
        self.snapshots.put_repository("backup", &body, true).await.unwrap();
    }

    pub(crate) async fn change<F>(&self, decide: F) -> Result<()>
    where
        F: FnOnce(&Metadata) -> Result<Vec<MetadataChange>> + Send,
    {
        self.engine.change(&Principal::system(), decide).await
    }

    pub(crate) async fn put_stream_template(&self) {
        let body =
            parse_index_template("t", &json!({"index_patterns": ["log*"], "data_stream": {}})).unwrap();
        self.change(|state| state.put_template(TemplateKind::Index, "t", body, false)).await.unwrap();
    }

    pub(crate) async fn create_index(&self, name: &str, body: Value) {
        let now_ms = START_MS;
        self.change(|state| state.create_index(name, &body, now_ms, Uuid::new_v4())).await.unwrap();
    }

    /// Rolls an alias or a data stream over as `_rollover` does.
    pub(crate) async fn roll_over(&self, target: &str) {
        let decide = |state: &Metadata| {
            let plan = state.plan_rollover(target, None, START_MS)?;
            state.roll_over(&plan, &Default::default(), START_MS, Uuid::new_v4())
        };
        self.change(decide).await.unwrap();
    }

    pub(crate) async fn set(&self, persistent: Value) {
        let update = ClusterSettingsUpdate::parse(&json!({ "persistent": persistent })).unwrap();
        self.change(|state| state.update_cluster_settings(&update)).await.unwrap();
    }

    pub(crate) async fn set_index(&self, index: &str, settings: Value) {
        let options = IndicesOptions::open_only();
        self.change(|state| state.update_settings(index, &options, &settings, false, 0)).await.unwrap();
    }

    /// Writes documents and makes segments of them.
    pub(crate) async fn fill(&self, index: &str, count: usize) {
        let document = |_| {
            let source = Bytes::from(format!(r#"{{"@timestamp":{START_MS},"id":"{}"}}"#, Uuid::new_v4()));
            WriteOp::new(index, None, WriteAction::Create(source))
        };
        let ops = (0..count).map(document).collect();
        let written = self
            .engine
            .write(&Principal::system(), ops, RefreshPolicy::Immediate, Duration::from_secs(5))
            .await;
        written.unwrap().into_iter().for_each(|outcome| drop(outcome.unwrap()));
    }

    pub(crate) fn meta(&self, name: &str) -> Arc<IndexMeta> {
        Arc::clone(self.engine.metadata().index(name).unwrap())
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let metadata = self.engine.metadata();
        let own = |name: &&str| !name.starts_with(".managed") && !name.ends_with("_policies");
        metadata.indices().map(|meta| &*meta.name).filter(own).map(str::to_owned).collect()
    }

    pub(crate) async fn explain(&self, name: &str) -> Value {
        self.lifecycle.explain(&[self.meta(name)], false).await.unwrap()[name].clone()
    }

    /// Moves the clock and has everything done that is due.
    pub(crate) async fn advance(&self, by_ms: i64) {
        self.clock.advance_ms(by_ms);
        self.lifecycle.run_now().await;
    }
}
