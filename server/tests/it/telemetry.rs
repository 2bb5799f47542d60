//! Spans for a collector, and JSON logs with the trace of a request.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::process::{Server, http_client, millrace, run};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PATIENCE: Duration = Duration::from_secs(60);

/// A request to the collector: its first line and its body.
type Export = (String, Vec<u8>);

/// Starts a collector that takes every request.
async fn collector() -> (String, mpsc::UnboundedReceiver<Export>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let sender = sender.clone();
            tokio::spawn(async move {
                let mut connection = BufReader::new(connection);
                while let Some(export) = take_export(&mut connection).await {
                    let _ = sender.send(export);
                }
            });
        }
    });
    (endpoint, receiver)
}

/// Reads a request and answers it; `None` at the end of the connection.
async fn take_export(connection: &mut BufReader<TcpStream>) -> Option<Export> {
    let (mut first, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if connection.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if first.is_empty() {
            first = line;
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body).await.ok()?;
    connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.ok()?;
    Some((first, body))
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Sends a request in the trace.
async fn send_in_trace(server: &Server, method: Method, path: &str, body: &Value) -> Value {
    let answer = http_client()
        .request(method, format!("{}{path}", server.url))
        .header("content-type", "application/json")
        .header("traceparent", format!("00-{TRACE}-00f067aa0ba902b7-01"))
        .body(body.to_string())
        .send()
        .await
        .unwrap();
    assert!(answer.status().is_success(), "{path}: {}", answer.status());
    answer.json().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_reach_the_collector_in_the_trace_of_the_caller() {
    let (endpoint, mut exports) = collector().await;
    let data = tempfile::tempdir().unwrap();
    let mut command = millrace(&["serve", "--listen", "127.0.0.1:0", "--insecure", "--data"]);
    command.arg(data.path()).env("MILLRACE_TELEMETRY__OTLP_ENDPOINT", endpoint);
    command.env("MILLRACE_LOG__FORMAT", "json").env("MILLRACE_LOG__ACCESS", "true");
    let server = Server::new(&mut command);
    send_in_trace(&server, Method::PUT, "/logs/_doc/1?refresh=true", &json!({ "n": 1 })).await;
    let found =
        send_in_trace(&server, Method::POST, "/logs/_search", &json!({ "query": { "term": { "n": 1 } } }))
            .await;
    assert_eq!(found["hits"]["total"]["value"], 1);
    let statement = json!({ "query": "SELECT COUNT(*) FROM logs WHERE n = 1" });
    send_in_trace(&server, Method::POST, "/_plugins/_sql", &statement).await;
    server.signal(rustix::process::Signal::TERM);
    let trace: Vec<u8> =
        (0..16).map(|at| u8::from_str_radix(&TRACE[2 * at..2 * at + 2], 16).unwrap()).collect();
    let mut missing = vec!["/{index}/_search", "query phase", "fetch phase", "segment", "write", "statement"];
    while !missing.is_empty() {
        let (line, body) = timeout(PATIENCE, exports.recv())
            .await
            .unwrap_or_else(|_| panic!("{missing:?} do not come"))
            .unwrap_or_else(|| panic!("{missing:?} are missing"));
        assert!(line.starts_with("post /v1/traces"), "{line}");
        if contains(&body, &trace) {
            missing.retain(|name| !contains(&body, name.as_bytes()));
        }
    }
    let (status, log) = server.wait();
    assert_eq!(status.code(), Some(0), "{log}");
    // The access log's line of the search has the trace and the request's fields.
    let line = log.lines().find(|line| line.contains("/_search") && line.contains("\"access\"")).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    let request = &line["spans"][0];
    for (field, value) in [
        ("name", "request"),
        ("trace_id", TRACE),
        ("route", "/{index}/_search"),
        ("index", "logs"),
        ("listener", "data"),
        ("method", "POST"),
    ] {
        assert_eq!(request[field], value, "{line}");
    }
    assert!(request["principal"].is_string(), "{line}");
}

#[test]
fn an_endpoint_that_is_no_url_stops_the_start() {
    let data = tempfile::tempdir().unwrap();
    let mut command = millrace(&["serve", "--listen", "127.0.0.1:0", "--insecure", "--data"]);
    command.arg(data.path()).env("MILLRACE_TELEMETRY__OTLP_ENDPOINT", "localhost:4317");
    let (code, _, errors) = run(&mut command);
    assert_ne!(code, Some(0));
    assert!(errors.contains("telemetry.otlp_endpoint"), "{errors}");
}
