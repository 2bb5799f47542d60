//! Mustache templates: `{{field}}`, `{{{field}}}`, `{{&field}}`, sections and comments, over a document and `_ingest`.
//!
//! A [`MustacheTemplate`] makes a text, a [`ValueTemplate`] a JSON value whose texts are templates, a [`PathTemplate`] a
//! [`FieldPath`]. As in OpenSearch, `{{field}}` escapes its text for JSON, and a missing field is an empty text.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::document::{FieldPath, IngestDocument};
use crate::error::{ProcessorError, Result};
use crate::java;

/// Deepest nesting of sections.
const MAX_SECTIONS: usize = 16;

/// A compiled template.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MustacheTemplate {
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Text(String),
    Variable { path: Vec<String>, escaped: bool },
    Section { path: Vec<String>, inverted: bool, nodes: Vec<Node> },
}

/// A tag between `{{` and `}}`.
enum Tag<'a> {
    Variable(&'a str, bool),
    Section(&'a str, bool),
    End(&'a str),
    Comment,
}

fn wrong(text: &str, reason: &str) -> ProcessorError {
    ProcessorError::new(400, "script_exception", "compile error")
        .with("script", text)
        .with("lang", "mustache")
        .caused_by("mustache_exception", reason)
}

impl MustacheTemplate {
    /// Compiles a template.
    ///
    /// # Errors
    /// A tag that is not closed or not supported.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut rest = text;
        let mut open: Vec<(Vec<String>, bool, Vec<Node>)> = Vec::new();
        let mut nodes = Vec::new();
        while let Some(at) = rest.find("{{") {
            let (before, from) = rest.split_at(at);
            if !before.is_empty() {
                nodes.push(Node::Text(before.to_owned()));
            }
            let (tag, behind) = read_tag(text, from)?;
            rest = behind;
            match tag {
                Tag::Comment => {}
                Tag::Variable(name, escaped) => nodes.push(Node::Variable { path: path_of(name), escaped }),
                Tag::Section(name, inverted) => {
                    if open.len() == MAX_SECTIONS {
                        return Err(wrong(text, "sections are nested too deeply"));
                    }
                    open.push((path_of(name), inverted, std::mem::take(&mut nodes)));
                }
                Tag::End(name) => match open.pop() {
                    Some((path, inverted, outer)) if path == path_of(name) => {
                        let inner = std::mem::replace(&mut nodes, outer);
                        nodes.push(Node::Section { path, inverted, nodes: inner });
                    }
                    _ => return Err(wrong(text, &format!("no section [{name}] is open"))),
                },
            }
        }
        if let Some((path, ..)) = open.pop() {
            return Err(wrong(text, &format!("the section [{}] is not closed", path.join("."))));
        }
        if !rest.is_empty() {
            nodes.push(Node::Text(rest.to_owned()));
        }
        Ok(Self { nodes })
    }

    /// Returns the text of a template without tags.
    pub(crate) fn constant(&self) -> Option<&str> {
        match self.nodes.as_slice() {
            [] => Some(""),
            [Node::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Renders the template.
    ///
    /// # Errors
    /// The text is larger than what a document may take.
    pub(crate) fn render(&self, document: &mut IngestDocument) -> Result<String> {
        if let Some(text) = self.constant() {
            return Ok(text.to_owned());
        }
        let mut budget = document.budget.clone();
        let mut out = String::new();
        let mut scopes = Vec::new();
        render(&self.nodes, document, &mut scopes, &mut out, &mut budget)?;
        document.budget = budget;
        Ok(out)
    }
}

fn read_tag<'a>(whole: &str, from: &'a str) -> Result<(Tag<'a>, &'a str)> {
    let closed = |close: &str| {
        from.find(close).map(|at| (at, close.len())).ok_or_else(|| wrong(whole, "a tag is not closed"))
    };
    if from.starts_with("{{{") {
        let (at, length) = closed("}}}")?;
        let name = from.get(3..at).unwrap_or_default().trim();
        return Ok((Tag::Variable(name, false), from.get(at + length..).unwrap_or_default()));
    }
    let (at, length) = closed("}}")?;
    let inner = from.get(2..at).unwrap_or_default().trim();
    let behind = from.get(at + length..).unwrap_or_default();
    let name = |prefix: char| inner.trim_start_matches(prefix).trim();
    let tag = match inner.chars().next() {
        Some('!') => Tag::Comment,
        Some('&') => Tag::Variable(name('&'), false),
        Some('#') => Tag::Section(name('#'), false),
        Some('^') => Tag::Section(name('^'), true),
        Some('/') => Tag::End(name('/')),
        Some('>' | '=') => return Err(wrong(whole, &format!("the tag [{inner}] is not supported"))),
        _ => Tag::Variable(inner, true),
    };
    if let Tag::Section(name, _) = &tag
        && matches!(*name, "toJson" | "join" | "url")
    {
        return Err(wrong(whole, &format!("the function [{name}] is not supported in pipelines")));
    }
    Ok((tag, behind))
}

fn path_of(name: &str) -> Vec<String> {
    if name == "." { Vec::new() } else { name.split('.').map(str::to_owned).collect() }
}

fn render(
    nodes: &[Node],
    document: &IngestDocument,
    scopes: &mut Vec<Value>,
    out: &mut String,
    budget: &mut crate::document::WorkBudget,
) -> Result<()> {
    for node in nodes {
        budget.step()?;
        let before = out.len();
        match node {
            Node::Text(text) => out.push_str(text),
            Node::Variable { path, escaped } => {
                if let Some(value) = find(path, document, scopes)
                    && !value.is_null()
                {
                    let text = display(&value);
                    if *escaped { escape(&text, out) } else { out.push_str(&text) }
                }
            }
            Node::Section { path, inverted, nodes } => {
                let value = find(path, document, scopes).map(Cow::into_owned).unwrap_or_default();
                let is_empty = match &value {
                    Value::Null | Value::Bool(false) => true,
                    Value::String(text) => text.is_empty(),
                    Value::Array(items) => items.is_empty(),
                    _ => false,
                };
                match (inverted, value) {
                    (true, _) if is_empty => render(nodes, document, scopes, out, budget)?,
                    (true, _) => {}
                    (false, _) if is_empty => {}
                    (false, Value::Array(items)) => {
                        for item in items {
                            scopes.push(item);
                            let rendered = render(nodes, document, scopes, out, budget);
                            scopes.pop();
                            rendered?;
                        }
                    }
                    (false, value) => {
                        scopes.push(value);
                        let rendered = render(nodes, document, scopes, out, budget);
                        scopes.pop();
                        rendered?;
                    }
                }
                continue;
            }
        }
        budget.charge(out.len() - before)?;
    }
    Ok(())
}

fn find<'v>(path: &[String], document: &'v IngestDocument, scopes: &'v [Value]) -> Option<Cow<'v, Value>> {
    let Some((first, rest)) = path.split_first() else { return scopes.last().map(Cow::Borrowed) };
    for scope in scopes.iter().rev() {
        if let Some(value) = scope.get(first) {
            return walk(value, rest).map(Cow::Borrowed);
        }
    }
    match (first.as_str(), rest) {
        ("_ingest", []) => Some(Cow::Owned(Value::Object(document.ingest.clone()))),
        ("_source", []) => Some(Cow::Owned(Value::Object(document.fields.clone()))),
        ("_ingest", [name, rest @ ..]) => walk(document.ingest.get(name)?, rest).map(Cow::Borrowed),
        ("_source", [name, rest @ ..]) => walk(document.fields.get(name)?, rest).map(Cow::Borrowed),
        (name, rest) => walk(document.fields.get(name)?, rest).map(Cow::Borrowed),
    }
}

fn walk<'v>(value: &'v Value, path: &[String]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, name| match value {
        Value::Array(items) => items.get(name.parse::<usize>().ok()?),
        other => other.get(name),
    })
}

/// Writes a value as OpenSearch's templates show it: a list as the map of its positions.
fn display(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        Value::Array(items) => {
            let members = items.iter().enumerate().map(|(at, item)| format!("{at}={}", display(item)));
            Cow::Owned(format!("{{{}}}", members.collect::<Vec<_>>().join(", ")))
        }
        Value::Object(members) => {
            let members = members.iter().map(|(name, member)| format!("{name}={}", display(member)));
            Cow::Owned(format!("{{{}}}", members.collect::<Vec<_>>().join(", ")))
        }
        other => Cow::Owned(java::text_of(other)),
    }
}

