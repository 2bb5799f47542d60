//! Rate of matching documents against the filters of rules: 100, 1,000 and 10,000 of them, all different.
//!
//! Documents are access lines in the shape of `http_logs`, in batches of 500; building a batch is part of what is measured. Of the filters
//! half are one term, a fifth terms and ranges, a fifth words and phrases, a tenth wildcards; about one document in a thousand
//! matches any of them. `cargo bench -p millrace-benchmarks --bench filters`

#![allow(missing_docs, reason = "the macros of criterion write items without comments")]

#[path = "../src/random.rs"]
#[allow(dead_code, unused_imports, reason = "the generators of corpora use the rest, with their tests")]
mod random;
#[path = "../src/words.rs"]
#[allow(dead_code, unused_imports, reason = "the generators of corpora use the rest, with their tests")]
mod words;

use std::hint::black_box;
use std::sync::Arc;

use anyhow::{Context, Result};
use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use millrace_catalog::metadata::IndexMeta;
use millrace_mapping::Mapping;
use millrace_query::QueryContext;
use millrace_query::filters::{ArrivedDocument, Filter, IndexView, Matcher};
use millrace_runtime::Compute;
use random::{Random, Zipf};
use serde_json::{Map, Value, json};
use words::{PAGES, SECTIONS};

/// Documents of a batch.
const BATCH: usize = 500;
/// Batches that are gone through in turns.
const BATCHES: usize = 20;
/// One document in so many is one that a filter asks for.
const MATCHING: u64 = 1_000;
/// First second of the documents: 30 April 1998, noon UTC.
const START: i64 = 893_937_600;

/// Access lines: most ask for what no filter asks for.
struct Lines {
    random: Random,
    by_page: Zipf,
    filters: u64,
    second: i64,
}

impl Lines {
    fn next(&mut self) -> Value {
        let random = &mut self.random;
        let page = self.by_page.draw(random);
        let (section, name) = (SECTIONS[page % SECTIONS.len()], PAGES[page % PAGES.len()]);
        let wanted = random.below(MATCHING) == 0;
        let target = random.below(self.filters);
        let (client, request) = match wanted {
            true => (client(target), request(target)),
            false => {
                let client = format!("{}.{}.0.{}", random.below(120), random.below(256), random.below(256));
                (client, format!("GET /english/{section}/{name}_{page}.html HTTP/1.0"))
            }
        };
        self.second += i64::from(random.chance(0.1));
        let status = [200, 200, 200, 304, 404, 500][random.index(6)];
        json!({
            "@timestamp": self.second, "clientip": client, "request": request, "status": status,
            "size": random.below(60_000)
        })
    }
}

/// The address that a filter asks for.
fn client(filter: u64) -> String {
    format!("200.{}.{}.{}", filter >> 16, filter >> 8 & 255, filter & 255)
}

/// A request line that a filter asks for.
fn request(filter: u64) -> String {
    format!("POST /admin{filter}/login{filter}.php HTTP/1.1")
}

/// The filter of a number, by the mix that there is of them.
fn filter(number: u64) -> Value {
    let admin = format!("admin{number}");
    let query = match number % 10 {
        0..5 => json!({"term": {"clientip": client(number)}}),
        5 => json!({"bool": {"filter": [
            {"term": {"status": 404}}, {"term": {"clientip": client(number)}}, {"range": {"size": {"gte": number % 1_000}}}
        ]}}),
        6 => json!({"bool": {
            "filter": [{"terms": {"status": [404, 500]}}, {"range": {"size": {"gte": 60_000 + number, "lt": 60_010 + number}}}],
            "must_not": [{"term": {"clientip": client(number)}}]
        }}),
        7 => json!({"match": {"request": {"query": format!("{admin} http"), "operator": "and"}}}),
        8 => json!({"match_phrase": {"request": format!("{admin} login{number}.php")}}),
        _ => json!({"wildcard": {"request.raw": format!("*/{admin}/*.php*")}}),
    };
    json!({"query": query})
}

fn view() -> Result<Arc<IndexView>> {
    let body = json!({"properties": {
        "@timestamp": {"type": "date", "format": "strict_date_optional_time||epoch_second"},
        "clientip": {"type": "ip"}, "status": {"type": "integer"}, "size": {"type": "integer"},
        "request": {"type": "text", "fields": {"raw": {"type": "keyword", "ignore_above": 256}}}
    }});
    let meta = json!({
        "name": "logs", "uuid": "00000000-0000-0000-0000-000000000000", "settings": {}, "aliases": {}, "open": true,
        "created_ms": 0, "shards": 1, "replicas": 0
    });
    let meta: IndexMeta = serde_json::from_value(meta)?;
    Ok(Arc::new(IndexView::whole(Arc::new(meta), Arc::new(Mapping::parse(&body, &Map::new())?))))
}

fn batches(filters: u64) -> Vec<Vec<ArrivedDocument>> {
    let by_page = Zipf::new(20_000, 0.95);
    let mut lines = Lines { random: Random::new(7), by_page, filters, second: START };
    let mut arrival = |at: usize| {
        let (source, now_ms) = (Bytes::from(lines.next().to_string()), lines.second * 1_000);
        ArrivedDocument { id: at.to_string().into(), source, seq_no: at as u64, routing: None, now_ms }
    };
    (0..BATCHES).map(|batch| (0..BATCH).map(|row| arrival(batch * BATCH + row)).collect()).collect()
}

fn measure(criterion: &mut Criterion, count: u64) -> Result<()> {
    let view = view()?;
    let filters = (0..count).map(|number| Ok(Arc::new(Filter::compile(&filter(number), &view)?)));
    let filters: Vec<Arc<Filter>> = filters.collect::<Result<_>>()?;
    let (matcher, batches, compute) = (Matcher::new(&filters), batches(count), Compute::start(1)?);
    let run = |arrivals: &[ArrivedDocument]| -> Result<u64> {
        let batch = matcher.batch(view.mapping(), arrivals, &compute)?;
        let found = matcher.run(&batch, &QueryContext::default())?;
        found.iter().map(|own| own.rows.as_ref().map_or(Ok(0), |rows| Ok(rows.len()))).sum()
    };
    let matched: u64 = batches.iter().map(|arrivals| run(arrivals)).sum::<Result<u64>>()?;
    let documents = BATCHES * BATCH;
    println!("{count} filters: {matched} matches in {documents} documents");
    let mut group = criterion.benchmark_group("filters");
    group.throughput(Throughput::Elements(documents as u64));
    group.sample_size(10);
    group.bench_function(count.to_string(), |bencher| {
        bencher.iter(|| batches.iter().map(|arrivals| run(black_box(arrivals))).sum::<Result<u64>>());
    });
    group.finish();
    Ok(())
}

fn filters(criterion: &mut Criterion) {
    for count in [100, 1_000, 10_000] {
        if let Err(error) = measure(criterion, count).with_context(|| format!("{count} filters")) {
            eprintln!("{error:#}");
            std::process::exit(1);
        }
    }
}

criterion_group!(benches, filters);
criterion_main!(benches);
