//! Many fields of every type, each in few documents: what is read of them is the same in memory, flushed
//! and merged, and is what the documents say.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::util::display::array_value_to_string;
use millrace_catalog::access::Principal;
use millrace_engine::{Action, Engine};
use millrace_mapping::PathId;
use millrace_segment::{RowParts, ValueRange};
use serde_json::{Map, Value, json};

use crate::documents::{index_op, op, open, write};

const FIELDS: u32 = 210;

/// Types of the fields by their number, each with a value for a document.
fn value_of(field: u32, n: u32) -> (&'static str, Value) {
    match field % 14 {
        0 => ("long", json!(n)),
        1 => ("keyword", json!(format!("k{}", n % 9))),
        2 => ("date", json!(1_700_000_000_000u64 + u64::from(n))),
        3 => ("ip", json!(format!("10.0.{}.{}", n / 250, n % 250))),
        4 => ("geo_point", json!({"lat": n % 90, "lon": n % 180})),
        5 => ("boolean", json!(n.is_multiple_of(2))),
        6 => ("float", json!(f64::from(n) / 4.0)),
        7 => ("double", json!(f64::from(n) / 8.0)),
        8 => ("byte", json!(n % 100)),
        9 => ("short", json!(n)),
        10 => ("integer", json!(n)),
        11 => ("unsigned_long", json!(u64::MAX - u64::from(n))),
        12 => ("date_nanos", json!(1_700_000_000_000u64 + u64::from(n))),
        _ => ("text", json!(format!("words of document {n} that are longer than a view"))),
    }
}

/// A document with a few of the fields, one of them with two values now and then. Field 0 is in long
/// stretches of documents, field 1 in none of them but one.
fn document(n: u32) -> Value {
    let mut fields = Map::new();
    fields.insert("n".to_owned(), json!(n));
    for i in 0..5 {
        let field = 2 + (n * 31 + i * 43) % (FIELDS - 2);
        let value = value_of(field, n).1;
        let several = field % 14 != 4 && field.is_multiple_of(3) && n.is_multiple_of(7);
        fields.insert(
            format!("f{field}"),
            if several { json!([value, value_of(field, n + 1).1]) } else { value },
        );
    }
    if n / 300 % 2 == 1 {
        fields.insert("f0".to_owned(), json!(n));
    }
    if n == 777 {
        fields.insert("f1".to_owned(), json!("only"));
    }
    Value::Object(fields)
}

fn text(array: &ArrayRef, at: usize) -> String {
    let value = array.slice(at, 1);
    let value = match value.data_type() {
        DataType::Timestamp(..) => cast(&value, &DataType::Int64).unwrap(),
        _ => value,
    };
    array_value_to_string(&value, 0).unwrap()
}

/// Returns the value of a column in a row, whether it is a list in the segment or not.
fn shown(array: &ArrayRef, at: usize) -> Option<String> {
    match array.data_type() {
        DataType::Null => None,
        _ if array.is_null(at) => None,
        DataType::List(_) => {
            let values = array.as_list::<i32>().value(at);
            let all: Vec<_> = (0..values.len()).map(|i| text(&values, i)).collect();
            Some(all.join("|"))
        }
        _ => Some(text(array, at)),
    }
}

