use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use millrace_catalog::access::{Action, ActionSet, Caller, Grant, NamePattern, Principal, Privileges};
use millrace_catalog::metadata::ClusterSettingsUpdate;
use millrace_engine::access::Sender;
use millrace_engine::{Action as StoredAction, RefreshPolicy, Session, WriteOp};
use millrace_mapping::fields::FieldRules;
use millrace_runtime::tasks::TaskSpec;
use millrace_runtime::{Error as StorageError, Result};
use serde_json::{Value, json};

use crate::fixture::{Store, owned, value};

#[tokio::test]
async fn matching_documents_are_deleted_in_batches() {
    let store = Store::open().await;
    numbers(&store).await;
    let params = owned(&[("scroll_size", "2"), ("refresh", "true")]);
    let body = json!({"query": {"range": {"n": {"lt": 3}}}});
    let outcome = store
        .service
        .delete_by_query(&store.session, "numbers", params, Some(body), Box::new(()))
        .await
        .unwrap();
    let answer = value(outcome);
    assert_eq!((answer["deleted"].as_u64(), answer["batches"].as_u64()), (Some(3), Some(2)));
    assert_eq!(answer["failures"], json!([]));
    assert_eq!(count(&store).await, 2);
}

#[tokio::test]
async fn a_cancellation_ends_a_batch_between_two_slices() {
    const DOCUMENTS: u64 = 2_000;
    let store = Store::open().await;
    let documents: Vec<_> = (0..DOCUMENTS).map(|n| json!({"n": n})).collect();
    store.index("numbers", &documents).await;
    let task = store.engine.tasks().start(TaskSpec::cancellable("deletion"));
    let session = store.session.clone().in_task(task.handle());
    let params = owned(&[("scroll_size", "10000")]);
    let body = json!({"query": {"match_all": {}}});
    let deletion = store.service.delete_by_query(&session, "numbers", params, Some(body), Box::new(()));
    let cancellation = async {
        while task.snapshot().progress.is_none() {
            tokio::task::yield_now().await;
        }
        store.engine.tasks().cancel(task.id(), "enough");
    };
    let (outcome, ()) = tokio::join!(deletion, cancellation);
    let answer = value(outcome.unwrap());
    assert_eq!((&answer["canceled"], &answer["batches"]), (&json!("enough"), &json!(1)), "{answer}");
    // The slice behind the first one may have begun.
    let deleted = answer["deleted"].as_u64().unwrap();
    assert!((250..=750).contains(&deleted), "{answer}");
    assert_eq!((&answer["total"], &answer["version_conflicts"]), (&json!(DOCUMENTS), &json!(0)));
    assert_eq!(count(&store).await, DOCUMENTS - deleted);
}

#[tokio::test]
async fn a_cancelled_deletion_that_has_not_begun_deletes_nothing() {
    let store = Store::open().await;
    numbers(&store).await;
    let task = store.engine.tasks().start(TaskSpec::cancellable("deletion"));
    let session = store.session.clone().in_task(task.handle());
    store.engine.tasks().cancel(task.id(), "enough");
    let body = json!({"query": {"match_all": {}}});
    let outcome =
        store.service.delete_by_query(&session, "numbers", Vec::new(), Some(body), Box::new(())).await;
    let answer = value(outcome.unwrap());
    assert_eq!((&answer["canceled"], &answer["deleted"]), (&json!("enough"), &json!(0)), "{answer}");
    assert_eq!(count(&store).await, 5);
    let op = WriteOp::new("numbers", Some("1".to_owned()), StoredAction::Delete);
    let written =
        session.write_unless_cancelled(vec![op], RefreshPolicy::None, Duration::from_secs(60)).await;
    assert!(matches!(written, Err(StorageError::Cancelled)));
}

async fn numbers(store: &Store) {
    let documents: Vec<_> = (0..5).map(|n| json!({"n": n, "m": n})).collect();
    store.index("numbers", &documents).await;
}

async fn count(store: &Store) -> Value {
    let index = store.engine.index("numbers").unwrap();
    store.engine.refresh(&[index]).await.unwrap();
    let outcome = store.service.count(&store.session, "numbers", Vec::new(), None).await.unwrap();
    value(outcome)["count"].clone()
}

fn grant(index: &str, actions: &[Action]) -> Grant {
    Grant {
        names: vec![NamePattern::parse(index).unwrap()],
        actions: ActionSet::new(actions),
        system: false,
        documents: None,
        fields: None,
    }
}

/// Rights to read numbers by these rules, and to delete them by none.
pub(crate) fn rights(documents: Option<&str>, fields: Option<&str>) -> Arc<Privileges> {
    let reads = Grant {
        documents: documents.map(Into::into),
        fields: fields.map(|field| Arc::new(FieldRules::new(&[field], &[]))),
        ..grant("numbers", &[Action::Search, Action::Sql])
    };
    let deletes = grant("numbers", &[Action::DeleteByQuery, Action::DeleteDocument, Action::Get]);
    Arc::new(Privileges::new(ActionSet::NONE, vec![reads, deletes]))
}

fn ann(rights: Arc<Privileges>) -> Principal {
    Principal::new(Caller::User("ann".into()), Vec::new(), rights)
}

/// A sender whose rights become others once it was asked so often.
struct DemotedSender {
    began: Principal,
    becomes: Principal,
    after: usize,
    asked: AtomicUsize,
}

