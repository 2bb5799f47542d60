//! TLS of listeners: from PEM files, which may be read again while connections are served.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio_rustls::TlsAcceptor;

/// Time that a handshake may take where nothing is said.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether clients are asked for certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificates {
    /// No.
    #[default]
    None,
    /// Those that have one must have a valid one.
    Optional,
    /// All must have one.
    Required,
}

/// What TLS is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM file of the certificate chain, leaf first.
    pub certificate: PathBuf,
    /// PEM file of the private key.
    pub key: PathBuf,
    /// PEM files of those who certify clients.
    pub authorities: Vec<PathBuf>,
    /// Whether clients are asked for certificates.
    pub clients: ClientCertificates,
    /// Whether TLS 1.2 is spoken.
    pub tls12: bool,
    /// Whether TLS 1.3 is spoken.
    pub tls13: bool,
}

impl TlsFiles {
    /// Makes it of certificate and key, for clients without certificates and both versions of TLS.
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        let (certificate, key) = (certificate.into(), key.into());
        let clients = ClientCertificates::None;
        Self { certificate, key, authorities: Vec::new(), clients, tls12: true, tls13: true }
    }
}

/// The TLS of listeners; its clones are the same.
#[derive(Clone, Debug)]
pub struct Tls {
    loaded: Arc<Loaded>,
    /// Time that a handshake may take.
    pub(crate) handshake_timeout: Duration,
}

#[derive(Debug)]
struct Loaded {
    files: TlsFiles,
    config: ArcSwap<ServerConfig>,
}

/// All that is in use in this process: as many as there are listeners with TLS.
static IN_USE: Mutex<Vec<Weak<Loaded>>> = Mutex::new(Vec::new());

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// What is wrong, naming the file.
    pub fn load(files: TlsFiles) -> io::Result<Self> {
        let config = ArcSwap::from_pointee(read(&files)?);
        let loaded = Arc::new(Loaded { files, config });
        let mut in_use = IN_USE.lock();
        in_use.retain(|other| other.strong_count() > 0);
        in_use.push(Arc::downgrade(&loaded));
        drop(in_use);
        Ok(Self { loaded, handshake_timeout: HANDSHAKE_TIMEOUT })
    }

    /// Sets the time that a handshake may take.
    pub fn with_handshake_timeout(self, handshake_timeout: Duration) -> Self {
        Self { handshake_timeout, ..self }
    }

    /// Reads the files again, for the connections to come. Those that are open keep what they have.
    ///
    /// # Errors
    /// What is wrong, naming the file; what was read before stays in use.
    pub fn reload(&self) -> io::Result<()> {
        self.loaded.reload()
    }

    /// Reads the files of all TLS in this process again. What is wrong is logged, and what was read before stays
    /// in use there.
    pub fn reload_all() {
        let in_use: Vec<_> = IN_USE.lock().iter().filter_map(Weak::upgrade).collect();
        for loaded in in_use {
            let certificate = loaded.files.certificate.display();
            match loaded.reload() {
                Ok(()) => tracing::info!(%certificate, "certificate read again, for new connections"),
                Err(error) => tracing::error!(
                    %certificate, %error, "certificate cannot be read again, the one before stays in use"
                ),
            }
        }
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.loaded.config.load_full())
    }
}

impl Loaded {
    fn reload(&self) -> io::Result<()> {
        self.config.store(Arc::new(read(&self.files)?));
        Ok(())
    }
}

fn bad(what: &str, file: &Path, error: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("TLS {what} [{}]: {error}", file.display()))
}

fn certificates(what: &str, file: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let chain = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| bad(what, file, &error))?;
    if chain.is_empty() {
        return Err(bad(what, file, &"no certificate in the file"));
    }
    Ok(chain)
}

fn read(files: &TlsFiles) -> io::Result<ServerConfig> {
    let chain = certificates("certificate", &files.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| bad("key", &files.key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions: Vec<&'static SupportedProtocolVersion> =
        [(files.tls13, &rustls::version::TLS13), (files.tls12, &rustls::version::TLS12)]
            .into_iter()
            .filter_map(|(wanted, version)| wanted.then_some(version))
            .collect();
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions)
        .map_err(|error| bad("versions of", &files.certificate, &error))?;
    let builder = if files.clients == ClientCertificates::None {
        builder.with_no_client_auth()
    } else {
        let mut roots = RootCertStore::empty();
        for file in &files.authorities {
            for certificate in certificates("certificate authority", file)? {
                roots.add(certificate).map_err(|error| bad("certificate authority", file, &error))?;
            }
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = match files.clients {
            ClientCertificates::Optional => verifier.allow_unauthenticated(),
            _ => verifier,
        };
        let verifier = verifier.build().map_err(|error| {
            let file = files.authorities.first().unwrap_or(&files.certificate);
            bad("certificate authorities", file, &error)
        })?;
        builder.with_client_cert_verifier(verifier)
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| bad("key", &files.key, &error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
