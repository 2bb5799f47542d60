use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use millrace_listen::{Acceptor, Config};
use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::*;
use crate::Batch;
use crate::batch::NotStored;
use crate::budget::Budget;
use crate::input::testing::{OptionValue, Pipeline, StoredPositions, options, refuse};

/// A running input and its pipeline.
struct RunningInput {
    address: SocketAddr,
    pipeline: Pipeline,
    ended: JoinHandle<Result<(), InputError>>,
}

async fn start(given: &[(&str, OptionValue)], pipeline: Pipeline) -> RunningInput {
    start_within(given, pipeline, listener::ACCEPTOR.clone()).await
}

async fn start_within(given: &[(&str, OptionValue)], pipeline: Pipeline, acceptor: Acceptor) -> RunningInput {
    let mut given = given.to_vec();
    if !given.iter().any(|(name, _)| *name == "port") {
        given.push(("port", "0".into()));
    }
    given.push(("host", "127.0.0.1".into()));
    serve(Listener::new(options("http", &given)).unwrap(), pipeline, acceptor).await
}

async fn serve(input: Listener, mut pipeline: Pipeline, acceptor: Acceptor) -> RunningInput {
    let context = pipeline.context();
    let source = format!("{} idempotency", input.identity());
    let keys = idempotency::Keys::load(source, input.settings.idempotency, &context).await.unwrap();
    let service = Arc::new(request::Service::new(Arc::clone(&input.settings), context, keys));
    let mut address = service.address();
    let ended = tokio::spawn(async move { listener::serve(service, &acceptor).await });
    let address = address.wait_for(Option::is_some).await.unwrap().unwrap();
    RunningInput { address, pipeline, ended }
}

impl RunningInput {
    fn url(&self) -> String {
        format!("http://{}/path?x=1", self.address)
    }

    fn post(&self, body: impl Into<reqwest::Body>) -> RequestBuilder {
        client().post(self.url()).body(body)
    }

    /// Sends a request and stores what comes of it.
    async fn stored(&mut self, request: RequestBuilder) -> (StatusCode, String) {
        let sent = tokio::spawn(request.send());
        let taken = tokio::select! {
            taken = self.pipeline.take() => taken,
            () = async { while !sent.is_finished() { tokio::task::yield_now().await; } } => None,
        };
        drop(taken);
        answer(sent).await
    }

    /// Sends a request and returns its batch before anything becomes of it.
    async fn batch(
        &mut self,
        request: RequestBuilder,
    ) -> (JoinHandle<reqwest::Result<reqwest::Response>>, Batch) {
        let sent = tokio::spawn(request.send());
        (sent, self.pipeline.next().await.unwrap())
    }
}

fn client() -> Client {
    millrace_runtime::install_crypto_provider();
    Client::builder().no_proxy().build().unwrap()
}

async fn answer(sent: JoinHandle<reqwest::Result<reqwest::Response>>) -> (StatusCode, String) {
    let answer = sent.await.unwrap().unwrap();
    (answer.status(), answer.text().await.unwrap())
}

#[tokio::test]
async fn pages_of_elsewhere_send_nothing_to_loopback() {
    let mut running = start(&[], Pipeline::new(4)).await;
    for (name, value) in [("origin", "https://evil.example"), ("origin", "null"), ("host", "evil.example")] {
        let (status, reason) = running.stored(running.post("x").header(name, value)).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{name} {value}");
        assert!(reason.contains("is not of this machine"), "{reason}");
    }
    let request = running.post("x").header("origin", "http://localhost:5601");
    assert_eq!(running.stored(request).await.0, StatusCode::OK);
    // Where credentials are asked for, pages do not have them.
    let credentials = [("user", "me".into()), ("password", "secret".into())];
    let mut running = start(&credentials, Pipeline::new(4)).await;
    let request = running.post("x").header("host", "logs.example").basic_auth("me", Some("secret"));
    assert_eq!(running.stored(request).await.0, StatusCode::OK);
}

