//! Random filters on random documents, asked of batches as they arrive and of an index once it has the documents: the same
//! documents match. All kinds of clauses are among them, values of all kinds of fields, several values and none.
//!
//! `MILLRACE_FILTERS` and `MILLRACE_FILTERED_DOCUMENTS` say how many of each there are, `MILLRACE_FILTERS_SEED` which.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use millrace_query::QueryContext;
use millrace_query::filters::{ArrivedDocument, Batch, Fields, Filter, IndexView, Matcher};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Map, Value, json};

use crate::fixture::{Store, ids};

const WORDS: &[&str] = &["disk", "full", "node", "ok", "error", "joined", "the", "nodes", "d", "Failed"];
const TAGS: &[&str] = &["a", "b", "abc", "B", "Abd", "too-long-for-it", "", "é", "a b"];
const ADDRESSES: &[&str] = &["10.0.0.1", "10.0.0.7", "10.1.2.3", "192.168.0.1", "::1", "2001:db8::5"];
const DAY_MS: i64 = 86_400_000;
const NOW_MS: i64 = 1_700_000_000_000;

fn mapping() -> Value {
    let mut properties = json!({
        "msg": {"type": "text", "fields": {
            "keyword": {"type": "keyword", "ignore_above": 12},
            "english": {"type": "text", "analyzer": "english_words"},
            "docs": {"type": "text", "index_options": "docs"}
        }},
        "light": {"type": "match_only_text"},
        "typed": {"type": "search_as_you_type"},
        "tag": {"type": "keyword", "ignore_above": 5},
        "norm": {"type": "keyword", "normalizer": "low"},
        "column": {"type": "keyword", "index": false},
        "wild": {"type": "wildcard"},
        "kind": {"type": "constant_keyword", "value": "log"},
        "other": {"type": "alias", "path": "tag"},
        "low": {"type": "integer", "null_value": 2},
        "byte": {"type": "byte", "index": false},
        "day": {"type": "date", "format": "dd/MM/yyyy||epoch_second", "ignore_malformed": true},
        "sf": {"type": "scaled_float", "scaling_factor": 100},
        "big": {"type": "long", "doc_values": false}
    });
    properties["items"] = json!({"type": "nested", "properties": {
        "name": {"type": "keyword"}, "qty": {"type": "integer"}, "note": {"type": "text"},
        "at": {"type": "date"}, "ip": {"type": "ip"},
        "subs": {"type": "nested", "properties": {"v": {"type": "long"}, "t": {"type": "keyword"}}}
    }});
    properties["seen"] =
        json!({"type": "nested", "include_in_parent": true, "properties": {"by": {"type": "keyword"}}});
    let plain = [
        ("f", "double"),
        ("h", "half_float"),
        ("s", "float"),
        ("ul", "unsigned_long"),
        ("at", "date"),
        ("ns", "date_nanos"),
        ("ip", "ip"),
        ("ok", "boolean"),
        ("geo", "geo_point"),
        ("flat", "flat_object"),
        ("rank", "rank_feature"),
        ("ranks", "rank_features"),
        ("span", "integer_range"),
    ];
    for (field, kind) in plain {
        properties[field] = json!({"type": kind});
    }
    let analysis = json!({
        "normalizer": {"low": {"type": "custom", "filter": ["lowercase"]}},
        "analyzer": {"english_words": {"type": "english"}}
    });
    json!({
        "settings": {"number_of_shards": 2, "analysis": analysis},
        "mappings": {"properties": properties}
    })
}

fn pick<'a>(rng: &mut StdRng, from: &[&'a str]) -> &'a str {
    from[rng.random_range(0..from.len())]
}

fn words(rng: &mut StdRng, most: usize) -> String {
    let count = rng.random_range(1..=most);
    (0..count).map(|_| pick(rng, WORDS)).collect::<Vec<_>>().join(" ")
}

fn instant(rng: &mut StdRng) -> i64 {
    NOW_MS + rng.random_range(-5..5) * DAY_MS + rng.random_range(0..3) * 1_000
}

