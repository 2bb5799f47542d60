//! Options of processors, taken by name and refused in OpenSearch's words.

use serde_json::{Map, Value};

use crate::document::FieldPath;
use crate::error::{ProcessorError, Result};
use crate::java;
use crate::template::{MustacheTemplate, PathTemplate, ValueTemplate};

/// The options of one processor, or of a pipeline.
#[derive(Clone, Debug)]
pub(crate) struct ProcessorConfig {
    /// Name of the processor's type; empty for a pipeline.
    processor_type: String,
    tag: Option<String>,
    members: Map<String, Value>,
}

impl ProcessorConfig {
    /// Makes the options of a processor.
    pub(crate) fn new(processor_type: &str, members: Map<String, Value>) -> Self {
        let tag = members.get("tag").and_then(Value::as_str).map(str::to_owned);
        Self { processor_type: processor_type.to_owned(), tag, members }
    }

    /// Makes a refusal of one option.
    pub(crate) fn refusal(&self, property: &str, reason: &str) -> ProcessorError {
        self.describe(ProcessorError::parse(format!("[{property}] {reason}"))).with("property_name", property)
    }

    /// Adds type and tag of the processor to an error.
    pub(crate) fn describe(&self, mut error: ProcessorError) -> ProcessorError {
        let is_described = error.members().iter().any(|(name, _)| *name == "processor_type");
        if !self.processor_type.is_empty() && !is_described {
            error = error.with("processor_type", self.processor_type.as_str());
            if let Some(tag) = &self.tag {
                error = error.with("processor_tag", tag.as_str());
            }
        }
        error
    }

    fn wrong_type(&self, name: &str, kind: &str, value: &Value) -> ProcessorError {
        let found = java::type_name(value);
        self.refusal(name, &format!("property isn't {kind}, but of type [{found}]"))
    }

    fn missing(&self, name: &str) -> ProcessorError {
        self.refusal(name, "required property is missing")
    }

    /// Takes an option of any type.
    pub(crate) fn value(&mut self, name: &str) -> Option<Value> {
        self.members.shift_remove(name).filter(|value| !value.is_null())
    }

    /// Takes an option of any type that must be there.
    pub(crate) fn required_value(&mut self, name: &str) -> Result<Value> {
        self.value(name).ok_or_else(|| self.missing(name))
    }

    /// Takes a text.
    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong_type(name, "a string", &other)),
        }
    }

    /// Takes a text that must be there.
    pub(crate) fn required_text(&mut self, name: &str) -> Result<String> {
        self.text(name)?.ok_or_else(|| self.missing(name))
    }

    /// Takes a boolean.
    pub(crate) fn flag(&mut self, name: &str, default: bool) -> Result<bool> {
        match self.value(name) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(Value::String(text)) if text == "true" || text == "false" => Ok(text == "true"),
            Some(other) => Err(self.wrong_type(name, "a boolean", &other)),
        }
    }

    /// Takes a whole number.
    pub(crate) fn integer(&mut self, name: &str) -> Result<Option<i64>> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let number = value.as_i64().or_else(|| value.as_str()?.parse().ok());
        number.map(Some).ok_or_else(|| {
            let text = java::text_of(&value);
            self.refusal(name, &format!("property cannot be converted to an int [{text}]"))
        })
    }

    /// Takes a list of texts.
    pub(crate) fn texts(&mut self, name: &str) -> Result<Option<Vec<String>>> {
        let items = match self.value(name) {
            None => return Ok(None),
            Some(Value::Array(items)) => items,
            Some(other) => return Err(self.wrong_type(name, "a list", &other)),
        };
        let texts = items.into_iter().map(|item| match item {
            Value::String(text) => Ok(text),
            other => Err(self.wrong_type(name, "a list of strings", &other)),
        });
        texts.collect::<Result<_>>().map(Some)
    }

    /// Takes a list of texts that must be there.
    pub(crate) fn required_texts(&mut self, name: &str) -> Result<Vec<String>> {
        self.texts(name)?.ok_or_else(|| self.missing(name))
    }

    /// Takes a text or a list of texts.
    pub(crate) fn text_or_texts(&mut self, name: &str) -> Result<Option<Vec<String>>> {
        match self.members.get(name) {
            Some(Value::String(_)) => Ok(self.text(name)?.map(|text| vec![text])),
            _ => self.texts(name),
        }
    }

    /// Takes an object.
    pub(crate) fn object(&mut self, name: &str) -> Result<Option<Map<String, Value>>> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Object(members)) => Ok(Some(members)),
            Some(other) => Err(self.wrong_type(name, "a map", &other)),
        }
    }

    /// Takes a list of any values.
    pub(crate) fn list(&mut self, name: &str) -> Result<Option<Vec<Value>>> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(other) => Err(self.wrong_type(name, "a list", &other)),
        }
    }

    /// Takes the path of a field.
    pub(crate) fn path(&mut self, name: &str) -> Result<FieldPath> {
        let text = self.required_text(name)?;
        FieldPath::parse(&text).map_err(|error| self.describe(error))
    }

    /// Takes the path of a field that has a default.
    pub(crate) fn path_or(&mut self, name: &str, default: &FieldPath) -> Result<FieldPath> {
        match self.text(name)? {
            Some(text) => FieldPath::parse(&text).map_err(|error| self.describe(error)),
            None => Ok(default.clone()),
        }
    }

    /// Takes the path of a field that may be a template.
    pub(crate) fn path_template(&mut self, name: &str) -> Result<PathTemplate> {
        let text = self.required_text(name)?;
        PathTemplate::parse(&text).map_err(|error| self.describe(error))
    }

    /// Takes a template that must be there.
    pub(crate) fn template(&mut self, name: &str) -> Result<MustacheTemplate> {
        let text = self.required_text(name)?;
        MustacheTemplate::parse(&text).map_err(|error| self.describe(error))
    }

    /// Takes a template.
    pub(crate) fn optional_template(&mut self, name: &str) -> Result<Option<MustacheTemplate>> {
        let text = self.text(name)?;
        text.map(|text| MustacheTemplate::parse(&text)).transpose().map_err(|error| self.describe(error))
    }

    /// Takes a value with templates that must be there.
    pub(crate) fn value_template(&mut self, name: &str) -> Result<ValueTemplate> {
        let value = self.required_value(name)?;
        ValueTemplate::parse(&value).map_err(|error| self.describe(error))
    }

    /// Refuses the options that nobody took.
    pub(crate) fn finish(&self) -> Result<()> {
        if self.members.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = self.members.keys().map(String::as_str).collect();
        Err(self.describe(ProcessorError::parse(format!(
            "processor [{}] doesn't support one or more provided configuration parameters [{}]",
            self.processor_type,
            names.join(", ")
        ))))
    }

    /// Returns the names of the options that nobody took.
    pub(crate) fn remaining(&self) -> Vec<&str> {
        self.members.keys().map(String::as_str).collect()
    }
}
