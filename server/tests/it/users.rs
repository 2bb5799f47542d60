//! `millrace user`, on the data of a stopped server and against one that answers.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use millrace_accounts::{Accounts, AnyQuery, Config};
use millrace_engine::Engine;
use millrace_runtime::SystemClock;
use reqwest::Method;
use serde_json::{Value, json};

use crate::process::{Server, millrace, run};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Runs `millrace user` with the data directory; returns stdout.
fn user(data: &Path, args: &[&str]) -> String {
    let (code, out, errors) = run(millrace(&["user"]).args(args).arg("--data").arg(data));
    assert_eq!(code, Some(0), "{args:?}: {errors}");
    out
}

/// Returns which of these passwords the accounts in a data directory accept.
async fn taken(data: &Path, passwords: &[(&str, &str)]) -> Vec<bool> {
    let config = millrace_engine::Config { data_dir: data.to_owned(), ..millrace_engine::Config::default() };
    let engine = Engine::open(config, Arc::new(SystemClock)).await.unwrap();
    let clock = engine.clock().clone();
    let (accounts, generated) =
        Accounts::open(engine.clone(), Config::default(), clock, Arc::new(AnyQuery)).await.unwrap();
    assert_eq!(generated, None, "the administrator has a password");
    let mut taken = Vec::new();
    for (name, password) in passwords {
        taken.push(accounts.login(name, password, HERE).await.is_ok());
    }
    drop(accounts);
    engine.shutdown().await.unwrap();
    taken
}

#[tokio::test]
async fn users_are_made_and_let_in_again_on_the_data_of_a_stopped_server() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    Server::start(&data, &[]).stop();
    let file = dir.path().join("password");
    std::fs::write(&file, "correct horse\n").unwrap();
    let file = file.to_str().unwrap();

    user(
        &data,
        &["add", "ann", "--role", "reader,monitor", "--email", "ann@example.org", "--password-file", file],
    );
    let generated = user(&data, &["add", "ben", "--generate"]);
    let admin = user(&data, &["passwd", "admin", "--generate"]);
    assert!(!data.join("admin-password").exists(), "it no longer holds the password");
    let (admin, generated) = (admin.trim_end(), generated.trim_end());
    let passwords = [
        ("ann", "correct horse"),
        ("ann", "incorrect"),
        ("ben", generated),
        ("admin", admin),
        ("admin", generated),
    ];
    assert_eq!(taken(&data, &passwords).await, [true, false, true, true, false]);

    std::fs::write(file, "battery staple").unwrap();
    user(&data, &["passwd", "ann", "--password-file", file]);
    assert_eq!(taken(&data, &[("ann", "correct horse"), ("ann", "battery staple")]).await, [false, true]);

    assert_eq!(user(&data, &["roles", "ann"]), "reader\nmonitor\n");
    assert_eq!(user(&data, &["roles", "ann", "--add", "ingest"]), "reader\nmonitor\ningest\n");
    assert_eq!(user(&data, &["roles", "ann", "--remove", "reader"]), "monitor\ningest\n");
    assert_eq!(user(&data, &["roles", "ann", "--set", "alert,reader"]), "alert\nreader\n");
    assert_eq!(taken(&data, &[("ann", "battery staple")]).await, [true], "roles leave the password");
    user(&data, &["delete", "ben"]);
    let listed = user(&data, &["list"]);
    assert!(listed.contains("| ann   | alert, reader | true    | ann@example.org |"), "{listed}");
    assert!(listed.contains("| admin |") && !listed.contains("ben"), "{listed}");

    for (args, reason) in [
        (["add", "ann", "--generate"].as_slice(), "[ann] is there already"),
        (&["passwd", "zoe", "--generate"], "[zoe] not found"),
        (&["roles", "ann", "--remove", "z"], "[z]"),
        (&["roles", "ann", "--add", "z"], "there is no role [z]"),
        (&["add", "zoe", "--role", "reader,z", "--generate"], "there is no role [z]"),
        (&["roles", "admin", "--set", "reader"], "reserved"),
        (&["delete", "admin"], "reserved"),
    ] {
        let (code, _, errors) = run(millrace(&["user"]).args(args).arg("--data").arg(&data));
        assert_eq!(code, Some(1), "{args:?}: {errors}");
        assert!(errors.contains(reason), "{args:?}: {errors}");
    }
}

