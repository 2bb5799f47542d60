//! The server over real sockets.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millrace_api::{AuditConfig, Server, ServerConfig, StartError, TokenLifetimes};
use millrace_listen::TlsFiles;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::Node;

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

async fn bind(node: &Node, listen: SocketAddr, tls: Option<TlsFiles>) -> Result<Server, StartError> {
    let config = ServerConfig {
        listen: vec![listen],
        insecure: true,
        tls,
        admin_password: None,
        tokens: TokenLifetimes::default(),
        password_file: None,
        audit: AuditConfig::default(),
        notifications: millrace_notifications::Config::default(),
        snapshots: millrace_snapshot::Config::default(),
        max_content_length: 1 << 20,
        operation: millrace_api::OperationConfig::default(),
        otlp: millrace_api::OtlpConfig::default(),
    };
    Server::bind(config, node.api.engine.clone(), node.api.search.clone()).await
}

pub(crate) struct RunningServer {
    pub(crate) address: SocketAddr,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<()>,
}

pub(crate) async fn start(node: &Node, tls: Option<TlsFiles>) -> RunningServer {
    let server = bind(node, LOOPBACK, tls).await.unwrap();
    let address = server.local_addr()[0];
    let (stop, stopped) = oneshot::channel::<()>();
    let ended = tokio::spawn(server.run(async {
        let _ = stopped.await;
    }));
    RunningServer { address, stop, ended }
}

