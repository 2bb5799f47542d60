use std::collections::HashMap;

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::{Float32Type, Int64Type, UInt32Type};
use datafusion::common::config::ConfigOptions;
use datafusion::physical_expr::expressions::col;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{collect as run, displayable};
use millrace_dsl::sort::Mode;
use millrace_mapping::ColumnKind;
use millrace_scoring::collect::Totals;
use millrace_scoring::fixture::{Fixture, NUMBER, TEXT};
use millrace_scoring::node::{Join, Node, StatisticsTerm, TermStatistics};
use millrace_scoring::operands::Weight;
use millrace_scoring::prepare::prepare;
use millrace_scoring::reader::SegmentReader;
use millrace_scoring::source::Source;
use millrace_work::QueryContext;
use millrace_work::compute::Compute;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use roaring::RoaringBitmap;

use super::*;
use crate::table::IndexTable;
use crate::table::keys::{Key, KeyKind, KeySource, MissingKey, Rescale};
use crate::table::snapshot::{TableSegment, TableSnapshot};
use crate::table::state::{SEGMENT, ScanHandle, ScanOptions};
use crate::table::top_k::TopKIntoScan;

fn snapshot() -> TableSnapshot {
    let first = Fixture::new(&[("disk full", "a", 30), ("disk", "b", 10), ("node", "a", 20)]);
    let second = Fixture::new(&[("disk disk", "a", 25), ("gone disk", "a", 99), ("ok", "b", 5)]);
    let deleted: RoaringBitmap = [1].into_iter().collect();
    let segment = |reader: Arc<Fixture>, deleted| TableSegment {
        index: 0,
        shard: 0,
        reader,
        deleted: Arc::new(deleted),
        ruled: None,
    };
    TableSnapshot {
        segments: vec![segment(first, RoaringBitmap::new()), segment(second, deleted)],
        shards: 1,
        ..TableSnapshot::default()
    }
}

/// The segment as it is searched by itself.
fn source(reader: Arc<Fixture>) -> Source {
    Source {
        number: 0,
        shard: 0,
        inverted: reader.inverted().unwrap(),
        reader,
        functions: Arc::default(),
        ruled: None,
        work: QueryContext::default(),
    }
}

fn number_key() -> Key {
    let source = KeySource {
        column: NUMBER,
        terms: None,
        kind: ColumnKind::Int(64),
        ignore_above: None,
        rescale: Rescale::None,
        single: false,
        distance: None,
        derived: None,
    };
    Key {
        name: "n".into(),
        kind: KeyKind::I64,
        nulls_first: false,
        mode: Mode::Min,
        fill: MissingKey::I64(i64::MAX),
        sources: vec![Some(source)],
    }
}

/// Returns the rows that match `disk`, by score.
fn disk() -> ResolvedPredicate {
    let node = Node::Text { path: TEXT, term: "disk".into(), weight: Weight::Bm25(0) };
    let statistics = vec![TermStatistics {
        nested: None,
        blend: None,
        path: TEXT,
        field: "message".into(),
        terms: vec![StatisticsTerm::Text("disk".into())],
        join: Join::Synonyms,
        boost: 1.0,
    }];
    ResolvedPredicate { node, statistics, expansions: Vec::new() }
}

/// A scan for `disk`, of the named columns.
fn scan(columns: &[&str], track: u64) -> (IndexScanExec, Arc<ScanHandle>) {
    let options = ScanOptions { track: Some(track), ..ScanOptions::default() };
    let table = IndexTable::new(
        Arc::new(snapshot()),
        vec![number_key()],
        options,
        Compute::new(millrace_runtime::Compute::start(1).unwrap()),
    );
    let handle = Arc::clone(table.handle());
    let resolved = vec![Some(disk())];
    let projection = columns.iter().map(|name| table.schema.index_of(name).unwrap()).collect();
    let scan =
        IndexScanExec::new(Arc::clone(&table.state), &table.schema, Predicate::All, resolved, projection, 2)
            .unwrap();
    (scan, handle)
}

fn sorted(scan: IndexScanExec, keys: &[(&str, bool)], fetch: usize) -> Arc<dyn ExecutionPlan> {
    let schema = scan.schema();
    let expressions = keys.iter().map(|(name, descending)| {
        let expr = PhysicalSortExpr::new_default(col(name, &schema).unwrap());
        if *descending { expr.desc() } else { expr.asc() }
    });
    let order = LexOrdering::new(expressions).unwrap();
    let sort = SortExec::new(order, Arc::new(scan)).with_fetch(Some(fetch));
    TopKIntoScan.optimize(Arc::new(sort), &ConfigOptions::default()).unwrap()
}

