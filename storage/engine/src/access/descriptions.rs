//! Settings and aliases of an index under rules that hide fields.

use std::borrow::Cow;

use millrace_catalog::metadata::{IndexMeta, setting_list};
use millrace_mapping::pattern::is_wildcard;
use serde_json::{Map, Value};

use crate::Session;

/// Settings that list fields, each with those whose values go with its own, place by place.
const LISTS: [&[&str]; 2] = [
    &["index.query.default_field"],
    &["index.sort.field", "index.sort.order", "index.sort.mode", "index.sort.missing"],
];

impl Session {
    /// Returns the settings of an index. Lists of fields are without those that may not be seen, and without patterns, which
    /// may name such.
    pub fn settings<'a>(&self, meta: &'a IndexMeta) -> Cow<'a, Map<String, Value>> {
        let mut settings = Cow::Borrowed(&meta.settings);
        let rules = self.access(&meta.name).fields(self.action());
        if rules.is_empty() {
            return settings;
        }
        let shows = |field: &str| {
            // A default field may have a boost.
            let path = field.split('^').next().unwrap_or(field);
            path == "*" || (!is_wildcard(path) && rules.iter().all(|rules| rules.shows(path)))
        };
        for keys in LISTS {
            let Some(fields) = setting_list(&meta.settings, keys[0]) else { continue };
            let shown: Vec<bool> = fields.iter().map(|field| shows(field)).collect();
            if !shown.contains(&false) {
                continue;
            }
            for key in keys {
                let Some(values) = setting_list(&meta.settings, key) else { continue };
                let values = values.into_iter().zip(&shown).filter(|(_, shown)| **shown);
                let values: Vec<Value> = values.map(|(value, _)| Value::String(value)).collect();
                if values.is_empty() {
                    settings.to_mut().shift_remove(*key);
                } else {
                    settings.to_mut().insert((*key).to_owned(), Value::Array(values));
                }
            }
        }
        settings
    }

    /// Returns what is told of an alias that an index has: without its filter where some fields may not be seen, since it may
    /// name such.
    pub fn alias(&self, index: &str, mut alias: Value) -> Value {
        let hides = !self.access(index).fields(self.action()).is_empty();
        if hides && let Some(members) = alias.as_object_mut() {
            members.shift_remove("filter");
        }
        alias
    }
}
