//! Answers in lines on the wire: chunk by chunk, broken off at an error, and ended by a client that goes away.

use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use flate2::read::GzDecoder;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::server::start;
use crate::support::Node;

const PAIRS: &str = "SELECT a.n, b.n FROM numbers a CROSS JOIN numbers b";
/// The sum is too large at the last pair only.
const LATE: &str = "SELECT a.n * 300 + b.n + 9223372036854685809 FROM numbers a CROSS JOIN numbers b";
const ENDLESS: &str = "SELECT a.n FROM numbers a CROSS JOIN numbers b CROSS JOIN numbers c";

async fn numbers() -> Node {
    let node = Node::insecure().await;
    let lines: String = (0..300).map(|n| format!("{{\"index\":{{}}}}\n{{\"n\":{n}}}\n")).collect();
    node.ask("POST /numbers/_bulk?refresh=true", &lines, 200).await;
    node
}

fn body(query: &str) -> String {
    json!({"query": query, "fetch_size": 0}).to_string()
}

/// Asks for an answer in csv on a connection of its own, which closes behind it.
async fn connect(address: SocketAddr, query: &str) -> TcpStream {
    let body = body(query);
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /_plugins/_sql?format=csv HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    stream
}

async fn answer(address: SocketAddr, query: &str) -> String {
    let mut text = Vec::new();
    let _ = connect(address, query).await.read_to_end(&mut text).await;
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn lines_are_sent_in_chunks_and_break_off_at_an_error() {
    let node = numbers().await;
    let running = start(&node, None).await;
    let whole = answer(running.address, PAIRS).await;
    assert!(
        whole.starts_with("HTTP/1.1 200") && whole.contains("transfer-encoding: chunked"),
        "{}",
        &whole[..500]
    );
    assert!(!whole.contains("content-length") && whole.ends_with("0\r\n\r\n"));
    let broken = answer(running.address, LATE).await;
    assert!(broken.starts_with("HTTP/1.1 200") && !broken.ends_with("0\r\n\r\n"), "{}", &broken[..500]);
    let refused = answer(running.address, "SELECT n + 9223372036854775800 FROM numbers").await;
    assert!(
        refused.starts_with("HTTP/1.1 400") && refused.contains("ExpressionEvaluationException"),
        "{refused}"
    );
    let short = answer(running.address, "SELECT n FROM numbers WHERE n < 1").await;
    assert!(short.contains("content-length: 4\r\n") && short.ends_with("\r\n\r\nn\n0\n"), "{short}");
}

#[tokio::test]
async fn compressed_chunks_are_the_same_lines() {
    let node = numbers().await;
    let line = "POST /_plugins/_sql?format=raw";
    let plain = node.send(line, &[], body(PAIRS)).await;
    let compressed = node.send(line, &[("accept-encoding", "gzip")], body(PAIRS)).await;
    assert_eq!(compressed.headers["content-encoding"], "gzip");
    assert_eq!(compressed.headers["vary"], "accept-encoding");
    assert_eq!(compressed.headers["content-type"], plain.headers["content-type"]);
    let mut text = Vec::new();
    GzDecoder::new(&compressed.bytes[..]).read_to_end(&mut text).unwrap();
    let sorted = |text: &[u8]| {
        let mut lines: Vec<_> = text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        lines.sort_unstable();
        lines
    };
    assert!(compressed.bytes.len() < text.len() / 2 && text.len() == plain.bytes.len());
    assert!(sorted(&text) == sorted(&plain.bytes));
}

#[tokio::test]
async fn lines_for_people_are_aligned() {
    let node = numbers().await;
    let query = "SELECT n AS number, n * 100 AS m FROM numbers WHERE n < 2 ORDER BY n";
    let answer = node.send("POST /_plugins/_sql?format=raw&pretty", &[], body(query)).await;
    assert_eq!(std::str::from_utf8(&answer.bytes).unwrap(), "number|m  \n0     |0  \n1     |100\n");
}

#[tokio::test]
async fn a_client_that_goes_away_ends_its_statement() {
    let node = numbers().await;
    let running = start(&node, None).await;
    let mut stream = connect(running.address, ENDLESS).await;
    let mut some = vec![0; 1 << 20];
    stream.read_exact(&mut some).await.unwrap();
    // What requests before it held may be let go meanwhile, so that a count from before it would prove nothing.
    let during = Arc::strong_count(&node.api.engine);
    drop(stream);
    let ended = async {
        while Arc::strong_count(&node.api.engine) >= during {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), ended).await.unwrap();
}
