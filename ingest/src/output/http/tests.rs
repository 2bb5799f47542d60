//! Requests that servers accept, redirect and refuse.

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::input::testing::{OptionValue, options};

/// Answers requests with statuses in turns; returns the address, and what was requested.
async fn server(statuses: &'static [u16]) -> (String, tokio::task::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let requests = tokio::spawn(async move {
        let mut requests = Vec::new();
        for status in statuses {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = Vec::new();
            loop {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                if let Some((head, body)) = text.split_once("\r\n\r\n") {
                    let length = head
                        .lines()
                        .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
                    if body.len() >= length.unwrap_or(0) {
                        requests.push(text);
                        break;
                    }
                }
                let mut buffer = [0; 4096];
                let read = stream.read(&mut buffer).await.unwrap();
                assert!(read > 0, "the request is whole");
                bytes.extend_from_slice(&buffer[..read]);
            }
            let answer = format!(
                "HTTP/1.1 {status} X\r\ncontent-length: 2\r\nlocation: /moved\r\nconnection: close\r\n\r\nno"
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        requests
    });
    (address, requests)
}

fn events(count: i64) -> Vec<(Arc<Event>, Option<String>)> {
    let event = |number| {
        let mut event = Event::new(chrono::DateTime::UNIX_EPOCH);
        event.fields_mut().insert("n".to_owned(), json!(number));
        (Arc::new(event), None)
    };
    (0..count).map(event).collect()
}

async fn send(given: &[(&str, OptionValue)], count: i64) -> Vec<RefusedEvent> {
    let sink = configured(options("http", given), Duration::from_millis(1)).unwrap();
    sink.send(&events(count), watch::Sender::new(false).subscribe(), OrderTicket::new().0).await.unwrap()
}

#[tokio::test]
async fn each_event_is_a_request_and_refusals_are_for_good() {
    let (address, requests) = server(&[200, 404]).await;
    let url = format!("{address}/x/%{{n}}");
    let given = [
        ("url", url.into()),
        ("http_method", "post".into()),
        ("headers", [("x-number", "%{n}")].into()),
        ("pool_max", "1".into()),
        // It has no effect.
        ("codec", "json_lines".into()),
    ];
    let refused = send(&given, 2).await;
    assert_eq!(refused.len(), 1);
    assert!(refused[0].event == 1 && refused[0].reason.contains("404: no"), "{refused:?}");
    let requests = requests.await.unwrap();
    assert!(requests[0].starts_with("POST /x/0 ") && requests[0].contains("x-number: 0"), "{requests:?}");
    assert!(requests[0].ends_with(r#"{"@timestamp":"1970-01-01T00:00:00.000Z","n":0}"#), "{requests:?}");
    assert!(requests[0].contains("content-type: application/json"), "{requests:?}");
}

#[tokio::test]
async fn overloaded_servers_get_the_request_again() {
    let (address, requests) = server(&[503, 429, 201]).await;
    let given = [
        ("url", address.into()),
        ("http_method", "put".into()),
        ("format", "json_batch".into()),
        ("mapping", [("m", "%{n}")].into()),
    ];
    assert_eq!(send(&given, 2).await, Vec::new());
    let requests = requests.await.unwrap();
    assert_eq!(requests.len(), 3);
    assert!(requests.iter().all(|request| request.ends_with(r#"[{"m":"0"},{"m":"1"}]"#)), "{requests:?}");
}

#[tokio::test]
async fn a_request_that_is_too_large_is_sent_in_halves() {
    // Three events, then two and one, then one and one: one of these is too large by itself.
    let (address, requests) = server(&[413, 413, 200, 413, 503, 200]).await;
    let given = [
        ("url", format!("{address}/%{{n}}").into()),
        ("http_method", "post".into()),
        ("format", "json_batch".into()),
        ("mapping", [("m", "%{n}")].into()),
    ];
    let refused = send(&given, 3).await;
    assert!(matches!(refused.as_slice(), [refused] if refused.event == 1), "{refused:?}");
    let requests = requests.await.unwrap();
    let sent = [
        ("/0", r#"[{"m":"0"},{"m":"1"},{"m":"2"}]"#),
        ("/0", r#"[{"m":"0"},{"m":"1"}]"#),
        ("/0", r#"[{"m":"0"}]"#),
        ("/1", r#"[{"m":"1"}]"#),
        ("/2", r#"[{"m":"2"}]"#),
        ("/2", r#"[{"m":"2"}]"#),
    ];
    assert_eq!(requests.len(), sent.len());
    for (request, (path, body)) in requests.iter().zip(sent) {
        assert!(request.starts_with(&format!("POST {path} ")) && request.ends_with(body), "{request}");
    }
}

#[test]
fn requests_of_many_events_are_bounded() {
    let given = [
        ("url", "http://a/".into()),
        ("http_method", "post".into()),
        ("format", "json_batch".into()),
        ("mapping", [("m", "%{text}")].into()),
    ];
    let http = configured(options("http", &given), FIRST_PAUSE).unwrap();
    for (count, bytes, expected) in [(2_500, 1, 3), (20, 1 << 20, 5), (2, 6 << 20, 2), (0, 0, 0)] {
        let event = |_| {
            let mut event = Event::new(chrono::DateTime::UNIX_EPOCH);
            event.set_text("text", &"x".repeat(bytes));
            (Arc::new(event), None)
        };
        let events: Vec<_> = (0..count).map(event).collect();
        let (requests, refused) = http.shared.make(&events);
        assert!(refused.is_empty());
        assert_eq!(requests.len(), expected, "{count} {bytes}");
        let mut next = 0;
        for request in requests {
            assert_eq!(request.events.start, next);
            next = request.events.end;
            assert!(request.events.len() == 1 || request.body.len() <= MAX_BATCH_BYTES);
            let sent: Vec<Value> = serde_json::from_slice(&request.body).unwrap();
            assert_eq!(sent.len(), request.events.len());
        }
        assert_eq!(next, count);
    }
}

#[tokio::test]
async fn redirects_that_lose_the_body_refuse_the_event() {
    let (address, requests) = server(&[301, 308, 200]).await;
    let given = [("url", address.into()), ("http_method", "post".into()), ("pool_max", "1".into())];
    let refused = send(&given, 2).await;
    assert!(matches!(refused.as_slice(), [refused] if refused.event == 0), "{refused:?}");
    let requests = requests.await.unwrap();
    assert!(requests[2].starts_with("POST /moved ") && requests[2].ends_with(r#""n":1}"#), "{requests:?}");
}

#[tokio::test]
async fn addresses_without_a_scheme_refuse_the_event() {
    let given = [("url", "localhost:%{n}/x".into()), ("http_method", "post".into())];
    let refused = send(&given, 1).await;
    assert!(matches!(refused.as_slice(), [refused] if refused.reason.contains("[localhost]")), "{refused:?}");
}

#[test]
fn wrong_options_are_named() {
    for (given, expected) in [
        (vec![("http_method", OptionValue::from("post"))], "needs the option [url]"),
        (vec![("url", "http://a/".into())], "needs the option [http_method]"),
        (vec![("url", "nowhere".into()), ("http_method", "post".into())], "is not an address"),
        (vec![("url", "localhost:9200/x".into()), ("http_method", "post".into())], "is not an address"),
        (
            vec![("url", "http://a/".into()), ("http_method", "post".into()), ("format", "message".into())],
            "needs the option [message]",
        ),
    ] {
        let faults = build(options("http", &given)).unwrap_err();
        assert!(faults.iter().any(|fault| fault.message.contains(expected)), "{expected}: {faults:?}");
    }
}
