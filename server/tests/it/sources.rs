//! Kafka and databases as sources of a whole server: the ready pipelines on real input, and kills at full rate
//! with a count against the source. SQLite and librdkafka's mock cluster always, real servers where the environment
//! names them.

use std::collections::HashSet;
use std::env;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};
use rustix::process::Signal;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, SqliteConnection};
use tempfile::TempDir;

use crate::pipelines::{access, command, count, put, until_count};
use crate::process::Server;

/// Rows and records of the tests that kill.
const MANY: usize = 20_000;
const PARTITIONS: i32 = 3;
const ANSWER: Duration = Duration::from_secs(20);

/// A name that no other test uses, on servers that several share.
fn name(of: &str) -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("{of}_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Lines of a real log, or made ones where there is none.
fn lines(log: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data").join(log);
    let text = std::fs::read(&path).map_or_else(
        |_| {
            eprintln!("made lines: no {}", path.display());
            access(0..2_000)
        },
        |bytes| String::from_utf8_lossy(&bytes).into_owned(),
    );
    text.lines().map(str::to_owned).collect()
}

/// Returns the number of values that a keyword field has in an index.
async fn distinct(server: &Server, index: &str, field: &str) -> u64 {
    let distinct = json!({"cardinality": {"field": field, "precision_threshold": 40_000}});
    let answer = server.search(index, &json!({"size": 0, "aggs": {"values": distinct}})).await;
    answer["aggregations"]["values"]["value"].as_u64().unwrap()
}

/// Kills the server whenever it has stored so much, and starts it again: in the end everything is there once.
async fn survives_kills(prepare: impl Fn() -> Command, index: &str, field: &str, kills: &[usize]) {
    for stored in kills {
        let server = Server::new(&mut prepare());
        until_count(&server, index, *stored as u64).await;
        server.signal(Signal::KILL);
        server.wait();
    }
    let server = Server::new(&mut prepare());
    until_count(&server, index, MANY as u64).await;
    server.stop();
    // Whatever would come twice has had its time.
    let server = Server::new(&mut prepare());
    assert_eq!(count(&server, index).await, MANY as u64);
    assert_eq!(distinct(&server, index, field).await, MANY as u64);
    server.stop();
}

/// A database with a table of our own.
struct Database {
    url: String,
    table: String,
    sqlite: Option<TempDir>,
}

impl Database {
    fn all() -> Vec<Self> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("test.db");
        std::fs::File::create(&file).unwrap();
        let sqlite = format!("jdbc:sqlite:{}", file.display());
        let mut all = vec![Self { url: sqlite, table: name("rows"), sqlite: Some(directory) }];
        match env::var("MILLRACE_TEST_POSTGRES_URL") {
            Ok(url) => all.push(Self { url, table: name("rows"), sqlite: None }),
            Err(_) => println!("skipped: no MILLRACE_TEST_POSTGRES_URL"),
        }
        all
    }

    /// Runs a statement; `T#` stands for the table.
    async fn execute(&self, sql: &str) {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.replace("T#", &self.table)));
        match &self.sqlite {
            Some(_) => {
                let url = self.url.trim_start_matches("jdbc:");
                SqliteConnection::connect(url).await.unwrap().execute(sql).await.map(drop)
            }
            None => PgConnection::connect(&self.url).await.unwrap().execute(sql).await.map(drop),
        }
        .unwrap();
    }

    /// Appends rows with ids from `first` on.
    async fn append(&self, first: usize, lines: &[String]) {
        for (position, lines) in lines.chunks(1_000).enumerate() {
            let first = first + position * 1_000;
            let rows = lines.iter().zip(first..).map(|(line, id)| {
                let at = format!("2026-11-{:02} 10:{:02}:{:02}", id % 28 + 1, id / 60 % 60, id % 60);
                format!("({id}, '{at}', '{}')", line.replace('\'', "''"))
            });
            let rows: Vec<String> = rows.collect();
            self.execute(&format!("INSERT INTO T# VALUES {}", rows.join(", "))).await;
        }
    }
}

const TABLE: &str = "CREATE TABLE T# (id INTEGER PRIMARY KEY, created_at TIMESTAMP, line VARCHAR(2000))";

