//! The calls: every route of the API, with bodies that its users send.

use serde_json::{Value, json};

use crate::random::Random;
use crate::words::WORDS;

/// Indices that documents are written to, which no call closes or deletes.
pub(super) const INDICES: [&str; 3] = ["calls-a", "calls-b", "calls-c"];

/// Fields that mappings get: as many as an index may have, nearly.
const MOST_FIELDS: u64 = 900;

/// A call.
#[derive(Debug)]
pub(super) struct Call {
    /// Method and path as the documentation writes them.
    pub(super) name: &'static str,
    /// `true` if it changes an index itself: its mapping, its settings, its files.
    pub(super) changes_index: bool,
    body: fn(&mut Random) -> Body,
}

#[derive(Debug)]
enum Body {
    None,
    Json(Value),
    Lines(String),
}

/// A call with its places filled in.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) body: String,
    pub(super) lines: bool,
}

impl Call {
    /// Fills in the places: `{index}` the index given or one of [`INDICES`], `{scratch}` an index that comes and goes, `{id}`,
    /// `{name}`.
    pub(super) fn request(&'static self, index: Option<&str>, random: &mut Random) -> Request {
        let (method, path) = self.name.split_once(' ').unwrap_or(("GET", self.name));
        let path = path
            .replace("{index}", index.unwrap_or(INDICES[random.index(INDICES.len())]))
            .replace("{scratch}", &format!("scratch-{}", random.below(4)))
            .replace("{id}", &format!("s{}", random.below(100)))
            .replace("{name}", &format!("name-{}", random.below(4)));
        let (body, lines) = match (self.body)(random) {
            Body::None => (String::new(), false),
            Body::Json(value) => (value.to_string(), false),
            Body::Lines(text) => (text, true),
        };
        Request { method, path, body, lines }
    }
}

/// Settings and mapping of the indices.
pub(super) fn definition() -> Value {
    json!({
        "settings": {"number_of_shards": 2, "number_of_replicas": 0},
        "mappings": {"properties": {
            "@timestamp": {"type": "date"}, "number": {"type": "long"}, "word": {"type": "keyword"},
            "text": {"type": "text"}, "items": {"type": "nested"},
        }},
    })
}

/// A document that has a number.
pub(super) fn document(number: u64) -> Value {
    let word = |shift: u64| WORDS[((number >> shift) as usize) % WORDS.len()];
    json!({
        "@timestamp": 1_767_225_600_000 + number % 86_400_000,
        "number": number,
        "word": word(0),
        "text": format!("{} {} {} {}", word(3), word(7), word(11), word(13)),
        "items": [{"k": word(5)}],
    })
}

const fn get(name: &'static str) -> Call {
    Call { name, changes_index: false, body: |_| Body::None }
}

const fn send(name: &'static str, body: fn(&mut Random) -> Body) -> Call {
    Call { name, changes_index: false, body }
}

impl Call {
    const fn changes_index(self) -> Self {
        Self { changes_index: true, ..self }
    }
}

fn term(random: &mut Random) -> Value {
    json!({"query": {"term": {"word": *random.pick(WORDS)}}})
}

fn lines(random: &mut Random, index: &str) -> String {
    (0..10)
        .map(|_| {
            let action = json!({"index": {"_index": index, "_id": format!("b{}", random.below(1_000))}});
            format!("{action}\n{}\n", document(random.next() >> 24))
        })
        .collect()
}

