//! Java's own format of key stores, JKS.
//!
//! A store is: magic `feedfeed`, version, number of entries, entries, and the SHA-1 of password, the words
//! `Mighty Aphrodite` and all of that. A certificate is an alias, a date, a type and DER; a key, before its
//! chain of certificates, a PKCS #8 key that is encrypted by XOR with a chain of SHA-1s from a salt and
//! the password (`sun.security.provider.JavaKeyStore` and `KeyProtector`).

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use subtle::ConstantTimeEq;

/// First bytes of a store.
pub(super) const MAGIC: [u8; 4] = [0xfe, 0xed, 0xfe, 0xed];
/// First bytes of another of Java's formats, which is not read.
pub(super) const JCEKS_MAGIC: [u8; 4] = [0xce, 0xce, 0xce, 0xce];
const DIGEST: usize = 20;
/// Greatest number of entries, and of certificates of one key.
const MAX_ENTRIES: u32 = 10_000;
/// Object identifier of the encryption of keys, 1.3.6.1.4.1.42.2.17.1.1.
const PROTECTOR: [u8; 10] = [0x2b, 0x06, 0x01, 0x04, 0x01, 0x2a, 0x02, 0x11, 0x01, 0x01];

/// Content of a store, as DER.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct KeyStore {
    /// Certificates that are trusted.
    pub(super) trusted: Vec<Vec<u8>>,
    /// Keys, still encrypted, with their certificates.
    pub(super) keys: Vec<(Vec<u8>, Vec<Vec<u8>>)>,
}

impl KeyStore {
    /// Reads a store, and checks it where there is a password.
    ///
    /// # Errors
    /// The reason why it is refused.
    pub(super) fn parse(bytes: &[u8], password: Option<&str>) -> Result<Self, String> {
        let short = || "the store ends early".to_owned();
        let body = bytes.len().checked_sub(DIGEST).and_then(|end| bytes.get(..end)).ok_or_else(short)?;
        let digest = bytes.get(body.len()..).ok_or_else(short)?;
        if let Some(password) = password {
            let found = sha1(&[&utf16(password), b"Mighty Aphrodite", body]);
            if !bool::from(found.as_slice().ct_eq(digest)) {
                return Err("the password of the store is wrong, or the store is damaged".to_owned());
            }
        }
        let mut input = Input(body);
        let (magic, version) = (input.take(4).ok_or_else(short)?, input.number().ok_or_else(short)?);
        if magic != MAGIC || version != 2 {
            return Err(format!("the store is of version {version}, only 2 is known"));
        }
        let count = input.number().ok_or_else(short)?;
        if count > MAX_ENTRIES {
            return Err(format!("the store has {count} entries, more than {MAX_ENTRIES}"));
        }
        let mut store = Self::default();
        for _ in 0..count {
            store.entry(&mut input).ok_or_else(short)??;
        }
        Ok(store)
    }

    fn entry(&mut self, input: &mut Input<'_>) -> Option<Result<(), String>> {
        let tag = input.number()?;
        input.text()?;
        input.take(8)?;
        match tag {
            1 => {
                let length = input.number()?;
                let key = input.take(length as usize)?.to_vec();
                let count = input.number()?;
                if count > MAX_ENTRIES {
                    return Some(Err(format!("a key has {count} certificates, more than {MAX_ENTRIES}")));
                }
                let chain = (0..count).map(|_| input.certificate()).collect::<Option<_>>()?;
                self.keys.push((key, chain));
                Some(Ok(()))
            }
            2 => {
                self.trusted.push(input.certificate()?);
                Some(Ok(()))
            }
            other => Some(Err(format!("the store has an entry of an unknown kind {other}"))),
        }
    }
}

/// Decrypts a key: PKCS #8.
///
/// # Errors
/// The password is wrong, or the key is encrypted in another way.
pub(super) fn decrypt(key: &[u8], password: &str) -> Result<Vec<u8>, String> {
    let other = || "the key is encrypted in a way that JKS stores do not have".to_owned();
    let mut outer = Input(Input(key).der(0x30).ok_or_else(other)?);
    let algorithm = outer.der(0x30).ok_or_else(other)?;
    if Input(algorithm).der(0x06) != Some(&PROTECTOR[..]) {
        return Err(other());
    }
    let mut protected = Input(outer.der(0x04).ok_or_else(other)?);
    let salt = protected.take(DIGEST).ok_or_else(other)?;
    let length = protected.0.len().checked_sub(DIGEST).ok_or_else(other)?;
    let encrypted = protected.take(length).ok_or_else(other)?;
    let password = utf16(password);
    let mut plain = Vec::with_capacity(length);
    let mut block = salt.to_vec();
    for chunk in encrypted.chunks(DIGEST) {
        block = sha1(&[&password, &block]);
        plain.extend(chunk.iter().zip(&block).map(|(byte, key)| byte ^ key));
    }
    if !bool::from(sha1(&[&password, &plain]).as_slice().ct_eq(protected.0)) {
        return Err("the password of the key is wrong".to_owned());
    }
    Ok(plain)
}

