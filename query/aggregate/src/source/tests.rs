//! Every source answers as reading the rows does; and which one is chosen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool, UnboundedMemoryPool};
use millrace_catalog::access::Principal;
use millrace_catalog::metadata::{Metadata, Uuid};
use millrace_dsl::aggs::{Aggregations, CalendarUnit};
use millrace_engine::{Action, Config, Engine, RefreshPolicy, WriteOp};
use millrace_matching::table::partitions::RowPartition;
use millrace_matching::table::{
    IndexTable, ScanOptions, TableIndex, TableSegment, TableSnapshot, TableState,
};
use millrace_runtime::{ManualClock, SharedClock};
use millrace_scoring::reader::SegmentReader;
use millrace_work::QueryContext;
use millrace_work::compute::Compute;
use millrace_work::error::Error;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use roaring::RoaringBitmap;
use serde_json::{Value, json};

use super::*;
use crate::compile::compile;
use crate::operator::States;
use crate::pass::PartRows;
use crate::run::reduce;
use crate::segment::SegmentSets;
use crate::tree::Tree;
use crate::value_counts::{CountKey, CountedRows, Value as CountedValue, ValueCounts};

const START: i64 = 1_700_000_000_000;
/// Rows of a window: where parts of a segment may end.
const WINDOW: u32 = 4_096;

/// An index of one segment.
struct Store {
    table: Arc<TableState>,
    _engine: Arc<Engine>,
    _directory: tempfile::TempDir,
}

fn mapping() -> Value {
    json!({"settings": {"number_of_shards": 1, "refresh_interval": -1}, "mappings": {"properties": {
        "at": {"type": "date"}, "ns": {"type": "date_nanos"}, "status": {"type": "integer"},
        "size": {"type": "integer"}, "wide": {"type": "long"}, "number": {"type": "long"},
        "list": {"type": "integer"}, "f": {"type": "double"}, "ok": {"type": "boolean"},
        "word": {"type": "keyword"}, "client": {"type": "keyword"}, "id": {"type": "keyword"},
        "ip": {"type": "ip"}, "plain": {"type": "text"},
        "name": {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 6}}},
        "cut": {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 5}}},
    }}})
}

/// A document of so many: `at` and `number` ascend, `client` has a few rows each, `id` one; `word`, `f` and `list` are missing
/// in some.
fn document(number: u32, count: u32, rng: &mut StdRng) -> Value {
    let at = START + i64::from(number) * 1_000;
    let status = [200, 304, 404, 500][rng.random_range(0..4)];
    let mut document = json!({
        "at": at, "ns": at, "number": number, "status": status,
        "size": rng.random_range(0..count.div_ceil(32).max(2)), "wide": rng.random_range(-1_000_000_000..1_000_000_000_i64),
        "ok": rng.random_bool(0.5), "id": format!("id-{:08}", number.wrapping_mul(0x9e37_79b9)),
        "client": format!("client-{:05}", rng.random_range(0..count.div_ceil(8))),
        "name": format!("name-{}", number % 7), "cut": format!("name-{}", number % 7), "plain": "a word",
        "ip": format!("10.0.{}.{}", rng.random_range(0..4), rng.random_range(0..8)),
    });
    if rng.random_bool(0.8) {
        let word = ["disk", "full", "error"][rng.random_range(0..3)];
        document["word"] = json!(word);
        document["f"] = json!(f64::from(rng.random_range(-40..40)) / 8.0);
        document["list"] = json!([rng.random_range(0..5), rng.random_range(0..5)]);
    }
    document
}

