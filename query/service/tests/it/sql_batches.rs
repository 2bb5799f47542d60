//! Statements as clients of Arrow run them: described, answered in batches, with parameters of any type.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float64Array,
    Int8Array, Int32Array, Int64Array, LargeStringArray, NullArray, RecordBatch, RecordBatchOptions,
    StringArray, StringViewArray, TimestampMillisecondArray, TimestampNanosecondArray, TimestampSecondArray,
    UInt64Array,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Float32Type, Float64Type, Schema, SchemaRef, TimeUnit};
use futures::StreamExt;
use millrace_catalog::metadata::ClusterSettingsUpdate;
use millrace_engine::Session;
use millrace_query::{Batches, Config, Messages, SqlError};
use serde_json::{Value, json};

use crate::fixture::{Store, value};
use crate::sql::people;
use crate::sql_bounds::{ended, numbers, numbers_within};
use crate::sql_conditions::documents;

/// More rows than anybody waits for.
const ENDLESS: &str = "SELECT a.n, b.n FROM numbers a CROSS JOIN numbers b CROSS JOIN numbers c";

async fn batches(store: &Store, query: &str, parameters: Option<RecordBatch>) -> Result<Batches, SqlError> {
    store.service.statement_batches(&store.session, query, parameters).await
}

/// Reads an answer to its end.
async fn whole(mut batches: Batches) -> Result<Vec<RecordBatch>, SqlError> {
    let mut all = Vec::new();
    while let Some(messages) = batches.next().await {
        let read = messages?.read(batches.schema()).unwrap();
        assert!(!read.is_empty() && read.iter().all(|batch| (1..=8_192).contains(&batch.num_rows())));
        all.extend(read);
    }
    Ok(all)
}

/// Makes the row of parameters.
fn row(values: Vec<ArrayRef>) -> Option<RecordBatch> {
    let fields = values
        .iter()
        .enumerate()
        .map(|(at, value)| Field::new(at.to_string(), value.data_type().clone(), true));
    let schema = Schema::new(fields.collect::<Vec<_>>());
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    Some(RecordBatch::try_new_with_options(Arc::new(schema), values, &options).unwrap())
}

/// Shows a value as `_plugins/_sql` does.
fn shown(array: &ArrayRef, row: usize, name: &str) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    let text = |array: &ArrayRef| {
        let texts = cast(&array.slice(row, 1), &DataType::Utf8).unwrap();
        texts.as_string::<i32>().value(0).to_owned()
    };
    match array.data_type() {
        DataType::List(_) => {
            let values = array.as_list::<i32>().value(row);
            let mut shown: Vec<Value> = (0..values.len()).map(|at| self::shown(&values, at, name)).collect();
            if shown.len() == 1 { shown.remove(0) } else { Value::Array(shown) }
        }
        DataType::Utf8 if matches!(name, "object" | "nested" | "geo_point") => {
            serde_json::from_str(&text(array)).unwrap()
        }
        DataType::Utf8 => Value::String(text(array)),
        DataType::Float32 => {
            let shown = serde_json::to_string(&array.as_primitive::<Float32Type>().value(row)).unwrap();
            serde_json::from_str(&shown).unwrap()
        }
        DataType::Float64 => json!(array.as_primitive::<Float64Type>().value(row)),
        DataType::Boolean => json!(array.as_boolean().value(row)),
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::UInt64 => {
            serde_json::from_str(&text(array)).unwrap()
        }
        DataType::Timestamp(..) | DataType::Date32 | DataType::Time64(_) => {
            if let DataType::Timestamp(_, zone) = array.data_type() {
                assert_eq!(zone.as_deref(), Some("UTC"));
            }
            let text = text(array).replace('T', " ");
            let text = text.trim_end_matches('Z');
            Value::String(match text.contains('.') {
                true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
                false => text.to_owned(),
            })
        }
        other => panic!("{other} is no type that clients know"),
    }
}

fn rows(batches: &[RecordBatch]) -> Vec<Value> {
    let mut rows = Vec::new();
    for batch in batches {
        let schema = batch.schema();
        for row in 0..batch.num_rows() {
            let columns = batch.columns().iter().zip(schema.fields());
            rows.push(columns.map(|(array, field)| shown(array, row, type_name(field))).collect());
        }
    }
    rows
}

fn type_name(field: &Field) -> &str {
    field.metadata().get("ARROW:FLIGHT:SQL:TYPE_NAME").unwrap()
}

fn sorted(mut rows: Vec<Value>) -> Vec<Value> {
    rows.sort_by_key(Value::to_string);
    rows
}

