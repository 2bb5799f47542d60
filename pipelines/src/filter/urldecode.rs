//! `urldecode`: replaces `%41` and the like by the bytes that they stand for.

use std::sync::Arc;

use millrace_ingest::codec::Charset;
use millrace_ingest::{Event, Fault, FieldReference, Options};
use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::settings::{field_or, texts_or};
use super::{Filter, Outcome};

#[derive(Debug)]
struct UrlDecode {
    /// `None` for all fields.
    field: Option<FieldReference>,
    charset: Charset,
    tags_on_failure: Vec<String>,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Filter>, Vec<Fault>> {
    let field = field_or(&mut options, "field", "message");
    let all = options.boolean("all_fields").unwrap_or(false);
    let charset = Charset::take(&mut options);
    let tags_on_failure = texts_or(&mut options, "tag_on_failure", &["_urldecodefailure"]);
    options.finish()?;
    Ok(Arc::new(UrlDecode { field: (!all).then_some(field), charset, tags_on_failure }))
}

impl UrlDecode {
    fn decode(&self, text: &str) -> String {
        let bytes: Vec<u8> = percent_decode_str(text).collect();
        self.charset.decode(&bytes).into_owned()
    }

    fn decode_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.decode(text)),
            Value::Array(elements) => {
                Value::Array(elements.iter().map(|element| self.decode_value(element)).collect())
            }
            Value::Object(members) => Value::Object(
                members.iter().map(|(name, value)| (name.clone(), self.decode_value(value))).collect(),
            ),
            other => other.clone(),
        }
    }
}

impl Filter for UrlDecode {
    fn apply(&self, event: &mut Event, _made: &mut Vec<Event>) -> Outcome {
        match &self.field {
            None => {
                for value in event.fields_mut().values_mut() {
                    *value = self.decode_value(value);
                }
            }
            Some(field) => {
                let decoded = event.get(field).map(|value| self.decode_value(&value));
                if let Some(decoded) = decoded
                    && event.set(field, decoded).is_err()
                {
                    self.tags_on_failure.iter().for_each(|tag| event.tag(tag));
                }
            }
        }
        Outcome::Matched
    }
}
