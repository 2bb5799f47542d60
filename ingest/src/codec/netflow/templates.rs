//! Templates that exporters have sent, within a bound, until they expire.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use millrace_runtime::{GenerationalCache, Instant};
use parking_lot::Mutex;

use super::definitions::FieldDefinition;

/// Fields of all templates of a codec together.
const MAX_FIELDS: usize = 200_000;
/// Fields of one template.
pub(super) const MAX_TEMPLATE_FIELDS: usize = 2_048;
/// Weight of a template beside its fields.
const TEMPLATE_WEIGHT: usize = 8;

/// Length of a field in IPFIX that each flow says itself.
pub(super) const VARIABLE: u16 = 65_535;

/// A field of a template.
#[derive(Clone, Debug)]
pub(super) struct TemplateField {
    pub(super) definition: FieldDefinition,
    /// Bytes of the value, or [`VARIABLE`].
    pub(super) length: u16,
}

/// Layout of the flows of a set.
#[derive(Clone, Debug)]
pub(super) struct Template {
    pub(super) fields: Vec<TemplateField>,
    /// Bytes of a flow at least.
    pub(super) min_bytes: usize,
}

impl Template {
    pub(super) fn new(fields: Vec<TemplateField>) -> Self {
        let length =
            |field: &TemplateField| if field.length == VARIABLE { 1 } else { usize::from(field.length) };
        let min_bytes = fields.iter().map(length).sum();
        Self { fields, min_bytes }
    }
}

/// Identity of a template: exporters number theirs by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TemplateKey {
    pub(super) peer: Option<IpAddr>,
    /// 9 or 10.
    pub(super) version: u16,
    /// Source of NetFlow version 9, observation domain of IPFIX.
    pub(super) domain: u32,
    pub(super) number: u16,
}

/// Templates by their keys. At the bound, those that no set has used lately are forgotten.
#[derive(Debug)]
pub(super) struct TemplateCache {
    lifetime: Duration,
    templates: Mutex<GenerationalCache<TemplateKey, (Arc<Template>, Instant)>>,
}

impl TemplateCache {
    pub(super) fn new(lifetime: Duration) -> Self {
        Self { lifetime, templates: Mutex::new(GenerationalCache::new(MAX_FIELDS)) }
    }

    /// Keeps a template in place of a former one.
    pub(super) fn insert(&self, key: TemplateKey, template: Template) {
        let weight = template.fields.len() + TEMPLATE_WEIGHT;
        let expires = Instant::now() + self.lifetime;
        self.templates.lock().insert(key, (Arc::new(template), expires), weight);
    }

    /// Returns a template that has not expired.
    pub(super) fn get(&self, key: &TemplateKey) -> Option<Arc<Template>> {
        let (template, expires) = self.templates.lock().get(key)?;
        (Instant::now() < expires).then_some(template)
    }
}
