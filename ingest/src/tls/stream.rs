//! TLS of client connections over TCP: what inputs and outputs that connect to a server share.

use std::fmt;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme, version};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{Client, read};

/// Time that a connection, and then a handshake, may take.
const CONNECT: Duration = Duration::from_secs(30);

/// Opens connections to a server, with TLS where the plugin says so.
#[derive(Clone)]
pub(crate) struct StreamConnector {
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

/// A connection to a server.
#[derive(Debug)]
pub(crate) enum ClientStream {
    /// Without TLS.
    Plain(TcpStream),
    /// With TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

impl fmt::Debug for StreamConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, tls } = self;
        f.debug_struct("StreamConnector")
            .field("host", host)
            .field("port", port)
            .field("has_tls", &tls.is_some())
            .finish()
    }
}

impl StreamConnector {
    /// Makes the connector of a server. Files of TLS are read now.
    ///
    /// # Errors
    /// A file that cannot be used, by its name; a host that no certificate can be for.
    pub(crate) fn new(host: &str, port: u16, tls: Option<&Client>) -> Result<Self, String> {
        let tls = match tls {
            None => None,
            Some(client) => {
                let name = ServerName::try_from(host.to_owned())
                    .map_err(|_| format!("[{host}] is no name that a certificate can be for"))?;
                Some((TlsConnector::from(Arc::new(client.config()?)), name))
            }
        };
        Ok(Self { host: host.to_owned(), port, tls })
    }

    /// Connects.
    ///
    /// # Errors
    /// The reason why there is no connection.
    pub(crate) async fn connect(&self) -> io::Result<ClientStream> {
        let stream = in_time(TcpStream::connect((self.host.as_str(), self.port))).await?;
        match &self.tls {
            None => Ok(ClientStream::Plain(stream)),
            Some((connector, name)) => {
                let stream = in_time(connector.connect(name.clone(), stream)).await?;
                Ok(ClientStream::Tls(Box::new(stream)))
            }
        }
    }
}

async fn in_time<T>(connecting: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {CONNECT:?}"));
    tokio::time::timeout(CONNECT, connecting).await.map_err(late)?
}

impl ClientStream {
    /// Returns the TCP connection beneath.
    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

impl Client {
    /// Makes the TLS configuration of connections.
    fn config(&self) -> Result<ClientConfig, String> {
        let provider = Arc::new(ring::default_provider());
        let mut versions = Vec::new();
        versions.extend(self.versions.tls13.then_some(&version::TLS13));
        versions.extend(self.versions.tls12.then_some(&version::TLS12));
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&versions)
            .map_err(|error| format!("TLS: {error}"))?;
        let builder = match self.unverified {
            true => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(UnverifiedServer { provider }))
            }
            false => builder.with_root_certificates(self.roots()?),
        };
        match &self.identity {
            None => Ok(builder.with_no_client_auth()),
            Some((certificate, key)) => {
                let chain = certificates(certificate)?;
                let private = PrivateKeyDer::from_pem_slice(&read(key)?)
                    .map_err(|error| format!("[{}] has no private key: {error}", key.display()))?;
                builder
                    .with_client_auth_cert(chain, private)
                    .map_err(|error| format!("certificate [{}] and its key: {error}", certificate.display()))
            }
        }
    }

    /// Returns who certifies servers: the authorities that were given, else those of the system.
    fn roots(&self) -> Result<RootCertStore, String> {
        let mut roots = RootCertStore::empty();
        for file in &self.authorities {
            for certificate in certificates(file)? {
                let wrong =
                    |error: rustls::Error| format!("certificate authority [{}]: {error}", file.display());
                roots.add(certificate).map_err(wrong)?;
            }
        }
        if self.authorities.is_empty() {
            let native = rustls_native_certs::load_native_certs();
            for error in &native.errors {
                tracing::warn!(%error, "a certificate authority of the system cannot be read");
            }
            roots.add_parsable_certificates(native.certs);
        }
        match roots.is_empty() {
            true => Err("no certificate authority is known: give [ssl_certificate_authorities]".to_owned()),
            false => Ok(roots),
        }
    }
}

/// Reads the certificates of a PEM file; at least one.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = read(file)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let all = all.map_err(|error| format!("[{}]: {error}", file.display()))?;
    match all.is_empty() {
        true => Err(format!("[{}] has no certificate", file.display())),
        false => Ok(all),
    }
}

/// Takes any certificate, as `ssl_verification_mode => none` says. Signatures of the handshake are checked.
#[derive(Debug)]
struct UnverifiedServer {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for UnverifiedServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rustls::ServerConfig;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;
    use crate::input::testing::{OptionValue, Pipeline, options};

    /// Answers connections over TLS with a line; returns the port, and a file with the certificate.
    async fn server(directory: &Path) -> (u16, String) {
        let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let file = directory.join("authority.pem");
        std::fs::write(&file, certified.cert.pem()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(certified.signing_key.serialize_pem().as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certified.cert.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let _ = stream.write_all(b"hello\n").await;
                let _ = stream.shutdown().await;
            }
        });
        (port, file.display().to_string())
    }

    fn client(given: &[(&str, OptionValue)]) -> Option<Client> {
        let mut options = options("test", given);
        let client = Client::take_for_stream(&mut options);
        options.finish().unwrap();
        client
    }

    async fn greeting(host: &str, port: u16, tls: &Client) -> io::Result<String> {
        let mut stream = StreamConnector::new(host, port, Some(tls)).unwrap().connect().await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(text)
    }

    #[tokio::test]
    async fn servers_are_checked_unless_the_options_say_otherwise() {
        let directory = tempfile::tempdir().unwrap();
        let (port, authority) = server(directory.path()).await;
        let checked = client(&[("ssl_enable", "true".into()), ("ssl_cacert", authority.into())]).unwrap();
        assert_eq!(greeting("localhost", port, &checked).await.unwrap(), "hello\n");
        let other_name = greeting("127.0.0.1", port, &checked).await.unwrap_err();
        assert!(other_name.to_string().contains("certificate"), "{other_name}");
        let unchecked =
            client(&[("ssl_enabled", "true".into()), ("ssl_verification_mode", "none".into())]).unwrap();
        assert_eq!(greeting("127.0.0.1", port, &unchecked).await.unwrap(), "hello\n");
        assert!(client(&[("ssl_verify", "false".into())]).is_none(), "plain text");
    }

    #[tokio::test]
    async fn the_input_tcp_reads_from_a_server_over_tls() {
        let directory = tempfile::tempdir().unwrap();
        let (port, authority) = server(directory.path()).await;
        let given = [
            ("mode", "client".into()),
            ("host", "localhost".into()),
            ("port", port.to_string().into()),
            ("ssl_enabled", "true".into()),
            ("ssl_certificate_authorities", authority.into()),
        ];
        let input = crate::input::build(options("tcp", &given)).unwrap();
        let mut pipeline = Pipeline::new(1);
        let context = pipeline.context();
        let running = tokio::spawn(async move { input.run(context).await });
        pipeline.take().await.unwrap().unwrap();
        assert_eq!(pipeline.messages(), ["hello"]);
        pipeline.stop.send_replace(true);
        running.await.unwrap().unwrap();
    }

    #[test]
    fn files_are_read_when_the_plugin_is_made() {
        let given = [("ssl_enabled", "true".into()), ("ssl_certificate_authorities", "/nowhere.pem".into())];
        let missing = StreamConnector::new("localhost", 1, client(&given).as_ref()).unwrap_err();
        assert!(missing.contains("[/nowhere.pem]"), "{missing}");
    }
}
