//! Choices of events against a real store, and the rights that stay the server's.

use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use millrace_catalog::metadata::{Metadata, Uuid, parse_alias_actions};
use millrace_engine::{Engine, Session};
use millrace_pipelines::Manager;
use millrace_pipelines::manager::StoredDeadLetter;
use serde_json::{Value, json};

use crate::{engine, filter, manager_of, put, values};

async fn create(engine: &Arc<Engine>, index: &str, body: Value) {
    let create = |state: &Metadata| state.create_index(index, &body, 0, Uuid::new_v4());
    Session::system(engine).change(create).await.unwrap();
}

/// Waits for so many dead letters; the reasons by the index that the event was for, in order.
async fn reasons(manager: &Manager, pipeline: &str, count: usize) -> Vec<(String, String)> {
    loop {
        let letters = manager.dead_letters(filter(Some(pipeline), 100)).await.unwrap().letters;
        if letters.len() >= count {
            let of = |letter: StoredDeadLetter| (letter.index.unwrap_or_default(), letter.reason);
            let mut reasons: Vec<_> = letters.into_iter().map(of).collect();
            reasons.sort();
            return reasons;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn choosing(events: &[Value], index: &str) -> String {
    let lines: Vec<String> = events.iter().map(|event| format!("'{event}'")).collect();
    let lines = lines.join(", ");
    format!(
        "input {{ generator {{ count => 1 codec => json lines => [{lines}] }} }} output {{ elasticsearch {{ id => out index => '{index}' }} }}"
    )
}

async fn stop(manager: Arc<Manager>, engine: Arc<Engine>) {
    manager.stop(Duration::from_secs(10)).await;
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_choose_no_index_that_is_kept_from_them() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    create(&engine, ".console", json!({})).await;
    create(&engine, "alert", json!({})).await;
    let body = json!({"actions": [{"add": {"index": ".console", "alias": "door"}}]});
    let actions = parse_alias_actions(&body).unwrap();
    Session::system(&engine).change(|state| state.update_aliases(&actions, 0)).await.unwrap();
    let kept =
        [".alertrules", ".audit-2026.01.01", ".console", ".dead-letters", ".security", "alert", "door"];
    let mut events: Vec<Value> = kept.iter().map(|to| json!({"to": to, "n": 1})).collect();
    events.push(json!({"to": "fine", "n": 2}));
    put(dir.path(), "main.conf", &choosing(&events, "%{[to]}"));
    let manager = manager_of(dir.path(), &engine);
    manager.start().await;
    let reasons = reasons(&manager, "main", kept.len()).await;
    assert_eq!(reasons.iter().map(|(index, _)| index.as_str()).collect::<Vec<_>>(), kept);
    for (index, reason) in &reasons {
        let said = format!("is unauthorized for pipeline [main] on indices [{index}]");
        assert!(reason.contains(&said), "{reason}");
    }
    assert_eq!(values(&engine, "fine", "n").await, [json!(2)]);
    for index in [".console", "alert"] {
        assert_eq!(values(&engine, index, "n").await, Vec::<Value>::new(), "{index}");
    }
    // What the event was to be among the letters is a letter.
    assert_eq!(values(&engine, ".dead-letters", "n").await, vec![Value::Null; kept.len()]);
    for index in [".alertrules", ".audit-2026.01.01", ".security"] {
        assert!(engine.index(index).is_err(), "{index}");
    }
    // Sent again they are refused again, and stay.
    let again = manager.replay(filter(Some("main"), 100), None).await.unwrap();
    assert_eq!((again.stored, again.left.len()), (0, kept.len()));
    stop(manager, engine).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_are_those_of_the_definition_that_runs() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    // The rest of date math comes from the event: the name that it stands for does not end as the option does.
    let events = [json!({"to": "<secret", "n": 1}), json!({"to": "other", "n": 2})];
    put(dir.path(), "narrow.conf", &choosing(&events, "%{[to]}>"));
    let wide = [json!({"to": "<secret>", "n": 3})];
    put(dir.path(), "wide.conf", &choosing(&wide, "%{[to]}"));
    let manager = manager_of(dir.path(), &engine);
    manager.start().await;
    let narrow = reasons(&manager, "narrow", 2).await;
    let (index, reason) = &narrow[0];
    assert_eq!(index, "<secret>");
    assert!(reason.contains("is unauthorized for pipeline [narrow] on indices [<secret>]"), "{reason}");
    // Another pipeline's rights are its own.
    while values(&engine, "secret", "n").await.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(values(&engine, "secret", "n").await, [json!(3)]);
    let again = manager.replay(filter(Some("narrow"), 1), None).await.unwrap();
    assert!(again.stored == 0 && again.left[0].1.contains("unauthorized"), "{again:?}");

    put(dir.path(), "narrow.conf", &choosing(&events, "secret"));
    manager.reload_changed().await;
    let again = manager.replay(filter(Some("narrow"), 100), None).await.unwrap();
    assert!(again.stored == 1 && again.left.len() == 1, "{again:?}");
    assert_eq!(values(&engine, "secret", "n").await, [json!(1), json!(3)]);

    put(dir.path(), "narrow.conf", &choosing(&[json!({"to": "<secret", "n": 5})], "x-%{[to]}>"));
    manager.reload_changed().await;
    // `x-<secret>` is no date math, and no name.
    let letters = reasons(&manager, "narrow", 2).await;
    assert!(!letters.iter().any(|(_, reason)| reason.contains("[x-<secret>] on")), "{letters:?}");
    let again = manager.replay(filter(Some("narrow"), 100), None).await.unwrap();
    assert_eq!((again.stored, again.left.len()), (0, 2));
    stop(manager, engine).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_stand_for_what_they_are_aliases_of_and_for_dates() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    create(&engine, "000001-app", json!({"aliases": {"app": {"is_write_index": true}}})).await;
    let event = [json!({"n": 1, "day": "logs", "@timestamp": "2026-03-04T05:06:07Z"})];
    for (id, index) in [
        ("alias", "app"),
        ("dated", "%{[day]}-%{+yyyy.MM.dd}"),
        ("math", "<math-{now/d{yyyy|UTC}}-%{[day]}>"),
    ] {
        put(dir.path(), &format!("{id}.conf"), &choosing(&event, index));
    }
    let manager = manager_of(dir.path(), &engine);
    manager.start().await;
    let year = Utc::now().format("%Y");
    for index in ["000001-app".to_owned(), "logs-2026.03.04".to_owned(), format!("math-{year}-logs")] {
        while values(&engine, &index, "n").await.is_empty() {
            let letters = manager.dead_letters(filter(None, 10)).await.unwrap().letters;
            assert!(letters.is_empty(), "{index}: {letters:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    stop(manager, engine).await;
}
