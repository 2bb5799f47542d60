//! `fingerprint`: digests of fields, and identifiers.

use std::net::Ipv4Addr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use md5::{Digest as _, Md5};
use millrace_ingest::event::{TIMESTAMP, text_of};
use millrace_ingest::pattern::{Deadline, Expression, Replacement};
use millrace_ingest::{Event, Fault, FieldReference, Options, Secret};
use millrace_runtime::murmur;
use ring::{digest, hmac as ring_hmac};
use serde_json::Value;

use super::{Filter, Outcome};

/// The seed that Logstash gives MurmurHash3 of 128 bits.
const MURMUR_SEED: u32 = 2;

#[derive(Debug)]
struct Fingerprint {
    /// In the order written.
    sources: Vec<(String, FieldReference)>,
    target: FieldReference,
    method: Method,
    base64: bool,
    concatenate: Concatenate,
}

#[derive(Debug, PartialEq)]
enum Concatenate {
    Nothing,
    Sources,
    AllFields,
}

#[derive(Debug)]
enum Method {
    Digest(&'static digest::Algorithm),
    Hmac(ring_hmac::Key),
    Md5,
    HmacMd5(Secret),
    Murmur32,
    Murmur128,
    Uuid,
    /// Characters that are neither punctuation nor a symbol are removed.
    Punctuation(Expression),
    /// Network of an address, by so many bits.
    Network(u32),
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Filter>, Vec<Fault>> {
    let ecs = options.ecs_compatibility().is_enabled();
    let mut names = options.texts("source");
    if names.is_empty() {
        names.push("message".to_owned());
    }
    let mut sources = Vec::new();
    for name in names {
        match FieldReference::parse(&name) {
            Ok(reference) => sources.push((name, reference)),
            Err(fault) => options.fault_here(fault),
        }
    }
    let target = options
        .text("target")
        .unwrap_or_else(|| if ecs { "[event][hash]" } else { "fingerprint" }.to_owned());
    let target = FieldReference::parse(&target).map_err(|fault| options.fault_here(fault));
    let method = method(&mut options);
    let base64 = options.boolean("base64encode").unwrap_or(false);
    let from_sources = options.boolean("concatenate_sources").unwrap_or(false);
    let concatenate = match options.boolean("concatenate_all_fields") {
        Some(true) => Concatenate::AllFields,
        _ if from_sources => Concatenate::Sources,
        _ => Concatenate::Nothing,
    };
    options.finish()?;
    let (Ok(target), Some(method)) = (target, method) else { return Err(Vec::new()) };
    if concatenate == Concatenate::Sources {
        sources.sort_by(|(one, _), (other, _)| one.cmp(other));
    }
    Ok(Arc::new(Fingerprint { sources, target, method, base64, concatenate }))
}

fn method(options: &mut Options) -> Option<Method> {
    let key = options.text("key");
    let name = options.one_of(
        "method",
        &[
            "SHA1",
            "SHA256",
            "SHA384",
            "SHA512",
            "MD5",
            "MURMUR3",
            "MURMUR3_128",
            "UUID",
            "PUNCT",
            "PUNCTUATION",
            "IPV4_NETWORK",
        ],
    );
    let sha = |algorithm, of_hmac| match &key {
        Some(key) => Method::Hmac(ring_hmac::Key::new(of_hmac, key.as_bytes())),
        None => Method::Digest(algorithm),
    };
    Some(match name.unwrap_or("SHA1") {
        "SHA256" => sha(&digest::SHA256, ring_hmac::HMAC_SHA256),
        "SHA384" => sha(&digest::SHA384, ring_hmac::HMAC_SHA384),
        "SHA512" => sha(&digest::SHA512, ring_hmac::HMAC_SHA512),
        "MD5" => key.map_or(Method::Md5, |key| Method::HmacMd5(Secret::new(key))),
        "MURMUR3" => Method::Murmur32,
        "MURMUR3_128" => Method::Murmur128,
        "UUID" => Method::Uuid,
        "PUNCT" | "PUNCTUATION" => match Expression::compile(r"[^\p{P}\p{S}]+") {
            Ok(others) => Method::Punctuation(others),
            Err(fault) => {
                options.fault_here(fault);
                return None;
            }
        },
        "IPV4_NETWORK" => {
            match key.as_ref().and_then(|key| key.parse::<u32>().ok()).filter(|bits| *bits <= 32) {
                Some(bits) => Method::Network(bits),
                None => {
                    options.fault_here(
                        "IPV4_NETWORK needs the option [key] with the length of the prefix, from 0 to 32",
                    );
                    return None;
                }
            }
        }
        _ => sha(&digest::SHA1_FOR_LEGACY_USE_ONLY, ring_hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
    })
}

impl Method {
    /// Returns whether it digests any text, also one of several fields.
    fn is_hash(&self) -> bool {
        !matches!(self, Self::Uuid | Self::Punctuation(_) | Self::Network(_))
    }

    fn fingerprint(&self, value: &Value, base64: bool) -> Option<Value> {
        let text = digest_text(value);
        let bytes = text.as_bytes();
        Some(match self {
            Self::Digest(algorithm) => written(digest::digest(algorithm, bytes).as_ref(), base64),
            Self::Hmac(key) => written(ring_hmac::sign(key, bytes).as_ref(), base64),
            Self::Md5 => written(&Md5::digest(bytes), base64),
            Self::HmacMd5(key) => {
                let mut code = Hmac::<Md5>::new_from_slice(key.expose().as_bytes()).ok()?;
                code.update(bytes);
                written(&code.finalize().into_bytes(), base64)
            }
            Self::Murmur128 => {
                let (one, two) = murmur::hash128_with_seed(bytes, MURMUR_SEED);
                written(&[one.to_le_bytes(), two.to_le_bytes()].concat(), base64)
            }
            Self::Murmur32 => {
                let hash = match value {
                    Value::Number(number) => match number.as_i64() {
                        Some(whole) => murmur::hash32(whole.to_le_bytes(), 0),
                        None => murmur::hash32(bytes.iter().copied(), 0),
                    },
                    _ => murmur::hash32(bytes.iter().copied(), 0),
                };
                if base64 { Value::String(STANDARD.encode(hash.to_be_bytes())) } else { Value::from(hash) }
            }
            Self::Uuid => Value::String(uuid::Uuid::new_v4().to_string()),
            Self::Punctuation(others) => {
                let nothing = Replacement::parse("", others);
                let left = others.replace_all(&text, &nothing, &Deadline::default()).ok()?;
                Value::String(left.unwrap_or(text))
            }
            Self::Network(bits) => {
                let address: Ipv4Addr = text.trim().parse().ok()?;
                let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
                Value::String(Ipv4Addr::from_bits(address.to_bits() & mask).to_string())
            }
        })
    }
}

fn written(bytes: &[u8], base64: bool) -> Value {
    Value::String(if base64 {
        STANDARD.encode(bytes)
    } else {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    })
}

/// A value as the text that is digested: arrays and objects as Ruby shows them, with members in the order of
/// their names.
fn digest_text(value: &Value) -> String {
    match value {
        Value::Array(_) | Value::Object(_) => inspected(value),
        other => text_of(other),
    }
}

/// A value as Ruby shows it, with members in the order of their names.
pub(super) fn inspected(value: &Value) -> String {
    match value {
        Value::Null => "nil".to_owned(),
        Value::String(_) => value.to_string(),
        Value::Array(elements) => {
            format!("[{}]", elements.iter().map(inspected).collect::<Vec<_>>().join(", "))
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| name.as_str());
            let shown = members
                .iter()
                .map(|(name, value)| format!("{}=>{}", Value::from(name.as_str()), inspected(value)));
            format!("{{{}}}", shown.collect::<Vec<_>>().join(", "))
        }
        other => text_of(other),
    }
}

/// Joins names and values as [`Concatenate`] says.
fn joined<'a>(parts: impl Iterator<Item = (&'a str, String)>) -> Value {
    let mut text: String = parts.map(|(name, value)| format!("|{name}|{value}")).collect();
    text.push('|');
    Value::String(text)
}