/// A value of a field.
fn one(rng: &mut StdRng, field: &str) -> Value {
    match field {
        "msg" | "light" | "typed" | "items.note" => json!(words(rng, 5)),
        "tag" | "norm" | "column" | "wild" | "items.name" | "seen.by" | "items.subs.t" | "other" => {
            json!(pick(rng, TAGS))
        }
        "low" | "byte" | "items.qty" | "items.subs.v" => json!(rng.random_range(-3..4)),
        "big" => json!(rng.random_range(-40_i64..40) * 1_000_000_007),
        "f" | "h" | "s" => match rng.random_range(0..6) {
            0 => json!(-0.0),
            1 => json!(0.1),
            _ => json!(f64::from(rng.random_range(-40..40)) / 8.0),
        },
        "sf" => json!(f64::from(rng.random_range(0..1_000)) / 100.0),
        "ul" => json!(u64::MAX - rng.random_range(0..5)),
        "at" | "ns" | "items.at" => json!(instant(rng)),
        "day" => match rng.random_range(0..5) {
            0 => json!("nonsense"),
            1 => json!((instant(rng) / 1_000).to_string()),
            _ => json!(format!("{:02}/11/2023", rng.random_range(10..20))),
        },
        "ip" | "items.ip" => json!(pick(rng, ADDRESSES)),
        "ok" => json!(rng.random_bool(0.5)),
        "geo" => {
            json!({"lat": f64::from(rng.random_range(-4..4)), "lon": f64::from(rng.random_range(-4..4))})
        }
        _ => panic!("{field}"),
    }
}

/// A value of a field, or several, or none.
fn some(rng: &mut StdRng, mut one: impl FnMut(&mut StdRng) -> Value) -> Option<Value> {
    match rng.random_range(0..10) {
        0..3 => None,
        3 => Some(json!([one(rng), one(rng)])),
        4 => Some(json!([])),
        5 => Some(Value::Null),
        _ => Some(one(rng)),
    }
}

const FIELDS: &[&str] = &[
    "msg", "light", "typed", "tag", "norm", "column", "wild", "low", "byte", "big", "f", "h", "s", "sf",
    "ul", "at", "day", "ns", "ip", "ok",
];
const OF_ITEMS: &[&str] = &["name", "qty", "note", "at", "ip"];

fn item(rng: &mut StdRng) -> Value {
    let mut item = Map::new();
    for field in OF_ITEMS {
        let path = format!("items.{field}");
        if let Some(value) = some(rng, |rng| one(rng, &path)) {
            item.insert((*field).to_owned(), value);
        }
    }
    let sub = |rng: &mut StdRng| json!({"v": one(rng, "items.subs.v"), "t": one(rng, "items.subs.t")});
    if let Some(subs) = some(rng, sub) {
        item.insert("subs".to_owned(), subs);
    }
    Value::Object(item)
}

fn document(rng: &mut StdRng) -> Value {
    let mut fields = Map::new();
    for field in FIELDS {
        if let Some(value) = some(rng, |rng| one(rng, field)) {
            fields.insert((*field).to_owned(), value);
        }
    }
    if rng.random_bool(0.3) {
        fields.insert("geo".into(), one(rng, "geo"));
    }
    if rng.random_bool(0.5) {
        let flat = json!({"a": {"b": pick(rng, TAGS)}, "c": [pick(rng, WORDS), pick(rng, WORDS)], "n": 5});
        fields.insert("flat".into(), flat);
    }
    if rng.random_bool(0.3) {
        fields.insert("rank".into(), json!(rng.random_range(1..9)));
        fields.insert("ranks".into(), json!({pick(rng, WORDS): rng.random_range(1..9)}));
    }
    let span = |rng: &mut StdRng| {
        let from = rng.random_range(-5..5);
        json!({"gte": from, "lt": from + rng.random_range(1..5)})
    };
    if let Some(span) = some(rng, span) {
        fields.insert("span".into(), span);
    }
    if let Some(items) = some(rng, item) {
        fields.insert("items".into(), items);
    }
    if let Some(seen) = some(rng, |rng| json!({"by": one(rng, "seen.by")})) {
        fields.insert("seen".into(), seen);
    }
    // Dynamic mapping finds these.
    if rng.random_bool(0.2) {
        fields.insert("new".into(), json!({"name": pick(rng, TAGS), "count": rng.random_range(0..3)}));
    }
    Value::Object(fields)
}