impl Sender for DemotedSender {
    fn again(&self) -> BoxFuture<'_, Result<Option<Principal>>> {
        let has_become = self.asked.fetch_add(1, Ordering::Relaxed) >= self.after;
        let now = if has_become { &self.becomes } else { &self.began };
        Box::pin(async move { Ok(Some(now.clone())) })
    }
}

/// Begins an action with some rights, which become others once they were asked for so often.
pub(crate) fn session(
    store: &Store,
    action: Action,
    [began, becomes]: [&Arc<Privileges>; 2],
    after: usize,
) -> Session {
    let [began, becomes] = [began, becomes].map(|rights| ann(Arc::clone(rights)));
    let session = Session::new(&store.engine, began.clone(), action).unwrap();
    session.sent_by(Arc::new(DemotedSender { began, becomes, after, asked: AtomicUsize::new(0) }))
}

const FEW: Option<&str> = Some(r#"{"range":{"n":{"lt":3}}}"#);
const OTHERS: Option<&str> = Some(r#"{"range":{"n":{"gt":2}}}"#);

/// Rights that something begins with, those that come later, and how many documents are deleted; `None` where it is refused.
fn changes() -> [(Arc<Privileges>, Arc<Privileges>, Option<u64>); 7] {
    let lost = Privileges::new(ActionSet::NONE, vec![]);
    [
        // Made anew, and the same.
        (rights(None, None), rights(None, None), Some(5)),
        (rights(FEW, Some("n")), rights(FEW, Some("n")), Some(3)),
        (rights(None, None), rights(FEW, None), None),
        (rights(FEW, None), rights(OTHERS, None), None),
        (rights(None, None), rights(None, Some("n")), None),
        (rights(None, Some("n")), rights(None, Some("m")), None),
        (rights(None, None), Arc::new(lost), None),
    ]
}

#[tokio::test]
async fn a_deletion_ends_where_its_sender_reads_otherwise_by_now() {
    for (began, becomes, deleted) in changes() {
        let store = Store::open().await;
        numbers(&store).await;
        // The first batch is deleted as it was found.
        let session = session(&store, Action::DeleteByQuery, [&began, &becomes], 1);
        let (params, body) = (owned(&[("scroll_size", "2")]), json!({"query": {"match_all": {}}}));
        let outcome =
            store.service.delete_by_query(&session, "numbers", params, Some(body), Box::new(())).await;
        match deleted {
            Some(deleted) => {
                assert_eq!(value(outcome.unwrap())["deleted"], deleted);
                assert_eq!(count(&store).await, 5 - deleted);
            }
            None => {
                assert_eq!(outcome.unwrap_err().status(), 403, "{becomes:?}");
                assert_eq!(count(&store).await, 3, "{becomes:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_statement_ends_where_its_sender_reads_otherwise_by_now() {
    let enabled = json!({"transient": {"plugins.sql.delete.enabled": true}});
    let enabled = ClusterSettingsUpdate::parse(&enabled).unwrap();
    for (began, becomes, deleted) in changes() {
        let store = Store::open().await;
        store.session.change(|state| state.update_cluster_settings(&enabled)).await.unwrap();
        numbers(&store).await;
        let session = session(&store, Action::Sql, [&began, &becomes], 0);
        let outcome = store.service.update_statement(&session, "DELETE FROM numbers", None).await;
        match deleted {
            Some(deleted) => assert_eq!(outcome.unwrap(), deleted),
            None => assert_eq!(outcome.unwrap_err().status(), 403, "{becomes:?}"),
        }
        assert_eq!(count(&store).await, 5 - deleted.unwrap_or_default(), "{becomes:?}");
    }
}

#[tokio::test]
async fn a_matter_of_rights_comes_before_a_conflict() {
    let store = Store::open().await;
    numbers(&store).await;
    store.index("others", &[json!({"n": 1})]).await;
    // An index that is searched is not idle, and shows what was refreshed.
    store.search("numbers", &[], json!({})).await.unwrap();
    store.write_unseen("numbers", vec![("1".into(), Some(json!({"n": 9})))]).await;
    let grants = vec![
        grant("*", &[Action::Search, Action::DeleteByQuery]),
        grant("numbers", &[Action::DeleteDocument]),
    ];
    let ann = ann(Arc::new(Privileges::new(ActionSet::NONE, grants)));
    let session = Session::new(&store.engine, ann, Action::DeleteByQuery).unwrap();
    let body = json!({"query": {"match_all": {}}});
    let deletion =
        store.service.delete_by_query(&session, "numbers,others", Vec::new(), Some(body), Box::new(()));
    let outcome = deletion.await.unwrap();
    assert_eq!(outcome.status, 403);
    let answer = value(outcome);
    let failures = answer["failures"].as_array().unwrap();
    let failures: Vec<_> = failures.iter().map(|failure| (&failure["index"], &failure["status"])).collect();
    assert_eq!(failures, [(&json!("numbers"), &json!(409)), (&json!("others"), &json!(403))]);
    assert_eq!(answer["deleted"], 4);
    let (refused, _) = session.refusals().noted();
    assert_eq!(refused.iter().map(|part| part.index.as_deref()).collect::<Vec<_>>(), [Some("others")]);
}
