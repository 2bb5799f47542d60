//! First start, credentials, TLS, restart, signals, the demo.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use reqwest::{Certificate, Client, Method};
use rustix::process::Signal;
use serde_json::json;

use crate::process::{Server, http_client, http_client_builder, millrace, run};

#[tokio::test]
async fn the_first_password_is_in_a_file_and_stays() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path(), &[]);
    // Who reads the journal, or a container's output, is not to know it.
    let file = server
        .greeting
        .lines()
        .find_map(|line| {
            line.strip_prefix("first start: the password of user admin is in ")?.split(' ').next()
        })
        .unwrap();
    assert_eq!(Path::new(file), dir.path().join("admin-password"));
    assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    let written = std::fs::read_to_string(file).unwrap();
    let password = written.trim_end().to_owned();
    assert!(password.len() >= 16 && !server.greeting.contains(&password), "{password}");
    assert_eq!(server.call(Method::GET, "/", "").await.0, 401);
    server.log_in("admin", "not it");
    assert_eq!(server.call(Method::GET, "/", "").await.0, 401);
    server.log_in("admin", &password);
    assert_eq!(server.call(Method::GET, "/", "").await.0, 200);
    assert_eq!(server.call(Method::PUT, "/logs/_doc/1", r#"{"n":1}"#).await.0, 201);
    server.stop();

    let mut server = Server::start(dir.path(), &[]);
    assert!(!server.greeting.contains("password"), "{}", server.greeting);
    server.log_in("admin", &password);
    let (status, answer) = server.call(Method::GET, "/logs/_doc/1", "").await;
    assert_eq!((status, &answer["_source"]), (200, &json!({"n": 1})));
    server.stop();

    // The configured one is for the first start: the one that is there stays, as does its file.
    let mut server = Server::new(
        millrace(&["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(dir.path())
            .env("MILLRACE_ADMIN_PASSWORD", "correct horse"),
    );
    assert!(dir.path().join("admin-password").exists());
    server.log_in("admin", "correct horse");
    assert_eq!(server.call(Method::GET, "/", "").await.0, 401);
    server.log_in("admin", &password);
    assert_eq!(server.call(Method::GET, "/", "").await.0, 200);
    server.stop();
}

#[tokio::test]
async fn a_given_password_is_not_printed() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::new(
        millrace(&["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(dir.path())
            .env("MILLRACE_ADMIN_PASSWORD", "correct horse"),
    );
    assert!(!server.greeting.contains("password"), "{}", server.greeting);
    server.log_in("admin", "correct horse");
    assert_eq!(server.call(Method::GET, "/", "").await.0, 200);
    server.stop();
}

/// Writes a certificate of its own and its key; returns who trusts no other.
fn issue(dir: &Path) -> Client {
    let issued = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(dir.join("cert.pem"), issued.cert.pem()).unwrap();
    std::fs::write(dir.join("key.pem"), issued.signing_key.serialize_pem()).unwrap();
    let root = Certificate::from_pem(issued.cert.pem().as_bytes()).unwrap();
    http_client_builder().tls_certs_only([root]).pool_max_idle_per_host(0).build().unwrap()
}

#[tokio::test]
async fn tls_by_certificate_and_key() {
    let dir = tempfile::tempdir().unwrap();
    let client = issue(dir.path());
    let (certificate, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    let mut server = Server::new(
        millrace(&["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(dir.path().join("data"))
            .env("MILLRACE_TLS__CERTIFICATE", &certificate)
            .env("MILLRACE_TLS__KEY", &key)
            .env("MILLRACE_ADMIN_PASSWORD", "correct horse"),
    );
    assert!(server.url.starts_with("https://"), "{}", server.url);
    assert!(http_client().get(&server.url).send().await.is_err(), "an unknown issuer");
    server.ask_with(client.clone());
    server.log_in("admin", "correct horse");
    assert_eq!(server.call(Method::GET, "/", "").await.0, 200);

    // Renewed files count soon, or from SIGHUP on, and broken ones do not.
    let mut before = client;
    for signal in [None, Some(Signal::HUP)] {
        let renewed = issue(dir.path());
        if let Some(signal) = signal {
            server.signal(signal);
        }
        server.until_logged("certificate read again");
        assert!(before.get(&server.url).send().await.is_err());
        server.ask_with(renewed.clone());
        assert_eq!(server.call(Method::GET, "/", "").await.0, 200);
        before = renewed;
    }
    std::fs::write(&key, "").unwrap();
    server.signal(Signal::HUP);
    server.until_logged("the one before stays in use");
    assert_eq!(server.call(Method::GET, "/", "").await.0, 200);
    server.stop();
}

/// Returns whether a directory has a file of that name somewhere below it.
fn holds(directory: &Path, name: &str) -> bool {
    std::fs::read_dir(directory)
        .unwrap()
        .map(Result::unwrap)
        .any(|entry| entry.file_name() == name || (entry.path().is_dir() && holds(&entry.path(), name)))
}

#[tokio::test]
async fn sigterm_flushes_what_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--insecure"]);
    for n in 0..20 {
        let path = format!("/logs/_doc/{n}");
        assert_eq!(server.call(Method::PUT, &path, format!(r#"{{"n":{n}}}"#)).await.0, 201);
    }
    server.signal(Signal::TERM);
    let (status, log) = server.wait();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(holds(&dir.path().join("segments"), "data.parquet"));

    let server = Server::start(dir.path(), &["--insecure"]);
    let (_, count) = server.call(Method::GET, "/logs/_count", "").await;
    assert_eq!(count["count"], 20);
    // Nothing in flight and SIGINT: the same end.
    server.signal(Signal::INT);
    assert_eq!(server.wait().0.code(), Some(0));
}

#[tokio::test]
async fn a_second_signal_ends_the_drain() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--insecure"]);
    assert_eq!(server.call(Method::PUT, "/logs/_doc/1", r#"{"n":1}"#).await.0, 201);
    // A request whose body never ends keeps the server draining.
    let address = server.url.strip_prefix("http://").unwrap().to_owned();
    let mut stuck = std::net::TcpStream::connect(&address).unwrap();
    std::io::Write::write_all(
        &mut stuck,
        b"POST /logs/_doc HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n",
    )
    .unwrap();
    // The answer says that the request is being read.
    let mut interim = [0; 25];
    stuck.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    std::io::Read::read_exact(&mut stuck, &mut interim).unwrap();
    assert!(interim.starts_with(b"HTTP/1.1 100"));
    server.signal(Signal::TERM);
    // The listener closes when the drain begins.
    while std::net::TcpStream::connect(&address).is_ok() {
        std::thread::yield_now();
    }
    server.signal(Signal::TERM);
    let (status, log) = server.wait();
    assert_eq!(status.code(), Some(130), "{log}");
    drop(stuck);

    let server = Server::start(dir.path(), &["--insecure"]);
    assert_eq!(server.call(Method::GET, "/logs/_doc/1", "").await.0, 200, "the log has it");
    server.stop();
}

#[test]
fn the_demo_answers_its_questions() {
    let (code, text, errors) = run(&mut millrace(&["demo", "--total", "4000", "--rate", "0", "--exit"]));
    assert_eq!(code, Some(0), "{errors}");
    assert!(text.starts_with("fed 4000 events") && text.contains(", 0 errors"), "{text}");
    assert_eq!(text.matches("\ncurl -s ").count(), 10, "{text}");
    assert!(text.contains("/agents?status=active") && text.contains("/api/ai/plot/"), "{text}");
    assert!(text.contains("is found a moment later in \"webhook-events-"), "{text}");
    assert!(text.contains("Accepted password for") && text.contains("/etc/shadow"), "{text}");
    assert!(text.contains("importance 90    deploy logged in on bastion-1 from 203.0.113.66\n"), "{text}");
    assert!(!text.contains("unexpected answer"), "{text}");
}
