//! A store with rules at work, as the server has them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_accounts::{Accounts, AnyQuery};
use millrace_alerting::{Alerting, Changed};
use millrace_catalog::access::{Caller, Principal, Privileges};
use millrace_engine::{Action, Config, Engine, RefreshPolicy, WriteOp};
use millrace_notifications::Notifications;
use millrace_query::SearchService;
use millrace_rules::Time;
use millrace_runtime::{Error, SystemClock};
use serde_json::{Value, json};
use uuid::Uuid;

/// Longest that anything is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A store with rules at work.
pub(crate) struct Server {
    pub(crate) engine: Arc<Engine>,
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) alerting: Alerting,
}

impl Server {
    pub(crate) async fn open(dir: &Path) -> Self {
        Self::open_with(Config { data_dir: dir.to_owned(), ..Config::default() }).await
    }

    /// Opens what may have been dropped a moment ago.
    pub(crate) async fn open_with(config: Config) -> Self {
        Self::over(open_engine(config).await).await
    }

    /// Has rules at work over an engine.
    pub(crate) async fn over(engine: Arc<Engine>) -> Self {
        let accounts = open_accounts(&engine).await;
        let alerting = Alerting::start(&engine, &accounts).await.unwrap();
        Self { engine, accounts, alerting }
    }

    /// Opens one that sends notifications.
    pub(crate) async fn open_notifying(dir: &Path, notifying: millrace_notifications::Config) -> Self {
        let engine = open_engine(Config { data_dir: dir.to_owned(), ..Config::default() }).await;
        let accounts = open_accounts(&engine).await;
        let search = Arc::new(SearchService::new(Arc::clone(&engine), millrace_query::Config::default()));
        let notifications = Notifications::start(&engine, &search, &accounts, notifying).await.unwrap();
        let alerting = Alerting::start_with(&engine, &accounts, Some(notifications)).await.unwrap();
        Self { engine, accounts, alerting }
    }

    pub(crate) fn notifications(&self) -> &Notifications {
        self.alerting.notifications().unwrap()
    }

    /// Ends as a server does that is told to.
    pub(crate) async fn stop(self) {
        self.alerting.stop().await;
        if let Some(notifications) = self.alerting.notifications() {
            notifications.stop().await;
        }
        self.engine.shutdown().await.unwrap();
    }

    pub(crate) fn admin(&self) -> Principal {
        self.accounts.administrator()
    }

    /// Saves a rule, in a flood of alerts once that is over.
    pub(crate) async fn save(&self, rule: Value) -> Changed {
        let save = async || match self.alerting.change(&self.admin(), rule.clone()).await {
            Err(millrace_alerting::Error::Storage(Error::Rejected(_))) => None,
            saved => Some(saved.unwrap()),
        };
        until(save).await
    }

    pub(crate) fn shown(&self, id: &str) -> Value {
        self.alerting.show(&self.admin(), id).unwrap()
    }

    pub(crate) async fn create(&self, index: &str, body: Value) {
        let decide =
            |m: &millrace_catalog::metadata::Metadata| m.create_index(index, &body, 0, Uuid::new_v4());
        self.engine.change(&Principal::system(), decide).await.unwrap();
    }

