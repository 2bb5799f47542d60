//! Pipelines in a whole server: stored events through kills and reloads, and their management.

use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::process::{Server, http_client, millrace, run};

const LINES: usize = 3_000;

pub(crate) fn put(data: &Path, name: &str, text: &str) {
    std::fs::create_dir_all(data.join("pipelines")).unwrap();
    std::fs::write(data.join("pipelines").join(name), text).unwrap();
}

pub(crate) fn start(data: &Path) -> Server {
    Server::new(&mut command(data))
}

pub(crate) fn command(data: &Path) -> Command {
    let mut command = millrace(&["serve", "--insecure", "--listen", "127.0.0.1:0", "--data"]);
    command
        .arg(data)
        .env("MILLRACE_PIPELINES__RELOAD_INTERVAL", "100ms")
        .env("DATA", data)
        .env("TOKEN", "sesame");
    command
}

/// Returns the URL of the server's management of pipelines.
fn management(server: &Server) -> String {
    let line = server.greeting.lines().find_map(|line| line.strip_prefix("pipelines are managed on "));
    line.unwrap().to_owned()
}

async fn manage(server: &Server, method: Method, path: &str, body: &str) -> (u16, Value) {
    let request = http_client().request(method, format!("{}{path}", management(server)));
    let answer =
        request.header("content-type", "application/json").body(body.to_owned()).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

pub(crate) async fn count(server: &Server, index: &str) -> u64 {
    server.call(Method::POST, "/_refresh", "").await;
    server.call(Method::GET, &format!("/{index}/_count"), "").await.1["count"].as_u64().unwrap_or(0)
}

pub(crate) async fn until_count(server: &Server, index: &str, wanted: u64) {
    let began = millrace_runtime::Instant::now();
    while count(server, index).await < wanted {
        assert!(began.elapsed() < Duration::from_secs(60), "{index} has {}", count(server, index).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) fn access(numbers: std::ops::Range<usize>) -> String {
    numbers.fold(String::new(), |all, n| {
        all + &format!(
            "192.0.2.{} - - [22/Nov/2026:10:{:02}:{:02} +0000] \"GET /page/{n} HTTP/1.1\" {} {n} \"-\" \"test\"\n",
            n % 250,
            n / 60 % 60,
            n % 60,
            if n.is_multiple_of(10) { 404 } else { 200 },
        )
    })
}

const APACHE: &str = r#"
input { file { path => "${DATA}/access.log" start_position => "beginning" } }
filter {
  grok { match => { "message" => "%{COMBINEDAPACHELOG}" } remove_field => ["message"] }
  date { match => ["timestamp", "dd/MMM/yyyy:HH:mm:ss Z"] }
  mutate { convert => { "response" => "integer" } }
}
output {
  if [response] == 404 { opensearch { index => "missing" } }
  opensearch { index => "web-%{+yyyy.MM.dd}" }
}
"#;

#[tokio::test]
async fn a_file_is_stored_once_though_the_server_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("access.log"), access(0..LINES)).unwrap();
    put(dir.path(), "apache.conf", APACHE);
    let server = start(dir.path());
    until_count(&server, "web-*", 1).await;
    server.signal(Signal::KILL);
    server.wait();

    let mut log = std::fs::File::options().append(true).open(dir.path().join("access.log")).unwrap();
    log.write_all(access(LINES..2 * LINES).as_bytes()).unwrap();
    let server = start(dir.path());
    until_count(&server, "web-*", (LINES + LINES / 2) as u64).await;
    // A reload while it reads.
    put(dir.path(), "apache.conf", &format!("{APACHE}# changed"));
    until_count(&server, "web-*", 2 * LINES as u64).await;
    server.stop();

    let server = start(dir.path());
    assert_eq!(count(&server, "web-2026.11.22").await, 2 * LINES as u64);
    assert_eq!(count(&server, "missing").await, LINES as u64 / 5);
    let distinct = json!({"size": 0, "aggs": {"pages": {"cardinality": {"field": "request.keyword", "precision_threshold": 40_000}}}});
    let answer = server.search("web-*", &distinct).await;
    assert_eq!(answer["aggregations"]["pages"]["value"], 2 * LINES, "{answer}");
    server.stop();
}

#[tokio::test]
async fn a_webhook_is_answered_when_its_event_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let webhook = include_str!("../../../deploy/pipelines/webhook.conf");
    put(dir.path(), "webhook.conf", webhook);
    let prepare = || {
        let mut command = command(dir.path());
        command.env("WEBHOOK_PORT", port.to_string()).env("WEBHOOK_TOKEN", "sesame");
        command
    };
    let server = Server::new(&mut prepare());
    let url = format!("http://127.0.0.1:{port}/");
    let post = |token: &'static str, n: usize| {
        let request = http_client().post(&url).bearer_auth(token).header("x-webhook-source", "github");
        let request = request.header("x-github-event", "push").header("content-type", "application/json");
        request.body(json!({"n": n}).to_string()).send()
    };
    while post("wrong", 0).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for n in 0..20 {
        assert_eq!(post("sesame", n).await.unwrap().status(), 200);
    }
    server.signal(Signal::KILL);
    server.wait();

    let server = Server::new(&mut prepare());
    assert_eq!(count(&server, "webhook-events-*").await, 20, "what was answered is there");
    let answer = server.search("webhook-events-*", &json!({"query": {"term": {"n": 7}}})).await;
    let source = &answer["hits"]["hits"][0]["_source"];
    assert_eq!(source["webhook"], json!({"source": "github", "event": "push"}), "{source}");
    assert_eq!(source["headers"], Value::Null);
    while post("wrong", 0).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (_, stats) = manage(&server, Method::GET, "/_node/stats/pipelines/webhook", "").await;
    let filters = stats["pipelines"]["webhook"]["plugins"]["filters"].as_array().unwrap();
    let dropped = filters.iter().find(|filter| filter["id"] == "wrong_token").unwrap();
    assert!(dropped["events"]["in"].as_u64() > Some(0) && dropped["events"]["out"] == 0, "{dropped}");
    server.stop();
}