const TEXTS: &[&str] = &["msg", "msg.english", "msg.docs", "light", "typed"];
const POSITIONED: &[&str] = &["msg", "msg.english", "typed"];
const STRINGS: &[&str] = &[
    "tag",
    "norm",
    "wild",
    "other",
    "msg",
    "msg.keyword",
    "flat",
    "flat.a.b",
    "flat.c",
    "new.name",
    "kind",
    "seen.by",
    "none",
];

/// A field of any type, and a value that it may have.
fn valued(rng: &mut StdRng) -> (&'static str, Value) {
    let field = FIELDS[rng.random_range(0..FIELDS.len())];
    match rng.random_range(0..8) {
        0 => (STRINGS[rng.random_range(0..STRINGS.len())], json!(pick(rng, TAGS))),
        1 => ("kind", json!(pick(rng, &["log", "metric"]))),
        2 => ("flat.c", json!(pick(rng, WORDS))),
        _ => match (field, one(rng, field)) {
            // Texts are asked word by word, days as they are written.
            ("msg" | "light" | "typed", _) => (field, json!(pick(rng, WORDS).to_lowercase())),
            ("day", _) => (field, json!("12/11/2023")),
            (field, value) => (field, value),
        },
    }
}

fn range(rng: &mut StdRng) -> Value {
    let bounds = |from: Value, to: Value, rng: &mut StdRng| {
        let mut bounds = Map::new();
        if rng.random_bool(0.8) {
            bounds.insert(pick(rng, &["gt", "gte"]).to_owned(), from);
        }
        if rng.random_bool(0.6) {
            bounds.insert(pick(rng, &["lt", "lte"]).to_owned(), to);
        }
        Value::Object(bounds)
    };
    match rng.random_range(0..8) {
        0 => {
            let times = ["now-1d", "now/d", "now-2d/d", "now+1h", "2023-11-14", "2023-11-12||/d"];
            let (from, to) = (pick(rng, &times), pick(rng, &times));
            json!({"range": {pick(rng, &["at", "ns"]): bounds(json!(from), json!(to), rng)}})
        }
        1 => {
            let zone = json!({"range": {"at": {
                "gte": "2023-11-13", "lt": "2023-11-15", "time_zone": pick(rng, &["+02:00", "Europe/Berlin"])
            }}});
            if rng.random_bool(0.5) { zone } else { json!({"range": {"day": {"gte": "12/11/2023"}}}) }
        }
        2 => {
            let first = rng.random_range(0..400);
            json!({"range": {"_seq_no": {"gte": first, "lt": first + 50}}})
        }
        4 => {
            let from = rng.random_range(-5..5);
            let relation = pick(rng, &["intersects", "contains", "within"]);
            json!({"range": {"span": {"gte": from, "lt": from + rng.random_range(1..5), "relation": relation}}})
        }
        3 => {
            let field = pick(rng, STRINGS);
            let (from, to) = (json!(pick(rng, TAGS)), json!(pick(rng, TAGS)));
            json!({"range": {field: bounds(from, to, rng)}})
        }
        _ => {
            let (field, from) = loop {
                match valued(rng) {
                    ("ok" | "flat.c", _) => {}
                    found => break found,
                }
            };
            let to = if FIELDS.contains(&field) { one(rng, field) } else { json!(pick(rng, TAGS)) };
            let to = if field == "day" { json!("15/11/2023") } else { to };
            json!({"range": {field: bounds(from, to, rng)}})
        }
    }
}

fn pattern(rng: &mut StdRng) -> String {
    let word = pick(rng, &["disk", "failed", "joined", "abc", "abd", "error", "node"]);
    let at = rng.random_range(0..word.len());
    match rng.random_range(0..5) {
        0 => format!("*{}*", &word[at..]),
        1 => format!("{}*", &word[..at]),
        2 => format!("{}?{}", &word[..at], &word[at + 1..]),
        3 => format!("*{}", word.to_uppercase()),
        _ => "*".to_owned(),
    }
}

fn rewrite(rng: &mut StdRng) -> &'static str {
    // More terms than there are: which of them are left is another question.
    pick(
        rng,
        &[
            "constant_score",
            "constant_score_boolean",
            "scoring_boolean",
            "top_terms_1000",
            "top_terms_boost_1000",
        ],
    )
}

