//! `millrace rules`, and alerts of a server.

use std::path::{Path, PathBuf};

use reqwest::Method;
use serde_json::{Value, json};

use crate::process::{Server, millrace, run};

fn deployed() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/rules");
    let mut files: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn rules_that_are_ready_for_use_hold_their_cases_as_the_server_asks_them() {
    let (code, out, errors) = run(millrace(&["rules", "test"]).args(deployed()));
    assert_eq!(code, Some(0), "{out}{errors}");
    assert!(!out.contains("FAILED") && out.matches("ok      ").count() >= 10, "{out}");
    assert!(out.trim_end().ends_with(" cases hold, 0 do not"), "{out}");
}

#[test]
fn a_case_that_does_not_hold_is_told_and_so_is_a_file_that_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("one.test.yaml");
    let cases = "
rule: { name: r, index: logs, type: any, filter: [{ term: { outcome: failed } }] }
cases:
  - name: a failure
    events: [{ outcome: failed, user: ann }, { outcome: fine, user: bob }]
    alerts: [{ trigger: 1, match_body.user: bob }]
";
    std::fs::write(&file, cases).unwrap();
    let (code, out, _) = run(millrace(&["rules", "test"]).arg(&file));
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("FAILED") && out.contains("[match_body.user] is [ann], [bob] is expected"), "{out}");
    let rule = dir.path().join("alone.yaml");
    std::fs::write(&rule, "{ name: r, index: logs, type: any }").unwrap();
    let (code, _, errors) = run(millrace(&["rules", "test"]).arg(&rule));
    assert_eq!(code, Some(1));
    assert!(errors.contains("alone.test.yaml"), "{errors}");
}

#[tokio::test]
async fn rules_are_imported_and_alert_with_the_events_that_prove_it() {
    let dir = tempfile::tempdir().unwrap();
    let wrong = dir.path().join("wrong.yaml");
    std::fs::write(&wrong, "{ name: w, index: logs, type: any, colour: red }").unwrap();
    let rule = deployed().into_iter().find(|file| file.ends_with("ssh-brute-force.yaml")).unwrap();
    let (code, out, errors) = run(millrace(&["rules", "import"]).arg(&rule));
    assert_eq!(code, Some(0), "{errors}");
    let printed: Value = serde_json::from_str(out.trim_end()).unwrap();
    assert_eq!(printed["alertrulename"], "SSH brute force", "{printed}");

    let server = Server::start(&dir.path().join("data"), &["--insecure"]);
    let console = server.greeting.lines().find_map(|line| line.strip_prefix("the console is on ")).unwrap();
    let (code, _, errors) = run(millrace(&["rules", "import", "--url", console]).arg(&rule).arg(&wrong));
    assert_eq!(code, Some(1));
    assert!(errors.contains("[colour]") && errors.contains("nothing was saved"), "{errors}");
    let (code, out, errors) = run(millrace(&["rules", "import", "--url", console]).arg(&rule));
    assert_eq!(code, Some(0), "{errors}");
    assert!(out.contains("saved as ["), "{out}");

    let event = |second: usize| json!({"@timestamp": format!("2026-12-10T06:00:0{second}Z"), "outcome": "failed", "source_ip": "10.0.0.9"});
    let lines = (1..=5).map(|second| format!("{{\"index\":{{\"_id\":\"{second}\"}}}}\n{}\n", event(second)));
    let (status, answer) = server.call(Method::POST, "/openssh-1/_bulk", lines.collect::<String>()).await;
    assert_eq!((status, &answer["errors"]), (200, &json!(false)), "{answer}");
    let alert = loop {
        let (_, found) = server.call(Method::GET, "/alert/_search?ignore_unavailable=true", "").await;
        if let Some(hit) = found["hits"]["hits"].get(0) {
            break hit["_source"].clone();
        }
        tokio::task::yield_now().await;
    };
    assert_eq!((&alert["key"], &alert["event_count"]), (&json!("10.0.0.9"), &json!(5)), "{alert}");
    let ids: Vec<_> = alert["events"].as_array().unwrap().iter().map(|event| event["_id"].clone()).collect();
    assert_eq!(ids, ["1", "2", "3", "4", "5"]);
    server.stop();
}
