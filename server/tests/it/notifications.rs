//! `kill -9` while webhooks and mails go out: each alert is told by both, and who knows the keys sees each once.
//!
//! `MILLRACE_NOTIFY_KILLS` says how often the server is killed (20).

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrace_runtime::Instant;
use rand::RngExt;
use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::process::{Server, http_client, millrace};

/// Documents that are written between two kills.
const WRITTEN: usize = 10;
/// Longest that anything is waited for.
const PATIENCE: Duration = Duration::from_secs(120);

/// Keys that a receiver has seen, with repetitions.
type Keys = Arc<Mutex<Vec<String>>>;

/// Serves each connection in a thread of its own; returns the port.
fn listen(serve: impl Fn(TcpStream, &Keys) + Send + Sync + 'static) -> (u16, Keys) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, keys) = (listener.local_addr().unwrap().port(), Keys::default());
    let (serve, seen) = (Arc::new(serve), Arc::clone(&keys));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (serve, seen) = (Arc::clone(&serve), Arc::clone(&seen));
            std::thread::spawn(move || serve(stream, &seen));
        }
    });
    (port, keys)
}

/// A receiver of webhooks that dies after receiving, now and then.
fn webhooks() -> (u16, Keys) {
    listen(|stream, keys| {
        let mut stream = BufReader::new(stream);
        let (mut length, mut key, mut line) = (0, String::new(), String::new());
        while stream.read_line(&mut line).is_ok_and(|read| read > 0) {
            let lower = line.trim_end().to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            } else if let Some(value) = lower.strip_prefix("idempotency-key: ") {
                value.clone_into(&mut key);
            } else if lower.is_empty() {
                let mut body = vec![0; length];
                if stream.read_exact(&mut body).is_err() {
                    return;
                }
                let number = {
                    let mut keys = keys.lock().unwrap();
                    keys.push(key.clone());
                    keys.len()
                };
                if number % 7 == 0 || stream.get_mut().write_all(b"HTTP/1.1 204 ok\r\n\r\n").is_err() {
                    return;
                }
            }
            line.clear();
        }
    })
}

/// A server of mail that refuses the first mails.
fn mails() -> (u16, Keys) {
    listen(|stream, keys| {
        let mut stream = BufReader::new(stream);
        let _ = stream.get_mut().write_all(b"220 test\r\n");
        let mut line = String::new();
        while stream.read_line(&mut line).is_ok_and(|read| read > 0) {
            let answer: &[u8] = match line.get(..4).unwrap_or_default() {
                "EHLO" => b"250-test\r\n250 8BITMIME\r\n",
                "DATA" => {
                    let _ = stream.get_mut().write_all(b"354 go on\r\n");
                    let (mut text, mut of_text) = (String::new(), String::new());
                    while of_text != ".\r\n" {
                        of_text.clear();
                        if !stream.read_line(&mut of_text).is_ok_and(|read| read > 0) {
                            return;
                        }
                        text.push_str(&of_text);
                    }
                    let key = text.lines().find_map(|line| line.strip_prefix("Message-ID: ")).unwrap();
                    let mut keys = keys.lock().unwrap();
                    keys.push(key.to_owned());
                    if keys.len() < 4 { b"451 not now\r\n" } else { b"250 taken\r\n" }
                }
                "QUIT" => b"221 bye\r\n",
                _ => b"250 ok\r\n",
            };
            if stream.get_mut().write_all(answer).is_err() {
                return;
            }
            line.clear();
        }
    })
}

fn start(data: &Path, mail_port: u16) -> Server {
    let mut command = millrace(&["serve", "--listen", "127.0.0.1:0", "--insecure", "--data"]);
    command
        .arg(data)
        .env("MILLRACE_NOTIFICATIONS__ALLOW", "127.0.0.1")
        .env("MILLRACE_NOTIFICATIONS__PER_MINUTE", "100000")
        .env("MILLRACE_NOTIFICATIONS__SMTP__HOST", "127.0.0.1")
        .env("MILLRACE_NOTIFICATIONS__SMTP__PORT", mail_port.to_string())
        .env("MILLRACE_NOTIFICATIONS__SMTP__TLS", "none")
        .env("MILLRACE_NOTIFICATIONS__SMTP__FROM", "alerts@example.com");
    Server::new(&mut command)
}

