//! An index with `index.sort.*` answers like one without, whatever is written, deleted, merged and
//! interrupted; and the rows of its stored segments are in its order.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Int64Type};
use millrace_catalog::access::Principal;
use millrace_engine::{Action, Engine, WriteOp};
use millrace_mapping::{Mapping, Scalar};
use millrace_segment::{RowParts, SegmentView, ValueRange};
use proptest::prelude::*;
use serde_json::{Value, json};
use tantivy::{DocSet, TERMINATED};

use crate::documents::{index_op, op, open, reopen, write};

const SORTED: &str = "sorted";
const PLAIN: &str = "plain";

/// `a` descends by its greatest value, `k` ascends with missing ones in front.
async fn create(engine: &Engine) {
    for name in [SORTED, PLAIN] {
        let mut body = json!({
            "settings": {"refresh_interval": -1},
            "mappings": {"properties": {
                "a": {"type": "long"}, "k": {"type": "keyword"}, "t": {"type": "text"}, "n": {"type": "long"},
            }},
        });
        if name == SORTED {
            body["settings"]["index.sort.field"] = json!(["a", "k"]);
            body["settings"]["index.sort.order"] = json!(["desc", "asc"]);
            body["settings"]["index.sort.missing"] = json!(["_last", "_first"]);
        }
        let uuid = millrace_catalog::metadata::Uuid::new_v4();
        engine.change(&Principal::system(), |m| m.create_index(name, &body, 0, uuid)).await.unwrap();
    }
}

/// A document that `n` tells from all others.
fn document(n: u32, seed: u32) -> Value {
    let mut document = json!({"n": n, "t": format!("word{} common common tail{}", seed % 7, seed % 3)});
    match seed % 5 {
        0 => {}
        1 => document["a"] = json!([seed % 11, seed % 13]),
        _ => document["a"] = json!(seed % 9),
    }
    match seed / 5 % 4 {
        0 => {}
        1 => document["k"] = json!([format!("k{}", seed % 8), format!("k{}", seed % 3)]),
        _ => document["k"] = json!(format!("k{}", seed % 6)),
    }
    if n.is_multiple_of(97) {
        document[format!("rare{}", n % 5)] = json!(n);
    }
    document
}

fn values(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(values) => values.iter().collect(),
        Value::Null => Vec::new(),
        other => vec![other],
    }
}

fn numbers(value: &Value) -> Vec<i64> {
    values(value).into_iter().filter_map(Value::as_i64).collect()
}

