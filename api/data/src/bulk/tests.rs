use bytes::Bytes;
use millrace_engine::{Action, DocResult, VersionType};
use serde_json::{Value, json};

use super::parse::{Bulk, Defaults, Outcome, parse};
use super::render::{BulkRenderOptions, render};
use crate::documents::answer::sample;
use crate::documents::source::SourceFilter;
use crate::error::Error;
use crate::http::MemoryAllowance;
use crate::http::filter_path::FilterPath;

fn run(body: &str, defaults: Defaults<'_>) -> Result<Bulk, Error> {
    parse(&Bytes::copy_from_slice(body.as_bytes()), &defaults, &MemoryAllowance::with_limit(1 << 20))
}

fn logs() -> Defaults<'static> {
    Defaults { index: Some("logs"), ..Defaults::default() }
}

fn how(took_ms: u64, filter: &FilterPath) -> BulkRenderOptions<'_> {
    BulkRenderOptions { took_ms, ingest_took_ms: None, forced_refresh: true, filter }
}

#[test]
fn actions_and_documents() {
    let body = concat!(
        "{\"index\":{\"_index\":\"a\",\"_id\":\"1\",\"routing\":\"r\"}}\r\n{\"f\": 1}\r\n",
        "{\"create\":{}}\n{\"f\":2}\n",
        "\n",
        "{\"delete\":{\"_id\":3,\"version\":7,\"version_type\":\"external_gte\"}}\n",
        "{ \"update\" : { \"_id\" : \"4\", \"if_seq_no\": 1, \"if_primary_term\": 2 } }\n{\"doc\":{\"f\":3}}\n",
        "{\"index\":{\"op_type\":\"create\",\"_type\":\"t\"}}\n{}\n"
    );
    let bulk = run(body, logs()).unwrap();
    let ops = &bulk.ops;
    assert_eq!(ops.len(), 5);
    assert_eq!(
        (&*ops[0].index, ops[0].id.as_deref(), ops[0].routing.as_deref()),
        ("a", Some("1"), Some("r"))
    );
    assert!(matches!(&ops[0].action, Action::Index(doc) if doc == "{\"f\": 1}"));
    assert_eq!((&*ops[1].index, ops[1].id.as_deref()), ("logs", None));
    assert!(matches!(&ops[1].action, Action::Create(doc) if doc == "{\"f\":2}"));
    assert!(matches!(ops[2].action, Action::Delete));
    assert_eq!((ops[2].id.as_deref(), ops[2].version), (Some("3"), Some((7, VersionType::ExternalGte))));
    assert!(matches!(&ops[3].action, Action::Update(update) if update.doc == Some(json!({ "f": 3 }).into())));
    assert_eq!((ops[3].if_seq_no, ops[3].if_primary_term), (Some(1), Some(2)));
    assert!(matches!(&ops[4].action, Action::Create(_)));
    assert_eq!(&*ops[4].doc_type, "t");
}

#[test]
fn byte_order_marks_are_left_out() {
    let body = "\u{feff}{\"index\":{}}\n\u{feff}{\"f\":1}\n\u{feff}{\"delete\":{\"_id\":1}}\r\n";
    let bulk = run(body, logs()).unwrap();
    assert!(matches!(&bulk.ops[0].action, Action::Index(doc) if doc == "{\"f\":1}"));
    assert!(matches!(bulk.ops[1].action, Action::Delete));
    assert!(run("\u{feff}\n", logs()).is_err());
}

#[test]
fn documents_are_slices_of_the_body() {
    let body = Bytes::from_static(b"{\"index\":{}}\n{\"f\":1}\n");
    let bulk = parse(&body, &logs(), &MemoryAllowance::with_limit(0)).unwrap();
    let Action::Index(doc) = &bulk.ops[0].action else { panic!("no index action") };
    assert_eq!(doc.as_ptr(), body[13..].as_ptr());
}

