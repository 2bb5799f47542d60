//! Dynamic templates, and how a mapping chooses the type of a field that it has not seen.

use std::sync::Arc;

use millrace_runtime::{Error, Result};
use serde_json::{Map, Value, json};

use super::date::DateFormat;
use super::spec::{self, Context, Spec};
use super::{FieldType, java};
use crate::analysis::JavaPattern;
use crate::pattern::matches;

/// Type of a value, as `match_mapping_type` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DetectedType {
    Object,
    String,
    Long,
    Double,
    Boolean,
    Date,
}

impl DetectedType {
    const ALL: [(&'static str, Option<Self>); 7] = [
        ("object", Some(Self::Object)),
        ("string", Some(Self::String)),
        ("long", Some(Self::Long)),
        ("double", Some(Self::Double)),
        ("boolean", Some(Self::Boolean)),
        ("date", Some(Self::Date)),
        // JSON has no binary values: a template for them is kept and never matches.
        ("binary", None),
    ];

    /// The type that such values get where nothing else is said: `{dynamic_type}`.
    fn default_type(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::String => "text",
            Self::Long => "long",
            Self::Double => "float",
            Self::Boolean => "boolean",
            Self::Date => "date",
        }
    }
}

/// One dynamic template.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    name: String,
    match_name: Option<Pattern>,
    unmatch_name: Option<Pattern>,
    match_path: Option<Pattern>,
    unmatch_path: Option<Pattern>,
    /// Name of `match_mapping_type`, unless it is `*`.
    mapping_type: Option<&'static str>,
    seen: Option<DetectedType>,
    regex: bool,
    mapping: Map<String, Value>,
}

#[derive(Clone, Debug)]
enum Pattern {
    /// Any number of `*`.
    Simple(String),
    Regex(String, Arc<JavaPattern>),
}

impl Pattern {
    fn new(text: String, regex: bool, template: &str) -> Result<Self> {
        if !regex {
            return Ok(Self::Simple(text));
        }
        let compiled = JavaPattern::entire(&text).map_err(|_| {
            Error::IllegalArgument(format!(
                "Pattern [{text}] of type [regex] is invalid. Cannot create dynamic template [{template}]."
            ))
        })?;
        Ok(Self::Regex(text, Arc::new(compiled)))
    }

    fn text(&self) -> &str {
        match self {
            Self::Simple(text) | Self::Regex(text, _) => text,
        }
    }

    fn matches(&self, value: &str) -> bool {
        match self {
            Self::Simple(pattern) => matches(pattern, value),
            Self::Regex(_, regex) => regex.matches(value),
        }
    }
}

impl Template {
    /// Parses `dynamic_templates`. As in OpenSearch, a field that a template would make is not looked at before a
    /// document needs it: templates of the world name types and parameters that no document has used for years.
    pub(super) fn parse_all(value: &Value) -> Result<Vec<Self>> {
        let Value::Array(items) = value else {
            return Err(Error::mapper_parsing(
                "Dynamic template syntax error. An array of named objects is expected.",
            ));
        };
        let mut templates = Vec::with_capacity(items.len());
        for item in items {
            let named = item.as_object().filter(|members| members.len() == 1);
            let Some((name, body)) = named.and_then(|members| members.iter().next()) else {
                return Err(Error::mapper_parsing("A dynamic template must be defined with a name"));
            };
            let Value::Object(body) = body else {
                return Err(Error::mapper_parsing(format!("dynamic template [{name}] must be an object")));
            };
            templates.push(Self::parse(name, body)?);
        }
        Ok(templates)
    }

    fn parse(name: &str, body: &Map<String, Value>) -> Result<Self> {
        let (mut matches, mut unmatch, mut path_match, mut path_unmatch) = (None, None, None, None);
        let (mut mapping_type, mut mapping, mut regex) = (None, None, false);
        for (key, value) in body {
            let text = || java::to_string(value);
            match key.as_str() {
                "match" => matches = Some(text()),
                "unmatch" => unmatch = Some(text()),
                "path_match" => path_match = Some(text()),
                "path_unmatch" => path_unmatch = Some(text()),
                "match_mapping_type" => mapping_type = Some(text()),
                "match_pattern" => {
                    regex = match text().as_str() {
                        "simple" => false,
                        "regex" => true,
                        other => {
                            return Err(Error::IllegalArgument(format!(
                                "No matching pattern matched on [{other}]"
                            )));
                        }
                    };
                }
                "mapping" => match value {
                    Value::Object(members) => mapping = Some(members.clone()),
                    _ => return Err(Error::mapper_parsing("template must have mapping set")),
                },
                other => {
                    return Err(Error::IllegalArgument(format!(
                        "Illegal dynamic template parameter: [{other}]"
                    )));
                }
            }
        }
        if matches.is_none() && path_match.is_none() && mapping_type.is_none() {
            return Err(Error::mapper_parsing(format!(
                "template must have match, path_match or match_mapping_type set {}",
                java::to_string(&Value::Object(body.clone()))
            )));
        }
        let mapping = mapping.ok_or_else(|| Error::mapper_parsing("template must have mapping set"))?;
        let mapping_type = match mapping_type.as_deref() {
            None | Some("*") => None,
            Some(given) => {
                Some(*DetectedType::ALL.iter().find(|(known, _)| *known == given).ok_or_else(|| {
                    Error::IllegalArgument(format!(
                        "No field type matched on [{given}], possible values are [{}]",
                        DetectedType::ALL.map(|(known, _)| known).join(", ")
                    ))
                })?)
            }
        };
        let pattern = |text: Option<String>| text.map(|text| Pattern::new(text, regex, name)).transpose();
        Ok(Self {
            name: name.to_owned(),
            match_name: pattern(matches)?,
            unmatch_name: pattern(unmatch)?,
            match_path: pattern(path_match)?,
            unmatch_path: pattern(path_unmatch)?,
            mapping_type: mapping_type.map(|(known, _)| known),
            seen: mapping_type.and_then(|(_, seen)| seen),
            regex,
            mapping,
        })
    }

