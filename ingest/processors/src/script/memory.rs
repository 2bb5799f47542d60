//! Lists and maps of a script.
//!
//! Texts and numbers are values; lists and maps are [`Reference`]s into the document, into the parameters, or into lists and
//! maps that the script made. A made list that is assigned to a field becomes that field: later changes reach both names.
//! Entries and views of a map (`entrySet()`, `keySet()`, `values()`) name the map, so that changes reach it.

use std::borrow::Cow;
use std::sync::Arc;

use chrono::{DateTime, FixedOffset, SecondsFormat};
use serde_json::{Map, Number, Value};

use super::evaluate::Machine;
use super::object::Object;
use super::tree::Node;
use crate::document::{MAX_DEPTH, VALUE_BYTES, measure};
use crate::error::{ProcessorError, Result};

/// Most lists and maps that one run of a script makes.
pub(super) const MAX_LOCALS: usize = 10_000;

/// A value of a script.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Operand {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(Arc<str>),
    Char(char),
    Reference(Reference),
    /// The keys, values or entries of a map.
    View(ViewKind, Reference),
    /// An entry of a map, by its key.
    Entry(Reference, Arc<str>),
    /// An object of the script, by its number.
    Object(usize),
    Time(DateTime<FixedOffset>),
    /// Nanoseconds.
    Duration(i64),
}

/// Elements of a view of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ViewKind {
    Keys,
    Values,
    Entries,
}

/// Position of a list or map.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reference {
    pub(super) root: Root,
    pub(super) path: Vec<PathStep>,
}

/// Start of a reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Root {
    Context,
    Params,
    Local(usize),
}

/// A step of a reference.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PathStep {
    Key(Arc<str>),
    Position(usize),
}

/// A list or map that the script made.
#[derive(Debug)]
pub(super) enum Local {
    Value(Value),
    /// It was assigned to a field.
    Alias(Reference),
}

impl Reference {
    /// The document.
    pub(super) fn context() -> Self {
        Self { root: Root::Context, path: Vec::new() }
    }

    /// The parameters of the script.
    pub(super) fn params() -> Self {
        Self { root: Root::Params, path: Vec::new() }
    }
}

impl Operand {
    /// Returns the value of a condition; otherwise the name of its type.
    pub(super) fn into_condition(self) -> Result<bool, &'static str> {
        match self {
            Self::Bool(flag) => Ok(flag),
            other => Err(other.type_name()),
        }
    }

    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "java.lang.Boolean",
            Self::Int(number) if i32::try_from(*number).is_ok() => "java.lang.Integer",
            Self::Int(_) => "java.lang.Long",
            Self::Double(_) => "java.lang.Double",
            Self::Text(_) => "java.lang.String",
            Self::Char(_) => "java.lang.Character",
            Self::Reference(_) => "java.util.Map",
            Self::View(ViewKind::Values, _) => "java.util.Collection",
            Self::View(..) => "java.util.Set",
            Self::Entry(..) => "java.util.Map.Entry",
            Self::Object(_) => "java.lang.Object",
            Self::Time(_) => "java.time.ZonedDateTime",
            Self::Duration(_) => "java.time.Duration",
        }
    }

    /// Returns the list or map that it names.
    pub(super) fn reference(&self) -> Option<&Reference> {
        match self {
            Self::Reference(reference) | Self::View(_, reference) | Self::Entry(reference, _) => {
                Some(reference)
            }
            _ => None,
        }
    }

    /// Returns the list or map that it names, to change it.
    pub(super) fn reference_mut(&mut self) -> Option<&mut Reference> {
        match self {
            Self::Reference(reference) | Self::View(_, reference) | Self::Entry(reference, _) => {
                Some(reference)
            }
            _ => None,
        }
    }

    pub(super) fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Char(letter) => Some(i64::from(u32::from(*letter))),
            _ => None,
        }
    }

    pub(super) fn as_double(&self) -> Option<f64> {
        match self {
            Self::Double(number) => Some(*number),
            other => other.as_int().map(|number| number as f64),
        }
    }
}

impl ViewKind {
    fn element(self, key: &str, member: &Value) -> Value {
        match self {
            Self::Keys => Value::from(key),
            Self::Values => member.clone(),
            Self::Entries => {
                let members = [("key".to_owned(), Value::from(key)), ("value".to_owned(), member.clone())];
                Value::Object(Map::from_iter(members))
            }
        }
    }
}

