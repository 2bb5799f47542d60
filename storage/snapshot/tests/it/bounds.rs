//! Rights and bounds: what a request may not do leaves everything as it was.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use millrace_catalog::access::{Action, ActionSet, Caller, Grant, NamePattern, Principal, Privileges};
use millrace_catalog::metadata::{MetadataChange, Uuid};
use millrace_engine::Engine;
use millrace_snapshot::{Config, CreateSnapshot, RestoreSnapshot, SnapshotFilter, SnapshotService};
use serde_json::{Map, json};

use crate::support::*;

fn user(cluster: &[Action], grants: &[(&str, &[Action])]) -> Principal {
    let grants = grants.iter().map(|(name, actions)| Grant {
        names: vec![NamePattern::parse(name).unwrap()],
        actions: ActionSet::new(actions),
        system: name.starts_with('.'),
        documents: None,
        fields: None,
    });
    let privileges = Arc::new(Privileges::new(ActionSet::new(cluster), grants.collect()));
    Principal::new(Caller::User("ann".into()), Vec::new(), privileges)
}

async fn create_index(engine: &Engine, name: &str, body: serde_json::Value) {
    let make = |m: &millrace_catalog::metadata::Metadata| m.create_index(name, &body, 0, Uuid::new_v4());
    engine.change(&Principal::system(), make).await.unwrap();
}

