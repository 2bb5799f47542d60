//! Access lines of a busy web site, in the shape of the `http_logs` workload: `@timestamp` in epoch
//! seconds, client address, request line, status, size.
//!
//! Paths, clients and statuses follow a Zipf law; times advance with the position and are denser by
//! day than by night.

use std::io::Write;

use serde_json::{Value, json};

use super::Generator;
use crate::query::Operation;
use crate::random::{Random, Zipf};
use crate::words::{PAGES, SECTIONS};

/// First second of the corpus: 30 April 1998, noon UTC.
const START: i64 = 893_937_600;
/// Seconds that a corpus covers, at any size: ten days.
const SPAN: i64 = 10 * 86_400;
/// Distinct request lines.
const PATHS: usize = 20_000;
/// Distinct clients.
const CLIENTS: usize = 200_000;

/// The generator.
#[derive(Debug)]
pub(super) struct HttpLogs {
    random: Random,
    position: u64,
    total: u64,
    requests: Vec<String>,
    sizes: Vec<u32>,
    by_path: Zipf,
    by_client: Zipf,
}

impl HttpLogs {
    pub(super) fn new(seed: u64, total: u64) -> Self {
        // The site is the same for every seed: queries name its pages.
        let mut random = Random::new(0x5173);
        let requests = (0..PATHS).map(|rank| request(rank, &mut random)).collect();
        let sizes = (0..PATHS).map(|_| (random.unit().powi(4) * 60_000.0) as u32 + 40).collect();
        Self {
            random: Random::new(seed),
            position: 0,
            total,
            requests,
            sizes,
            by_path: Zipf::new(PATHS, 0.95),
            by_client: Zipf::new(CLIENTS, 0.75),
        }
    }
}

fn request(rank: usize, random: &mut Random) -> String {
    let version = if random.chance(0.8) { "1.0" } else { "1.1" };
    if rank == 7 {
        return "GET / HTTP/1.0".to_owned();
    }
    let method = if random.chance(0.985) { "GET" } else { "HEAD" };
    let section = random.pick(SECTIONS);
    let other = random.pick(SECTIONS);
    let page = random.pick(PAGES);
    let number = 10_000 + random.below(5_000);
    let path = match random.below(100) {
        0..40 => {
            format!("/{}/images/{section}_{page}_{other}_{number}.gif", random.pick(&["english", "french"]))
        }
        40..52 => format!("/images/teams/{section}/{page}_{other}{number}.gif"),
        52..60 => format!("/images/{section}/{other}/{page}{number}.gif"),
        60..74 => format!("/english/{section}/{other}/{page}_{number}.html"),
        74..88 => format!("/french/{section}/{other}/group/{page}_{number}.html"),
        88..93 => format!("/english/{section}/{page}{number}.htm"),
        93..96 => format!("/images/{section}/{page}_{other}{number}.jpg"),
        96..98 => format!("/cgi-bin/{section}/{page}.pl?{other}={number}"),
        _ => format!("/english/{section}/downloads/{page}{number}.pdf"),
    };
    format!("{method} {path} HTTP/{version}")
}

impl Generator for HttpLogs {
    fn next(&mut self, out: &mut Vec<u8>) {
        let random = &mut self.random;
        let share = self.position as f64 / self.total.max(1) as f64;
        self.position += 1;
        let linear = share * SPAN as f64;
        // Shifting time by a sine of the day makes noon busier than midnight and stays monotone.
        let wave = (linear / 86_400.0 * std::f64::consts::TAU).sin() * 86_400.0 / std::f64::consts::TAU * 0.7;
        let seconds = START + (linear + wave) as i64;

        let client = self.by_client.draw(random) as u64;
        // A multiplication by an odd constant scatters ranks over the address space.
        let address = client.wrapping_mul(0x9e37_79b1) as u32;
        let [a, b, c, d] = address.to_be_bytes();
        let path = self.by_path.draw(random);
        let (status, size) = match random.below(1_000) {
            0..870 => (200, self.sizes[path]),
            870..985 => (304, 0),
            985..997 => (404, 300 + random.below(60) as u32),
            997 => (206, self.sizes[path] / 2),
            998 => (302, 310),
            _ => (*random.pick(&[500, 500, 501, 503, 400, 403]), 305),
        };
        // Writing to a vector cannot fail.
        let _ = write!(
            out,
            "{{\"@timestamp\":{seconds},\"clientip\":\"{}.{b}.{c}.{d}\",\"request\":\"{}\",\"status\":{status},\"size\":{size}}}",
            a % 223 + 1,
            self.requests[path],
        );
    }
}