#[test]
fn whole_requests_are_refused() {
    for (body, reason) in [
        ("[]\n{}\n", "Malformed action/metadata line [1], expected START_OBJECT but found [START_ARRAY]"),
        ("{}\n{}\n", "Malformed action/metadata line [1], expected FIELD_NAME but found [END_OBJECT]"),
        (
            "{\"index\":3}\n{}\n",
            "Malformed action/metadata line [1], expected START_OBJECT but found [VALUE_NUMBER]",
        ),
        (
            "{\"index\":{\"_id\":[1]}}\n{}\n",
            "Malformed action/metadata line [1], expected a simple value for field [_id] but found [START_ARRAY]",
        ),
        (
            "{\"index\":{}}\n{}\n{\"update\":{\"_id\":\"1\",\"_routing\":\"x\"}}\n{\"doc\":{}}\n",
            "Action/metadata line [3] contains an unknown parameter [_routing]",
        ),
        ("{\"index\":{}}\n{}", "The bulk request must be terminated by a newline [\\n]"),
        ("\n\n", "Validation Failed: 1: no requests added;"),
        ("{\"delete\":{}}\n", "Validation Failed: 1: id is missing;"),
        (
            "{\"update\":{\"_id\":\"1\"}}\n{\"dac\":{}}\n",
            "[UpdateRequest] unknown field [dac] did you mean [doc]?",
        ),
        (
            "{\"update\":{\"_id\":\"1\",\"version\":1}}\n{\"doc\":{}}\n",
            "Update requests do not support versioning. Please use `if_seq_no` and `if_primary_term` instead",
        ),
    ] {
        assert_eq!(run(body, logs()).unwrap_err().reason(), reason, "{body}");
    }
    for body in ["{\"del\":{}}\n", "{\"index\":{}}\n", "nonsense\n", "{\"index\":{},\"create\":{}}\n{}\n"] {
        let error = run(body, logs()).unwrap_err();
        assert!(error.reason().starts_with("Malformed action/metadata line [1]"), "{}", error.reason());
    }
    let missing = run("{\"index\":{}}\n{}\n", Defaults::default()).unwrap_err();
    assert_eq!(missing.reason(), "Validation Failed: 1: index is missing;");
    let long = format!("{{\"index\":{{\"_id\":\"{}\"}}}}\n{{}}\n", "x".repeat(513));
    assert!(run(&long, logs()).unwrap_err().reason().contains("but was: 513"));
}

#[test]
fn items_fail_by_themselves() {
    let body = concat!(
        "{\"index\":{\"_id\":\"\"}}\n{}\n",
        "{\"index\":{\"_id\":\"a\"}}\n{}\n",
        "{\"create\":{\"pipeline\":\"p\"}}\n{}\n",
        "{\"index\":{\"_type\":\"t\",\"_id\":\"b\",\"pipeline\":\"_none\"}}\n{}\n"
    );
    let mut bulk = run(body, logs()).unwrap();
    assert_eq!(bulk.ops.len(), 3);
    let requested: Vec<_> = bulk.requested.iter().map(|(at, name)| (*at, &**name)).collect();
    assert_eq!(requested, [(1, "p"), (2, "_none")]);
    super::set_aside(&mut bulk, vec![(1, Outcome::Dropped)]);
    assert_eq!(bulk.ops.len(), 2);
    assert!(matches!(bulk.items[0].outcome, Outcome::Refused(_)));
    let conflict = millrace_runtime::Error::VersionConflict {
        index: "logs".into(),
        index_uuid: "u".into(),
        shard: 0,
        id: "b".into(),
        reason: "document already exists (current version [1])".into(),
    };
    let results = vec![Ok(sample("a", DocResult::Created)), Err(conflict)];
    let answer = render(body.as_bytes(), &bulk.items, results, &how(30, &FilterPath::default())).unwrap();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!((&answer["took"], &answer["errors"]), (&json!(30), &json!(true)));
    assert_eq!(
        answer["items"][0]["index"],
        json!({
            "_index": "logs", "_type": "_doc", "_id": "", "status": 400,
            "error": { "type": "illegal_argument_exception", "reason": "if _id is specified it must not be empty" }
        })
    );
    assert_eq!(answer["items"][1]["index"]["status"], 201);
    assert_eq!(answer["items"][1]["index"]["forced_refresh"], true);
    assert_eq!(answer["items"][1]["index"].get("created"), None);
    assert_eq!(
        answer["items"][2]["create"],
        json!({
            "_index": "logs", "_type": "_doc", "_id": "auto-generated", "_version": -3, "result": "noop", "status": 200,
            "_shards": { "total": 0, "successful": 0, "failed": 0 }
        })
    );
    assert_eq!(answer["items"][3]["index"]["status"], 409);
    assert_eq!(answer["items"][3]["index"]["_type"], "t");
    assert_eq!(answer["items"][3]["index"]["_id"], "b");
}

