//! Logs as a cloud's log service delivers them, in the shape of the `big5` workload: keyword fields of
//! many cardinalities, two numbers, and a message of timestamp, host, process and eight words.

use std::io::Write;

use serde_json::{Value, json};

use super::Generator;
use crate::query::Operation;
use crate::random::{Random, Zipf};
use crate::timestamp::push_iso;
use crate::words::WORDS;

/// First millisecond of the corpus: 1 January 2023 UTC.
const START_MS: i64 = 1_672_531_200_000;
/// Milliseconds that a corpus covers: twelve days.
const SPAN_MS: i64 = 12 * 86_400_000;
const REGIONS: [&str; 7] =
    ["us-east-1", "us-west-2", "eu-west-1", "eu-central-1", "ap-south-1", "ap-northeast-2", "sa-east-1"];
const PROCESSES: [&str; 12] = [
    "systemd",
    "sshd",
    "kernel",
    "cron",
    "dhclient",
    "chronyd",
    "auditd",
    "containerd",
    "kubelet",
    "ec2net",
    "rngd",
    "dbus",
];
const TAGS: [&str; 2] = ["forwarded", "original"];
/// Distinct log streams: the middling keyword cardinality.
const STREAMS: u64 = 500;

/// The generator.
#[derive(Debug)]
pub(super) struct Big5 {
    random: Random,
    position: u64,
    total: u64,
    by_word: Zipf,
    by_stream: Zipf,
}

impl Big5 {
    pub(super) fn new(seed: u64, total: u64) -> Self {
        Self {
            random: Random::new(seed),
            position: 0,
            total,
            by_word: Zipf::new(WORDS.len(), 0.8),
            by_stream: Zipf::new(STREAMS as usize, 0.6),
        }
    }
}

/// A name that belongs to a stream for ever: eight hexadecimal digits.
fn tag_of(stream: u64, salt: u64) -> u32 {
    Random::new(stream ^ (salt << 32)).next() as u32
}

impl Generator for Big5 {
    fn next(&mut self, out: &mut Vec<u8>) {
        let random = &mut self.random;
        let time = START_MS + (SPAN_MS as f64 * (self.position as f64 / self.total.max(1) as f64)) as i64;
        let position = self.position;
        self.position += 1;
        let stream = self.by_stream.draw(random) as u64;
        let process = PROCESSES[(tag_of(stream, 1) as usize + random.index(3)) % PROCESSES.len()];
        let region = REGIONS[tag_of(stream, 2) as usize % REGIONS.len()];
        let [_, host @ ..] = tag_of(stream, 3).to_be_bytes();
        let lag = random.below(60_000) as i64;
        // Writing to a vector cannot fail.
        out.extend_from_slice(b"{\"@timestamp\":\"");
        push_iso(out, time);
        out.extend_from_slice(b"\",\"message\":\"");
        push_iso(out, time);
        let _ = write!(out, " ip-{}-{}-{} {process}[{}]:", host[0], host[1], host[2], random.below(32_768));
        for _ in 0..8 {
            out.push(b' ');
            out.extend_from_slice(WORDS[self.by_word.draw(random)].as_bytes());
        }
        let _ = write!(
            out,
            "\",\"process\":{{\"name\":\"{process}\"}},\"aws\":{{\"cloudwatch\":{{\"log_stream\":\"dagger-{stream:03}\",\"ingestion_time\":\"",
        );
        push_iso(out, time + lag);
        let _ = write!(
            out,
            "\",\"log_group\":\"/var/log/{process}\"}}}},\"tags\":[\"{}\"{}],\"meta\":{{\"file\":\"2023-01-{:02}/{:06}.gz\"}},\"cloud\":{{\"region\":\"{region}\"}}",
            TAGS[tag_of(stream, 5) as usize % 2],
            if random.chance(0.3) { ",\"production\"" } else { "" },
            (time - START_MS) / 86_400_000 + 1,
            position / 2_000,
        );
        let _ = write!(
            out,
            ",\"input\":{{\"type\":\"aws-cloudwatch\"}},\"metrics\":{{\"tmin\":{},\"size\":{}}},\"log\":{{\"file\":{{\"path\":\"/var/log/dagger-{stream:03}\"}}}}",
            random.below(1_200),
            random.below(5_000) + 1,
        );
        let _ = write!(
            out,
            ",\"event\":{{\"id\":\"{:016x}\",\"dataset\":\"generic\",\"ingested\":\"",
            random.next(),
        );
        push_iso(out, time + lag + 1_500);
        let _ = write!(
            out,
            "\"}},\"agent\":{{\"id\":\"{:08x}\",\"name\":\"ip-{}-{}-{}\",\"ephemeral_id\":\"{:08x}\",\"type\":\"filebeat\",\"version\":\"8.8.0\"}},\"data_stream\":{{\"dataset\":\"cloud\",\"namespace\":\"day1\",\"type\":\"logs\"}},\"ecs\":{{\"version\":\"8.0\"}}}}",
            tag_of(stream, 7),
            host[0],
            host[1],
            host[2],
            tag_of(stream + time as u64 / 86_400_000, 10),
        );
    }
}