fn words(value: &Value) -> Vec<String> {
    values(value).into_iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Compares two sources as the index's order has them.
fn compare(left: &Value, right: &Value) -> Ordering {
    let a = |source: &Value| Reverse(numbers(&source["a"]).into_iter().max());
    let k = |source: &Value| words(&source["k"]).into_iter().min();
    a(left).cmp(&a(right)).then_with(|| k(left).cmp(&k(right)))
}

fn longs(column: &ArrayRef, at: usize) -> Vec<i64> {
    match column.data_type() {
        DataType::Null => Vec::new(),
        _ if column.is_null(at) => Vec::new(),
        DataType::List(_) => column.as_list::<i32>().value(at).as_primitive::<Int64Type>().values().to_vec(),
        _ => vec![column.as_primitive::<Int64Type>().value(at)],
    }
}

fn strings(column: &ArrayRef, at: usize) -> Vec<String> {
    match column.data_type() {
        DataType::Null => Vec::new(),
        _ if column.is_null(at) => Vec::new(),
        DataType::List(_) => {
            let values = column.as_list::<i32>().value(at);
            values.as_string_view().iter().flatten().map(str::to_owned).collect()
        }
        _ => vec![column.as_string_view().value(at).to_owned()],
    }
}

/// Compares columns, postings and ranges of a segment with the sources of its rows.
fn check_segment(mapping: &Mapping, view: &SegmentView, sources: &[Value]) {
    let segment = &view.segment;
    let id = |path: &str| mapping.field(path).unwrap().id;
    let rare: Vec<_> = (0..5).filter_map(|i| mapping.field(&format!("rare{i}"))).collect();
    let mut wanted = vec![id("a"), id("k"), id("n")];
    wanted.extend(rare.iter().map(|field| field.id));
    segment
        .scan_blocking(&wanted, None, |batch| {
            for (at, row) in batch.rows.iter().enumerate() {
                let source = &sources[*row as usize];
                assert_eq!(longs(&batch.columns[0], at), numbers(&source["a"]));
                assert_eq!(strings(&batch.columns[1], at), words(&source["k"]));
                assert_eq!(longs(&batch.columns[2], at), numbers(&source["n"]));
                for (field, column) in rare.iter().zip(&batch.columns[3..]) {
                    assert_eq!(longs(column, at), numbers(&source[&*field.path]));
                }
            }
            true
        })
        .unwrap();
    let rows = |holds: &dyn Fn(&Value) -> bool| -> Vec<u32> {
        (0u32..).zip(sources).filter(|(_, source)| holds(source)).map(|(row, _)| row).collect()
    };
    let found = segment.range_rows_blocking(id("a"), &ValueRange::I64(3, 6), None).unwrap();
    let within = |source: &Value| numbers(&source["a"]).iter().any(|a| (3..=6).contains(a));
    assert_eq!(found.iter().collect::<Vec<_>>(), rows(&within));
    let bundle = segment.bundle_blocking().unwrap();
    for i in 0..8 {
        let word = format!("k{i}");
        let mut found = Vec::new();
        if let Some(mut postings) = bundle.postings(id("k"), &Scalar::Str(word.clone())).unwrap() {
            while postings.doc() != TERMINATED {
                found.push(postings.doc());
                postings.advance();
            }
        }
        assert_eq!(found, rows(&|source| words(&source["k"]).contains(&word)));
    }
    let Some(text) = bundle.text(id("t")) else { return assert!(sources.is_empty()) };
    assert_eq!(text.doc_count() as usize, sources.len());
    for word in ["word0", "word3", "common", "tail1"] {
        let place = |source: &Value| -> Vec<u32> {
            let text = source["t"].as_str().unwrap();
            (0u32..).zip(text.split(' ')).filter(|(_, token)| *token == word).map(|(at, _)| at).collect()
        };
        let mut found = Vec::new();
        let postings = text.postings(word);
        if let Some(mut postings) = postings.unwrap() {
            while postings.doc() != TERMINATED {
                let mut positions = Vec::new();
                tantivy::postings::Postings::positions(&mut postings, &mut positions);
                found.push((postings.doc(), positions));
                postings.advance();
            }
        }
        let expected: Vec<_> = (0u32..)
            .zip(sources)
            .map(|(row, source)| (row, place(source)))
            .filter(|(_, at)| !at.is_empty())
            .collect();
        assert_eq!(found, expected);
    }
}

/// Expected documents of an index: by id, the version and number of each document.
type ExpectedDocuments = BTreeMap<String, (u64, u32)>;

async fn check(engine: &Engine, name: &str, expected: &ExpectedDocuments) {
    let index = engine.index(name).unwrap();
    engine.refresh(&[Arc::clone(&index)]).await.unwrap();
    let snapshot = index.snapshot().await.unwrap();
    let committed: Vec<bool> =
        index.segments().into_iter().flatten().map(|figures| figures.committed).collect();
    let mut found = ExpectedDocuments::new();
    for (view, committed) in snapshot.shards.iter().flat_map(|shard| &shard.segments).zip(committed) {
        let all: Vec<u32> = (0..view.segment.rows()).collect();
        let rows = view.segment.fetch_blocking(&all, RowParts::ALL).unwrap();
        let sources: Vec<Value> =
            rows.iter().map(|row| serde_json::from_slice(&row.source).unwrap()).collect();
        check_segment(&snapshot.mapping, view, &sources);
        if committed && name == SORTED {
            assert!(sources.is_sorted_by(|a, b| compare(a, b).is_le()), "rows are out of order");
        }
        for (row, source) in rows.iter().zip(&sources).filter(|(row, _)| !view.deleted.contains(row.row)) {
            let n = u32::try_from(source["n"].as_u64().unwrap()).unwrap();
            assert_eq!(found.insert(row.id.clone(), (row.version, n)), None, "{} is there twice", row.id);
        }
    }
    assert_eq!(&found, expected);
    for (id, (version, n)) in expected.iter().step_by(1 + expected.len() / 64) {
        let doc = engine.get(&Principal::system(), name, id, None, true).await.unwrap().unwrap();
        let source: Value = serde_json::from_slice(&doc.source).unwrap();
        assert_eq!((doc.version, source["n"].as_u64()), (*version, Some(u64::from(*n))));
    }
    assert!(engine.get(&Principal::system(), name, "never", None, true).await.unwrap().is_none());
}

#[derive(Clone, Debug)]
enum Step {
    /// Seeds of operations, and whether the server chooses the ids.
    Write(Vec<u32>, bool),
    Refresh,
    Flush,
    Merge(usize),
    /// Writes while a merge runs.
    WriteDuringMerge(Vec<u32>),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let seeds = || prop::collection::vec(any::<u32>(), 1..40);
    prop_oneof![
        6 => (seeds(), any::<bool>()).prop_map(|(seeds, generated)| Step::Write(seeds, generated)),
        1 => Just(Step::Refresh),
        3 => Just(Step::Flush),
        2 => (1usize..3).prop_map(Step::Merge),
        2 => seeds().prop_map(Step::WriteDuringMerge),
        1 => Just(Step::Restart),
    ]
}

/// The operations that seeds mean for an index: each indexes or deletes a document of a few ids, or
/// indexes one under a new id.
fn operations(name: &str, seeds: &[u32], generated: bool, first: u32) -> Vec<WriteOp> {
    let operation = |(n, seed): (u32, &u32)| {
        let id = format!("id{}", seed % 31);
        let source = document(n, *seed / 31).to_string();
        match (generated, seed % 4) {
            (true, _) => index_op(name, None, &source),
            (false, 0) => op(name, Some(&id), Action::Delete),
            (false, _) => index_op(name, Some(&id), &source),
        }
    };
    (first..).zip(seeds).map(operation).collect()
}

async fn apply(
    engine: &Engine,
    name: &str,
    seeds: &[u32],
    generated: bool,
    first: u32,
    expected: &mut ExpectedDocuments,
) {
    let outcomes = write(engine, operations(name, seeds, generated, first)).await;
    for ((n, seed), outcome) in (first..).zip(seeds).zip(outcomes) {
        let outcome = outcome.unwrap();
        if !generated && seed.is_multiple_of(4) {
            expected.remove(&outcome.id);
        } else {
            expected.insert(outcome.id, (outcome.version, n));
        }
    }
}

async fn run(steps: Vec<Step>) {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = open(dir.path()).await;
    create(&engine).await;
    let mut expected = [ExpectedDocuments::new(), ExpectedDocuments::new()];
    let mut next = 0;
    for step in steps {
        let indices = [SORTED, PLAIN].map(|name| engine.index(name).unwrap());
        match step {
            Step::Write(seeds, generated) => {
                for (name, expected) in [SORTED, PLAIN].into_iter().zip(&mut expected) {
                    apply(&engine, name, &seeds, generated, next, expected).await;
                }
                next += seeds.len() as u32;
            }
            Step::Refresh => engine.refresh(&indices).await.unwrap(),
            Step::Flush => engine.flush(&indices).await.unwrap(),
            Step::Merge(segments) => engine.force_merge(&indices, segments).await.unwrap(),
            Step::WriteDuringMerge(seeds) => {
                let writes = async {
                    for (at, seed) in seeds.iter().enumerate() {
                        for (name, expected) in [SORTED, PLAIN].into_iter().zip(&mut expected) {
                            apply(&engine, name, &[*seed], false, next + at as u32, expected).await;
                        }
                    }
                };
                let (merged, ()) = tokio::join!(engine.force_merge(&indices, 1), writes);
                merged.unwrap();
                next += seeds.len() as u32;
            }
            Step::Restart => {
                drop((indices, engine));
                engine = reopen(dir.path()).await;
                continue;
            }
        }
        drop(indices);
        for (name, expected) in [SORTED, PLAIN].into_iter().zip(&expected) {
            check(&engine, name, expected).await;
        }
        let numbers = |expected: &ExpectedDocuments| {
            let mut numbers: Vec<u32> = expected.values().map(|(_, n)| *n).collect();
            numbers.sort_unstable();
            numbers
        };
        assert_eq!(numbers(&expected[0]), numbers(&expected[1]));
    }
    engine.shutdown().await.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, max_shrink_iters: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_sorted_index_answers_like_any_other(steps in prop::collection::vec(step(), 1..14)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(run(steps));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn segments_of_many_batches_are_merged_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    create(&engine).await;
    let index = engine.index(SORTED).unwrap();
    let mut expected = ExpectedDocuments::new();
    for round in 0..2u32 {
        // Generated ids first: they need a sidecar once their order is lost.
        let seeds: Vec<u32> = (0..9_000u32)
            .map(|i| i.wrapping_mul(2_654_435).wrapping_add(round).wrapping_mul(2_246_822_519))
            .collect();
        apply(&engine, SORTED, &seeds, true, round * 9_000, &mut expected).await;
        engine.flush(&[Arc::clone(&index)]).await.unwrap();
    }
    let deleted: Vec<String> = expected.keys().step_by(3).cloned().collect();
    for id in &deleted {
        expected.remove(id);
    }
    let deletions = deleted.iter().map(|id| op(SORTED, Some(id), Action::Delete)).collect();
    assert!(write(&engine, deletions).await.iter().all(Result::is_ok));
    engine.force_merge(&[Arc::clone(&index)], 1).await.unwrap();
    check(&engine, SORTED, &expected).await;
    assert_eq!(index.segments().into_iter().flatten().count(), 1);
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn row_groups_that_are_taken_over_say_what_they_said() {
    const ROWS: u32 = 66_000;
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    let body = json!({
        "settings": {"refresh_interval": -1, "index.sort.field": "n"},
        "mappings": {"properties": {"n": {"type": "long"}, "k": {"type": "keyword"}}},
    });
    let uuid = millrace_catalog::metadata::Uuid::new_v4();
    engine.change(&Principal::system(), |m| m.create_index("a", &body, 0, uuid)).await.unwrap();
    let index = engine.index("a").unwrap();
    let source = |n: u32| json!({"n": n, "k": format!("k{}", n % 7)}).to_string();
    for round in 0..3 {
        // The last segment is too small to be taken over.
        let count = if round < 2 { ROWS } else { 100 };
        let ops = (0..count).map(|i| index_op("a", None, &source(round * ROWS + i))).collect();
        assert!(write(&engine, ops).await.iter().all(Result::is_ok));
        engine.flush(&[Arc::clone(&index)]).await.unwrap();
    }
    engine.force_merge(&[Arc::clone(&index)], 1).await.unwrap();
    let snapshot = index.snapshot().await.unwrap();
    let [view] = snapshot.shards[0].segments.as_slice() else { panic!("one segment is left") };
    let (segment, n) = (&view.segment, snapshot.mapping.field("n").unwrap().id);
    assert_eq!(segment.rows(), 2 * ROWS + 100);
    let bounds = segment.column_bounds(n);
    assert!(bounds.full);
    let whole = millrace_segment::NumberBounds::I64(0, i64::from(2 * ROWS + 99));
    assert_eq!(bounds.values, whole);
    let mut next = 0;
    segment
        .scan_blocking(&[n, snapshot.mapping.field("k").unwrap().id], None, |batch| {
            for at in 0..batch.rows.len() {
                assert_eq!(longs(&batch.columns[0], at), [i64::from(next)]);
                assert_eq!(strings(&batch.columns[1], at), [format!("k{}", next % 7)]);
                next += 1;
            }
            true
        })
        .unwrap();
    assert_eq!(next, segment.rows());
    for row in [0, 1, ROWS - 1, ROWS, ROWS + 4_097, 2 * ROWS - 1, 2 * ROWS, 2 * ROWS + 99] {
        let found = segment.fetch_blocking(&[row], RowParts::ALL).unwrap();
        assert_eq!(found[0].source, source(row).as_bytes());
        let range = ValueRange::I64(i64::from(row), i64::from(row));
        assert_eq!(segment.range_rows_blocking(n, &range, None).unwrap().iter().collect::<Vec<_>>(), [row]);
        let doc = engine.get(&Principal::system(), "a", &found[0].id, None, true).await.unwrap().unwrap();
        assert_eq!(doc.seq_no, u64::from(row));
    }
    engine.shutdown().await.unwrap();
}
