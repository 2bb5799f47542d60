//! TLS of listeners, of HTTP clients and of connections over TCP, as plugins configure it: PEM files, and the older names of the options.

mod stream;

use std::path::{Path, PathBuf};
use std::time::Duration;

use millrace_listen::{ClientCertificates, Tls, TlsFiles};
use reqwest::ClientBuilder;

pub(crate) use stream::{ClientStream, StreamConnector};

use crate::{Options, Secret};

/// Time that a TLS handshake may take where nothing is said.
const HANDSHAKE_MILLIS: i64 = 10_000;
/// Cipher suites and key stores that nothing can be done with.
const KEY_STORES: &str = "key stores are not read; convert it with \
    `openssl pkcs12 -in store.p12 -out store.pem -nodes` and give PEM files";

/// TLS of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    files: TlsFiles,
    /// Time that a handshake may take.
    handshake: Duration,
}

/// Certificate and key as PEM.
pub(crate) type PemIdentity = (Vec<u8>, Vec<u8>);

/// TLS of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    authorities: Vec<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
    unverified: bool,
    versions: Versions,
}

/// Protocol versions that are spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Versions {
    tls12: bool,
    tls13: bool,
}

impl Default for Versions {
    fn default() -> Self {
        Self { tls12: true, tls13: true }
    }
}

