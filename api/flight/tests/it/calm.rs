//! Streams that are calm for longer than any time of the listener.

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::sql::TableExistsOption::Append;
use arrow_flight::sql::TableNotExistOption::Create;
use arrow_flight::sql::client::FlightSqlServiceClient;
use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use futures::{StreamExt, TryStreamExt, stream};
use millrace_flight::Flight;
use millrace_listen::{Config, Listener, Server};
use tokio::sync::oneshot;
use tonic::transport::Endpoint;

use crate::support::{Client, Node, batch, into_table, long, ticket};

/// The longest time of the listener.
const IDLE: Duration = Duration::from_millis(400);
/// For which nothing moves.
const CALM: Duration = Duration::from_millis(1_600);

/// Serves a node's Flight once more, by a listener whose times are short.
async fn hasty(node: &Node) -> (Client, oneshot::Sender<()>) {
    let short = Duration::from_millis(200);
    let config =
        Config { head_timeout: short, write_timeout: short, idle_timeout: IDLE, ..Config::default() };
    let listener = Listener::bind("flight", "127.0.0.1:0".parse().unwrap(), None).await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut server = Server::new(config);
    server.add(listener, Arc::new(Flight::new(node.listener.clone())));
    let (stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(server.run(async {
        let _ = stopped.await;
    }));
    // The connection is made with the first call, and anew where it has ended.
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy();
    let mut client = FlightSqlServiceClient::new(channel);
    let token = node.listener.node.accounts.login("admin", "secret", address.ip()).await.unwrap().token;
    client.set_token(token);
    (client, stop)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_waits_for_its_reader_and_goes_on() {
    let node = Node::start().await;
    let rows = long(&mut node.admin().await).await.num_rows();
    let (mut client, _stop) = hasty(&node).await;
    let info = client.execute("SELECT n, text FROM long".to_owned(), None).await.unwrap();
    let mut answer = client.do_get(ticket(&info)).await.unwrap();
    let first = answer.next().await.unwrap().unwrap().num_rows();
    assert!(first < rows / 2, "{first}");
    tokio::time::sleep(CALM).await;
    let rest: Vec<RecordBatch> = answer.try_collect().await.unwrap();
    assert_eq!(first + rest.iter().map(RecordBatch::num_rows).sum::<usize>(), rows);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ingestion_waits_for_its_sender_and_goes_on() {
    let node = Node::start().await;
    let (mut client, _stop) = hasty(&node).await;
    let numbers = |n: i64| batch([("n", Arc::new(Int64Array::from(vec![n])) as ArrayRef)]);
    let batches = stream::iter([numbers(1), numbers(2)]).enumerate().then(|(number, rows)| async move {
        if number > 0 {
            tokio::time::sleep(CALM).await;
        }
        Ok(rows)
    });
    let written = client.execute_ingest(into_table("calm", Create, Append), batches).await.unwrap();
    assert_eq!(written, 2);
}
