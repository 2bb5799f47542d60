//! `fingerprint`: a hash over fields.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest as _, Md5};
use ring::digest;
use serde_json::Value;

use super::fields::absent;
use super::{Flow, Processor};
use crate::config::ProcessorConfig;
use crate::document::{FieldPath, IngestDocument, METADATA};
use crate::error::Result;
use crate::java;
use crate::pipeline::{BuildContext, PipelineRun};

/// Hash functions. Their names carry the version of OpenSearch that fixed the text that is hashed.
#[derive(Clone, Copy, Debug)]
enum HashMethod {
    Md5,
    Sha1,
    Sha256,
}

impl HashMethod {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "MD5@2.16.0" => Self::Md5,
            "SHA-1@2.16.0" => Self::Sha1,
            "SHA-256@2.16.0" => Self::Sha256,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Md5 => "MD5@2.16.0",
            Self::Sha1 => "SHA-1@2.16.0",
            Self::Sha256 => "SHA-256@2.16.0",
        }
    }

    fn hash(self, text: &str) -> String {
        match self {
            Self::Md5 => STANDARD.encode(Md5::digest(text.as_bytes())),
            Self::Sha1 => STANDARD.encode(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes())),
            Self::Sha256 => STANDARD.encode(digest::digest(&digest::SHA256, text.as_bytes())),
        }
    }
}

#[derive(Debug)]
struct Fingerprint {
    /// Fields in the order of their names; all without one.
    fields: Option<Vec<FieldPath>>,
    excluded: Vec<String>,
    target: FieldPath,
    method: HashMethod,
    ignore_missing: bool,
}

pub(super) fn build(config: &mut ProcessorConfig, _: &mut BuildContext) -> Result<Box<dyn Processor>> {
    let fields = config.texts("fields")?;
    let excluded = config.texts("exclude_fields")?;
    if fields.is_some() && excluded.is_some() {
        return Err(config.refusal("fields", "either fields or exclude_fields can be set"));
    }
    if fields.as_ref().or(excluded.as_ref()).is_some_and(|names| names.iter().any(String::is_empty)) {
        return Err(config.refusal("fields", "field name cannot be null nor empty"));
    }
    let target = config.path_or("target_field", &FieldPath::parse("fingerprint")?)?;
    let name = config.text("hash_method")?.unwrap_or_else(|| "SHA-1@2.16.0".to_owned());
    let method = HashMethod::parse(&name).ok_or_else(|| {
        config.refusal(
            "hash_method",
            &format!(
                "hash method [{name}] is not supported: MD5@2.16.0, SHA-1@2.16.0 and SHA-256@2.16.0 are"
            ),
        )
    })?;
    let ignore_missing = config.flag("ignore_missing", false)?;
    let fields = match fields {
        None => None,
        Some(mut names) => {
            names.sort();
            names.dedup();
            Some(names.iter().map(|name| FieldPath::parse(name)).collect::<Result<_>>()?)
        }
    };
    Ok(Box::new(Fingerprint {
        fields,
        excluded: excluded.unwrap_or_default(),
        target,
        method,
        ignore_missing,
    }))
}

/// Writes a field as it is hashed: objects member by member.
fn write(name: &str, value: &Value, out: &mut String) {
    if let Value::Object(members) = value {
        let mut members: Vec<_> = members.iter().collect();
        members.sort_by_key(|(member, _)| *member);
        for (member, value) in members {
            write(&format!("{name}.{member}"), value, out);
        }
        return;
    }
    let text = java::text_of(value);
    out.push_str(&format!("|{name}|{}:{text}", text.encode_utf16().count()));
}

impl Processor for Fingerprint {
    fn apply(&self, document: &mut IngestDocument, _: &mut PipelineRun<'_>) -> Result<Flow> {
        let mut text = String::new();
        match &self.fields {
            Some(fields) => {
                for field in fields {
                    match document.find(field) {
                        Some(value) => write(field.as_str(), value, &mut text),
                        None if self.ignore_missing => {}
                        None => return Err(absent(field)),
                    }
                }
            }
            None => {
                let mut members: Vec<_> = document.fields.iter().collect();
                members
                    .retain(|(name, _)| !METADATA.contains(&name.as_str()) && !self.excluded.contains(name));
                members.sort_by_key(|(name, _)| *name);
                members.into_iter().for_each(|(name, value)| write(name, value, &mut text));
            }
        }
        if text.is_empty() {
            return Ok(Flow::Continue);
        }
        text.push('|');
        let fingerprint = format!("{}:{}", self.method.name(), self.method.hash(&text));
        document.set(&self.target, fingerprint.into())?;
        Ok(Flow::Continue)
    }
}