/// Writes a time as a document has it: with three digits of a second, or with as many as it needs.
fn document_time(time: &DateTime<FixedOffset>) -> String {
    let digits = match time.timestamp_subsec_nanos() {
        nanos if nanos % 1_000_000 == 0 => SecondsFormat::Millis,
        nanos if nanos % 1_000 == 0 => SecondsFormat::Micros,
        _ => SecondsFormat::Nanos,
    };
    time.to_rfc3339_opts(digits, true)
}

/// Makes the failure of a value that left its list or map.
fn gone() -> ProcessorError {
    ProcessorError::illegal_argument("a list or map of the script is not there any more")
}

impl Machine<'_> {
    /// Follows the names of made lists that became fields.
    pub(super) fn normalise<'r>(&self, reference: &'r Reference) -> Cow<'r, Reference> {
        let mut reference = Cow::Borrowed(reference);
        for _ in 0..MAX_DEPTH {
            let Root::Local(local) = reference.root else { break };
            let Some(Local::Alias(target)) = self.locals.get(local) else { break };
            let path = target.path.iter().chain(&reference.path).cloned().collect();
            reference = Cow::Owned(Reference { root: target.root, path });
        }
        reference
    }

    /// Returns the value at a reference.
    pub(super) fn view(&self, reference: &Reference) -> Option<&Value> {
        let reference = self.normalise(reference);
        let root = match reference.root {
            Root::Context => &self.context,
            Root::Params => &self.script.params,
            Root::Local(local) => match self.locals.get(local)? {
                Local::Value(value) => value,
                Local::Alias(_) => return None,
            },
        };
        reference.path.iter().try_fold(root, |value, step| match step {
            PathStep::Key(key) => value.get(&**key),
            PathStep::Position(position) => value.get(position),
        })
    }

    /// Returns the value at a reference, to change it.
    pub(super) fn view_mut(&mut self, node: &Node, reference: &Reference) -> Result<&mut Value> {
        let reference = self.normalise(reference);
        if reference.path.len() >= MAX_DEPTH {
            return Err(ProcessorError::exceeded(format!(
                "a value is nested deeper than {MAX_DEPTH} levels"
            )));
        }
        let refused =
            |machine: &Self, reason: &str| Err(machine.fail(node, "unsupported_operation_exception", reason));
        match reference.root {
            Root::Context if self.read_only => {
                return refused(self, "a condition cannot change the document");
            }
            Root::Params => return refused(self, "params cannot be changed"),
            _ => {}
        }
        let missing = self.illegal(node, "the value is not there any more");
        let root = match reference.root {
            Root::Local(local) => match self.locals.get_mut(local) {
                Some(Local::Value(value)) => value,
                _ => return Err(missing),
            },
            Root::Context | Root::Params => &mut self.context,
        };
        let found = reference.path.iter().try_fold(root, |value, step| match step {
            PathStep::Key(key) => value.get_mut(&**key),
            PathStep::Position(position) => value.get_mut(position),
        });
        found.ok_or(missing)
    }

    /// Reads a member of a list or map.
    pub(super) fn load(&self, reference: &Reference, step: PathStep) -> Option<Operand> {
        let container = self.view(reference)?;
        let value = match &step {
            PathStep::Key(key) => container.get(&**key)?,
            PathStep::Position(position) => container.get(position)?,
        };
        Some(match value {
            Value::Array(_) | Value::Object(_) => {
                let mut path = Vec::with_capacity(reference.path.len() + 1);
                path.extend_from_slice(&reference.path);
                path.push(step);
                Operand::Reference(Reference { root: reference.root, path })
            }
            scalar => Self::scalar(scalar),
        })
    }

    pub(super) fn scalar(value: &Value) -> Operand {
        match value {
            Value::Bool(flag) => Operand::Bool(*flag),
            Value::Number(number) => match number.as_i64() {
                Some(whole) => Operand::Int(whole),
                None => Operand::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => Operand::Text(text.as_str().into()),
            _ => Operand::Null,
        }
    }

    /// Makes a list or map of the script.
    pub(super) fn make(&mut self, value: Value) -> Result<Operand> {
        if !matches!(value, Value::Array(_) | Value::Object(_)) {
            return Ok(Self::scalar(&value));
        }
        if self.locals.len() == MAX_LOCALS {
            return Err(ProcessorError::exceeded(format!(
                "a script makes more than {MAX_LOCALS} lists and maps"
            )));
        }
        self.budget().charge_value(&value, 0)?;
        self.locals.push(Local::Value(value));
        Ok(Operand::Reference(Reference { root: Root::Local(self.locals.len() - 1), path: Vec::new() }))
    }

    /// Copies an operand as JSON.
    pub(super) fn copy_value(&mut self, operand: &Operand) -> Result<Value> {
        Ok(match operand {
            Operand::Null => Value::Null,
            Operand::Bool(flag) => Value::Bool(*flag),
            Operand::Int(number) => Value::from(*number),
            Operand::Double(number) => Number::from_f64(*number).map_or(Value::Null, Value::Number),
            Operand::Text(text) => {
                self.budget().charge(text.len())?;
                Value::from(&**text)
            }
            Operand::Reference(reference) => {
                let bytes = measure(self.view(reference).ok_or_else(gone)?, 0)?;
                self.budget().charge(bytes)?;
                self.view(reference).cloned().ok_or_else(gone)?
            }
            Operand::Char(letter) => Value::from(letter.to_string()),
            Operand::View(kind, map) => {
                let members = self.view(map).and_then(Value::as_object).ok_or_else(gone)?;
                let mut bytes = 0;
                for (key, member) in members {
                    bytes += key.len() + 2 * VALUE_BYTES + measure(member, 1)?;
                }
                self.budget().charge(bytes)?;
                let members = self.view(map).and_then(Value::as_object).ok_or_else(gone)?;
                members.iter().map(|(key, member)| kind.element(key, member)).collect()
            }
            Operand::Entry(map, key) => {
                let member = self.view(map).and_then(|map| map.get(&**key)).ok_or_else(gone)?;
                let bytes = key.len() + measure(member, 1)?;
                self.budget().charge(bytes)?;
                let member = self.view(map).and_then(|map| map.get(&**key)).ok_or_else(gone)?;
                ViewKind::Entries.element(key, member)
            }
            Operand::Time(time) => Value::from(document_time(time)),
            Operand::Duration(_) | Operand::Object(_) => {
                let name = self.type_name(operand);
                return Err(ProcessorError::illegal_argument(format!(
                    "a [{name}] is no value of a document"
                )));
            }
        })
    }

    /// Returns the name of the class of an operand.
    pub(super) fn type_name(&self, operand: &Operand) -> &'static str {
        match operand {
            Operand::Reference(reference) => match self.view(reference) {
                Some(Value::Array(_)) => "java.util.List",
                _ => "java.util.Map",
            },
            Operand::Object(number) => self.object(*number).map_or("null", Object::type_name),
            other => other.type_name(),
        }
    }

    /// Puts an operand into a list or map.
    pub(super) fn store(
        &mut self,
        node: &Node,
        container: &Reference,
        step: PathStep,
        operand: &Operand,
    ) -> Result<()> {
        if self.is_member(container, &step, operand) {
            return Ok(());
        }
        let value = self.copy_value(operand)?;
        measure(&value, self.normalise(container).path.len() + 1)?;
        if let PathStep::Key(key) = &step {
            self.budget().charge(key.len())?;
        }
        self.detach(container, &step)?;
        let target = self.view_mut(node, container)?;
        match (target, &step) {
            (Value::Object(members), PathStep::Key(key)) => drop(members.insert(key.to_string(), value)),
            (Value::Array(items), PathStep::Position(position)) => match items.get_mut(*position) {
                Some(item) => *item = value,
                None => return Err(self.out_of_bounds(node, *position)),
            },
            _ => return Err(self.illegal(node, "the value is neither a list nor a map")),
        }
        self.alias(container, step, operand);
        Ok(())
    }

    /// Has a made list or map stand for the field that it was assigned to.
    pub(super) fn alias(&mut self, container: &Reference, step: PathStep, operand: &Operand) {
        let Operand::Reference(Reference { root: Root::Local(local), path }) = operand else { return };
        let target = self.normalise(container).into_owned();
        let is_free = matches!(self.locals.get(*local), Some(Local::Value(_)));
        if !path.is_empty() || !is_free || target.root == Root::Local(*local) {
            return;
        }
        let mut path = target.path;
        path.push(step);
        if let Some(slot) = self.locals.get_mut(*local) {
            *slot = Local::Alias(Reference { root: target.root, path });
        }
    }

    pub(super) fn out_of_bounds(&self, node: &Node, position: usize) -> ProcessorError {
        self.fail(node, "index_out_of_bounds_exception", &format!("Index {position} out of bounds"))
    }
}
