use std::sync::atomic::{AtomicUsize, Ordering};

use millrace_ingest::Location;
use millrace_ingest::budget::AnswerAllowance;
use serde_json::json;
use tokio::net::UdpSocket;

use super::*;

/// Starts a name server that knows one name and one address; returns its address and the number of its answers.
async fn server() -> (String, Arc<AtomicUsize>) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let answers = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&answers);
    tokio::spawn(async move {
        let mut buffer = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            let asked = &buffer[..length];
            let mut reply = asked.to_vec();
            reply[2] |= 0x80;
            let kind = asked[length - 3];
            let host = b"\x04host\x07example\x00";
            let data: Option<&[u8]> = match kind {
                1 if asked[12..].starts_with(host) => Some(&[192, 0, 2, 7]),
                12 if asked[12..].starts_with(b"\x017\x012\x010\x03192") => Some(host),
                _ => None,
            };
            if asked[12..].starts_with(b"\x06silent") {
                continue;
            }
            match data {
                None => reply[3] = 3,
                Some(data) => {
                    reply[7] = 1;
                    reply.extend([0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 60, 0, data.len() as u8]);
                    reply.extend(data);
                }
            }
            counted.fetch_add(1, Ordering::SeqCst);
            socket.send_to(&reply, from).await.unwrap();
        }
    });
    (address, answers)
}

fn text(text: &str) -> Setting {
    Setting::Text(text.to_owned())
}

fn filter(given: Vec<(&str, Setting)>) -> Result<Arc<dyn RemoteFilter>, Vec<Fault>> {
    let given = given.into_iter().map(|(name, value)| (name.to_owned(), Location::default(), value));
    build(Options::new("dns", Location::default(), given))
}

async fn apply(filter: &Arc<dyn RemoteFilter>, fields: Value) -> (Outcome, Value) {
    let mut event = Event::from_fields(fields.as_object().cloned().unwrap(), chrono::DateTime::UNIX_EPOCH);
    let outcome = filter.apply(&mut event, &AnswerAllowance::default()).await;
    (outcome, Value::Object(event.fields().clone()))
}

#[tokio::test]
async fn names_and_addresses_are_looked_up() {
    let (server, answers) = server().await;
    let filter = filter(vec![
        ("resolve", text("name")),
        ("reverse", text("ip")),
        ("nameserver", text(&server)),
        ("hit_cache_size", text("100")),
        ("failed_cache_size", text("100")),
    ])
    .unwrap();
    for _ in 0..2 {
        let found = apply(&filter, json!({"name": "host.example", "ip": ["192.0.2.7"]})).await;
        let expected = json!({"name": ["host.example", "192.0.2.7"], "ip": ["192.0.2.7", "host.example"]});
        assert_eq!(found, (Outcome::Matched, expected));
    }
    assert_eq!(answers.load(Ordering::SeqCst), 2, "the second event has them from the cache");
    let missing = json!({"name": "missing.example"});
    for _ in 0..2 {
        assert_eq!(apply(&filter, missing.clone()).await, (Outcome::Unmatched, missing.clone()));
    }
    assert_eq!(answers.load(Ordering::SeqCst), 4, "neither an address of version 4 nor of 6");
    for odd in [json!({"name": 5}), json!({"name": ["a", "b"]}), json!({"ip": "no address"})] {
        assert_eq!(apply(&filter, odd.clone()).await, (Outcome::Unmatched, odd));
    }
}

#[tokio::test]
async fn a_silent_server_tags_the_event() {
    let (server, _) = server().await;
    let filter = filter(vec![
        ("resolve", text("name")),
        ("action", text("replace")),
        ("nameserver", text(&server)),
        ("timeout", text("0.01")),
        ("max_retries", text("1")),
    ])
    .unwrap();
    let (outcome, fields) = apply(&filter, json!({"name": "silent.example"})).await;
    assert_eq!((outcome, &fields["tags"]), (Outcome::Unmatched, &json!(["_dnstimeout"])));
    assert_eq!(apply(&filter, json!({"name": "host.example"})).await.1, json!({"name": "192.0.2.7"}));
}

#[tokio::test]
async fn files_have_names() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "192.0.2.9 own.example own # mine\n").unwrap();
    let filter = filter(vec![
        ("resolve", text("name")),
        ("reverse", text("ip")),
        ("action", text("replace")),
        ("hostsfile", text(file.path().to_str().unwrap())),
    ])
    .unwrap();
    let found = apply(&filter, json!({"name": "own", "ip": "192.0.2.9"})).await.1;
    assert_eq!(found, json!({"name": "192.0.2.9", "ip": "own.example"}));
}

#[test]
fn options_are_checked() {
    let hash = |members: Vec<(&str, Setting)>| {
        Setting::Hash(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    };
    let servers =
        hash(vec![("address", text("192.0.2.1")), ("search", text("a.example")), ("ndots", text("2"))]);
    assert!(filter(vec![("resolve", text("a")), ("nameserver", servers)]).is_ok());
    for (given, expected) in [
        (vec![], "needs the option [resolve] or [reverse]"),
        (vec![("resolve", text("a")), ("nameserver", text("no address"))], "needs 1 to 8 addresses"),
        (vec![("resolve", text("a")), ("nameserver", hash(vec![("port", text("53"))]))], "has [port]"),
        (vec![("resolve", text("a")), ("hostsfile", text("/nonexistent"))], "[hostsfile]"),
    ] {
        let faults = filter(given).unwrap_err();
        assert!(faults.iter().any(|fault| fault.message.contains(expected)), "{faults:?}");
    }
}