impl Filter for Fingerprint {
    fn apply(&self, event: &mut Event, _made: &mut Vec<Event>) -> Outcome {
        let made = match (&self.method, &self.concatenate) {
            (Method::Uuid, _) => self.method.fingerprint(&Value::Null, self.base64),
            (method, Concatenate::AllFields) if method.is_hash() => {
                let time = event.timestamp_text();
                let mut parts: Vec<(&str, String)> =
                    event.fields().iter().map(|(name, value)| (name.as_str(), digest_text(value))).collect();
                parts.push((TIMESTAMP, time));
                parts.sort();
                self.method.fingerprint(&joined(parts.into_iter()), self.base64)
            }
            (method, Concatenate::Sources) if method.is_hash() => {
                let parts = self.sources.iter().map(|(name, reference)| {
                    (name.as_str(), event.get(reference).map(|value| digest_text(&value)).unwrap_or_default())
                });
                self.method.fingerprint(&joined(parts), self.base64)
            }
            // Each source by itself; the last that is there remains.
            _ => self.sources.iter().rev().find_map(|(_, reference)| match event.get(reference).as_deref() {
                None => None,
                Some(Value::Array(elements)) => {
                    let made: Option<Vec<Value>> = elements
                        .iter()
                        .map(|element| self.method.fingerprint(element, self.base64))
                        .collect();
                    made.map(Value::Array)
                }
                Some(value) => self.method.fingerprint(value, self.base64),
            }),
        };
        match made.map(|value| event.set(&self.target, value)) {
            Some(Ok(())) => Outcome::Matched,
            _ => Outcome::Unmatched,
        }
    }
}