async fn addresses(plan: Arc<dyn ExecutionPlan>) -> Vec<(u32, u32)> {
    let mut found = Vec::new();
    for batch in run(plan, Arc::new(TaskContext::default())).await.unwrap() {
        let segments = batch.column_by_name(SEGMENT).unwrap().as_primitive::<UInt32Type>().clone();
        let rows = batch.column_by_name(ROW).unwrap().as_primitive::<UInt32Type>().clone();
        found.extend(segments.values().iter().copied().zip(rows.values().iter().copied()));
    }
    found
}

#[tokio::test]
async fn the_best_scores_are_found_inside_the_scan() {
    let (scan, handle) = scan(&[SCORE, SEGMENT, ROW], u64::MAX);
    let plan = sorted(scan, &[(SCORE, true), (SEGMENT, false), (ROW, false)], 2);
    insta::assert_snapshot!(displayable(plan.as_ref()).indent(false), @r"
    SortExec: TopK(fetch=2), expr=[_score@0 DESC, _segment@1 ASC, _row@2 ASC], preserve_partitioning=[false]
      IndexScanExec: indices=[], segments=2, predicate=*, columns=[_score, _segment, _row], top=2 by _score
    ");
    assert_eq!(addresses(plan).await, [(1, 0), (0, 1)]);
    assert_eq!(handle.totals.read(), (3, false));
    assert!(handle.max_score() > 0.0);
}

#[tokio::test]
async fn keys_are_sorted_above_the_scan() {
    let (scan, handle) = scan(&["n", SEGMENT, ROW], 2);
    let plan = sorted(scan, &[("n", false), (SEGMENT, false), (ROW, false)], 10);
    insta::assert_snapshot!(displayable(plan.as_ref()).indent(false), @r"
    SortExec: TopK(fetch=10), expr=[n@0 ASC, _segment@1 ASC, _row@2 ASC], preserve_partitioning=[false]
      IndexScanExec: indices=[], segments=2, predicate=*, columns=[n, _segment, _row], first=10 by n
    ");
    assert_eq!(addresses(plan).await, [(0, 1), (1, 0), (0, 0)]);
    assert_eq!(handle.totals.read(), (2, true));
}

#[tokio::test]
async fn without_columns_a_scan_only_counts() {
    let (scan, handle) = scan(&[], u64::MAX);
    let batches = run(Arc::new(scan), Arc::new(TaskContext::default())).await.unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 3);
    assert_eq!(handle.totals.read(), (3, false));
    assert!(Totals::new(None).read() == (0, false));
}

#[tokio::test]
async fn slices_cut_a_segment_to_the_rows_listed() {
    let listed: HashMap<u32, RoaringBitmap> = [(0, [0].into_iter().collect())].into();
    let node = Node::Listed(Arc::new(listed));
    let reader = Fixture::new(&[("a", "a", 1), ("b", "b", 2)]);
    let source = source(reader);
    let prepared = prepare(&node, &source, None).unwrap();
    assert_eq!(prepared.row_set().unwrap().iter().collect::<Vec<_>>(), [0]);
}

/// Tests that the first rows are those of a sort over all, for any omission of the sources.
#[tokio::test]
async fn the_first_rows_are_those_of_a_sort() {
    let mut rng = StdRng::seed_from_u64(23);
    for round in 0..40 {
        let most = rng.random_range(1..60);
        let segments = (0..rng.random_range(1..5)).map(|_| {
            let rows = rng.random_range(1..80);
            let rows: Vec<_> =
                (0..rows).map(|_| ("disk full disk", "k", rng.random_range(0..most))).collect();
            let deleted: RoaringBitmap = (0..rows.len() as u32).filter(|_| rng.random_bool(0.1)).collect();
            TableSegment {
                index: 0,
                shard: 0,
                reader: Fixture::new(&rows),
                deleted: Arc::new(deleted),
                ruled: None,
            }
        });
        let segments: Vec<TableSegment> = segments.collect();
        let found = async |order: Leading<'_>, limit: usize, group: Option<&str>| {
            let snapshot =
                TableSnapshot { segments: segments.clone(), shards: 1, ..TableSnapshot::default() };
            let (keys, track) = (vec![number_key()], [None, Some(5), Some(u64::MAX)][round % 3]);
            let options = ScanOptions { track, ..ScanOptions::default() };
            let compute = Compute::new(millrace_runtime::Compute::start(1).unwrap());
            let table = IndexTable::new(Arc::new(snapshot), keys, options, compute);
            let resolved = vec![Some(ResolvedPredicate {
                node: Node::All(Weight::None),
                statistics: Vec::new(),
                expansions: Vec::new(),
            })];
            let projection = ["n", SEGMENT, ROW].map(|name| table.schema.index_of(name).unwrap());
            let (state, schema) = (Arc::clone(&table.state), &table.schema);
            let scan =
                IndexScanExec::new(state, schema, Predicate::All, resolved, projection.to_vec(), 2).unwrap();
            let scan = match limit {
                0 => scan,
                limit => scan.with_first(order, limit, group, false).unwrap(),
            };
            let mut rows = Vec::new();
            for batch in run(Arc::new(scan), Arc::new(TaskContext::default())).await.unwrap() {
                let numbers = |at: usize| batch.column(at).as_primitive::<UInt32Type>().values().to_vec();
                let keys = batch.column(0).as_primitive::<Int64Type>().values().clone();
                let keys = keys.iter().map(|key| if order.descending { -*key } else { *key });
                let addresses = numbers(1).into_iter().zip(numbers(2));
                rows.extend(keys.zip(addresses));
            }
            rows.sort_unstable();
            rows
        };
        for descending in [false, true] {
            let order = Leading { column: "n", descending, by_address: round % 2 == 0 };
            let all = found(order, 0, None).await;
            for limit in [1, 4, 30] {
                let mut first = found(order, limit, None).await;
                first.truncate(limit);
                assert_eq!(first, all[..limit.min(all.len())], "round {round}");
                let best = |mut rows: Vec<(i64, (u32, u32))>| {
                    rows.dedup_by_key(|row| row.0);
                    rows.truncate(limit);
                    rows
                };
                let grouped = found(order, limit, Some("n")).await;
                assert_eq!(best(grouped), best(all.clone()), "round {round}");
            }
        }
    }
}

