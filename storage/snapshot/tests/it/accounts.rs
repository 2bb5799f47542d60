//! Accounts in snapshots: who may take them, what becomes of a failure, and what is counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use millrace_catalog::AccountRecord;
use millrace_catalog::access::{Action, ActionSet, Caller, Principal, Privileges};
use millrace_engine::Engine;
use millrace_snapshot::{
    AccountStore, CreateSnapshot, OutcomeCounts, RestoreSnapshot, SnapshotService, names_accounts,
};
use parking_lot::Mutex;
use serde_json::json;

use crate::support::*;

/// Accounts that are put as they come, or refused.
#[derive(Debug, Default)]
struct RecordedAccounts {
    records: Mutex<Vec<AccountRecord>>,
    refuses: bool,
}

#[async_trait]
impl AccountStore for RecordedAccounts {
    async fn export(&self) -> Result<Vec<AccountRecord>, String> {
        Ok(self.records.lock().clone())
    }

    async fn import(&self, records: Vec<AccountRecord>) -> Result<(), String> {
        if self.refuses {
            return Err("there are more users than the limit of [1]".to_owned());
        }
        *self.records.lock() = records;
        Ok(())
    }
}

fn ann() -> AccountRecord {
    AccountRecord { kind: "user".to_owned(), name: "ann".to_owned(), body: "{\"v\":1}".to_owned() }
}

fn with_accounts() -> CreateSnapshot {
    CreateSnapshot { include_accounts: true, ..CreateSnapshot::default() }
}

fn copies() -> RestoreSnapshot {
    RestoreSnapshot {
        rename_pattern: Some("(.+)".to_owned()),
        rename_replacement: Some("copy-$1".to_owned()),
        include_accounts: true,
        ..RestoreSnapshot::default()
    }
}

/// A store with an index and a snapshot `one` that has a user.
async fn captured(
    data: &std::path::Path,
    backups: &std::path::Path,
) -> (Arc<Engine>, SnapshotService, BTreeMap<String, u32>) {
    let engine = open(data).await;
    let service = service(&engine, backups).await;
    let mut expected = BTreeMap::new();
    fill(&engine, "logs", 0..20, 1, &mut expected).await;
    let refused =
        service.create(&Principal::system(), ("backup", "none"), with_accounts()).await.unwrap_err();
    assert!(refused.to_string().contains("no feature state [security]"), "{refused}");
    let accounts = RecordedAccounts { records: Mutex::new(vec![ann()]), refuses: false };
    service.set_accounts(Arc::new(accounts));
    let made = service.create(&Principal::system(), ("backup", "one"), with_accounts()).await.unwrap();
    assert!(made.accounts.is_some());
    (engine, service, expected)
}

#[tokio::test(flavor = "multi_thread")]
async fn only_who_may_grant_every_right_takes_and_restores_accounts() {
    let (data, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_engine, service, _) = captured(data.path(), backups.path()).await;
    let actions = [Action::CreateSnapshot, Action::RestoreSnapshot];
    let privileges = Arc::new(Privileges::new(ActionSet::new(&actions), Vec::new()));
    let keeper = Principal::new(Caller::User("ann".into()), Vec::new(), privileges);
    let refused = service.create(&keeper, ("backup", "two"), with_accounts()).await.unwrap_err();
    assert!(refused.to_string().contains(Action::PutSecurity.name()), "{refused}");
    let refused = service.restore(&keeper, ("backup", "one"), copies()).await.unwrap_err();
    assert!(refused.to_string().contains(Action::PutSecurity.name()), "{refused}");
    service.restore(&Principal::system(), ("backup", "one"), copies()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn indices_stay_restored_where_accounts_are_refused() {
    let (data, other, backups) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (engine, first, expected) = captured(data.path(), backups.path()).await;
    drop((engine, first));
    let engine = open(other.path()).await;
    let service = service(&engine, backups.path()).await;
    service.set_accounts(Arc::new(RecordedAccounts { refuses: true, ..RecordedAccounts::default() }));
    for early_search_bytes in [0, u64::MAX] {
        let request = RestoreSnapshot { early_search_bytes, ..copies() };
        let refused = service.restore(&Principal::system(), ("backup", "one"), request).await.unwrap_err();
        assert!(refused.to_string().contains("accounts are not restored"), "{refused}");
        assert!(refused.to_string().contains("more users than the limit"), "{refused}");
        // Also where its files come later.
        check(&engine, "copy-logs", &expected).await;
        let mut written = expected.clone();
        fill(&engine, "copy-logs", 20..21, 2, &mut written).await;
        check(&engine, "copy-logs", &written).await;
        delete_index(&engine, "copy-logs").await;
    }
    let restores = service.figures().restores;
    assert_eq!(restores, OutcomeCounts { failure: 2, ..OutcomeCounts::default() });
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_are_collected_with_their_snapshot_and_damage_is_told() {
    let (data, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (engine, service, _) = captured(data.path(), backups.path()).await;
    let figures = service.figures();
    assert_eq!(figures.snapshots, OutcomeCounts { success: 1, ..OutcomeCounts::default() });
    assert!(figures.last_success_ms.is_some() && figures.uploaded_bytes > 0 && figures.running == 0);
    // Nothing but the accounts is other than before: one file and a manifest.
    let contents = backups.path().join("one/contents");
    let before = files(&contents);
    create(&service, "two").await;
    assert_eq!(files(&contents), before);
    let with = service.create(&Principal::system(), ("backup", "three"), with_accounts()).await.unwrap();
    assert_eq!(with.added_files, 0);
    service.delete("backup", "two").await.unwrap();
    assert_eq!(files(&contents), before);

    let digest = with.accounts.unwrap().0.to_string();
    let file = before.iter().find(|file| file.ends_with(&digest)).unwrap();
    let mut bytes = std::fs::read(file).unwrap();
    bytes[20] ^= 1;
    std::fs::write(file, bytes).unwrap();
    let refused = service.restore(&Principal::system(), ("backup", "three"), copies()).await.unwrap_err();
    assert!(refused.to_string().contains("the accounts are damaged"), "{refused}");
    assert!(engine.metadata().index("copy-logs").is_none());
    service.delete("backup", "one,three").await.unwrap();
    assert!(files(&contents).is_empty());
}

#[test]
fn feature_states_are_known_by_name() {
    for (value, named) in [
        (json!(["security"]), true),
        (json!("security,none"), true),
        (json!(["none"]), false),
        (json!([]), false),
        (json!(""), false),
        (json!(null), false),
    ] {
        assert_eq!(names_accounts(&value), Ok(named), "{value}");
    }
    assert!(names_accounts(&json!(["tasks"])).unwrap_err().contains("unknown feature state [tasks]"));
    for malformed in [json!(1), json!([1]), json!({})] {
        assert!(names_accounts(&malformed).unwrap_err().contains("malformed"), "{malformed}");
    }
}