/// Runs a statement both ways; fails unless they say the same.
pub(crate) async fn alike(store: &Store, session: &Session, query: &str) {
    let body = json!({"query": query, "fetch_size": 0});
    let outcome = store.service.sql(session, Vec::new(), Some(body)).await;
    let (status, answer) = (outcome.status, value(outcome));
    let described = store.service.describe_statement(session, query).await;
    let answered = match store.service.statement_batches(session, query, None).await {
        Ok(answered) => answered,
        Err(error) => {
            assert_eq!((error.status(), error.to_body()), (status, answer), "{query}");
            return;
        }
    };
    assert_eq!(status, 200, "{query}: {answer}");
    let described = described.unwrap();
    assert_eq!(described.columns.as_ref(), Some(answered.schema()), "{query}");
    assert!(described.parameters.fields().is_empty());
    for (field, column) in answered.schema().fields().iter().zip(answer["schema"].as_array().unwrap()) {
        let name = column.get("alias").unwrap_or(&column["name"]);
        assert_eq!(
            (field.name().as_str(), type_name(field)),
            (name.as_str().unwrap(), column["type"].as_str().unwrap())
        );
        assert!(field.is_nullable());
    }
    let found = sorted(rows(&whole(answered).await.unwrap()));
    assert_eq!(found, sorted(answer["datarows"].as_array().unwrap().clone()), "{query}");
}

#[tokio::test]
async fn values_are_those_of_the_data_api() {
    let store = people().await;
    for case in include_str!("sql/cases.txt").split("\n> ").skip(1) {
        let (query, _) = case.split_once('\n').unwrap_or((case, ""));
        alike(&store, &store.session, query).await;
    }
    for query in [
        "SELECT * FROM people",
        "SELECT *, _id, _index FROM people* ORDER BY balance",
        "SELECT tags, tags AS again FROM people WHERE age > 30",
        "SELECT 1, 'a', NULL, 2.5, true, INTERVAL 3 DAY, DATE '2020-02-29', TIME '01:02:03.5', TIMESTAMP '1960-01-01 00:00:01.000001'",
        "SELECT born + INTERVAL 1 DAY, date(born), MAX(born) FROM people GROUP BY born",
        "SELECT name FROM people WHERE match(name, 'lee') ORDER BY _score",
        "SELECT _score FROM people WHERE match(name, 'lee')",
        "SELECT name FROM people WHERE age > 1000",
        "SHOW TABLES LIKE peop%",
        "DESCRIBE TABLES LIKE people COLUMNS LIKE b%",
        "SELECT name FROM people LIMIT 0",
    ] {
        alike(&store, &store.session, query).await;
    }
    let store = documents().await;
    for query in
        ["SELECT * FROM d-1", "SELECT * FROM d-2", "SELECT id, b, s, i, f, h, d, sf, kw, name FROM d-*"]
    {
        alike(&store, &store.session, query).await;
    }
}

#[tokio::test]
async fn strings_and_times_have_types_that_clients_know() {
    let store = people().await;
    let query = "SELECT name, born, tags, NULL AS n, now() AS t, home, INTERVAL 1 DAY AS i FROM people";
    let described = store.service.describe_statement(&store.session, query).await.unwrap();
    let columns = described.columns.unwrap();
    let types: Vec<DataType> = columns.fields().iter().map(|field| field.data_type().clone()).collect();
    let utc = |unit| DataType::Timestamp(unit, Some("UTC".into()));
    let list = DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)));
    let utf8 = DataType::Utf8;
    let expected = [
        utf8.clone(),
        utc(TimeUnit::Millisecond),
        list,
        utf8.clone(),
        utc(TimeUnit::Microsecond),
        utf8.clone(),
        utf8,
    ];
    assert_eq!(types, expected);
}

fn types(schema: &SchemaRef) -> Vec<String> {
    schema.fields().iter().map(|field| format!("{} {}", field.name(), field.data_type())).collect()
}

