//! `useragent`: browser, operating system and device of a user agent string, by the expressions of uap-core.

use std::path::Path;
use std::sync::Arc;

use millrace_ingest::user_agent::{ParsedUserAgent, SoftwareVersion, UserAgentLookup, UserAgentParser};
use millrace_ingest::{Event, Fault, FieldReference, Options};
use serde_json::Value;

use super::refresh::read_text;
use super::settings::required_field;
use super::{Filter, Outcome};

/// Largest file of expressions, in bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// Tag of events whose user agent takes too long.
const TIMEOUT: &str = "_useragent_timeout";

#[derive(Debug)]
struct UserAgent {
    source: FieldReference,
    replaces_source: bool,
    names: FieldNames,
    lookup: UserAgentLookup,
}

/// References of the fields.
#[derive(Debug)]
struct FieldNames {
    name: FieldReference,
    device: FieldReference,
    version: FieldReference,
    /// Major, minor and patch of the browser.
    versions: [FieldReference; 3],
    os_names: Vec<FieldReference>,
    os_full: FieldReference,
    os_version: FieldReference,
    os_versions: [FieldReference; 3],
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Filter>, Vec<Fault>> {
    let ecs = options.ecs_compatibility().is_enabled();
    let source = required_field(&mut options, "source");
    let target = options.field("target");
    let prefix = options.text("prefix").unwrap_or_default();
    let entries = options.integer("lru_cache_size", 0..=100_000_000).unwrap_or(100_000);
    let parser = match options.text("regexes") {
        None => UserAgentParser::shared(),
        Some(path) => read_text(Path::new(&path), MAX_FILE_BYTES)
            .and_then(|text| UserAgentParser::parse(&text).map_err(|error| format!("[{path}]: {error}")))
            .map(Arc::new),
    };
    let parser = parser.map_err(|fault| options.fault_here(fault)).ok();
    let names =
        FieldNames::new(target.as_ref(), &prefix, ecs).map_err(|fault| options.fault_here(fault)).ok();
    options.finish()?;
    let (Some(source), Some(parser), Some(names)) = (source, parser, names) else { return Err(Vec::new()) };
    let lookup = UserAgentLookup::new(parser, usize::try_from(entries).unwrap_or(usize::MAX));
    Ok(Arc::new(UserAgent { replaces_source: target.as_ref() == Some(&source), source, names, lookup }))
}

impl FieldNames {
    fn new(target: Option<&FieldReference>, prefix: &str, ecs: bool) -> Result<Self, String> {
        let target = match target {
            Some(target) => target.path().iter().map(|name| format!("[{name}]")).collect(),
            None if ecs => "[user_agent]".to_owned(),
            None => String::new(),
        };
        if ecs {
            let field = |path: &str| FieldReference::parse(&format!("{target}{path}"));
            let part = |of: &str, part: &str| {
                FieldReference::parse(&format!("[@metadata][filter][user_agent]{of}[version][{part}]"))
            };
            return Ok(Self {
                name: field("[name]")?,
                device: field("[device][name]")?,
                version: field("[version]")?,
                versions: [part("", "major")?, part("", "minor")?, part("", "patch")?],
                os_names: vec![field("[os][name]")?],
                os_full: field("[os][full]")?,
                os_version: field("[os][version]")?,
                os_versions: [part("[os]", "major")?, part("[os]", "minor")?, part("[os]", "patch")?],
            });
        }
        let field = |name: &str| FieldReference::parse(&format!("{target}[{prefix}{name}]"));
        Ok(Self {
            name: field("name")?,
            device: field("device")?,
            version: field("version")?,
            versions: [field("major")?, field("minor")?, field("patch")?],
            os_names: vec![field("os_name")?, field("os")?],
            os_full: field("os_full")?,
            os_version: field("os_version")?,
            os_versions: [field("os_major")?, field("os_minor")?, field("os_patch")?],
        })
    }

    fn set(&self, event: &mut Event, text: &str, agent: &ParsedUserAgent) -> Result<(), String> {
        let mut put = |field: &FieldReference, value: &str| event.set(field, Value::String(value.to_owned()));
        put(&self.name, &agent.browser.family)?;
        put(&self.device, &agent.device)?;
        for (field, part) in self.versions.iter().zip(agent.browser.parts()) {
            if let Some(part) = part {
                put(field, part)?;
            }
        }
        if let Some(version) = browser_version(text, &agent.browser) {
            put(&self.version, &version)?;
        }
        for (field, part) in self.os_versions.iter().zip(agent.os.parts()) {
            if let Some(part) = part {
                put(field, part)?;
            }
        }
        let version = os_version(&agent.os);
        if let Some(version) = &version {
            put(&self.os_version, version)?;
        }
        for field in &self.os_names {
            put(field, &agent.os.family)?;
        }
        let full = version
            .map_or_else(|| agent.os.family.clone(), |version| format!("{} {version}", agent.os.family));
        put(&self.os_full, &full)
    }
}

/// Joins the version of a browser. Where the expressions have three parts, a fourth may stand in the text.
fn browser_version(text: &str, browser: &SoftwareVersion) -> Option<String> {
    let [major, minor, patch] = browser.parts();
    let mut version = major?.to_owned();
    let Some(minor) = minor else { return Some(version) };
    version = format!("{version}.{minor}");
    let Some(patch) = patch else { return Some(version) };
    version = format!("{version}.{patch}");
    if let Some(fourth) = &browser.patch_minor {
        return Some(format!("{version}.{fourth}"));
    }
    let behind = text.split_once(&version).and_then(|(_, behind)| behind.strip_prefix('.'));
    let fourth = behind.and_then(|behind| behind.split_once(' ')).map(|(fourth, _)| fourth);
    let is_number = |fourth: &&str| fourth.parse::<u64>().is_ok_and(|number| number.to_string() == **fourth);
    Some(match fourth.filter(is_number) {
        Some(fourth) => format!("{version}.{fourth}"),
        None => version,
    })
}

/// Joins the version of an operating system; a name such as `Vista` and what follows have a space between.
fn os_version(os: &SoftwareVersion) -> Option<String> {
    let [major, minor, patch] = os.parts();
    let major = major?;
    let is_number = major.parse::<u64>().is_ok_and(|number| number.to_string() == major);
    let mut version = major.to_owned();
    let Some(minor) = minor else { return Some(version) };
    version.push(if is_number { '.' } else { ' ' });
    version.push_str(minor);
    for part in [patch, os.patch_minor.as_deref()] {
        let Some(part) = part else { break };
        version.push('.');
        version.push_str(part);
    }
    Some(version)
}

impl Filter for UserAgent {
    fn apply(&self, event: &mut Event, _made: &mut Vec<Event>) -> Outcome {
        let text = match event.get(&self.source).as_deref() {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(elements)) => match elements.first() {
                Some(Value::String(text)) => text.clone(),
                _ => return Outcome::Unmatched,
            },
            _ => return Outcome::Unmatched,
        };
        if text.is_empty() {
            return Outcome::Unmatched;
        }
        let Some(agent) = self.lookup.find(&text) else {
            event.tag(TIMEOUT);
            return Outcome::Unmatched;
        };
        if self.replaces_source {
            event.discard(&self.source);
        }
        match self.names.set(event, &text, &agent) {
            Ok(()) => Outcome::Matched,
            Err(_) => Outcome::Unmatched,
        }
    }
}