fn utf16(password: &str) -> Vec<u8> {
    password.encode_utf16().flat_map(u16::to_be_bytes).collect()
}

fn sha1(parts: &[&[u8]]) -> Vec<u8> {
    let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    for part in parts {
        context.update(part);
    }
    context.finish().as_ref().to_vec()
}

/// Rest of the input.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = u16::from_be_bytes(self.take(2)?.try_into().ok()?);
        self.take(usize::from(length))
    }

    fn certificate(&mut self) -> Option<Vec<u8>> {
        self.text()?;
        let length = self.number()?;
        Some(self.take(length as usize)?.to_vec())
    }

    /// Contents of a DER element with a tag.
    fn der(&mut self, tag: u8) -> Option<&'a [u8]> {
        let head = self.take(2)?;
        let &[found, first] = head.first_chunk()?;
        if found != tag {
            return None;
        }
        let length = match first {
            0..=0x7f => usize::from(first),
            0x81..=0x84 => {
                let bytes = self.take(usize::from(first - 0x80))?;
                bytes.iter().fold(0usize, |length, byte| length << 8 | usize::from(*byte))
            }
            _ => return None,
        };
        self.take(length)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn element(tag: u8, contents: &[u8]) -> Vec<u8> {
        let length = u16::try_from(contents.len()).expect("a short element");
        [&[tag, 0x82][..], &length.to_be_bytes(), contents].concat()
    }

    fn encrypt(plain: &[u8], password: &str) -> Vec<u8> {
        let password = utf16(password);
        let salt = [7u8; DIGEST];
        let mut protected = salt.to_vec();
        let mut block = salt.to_vec();
        for chunk in plain.chunks(DIGEST) {
            block = sha1(&[&password, &block]);
            protected.extend(chunk.iter().zip(&block).map(|(byte, key)| byte ^ key));
        }
        protected.extend(sha1(&[&password, plain]));
        let algorithm = element(0x30, &[&[0x06, 10][..], &PROTECTOR, &[0x05, 0]].concat());
        element(0x30, &[algorithm, element(0x04, &protected)].concat())
    }

    fn store(password: &str, key: &[u8]) -> Vec<u8> {
        let certificate =
            |der: &[u8]| [&[0, 5][..], b"X.509", &(der.len() as u32).to_be_bytes(), der].concat();
        let body = [
            &MAGIC[..],
            &[0, 0, 0, 2, 0, 0, 0, 2],
            &[0, 0, 0, 2, 0, 1, b'a', 0, 0, 0, 0, 0, 0, 0, 0],
            &certificate(b"authority"),
            &[0, 0, 0, 1, 0, 1, b'b', 0, 0, 0, 0, 0, 0, 0, 0],
            &(key.len() as u32).to_be_bytes(),
            key,
            &[0, 0, 0, 1],
            &certificate(b"leaf"),
        ]
        .concat();
        let digest = sha1(&[&utf16(password), b"Mighty Aphrodite", &body]);
        [body, digest].concat()
    }

    #[test]
    fn a_store_is_read_and_its_key_decrypted() {
        let plain: Vec<u8> = (0..100).collect();
        let bytes = store("größe", &encrypt(&plain, "key"));
        let store = KeyStore::parse(&bytes, Some("größe")).expect("a store");
        assert_eq!(store.trusted, [b"authority".to_vec()]);
        let (key, chain) = store.keys.first().expect("a key");
        assert_eq!(chain, &[b"leaf".to_vec()]);
        assert_eq!(decrypt(key, "key"), Ok(plain));
        assert!(decrypt(key, "other").is_err_and(|error| error.contains("password")));
        assert!(KeyStore::parse(&bytes, Some("other")).is_err_and(|error| error.contains("password")));
        assert!(KeyStore::parse(&bytes, None).is_ok());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0usize..400, at in 0usize..400) {
            let _ = KeyStore::parse(&bytes, None);
            let _ = decrypt(&bytes, "x");
            let mut damaged = store("x", &encrypt(&[1; 50], "x"));
            if let Some(byte) = damaged.get_mut(at) {
                *byte ^= 0xff;
            }
            damaged.truncate(cut);
            let _ = KeyStore::parse(&damaged, None);
        }
    }
}
