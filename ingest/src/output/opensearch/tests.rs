use std::collections::VecDeque;

use std::io::Read;
use std::sync::Arc;

use bytes::Bytes;
use chrono::DateTime;
use flate2::read::GzDecoder;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use millrace_catalog::metadata::TemplateKind;
use millrace_catalog::operation::{Action, VersionType, WriteOp};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::build;
use crate::codec;
use crate::event::Additions;
use crate::input::testing::{OptionValue, options};
use crate::output::{Local, OrderTicket, Output, RefusedEvent, Sink, SinkInterrupted};
use crate::{Event, Fault};

fn local(given: &[(&str, OptionValue)]) -> Arc<dyn Local> {
    match build(options("opensearch", given)).unwrap() {
        Output::Local(local) => local,
        Output::Sink(sink) => panic!("{sink:?}"),
    }
}

fn event(fields: Value) -> Event {
    let Value::Object(fields) = fields else { panic!("{fields}") };
    Event::from_fields(fields, DateTime::from_timestamp(1_700_000_000, 0).unwrap())
}

fn faults(given: &[(&str, OptionValue)]) -> Vec<Fault> {
    build(options("opensearch", given)).unwrap_err()
}

fn kind(op: &WriteOp) -> &'static str {
    match op.action {
        Action::Index(_) => "index",
        Action::Create(_) => "create",
        Action::Update(_) => "update",
        Action::Delete => "delete",
    }
}

#[test]
fn operations_of_many_events_are_those_of_each() {
    let mut text = Event::new(DateTime::from_timestamp(1_700_000_000, 0).unwrap());
    text.set_text("a", "y");
    let events = [event(json!({"a": "x", "n": [7]})), text, event(json!({"n": 1})), event(json!({"a": "x"}))];
    // Of a stream: one is as it was decoded, the other is changed.
    let mut decoded = codec::Events::default();
    decoded.set_additions(Additions::default());
    let lines = b"{\"@timestamp\":\"2023-11-14T22:13:20Z\",\"a\":\"x\"}\n{\"a\":\"z\"}\n";
    codec::build(options("json_lines", &[])).unwrap().decoder().decode(lines, &mut decoded);
    decoded[1].set_timestamp(DateTime::UNIX_EPOCH);
    assert_eq!(decoded.iter().map(|event| event.document().is_some()).collect::<Vec<_>>(), [true, false]);
    let events: Vec<&Event> = events.iter().chain(decoded.iter()).collect();
    let described = |made: Result<crate::output::LocalWrite, String>| {
        made.map(|made| format!("{} {:?} {:?}", made.op.index, made.op, made.pipeline))
    };
    let options: [&[(&str, OptionValue)]; 6] = [
        &[],
        &[("index", "one".into())],
        &[("index", "one".into()), ("action", "create".into())],
        &[("index", "of-%{a}".into())],
        &[("index", "one".into()), ("routing", "%{a}".into())],
        &[("index", "one".into()), ("document_id", "%{a}".into()), ("pipeline", "p-%{a}".into())],
    ];
    for given in options {
        let output = local(given);
        let each: Vec<_> = events.iter().map(|event| described(output.operation(event, None))).collect();
        let mut all = Vec::new();
        output.operations(&events, &mut |made| all.push(described(made)));
        assert_eq!(all, each);
    }
}

