//! System indices of the global state: a restore puts them in the place of those that are there, and tells their owners.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::BoxFuture;
use millrace_catalog::access::{Action, ActionSet, Caller, Principal, Privileges};
use millrace_engine::Engine;
use millrace_snapshot::{RestoreSnapshot, SystemStateOwner};
use parking_lot::Mutex;
use serde_json::json;

use crate::support::*;

/// An owner that notes what it finds when it is to read its index again.
#[derive(Debug)]
struct RecordingOwner {
    engine: Arc<Engine>,
    found: Mutex<Vec<u64>>,
    /// Reloads that fail before one succeeds.
    refusals: AtomicU64,
}

impl SystemStateOwner for RecordingOwner {
    fn index(&self) -> &'static str {
        ".console"
    }

    fn reload(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            self.found.lock().push(live(&self.engine, ".console"));
            let refuses =
                self.refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            refuses.map_or(Ok(()), |_| Err("no memory".to_owned()))
        })
    }
}

async fn make_own(engine: &Engine, index: &str) {
    let body = json!({"settings": {"index.number_of_shards": 1, "index.number_of_replicas": 0}});
    engine.make_own_index(index, &body).await.unwrap();
}

fn global_state_alone() -> RestoreSnapshot {
    RestoreSnapshot {
        indices: Some("-*".to_owned()),
        include_global_state: true,
        index_settings: json!({"index.number_of_replicas": "3"}).as_object().unwrap().clone(),
        rename_pattern: Some("(.+)".to_owned()),
        rename_replacement: Some("copy-$1".to_owned()),
        ..RestoreSnapshot::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_global_state_replaces_definitions_and_leaves_records() {
    let (data, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = open(data.path()).await;
    let service = service(&engine, backups.path()).await;
    let (mut objects, mut tasks, mut logs) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for index in [".console", ".tasks"] {
        make_own(&engine, index).await;
    }
    fill(&engine, ".console", 0..3, 1, &mut objects).await;
    fill(&engine, ".tasks", 0..3, 1, &mut tasks).await;
    fill(&engine, "logs", 0..3, 1, &mut logs).await;
    create(&service, "one").await;
    let then = objects.clone();
    // What came since in memory and in segments is gone; what was deleted is back.
    fill(&engine, ".console", 2..9, 2, &mut objects).await;
    flush(&engine, ".console").await;
    delete(&engine, ".console", "d0", &mut objects).await;
    make_own(&engine, ".ingest-pipelines").await;
    let mut pipelines = BTreeMap::new();
    fill(&engine, ".ingest-pipelines", 0..1, 1, &mut pipelines).await;
    fill(&engine, ".tasks", 3..5, 2, &mut tasks).await;
    fill(&engine, "logs", 3..5, 2, &mut logs).await;
    let owner = Arc::new(RecordingOwner {
        engine: Arc::clone(&engine),
        found: Mutex::default(),
        refusals: AtomicU64::default(),
    });
    service.add_state_owner(owner.clone());
    let system = Principal::system();

    let without = RestoreSnapshot { include_global_state: false, ..global_state_alone() };
    service.restore(&system, ("backup", "one"), without).await.unwrap();
    assert!(owner.found.lock().is_empty());
    // Somebody who could not grant every right brings templates and settings alone.
    let actions = [
        Action::RestoreSnapshot,
        Action::PutClusterSettings,
        Action::PutTemplates,
        Action::PutIndexTemplates,
        Action::PutComponentTemplates,
    ];
    let privileges = Arc::new(Privileges::new(ActionSet::new(&actions), Vec::new()));
    let keeper = Principal::new(Caller::User("ann".into()), Vec::new(), privileges);
    service.restore(&keeper, ("backup", "one"), global_state_alone()).await.unwrap();
    check(&engine, ".console", &objects).await;

    let report = service.restore(&system, ("backup", "one"), global_state_alone()).await.unwrap();
    assert_eq!(report.indices, [".console"]);
    assert_eq!(*owner.found.lock(), [3]);
    check(&engine, ".console", &then).await;
    check(&engine, ".tasks", &tasks).await;
    check(&engine, "logs", &logs).await;
    check(&engine, ".ingest-pipelines", &pipelines).await;
    assert_eq!(engine.metadata().index(".console").unwrap().replicas, 0);
    let mut written = then.clone();
    fill(&engine, ".console", 5..6, 4, &mut written).await;
    check(&engine, ".console", &written).await;

    // By name it is restored under another name as well.
    let named = RestoreSnapshot { indices: Some(".console".to_owned()), ..global_state_alone() };
    service.restore(&system, ("backup", "one"), named).await.unwrap();
    check(&engine, "copy-.console", &then).await;
    check(&engine, ".console", &then).await;

    // One that cannot load it now does so later.
    let refusing = Arc::new(RecordingOwner {
        engine: Arc::clone(&engine),
        found: Mutex::default(),
        refusals: AtomicU64::new(1),
    });
    service.add_state_owner(refusing.clone());
    let report = service.restore(&system, ("backup", "one"), global_state_alone()).await.unwrap();
    assert_eq!((report.indices, report.successful), (vec![".console".to_owned()], 0));
    assert!(report.failures[0].reason.ends_with("no memory"), "{:?}", report.failures);
    while refusing.found.lock().len() < 2 {
        tokio::task::yield_now().await;
    }
    drop(refusing);
    drop(service);

    // After a kill the replaced index is not there again.
    drop((owner, engine));
    let engine = open(data.path()).await;
    check(&engine, ".console", &then).await;
    check(&engine, ".tasks", &tasks).await;
}