impl Store {
    async fn open(count: u32, stored: bool, rng: &mut StdRng) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = Config { data_dir: directory.path().to_owned(), ..Config::default() };
        let clock = Arc::new(ManualClock::new(START));
        let engine = Engine::open(config, clock as SharedClock).await.unwrap();
        let principal = Principal::system();
        let create = |m: &Metadata| m.create_index("logs", &mapping(), START, Uuid::new_v4());
        engine.change(&principal, create).await.unwrap();
        let ops = (0..count).map(|number| {
            WriteOp::new(
                "logs",
                Some(number.to_string()),
                Action::Index(document(number, count, rng).to_string().into()),
            )
        });
        let ops = ops.collect();
        engine.write(&principal, ops, RefreshPolicy::Immediate, Duration::from_secs(10)).await.unwrap();
        let index = engine.index("logs").unwrap();
        if stored {
            engine.force_merge(&[Arc::clone(&index)], 1).await.unwrap();
        }
        let snapshot = index.snapshot().await.unwrap();
        let views = snapshot.shards.iter().flat_map(|shard| &shard.segments);
        let segments = views.map(|view| TableSegment {
            index: 0,
            shard: 0,
            reader: Arc::clone(&view.segment) as Arc<dyn SegmentReader>,
            deleted: Arc::clone(&view.deleted),
            ruled: None,
        });
        let segments: Vec<TableSegment> = segments.collect();
        assert_eq!(segments.len(), 1);
        let index = TableIndex {
            meta: snapshot.meta,
            mapping: snapshot.mapping,
            filter: None,
            seen: Default::default(),
            shards: vec![0],
            boost: 1.0,
        };
        let snapshot = TableSnapshot { indices: vec![index], segments, shards: 1, listed: None };
        let compute = Compute::new(engine.compute().clone());
        let table = IndexTable::new(Arc::new(snapshot), Vec::new(), ScanOptions::default(), compute);
        Self { table: Arc::clone(table.state()), _engine: engine, _directory: directory }
    }

    fn rows(&self) -> u32 {
        self.table.snapshot.segments[0].reader.rows()
    }

    fn tree(&self, aggs: &Value) -> Tree {
        let aggregations = Aggregations::parse("aggs", aggs).unwrap();
        let tree = compile(&aggregations, &self.table.snapshot, START, false).unwrap();
        assert!(tree.failed.is_empty(), "{aggs}: {:?}", tree.failed);
        tree
    }

    fn context<'a>(&'a self, tree: &'a Tree) -> SegmentContext<'a> {
        let sets = Arc::new(SegmentSets::new(&tree.scan, &QueryContext::default()));
        SegmentContext::new(&tree.scan, &self.table, 0, &self.table.snapshot.segments[0], sets).unwrap()
    }

    /// Makes the answer of parts of the rows.
    fn answer(&self, tree: &Tree, sources: &[&dyn Source], parts: &[Rows]) -> Value {
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let reservation = MemoryConsumer::new("test").register(&pool);
        let mut states = States::new(tree);
        for rows in parts {
            let mut part = States::new(tree);
            let segment = &self.context(tree);
            let fed = PartRows { segment, rows, scores: &[], sources, reservation: &reservation };
            fed.feed(&tree.roots, &mut part.roots, &mut []).unwrap();
            fed.feed(&tree.globals, &mut part.globals, &mut part.backgrounds).unwrap();
            states.merge(part, &QueryContext::default()).unwrap();
        }
        let (results, _, _) = reduce(states, tree, 100_000, QueryContext::default()).unwrap();
        results.to_value(false)
    }

    /// Returns whether a source has an answer to something that is asked of one of the parts.
    fn bids(&self, tree: &Tree, source: &dyn Source, parts: &[Rows]) -> bool {
        let sources = [source];
        parts.iter().any(|rows| {
            let segment = &self.context(tree);
            let at = SegmentRows { segment, rows, sources: &sources };
            let mut bids = false;
            let note = &mut |question: &Question<'_>, _: &mut dyn Sink| {
                bids |= source.bid(question, at, u64::MAX)?.is_some();
                Ok(false)
            };
            let mut states = States::new(tree);
            for sub in states.roots.0.iter_mut().chain(&mut states.globals.0) {
                sub.collector.ask(segment, note).unwrap();
            }
            for background in &mut states.backgrounds {
                background.ask(note).unwrap();
            }
            let columns: Vec<usize> = (0..at.columns().len()).collect();
            bids || source.bid(&Question::Columns(&columns), at, u64::MAX).unwrap().is_some()
        })
    }

    /// Tells from where each aggregation would have the groups of rows, and how the pass reads those that it needs.
    fn chosen(&self, aggs: &Value, rows: &Rows) -> String {
        let tree = self.tree(aggs);
        let segment = &self.context(&tree);
        let at = SegmentRows { segment, rows, sources: all() };
        let mut chosen = Vec::new();
        let mut states = States::new(&tree);
        let subs = states.roots.0.iter_mut().chain(&mut states.globals.0);
        for (sub, root) in subs.zip(tree.roots.iter().chain(&tree.globals)) {
            let mut source = None;
            let note = &mut |question: &Question<'_>, _: &mut dyn Sink| {
                source = choose(question, at)?.map(|(name, _)| name);
                Ok(false)
            };
            sub.collector.ask(segment, note).unwrap();
            chosen.push(source.unwrap_or_else(|| {
                let (name, _) = choose(&Question::Columns(&root.slots[0]), at).unwrap().unwrap();
                name
            }));
        }
        chosen.join(", ")
    }
}

