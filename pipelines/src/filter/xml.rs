//! `xml`: reads XML into a field, as Ruby's `XmlSimple` does, and takes values out of it by XPath.

mod tree;
mod xpath;

use std::collections::HashSet;
use std::sync::Arc;

use millrace_ingest::{Event, Fault, FieldReference, Options};
use roxmltree::{Document, ParsingOptions};
use serde_json::Value;

use super::settings::required_field;
use super::{Filter, Outcome};
use tree::TreeOptions;
use xpath::{Selection, XPath};

/// Tag of events whose text is no XML.
const FAILURE: &str = "_xmlparsefailure";
/// Longest text that is read, in bytes.
const MAX_TEXT_BYTES: usize = 16 << 20;
/// Most nodes of a document.
const MAX_NODES: u32 = 1_000_000;
/// Most prefixes of namespaces in a document: each element is compared with those in scope.
const MAX_PREFIXES: usize = 64;
/// Longest prefix of a namespace, in characters.
const MAX_PREFIX_LENGTH: usize = 256;
/// Options of libxml2 that steer what it reports or repairs.
const PARSE_OPTIONS: [&str; 16] = [
    "recover",
    "strict",
    "nonet",
    "noerror",
    "nowarning",
    "pedantic",
    "noblanks",
    "nocdata",
    "huge",
    "noent",
    "defaultxml",
    "defaulthtml",
    "nobasefix",
    "compact",
    "nodict",
    "nsclean",
];

#[derive(Debug)]
struct Xml {
    source: FieldReference,
    target: Option<FieldReference>,
    paths: Vec<(XPath, FieldReference)>,
    tree: TreeOptions,
    force_array: bool,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Filter>, Vec<Fault>> {
    let source = required_field(&mut options, "source");
    let target = options.field("target");
    let store = options.boolean("store_xml").unwrap_or(true);
    if store && target.is_none() {
        options.fault_here("[xml] needs the option [target], or [store_xml => false]");
    }
    let ignores_namespaces = options.boolean("remove_namespaces").unwrap_or(false);
    let mut namespaces = Vec::new();
    for (prefix, uri) in options.hash("namespaces") {
        namespaces.push((prefix, uri.as_text().unwrap_or_default()));
    }
    let mut paths = Vec::new();
    for (path, field) in options.hash("xpath") {
        let compiled = XPath::compile(&path, &namespaces, ignores_namespaces);
        let field = field
            .as_text()
            .map_or(Err("a field reference is needed".to_owned()), |field| FieldReference::parse(&field));
        match (compiled, field) {
            (Ok(compiled), Ok(field)) => paths.push((compiled, field)),
            (compiled, field) => {
                for problem in [compiled.err(), field.err()].into_iter().flatten() {
                    options.fault_here(format!("option [xpath] of [xml], [{path}]: {problem}"));
                }
            }
        }
    }
    let force_array = options.boolean("force_array").unwrap_or(true);
    let tree = TreeOptions {
        force_array,
        force_content: options.boolean("force_content").unwrap_or(false),
        suppress_empty: options.boolean("suppress_empty").unwrap_or(true),
    };
    if let Some(given) = options.text("parse_options") {
        for name in given.split([',', '|']).map(|name| name.trim().replace('_', "").to_lowercase()) {
            if !name.is_empty() && !PARSE_OPTIONS.contains(&name.as_str()) {
                options.fault_here(format!(
                    "option [parse_options] of [xml]: [{name}] is not supported; documents are read strictly, without a network"
                ));
            }
        }
    }
    options.finish()?;
    let Some(source) = source else { return Err(Vec::new()) };
    Ok(Arc::new(Xml { source, target: target.filter(|_| store), paths, tree, force_array }))
}

impl Xml {
    /// Reads a text. Returns whether anything was set.
    ///
    /// # Errors
    /// The text is no XML, or a field cannot be set.
    fn read(&self, event: &mut Event, text: &str) -> Result<bool, String> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(format!("the text exceeds {MAX_TEXT_BYTES} bytes"));
        }
        check_prefixes(text)?;
        // Entities could expand to any number of bytes.
        let options =
            ParsingOptions { allow_dtd: false, nodes_limit: MAX_NODES, ..ParsingOptions::default() };
        let document =
            Document::parse_with_options(text.trim_start(), options).map_err(|error| error.to_string())?;
        let mut is_matched = false;
        for (path, field) in &self.paths {
            let values = match path.select(&document)? {
                Selection::Nodes(values) => values,
                Selection::Single(value) => vec![value],
            };
            is_matched |= !values.is_empty();
            let value = match <[Value; 1]>::try_from(values) {
                Ok([single]) if !self.force_array => single,
                Ok([single]) => Value::Array(vec![single]),
                Err(values) if values.is_empty() => continue,
                Err(values) => Value::Array(values),
            };
            event.set(field, value)?;
        }
        if let Some(target) = &self.target {
            event.set(target, self.tree.read(document.root_element())?)?;
            is_matched = true;
        }
        Ok(is_matched)
    }
}

/// Checks the number of prefixes before the text is parsed, for the parser compares them.
///
/// # Errors
/// The text declares too many prefixes, or too long ones.
fn check_prefixes(text: &str) -> Result<(), String> {
    let mut prefixes = HashSet::new();
    for (at, name) in text.match_indices("xmlns") {
        let rest = text.get(at + name.len()..).unwrap_or_default();
        if !rest.starts_with([':', '=']) && !rest.starts_with(char::is_whitespace) {
            continue;
        }
        let is_end = |letter: &char| matches!(letter, '=' | '<' | '>') || letter.is_whitespace();
        let mut letters = rest.chars().take(MAX_PREFIX_LENGTH);
        let prefix: String = letters.by_ref().take_while(|letter| !is_end(letter)).collect();
        if prefix.chars().count() == MAX_PREFIX_LENGTH {
            return Err(format!("a prefix of a namespace exceeds {MAX_PREFIX_LENGTH} characters"));
        }
        prefixes.insert(prefix);
        if prefixes.len() > MAX_PREFIXES {
            return Err(format!("the text declares more than {MAX_PREFIXES} prefixes of namespaces"));
        }
    }
    Ok(())
}

impl Filter for Xml {
    fn apply(&self, event: &mut Event, _made: &mut Vec<Event>) -> Outcome {
        let text = match event.get(&self.source).as_deref() {
            None | Some(Value::Null) => return Outcome::Unmatched,
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(elements)) => match elements.as_slice() {
                [Value::String(text)] => text.clone(),
                _ => {
                    event.tag(FAILURE);
                    return Outcome::Unmatched;
                }
            },
            Some(_) => {
                event.tag(FAILURE);
                return Outcome::Unmatched;
            }
        };
        if text.trim().is_empty() {
            return Outcome::Unmatched;
        }
        match self.read(event, &text) {
            Ok(true) => Outcome::Matched,
            Ok(false) => Outcome::Unmatched,
            Err(reason) => {
                tracing::debug!(reason, "the filter xml did not read a text");
                event.tag(FAILURE);
                Outcome::Unmatched
            }
        }
    }
}