/// Takes an option by its name of now, else by one of before.
fn renamed<T>(
    options: &mut Options,
    names: &[&'static str],
    mut take: impl FnMut(&mut Options, &'static str) -> Option<T>,
) -> Option<T> {
    let mut found = None;
    for name in names {
        if let Some(value) = take(options, name) {
            if found.is_some() {
                options.fault_here(format!(
                    "options [{}] are names of the same one: give one",
                    names.join("], [")
                ));
            }
            found.get_or_insert(value);
        }
    }
    found
}

/// Refuses an option that is known and not supported.
fn refuse(options: &mut Options, name: &'static str, why: &str) {
    if let Some((at, _)) = options.take(name) {
        options.fault(at, format!("option [{name}] is not supported: {why}"));
    }
}

fn refuse_key_stores(options: &mut Options) {
    for name in
        ["keystore", "keystore_password", "ssl_keystore_password", "ssl_keystore_path", "ssl_keystore_type"]
    {
        refuse(options, name, KEY_STORES);
    }
    for name in [
        "truststore",
        "truststore_password",
        "ssl_truststore_password",
        "ssl_truststore_path",
        "ssl_truststore_type",
    ] {
        refuse(options, name, KEY_STORES);
    }
    for name in ["cipher_suites", "ssl_cipher_suites"] {
        refuse(options, name, "only suites that are considered safe are offered, and all of them");
    }
    refuse(
        options,
        "ssl_key_passphrase",
        "give a key without passphrase that only the server's user can read, made by \
         `openssl pkey -in key.pem -out plain.pem`",
    );
}

fn versions(options: &mut Options) -> Versions {
    let at = options.at();
    let given = options.texts("ssl_supported_protocols");
    let mut versions = Versions { tls12: false, tls13: false };
    for name in &given {
        match name.as_str() {
            "TLSv1.2" => versions.tls12 = true,
            "TLSv1.3" => versions.tls13 = true,
            other => options.fault(at, format!("TLS version [{other}] is not one of [TLSv1.2, TLSv1.3]")),
        }
    }
    if given.is_empty() { Versions::default() } else { versions }
}

fn paths(options: &mut Options, names: &[&'static str]) -> Vec<PathBuf> {
    let given = |options: &mut Options, name| Some(options.texts(name)).filter(|texts| !texts.is_empty());
    renamed(options, names, given).unwrap_or_default().into_iter().map(PathBuf::from).collect()
}

impl Server {
    /// Takes the options of a listener; `None` where it speaks plain text.
    pub fn take(options: &mut Options) -> Option<Self> {
        let switch = renamed(options, &["ssl_enabled", "ssl"], Options::boolean);
        let enabled = switch.unwrap_or(false);
        let certificate = options.text("ssl_certificate");
        let key = options.text("ssl_key");
        let authorities = paths(options, &["ssl_certificate_authorities"]);
        let choices = &["none", "optional", "required"];
        let authentication = options.one_of("ssl_client_authentication", choices);
        let mode = renamed(options, &["ssl_verify_mode", "verify_mode"], |options, name| {
            options.one_of(name, &["none", "peer", "force_peer"])
        });
        if authentication.is_some() && mode.is_some() {
            options.fault_here(
                "options [ssl_client_authentication] and [ssl_verify_mode] say the same: give one",
            );
        }
        let clients = match authentication.or(mode) {
            Some("optional" | "peer") => ClientCertificates::Optional,
            Some("required" | "force_peer") => ClientCertificates::Required,
            _ => ClientCertificates::None,
        };
        let handshake = options.integer("ssl_handshake_timeout", 1..=600_000).unwrap_or(HANDSHAKE_MILLIS);
        let versions = versions(options);
        for name in ["tls_max_version", "tls_min_version"] {
            refuse(options, name, "give [ssl_supported_protocols]");
        }
        refuse_key_stores(options);
        if !enabled {
            // Whoever says that there is no TLS means it.
            if (certificate.is_some() || key.is_some()) && switch.is_none() {
                options.fault_here("a certificate is given, but not [ssl_enabled => true]");
            }
            return None;
        }
        let (Some(certificate), Some(key)) = (certificate, key) else {
            options.fault_here("[ssl_enabled] needs the options [ssl_certificate] and [ssl_key]");
            return None;
        };
        if clients != ClientCertificates::None && authorities.is_empty() {
            options.fault_here("to verify clients, [ssl_certificate_authorities] is needed");
        }
        let handshake = Duration::from_millis(u64::try_from(handshake).unwrap_or_default());
        let Versions { tls12, tls13 } = versions;
        let files = TlsFiles { clients, authorities, tls12, tls13, ..TlsFiles::new(certificate, key) };
        Some(Self { files, handshake })
    }

    /// Reads the files, as at each start of the listener.
    ///
    /// # Errors
    /// What is wrong, naming the file.
    pub fn load(&self) -> std::io::Result<Tls> {
        Ok(Tls::load(self.files.clone())?.with_handshake_timeout(self.handshake))
    }
}

impl Client {
    /// Takes the options of a client, but for whether it speaks TLS at all: its addresses say that.
    pub fn take(options: &mut Options) -> Self {
        let authorities = paths(options, &["ssl_certificate_authorities", "cacert"]);
        let certificate = renamed(options, &["ssl_certificate", "tls_certificate"], Options::text);
        let key = renamed(options, &["ssl_key", "tls_key"], Options::text);
        let mode = options.one_of("ssl_verification_mode", &["full", "none"]);
        let verify = options.boolean("ssl_certificate_verification");
        if mode.is_some() && verify.is_some() {
            let names =
                "options [ssl_verification_mode] and [ssl_certificate_verification] say the same: give one";
            options.fault_here(names);
        }
        let versions = versions(options);
        refuse_key_stores(options);
        refuse(options, "ca_trusted_fingerprint", "give [ssl_certificate_authorities]");
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((PathBuf::from(certificate), PathBuf::from(key))),
            (None, None) => None,
            _ => {
                options.fault_here("options [ssl_certificate] and [ssl_key] need each other");
                None
            }
        };
        let unverified = mode == Some("none") || verify == Some(false);
        Self { authorities, identity, unverified, versions }
    }

    /// Takes the options of a client that connects over TCP; `None` where it speaks plain text.
    pub(crate) fn take_for_stream(options: &mut Options) -> Option<Self> {
        for (old, new) in [
            ("ssl_enable", "ssl_enabled"),
            ("ssl", "ssl_enabled"),
            ("ssl_cert", "ssl_certificate"),
            ("ssl_cacert", "ssl_certificate_authorities"),
            ("ssl_verify", "ssl_certificate_verification"),
        ] {
            options.rename(old, new);
        }
        let is_enabled = options.boolean("ssl_enabled");
        let client = Self::take(options);
        if is_enabled.is_none() && (client.identity.is_some() || !client.authorities.is_empty()) {
            options.fault_here("certificates are given, but not [ssl_enabled => true]");
        }
        (is_enabled == Some(true)).then_some(client)
    }

    /// Returns whether any certificate of a server is taken.
    pub(crate) fn is_unverified(&self) -> bool {
        self.unverified
    }

    /// Reads the authorities as PEM; `None` for those of the system.
    ///
    /// # Errors
    /// A file that cannot be read, by its name.
    pub(crate) fn authorities_pem(&self) -> Result<Option<Vec<u8>>, String> {
        let mut all = Vec::new();
        for file in &self.authorities {
            all.extend(read(file)?);
            all.push(b'\n');
        }
        Ok(Some(all).filter(|all| !all.is_empty()))
    }

    /// Reads certificate and key as PEM, where there are some.
    ///
    /// # Errors
    /// A file that cannot be read, by its name.
    pub(crate) fn identity_pem(&self) -> Result<Option<PemIdentity>, String> {
        let identity = self.identity.as_ref();
        identity.map(|(certificate, key)| Ok((read(certificate)?, read(key)?))).transpose()
    }

    /// Makes a client with these properties. It sends by way of the proxy, or by none.
    ///
    /// # Errors
    /// A file that cannot be read, by its name; a proxy that is no address.
    pub(crate) fn http_client(
        &self,
        builder: ClientBuilder,
        proxy: Option<&Secret>,
    ) -> Result<reqwest::Client, String> {
        millrace_runtime::install_crypto_provider();
        let builder = match proxy.map(|proxy| reqwest::Proxy::all(proxy.expose())) {
            Some(proxy) => builder
                .proxy(proxy.map_err(|error| format!("[proxy] is not an address: {}", error.without_url()))?),
            None => builder.no_proxy(),
        };
        self.apply(builder)?.build().map_err(|error| format!("cannot make the HTTP client: {error}"))
    }

    /// Gives a client these properties.
    ///
    /// # Errors
    /// A file that cannot be read, by its name.
    fn apply(&self, mut builder: ClientBuilder) -> Result<ClientBuilder, String> {
        if !self.authorities.is_empty() {
            let mut all = Vec::new();
            for file in &self.authorities {
                let pem = read(file)?;
                let some = reqwest::Certificate::from_pem_bundle(&pem)
                    .map_err(|error| format!("certificate authority [{}]: {error}", file.display()))?;
                if some.is_empty() {
                    return Err(format!("certificate authority [{}]: no certificate in it", file.display()));
                }
                all.extend(some);
            }
            builder = builder.tls_certs_only(all);
        }
        if let Some((certificate, key)) = &self.identity {
            let mut pem = read(certificate)?;
            pem.push(b'\n');
            pem.extend(read(key)?);
            let identity = reqwest::Identity::from_pem(&pem)
                .map_err(|error| format!("certificate [{}]: {error}", certificate.display()))?;
            builder = builder.identity(identity);
        }
        if !self.versions.tls12 {
            builder = builder.tls_version_min(reqwest::tls::Version::TLS_1_3);
        }
        if !self.versions.tls13 {
            builder = builder.tls_version_max(reqwest::tls::Version::TLS_1_2);
        }
        Ok(builder.tls_danger_accept_invalid_certs(self.unverified))
    }
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(file).map_err(|error| format!("[{}]: {error}", file.display()))
}
