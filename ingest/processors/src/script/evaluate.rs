//! Evaluation of scripts.
//!
//! A [`Machine`] runs the statements of one script for one document.

use std::rc::Rc;

use serde_json::{Map, Value};

use super::memory::{Local, Operand, PathStep, Reference};
use super::tree::{Assignment, Binary, Expression, Link, Literal, Node, Statement, ValueType};
use super::{Script, failure};
use crate::document::{IngestDocument, WorkBudget, measure};
use crate::error::{ProcessorError, Result};
use crate::java;

/// End of a statement.
enum Completion {
    Normal,
    Break,
    Continue,
    Return(Operand),
}

/// State of one run.
pub(super) struct Machine<'a> {
    pub(super) script: &'a Script,
    document: &'a mut IngestDocument,
    pub(super) context: Value,
    pub(super) locals: Vec<Local>,
    pub(super) variables: Vec<Operand>,
    pub(super) read_only: bool,
}

impl<'a> Machine<'a> {
    pub(super) fn new(script: &'a Script, document: &'a mut IngestDocument, read_only: bool) -> Self {
        let context = Value::Object(std::mem::take(&mut document.fields));
        let variables = vec![Operand::Null; script.variables];
        Self { script, document, context, locals: Vec::new(), variables, read_only }
    }

    /// Gives the document its fields back.
    pub(super) fn finish(self) {
        if let Value::Object(fields) = self.context {
            self.document.fields = fields;
        }
    }

    /// Runs the script; the value is that of its `return`, or of its last statement.
    pub(super) fn run(&mut self) -> Result<Operand> {
        let script = self.script;
        let (last, statements) = match script.statements.split_last() {
            Some((Statement::Expression(node), statements)) => (Some(node), statements),
            _ => (None, script.statements.as_slice()),
        };
        match self.block(statements)? {
            Completion::Return(value) => Ok(value),
            _ => last.map_or(Ok(Operand::Null), |node| self.evaluate(node)),
        }
    }

    pub(super) fn budget(&mut self) -> &mut WorkBudget {
        &mut self.document.budget
    }

    pub(super) fn fail(&self, node: &Node, kind: &'static str, reason: &str) -> ProcessorError {
        self.fail_at(node.offset, kind, reason)
    }

    fn fail_at(&self, offset: usize, kind: &'static str, reason: &str) -> ProcessorError {
        failure(&self.script.source, "runtime error", offset, kind, reason)
    }

    pub(super) fn illegal(&self, node: &Node, reason: &str) -> ProcessorError {
        self.fail(node, "illegal_argument_exception", reason)
    }

    fn block(&mut self, statements: &[Statement]) -> Result<Completion> {
        for statement in statements {
            match self.statement(statement)? {
                Completion::Normal => {}
                other => return Ok(other),
            }
        }
        Ok(Completion::Normal)
    }

    fn statement(&mut self, statement: &Statement) -> Result<Completion> {
        self.budget().step()?;
        match statement {
            Statement::Block(statements) | Statement::Declarations(statements) => {
                return self.block(statements);
            }
            Statement::Declare(slot, value) => {
                let value = match value {
                    Some(value) => self.evaluate(value)?,
                    None => Operand::Null,
                };
                self.set_variable(*slot, value);
            }
            Statement::Expression(node) => drop(self.evaluate(node)?),
            Statement::If(condition, then, otherwise) => {
                let branch = if self.condition(condition)? { then } else { otherwise };
                return self.block(branch);
            }
            Statement::Loop { init, condition, update, body } => {
                if let Some(init) = init {
                    self.statement(init)?;
                }
                loop {
                    self.budget().step()?;
                    if let Some(condition) = condition
                        && !self.condition(condition)?
                    {
                        break;
                    }
                    match self.block(body)? {
                        Completion::Break => break,
                        Completion::Return(value) => return Ok(Completion::Return(value)),
                        Completion::Normal | Completion::Continue => {}
                    }
                    if let Some(update) = update {
                        self.evaluate(update)?;
                    }
                }
            }
            Statement::ForEach(slot, items, body) => return self.for_each(*slot, items, body),
            Statement::Return(value) => {
                let value = match value {
                    Some(value) => self.evaluate(value)?,
                    None => Operand::Null,
                };
                return Ok(Completion::Return(value));
            }
            Statement::Break => return Ok(Completion::Break),
            Statement::Continue => return Ok(Completion::Continue),
        }
        Ok(Completion::Normal)
    }