#[test]
fn events_become_operations_as_the_options_say() {
    let plain = event(json!({"a": "x", "n": 7}));
    let op = local(&[]).operation(&plain, None).unwrap().op;
    assert_eq!((&*op.index, kind(&op), op.id), ("logstash-2023.11.14", "index", None));
    let Action::Index(source) = op.action else { panic!() };
    assert_eq!(
        serde_json::from_slice::<Value>(&source).unwrap(),
        json!({"@timestamp": "2023-11-14T22:13:20.000Z", "a": "x", "n": 7})
    );
    // A stable id is created, one that the user gives is written as asked.
    let op = local(&[]).operation(&plain, Some("stable".to_owned())).unwrap().op;
    assert_eq!((kind(&op), op.id.as_deref()), ("create", Some("stable")));
    let given = [("index", "of-%{a}".into()), ("document_id", "%{n}".into()), ("routing", "%{a}".into())];
    let op = local(&given).operation(&plain, Some("stable".to_owned())).unwrap().op;
    assert_eq!(
        (&*op.index, kind(&op), op.id.as_deref(), op.routing.as_deref()),
        ("of-x", "index", Some("7"), Some("x"))
    );
    let given = [("action", "%{[@metadata][action]}".into()), ("document_id", "%{n}".into())];
    let mut chosen = plain.clone();
    let action = crate::FieldReference::parse("[@metadata][action]").unwrap();
    for name in ["index", "create", "update", "delete"] {
        chosen.set(&action, Value::from(name)).unwrap();
        assert_eq!(kind(&local(&given).operation(&chosen, None).unwrap().op), name);
    }
    chosen.set(&action, Value::from("drop")).unwrap();
    assert!(local(&given).operation(&chosen, None).unwrap_err().contains("[drop]"));
    let given = [
        ("action", "update".into()),
        ("document_id", "1".into()),
        ("doc_as_upsert", "true".into()),
        ("upsert", r#"{"first":"%{a}"}"#.into()),
        ("retry_on_conflict", "5".into()),
    ];
    let op = local(&given).operation(&plain, None).unwrap().op;
    let Action::Update(update) = op.action else { panic!() };
    let doc: Value = serde_json::from_slice(update.doc.unwrap().text()).unwrap();
    assert_eq!(doc["a"], "x");
    assert_eq!(update.upsert, Some(json!({"first": "x"}).into()));
    assert!(update.doc_as_upsert && update.retry_on_conflict == 5);
    let given = [("pipeline", "of-%{a}".into())];
    let pipeline = local(&given).operation(&plain, None).unwrap().pipeline;
    assert_eq!(pipeline.as_deref(), Some("of-x"));
    let given =
        [("document_id", "1".into()), ("version", "%{n}".into()), ("version_type", "external_gt".into())];
    assert_eq!(local(&given).operation(&plain, None).unwrap().op.version, Some((7, VersionType::External)));
}

#[test]
fn events_go_to_data_streams() {
    let stream = |given: &[(&str, OptionValue)], fields: Value| {
        let output = local(&[&[("data_stream", "true".into())], given].concat());
        let op = output.operation(&event(fields), None).unwrap().op;
        let Action::Create(source) = op.action else { panic!("{op:?}") };
        let source: Value = serde_json::from_slice(&source).unwrap();
        (op.index.to_string(), source["data_stream"].clone(), output.names())
    };
    let own = json!({"type": "metrics", "dataset": "nginx", "namespace": 3});
    let defaults = json!({"type": "logs", "dataset": "generic", "namespace": "default"});
    let any = "*-*-*".to_owned();
    let (name, field, names) = stream(&[], json!({"a": 1}));
    assert_eq!((name.as_str(), field, &names), ("logs-generic-default", defaults.clone(), &any));
    let (name, field, _) = stream(&[], json!({ "data_stream": own }));
    assert_eq!((name.as_str(), &field), ("metrics-nginx-3", &own));
    let (name, field, _) = stream(&[], json!({"data_stream": {"type": "metrics", "dataset": null}}));
    let synced = json!({"type": "metrics", "dataset": "generic", "namespace": "default"});
    assert_eq!((name.as_str(), field), ("metrics-generic-default", synced));
    let given =
        [("data_stream_auto_routing", OptionValue::from("false")), ("data_stream_namespace", "x".into())];
    let (name, field, names) = stream(&given, json!({ "data_stream": own }));
    let synced = json!({"type": "logs", "dataset": "generic", "namespace": "x"});
    assert_eq!((name.as_str(), field, names.as_str()), ("logs-generic-x", synced, "logs-generic-x"));
    let given = [("data_stream_sync_fields", OptionValue::from("false"))];
    let partial = json!({"type": "metrics"});
    let (name, field, _) = stream(&given, json!({ "data_stream": partial }));
    assert_eq!((name.as_str(), &field), ("metrics-generic-default", &partial));
    assert_eq!(stream(&[], json!({"data_stream": "text"})).1, defaults);
    let (name, field, _) = stream(&[], json!({"data_stream": {"type": true}}));
    assert_eq!((name.as_str(), field), ("logs-generic-default", defaults));
    let output = local(&[("data_stream", "true".into())]);
    for (member, value) in [("type", "customer"), ("dataset", "a-b"), ("namespace", "A")] {
        let foreign = event(json!({"data_stream": {member: value}}));
        let refused = output.operation(&foreign, None).unwrap_err();
        assert!(refused.contains(&format!("[data_stream][{member}] is [{value}]")), "{refused}");
    }
}

#[test]
fn events_that_cannot_become_operations_say_why() {
    let plain = event(json!({"a": "x"}));
    for (given, reason) in [
        (vec![("index", "of-%{missing}".into())], "of-%{missing}"),
        (vec![("version", "%{a}".into())], "is not a number"),
        (vec![("document_id", "x".repeat(600).into())], "longer than"),
        (
            vec![("action", "update".into()), ("document_id", "1".into()), ("upsert", "[1]".into())],
            "is not an object",
        ),
    ] {
        let refused = local(&given).operation(&plain, None).unwrap_err();
        assert!(refused.contains(reason), "{refused}");
    }
}

#[test]
fn options_are_checked() {
    assert!(build(options("elasticsearch", &[("manage_template", "false".into())])).is_ok());
    // As in Logstash: several hosts in one text, a user without a password, a codec without effect.
    let given =
        [("hosts", "http://a:9200 http://b:9200".into()), ("user", "u".into()), ("codec", "json".into())];
    assert!(build(options("elasticsearch", &given)).is_ok());
    for (given, reason) in [
        (vec![("action", OptionValue::from("upsert"))], "not one of"),
        (vec![("action", "delete".into())], "needs the option [document_id]"),
        (vec![("script", "x".into())], "scripts are not supported"),
        (vec![("data_stream_dataset", "nginx".into())], "needs [data_stream => true]"),
        (vec![("data_stream", "true".into()), ("index", "x".into())], "does not go with"),
        (vec![("data_stream", "true".into()), ("action", "index".into())], "only created"),
        (vec![("data_stream", "true".into()), ("data_stream_dataset", "A".into())], "not a part of a name"),
        (vec![("data_stream", "true".into()), ("data_stream_type", "other".into())], "[data_stream_type]"),
        (vec![("user", "x".into()), ("password", "y".into())], "no [hosts]"),
        (vec![("hosts", "a".into()), ("password", "x".into())], "[user] and [password]"),
        (vec![("hosts", "ftp://a".into())], "not http or https"),
        (vec![("hosts", "https://a".into()), ("ssl_enabled", "false".into())], "says https"),
        (vec![("idnex", "x".into())], "did you mean [index]"),
    ] {
        let found = faults(&given);
        assert!(found.iter().any(|fault| fault.message.contains(reason)), "{reason}: {found:?}");
    }
}

/// Next answer of the server.
#[derive(Clone, Debug)]
enum Reply {
    Status(u16),
    /// Status of each item.
    Items(Vec<u16>),
    /// All items are taken, but the answer gets lost.
    Lost,
    Hang,
}

/// A server that answers `_bulk` as told, and otherwise takes everything.
struct Server {
    address: String,
    replies: Arc<Mutex<VecDeque<Reply>>>,
    /// Bodies of the requests, and their headers.
    requests: Arc<Mutex<Vec<(String, http::HeaderMap, String)>>>,
}

impl Server {
    async fn start(replies: &[Reply]) -> Self {
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", socket.local_addr().unwrap());
        let replies = Arc::new(Mutex::new(replies.iter().cloned().collect::<VecDeque<_>>()));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let server = Self { address, replies: Arc::clone(&replies), requests: Arc::clone(&requests) };
        tokio::spawn(async move {
            loop {
                let (stream, _) = socket.accept().await.unwrap();
                let (replies, requests) = (Arc::clone(&replies), Arc::clone(&requests));
                let service = service_fn(move |request| {
                    let (replies, requests) = (Arc::clone(&replies), Arc::clone(&requests));
                    async move { respond(request, &replies, &requests).await }
                });
                tokio::spawn(async move {
                    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        server
    }

    fn sent(&self) -> Vec<Vec<Value>> {
        let lines = |body: &str| body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        self.requests.lock().iter().map(|(_, _, body)| lines(body)).collect()
    }
}

async fn respond(
    request: http::Request<Incoming>,
    replies: &Mutex<VecDeque<Reply>>,
    requests: &Mutex<Vec<(String, http::HeaderMap, String)>>,
) -> Result<http::Response<Full<Bytes>>, std::io::Error> {
    let (head, body) = request.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let mut text = String::new();
    if head.headers.get("content-encoding").is_some() {
        GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
    } else {
        text = String::from_utf8(bytes.to_vec()).unwrap();
    }
    let items = text
        .lines()
        .filter(|line| line.starts_with(r#"{"index""#) || line.starts_with(r#"{"create""#))
        .count();
    requests.lock().push((head.uri.to_string(), head.headers, text));
    let reply = replies.lock().pop_front().unwrap_or_else(|| Reply::Items(vec![201; items]));
    let statuses = match reply {
        Reply::Status(status) => {
            return Ok(http::Response::builder().status(status).body(Full::from("busy")).unwrap());
        }
        Reply::Lost => return Err(std::io::Error::other("lost")),
        Reply::Hang => std::future::pending().await,
        Reply::Items(statuses) => statuses,
    };
    let item = |status: &u16| {
        let error = json!({"type": "t", "reason": format!("reason {status}")});
        let mut item = json!({"status": status});
        if *status >= 300 {
            item["error"] = error;
        }
        json!({ "index": item })
    };
    let answer = json!({"took": 1, "errors": true, "items": statuses.iter().map(item).collect::<Vec<_>>()});
    Ok(http::Response::new(Full::from(answer.to_string())))
}

fn remote(server: &Server, given: &[(&str, OptionValue)]) -> Arc<dyn Sink> {
    let mut all = vec![("hosts", OptionValue::from(server.address.clone())), ("index", "logs".into())];
    all.extend([("retry_initial_interval", "1".into()), ("retry_max_interval", "1".into())]);
    all.extend(given.iter().cloned());
    match build(options("opensearch", &all)).unwrap() {
        Output::Sink(sink) => sink,
        Output::Local(local) => panic!("{local:?}"),
    }
}

fn events(count: usize) -> Vec<(Arc<Event>, Option<String>)> {
    (0..count).map(|n| (Arc::new(event(json!({"n": n}))), Some(format!("id-{n}")))).collect()
}

/// Keeps all that is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        span.record(&mut self.clone());
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, values: &tracing::span::Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

impl tracing::field::Visit for Log {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.lock().push_str(&format!("{field}={value:?}\n"));
    }
}

async fn send(sink: &Arc<dyn Sink>, events: &[(Arc<Event>, Option<String>)]) -> Vec<RefusedEvent> {
    let stop = watch::Sender::new(false);
    sink.send(events, stop.subscribe(), OrderTicket::new().0).await.unwrap()
}

/// Numbers of the events in a request.
fn numbers(request: &[Value]) -> Vec<u64> {
    request.iter().filter_map(|line| line["n"].as_u64()).collect()
}

#[tokio::test]
async fn only_what_passes_is_sent_again_until_it_is_taken() {
    let server = Server::start(&[
        Reply::Status(503),
        Reply::Status(429),
        Reply::Items(vec![201, 429, 400, 503, 201, 409]),
        Reply::Lost,
        Reply::Items(vec![429, 409]),
    ])
    .await;
    let sink = remote(&server, &[]);
    let refused = send(&sink, &events(6)).await;
    assert_eq!(refused.iter().map(|refused| refused.event).collect::<Vec<_>>(), [2]);
    assert!(refused[0].reason.contains("reason 400"), "{refused:?}");
    let sent = server.sent();
    let sent: Vec<_> = sent.iter().map(|request| numbers(request)).collect();
    let all: Vec<u64> = (0..6).collect();
    assert_eq!(sent, [all.clone(), all.clone(), all, vec![1, 3], vec![1, 3], vec![1]]);
    // A stable id, created, so that it is there once.
    assert_eq!(server.sent()[0][0], json!({"create": {"_index": "logs", "_id": "id-0"}}));
}

#[tokio::test]
async fn requests_are_as_configured() {
    let server = Server::start(&[]).await;
    let given = [
        ("user", "logs".into()),
        ("password", "secret".into()),
        ("http_compression", "true".into()),
        ("path", "/prefix".into()),
        ("parameters", [("filter_path", "items")].into()),
        ("custom_headers", [("X-Custom", "yes")].into()),
        ("document_id", "%{n}".into()),
        ("routing", "r".into()),
        ("pipeline", "p".into()),
        ("version", "3".into()),
        ("version_type", "external".into()),
    ];
    assert_eq!(send(&remote(&server, &given), &events(1)).await, []);
    {
        let requests = server.requests.lock();
        let (uri, headers, _) = &requests[0];
        assert_eq!(uri, "/prefix/_bulk?filter_path=items");
        assert_eq!(headers["authorization"], "Basic bG9nczpzZWNyZXQ=");
        assert_eq!(headers["content-type"], "application/x-ndjson");
        assert_eq!(headers["x-custom"], "yes");
    }
    let expected = json!({"index": {
        "_index": "logs", "_id": "0", "routing": "r", "pipeline": "p", "version": 3, "version_type": "external"
    }});
    assert_eq!(server.sent()[0][0], expected);
    assert_eq!(send(&remote(&server, &[("api_key", "id:key".into())]), &events(1)).await, []);
    assert_eq!(server.requests.lock()[1].1["authorization"], "ApiKey aWQ6a2V5");
}

#[test]
fn faults_of_hashes_show_nothing_of_them() {
    for name in ["custom_headers", "parameters"] {
        let faults = build(options("opensearch", &[("hosts", "h".into()), (name, "token: s3cr3t".into())]))
            .unwrap_err();
        let text: String = faults.iter().map(|fault| fault.message.as_str()).collect();
        assert!(text.contains("must be a hash, not a text") && !text.contains("s3cr3t"), "{text}");
    }
}

#[tokio::test]
async fn neither_logs_nor_faults_show_secrets() {
    let log = Log::default();
    // With a single dispatcher, a thread without one that reaches a callsite first disables it for all threads.
    let _second_dispatcher = tracing::Dispatch::new(log.clone());
    let _kept = tracing::subscriber::set_default(log.clone());
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = gone.local_addr().unwrap();
    drop(gone);
    for (credentials, hosts) in [
        (vec![], format!("http://joe:s3cr3t@{dead}")),
        (vec![("user", "joe".into()), ("password", "s3cr3t".into())], format!("http://{dead}")),
        (vec![("api_key", "id:s3cr3t".into())], format!("http://{dead}")),
    ] {
        let mut given: Vec<(&str, OptionValue)> = credentials;
        given.extend([
            ("hosts", hosts.into()),
            ("index", "logs".into()),
            ("parameters", [("token", "s3cr3t")].into()),
            ("custom_headers", [("X-Key", "s3cr3t")].into()),
        ]);
        let options = options("opensearch", &given);
        assert!(!format!("{options:?}").contains("s3cr3t"));
        let Output::Sink(sink) = build(options).unwrap() else { panic!() };
        assert!(!format!("{sink:?}").contains("s3cr3t"));
        let stop = watch::Sender::new(false);
        let one = events(1);
        let sending = sink.send(&one, stop.subscribe(), OrderTicket::new().0);
        let stopping = async {
            while !log.0.lock().contains("they are sent again") {
                tokio::task::yield_now().await;
            }
            stop.send_replace(true);
        };
        let (sent, ()) = tokio::join!(sending, stopping);
        assert_eq!(sent, Err(SinkInterrupted));
        let logged = std::mem::take(&mut *log.0.lock());
        assert!(!logged.contains("s3cr3t"), "{logged}");
    }
    for hosts in ["https://joe:s3cr3t@host:port", "ftp://joe:s3cr3t@host", "http://joe:s3cr3t/x@host"] {
        for more in [None, Some(("proxy", OptionValue::from("no:s3cr3t@x y")))] {
            let mut given = vec![("hosts", OptionValue::from(hosts)), ("index", "logs".into())];
            given.extend(more);
            let faults = build(options("opensearch", &given)).unwrap_err();
            assert!(!faults.is_empty() && !format!("{faults:?}").contains("s3cr3t"), "{faults:?}");
        }
    }
}

#[test]
fn what_changes_where_documents_land_is_refused() {
    let faults =
        |given: &[(&str, OptionValue)]| build(options("elasticsearch", given)).err().unwrap_or_default();
    for (name, value, instead) in [
        ("ilm_rollover_alias", "logs", "[index]"),
        ("ilm_pattern", "000001", "[index]"),
        ("ilm_policy", "logs", "[index]"),
        ("ilm_enabled", "true", "[index]"),
        ("data_stream_dataset", "logs", "[data_stream => true]"),
    ] {
        let faults = faults(&[(name, value.into())]);
        let told = |fault: &Fault| fault.message.contains(name) && fault.message.contains(instead);
        assert!(faults.len() == 1 && faults.iter().all(told), "{name}: {faults:?}");
    }
    // What Logstash does not look at either.
    for given in [
        &[("ilm_enabled", OptionValue::from("auto"))][..],
        &[("ilm_enabled", "false".into()), ("ilm_rollover_alias", "logs".into())],
        &[("manage_template", "false".into()), ("template_name", "logs".into())],
        &[("manage_template", "true".into()), ("template_overwrite", "true".into())],
        &[("sniffing", "true".into()), ("sniffing_path", "/_nodes".into())],
        &[("data_stream", "auto".into())],
    ] {
        assert_eq!(faults(given), []);
    }
}

#[test]
fn this_server_gets_templates_of_the_indices_that_are_written_to() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let built = |text: &str, more: &[(&str, OptionValue)]| {
        std::fs::write(file.path(), text).unwrap();
        let path = file.path().display().to_string();
        let given = [&[("index", "logs-%{+YYYY.MM.dd}".into()), ("template", path.into())], more].concat();
        build(options("elasticsearch", &given))
    };
    let legacy = r#"{"template": "logs-*", "order": 3, "settings": {"number_of_shards": 2}, "aliases": {}}"#;
    let Ok(Output::Local(local)) = built(legacy, &[("template_overwrite", "true".into())]) else { panic!() };
    let template = local.template().unwrap();
    assert_eq!((template.kind, template.name.as_str()), (TemplateKind::Legacy, "logstash"));
    assert_eq!((&template.body["index_patterns"], template.overwrites), (&json!(["logs-*"]), true));
    let composable = r#"{"index_patterns": ["logs-2*"], "template": {"aliases": {"logs-now": {}}}}"#;
    let Ok(Output::Local(local)) = built(composable, &[("template_name", "mine".into())]) else { panic!() };
    let template = local.template().unwrap();
    assert_eq!((template.kind, template.name.as_str()), (TemplateKind::Index, "mine"));
    for (text, expected) in [
        (r#"{"index_patterns": ["*"], "template": {}}"#, "it is for [*]"),
        (r#"{"index_patterns": ["logs*"], "template": {}}"#, "among the indices [logs-*]"),
        (r#"{"index_patterns": ["logs-*"], "template": {"aliases": {"other": {}}}}"#, "it is for [other]"),
        (r#"{"index_patterns": ["logs-*"], "priority": -1, "template": {}}"#, "priority"),
    ] {
        let faults = built(text, &[]).unwrap_err();
        assert!(faults.iter().any(|fault| fault.message.contains(expected)), "{faults:?}");
    }
    let Ok(Output::Local(local)) = built("none", &[("manage_template", "false".into())]) else { panic!() };
    assert_eq!(local.template(), None);
}

#[tokio::test]
async fn another_server_gets_the_template_first() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), r#"{"index_patterns": ["logs"], "template": {"settings": {}}}"#).unwrap();
    let path: OptionValue = file.path().display().to_string().into();
    // It is not there, and the server refuses it once: events wait.
    let server =
        Server::start(&[Reply::Status(404), Reply::Status(503), Reply::Status(404), Reply::Status(200)])
            .await;
    let sink = remote(&server, &[("template", path.clone()), ("template_name", "mine".into())]);
    let stop = watch::Sender::new(false);
    assert_eq!(sink.send(&events(1), stop.subscribe(), OrderTicket::new().0).await, Ok(Vec::new()));
    assert_eq!(sink.send(&events(1), stop.subscribe(), OrderTicket::new().0).await, Ok(Vec::new()));
    let requests = |server: &Server| -> Vec<String> {
        server.requests.lock().iter().map(|(path, ..)| path.clone()).collect()
    };
    let template = "/_index_template/mine";
    assert_eq!(requests(&server), [template, template, template, template, "/_bulk", "/_bulk"]);
    assert!(server.requests.lock()[3].2.contains("index_patterns"));
    // One of the older API, which is there and stays.
    std::fs::write(file.path(), r#"{"template": "logs-*"}"#).unwrap();
    let server = Server::start(&[Reply::Status(200)]).await;
    let sink = remote(&server, &[("template", path.clone())]);
    assert_eq!(sink.send(&events(1), stop.subscribe(), OrderTicket::new().0).await, Ok(Vec::new()));
    assert_eq!(requests(&server), ["/_template/logstash", "/_bulk"]);
    // Without a file there is no template, whatever is said about it.
    let server = Server::start(&[]).await;
    let about = [
        ("manage_template", "true"),
        ("template_name", "x"),
        ("template_overwrite", "true"),
        ("sniffing", "true"),
    ];
    let sink = remote(&server, &about.map(|(name, value)| (name, value.into())));
    assert_eq!(sink.send(&events(1), stop.subscribe(), OrderTicket::new().0).await, Ok(Vec::new()));
    assert_eq!(requests(&server), ["/_bulk"]);
    let hosts = ("hosts", OptionValue::from("a"));
    for (given, expected) in [
        (vec![hosts.clone(), ("template", "/nonexistent.json".into())], "cannot be read"),
        (vec![hosts, ("template", path), ("template_name", "a/b".into())], "[template_name] must have"),
    ] {
        let found = faults(&given);
        assert!(found.iter().any(|fault| fault.message.contains(expected)), "{found:?}");
    }
}

#[tokio::test]
async fn requests_that_are_too_large_are_cut_up() {
    let server = Server::start(&[Reply::Status(413), Reply::Status(413)]).await;
    let refused = send(&remote(&server, &[]), &events(4)).await;
    assert_eq!(refused, []);
    let sent: Vec<_> = server.sent().iter().map(|request| numbers(request)).collect();
    assert_eq!(sent, [vec![0, 1, 2, 3], vec![0, 1], vec![0], vec![1], vec![2, 3]]);
    let server = Server::start(&[Reply::Status(413)]).await;
    let refused = send(&remote(&server, &[]), &events(1)).await;
    assert!(refused[0].reason.contains("too large"), "{refused:?}");
    let server = Server::start(&[]).await;
    send(&remote(&server, &[("target_bulk_bytes", "200".into())]), &events(6)).await;
    assert!(server.sent().len() > 1);
}

#[tokio::test]
async fn the_next_host_takes_over_and_a_stop_ends_the_trying() {
    let server = Server::start(&[]).await;
    // Nobody listens on the port of a listener that is gone.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    let hosts = OptionValue::from([dead.as_str(), server.address.as_str()]);
    let given = [("hosts", hosts), ("index", "logs".into()), ("retry_initial_interval", "1".into())];
    let Output::Sink(sink) = build(options("opensearch", &given)).unwrap() else { panic!() };
    assert_eq!(send(&sink, &events(1)).await, []);
    assert_eq!(server.sent().len(), 1);
    server.replies.lock().push_back(Reply::Hang);
    let stop = watch::Sender::new(false);
    let two = events(2);
    let sending = sink.send(&two, stop.subscribe(), OrderTicket::new().0);
    let stopping = async {
        while server.sent().len() < 2 {
            tokio::task::yield_now().await;
        }
        stop.send_replace(true);
    };
    let (sent, ()) = tokio::join!(sending, stopping);
    assert_eq!(sent, Err(SinkInterrupted));
}