impl Store {
    /// Asks a source alone, within so much memory; whether it answered everything.
    fn asked_within(&self, aggs: &Value, source: &dyn Source, bytes: usize) -> Result<bool> {
        let tree = self.tree(aggs);
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(bytes));
        let mut segment = self.context(&tree);
        segment.source.work = QueryContext::new(&pool);
        let (segment, free, rows) = (&segment, &CheapestSource(source), &Rows::All(0..self.rows()));
        let at = SegmentRows { segment, rows, sources: &[free] };
        let (mut states, mut answered) = (States::new(&tree), true);
        for sub in &mut states.roots.0 {
            let ask = &mut |question: &Question<'_>, sink: &mut dyn Sink| answer(question, sink, at);
            answered &= sub.collector.ask(segment, ask)?;
        }
        Ok(answered)
    }
}

/// A source that is always the cheapest.
struct CheapestSource<'a>(&'a dyn Source);

impl Source for CheapestSource<'_> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn bid<'a>(
        &self,
        question: &'a Question<'a>,
        at: SegmentRows<'a>,
        _most: u64,
    ) -> Result<Option<SourceCost<'a>>> {
        Ok(self.0.bid(question, at, u64::MAX)?.map(|bid| SourceCost { cost: 0, ..bid }))
    }
}