fn escape(text: &str, out: &mut String) {
    let quoted = Value::from(text).to_string();
    out.push_str(quoted.get(1..quoted.len() - 1).unwrap_or_default());
}

/// A JSON value whose texts are templates.
#[derive(Clone, Debug)]
pub(crate) enum ValueTemplate {
    Literal(Value),
    Text(MustacheTemplate),
    List(Vec<ValueTemplate>),
    Object(Vec<(MustacheTemplate, ValueTemplate)>),
}

impl ValueTemplate {
    /// Compiles the templates of a value.
    pub(crate) fn parse(value: &Value) -> Result<Self> {
        Ok(match value {
            Value::String(text) => {
                let template = MustacheTemplate::parse(text)?;
                match template.constant() {
                    Some(text) => Self::Literal(text.into()),
                    None => Self::Text(template),
                }
            }
            Value::Array(items) => Self::List(items.iter().map(Self::parse).collect::<Result<_>>()?),
            Value::Object(members) => Self::Object(
                members
                    .iter()
                    .map(|(name, member)| Ok((MustacheTemplate::parse(name)?, Self::parse(member)?)))
                    .collect::<Result<_>>()?,
            ),
            other => Self::Literal(other.clone()),
        })
    }

    /// Renders the value.
    pub(crate) fn render(&self, document: &mut IngestDocument) -> Result<Value> {
        Ok(match self {
            Self::Literal(value) => value.clone(),
            Self::Text(template) => Value::String(template.render(document)?),
            Self::List(items) => {
                Value::Array(items.iter().map(|item| item.render(document)).collect::<Result<_>>()?)
            }
            Self::Object(members) => {
                let mut object = Map::new();
                for (name, member) in members {
                    object.insert(name.render(document)?, member.render(document)?);
                }
                Value::Object(object)
            }
        })
    }
}