/// With a queue on disk, a webhook is answered while the other server is down, and nothing of it is lost.
#[tokio::test]
async fn a_persisted_queue_holds_what_an_output_does_not_take() {
    let dir = tempfile::tempdir().unwrap();
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (port, other) = (free(), free());
    let definition = format!(
        "input {{ http {{ host => '127.0.0.1' port => {port} add_field => {{ 'kept' => '%{{n}}' }} }} }}
         output {{ opensearch {{ hosts => ['127.0.0.1:{other}'] index => 'held' retry_initial_interval => 1 retry_max_interval => 1 }} }}"
    );
    let described =
        "- pipeline.id: held\n  path.config: held.conf\n  queue.type: persisted\n  queue.max_bytes: 8mb\n";
    put(dir.path(), "held.conf", &definition);
    put(dir.path(), "pipelines.yml", described);
    let server = start(dir.path());
    let post = |n: usize| {
        let request = http_client().post(format!("http://127.0.0.1:{port}/"));
        request.header("content-type", "application/json").body(json!({"n": n}).to_string()).send()
    };
    while post(0).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for n in 1..100 {
        assert_eq!(post(n).await.unwrap().status(), 200, "it is on disk");
    }
    let (_, stats) = manage(&server, Method::GET, "/_node/stats/pipelines/held", "").await;
    let queue = &stats["pipelines"]["held"]["queue"];
    assert!(queue["type"] == "persisted" && queue["queue_size_in_bytes"].as_u64() > Some(1_000), "{queue}");
    assert_eq!(stats["pipelines"]["held"]["events"]["in"], 100);
    server.signal(Signal::KILL);
    server.wait();

    let data = dir.path().join("other");
    let mut receiver = millrace(&["serve", "--insecure", "--data"]);
    let receiver = Server::new(receiver.arg(&data).args(["--listen", &format!("127.0.0.1:{other}")]));
    // Without the setting, what is left is still brought to its end.
    put(dir.path(), "pipelines.yml", &described.replace("persisted", "memory"));
    let server = start(dir.path());
    until_count(&receiver, "held", 100).await;
    server.stop();
    assert_eq!(count(&receiver, "held").await, 100);
    let answer = receiver.search("held", &json!({"query": {"term": {"n": 42}}})).await;
    assert_eq!(answer["hits"]["hits"][0]["_source"]["kept"], "42", "{answer}");
    receiver.stop();
}

