//! The input, and the output with it, on librdkafka's own mock cluster, and on a real broker where the
//! environment names one.
//!
//! On the mock cluster a group has one member at a time: it refuses members that ask for their partitions
//! later than the leader does, for ever where the leader is always the faster one.

use std::collections::BTreeSet;
use std::env;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::Utc;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{DefaultProducerContext, FutureProducer, FutureRecord, Producer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use serde_json::{Map, Value, json};
use tokio::sync::{RwLock, watch};

use super::build;
use crate::input::Input;
use crate::input::ledger::{Ledger, RunningInput, messages, options, text};
use crate::kafka::{Client, Log};
use crate::output::{self, OrderTicket, Output};
use crate::{Event, Setting};

/// Held by the test that restarts the broker, and shared by all others.
static UP: RwLock<()> = RwLock::const_new(());
const ANSWER: Duration = Duration::from_secs(20);
const PARTITIONS: i32 = 3;

/// A cluster with a topic and a group of our own.
struct Cluster {
    servers: String,
    topic: String,
    mock: Option<MockCluster<'static, DefaultProducerContext>>,
}

impl Cluster {
    async fn all() -> Vec<Self> {
        let mock = MockCluster::new(1).expect("a mock cluster");
        let mut all = vec![Self { servers: mock.bootstrap_servers(), topic: name(), mock: Some(mock) }];
        all.extend(Self::real());
        for cluster in &all {
            cluster.create().await;
        }
        all
    }

    fn real() -> Option<Self> {
        match env::var("MILLRACE_TEST_KAFKA_BROKERS") {
            Ok(servers) => Some(Self { servers, topic: name(), mock: None }),
            Err(_) => {
                println!("skipped: no MILLRACE_TEST_KAFKA_BROKERS");
                None
            }
        }
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.servers).set("group.id", &self.topic);
        config
    }

    async fn create(&self) {
        match &self.mock {
            Some(mock) => mock.create_topic(&self.topic, PARTITIONS, 1).expect("a topic"),
            None => {
                let admin: AdminClient<DefaultClientContext> = self.config().create().expect("a client");
                let topic = NewTopic::new(&self.topic, PARTITIONS, TopicReplication::Fixed(1));
                let made = admin.create_topics([&topic], &AdminOptions::new()).await.expect("an answer");
                made.into_iter().for_each(|made| drop(made.expect("a topic")));
            }
        }
    }

    async fn produce(&self, from: usize, to: usize) {
        let producer: FutureProducer = self.config().set("linger.ms", "5").create().expect("a producer");
        let sent = (from..to).map(|at| {
            let payload = json!({"n": number(at)}).to_string();
            let partition = i32::try_from(at).expect("small") % PARTITIONS;
            let record = FutureRecord::<str, str>::to(&self.topic).partition(partition).payload(&payload);
            let sent = producer.send_result(record).map_err(|(error, _)| error).expect("room");
            async move { sent.await.expect("an answer").map_err(|(error, _)| error).expect("a record") }
        });
        futures::future::join_all(sent.collect::<Vec<_>>()).await;
    }

    fn input(&self, more: &[(&'static str, Setting)]) -> Box<dyn Input> {
        let given = [
            ("bootstrap_servers", text(self.servers.as_str())),
            ("topics", text(self.topic.as_str())),
            ("group_id", text(self.topic.as_str())),
            ("auto_offset_reset", text("earliest")),
            ("codec", text("json")),
            ("session_timeout_ms", text("6000")),
            ("heartbeat_interval_ms", text("500")),
            ("auto_commit_interval_ms", text("50")),
        ];
        let given = given.into_iter().filter(|(name, _)| more.iter().all(|(other, _)| other != name));
        let options = options("kafka", given.chain(more.iter().cloned()));
        build(options).unwrap_or_else(|faults| panic!("{}", messages(&faults)))
    }

    /// The group's offsets in the broker, with their marks.
    fn committed(&self) -> Vec<(i64, String)> {
        let consumer: BaseConsumer = self.config().create().expect("a consumer");
        let mut list = TopicPartitionList::new();
        list.add_partition_range(&self.topic, 0, PARTITIONS - 1);
        let committed = consumer.committed_offsets(list, ANSWER).expect("offsets");
        let elements = committed.elements();
        elements
            .iter()
            .map(|element| (element.offset().to_raw().unwrap_or(-1), element.metadata().to_owned()))
            .collect()
    }

    /// Sets the group's offsets, as tools do.
    fn reset(&self, offset: i64) {
        let consumer: BaseConsumer = self.config().create().expect("a consumer");
        let mut list = TopicPartitionList::new();
        for partition in 0..PARTITIONS {
            list.add_partition_offset(&self.topic, partition, Offset::Offset(offset)).expect("an offset");
        }
        consumer.commit(&list, CommitMode::Sync).expect("a commit");
    }
}

fn name() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("millrace-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn number(at: usize) -> String {
    format!("r{at:06}")
}

fn numbers(to: usize) -> Vec<String> {
    (0..to).map(number).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_record_comes_once_and_the_group_follows() {
    let _up = UP.read().await;
    for cluster in Cluster::all().await {
        cluster.produce(0, 1000).await;
        let ledger = Ledger::new();
        let running = RunningInput::start(&ledger, cluster.input(&[]), 50, Duration::ZERO);
        running.wait(1000).await;
        assert_eq!(running.stop().await, None);
        assert_eq!(ledger.sorted("n"), numbers(1000));
        assert!(ledger.largest() <= 50);
        assert_eq!(cluster.committed().iter().map(|(offset, _)| offset).sum::<i64>(), 1000);
        assert!(cluster.committed().iter().all(|(_, mark)| mark == "millrace"), "{:?}", cluster.committed());
        cluster.produce(1000, 1500).await;
        let threads = if cluster.mock.is_some() { "1" } else { "2" };
        let more = [("decorate_events", text("extended")), ("consumer_threads", text(threads))];
        let running = RunningInput::start(&ledger, cluster.input(&more), 50, Duration::ZERO);
        running.wait(1500).await;
        assert_eq!(running.stop().await, None);
        assert_eq!(ledger.sorted("n"), numbers(1500));
        let events = ledger.events();
        let about =
            events.last().and_then(|event| event.metadata().get("kafka")).cloned().unwrap_or_default();
        assert_eq!(about.get("topic"), Some(&json!(cluster.topic)));
        assert_eq!(about.get("headers"), Some(&json!({})));
        let offsets: BTreeSet<String> = events
            .iter()
            .filter_map(|event| event.metadata().get("kafka"))
            .map(|about| format!("{} {}", about["partition"], about["offset"]))
            .collect();
        assert_eq!(offsets.len(), 500);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_batch_is_read_again() {
    let _up = UP.read().await;
    for cluster in Cluster::all().await {
        cluster.produce(0, 600).await;
        let ledger = Ledger::new();
        ledger.refuse(4);
        let running = RunningInput::start(&ledger, cluster.input(&[]), 20, Duration::ZERO);
        running.wait(600).await;
        assert_eq!(running.stop().await, None);
        assert_eq!(ledger.sorted("n"), numbers(600));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_are_from_the_same_places_whatever_the_batches() {
    let _up = UP.read().await;
    for cluster in Cluster::all().await {
        cluster.produce(0, 60).await;
        let mut all = Vec::new();
        for batch in [1, 7, 100] {
            let ledger = Ledger::new();
            let group = [("group_id", text(name()))];
            let running = RunningInput::start(&ledger, cluster.input(&group), batch, Duration::ZERO);
            running.wait(60).await;
            assert_eq!(running.stop().await, None);
            all.push(ledger.provenances("n"));
        }
        let offsets: Vec<u128> = all[0].iter().map(|(_, from)| from.record).collect();
        assert_eq!(offsets, (0..60).map(|at| at / PARTITIONS.unsigned_abs() as u128).collect::<Vec<_>>());
        assert!(all.iter().all(|one| *one == all[0]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebalance_in_the_middle_of_batches_loses_and_doubles_nothing() {
    let _up = UP.read().await;
    for strategy in ["range", "cooperative_sticky"] {
        let Some(cluster) = Cluster::real() else { return };
        cluster.create().await;
        cluster.produce(0, 3000).await;
        let ledger = Ledger::new();
        let settings = [("partition_assignment_strategy", text(strategy))];
        let start = || RunningInput::start(&ledger, cluster.input(&settings), 20, Duration::from_millis(20));
        let first = start();
        first.wait(200).await;
        let second = start();
        second.wait(1500).await;
        first.stop().await;
        cluster.produce(3000, 3300).await;
        let third = start();
        third.wait(3300).await;
        second.stop().await;
        third.stop().await;
        assert_eq!(ledger.sorted("n"), numbers(3300), "{} batches were refused", ledger.moved());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_sets_the_groups_offsets_once_each_time() {
    let _up = UP.read().await;
    // The mock cluster lets nobody but members set offsets.
    let Some(cluster) = Cluster::real() else { return };
    cluster.create().await;
    cluster.produce(0, 300).await;
    let ledger = Ledger::new();
    // 100 records a partition: each reset reads what lies behind it again, also one to the same
    // offset; without one, nothing but what is new comes.
    let mut expected = 0;
    for (new, reset, again) in [(300, None, 0), (3, Some(80), 63), (3, None, 3), (3, Some(80), 69)] {
        if expected > 0 {
            cluster.produce(300, 300 + new).await;
        }
        if let Some(offset) = reset {
            cluster.reset(offset);
        }
        expected += if expected == 0 { new } else { again };
        let running = RunningInput::start(&ledger, cluster.input(&[]), 20, Duration::ZERO);
        running.wait(expected).await;
        assert_eq!(running.stop().await, None);
        assert_eq!(ledger.len(), expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_was_made_again_is_read_from_its_start() {
    let _up = UP.read().await;
    let Some(cluster) = Cluster::real() else { return };
    cluster.create().await;
    cluster.produce(0, 300).await;
    let ledger = Ledger::new();
    let running = RunningInput::start(&ledger, cluster.input(&[]), 20, Duration::ZERO);
    running.wait(300).await;
    assert_eq!(running.stop().await, None);
    let admin: AdminClient<DefaultClientContext> = cluster.config().create().expect("a client");
    for gone in admin.delete_topics(&[&cluster.topic], &AdminOptions::new()).await.expect("an answer") {
        gone.expect("no topic");
    }
    // Until the broker has forgotten it, it cannot be made.
    let topic = NewTopic::new(&cluster.topic, PARTITIONS, TopicReplication::Fixed(1));
    while admin
        .create_topics([&topic], &AdminOptions::new())
        .await
        .expect("an answer")
        .iter()
        .any(Result::is_err)
    {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // More than were read: only the topic's id tells.
    cluster.produce(300, 690).await;
    let running = RunningInput::start(&ledger, cluster.input(&[]), 20, Duration::ZERO);
    running.wait(690).await;
    assert_eq!(running.stop().await, None);
    assert_eq!(ledger.sorted("n"), numbers(690));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_of_the_broker_is_survived() {
    let _up = UP.write().await;
    let Ok(restart) = env::var("MILLRACE_TEST_KAFKA_RESTART") else {
        println!("skipped: no MILLRACE_TEST_KAFKA_RESTART");
        return;
    };
    let Some(cluster) = Cluster::real() else { return };
    cluster.create().await;
    cluster.produce(0, 2000).await;
    let ledger = Ledger::new();
    let running = RunningInput::start(&ledger, cluster.input(&[]), 20, Duration::from_millis(10));
    running.wait(300).await;
    let restarted = tokio::task::spawn_blocking(move || Command::new("sh").args(["-c", &restart]).status());
    assert!(restarted.await.expect("a restart").expect("a restart").success());
    cluster.produce(2000, 2300).await;
    running.wait(2300).await;
    running.stop().await;
    assert_eq!(ledger.sorted("n"), numbers(2300));
}

fn sink(cluster: &Cluster, more: &[(&'static str, Setting)]) -> Arc<dyn output::Sink> {
    let given = [
        ("bootstrap_servers", text(cluster.servers.as_str())),
        ("topic_id", text("%{topic}")),
        ("codec", text("json")),
        ("linger_ms", text("5")),
    ];
    match output::build(options("kafka", given.into_iter().chain(more.iter().cloned()))) {
        Ok(Output::Sink(sink)) => sink,
        Ok(Output::Local(_)) => panic!("a sink is expected"),
        Err(faults) => panic!("{}", messages(&faults)),
    }
}

fn event(cluster: &Cluster, at: usize) -> Event {
    let mut fields = Map::new();
    fields.insert("topic".to_owned(), Value::from(cluster.topic.as_str()));
    fields.insert("n".to_owned(), Value::from(number(at)));
    Event::from_fields(fields, Utc::now())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_output_sends_the_input_reads() {
    let _up = UP.read().await;
    for cluster in Cluster::all().await {
        for (round, compression) in ["none", "gzip", "snappy", "lz4", "zstd"].into_iter().enumerate() {
            let acks = if round % 2 == 0 { "all" } else { "1" };
            let more = [
                ("acks", text(acks)),
                ("compression_type", text(compression)),
                ("message_key", text("%{n}")),
                ("message_headers", Setting::Hash(vec![("number".to_owned(), text("<%{n}>"))])),
                ("max_request_size", text("10000")),
            ];
            let mut events: Vec<_> =
                (round * 100..(round + 1) * 100).map(|at| (Arc::new(event(&cluster, at)), None)).collect();
            let mut large = event(&cluster, 0);
            large.fields_mut().insert("large".to_owned(), Value::from("x".repeat(20_000)));
            let mut nowhere = event(&cluster, 0);
            nowhere.fields_mut().insert("topic".to_owned(), Value::from("x".repeat(300)));
            events.insert(50, (Arc::new(large), None));
            events.insert(70, (Arc::new(nowhere), None));
            let (_stop, stopping) = watch::channel(false);
            let refused = sink(&cluster, &more)
                .send(&events, stopping, OrderTicket::new().0)
                .await
                .expect("all is sent");
            assert_eq!(
                refused.iter().map(|refused| refused.event).collect::<Vec<_>>(),
                [50, 70],
                "{refused:?}"
            );
        }
        let ledger = Ledger::new();
        let more = [("decorate_events", text("extended"))];
        let running = RunningInput::start(&ledger, cluster.input(&more), 50, Duration::ZERO);
        running.wait(500).await;
        assert_eq!(running.stop().await, None);
        assert_eq!(ledger.sorted("n"), numbers(500));
        for event in ledger.events() {
            let about = event.metadata().get("kafka").cloned().unwrap_or_default();
            let n = event.fields().get("n").and_then(Value::as_str).unwrap_or_default();
            assert_eq!(about["key"], json!(n));
            assert_eq!(about["headers"]["number"], json!(format!("<{n}>")));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_output_waits_for_its_broker_and_can_be_stopped() {
    let mock = MockCluster::new(1).expect("a mock cluster");
    let cluster = Cluster { servers: mock.bootstrap_servers(), topic: name(), mock: Some(mock) };
    cluster.create().await;
    let mock = cluster.mock.as_ref().expect("a mock cluster");
    let sink = sink(&cluster, &[]);
    let events = [(Arc::new(event(&cluster, 0)), None)];
    mock.broker_down(1).expect("a broker down");
    let (stop, stopping) = watch::channel(false);
    let mut sending = Box::pin(sink.send(&events, stopping, OrderTicket::new().0));
    let early = tokio::time::timeout(Duration::from_millis(500), &mut sending).await;
    assert!(early.is_err(), "it was sent to a broker that is down");
    mock.broker_up(1).expect("a broker up");
    let sent = tokio::time::timeout(ANSWER, &mut sending).await.expect("it is sent");
    assert_eq!(sent, Ok(Vec::new()));
    mock.broker_down(1).expect("a broker down");
    let sending = sink.send(&events, stop.subscribe(), OrderTicket::new().0);
    stop.send(true).expect("somebody listens");
    assert_eq!(sending.await, Err(output::SinkInterrupted));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_logins_and_stores_reach_a_secured_broker() {
    let _up = UP.read().await;
    let (Ok(plain), Ok(tls), Ok(directory)) = (
        env::var("MILLRACE_TEST_KAFKA_SASL_BROKERS"),
        env::var("MILLRACE_TEST_KAFKA_TLS_BROKERS"),
        env::var("MILLRACE_TEST_KAFKA_TLS_DIR"),
    ) else {
        println!(
            "skipped: no MILLRACE_TEST_KAFKA_SASL_BROKERS, MILLRACE_TEST_KAFKA_TLS_BROKERS and MILLRACE_TEST_KAFKA_TLS_DIR"
        );
        return;
    };
    let login = |module: &str, password: &str| {
        text(format!(
            "org.apache.kafka.common.security.{module} required username=\"millrace\" password=\"{password}\";"
        ))
    };
    let (plain_module, scram) = ("plain.PlainLoginModule", "scram.ScramLoginModule");
    let mut cases = Vec::new();
    for (mechanism, module) in [("PLAIN", plain_module), ("SCRAM-SHA-256", scram), ("SCRAM-SHA-512", scram)] {
        cases.push(vec![
            ("bootstrap_servers", text(plain.as_str())),
            ("security_protocol", text("SASL_PLAINTEXT")),
            ("sasl_mechanism", text(mechanism)),
            ("sasl_jaas_config", login(module, "millrace-secret")),
        ]);
    }
    for (trust, key) in
        [("ca.pem", None), ("trust.p12", Some("client.p12")), ("trust.jks", Some("client.jks"))]
    {
        let mut case = vec![
            ("bootstrap_servers", text(tls.as_str())),
            ("security_protocol", text("SASL_SSL")),
            ("sasl_mechanism", text("SCRAM-SHA-512")),
            ("sasl_jaas_config", login(scram, "millrace-secret")),
            ("ssl_truststore_location", text(format!("{directory}/{trust}"))),
            ("ssl_truststore_password", text("changeit")),
        ];
        if let Some(key) = key {
            case.push(("ssl_keystore_location", text(format!("{directory}/{key}"))));
            case.push(("ssl_keystore_password", text("changeit")));
        }
        cases.push(case);
    }
    for case in cases {
        let shown = format!("{:?}", case.iter().map(|(_, setting)| setting.as_text()).collect::<Vec<_>>());
        let mut options = options("kafka", case);
        let client = Client::take(&mut options);
        assert_eq!(options.finish(), Ok(()), "{shown}");
        let consumer: BaseConsumer = client.config().expect("settings").create().expect("a consumer");
        let metadata = consumer.fetch_metadata(None, ANSWER);
        assert!(metadata.is_ok(), "{shown}: {:?}", metadata.err());
    }
    // Neither a wrong password nor an unknown authority gets through.
    let refused = [
        vec![
            ("bootstrap_servers", text(plain)),
            ("security_protocol", text("SASL_PLAINTEXT")),
            ("sasl_mechanism", text("PLAIN")),
            ("sasl_jaas_config", login(plain_module, "wrong")),
        ],
        vec![
            ("bootstrap_servers", text(tls)),
            ("security_protocol", text("SASL_SSL")),
            ("sasl_mechanism", text("SCRAM-SHA-512")),
            ("sasl_jaas_config", login(scram, "millrace-secret")),
            ("ssl_truststore_location", text(format!("{directory}/client.pem"))),
        ],
    ];
    for case in refused {
        let client = Client::take(&mut options("kafka", case));
        let consumer: BaseConsumer = client.config().expect("settings").create().expect("a consumer");
        assert!(consumer.fetch_metadata(None, Duration::from_secs(2)).is_err());
    }
    let wrong = [
        ("security_protocol", text("SSL")),
        ("ssl_truststore_location", text(format!("{directory}/trust.p12"))),
        ("ssl_truststore_password", text("wrong")),
    ];
    let mut options = options("kafka", wrong);
    Client::take(&mut options);
    assert!(messages(&options.finish().expect_err("a fault")).contains("password"));
}

/// Answers requests for tokens with one that the broker takes, which checks no signatures.
fn serve_tokens(listener: &TcpListener) {
    let claims = format!(r#"{{"sub":"shipper","exp":{}}}"#, Utc::now().timestamp() + 3_600);
    let token = [r#"{"alg":"none"}"#, &claims].map(|part| URL_SAFE_NO_PAD.encode(part)).join(".");
    let body = json!({ "access_token": format!("{token}.") }).to_string();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    while let Ok((mut stream, _)) = listener.accept() {
        let (mut request, mut chunk) = (Vec::new(), [0; 4_096]);
        while !request.ends_with(b"client_credentials") {
            match stream.read(&mut chunk) {
                Ok(read) if read > 0 => request.extend_from_slice(&chunk[..read]),
                _ => break,
            }
        }
        let _ = stream.write_all((head.clone() + &body).as_bytes());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_opens_a_broker() {
    let _up = UP.read().await;
    let Ok(brokers) = env::var("MILLRACE_TEST_KAFKA_SASL_BROKERS") else {
        println!("skipped: no MILLRACE_TEST_KAFKA_SASL_BROKERS");
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}/token", listener.local_addr().expect("an address"));
    std::thread::spawn(move || serve_tokens(&listener));
    let login = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \
                 clientId=\"shipper\" clientSecret=\"secret\";";
    let mut options = options(
        "kafka",
        [
            ("bootstrap_servers", text(brokers)),
            ("security_protocol", text("SASL_PLAINTEXT")),
            ("sasl_mechanism", text("OAUTHBEARER")),
            ("sasl_oauthbearer_token_endpoint_url", text(endpoint)),
            ("sasl_jaas_config", text(login)),
        ],
    );
    let client = Client::take(&mut options);
    assert_eq!(options.finish(), Ok(()));
    let log = Log { tokens: client.token_source() };
    let producer: FutureProducer<Log> =
        client.config().expect("settings").create_with_context(log).expect("a producer");
    let metadata = producer.client().fetch_metadata(None, ANSWER);
    assert!(metadata.is_ok(), "{:?}", metadata.err());
}

#[test]
fn all_faults_are_told_at_once() {
    let wrong = options(
        "kafka",
        [
            ("topics", text("a/b")),
            ("topics_pattern", text("a.*")),
            ("security_protocol", text("SASL_SSL")),
            ("auto_offset_reset", text("first")),
            ("partition_assignment_strategy", text("sticky")),
            ("value_deserializer_class", text("io.confluent.KafkaAvroDeserializer")),
            ("schema_registry_url", text("http://registry")),
            ("ssl_truststore_location", text("/nowhere/trust.jks")),
            ("group_ip", text("x")),
            ("codec", text("jsno")),
        ],
    );
    let faults = messages(&build(wrong).expect_err("faults"));
    for part in [
        "[a/b]",
        "only one of [topics]",
        "SCRAM-SHA-256",
        "sasl_jaas_config",
        "earliest, latest, none",
        "cooperative_sticky",
        "StringDeserializer",
        "codec => avro",
        "/nowhere/trust.jks",
        "did you mean [group_id]",
        "[jsno]",
    ] {
        assert!(faults.contains(part), "{part} is not in\n{faults}");
    }
    assert!(
        build(options("kafka", [("heartbeat_interval_ms", text("9000")), ("codec", text("plain"))])).is_ok()
    );
}