fn copies() -> RestoreSnapshot {
    RestoreSnapshot {
        rename_pattern: Some("(.+)".to_owned()),
        rename_replacement: Some("copy-$1".to_owned()),
        ..RestoreSnapshot::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_gives_no_alias_without_the_right_on_it() {
    let (data, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = open(data.path()).await;
    let service = service(&engine, backups.path()).await;
    create_index(&engine, "logs", json!({"aliases": {"all": {}}})).await;
    create(&service, "one").await;
    let makes = [Action::CreateIndex, Action::IndexDocument];
    let names = [Action::CreateIndex, Action::IndexDocument, Action::PutAliases];
    let restores = [Action::RestoreSnapshot];
    let before = files(data.path());
    for lacking in [user(&restores, &[("copy-*", &makes)]), user(&restores, &[("copy-*", &names)])] {
        let refused = service.restore(&lacking, ("backup", "one"), copies()).await.unwrap_err();
        assert!(refused.to_string().contains("indices:admin/aliases"), "{refused}");
        // Not only after the answer.
        let refused = service.begin_restore(&lacking, ("backup", "one"), copies()).await.unwrap_err();
        assert!(refused.to_string().contains("indices:admin/aliases"), "{refused}");
        assert_eq!(files(data.path()), before);
    }
    let without = RestoreSnapshot { include_aliases: false, ..copies() };
    service.restore(&user(&restores, &[("copy-*", &makes)]), ("backup", "one"), without).await.unwrap();
    delete_index(&engine, "copy-logs").await;
    let allowed = user(&restores, &[("copy-*", &names), ("all", &names)]);
    service.restore(&allowed, ("backup", "one"), copies()).await.unwrap();
    assert_eq!(engine.metadata().alias_indices("all").unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_leaves_the_disk_its_reserve() {
    let (data, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = open(data.path()).await;
    let service = service(&engine, backups.path()).await;
    let mut expected = BTreeMap::new();
    fill(&engine, "logs", 0..50, 1, &mut expected).await;
    create(&service, "one").await;
    let settings = Map::from_iter([
        ("cluster.routing.allocation.disk.threshold_enabled".to_owned(), json!("true")),
        ("cluster.routing.allocation.disk.watermark.flood_stage".to_owned(), json!("1000000gb")),
    ]);
    let change = MetadataChange::PutPersistent(settings);
    engine.change(&Principal::system(), |_| Ok(vec![change])).await.unwrap();
    let refused = restore_copies(&service, "one").await.unwrap_err().to_string();
    assert!(refused.contains("flood stage"), "{refused}");
    let change = MetadataChange::PutPersistent(Map::new());
    engine.change(&Principal::system(), |_| Ok(vec![change])).await.unwrap();
    restore_copies(&service, "one").await.unwrap();
    check(&engine, "copy-logs", &expected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_restore_leaves_no_file() {
    let (data, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = open(data.path()).await;
    let service = service(&engine, backups.path()).await;
    let (mut a, mut b) = (BTreeMap::new(), BTreeMap::new());
    fill(&engine, "a", 0..50, 1, &mut a).await;
    flush(&engine, "a").await;
    fill(&engine, "a", 50..90, 1, &mut a).await;
    fill(&engine, "b", 100..150, 2, &mut b).await;
    let request = CreateSnapshot { include_global_state: false, ..CreateSnapshot::default() };
    service.create(&Principal::system(), ("backup", "one"), request).await.unwrap();
    let stored = |dir: &Path| -> Vec<_> {
        let scratch = engine.scratch_file();
        let found = files(dir).into_iter();
        found
            .filter(|file| {
                file.starts_with(data.path().join("segments")) || file.parent() == scratch.parent()
            })
            .collect()
    };
    let before = stored(data.path());
    let contents = files(&backups.path().join("one/contents"));
    assert!(contents.len() >= 8, "{contents:?}");
    for file in contents {
        let right = std::fs::read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        restore_copies(&service, "one").await.unwrap_err();
        assert_eq!(stored(data.path()), before, "without {}", file.display());
        std::fs::write(&file, &right).unwrap();
    }
    restore_copies(&service, "one").await.unwrap();
    check(&engine, "copy-a", &a).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_reads_does_not_take_a_repository_back() {
    let (data, other, backups) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = open(data.path()).await;
    let first = service(&engine, backups.path()).await;
    create(&first, "one").await;
    let rival = open(other.path()).await;
    let second = service(&rival, backups.path()).await;
    create(&second, "two").await;
    // As after a restart: the repository is opened by its first use.
    drop(first);
    let config = Config { path_repo: vec![backups.path().to_owned()], ..Config::default() };
    let first = SnapshotService::open(Arc::clone(&engine), config).await.unwrap();
    let all = SnapshotFilter { expression: "_all".to_owned(), ignore_unavailable: false };
    assert_eq!(first.manifests("backup", &all).await.unwrap().len(), 2);
    create(&second, "three").await;
    let refused =
        first.create(&Principal::system(), ("backup", "four"), CreateSnapshot::default()).await.unwrap_err();
    assert!(refused.to_string().contains("register it again"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_marker_is_written_again_and_abandoned_files_go() {
    let (data, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = open(data.path()).await;
    let first = service(&engine, backups.path()).await;
    let mut expected = BTreeMap::new();
    fill(&engine, "logs", 0..50, 1, &mut expected).await;
    create(&first, "one").await;
    let root = backups.path().join("one");
    std::fs::create_dir_all(root.join("tests")).unwrap();
    let test = |number: u128| root.join("tests").join(Uuid::from_u128(number).simple().to_string());
    let (old, new) = (test(1), test(2));
    let scratch = root.join(".tmp/9");
    for file in [&old, &new, &scratch] {
        std::fs::write(file, "x").unwrap();
    }
    for file in [&old, &scratch] {
        let file = std::fs::File::options().write(true).open(file).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
    }
    std::fs::remove_file(root.join("repository.json")).unwrap();
    let again = service(&engine, backups.path()).await;
    restore_copies(&again, "one").await.unwrap();
    check(&engine, "copy-logs", &expected).await;
    again.cleanup_repository("backup").await.unwrap();
    assert!(!old.exists() && !scratch.exists() && new.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_system_index_leaves_the_store_with_administrators_alone() {
    let (data, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = open(data.path()).await;
    let service = service(&engine, backups.path()).await;
    create_index(&engine, ".console", json!({})).await;
    let named = CreateSnapshot { indices: Some(".console".to_owned()), ..CreateSnapshot::default() };
    let reader = user(&[Action::CreateSnapshot], &[(".console", &[Action::Search])]);
    let refused = service.create(&reader, ("backup", "one"), named.clone()).await.unwrap_err();
    assert!(refused.to_string().contains("unauthorized"), "{refused}");
    let administrator =
        user(&[Action::CreateSnapshot, Action::PutSecurity], &[(".console", &[Action::Search])]);
    let made = service.create(&administrator, ("backup", "one"), named).await.unwrap();
    assert_eq!(made.indices.len(), 1);
}