pub(super) fn index_body() -> Value {
    json!({
        "settings": {"number_of_shards": 1, "number_of_replicas": 0},
        "mappings": {
            "dynamic": "strict",
            "properties": {
                "@timestamp": {"type": "date", "format": "strict_date_optional_time||epoch_second"},
                "clientip": {"type": "ip"},
                "request": {
                    "type": "text",
                    "fields": {"raw": {"type": "keyword", "ignore_above": 256}},
                },
                "status": {"type": "integer"},
                "size": {"type": "integer"},
            },
        },
    })
}

/// Questions about one hour in the first tenth of the corpus.
pub(super) fn of_an_hour(index: &str) -> Vec<Operation> {
    let from = START + 86_400;
    let hour = json!({"range": {"@timestamp": {"gte": from, "lt": from + 3_600, "format": "epoch_second"}}});
    let and = |clause: Value| json!({"bool": {"filter": [hour, clause]}});
    let newest = json!([{"@timestamp": "desc"}]);
    vec![
        Operation::count("count", index, json!({"query": hour})),
        Operation::search(
            "status 404, newest 10",
            index,
            json!({
                "query": and(json!({"term": {"status": 404}})), "sort": newest,
            }),
        ),
        Operation::search(
            "match \"images\", by score",
            index,
            json!({
                "query": {"bool": {"must": [{"match": {"request": "images"}}], "filter": [hour]}},
            }),
        ),
        Operation::search(
            "terms status",
            index,
            json!({
                "size": 0, "query": hour, "aggs": {"a": {"terms": {"field": "status"}}},
            }),
        ),
    ]
}

