//! `millrace snapshot` against a server: a directory, and an S3 service where one is named by the environment.

use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::process::{Server, http_client, millrace, run};

/// Longest that an alert is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server whose repositories are below a directory.
fn start(data: &Path, backups: &Path, env: &[(&str, String)]) -> Server {
    let mut command = millrace(&["serve", "--listen", "127.0.0.1:0", "--insecure", "--data"]);
    command.arg(data).env("MILLRACE_SNAPSHOT__PATH_REPO", backups);
    command.envs(env.iter().map(|(key, value)| (*key, value.as_str())));
    Server::new(&mut command)
}

/// Runs `millrace snapshot`; returns the exit code, stdout and stderr.
fn snapshot(server: &Server, args: &[&str]) -> (Option<i32>, String, String) {
    run(millrace(&["snapshot"]).args(args).args(["--url", &server.url]))
}

/// Runs it and returns stdout.
fn succeed(server: &Server, args: &[&str]) -> String {
    let (code, out, errors) = snapshot(server, args);
    assert_eq!(code, Some(0), "{args:?}: {out}{errors}");
    out
}

/// Sends a request to the data API.
async fn ask(server: &Server, method: Method, path: &str, body: Value) -> Value {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let (status, answer) = server.call(method, path, body).await;
    assert!((200..300).contains(&status), "{path}: {answer}");
    answer
}

/// Sends a request to the console; returns status and answer.
async fn console(server: &Server, method: Method, path: &str, body: Value) -> (u16, Value) {
    let url = server.greeting.lines().find_map(|line| line.strip_prefix("the console is on ")).unwrap();
    let request =
        http_client().request(method, format!("{url}{path}")).header("console-xsrf", "true").json(&body);
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

/// Lists the files below a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Creates, lists, verifies and restores snapshots in a repository that is registered by a body.
async fn play_cycle(server: &Server, repository: Value) {
    ask(server, Method::PUT, "/_snapshot/backup", repository).await;
    for index in ["logs-1", "logs-2", "other"] {
        ask(server, Method::PUT, &format!("/{index}/_doc/1?refresh=true"), json!({"v": 1})).await;
    }
    assert_eq!(succeed(server, &["verify", "backup"]), "backup works\n");
    let out = succeed(server, &["create", "backup", "monday", "--indices", "logs-*"]);
    assert_eq!(out, "monday: 2 indices made\n");
    succeed(server, &["create", "backup", "tuesday", "--without-global-state", "--with-accounts"]);
    let listed = succeed(server, &["list", "backup"]);
    assert_eq!(listed, "monday\tSUCCESS\t2 indices\ntuesday\tSUCCESS\t3 indices\n");
    let verified = succeed(server, &["verify", "backup", "--contents"]);
    assert!(
        verified.starts_with("backup: ") && verified.ends_with(" files of 2 snapshots are right\n"),
        "{verified}"
    );
    let renamed = ["--rename-pattern", "(.+)", "--rename-replacement", "old-$1"];
    let out =
        succeed(server, &[&["restore", "backup", "monday", "--indices", "logs-1"], &renamed[..]].concat());
    assert_eq!(out, "monday: 1 indices restored\n");
    let found = ask(server, Method::GET, "/old-logs-1/_doc/1", Value::Null).await;
    assert_eq!(found["_source"], json!({"v": 1}));
    succeed(server, &["restore", "backup", "tuesday", "--indices", "-*", "--with-accounts"]);

    for (args, reason) in [
        (["restore", "backup", "monday"].as_slice(), "an open index with same name already exists"),
        (&["restore", "backup", "none"], "[backup:none] is missing"),
        (&["create", "backup", "monday"], "snapshot with the same name already exists"),
        (&["create", "backup", "wednesday", "--indices", "none"], "no such index [none]"),
        (&["list", "none"], "[none] missing"),
        (&["verify", "none"], "[none] missing"),
        (&["verify", "backup", "--contents", "--snapshot", "none"], "[backup:none] is missing"),
    ] {
        let (code, _, errors) = snapshot(server, args);
        assert_eq!(code, Some(1), "{args:?}: {errors}");
        assert!(errors.contains(reason), "{args:?}: {errors}");
    }
    assert_eq!(
        snapshot(server, &["verify", "backup", "--snapshot", "monday"]).0,
        Some(2),
        "without --contents"
    );
}

#[tokio::test]
async fn the_command_line_makes_verifies_and_restores_snapshots_in_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let backups = dir.path().join("backups");
    std::fs::create_dir(&backups).unwrap();
    let server = start(&dir.path().join("data"), &backups, &[]);
    play_cycle(&server, json!({"type": "fs", "settings": {"location": "one"}})).await;
    // A file that rots is named, and the next snapshot writes it anew.
    let contents = files(&backups.join("one/contents"));
    let file = contents.iter().max_by_key(|file| std::fs::metadata(file).unwrap().len()).unwrap();
    let right = std::fs::read(file).unwrap();
    let mut wrong = right.clone();
    wrong[3] ^= 1;
    std::fs::write(file, &wrong).unwrap();
    let (code, out, errors) = snapshot(&server, &["verify", "backup", "--contents"]);
    assert_eq!(code, Some(1), "{out}{errors}");
    assert!(out.contains(file.file_name().unwrap().to_str().unwrap()), "{out}");
    assert!(errors.contains("1 files of backup are damaged"), "{errors}");
    succeed(&server, &["create", "backup", "wednesday"]);
    assert_eq!(std::fs::read(file).unwrap(), right);
    succeed(&server, &["verify", "backup", "--contents", "--snapshot", "monday"]);
    server.stop();
    let (code, _, errors) =
        run(&mut millrace(&["snapshot", "list", "backup", "--url", "http://127.0.0.1:9"]));
    assert_eq!(code, Some(1), "{errors}");
}

