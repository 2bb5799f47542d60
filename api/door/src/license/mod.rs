//! Licences: what the holder of a signed file may use, and until when.
//!
//! A licence is a JSON object whose members are strings, one of them the `signature`: Ed25519 over the other members as compact JSON in
//! the order of their names, in Base64. [`License::verify`] reads one and checks it with a public key, [`License::sign`] makes one.
//! [`LicenseStore`] keeps the installed licence as a file of the data directory. Without a licence a server is under the community
//! licence, which has everything.

mod store;

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::NaiveDateTime;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde_json::{Map, Value, json};

pub use self::store::LicenseStore;

/// Longest licence in bytes.
pub const MAX_LICENSE_BYTES: usize = 16 << 10;
/// Bytes of a public key, and of the seed that a private key is made of.
pub const LICENSE_KEY_BYTES: usize = 32;
/// Name of the member that has the signature.
const SIGNATURE: &str = "signature";
/// Name of the member that has the end of the licence.
const EXPIRATION: &str = "expiration_date";
/// Members that a licence has to have.
const REQUIRED: [&str; 3] = ["customerName", "issuedOn", EXPIRATION];
/// Members that a licence may have.
const OPTIONAL: [&str; 7] =
    ["nodes", "indices", "validity_in_months", "documents", "siemPlan", "networkProbe", "noOfNetworkProbes"];
/// Forms of dates, in UTC.
const DATES: [&str; 3] = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S"];
const DAY_MS: i64 = 86_400_000;

/// Why a licence is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LicenseError {
    /// The text is no licence.
    #[error("the licence cannot be read: {0}")]
    Malformed(String),
    /// The server has no key to check signatures with.
    #[error("the server checks no licences: set [license.public_key] to the key of their issuer")]
    NoKey,
    /// The key is none of Ed25519.
    #[error("the key is none of Ed25519: 32 bytes in Base64 are wanted")]
    Key,
    /// The signature is of another key or of other members.
    #[error(
        "the signature of the licence is not its issuer's: it was signed with another key, or changed since"
    )]
    Foreign,
    /// The licence has ended.
    #[error("the licence expired at [{0}]")]
    Expired(String),
    /// The file of the licence cannot be read or written.
    #[error("the file of the licence cannot be used: {0}")]
    File(String),
}

/// A licence whose signature was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct License {
    /// Members without the signature.
    members: BTreeMap<String, String>,
    /// Signature in Base64.
    signature: String,
    expires_ms: i64,
}

/// Reads a key in Base64.
///
/// # Errors
/// [`LicenseError::Key`].
pub fn read_license_key(text: &str) -> Result<[u8; LICENSE_KEY_BYTES], LicenseError> {
    let bytes = STANDARD.decode(text.trim()).map_err(|_| LicenseError::Key)?;
    bytes.try_into().map_err(|_| LicenseError::Key)
}

/// Returns the public key of a private one, in Base64.
///
/// # Errors
/// [`LicenseError::Key`].
pub fn public_license_key(seed: &[u8; LICENSE_KEY_BYTES]) -> Result<String, LicenseError> {
    let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| LicenseError::Key)?;
    Ok(STANDARD.encode(pair.public_key().as_ref()))
}

/// Reads a date in milliseconds since the epoch.
fn date_ms(member: &str, text: &str) -> Result<i64, LicenseError> {
    let parsed = DATES.iter().find_map(|format| NaiveDateTime::parse_from_str(text, format).ok());
    let parsed = parsed.ok_or_else(|| {
        let shown: String = text.chars().take(40).collect();
        LicenseError::Malformed(format!("[{member}] is no date such as 2026-01-31T12:00 but [{shown}]"))
    })?;
    Ok(parsed.and_utc().timestamp_millis())
}