    /// Spends the bytes of a text that is read from a list or map, or made by a method.
    fn charge_text(&mut self, operand: &Operand) -> Result<()> {
        match operand {
            Operand::Text(text) => self.document.budget.charge_read(text.len()),
            _ => Ok(()),
        }
    }

    fn for_each(&mut self, slot: usize, items: &Node, body: &[Statement]) -> Result<Completion> {
        let Operand::Reference(list) = self.evaluate(items)? else {
            return Err(self.illegal(items, "only a list can be iterated over"));
        };
        let Some(Value::Array(values)) = self.view(&list) else {
            return Err(self.illegal(items, "only a list can be iterated over; a map has entrySet()"));
        };
        for position in 0..values.len() {
            self.budget().step()?;
            let Some(item) = self.load(&list, PathStep::Position(position)) else { break };
            self.charge_text(&item)?;
            self.set_variable(slot, item);
            match self.block(body)? {
                Completion::Break => break,
                Completion::Return(value) => return Ok(Completion::Return(value)),
                Completion::Normal | Completion::Continue => {}
            }
        }
        Ok(Completion::Normal)
    }

    fn set_variable(&mut self, slot: usize, value: Operand) {
        if let Some(variable) = self.variables.get_mut(slot) {
            *variable = value;
        }
    }

    fn condition(&mut self, node: &Node) -> Result<bool> {
        let value = self.evaluate(node)?;
        self.flag(node, value)
    }

    fn flag(&self, node: &Node, value: Operand) -> Result<bool> {
        value.into_condition().map_err(|found| {
            self.fail(node, "class_cast_exception", &format!("cannot cast def [{found}] to boolean"))
        })
    }

