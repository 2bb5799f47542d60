use super::run::{SnapshotAge, expired_snapshots};
use super::*;

const DAY_MS: i64 = 86_400_000;

fn body() -> Value {
    json!({
        "creation": {"schedule": {"cron": {"expression": "0 8 * * *", "timezone": "UTC"}}, "time_limit": "1h"},
        "deletion": {"condition": {"max_age": "7d", "max_count": 4, "min_count": 2}},
        "snapshot_config": {"repository": "r", "date_format": "yyyy-MM-dd-HH:mm", "timezone": "America/Los_Angeles"},
    })
}

#[test]
fn a_policy_is_due_at_its_times() {
    let policy = SnapshotPolicy::parse("daily", &body(), 0, None).unwrap();
    assert!(!policy.is_due(DAY_MS / 3 - 1));
    assert!(policy.creation_due(DAY_MS / 3) && policy.deletion_due(DAY_MS / 3));
    assert_eq!(policy.date_text(DAY_MS), "1970-01-01-16:00");
    let stopped = policy.with_enabled(false, 5);
    assert!(!stopped.is_due(2 * DAY_MS));
    let started = stopped.with_enabled(true, DAY_MS);
    assert!(!started.is_due(DAY_MS + DAY_MS / 3 - 1) && started.is_due(DAY_MS + DAY_MS / 3));
    assert_eq!(started.revision, 3);
    let read = SnapshotPolicy::decode("daily", &started.encode()).unwrap();
    assert_eq!((read.revision, read.creation.handled_ms, &read.body), (3, DAY_MS, &started.body));
}

#[test]
fn a_clock_that_was_ahead_stops_no_policy() {
    let policy = SnapshotPolicy::parse("daily", &body(), 100 * DAY_MS, None).unwrap();
    assert!(policy.creation_due(DAY_MS) && policy.deletion_due(DAY_MS));
    assert!(!policy.is_due(100 * DAY_MS - 1_000));
    let retried = ScheduleProgress { retry_ms: DAY_MS + 60_000, retries: 1, ..policy.creation.clone() };
    let policy = policy.with_progress(retried.clone(), retried);
    assert!(!policy.is_due(DAY_MS) && policy.creation_due(DAY_MS + 60_000));
}

#[test]
fn a_stored_notification_that_is_none_stops_no_snapshots() {
    let policy = SnapshotPolicy::parse("p", &body(), 0, None).unwrap();
    for stored in [json!({"channel": {"id": "c"}}), json!({"conditions": {"sometimes": 1}}), json!("ops")] {
        let mut document: Value = serde_json::from_slice(&policy.encode()).unwrap();
        document["policy"]["notification"] = stored.clone();
        let read = SnapshotPolicy::decode("p", &document.to_string().into()).unwrap();
        assert_eq!((read.notification, &read.body["notification"]), (None, &stored));
    }
}

#[test]
fn snapshots_go_by_age_and_number_but_some_stay() {
    let snapshots = |days: &[i64]| -> Vec<SnapshotAge> {
        days.iter().map(|day| SnapshotAge { name: day.to_string(), started_ms: day * DAY_MS }).collect()
    };
    let names = |days: &[i64], condition: &DeletionCondition| -> Vec<String> {
        let expired = expired_snapshots(snapshots(days), condition, 10 * DAY_MS);
        expired.into_iter().map(|snapshot| snapshot.name).collect()
    };
    let age = Some(Duration::from_secs(3 * 86_400));
    let condition = DeletionCondition { max_age: age, max_count: Some(4), min_count: 2 };
    assert_eq!(names(&[9, 1, 8, 2], &condition), ["1", "2"]);
    assert_eq!(names(&[1, 2], &condition), Vec::<String>::new());
    assert_eq!(names(&[5, 6, 7, 8, 9], &DeletionCondition { max_age: None, ..condition.clone() }), ["5"]);
    assert_eq!(names(&[1, 2, 3], &DeletionCondition { min_count: 1, ..condition }), ["1", "2"]);
}

#[test]
fn what_cannot_run_is_refused() {
    let change = |pointer: &str, value: Value| {
        let mut body = body();
        *body.pointer_mut(pointer).unwrap() = value;
        SnapshotPolicy::parse("p", &body, 0, None)
    };
    assert!(change("/creation", Value::Null).is_err());
    assert!(change("/creation/schedule/cron/expression", json!("never")).is_err());
    assert!(change("/deletion/condition", json!({"min_count": 1})).is_err());
    assert!(change("/deletion/condition/min_count", json!(5)).is_err());
    assert!(change("/snapshot_config/repository", Value::Null).is_err());
    assert!(change("/snapshot_config/date_format", json!("bbbb")).is_err());
    assert!(change("/snapshot_config/timezone", json!("Nowhere/City")).is_err());
    assert!(change("/snapshot_config/timezone", json!("UTC")).is_ok());
    for (states, is_right) in [(json!(["security"]), true), (json!("none"), true), (json!(["kibana"]), false)]
    {
        let config = json!({"repository": "r", "feature_states": states});
        assert_eq!(change("/snapshot_config", config).is_ok(), is_right);
    }
    for name in ["", "A", "_x", "a b", "a,b"] {
        assert!(SnapshotPolicy::parse(name, &body(), 0, None).is_err(), "{name}");
    }
}
