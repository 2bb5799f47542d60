//! The listeners of agents, beside the data API: off unless configured, over TLS where it is, and with the agents of before after a
//! restart.

use std::path::Path;
use std::process::Command;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use reqwest::{Certificate, Client, Identity};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::process::{Server, http_client, http_client_builder, millrace, run};

fn command(data: &Path) -> Command {
    let mut command = millrace(&["serve", "--listen", "127.0.0.1:0", "--insecure", "--data"]);
    command.arg(data);
    command
}

fn with_agents(data: &Path) -> Command {
    let mut command = command(data);
    command
        .env("MILLRACE_AGENTS__ENROLL_LISTEN", "127.0.0.1:0")
        .env("MILLRACE_AGENTS__LISTEN", "127.0.0.1:0")
        .env("MILLRACE_LOG__FORMAT", "json")
        .env("MILLRACE_LOG__ACCESS", "true");
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
    server.signal(Signal::TERM);
    let (status, log) = server.wait();
    assert_eq!(status.code(), Some(0), "{log}");
    let lines: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    for (listener, route, path, expected) in [
        ("enrolment", "/register", "/register", 201),
        ("agents", "/agents/{agent_id}/keepalive", "/agents/web-1/keepalive", 200),
    ] {
        let is_wanted = |line: &&Value| line["target"] == "access" && line["listener"] == listener;
        let line = lines.iter().find(is_wanted).unwrap_or_else(|| panic!("no line of {listener}: {log}"));
        assert_eq!((&line["route"], &line["path"]), (&json!(route), &json!(path)), "{line}");
        assert_eq!((&line["status"], &line["address"]), (&json!(expected), &json!("127.0.0.1")), "{line}");
    }

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

/// Authority that certifies agents.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority of agents");
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Certifies an agent.
    fn identity(&self, name: &str) -> Identity {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let issued = params.signed_by(&key, &self.0).unwrap();
        Identity::from_pem(format!("{}{}", issued.pem(), key.serialize_pem()).as_bytes()).unwrap()
    }
}

#[tokio::test]
async fn the_listeners_speak_tls_and_a_client_certificate_enrols() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let issued = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let authority = Authority::new();
    std::fs::write(file("cert.pem"), issued.cert.pem()).unwrap();
    std::fs::write(file("key.pem"), issued.signing_key.serialize_pem()).unwrap();
    std::fs::write(file("authorities.pem"), authority.0.pem()).unwrap();
    let mut command = millrace(&["serve", "--listen", "127.0.0.1:0", "--data"]);
    command
        .arg(file("data"))
        .env("MILLRACE_ADMIN_PASSWORD", "correct horse")
        .env("MILLRACE_TLS__CERTIFICATE", file("cert.pem"))
        .env("MILLRACE_TLS__KEY", file("key.pem"))
        .env("MILLRACE_TLS__CLIENT_AUTHORITIES", file("authorities.pem"))
        .env("MILLRACE_TLS__CLIENT_AUTHENTICATION", "optional")
        .env("MILLRACE_AGENTS__ENROLL_CERTIFICATE", "true")
        .env("MILLRACE_AGENTS__ENROLL_LISTEN", "127.0.0.1:0")
        .env("MILLRACE_AGENTS__LISTEN", "127.0.0.1:0");
    let server = Server::new(&mut command);
    let enrolment = url(&server, "agents enrol on ").unwrap();
    let management = url(&server, "agents are managed on ").unwrap();
    assert!(enrolment.starts_with("https://") && management.starts_with("https://"));
    let client = |identity: Option<Identity>| {
        let root = Certificate::from_pem(issued.cert.pem().as_bytes()).unwrap();
        let builder = http_client_builder().tls_certs_only([root]);
        match identity {
            Some(identity) => builder.identity(identity).build().unwrap(),
            None => builder.build().unwrap(),
        }
    };
    let register = |client: &Client, url: &str| {
        let body = json!({ "agent_id": "web-1", "host": "web1" }).to_string();
        client.post(format!("{url}/register")).body(body).send()
    };
    // Without TLS, of an unknown server, or with a certificate of somebody else, nobody gets as far as a request.
    assert!(register(&http_client(), &enrolment).await.is_err());
    assert!(register(&client(None), &enrolment.replace("https", "http")).await.is_err());
    assert!(register(&client(Some(Authority::new().identity("web-1"))), &enrolment).await.is_err());
    let stranger = client(None);
    assert_eq!(register(&stranger, &enrolment).await.unwrap().status(), 401);
    let agent = client(Some(authority.identity("web-1")));
    let enrolled = register(&agent, &enrolment).await.unwrap();
    assert_eq!(enrolled.status(), 201);
    let enrolled: Value = enrolled.json().await.unwrap();
    let token = enrolled["token"].as_str().unwrap();

    // On the management listener the token counts, with a certificate or without.
    for client in [&agent, &stranger] {
        let keepalive = client.post(format!("{management}/agents/web-1/keepalive"));
        assert_eq!(keepalive.bearer_auth(token).send().await.unwrap().status(), 200);
    }
    let list = stranger.get(format!("{management}/agents"));
    assert_eq!(list.try_clone().unwrap().send().await.unwrap().status(), 401);
    assert_eq!(list.basic_auth("admin", Some("correct horse")).send().await.unwrap().status(), 200);
    server.stop();
}
