use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use millrace_catalog::metadata::IndexMeta;
use millrace_mapping::Mapping;
use millrace_query::filters::{Filter, IndexView};
use serde_json::{Map, Value, json};

use super::query;

/// An index that has fields of all kinds that cases ask for.
static LOGS: LazyLock<Arc<IndexView>> = LazyLock::new(|| {
    let meta = IndexMeta {
        name: "logs".into(),
        uuid: uuid::Uuid::nil(),
        settings: Map::new(),
        aliases: BTreeMap::new(),
        open: true,
        created_ms: 0,
        shards: 1,
        replicas: 0,
        doc_type: None,
    };
    let parts = json!({"serial": {"type": "keyword"}, "weight": {"type": "double"}});
    let items = json!({
        "name": {"type": "keyword"}, "note": {"type": "text"}, "stock": {"type": "integer"},
        "parts": {"type": "nested", "properties": parts},
    });
    let body = json!({"properties": {
        "status": {"type": "keyword"}, "message": {"type": "text"}, "host": {"type": "keyword"}, "bytes": {"type": "long"},
        "at": {"type": "date"}, "ip": {"type": "ip"}, "place": {"type": "geo_point"}, "done": {"type": "boolean"},
        "user": {"properties": {"name": {"type": "text"}, "id": {"type": "long"}}},
        "items": {"type": "nested", "properties": items},
    }});
    let mapping = Mapping::parse(&body, &Map::new()).unwrap();
    Arc::new(IndexView::whole(Arc::new(meta), Arc::new(mapping)))
});

/// Has the search API understand a query, as far as it goes without documents.
fn understood(query: &Value) -> Result<(), String> {
    let filter = Filter::compile(&json!({"query": query}), &LOGS);
    filter.map(drop).map_err(|error| error.to_string())
}

/// Returns whether the search API takes the query as one.
fn is_query(query: &Value) -> bool {
    millrace_query::check_rule(query).is_ok()
}

/// Checks all cases: a text, a line of dashes, and the query that is made of it, or why it is refused.
#[test]
fn cases_hold() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/kuery/cases");
    let mut files: Vec<PathBuf> = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    let mut wrong = Vec::new();
    for file in files {
        let case = fs::read_to_string(&file).unwrap();
        let (text, expected) = case.split_once("\n----\n").unwrap();
        let expected = match expected.trim_end().strip_prefix("refused: ") {
            Some(reason) => Err(reason.to_owned()),
            None => Ok(serde_json::from_str::<Value>(expected).unwrap()),
        };
        let made = query(text);
        let taken = made.as_ref().map_or(Ok(()), understood);
        if made != expected || taken.is_err() {
            wrong.push(format!("{}\n{text}\n{made:?}\n{taken:?}\n", file.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Pieces of texts; texts of them get further than random characters do.
const PIECES: &[&str] = &[
    "status",
    "message",
    "bytes",
    "at",
    "items",
    "parts",
    "name",
    "stock",
    "x",
    "10",
    "na*",
    "*",
    "host: a",
    "name: x",
    "items: {",
    "parts: {",
    "us*:",
    "not ",
    " and ",
    " or ",
    " AND not ",
    "(",
    ")",
    "{",
    "}",
    ":",
    ": ",
    ": (",
    "<",
    ">=",
    "\"",
    "\"a b\"",
    "\"]\\\"}\"",
    "\\",
    "\\*",
    "\\u0041",
    "\\ud83d",
    "\\not",
    "^2",
    "~",
    "/",
    "[",
    "]",
    "TO",
    "||",
    "-",
    " ",
    "\t",
    "\u{a0}",
    "\u{3000}",
    "é",
    "😀",
];

#[test]
fn any_text_is_a_query_or_refused() {
    let mut state = 7_u64;
    let mut below = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    let mut made = 0;
    for _ in 0..20_000 {
        let text: String = (0..below(12)).map(|_| PIECES[below(PIECES.len())]).collect();
        match query(&text) {
            Ok(query) => {
                made += 1;
                assert!(is_query(&query), "{text}: {query}");
                // Values may not fit fields, and paths may be of no nested object; query strings are right.
                let taken = understood(&query).err().unwrap_or_default();
                assert!(!taken.contains("Failed to parse query"), "{text}: {query}: {taken}");
            }
            Err(reason) => assert!(!reason.is_empty() && reason.len() < 500, "{text}: {reason}"),
        }
    }
    assert!(made > 1_000, "{made}");
}

/// A text around another, so many times.
fn around(open: &str, times: usize, within: &str, close: &str) -> String {
    format!("{}{within}{}", open.repeat(times), close.repeat(times))
}

#[test]
fn depth_is_bounded() {
    let deep = Err("is nested more than 50 deep".to_owned());
    // A level is of the whole, or of the value.
    for (open, close, most) in
        [("(", ")", 49), ("a: { ", " }", 49), ("not (a: 1 and ", ")", 24), ("not a: { b: 1 or ", "}", 16)]
    {
        let taken = query(&around(open, most, "a: 1", close)).unwrap();
        assert!(is_query(&json!({"bool": {"filter": [{"bool": {"filter": [taken]}}]}})), "{open}");
        assert_eq!(query(&around(open, most + 1, "a: 1", close)), deep, "{open}");
    }
    assert!(query(&format!("a: {}", around("(", 49, "1", ")"))).is_ok());
    assert_eq!(query(&format!("a: {}", around("(", 50, "1", ")"))), deep);
    for open in ["(", "a:{", "not ("] {
        assert_eq!(query(&open.repeat(3_000)), deep, "{open}");
    }
    assert_eq!(query(&"not ".repeat(4_000)), Err("ends where something is expected".to_owned()));
}

#[test]
fn sizes_are_bounded() {
    let list = |name: &str, values: usize| format!("{name}: (x{})", " or x".repeat(values - 1));
    assert!(is_query(&query(&list("a", 1_024)).unwrap()));
    assert_eq!(query(&list("a", 1_025)), Err("has more than 1024 conditions".to_owned()));
    // Each condition has the path and its name.
    let path = "p".repeat(1_024);
    let of_elements = |values| format!("{path}: {{ {} }}", list("a", values));
    assert!(is_query(&query(&of_elements(126)).unwrap()));
    let refused = query(&of_elements(128)).unwrap_err();
    assert!(refused.contains("more than 131072 bytes"), "{refused}");
    assert!(query(&"x".repeat(16_384)).is_ok());
    assert_eq!(query(&"x".repeat(16_385)), Err("is longer than 16384 bytes".to_owned()));
    // Long runs of what is looked at twice take no long time.
    for part in ["\\", "\\n", "\\no", "a ", "* ", "\" ", "\\ud83d", "<", "or\u{3000}"] {
        let text = part.repeat(16_384 / part.len());
        let _ = query(&text);
    }
}
