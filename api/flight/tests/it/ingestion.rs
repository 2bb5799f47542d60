//! Bulk ingestion.

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::sql::TableExistsOption::{Append, Fail, Replace};
use arrow_flight::sql::TableNotExistOption::{Create, Fail as Missing};
use arrow_flight::{FlightData, FlightDescriptor};
use datafusion::arrow::array::{
    ArrayRef, AsArray, BooleanArray, Float64Array, Int32Array, Int32Builder, Int64Array, MapBuilder,
    RecordBatch, StringArray, StringBuilder, TimestampMicrosecondArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, TimeUnit, TimestampMillisecondType};
use futures::{StreamExt, stream};
use millrace_catalog::metadata::{Metadata, TemplateKind};
use millrace_catalog::{Catalog, MemoryCatalog};
use millrace_engine::{Config, Engine, Session};
use millrace_runtime::SystemClock;
use millrace_runtime::disk::SimulatedDisk;
use serde_json::json;
use tonic::{Code, Request};

use crate::support::{Node, Setup, batch, code, ingest, into_table, lines, run, status};

fn people(ids: &[&str], ages: &[i32]) -> RecordBatch {
    batch([
        ("_id", Arc::new(StringArray::from(ids.to_vec())) as ArrayRef),
        ("age", Arc::new(Int32Array::from(ages.to_vec()))),
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_are_created_appended_to_and_replaced() {
    let node = Node::start().await;
    let mut client = node.admin().await;
    let rows = |n: i64| batch([("n", Arc::new(Int64Array::from_iter_values(0..n)) as ArrayRef)]);
    let append = into_table("t", Missing, Append);
    assert_eq!(code(ingest(&mut client, append.clone(), vec![rows(1)]).await), Code::NotFound);
    let create = into_table("t", Create, Fail);
    assert_eq!(ingest(&mut client, create.clone(), vec![rows(3), rows(2)]).await.unwrap(), 5);
    assert_eq!(code(ingest(&mut client, create, vec![rows(3)]).await), Code::AlreadyExists);
    assert_eq!(ingest(&mut client, append, vec![rows(2)]).await.unwrap(), 2);
    let count = async |client: &mut _| lines(&run(client, "SELECT COUNT(*) AS c FROM t").await.unwrap());
    assert_eq!(count(&mut client).await, ["|7|"]);
    assert_eq!(ingest(&mut client, into_table("t", Create, Replace), vec![rows(4)]).await.unwrap(), 4);
    assert_eq!(count(&mut client).await, ["|4|"]);
    assert_eq!(ingest(&mut client, into_table("t", Create, Append), vec![rows(1)]).await.unwrap(), 1);
    assert_eq!(ingest(&mut client, into_table("u", Create, Append), vec![rows(1)]).await.unwrap(), 1);
    // A schema makes a table, without rows, too.
    assert_eq!(ingest(&mut client, into_table("v", Create, Fail), vec![rows(0)]).await.unwrap(), 0);
    assert_eq!(run(&mut client, "SELECT n FROM v").await.unwrap().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_go_through_the_pipelines_of_their_index() {
    let node = Node::start().await;
    let mut client = node.admin().await;
    let settings = json!({ "index.final_pipeline": "missing" });
    node.index_with("t", settings, json!({ "n": { "type": "long" } }), &[]).await;
    let rows = batch([("n", Arc::new(Int64Array::from_iter_values(0..3)) as ArrayRef)]);
    let ingested = ingest(&mut client, into_table("t", Missing, Append), vec![rows]).await;
    let error = status(ingested.unwrap_err());
    assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    assert!(error.message().contains("[missing] does not exist"), "{error}");
    assert_eq!(lines(&run(&mut client, "SELECT COUNT(*) AS c FROM t").await.unwrap()), ["|0|"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_is_replaced_only_by_rows_that_can_be_taken() {
    let node = Node::start().await;
    let mut client = node.admin().await;
    let replace = || into_table("t", Create, Replace);
    let floats = |value: f64| vec![batch([("f", Arc::new(Float64Array::from(vec![value])) as ArrayRef)])];
    assert_eq!(ingest(&mut client, replace(), floats(1.5)).await.unwrap(), 1);
    assert_eq!(code(ingest(&mut client, replace(), floats(f64::INFINITY)).await), Code::InvalidArgument);
    assert_eq!(lines(&run(&mut client, "SELECT f FROM t").await.unwrap()), ["|1.5|"]);
    assert_eq!(ingest(&mut client, replace(), floats(2.5)).await.unwrap(), 1);
    assert_eq!(lines(&run(&mut client, "SELECT f FROM t").await.unwrap()), ["|2.5|"]);
    // A template has the new index refuse the rows: the old one stays, and none is created.
    let template = json!({"index_patterns": ["t*"], "template": {"mappings": {"dynamic": "strict"}}});
    let decide =
        |metadata: &Metadata| metadata.put_template(TemplateKind::Index, "strict", template.clone(), false);
    Session::system(&node.listener.node.engine).change(decide).await.unwrap();
    let labels = || {
        let mut labels = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
        labels.keys().append_value("a");
        labels.values().append_value(1);
        labels.append(true).unwrap();
        vec![batch([("labels", Arc::new(labels.finish()) as ArrayRef)])]
    };
    for (table, option) in [("t", Replace), ("t-2", Fail)] {
        let refused = ingest(&mut client, into_table(table, Create, option), labels()).await;
        assert_eq!(code(refused), Code::InvalidArgument, "{table}");
    }
    assert_eq!(lines(&run(&mut client, "SELECT f FROM t").await.unwrap()), ["|2.5|"]);
    assert!(run(&mut client, "SELECT f FROM t-2").await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn times_of_any_year_are_taken() {
    let node = Node::start().await;
    let mut client = node.admin().await;
    let last = i64::MAX / 1_000;
    let years = [0, last, last + 1, -1, -620_000_000_000_000_000 / 10, 253_402_300_799_999_999];
    for (at, time) in years.into_iter().enumerate() {
        let table = format!("t{at}");
        let sent = batch([("at", Arc::new(TimestampMicrosecondArray::from(vec![time])) as ArrayRef)]);
        assert_eq!(
            ingest(&mut client, into_table(&table, Create, Fail), vec![sent]).await.unwrap(),
            1,
            "{time}"
        );
        let back = run(&mut client, &format!("SELECT at FROM {table}")).await.unwrap();
        let fits = (0..=last).contains(&time);
        let kind = if fits { "Timestamp(ns, \"UTC\")" } else { "Timestamp(ms, \"UTC\")" };
        assert_eq!(back[0].schema().field(0).data_type().to_string(), kind, "{time}");
        let millis = cast(back[0].column(0), &DataType::Timestamp(TimeUnit::Millisecond, None)).unwrap();
        assert_eq!(millis.as_primitive::<TimestampMillisecondType>().value(0), time.div_euclid(1_000));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_is_not_replaced_by_a_stream_that_is_broken_off() {
    let node = Node::start().await;
    let mut client = node.admin().await;
    let rows = |n: i64| batch([("n", Arc::new(Int64Array::from_iter_values(0..n)) as ArrayRef)]);
    assert_eq!(ingest(&mut client, into_table("t", Create, Fail), vec![rows(4)]).await.unwrap(), 4);
    for _ in 0..5 {
        // The schema has come, and no rows, when nobody waits any more.
        let begun = stream::iter([Ok(rows(0))]).chain(stream::pending());
        let replacing = client.execute_ingest(into_table("t", Create, Replace), begun);
        assert!(tokio::time::timeout(Duration::from_millis(100), replacing).await.is_err());
        assert_eq!(lines(&run(&mut client, "SELECT COUNT(*) AS c FROM t").await.unwrap()), ["|4|"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn values_come_back_with_their_types() {
    let node = Node::start().await;
    let mut client = node.admin().await;
    let sent = batch([
        ("text", Arc::new(StringArray::from(vec![Some("a b"), None])) as ArrayRef),
        ("n", Arc::new(Int32Array::from(vec![Some(-7), None]))),
        ("f", Arc::new(Float64Array::from(vec![Some(0.1), Some(f64::NAN)]))),
        ("ok", Arc::new(BooleanArray::from(vec![Some(true), None]))),
        ("at", Arc::new(TimestampMicrosecondArray::from(vec![Some(1_764_091_953_000_001), None]))),
    ]);
    assert_eq!(ingest(&mut client, into_table("t", Create, Fail), vec![sent]).await.unwrap(), 2);
    let back = run(&mut client, "SELECT text, n, f, ok, at FROM t WHERE n IS NOT NULL").await.unwrap();
    let kinds: Vec<String> =
        back[0].schema().fields().iter().map(|field| field.data_type().to_string()).collect();
    assert_eq!(kinds, ["Utf8", "Int32", "Float64", "Boolean", "Timestamp(ns, \"UTC\")"]);
    assert_eq!(lines(&back)[0], "|ab|-7|0.1|true|2025-11-25T17:32:33.000001Z|");
    let null = run(&mut client, "SELECT n FROM t WHERE text IS NULL AND f IS NULL").await.unwrap();
    assert_eq!(lines(&null).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_name_their_documents_are_written_once_and_the_last_stays() {
    let node = Node::start().await;
    let mut client = node.admin().await;
    let append = || into_table("people", Create, Append);
    let batches = || vec![people(&["a", "b"], &[1, 2]), people(&["a"], &[3])];
    for _ in 0..2 {
        assert_eq!(ingest(&mut client, append(), batches()).await.unwrap(), 3);
        let found = run(&mut client, "SELECT age FROM people ORDER BY age").await.unwrap();
        assert_eq!(lines(&found), ["|2|", "|3|"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partial_failure_says_how_much_was_written_and_why_not_more() {
    let node = Node::start().await;
    node.index("t", json!({ "n": { "type": "byte" } }), &[]).await;
    let mut client = node.admin().await;
    let sent = batch([("n", Arc::new(Int64Array::from(vec![1, 1_000, 3])) as ArrayRef)]);
    let error = status(ingest(&mut client, into_table("t", Missing, Append), vec![sent]).await.unwrap_err());
    assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    assert!(error.message().starts_with("[2] documents were written and [1] refused"), "{error}");
    assert!(error.message().contains("1000") || error.message().contains("[n]"), "{error}");
    assert_eq!(lines(&run(&mut client, "SELECT n FROM t ORDER BY n").await.unwrap()), ["|1|", "|3|"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_are_those_of_each_index() {
    let node = Node::start().await;
    node.index("own", json!({ "n": { "type": "long" } }), &[]).await;
    node.index("others", json!({ "n": { "type": "long" } }), &[]).await;
    node.user("ann", json!([{ "names": ["own"], "privileges": ["write", "read"] }])).await;
    let mut ann = node.client("ann", "password").await;
    let rows = || vec![batch([("n", Arc::new(Int64Array::from(vec![1])) as ArrayRef)])];
    assert_eq!(ingest(&mut ann, into_table("own", Missing, Append), rows()).await.unwrap(), 1);
    for (table, missing, existing) in [
        ("others", Missing, Append),
        ("absent", Missing, Append),
        ("absent", Create, Fail),
        ("own", Create, Replace),
        (".security", Create, Append),
    ] {
        let refused = code(ingest(&mut ann, into_table(table, missing, existing), rows()).await);
        assert_eq!(refused, Code::PermissionDenied, "{table}");
    }
    assert_eq!(lines(&run(&mut ann, "SELECT n FROM own").await.unwrap()), ["|1|"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_documents_can_be_made_of_is_refused() {
    let node = Node::start().await;
    let mut client = node.admin().await;
    let numbers = || Arc::new(Int64Array::from(vec![1])) as ArrayRef;
    let infinite = batch([("f", Arc::new(Float64Array::from(vec![f64::INFINITY])) as ArrayRef)]);
    for (table, sent) in [
        ("t", batch([("n", numbers()), ("n", numbers())])),
        ("t", batch([("", numbers())])),
        ("t", infinite),
        ("Upper", batch([("n", numbers())])),
        ("a*", batch([("n", numbers())])),
    ] {
        let refused = ingest(&mut client, into_table(table, Create, Append), vec![sent]).await;
        assert_eq!(code(refused), Code::InvalidArgument, "{table}");
    }
    let mut temporary = into_table("t", Create, Append);
    temporary.temporary = true;
    let sent = vec![batch([("n", numbers())])];
    assert_eq!(code(ingest(&mut client, temporary, sent).await), Code::Unimplemented);
    // A batch that is longer than messages may be.
    let long = batch([("text", Arc::new(StringArray::from(vec!["x".repeat(33 << 20)])) as ArrayRef)]);
    let error = ingest(&mut client, into_table("t", Create, Append), vec![long]).await.unwrap_err();
    assert_eq!(status(error).code(), Code::ResourceExhausted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_descriptor_of_many_names_is_refused_before_it_is_read() {
    let node = Node::start().await;
    let client = node.admin().await;
    let path = vec![String::new(); 1 << 20];
    let descriptor = FlightDescriptor { path, ..FlightDescriptor::new_cmd("SELECT 1") };
    let mut request = Request::new(stream::iter([FlightData::new().with_descriptor(descriptor)]));
    let token = format!("Bearer {}", client.token().unwrap());
    request.metadata_mut().insert("authorization", token.parse().unwrap());
    let error = client.inner().clone().do_put(request).await.map(drop).unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted, "{error}");
    assert!(error.message().contains("the descriptor of a message"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_acknowledged_survives_a_power_loss_whatever_the_durability() {
    let data = tempfile::tempdir().unwrap();
    let config = || Config { data_dir: data.path().to_owned(), ..Config::default() };
    let open = |disk: &SimulatedDisk, catalog: MemoryCatalog| {
        Engine::open_with(config(), Arc::new(SystemClock), Arc::new(disk.clone()), Arc::new(catalog))
    };
    let disk = SimulatedDisk::new(1);
    let catalog = Arc::new(MemoryCatalog::new(disk.clone()));
    let shared: Arc<dyn Catalog> = Arc::clone(&catalog) as _;
    let engine =
        Engine::open_with(config(), Arc::new(SystemClock), Arc::new(disk.clone()), shared).await.unwrap();
    let node = Node::with(Setup { engine: Some(engine), ..Setup::default() }).await;
    let settings = json!({ "index.translog.durability": "async", "index.translog.sync_interval": "1h" });
    let properties = json!({ "age": { "type": "integer" } });
    node.index_with("people", settings, properties, &[]).await;
    let mut client = node.admin().await;
    let append = || into_table("people", Missing, Append);
    let syncs = disk.sync_count();
    for (id, age) in [("a", 1), ("b", 2)] {
        assert_eq!(ingest(&mut client, append(), vec![people(&[id], &[age])]).await.unwrap(), 1);
    }
    assert!(disk.sync_count() >= syncs + 2, "each count is told when what it counts is on disk");
    let after = disk.power_loss();
    let catalog = catalog.reopen(after.clone());
    let again = open(&after, catalog).await.unwrap();
    let session = Session::system(&again);
    for id in ["a", "b"] {
        let found = session.get("people", id, None, true).await.unwrap();
        assert!(found.is_some(), "{id}");
    }
}