#[tokio::test]
async fn the_ready_jdbc_pipeline_follows_a_table() {
    let ready = include_str!("../../../deploy/pipelines/database.conf");
    let lines = lines("OpenSSH_2k.log");
    for database in Database::all() {
        database.execute(TABLE).await;
        database.append(1, &lines[..1_500]).await;
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "database.conf", ready);
        let mut command = command(dir.path());
        command.env("DATABASE_URL", &database.url).env("DATABASE_TABLE", &database.table);
        let server = Server::new(command.env("DATABASE_SCHEDULE", "* * * * * *"));
        until_count(&server, "database-*", 1_500).await;
        // An id is left out: its transaction commits late.
        database.append(1_502, &lines[1_500..]).await;
        until_count(&server, "database-*", lines.len() as u64).await;
        database.append(1_501, &["late".to_owned()]).await;
        until_count(&server, "database-*", lines.len() as u64 + 1).await;
        let answer = server.search("database-2026.11.18", &json!({"query": {"term": {"id": 17}}})).await;
        let source = &answer["hits"]["hits"][0]["_source"];
        assert_eq!(source["line"], lines[16].as_str(), "{answer}");
        assert_eq!(source["database"]["table"], database.table.as_str());
        assert_eq!(source["@timestamp"], "2026-11-18T10:00:17.000Z");
        server.stop();
        database.execute("DROP TABLE T#").await;
    }
}

#[tokio::test]
async fn jdbc_rows_are_stored_once_though_the_server_is_killed() {
    for database in Database::all() {
        database.execute(TABLE).await;
        let rows: Vec<String> = (1..=MANY).map(|n| format!("row {n}")).collect();
        database.append(1, &rows).await;
        let dir = tempfile::tempdir().unwrap();
        let definition = format!(
            "input {{ jdbc {{ jdbc_connection_string => '{}' statement => 'SELECT id, line FROM {}'
               use_column_value => true tracking_column => 'id' jdbc_paging_enabled => true jdbc_page_size => 3000
               schedule => '* * * * * *' }} }}
             output {{ opensearch {{ index => 'rows' }} }}",
            database.url, database.table
        );
        put(dir.path(), "rows.conf", &definition);
        survives_kills(|| command(dir.path()), "rows", "line.keyword", &[1, MANY / 3, 2 * MANY / 3]).await;
        database.execute("DROP TABLE T#").await;
    }
}

/// A cluster with topics of our own.
struct Cluster {
    servers: String,
    mock: Option<MockCluster<'static, DefaultProducerContext>>,
}

impl Cluster {
    fn all() -> Vec<Self> {
        [Some(Self::mock()), Self::real()].into_iter().flatten().collect()
    }

    fn mock() -> Self {
        let mock = MockCluster::new(1).unwrap();
        Self { servers: mock.bootstrap_servers(), mock: Some(mock) }
    }

