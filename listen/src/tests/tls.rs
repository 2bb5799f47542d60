//! TLS: certificates that are replaced, clients that are asked for theirs.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, HandshakeKind, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::{SECOND, TestServer, ask, rest, start};
use crate::tls::InUse;
use crate::{ClientCertificates, Config, Tls, TlsFiles};

/// Writes a certificate of its own and its key; returns what trusts it.
fn issue(dir: &Path) -> TlsConnector {
    let issued = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(dir.join("cert.pem"), issued.cert.pem()).unwrap();
    std::fs::write(dir.join("key.pem"), issued.signing_key.serialize_pem()).unwrap();
    connector(dir, None)
}

/// Makes what trusts the server's certificate in a directory, and shows one of its own.
fn connector(
    dir: &Path,
    identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(dir.join("cert.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let client = match identity {
        None => client.with_no_client_auth(),
        Some((chain, key)) => client.with_client_auth_cert(chain, key).unwrap(),
    };
    TlsConnector::from(Arc::new(client))
}

fn files(dir: &Path) -> TlsFiles {
    TlsFiles::new(dir.join("cert.pem"), dir.join("key.pem"))
}

/// Authority that certifies clients.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// Makes one and writes its certificate.
    fn new(file: &Path) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, file.display().to_string());
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(file, issuer.pem()).unwrap();
        Self(issuer)
    }

    /// Certifies a client until the end of a year.
    fn client(&self, dir: &Path, name: &str, year: i32) -> TlsConnector {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Acme");
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 12, 31);
        let key = KeyPair::generate().unwrap();
        let issued = params.signed_by(&key, &self.0).unwrap();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        connector(dir, Some((vec![issued.der().clone()], key.into())))
    }
}

/// Asks on a new connection who the server takes the client for; `None` where it does not talk to it.
async fn who(running: &TestServer, connector: &TlsConnector) -> Option<String> {
    let stream = running.connect().await;
    let mut stream = connector.connect("localhost".try_into().unwrap(), stream).await.ok()?;
    // With TLS 1.3 the server refuses a client that takes the handshake for done.
    let request = b"GET /who HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.ok()?;
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    Some(answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

#[tokio::test]
async fn clients_are_asked_for_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let anonymous = issue(dir);
    // Several authorities in one file.
    let bundle = dir.join("ca.pem");
    let (first, second) = (Authority::new(&dir.join("1.pem")), Authority::new(&bundle));
    std::fs::write(&bundle, first.0.pem() + &second.0.pem()).unwrap();
    let foreign = Authority::new(&dir.join("foreign.pem")).client(dir, "shipper", 4000);
    let expired = first.client(dir, "shipper", 2001);
    let valid = [first.client(dir, "shipper", 4000), second.client(dir, "a,b", 4000)];
    for clients in [ClientCertificates::None, ClientCertificates::Optional, ClientCertificates::Required] {
        for tls13 in [true, false] {
            let files = TlsFiles { authorities: vec![bundle.clone()], clients, tls13, ..files(dir) };
            let running = start(Config::default(), Some(Tls::load(files).unwrap())).await;
            let (with, without, invalid) = match clients {
                ClientCertificates::None => (None, Some("nobody"), Some("nobody")),
                ClientCertificates::Optional => (Some(()), Some("nobody"), None),
                ClientCertificates::Required => (Some(()), None, None),
            };
            let names = [r#"CN=shipper,O=Acme Some("shipper")"#, r#"CN=a\,b,O=Acme Some("a,b")"#];
            for (client, name) in valid.iter().zip(names) {
                let expected = with.map_or("nobody", |()| name);
                assert_eq!(who(&running, client).await.as_deref(), Some(expected), "{clients:?}");
            }
            assert_eq!(who(&running, &anonymous).await.as_deref(), without, "{clients:?}");
            assert_eq!(who(&running, &foreign).await.as_deref(), invalid, "{clients:?}");
            assert_eq!(who(&running, &expired).await.as_deref(), invalid, "{clients:?}");
        }
    }
}

#[tokio::test]
async fn clients_are_verified_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    issue(dir);
    let bundle = dir.join("ca.pem");
    let authority = Authority::new(&bundle);
    for (clients, again) in [
        (ClientCertificates::None, HandshakeKind::Resumed),
        (ClientCertificates::Optional, HandshakeKind::Full),
        (ClientCertificates::Required, HandshakeKind::Full),
    ] {
        for tls13 in [true, false] {
            let files = TlsFiles { authorities: vec![bundle.clone()], clients, tls13, ..files(dir) };
            let running = start(Config::default(), Some(Tls::load(files).unwrap())).await;
            let client = authority.client(dir, "shipper", 4000);
            for kind in [HandshakeKind::Full, again] {
                let stream = running.connect().await;
                let mut stream = client.connect("localhost".try_into().unwrap(), stream).await.unwrap();
                ask(&mut stream).await;
                assert_eq!(stream.get_ref().1.handshake_kind(), Some(kind), "{clients:?}");
            }
        }
    }
}

#[test]
fn a_key_that_cannot_be_used_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    issue(dir.path());
    let files = files(dir.path());
    let pkcs8 = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIH0\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let traditional = "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nMIH0\n-----END EC PRIVATE KEY-----\n";
    let decrypt = format!("openssl pkey -in {}", files.key.display());
    let certificate = std::fs::read_to_string(&files.certificate).unwrap();
    for (text, said) in [
        (pkcs8, decrypt.as_str()),
        (traditional, &decrypt),
        (&certificate, "no private key in the file"),
        ("", "no private key in the file"),
    ] {
        std::fs::write(&files.key, text).unwrap();
        let error = Tls::load(files.clone()).unwrap_err().to_string();
        assert!(error.starts_with("TLS key [") && error.contains(said), "{error}");
    }
    std::fs::remove_file(&files.key).unwrap();
    let error = Tls::load(files).unwrap_err().to_string();
    assert!(error.starts_with("TLS key [") && error.contains("key.pem"), "{error}");
}

