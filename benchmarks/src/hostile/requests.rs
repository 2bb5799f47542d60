//! Requests that mean harm, each a name, a body and how many are sent side by side.
//!
//! Bodies are made when they are sent, so that this program does not hold them all. Any answer but one of the server's own faults
//! (5xx) is right: what matters is that the server answers others meanwhile, and stays within its memory.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use anyhow::{Result, bail};
use base64::Engine as _;
use flate2::Compression;
use flate2::write::GzEncoder;
use reqwest::Method;
use serde_json::{Value, json};

use super::{HostileLoad, ListenerAddresses, PASSWORD, VICTIM, counted};

/// Listener that a request goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TargetListener {
    /// The data API.
    Api,
    /// A pipeline's `http` input, which asks for no password.
    Input,
}

/// Compression of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gzip {
    No,
    Yes,
    /// It only says so.
    Said,
}

/// A request that means harm.
#[derive(Debug)]
pub(crate) struct Request {
    /// Name in reports.
    pub(super) name: &'static str,
    door: TargetListener,
    method: Method,
    path: String,
    media: &'static str,
    gzip: Gzip,
    password: &'static str,
    beside: usize,
    body: fn() -> Vec<u8>,
}

impl Request {
    fn post(name: &'static str, path: impl Into<String>, body: fn() -> Vec<u8>) -> Self {
        Self {
            name,
            door: TargetListener::Api,
            method: Method::POST,
            path: path.into(),
            media: "application/json",
            gzip: Gzip::No,
            password: PASSWORD,
            beside: 1,
            body,
        }
    }

    fn search(name: &'static str, body: fn() -> Vec<u8>) -> Self {
        Self::post(name, format!("/{VICTIM}/_search"), body)
    }

    fn statement(name: &'static str, body: fn() -> Vec<u8>) -> Self {
        Self::post(name, "/_plugins/_sql", body)
    }

    fn lines(self) -> Self {
        Self { media: "application/x-ndjson", ..self }
    }

    fn gzipped(self) -> Self {
        Self { gzip: Gzip::Yes, ..self }
    }

    fn at_input(self) -> Self {
        Self { door: TargetListener::Input, path: "/".to_owned(), ..self }
    }

    fn with(self, method: Method) -> Self {
        Self { method, ..self }
    }

    fn wrongly(self) -> Self {
        Self { password: "wrong", ..self }
    }

    /// Says that the body is gzip, which it is not.
    fn said_gzipped(self) -> Self {
        Self { gzip: Gzip::Said, ..self }
    }

    fn beside(self, beside: usize) -> Self {
        Self { beside, ..self }
    }

    /// Sends it and tells the answers.
    ///
    /// # Errors
    /// The server answered that the fault was its own.
    pub(super) async fn play(self, doors: &ListenerAddresses) -> Result<String> {
        let client = reqwest::Client::builder().timeout(doors.patience).build()?;
        let url = match self.door {
            TargetListener::Api => format!("{}{}", doors.target.url, self.path),
            TargetListener::Input => format!("http://127.0.0.1:{}{}", doors.input, self.path),
        };
        let (gzip, body) = (self.gzip, self.body);
        let made = move || {
            // Whoever means harm computes elsewhere: the server's cores are not what it takes first.
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 19);
            if gzip == Gzip::Yes { gzipped(&body()) } else { body() }
        };
        let body = tokio::task::spawn_blocking(made).await?;
        let body = bytes::Bytes::from(body);
        let credentials =
            base64::engine::general_purpose::STANDARD.encode(format!("admin:{}", self.password));
        let mut running = tokio::task::JoinSet::new();
        for _ in 0..self.beside {
            let mut request = client.request(self.method.clone(), &url).header("content-type", self.media);
            if self.door == TargetListener::Api {
                request = request.header("authorization", format!("Basic {credentials}"));
            }
            if gzip != Gzip::No {
                request = request.header("content-encoding", "gzip");
            }
            let request = request.body(body.clone());
            running.spawn(answer(request, doors.patience));
        }
        let answers = running.join_all().await;
        // OpenSearch answers 503 where there are too many buckets.
        let is_fault =
            |answer: &&String| answer.starts_with('5') && !answer.contains("too_many_buckets_exception");
        if let Some(fault) = answers.iter().find(is_fault) {
            bail!("answered {fault}");
        }
        Ok(counted(&answers))
    }
}

