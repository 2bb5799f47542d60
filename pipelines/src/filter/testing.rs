//! Servers and events for tests of filters that ask other servers.

use std::sync::Arc;

use chrono::DateTime;
use millrace_ingest::Event;
use millrace_ingest::budget::AnswerAllowance;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::{Outcome, RemoteFilter};

/// Applies a filter to an event with these fields; returns the fields behind it.
pub(super) async fn apply_remote(filter: &Arc<dyn RemoteFilter>, fields: Value) -> (Outcome, Value) {
    let mut event = Event::from_fields(fields.as_object().cloned().unwrap(), DateTime::UNIX_EPOCH);
    let outcome = filter.apply(&mut event, &AnswerAllowance::default()).await;
    (outcome, Value::Object(event.fields().clone()))
}

/// Starts a server that answers each request in this way; returns its address, and the requests that it gets.
pub(super) async fn answering_server(
    status: &str,
    media_type: &str,
    body: &str,
) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let requests: Arc<Mutex<Vec<String>>> = Arc::default();
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {media_type}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let noted = Arc::clone(&requests);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            let mut buffer = [0; 4096];
            while !is_whole(&request) {
                match stream.read(&mut buffer).await {
                    Ok(length @ 1..) => request.extend_from_slice(&buffer[..length]),
                    _ => break,
                }
            }
            noted.lock().push(String::from_utf8_lossy(&request).into_owned());
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (address, requests)
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0)
}