/// Every route. Those that end what others use are asked of scratch indices only.
pub(super) const CALLS: &[Call] = &[
    get("GET /"),
    get("GET /_cluster/health"),
    get("GET /_cluster/health/{index}?level=shards"),
    get("GET /_cluster/stats"),
    get("GET /_cluster/state"),
    get("GET /_cluster/settings?include_defaults=true"),
    send("PUT /_cluster/settings", |random| {
        Body::Json(json!({"transient": {"search.max_buckets": 60_000 + random.below(1_000)}}))
    }),
    get("GET /_nodes"),
    get("GET /_nodes/stats"),
    get("GET /_nodes/stats/jvm"),
    get("GET /_tasks"),
    get("GET /_cat/indices?v"),
    get("GET /_cat/indices?v&h=i,tm&s=tm:desc"),
    get("GET /_cat/shards?v"),
    get("GET /_cat/count?v"),
    get("GET /_cat/health?v"),
    get("GET /_cat/aliases?v"),
    get("GET /_cat/segments?v"),
    get("GET /_cat/nodes?v"),
    get("GET /_cat/templates?v"),
    get("GET /_cat/allocation?v"),
    get("GET /_stats"),
    get("GET /{index}/_stats"),
    get("GET /{index}/_segments"),
    get("GET /{index}"),
    get("HEAD /{index}"),
    get("GET /{index}/_settings"),
    get("GET /{index}/_mapping"),
    get("GET /{index}/_mapping/field/word"),
    get("GET /{index}/_alias"),
    get("GET /_resolve/index/calls-*"),
    send("PUT /{index}/_mapping", |random| {
        let field = format!("field{}", random.below(MOST_FIELDS));
        Body::Json(json!({"properties": {(field): {"type": "keyword"}}}))
    })
    .changes_index(),
    send("PUT /{index}/_settings", |random| {
        Body::Json(json!({"index": {"refresh_interval": format!("{}s", 1 + random.below(5))}}))
    })
    .changes_index(),
    get("POST /{index}/_refresh").changes_index(),
    get("POST /{index}/_flush").changes_index(),
    get("POST /_flush").changes_index(),
    get("POST /{index}/_forcemerge?max_num_segments=4").changes_index(),
    get("POST /{index}/_cache/clear"),
    send("POST /_aliases", |random| {
        let add = json!({"index": INDICES[random.index(3)], "alias": format!("alias-{}", random.below(3))});
        Body::Json(json!({"actions": [{"add": add}]}))
    }),
    send("PUT /_index_template/{name}", |random| {
        Body::Json(json!({"index_patterns": [format!("templated-{}-*", random.below(4))],
            "priority": 100 + random.below(1_000_000), "template": {"settings": {"number_of_replicas": 0}}}))
    }),
    get("GET /_index_template"),
    get("DELETE /_index_template/{name}"),
    send("PUT /_template/{name}", |_| Body::Json(json!({"index_patterns": ["old-*"], "order": 1}))),
    get("GET /_template"),
    send("PUT /_component_template/{name}", |_| {
        Body::Json(json!({"template": {"mappings": {"properties": {"c": {"type": "long"}}}}}))
    }),
    get("GET /_component_template"),
    send("PUT /{scratch}", |_| Body::Json(definition())),
    get("DELETE /{scratch}"),
    get("POST /{scratch}/_close"),
    get("POST /{scratch}/_open"),
    send("POST /{scratch}/_doc", |random| Body::Json(document(random.next() >> 24))),
    send("POST /{scratch}/_delete_by_query?conflicts=proceed", |random| Body::Json(term(random))),
    send("POST /_bulk", |random| {
        let index = INDICES[random.index(3)];
        Body::Lines(lines(random, index))
    }),
    send("POST /_bulk?filter_path=errors,items.*.error", |random| {
        let index = INDICES[random.index(3)];
        Body::Lines(lines(random, index))
    }),
    send("POST /{scratch}/_bulk?refresh=true", |random| Body::Lines(lines(random, "scratch-0"))),
    send("PUT /{index}/_doc/{id}", |random| Body::Json(document(random.next() >> 24))),
    send("PUT /{index}/_create/{id}", |random| Body::Json(document(random.next() >> 24))),
    send("POST /{index}/_update/{id}", |random| {
        Body::Json(json!({"doc": {"number": random.below(1_000)}, "doc_as_upsert": true}))
    }),
    get("GET /{index}/_doc/{id}"),
    get("GET /{index}/_source/{id}"),
    send("POST /{index}/_mget", |random| {
        Body::Json(json!({"ids": [format!("s{}", random.below(100)), "s1"]}))
    }),
    send("POST /{index}/_search", |random| Body::Json(term(random))),
    send("POST /calls-*/_search?size=3", |random| {
        Body::Json(json!({"query": {"match": {"text": *random.pick(WORDS)}}, "sort": [{"number": "desc"}]}))
    }),
    send("POST /{index}/_search?filter_path=hits.total", |_| {
        Body::Json(
            json!({"query": {"range": {"number": {"gte": 1_000}}}, "highlight": {"fields": {"text": {}}}}),
        )
    }),
    send("POST /calls-*/_search?size=0", |_| {
        Body::Json(json!({"aggs": {"words": {"terms": {"field": "word"}, "aggs": {
            "hours": {"date_histogram": {"field": "@timestamp", "fixed_interval": "1h"}}}}}}))
    }),
    send("POST /{index}/_search?scroll=1s", |random| Body::Json(term(random))),
    get("POST /{index}/_search/point_in_time?keep_alive=1s"),
    get("GET /_search/point_in_time/_all"),
    send("POST /_msearch", |random| {
        Body::Lines(format!("{{\"index\":\"calls-*\"}}\n{}\n{{}}\n{{\"size\":1}}\n", term(random)))
    }),
    send("POST /{index}/_count", |random| Body::Json(term(random))),
    send("POST /{index}/_explain/{id}", |random| Body::Json(term(random))),
    send("POST /{index}/_validate/query", |random| Body::Json(term(random))),
    get("GET /{index}/_field_caps?fields=*"),
    send("POST /{index}/_analyze", |_| Body::Json(json!({"field": "text", "text": "a few words"}))),
    send("POST /_plugins/_sql", |_| {
        Body::Json(
            json!({"query": "SELECT word, COUNT(*) FROM calls-a GROUP BY word ORDER BY 2 DESC LIMIT 5"}),
        )
    }),
    send("POST /_plugins/_sql?format=csv", |random| {
        Body::Json(
            json!({"query": format!("SELECT number FROM calls-* WHERE word = '{}'", *random.pick(WORDS))}),
        )
    }),
    send("POST /_plugins/_sql/_explain", |_| {
        Body::Json(json!({"query": "SELECT * FROM calls-b WHERE number > 5"}))
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_filled_in() {
        let mut random = Random::new(3);
        for call in CALLS {
            let request = call.request(None, &mut random);
            assert!(!request.path.contains(['{', '}']) && request.path.starts_with('/'), "{}", request.path);
            for line in request.body.lines() {
                assert!(serde_json::from_str::<Value>(line).is_ok(), "{line}");
            }
        }
    }
}
