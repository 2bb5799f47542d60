//! Elements of nested paths: in memory, flushed, merged, after deletions and a restart, they are what the
//! documents say.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Int64Type};
use millrace_catalog::access::Principal;
use millrace_engine::{Action, Engine};
use millrace_mapping::{Mapping, PathId, Scalar};
use millrace_segment::{Nested, RowParts, SegmentView, ValueRange};
use serde_json::{Value, json};
use tantivy::{DocSet, TERMINATED};

use crate::documents::{index_op, op, open, write};

/// `n` is nested, `n.m` nested in it; `p` is included in its parent; `e` never has a value.
fn body() -> Value {
    json!({
        "settings": {"refresh_interval": -1},
        "mappings": {"properties": {
            "n": {"type": "nested", "properties": {
                "x": {"type": "long"}, "k": {"type": "keyword"}, "t": {"type": "text"},
                "m": {"type": "nested", "properties": {"y": {"type": "long"}}},
            }},
            "p": {"type": "nested", "include_in_parent": true, "properties": {"z": {"type": "long"}}},
            "e": {"type": "nested"},
        }},
    })
}

/// A document that differs by its number in how many elements it has, and of what.
fn document(n: u32) -> Value {
    let elements: Vec<Value> = (0..n % 4)
        .map(|i| {
            let inner: Vec<Value> = (0..(n + i) % 3).map(|j| json!({"y": n * 100 + i * 10 + j})).collect();
            let mut element =
                json!({"x": n * 10 + i, "k": format!("k{}", (n + i) % 5), "t": format!("word{i} common")});
            if i == 1 {
                element["x"] = json!([n * 10, n * 10 + 1]);
            }
            if !inner.is_empty() {
                element["m"] = json!(inner);
            }
            if i == 2 {
                element = json!({});
            }
            element
        })
        .collect();
    let mut document = json!({"id": n, "n": elements, "e": [{}]});
    if n.is_multiple_of(3) {
        document["p"] = json!({"z": n});
    }
    document
}

fn numbers(value: &Value) -> Vec<i64> {
    match value {
        Value::Array(values) => values.iter().flat_map(numbers).collect(),
        other => other.as_i64().into_iter().collect(),
    }
}

/// Elements of a path in a row, as JSON.
fn of<'a>(value: &'a Value, name: &str) -> Vec<&'a Value> {
    match &value[name] {
        Value::Array(values) => values.iter().collect(),
        Value::Null => Vec::new(),
        other => vec![other],
    }
}

fn longs(nested: &Nested, column: PathId) -> BTreeMap<u32, Vec<i64>> {
    let mut found = BTreeMap::new();
    nested
        .scan_blocking(&[column], None, |batch| {
            for (at, row) in batch.rows.iter().enumerate() {
                found.insert(*row, longs_at(&batch.columns[0], at));
            }
            true
        })
        .unwrap();
    found
}

fn longs_at(array: &ArrayRef, at: usize) -> Vec<i64> {
    match array.data_type() {
        DataType::Null => Vec::new(),
        _ if array.is_null(at) => Vec::new(),
        DataType::List(_) => array.as_list::<i32>().value(at).as_primitive::<Int64Type>().values().to_vec(),
        _ => vec![array.as_primitive::<Int64Type>().value(at)],
    }
}

