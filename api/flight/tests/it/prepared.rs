//! Prepared statements.

use std::sync::Arc;

use arrow_flight::sql::{
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest,
    ActionCreatePreparedStatementResult, Any, CommandPreparedStatementQuery, ProstMessageExt,
};
use arrow_flight::{Action, FlightDescriptor, FlightInfo};
use bytes::Bytes;
use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::DataType;
use prost::Message;
use serde_json::{Value, json};
use tonic::{Code, Request};

use crate::support::{Client, Node, batch, code, fetch, lines, status};

async fn node() -> (Node, Client) {
    let node = Node::start().await;
    let documents: Vec<Value> = (0..10).map(|n| json!({ "n": n })).collect();
    node.index("logs", json!({ "n": { "type": "long" } }), &documents).await;
    let client = node.admin().await;
    (node, client)
}

fn numbers(numbers: &[i64]) -> RecordBatch {
    batch([("1", Arc::new(Int64Array::from(numbers.to_vec())) as ArrayRef)])
}

async fn prepare(client: &mut Client, query: &str) -> Bytes {
    let request = ActionCreatePreparedStatementRequest { query: query.to_owned(), transaction_id: None };
    let action = Action::new("CreatePreparedStatement", request.as_any().encode_to_vec());
    let result = client.do_action(action).await.unwrap().message().await.unwrap().unwrap();
    let result: ActionCreatePreparedStatementResult =
        Any::decode(result.body).unwrap().unpack().unwrap().unwrap();
    result.prepared_statement_handle
}

