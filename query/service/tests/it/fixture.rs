//! A store in a temporary directory with a few documents.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_catalog::access;
use millrace_catalog::access::Principal;
use millrace_engine::{Action, Engine, RefreshPolicy, Session, WriteOp};
use millrace_mapping::fields::FieldRules;
use millrace_query::{Config, Error, Outcome, OutcomeBody, SearchService};
use millrace_runtime::{ManualClock, SharedClock};
use serde_json::Value;

/// A running store with a search service over it.
pub(crate) struct Store {
    pub(crate) engine: Arc<Engine>,
    pub(crate) service: SearchService,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) session: Session,
    _directory: tempfile::TempDir,
}

/// A session of a user who may do everything.
pub(crate) fn session_of(engine: &Arc<Engine>, user: &str) -> Session {
    let privileges = Arc::new(access::Privileges::unrestricted());
    let principal = Principal::new(access::Caller::User(user.into()), Vec::new(), privileges);
    Session::new(engine, principal, access::Action::Search).unwrap()
}

/// A session of a user who reads some documents and fields of indices.
pub(crate) fn restricted_session(
    store: &Store,
    grants: &[(&str, Option<Value>, Option<FieldRules>)],
) -> Session {
    let grants = grants.iter().map(|(index, documents, fields)| access::Grant {
        names: vec![access::NamePattern::parse(index).unwrap()],
        actions: access::ActionSet::named(|name| name.starts_with("indices:data/read")),
        system: false,
        documents: documents.as_ref().map(|rule| rule.to_string().into()),
        fields: fields.clone().map(Arc::new),
    });
    let privileges = access::Privileges::new(access::ActionSet::NONE, grants.collect());
    let principal = Principal::new(access::Caller::User("bob".into()), Vec::new(), Arc::new(privileges));
    Session::new(&store.engine, principal, access::Action::Sql).unwrap()
}

impl Store {
    pub(crate) async fn open() -> Self {
        Self::open_with(Config::default()).await
    }

    /// Opens a store with a service of another configuration.
    pub(crate) async fn open_with(queries: Config) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = millrace_engine::Config {
            data_dir: directory.path().to_owned(),
            ..millrace_engine::Config::default()
        };
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        let engine = Engine::open(config, Arc::clone(&clock) as SharedClock).await.unwrap();
        let service = SearchService::new(Arc::clone(&engine), queries);
        let session = session_of(&engine, "ann");
        Self { engine, service, clock, session, _directory: directory }
    }

    /// Creates an index of the given body.
    pub(crate) async fn create(&self, index: &str, body: &Value) {
        let now_ms = self.engine.clock().now_ms();
        let decide = |metadata: &millrace_catalog::metadata::Metadata| {
            metadata.create_index(index, body, now_ms, uuid::Uuid::new_v4())
        };
        self.session.change(decide).await.unwrap();
    }

    /// Indexes documents under ids 1, 2, … and makes them visible.
    pub(crate) async fn index(&self, index: &str, documents: &[Value]) {
        let numbered = documents.iter().enumerate();
        let writes = numbered.map(|(at, document)| ((at + 1).to_string(), Some(document.clone())));
        self.write(index, writes.collect()).await;
    }

    /// Indexes and deletes documents and makes that visible.
    pub(crate) async fn write(&self, index: &str, writes: Vec<(String, Option<Value>)>) {
        self.write_with(index, writes, RefreshPolicy::Immediate).await;
    }

    /// Indexes and deletes documents; searches see that later.
    pub(crate) async fn write_unseen(&self, index: &str, writes: Vec<(String, Option<Value>)>) {
        self.write_with(index, writes, RefreshPolicy::None).await;
    }

    async fn write_with(&self, index: &str, writes: Vec<(String, Option<Value>)>, refresh: RefreshPolicy) {
        let ops = writes
            .into_iter()
            .map(|(id, document)| {
                WriteOp::new(
                    index,
                    Some(id),
                    match document {
                        Some(document) => Action::Index(Bytes::from(document.to_string())),
                        None => Action::Delete,
                    },
                )
            })
            .collect();
        let outcomes = self.session.write(ops, refresh, Duration::from_secs(10)).await.unwrap();
        for outcome in outcomes {
            outcome.unwrap();
        }
    }

    pub(crate) async fn search(
        &self,
        index: &str,
        params: &[(&str, &str)],
        body: Value,
    ) -> Result<Value, Error> {
        let params = owned(params);
        self.service.search(&self.session, index, params, Some(body)).await.map(value)
    }
}

pub(crate) fn owned(params: &[(&str, &str)]) -> Vec<(String, String)> {
    params.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

pub(crate) fn value(outcome: Outcome) -> Value {
    match outcome.body {
        OutcomeBody::Json(value) => value,
        OutcomeBody::Raw(bytes) | OutcomeBody::Text(bytes) => serde_json::from_slice(&bytes).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// The physical plan of a statement, a line for each node.
pub(crate) async fn physical_plan(store: &Store, statement: &str) -> String {
    let lines = |lines: &Value| {
        let lines = lines.as_array()?.iter().map(|line| line.as_str().unwrap());
        Some(lines.collect::<Vec<_>>().join("\n"))
    };
    let asked = serde_json::json!({"query": statement});
    let explained = value(store.service.explain_sql(&store.session, Vec::new(), Some(asked)).await);
    if let Some(plan) = lines(&explained["Physical Plan"]) {
        return plan;
    }
    // A search explains the statement; its plan is an answer.
    let asked = serde_json::json!({"query": format!("EXPLAIN {statement}")});
    let answer = value(store.service.sql(&store.session, Vec::new(), Some(asked)).await);
    let rows = answer["datarows"].as_array().unwrap_or_else(|| panic!("{statement}: {answer}"));
    let physical = rows.iter().filter(|row| row[0] == "physical").map(|row| row[1].clone());
    lines(&physical.collect()).unwrap()
}

/// The ids of the hits, in order.
pub(crate) fn ids(answer: &Value) -> Vec<String> {
    let hits = answer["hits"]["hits"].as_array().unwrap();
    hits.iter().map(|hit| hit["_id"].as_str().unwrap().to_owned()).collect()
}
