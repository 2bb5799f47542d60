//! The actions `shrink` and `notification`, and the rights of `snapshot`.

use millrace_catalog::access::{Action, Principal};
use millrace_catalog::metadata::{IndicesOptions, MetadataChange, ResizeIndex, ResizeKind};
use millrace_engine::Session;
use serde_json::{Value, json};

use crate::support::{DAY_MS, START_MS, Store};

/// A policy of one state.
fn policy(actions: Value) -> Value {
    json!({"default_state": "s", "states": [{"name": "s", "actions": actions}]})
}

async fn attach(store: &Store, index: &str, body: &Value, owner: &str) {
    store.lifecycle.put_policy("p", body, None, Some(owner)).await.unwrap();
    store.lifecycle.add_policy(&[store.meta(index)], "p").await.unwrap();
}

fn docs(store: &Store, index: &str) -> u64 {
    let shards = store.engine.index(index).unwrap().figures().shards;
    shards.iter().map(|shard| shard.docs).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_is_shrunk_once_and_its_aliases_move() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    let body = json!({"settings": {"number_of_shards": 6}, "aliases": {"all": {}}});
    store.create_index("a", body).await;
    store.fill("a", 30).await;
    let shrink = json!([
        {"shrink": {"num_new_shards": 4, "switch_aliases": true, "aliases": [{"small": {}}],
            "target_index_name_template": {"source": "{{ctx.index}}-{{ctx.state.name}}"}}},
        {"delete": {}},
    ]);
    attach(&store, "a", &policy(shrink), "admin").await;
    store.advance(0).await;
    assert_eq!(store.names(), ["a-s"]);
    let target = store.meta("a-s");
    assert_eq!((target.shards, docs(&store, "a-s")), (3, 30));
    assert!(!target.flag("index.blocks.write"));
    assert_eq!(target.aliases.keys().collect::<Vec<_>>(), ["all", "small"]);
    let audit = store.audit.0.lock().join("\n");
    assert_eq!(audit.matches("/_shrink/").count(), 1, "{audit}");
    assert!(audit.contains("indices:admin/resize POST a/_shrink/a-s"), "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shrink_that_a_crash_left_copied_goes_on_with_the_aliases() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    let settings = json!({"number_of_shards": 2, "index.blocks.write": true});
    store.create_index("a", json!({"settings": settings, "aliases": {"all": {}}})).await;
    let request = ResizeIndex::parse(ResizeKind::Shrink, "a", "a_shrunken", &Value::Null).unwrap();
    let session = Session::new(&store.engine, Principal::system(), Action::Resize).unwrap();
    session.resize(&request).await.unwrap();
    let target = store.meta("a_shrunken").uuid;
    let shrink = json!([{"shrink": {"num_new_shards": 1, "switch_aliases": true}}]);
    attach(&store, "a", &policy(shrink), "admin").await;
    store.advance(0).await;
    assert!(store.meta("a").aliases.is_empty());
    let shrunken = store.meta("a_shrunken");
    assert!(shrunken.uuid == target && shrunken.aliases.contains_key("all"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shrunken_index_of_ilm_takes_the_place_of_its_source() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    let phases = json!({
        "hot": {"actions": {"rollover": {"max_docs": 1}}},
        "warm": {"min_age": "1d", "actions": {"shrink": {"number_of_shards": 1}, "forcemerge": {"max_num_segments": 1}}},
        "delete": {"min_age": "3d", "actions": {"delete": {}}},
    });
    let body = json!({"policy": {"phases": phases}});
    assert!(store.lifecycle.put_ilm_policy("shipped", &body, Some("admin")).await.unwrap().is_empty());
    let settings = json!({
        "number_of_shards": 2, "index.lifecycle.name": "shipped", "index.lifecycle.rollover_alias": "beat",
    });
    let written = json!({"beat": {"is_write_index": true}, "all": {}});
    store.create_index("beat-000001", json!({"settings": settings, "aliases": written})).await;
    store.fill("beat", 5).await;
    store.advance(0).await;
    assert_eq!(store.names(), ["beat-000001", "beat-000002"]);
    let hold = |held: bool| json!({ "index.retention.hold": held });
    store.set_index("beat-000001", hold(true)).await;
    store.advance(DAY_MS).await;
    assert_eq!(store.names(), ["beat-000001", "beat-000002"], "a held index has no other in its place");
    store.set_index("beat-000001", hold(false)).await;
    store.advance(1).await;
    let small = "beat-000001_shrunken";
    assert_eq!(store.names(), [small, "beat-000002"]);
    let target = store.meta(small);
    assert_eq!((target.shards, docs(&store, small)), (1, 5));
    assert_eq!(target.aliases.keys().collect::<Vec<_>>(), ["all", "beat", "beat-000001"]);
    let metadata = store.engine.metadata();
    assert_eq!(&*metadata.write_index("beat", 0).unwrap().unwrap().name, "beat-000002");
    assert!(metadata.write_index("beat-000001", 0).is_err(), "its name is for searches");
    let audit = store.audit.0.lock().join("\n");
    assert!(audit.contains("indices:admin/delete DELETE beat-000001"), "{audit}");
    // It goes on where its source was, and is as old.
    for _ in 0..4 {
        store.advance(1).await;
    }
    let shown = store.explain(small).await;
    assert_eq!((&shown["state"]["name"], &shown["rolled_over"]), (&json!("warm"), &json!(true)), "{shown}");
    assert_eq!(shown["retry_info"]["consumed_retries"], 0, "{shown}");
    assert_eq!(store.names(), [small, "beat-000002"]);
    store.advance(2 * DAY_MS).await;
    store.advance(1).await;
    assert_eq!(store.names(), ["beat-000002"]);
}

/// A policy of `_ilm` that shrinks at once and deletes at an age.
fn shrinks_and_deletes(min_age: &str) -> Value {
    json!({"policy": {"phases": {
        "warm": {"min_age": "0ms", "actions": {"shrink": {"number_of_shards": 1}}},
        "delete": {"min_age": min_age, "actions": {"delete": {}}},
    }}})
}

async fn shrink_by_request(store: &Store, source: &str, target: &str) {
    let request = ResizeIndex::parse(ResizeKind::Shrink, source, target, &Value::Null).unwrap();
    let session = Session::new(&store.engine, Principal::system(), Action::Resize).unwrap();
    session.resize(&request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_with_documents_that_its_target_lacks_stays() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    let blocked = |blocked: bool| json!({ "index.blocks.write": blocked });
    for index in ["later", "same"] {
        store.create_index(index, json!({"settings": {"number_of_shards": 2}})).await;
        store.fill(index, 5).await;
        store.set_index(index, blocked(true)).await;
        shrink_by_request(&store, index, &format!("{index}_shrunken")).await;
    }
    store.set_index("later", blocked(false)).await;
    store.fill("later", 1).await;
    store.set_index("later", blocked(true)).await;
    store.kill().await;
    let store = Store::open(dir.path(), START_MS).await;
    store.lifecycle.put_ilm_policy("shipped", &shrinks_and_deletes("9d"), Some("admin")).await.unwrap();
    let both = [store.meta("later"), store.meta("same")];
    store.lifecycle.add_policy(&both, "shipped").await.unwrap();
    for _ in 0..3 {
        store.advance(1).await;
    }
    assert_eq!(store.names(), ["later", "later_shrunken", "same_shrunken"]);
    assert_eq!((docs(&store, "later"), docs(&store, "same_shrunken")), (6, 5));
    let refused = store.explain("later").await;
    let cause = refused["info"]["cause"].as_str().unwrap_or_default();
    assert!(cause.contains("[later_shrunken] does not have all documents of [later]"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shrunken_index_is_as_old_as_its_source_says() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    store.lifecycle.put_ilm_policy("shipped", &shrinks_and_deletes("35d"), Some("admin")).await.unwrap();
    // 31 days before the start.
    let index = "logs-2025.12.01-000001";
    let settings = json!({
        "number_of_shards": 2, "index.lifecycle.name": "shipped", "index.lifecycle.parse_origination_date": true,
    });
    store.create_index(index, json!({ "settings": settings })).await;
    store.fill(index, 5).await;
    for _ in 0..3 {
        store.advance(1).await;
    }
    assert_eq!(store.names(), [format!("{index}_shrunken")]);
    store.advance(5 * DAY_MS).await;
    for _ in 0..2 {
        store.advance(1).await;
    }
    assert!(store.names().is_empty(), "{:?}", store.names());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_is_there_is_taken_if_it_is_of_the_same_source() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    store.create_index("a", json!({"settings": {"number_of_shards": 2}})).await;
    store.fill("a", 10).await;
    store.create_index("a_shrunken", Value::Null).await;
    attach(&store, "a", &policy(json!([{"shrink": {"num_new_shards": 1}}])), "admin").await;
    store.advance(0).await;
    let failed = store.explain("a").await;
    assert_eq!(failed["retry_info"]["consumed_retries"], 1, "{failed}");
    assert!(!store.meta("a").flag("index.blocks.write"), "a failed action lifts its block");
    let uuid = store.meta("a_shrunken").uuid;
    let delete = MetadataChange::DeleteIndex { name: "a_shrunken".into(), uuid };
    store.change(|_| Ok(vec![delete])).await.unwrap();
    store.advance(60_000).await;
    assert_eq!(docs(&store, "a_shrunken"), 10);
    assert!(store.meta("a").flag("index.blocks.write"));

    // Another policy with the same action finds the target, and an index with one shard has nothing to shrink.
    store
        .lifecycle
        .put_policy("q", &policy(json!([{"shrink": {"num_new_shards": 1}}])), None, Some("admin"))
        .await
        .unwrap();
    store.lifecycle.change_policy(&[store.meta("a")], "q", Some("s"), &[]).await.unwrap();
    store.lifecycle.add_policy(&[store.meta("a_shrunken")], "q").await.unwrap();
    store.advance(1).await;
    for index in ["a", "a_shrunken"] {
        let shown = store.explain(index).await;
        assert_eq!(shown["retry_info"]["failed"], false, "{shown}");
        assert_eq!(shown["retry_info"]["consumed_retries"], 0, "{shown}");
    }
    assert_eq!(store.names(), ["a", "a_shrunken"]);

    // A source that takes writes again has documents that the target has not.
    let writable = json!({"index.blocks.write": false});
    let options = IndicesOptions::open_only();
    store.change(|state| state.update_settings("a", &options, &writable, false, 0)).await.unwrap();
    store.fill("a", 1).await;
    store.lifecycle.change_policy(&[store.meta("a")], "q", Some("s"), &[]).await.unwrap();
    store.advance(1).await;
    let refused = store.explain("a").await;
    assert_eq!(refused["retry_info"]["consumed_retries"], 1, "{refused}");
    assert!(refused["info"].to_string().contains("already exists"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_is_shrunk_with_the_rights_of_the_owner() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    store.create_index("a", json!({"settings": {"number_of_shards": 2}})).await;
    store.fill("a", 10).await;
    attach(&store, "a", &policy(json!([{"shrink": {"num_new_shards": 1}}])), "ann").await;
    store.advance(0).await;
    let refused = store.explain("a").await;
    assert!(refused["info"].to_string().contains("is unauthorized for user [ann]"), "{refused}");
    assert_eq!(store.names(), ["a"]);
    assert!(!store.meta("a").flag("index.blocks.write"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_has_the_same_key_in_each_try() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    store.create_index("a", Value::Null).await;
    let notify = json!([{"notification": {
        "destination": {"slack": {"url": {"secret": "slack-ops"}}},
        "message_template": {"source": "{{ctx.index}} of {{ctx.policy_id}} is in {{ctx.state.name}}"},
    }}]);
    attach(&store, "a", &policy(notify), "admin").await;
    store.advance(0).await;
    assert_eq!(store.explain("a").await["retry_info"]["consumed_retries"], 1);
    store.advance(60_000).await;
    let sent = store.audit.0.lock().clone();
    let sent: Vec<&String> = sent.iter().filter(|line| line.ends_with("a of p is in s")).collect();
    assert!(sent.len() == 2 && sent[0] == sent[1], "{sent:?}");
    assert!(sent[0].contains(r#"{"secret":"slack-ops"}"#), "{sent:?}");
    store.advance(60_000).await;
    assert_eq!(store.explain("a").await["retry_info"]["failed"], false);
    assert_eq!(store.audit.0.lock().iter().filter(|line| line.ends_with("is in s")).count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_has_the_rights_of_the_owner() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    store.register_repository().await;
    for index in ["a", "b"] {
        store.create_index(index, Value::Null).await;
    }
    let body = policy(json!([{"snapshot": {"repository": "backup", "snapshot": "of-{{ctx.index}}"}}]));
    for (id, owner) in [("of-ann", Some("ann")), ("of-nobody", None), ("of-gone", Some("gone"))] {
        store.lifecycle.put_policy(id, &body, None, owner).await.unwrap();
    }
    assert_eq!(store.lifecycle.policy("of-ann").unwrap().policy.body["user"]["name"], "ann");
    let both = [store.meta("a"), store.meta("b")];
    store.lifecycle.add_policy(&both, "of-ann").await.unwrap();
    store.advance(0).await;
    assert_eq!(store.explain("a").await["retry_info"]["consumed_retries"], 0);
    let refused = store.explain("b").await;
    assert!(
        refused["info"].to_string().contains("is unauthorized for user [ann] on indices [b]"),
        "{refused}"
    );
    for (id, needle) in [("of-nobody", "has no owner"), ("of-gone", "user [gone], is deleted or disabled")] {
        store.lifecycle.change_policy(&both[1..], id, Some("s"), &[]).await.unwrap();
        store.advance(1).await;
        let refused = store.explain("b").await;
        assert!(refused["info"].to_string().contains(needle), "{refused}");
    }
    // The owner is that of the policy's version over a restart, too.
    store.kill().await;
    let store = Store::open(dir.path(), START_MS + 10).await;
    assert_eq!(store.lifecycle.policy("of-ann").unwrap().policy.owner.as_deref(), Some("ann"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_reported_once_to_whom_the_policy_says() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    store.create_index("a", Value::Null).await;
    let mut body = policy(json!([{"rollover": {}, "retry": {"count": 1, "delay": "1m"}}]));
    body["error_notification"] = json!({
        "destination": {"chime": {"url": "https://example.com/x"}},
        "message_template": {"source": "{{ctx.action.name}} of {{ctx.index}} failed: {{ctx.info.cause}}"},
    });
    attach(&store, "a", &body, "admin").await;
    let reports = |store: &Store| {
        let all = store.audit.0.lock().clone();
        all.into_iter()
            .filter(|line| line.contains("rollover of a failed: Missing rollover_alias"))
            .collect::<Vec<_>>()
    };
    store.advance(0).await;
    assert_eq!(reports(&store).len(), 0, "it is tried again");
    store.advance(60_000).await;
    assert_eq!(reports(&store).len(), 1);
    assert_eq!(store.explain("a").await["action"]["failed"], true);
    // The answer to the first message was lost.
    store.advance(60_000).await;
    store.advance(60_000).await;
    let sent = reports(&store);
    assert!(sent.len() == 2 && sent[0] == sent[1], "{sent:?}");
    store.kill().await;
    let store = Store::open(dir.path(), START_MS + 300_000).await;
    store.advance(60_000).await;
    assert_eq!(reports(&store).len(), 0);
    assert_eq!(store.lifecycle.retry(&[store.meta("a")], None).await.updated, 1);
    store.advance(1).await;
    store.advance(60_000).await;
    assert_eq!(reports(&store).len(), 1, "it failed once more");
}

#[tokio::test(flavor = "multi_thread")]
async fn actions_of_settings_and_aliases_do_what_their_endpoints_do() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    store.create_index("a", json!({"aliases": {"old": {}}})).await;
    let closed = json!([{"read_only": {}}, {"read_write": {}}, {"close": {}}]);
    let opened = json!([
        {"open": {}},
        {"replica_count": {"number_of_replicas": 3}},
        {"alias": {"actions": [{"add": {"alias": "new"}}, {"remove": {"alias": "old"}}, {"remove": {"alias": "none"}}]}},
    ]);
    let body = json!({"default_state": "closed", "states": [
        {"name": "closed", "actions": closed, "transitions": [{"state_name": "opened"}]},
        {"name": "opened", "actions": opened},
    ]});
    attach(&store, "a", &body, "admin").await;
    store.advance(0).await;
    let meta = store.meta("a");
    assert!(!meta.open && meta.setting("index.blocks.write") == Some("false"));
    store.advance(0).await;
    let meta = store.meta("a");
    assert!(meta.open && meta.replicas == 3, "{meta:?}");
    assert_eq!(meta.aliases.keys().collect::<Vec<_>>(), ["new"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollover_is_skipped_times_out_or_brings_its_aliases() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), START_MS).await;
    let rollover = json!([{"rollover": {"min_doc_count": 1, "copy_alias": true}, "timeout": "1h"}]);
    store.lifecycle.put_policy("p", &policy(rollover), None, Some("admin")).await.unwrap();
    let alias_setting = "index.plugins.index_state_management.rollover_alias";
    for alias in ["skips", "waits", "rolls"] {
        let mut settings = json!({ alias_setting: alias });
        if alias == "skips" {
            settings["index.plugins.index_state_management.rollover_skip"] = true.into();
        }
        let aliases = json!({ alias: {"is_write_index": true}, format!("all-{alias}"): {} });
        let index = format!("{alias}-1");
        store.create_index(&index, json!({"settings": settings, "aliases": aliases})).await;
        store.lifecycle.add_policy(&[store.meta(&index)], "p").await.unwrap();
    }
    store.fill("rolls", 1).await;
    store.advance(1).await;
    assert_eq!(store.names(), ["rolls-000002", "rolls-1", "skips-1", "waits-1"]);
    assert_eq!(store.meta("rolls-000002").aliases.keys().collect::<Vec<_>>(), ["all-rolls", "rolls"]);
    let skipped = store.explain("skips-1").await;
    assert_eq!((&skipped["rolled_over"], &skipped["retry_info"]["failed"]), (&json!(false), &json!(false)));
    store.advance(3_600_000).await;
    assert_eq!(store.explain("waits-1").await["action"]["failed"], false);
    store.advance(1).await;
    let failed = store.explain("waits-1").await;
    assert_eq!(
        (&failed["action"]["failed"], &failed["info"]["message"]),
        (&json!(true), &json!("Action timed out"))
    );
}
