use serde_json::json;

use super::super::{AliasAction, IndicesOptions, TemplateKind, parse_alias_actions, parse_index_template};
use super::*;
use crate::access::{Action, Guard};

const NOW: i64 = 5;

fn with_template(body: Value) -> Metadata {
    let state = Metadata::default();
    let body = parse_index_template("t", &body).unwrap();
    state.apply(&state.put_template(TemplateKind::Index, "t", body, false).unwrap())
}

/// A stream `logs` with two generations.
fn with_stream() -> Metadata {
    let body = json!({"index_patterns": ["log*"], "data_stream": {}, "template": {"settings": {"refresh_interval": "7s"}}});
    let state = with_template(body);
    let state = state.apply(&state.create_data_stream("logs", NOW, Uuid::from_u128(1)).unwrap());
    roll_over(&state)
}

fn roll_over(state: &Metadata) -> Metadata {
    let plan = state.plan_rollover("logs", None, NOW).unwrap();
    state.apply(&state.roll_over(&plan, &CreateIndex::default(), NOW, Uuid::new_v4()).unwrap())
}

fn resolve(state: &Metadata, expression: &str) -> Vec<String> {
    let found = state.resolve(expression, &IndicesOptions::open_only(), NOW).unwrap();
    found.iter().map(|meta| meta.name.to_string()).collect()
}

fn reason<T: std::fmt::Debug>(result: Result<T>) -> String {
    result.unwrap_err().to_string()
}

const FIRST: &str = ".ds-logs-000001";
const SECOND: &str = ".ds-logs-000002";

#[test]
fn a_stream_is_made_by_its_template_and_rolls_over() {
    let state = with_stream();
    let stream = state.data_stream("logs").unwrap();
    assert_eq!(stream.indices, [FIRST.into(), SECOND.into()] as [Arc<str>; 2]);
    assert_eq!((stream.generation(), &*stream.timestamp_field), (2, "@timestamp"));
    let meta = state.index(SECOND).unwrap();
    assert_eq!(meta.setting("index.refresh_interval"), Some("7s"));
    assert!(meta.hidden());
    assert_eq!(&*state.write_index("logs", NOW).unwrap().unwrap().name, SECOND);
    let refused = reason(state.create_data_stream("logs", NOW, Uuid::nil()));
    assert_eq!(refused, "data_stream [logs] already exists");
}

#[test]
fn a_stream_stands_for_its_indices() {
    let state = with_stream();
    for expression in ["logs", "lo*", "*", "_all", "", "logs,other*", ".ds-logs*"] {
        assert_eq!(resolve(&state, expression), [FIRST, SECOND], "{expression}");
    }
    assert!(resolve(&state, "*,-logs").is_empty());
    assert!(resolve(&state, "*,-lo*").is_empty());
    let by_index = IndicesOptions { ignore_aliases: true, ..IndicesOptions::open_only() };
    let refused = reason(state.resolve("logs", &by_index, NOW));
    assert!(refused.contains("matches a data stream"), "{refused}");
}

#[test]
fn streams_are_derived_of_indices_whatever_their_order() {
    let state = with_stream();
    let mut changes: Vec<MetadataChange> =
        state.indices().map(|meta| MetadataChange::replace((**meta).clone())).collect();
    changes.reverse();
    let loaded = Metadata::default().apply(&changes);
    assert_eq!(loaded.data_stream("logs"), state.data_stream("logs"));
}

#[test]
fn the_write_index_stays_and_a_stream_goes_as_a_whole() {
    let state = with_stream();
    let options = IndicesOptions::open_and_closed();
    let refused = reason(state.delete_indices(SECOND, &options, NOW));
    assert_eq!(
        refused,
        format!("index [{SECOND}] is the write index for data stream [logs] and cannot be deleted")
    );
    let refused = reason(state.close_indices(SECOND, &options, NOW));
    assert_eq!(refused, format!("cannot close the following data stream write indices [{SECOND}]"));
    let older = state.apply(&state.delete_indices(FIRST, &options, NOW).unwrap());
    assert_eq!(older.data_stream("logs").unwrap().indices, [SECOND.into()] as [Arc<str>; 1]);
    assert_eq!(roll_over(&older).data_stream("logs").unwrap().generation(), 3);
    let gone = state.apply(&state.delete_data_streams("lo*").unwrap());
    assert!(gone.data_stream("logs").is_none() && gone.indices().next().is_none());
    assert!(matches!(gone.delete_data_streams("logs"), Err(Error::IndexNotFound { .. })));
    assert!(gone.delete_data_streams("lo*").unwrap().is_empty());
}