/// Sends a request and tells its status, and the beginning of what the server says of a fault of its own.
async fn answer(request: reqwest::RequestBuilder, patience: Duration) -> String {
    let mut answer = match request.send().await {
        Ok(answer) => answer,
        Err(error) if error.is_timeout() => return format!("none in {} s", patience.as_secs()),
        Err(_) => return "connection closed".to_owned(),
    };
    let status = answer.status();
    let mut start = Vec::new();
    loop {
        match answer.chunk().await {
            Ok(Some(chunk)) if start.len() < 300 => start.extend_from_slice(&chunk),
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(_) => return format!("{} cut", status.as_u16()),
        }
    }
    match status.is_server_error() {
        true => format!("{} {:.300}", status.as_u16(), String::from_utf8_lossy(&start)),
        false => status.as_u16().to_string(),
    }
}

fn gzipped(body: &[u8]) -> Vec<u8> {
    let mut writer = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to memory does not fail.
    let _ = writer.write_all(body);
    writer.finish().unwrap_or_default()
}

fn sql(statement: String) -> Vec<u8> {
    json!({"query": statement}).to_string().into_bytes()
}

/// Something between `count` openings and closings.
fn nested(open: &str, inside: &str, close: &str, count: usize) -> Vec<u8> {
    format!("{}{inside}{}", open.repeat(count), close.repeat(count)).into_bytes()
}

/// As [`nested`], with something before and after all of it.
fn deep(before: &str, open: &str, inside: &str, close: &str, after: &str, count: usize) -> Vec<u8> {
    format!("{before}{}{inside}{}{after}", open.repeat(count), close.repeat(count)).into_bytes()
}

/// A JSON array of so many equal things, inside of something.
fn list(before: &str, thing: &str, after: &str, count: usize) -> Vec<u8> {
    let mut body = String::with_capacity(count * (thing.len() + 1) + before.len() + after.len());
    body.push_str(before);
    for number in 0..count {
        if number > 0 {
            body.push(',');
        }
        body.push_str(thing);
    }
    body.push_str(after);
    body.into_bytes()
}

fn bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

/// An aggregation with a document count of nothing but buckets.
fn aggregation(aggregation: Value) -> Vec<u8> {
    bytes(&json!({"size": 0, "aggs": {"a": aggregation}}))
}

/// Lists everything, in the order in which it is played.
pub(super) fn all() -> Vec<HostileLoad> {
    let lists = [statements(), searches(), aggregations(), bodies(), writes()];
    lists.into_iter().flatten().map(HostileLoad::Request).collect()
}

fn statements() -> Vec<Request> {
    let request = Request::statement;
    vec![
        request("SQL: 8,000 XOR", || sql(format!("SELECT 1{}", " XOR 1".repeat(8_000)))),
        request("SQL: 10,000 IS NULL", || {
            sql(format!("SELECT n FROM {VICTIM} WHERE n{}", " IS NULL".repeat(10_000)))
        }),
        request("SQL: 20,000 casts", || sql(format!("SELECT n{} FROM {VICTIM}", "::int".repeat(20_000)))),
        request("SQL: 20,000 DIV", || sql(format!("SELECT 1{}", " DIV 1".repeat(20_000)))),
        request("SQL: 20,000 ||", || sql(format!("SELECT 'a'{}", " || 'a'".repeat(20_000)))),
        request("SQL: 20,000 parentheses", || {
            sql(format!("SELECT {}1{}", "(".repeat(20_000), ")".repeat(20_000)))
        }),
        request("SQL: 20,000 NOT", || {
            sql(format!("SELECT n FROM {VICTIM} WHERE {}true", "NOT ".repeat(20_000)))
        }),
        request("SQL: 20,000 minus signs", || sql(format!("SELECT {}1", "- ".repeat(20_000)))),
        request("SQL: 10,000 CASE", || {
            sql(format!("SELECT {}1{}", "CASE WHEN true THEN ".repeat(10_000), " END".repeat(10_000)))
        }),
        request("SQL: 10,000 functions", || {
            sql(format!("SELECT {}1{}", "abs(".repeat(10_000), ")".repeat(10_000)))
        }),
        request("SQL: 5,000 subqueries", || {
            sql(format!("{}{VICTIM}{}", "SELECT * FROM (SELECT * FROM ".repeat(5_000), ") t".repeat(5_000)))
        }),
        request("SQL: 20,000 OR", || {
            sql(format!("SELECT n FROM {VICTIM} WHERE n = 1{}", " OR n = 2".repeat(20_000)))
        }),
        request("SQL: an IN list of 200,000", || {
            sql(format!("SELECT n FROM {VICTIM} WHERE n IN (1{})", ",2".repeat(200_000)))
        }),
        request("SQL: 20,000 columns", || sql(format!("SELECT n{} FROM {VICTIM}", ", n".repeat(20_000)))),
        request("SQL: two cross joins", || {
            sql(format!(
                "SELECT a.n FROM {VICTIM} a JOIN {VICTIM} b JOIN {VICTIM} c WHERE a.n + b.n + c.n < 0"
            ))
        })
        .beside(4),
        request("SQL: a join by nothing, grouped", || {
            sql(format!("SELECT a.user, COUNT(*) FROM {VICTIM} a JOIN {VICTIM} b GROUP BY a.user ORDER BY 2"))
        })
        .beside(2),
        request("SQL: replace that grows", || {
            let grown = "replace(".repeat(8) + "message" + &", 'e', 'eeeeeeeeeeeeeeeeeeeeeeee')".repeat(8);
            sql(format!("SELECT {grown} FROM {VICTIM} LIMIT 4000"))
        }),
        request("SQL: concat that grows", || {
            let mut text = "message".to_owned();
            for _ in 0..16 {
                text = format!("concat({text}, message, message, message, message)");
            }
            sql(format!("SELECT {text} FROM {VICTIM} LIMIT 4000"))
        })
        .beside(4),
        request("SQL: LIKE of 2,000 parts", || {
            sql(format!("SELECT n FROM {VICTIM} WHERE message LIKE '{}'", "%a".repeat(2_000)))
        }),
    ]
}

