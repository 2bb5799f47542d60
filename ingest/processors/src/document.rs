//! Documents on their way through pipelines.
//!
//! An [`IngestDocument`] holds the source and the metadata of a document in one map, as OpenSearch does, and `_ingest` beside
//! it. A [`FieldPath`] names a value in either. A [`WorkBudget`] bounds the work and the memory that pipelines spend on a document.

use std::time::Duration;

use millrace_runtime::Instant;
use serde_json::{Map, Value};

use crate::error::{ProcessorError, Result};
use crate::java;

/// Most processors and steps of scripts that run for one document.
const MAX_STEPS: u64 = 1_000_000;
/// Most bytes that pipelines add to one document, replaced values included.
const MAX_BYTES: usize = 64 << 20;
/// Most bytes of the texts and lists that pipelines read for one document.
const MAX_READ_BYTES: usize = 1 << 30;
/// Time after which no further processor begins for a document. One processor matches patterns for a second at most.
const MAX_TIME: Duration = Duration::from_secs(10);
/// Steps between two looks at the clock.
const STEPS_PER_CLOCK: u64 = 256;
/// Deepest nesting of a value.
pub(crate) const MAX_DEPTH: usize = 100;
/// Bytes that a value takes beside its text.
pub(crate) const VALUE_BYTES: usize = 32;

/// Metadata fields, in the order in which simulations show them.
pub const METADATA: [&str; 7] =
    ["_index", "_id", "_routing", "_version", "_version_type", "_if_seq_no", "_if_primary_term"];

/// Work and memory that is left for a document.
#[derive(Clone, Debug)]
pub(crate) struct WorkBudget {
    steps: u64,
    bytes: usize,
    read_bytes: usize,
    began: Option<Instant>,
}

impl Default for WorkBudget {
    fn default() -> Self {
        Self { steps: MAX_STEPS, bytes: MAX_BYTES, read_bytes: MAX_READ_BYTES, began: None }
    }
}

impl WorkBudget {
    /// Spends a step.
    pub(crate) fn step(&mut self) -> Result<()> {
        match self.steps.checked_sub(1) {
            Some(left) => {
                self.steps = left;
                if left.is_multiple_of(STEPS_PER_CLOCK) { self.check_time() } else { Ok(()) }
            }
            None => Err(ProcessorError::exceeded(format!(
                "the pipelines of a document take more than {MAX_STEPS} steps"
            ))),
        }
    }

    /// Spends the step of a processor, which begins only while there is time.
    pub(crate) fn begin_processor(&mut self) -> Result<()> {
        self.check_time()?;
        self.step()
    }

    /// Refuses more work for a document that takes too long.
    fn check_time(&mut self) -> Result<()> {
        let now = Instant::now();
        let began = *self.began.get_or_insert(now);
        if now.saturating_duration_since(began) > MAX_TIME {
            let seconds = MAX_TIME.as_secs();
            return Err(ProcessorError::exceeded(format!(
                "the pipelines of a document take longer than {seconds} s"
            )));
        }
        Ok(())
    }

    /// Spends bytes.
    pub(crate) fn charge(&mut self, bytes: usize) -> Result<()> {
        match self.bytes.checked_sub(bytes) {
            Some(left) => {
                self.bytes = left;
                Ok(())
            }
            None => Err(ProcessorError::exceeded(format!(
                "the pipelines of a document make values of more than {MAX_BYTES} bytes"
            ))),
        }
    }

    /// Refuses a value of more bytes than are left, before it is made.
    pub(crate) fn check_bytes(&self, bytes: usize) -> Result<()> {
        self.clone().charge(bytes)
    }

    /// Spends bytes that are read.
    pub(crate) fn charge_read(&mut self, bytes: usize) -> Result<()> {
        match self.read_bytes.checked_sub(bytes) {
            Some(left) => {
                self.read_bytes = left;
                Ok(())
            }
            None => Err(ProcessorError::exceeded(format!(
                "the pipelines of a document read more than {MAX_READ_BYTES} bytes"
            ))),
        }
    }

    /// Spends the bytes of a value that is put at a depth.
    pub(crate) fn charge_value(&mut self, value: &Value, depth: usize) -> Result<()> {
        self.charge(measure(value, depth)?)
    }
}

