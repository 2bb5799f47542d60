//! Real logs go in over `_bulk` and are found again, also after a restart.
//!
//! The samples of Loghub are not part of this repository: the test reads `../shared/data/*.log`
//! beside it, and says that it was skipped where that folder does not exist.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use reqwest::Method;
use serde_json::{Value, json};

use crate::process::Server;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data")
}

/// Lines of one file, without the line ends of the system that they come from.
fn lines(name: &str) -> Vec<String> {
    let bytes = std::fs::read(folder().join(name)).unwrap();
    String::from_utf8_lossy(&bytes).lines().map(|line| line.trim_end_matches('\r').to_owned()).collect()
}

/// A document of a line: the line, where it stood, and what an eye sees at once.
fn document(index: &str, number: usize, line: &str) -> Value {
    let mut document = json!({"message": line, "log": {"line": number}});
    let address = line
        .split(|c: char| !(c.is_ascii_digit() || c == '.'))
        .find(|word| word.matches('.').count() == 3 && word.parse::<std::net::Ipv4Addr>().is_ok());
    if let Some(address) = address {
        document["source"] = json!({"ip": address});
    }
    if index == "apache"
        && let Some(level) = line.split("] [").nth(1).and_then(|rest| rest.split(']').next())
    {
        document["level"] = level.into();
    }
    document
}

async fn count(server: &Server, index: &str, query: Value) -> usize {
    let answer = server.search(index, &json!({"size": 0, "track_total_hits": true, "query": query})).await;
    assert_eq!(answer["_shards"]["failed"], 0, "{answer}");
    usize::try_from(answer["hits"]["total"]["value"].as_u64().unwrap()).unwrap()
}

fn holding<'a>(lines: &'a [String], word: &str) -> Vec<&'a String> {
    lines.iter().filter(|line| line.contains(word)).collect()
}

/// Runs typical searches over these files; the expected numbers are those of a plain text search.
async fn searches(server: &Server) {
    let all = |words: &str| json!({"match": {"message": {"query": words, "operator": "and"}}});

    let ssh = lines("OpenSSH_2k.log");
    let failed = holding(&ssh, "Failed password");
    assert!(failed.len() > 100);
    assert_eq!(count(server, "openssh", all("failed password")).await, failed.len());
    let root = failed.iter().filter(|line| line.contains(" root ")).count();
    let query =
        json!({"bool": {"must": [all("failed password")], "filter": [{"match": {"message": "root"}}]}});
    assert_eq!(count(server, "openssh", query).await, root);
    let breakins = holding(&ssh, "POSSIBLE BREAK-IN ATTEMPT").len();
    assert_eq!(count(server, "openssh", all("possible break in attempt")).await, breakins);
    // The address that guessed most, by the address itself and by its network.
    let attacker = "183.62.140.253";
    let from = ssh.iter().filter(|line| document("openssh", 0, line)["source"]["ip"] == attacker).count();
    assert!(from > 100);
    assert_eq!(count(server, "openssh", json!({"term": {"source.ip": attacker}})).await, from);
    let network = ssh
        .iter()
        .filter(|line| {
            document("", 0, line)["source"]["ip"].as_str().is_some_and(|ip| ip.starts_with("183.62."))
        })
        .count();
    assert_eq!(count(server, "openssh", json!({"term": {"source.ip": "183.62.0.0/16"}})).await, network);
    // The first of them, in the order of the file, word for word.
    let answer = server
        .search(
            "openssh",
            &json!({"size": 3, "sort": [{"log.line": "asc"}], "query": all("failed password")}),
        )
        .await;
    let shown: Vec<_> = answer["hits"]["hits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|hit| hit["_source"]["message"].as_str().unwrap())
        .collect();
    assert_eq!(shown, failed.iter().take(3).map(|line| line.as_str()).collect::<Vec<_>>());

    let apache = lines("Apache_2k.log");
    let errors = holding(&apache, "[error]").len();
    assert_eq!(count(server, "apache", json!({"term": {"level": "error"}})).await, errors);
    let forbidden = holding(&apache, "Directory index forbidden").len();
    assert_eq!(count(server, "apache", all("directory index forbidden by rule")).await, forbidden);

    let linux = lines("Linux_2k.log");
    let failures = holding(&linux, "authentication failure").len();
    assert_eq!(count(server, "linux", all("authentication failure")).await, failures);

    let windows = lines("Windows_2k.log");
    let codes = holding(&windows, "0x800f080d").len();
    assert!(codes > 0);
    assert_eq!(count(server, "windows", all("0x800f080d")).await, codes);

    // Everything, in one question over four indices.
    let total = ssh.len() + apache.len() + linux.len() + windows.len();
    assert_eq!(count(server, "openssh,apache,linux,windows", json!({"match_all": {}})).await, total);
    assert_eq!(count(server, "linux", json!({"exists": {"field": "message"}})).await, linux.len());
}

#[tokio::test]
async fn real_logs_are_found_again() {
    if !folder().is_dir() {
        // Not by a macro, whose output the test runner keeps to itself.
        let mut errors = std::io::stderr();
        std::io::Write::write_fmt(&mut errors, format_args!("skipped: no folder {}\n", folder().display()))
            .unwrap();
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--insecure"]);
    let mappings = json!({"mappings": {"properties": {
        "message": {"type": "text"}, "level": {"type": "keyword"}, "source": {"properties": {"ip": {"type": "ip"}}},
    }}});
    for index in ["openssh", "apache", "linux", "windows"] {
        let (status, answer) = server.call(Method::PUT, &format!("/{index}"), mappings.to_string()).await;
        assert_eq!(status, 200, "{answer}");
    }
    let files = [
        ("openssh", "OpenSSH_2k.log"),
        ("apache", "Apache_2k.log"),
        ("linux", "Linux_2k.log"),
        ("windows", "Windows_2k.log"),
    ];
    for (index, file) in files {
        for (block, chunk) in lines(file).chunks(500).enumerate() {
            let mut body = String::new();
            for (at, line) in chunk.iter().enumerate() {
                let number = block * 500 + at;
                writeln!(body, "{{\"index\":{{}}}}\n{}", document(index, number, line)).unwrap();
            }
            let (status, answer) = server.call(Method::POST, &format!("/{index}/_bulk"), body).await;
            assert_eq!((status, &answer["errors"]), (200, &json!(false)), "{answer}");
        }
    }
    server.call(Method::POST, "/_refresh", "").await;
    searches(&server).await;
    server.stop();
    let server = Server::start(dir.path(), &["--insecure"]);
    searches(&server).await;
    server.stop();
}
