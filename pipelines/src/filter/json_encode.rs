//! `json_encode`: writes a field as JSON.

use std::sync::Arc;

use millrace_ingest::{Event, Fault, FieldReference, Options};
use serde_json::Value;

use super::settings::required_field;
use super::{Filter, Outcome};

#[derive(Debug)]
struct JsonEncode {
    source: FieldReference,
    target: Option<FieldReference>,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Filter>, Vec<Fault>> {
    let source = required_field(&mut options, "source");
    let target = options.field("target");
    options.finish()?;
    let Some(source) = source else { return Err(Vec::new()) };
    Ok(Arc::new(JsonEncode { source, target }))
}

impl Filter for JsonEncode {
    fn apply(&self, event: &mut Event, _made: &mut Vec<Event>) -> Outcome {
        // As in Logstash, a missing field is `null`.
        let json = event.get(&self.source).map_or_else(|| "null".to_owned(), |value| value.to_string());
        match event.set(self.target.as_ref().unwrap_or(&self.source), Value::String(json)) {
            Ok(()) => Outcome::Matched,
            Err(_) => {
                event.tag("_jsongeneratorfailure");
                Outcome::Unmatched
            }
        }
    }
}