impl License {
    /// Reads the members of a licence and checks all but the signature and the time.
    fn parse(text: &[u8]) -> Result<Self, LicenseError> {
        let malformed = |reason: String| LicenseError::Malformed(reason);
        if text.len() > MAX_LICENSE_BYTES {
            return Err(malformed(format!("it has more than {MAX_LICENSE_BYTES} bytes")));
        }
        let read: Map<String, Value> = serde_json::from_slice(text)
            .map_err(|error| malformed(format!("it is no JSON object, {error}")))?;
        let mut members = BTreeMap::new();
        for (name, value) in read {
            let shown: String = name.chars().take(40).collect();
            let Value::String(value) = value else {
                return Err(malformed(format!("[{shown}] is no string")));
            };
            if name != SIGNATURE && !REQUIRED.contains(&name.as_str()) && !OPTIONAL.contains(&name.as_str()) {
                return Err(malformed(format!("[{shown}] is no member of a licence")));
            }
            members.insert(name, value);
        }
        if let Some(missing) = REQUIRED.iter().find(|name| !members.contains_key(**name)) {
            return Err(malformed(format!("[{missing}] is missing")));
        }
        date_ms("issuedOn", &members["issuedOn"])?;
        let expires_ms = date_ms(EXPIRATION, &members[EXPIRATION])?;
        let signature = members.remove(SIGNATURE).unwrap_or_default();
        Ok(Self { members, signature, expires_ms })
    }

    /// Returns the bytes that a signature is over.
    fn signed_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(&self.members).expect("strings are JSON")
    }

    /// Reads a licence without a look at its signature or its end.
    ///
    /// # Errors
    /// [`LicenseError::Malformed`].
    pub fn read_unverified(text: &[u8]) -> Result<Self, LicenseError> {
        Self::parse(text)
    }

    /// Reads a licence and checks its signature; its end is not looked at.
    ///
    /// # Errors
    /// [`LicenseError::Malformed`], [`LicenseError::NoKey`], [`LicenseError::Foreign`].
    pub fn verify(text: &[u8], key: Option<&[u8; LICENSE_KEY_BYTES]>) -> Result<Self, LicenseError> {
        let license = Self::parse(text)?;
        let key = key.ok_or(LicenseError::NoKey)?;
        if license.signature.is_empty() {
            return Err(LicenseError::Malformed("[signature] is missing".to_owned()));
        }
        let signature = STANDARD.decode(&license.signature);
        let signature =
            signature.map_err(|_| LicenseError::Malformed("[signature] is no Base64".to_owned()))?;
        let key = UnparsedPublicKey::new(&ED25519, key);
        key.verify(&license.signed_bytes(), &signature).map_err(|_| LicenseError::Foreign)?;
        Ok(license)
    }

    /// Refuses a licence that has ended by `now_ms`.
    ///
    /// # Errors
    /// [`LicenseError::Expired`].
    pub fn check_current(&self, now_ms: i64) -> Result<(), LicenseError> {
        if now_ms < self.expires_ms {
            Ok(())
        } else {
            Err(LicenseError::Expired(self.members[EXPIRATION].clone()))
        }
    }

    /// Signs the members of a licence, in place of a signature that they have.
    ///
    /// # Errors
    /// [`LicenseError::Malformed`], [`LicenseError::Key`].
    pub fn sign(text: &[u8], seed: &[u8; LICENSE_KEY_BYTES]) -> Result<Self, LicenseError> {
        let mut license = Self::parse(text)?;
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| LicenseError::Key)?;
        license.signature = STANDARD.encode(pair.sign(&license.signed_bytes()));
        Ok(license)
    }

    /// Writes the licence with its signature.
    pub fn to_text(&self) -> String {
        let mut members: Map<String, Value> =
            self.members.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
        members.insert(SIGNATURE.into(), self.signature.as_str().into());
        serde_json::to_string_pretty(&members).expect("strings are JSON")
    }

    /// Counts the whole days that are left at `now_ms`; none once it has ended.
    pub fn days_left(&self, now_ms: i64) -> i64 {
        self.expires_ms.saturating_sub(now_ms).max(0) / DAY_MS
    }
}

/// Describes the licence of a server that has the version `version`.
pub fn license_status(license: Option<&License>, version: &str, now_ms: i64) -> Value {
    let mut status = json!({
        "status": 200, "nodes": "", "indices": "[*]", "customerName": "community", "issuedOn": "",
        "validity_in_months": "", "documents": "", "version": version, "expiration_date": "", "days_left": "",
        "siemPlan": "true", "networkProbe": "true", "noOfNetworkProbes": "",
    });
    if let Some(license) = license {
        for (name, value) in &license.members {
            status[name.as_str()] = value.as_str().into();
        }
        status["days_left"] = license.days_left(now_ms).to_string().into();
    }
    status
}

#[cfg(test)]
mod tests;