/// Operations of the first slice of search: exact and full-text filters, ranges, sorting, paging.
pub(super) fn operations(index: &str, _total: u64) -> Vec<Operation> {
    let newest = json!([{"@timestamp": "desc"}]);
    let day = START + 5 * 86_400;
    let search = |name: &str, body: Value| Operation::search(name, index, body);
    let plain = |name: &str, body: Value| Operation::plain(name, index, body);
    let newest_of = |query: Value| json!({"query": query, "sort": newest});
    let of_day = |day: i64| {
        let from = START + day * 86_400;
        json!({"range": {"@timestamp": {"gte": from, "lt": from + 86_400, "format": "epoch_second"}}})
    };
    let behind = START + 6 * 86_400;
    // The most frequent client: rank 0.
    vec![
        search("match_all", json!({"query": {"match_all": {}}})),
        search("newest 10", newest_of(json!({"match_all": {}}))),
        search("oldest 10", json!({"query": {"match_all": {}}, "sort": [{"@timestamp": "asc"}]})),
        search("term status=404, newest 10", newest_of(json!({"term": {"status": 404}}))),
        search("term status=404, any 10", json!({"query": {"term": {"status": 404}}})),
        search("term clientip, newest 10", newest_of(json!({"term": {"clientip": "1.0.0.0"}}))),
        search("term request.raw", json!({"query": {"term": {"request.raw": "GET / HTTP/1.0"}}})),
        search("match \"images teams\", by score", json!({"query": {"match": {"request": "images teams"}}})),
        search(
            "match and \"french html\", newest 10",
            newest_of(json!({"match": {"request": {"query": "french html", "operator": "and"}}})),
        ),
        search(
            "one day, status 500, newest 10",
            newest_of(json!({"bool": {"filter": [
                {"range": {"@timestamp": {"gte": day, "lt": day + 86_400, "format": "epoch_second"}}},
                {"term": {"status": 500}},
            ]}})),
        ),
        search(
            "one day, newest 10",
            newest_of(
                json!({"range": {"@timestamp": {"gte": day, "lt": day + 86_400, "format": "epoch_second"}}}),
            ),
        ),
        search("prefix request.raw", json!({"query": {"prefix": {"request.raw": "GET /english/news/"}}})),
        search(
            "status 400 to 599 and match \"french html\"",
            json!({"query": {"bool": {
                "must": [{"match": {"request": {"query": "french html", "operator": "and"}}}],
                "filter": [{"range": {"status": {"gte": 400, "lt": 600}}}],
            }}}),
        ),
        search(
            "phrase \"english images\"",
            json!({"query": {"match_phrase": {"request": "english images"}}}),
        ),
        search(
            "query_string of text and range",
            json!({"query": {"query_string": {"query": "request:(french AND html) AND status:[400 TO 599]"}}}),
        ),
        search("wildcard request.raw", json!({"query": {"wildcard": {"request.raw": "*/images/*.gif*"}}})),
        plain("top 10 of match \"images teams\"", json!({"query": {"match": {"request": "images teams"}}})),
        plain(
            "top 10 of phrase \"english images\"",
            json!({"query": {"match_phrase": {"request": "english images"}}}),
        ),
        plain("workload: match-all", json!({"query": {"match_all": {}}})),
        plain("workload: term", json!({"query": {"term": {"request.raw": {"value": "GET / HTTP/1.0"}}}})),
        plain(
            "workload: multi-term-filter",
            json!({"query": {"bool": {
                "must": [{"term": {"request.raw": {"value": "GET / HTTP/1.0"}}}],
                "filter": [{"term": {"status": 200}}],
            }}}),
        ),
        plain(
            "workload: range",
            json!({"query": {"range": {"@timestamp": {"gte": START + 86_400, "format": "epoch_second"}}}}),
        ),
        plain(
            "workload: 200s-in-range",
            json!({"query": {"bool": {"must": [of_day(1), {"match": {"status": "200"}}]}}}),
        ),
        plain(
            "workload: 400s-in-range",
            json!({"query": {"bool": {"must": [of_day(1), {"match": {"status": "400"}}]}}}),
        ),
        plain("workload: range_size", json!({"query": {"range": {"size": {"gte": 20, "lte": 200}}}})),
        plain("workload: desc_sort_size", json!({"query": {"match_all": {}}, "sort": [{"size": "desc"}]})),
        plain("workload: asc_sort_size", json!({"query": {"match_all": {}}, "sort": [{"size": "asc"}]})),
        plain("workload: desc_sort_timestamp", newest_of(json!({"match_all": {}}))),
        plain(
            "workload: asc_sort_timestamp",
            json!({"query": {"match_all": {}}, "sort": [{"@timestamp": "asc"}]}),
        ),
        plain(
            "workload: desc_sort_with_after_timestamp",
            json!({
                "track_total_hits": false, "query": {"match_all": {}}, "sort": newest,
                "search_after": [behind * 1_000],
            }),
        ),
        plain(
            "workload: asc_sort_with_after_timestamp",
            json!({
                "track_total_hits": false, "query": {"match_all": {}}, "sort": [{"@timestamp": "asc"}],
                "search_after": [behind * 1_000],
            }),
        ),
        plain("workload: range_with_desc_sort", json!({"query": of_day(3), "sort": newest})),
        plain("workload: range_with_asc_sort", json!({"query": of_day(3), "sort": [{"@timestamp": "asc"}]})),
        Operation::count("count match pdf", index, json!({"query": {"match": {"request": "pdf"}}})),
        Operation::count("count size > 50000", index, json!({"query": {"range": {"size": {"gt": 50_000}}}})),
    ]
}