/// A row's inverted score, segment, number and key.
type ScoredRow = (((u32, u32), u32), i64);

/// Partitions that run side by side share what they have found, and ties are still won by the first address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_best_of_several_partitions_are_those_of_all() {
    let mut rng = StdRng::seed_from_u64(29);
    let texts = ["disk", "disk full", "disk disk full", "node", "disk full disk disk node"];
    let segments = [11_000, 9_000, 300].map(|rows| {
        let rows: Vec<_> = (0..rows)
            .map(|_| (texts[rng.random_range(0..texts.len())], "k", rng.random_range(0..9)))
            .collect();
        let reader = Fixture::new(&rows);
        TableSegment {
            index: 0,
            shard: 0,
            reader,
            deleted: Arc::new([3, 4].into_iter().collect()),
            ruled: None,
        }
    });
    let snapshot = TableSnapshot { segments: segments.into(), shards: 1, ..TableSnapshot::default() };
    let snapshot = Arc::new(snapshot);
    let found = async |limit: usize, group: Option<&str>, track: Option<u64>| {
        let options = ScanOptions { track, ..ScanOptions::default() };
        let compute = Compute::new(millrace_runtime::Compute::start(2).unwrap());
        let table = IndexTable::new(Arc::clone(&snapshot), vec![number_key()], options, compute);
        let projection = ["n", SCORE, SEGMENT, ROW].map(|name| table.schema.index_of(name).unwrap());
        let (state, resolved) = (Arc::clone(&table.state), vec![Some(disk())]);
        let scan = IndexScanExec::new(state, &table.schema, Predicate::All, resolved, projection.into(), 2);
        let mut scan = scan.unwrap();
        assert_eq!(scan.partitions().len(), 2);
        if limit > 0 {
            let order = Leading { column: SCORE, descending: true, by_address: true };
            scan = scan.with_first(order, limit, group, false).unwrap();
        }
        let mut rows = Vec::new();
        for batch in run(Arc::new(scan), Arc::new(TaskContext::default())).await.unwrap() {
            let numbers = |at: usize| batch.column(at).as_primitive::<UInt32Type>().values().to_vec();
            let keys = batch.column(0).as_primitive::<Int64Type>().values().to_vec();
            let scores = batch.column(1).as_primitive::<Float32Type>().values().to_vec();
            let scores = scores.into_iter().map(|score| !score.to_bits());
            rows.extend(scores.zip(numbers(2)).zip(numbers(3)).zip(keys));
        }
        rows.sort_unstable();
        rows.dedup();
        (rows, table.handle().totals.read().0)
    };
    let (all, total) = found(0, None, Some(u64::MAX)).await;
    for limit in [1, 10, 2_000] {
        for track in [None, Some(100), Some(u64::MAX)] {
            let (mut best, counted) = found(limit, None, track).await;
            best.truncate(limit);
            assert!(best == all[..limit], "{limit} {track:?}");
            assert_eq!(counted, track.map_or(0, |track| total.min(track)));
            let of_groups = |rows: &[ScoredRow]| {
                let mut groups = Vec::new();
                let mut rows: Vec<_> = rows.to_vec();
                rows.retain(|(_, group)| {
                    !groups.contains(group) && {
                        groups.push(*group);
                        true
                    }
                });
                rows.truncate(limit);
                rows
            };
            let (best, counted) = found(limit.min(8), Some("n"), track).await;
            assert!(of_groups(&best)[..limit.min(8)] == of_groups(&all)[..limit.min(8)], "{limit} {track:?}");
            assert_eq!(counted, track.map_or(0, |track| total.min(track)));
        }
    }
}