    fn applies(&self, path: &str, name: &str, seen: DetectedType) -> bool {
        let matched = |pattern: &Option<Pattern>, value: &str| pattern.as_ref().map(|p| p.matches(value));
        (self.mapping_type.is_none() || self.seen == Some(seen))
            && matched(&self.match_path, path) != Some(false)
            && matched(&self.match_name, name) != Some(false)
            && matched(&self.unmatch_path, path) != Some(true)
            && matched(&self.unmatch_name, name) != Some(true)
    }

    fn field(
        &self,
        name: &str,
        seen: DetectedType,
        format: Option<&DateFormat>,
        context: Context<'_>,
    ) -> Result<Spec> {
        let default_type = seen.default_type();
        let mut body = substitute(&self.mapping, name, default_type);
        if !body.contains_key("type") {
            body.insert("type".to_owned(), Value::String(default_type.to_owned()));
        }
        if let Some(format) = format
            && body.get("type").and_then(Value::as_str) == Some("date")
            && !body.contains_key("format")
        {
            set_format(&mut body, format);
        }
        spec::parse_field(name, name, &body, context, 1)
    }

    fn body(&self) -> Value {
        let mut body = Map::new();
        let mut put = |key: &str, pattern: &Option<Pattern>| {
            if let Some(pattern) = pattern {
                body.insert(key.to_owned(), Value::String(pattern.text().to_owned()));
            }
        };
        put("match", &self.match_name);
        put("path_match", &self.match_path);
        put("unmatch", &self.unmatch_name);
        put("path_unmatch", &self.unmatch_path);
        if let Some(mapping_type) = self.mapping_type {
            body.insert("match_mapping_type".to_owned(), json!(mapping_type));
        } else if self.match_name.is_none() && self.match_path.is_none() {
            body.insert("match_mapping_type".to_owned(), json!("*"));
        }
        if self.regex {
            body.insert("match_pattern".to_owned(), json!("regex"));
        }
        body.insert("mapping".to_owned(), Value::Object(self.mapping.clone()));
        Value::Object(body)
    }

    /// Renders the template as `dynamic_templates` lists it.
    pub(super) fn to_json(&self) -> Value {
        let mut named = Map::new();
        named.insert(self.name.clone(), self.body());
        Value::Object(named)
    }
}

fn set_format(body: &mut Map<String, Value>, format: &DateFormat) {
    if format.as_str() != spec::DEFAULT_DATE_FORMAT {
        body.insert("format".to_owned(), Value::String(format.as_str().to_owned()));
    }
}

fn substitute(map: &Map<String, Value>, name: &str, dynamic_type: &str) -> Map<String, Value> {
    let text = |text: &str| {
        text.replace("{name}", name)
            .replace("{dynamic_type}", dynamic_type)
            .replace("{dynamicType}", dynamic_type)
    };
    fn value(from: &Value, text: &dyn Fn(&str) -> String) -> Value {
        match from {
            Value::String(s) => Value::String(text(s)),
            Value::Array(items) => Value::Array(items.iter().map(|item| value(item, text)).collect()),
            Value::Object(members) => {
                Value::Object(members.iter().map(|(k, v)| (text(k), value(v, text))).collect())
            }
            other => other.clone(),
        }
    }
    map.iter().map(|(key, from)| (text(key), value(from, &text))).collect()
}

/// Returns whether a template applies to a new field.
pub(crate) fn is_templated(templates: &[Template], path: &str, name: &str, seen: DetectedType) -> bool {
    templates.iter().any(|template| template.applies(path, name, seen))
}

/// Chooses what a new field becomes: by the first template that applies, else by what was seen.
/// `format` is the dynamic date format that read the value, where one did.
pub(crate) fn choose(
    templates: &[Template],
    path: &str,
    name: &str,
    seen: DetectedType,
    format: Option<&DateFormat>,
    context: Context<'_>,
) -> Result<Spec> {
    if let Some(template) = templates.iter().find(|template| template.applies(path, name, seen)) {
        return template.field(name, seen, format, context);
    }
    let mut params = Map::new();
    let mut fields = Vec::new();
    let field_type = match seen {
        DetectedType::Object => return Ok(Spec::Object(spec::ObjectSpec::default())),
        DetectedType::String => {
            let mut keyword = Map::new();
            keyword.insert("ignore_above".to_owned(), json!(256));
            fields.push((
                "keyword".to_owned(),
                spec::LeafSpec {
                    field_type: FieldType::Keyword,
                    params: keyword,
                    copy_to: Vec::new(),
                    fields: Vec::new(),
                },
            ));
            FieldType::Text
        }
        DetectedType::Long => FieldType::Long,
        DetectedType::Double => FieldType::Float,
        DetectedType::Boolean => FieldType::Boolean,
        DetectedType::Date => {
            if let Some(format) = format {
                set_format(&mut params, format);
            }
            FieldType::Date
        }
    };
    Ok(Spec::Leaf(spec::LeafSpec { field_type, params, copy_to: Vec::new(), fields }))
}
