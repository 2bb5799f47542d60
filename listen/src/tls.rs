//! TLS of listeners: from PEM files, which may be read again while connections are served.
//!
//! [`Tls::reload_all`] does so at a signal, [`Tls::reload_changed`] by itself where files have changed. Files are
//! taken together or not at all: a certificate whose key is yet to come, or a broken file, changes nothing.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio_rustls::TlsAcceptor;

use crate::certificate::ClientCertificate;

/// Time that a handshake may take where nothing is said.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time between looks for changed files.
const LOOK: Duration = Duration::from_secs(10);

/// Policy for client certificates.
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

/// Files of the TLS configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM file of the certificate chain, leaf first.
    pub certificate: PathBuf,
    /// PEM file of the private key.
    pub key: PathBuf,
    /// PEM files of those who certify clients.
    pub authorities: Vec<PathBuf>,
    /// Policy for client certificates.
    pub clients: ClientCertificates,
    /// `true` if TLS 1.2 is spoken.
    pub tls12: bool,
    /// `true` if TLS 1.3 is spoken.
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
    loaded: Arc<LoadedFiles>,
    /// Time that a handshake may take.
    pub(crate) handshake_timeout: Duration,
}

#[derive(Debug)]
pub(crate) struct LoadedFiles {
    files: TlsFiles,
    config: ArcSwap<ServerConfig>,
    /// Last moment at which the certificate is valid, in milliseconds since the epoch; the greatest number where it cannot be read.
    not_after_ms: AtomicI64,
    /// Of the files when they were read last. Whoever reads them holds it, so that what is older does not come after
    /// what is newer.
    stamps: Mutex<Vec<Stamp>>,
}

/// Stamp by which a change of a file is detected: time and size, of one that is there.
type Stamp = Option<(SystemTime, u64)>;
/// All TLS that is in use, as many as there are listeners with it.
pub(crate) type InUse = Mutex<Vec<Weak<LoadedFiles>>>;

/// That of this process.
static IN_USE: InUse = Mutex::new(Vec::new());

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// What is wrong, naming the file.
    pub fn load(files: TlsFiles) -> io::Result<Self> {
        let stamps = Mutex::new(files.stamps());
        let (config, not_after_ms) = read(&files)?;
        let (config, not_after_ms) = (ArcSwap::from_pointee(config), AtomicI64::new(not_after_ms));
        let loaded = Arc::new(LoadedFiles { files, config, not_after_ms, stamps });
        let mut in_use = IN_USE.lock();
        in_use.retain(|other| other.strong_count() > 0);
        in_use.push(Arc::downgrade(&loaded));
        drop(in_use);
        Ok(Self { loaded, handshake_timeout: HANDSHAKE_TIMEOUT })
    }

    /// Returns the last moment at which the certificate in use is valid, in milliseconds since the epoch; `None` where the certificate
    /// does not tell it in a form that is read.
    pub fn not_after_ms(&self) -> Option<i64> {
        let not_after_ms = self.loaded.not_after_ms.load(Ordering::Relaxed);
        (not_after_ms != i64::MAX).then_some(not_after_ms)
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
        for loaded in in_use(&IN_USE) {
            loaded.log(loaded.reload());
        }
    }

    /// Looks each ten seconds which files of all TLS in this process have changed, and reads those again as
    /// [`Tls::reload_all`] does. Never ends; dropping it ends the looks.
    pub async fn reload_changed() {
        look(&IN_USE).await;
    }

    #[cfg(test)]
    pub(crate) fn in_use_of(&self, all: &InUse) {
        all.lock().push(Arc::downgrade(&self.loaded));
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.loaded.config.load_full())
    }
}

fn in_use(all: &InUse) -> Vec<Arc<LoadedFiles>> {
    all.lock().iter().filter_map(Weak::upgrade).collect()
}

pub(crate) async fn look(all: &'static InUse) {
    let mut looks = tokio::time::interval_at(tokio::time::Instant::now() + LOOK, LOOK);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let looked = tokio::task::spawn_blocking(|| {
            for loaded in in_use(all) {
                if let Some(done) = loaded.reload_changed() {
                    loaded.log(done);
                }
            }
        });
        // That it panicked is known already.
        let _ = looked.await;
    }
}

impl TlsFiles {
    fn stamps(&self) -> Vec<Stamp> {
        let stamp = |file: &PathBuf| {
            let metadata = std::fs::metadata(file).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        };
        [&self.certificate, &self.key].into_iter().chain(&self.authorities).map(stamp).collect()
    }
}

impl LoadedFiles {
    fn reload(&self) -> io::Result<()> {
        self.read_again(&mut self.stamps.lock(), self.files.stamps())
    }

    /// Reads the files again if they have changed since they were read last, well or not.
    fn reload_changed(&self) -> Option<io::Result<()>> {
        let mut before = self.stamps.lock();
        let now = self.files.stamps();
        (*before != now).then(|| self.read_again(&mut before, now))
    }

    /// Reads the files, whose stamps were taken before: the next look sees later changes.
    fn read_again(&self, stamps: &mut Vec<Stamp>, now: Vec<Stamp>) -> io::Result<()> {
        *stamps = now;
        let (config, not_after_ms) = read(&self.files)?;
        self.config.store(Arc::new(config));
        self.not_after_ms.store(not_after_ms, Ordering::Relaxed);
        Ok(())
    }

    fn log(&self, reloaded: io::Result<()>) {
        let certificate = self.files.certificate.display();
        match reloaded {
            Ok(()) => tracing::info!(%certificate, "certificate read again, for new connections"),
            Err(error) => tracing::error!(
                %certificate, %error, "certificate cannot be read again, the one before stays in use"
            ),
        }
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

/// Reads the first private key of a file. One that is encrypted is refused: nobody is there to say its passphrase.
fn private_key(file: &Path) -> io::Result<PrivateKeyDer<'static>> {
    let pem = std::fs::read(file).map_err(|error| bad("key", file, &error))?;
    let has = |mark: &[u8]| pem.windows(mark.len()).any(|window| window == mark);
    if has(b"BEGIN ENCRYPTED PRIVATE KEY") || has(b"Proc-Type: 4,ENCRYPTED") {
        let name = file.display();
        let reason = format!(
            "the key is encrypted; decrypt it with [openssl pkey -in {name} -out {name}.decrypted], and have the server alone read that file"
        );
        return Err(bad("key", file, &reason));
    }
    PrivateKeyDer::from_pem_slice(&pem).map_err(|error| match error {
        pem::Error::NoItemsFound => bad("key", file, &"no private key in the file, which has to be PEM"),
        error => bad("key", file, &error),
    })
}

/// Reads the files; returns the end of the certificate beside them.
fn read(files: &TlsFiles) -> io::Result<(ServerConfig, i64)> {
    let chain = certificates("certificate", &files.certificate)?;
    let leaf = chain.first().and_then(|leaf| ClientCertificate::read(leaf));
    let not_after_ms = leaf.map_or(i64::MAX, |leaf| leaf.not_after_ms);
    let key = private_key(&files.key)?;
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
    if files.clients != ClientCertificates::None {
        // A session that is resumed is not verified again, and certificates expire.
        config.session_storage = Arc::new(NoServerSessionStorage {});
    }
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((config, not_after_ms))
}