fn span(rng: &mut StdRng, depth: usize) -> Value {
    let field = "msg";
    let term = |rng: &mut StdRng| json!({"span_term": {field: pick(rng, WORDS).to_lowercase()}});
    if depth == 0 {
        return match rng.random_range(0..3) {
            0 => json!({"span_multi": {"match": {"prefix": {field: pick(rng, &["d", "n", "jo"])}}}}),
            1 => json!({"span_multi": {"match": {"wildcard": {field: pattern(rng).to_lowercase()}}}}),
            _ => term(rng),
        };
    }
    let (a, b) = (span(rng, depth - 1), span(rng, depth - 1));
    match rng.random_range(0..7) {
        0 => {
            json!({"span_near": {"clauses": [a, b], "slop": rng.random_range(0..3), "in_order": rng.random_bool(0.5)}})
        }
        1 => json!({"span_or": {"clauses": [a, b]}}),
        2 => json!({"span_not": {"include": a, "exclude": b, "dist": rng.random_range(0..2)}}),
        3 => json!({"span_first": {"match": a, "end": rng.random_range(1..4)}}),
        4 => json!({"span_containing": {"big": a, "little": b}}),
        5 => json!({"span_within": {"big": a, "little": b}}),
        _ => {
            let masked = json!({"span_field_masking": {"field": field, "query":
                {"span_term": {"msg.english": pick(rng, &["disk", "node", "full"])}}}});
            json!({"span_near": {"clauses": [a, masked], "slop": 1, "in_order": false}})
        }
    }
}

fn intervals(rng: &mut StdRng, depth: usize) -> Value {
    let rule = if depth == 0 { rng.random_range(0..5) } else { rng.random_range(0..7) };
    match rule {
        0 => {
            json!({"match": {"query": words(rng, 3), "max_gaps": rng.random_range(-1..3), "ordered": rng.random_bool(0.5)}})
        }
        1 => json!({"prefix": {"prefix": pick(rng, &["d", "no", "jo"])}}),
        2 => json!({"wildcard": {"pattern": pattern(rng).to_lowercase()}}),
        3 => json!({"fuzzy": {"term": pick(rng, &["disc", "nodez", "eror"])}}),
        4 => json!({"match": {"query": words(rng, 2), "use_field": "msg.english",
            "filter": {"not_containing": {"match": {"query": pick(rng, WORDS)}}}}}),
        5 => {
            json!({"all_of": {"intervals": [intervals(rng, depth - 1), intervals(rng, depth - 1)], "max_gaps": 3}})
        }
        _ => json!({"any_of": {"intervals": [intervals(rng, depth - 1), intervals(rng, depth - 1)]}}),
    }
}

fn query_string(rng: &mut StdRng) -> Value {
    let part = |rng: &mut StdRng| match rng.random_range(0..14) {
        0 => pick(rng, WORDS).to_owned(),
        1 => format!("msg:{}", pick(rng, WORDS)),
        2 => format!("tag:{}", pick(rng, &["a", "b", "abc", "B"])),
        3 => format!("low:[{} TO *]", rng.random_range(-3..4)),
        4 => format!("msg:\"{}\"", words(rng, 2)),
        5 => "_exists_:geo".to_owned(),
        6 => "at:[now-2d TO now]".to_owned(),
        7 => format!("norm:{}*", pick(rng, &["a", "AB"])),
        8 => "msg:/dis.*/".to_owned(),
        9 => "msg:nodez~1".to_owned(),
        10 => "ip:10.0.0.0\\/16".to_owned(),
        11 => format!("flat.c:{}", pick(rng, WORDS)),
        12 => format!("(msg.*:{} OR ok:true)", pick(rng, WORDS)),
        _ => format!("f:>{}", rng.random_range(0..5)),
    };
    let (a, b, c) = (part(rng), part(rng), part(rng));
    let text = match rng.random_range(0..5) {
        0 => a,
        1 => format!("{a} AND {b}"),
        2 => format!("{a} OR ({b} AND NOT {c})"),
        3 => format!("+{a} -{b}"),
        _ => format!("{a} {b} {c}"),
    };
    let mut options = json!({"query": text, "lenient": true});
    if rng.random_bool(0.3) {
        options["fields"] = json!(["msg", "tag^2", "light"]);
    } else if rng.random_bool(0.3) {
        options["default_field"] = json!("msg");
    }
    if rng.random_bool(0.2) {
        options["default_operator"] = json!("and");
    }
    json!({"query_string": options})
}