    fn real() -> Option<Self> {
        match env::var("MILLRACE_TEST_KAFKA_BROKERS") {
            Ok(servers) => Some(Self { servers, mock: None }),
            Err(_) => {
                println!("skipped: no MILLRACE_TEST_KAFKA_BROKERS");
                None
            }
        }
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.servers).set("group.id", "unused");
        config
    }

    async fn create(&self, topic: &str) {
        match &self.mock {
            Some(mock) => mock.create_topic(topic, PARTITIONS, 1).unwrap(),
            None => {
                let admin: AdminClient<DefaultClientContext> = self.config().create().unwrap();
                let topic = NewTopic::new(topic, PARTITIONS, TopicReplication::Fixed(1));
                let made = admin.create_topics([&topic], &AdminOptions::new()).await.unwrap();
                made.into_iter().for_each(|made| drop(made.unwrap()));
            }
        }
    }

    /// Appends records in turns to all partitions, every second one with a key.
    fn produce(&self, topic: &str, records: &[String]) {
        let producer: ThreadedProducer<DefaultProducerContext> =
            self.config().set("linger.ms", "5").create().unwrap();
        for (at, record) in records.iter().enumerate() {
            let key = at.to_string();
            let mut next = BaseRecord::<str, str>::to(topic).payload(record);
            next = next.partition(i32::try_from(at).unwrap() % PARTITIONS);
            next = if at % 2 == 0 { next } else { next.key(&key) };
            producer.send(next).map_err(|(error, _)| error).unwrap();
        }
        producer.flush(ANSWER).unwrap();
    }

    /// Reads so many records: keys and payloads.
    fn consume(&self, topic: &str, wanted: usize) -> Vec<(Option<String>, Value)> {
        let consumer: BaseConsumer = self.config().create().unwrap();
        let mut list = TopicPartitionList::new();
        for partition in 0..PARTITIONS {
            list.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
        }
        consumer.assign(&list).unwrap();
        let mut records = Vec::new();
        while records.len() < wanted {
            let record = consumer.poll(ANSWER).expect("a record in time").unwrap();
            let key = record.key().map(|key| String::from_utf8(key.to_vec()).unwrap());
            records.push((key, serde_json::from_slice(record.payload().unwrap()).unwrap()));
        }
        records
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ready_kafka_pipeline_stores_records_and_sends_them_on() {
    let ready = include_str!("../../../deploy/pipelines/kafka.conf");
    let lines = lines("Apache_2k.log");
    for cluster in Cluster::all() {
        let (topic, out) = (name("in"), name("out"));
        cluster.create(&topic).await;
        cluster.create(&out).await;
        let mut records: Vec<String> = lines.iter().map(|line| json!({"line": line}).to_string()).collect();
        records.push("no JSON".to_owned());
        cluster.produce(&topic, &records);
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "kafka.conf", ready);
        let mut command = command(dir.path());
        command.env("KAFKA_SERVERS", &cluster.servers).env("KAFKA_TOPIC", &topic).env("KAFKA_OUT", &out);
        let server = Server::new(command.env("KAFKA_GROUP", &topic));
        until_count(&server, "kafka-unparsed", 1).await;
        until_count(&server, "kafka-2*", lines.len() as u64).await;
        let answer = server.search("kafka-2*", &json!({"query": {"term": {"kafka.offset": 3}}})).await;
        let source = &answer["hits"]["hits"][0]["_source"];
        let at = 9 + source["kafka"]["partition"].as_u64().unwrap() as usize;
        assert_eq!(source["line"], lines[at].as_str(), "{answer}");
        let sent = cluster.consume(&out, lines.len());
        let places: HashSet<String> = sent.iter().map(|(_, record)| record["kafka"].to_string()).collect();
        assert_eq!(places.len(), lines.len(), "each record came");
        let keyed = sent.iter().filter(|(key, _)| key.is_some()).count();
        assert_eq!(keyed, lines.len() / 2, "keys are kept, and none are made");
        server.stop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kafka_records_are_stored_once_though_the_server_is_killed() {
    // Dead members of the mock are waited for until their session ends.
    killed_while_it_reads(Cluster::mock(), 3_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kafka_records_of_a_broker_are_stored_once_though_the_server_is_killed() {
    if let Some(cluster) = Cluster::real() {
        killed_while_it_reads(cluster, 6_000).await;
    }
}

async fn killed_while_it_reads(cluster: Cluster, session_ms: u32) {
    let topic = name("killed");
    cluster.create(&topic).await;
    let records: Vec<String> = (0..MANY).map(|n| format!("record {n}")).collect();
    cluster.produce(&topic, &records);
    let dir = tempfile::tempdir().unwrap();
    // A member of a fixed name takes its place again at once, where the broker knows such members.
    let definition = format!(
            "input {{ kafka {{ bootstrap_servers => '{}' topics => ['{topic}'] group_id => '{topic}' auto_offset_reset => 'earliest'
               group_instance_id => 'one' session_timeout_ms => {session_ms} heartbeat_interval_ms => 500 }} }}
             output {{ opensearch {{ index => 'records' }} }}",
            cluster.servers
        );
    put(dir.path(), "records.conf", &definition);
    survives_kills(|| command(dir.path()), "records", "message.keyword", &[MANY / 3]).await;
}