async fn console(server: &Server, path: &str, body: Value) -> Value {
    let url = server.greeting.lines().find_map(|line| line.strip_prefix("the console is on ")).unwrap();
    let request = http_client().post(format!("{url}{path}")).header("console-xsrf", "true").json(&body);
    let answer = request.send().await.unwrap();
    let (status, answer) = (answer.status(), answer.json::<Value>().await.unwrap());
    assert!(status.is_success(), "{path}: {answer}");
    answer
}

/// Writes documents; unacknowledged ones may be there all the same.
async fn write(server: &Server, round: usize) -> bool {
    let lines = (0..WRITTEN).map(|n| format!("{{\"index\":{{\"_id\":\"{round}-{n}\"}}}}\n{{\"n\":{n}}}\n"));
    let client = http_client();
    let request =
        client.post(format!("{}/logs/_bulk", server.url)).header("content-type", "application/x-ndjson");
    request.body(lines.collect::<String>()).send().await.is_ok_and(|answer| answer.status().is_success())
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_notifications_go_out_each_alert_is_told_under_one_key() {
    let kills = std::env::var("MILLRACE_NOTIFY_KILLS").map_or(20, |kills| kills.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let ((hook_port, hooks), (mail_port, mails)) = (webhooks(), mails());
    let mut server = start(dir.path(), mail_port);
    let rule = json!({
        "name": "told", "index": "logs", "type": "any",
        "alert": [{"webhook": {"url": format!("http://127.0.0.1:{hook_port}/")}}, {"email": {"email": "a@example.org"}}],
    });
    console(&server, "/api/alert/change", rule).await;
    let mut acknowledged = 0;
    for round in 0..kills {
        if write(&server, round).await {
            acknowledged += WRITTEN;
        }
        let moment = rand::rng().random_range(0..700);
        tokio::time::sleep(Duration::from_millis(moment)).await;
        server.signal(Signal::KILL);
        drop(server);
        server = start(dir.path(), mail_port);
    }
    let began = Instant::now();
    let alerts = loop {
        let body = json!({"size": 10_000, "query": {"match_all": {}}, "_source": ["alert_sent"]});
        let (_, answer) = server.call(Method::POST, "/alert/_search", body.to_string()).await;
        let alerts = answer["hits"]["hits"].as_array().cloned().unwrap_or_default();
        let sent = alerts.iter().filter(|alert| alert["_source"]["alert_sent"] == true).count();
        let distinct = |keys: &Keys| keys.lock().unwrap().iter().cloned().collect::<BTreeSet<_>>().len();
        let (told, mailed) = (distinct(&hooks), distinct(&mails));
        if alerts.len() >= acknowledged
            && sent == alerts.len()
            && told >= alerts.len()
            && mailed >= alerts.len()
        {
            // One key an alert and channel, however often it was killed.
            assert_eq!((told, mailed), (alerts.len(), alerts.len()));
            break alerts.len();
        }
        assert!(
            began.elapsed() < PATIENCE,
            "{sent} of {} alerts, {told} told, {mailed} mailed",
            alerts.len()
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    println!(
        "{kills} kills, {alerts} alerts, {} requests, {} mails",
        hooks.lock().unwrap().len(),
        mails.lock().unwrap().len()
    );
    assert!(alerts >= acknowledged && acknowledged > 0);
    let test = json!({"rule": {"name": "t", "index": "logs", "type": "any", "alert_method": "webhook", "http_post_url": "http://127.0.0.2:9/"}});
    let answer = console(&server, "/api/alert/notify-test", test).await;
    assert!(answer["channels"][0]["error"].as_str().unwrap().contains("not allowed"), "{answer}");
    server.stop();
}