fn simple_query_string(rng: &mut StdRng) -> Value {
    let (a, b) = (pick(rng, WORDS), pick(rng, WORDS));
    let text = match rng.random_range(0..6) {
        0 => format!("{a} +{b}"),
        1 => format!("{a} | {b}"),
        2 => format!("\"{a} {b}\"~2"),
        3 => format!("-{a} +{b}"),
        4 => "dis* nod~1".to_owned(),
        _ => format!("({a} | -{b}) + node"),
    };
    let fields = [json!(["msg"]), json!(["msg", "tag", "light"]), json!(["*"]), json!(["msg.*", "low"])];
    let fields = &fields[rng.random_range(0..fields.len())];
    json!({"simple_query_string": {"query": text, "fields": fields, "lenient": true,
        "default_operator": pick(rng, &["and", "or"])}})
}

fn multi_match(rng: &mut StdRng) -> Value {
    let types = ["best_fields", "most_fields", "cross_fields", "phrase", "phrase_prefix", "bool_prefix"];
    let fields = [
        json!(["msg", "light"]),
        json!(["msg*"]),
        json!(["msg", "tag", "norm"]),
        json!(["typed", "typed._2gram"]),
    ];
    json!({"multi_match": {"query": words(rng, 2), "type": pick(rng, &types), "lenient": true,
        "fields": fields[rng.random_range(0..fields.len())]}})
}

fn of_items(rng: &mut StdRng) -> Value {
    let inside = |rng: &mut StdRng| match rng.random_range(0..9) {
        0 => json!({"term": {"items.name": pick(rng, TAGS)}}),
        1 => json!({"range": {"items.qty": {"gte": rng.random_range(-3..4)}}}),
        2 => json!({"match": {"items.note": words(rng, 2)}}),
        3 => json!({"range": {"items.at": {"gte": "now-1d"}}}),
        4 => json!({"term": {"items.ip": "10.0.0.0/16"}}),
        5 => json!({"exists": {"field": pick(rng, &["items.ip", "items.note", "items.name"])}}),
        6 => json!({"wildcard": {"items.note": pattern(rng).to_lowercase()}}),
        7 => {
            json!({"nested": {"path": "items.subs", "query": {"term": {"items.subs.v": rng.random_range(-3..4)}}}})
        }
        _ => json!({"match_phrase": {"items.note": words(rng, 2)}}),
    };
    let (a, b) = (inside(rng), inside(rng));
    match rng.random_range(0..6) {
        0 => json!({"nested": {"path": "items", "query": {"bool": {"must": [a, b]}}}}),
        1 => json!({"nested": {"path": "items", "query": {"bool": {"should": [a, b]}}, "score_mode": "max"}}),
        2 => json!({"nested": {"path": "items", "query": {"bool": {"must_not": [a]}}}}),
        3 => json!({"nested": {"path": "items.subs", "query": {"bool": {"must": [
            {"range": {"items.subs.v": {"lt": rng.random_range(-3..4)}}}, {"term": {"items.subs.t": pick(rng, TAGS)}}
        ]}}}}),
        4 => json!({"nested": {"path": "seen", "query": {"term": {"seen.by": pick(rng, TAGS)}}}}),
        _ => json!({"nested": {"path": "items", "query": a}}),
    }
}