/// Items are left out exactly where the filter would drop them.
#[test]
fn what_nobody_wants_is_not_written() {
    let mut body = String::new();
    for (number, kind) in ["index", "create", "update", "delete"].iter().cycle().take(8).enumerate() {
        body.push_str(&format!("{{\"{kind}\":{{\"_id\":\"{number}\"}}}}\n"));
        if *kind != "delete" {
            body.push_str("{\"doc\":{\"a\":1}}\n");
        }
    }
    body.push_str("{\"index\":{\"_id\":\"\"}}\n{}\n");
    let bulk = run(&body, logs()).unwrap();
    let write = |failing: bool, filter: &FilterPath| {
        let results = (0..8).map(|number| match failing && number < 4 {
            true => Err(millrace_runtime::Error::Rejected("full".into())),
            false => {
                let mut outcome = sample(&number.to_string(), DocResult::Updated);
                outcome.source = (number % 4 == 2).then(|| Bytes::from_static(b"{\"a\":1}"));
                Ok(outcome)
            }
        });
        let items = if failing { &bulk.items[..] } else { &bulk.items[..8] };
        render(body.as_bytes(), items, results.collect(), &how(3, filter)).unwrap()
    };
    for text in [
        "errors,items.*.error",
        "errors,items.*.error,items.*.status",
        "took",
        "items",
        "items.index",
        "items.create.error.type,took",
        "items.*._id",
        "**.type",
        "items.*.get",
        "-took",
        "-items",
        "-items.*",
        "-items.*._*,-items.*.get,-items.*.result,-items.*.status,-items.*.forced_refresh",
        "-items.index,-items.*.error",
        "items.*,-items.*.error",
        "items.x",
    ] {
        let filter = FilterPath::parse(text).unwrap();
        for failing in [true, false] {
            let (full, written) = (write(failing, &FilterPath::default()), write(failing, &filter));
            let value = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
            assert_eq!(value(&filter.apply(&written)), value(&filter.apply(&full)), "{text}");
            assert!(written.len() <= full.len());
        }
    }
    let filter = FilterPath::parse("errors,items.*.error").unwrap();
    assert_eq!(write(false, &filter), b"{\"took\":3,\"errors\":false}");
}

#[test]
fn many_items_are_cut_while_they_are_read() {
    let body = "{\"index\":{}}\n{}\n".repeat(10_000);
    let parse =
        |bytes| parse(&Bytes::copy_from_slice(body.as_bytes()), &logs(), &MemoryAllowance::with_limit(bytes));
    assert_eq!(parse(1 << 20).unwrap_err().status(), 413);
    assert_eq!(parse(8 << 20).unwrap().ops.len(), 10_000);
    let refused = "{\"create\":{\"_id\":\"\"}}\n{}\n".repeat(1_000);
    let error = super::parse::parse(&Bytes::from(refused), &logs(), &MemoryAllowance::with_limit(1 << 20))
        .unwrap_err();
    assert_eq!(error.status(), 413);
}

#[test]
fn updates_answer_their_source() {
    let body = "{\"update\":{\"_id\":\"1\",\"_source\":[\"a\"]}}\n{\"doc\":{\"a\":1}}\n";
    let bulk = run(body, logs()).unwrap();
    assert_eq!(
        bulk.items[0].source.as_deref(),
        Some(&SourceFilter::Some { includes: vec!["a".into()], excludes: vec![] })
    );
    let mut outcome = sample("1", DocResult::Updated);
    outcome.source = Some(Bytes::from_static(b"{\"a\":1,\"b\":2}"));
    let answer =
        render(body.as_bytes(), &bulk.items, vec![Ok(outcome)], &how(1, &FilterPath::default())).unwrap();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["errors"], false);
    assert_eq!(answer["items"][0]["update"]["get"]["_source"], json!({ "a": 1 }));
}

#[test]
fn names_are_shared() {
    let body = "{\"index\":{\"_index\":\"a\"}}\n{}\n{\"index\":{\"_index\":\"b\"}}\n{}\n".repeat(100);
    let bulk = run(&body, Defaults::default()).unwrap();
    assert!(std::sync::Arc::ptr_eq(&bulk.ops[0].index, &bulk.ops[198].index));
    assert_eq!(bulk.ops.len(), 200);
}
