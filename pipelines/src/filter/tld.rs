//! `tld`: takes host names apart by the public suffix list.

use std::sync::Arc;

use millrace_ingest::{Event, Fault, FieldReference, Options};
use serde_json::{Value, json};

use super::settings::field_or;
use super::{Filter, Outcome};

/// Longest host name, in bytes.
const MAX_NAME_BYTES: usize = 253;

#[derive(Debug)]
struct Tld {
    source: FieldReference,
    target: FieldReference,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Filter>, Vec<Fault>> {
    let source = field_or(&mut options, "source", "message");
    let target = field_or(&mut options, "target", "tld");
    options.finish()?;
    Ok(Arc::new(Tld { source, target }))
}

/// Takes a host name apart; `None` if it has no known suffix, or nothing before that.
fn parsed(name: &str) -> Option<Value> {
    let name = name.trim();
    let name = name.strip_suffix('.').unwrap_or(name).to_lowercase();
    let is_name = !name.is_empty() && name.len() <= MAX_NAME_BYTES && !name.split('.').any(str::is_empty);
    if !is_name {
        return None;
    }
    let domain = psl::domain(name.as_bytes())?;
    if !domain.suffix().is_known() {
        return None;
    }
    let suffix = std::str::from_utf8(domain.suffix().as_bytes()).ok()?;
    let registered = std::str::from_utf8(domain.as_bytes()).ok()?;
    let second = registered.strip_suffix(suffix)?.strip_suffix('.')?;
    let third = name.strip_suffix(registered)?.strip_suffix('.');
    Some(json!({
        "tld": suffix,
        "sld": second,
        "trd": third,
        "domain": registered,
        "subdomain": third.map(|_| name.as_str()),
        "top_level_domain": suffix,
    }))
}

impl Filter for Tld {
    fn apply(&self, event: &mut Event, _made: &mut Vec<Event>) -> Outcome {
        let parts = match event.get(&self.source).as_deref() {
            Some(Value::String(name)) => parsed(name),
            _ => None,
        };
        match parts.map(|parts| event.set(&self.target, parts)) {
            Some(Ok(())) => Outcome::Matched,
            Some(Err(_)) | None => Outcome::Unmatched,
        }
    }
}