pub(super) fn index_body() -> Value {
    let keyword = json!({"type": "keyword", "ignore_above": 1024});
    json!({
        "settings": {"number_of_shards": 1, "number_of_replicas": 0},
        "mappings": {
            "date_detection": false,
            "properties": {
                "@timestamp": {"type": "date"},
                "message": {"type": "text"},
                "process": {"properties": {"name": keyword}},
                "aws": {"properties": {"cloudwatch": {"properties": {
                    "ingestion_time": keyword,
                    "log_group": keyword,
                    "log_stream": keyword,
                }}}},
                "tags": keyword,
                "meta": {"properties": {"file": keyword}},
                "cloud": {"properties": {"region": keyword}},
                "input": {"properties": {"type": keyword}},
                "metrics": {"properties": {"tmin": {"type": "long"}, "size": {"type": "long"}}},
                "log": {"properties": {"file": {"properties": {"path": keyword}}}},
                "event": {"properties": {"id": keyword, "dataset": keyword, "ingested": {"type": "date"}}},
                "data_stream": {"properties": {"dataset": keyword, "namespace": keyword, "type": keyword}},
                "ecs": {"properties": {"version": keyword}},
                "agent": {"properties": {
                    "id": keyword,
                    "name": keyword,
                    "ephemeral_id": keyword,
                    "type": keyword,
                    "version": keyword,
                }},
            },
        },
    })
}

pub(super) fn operations(index: &str, _total: u64) -> Vec<Operation> {
    let search = |name: &str, body: Value| Operation::search(name, index, body);
    let day = json!({"range": {"@timestamp": {"gte": "2023-01-05T00:00:00Z", "lt": "2023-01-06T00:00:00Z"}}});
    let stream = "dagger-003";
    let mut operations = vec![
        search("match_all", json!({"query": {"match_all": {}}})),
        search("newest 10", json!({"query": {"match_all": {}}, "sort": [{"@timestamp": "desc"}]})),
        search("oldest 10", json!({"query": {"match_all": {}}, "sort": [{"@timestamp": "asc"}]})),
        search("term process.name", json!({"query": {"term": {"process.name": "kernel"}}})),
        search("term log_stream", json!({"query": {"term": {"aws.cloudwatch.log_stream": stream}}})),
        search(
            "match \"request server\", by score",
            json!({"query": {"match": {"message": "request server"}}}),
        ),
        search("sort by keyword", json!({"query": {"match_all": {}}, "sort": [{"meta.file": "asc"}]})),
        search("one day, sort by numeric", json!({"query": day, "sort": [{"metrics.size": "asc"}]})),
        search("range", json!({"query": {"range": {"metrics.size": {"gte": 20, "lte": 200}}}})),
        search(
            "one day, keyword, newest 10",
            json!({
                "query": {"bool": {"filter": [day, {"term": {"cloud.region": "eu-west-1"}}]}},
                "sort": [{"@timestamp": "desc"}],
            }),
        ),
        Operation::count("count one day", index, json!({"query": day})),
    ];
    operations.extend(workload(index));
    operations
}

