//! The server over real sockets.

use std::net::SocketAddr;
use std::sync::Arc;

use millrace_api::{HttpConfig, Listener, Tls, serve};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::support::Node;

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> String {
    stream
        .write_all(b"GET /_health/live HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    // A peer that closes without a TLS close_notify has answered all the same.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn plain_and_tls_until_told_to_stop() {
    let node = Node::insecure().await;
    let files = tempfile::tempdir().unwrap();
    let issued = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let config = Tls { certificate: files.path().join("cert.pem"), key: files.path().join("key.pem") };
    std::fs::write(&config.certificate, issued.cert.pem()).unwrap();
    std::fs::write(&config.key, issued.signing_key.serialize_pem()).unwrap();

    let plain = Listener::bind(LOOPBACK, None).await.unwrap();
    let tls = Listener::bind(LOOPBACK, Some(&config)).await.unwrap();
    let (plain_at, tls_at) = (plain.local_addr().unwrap(), tls.local_addr().unwrap());
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(serve(vec![plain, tls], HttpConfig::default(), node.api.clone(), async {
        let _ = stopped.await;
    }));

    // A connection that stays open without a request does not hold up the end.
    let idle = TcpStream::connect(plain_at).await.unwrap();
    let answer = ask(TcpStream::connect(plain_at).await.unwrap()).await;
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
    let stream = TcpStream::connect(tls_at).await.unwrap();
    let stream = connector.connect("localhost".try_into().unwrap(), stream).await.unwrap();
    let answer = ask(stream).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

    stop.send(()).unwrap();
    server.await.unwrap().unwrap();
    drop(idle);
    assert!(TcpStream::connect(plain_at).await.is_err());
}

#[tokio::test]
async fn bad_listeners_name_the_culprit() {
    let taken = Listener::bind(LOOPBACK, None).await.unwrap();
    let address = taken.local_addr().unwrap();
    let error = Listener::bind(address, None).await.unwrap_err();
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    let config = Tls { certificate: "/nowhere/cert.pem".into(), key: "/nowhere/key.pem".into() };
    let error = Listener::bind(LOOPBACK, Some(&config)).await.unwrap_err();
    assert!(error.to_string().contains("/nowhere/cert.pem"), "{error}");
}