#[tokio::test]
async fn types_of_parameters_come_from_where_they_stand() {
    let store = people().await;
    for (query, expected) in [
        ("SELECT name FROM people WHERE age > ? AND ? < balance", vec!["Int32", "Int64"]),
        ("SELECT name FROM people WHERE age BETWEEN ? AND ?", vec!["Int32", "Int32"]),
        ("SELECT name FROM people WHERE city IN (?, ?) OR score = ?", vec!["Utf8", "Utf8", "Float64"]),
        ("SELECT name FROM people WHERE born >= ? AND active = ?", vec!["Timestamp(ms, \"UTC\")", "Boolean"]),
        ("SELECT name FROM people WHERE home.ip = ? AND tags <> ?", vec!["Utf8", "Utf8"]),
        ("SELECT name FROM people WHERE name LIKE ? AND ?", vec!["Utf8", "Boolean"]),
        ("SELECT age + ? FROM people WHERE abs(?) > 1", vec!["Int32", "Float64"]),
        ("SELECT ?, concat(name, ?) FROM people LIMIT ? OFFSET ?", vec!["Utf8", "Utf8", "Int64", "Int64"]),
        (
            "SELECT CASE age WHEN ? THEN ? ELSE balance END, CAST(? AS double) FROM people",
            vec!["Int32", "Int64", "Float64"],
        ),
        ("SELECT name FROM people WHERE match(name, ?) AND coalesce(age, ?) = 3", vec!["Utf8", "Int32"]),
        (
            "SELECT 'x' FROM people WHERE born > now() - INTERVAL ? DAY HAVING COUNT(*) > ?",
            vec!["Int32", "Int64"],
        ),
        (
            "SELECT name FROM people WHERE upper(?) = name AND year(?) = 3 AND substring(name, ?, ?) = 'x'",
            vec!["Utf8", "Utf8", "Int64", "Int64"],
        ),
        (
            "SELECT t.a FROM (SELECT age AS a FROM people WHERE balance = ?) AS t WHERE t.a = ?",
            vec!["Int64", "Int32"],
        ),
    ] {
        let described = store.service.describe_statement(&store.session, query).await;
        let described = described.unwrap_or_else(|error| panic!("{query}: {error}"));
        let numbered = expected.iter().enumerate().map(|(at, ty)| format!("${} {ty}", at + 1));
        assert_eq!(types(&described.parameters), numbered.collect::<Vec<_>>(), "{query}");
        assert!(described.columns.is_some());
    }
    let deletes = json!({"transient": {"plugins.sql.delete.enabled": true}});
    let query = "DELETE FROM people WHERE age = ?";
    let refused = store.service.describe_statement(&store.session, query).await.unwrap_err();
    assert_eq!(refused.to_body()["error"]["type"], "SQLFeatureDisabledException");
    let update = ClusterSettingsUpdate::parse(&deletes).unwrap();
    store.session.change(|state| state.update_cluster_settings(&update)).await.unwrap();
    let described = store.service.describe_statement(&store.session, query).await.unwrap();
    assert_eq!((described.columns, types(&described.parameters)), (None, vec!["$1 Int32".to_owned()]));
}