    /// Evaluates an expression.
    pub(super) fn evaluate(&mut self, node: &Node) -> Result<Operand> {
        self.budget().step()?;
        Ok(match &node.expression {
            Expression::Literal(literal) => match literal {
                Literal::Null => Operand::Null,
                Literal::Bool(flag) => Operand::Bool(*flag),
                Literal::Int(number) => Operand::Int(*number),
                Literal::Double(number) => Operand::Double(*number),
                Literal::Text(text) => Operand::Text(text.as_str().into()),
            },
            Expression::Variable(slot) => self.variables.get(*slot).cloned().unwrap_or(Operand::Null),
            Expression::Context => Operand::Reference(Reference::context()),
            Expression::Params => Operand::Reference(Reference::params()),
            Expression::Member { target, name, null_safe } => {
                let target = self.evaluate(target)?;
                if *null_safe && target == Operand::Null {
                    return Ok(target);
                }
                let member = self.member(node, &target, name)?;
                self.charge_text(&member)?;
                member
            }
            Expression::Index(target, key) => {
                let (container, step) = self.position(target, key)?;
                let member =
                    self.load(&container, step.clone()).map_or_else(|| self.absent(node, step), Ok)?;
                self.charge_text(&member)?;
                member
            }
            Expression::Call { target, name, arguments, null_safe } => {
                let target = self.evaluate(target)?;
                if *null_safe && target == Operand::Null {
                    return Ok(Operand::Null);
                }
                let arguments =
                    arguments.iter().map(|node| self.evaluate(node)).collect::<Result<Vec<_>>>()?;
                let value = self.call(node, &target, name, &arguments)?;
                self.charge_text(&value)?;
                value
            }
            Expression::Static(function, arguments) => {
                let arguments =
                    arguments.iter().map(|node| self.evaluate(node)).collect::<Result<Vec<_>>>()?;
                self.call_static(node, *function, &arguments)?
            }
            Expression::New { is_map, source } => {
                let empty = if *is_map { Value::Object(Map::new()) } else { Value::Array(Vec::new()) };
                let value = match source {
                    None => empty,
                    Some(source) => match self.evaluate(source)? {
                        reference @ Operand::Reference(_) => self.copy_value(&reference)?,
                        _ => empty,
                    },
                };
                self.make(value)?
            }
            Expression::List(items) => {
                let mut list = Vec::with_capacity(items.len());
                for item in items {
                    let item = self.evaluate(item)?;
                    list.push(self.copy_value(&item)?);
                }
                self.make(Value::Array(list))?
            }
            Expression::Map(members) => {
                let mut map = Map::new();
                for (key, member) in members {
                    let key = self.evaluate(key)?;
                    let member = self.evaluate(member)?;
                    let key = self.text_of(&key)?;
                    map.insert(key.to_string(), self.copy_value(&member)?);
                }
                self.make(Value::Object(map))?
            }
            Expression::Not(inner) => Operand::Bool(!self.condition(inner)?),
            Expression::Minus(inner) => match self.evaluate(inner)? {
                Operand::Int(number) => Operand::Int(number.wrapping_neg()),
                Operand::Double(number) => Operand::Double(-number),
                other => {
                    let reason = format!("Cannot apply [-] operation to type [{}].", other.type_name());
                    return Err(self.fail(node, "class_cast_exception", &reason));
                }
            },
            Expression::Chain(first, links) => self.chain(first, links)?,
            Expression::Conditional(condition, then, otherwise) => {
                if self.condition(condition)? {
                    self.evaluate(then)?
                } else {
                    self.evaluate(otherwise)?
                }
            }
            Expression::Elvis(value, otherwise) => match self.evaluate(value)? {
                Operand::Null => self.evaluate(otherwise)?,
                value => value,
            },
            Expression::Assign(assignment, target, value) => self.assign(node, *assignment, target, value)?,
            Expression::Increment(target, delta, prefix) => {
                let before = self.evaluate(target)?;
                let after = self.compute(node.offset, Binary::Add, &before, &Operand::Int(*delta))?;
                self.write(node, target, &after)?;
                if *prefix { after } else { before }
            }
            Expression::InstanceOf(value, of) => {
                let value = self.evaluate(value)?;
                Operand::Bool(self.is_of(&value, *of)?)
            }
            Expression::Cast(of, value) => {
                let value = self.evaluate(value)?;
                self.cast(node, *of, value)?
            }
        })
    }

    fn is_of(&mut self, operand: &Operand, of: ValueType) -> Result<bool> {
        Ok(match operand {
            Operand::Reference(reference) => self.view(reference).is_some_and(|value| of.holds(value)),
            scalar => {
                let value = self.copy_value(scalar)?;
                of.holds(&value)
            }
        })
    }

    fn cast(&mut self, node: &Node, of: ValueType, value: Operand) -> Result<Operand> {
        Ok(match (of, value) {
            (ValueType::Integer | ValueType::Long, Operand::Double(number)) => Operand::Int(number as i64),
            (ValueType::Double, Operand::Int(number)) => Operand::Double(number as f64),
            (ValueType::Any, value) | (_, value @ Operand::Null) => value,
            (ValueType::Integer | ValueType::Long, value @ Operand::Int(_)) => value,
            (of, value) => {
                if !self.is_of(&value, of)? {
                    let reason = format!("Cannot cast from [{}] to [{of:?}].", value.type_name());
                    return Err(self.fail(node, "class_cast_exception", &reason));
                }
                value
            }
        })
    }

    /// Returns the list or map of an index expression, and the key.
    fn position(&mut self, target: &Node, key: &Node) -> Result<(Reference, PathStep)> {
        let container = self.evaluate(target)?;
        let found = self.evaluate(key)?;
        let Operand::Reference(container) = container else {
            let reason = format!("Attempting to address a non-array type [{}].", container.type_name());
            return Err(self.illegal(target, &reason));
        };
        let step = match (self.view(&container), &found) {
            (Some(Value::Array(items)), Operand::Int(position)) => {
                let length = items.len();
                let at = if *position < 0 { *position + length as i64 } else { *position };
                match usize::try_from(at) {
                    Ok(at) if at < length => PathStep::Position(at),
                    _ => {
                        let reason = format!("Index {position} out of bounds for length {length}");
                        return Err(self.fail(key, "index_out_of_bounds_exception", &reason));
                    }
                }
            }
            (Some(Value::Object(_)), found) => PathStep::Key(self.text_of(found)?),
            _ => return Err(self.illegal(key, "a list is addressed by a position")),
        };
        Ok((container, step))
    }