#[tokio::test]
async fn fields_of_the_schema_describe_a_request() {
    let mut running = start(&[("ecs_compatibility", "v1".into())], Pipeline::new(4)).await;
    let request = running.post(r#"{"url":{"path":"forged","full":"x"},"host":{"name":"web"}}"#);
    let request = request.header("content-type", "application/json").header("user-agent", "test");
    assert_eq!(running.stored(request).await.0, StatusCode::OK);
    let event = &running.pipeline.events[0];
    let address = running.address;
    assert_eq!(
        Value::Object(event.fields().clone()),
        json!({ "url": { "path": "/path?x=1", "full": "x", "domain": "127.0.0.1", "port": address.port() },
            "host": { "name": "web", "ip": "127.0.0.1" }, "@version": "1",
            "http": { "method": "POST", "version": "HTTP/1.1",
                "request": { "body": { "bytes": "58" }, "mime_type": "application/json" } },
            "user_agent": { "original": "test" } })
    );
    assert_eq!(event.metadata()["input"]["http"]["request"]["headers"]["request_method"], "POST");
}

#[tokio::test]
async fn a_request_is_answered_once_its_events_are_stored() {
    let mut running = start(&[], Pipeline::new(4)).await;
    let request = running.post("hello").header("X-Source", "a").header("User-Agent", "test");
    let (sent, batch) = running.batch(request).await;
    assert!(!sent.is_finished());
    running.pipeline.store(batch).unwrap();
    assert_eq!(answer(sent).await, (StatusCode::OK, "ok".to_owned()));
    let event = &running.pipeline.events[0];
    assert_eq!(event.fields()["message"], "hello");
    assert_eq!(event.fields()["host"], "127.0.0.1");
    assert_eq!(event.fields()["@version"], "1");
    let headers = &event.fields()["headers"];
    for (name, expected) in [
        ("request_method", "POST"),
        ("request_path", "/path?x=1"),
        ("http_version", "HTTP/1.1"),
        ("x_source", "a"),
        ("http_user_agent", "test"),
        ("content_length", "5"),
    ] {
        assert_eq!(headers[name], expected, "{name}");
    }
    // By its media type.
    let request =
        running.post(r#"[{"n":1},{"n":2}]"#).header("Content-Type", "application/json; charset=utf-8");
    assert_eq!(running.stored(request).await.0, StatusCode::OK);
    let numbers: Vec<_> =
        running.pipeline.events[1..].iter().map(|event| event.fields()["n"].clone()).collect();
    assert_eq!(numbers, [1, 2]);
}

#[tokio::test]
async fn what_is_not_stored_is_to_be_sent_again() {
    let mut running = start(&[], Pipeline::new(1)).await;
    for (why, expected) in [
        (NotStored::Overloaded("full".to_owned()), StatusCode::TOO_MANY_REQUESTS),
        (NotStored::Ended, StatusCode::SERVICE_UNAVAILABLE),
    ] {
        let (sent, batch) = running.batch(running.post("x")).await;
        refuse(batch, why);
        assert_eq!(answer(sent).await.0, expected);
    }
    // A batch that is dropped.
    let (sent, batch) = running.batch(running.post("x")).await;
    drop(batch);
    assert_eq!(answer(sent).await.0, StatusCode::SERVICE_UNAVAILABLE);
    // The queue has one place, and nobody takes anything out.
    let waits = tokio::spawn(running.post("x").send());
    let also = tokio::spawn(running.post("x").send());
    let refused = tokio::select! {
        refused = waits => refused,
        refused = also => refused,
    };
    assert_eq!(refused.unwrap().unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn requests_that_wait_are_bounded() {
    let mut running = start(&[("max_pending_requests", "1".into())], Pipeline::new(8)).await;
    let (sent, batch) = running.batch(running.post("first")).await;
    let (status, reason) = answer(tokio::spawn(running.post("second").send())).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{reason}");
    running.pipeline.store(batch).unwrap();
    assert_eq!(answer(sent).await.0, StatusCode::OK);
    assert_eq!(running.stored(running.post("second")).await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_request_with_the_same_key_is_stored_once() {
    let stored: Arc<StoredPositions> = Arc::default();
    let mut running = start(&[("port", "0".into())], Pipeline::with(8, Arc::clone(&stored))).await;
    let keyed =
        |running: &RunningInput, key: &str| running.post(key.to_owned()).header("Idempotency-Key", key);
    // While the first is on its way.
    let (sent, batch) = running.batch(keyed(&running, "a")).await;
    assert!(batch.events[0].provenance().is_some());
    let (status, _) = answer(tokio::spawn(keyed(&running, "a").send())).await;
    assert_eq!(status, StatusCode::CONFLICT);
    running.pipeline.store(batch).unwrap();
    assert_eq!(answer(sent).await.0, StatusCode::OK);
    // Afterwards.
    assert_eq!(answer(tokio::spawn(keyed(&running, "a").send())).await.0, StatusCode::OK);
    // One that failed may be tried again.
    let (sent, batch) = running.batch(keyed(&running, "b")).await;
    refuse(batch, NotStored::Ended);
    assert_eq!(answer(sent).await.0, StatusCode::SERVICE_UNAVAILABLE);
    let again = keyed(&running, "b");
    assert_eq!(running.stored(again).await.0, StatusCode::OK);
    assert_eq!(running.pipeline.messages(), ["a", "b"]);
    // Also by another input that was started since.
    let mut next = start(&[("port", "0".into())], Pipeline::with(8, stored)).await;
    assert_eq!(answer(tokio::spawn(keyed(&next, "a").send())).await.0, StatusCode::OK);
    let new = keyed(&next, "c");
    assert_eq!(next.stored(new).await.0, StatusCode::OK);
    assert_eq!(next.pipeline.messages(), ["c"]);
    // Of which the first knows nothing, but the store does.
    let again = keyed(&running, "c");
    assert_eq!(running.stored(again).await.0, StatusCode::OK);
    assert_eq!(running.pipeline.messages(), ["a", "b"]);
}

#[tokio::test]
async fn keys_are_forgotten_beyond_their_number() {
    let given = [("idempotency_keys", "2".into()), ("port", "0".into())];
    let mut running = start(&given, Pipeline::new(8)).await;
    for (at, key) in ["a", "b", "c", "d", "a"].into_iter().enumerate() {
        let before = chrono::Utc::now().timestamp_millis();
        while chrono::Utc::now().timestamp_millis() == before {
            // The oldest is the one of the earliest moment.
            tokio::task::yield_now().await;
        }
        let request = running.post(key).header("Idempotency-Key", key);
        let (sent, batch) = running.batch(request).await;
        assert!(!batch.events.is_empty(), "{key}");
        running.pipeline.store(batch).unwrap();
        assert_eq!(answer(sent).await.0, StatusCode::OK);
        if at >= 2 {
            let forgets = running.pipeline.next().await.unwrap();
            assert!(forgets.events.is_empty());
            running.pipeline.store(forgets).unwrap();
        }
    }
    assert_eq!(running.pipeline.messages(), ["a", "b", "c", "d", "a"]);
}

#[tokio::test]
async fn bodies_are_bounded_and_may_be_compressed() {
    let mut running = start(&[("max_content_length", "1000".into())], Pipeline::new(4)).await;
    let gzip = |text: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    };
    let request = running.post(gzip(b"packed")).header("Content-Encoding", "gzip");
    assert_eq!(running.stored(request).await.0, StatusCode::OK);
    assert_eq!(running.pipeline.messages(), ["packed"]);
    for (body, encoding, expected) in [
        (vec![b'x'; 1001], "identity", StatusCode::PAYLOAD_TOO_LARGE),
        (gzip(&[b'x'; 100_000]), "gzip", StatusCode::PAYLOAD_TOO_LARGE),
        (b"no gzip".to_vec(), "gzip", StatusCode::BAD_REQUEST),
        (b"x".to_vec(), "br", StatusCode::UNSUPPORTED_MEDIA_TYPE),
    ] {
        let request = running.post(body).header("Content-Encoding", encoding);
        assert_eq!(running.stored(request).await.0, expected, "{encoding}");
    }
    // Without a length announced.
    let pieces = (0..20).map(|_| Ok::<_, std::io::Error>(vec![b'x'; 100]));
    let body = reqwest::Body::wrap_stream(futures::stream::iter(pieces));
    assert_eq!(running.stored(running.post(body)).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(running.pipeline.events.len(), 1);
}

#[tokio::test]
async fn events_are_reserved_before_they_are_made() {
    let budget = Budget::new(16 << 20);
    let mut pipeline = Pipeline::new(4);
    pipeline.budget = budget.clone();
    let mut running = start(&[], pipeline).await;
    let json = |events: usize| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        let body = vec!["{}"; events].join(",");
        write!(encoder, "[{body}]").unwrap();
        encoder.finish().unwrap()
    };
    let post = |running: &RunningInput, body: Vec<u8>| {
        running.post(body).header("Content-Encoding", "gzip").header("Content-Type", "application/json")
    };
    // A few kilobytes that would become hundreds of megabytes, as one array, and with an element that is kept otherwise.
    let bomb = post(&running, json(200_000));
    let (status, reason) = answer(tokio::spawn(bomb.send())).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{reason}");
    for body in [
        format!(r#"{{"@metadata":{{}},"a":[{}1]}}"#, "1,".repeat(1_000_000)),
        format!(r#"[{{"a":1,"a":2}},{}{{}}]"#, r#"{"b":1,"b":2},"#.repeat(100_000)),
        "\u{1}".repeat(2 << 20),
    ] {
        let request = running.post(body).header("Content-Type", "application/json");
        assert_eq!(answer(tokio::spawn(request.send())).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    }
    assert_eq!(budget.used(), 0);
    // What fits is held until it is stored.
    let (sent, batch) = running.batch(post(&running, json(1000))).await;
    assert!(budget.used() > 1000 * 1024 && batch.held.bytes() == budget.used());
    running.pipeline.store(batch).unwrap();
    assert_eq!(answer(sent).await.0, StatusCode::OK);
    assert_eq!(budget.used(), 0);
    // While others have the room, it is a matter of waiting.
    let other = budget.share().overdraw(15 << 20);
    let refused = answer(tokio::spawn(post(&running, json(1000)).send())).await;
    assert_eq!(refused.0, StatusCode::TOO_MANY_REQUESTS, "{}", refused.1);
    drop(other);
    assert_eq!(running.stored(post(&running, json(1000))).await.0, StatusCode::OK);
}

#[tokio::test]
async fn credentials_are_asked_for_and_not_stored() {
    let given = [("user", "logs".into()), ("password", "secret".into())];
    let mut running = start(&given, Pipeline::new(4)).await;
    for request in [
        running.post("x"),
        running.post("x").basic_auth("logs", Some("wrong")),
        running.post("x").bearer_auth("secret"),
    ] {
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
        assert!(answer.headers().contains_key("www-authenticate"));
    }
    let request = running.post("x").basic_auth("logs", Some("secret"));
    assert_eq!(running.stored(request).await.0, StatusCode::OK);
    let headers = running.pipeline.events[0].fields()["headers"].clone();
    assert_eq!(headers.get("authorization"), None);
    // Those that the pipeline is to check.
    let mut open = start(&[], Pipeline::new(4)).await;
    assert_eq!(open.stored(open.post("x").bearer_auth("token")).await.0, StatusCode::OK);
    assert_eq!(open.pipeline.events[0].fields()["headers"]["authorization"], "Bearer token");
}

#[tokio::test]
async fn answers_are_as_configured() {
    let given = [
        ("response_code", "202".into()),
        ("response_headers", [("X-Answer", "yes"), ("Content-Type", "text/x")].into()),
        ("request_headers_target_field", "[@metadata][headers]".into()),
        ("remote_host_target_field", "[from][ip]".into()),
    ];
    let mut running = start(&given, Pipeline::new(4)).await;
    let (sent, batch) = running.batch(running.post("x")).await;
    running.pipeline.store(batch).unwrap();
    let answer = sent.await.unwrap().unwrap();
    assert_eq!(answer.status(), StatusCode::ACCEPTED);
    assert_eq!(
        (&answer.headers()["x-answer"], &answer.headers()["content-type"]),
        (&"yes".parse().unwrap(), &"text/x".parse().unwrap())
    );
    let event = &running.pipeline.events[0];
    assert_eq!(event.metadata()["headers"]["request_method"], "POST");
    assert_eq!(event.fields()["from"], json!({"ip": "127.0.0.1"}));
    assert!(!event.fields().contains_key("headers"));
}

/// An authority, and files of a certificate for `localhost` and of one of a client by it.
struct Certificates {
    dir: tempfile::TempDir,
}

impl Certificates {
    fn new() -> Self {
        use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| std::fs::write(dir.path().join(name), text).unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        write("ca.pem", params.self_signed(&key).unwrap().pem());
        let issuer = Issuer::new(params, key);
        for (name, host) in [("server", "localhost"), ("client", "client")] {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec![host.to_owned()]).unwrap();
            write(&format!("{name}.pem"), params.signed_by(&key, &issuer).unwrap().pem());
            write(&format!("{name}.key"), key.serialize_pem());
        }
        Self { dir }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(Path::new(&self.path(name))).unwrap()
    }
}

#[tokio::test]
async fn tls_asks_clients_for_certificates_where_it_is_to() {
    let files = Certificates::new();
    let given = [
        ("ssl_enabled", "true".into()),
        ("ssl_certificate", files.path("server.pem").into()),
        ("ssl_key", files.path("server.key").into()),
        ("ssl_certificate_authorities", files.path("ca.pem").into()),
        ("ssl_client_authentication", "required".into()),
    ];
    let mut running = start(&given, Pipeline::new(4)).await;
    let authority = reqwest::Certificate::from_pem(&files.read("ca.pem")).unwrap();
    millrace_runtime::install_crypto_provider();
    let builder = || Client::builder().no_proxy().tls_certs_only([authority.clone()]);
    let url = format!("https://localhost:{}/", running.address.port());
    assert!(builder().build().unwrap().post(&url).body("x").send().await.is_err());
    let pem = [files.read("client.pem"), files.read("client.key")].concat();
    let client = builder().identity(reqwest::Identity::from_pem(&pem).unwrap()).build().unwrap();
    assert_eq!(running.stored(client.post(&url).body("x")).await.0, StatusCode::OK);
    assert_eq!(running.pipeline.messages(), ["x"]);
}

#[tokio::test]
async fn inputs_share_bounds_and_silent_connections_make_room() {
    let config = Config { max_connections: 4, max_connections_per_address: 3, ..Config::default() };
    let acceptor = Acceptor::new(config);
    let mut first = start_within(&[], Pipeline::new(4), acceptor.clone()).await;
    let second = start_within(&[], Pipeline::new(4), acceptor).await;
    // More silent ones than there are places.
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push(TcpStream::connect(first.address).await.unwrap());
    }
    assert_eq!(first.stored(first.post("x")).await.0, StatusCode::OK);
    // Those that are busy stay, at whichever input they are: there are two, and the one before is idle.
    let (waits, batch) = first.batch(first.post("a")).await;
    let (also, other) = first.batch(first.post("b")).await;
    let mut second = second;
    let (third, last) = second.batch(second.post("c")).await;
    // A fourth one of this address is closed, at both.
    assert!(first.post("d").send().await.is_err());
    assert!(second.post("d").send().await.is_err());
    first.pipeline.store(batch).unwrap();
    first.pipeline.store(other).unwrap();
    second.pipeline.store(last).unwrap();
    for sent in [waits, also, third] {
        assert_eq!(answer(sent).await.0, StatusCode::OK);
    }
}

#[tokio::test]
async fn the_socket_is_handed_over() {
    // A port that is free, and then the input's.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port().to_string();
    drop(free);
    let given = [("port", OptionValue::from(port))];
    let first = start(&given, Pipeline::new(4)).await;
    first.pipeline.stop.send_replace(true);
    first.ended.await.unwrap().unwrap();
    // Nobody accepts now, but the socket is there.
    let waits = tokio::spawn(client().post(format!("http://{}/", first.address)).body("x").send());
    let mut next = start(&given, Pipeline::new(4)).await;
    assert_eq!(next.address, first.address);
    next.pipeline.take().await.unwrap().unwrap();
    assert_eq!(answer(waits).await.0, StatusCode::OK);
}

#[test]
fn options_are_checked() {
    for (given, reason) in [
        (vec![("user", OptionValue::from("x"))], "need each other"),
        (vec![("ssl", "true".into())], "needs the options [ssl_certificate]"),
        (vec![("response_code", "404".into())], "must be one of"),
        (vec![("additional_codecs", [("a/b", "nothing")].into())], "there is no codec [nothing]"),
        (vec![("keystore", "x".into())], "not supported"),
        (vec![("prot", "1".into())], "did you mean [port]"),
        (vec![("response_headers", [("a b", "c")].into())], "is not a header"),
        (vec![("ssl", "true".into()), ("ssl_enabled", "true".into())], "names of the same"),
    ] {
        let faults = Listener::new(options("http", &given)).unwrap_err();
        assert!(faults.iter().any(|fault| fault.message.contains(reason)), "{reason}: {faults:?}");
    }
}

#[tokio::test]
async fn a_body_is_read_in_the_character_set_of_its_media_type() {
    let mut running = start(&[], Pipeline::new(4)).await;
    for (media_type, body, message) in [
        ("text/plain; charset=ISO-8859-1", &b"\xe9t\xe9"[..], "\u{e9}t\u{e9}"),
        ("text/plain; charset=utf-8", "\u{e9}".as_bytes(), "\u{e9}"),
        ("application/json; charset=windows-1250", b"{\"message\":\"\x9c\"}", "\u{15b}"),
    ] {
        let request = running.post(body).header("content-type", media_type);
        assert_eq!(running.stored(request).await.0, StatusCode::OK);
        assert_eq!(running.pipeline.events.last().unwrap().fields()["message"], message, "{media_type}");
    }
}

#[tokio::test]
async fn a_request_that_no_queue_accepts_is_refused() {
    let mut running = start(&[], Pipeline::new(4)).await;
    // It is on its way, and nobody accepts it.
    let (sent, offered) = running.batch(running.post("one")).await;
    let (status, reason) = answer(sent).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{reason}");
    assert!(offered.ack.is_withdrawn() && !offered.ack.accept());
    // What was accepted waits for as long as it takes.
    let (sent, accepted) = running.batch(running.post("two")).await;
    assert!(accepted.ack.accept());
    let (other, offered) = running.batch(running.post("three")).await;
    assert_eq!(answer(other).await.0, StatusCode::TOO_MANY_REQUESTS);
    drop(offered);
    assert!(!sent.is_finished());
    running.pipeline.store(accepted).unwrap();
    assert_eq!(answer(sent).await.0, StatusCode::OK);
}

#[tokio::test]
async fn records_of_otlp_that_are_no_events_are_counted_in_the_answer() {
    let given = [("port", "0".into()), ("host", "127.0.0.1".into())];
    let input = build_otlp(options("otlp", &given)).unwrap();
    let mut running = serve(input, Pipeline::new(4), listener::ACCEPTOR.clone()).await;
    let post = |running: &RunningInput, body: &str| {
        running.post(body.to_owned()).header("content-type", "application/json")
    };
    let records =
        |records: &str| format!(r#"{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{records}]}}]}}]}}"#);
    let good = r#"{"body":{"stringValue":"hello"}}"#;
    let request = post(&running, &records(good));
    assert_eq!(running.stored(request).await, (StatusCode::OK, "{}".to_owned()));
    for (all, stored) in
        [(format!(r#"{good},{{"traceId":"abcd"}}"#), 2), (r#"{"traceId":"abcd"}"#.to_owned(), 2)]
    {
        let request = post(&running, &records(&all));
        let (status, answer) = running.stored(request).await;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!((status, &answer["partialSuccess"]["rejectedLogRecords"]), (StatusCode::OK, &json!("1")));
        assert!(answer["partialSuccess"]["errorMessage"].as_str().unwrap().contains("trace"), "{answer}");
        assert_eq!(running.pipeline.events.len(), stored);
    }
    let request = post(&running, &records("{]"));
    let (status, reason) = running.stored(request).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{reason}");
    assert_eq!(running.pipeline.events.len(), 2);
}