#[tokio::test]
async fn the_command_line_makes_verifies_and_restores_snapshots_on_s3() {
    let variable = |name: &str| std::env::var(format!("MILLRACE_TEST_S3_{name}"));
    let Ok(endpoint) = variable("ENDPOINT") else {
        println!("skipped: no S3 service in MILLRACE_TEST_S3_ENDPOINT");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let env = [
        ("MILLRACE_SNAPSHOT__S3__ENDPOINT", endpoint),
        ("MILLRACE_SNAPSHOT__S3__ALLOW_HTTP", "true".to_owned()),
        ("MILLRACE_SNAPSHOT__S3__ACCESS_KEY_ID", variable("ACCESS_KEY").unwrap()),
        ("MILLRACE_SNAPSHOT__S3__SECRET_ACCESS_KEY", variable("SECRET_KEY").unwrap()),
    ];
    let server = start(&dir.path().join("data"), dir.path(), &env);
    let base_path = format!("snapshots-{}", std::process::id());
    let bucket = variable("BUCKET").unwrap();
    play_cycle(&server, json!({"type": "s3", "settings": {"bucket": bucket, "base_path": base_path}})).await;
    server.stop();
}

/// Definitions of each kind, by the number that they have in them.
async fn define(server: &Server, number: i64) {
    let processors = json!({"processors": [{"set": {"field": "n", "value": number}}]});
    ask(server, Method::PUT, "/_ingest/pipeline/p", processors).await;
    let description = format!("policy {number}");
    let policy = json!({"policy": {
        "description": description, "default_state": "a", "states": [{"name": "a", "actions": [], "transitions": []}],
    }});
    let (status, there) = server.call(Method::GET, "/_plugins/_ism/policies/p", "").await;
    let condition = match status {
        200 => format!("?if_seq_no={}&if_primary_term={}", there["_seq_no"], there["_primary_term"]),
        _ => String::new(),
    };
    ask(server, Method::PUT, &format!("/_plugins/_ism/policies/p{condition}"), policy).await;
    let schedule = json!({"cron": {"expression": "0 8 1 1 *", "timezone": "UTC"}});
    let body = json!({
        "description": description, "creation": {"schedule": schedule}, "snapshot_config": {"repository": "backup"},
    });
    let (status, there) = server.call(Method::GET, "/_plugins/_sm/policies/p", "").await;
    let (method, condition) = match status {
        200 => (
            Method::PUT,
            format!("?if_seq_no={}&if_primary_term={}", there["_seq_no"], there["_primary_term"]),
        ),
        _ => (Method::POST, String::new()),
    };
    ask(server, method, &format!("/_plugins/_sm/policies/p{condition}"), body).await;
    let rule = json!({
        "name": "failures", "index": "logs", "type": "any", "filter": [{"term": {"n": number}}],
    });
    let detector = json!({
        "name": "requests", "index": "logs", "query": {"match_all": {}}, "time_field": "@timestamp",
        "time_frame": "2 h", "value_type": "avg", "model_type": "multivariate", "fields": ["n", "m"],
        "automatic_cron": "0 0 1 1 *", "automatic_enable": true, "automatic": true,
        "multiply_by_values": [], "multiply_by_field": "none",
    });
    let object = json!({"attributes": {"title": format!("object {number}")}});
    for (path, body) in
        [("/api/alert/change", rule), ("/api/saved_objects/dashboard/d?overwrite=true", object)]
    {
        let (status, answer) = console(server, Method::POST, path, body).await;
        assert_eq!(status, 200, "{path}: {answer}");
    }
    let (_, listed) = console(server, Method::GET, "/api/ai/list", Value::Null).await;
    if !listed.to_string().contains("requests") {
        let (status, answer) = console(server, Method::POST, "/api/ai/change", detector).await;
        assert_eq!(status, 200, "{answer}");
    }
}

/// Checks the definitions that [`define`] has put, and that they are at work.
async fn check_defined(server: &Server, number: i64, document: &str) {
    let pipelines = ask(server, Method::GET, "/_ingest/pipeline", Value::Null).await;
    assert_eq!(pipelines["p"]["processors"][0]["set"]["value"], json!(number), "{pipelines}");
    assert_eq!(pipelines.as_object().unwrap().len(), 1, "{pipelines}");
    let policy = ask(server, Method::GET, "/_plugins/_ism/policies/p", Value::Null).await;
    let description = json!(format!("policy {number}"));
    assert_eq!(policy["policy"]["description"], description, "{policy}");
    let policy = ask(server, Method::GET, "/_plugins/_sm/policies/p", Value::Null).await;
    assert_eq!(policy["sm_policy"]["description"], description, "{policy}");
    let (_, object) = console(server, Method::GET, "/api/saved_objects/dashboard/d", Value::Null).await;
    assert_eq!(object["attributes"]["title"], json!(format!("object {number}")), "{object}");
    let (_, rules) = console(server, Method::GET, "/api/ai/list", Value::Null).await;
    assert!(rules.to_string().contains("requests"), "{rules}");
    // The pipeline gives the document the number that the rule waits for.
    let path = format!("/logs/_doc/{document}?pipeline=p");
    ask(server, Method::PUT, &path, json!({"m": 1})).await;
    let alerted = async {
        loop {
            let search = "/alert/_search?ignore_unavailable=true&size=100";
            let found = ask(server, Method::GET, search, Value::Null).await;
            let mut alerts = found["hits"]["hits"].as_array().into_iter().flatten();
            if alerts.any(|alert| alert["_source"]["trigger"]["_id"] == document) {
                break;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, alerted).await.unwrap();
}

#[tokio::test]
async fn definitions_come_back_with_the_global_state_and_count_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let backups = dir.path().join("backups");
    std::fs::create_dir(&backups).unwrap();
    let server = start(&dir.path().join("data"), &backups, &[]);
    let repository = json!({"type": "fs", "settings": {"location": "one"}});
    ask(&server, Method::PUT, "/_snapshot/backup", repository.clone()).await;
    ask(&server, Method::PUT, "/logs/_doc/0", json!({"@timestamp": "2026-01-01T00:00:00Z", "n": 0, "m": 0}))
        .await;
    define(&server, 1).await;
    check_defined(&server, 1, "a").await;
    succeed(&server, &["create", "backup", "one"]);
    // A server whose definitions are others.
    define(&server, 2).await;
    let later = json!({"processors": []});
    ask(&server, Method::PUT, "/_ingest/pipeline/later", later).await;
    let out = succeed(&server, &["restore", "backup", "one", "--indices", "-*", "--with-global-state"]);
    assert_eq!(out, "one: 6 indices restored\n");
    check_defined(&server, 1, "b").await;
    // They can be changed as if they had never been away.
    define(&server, 3).await;
    check_defined(&server, 3, "c").await;
    server.stop();
    let server = start(&dir.path().join("data"), &backups, &[]);
    check_defined(&server, 3, "d").await;
    server.stop();

    // A server that has none.
    let server = start(&dir.path().join("other"), &backups, &[]);
    ask(&server, Method::PUT, "/_snapshot/backup", repository).await;
    succeed(&server, &["restore", "backup", "one", "--indices", "logs", "--with-global-state"]);
    check_defined(&server, 1, "e").await;
    server.stop();
}
