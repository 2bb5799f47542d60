//! The listeners of agents, beside the data API: off unless configured, and with the agents of before after a restart.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::process::{Server, http_client, millrace, run};

fn command(data: &Path) -> Command {
    let mut command = millrace(&["serve", "--listen", "127.0.0.1:0", "--insecure", "--data"]);
    command.arg(data);
    command
}

fn with_agents(data: &Path) -> Command {
    let mut command = command(data);
    command
        .env("MILLRACE_AGENTS__ENROLL_LISTEN", "127.0.0.1:0")
        .env("MILLRACE_AGENTS__LISTEN", "127.0.0.1:0");
    command
}

fn url(server: &Server, greeting: &str) -> Option<String> {
    server.greeting.lines().find_map(|line| line.strip_prefix(greeting)).map(str::to_owned)
}

#[tokio::test]
async fn agents_survive_a_restart_of_the_server() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::new(&mut with_agents(data.path()));
    let enrolment = url(&server, "agents enrol on ").unwrap();
    let client = http_client();
    let body = json!({ "agent_id": "web-1", "host": "web1" }).to_string();
    let answer = client.post(format!("{enrolment}/register")).body(body).send().await.unwrap();
    assert_eq!(answer.status(), 201);
    let answer: Value = answer.json().await.unwrap();
    let token = answer["token"].as_str().unwrap().to_owned();
    let management = url(&server, "agents are managed on ").unwrap();
    let keepalive = client.post(format!("{management}/agents/web-1/keepalive")).bearer_auth(&token);
    assert_eq!(keepalive.body("{\"os\":\"Debian\"}").send().await.unwrap().status(), 200);
    let (_, page) = server.call(reqwest::Method::GET, "/_prometheus/metrics", "").await;
    let page = page.as_str().unwrap();
    assert!(page.contains("millrace_agents{status=\"active\"} 1"));
    assert!(page.contains("route=\"/agents/{agent_id}/keepalive\""), "requests of agents are counted");
    server.stop();

    let server = Server::new(&mut with_agents(data.path()));
    let management = url(&server, "agents are managed on ").unwrap();
    let show = client.get(format!("{management}/agents/web-1")).bearer_auth(&token).send().await.unwrap();
    let record: Value = show.json().await.unwrap();
    assert_eq!((&record["status"], &record["os"]), (&json!("active"), &json!("Debian")));
    server.stop();
}

#[test]
fn the_listeners_are_off_unless_they_are_configured() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::new(&mut command(data.path()));
    assert!(!server.greeting.contains("agents"), "{}", server.greeting);
    server.stop();
    for (variable, value, reason) in [
        ("MILLRACE_AGENTS__ENROLL_LISTEN", "0.0.0.0:0", "insecure is refused"),
        ("MILLRACE_AGENTS__ENROLL_SECRET", "short", "fewer than 8 bytes"),
        ("MILLRACE_AGENTS__PENDING_AFTER", "10m", "no agent would ever be pending"),
        ("MILLRACE_AGENTS__ENROLL_CERTIFICATE", "true", "tls.client_authorities"),
    ] {
        let (code, _, errors) = run(command(data.path()).env(variable, value));
        assert_ne!(code, Some(0), "{variable}");
        assert!(errors.contains(reason), "{variable}: {errors}");
    }
    // With credentials, everybody could enrol.
    let mut open = millrace(&["serve", "--listen", "127.0.0.1:0", "--data"]);
    open.arg(data.path()).env("MILLRACE_AGENTS__ENROLL_LISTEN", "0.0.0.0:0");
    let (code, _, errors) = run(&mut open);
    assert_ne!(code, Some(0));
    assert!(errors.contains("everybody could enrol"), "{errors}");
}
