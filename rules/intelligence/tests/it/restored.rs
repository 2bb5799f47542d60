//! Detectors that a snapshot brings into another store.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_catalog::access::{Caller, Principal, Privileges};
use millrace_engine::{Action, RefreshPolicy, WriteOp};
use millrace_snapshot::testing::open_with_backup;
use millrace_snapshot::{CreateSnapshot, RestoreSnapshot};
use serde_json::json;

use crate::detectors::{detector, open, save, until_scored, usual, write_all};
use crate::fixture::{START, Server, write};

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_detector_scores_what_came_since_the_restore() {
    let (data, other, backups) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = open(data.path(), START).await;
    usual(&server, 300, START).await;
    let id = save(&server, detector("requests")).await;
    server.run(&id).await.unwrap();
    server.intelligence.stop().await;
    let service = open_with_backup(&server.engine, backups.path()).await.unwrap();
    let create = CreateSnapshot::default();
    service.create(&Principal::system(), ("backup", "one"), create).await.unwrap();
    drop((service, server));
    let (engine, clock) = Server::engine(other.path(), START).await;
    let service = open_with_backup(&engine, backups.path()).await.unwrap();
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

#[tokio::test(flavor = "multi_thread")]
async fn a_running_server_takes_restored_rules_up() {
    let (data, other, backups) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = open(data.path(), START).await;
    usual(&server, 300, START).await;
    let id = save(&server, detector("requests")).await;
    server.run(&id).await.unwrap();
    let service = open_with_backup(&server.engine, backups.path()).await.unwrap();
    service.create(&Principal::system(), ("backup", "one"), CreateSnapshot::default()).await.unwrap();
    drop(service);
    server.stop().await;

    let server = open(other.path(), START).await;
    usual(&server, 300, START).await;
    let mine = save(&server, detector("mine")).await;
    let service = open_with_backup(&server.engine, backups.path()).await.unwrap();
    let request = RestoreSnapshot {
        indices: Some("-*".to_owned()),
        include_global_state: true,
        ..RestoreSnapshot::default()
    };
    service.restore(&Principal::system(), ("backup", "one"), request).await.unwrap();
    drop(service);
    server.intelligence.reload().await.unwrap();
    let listed = server.intelligence.list(&server.admin());
    assert_eq!(listed.len(), 1, "the rule [{mine}] is replaced");
    assert_eq!(listed[0].value()["_id"], json!(id));
    // Its models are not in the snapshot: they are trained anew.
    let document = json!({"@timestamp": START, "bytes": 1000, "took": 50});
    write_all(&server, "logs", vec![("late".to_owned(), document)]).await;
    let found = until_scored(&server, "logs-multivariate-anomaly-", 1).await;
    assert!(found.contains_key("late"), "{found:?}");
    server.intelligence.change(&server.admin(), detector("another")).await.unwrap();
    server.stop().await;
}
