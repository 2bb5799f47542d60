//! The listener with a certificate, and clients with theirs.

use std::io;
use std::path::Path;
use std::sync::Arc;

use arrow_flight::sql::client::FlightSqlServiceClient;
use hyper_util::rt::TokioIo;
use millrace_accounts::{CERTIFICATE_SUBJECT, User};
use millrace_listen::{ClientCertificates, TlsFiles};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::Code;
use tonic::transport::Endpoint;

use crate::support::{Client, Node, Setup, code, lines, run};

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Writes a certificate of the server and its key.
fn files(dir: &Path) -> TlsFiles {
    let issued = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let files = TlsFiles::new(dir.join("cert.pem"), dir.join("key.pem"));
    std::fs::write(&files.certificate, issued.cert.pem()).unwrap();
    std::fs::write(&files.key, issued.signing_key.serialize_pem()).unwrap();
    files
}

/// Authority that certifies clients.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Certifies a client.
    fn client(&self, name: &str) -> Identity {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Acme");
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let issued = params.signed_by(&key, &self.0).unwrap();
        (vec![issued.der().clone()], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
    }
}

/// Connects by TLS, and shows a certificate.
async fn connect(
    node: &Node,
    files: &TlsFiles,
    identity: Option<Identity>,
) -> Result<Client, tonic::transport::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&files.certificate).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match identity {
        None => config.with_no_client_auth(),
        Some((chain, key)) => config.with_client_auth_cert(chain, key).unwrap(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    let (connector, address) = (TlsConnector::from(Arc::new(config)), node.address);
    let connect = tower::service_fn(move |_: http::Uri| {
        let connector = connector.clone();
        async move {
            let stream = TcpStream::connect(address).await?;
            let name = "localhost".try_into().map_err(io::Error::other)?;
            Ok::<_, io::Error>(TokioIo::new(connector.connect(name, stream).await?))
        }
    });
    let channel = Endpoint::from_static("http://localhost").connect_with_connector(connect).await?;
    Ok(FlightSqlServiceClient::new(channel))
}

/// A server with a certificate, an index, and users of certificates.
async fn node(files: TlsFiles) -> Node {
    let node = Node::with(Setup { tls: Some(files), ..Setup::default() }).await;
    node.index("logs", json!({ "n": { "type": "long" } }), &[json!({ "n": 1 })]).await;
    node.role("shipper", json!([{ "names": ["logs"], "privileges": ["read"] }])).await;
    // One without a password.
    let subject = (CERTIFICATE_SUBJECT.to_owned(), "CN=shipper,O=Acme".to_owned());
    let user = User {
        roles: vec!["shipper".to_owned()],
        enabled: true,
        attributes: [subject].into(),
        ..User::default()
    };
    node.listener.node.accounts.put_user("shipper", user, None).await.unwrap();
    node
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_run_over_tls_and_nothing_runs_without_it() {
    let dir = tempfile::tempdir().unwrap();
    let files = files(dir.path());
    let node = node(files.clone()).await;
    let mut client = connect(&node, &files, None).await.unwrap();
    assert_eq!(code(run(&mut client, "SELECT n FROM logs").await), Code::Unauthenticated);
    client.handshake("admin", "secret").await.unwrap();
    assert_eq!(lines(&run(&mut client, "SELECT n FROM logs").await.unwrap()), ["|1|"]);
    // A client that takes another for the server does not talk to it, nor does one that does not encrypt.
    let other = tempfile::tempdir().unwrap();
    assert!(connect(&node, &self::files(other.path()), None).await.is_err());
    let plain = Endpoint::from_shared(format!("http://{}", node.address)).unwrap().connect().await;
    let failed = match plain {
        Ok(channel) => FlightSqlServiceClient::new(channel).handshake("admin", "secret").await.is_err(),
        Err(_) => true,
    };
    assert!(failed);
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_of_clients_are_credentials() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = files(dir.path());
    let (authority, stranger) = (Authority::new("ours"), Authority::new("theirs"));
    files.authorities = vec![dir.path().join("clients.pem")];
    std::fs::write(&files.authorities[0], authority.0.pem()).unwrap();
    files.clients = ClientCertificates::Optional;
    let node = node(files.clone()).await;
    let mut shipper = connect(&node, &files, Some(authority.client("shipper"))).await.unwrap();
    assert_eq!(lines(&run(&mut shipper, "SELECT n FROM logs").await.unwrap()), ["|1|"]);
    let tables = shipper.get_tables(Default::default()).await.unwrap();
    assert_eq!(lines(&crate::support::fetch(&mut shipper, &tables).await.unwrap()).len(), 1);
    // It is the user's certificate and not more than that.
    let refused = shipper.execute_update("DELETE FROM logs".to_owned(), None).await;
    assert!(matches!(code(refused), Code::PermissionDenied | Code::FailedPrecondition));
    let mut nobody = connect(&node, &files, Some(authority.client("nobody"))).await.unwrap();
    assert_eq!(code(run(&mut nobody, "SELECT n FROM logs").await), Code::Unauthenticated);
    // Who shows none logs in as ever, and credentials that are shown go before a certificate.
    let mut plain = connect(&node, &files, None).await.unwrap();
    assert_eq!(code(run(&mut plain, "SELECT n FROM logs").await), Code::Unauthenticated);
    plain.handshake("admin", "secret").await.unwrap();
    assert!(run(&mut plain, "SELECT n FROM logs").await.is_ok());
    let mut wrong = connect(&node, &files, Some(authority.client("shipper"))).await.unwrap();
    assert!(wrong.handshake("admin", "wrong").await.is_err());
    assert!(refuses(&node, &files, Some(stranger.client("shipper"))).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_certificates_are_asked_of_all_nobody_talks_without() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = files(dir.path());
    let authority = Authority::new("ours");
    files.authorities = vec![dir.path().join("clients.pem")];
    std::fs::write(&files.authorities[0], authority.0.pem()).unwrap();
    files.clients = ClientCertificates::Required;
    let node = node(files.clone()).await;
    assert!(refuses(&node, &files, None).await);
    let mut shipper = connect(&node, &files, Some(authority.client("shipper"))).await.unwrap();
    assert_eq!(lines(&run(&mut shipper, "SELECT n FROM logs").await.unwrap()), ["|1|"]);
}

/// Returns whether a client is not talked to. With TLS 1.3 it takes the handshake for done before the server has refused it.
async fn refuses(node: &Node, files: &TlsFiles, identity: Option<Identity>) -> bool {
    match connect(node, files, identity).await {
        Err(_) => true,
        Ok(mut client) => client.handshake("admin", "secret").await.is_err(),
    }
}
