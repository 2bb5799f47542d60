//! Key and trust stores in PEM, PKCS #12 and JKS, as the PEM that librdkafka takes from memory.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use openssl::pkcs12::{ParsedPkcs12_2, Pkcs12};

use super::jks::{self, KeyStore};

/// Longest store.
const MAX_STORE: u64 = 16 << 20;

/// Identity of a client.
pub(super) struct Identity {
    /// Its certificate and those that lead to its issuer.
    pub(super) certificates: String,
    pub(super) key: String,
    /// Password of the key, where that is encrypted still.
    pub(super) key_password: Option<String>,
}

enum Contents {
    Pem(String),
    Pkcs12(Vec<u8>),
    Jks(Vec<u8>),
}

fn load(path: &Path) -> Result<Contents, String> {
    let bytes = super::read(path, MAX_STORE)?;
    let name = path.display();
    match bytes.first_chunk::<4>() {
        Some(&jks::MAGIC) => Ok(Contents::Jks(bytes)),
        Some(&jks::JCEKS_MAGIC) => Err(format!(
            "[{name}] is a JCEKS store, which is not supported: convert it with keytool -importkeystore -deststoretype PKCS12"
        )),
        Some([0x30, ..]) => Ok(Contents::Pkcs12(bytes)),
        _ => match String::from_utf8(bytes) {
            Ok(text) if text.contains("-----BEGIN ") => Ok(Contents::Pem(text)),
            _ => Err(format!("[{name}] is no store of keys: PEM, PKCS #12 and JKS are")),
        },
    }
}

fn pkcs12(bytes: &[u8], password: Option<&str>) -> Result<ParsedPkcs12_2, String> {
    let parsed = Pkcs12::from_der(bytes).map_err(|_| "it is damaged".to_owned())?;
    parsed.parse2(password.unwrap_or("")).map_err(|errors| {
        let unsupported = errors.errors().iter().any(|error| error.reason().is_some_and(|why| why.contains("unsupported")));
        if unsupported {
            "it is encrypted in a way that is obsolete (such as RC2): convert it with keytool -importkeystore of a current Java".to_owned()
        } else {
            "its password is wrong, or it is damaged".to_owned()
        }
    })
}

/// Certificates of a trust store.
///
/// # Errors
/// What is wrong with it, naming it.
pub(super) fn authorities(path: &Path, password: Option<&str>) -> Result<String, String> {
    let wrong = |why: String| format!("trust store [{}]: {why}", path.display());
    let certificates = match load(path)? {
        Contents::Pem(text) => text,
        Contents::Jks(bytes) => {
            let store = KeyStore::parse(&bytes, password).map_err(wrong)?;
            store.trusted.iter().map(|der| pem("CERTIFICATE", der)).collect()
        }
        Contents::Pkcs12(bytes) => {
            let store = pkcs12(&bytes, password).map_err(wrong)?;
            let certificates = store.ca.iter().flatten().map(|certificate| certificate.to_der());
            let own = store.cert.iter().map(|certificate| certificate.to_der());
            let all = certificates.chain(own).collect::<Result<Vec<_>, _>>();
            let all = all.map_err(|error| wrong(error.to_string()))?;
            all.iter().map(|der| pem("CERTIFICATE", der)).collect()
        }
    };
    if !certificates.contains("-----BEGIN CERTIFICATE")
        && !certificates.contains("-----BEGIN TRUSTED CERTIFICATE")
    {
        return Err(wrong("it has no certificates to trust".to_owned()));
    }
    Ok(certificates)
}

/// The first key of a store with its certificates.
///
/// # Errors
/// What is wrong with it, naming it.
pub(super) fn identity(
    path: &Path,
    password: Option<&str>,
    key_password: Option<&str>,
) -> Result<Identity, String> {
    let wrong = |why: String| format!("key store [{}]: {why}", path.display());
    let no_key = || wrong("it has no private key".to_owned());
    match load(path)? {
        Contents::Pem(text) => {
            if !text.contains("PRIVATE KEY-----") {
                return Err(no_key());
            }
            let key_password = key_password.or(password).map(str::to_owned);
            Ok(Identity { certificates: text.clone(), key: text, key_password })
        }
        Contents::Jks(bytes) => {
            let store = KeyStore::parse(&bytes, password).map_err(wrong)?;
            let (key, chain) = store.keys.first().ok_or_else(no_key)?;
            let key = jks::decrypt(key, key_password.or(password).unwrap_or("")).map_err(wrong)?;
            Ok(Identity {
                certificates: chain.iter().map(|der| pem("CERTIFICATE", der)).collect(),
                key: pem("PRIVATE KEY", &key),
                key_password: None,
            })
        }
        Contents::Pkcs12(bytes) => {
            let store = pkcs12(&bytes, password).map_err(wrong)?;
            let (Some(key), Some(own)) = (store.pkey, store.cert) else { return Err(no_key()) };
            let failed = |error: openssl::error::ErrorStack| wrong(error.to_string());
            let mut certificates = pem("CERTIFICATE", &own.to_der().map_err(failed)?);
            for certificate in store.ca.iter().flatten() {
                certificates.push_str(&pem("CERTIFICATE", &certificate.to_der().map_err(failed)?));
            }
            let key = pem("PRIVATE KEY", &key.private_key_to_pkcs8().map_err(failed)?);
            Ok(Identity { certificates, key, key_password: None })
        }
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    let encoded = STANDARD.encode(der);
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in encoded.as_bytes().chunks(64) {
        text.push_str(&String::from_utf8_lossy(line));
        text.push('\n');
    }
    text.push_str(&format!("-----END {label}-----\n"));
    text
}