/// A random clause of a kind; `None` where the kind is not asked by itself.
fn leaf(rng: &mut StdRng, kind: &str) -> Option<Value> {
    let text = pick(rng, TEXTS);
    Some(match kind {
        "distance_feature" => match rng.random_bool(0.5) {
            true => json!({"distance_feature": {"field": "at", "origin": "now", "pivot": "1d"}}),
            false => json!({"distance_feature": {"field": "geo", "origin": [0, 0], "pivot": "1km"}}),
        },
        "exists" => {
            let others = [
                "geo",
                "flat",
                "flat.a",
                "flat.a.b",
                "none",
                "items",
                "items.qty",
                "m*",
                "new",
                "new.*",
                "rank",
                "_id",
                "_ignored",
                "_routing",
                "other",
                "kind",
                "seen.by",
                "msg.keyword",
                "msg.english",
            ];
            let field = if rng.random_bool(0.4) { pick(rng, FIELDS) } else { pick(rng, &others) };
            json!({"exists": {"field": field}})
        }
        "fuzzy" => {
            let options = json!({"value": pick(rng, &["disc", "nodez", "abx", "eror", "log"]),
                "fuzziness": pick(rng, &["AUTO", "1", "2"]), "prefix_length": rng.random_range(0..4), "max_expansions": 1_000});
            json!({"fuzzy": {pick(rng, &["msg", "tag", "norm", "light", "flat.c"]): options}})
        }
        "geo_bounding_box" => {
            json!({"geo_bounding_box": {"geo": {"top_left": [-2, 2], "bottom_right": [rng.random_range(-1..3), -1]}}})
        }
        "geo_distance" => {
            json!({"geo_distance": {"distance": format!("{}km", rng.random_range(50..400)), "geo": [0, 1]}})
        }
        "geo_polygon" => {
            json!({"geo_polygon": {"geo": {"points": [[-3, -3], [3, -2], [rng.random_range(0..3), 3]]}}})
        }
        "ids" => {
            json!({"ids": {"values": [rng.random_range(1..200).to_string(), rng.random_range(1..200).to_string()]}})
        }
        "intervals" => json!({"intervals": {pick(rng, POSITIONED): intervals(rng, 1)}}),
        "match" => match rng.random_range(0..5) {
            0 => {
                let (field, value) = valued(rng);
                json!({"match": {field: {"query": value, "lenient": true}}})
            }
            1 => {
                json!({"match": {text: {"query": words(rng, 4), "minimum_should_match": pick(rng, &["2", "50%", "-1", "3"])}}})
            }
            2 => {
                json!({"match": {text: {"query": words(rng, 2), "fuzziness": "AUTO", "max_expansions": 1_000}}})
            }
            3 => {
                json!({"match": {"msg.english": {"query": pick(rng, &["the", "disks", "the node"]), "zero_terms_query": "all"}}})
            }
            _ => json!({"match": {text: {"query": words(rng, 3), "operator": pick(rng, &["and", "or"])}}}),
        },
        "match_all" => json!({"match_all": {}}),
        "match_bool_prefix" => {
            json!({"match_bool_prefix": {text: format!("{} {}", words(rng, 2), pick(rng, &["d", "no"]))}})
        }
        "match_none" => json!({"match_none": {}}),
        "match_phrase" => {
            json!({"match_phrase": {pick(rng, &["msg", "msg.english", "light", "typed", "tag"]):
            {"query": words(rng, 3), "slop": rng.random_range(0..3)}}})
        }
        "match_phrase_prefix" => json!({"match_phrase_prefix": {pick(rng, POSITIONED):
            {"query": format!("{} {}", pick(rng, WORDS), pick(rng, &["d", "no", "fa"])), "max_expansions": 1_000}}}),
        "multi_match" => multi_match(rng),
        "nested" => of_items(rng),
        "prefix" => json!({"prefix": {pick(rng, STRINGS):
            {"value": pick(rng, &["a", "ab", "dis", "AB", "too"]), "case_insensitive": rng.random_bool(0.5)}}}),
        "query_string" => query_string(rng),
        "range" => range(rng),
        "rank_feature" => json!({"rank_feature": {"field": match rng.random_bool(0.5) {
            true => "rank".to_owned(),
            false => format!("ranks.{}", pick(rng, WORDS)),
        }}}),
        "regexp" => {
            json!({"regexp": {pick(rng, STRINGS): {"value": pick(rng, &["a.*", "ab(c|d)", "[a-d]+", "disk?", ".*ode.*", "~(a)"]),
            "case_insensitive": rng.random_bool(0.3), "rewrite": rewrite(rng)}}})
        }
        "simple_query_string" => simple_query_string(rng),
        "span_containing" | "span_field_masking" | "span_first" | "span_multi" | "span_near" | "span_not"
        | "span_or" | "span_term" | "span_within" => {
            let depth = usize::from(!matches!(kind, "span_term" | "span_multi"));
            let named = format!("\"{kind}\"");
            let mut made = (0..1_000).map(|_| {
                let deeper = usize::from(rng.random_bool(0.3));
                span(rng, depth + deeper)
            });
            made.find(|found| found.to_string().contains(&named)).unwrap()
        }
        "span_gap" => json!({"span_near": {"clauses": [
            {"span_term": {"msg": "disk"}}, {"span_gap": {"msg": rng.random_range(1..3)}}, {"span_term": {"msg": "node"}}
        ], "slop": 0, "in_order": true}}),
        "term" => {
            let (field, value) = valued(rng);
            match rng.random_range(0..8) {
                0 => {
                    json!({"term": {pick(rng, STRINGS): {"value": pick(rng, &["ABC", "disk", "Log"]), "case_insensitive": true}}})
                }
                1 => {
                    json!({"term": {"ip": pick(rng, &["10.0.0.0/16", "10.0.0.0/30", "::/64", "2001:db8::/32"])}})
                }
                2 => json!({"term": {"at": pick(rng, &["2023-11-14", "now/d", "2023-11-14T22:13:20Z"])}}),
                3 => json!({"term": {"_index": pick(rng, &["random", "other"])}}),
                _ => json!({"term": {field: value}}),
            }
        }
        "terms" if rng.random_bool(0.2) => {
            json!({"terms": {"span": [rng.random_range(-6..9), rng.random_range(-6..9), 7]}})
        }
        "terms" => {
            let (field, value) = valued(rng);
            let other =
                if FIELDS.contains(&field) && field != "day" { one(rng, field) } else { value.clone() };
            json!({"terms": {field: [value, other]}})
        }
        "wildcard" => json!({"wildcard": {pick(rng, STRINGS):
            {"value": pattern(rng), "case_insensitive": rng.random_bool(0.5), "rewrite": rewrite(rng)}}}),
        _ => return None,
    })
}