#[tokio::test]
async fn parameters_of_any_type_mean_what_literals_mean() {
    let store = people().await;
    let texts = |text: &str| Arc::new(StringArray::from(vec![text])) as ArrayRef;
    let decimal = Decimal128Array::from(vec![4_000]).with_precision_and_scale(10, 2).unwrap();
    let birth = 641_556_000_000_i64;
    let cases: Vec<(&str, Vec<ArrayRef>, Vec<&str>)> = vec![
        ("age > ?", vec![Arc::new(Int8Array::from(vec![30]))], vec!["Bob Ray", "Cy"]),
        ("age > ?", vec![Arc::new(Int32Array::from(vec![30]))], vec!["Bob Ray", "Cy"]),
        ("age > ?", vec![Arc::new(UInt64Array::from(vec![40]))], vec!["Cy"]),
        ("age > ?", vec![Arc::new(Float64Array::from(vec![39.5]))], vec!["Bob Ray", "Cy"]),
        ("age = ?", vec![Arc::new(decimal)], vec!["Bob Ray"]),
        ("age = ?", vec![texts("40")], vec!["Bob Ray"]),
        ("age > ?", vec![Arc::new(NullArray::new(1))], vec![]),
        ("age > ?", vec![Arc::new(Int32Array::from(vec![None]))], vec![]),
        (
            "city = ? AND active = ?",
            vec![texts("Rome"), Arc::new(BooleanArray::from(vec![true]))],
            vec!["Ann Lee"],
        ),
        ("city = ?", vec![Arc::new(LargeStringArray::from(vec!["Oslo"]))], vec!["Bob Ray"]),
        ("city IN (?, ?)", vec![Arc::new(StringViewArray::from(vec!["Oslo"])), texts("x")], vec!["Bob Ray"]),
        ("tags = ?", vec![texts("y")], vec!["Ann Lee", "Dee Long-Winded"]),
        ("born = ?", vec![Arc::new(TimestampMillisecondArray::from(vec![birth]))], vec!["Ann Lee"]),
        (
            "born = ?",
            vec![Arc::new(TimestampSecondArray::from(vec![birth / 1_000]).with_timezone("America/Lima"))],
            vec!["Ann Lee"],
        ),
        (
            "born > ?",
            vec![Arc::new(TimestampNanosecondArray::from(vec![(birth - 1) * 1_000_000]))],
            vec!["Ann Lee"],
        ),
        ("born = ?", vec![texts("1990-05-01 10:00:00")], vec!["Ann Lee"]),
        ("born = ?", vec![Arc::new(Date32Array::from(vec![3_682]))], vec!["Bob Ray"]),
        ("home.ip = ?", vec![texts("10.0.0.1")], vec!["Ann Lee"]),
        ("name LIKE ?", vec![texts("ann%")], vec!["Ann Lee"]),
        ("match(name, ?)", vec![texts("ray")], vec!["Bob Ray"]),
        ("age > 1 ORDER BY age LIMIT ?", vec![Arc::new(Int64Array::from(vec![1]))], vec!["Ann Lee"]),
    ];
    for (condition, values, expected) in cases {
        let query = format!("SELECT name FROM people WHERE {condition}");
        let answered = batches(&store, &query, row(values.clone())).await;
        let answered = answered.unwrap_or_else(|error| panic!("{query} {values:?}: {error}"));
        let found = sorted(rows(&whole(answered).await.unwrap()));
        let expected: Vec<Value> = expected.iter().map(|name| json!([name])).collect();
        assert_eq!(found, expected, "{query} {values:?}");
    }
    // Times of date_nanos are compared with all of their digits.
    let body = json!({"mappings": {"properties": {"at": {"type": "date_nanos"}, "day": {"type": "date"}}}});
    store.create("precise", &body).await;
    let document =
        |nanos: u32| json!({"at": format!("2020-01-01T00:00:00.{nanos:09}Z"), "day": "2020-01-01"});
    store.index("precise", &[document(1_001), document(1_002)]).await;
    let moment = || -> ArrayRef { Arc::new(TimestampNanosecondArray::from(vec![1_577_836_800_000_001_001])) };
    for (operator, count) in [("=", 1), (">", 1), (">=", 2), ("<", 0)] {
        let query = format!("SELECT at FROM precise WHERE at {operator} ?");
        let answered = batches(&store, &query, row(vec![moment()])).await.unwrap();
        assert_eq!(rows(&whole(answered).await.unwrap()).len(), count, "{query}");
    }
    for (operator, count) in [("=", 0), ("<", 2), ("<>", 2), (">=", 0)] {
        let query = format!("SELECT at FROM precise WHERE day {operator} ?");
        let answered = batches(&store, &query, row(vec![moment()])).await.unwrap();
        assert_eq!(rows(&whole(answered).await.unwrap()).len(), count, "{query}");
    }
    // What stands in the answer has the type that was described.
    let one = Arc::new(Int64Array::from(vec![1])) as ArrayRef;
    let query = "SELECT ?, age + ?, CASE WHEN age = 30 THEN ? ELSE score END FROM people WHERE age = 30";
    let described = store.service.describe_statement(&store.session, query).await.unwrap();
    let answered =
        batches(&store, query, row(vec![Arc::clone(&one), Arc::clone(&one), one.clone()])).await.unwrap();
    assert_eq!(Some(answered.schema()), described.columns.as_ref());
    assert_eq!(rows(&whole(answered).await.unwrap()), [json!(["1", 31, 1.0])]);
    let half: ArrayRef = Arc::new(Float64Array::from(vec![0.5]));
    for (query, values, part) in [
        ("SELECT age + ? FROM people", vec![half], "described as INTEGER"),
        (
            "SELECT age FROM people WHERE age = ? AND age = ?",
            vec![one.clone()],
            "[2] placeholders, and [1] parameters",
        ),
        ("SELECT age FROM people", vec![one.clone()], "[0] placeholders, and [1] parameters"),
        ("SELECT age FROM people WHERE age = ?", vec![], "[1] placeholders, and [0] parameters"),
        ("SHOW TABLES LIKE x", vec![one], "[0] placeholders, and [1] parameters"),
        (
            "SELECT age FROM people WHERE age = ?",
            vec![Arc::new(BinaryArray::from(vec![b"x".as_slice()]))],
            "[Binary]",
        ),
    ] {
        let error = batches(&store, query, row(values)).await.unwrap_err();
        assert!(error.status() == 400 && error.to_string().contains(part), "{query}: {error}");
    }
}

