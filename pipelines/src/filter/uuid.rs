//! `uuid`: gives events a random identifier.

use std::sync::Arc;

use millrace_ingest::{Event, Fault, FieldReference, Options};
use serde_json::Value;
use uuid::Uuid;

use super::settings::required_field;
use super::{Filter, Outcome};

#[derive(Debug)]
struct UuidFilter {
    target: FieldReference,
    overwrite: bool,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Filter>, Vec<Fault>> {
    let target = required_field(&mut options, "target");
    let overwrite = options.boolean("overwrite").unwrap_or(false);
    options.finish()?;
    let Some(target) = target else { return Err(Vec::new()) };
    Ok(Arc::new(UuidFilter { target, overwrite }))
}

impl Filter for UuidFilter {
    fn apply(&self, event: &mut Event, _made: &mut Vec<Event>) -> Outcome {
        let is_set = event.get(&self.target).is_some_and(|value| !value.is_null());
        if (self.overwrite || !is_set)
            && event.set(&self.target, Value::String(Uuid::new_v4().to_string())).is_err()
        {
            return Outcome::Unmatched;
        }
        Outcome::Matched
    }
}