/// Returns the bytes of a value.
///
/// # Errors
/// The value is nested too deeply.
pub(crate) fn measure(value: &Value, depth: usize) -> Result<usize> {
    if depth > MAX_DEPTH {
        return Err(ProcessorError::exceeded(format!("a value is nested deeper than {MAX_DEPTH} levels")));
    }
    Ok(VALUE_BYTES
        + match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(text) => text.len(),
            Value::Array(items) => {
                let mut bytes = 0;
                for item in items {
                    bytes += measure(item, depth + 1)?;
                }
                bytes
            }
            Value::Object(members) => {
                let mut bytes = 0;
                for (name, member) in members {
                    bytes += name.len() + measure(member, depth + 1)?;
                }
                bytes
            }
        })
}

/// A document within a pipeline.
#[derive(Clone, Debug)]
pub struct IngestDocument {
    /// Source and metadata.
    pub(crate) fields: Map<String, Value>,
    /// `_ingest`.
    pub(crate) ingest: Map<String, Value>,
    pub(crate) budget: WorkBudget,
}

/// A path to a value: names and positions between dots, below the document or below `_ingest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldPath {
    text: String,
    in_ingest: bool,
    elements: Vec<String>,
}

impl FieldPath {
    /// Reads a path.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        if text.is_empty() {
            return Err(ProcessorError::illegal_argument("path cannot be null nor empty"));
        }
        let (in_ingest, rest) = match text.strip_prefix("_ingest.") {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix("_source.").unwrap_or(text)),
        };
        let mut elements: Vec<String> = rest.split('.').map(str::to_owned).collect();
        while elements.last().is_some_and(String::is_empty) {
            elements.pop();
        }
        if elements.is_empty() {
            return Err(ProcessorError::illegal_argument(format!("path [{text}] is not valid")));
        }
        if elements.len() > MAX_DEPTH {
            return Err(ProcessorError::exceeded(format!("a path has more than {MAX_DEPTH} elements")));
        }
        Ok(Self { text: text.to_owned(), in_ingest, elements })
    }

    /// Returns the path as it was written.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the last element and those before it.
    fn leaf(&self) -> (&str, &[String]) {
        self.elements.split_last().map_or(("", &[][..]), |(leaf, parents)| (leaf.as_str(), parents))
    }

    /// Returns the name where the path is a metadata field.
    pub(crate) fn metadata(&self) -> Option<&str> {
        match self.elements.as_slice() {
            [name] if !self.in_ingest => METADATA.into_iter().find(|metadata| metadata == name),
            _ => None,
        }
    }

    fn out_of_bounds(&self, element: &str, length: usize) -> ProcessorError {
        let text = &self.text;
        ProcessorError::illegal_argument(format!(
            "[{element}] is out of bounds for array with length [{length}] as part of path [{text}]"
        ))
    }

    fn not_a_position(&self, element: &str) -> ProcessorError {
        let text = &self.text;
        ProcessorError::illegal_argument(format!(
            "[{element}] is not an integer, cannot be used as an index as part of path [{text}]"
        ))
        .caused_by("number_format_exception", format!("For input string: \"{element}\""))
    }

    /// Returns the position that an element names in a list.
    fn position(&self, element: &str, length: usize) -> Result<usize> {
        let position: i64 = element.parse().map_err(|_| self.not_a_position(element))?;
        match usize::try_from(position) {
            Ok(position) if position < length => Ok(position),
            _ => Err(self.out_of_bounds(element, length)),
        }
    }

    fn step<'v>(&self, value: &'v Value, element: &str) -> Result<&'v Value> {
        match value {
            Value::Object(members) => members.get(element).ok_or_else(|| self.missing(element)),
            Value::Array(items) => {
                let position = self.position(element, items.len())?;
                items.get(position).ok_or_else(|| self.out_of_bounds(element, items.len()))
            }
            other => Err(self.unresolved("resolve", element, other)),
        }
    }

    fn step_mut<'v>(&self, value: &'v mut Value, element: &str) -> Result<&'v mut Value> {
        match value {
            Value::Object(members) => members.get_mut(element).ok_or_else(|| self.missing(element)),
            Value::Array(items) => {
                let length = items.len();
                let position = self.position(element, length)?;
                items.get_mut(position).ok_or_else(|| self.out_of_bounds(element, length))
            }
            other => Err(self.unresolved("resolve", element, other)),
        }
    }

    fn missing(&self, element: &str) -> ProcessorError {
        let text = &self.text;
        ProcessorError::illegal_argument(format!("field [{element}] not present as part of path [{text}]"))
    }

    fn unresolved(&self, verb: &str, element: &str, value: &Value) -> ProcessorError {
        let text = &self.text;
        ProcessorError::illegal_argument(match value {
            Value::Null => format!("cannot {verb} [{element}] from null as part of path [{text}]"),
            other => format!(
                "cannot {verb} [{element}] from object of type [{}] as part of path [{text}]",
                java::type_name(other)
            ),
        })
    }

    fn unset(&self, element: &str, value: &Value) -> ProcessorError {
        let text = &self.text;
        ProcessorError::illegal_argument(match value {
            Value::Null => format!("cannot set [{element}] with null parent as part of path [{text}]"),
            other => format!(
                "cannot set [{element}] with parent object of type [{}] as part of path [{text}]",
                java::type_name(other)
            ),
        })
    }
}