/// The searches of the workload, without aggregations; names of values are those of this generator.
fn workload(index: &str) -> Vec<Operation> {
    let range = |from: &str, to: &str| json!({"range": {"@timestamp": {"gte": from, "lt": to}}});
    let two_days = range("2023-01-01T00:00:00", "2023-01-03T00:00:00");
    let all_days = range("2023-01-01T00:00:00", "2023-01-13T00:00:00");
    let size = |most: u32| json!({"range": {"metrics.size": {"gte": 1, "lte": most}}});
    let kernel = json!({"match": {"process.name": "kernel"}});
    let path = json!({"match": {"log.file.path": "/var/log/dagger-101"}});
    let stream = json!({"term": {"aws.cloudwatch.log_stream": "dagger-101"}});
    let words = format!("message: {} AND {} AND {}", WORDS[10], WORDS[30], WORDS[60]);
    let message = json!({"query_string": {"query": words}});
    let all = json!({"match_all": {}});
    let sorted = |query: &Value, sort: Value| json!({"query": query, "sort": [sort]});
    let uncounted =
        |query: &Value, sort: Value| json!({"track_total_hits": false, "query": query, "sort": [sort]});
    let behind = |sort: Value| {
        let after = ["2023-01-01T23:59:58.000Z"];
        json!({"track_total_hits": false, "query": all, "sort": [sort], "search_after": after})
    };
    let must = |clauses: [&Value; 2]| json!({"query": {"bool": {"must": clauses}}});
    let should = |clauses: [&Value; 2]| json!({"query": {"bool": {"should": clauses}}});
    let (newest, oldest) = (json!({"@timestamp": "desc"}), json!({"@timestamp": "asc"}));
    [
        ("default", json!({"query": all})),
        ("desc_sort_timestamp", sorted(&all, newest.clone())),
        ("asc_sort_timestamp", sorted(&all, oldest.clone())),
        ("desc_sort_with_after_timestamp", behind(newest.clone())),
        ("asc_sort_with_after_timestamp", behind(oldest.clone())),
        ("desc_sort_timestamp_can_match_shortcut", uncounted(&kernel, newest.clone())),
        ("asc_sort_timestamp_can_match_shortcut", uncounted(&kernel, oldest.clone())),
        ("term", json!({"query": {"term": {"log.file.path": {"value": "/var/log/dagger-202"}}}})),
        ("keyword-in-range", must([&two_days, &kernel])),
        ("query-string-on-message", json!({"query": message})),
        ("query-string-on-message-filtered", must([&two_days, &message])),
        ("query-string-on-message-filtered-sorted-num", {
            let query = json!({"bool": {"must": [two_days, message]}});
            sorted(&query, json!({"metrics.size": {"order": "desc"}}))
        }),
        ("range", json!({"query": two_days})),
        ("range-numeric", json!({"query": size(1_000)})),
        ("range_field_conjunction_big_range_big_term_query", {
            must([&json!({"term": {"process.name": "systemd"}}), &size(1_000)])
        }),
        ("range_field_conjunction_small_range_big_term_query", must([&size(42), &all])),
        ("range_field_conjunction_small_range_small_term_query", should([&stream, &size(30)])),
        ("range_field_disjunction_big_range_small_term_query", should([&stream, &size(1_000)])),
        ("range_with_desc_sort", sorted(&all_days, newest)),
        ("range_with_asc_sort", sorted(&all_days, oldest)),
        ("sort_keyword_can_match_shortcut", uncounted(&kernel, json!({"meta.file": "asc"}))),
        ("sort_numeric_desc", uncounted(&all, json!({"metrics.size": "desc"}))),
        ("sort_numeric_asc", uncounted(&all, json!({"metrics.size": "asc"}))),
        ("sort_numeric_desc_with_match", uncounted(&path, json!({"metrics.size": "desc"}))),
        ("sort_numeric_asc_with_match", uncounted(&path, json!({"metrics.size": "asc"}))),
        ("field-collapsing-low-cardinality", {
            json!({"query": {"match": {"message": WORDS[200]}}, "collapse": {"field": "process.name"}})
        }),
    ]
    .into_iter()
    .map(|(name, body)| Operation::plain(&format!("workload: {name}"), index, body))
    .collect()
}