#[tokio::test]
async fn what_is_done_to_the_data_of_a_stopped_server_is_in_its_audit() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    Server::start(&data, &[]).stop();
    let admin = user(&data, &["passwd", "admin", "--generate"]);
    user(&data, &["add", "ann", "--role", "reader", "--generate"]);
    user(&data, &["roles", "ann", "--add", "monitor"]);
    user(&data, &["list"]);
    user(&data, &["delete", "ann"]);
    let mut server = Server::start(&data, &[]);
    server.log_in("admin", admin.trim_end());
    let (status, answer) = server.call(Method::POST, "/.audit-*/_refresh", "").await;
    assert_eq!(status, 200, "{answer}");
    let query = json!({"sort": ["@timestamp"], "query": {"term": {"listener": "command"}}});
    let found = server.search(".audit-*", &query).await;
    let hits = found["hits"]["hits"].as_array().unwrap();
    let told: Vec<_> = hits.iter().map(|hit| &hit["_source"]).collect();
    assert!(told.iter().all(|one| one["outcome"] == "changed" && one["caller"] == "system"), "{told:?}");
    let text = |one: &Value, member: &str| one[member].as_str().unwrap_or_default().to_owned();
    let told: Vec<_> =
        told.into_iter().map(|one| format!("{} {}", text(one, "method"), text(one, "path"))).collect();
    let expected = [
        "POST /_security/user/admin/_password",
        "PUT /_security/user/ann",
        "PUT /_security/user/ann",
        "DELETE /_security/user/ann",
    ];
    assert_eq!(told, expected);
    server.stop();
}

#[test]
fn the_data_of_a_running_server_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    let list = |data: &Path| run(millrace(&["user", "list", "--data"]).arg(data));
    let (code, _, errors) = list(dir.path());
    assert_eq!(code, Some(5), "{errors}");
    assert!(errors.contains("--url"), "{errors}");
    server.stop();
    let (code, out, errors) = list(dir.path());
    assert_eq!(code, Some(0), "{errors}");
    assert!(out.contains("admin"), "{out}");

    let mistyped = dir.path().join("dta");
    assert_eq!(list(&mistyped).0, Some(3));
    assert!(!mistyped.exists());
}

#[test]
fn a_wrong_command_line_ends_with_2() {
    for args in [
        ["add", "--generate"].as_slice(),
        &["add", "", "--generate"],
        &["add", "ann", "--generate", "--password-file", "p"],
        &["add", "ann", "--password", "correct horse"],
        &["roles", "ann", "--set", "a", "--add", "b"],
        &["list", "--data", "d", "--url", "http://127.0.0.1:1"],
        &["list", "--data", "d", "--user", "admin:x"],
        &["delete"],
    ] {
        let (code, _, errors) = run(millrace(&["user"]).args(args));
        assert_eq!(code, Some(2), "{args:?}: {errors}");
    }
}

/// Asks a running server whose administrator's password is `correct horse`; returns code, stdout and stderr.
fn ask(server: &Server, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = millrace(&["user"]);
    command.args(args).args(["--user", "admin", "--url", &server.url]).env("MILLRACE_PASSWORD", ADMIN);
    run(&mut command)
}

const ADMIN: &str = "correct horse";

