use std::sync::Arc;

use datafusion::arrow::array::{
    BinaryArray, Date32Array, Decimal128Array, DictionaryArray, FixedSizeListArray, Float32Array,
    Float64Array, Int32Array, Int64Array, ListArray, MapBuilder, NullArray, StringArray, StringBuilder,
    StringViewArray, StructArray, TimestampMicrosecondArray, UInt64Array,
};
use datafusion::arrow::datatypes::{Field, Fields};

use super::*;

fn documents(columns: Vec<(&str, ArrayRef)>) -> Vec<String> {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let rows = Rows::new(&batch).unwrap();
    let document = |row| {
        let mut out = Vec::new();
        rows.write(row, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    (0..batch.num_rows()).map(document).collect()
}

#[test]
fn values_are_written_exactly_and_nulls_are_left_out() {
    let money =
        Decimal128Array::from(vec![Some(-5), Some(1_234_500)]).with_precision_and_scale(20, 4).unwrap();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("a\"b", Arc::new(StringArray::from(vec![Some("x\n\u{1}"), None]))),
        ("view", Arc::new(StringViewArray::from(vec![None, Some("y")]))),
        ("max", Arc::new(UInt64Array::from(vec![u64::MAX, 0]))),
        ("f", Arc::new(Float64Array::from(vec![0.1, f64::NAN]))),
        ("g", Arc::new(Float32Array::from(vec![0.1, 1e30]))),
        ("ok", Arc::new(BooleanArray::from(vec![true, false]))),
        ("money", Arc::new(money)),
        ("day", Arc::new(Date32Array::from(vec![0, 19_000]))),
        ("at", Arc::new(TimestampMicrosecondArray::from(vec![Some(1), None]))),
        ("bytes", Arc::new(BinaryArray::from(vec![&b"\xff"[..], b"ab"]))),
        ("none", Arc::new(NullArray::new(2))),
    ];
    let documents = documents(columns);
    assert_eq!(
        documents[0],
        r#"{"a\"b":"x\n\u0001","max":18446744073709551615,"f":0.1,"g":0.1,"ok":true,"money":-0.0005,"day":"1970-01-01","at":"1970-01-01T00:00:00.000001Z","bytes":"/w=="}"#
    );
    assert_eq!(
        documents[1],
        r#"{"view":"y","max":0,"g":1e+30,"ok":false,"money":123.4500,"day":"2022-01-08","bytes":"YWI="}"#
            .replace("1e+30", &serde_json::to_string(&1e30_f32).unwrap())
    );
    for document in documents {
        serde_json::from_str::<serde_json::Value>(&document).unwrap();
    }
}

#[test]
fn what_is_nested_or_encoded_is_written_as_what_it_is() {
    let list =
        ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None, Some(vec![])]);
    let pair = FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(
        [Some(vec![Some(1), Some(2)]), Some(vec![Some(3), Some(4)]), None],
        2,
    );
    let inner = Fields::from(vec![Field::new("n", DataType::Int32, true)]);
    let object =
        StructArray::new(inner, vec![Arc::new(Int32Array::from(vec![Some(7), None, Some(9)]))], None);
    let mut map = MapBuilder::new(None, StringBuilder::new(), datafusion::arrow::array::Int32Builder::new());
    map.keys().append_value("k");
    map.values().append_value(1);
    map.keys().append_value("l");
    map.values().append_null();
    map.append(true).unwrap();
    map.append(true).unwrap();
    map.append(false).unwrap();
    let words: DictionaryArray<Int8Type> = [Some("a"), None, Some("a")].into_iter().collect();
    let runs =
        RunArray::<Int32Type>::try_new(&Int32Array::from(vec![2, 3]), &Int64Array::from(vec![Some(5), None]));
    let documents = documents(vec![
        ("list", Arc::new(list)),
        ("pair", Arc::new(pair)),
        ("object", Arc::new(object)),
        ("map", Arc::new(map.finish())),
        ("words", Arc::new(words)),
        ("runs", Arc::new(runs.unwrap())),
    ]);
    assert_eq!(
        documents,
        [
            r#"{"list":[1,null],"pair":[1,2],"object":{"n":7},"map":{"k":1},"words":"a","runs":5}"#,
            r#"{"pair":[3,4],"object":{},"map":{},"runs":5}"#,
            r#"{"list":[],"object":{"n":9},"words":"a"}"#,
        ]
    );
}

#[test]
fn parts_of_batches_are_their_rows() {
    let words: DictionaryArray<Int8Type> = ["a", "b", "c", "d"].into_iter().collect();
    let runs =
        RunArray::<Int32Type>::try_new(&Int32Array::from(vec![1, 3, 4]), &Int64Array::from(vec![1, 2, 3]));
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>((0..4).map(|n| Some(vec![Some(n)])));
    let columns: Vec<(&str, ArrayRef)> =
        vec![("w", Arc::new(words)), ("r", Arc::new(runs.unwrap())), ("l", Arc::new(list))];
    let part = RecordBatch::try_from_iter(columns).unwrap().slice(2, 2);
    let columns = ["w", "r", "l"].into_iter().zip(part.columns().iter().cloned());
    assert_eq!(documents(columns.collect()), [r#"{"w":"c","r":2,"l":[2]}"#, r#"{"w":"d","r":3,"l":[3]}"#]);
}

#[test]
fn ids_are_text_or_numbers() {
    let id = |column: ArrayRef| {
        let batch = RecordBatch::try_from_iter([("_id", column)]).unwrap();
        let (rows, mut text) = (Rows::new(&batch).unwrap(), Vec::new());
        (0..batch.num_rows()).map(|row| rows.id(row, &mut text).unwrap()).collect::<Vec<_>>()
    };
    let text = id(Arc::new(StringArray::from(vec![Some("a\"b"), None])));
    assert_eq!(text, [Some("a\"b".to_owned()), None]);
    assert_eq!(id(Arc::new(Int64Array::from(vec![-1]))), [Some("-1".to_owned())]);
}

#[test]
fn what_no_document_holds_is_refused_with_its_column() {
    let write = |column: ArrayRef| {
        let batch = RecordBatch::try_from_iter([("c", column)]).unwrap();
        Rows::new(&batch).unwrap().write(0, &mut Vec::new())
    };
    let error = write(Arc::new(Float64Array::from(vec![f64::INFINITY]))).unwrap_err();
    assert_eq!(error.to_string(), "column [c] has [inf], which documents cannot hold");
    assert!(write(Arc::new(TimestampMicrosecondArray::from(vec![i64::MAX]))).is_err());
    // Much of little: a long word, a million times in one array.
    let word = StringArray::from(vec!["x".repeat(1 << 20)]);
    let keys = datafusion::arrow::array::Int8Array::from(vec![0; 1_000_000]);
    let words = DictionaryArray::try_new(keys, Arc::new(word)).unwrap();
    let field = Arc::new(Field::new("item", words.data_type().clone(), true));
    let offsets = datafusion::arrow::buffer::OffsetBuffer::from_lengths([1_000_000]);
    let list = ListArray::new(field, offsets, Arc::new(words), None);
    assert_eq!(write(Arc::new(list)), Err(RowError::Long));
}