/// Compares a segment with the sources of its rows; returns how many live rows it has.
fn check(mapping: &Mapping, view: &SegmentView) -> u32 {
    let segment = &view.segment;
    let all: Vec<u32> = (0..segment.rows()).collect();
    let rows = segment.fetch_blocking(&all, RowParts::ALL).unwrap();
    let sources: Vec<Value> = rows.iter().map(|row| serde_json::from_slice(&row.source).unwrap()).collect();
    let nested = |path: &str| segment.nested_blocking(mapping.nested_id(path).unwrap()).unwrap();
    let id = |path: &str| mapping.field(path).unwrap().id;

    let expected: Vec<(u32, u32, &Value)> = sources
        .iter()
        .enumerate()
        .flat_map(|(row, source)| {
            of(source, "n").into_iter().enumerate().map(move |(at, element)| (row as u32, at as u32, element))
        })
        .collect();
    if expected.is_empty() {
        assert!(nested("n").is_none());
        return view.live_rows();
    }
    let n = nested("n").unwrap();
    assert_eq!(n.elements() as usize, expected.len());
    assert!(n.outer().is_none());
    assert_eq!(n.parents(), expected.iter().map(|(row, ..)| *row).collect::<Vec<_>>());
    let x = longs(&n, id("n.x"));
    for (element, (row, ordinal, value)) in expected.iter().enumerate() {
        let element = element as u32;
        assert_eq!(n.ordinal(element), *ordinal);
        assert!(n.elements_of(*row).contains(&element));
        assert_eq!(x[&element], numbers(&value["x"]), "{value}");
    }
    // A range, over all and among some.
    let range = ValueRange::I64(200, 420);
    let hits = |among: &dyn Fn(u32) -> bool| -> Vec<u32> {
        expected
            .iter()
            .enumerate()
            .filter(|(at, (.., v))| {
                among(*at as u32) && numbers(&v["x"]).iter().any(|x| (200..=420).contains(x))
            })
            .map(|(at, _)| at as u32)
            .collect()
    };
    let found = n.range_rows_blocking(id("n.x"), &range, None).unwrap();
    assert_eq!(found.iter().collect::<Vec<_>>(), hits(&|_| true));
    let some = (0..n.elements()).filter(|element| element % 3 == 1).collect();
    let found = n.range_rows_blocking(id("n.x"), &range, Some(&some)).unwrap();
    assert_eq!(found.iter().collect::<Vec<_>>(), hits(&|element| element % 3 == 1));
    let mut selected = Vec::new();
    n.scan_blocking(&[id("n.k"), id("id"), id("n.x")], Some(some.clone()), |batch| {
        assert!(batch.columns.iter().all(|column| column.len() == batch.rows.len()));
        assert_eq!(batch.columns[1].data_type(), &DataType::Null);
        selected.extend(batch.rows);
        true
    })
    .unwrap();
    assert_eq!(selected, some.iter().collect::<Vec<_>>());
    // Terms, text, and presence.
    let mut postings = n.bundle().postings(id("n.k"), &Scalar::Str("k3".into())).unwrap();
    let mut with_k3 = Vec::new();
    if let Some(postings) = &mut postings {
        while postings.doc() != TERMINATED {
            with_k3.push(postings.doc());
            postings.advance();
        }
    }
    let expected_k3: Vec<u32> =
        (0..n.elements()).filter(|at| expected[*at as usize].2["k"] == "k3").collect();
    assert_eq!(with_k3, expected_k3);
    let with_text = expected.iter().filter(|(.., value)| value.get("t").is_some()).count();
    assert_eq!(n.bundle().exists_count(id("n.t")).unwrap() as usize, with_text);
    assert_eq!(n.bundle().text(id("n.t")).unwrap().doc_count() as usize, with_text);
    // None of it belongs to the rows themselves.
    let bundle = segment.bundle_blocking().unwrap();
    for path in ["n.x", "n.k", "n.t", "n.m.y"] {
        assert_eq!(bundle.exists_count(id(path)).unwrap(), 0, "{path}");
    }
    let nowhere = segment.range_rows_blocking(id("n.x"), &ValueRange::I64(i64::MIN, i64::MAX), None).unwrap();
    assert!(nowhere.is_empty());

    // Nested in nested.
    let inner: Vec<(u32, u32, i64)> = expected
        .iter()
        .enumerate()
        .flat_map(|(element, (row, _, value))| {
            of(value, "m").into_iter().map(move |m| (*row, element as u32, m["y"].as_i64().unwrap()))
        })
        .collect();
    match nested("n.m") {
        None => assert!(inner.is_empty()),
        Some(m) => {
            assert_eq!(m.parents(), inner.iter().map(|(row, ..)| *row).collect::<Vec<_>>());
            assert_eq!(m.outer().unwrap(), inner.iter().map(|(_, outer, _)| *outer).collect::<Vec<_>>());
            let y: Vec<i64> = longs(&m, id("n.m.y")).into_values().flatten().collect();
            assert_eq!(y, inner.iter().map(|(.., y)| *y).collect::<Vec<_>>());
            let among = (0..m.elements()).filter(|element| element % 2 == 0).collect();
            let found =
                m.range_rows_blocking(id("n.m.y"), &ValueRange::I64(0, i64::MAX), Some(&among)).unwrap();
            assert_eq!(found, among);
        }
    }
    // Included in the row as well as in its elements; and elements without any field.
    let with_p = sources.iter().filter(|source| source.get("p").is_some()).count();
    assert_eq!(bundle.exists_count(id("p.z")).unwrap() as usize, with_p);
    assert_eq!(nested("p").map_or(0, |p| p.elements()) as usize, with_p);
    assert_eq!(nested("e").unwrap().elements() as usize, sources.len());
    view.live_rows()
}