    fn absent(&self, node: &Node, step: PathStep) -> Result<Operand> {
        match step {
            PathStep::Key(_) => Ok(Operand::Null),
            PathStep::Position(position) => Err(self.out_of_bounds(node, position)),
        }
    }

    fn member(&mut self, node: &Node, target: &Operand, name: &str) -> Result<Operand> {
        if let Operand::Reference(reference) = target {
            return match self.view(reference) {
                Some(Value::Array(items)) => match (name, name.parse::<usize>()) {
                    ("length", _) => Ok(Operand::Int(items.len() as i64)),
                    (_, Ok(position)) => self
                        .load(reference, PathStep::Position(position))
                        .ok_or_else(|| self.out_of_bounds(node, position)),
                    _ => Err(self
                        .illegal(node, &format!("dynamic getter [java.util.ArrayList, {name}] not found"))),
                },
                _ => Ok(self.load(reference, PathStep::Key(name.into())).unwrap_or(Operand::Null)),
            };
        }
        if *target == Operand::Null {
            let reason = format!("cannot access method/field [{name}] from a null def reference");
            return Err(self.fail(node, "null_pointer_exception", &reason));
        }
        Err(self.illegal(node, &format!("dynamic getter [{}, {name}] not found", target.type_name())))
    }

    fn assign(
        &mut self,
        node: &Node,
        assignment: Assignment,
        target: &Node,
        value: &Node,
    ) -> Result<Operand> {
        let value = match assignment {
            Assignment::Set => self.evaluate(value)?,
            Assignment::Compute(operator) => {
                let before = self.evaluate(target)?;
                let value = self.evaluate(value)?;
                self.compute(node.offset, operator, &before, &value)?
            }
        };
        self.write(node, target, &value)?;
        Ok(value)
    }

    fn write(&mut self, node: &Node, target: &Node, value: &Operand) -> Result<()> {
        match &target.expression {
            Expression::Variable(slot) => self.set_variable(*slot, value.clone()),
            Expression::Member { target, name, .. } => {
                let Operand::Reference(container) = self.evaluate(target)? else {
                    let reason = format!("cannot set [{name}] of a value that is no map");
                    return Err(self.illegal(node, &reason));
                };
                let is_list = matches!(self.view(&container), Some(Value::Array(_)));
                let step = match name.parse() {
                    Ok(position) if is_list => PathStep::Position(position),
                    _ => PathStep::Key(name.as_str().into()),
                };
                self.store(node, &container, step, value)?;
            }
            Expression::Index(target, key) => {
                let (container, step) = self.position(target, key)?;
                self.store(node, &container, step, value)?;
            }
            _ => return Err(self.illegal(node, "the value cannot be assigned")),
        }
        Ok(())
    }

    fn chain(&mut self, first: &Node, links: &[Link]) -> Result<Operand> {
        let mut left = self.evaluate(first)?;
        let mut left_node = first;
        for link in links {
            let operator = link.operator;
            if matches!(operator, Binary::Or | Binary::And) {
                // The right operand is evaluated only where the left one does not decide.
                let flag = self.flag(left_node, left)?;
                if flag == (operator == Binary::Or) {
                    return Ok(Operand::Bool(flag));
                }
                left = Operand::Bool(self.condition(&link.operand)?);
            } else {
                let right = self.evaluate(&link.operand)?;
                left = self.compute(link.offset, operator, &left, &right)?;
            }
            left_node = &link.operand;
        }
        Ok(left)
    }