/// Kinds that are made of others.
const COMPOUND: &[&str] = &["bool", "boosting", "constant_score", "dis_max", "function_score"];
/// Kinds that are no filters.
const REFUSED: &[&str] = &["more_like_this"];

macro_rules! kinds {
    ($($name:literal $(| $alias:literal)* => $module:ident::$variant:ident($clause:ident),)*) => {
        /// All kinds of clauses that there are.
        const KINDS: &[&str] = &[$($name,)*];
    };
}
millrace_dsl::clauses!(kinds);

fn clause(rng: &mut StdRng, kind: &str, depth: usize) -> Value {
    if let Some(leaf) = leaf(rng, kind) {
        return leaf;
    }
    assert!(COMPOUND.contains(&kind), "a kind of clause that is not asked: {kind}");
    let below = |rng: &mut StdRng| {
        let kind = loop {
            let kind = KINDS[rng.random_range(0..KINDS.len())];
            if !REFUSED.contains(&kind) && (depth > 0 || !COMPOUND.contains(&kind)) {
                break kind;
            }
        };
        clause(rng, kind, depth.saturating_sub(1))
    };
    let (a, b, c) = (below(rng), below(rng), below(rng));
    match (kind, rng.random_range(0..5)) {
        ("bool", 0) => json!({"bool": {"must": a, "filter": [b]}}),
        ("bool", 1) => json!({"bool": {"should": [a, b], "must_not": c}}),
        ("bool", 2) => json!({"bool": {"must": a, "should": [b], "must_not": [c]}}),
        ("bool", 3) => json!({"bool": {"should": [a, b, c], "minimum_should_match": 2}}),
        ("bool", _) => json!({"bool": {"filter": [a, b, c]}}),
        ("boosting", _) => json!({"boosting": {"positive": a, "negative": b, "negative_boost": 0.5}}),
        ("constant_score", _) => json!({"constant_score": {"filter": a}}),
        ("dis_max", _) => json!({"dis_max": {"queries": [a, b]}}),
        (_, _) => json!({"function_score": {"query": a, "functions": [{"filter": b, "weight": 2}]}}),
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[tokio::test]
async fn a_filter_matches_what_a_search_finds() {
    let seed = number("MILLRACE_FILTERS_SEED", 22);
    let mut rng = StdRng::seed_from_u64(seed);
    let store = Store::open().await;
    store.create("random", &mapping()).await;
    let documents: Vec<Value> =
        (0..number("MILLRACE_FILTERED_DOCUMENTS", 250)).map(|_| document(&mut rng)).collect();
    store.index("random", &documents).await;
    let listed = json!({"size": 10_000, "seq_no_primary_term": true, "_source": false});
    let listed = store.search("random", &[], listed).await.unwrap();
    let seq_nos: BTreeMap<String, u64> = listed["hits"]["hits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|hit| (hit["_id"].as_str().unwrap().to_owned(), hit["_seq_no"].as_u64().unwrap()))
        .collect();
    assert_eq!(seq_nos.len(), documents.len());
    let arrivals: Vec<ArrivedDocument> = documents
        .iter()
        .enumerate()
        .map(|(at, document)| {
            let id = (at + 1).to_string();
            let seq_no = seq_nos[&id];
            let source = Bytes::from(document.to_string());
            ArrivedDocument { id: id.into(), source, seq_no, routing: None, now_ms: NOW_MS }
        })
        .collect();

    let snapshot = store.engine.index("random").unwrap().snapshot().await.unwrap();
    let view = IndexView::whole(Arc::clone(&snapshot.meta), Arc::clone(&snapshot.mapping));
    let view = Arc::new(view);
    let asked = KINDS.iter().filter(|kind| !REFUSED.contains(kind));
    let count = number("MILLRACE_FILTERS", 400) as usize;
    let (mut queries, mut filters, mut expected) = (Vec::new(), Vec::new(), Vec::new());
    for kind in asked.cycle().take(count) {
        let query = clause(&mut rng, kind, 1);
        let body = json!({"query": query, "size": 10_000, "_source": false});
        let found = store.search("random", &[], body.clone()).await;
        let failed = match &found {
            Ok(found) => found["_shards"]["failed"] != json!(0),
            Err(_) => true,
        };
        match Filter::compile(&body, &view) {
            Ok(filter) if !failed => {
                filters.push(Arc::new(filter));
                expected.push(ids(&found.unwrap()).into_iter().collect::<BTreeSet<String>>());
                queries.push(query);
            }
            // What an index refuses, it refuses either way, or where it is asked of rows.
            Ok(_) => {}
            Err(error) => assert!(failed, "seed {seed}: {query}: {error}, but {found:?}"),
        }
    }
    assert!(queries.len() > count * 9 / 10, "{} of {count} are asked", queries.len());
    let some = expected.iter().filter(|own| !own.is_empty()).count();
    assert!(some > count / 3, "{some} of {count} match any document");

    let matcher = Matcher::new(&filters);
    let mut matched: Vec<BTreeSet<String>> = vec![BTreeSet::new(); filters.len()];
    let mut rest = arrivals.as_slice();
    while !rest.is_empty() {
        let (batch, behind) = rest.split_at(rng.random_range(1..=rest.len().min(120)));
        rest = behind;
        let made = matcher.batch(view.mapping(), batch, store.engine.compute()).unwrap();
        for found in matcher.run(&made, &QueryContext::default()).unwrap() {
            let own = &mut matched[found.filter];
            let rows = found.rows.unwrap_or_else(|error| panic!("{}: {error}", queries[found.filter]));
            own.extend(rows.iter().map(|row| String::from_utf8_lossy(&batch[row as usize].id).into_owned()));
        }
    }
    for ((query, expected), matched) in queries.iter().zip(&expected).zip(&matched) {
        assert_eq!(matched, expected, "seed {seed}: {query}");
    }
    // Asking all of them finds no more.
    let whole =
        Batch::build(view.mapping(), &arrivals, &Fields::all(), store.engine.compute().clone()).unwrap();
    let mut unpruned: Vec<BTreeSet<String>> = vec![BTreeSet::new(); filters.len()];
    for found in Matcher::new(&filters).without_pruning().run(&whole, &QueryContext::default()).unwrap() {
        let rows = found.rows.unwrap();
        unpruned[found.filter] =
            rows.iter().map(|row| String::from_utf8_lossy(&arrivals[row as usize].id).into_owned()).collect();
    }
    assert_eq!(unpruned, matched);
}