#[tokio::test]
async fn a_running_server_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::new(
        millrace(&["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(dir.path().join("data"))
            .env("MILLRACE_ADMIN_PASSWORD", ADMIN),
    );
    server.log_in("admin", ADMIN);
    let done = |args: &[&str]| {
        let (code, out, errors) = ask(&server, args);
        assert_eq!(code, Some(0), "{args:?}: {errors}");
        out
    };
    let refused = |args: &[&str], reason: &str| {
        let (code, out, errors) = ask(&server, args);
        assert_eq!((code, out.as_str()), (Some(1), ""), "{args:?}: {errors}");
        assert!(errors.contains(reason), "{args:?}: {errors}");
    };
    let file = dir.path().join("password");
    std::fs::write(&file, "battery staple\n").unwrap();
    let file = file.to_str().unwrap();

    // Whatever a name has in it is the name.
    let add = ["add", "a/b", "--role", "reader", "--full-name", "Ann", "--password-file", file];
    assert_eq!(done(&add), "");
    let (_, known) = server.call(Method::GET, "/_security/user/a%2Fb", "").await;
    assert_eq!(known["a/b"]["roles"], json!(["reader"]), "{known}");
    assert_eq!(known["a/b"]["full_name"], "Ann");
    refused(&add, "user [a/b] is there already");
    refused(&["add", "ben", "--role", "reader,nothing", "--generate"], "there is no role [nothing]");
    let (status, _) = server.call(Method::GET, "/_security/user/ben", "").await;
    assert_eq!(status, 404, "nothing was made");

    // What is not said stays.
    let ann = json!({
        "password": "ann-secret", "roles": ["reader"], "email": "ann@example.org", "metadata": {"n": 1}, "enabled": false,
    });
    server.call(Method::PUT, "/_security/user/ann", ann.to_string()).await;
    assert_eq!(done(&["roles", "ann", "--add", "monitor"]), "reader\nmonitor\n");
    refused(&["roles", "ann", "--set", "nothing"], "there is no role [nothing]");
    let (_, known) = server.call(Method::GET, "/_security/user/ann", "").await;
    let known = &known["ann"];
    assert_eq!(known["roles"], json!(["reader", "monitor"]), "{known}");
    assert_eq!((&known["email"], &known["metadata"]["n"]), (&json!("ann@example.org"), &json!(1)));
    assert_eq!(known["enabled"], false);
    let listed = done(&["list"]);
    assert!(listed.contains("| ann   | reader, monitor | false   | ann@example.org |"), "{listed}");

    let password = done(&["passwd", "a/b", "--generate"]);
    server.log_in("a/b", password.trim_end());
    let (status, _) = server.call(Method::GET, "/_security/_authenticate", "").await;
    assert_eq!(status, 200);
    // Who may not is told so.
    let mut command = millrace(&["user", "delete", "ann", "--user", "a/b", "--url", &server.url]);
    let (code, _, errors) = run(command.env("MILLRACE_PASSWORD", password.trim_end()));
    assert_eq!(code, Some(1));
    assert!(errors.contains("unauthorized"), "{errors}");

    let (code, _, errors) = ask(&server, &["delete", "ann"]);
    assert_eq!(code, Some(0), "{errors}");
    let (code, _, errors) = ask(&server, &["delete", "ann"]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("user [ann] not found"), "{errors}");
    server.stop();
}

#[tokio::test]
async fn a_password_is_read_from_standard_input_where_nothing_else_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    Server::start(&data, &[]).stop();
    let pipe = |args: &[&str], input: &str| {
        let mut command = millrace(&["user"]);
        command.args(args).arg("--data").arg(&data);
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let done = child.wait_with_output().unwrap();
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    let (code, errors) = pipe(&["add", "ann", "--role", "reader"], "correct horse\n");
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(taken(&data, &[("ann", "correct horse")]).await, [true]);
    let (code, errors) = pipe(&["passwd", "ann", "--password-file", "-"], "battery staple\n");
    assert_eq!(code, Some(0), "{errors}");
    for input in ["", "\n", "a\nb\n"] {
        let (code, errors) = pipe(&["passwd", "ann"], input);
        assert_eq!(code, Some(1), "{errors}");
        assert!(errors.contains("standard input"), "{errors}");
    }
    assert_eq!(taken(&data, &[("ann", "battery staple")]).await, [true]);
}

#[test]
fn an_administrators_password_that_is_too_short_is_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let mut command = millrace(&["serve", "--listen", "127.0.0.1:0", "--data"]);
    let (code, _, errors) = run(command.arg(&data).env("MILLRACE_ADMIN_PASSWORD", "short"));
    assert_eq!(code, Some(3), "{errors}");
    assert!(errors.contains("admin_password") && errors.contains("at least [6] characters"), "{errors}");
    assert!(!data.exists());
}