impl IngestDocument {
    /// Makes a document of its source and metadata. `timestamp` becomes `_ingest.timestamp`.
    pub fn new(
        source: Map<String, Value>,
        metadata: impl IntoIterator<Item = (&'static str, Value)>,
        timestamp: String,
    ) -> Self {
        let mut fields = source;
        for (name, value) in metadata {
            fields.insert(name.to_owned(), value);
        }
        let mut ingest = Map::new();
        ingest.insert("timestamp".to_owned(), Value::String(timestamp));
        Self { fields, ingest, budget: WorkBudget::default() }
    }

    /// Returns a metadata field.
    pub fn metadata(&self, name: &str) -> Option<&Value> {
        self.fields.get(name)
    }

    /// Takes the metadata out and returns it with the source.
    pub fn into_parts(mut self) -> (Map<String, Value>, Vec<(&'static str, Value)>) {
        let metadata =
            METADATA.into_iter().filter_map(|name| Some((name, self.fields.shift_remove(name)?))).collect();
        (self.fields, metadata)
    }

    /// Renders the document as simulations show it.
    pub fn render(&self) -> Value {
        let mut out = Map::new();
        let mut source = self.fields.clone();
        for name in METADATA {
            if let Some(value) = source.shift_remove(name)
                && !value.is_null()
            {
                let text = if value.is_string() { value } else { java::text_of(&value).into() };
                out.insert(name.to_owned(), text);
            }
        }
        out.insert("_source".to_owned(), Value::Object(source));
        out.insert("_ingest".to_owned(), Value::Object(self.ingest.clone()));
        Value::Object(out)
    }

    fn root(&self, path: &FieldPath) -> &Map<String, Value> {
        if path.in_ingest { &self.ingest } else { &self.fields }
    }

    /// Returns a value.
    pub(crate) fn get(&self, path: &FieldPath) -> Result<&Value> {
        let (first, rest) = path.elements.split_first().ok_or_else(|| path.missing(""))?;
        let mut value = self.root(path).get(first).ok_or_else(|| path.missing(first))?;
        for element in rest {
            value = path.step(value, element)?;
        }
        Ok(value)
    }

    /// Returns a value to change.
    pub(crate) fn get_mut(&mut self, path: &FieldPath) -> Result<&mut Value> {
        let (first, rest) = path.elements.split_first().ok_or_else(|| path.missing(""))?;
        let root = if path.in_ingest { &mut self.ingest } else { &mut self.fields };
        let mut value = root.get_mut(first).ok_or_else(|| path.missing(first))?;
        for element in rest {
            value = path.step_mut(value, element)?;
        }
        Ok(value)
    }

    /// Returns the first path on the way to a value that has a value which is no object.
    pub(crate) fn value_parent(&self, path: &FieldPath) -> Option<String> {
        let (_, parents) = path.leaf();
        let (first, rest) = parents.split_first()?;
        let mut value = self.root(path).get(first)?;
        let mut walked = first.clone();
        for element in rest {
            if !value.is_object() {
                break;
            }
            value = value.get(element)?;
            walked = format!("{walked}.{element}");
        }
        (!value.is_object()).then_some(walked)
    }

    /// Returns a value that may be missing.
    pub(crate) fn find(&self, path: &FieldPath) -> Option<&Value> {
        self.get(path).ok()
    }

    /// Returns whether there is a value, be it null.
    pub(crate) fn has(&self, path: &FieldPath) -> bool {
        self.get(path).is_ok()
    }

    /// Puts a value; objects on the way to it are made.
    pub(crate) fn set(&mut self, path: &FieldPath, value: Value) -> Result<()> {
        self.budget.charge_value(&value, path.elements.len())?;
        let (leaf, parents) = path.leaf();
        let root = if path.in_ingest { &mut self.ingest } else { &mut self.fields };
        let Some((first, rest)) = parents.split_first() else {
            root.insert(leaf.to_owned(), value);
            return Ok(());
        };
        let mut parent = root.entry(first.as_str()).or_insert_with(|| Value::Object(Map::new()));
        for element in rest {
            parent = match parent {
                Value::Object(members) => {
                    members.entry(element.as_str()).or_insert_with(|| Value::Object(Map::new()))
                }
                Value::Array(_) => path.step_mut(parent, element)?,
                other => return Err(path.unresolved("resolve", element, other)),
            };
        }
        match parent {
            Value::Object(members) => drop(members.insert(leaf.to_owned(), value)),
            Value::Array(items) => {
                let length = items.len();
                let position = path.position(leaf, length)?;
                if let Some(item) = items.get_mut(position) {
                    *item = value;
                }
            }
            other => return Err(path.unset(leaf, other)),
        }
        Ok(())
    }

    /// Appends values: to a list, or to the list that a single value becomes.
    pub(crate) fn append(&mut self, path: &FieldPath, values: Vec<Value>, duplicates: bool) -> Result<()> {
        if !self.has(path) {
            self.set(path, Value::Array(Vec::new()))?;
        }
        let mut list = match self.get_mut(path)? {
            Value::Array(items) => std::mem::take(items),
            single => vec![single.take()],
        };
        let pushed = self.push_values(&mut list, path.elements.len() + 1, values, duplicates);
        *self.get_mut(path)? = Value::Array(list);
        pushed
    }

    /// Pushes values into a list whose items are at a depth.
    fn push_values(
        &mut self,
        list: &mut Vec<Value>,
        depth: usize,
        values: Vec<Value>,
        duplicates: bool,
    ) -> Result<()> {
        for value in values {
            if !duplicates {
                self.budget.charge_read(list.len().saturating_mul(VALUE_BYTES))?;
                if list.contains(&value) {
                    continue;
                }
            }
            self.budget.charge_value(&value, depth)?;
            list.push(value);
        }
        Ok(())
    }

    /// Removes a value and returns it.
    pub(crate) fn remove(&mut self, path: &FieldPath) -> Result<Value> {
        let (leaf, parents) = path.leaf();
        let root = if path.in_ingest { &mut self.ingest } else { &mut self.fields };
        let Some((first, rest)) = parents.split_first() else {
            return root.shift_remove(leaf).ok_or_else(|| path.missing(leaf));
        };
        let mut parent = root.get_mut(first).ok_or_else(|| path.missing(first))?;
        for element in rest {
            parent = path.step_mut(parent, element)?;
        }
        match parent {
            Value::Object(members) => members.shift_remove(leaf).ok_or_else(|| path.missing(leaf)),
            Value::Array(items) => {
                let position = path.position(leaf, items.len())?;
                Ok(items.remove(position))
            }
            other => Err(path.unresolved("remove", leaf, other)),
        }
    }

    /// Returns a text; `Ok(None)` for a missing or null value that may be missing.
    pub(crate) fn text(&self, path: &FieldPath, may_miss: bool) -> Result<Option<&str>> {
        let value = match self.get(path) {
            Ok(Value::Null) | Err(_) if may_miss => return Ok(None),
            value => value?,
        };
        match value {
            Value::String(text) => Ok(Some(text)),
            Value::Null => Err(null_value(path, "process it")),
            other => Err(not_castable(path, other, "java.lang.String")),
        }
    }
}

/// Makes the refusal of a null value.
pub(crate) fn null_value(path: &FieldPath, action: &str) -> ProcessorError {
    ProcessorError::illegal_argument(format!("field [{}] is null, cannot {action}.", path.as_str()))
}

/// Makes the refusal of a value of another type.
pub(crate) fn not_castable(path: &FieldPath, value: &Value, wanted: &str) -> ProcessorError {
    ProcessorError::illegal_argument(format!(
        "field [{}] of type [{}] cannot be cast to [{wanted}]",
        path.as_str(),
        java::type_name(value)
    ))
}
