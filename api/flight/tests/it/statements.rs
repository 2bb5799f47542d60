//! Statements and raw descriptors.

use arrow_flight::sql::CommandGetTables;
use arrow_flight::{Action, Criteria, FlightDescriptor, FlightInfo, IpcMessage};
use bytes::Bytes;
use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{DataType, Int64Type, Schema};
use futures::{StreamExt, TryStreamExt};
use prost::Message;
use serde_json::{Value, json};
use tonic::{Code, Request};

use crate::support::{Client, Node, code, fetch, lines, long, run, status, ticket};

async fn node() -> (Node, Client) {
    let node = Node::start().await;
    let documents: Vec<Value> = (0..10).map(|n| json!({ "n": n, "word": format!("w{n}") })).collect();
    node.index("logs", json!({ "n": { "type": "long" }, "word": { "type": "keyword" } }), &documents).await;
    let client = node.admin().await;
    (node, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_is_told_and_answered_with_one_schema() {
    let (_node, mut client) = node().await;
    let query = "SELECT n, word FROM logs WHERE n >= 8 ORDER BY n";
    let info = client.execute(query.to_owned(), None).await.unwrap();
    assert!(info.ordered);
    assert_eq!((info.total_records, info.endpoint.len()), (-1, 1));
    assert!(info.endpoint[0].location.is_empty() && info.endpoint[0].expiration_time.is_some());
    let told = info.clone().try_decode_schema().unwrap();
    let batches = fetch(&mut client, &info).await.unwrap();
    assert_eq!(told, *batches[0].schema());
    assert_eq!(told.field(1).data_type(), &DataType::Utf8);
    assert_eq!(lines(&batches), ["|8|w8|", "|9|w9|"]);
    // A ticket is good for several times.
    assert_eq!(lines(&fetch(&mut client, &info).await.unwrap()).len(), 2);
    // A schema comes without rows, too.
    let info = client.execute("SELECT n FROM logs WHERE n > 100".to_owned(), None).await.unwrap();
    let mut stream = client.do_get(ticket(&info)).await.unwrap();
    assert!(stream.next().await.is_none());
    assert_eq!(stream.schema().unwrap().field(0).name(), "n");
}

/// Has a client send the header that chooses the zone of timestamps.
fn with_zone(client: &Client, zone: &str) -> Client {
    let mut client = client.clone();
    client.set_header("x-timestamp-zone", zone);
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn timestamps_have_a_zone_or_none_in_every_schema() {
    let node = Node::start().await;
    let mapping =
        json!({ "at": { "type": "date" }, "nanos": { "type": "date_nanos" }, "times": { "type": "date" } });
    let instant = "2024-05-01T12:00:00.123Z";
    let document = json!({ "at": instant, "nanos": instant, "times": [instant, "2024-05-02T00:00:00Z"] });
    node.index("logs", mapping, &[document]).await;
    let utc = node.admin().await;
    let plain = with_zone(&utc, "none");
    let query = "SELECT at, nanos, times FROM logs";
    let has_zone = |schema: &Schema| {
        let text = format!("{schema:?}");
        assert!(
            text.contains("Timestamp(ms")
                || text.contains("Timestamp(Nanosecond")
                || text.contains("Timestamp(ns")
                || text.contains("Timestamp(µs")
                || text.contains("Timestamp(Millisecond"),
            "{text}"
        );
        text.contains("UTC")
    };
    let mut fetched = Vec::new();
    for (mut client, expected) in [(utc.clone(), true), (plain.clone(), false)] {
        let info = client.execute(query.to_owned(), None).await.unwrap();
        assert_eq!(has_zone(&info.clone().try_decode_schema().unwrap()), expected);
        let prepared = client.prepare(query.to_owned(), None).await.unwrap();
        assert_eq!(has_zone(prepared.dataset_schema().unwrap()), expected);
        let prepared = client.prepare("SELECT at FROM logs WHERE at > ?".to_owned(), None).await.unwrap();
        assert_eq!(has_zone(prepared.parameter_schema().unwrap()), expected);
        let listing = CommandGetTables { include_schema: true, ..Default::default() };
        let tables = client.get_tables(listing).await.unwrap();
        let tables = fetch(&mut client, &tables).await.unwrap();
        let schema = tables[0].column(4).as_binary::<i32>().value(0).to_vec();
        assert_eq!(has_zone(&Schema::try_from(IpcMessage(schema.into())).unwrap()), expected);
        // Another client may fetch an answer with the ticket of this one.
        for mut other in [utc.clone(), plain.clone()] {
            let batches = fetch(&mut other, &info).await.unwrap();
            assert_eq!(has_zone(&batches[0].schema()), expected);
            fetched.push(lines(&batches)[0].replace('Z', ""));
        }
    }
    assert!(fetched[0].contains("2024-05-01T12:00:00.123"), "{fetched:?}");
    assert!(fetched.iter().all(|row| *row == fetched[0]), "{fetched:?}");
    assert_eq!(code(with_zone(&utc, "CET").execute(query.to_owned(), None).await), Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_have_codes_and_the_words_of_statements() {
    let (_node, mut client) = node().await;
    for (query, code, words) in [
        ("SELEKT 1", Code::InvalidArgument, ""),
        ("SELECT nothing FROM logs", Code::InvalidArgument, "nothing"),
        ("SELECT * FROM missing", Code::NotFound, "no such index [missing]"),
    ] {
        let error = status(client.execute(query.to_owned(), None).await.unwrap_err());
        assert_eq!(error.code(), code, "{query}: {error}");
        assert!(error.message().contains(words), "{error}");
    }
    let long = || format!("DELETE FROM logs WHERE word = '{}'", "x".repeat(512 << 10));
    assert_eq!(code(client.execute_update(long(), None).await), Code::ResourceExhausted);
    assert_eq!(code(client.execute(long(), None).await), Code::ResourceExhausted);
    assert_eq!(code(client.prepare(long(), None).await.map(drop)), Code::ResourceExhausted);
    let transaction = Some(Bytes::from_static(b"t"));
    assert_eq!(
        code(client.execute("SHOW TABLES LIKE '%'".to_owned(), transaction.clone()).await),
        Code::Unimplemented
    );
    assert_eq!(
        code(client.execute_update("DELETE FROM logs".to_owned(), transaction).await),
        Code::Unimplemented
    );
    assert_eq!(code(client.begin_transaction().await), Code::Unimplemented);
    for name in ["CreatePreparedSubstraitPlan", "BeginSavepoint", "EndSavepoint", "EndTransaction", "Nothing"]
    {
        assert_eq!(code(client.do_action(Action::new(name, "")).await), Code::Unimplemented, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_are_deleted_and_counted() {
    let (node, mut client) = node().await;
    let refused = client.execute_update("DELETE FROM logs".to_owned(), None).await;
    assert_eq!(code(refused), Code::FailedPrecondition, "a setting forbids it");
    node.allow_deletion().await;
    assert_eq!(client.execute_update("DELETE FROM logs WHERE n < 2".to_owned(), None).await.unwrap(), 2);
    // As those clients do it that know queries only: nothing happens before the answer is fetched.
    let info = client.execute("DELETE FROM logs WHERE n < 5".to_owned(), None).await.unwrap();
    assert_eq!(lines(&fetch(&mut client, &info).await.unwrap()), ["|3|"]);
    assert_eq!(lines(&fetch(&mut client, &info).await.unwrap()), ["|0|"]);
    let error = client.execute_update("SELECT * FROM logs".to_owned(), None).await.unwrap_err();
    assert_eq!(status(error).code(), Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn raw_descriptors_are_paths_of_tables_and_texts_of_statements() {
    let (node, client) = node().await;
    let token = format!("Bearer {}", client.token().unwrap());
    let mut sql = client.clone();
    let mut raw = client.into_inner();
    let path = FlightDescriptor::new_path(vec!["logs".to_owned()]);
    let with = |descriptor: FlightDescriptor| {
        let mut request = Request::new(descriptor);
        request.metadata_mut().insert("authorization", token.parse().unwrap());
        request
    };
    let schema = raw.get_schema(with(path.clone())).await.unwrap().into_inner();
    let schema = Schema::try_from(IpcMessage(schema.schema)).unwrap();
    assert_eq!(schema.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>(), ["n", "word"]);
    let info: FlightInfo = raw.get_flight_info(with(path)).await.unwrap().into_inner();
    assert_eq!(lines(&fetch(&mut sql, &info).await.unwrap()).len(), 10);
    let info = raw.get_flight_info(with(FlightDescriptor::new_cmd("SELECT n FROM logs"))).await.unwrap();
    assert_eq!(lines(&fetch(&mut sql, &info.into_inner()).await.unwrap()).len(), 10);
    let polled = raw
        .poll_flight_info(with(FlightDescriptor::new_cmd("SELECT n FROM logs")))
        .await
        .unwrap()
        .into_inner();
    assert!(polled.flight_descriptor.is_none());
    assert_eq!(lines(&fetch(&mut sql, &polled.info.unwrap()).await.unwrap()).len(), 10);
    let wrong = raw.get_flight_info(with(FlightDescriptor::new_path(vec!["a".into(), "b".into()]))).await;
    assert_eq!(wrong.unwrap_err().code(), Code::InvalidArgument);

    node.index("metrics", json!({ "v": { "type": "double" } }), &[json!({ "v": 1.5 })]).await;
    node.user("ann", json!([{ "names": ["metrics"], "privileges": ["read"] }])).await;
    let ann = node.client("ann", "password").await;
    let mut request = Request::new(Criteria::default());
    request
        .metadata_mut()
        .insert("authorization", format!("Bearer {}", ann.token().unwrap()).parse().unwrap());
    let listed = ann.clone().into_inner().list_flights(request).await.unwrap().into_inner();
    let listed: Vec<FlightInfo> = listed.try_collect().await.unwrap();
    let paths: Vec<_> = listed.iter().map(|info| info.flight_descriptor.clone().unwrap().path).collect();
    assert_eq!(paths, [["metrics"]]);
    assert_eq!(lines(&fetch(&mut ann.clone(), &listed[0]).await.unwrap()), ["|1.5|"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn long_answers_come_whole_and_in_messages_that_clients_take() {
    let (_node, mut client) = node().await;
    long(&mut client).await;
    let info = client.execute("SELECT n, text FROM long".to_owned(), None).await.unwrap();
    let token = format!("Bearer {}", client.token().unwrap());
    let mut request = Request::new(ticket(&info));
    request.metadata_mut().insert("authorization", token.parse().unwrap());
    let mut stream = client.inner().clone().do_get(request).await.unwrap().into_inner();
    let (mut messages, mut longest) = (0, 0);
    while let Some(message) = stream.message().await.unwrap() {
        messages += 1;
        longest = longest.max(message.encoded_len());
    }
    assert!(messages > 4 && longest < 4 << 20, "{messages} {longest}");
    let batches = fetch(&mut client, &info).await.unwrap();
    let mut seen: Vec<i64> = batches
        .iter()
        .flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec())
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..10_000).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_being_fetched_can_be_cancelled() {
    let (_node, mut client) = node().await;
    long(&mut client).await;
    // More than the buffers between here and there hold.
    let info = client.execute("SELECT n, text FROM long".to_owned(), None).await.unwrap();
    let cancel = |info: FlightInfo| {
        let body = arrow_flight::CancelFlightInfoRequest { info: Some(info) }.encode_to_vec();
        Action::new("CancelFlightInfo", body)
    };
    let cancelled = async |client: &mut Client, info: &FlightInfo| {
        let result = client.do_action(cancel(info.clone())).await.unwrap().message().await.unwrap().unwrap();
        arrow_flight::CancelFlightInfoResult::decode(result.body).unwrap().status
    };
    // `NOT_CANCELLABLE`: it does not run.
    assert_eq!(cancelled(&mut client, &info).await, 3);
    let mut stream = client.do_get(ticket(&info)).await.unwrap();
    stream.next().await.unwrap().unwrap();
    assert_eq!(cancelled(&mut client, &info).await, 1);
    let rest: Result<Vec<_>, _> = stream.try_collect().await;
    assert_eq!(code(rest), Code::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mapping_that_changes_between_info_and_answer_is_an_error() {
    let (node, mut client) = node().await;
    let info = client.execute("SELECT * FROM logs".to_owned(), None).await.unwrap();
    node.put_mapping("logs", json!({ "more": { "type": "keyword" } })).await;
    let error = status(fetch(&mut client, &info).await.unwrap_err());
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert!(error.message().contains("anew"), "{error}");
    assert_eq!(run(&mut client, "SELECT * FROM logs").await.unwrap()[0].num_columns(), 3);
}
