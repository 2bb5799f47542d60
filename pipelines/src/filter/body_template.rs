//! Bodies of requests with formats in their texts. A value of an event stays within the text that its format is in.

use millrace_ingest::{Event, Setting, Template};
use serde_json::Value;

/// A value whose texts and names are formats.
#[derive(Debug)]
pub(super) enum BodyTemplate {
    /// A text.
    Text(Template),
    /// A value without texts.
    Literal(Value),
    /// An array.
    Array(Vec<BodyTemplate>),
    /// An object.
    Object(Vec<(Template, BodyTemplate)>),
}

impl BodyTemplate {
    /// Makes a template of an option.
    pub(super) fn from_setting(setting: Setting) -> Self {
        match setting {
            Setting::Number(number) => Self::Literal(Value::Number(number)),
            Setting::Array(elements) => Self::Array(elements.into_iter().map(Self::from_setting).collect()),
            Setting::Hash(members) => {
                let member =
                    |(name, value): (String, Setting)| (Template::parse(&name), Self::from_setting(value));
                Self::Object(members.into_iter().map(member).collect())
            }
            other => Self::Text(Template::parse(&other.as_text().unwrap_or_default())),
        }
    }

    /// Makes a template of JSON.
    pub(super) fn from_json(value: Value) -> Self {
        match value {
            Value::String(text) => Self::Text(Template::parse(&text)),
            Value::Array(elements) => Self::Array(elements.into_iter().map(Self::from_json).collect()),
            Value::Object(members) => {
                let member =
                    |(name, value): (String, Value)| (Template::parse(&name), Self::from_json(value));
                Self::Object(members.into_iter().map(member).collect())
            }
            literal => Self::Literal(literal),
        }
    }

    /// Fills the formats from an event.
    pub(super) fn render(&self, event: &Event) -> Value {
        match self {
            Self::Text(template) => Value::String(template.render(event)),
            Self::Literal(value) => value.clone(),
            Self::Array(elements) => elements.iter().map(|element| element.render(event)).collect(),
            Self::Object(members) => {
                members.iter().map(|(name, value)| (name.render(event), value.render(event))).collect()
            }
        }
    }
}