async fn check_all(engine: &Engine, rows: u32) {
    let index = engine.index("a").unwrap();
    let snapshot = index.snapshot().await.unwrap();
    let mapping = index.mapping();
    let live: u32 =
        snapshot.shards.iter().flat_map(|s| s.segments.iter()).map(|view| check(&mapping, view)).sum();
    assert_eq!(live, rows);
}

#[tokio::test(flavor = "multi_thread")]
async fn elements_are_what_the_documents_say() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    let uuid = millrace_catalog::metadata::Uuid::new_v4();
    engine.change(&Principal::system(), |m| m.create_index("a", &body(), 0, uuid)).await.unwrap();
    let index = engine.index("a").unwrap();
    for round in 0..6u32 {
        let ops = (0..20).map(|i| {
            let n = round * 20 + i;
            index_op("a", Some(&n.to_string()), &document(n).to_string())
        });
        assert!(write(&engine, ops.collect()).await.iter().all(Result::is_ok));
        engine.refresh(&[Arc::clone(&index)]).await.unwrap();
        check_all(&engine, (round + 1) * 20).await;
        if round % 2 == 1 {
            // Deleted before the flush, and after it.
            let ops = [round * 20, round * 20 - 15].map(|n| op("a", Some(&n.to_string()), Action::Delete));
            assert!(write(&engine, ops.into()).await.iter().all(Result::is_ok));
            engine.flush(&[Arc::clone(&index)]).await.unwrap();
            let ops = [round * 20, round * 20 - 15]
                .map(|n| index_op("a", Some(&n.to_string()), &document(n).to_string()));
            assert!(write(&engine, ops.into()).await.iter().all(Result::is_ok));
            let ops =
                [round * 20 + 3].map(|n| index_op("a", Some(&n.to_string()), &document(n + 1).to_string()));
            assert!(write(&engine, ops.into()).await.iter().all(Result::is_ok));
            engine.refresh(&[Arc::clone(&index)]).await.unwrap();
        }
    }
    check_all(&engine, 120).await;
    engine.flush(&[Arc::clone(&index)]).await.unwrap();
    check_all(&engine, 120).await;
    engine.force_merge(&[Arc::clone(&index)], 1).await.unwrap();
    check_all(&engine, 120).await;
    // The log brings back what was not flushed.
    let ops = (120..140).map(|n| index_op("a", Some(&n.to_string()), &document(n).to_string()));
    assert!(write(&engine, ops.collect()).await.iter().all(Result::is_ok));
    drop((index, engine));
    let engine = crate::documents::reopen(dir.path()).await;
    engine.refresh(&[engine.index("a").unwrap()]).await.unwrap();
    check_all(&engine, 140).await;
    engine.shutdown().await.unwrap();
}