async fn info(client: &Client, handle: &Bytes) -> Result<FlightInfo, tonic::Status> {
    let command = CommandPreparedStatementQuery { prepared_statement_handle: handle.clone() };
    let mut request = Request::new(FlightDescriptor::new_cmd(command.as_any().encode_to_vec()));
    request
        .metadata_mut()
        .insert("authorization", format!("Bearer {}", client.token().unwrap()).parse().unwrap());
    Ok(client.inner().clone().get_flight_info(request).await?.into_inner())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_statement_runs_with_what_is_bound() {
    let (_node, mut client) = node().await;
    let mut statement =
        client.prepare("SELECT n FROM logs WHERE n > ? ORDER BY n".to_owned(), None).await.unwrap();
    assert_eq!(statement.parameter_schema().unwrap().fields().len(), 1);
    assert_eq!(statement.dataset_schema().unwrap().field(0).data_type(), &DataType::Int64);
    // Values are missing when it is fetched, not before: its columns do not depend on them.
    let unbound = statement.execute().await.unwrap();
    assert_eq!(code(fetch(&mut client, &unbound).await), Code::InvalidArgument);
    for (bound, expected) in [(7, &["|8|", "|9|"][..]), (8, &["|9|"])] {
        statement.set_parameters(numbers(&[bound])).unwrap();
        let info = statement.execute().await.unwrap();
        assert_eq!(lines(&fetch(&mut client, &info).await.unwrap()), expected);
    }
    // A query takes one row of values, with as many as it has parameters.
    statement.set_parameters(numbers(&[1, 2])).unwrap();
    let two = statement.execute().await.unwrap();
    assert_eq!(code(fetch(&mut client, &two).await), Code::InvalidArgument);
    let pair =
        [("1", Arc::new(Int64Array::from(vec![1])) as ArrayRef), ("2", Arc::new(Int64Array::from(vec![1])))];
    statement.set_parameters(batch(pair)).unwrap();
    assert_eq!(code(statement.execute().await), Code::InvalidArgument);
    statement.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_deletion_runs_for_each_row_that_is_bound() {
    let (node, mut client) = node().await;
    node.allow_deletion().await;
    let mut statement = client.prepare("DELETE FROM logs WHERE n = ?".to_owned(), None).await.unwrap();
    assert_eq!(statement.dataset_schema().unwrap().fields().len(), 0);
    statement.set_parameters(numbers(&[1, 3, 3, 100])).unwrap();
    assert_eq!(statement.execute_update().await.unwrap(), 2);
    let mut query = client.prepare("SELECT n FROM logs".to_owned(), None).await.unwrap();
    assert_eq!(code(query.execute_update().await), Code::InvalidArgument);
    let left = query.execute().await.unwrap();
    assert_eq!(lines(&fetch(&mut client, &left).await.unwrap()).len(), 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn handles_are_their_owners_and_end_when_they_are_closed() {
    let (node, mut client) = node().await;
    node.user("ann", json!([{ "names": ["*"], "privileges": ["all"] }])).await;
    let mut ann = node.client("ann", "password").await;
    let handle = prepare(&mut client, "SELECT n FROM logs").await;
    assert!(info(&client, &handle).await.is_ok());
    assert_eq!(info(&ann, &handle).await.unwrap_err().code(), Code::InvalidArgument);
    let of_admin = info(&client, &handle).await.unwrap();
    assert_eq!(code(fetch(&mut ann, &of_admin).await), Code::InvalidArgument);
    let close = || {
        let request = ActionClosePreparedStatementRequest { prepared_statement_handle: handle.clone() };
        Action::new("ClosePreparedStatement", request.as_any().encode_to_vec())
    };
    assert_eq!(code(ann.do_action(close()).await), Code::InvalidArgument);
    assert!(info(&client, &handle).await.is_ok(), "it is not closed by others");
    client.do_action(close()).await.unwrap();
    let error = info(&client, &handle).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert!(error.message().contains("prepare it anew"), "{error}");
    assert_eq!(code(fetch(&mut client, &of_admin).await), Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_values_and_other_mappings_are_told_from_those_of_the_info() {
    let (node, mut client) = node().await;
    let mut statement = client.prepare("SELECT * FROM logs WHERE n = ?".to_owned(), None).await.unwrap();
    statement.set_parameters(numbers(&[1])).unwrap();
    let first = statement.execute().await.unwrap();
    statement.set_parameters(numbers(&[2])).unwrap();
    let second = statement.execute().await.unwrap();
    assert_eq!(code(fetch(&mut client, &first).await), Code::FailedPrecondition);
    assert_eq!(lines(&fetch(&mut client, &second).await.unwrap()), ["|2|"]);
    // A change of the mapping makes a new plan, and an info that is older an error.
    node.put_mapping("logs", json!({ "more": { "type": "keyword" } })).await;
    let error = status(fetch(&mut client, &second).await.unwrap_err());
    assert_eq!(error.code(), Code::FailedPrecondition, "{error}");
    let third = statement.execute().await.unwrap();
    assert_eq!(third.clone().try_decode_schema().unwrap().fields().len(), 2);
    assert_eq!(fetch(&mut client, &third).await.unwrap()[0].num_columns(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_has_a_thousand_prepared_statements_with_all_its_api_keys() {
    let (node, mut other) = node().await;
    node.user("ann", json!([{ "names": ["*"], "privileges": ["all"] }])).await;
    let mut clients = vec![node.client("ann", "password").await];
    for _ in 0..3 {
        let mut of_key = node.connect().await;
        of_key.set_header("authorization", format!("ApiKey {}", node.api_key("ann").await));
        clients.push(of_key);
    }
    for turn in 0..1_000 {
        prepare(&mut clients[turn % 4], "SHOW TABLES LIKE 'x'").await;
    }
    let prepares = async |client: &mut Client| {
        let query = "SHOW TABLES LIKE 'x'".to_owned();
        let request = ActionCreatePreparedStatementRequest { query, transaction_id: None };
        let action = Action::new("CreatePreparedStatement", request.as_any().encode_to_vec());
        client.do_action(action).await.map(drop)
    };
    for client in &mut clients {
        assert_eq!(code(prepares(client).await), Code::ResourceExhausted);
    }
    prepares(&mut other).await.unwrap();
}
