//! The fields that a mapping names: who does not see a field may neither map it nor have its values copied into one that is seen.

use std::sync::Arc;

use millrace_mapping::fields::FieldRules;
use millrace_runtime::{Error, Result};
use serde_json::{Map, Value};

use super::Principal;

/// Deepest object of a mapping that is looked at; the mapping itself refuses less deep ones.
const MAX_DEPTH: usize = 1_000;

/// Checks that a mapping names only fields that all rules show; where there are rules, dynamic templates copy nothing.
///
/// # Errors
/// [`Error::IllegalArgument`] with the field, in the same words whether there is such a field or not.
pub fn check_mapping(mapping: &Value, rules: &[Arc<FieldRules>], writer: &Principal) -> Result<()> {
    if rules.is_empty() {
        return Ok(());
    }
    let check = Check { rules, writer };
    // A type may be around it.
    for body in std::iter::once(mapping).chain(mapping.as_object().into_iter().flat_map(Map::values)) {
        check.dynamic_templates(&body["dynamic_templates"])?;
        check.properties(&body["properties"], "", 0)?;
    }
    Ok(())
}

struct Check<'a> {
    rules: &'a [Arc<FieldRules>],
    writer: &'a Principal,
}

impl Check<'_> {
    fn shown(&self, field: &str) -> Result<()> {
        match self.rules.iter().all(|rules| rules.shows(field)) {
            true => Ok(()),
            false => Err(Error::IllegalArgument(format!(
                "the mapping names [{field}], a field that {} may not see: have it put by somebody who sees all fields",
                self.writer.caller()
            ))),
        }
    }

    fn properties(&self, properties: &Value, outer: &str, depth: usize) -> Result<()> {
        for (name, field) in properties.as_object().into_iter().flatten().filter(|_| depth < MAX_DEPTH) {
            let path = if outer.is_empty() { name.clone() } else { format!("{outer}.{name}") };
            match field["properties"].is_object() {
                true => self.properties(&field["properties"], &path, depth + 1)?,
                false => self.shown(&path)?,
            }
            self.field(field)?;
        }
        Ok(())
    }

    /// Checks the fields that the definition of a field takes values of or gives them to.
    fn field(&self, field: &Value) -> Result<()> {
        let contexts = each(&field["contexts"]).map(|context| &context["path"]);
        let named = each(&field["copy_to"]).chain([&field["path"]]).chain(contexts);
        named.filter_map(Value::as_str).try_for_each(|name| self.shown(name))?;
        for inner in field["fields"].as_object().into_iter().flat_map(Map::values) {
            let contexts = each(&inner["contexts"]).map(|context| &context["path"]);
            contexts.filter_map(Value::as_str).try_for_each(|name| self.shown(name))?;
        }
        Ok(())
    }

    fn dynamic_templates(&self, templates: &Value) -> Result<()> {
        for template in each(templates).filter_map(Value::as_object).flat_map(Map::values) {
            let mapping = &template["mapping"];
            if ["copy_to", "path", "contexts"].iter().any(|member| !mapping[*member].is_null()) {
                return Err(Error::IllegalArgument(format!(
                    "a dynamic template copies values, which may be of fields that {} may not see: have it put by somebody who sees \
                     all fields",
                    self.writer.caller()
                )));
            }
        }
        Ok(())
    }
}

/// Lists the items of a list; one item may stand alone.
fn each(value: &Value) -> impl Iterator<Item = &Value> {
    match value {
        Value::Array(items) => items.iter(),
        other => std::slice::from_ref(other).iter(),
    }
}