#[tokio::test]
async fn updates_delete_and_queries_do_not() {
    let store = numbers(20).await;
    let update = async |query: &str, parameters| {
        store.service.update_statement(&store.session, query, parameters).await
    };
    let refused = update("DELETE FROM numbers", None).await.unwrap_err();
    assert_eq!(refused.to_body()["error"]["type"], "SQLFeatureDisabledException");
    let change =
        ClusterSettingsUpdate::parse(&json!({"transient": {"plugins.sql.delete.enabled": true}})).unwrap();
    store.session.change(|state| state.update_cluster_settings(&change)).await.unwrap();
    assert_eq!(batches(&store, "DELETE FROM numbers", None).await.unwrap_err().status(), 400);
    assert_eq!(update("SELECT n FROM numbers", None).await.unwrap_err().status(), 400);
    assert_eq!(update("DELETE FROM gone", None).await.unwrap_err().status(), 404);
    let five = row(vec![Arc::new(Int64Array::from(vec![5]))]);
    assert_eq!(update("DELETE FROM numbers WHERE n < ?", five).await.unwrap(), 5);
    let change = ClusterSettingsUpdate::parse(&json!({"transient": {"plugins.sql.enabled": false}})).unwrap();
    store.session.change(|state| state.update_cluster_settings(&change)).await.unwrap();
    let refused = [
        update("DELETE FROM numbers", None).await.unwrap_err(),
        batches(&store, "SELECT 1", None).await.unwrap_err(),
        store.service.describe_statement(&store.session, "SELECT 1").await.unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.to_body()["error"]["type"], "SQLFeatureDisabledException");
    }
}

#[tokio::test]
async fn no_row_is_left_out_and_batches_are_large() {
    let store = numbers(20_000).await;
    let answered = whole(batches(&store, "SELECT n FROM numbers", None).await.unwrap()).await.unwrap();
    assert_eq!(answered.iter().map(RecordBatch::num_rows).sum::<usize>(), 20_000);
    assert!(answered.len() <= 5, "{}", answered.len());
}

fn bytes(messages: Messages) -> usize {
    messages.into_parts().0.iter().map(|message| message.arrow_data.len()).sum()
}

#[tokio::test]
async fn who_does_not_read_holds_little_and_holds_nobody_up() {
    const MEMORY: usize = 64 << 20;
    let store = numbers_within(200, Config { memory_bytes: MEMORY, ..Config::default() }).await;
    let query =
        format!("SELECT a.n, '{}' FROM numbers a CROSS JOIN numbers b WHERE b.n < 50", "x".repeat(10 << 10));
    let mut several = Vec::new();
    for _ in 0..3 {
        let mut answered = batches(&store, &query, None).await.unwrap();
        let first = bytes(answered.next().await.unwrap().unwrap());
        assert!((1..=7 << 20).contains(&first), "{first}");
        several.push(answered);
    }
    // Others are answered while nobody reads these.
    let counted = whole(batches(&store, "SELECT COUNT(*) FROM numbers", None).await.unwrap()).await.unwrap();
    assert_eq!(rows(&counted), [json!([200])]);
    for mut answered in several {
        let mut all = 0;
        while let Some(messages) = answered.next().await {
            all += bytes(messages.unwrap());
        }
        assert!(all > MEMORY);
    }
}

#[tokio::test]
async fn dropping_an_answer_ends_its_statement() {
    let store = numbers(300).await;
    let holders = Arc::strong_count(&store.engine);
    let mut answers = Vec::new();
    for _ in 0..5 {
        let mut answered = batches(&store, ENDLESS, None).await.unwrap();
        answered.next().await.unwrap().unwrap();
        answers.push(answered);
    }
    drop(answers);
    ended(&store, holders).await;
}

#[tokio::test]
async fn errors_have_their_status_before_and_behind_the_first_rows() {
    let store = numbers_within(300, Config { threads: 1, ..Config::default() }).await;
    // The sum is too large at the last pair only.
    let late = format!(
        "SELECT a.n * 300 + b.n + 9223372036854685809, '{}' FROM numbers a CROSS JOIN numbers b",
        "x".repeat(100)
    );
    let mut answered = batches(&store, &late, None).await.unwrap();
    answered.next().await.unwrap().unwrap();
    let error = whole(answered).await.unwrap_err();
    assert!(error.status() == 400 && error.to_string().contains("out of range"), "{error}");
    for (query, status) in [
        ("SELECT n + 9223372036854775800 FROM numbers", 400),
        ("SELECT gone FROM numbers", 400),
        ("SELECT n FROM gone", 404),
        ("SELECT n FROM", 400),
        ("SELECT n FROM numbers WHERE n = $1", 400),
    ] {
        assert_eq!(batches(&store, query, None).await.unwrap_err().status(), status, "{query}");
    }
}
