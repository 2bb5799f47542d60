//! Tokens of agents: 256 random bits, of which the store has a hash only.

use std::fmt;

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use subtle::ConstantTimeEq as _;

/// A token in plain text, which is answered once.
pub(crate) struct AgentToken(String);

impl AgentToken {
    /// Makes a random token: 64 hexadecimal digits.
    pub(crate) fn generate() -> Self {
        Self(to_hex(&rand::random::<[u8; 32]>()))
    }

    /// Returns the text.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// Returns the hash that the store keeps.
    pub(crate) fn hash(&self) -> TokenHash {
        TokenHash::new(&self.0)
    }
}

impl fmt::Debug for AgentToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AgentToken")
    }
}

/// SHA-256 of a token or of the secret of enrolment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct TokenHash([u8; 32]);

impl TokenHash {
    /// Hashes a text.
    pub(crate) fn new(text: &str) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
        Self(bytes)
    }

    /// Checks a text in a time that tells nothing about it.
    pub(crate) fn matches(&self, text: &str) -> bool {
        self.0.ct_eq(&Self::new(text).0).into()
    }

    fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        if text.len() != 2 * bytes.len() || !text.is_ascii() {
            return None;
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash")
    }
}

impl Serialize for TokenHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&to_hex(&self.0))
    }
}

impl<'de> Deserialize<'de> for TokenHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::from_hex(&text)
            .ok_or_else(|| serde::de::Error::custom("token_hash is no SHA-256 in hexadecimal digits"))
    }
}

fn to_hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