#[test]
fn names_are_taken_once() {
    let state = with_stream();
    let created = state.create_index("logs", &Value::Null, NOW, Uuid::nil());
    assert!(reason(created).contains("already exists as data stream"));
    let matching = state.create_index("logs-2", &Value::Null, NOW, Uuid::nil());
    assert!(reason(matching).contains("creates data streams only"));
    let plain = state.apply(&state.create_index("plain", &Value::Null, NOW, Uuid::nil()).unwrap());
    let add = |index: &str, alias: &str| -> Vec<AliasAction> {
        parse_alias_actions(&json!({"actions": [{"add": {"index": index, "alias": alias}}]})).unwrap()
    };
    assert!(reason(plain.update_aliases(&add("plain", "logs"), NOW)).contains("a data stream exists"));
    assert!(reason(plain.update_aliases(&add(FIRST, "x"), NOW)).contains("don't support aliases"));
    let refused = reason(state.delete_templates(TemplateKind::Index, "t"));
    assert!(refused.contains("in use by a data streams [logs]"), "{refused}");
}

#[test]
fn streams_that_cannot_be_are_refused() {
    let streams = with_template(json!({"index_patterns": ["*"], "data_stream": {}}));
    let create = |state: &Metadata, name: &str| reason(state.create_data_stream(name, NOW, Uuid::nil()));
    assert_eq!(create(&streams, "a#b"), "data_stream [a#b] must not contain '#'");
    assert_eq!(create(&streams, "Logs"), "data_stream [Logs] must be lowercase");
    assert_eq!(create(&streams, ".ds-x"), "data_stream [.ds-x] must not start with '.ds-'");
    assert!(create(&streams, "alert").contains("must not start with"));
    let none = create(&Metadata::default(), "logs");
    assert_eq!(none, "no matching index template found for data stream [logs]");
    let plain = with_template(json!({"index_patterns": ["*"]}));
    assert!(create(&plain, "logs").contains("has no data stream template"));
    let text = json!({"properties": {"time": {"type": "keyword"}}});
    let wrong = json!({
        "index_patterns": ["*"],
        "data_stream": {"timestamp_field": {"name": "time"}},
        "template": {"mappings": text},
    });
    assert!(create(&with_template(wrong), "logs").contains("but [date,date_nanos] is expected"));
    for body in [
        json!({"index_patterns": ["*"], "data_stream": {"x": 1}}),
        json!({"index_patterns": ["*"], "data_stream": {"timestamp_field": {"name": ""}}}),
        json!({"index_patterns": ["*"], "data_stream": {}, "template": {"aliases": {"a": {}}}}),
    ] {
        assert!(parse_index_template("t", &body).is_err(), "{body}");
    }
}

#[test]
fn rights_on_a_stream_hold_for_its_indices() {
    let state = with_stream();
    let user = crate::access::tests::restricted(&[("logs", &[Action::Search, Action::Rollover])]);
    let guarded = state.guarded(Guard::new(&user, Action::Search));
    assert_eq!(resolve(&guarded, "*"), [FIRST, SECOND]);
    let other = crate::access::tests::restricted(&[("other", &[Action::Search])]);
    let guarded = state.guarded(Guard::new(&other, Action::Search));
    assert!(resolve(&guarded, "*").is_empty() && guarded.data_stream("logs").is_none());
    let refused = guarded.resolve("logs", &IndicesOptions::open_only(), NOW);
    assert!(matches!(refused, Err(Error::Unauthorized { .. })), "{refused:?}");
}