fn questions() -> Vec<Value> {
    let sum =
        json!({"s": {"sum": {"field": "size"}}, "h": {"histogram": {"field": "number", "interval": 1_000}}});
    let sources = json!([{"c": {"terms": {"field": "client"}}}, {"s": {"terms": {"field": "status"}}}]);
    let down =
        json!([{"c": {"terms": {"field": "client", "order": "desc"}}}, {"w": {"terms": {"field": "word"}}}]);
    let ranges = json!([{"to": 20}, {"from": 10, "to": 50}, {"from": 50, "to": 9_000}, {"from": 9_000}]);
    let dates = json!([{"to": START + 100_000}, {"from": START + 60_000, "to": START + 9_000_000}]);
    vec![
        json!({"terms": {"field": "status"}}),
        json!({"terms": {"field": "status", "missing": 7}}),
        json!({"terms": {"field": "word", "include": "d.*", "min_doc_count": 0}}),
        json!({"terms": {"field": "client", "size": 30, "order": {"_key": "desc"}}}),
        json!({"terms": {"field": "ip", "size": 40}}),
        json!({"terms": {"field": "ok"}}),
        json!({"terms": {"field": "list"}}),
        json!({"rare_terms": {"field": "client", "max_doc_count": 3}}),
        json!({"significant_terms": {"field": "word", "min_doc_count": 1}}),
        json!({"multi_terms": {"terms": [{"field": "word"}, {"field": "status"}]}}),
        json!({"terms": {"field": "client", "size": 50}, "aggs": sum}),
        json!({"terms": {"field": "client", "include": "client-0000.*", "order": {"s": "desc"}}, "aggs": sum}),
        json!({"terms": {"field": "id", "size": 50}, "aggs": sum}),
        json!({"terms": {"field": "ip", "size": 50}, "aggs": sum}),
        json!({"terms": {"field": "word"}, "aggs": {"w": {"terms": {"field": "client", "size": 5}}}}),
        json!({"composite": {"size": 20, "sources": sources}}),
        json!({"composite": {"size": 20, "sources": sources, "after": {"c": "client-00002", "s": 304}}, "aggs": sum}),
        json!({"composite": {"size": 7, "sources": down}}),
        json!({"composite": {"sources": [{"w": {"terms": {"field": "word", "missing_bucket": true}}}]}}),
        json!({"date_histogram": {"field": "at", "fixed_interval": "1h"}}),
        json!({"date_histogram": {"field": "at", "calendar_interval": "day", "time_zone": "Asia/Kolkata"}}),
        json!({"date_histogram": {"field": "at", "fixed_interval": "90s", "offset": "7s"}}),
        json!({"date_histogram": {"field": "at", "fixed_interval": "5m",
            "hard_bounds": {"min": START + 600_000, "max": START + 1_200_000}}}),
        json!({"date_histogram": {"field": "ns", "fixed_interval": "10m"}}),
        json!({"date_histogram": {"field": "at", "fixed_interval": "1h"}, "aggs": {"a": {"avg": {"field": "size"}}}}),
        json!({"histogram": {"field": "size", "interval": 7, "offset": 2, "hard_bounds": {"min": 9, "max": 200}}}),
        json!({"histogram": {"field": "number", "interval": 10_000}}),
        json!({"histogram": {"field": "wide", "interval": 100_000_000}}),
        json!({"histogram": {"field": "f", "interval": 2.5}}),
        json!({"histogram": {"field": "list", "interval": 2, "missing": 11}}),
        json!({"range": {"field": "size", "ranges": ranges}}),
        json!({"range": {"field": "number", "ranges": ranges}}),
        json!({"range": {"field": "list", "ranges": ranges}}),
        json!({"range": {"field": "f", "ranges": [{"to": 0}, {"from": -1, "to": 1}]}}),
        json!({"date_range": {"field": "at", "ranges": dates}}),
        json!({"range": {"field": "size", "ranges": ranges}, "aggs": sum}),
        json!({"filters": {"filters": {"a": {"term": {"word": "disk"}}, "b": {"term": {"status": 404}}}}}),
        json!({"filters": {"other_bucket": true, "filters": {"a": {"term": {"word": "disk"}}}}}),
        json!({"filter": {"range": {"size": {"gte": 10}}}}),
        json!({"global": {}}),
        json!({"missing": {"field": "word"}}),
        json!({"min": {"field": "wide"}}),
        json!({"max": {"field": "at"}}),
        json!({"min": {"field": "f", "missing": -100}}),
        json!({"value_count": {"field": "size"}}),
        json!({"value_count": {"field": "list"}}),
        json!({"cardinality": {"field": "client"}}),
        json!({"cardinality": {"field": "id"}}),
        json!({"cardinality": {"field": "ip"}}),
        json!({"stats": {"field": "size"}}),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_source_answers_as_the_rows_do() {
    let mut rng = StdRng::seed_from_u64(17);
    let mut used = BTreeSet::new();
    for (count, stored) in [(10_000, true), (700, true), (300, false), (9, true)] {
        let store = Store::open(count, stored, &mut rng).await;
        let end = store.rows();
        let cut = (end / 2).next_multiple_of(WINDOW).min(end);
        let mut some = |share: f64| Rows::Some((0..end).filter(|_| rng.random_bool(share)).collect());
        let states = [
            vec![Rows::All(0..end)],
            vec![Rows::All(0..cut), Rows::All(cut..end)],
            vec![some(0.6)],
            vec![some(0.02)],
            vec![Rows::Some(RoaringBitmap::from_iter(end / 4..end / 2))],
        ];
        for question in questions() {
            let aggs = json!({"a": question, "beside": {"max": {"field": "size"}}});
            let tree = store.tree(&aggs);
            for parts in &states {
                let expected = store.answer(&tree, &[&columns::Columns], parts);
                assert_eq!(store.answer(&tree, all(), parts), expected, "{count} {aggs} of {parts:?}");
                for source in all().iter().filter(|source| store.bids(&tree, **source, parts)) {
                    used.insert(source.name());
                    let found = store.answer(&tree, &[&CheapestSource(*source), &columns::Columns], parts);
                    assert_eq!(found, expected, "{}: {count} {aggs} of {parts:?}", source.name());
                }
            }
        }
    }
    let names: BTreeSet<&str> = all().iter().map(|source| source.name()).collect();
    assert_eq!(used, names);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_sources_gather_counts_towards_the_memory() {
    let store = Store::open(10_000, true, &mut StdRng::seed_from_u64(19)).await;
    let sum = json!({"s": {"sum": {"field": "size"}}});
    let sources = json!([{"c": {"terms": {"field": "client"}}}]);
    for (source, aggs) in [
        (&term_order::TermOrder as &dyn Source, json!({"terms": {"field": "client"}, "aggs": sum})),
        (&first_terms::FirstTerms, json!({"composite": {"size": 500, "sources": sources}})),
    ] {
        let aggs = json!({"a": aggs});
        assert!(store.asked_within(&aggs, source, 64 << 20).unwrap(), "{aggs}");
        let refused = store.asked_within(&aggs, source, 1 << 10);
        assert!(matches!(refused, Err(Error::CircuitBreaking(_))), "{aggs}: {refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_of_equal_costs_wins_and_counts_are_not_lost() {
    let store = Store::open(300, true, &mut StdRng::seed_from_u64(20)).await;
    let tree = store.tree(&json!({"a": {"significant_terms": {"field": "word", "min_doc_count": 1}}}));
    let (segment, rows) = (&store.context(&tree), &Rows::All(0..store.rows()));
    let (one, other) = (&CheapestSource(&columns::Columns), &CostlessSource);
    let first = |sources: &[&dyn Source]| {
        choose(&Question::Columns(&[]), SegmentRows { segment, rows, sources }).unwrap().map(|(name, _)| name)
    };
    assert_eq!((first(&[one, other]), first(&[other, one])), (Some("columns"), Some("twin")));
    // Terms are counted for themselves, not by number.
    let mut states = States::new(&tree);
    assert!(states.backgrounds[0].group(0, 7).is_err());
}

/// A source that costs nothing.
struct CostlessSource;

impl Source for CostlessSource {
    fn name(&self) -> &'static str {
        "twin"
    }

    fn bid<'a>(
        &self,
        _question: &'a Question<'a>,
        _at: SegmentRows<'a>,
        _most: u64,
    ) -> Result<Option<SourceCost<'a>>> {
        Ok(SourceCost::new(0, |_| Ok(())))
    }
}

/// The shapes that are measured, and some beside them.
fn shapes() -> [(&'static str, Value); 26] {
    let size = || json!({"s": {"sum": {"field": "size"}}});
    let hourly = || json!({"field": "at", "fixed_interval": "1h"});
    let page = |second: &str| {
        let sources = json!([{"c": {"terms": {"field": "client"}}}, {"s": {"terms": {"field": second}}}]);
        json!({"composite": {"size": 100, "sources": sources}})
    };
    let days = json!({"field": "at", "calendar_interval": "day"});
    let ranges = |field: &str| json!({"range": {"field": field, "ranges": [{"to": 100}, {"from": 100}]}});
    let filters = json!({"a": {"term": {"word": "disk"}}, "b": {"term": {"status": 404}}});
    [
        ("terms of few", json!({"terms": {"field": "status"}})),
        ("terms of many", json!({"terms": {"field": "client"}})),
        ("terms with a value for none", json!({"terms": {"field": "status", "missing": 7}})),
        (
            "terms of many by a sum",
            json!({"terms": {"field": "client", "order": {"s": "desc"}}, "aggs": size()}),
        ),
        ("terms of few by a sum", json!({"terms": {"field": "ip", "order": {"s": "desc"}}, "aggs": size()})),
        (
            "terms with daily histogram",
            json!({"terms": {"field": "word"}, "aggs": {"d": {"date_histogram": days}}}),
        ),
        ("multi_terms", json!({"multi_terms": {"terms": [{"field": "word"}, {"field": "status"}]}})),
        ("composite", page("status")),
        ("composite, some rows without a value", page("word")),
        ("hourly", json!({"date_histogram": hourly()})),
        ("daily", json!({"date_histogram": days})),
        ("each 90 s", json!({"date_histogram": {"field": "at", "fixed_interval": "90s"}})),
        ("hourly with sum", json!({"date_histogram": hourly(), "aggs": size()})),
        ("histogram of few", json!({"histogram": {"field": "size", "interval": 10}})),
        ("histogram in order", json!({"histogram": {"field": "number", "interval": 50_000}})),
        ("histogram of many", json!({"histogram": {"field": "wide", "interval": 1_000}})),
        ("range of few", ranges("size")),
        ("range in order", ranges("number")),
        ("range of lists", ranges("list")),
        ("filters", json!({"filters": {"filters": filters}})),
        ("filters and others", json!({"filters": {"other_bucket": true, "filters": filters}})),
        ("max", json!({"max": {"field": "at"}})),
        ("value_count", json!({"value_count": {"field": "size"}})),
        ("cardinality", json!({"cardinality": {"field": "client"}})),
        ("cardinality of all", json!({"cardinality": {"field": "id"}})),
        ("stats", json!({"stats": {"field": "size"}})),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cheapest_source_is_chosen() {
    let mut rng = StdRng::seed_from_u64(18);
    let store = Store::open(20_000, true, &mut rng).await;
    let all_rows = Rows::All(0..store.rows());
    let half = Rows::All(WINDOW..store.rows());
    let run = Rows::Some(RoaringBitmap::from_iter(3_000..15_000));
    let few = Rows::Some((0..store.rows()).step_by(50).collect());
    let mut chosen = String::from("of all rows, of a run, of few\n");
    for (name, question) in shapes() {
        let aggs = json!({"a": question});
        let [whole, half, run, few] = [&all_rows, &half, &run, &few].map(|rows| store.chosen(&aggs, rows));
        // Parts of a segment have to choose alike.
        assert_eq!(whole, half, "{name}");
        chosen += &format!("{name}: {whole}, {run}, {few}\n");
    }
    insta::assert_snapshot!(chosen, @r"
    of all rows, of a run, of few
    terms of few: dictionary, decoded pages, decoded pages
    terms of many: dictionary, columns, columns
    terms with a value for none: decoded pages, decoded pages, decoded pages
    terms of many by a sum: term order, columns, columns
    terms of few by a sum: columns, columns, columns
    terms with daily histogram: columns, columns, columns
    multi_terms: columns, columns, columns
    composite: first terms, first terms, columns
    composite, some rows without a value: columns, columns, columns
    hourly: minutes, decoded pages, decoded pages
    daily: minutes, pages, pages
    each 90 s: decoded pages, decoded pages, decoded pages
    hourly with sum: decoded pages, decoded pages, decoded pages
    histogram of few: tally, decoded pages, decoded pages
    histogram in order: pages, pages, pages
    histogram of many: decoded pages, decoded pages, decoded pages
    range of few: tally, decoded pages, decoded pages
    range in order: pages, pages, pages
    range of lists: columns, columns, columns
    filters: filter counts, columns, columns
    filters and others: columns, columns, columns
    max: statistics, decoded pages, decoded pages
    value_count: statistics, statistics, statistics
    cardinality: dictionary, columns, columns
    cardinality of all: columns, columns, columns
    stats: decoded pages, decoded pages, decoded pages
    ");
}

/// Counts rows by a field's values in parts; `None` where a part has to be read.
fn counted(store: &Store, counts: &ValueCounts, parts: &[Rows]) -> Option<BTreeMap<String, u64>> {
    let mut found = BTreeMap::new();
    for rows in parts {
        let part = RowPartition { segment: 0, rows: rows.span() };
        let mut find = || Ok(Some(rows.within(rows.span())));
        let asked = match rows {
            Rows::All(_) => CountedRows::All,
            Rows::Some(_) => CountedRows::Found(&mut find),
        };
        let each = &mut |value: CountedValue<'_>, rows| {
            *found.entry(format!("{value:?}")).or_default() += rows;
            Ok(())
        };
        let without = counts.tell(&store.table, &part, asked, each).unwrap()?;
        *found.entry("none".to_owned()).or_default() += without;
    }
    found.retain(|_, rows| *rows > 0);
    Some(found)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_are_told_with_their_rows() {
    let mut rng = StdRng::seed_from_u64(19);
    let store = Store::open(20_000, true, &mut rng).await;
    let end = store.rows();
    let whole = [Rows::All(0..end)];
    let parts = [Rows::All(0..WINDOW), Rows::All(WINDOW..end)];
    let run = [Rows::Some(RoaringBitmap::from_iter(3_000..15_000))];
    let few = [Rows::Some((0..end).step_by(50).collect())];
    let fields = [
        ("status", CountKey::Value),
        ("word", CountKey::Value),
        ("client", CountKey::Value),
        ("ip", CountKey::Value),
        ("ok", CountKey::Value),
        ("id", CountKey::Value),
        ("list", CountKey::Value),
        ("wide", CountKey::Value),
        ("f", CountKey::Value),
        ("nothing", CountKey::Value),
        ("name", CountKey::Value),
        ("cut", CountKey::Value),
        ("at", CountKey::Span(CalendarUnit::Hour)),
        ("at", CountKey::Span(CalendarUnit::Day)),
        ("ns", CountKey::Span(CalendarUnit::Day)),
        ("at", CountKey::Span(CalendarUnit::Second)),
    ];
    let mut told = String::from("groups of all rows, in parts, of a run, of few\n");
    for (field, by) in fields {
        let Some(counts) = ValueCounts::new(&store.table.snapshot, field, by) else { panic!("{field}") };
        let [whole, parts, run, few] =
            [&whole[..], &parts, &run, &few].map(|parts| counted(&store, &counts, parts));
        assert_eq!(whole, parts, "{field}");
        for (found, rows) in [(&whole, u64::from(end)), (&run, 12_000), (&few, u64::from(end.div_ceil(50)))] {
            assert!(
                found.as_ref().is_none_or(|found| found.values().sum::<u64>() == rows),
                "{field}: {found:?}"
            );
        }
        let show = |found: &Option<BTreeMap<String, u64>>| match found {
            Some(found) => found.len().to_string(),
            None => "-".to_owned(),
        };
        told +=
            &format!("{field} {by:?}: {}, {}, {}, {}\n", show(&whole), show(&parts), show(&run), show(&few));
    }
    assert!(ValueCounts::new(&store.table.snapshot, "plain", CountKey::Value).is_none());
    insta::assert_snapshot!(told, @r"
    groups of all rows, in parts, of a run, of few
    status Value: 4, 4, -, -
    word Value: 4, 4, -, -
    client Value: 2500, 2500, -, -
    ip Value: 32, 32, -, -
    ok Value: 2, 2, -, -
    id Value: -, -, -, -
    list Value: -, -, -, -
    wide Value: -, -, -, -
    f Value: -, -, -, -
    nothing Value: -, -, -, -
    name Value: 7, 7, -, -
    cut Value: -, -, -, -
    at Span(Hour): 6, 6, -, -
    at Span(Day): 2, 2, 2, 2
    ns Span(Day): 2, 2, 2, 2
    at Span(Second): -, -, -, -
    ");
}