fn searches() -> Vec<Request> {
    let request = Request::search;
    vec![
        request("search: bool in bool, 20,000", || {
            deep(r#"{"query":"#, r#"{"bool":{"must":["#, r#"{"match_all":{}}"#, "]}}", "}", 20_000)
        }),
        request("search: 100,000 clauses", || {
            list(r#"{"query":{"bool":{"should":["#, r#"{"term":{"user":"user-1"}}"#, "]}}}", 100_000)
        }),
        request("search: terms of 30 million numbers, gzipped", || {
            list(r#"{"query":{"terms":{"n":["#, "1", "]}}}", 30_000_000)
        })
        .gzipped(),
        request("search: ids of a million", || {
            list(r#"{"query":{"ids":{"values":["#, r#""1""#, "]}}}", 1_000_000)
        }),
        request("search: a query string of 50,000 words", || {
            bytes(&json!({"query": {"query_string": {"query": "fox ".repeat(50_000)}}}))
        }),
        request("search: a query string of 50,000 parentheses", || {
            let text = format!("{}fox{}", "(".repeat(50_000), ")".repeat(50_000));
            bytes(&json!({"query": {"query_string": {"query": text}}}))
        }),
        request("search: regular expressions that explode", || {
            bytes(
                &json!({"query": {"regexp": {"user": format!("({}){{1,900}}", "(a|aa|aaa){1,900}".repeat(8))}}}),
            )
        }),
        request("search: wildcards of 10,000 stars", || {
            bytes(&json!({"query": {"wildcard": {"user": "*a".repeat(10_000)}}}))
        }),
        request("search: fuzzy words of 100,000 letters", || {
            bytes(&json!({"query": {"fuzzy": {"message": {"value": "a".repeat(100_000), "fuzziness": 2}}}}))
        }),
        request("search: a polygon of 500,000 points", || {
            let mut body = String::from(r#"{"query":{"geo_polygon":{"where":{"points":["#);
            for number in 0..500_000 {
                let _ =
                    write!(body, "{}[{},{}]", if number > 0 { "," } else { "" }, number % 180, number % 90);
            }
            (body + "]}}}}").into_bytes()
        }),
        request("search: a window of 2 billion", || {
            bytes(&json!({"from": 2_000_000_000_u64, "size": 100_000_000}))
        }),
        request("search: 10,000 sorts", || list(r#"{"sort":["#, r#"{"n":"asc"}"#, "]}", 10_000)),
        request("search: 50,000 patterns of _source", || {
            list(r#"{"_source":["#, r#""*a*b*c*""#, "]}", 50_000)
        }),
        request("search: 5,000 highlighted fields, all hits", || {
            let fields: Vec<Value> =
                (0..5_000).map(|_| json!({"message": {"number_of_fragments": 100}})).collect();
            bytes(
                &json!({"size": 10_000, "query": {"match": {"message": "fox"}}, "highlight": {"fields": fields}}),
            )
        }),
        request("search: 5,000 suggesters", || {
            let each: serde_json::Map<String, Value> = (0..5_000)
                .map(|n| {
                    (
                        format!("s{n}"),
                        json!({"text": "quik brwn fxo", "term": {"field": "message", "size": 1000}}),
                    )
                })
                .collect();
            bytes(&json!({"size": 0, "suggest": each}))
        }),
        Request::post("search: a million searches in one", "/_msearch", || {
            "{}\n{}\n".repeat(1_000_000).into_bytes()
        })
        .lines(),
        Request::post(
            "search: 10,000 patterns in filter_path",
            format!("/{VICTIM}/_search?size=1000&filter_path={}", "**.a*b*c*,".repeat(5_000)),
            Vec::new,
        ),
        Request::post(
            "search: scrolls that nobody closes",
            format!("/{VICTIM}/_search?scroll=5m&size=10"),
            || b"{}".to_vec(),
        )
        .beside(600),
        Request::post("search: wrong passwords", format!("/{VICTIM}/_search"), || b"{}".to_vec())
            .wrongly()
            .beside(256),
    ]
}

fn aggregations() -> Vec<Request> {
    let request = Request::search;
    vec![
        request("aggregation: users by minute", || {
            aggregation(json!({"terms": {"field": "user", "size": 1_000}, "aggs": {
                "b": {"date_histogram": {"field": "@timestamp", "fixed_interval": "1m"}}}}))
        })
        .beside(2),
        request("aggregation: by millisecond", || {
            aggregation(json!({"date_histogram": {"field": "@timestamp", "fixed_interval": "1ms"}}))
        }),
        request("aggregation: intervals of next to nothing", || {
            aggregation(json!({"histogram": {"field": "f", "interval": 1e-300}}))
        }),
        request("aggregation: bounds without end", || {
            aggregation(json!({"histogram": {"field": "n", "interval": 1, "min_doc_count": 0,
                "extended_bounds": {"min": -1e18, "max": 1e18}}}))
        }),
        request("aggregation: 2,000 in one another", || {
            deep("{", r#""aggs":{"a":{"terms":{"field":"user"},"#, r#""meta":{}"#, "}}", "}", 2_000)
        }),
        request("aggregation: terms four deep", || {
            let terms = json!({"terms": {"field": "n", "size": 65_000}});
            let mut tree = terms.clone();
            for _ in 0..3 {
                let mut above = terms.clone();
                above["aggs"] = json!({"b": tree});
                tree = above;
            }
            aggregation(tree)
        })
        .beside(4),
        request("aggregation: top hits of every bucket", || {
            aggregation(json!({"terms": {"field": "n", "size": 60_000}, "aggs": {
                "b": {"top_hits": {"size": 100, "highlight": {"fields": {"message": {}}}}}}}))
        })
        .beside(2),
        request("aggregation: 20,000 filters", || {
            list(
                r#"{"size":0,"aggs":{"a":{"filters":{"filters":["#,
                r#"{"term":{"user":"user-1"}}"#,
                "]}}}}",
                20_000,
            )
        }),
        request("aggregation: adjacency of 200 filters", || {
            let filters: serde_json::Map<String, Value> =
                (0..200).map(|n| (format!("f{n}"), json!({"match_all": {}}))).collect();
            aggregation(json!({"adjacency_matrix": {"filters": filters}}))
        }),
        request("aggregation: 100,000 percentiles", || {
            let percents: Vec<f64> = (0..100_000).map(|n| f64::from(n) / 1_000.0).collect();
            aggregation(json!({"percentiles": {"field": "n", "percents": percents}}))
        }),
        request("aggregation: composite pages of a million", || {
            aggregation(json!({"composite": {"size": 1_000_000, "sources": [
                {"u": {"terms": {"field": "user"}}}, {"n": {"terms": {"field": "n"}}}]}}))
        }),
    ]
}

fn bodies() -> Vec<Request> {
    vec![
        Request::post("body: zeroes, gzipped a thousandfold", "/_bulk", || vec![b'0'; 1 << 30])
            .lines()
            .gzipped()
            .beside(4),
        Request::post("body: 200,000 brackets", format!("/{VICTIM}/_doc"), || nested("[", "", "]", 200_000)),
        Request::post("body: objects in objects, 100,000", format!("/{VICTIM}/_doc"), || {
            nested(r#"{"a":"#, "1", "}", 100_000)
        }),
        Request::post("body: no JSON, 50 MB", "/_bulk", || vec![0xff; 50 << 20]).lines(),
        Request::post("body: not gzip", "/_bulk", || b"this is no gzip".to_vec()).said_gzipped(),
        Request::post("body: a million gets", "/_mget", || {
            list(r#"{"docs":["#, &format!(r#"{{"_index":"{VICTIM}","_id":"1"}}"#), "]}", 1_000_000)
        }),
        Request::post("body: analysis of 20 MB", "/_analyze", || {
            bytes(&json!({"tokenizer": "standard", "text": "a b ".repeat(5 << 20)}))
        }),
        Request::post("body: analysis by expressions that explode", "/_analyze", || {
            bytes(
                &json!({"tokenizer": {"type": "pattern", "pattern": "(a+)+$"}, "text": format!("{}b", "a".repeat(5_000))}),
            )
        }),
        Request::post("body: grams of everything", "/_analyze", || {
            bytes(
                &json!({"tokenizer": {"type": "ngram", "min_gram": 1, "max_gram": 2}, "text": "ab".repeat(1 << 20)}),
            )
        }),
        Request::post("input: 30 million events of nothing, gzipped", "/", || {
            list("[", "{}", "]", 30_000_000)
        })
        .at_input()
        .gzipped(),
        Request::post("input: 64 bodies of many events", "/", || list("[", r#"{"a":1}"#, "]", 1_000_000))
            .at_input()
            .gzipped()
            .beside(64),
        Request::post("input: 200,000 brackets", "/", || nested("[", "", "]", 200_000)).at_input(),
        Request::post("input: zeroes, gzipped a thousandfold", "/", || vec![b'0'; 1 << 30])
            .at_input()
            .gzipped(),
    ]
}

fn writes() -> Vec<Request> {
    vec![
        Request::post("write: a document of 50,000 fields", "/wide/_doc", || {
            let fields: serde_json::Map<String, Value> =
                (0..50_000).map(|n| (format!("f{n}"), json!(n))).collect();
            bytes(&Value::Object(fields))
        }),
        Request::post("write: a term of 10 MB", format!("/{VICTIM}/_doc"), || {
            bytes(&json!({"user": "a".repeat(10 << 20)}))
        }),
        Request::post("write: 100,000 nested objects", format!("/{VICTIM}/_doc"), || {
            list(r#"{"items":["#, r#"{"k":"a"}"#, "]}", 100_000)
        }),
        Request::post("write: bulks of 5 MB, 64 side by side", "/flood/_bulk", || {
            format!("{{\"index\":{{}}}}\n{}\n", json!({"text": "a quick brown fox ".repeat(20)}))
                .repeat(13_000)
                .into_bytes()
        })
        .lines()
        .beside(64),
        Request::post("write: a name of 100,000 letters", format!("/{}/_doc", "a".repeat(30_000)), || {
            b"{}".to_vec()
        }),
        Request::post("write: a way out of the directory", "/..%2f..%2fetc/_doc/1", || b"{}".to_vec()),
        Request::post("write: an index of a million shards", "/shards", || {
            bytes(&json!({"settings": {"number_of_shards": 1_000_000}}))
        })
        .with(Method::PUT),
        Request::post("write: a mapping 5,000 deep", "/deep", || {
            deep(r#"{"mappings":"#, r#"{"properties":{"a":"#, r#"{"type":"long"}"#, "}}", "}", 5_000)
        })
        .with(Method::PUT),
        Request::post("write: 100,000 synonyms", "/synonyms", || {
            let rules: Vec<String> = (0..100_000).map(|n| format!("a{n}, b{n} c{n} => d{n}")).collect();
            bytes(&json!({"settings": {"analysis": {"filter": {"s": {"type": "synonym", "synonyms": rules}},
                "analyzer": {"a": {"tokenizer": "standard", "filter": ["s"]}}}}}))
        })
        .with(Method::PUT),
        Request::post("write: a settings body of 10,000 keys", format!("/{VICTIM}/_settings"), || {
            let keys: serde_json::Map<String, Value> =
                (0..10_000).map(|n| (format!("index.k{n}"), json!(1))).collect();
            bytes(&Value::Object(keys))
        })
        .with(Method::PUT),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_what_they_say() {
        assert_eq!(nested("[", "1", "]", 3), b"[[[1]]]");
        assert_eq!(list("[", "{}", "]", 3), b"[{},{},{}]");
        assert_eq!(sql("SELECT 1".to_owned()), br#"{"query":"SELECT 1"}"#);
        assert!(gzipped(&[0; 100_000]).len() < 1_000);
    }

    #[test]
    fn small_bodies_are_json_unless_they_mean_not_to_be() {
        const OTHERS: [&str; 5] = [
            "search: terms of 30 million numbers, gzipped",
            "search: a million searches in one",
            "search: bool in bool, 20,000",
            "aggregation: 2,000 in one another",
            "search: 10,000 patterns in filter_path",
        ];
        let requests = [searches(), aggregations(), statements()].into_iter().flatten();
        for request in requests.filter(|request| !OTHERS.contains(&request.name)) {
            let body = (request.body)();
            assert!(serde_json::from_slice::<Value>(&body).is_ok(), "{}", request.name);
        }
    }
}
