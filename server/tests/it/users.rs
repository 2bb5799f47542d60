//! `millrace user`, on the data of a stopped server and against one that answers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use millrace_accounts::{Accounts, AnyQuery, Config};
use millrace_storage::{Engine, SystemClock};

use crate::process::{Server, millrace, run};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Runs `millrace user` with the data directory; returns stdout.
fn user(data: &Path, args: &[&str]) -> String {
    let (code, out, errors) = run(millrace(&["user"]).args(args).arg("--data").arg(data));
    assert_eq!(code, Some(0), "{args:?}: {errors}");
    out
}

/// Which of these passwords the accounts in a data directory take.
async fn taken(data: &Path, passwords: &[(&str, &str)]) -> Vec<bool> {
    let config =
        millrace_storage::Config { data_dir: data.to_owned(), ..millrace_storage::Config::default() };
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

    user(&data, &["add", "ann", "--role", "a,b", "--email", "ann@example.org", "--password-file", file]);
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

    assert_eq!(user(&data, &["roles", "ann"]), "a\nb\n");
    assert_eq!(user(&data, &["roles", "ann", "--add", "c"]), "a\nb\nc\n");
    assert_eq!(user(&data, &["roles", "ann", "--remove", "a"]), "b\nc\n");
    assert_eq!(user(&data, &["roles", "ann", "--set", "d,e"]), "d\ne\n");
    assert_eq!(taken(&data, &[("ann", "battery staple")]).await, [true], "roles leave the password");
    user(&data, &["delete", "ben"]);
    let listed = user(&data, &["list"]);
    assert!(listed.contains("| ann   | d, e  | true    | ann@example.org |"), "{listed}");
    assert!(listed.contains("| admin |") && !listed.contains("ben"), "{listed}");

    for (args, reason) in [
        (["add", "ann", "--generate"].as_slice(), "[ann] is there already"),
        (&["passwd", "zoe", "--generate"], "[zoe] not found"),
        (&["roles", "ann", "--remove", "z"], "[z]"),
        (&["roles", "admin", "--set", "d"], "reserved"),
        (&["delete", "admin"], "reserved"),
    ] {
        let (code, _, errors) = run(millrace(&["user"]).args(args).arg("--data").arg(&data));
        assert_eq!(code, Some(1), "{args:?}: {errors}");
        assert!(errors.contains(reason), "{args:?}: {errors}");
    }
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
        ["add", "ann"].as_slice(),
        &["add", "--generate"],
        &["add", "", "--generate"],
        &["add", "ann", "--generate", "--password-file", "p"],
        &["add", "ann", "--password", "correct horse"],
        &["passwd", "ann"],
        &["roles", "ann", "--set", "a", "--add", "b"],
        &["list", "--data", "d", "--url", "http://127.0.0.1:1"],
        &["list", "--data", "d", "--user", "admin:x"],
        &["delete"],
    ] {
        let (code, _, errors) = run(millrace(&["user"]).args(args));
        assert_eq!(code, Some(2), "{args:?}: {errors}");
    }
}

/// A server that gives these answers in order, a connection each, and returns what it was asked.
fn answering(answers: &'static [(u16, &'static str)]) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = thread::spawn(move || {
        let answer = |(status, answer): &(u16, &str)| {
            let (stream, _) = listener.accept().unwrap();
            let mut stream = BufReader::new(stream);
            let mut head = Vec::new();
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                if line.trim_end().is_empty() {
                    break;
                }
                head.push(line.trim_end().to_owned());
            }
            let length = head.iter().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                name.eq_ignore_ascii_case("content-length").then(|| value.parse::<usize>().unwrap())
            });
            let mut body = vec![0; length.unwrap_or(0)];
            stream.read_exact(&mut body).unwrap();
            // admin:secret
            assert!(head.iter().any(|line| line.ends_with("Basic YWRtaW46c2VjcmV0")), "{head:?}");
            let out = format!(
                "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{answer}",
                answer.len()
            );
            stream.get_mut().write_all(out.as_bytes()).unwrap();
            let request = head[0].trim_end_matches(" HTTP/1.1");
            format!("{request} {}", String::from_utf8(body).unwrap()).trim_end().to_owned()
        };
        answers.iter().map(answer).collect()
    });
    (url, asked)
}

/// Runs `millrace user` against a server with these answers; returns code, stdout, stderr and what was asked.
fn ask(args: &[&str], answers: &'static [(u16, &'static str)]) -> (Option<i32>, String, String, Vec<String>) {
    let (url, asked) = answering(answers);
    let mut command = millrace(&["user"]);
    command.args(args).args(["--user", "admin", "--url", &url]).env("MILLRACE_PASSWORD", "secret");
    let (code, out, errors) = run(&mut command);
    // An answer that nobody asked for is a failure, not a wait without end.
    drop(TcpStream::connect(url.trim_start_matches("http://")));
    (code, out, errors, asked.join().unwrap())
}

#[test]
fn a_running_server_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("password");
    std::fs::write(&file, "correct horse\n").unwrap();
    let file = file.to_str().unwrap();
    const ANN: &str = r#"{"ann":{"username":"ann","roles":["a"],"full_name":null,"email":"ann@example.org","metadata":{"n":1},"enabled":false}}"#;

    let args = ["add", "a/b", "--role", "a", "--full-name", "Ann", "--password-file", file];
    let (code, out, errors, asked) = ask(&args, &[(404, "{}"), (200, r#"{"created":true}"#)]);
    assert_eq!((code, out.as_str()), (Some(0), ""), "{errors}");
    assert_eq!(
        asked,
        [
            "GET /_security/user/a%2Fb",
            r#"PUT /_security/user/a%2Fb {"password":"correct horse","roles":["a"],"full_name":"Ann"}"#,
        ]
    );
    let (code, _, errors, _) = ask(&["add", "ann", "--generate"], &[(200, ANN)]);
    assert_eq!(code, Some(1), "{errors}");

    let (code, out, errors, asked) = ask(&["passwd", "ann", "--generate"], &[(200, "{}")]);
    assert_eq!(code, Some(0), "{errors}");
    let password = out.trim_end();
    assert_eq!(asked, [format!(r#"POST /_security/user/ann/_password {{"password":"{password}"}}"#)]);

    let (code, out, errors, asked) =
        ask(&["roles", "ann", "--add", "b"], &[(200, ANN), (200, ANN), (200, "{}")]);
    assert_eq!((code, out.as_str()), (Some(0), "a\nb\n"), "{errors}");
    let put = r#"{"roles":["a","b"],"email":"ann@example.org","metadata":{"n":1},"enabled":false}"#;
    assert_eq!(asked[2], format!("PUT /_security/user/ann {put}"));

    let (code, out, errors, asked) = ask(&["list"], &[(200, ANN)]);
    assert_eq!(code, Some(0), "{errors}");
    assert!(out.contains("| ann  | a     | false   | ann@example.org |"), "{out}");
    assert_eq!(asked, ["GET /_security/user"]);

    let (code, _, errors, asked) = ask(&["delete", "ann"], &[(404, r#"{"found":false}"#)]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("user [ann] not found"), "{errors}");
    assert_eq!(asked, ["DELETE /_security/user/ann"]);
    let refused =
        &[(403, r#"{"error":{"type":"security_exception","reason":"no permissions"},"status":403}"#)];
    let (code, _, errors, _) = ask(&["delete", "ann"], refused);
    assert_eq!(code, Some(1));
    assert!(errors.contains("no permissions"), "{errors}");
}