/// The output `s3` gathers on disk; what it has there when the server is killed becomes objects after the next start.
#[tokio::test]
async fn objects_of_s3_have_all_events_once_though_the_server_is_killed() {
    let variable = |name: &str| std::env::var(format!("MILLRACE_TEST_S3_{name}"));
    let Ok(endpoint) = variable("ENDPOINT") else {
        println!("skipped: no S3 service in MILLRACE_TEST_S3_ENDPOINT");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let (bucket, prefix) = (variable("BUCKET").unwrap(), format!("archive-{}", std::process::id()));
    let (key, secret) = (variable("ACCESS_KEY").unwrap(), variable("SECRET_KEY").unwrap());
    let service = format!(
        "bucket => '{bucket}' endpoint => '{endpoint}' access_key_id => '{key}' secret_access_key => '{secret}'"
    );
    let archive = format!(
        "input {{ file {{ path => \"${{DATA}}/lines.log\" start_position => 'beginning' }} }}
         output {{ s3 {{ {service} prefix => '{prefix}/%{{+yyyy}}' codec => json_lines encoding => gzip size_file => 400000 }} }}"
    );
    // A pipeline of its own ends once its objects are written.
    let few = format!(
        "input {{ generator {{ count => 10 message => 'few' }} }} output {{ s3 {{ {service} prefix => '{prefix}/few' codec => json_lines }} }}"
    );
    let file = dir.path().join("few.conf");
    std::fs::write(&file, few).unwrap();
    let (code, _, errors) = run(millrace(&["pipeline", "run"]).arg(&file));
    assert_eq!(code, Some(0), "{errors}");
    let line = |number: usize| format!("{number} {}\n", "x".repeat(100));
    std::fs::write(dir.path().join("lines.log"), (0..LINES).map(line).collect::<String>()).unwrap();
    put(dir.path(), "archive.conf", &archive);
    let server = start(dir.path());
    let stored = async |server: &Server, wanted: usize| {
        let began = millrace_runtime::Instant::now();
        loop {
            let (_, stats) = manage(server, Method::GET, "/_node/stats/pipelines/archive", "").await;
            let out = stats["pipelines"]["archive"]["events"]["out"].as_u64();
            if out >= Some(wanted as u64) {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{stats}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    stored(&server, LINES).await;
    server.signal(Signal::KILL);
    server.wait();
    let outputs = dir.path().join("pipelines-outputs/archive/s3");
    // A directory goes with its last file.
    let left = || {
        let runs = std::fs::read_dir(&outputs).unwrap();
        runs.flat_map(|run| std::fs::read_dir(run.unwrap().path()).into_iter().flatten()).count()
    };
    assert!(left() > 0, "the last events are on disk");
    let read = format!(
        "input {{ s3 {{ {service} prefix => '{prefix}/' codec => json_lines interval => 1 }} }} output {{ opensearch {{ index => 'back' }} }}"
    );
    put(dir.path(), "back.conf", &read);
    let server = start(dir.path());
    until_count(&server, "back", LINES as u64 + 10).await;
    while left() > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let distinct = json!({"size": 0, "track_total_hits": true, "aggs": {"lines": {"cardinality": {"field": "message.keyword", "precision_threshold": 40_000}}}});
    let answer = server.search("back", &distinct).await;
    assert_eq!(answer["aggregations"]["lines"]["value"], LINES + 1, "{answer}");
    assert_eq!(answer["hits"]["total"]["value"], LINES + 10, "{answer}");
    server.stop();
}

#[tokio::test]
async fn pipelines_are_managed_on_a_listener_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let good = "input { generator { message => 'x' } } filter { drop { } } output { stdout { } }";
    put(dir.path(), "main.conf", good);
    let server = start(dir.path());
    let (status, all) = manage(&server, Method::GET, "/_node/pipelines", "").await;
    assert_eq!((status, &all["pipelines"]["main"]["status"]), (200, &json!("Active")));
    assert_eq!(all["pipelines"]["main"]["config_reload_interval"], 100_000_000);
    let (status, answer) =
        manage(&server, Method::PUT, "/_node/pipelines/main", r#"{"pipeline.batch_size": 321}"#).await;
    assert_eq!((status, &answer["pipelines"]["main"]["batch_size"]), (200, &json!(321)));
    for (method, path, body, expected) in [
        (Method::GET, "/_node/pipelines/absent", "", 404),
        (Method::PUT, "/_node/pipelines/absent", r#"{"pipeline.batch_size": 5}"#, 404),
        (Method::PUT, "/_node/pipelines/main", r#"{"pipeline.batch_size": 0}"#, 400),
        (Method::PUT, "/_node/pipelines/main", r#"{"pipeline.batch_size": "x"}"#, 400),
        (Method::PUT, "/_node/pipelines/main", r#"{"other": 1}"#, 400),
        (Method::DELETE, "/_node/pipelines/main", "", 405),
        (Method::GET, "/_node/stats/pipelines/absent", "", 404),
        (Method::GET, "/_cat/indices", "", 404),
    ] {
        let (status, answer) = manage(&server, method.clone(), path, body).await;
        assert_eq!(status, expected, "{method} {path} {body}: {answer}");
    }
    put(dir.path(), "main.conf", "input { generatr { } }");
    let warned = loop {
        let (_, stats) = manage(&server, Method::GET, "/_node/stats/pipelines", "").await;
        if stats["pipelines"]["main"]["reloads"]["failures"] == 1 {
            break stats["pipelines"]["main"].clone();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(warned["status"], "Active with warning");
    let why = warned["reloads"]["last_error"]["message"].as_str().unwrap();
    assert!(why.contains("main.conf:1:9: there is no input [generatr], did you mean [generator]?"), "{why}");
    put(dir.path(), "main.conf", good);
    server.stop();

    let server = start(dir.path());
    let (_, all) = manage(&server, Method::GET, "/_node/pipelines", "").await;
    assert_eq!(all["pipelines"]["main"]["batch_size"], 321, "the file is what it was: {all}");
    server.stop();
}

#[test]
fn pipelines_are_checked_and_run_in_the_foreground() {
    let dir = tempfile::tempdir().unwrap();
    let (good, bad) = (dir.path().join("good.conf"), dir.path().join("bad.conf"));
    let text = "input { stdin { } } filter { mutate { uppercase => ['message'] } } output { opensearch { index => 'x' } }";
    std::fs::write(&good, text).unwrap();
    std::fs::write(&bad, "input { stdin { } }\nfilter {\n\tgrk { }\n  mutate { upercase => ['a'] }\n}\n")
        .unwrap();
    let check = |files: &[&Path]| run(millrace(&["pipeline", "check"]).args(files));
    assert_eq!(check(&[&good]).0, Some(0));
    let (code, _, errors) = check(&[&good, &bad]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("bad.conf:3:2: there is no filter [grk], did you mean [grok]?"), "{errors}");
    assert!(errors.contains("       | \t^") && errors.contains("did you mean [uppercase]?"), "{errors}");

    let run_it = |flags: &[&str]| {
        let mut command = millrace(&["pipeline", "run"]);
        let mut child = command
            .arg(&good)
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(b"one\ntwo\n").unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, out, errors) = run_it(&["--print"]);
    assert_eq!(code, Some(0), "{errors}");
    assert!(out.contains("\"message\" => \"ONE\"") && out.contains("\"TWO\""), "{out}");
    let (code, _, errors) = run_it(&[]);
    assert!(code == Some(1) && errors.contains("--data"), "{errors}");
    let data = dir.path().join("data");
    let (code, _, errors) = run_it(&["--data", data.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{errors}");
}

#[test]
fn a_taken_management_port_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, _, errors) =
        run(command(&dir.path().join("data")).env("MILLRACE_PIPELINES__LISTEN", &address));
    assert!(code == Some(4) && errors.contains(&address), "{errors}");
    assert!(!dir.path().join("data").exists(), "nothing was opened");
}

#[test]
fn several_servers_need_no_ports_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    // One of them, or a stranger, may have the default port: all start.
    let start = |name| {
        let mut command = command(&dir.path().join(name));
        for variable in ["MILLRACE_PIPELINES__LISTEN", "MILLRACE_CONSOLE__LISTEN", "MILLRACE_FLIGHT__LISTEN"]
        {
            command.env_remove(variable);
        }
        Server::new(&mut command)
    };
    let servers = ["a", "b", "c"].map(start);
    assert_ne!(management(&servers[0]), management(&servers[1]));
    let console = |server: &Server| {
        let line = server.greeting.lines().find(|line| line.starts_with("the console is on "));
        line.unwrap().to_owned()
    };
    assert_ne!(console(&servers[0]), console(&servers[1]));
    servers.into_iter().for_each(Server::stop);
}

/// The pipelines that are shipped, on real logs where there are any.
#[test]
fn ready_pipelines_understand_real_logs() {
    let logs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    if !logs.is_dir() {
        eprintln!("skipped: no folder {}", logs.display());
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for (name, log, least) in [
        ("openssh", "OpenSSH_2k.log", [("\"outcome\" => \"failed\"", 500), ("\"source_ip\" => ", 600)]),
        ("apache", "Apache_2k.log", [("\"loglevel\" => \"error\"", 500), ("\"loglevel\" => ", 1_900)]),
    ] {
        let ready =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/pipelines").join(format!("{name}.conf"));
        let ready = std::fs::read_to_string(ready).unwrap();
        let (_, filters) = ready.split_once("\nfilter {").unwrap();
        let file = dir.path().join(format!("{name}.conf"));
        std::fs::write(&file, format!("input {{ stdin {{ }} }}\nfilter {{{filters}")).unwrap();
        let log = std::fs::File::open(logs.join(log)).unwrap();
        let output = millrace(&["pipeline", "run", "--print"]).arg(&file).stdin(log).output().unwrap();
        let shown = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(shown.matches("\"@timestamp\" => ").count() >= 1_999, "{name}");
        // The logs have the line ends of Windows.
        for failure in ["_grokparsefailure", "_dateparsefailure", "\\r\""] {
            assert_eq!(shown.matches(failure).count(), 0, "{name}: {failure}");
        }
        for (part, least) in least {
            assert!(shown.matches(part).count() >= least, "{name}: {part}");
        }
    }
}