    /// Names of the rules that catch up.
    pub(crate) fn catching_up(&self) -> Vec<String> {
        let mut rules: Vec<Value> =
            self.alerting.list(&self.admin()).iter().map(millrace_alerting::Record::value).collect();
        rules.retain(|rule| !rule["catching_up"].is_null());
        rules.iter().map(|rule| rule["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Writes as a user does: all of it is one frame.
    pub(crate) async fn write(&self, ops: Vec<WriteOp>) {
        let user =
            Principal::new(Caller::User("somebody".into()), Vec::new(), Arc::new(Privileges::unrestricted()));
        let written = self.engine.write(&user, ops, RefreshPolicy::None, PATIENCE).await.unwrap();
        for outcome in written {
            outcome.unwrap();
        }
    }

    /// The documents of an index, by id.
    pub(crate) async fn documents(&self, index: &str) -> BTreeMap<String, Value> {
        let mut documents = BTreeMap::new();
        let Ok(index) = self.engine.index(index) else { return documents };
        let mut reading = self.engine.read_back_stored(&index).await.unwrap();
        while let Some(frame) = reading.next().await.unwrap() {
            for op in frame.parts.iter().flat_map(|part| &part.ops) {
                let Some(source) = &op.source else { continue };
                let id = String::from_utf8(op.id.to_vec()).unwrap();
                documents.insert(id, serde_json::from_slice(source).unwrap());
            }
        }
        documents
    }

    /// The `_id`s of the events that triggered alerts, each as often as it did.
    pub(crate) async fn triggers(&self) -> Vec<String> {
        let alerts = self.documents("alert").await;
        let mut triggers: Vec<String> =
            alerts.values().map(|alert| alert["trigger"]["_id"].as_str().unwrap().to_owned()).collect();
        triggers.sort();
        triggers
    }

    /// Waits until everything that was written is evaluated, so that no alert comes any more; returns the time of the last frame that
    /// was, in milliseconds.
    pub(crate) async fn settled(&self) -> i64 {
        until(async || self.catching_up().is_empty().then_some(())).await;
        // The last event of all: once it has raised its alert, all before it have.
        let marker = format!("marker-{}", Uuid::new_v4());
        let index = format!("{marker}-index");
        self.create(&index, json!({})).await;
        let rule =
            json!({"name": marker, "index": index, "type": "any", "search": {"request": {"body": {}}}});
        let id = self.save(rule).await.id;
        self.write(vec![document(&index, &marker, json!({}))]).await;
        // Alerts are many, and are not read before this one is on its way.
        until(async || (!self.shown(&id)["last_alert"].is_null()).then_some(())).await;
        let last = until(async || {
            let alerts = self.documents("alert").await;
            alerts.into_values().find(|alert| alert["trigger"]["_id"] == json!(marker))
        })
        .await;
        let delete = async || match self.alerting.delete(&self.admin(), &id).await {
            Err(millrace_alerting::Error::Storage(Error::Rejected(_))) => None,
            deleted => {
                deleted.unwrap();
                Some(())
            }
        };
        until(delete).await;
        Time::read(&last["alert_time"]).unwrap().ms()
    }

    /// Triggers without those of [`Server::settled`].
    pub(crate) async fn settled_triggers(&self) -> Vec<String> {
        self.settled().await;
        let mut triggers = self.triggers().await;
        triggers.retain(|trigger| !trigger.starts_with("marker-"));
        triggers
    }
}

async fn open_accounts(engine: &Arc<Engine>) -> Arc<Accounts> {
    let opened = Accounts::open(
        Arc::clone(engine) as Arc<_>,
        millrace_accounts::Config { insecure: true, ..millrace_accounts::Config::default() },
        Arc::new(SystemClock),
        Arc::new(AnyQuery),
    );
    Arc::new(opened.await.unwrap().0)
}

pub(crate) async fn open_engine(config: Config) -> Arc<Engine> {
    loop {
        match Engine::open(config.clone(), Arc::new(SystemClock)).await {
            // What is dropped ends a moment later.
            Err(Error::Locked(_)) => tokio::time::sleep(Duration::from_millis(5)).await,
            opened => return opened.unwrap(),
        }
    }
}

/// Waits for something to be there.
pub(crate) async fn until<T>(mut there: impl AsyncFnMut() -> Option<T>) -> T {
    let waited = tokio::time::timeout(PATIENCE, async {
        loop {
            if let Some(found) = there().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    waited.await.expect("it never came")
}

pub(crate) fn op(index: &str, id: &str, action: Action) -> WriteOp {
    WriteOp::new(index, Some(id.to_owned()), action)
}

pub(crate) fn document(index: &str, id: &str, source: Value) -> WriteOp {
    op(index, id, Action::Index(Bytes::from(source.to_string())))
}

/// A rule that tells of each document with a level of `error`.
pub(crate) fn errors(name: &str) -> Value {
    json!({
        "name": name,
        "index": "logs*",
        "type": "any",
        "search": {"request": {"body": {"query": {"match": {"level": "error"}}}}},
    })
}