/// Sends a request, given by its first line and headers, on a connection of its own.
async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin, head: &str) -> String {
    stream.write_all(format!("{head}\r\nconnection: close\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A peer that closes without a TLS close_notify has answered all the same.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

async fn ask_at(address: SocketAddr, head: &str) -> String {
    ask(TcpStream::connect(address).await.unwrap(), head).await
}

#[tokio::test]
async fn plain_and_tls_until_told_to_stop() {
    let node = Node::insecure().await;
    let files = tempfile::tempdir().unwrap();
    let issued = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let config = TlsFiles::new(files.path().join("cert.pem"), files.path().join("key.pem"));
    std::fs::write(&config.certificate, issued.cert.pem()).unwrap();
    std::fs::write(&config.key, issued.signing_key.serialize_pem()).unwrap();
    let plain = start(&node, None).await;
    let tls = start(&node, Some(config)).await;

    // A connection that stays open without a request does not hold up the end.
    let idle = TcpStream::connect(plain.address).await.unwrap();
    let probe = "GET /_health/live HTTP/1.1\r\nhost: localhost";
    let answer = ask_at(plain.address, probe).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("{\"status\":\"live\"}"), "{answer}");

    let mut roots = rustls::RootCertStore::empty();
    roots.add(issued.cert.der().clone()).unwrap();
    let client =
        rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(client));
    let stream = TcpStream::connect(tls.address).await.unwrap();
    let stream = connector.connect("localhost".try_into().unwrap(), stream).await.unwrap();
    let answer = ask(stream, probe).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // The certificate is read again; one that cannot be leaves the one before in use.
    let reload = "POST /_service/auth/reload HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0";
    for (written, status, expected) in [
        (None, "HTTP/1.1 200", "[\"privileges\",\"tls\"]"),
        (Some("no certificate"), "HTTP/1.1 500", "cert.pem"),
        (None, "HTTP/1.1 500", "cert.pem"),
    ] {
        if let Some(written) = written {
            std::fs::write(files.path().join("cert.pem"), written).unwrap();
        }
        let stream = TcpStream::connect(tls.address).await.unwrap();
        let stream = connector.connect("localhost".try_into().unwrap(), stream).await.unwrap();
        let answer = ask(stream, reload).await;
        assert!(answer.starts_with(status) && answer.contains(expected), "{answer}");
    }

    for running in [plain, tls] {
        running.stop.send(()).unwrap();
        running.ended.await.unwrap();
        assert!(TcpStream::connect(running.address).await.is_err());
    }
    drop(idle);
}

#[tokio::test]
async fn bad_listeners_name_the_culprit() {
    let node = Node::insecure().await;
    let taken = start(&node, None).await;
    let error = bind(&node, taken.address, None).await.unwrap_err();
    assert!(error.to_string().contains(&taken.address.to_string()), "{error}");
    let config = TlsFiles::new("/nowhere/cert.pem", "/nowhere/key.pem");
    let error = bind(&node, LOOPBACK, Some(config)).await.unwrap_err();
    assert!(error.to_string().contains("/nowhere/cert.pem"), "{error}");
}

#[tokio::test]
async fn without_credentials_web_pages_of_elsewhere_are_refused() {
    let node = Node::insecure().await;
    let RunningServer { address, stop: _stop, .. } = start(&node, None).await;
    let port = address.port();
    for (headers, status) in [
        // Ordinary clients, and a page of this machine.
        (format!("host: 127.0.0.1:{port}"), 200),
        ("host: localhost".to_owned(), 200),
        (format!("host: localhost:{port}\r\norigin: http://localhost:5601"), 200),
        // A page that had its own name resolve to this machine, and others that post to it.
        (format!("host: evil.example:{port}"), 403),
        (format!("host: 127.0.0.1:{port}\r\norigin: https://evil.example"), 403),
        (format!("host: 127.0.0.1:{port}\r\norigin: null"), 403),
    ] {
        let head = format!("PUT /logs/_doc/1 HTTP/1.1\r\n{headers}\r\ncontent-type: application/json\r\n");
        let answer =
            ask_at(address, &format!("{head}content-length: 2\r\n\r\n{{}}GET / HTTP/1.1\r\n{headers}")).await;
        let (first, second) = match status {
            200 => ("HTTP/1.1 20", "You Know, for Search"),
            _ => ("HTTP/1.1 403", "without --insecure"),
        };
        assert!(answer.starts_with(first) && answer.contains(second), "{headers}: {answer}");
    }
    // What was refused did nothing.
    assert_eq!(node.ask("GET /logs/_doc/1", "", 200).await["_version"], 3);
}

#[tokio::test]
async fn attempts_are_bounded_an_address_and_who_was_right_is_served() {
    let node = Node::insecure().await;
    let config = ServerConfig {
        listen: vec![LOOPBACK],
        insecure: false,
        tls: None,
        password_file: None,
        admin_password: Some("secret".to_owned()),
        tokens: TokenLifetimes::default(),
        audit: AuditConfig::default(),
        notifications: millrace_notifications::Config::default(),
        snapshots: millrace_snapshot::Config::default(),
        max_content_length: 1 << 20,
        operation: millrace_api::OperationConfig::default(),
        otlp: millrace_api::OtlpConfig::default(),
    };
    let server = Server::bind(config, node.api.engine.clone(), node.api.search.clone()).await.unwrap();
    let address = server.local_addr()[0];
    tokio::spawn(server.run(std::future::pending()));
    let ask_from = async |last: u8, password: &str| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, last], 0))).unwrap();
        let credentials = STANDARD.encode(format!("admin:{password}"));
        let head = format!("GET / HTTP/1.1\r\nhost: logs.example\r\nauthorization: Basic {credentials}");
        ask(socket.connect(address).await.unwrap(), &head).await
    };
    assert!(ask_from(1, "secret").await.starts_with("HTTP/1.1 200"));
    let mut tried = 0;
    let refused = loop {
        let answer = ask_from(2, &format!("wrong-{tried}")).await;
        tried += 1;
        assert!(ask_from(1, "secret").await.starts_with("HTTP/1.1 200"));
        if !answer.starts_with("HTTP/1.1 401") {
            break answer;
        }
    };
    assert!(refused.starts_with("HTTP/1.1 429") && refused.contains("retry-after: 1\r\n"), "{refused}");
    assert!(tried > 32, "{tried}");
    // Another one has attempts of its own, and what was right is so from everywhere.
    assert!(ask_from(3, "wrong").await.starts_with("HTTP/1.1 401"));
    assert!(ask_from(2, "secret").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn with_credentials_any_name_and_page_will_do() {
    let node = Node::secured().await;
    // admin:secret
    let headers = [
        ("authorization", "Basic YWRtaW46c2VjcmV0"),
        ("host", "logs.example"),
        ("origin", "https://dashboards.example"),
    ];
    assert_eq!(node.send("GET /", &headers, "").await.status, 200);
}