#[test]
fn authorities_that_are_none_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    issue(dir.path());
    let bundle = dir.path().join("ca.pem");
    let required = ClientCertificates::Required;
    let files = TlsFiles { authorities: vec![bundle.clone()], clients: required, ..files(dir.path()) };
    let key = std::fs::read_to_string(&files.key).unwrap();
    for text in [None, Some(""), Some(key.as_str()), Some("-----BEGIN CERTIFICATE-----\n?\n")] {
        if let Some(text) = text {
            std::fs::write(&bundle, text).unwrap();
        }
        let error = Tls::load(files.clone()).unwrap_err().to_string();
        assert!(error.starts_with("TLS certificate authority [") && error.contains("ca.pem"), "{error}");
    }
    let error = Tls::load(TlsFiles { authorities: Vec::new(), ..files }).unwrap_err().to_string();
    assert!(error.contains("certificate authorities"), "{error}");
}

#[tokio::test]
async fn authorities_are_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    issue(dir);
    let bundle = dir.join("ca.pem");
    let before = Authority::new(&bundle).client(dir, "before", 4000);
    let clients = ClientCertificates::Required;
    let tls = Tls::load(TlsFiles { authorities: vec![bundle.clone()], clients, ..files(dir) }).unwrap();
    let running = start(Config::default(), Some(tls.clone())).await;
    assert_eq!(who(&running, &before).await.as_deref(), Some(r#"CN=before,O=Acme Some("before")"#));
    let after = Authority::new(&bundle).client(dir, "after", 4000);
    tls.reload().unwrap();
    assert_eq!(who(&running, &before).await, None);
    let expected = r#"CN=after,O=Acme Some("after")"#;
    assert_eq!(who(&running, &after).await.as_deref(), Some(expected));
    std::fs::write(&bundle, "").unwrap();
    let error = tls.reload().unwrap_err();
    assert!(error.to_string().contains("ca.pem"), "{error}");
    assert_eq!(who(&running, &after).await.as_deref(), Some(expected));
}

#[tokio::test(start_paused = true)]
async fn changed_files_are_read_again_by_themselves() {
    static IN_USE: InUse = Mutex::new(Vec::new());
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let before = issue(dir);
    let tls = Tls::load(files(dir)).unwrap();
    tls.in_use_of(&IN_USE);
    let running = start(Config::default(), Some(tls)).await;
    let looks = tokio::spawn(crate::tls::look(&IN_USE));
    let mut old = before.connect("localhost".try_into().unwrap(), running.connect().await).await.unwrap();
    ask(&mut old).await;
    // A certificate without its key, as while a pair is being written.
    let key = std::fs::read(dir.join("key.pem")).unwrap();
    let after = issue(dir);
    let new_key = std::fs::read(dir.join("key.pem")).unwrap();
    std::fs::write(dir.join("key.pem"), key).unwrap();
    tokio::time::sleep(SECOND * 11).await;
    assert!(who(&running, &before).await.is_some());
    std::fs::write(dir.join("key.pem"), new_key).unwrap();
    tokio::time::sleep(SECOND * 11).await;
    assert!(who(&running, &before).await.is_none());
    assert!(who(&running, &after).await.is_some());
    std::fs::remove_file(dir.join("cert.pem")).unwrap();
    tokio::time::sleep(SECOND * 11).await;
    assert!(who(&running, &after).await.is_some());
    ask(&mut old).await;
    looks.abort();
}

#[tokio::test]
async fn certificates_are_replaced_while_connections_are_open() {
    let dir = tempfile::tempdir().unwrap();
    let files = files(dir.path());
    let error = Tls::load(files.clone()).unwrap_err();
    assert!(error.to_string().contains("cert.pem"), "{error}");
    let before = issue(dir.path());
    let tls = Tls::load(files).unwrap();
    let running = start(Config::default(), Some(tls.clone())).await;
    let connect = async |connector: &TlsConnector| {
        connector.connect("localhost".try_into().unwrap(), running.connect().await).await
    };
    let mut old = connect(&before).await.unwrap();
    ask(&mut old).await;
    let after = issue(dir.path());
    ask(&mut connect(&before).await.unwrap()).await;
    tls.reload().unwrap();
    assert!(connect(&before).await.is_err());
    let mut new = connect(&after).await.unwrap();
    ask(&mut new).await;
    ask(&mut old).await;
    // Half of a pair changes nothing.
    std::fs::write(dir.path().join("key.pem"), "").unwrap();
    let error = tls.reload().unwrap_err();
    assert!(error.to_string().contains("key.pem"), "{error}");
    ask(&mut connect(&after).await.unwrap()).await;
}

#[tokio::test(start_paused = true)]
async fn a_handshake_has_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let _ = issue(dir.path());
    let files = files(dir.path());
    let tls = Tls::load(files).unwrap().with_handshake_timeout(SECOND * 3);
    let running = start(Config { max_connections: 1, ..Config::default() }, Some(tls)).await;
    let started = Instant::now();
    assert_eq!(rest(&mut running.connect().await).await, 0);
    assert_eq!(started.elapsed().as_secs(), 3);
    // And makes room before that, if others come.
    let mut first = running.connect().await;
    let _second = running.connect().await;
    let started = Instant::now();
    assert_eq!(rest(&mut first).await, 0);
    assert!(started.elapsed() < SECOND);
}

#[test]
fn the_end_of_the_certificate_is_known_also_after_it_was_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let write = |year: i32| {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 12, 31);
        let key = KeyPair::generate().unwrap();
        std::fs::write(dir.path().join("cert.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        std::fs::write(dir.path().join("key.pem"), key.serialize_pem()).unwrap();
    };
    write(2040);
    let tls = Tls::load(files(dir.path())).unwrap();
    assert_eq!(tls.not_after_ms(), Some(2_240_524_800_000));
    write(2041);
    tls.reload().unwrap();
    assert_eq!(tls.not_after_ms(), Some(2_272_060_800_000));
}