/// Live rows by their document's number: what each column has.
async fn contents(engine: &Engine) -> BTreeMap<u32, Vec<Option<String>>> {
    let index = engine.index("a").unwrap();
    let mapping = index.mapping();
    let columns: Vec<PathId> =
        (0..FIELDS).map(|field| mapping.field(&format!("f{field}")).unwrap().id).collect();
    let mut found = BTreeMap::new();
    for view in index.snapshot().await.unwrap().shards.iter().flat_map(|shard| shard.segments.iter()) {
        let all: Vec<u32> = (0..view.segment.rows()).collect();
        let rows = view.segment.fetch_blocking(&all, RowParts::ALL).unwrap();
        let number = |row: u32| {
            let source: Value = serde_json::from_slice(&rows[row as usize].source).unwrap();
            u32::try_from(source["n"].as_u64().unwrap()).unwrap()
        };
        view.segment
            .scan_blocking(&columns, None, |batch| {
                for (at, row) in
                    batch.rows.iter().enumerate().filter(|(_, row)| !view.deleted.contains(**row))
                {
                    let values = batch.columns.iter().map(|column| shown(column, at)).collect();
                    assert!(found.insert(number(*row), values).is_none());
                }
                true
            })
            .unwrap();
        // Some rows are read as when all are; ranges find what is in them.
        let some = (0..view.segment.rows()).filter(|row| row % 5 == 2).collect();
        view.segment
            .scan_blocking(&columns, Some(some), |batch| {
                for (at, row) in
                    batch.rows.iter().enumerate().filter(|(_, row)| !view.deleted.contains(**row))
                {
                    let values: Vec<_> = batch.columns.iter().map(|column| shown(column, at)).collect();
                    assert_eq!(found[&number(*row)], values);
                }
                true
            })
            .unwrap();
        let in_range =
            view.segment.range_rows_blocking(columns[0], &ValueRange::I64(310, 400), None).unwrap();
        let in_range: Vec<u32> = in_range.iter().filter(|row| !view.deleted.contains(*row)).collect();
        let expected = (0..view.segment.rows())
            .filter(|row| !view.deleted.contains(*row) && (310..=400).contains(&number(*row)));
        assert_eq!(in_range, expected.collect::<Vec<_>>());
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn sparse_columns_keep_their_values() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    let properties: Map<String, Value> =
        (0..FIELDS).map(|field| (format!("f{field}"), json!({"type": value_of(field, 0).0}))).collect();
    let body = json!({"settings": {"refresh_interval": -1}, "mappings": {"properties": properties}});
    let uuid = millrace_catalog::metadata::Uuid::new_v4();
    engine.change(&Principal::system(), |m| m.create_index("a", &body, 0, uuid)).await.unwrap();
    let index = engine.index("a").unwrap();
    let all = [Arc::clone(&index)];
    let mut expected = BTreeMap::new();
    for round in 0..4u32 {
        for from in [round * 400, round * 400 + 200] {
            let ops =
                (from..from + 200).map(|n| index_op("a", Some(&n.to_string()), &document(n).to_string()));
            assert!(write(&engine, ops.collect()).await.iter().all(Result::is_ok));
            engine.refresh(&all).await.unwrap();
        }
        let in_memory = contents(&engine).await;
        expected.extend(in_memory.into_iter().filter(|(n, _)| *n >= round * 400));
        // Deletions before the flush of two segments into one, and after it.
        let mut delete = async |n: u32| {
            assert!(write(&engine, vec![op("a", Some(&n.to_string()), Action::Delete)]).await[0].is_ok());
            expected.remove(&n);
        };
        delete(round * 400 + 150).await;
        delete(round * 400 + 399).await;
        engine.refresh(&all).await.unwrap();
        engine.flush(&all).await.unwrap();
        delete(round * 400).await;
        engine.refresh(&all).await.unwrap();
        assert_eq!(contents(&engine).await, expected, "round {round}");
    }
    engine.force_merge(&all, 1).await.unwrap();
    assert_eq!(contents(&engine).await, expected);
    // What the documents say, for the types that show as they were sent.
    for (n, values) in &expected {
        let document = document(*n);
        for (field, value) in (0..FIELDS).zip(values) {
            let sent = &document[format!("f{field}")];
            assert_eq!(value.is_some(), !sent.is_null(), "document {n}, field {field}");
            if let (0 | 1 | 9 | 10, Some(value)) = (field % 14, value) {
                let parts: Vec<&Value> = sent.as_array().map_or(vec![sent], |sent| sent.iter().collect());
                let sent: Vec<String> =
                    parts.iter().map(|part| part.as_str().map_or(part.to_string(), str::to_owned)).collect();
                assert_eq!(value, &sent.join("|"), "document {n}, field {field}");
            }
        }
    }
    engine.shutdown().await.unwrap();
}