/// A path whose text is a template.
#[derive(Clone, Debug)]
pub(crate) enum PathTemplate {
    Constant(FieldPath),
    Template(MustacheTemplate),
}

impl PathTemplate {
    /// Compiles a path.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let template = MustacheTemplate::parse(text)?;
        match template.constant() {
            Some(text) => FieldPath::parse(text).map(Self::Constant),
            None => Ok(Self::Template(template)),
        }
    }

    /// Returns the path for a document.
    pub(crate) fn resolve<'a>(&'a self, document: &mut IngestDocument) -> Result<Cow<'a, FieldPath>> {
        match self {
            Self::Constant(path) => Ok(Cow::Borrowed(path)),
            Self::Template(template) => FieldPath::parse(&template.render(document)?).map(Cow::Owned),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{MustacheTemplate, ValueTemplate};
    use crate::document::IngestDocument;

    fn document(source: Value) -> IngestDocument {
        let Value::Object(source) = source else { return IngestDocument::new(Map::new(), [], String::new()) };
        IngestDocument::new(source, [("_id", "7".into())], "now".to_owned())
    }

    #[test]
    fn templates_render_as_in_opensearch() {
        let mut document = document(json!({
            "a": "q\"<x>", "m": {"j": "s", "k": 1}, "l": [1, "b", null], "t": true, "p": [{"n": 1}, {"n": 2}]
        }));
        for (template, expected) in [
            ("{{a}}|{{{a}}}|{{&a}}", "q\\\"<x>|q\"<x>|q\"<x>"),
            ("{{m}}|{{l}}|{{zz}}|{{l.1}}", "{j=s, k=1}|{0=1, 1=b, 2=null}||b"),
            ("{{_ingest.timestamp}} {{_id}} {{_source.m.k}}", "now 7 1"),
            ("{{#t}}y{{/t}}{{^t}}n{{/t}}{{^zz}}z{{/zz}}{{! c }}", "yz"),
            ("{{#p}}<{{n}}>{{/p}}", "<1><2>"),
            ("{{#l}}{{.}},{{/l}}", "1,b,,"),
        ] {
            let rendered = MustacheTemplate::parse(template).and_then(|t| t.render(&mut document)).unwrap();
            assert_eq!(rendered, expected, "{template}");
        }
        let value = ValueTemplate::parse(&json!({"{{t}}": ["{{m.k}}", 3]})).unwrap();
        assert_eq!(value.render(&mut document).unwrap(), json!({"true": ["1", 3]}));
    }

    #[test]
    fn wrong_templates_are_refused() {
        for template in ["{{a", "{{{a}}", "{{#a}}", "{{/a}}", "{{> a}}", "{{#toJson}}a{{/toJson}}"] {
            assert!(MustacheTemplate::parse(template).is_err(), "{template}");
        }
    }

    #[test]
    fn growth_is_bounded() {
        let mut document = document(json!({"a": "x".repeat(1 << 20)}));
        let template = MustacheTemplate::parse(&"{{a}}".repeat(100)).unwrap();
        let error = template.render(&mut document).unwrap_err();
        assert!(error.reason().contains("bytes"), "{error}");
    }
}
