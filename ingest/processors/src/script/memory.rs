//! Lists and maps of a script.
//!
//! Texts and numbers are values; lists and maps are [`Reference`]s into the document, into the parameters, or into lists and
//! maps that the script made. A made list that is assigned to a field becomes that field: later changes reach both names.

use std::borrow::Cow;
use std::rc::Rc;

use serde_json::{Number, Value};

use super::evaluate::Machine;
use super::tree::Node;
use crate::document::{MAX_DEPTH, measure};
use crate::error::{ProcessorError, Result};

/// Most lists and maps that one run of a script makes.
const MAX_LOCALS: usize = 10_000;

/// A value of a script.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Operand {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(Rc<str>),
    Reference(Reference),
}

/// Position of a list or map.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reference {
    pub(super) root: Root,
    pub(super) path: Vec<PathStep>,
}

/// Begin of a reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Root {
    Context,
    Params,
    Local(usize),
}

/// A step of a reference.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PathStep {
    Key(Rc<str>),
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
            Self::Reference(_) => "java.util.Map",
        }
    }

    pub(super) fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn as_double(&self) -> Option<f64> {
        match self {
            Self::Int(number) => Some(*number as f64),
            Self::Double(number) => Some(*number),
            _ => None,
        }
    }
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
                let mut path = reference.path.clone();
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
                let gone =
                    || ProcessorError::illegal_argument("a list or map of the script is not there any more");
                let bytes = measure(self.view(reference).ok_or_else(gone)?, 0)?;
                self.budget().charge(bytes)?;
                self.view(reference).cloned().ok_or_else(gone)?
            }
        })
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
