//! Elements as objects, in the form of Ruby's `XmlSimple`: attributes and children are members, text is `content` beside attributes.

use std::collections::HashMap;

use roxmltree::Node;
use serde_json::{Map, Value};

/// Deepest nesting of elements.
const MAX_DEPTH: usize = 200;
/// Member for the text of an element that has attributes, too.
const CONTENT: &str = "content";

/// Form of the objects.
#[derive(Debug)]
pub(super) struct TreeOptions {
    /// Children are arrays, also where there is one of a name.
    pub(super) force_array: bool,
    /// Text is always a member.
    pub(super) force_content: bool,
    /// Elements without content are left out.
    pub(super) suppress_empty: bool,
}

impl TreeOptions {
    /// Reads an element.
    ///
    /// # Errors
    /// Elements are nested too deeply.
    pub(super) fn read(&self, element: Node<'_, '_>) -> Result<Value, String> {
        self.element(element, MAX_DEPTH)
    }

    fn element(&self, element: Node<'_, '_>, depth: usize) -> Result<Value, String> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(format!("elements are nested deeper than {MAX_DEPTH} levels"));
        };
        let mut members = attributes(element);
        let has_attributes = !members.is_empty();
        let text: String =
            element.children().filter(|child| child.is_text()).filter_map(|child| child.text()).collect();
        if element.children().any(|child| child.is_element()) {
            for child in element.children().filter(Node::is_element) {
                let value = self.element(child, depth)?;
                if is_empty(&value) && !has_attributes && self.suppress_empty {
                    continue;
                }
                self.merge(&mut members, qualified_name(child), value);
            }
            if !text.trim().is_empty() {
                members.insert(CONTENT.to_owned(), mixed_content(element));
            }
        } else if element.children().any(|child| child.is_text()) {
            let is_blank = text.trim().is_empty();
            match (is_blank, has_attributes) {
                (true, false) => return Ok(Value::Object(Map::new())),
                (_, false) if !self.force_content => return Ok(Value::String(text)),
                _ => {
                    members.insert(CONTENT.to_owned(), Value::String(text));
                    return Ok(Value::Object(members));
                }
            }
        }
        if members.is_empty() && self.suppress_empty {
            return Ok(Value::Null);
        }
        Ok(Value::Object(members))
    }

    fn merge(&self, members: &mut Map<String, Value>, name: String, value: Value) {
        match members.get_mut(&name) {
            Some(Value::Array(values)) => values.push(value),
            Some(single) => *single = Value::Array(vec![single.take(), value]),
            None if self.force_array && name != CONTENT => {
                members.insert(name, Value::Array(vec![value]));
            }
            None => {
                members.insert(name, value);
            }
        }
    }
}

/// Text between elements: one text, or an array of several.
fn mixed_content(element: Node<'_, '_>) -> Value {
    let texts = element.children().filter(|child| child.is_text()).filter_map(|child| child.text());
    let mut texts: Vec<Value> = texts.map(Value::from).collect();
    match texts.len() {
        1 => texts.remove(0),
        _ => Value::Array(texts),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.trim().is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

/// Attributes of an element, and the namespaces that it declares.
fn attributes(element: Node<'_, '_>) -> Map<String, Value> {
    let mut members = Map::new();
    let outer = element.parent_element();
    let outer: HashMap<Option<&str>, &str> = match outer {
        // Most elements declare nothing.
        Some(outer) if outer.namespaces().eq(element.namespaces()) => {
            return with_attributes(element, members);
        }
        Some(outer) => outer.namespaces().map(|outer| (outer.name(), outer.uri())).collect(),
        None => HashMap::new(),
    };
    for namespace in element.namespaces() {
        let is_declared_here = outer.get(&namespace.name()) != Some(&namespace.uri());
        if is_declared_here && namespace.name() != Some("xml") {
            let name = namespace.name().map_or_else(|| "xmlns".to_owned(), |name| format!("xmlns:{name}"));
            members.insert(name, Value::from(namespace.uri()));
        }
    }
    with_attributes(element, members)
}

/// Adds the attributes of an element.
fn with_attributes(element: Node<'_, '_>, mut members: Map<String, Value>) -> Map<String, Value> {
    for attribute in element.attributes() {
        let prefix = attribute.namespace().and_then(|uri| element.lookup_prefix(uri));
        let name = prefix
            .map_or_else(|| attribute.name().to_owned(), |prefix| format!("{prefix}:{}", attribute.name()));
        members.insert(name, Value::from(attribute.value()));
    }
    members
}

fn qualified_name(element: Node<'_, '_>) -> String {
    element.tag_name().name().to_owned()
}
