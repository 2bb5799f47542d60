//! Detectors that a snapshot brings into another store.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_catalog::access::{Caller, Principal, Privileges};
use millrace_engine::{Action, Engine, RefreshPolicy, WriteOp};
use millrace_snapshot::{Config, CreateSnapshot, RestoreSnapshot, SnapshotService};
use serde_json::json;

use crate::detectors::{detector, open, save, until_scored, usual, write_all};
use crate::fixture::{START, Server, write};

async fn repository(engine: &Arc<Engine>, backups: &Path) -> SnapshotService {
    let config = Config { path_repo: vec![backups.to_owned()], ..Config::default() };
    let service = SnapshotService::open(Arc::clone(engine), config).await.unwrap();
    let body = json!({"type": "fs", "settings": {"location": "one"}});
    service.put_repository("backup", &body, true).await.unwrap();
    service
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_detector_scores_what_came_since_the_restore() {
    let (data, other, backups) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = open(data.path(), START).await;
    usual(&server, 300, START).await;
    let id = save(&server, detector("requests")).await;
    server.run(&id).await.unwrap();
    server.intelligence.stop().await;
    let service = repository(&server.engine, backups.path()).await;
    let create = CreateSnapshot::default();
    service.create(&Principal::system(), ("backup", "one"), create).await.unwrap();
    drop((service, server));
    let (engine, clock) = Server::engine(other.path(), START).await;
    let service = repository(&engine, backups.path()).await;
    let request = RestoreSnapshot {
        indices: Some("logs,.intelligence_rules".to_owned()),
        ..RestoreSnapshot::default()
    };
    service.restore(&Principal::system(), ("backup", "one"), request).await.unwrap();
    drop(service);
    let document = json!({"@timestamp": START, "bytes": 1000, "took": 50});
    let user =
        Principal::new(Caller::User("somebody".into()), Vec::new(), Arc::new(Privileges::unrestricted()));
    let early = Action::Index(Bytes::from(document.to_string()));
    let ops = vec![WriteOp::new("logs", Some("early".to_owned()), early)];
    let written = engine.write(&user, ops, RefreshPolicy::None, Duration::from_secs(60)).await.unwrap();
    written.into_iter().for_each(|outcome| drop(outcome.unwrap()));
    // The log is longer than that in which the detector was trained before it is loaded.
    for number in 0..400 {
        write(&engine, "other", &number.to_string(), &json!({"n": number})).await;
    }
    let server = Server::over(engine, clock).await;
    write_all(&server, "logs", vec![("late".to_owned(), document.clone())]).await;
    let found = until_scored(&server, "logs-multivariate-anomaly-", 2).await;
    assert!(found.contains_key("early") && found.contains_key("late"), "{found:?}");
    server.stop().await;
}