    /// Returns whether two operands are equal; numbers by value.
    pub(super) fn equal(&mut self, left: &Operand, right: &Operand) -> Result<bool> {
        Ok(match (left, right) {
            (Operand::Reference(left), Operand::Reference(right)) => {
                let bytes = self.view(left).map_or(Ok(0), |value| measure(value, 0))?;
                self.budget().charge(bytes)?;
                self.view(left) == self.view(right)
            }
            (Operand::Int(left), Operand::Int(right)) => left == right,
            (left, right) => match (left.as_double(), right.as_double()) {
                (Some(left), Some(right)) => left == right,
                _ => left == right,
            },
        })
    }

    fn compute(
        &mut self,
        offset: usize,
        operator: Binary,
        left: &Operand,
        right: &Operand,
    ) -> Result<Operand> {
        match operator {
            Binary::Equal => return Ok(Operand::Bool(self.equal(left, right)?)),
            Binary::NotEqual => return Ok(Operand::Bool(!self.equal(left, right)?)),
            Binary::Add if matches!(left, Operand::Text(_)) || matches!(right, Operand::Text(_)) => {
                let text = format!("{}{}", self.text_of(left)?, self.text_of(right)?);
                self.budget().charge(text.len())?;
                return Ok(Operand::Text(text.into()));
            }
            _ => {}
        }
        if let (Operand::Int(left), Operand::Int(right)) = (left, right) {
            return self.compute_ints(offset, operator, *left, *right);
        }
        let (Some(x), Some(y)) = (left.as_double(), right.as_double()) else {
            let reason = format!(
                "Cannot apply [{}] operation to types [{}] and [{}].",
                operator.symbol(),
                left.type_name(),
                right.type_name()
            );
            return Err(self.fail_at(offset, "class_cast_exception", &reason));
        };
        Ok(match operator {
            Binary::Less => Operand::Bool(x < y),
            Binary::LessOrEqual => Operand::Bool(x <= y),
            Binary::Greater => Operand::Bool(x > y),
            Binary::GreaterOrEqual => Operand::Bool(x >= y),
            Binary::Subtract => Operand::Double(x - y),
            Binary::Multiply => Operand::Double(x * y),
            Binary::Divide => Operand::Double(x / y),
            Binary::Remainder => Operand::Double(x % y),
            _ => Operand::Double(x + y),
        })
    }

    fn compute_ints(&self, offset: usize, operator: Binary, x: i64, y: i64) -> Result<Operand> {
        let by_zero = || self.fail_at(offset, "arithmetic_exception", "/ by zero");
        Ok(match operator {
            Binary::Less => Operand::Bool(x < y),
            Binary::LessOrEqual => Operand::Bool(x <= y),
            Binary::Greater => Operand::Bool(x > y),
            Binary::GreaterOrEqual => Operand::Bool(x >= y),
            Binary::Subtract => Operand::Int(x.wrapping_sub(y)),
            Binary::Multiply => Operand::Int(x.wrapping_mul(y)),
            Binary::Divide if y == 0 => return Err(by_zero()),
            Binary::Divide => Operand::Int(x.wrapping_div(y)),
            Binary::Remainder if y == 0 => return Err(by_zero()),
            Binary::Remainder => Operand::Int(x.wrapping_rem(y)),
            _ => Operand::Int(x.wrapping_add(y)),
        })
    }

    /// Writes an operand as a text.
    pub(super) fn text_of(&mut self, operand: &Operand) -> Result<Rc<str>> {
        Ok(match operand {
            Operand::Text(text) => Rc::clone(text),
            Operand::Null => "null".into(),
            Operand::Bool(flag) => flag.to_string().into(),
            Operand::Int(number) => number.to_string().into(),
            Operand::Double(number) => java::float_text(*number).into(),
            Operand::Reference(reference) => {
                let bytes = self.view(reference).map_or(Ok(0), |value| measure(value, 0))?;
                self.budget().charge(bytes)?;
                self.view(reference).map_or_else(|| "null".to_owned(), java::text_of).into()
            }
        })
    }

    /// Returns the time of now, in milliseconds.
    pub(super) fn now_ms(&self) -> i64 {
        let timestamp = self.document.ingest.get("timestamp").and_then(Value::as_str);
        let time = timestamp.and_then(|text| chrono::DateTime::parse_from_rfc3339(text).ok());
        time.map_or(0, |time| time.timestamp_millis())
    }
}
