//! A store with AI rules at work, as the server has them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_accounts::{Accounts, AnyQuery};
use millrace_catalog::access::Principal;
use millrace_engine::{Action, Config, Engine, RefreshPolicy, WriteOp};
use millrace_intelligence::{Error as RuleError, Intelligence};
use millrace_query::SearchService;
use millrace_runtime::{Error, ManualClock, SharedClock};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// Longest that anything is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const MINUTE: i64 = 60_000;
/// 2026-03-02 10:00, a Monday.
pub(crate) const START: i64 = 1_772_445_600_000;

/// A store with AI rules at work.
pub(crate) struct Server {
    pub(crate) engine: Arc<Engine>,
    pub(crate) clock: Arc<ManualClock>,
    accounts: Arc<Accounts>,
    pub(crate) intelligence: Intelligence,
}

impl Server {
    /// Opens one, with a saved search `all` over `logs`.
    pub(crate) async fn open(dir: &Path, now_ms: i64) -> Self {
        let server = Self::reopen(dir, now_ms).await;
        let source = json!({"index": "logs", "query": {"language": "lucene", "query": "*"}});
        let search = json!({"attributes": {"title": "all", "kibanaSavedObjectMeta": {"searchSourceJSON": source.to_string()}}});
        let pattern = json!({"attributes": {"title": "logs*", "timeFieldName": "@timestamp"}});
        server.engine.make_own_index(".console", &json!({"mappings": {"dynamic": false}})).await.unwrap();
        for (id, object) in [("search:all", search), ("index-pattern:logs", pattern)] {
            server.write(".console", id, &json!({"object": object})).await;
        }
        let mapping =
            json!({"mappings": {"properties": {"@timestamp": {"type": "date"}, "load": {"type": "double"}}}});
        server.engine.make_own_index("logs", &mapping).await.unwrap();
        server
    }

    /// Opens one a number of minutes after [`START`], with a document of each of them and with a rule, which it names.
    pub(crate) async fn with_rule(dir: &Path, minutes: i64, rule: Value) -> (Self, String) {
        let server = Self::open(dir, START + minutes * MINUTE).await;
        server.minutes(0, minutes).await;
        let id = server.create(rule).await;
        (server, id)
    }

    /// Opens what may have been dropped a moment ago.
    pub(crate) async fn reopen(dir: &Path, now_ms: i64) -> Self {
        let engine = Self::engine(dir, now_ms).await;
        Self::over(engine.0, engine.1).await
    }

    pub(crate) async fn engine(dir: &Path, now_ms: i64) -> (Arc<Engine>, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new(now_ms));
        let config = Config { data_dir: dir.to_owned(), ..Config::default() };
        loop {
            match Engine::open(config.clone(), Arc::clone(&clock) as SharedClock).await {
                // What is dropped ends a moment later.
                Err(Error::Locked(_)) => tokio::time::sleep(Duration::from_millis(5)).await,
                opened => return (opened.unwrap(), clock),
            }
        }
    }

    pub(crate) async fn over(engine: Arc<Engine>, clock: Arc<ManualClock>) -> Self {
        let (accounts, _) = Accounts::open(
            Arc::clone(&engine) as Arc<_>,
            millrace_accounts::Config { insecure: true, ..millrace_accounts::Config::default() },
            Arc::clone(&clock) as SharedClock,
            Arc::new(AnyQuery),
        )
        .await
        .unwrap();
        let accounts = Arc::new(accounts);
        let search = Arc::new(SearchService::new(Arc::clone(&engine), millrace_query::Config::default()));
        let intelligence = Intelligence::start(&engine, &search, &accounts).await.unwrap();
        Self { engine, clock, accounts, intelligence }
    }

    /// Ends as a server does that is told to.
    pub(crate) async fn stop(self) {
        self.intelligence.stop().await;
        self.engine.shutdown().await.unwrap();
    }

    pub(crate) fn admin(&self) -> Principal {
        self.accounts.administrator()
    }

    pub(crate) async fn write(&self, index: &str, id: &str, document: &Value) {
        write(&self.engine, index, id, document).await;
    }

    /// Writes a document for each minute from one to before another: the load is the number of the minute.
    pub(crate) async fn minutes(&self, from: i64, to: i64) {
        for minute in from..to {
            let document = json!({"@timestamp": START + minute * MINUTE + 1000, "load": minute});
            self.write("logs", &minute.to_string(), &document).await;
        }
    }

    pub(crate) async fn create(&self, rule: Value) -> String {
        self.intelligence.create(&self.admin(), rule).await.unwrap()
    }

    /// Runs a rule by hand.
    pub(crate) async fn run(&self, id: &str) -> Result<String, RuleError> {
        self.intelligence.run(&self.admin(), id).await
    }

    /// The same in a task of its own.
    pub(crate) fn begin(&self, id: &str) -> JoinHandle<Result<String, RuleError>> {
        let (intelligence, admin, id) = (self.intelligence.clone(), self.admin(), id.to_owned());
        tokio::spawn(async move { intelligence.run(&admin, &id).await })
    }

    /// The record of a rule.
    pub(crate) fn shown(&self, id: &str) -> Value {
        self.intelligence.show(&self.admin(), id).unwrap()["_source"].clone()
    }

    /// Predictions by their ids.
    pub(crate) async fn predictions(&self) -> BTreeMap<String, Value> {
        let mut documents = BTreeMap::new();
        let Ok(index) = self.engine.index("intelligence") else { return documents };
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

    /// Returns the actual values for predictions of `load` from a minute of the first hour, where they are known.
    pub(crate) async fn known(&self, origin: i64) -> Vec<f64> {
        let from = format!("load_TL_20260302_10{origin}00_");
        let predictions = self.predictions().await;
        let of = predictions.iter().filter(|(id, _)| id.starts_with(&from));
        of.filter_map(|(_, document)| document["load_cur"].as_f64()).collect()
    }

    /// Waits until this became of them.
    pub(crate) async fn until_known(&self, origin: i64, expected: &[f64]) {
        let what = format!("what became of predictions from minute {origin}: {expected:?}");
        until(&what, async || (self.known(origin).await == expected).then_some(())).await;
    }

    /// Waits until it is known what became of all predictions.
    pub(crate) async fn until_all_known(&self) {
        until("what became of all predictions", async || {
            let predictions = self.predictions().await;
            predictions.values().all(|document| document["load_cur"].is_number()).then_some(())
        })
        .await;
    }
}

pub(crate) async fn write(engine: &Engine, index: &str, id: &str, document: &Value) {
    let op = WriteOp::new(index, Some(id.to_owned()), Action::Index(Bytes::from(document.to_string())));
    let written =
        engine.write(&Principal::system(), vec![op], RefreshPolicy::Immediate, PATIENCE).await.unwrap();
    for outcome in written {
        outcome.unwrap();
    }
}

/// A rule that predicts five minutes, every five minutes.
pub(crate) fn rule(name: &str) -> Value {
    json!({
        "algorithm_type": "TL",
        "model_name": name,
        "search": "search:all",
        "label_field": {"field": "load"},
        "max_probes": 30,
        "time_frame": "1 minute",
        "value_type": "avg",
        "max_predictions": 5,
        "automatic_cron": "*/5 * * * *",
        "automatic_enable": true,
        "automatic": true,
        "multiply_by_values": [],
        "multiply_by_field": "none",
    })
}

/// Waits for something to be there.
pub(crate) async fn until<T>(what: &str, mut there: impl AsyncFnMut() -> Option<T>) -> T {
    let waited = tokio::time::timeout(PATIENCE, async {
        loop {
            if let Some(found) = there().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("waited for {what}"))
}
