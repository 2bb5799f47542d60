//! Evaluation of scripts.
//!
//! A [`Machine`] runs the statements of one script for one document.

use std::sync::Arc;

use millrace_ingest::pattern::Deadline;
use serde_json::{Map, Value};

use super::collection::has_lambdas;
use super::memory::{Local, Operand, PathStep, Reference};
use super::object::Object;
use super::operators::widen;
use super::pattern::ScriptPattern;
use super::tree::{Assignment, Binary, Expression, Handler, Literal, Node, Statement, ValueType};
use super::{Script, failure};
use crate::document::{IngestDocument, WorkBudget};
use crate::error::{ProcessorError, Result};

/// Most statements and expressions within one another, those of called functions included.
const MAX_RECURSION: usize = 260;

/// End of a statement.
pub(super) enum Completion {
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
    /// Variables of the running functions, those of the innermost one last.
    pub(super) variables: Vec<Operand>,
    /// First variable of the innermost function.
    frame: usize,
    /// Types of the variables of the innermost function.
    types: &'a [ValueType],
    depth: usize,
    pub(super) objects: Vec<Object>,
    /// Patterns of the script that are objects already, with their numbers.
    pub(super) patterns: Vec<(*const ScriptPattern, usize)>,
    /// Lists of the script that are sets.
    pub(super) sets: Vec<usize>,
    /// Lists and maps that left their places, in order. Elements of streams may name them.
    pub(super) moves: Vec<Reference>,
    /// End of the time for regular expressions.
    pub(super) deadline: Deadline,
    pub(super) read_only: bool,
}

impl<'a> Machine<'a> {
    pub(super) fn new(script: &'a Script, document: &'a mut IngestDocument, read_only: bool) -> Self {
        let context = Value::Object(std::mem::take(&mut document.fields));
        let variables = vec![Operand::Null; script.types.len()];
        Self {
            script,
            document,
            context,
            locals: Vec::new(),
            variables,
            frame: 0,
            types: &script.types,
            depth: 0,
            objects: Vec::new(),
            patterns: Vec::new(),
            sets: Vec::new(),
            moves: Vec::new(),
            deadline: Deadline::default(),
            read_only,
        }
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

    /// Returns `_ingest`.
    pub(super) fn ingest(&self) -> &Map<String, Value> {
        &self.document.ingest
    }

    pub(super) fn fail(&self, node: &Node, kind: &'static str, reason: &str) -> ProcessorError {
        self.fail_at(node.offset, kind, reason)
    }

    pub(super) fn fail_at(&self, offset: usize, kind: &'static str, reason: &str) -> ProcessorError {
        failure(&self.script.source, "runtime error", offset, kind, reason)
    }

    pub(super) fn illegal(&self, node: &Node, reason: &str) -> ProcessorError {
        self.fail(node, "illegal_argument_exception", reason)
    }

    pub(super) fn block(&mut self, statements: &[Statement]) -> Result<Completion> {
        for statement in statements {
            match self.statement(statement)? {
                Completion::Normal => {}
                other => return Ok(other),
            }
        }
        Ok(Completion::Normal)
    }

    /// Runs a step within those that run already.
    fn within<T>(&mut self, step: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.budget().step()?;
        if self.depth == MAX_RECURSION {
            return Err(ProcessorError::exceeded(format!(
                "a script has more than {MAX_RECURSION} steps within one another"
            )));
        }
        self.depth += 1;
        let result = step(self);
        self.depth -= 1;
        result
    }

    fn statement(&mut self, statement: &Statement) -> Result<Completion> {
        self.within(|machine| machine.run_statement(statement))
    }

    fn run_statement(&mut self, statement: &Statement) -> Result<Completion> {
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
            Statement::Try(body, handlers) => {
                return match self.block(body) {
                    Err(error) => self.handle(error, handlers),
                    completion => completion,
                };
            }
            Statement::Throw(kind, message) => {
                let value = self.evaluate(message)?;
                let reason = self.text_of(&value)?;
                return Err(self.fail(message, kind, &reason));
            }
            Statement::Break => return Ok(Completion::Break),
            Statement::Continue => return Ok(Completion::Continue),
        }
        Ok(Completion::Normal)
    }

    /// Runs the handler of an exception. Work beyond a bound is none.
    fn handle(&mut self, error: ProcessorError, handlers: &[Handler]) -> Result<Completion> {
        let Some((kind, reason)) = error.cause() else { return Err(error) };
        let takes = |handler: &&Handler| {
            handler.kinds.as_ref().is_none_or(|kinds| kinds.iter().any(|taken| taken == kind))
        };
        let handler = handlers.iter().find(takes);
        let Some(handler) = handler.filter(|_| error.kind() == "script_exception") else { return Err(error) };
        let exception = Map::from_iter([("message".to_owned(), Value::from(reason))]);
        let exception = self.make(Value::Object(exception))?;
        self.set_variable(handler.slot, exception);
        self.block(&handler.body)
    }

    /// Spends the bytes of a text that is read from a list or map, or made by a method.
    pub(super) fn charge_text(&mut self, operand: &Operand) -> Result<()> {
        match operand {
            Operand::Text(text) => self.document.budget.charge_read(text.len()),
            _ => Ok(()),
        }
    }

    fn for_each(&mut self, slot: usize, items: &Node, body: &[Statement]) -> Result<Completion> {
        let of = self.evaluate(items)?;
        if let Operand::Reference(list) = &of
            && let Some(Value::Array(values)) = self.view(list)
        {
            for position in 0..values.len() {
                let Some(item) = self.load(list, PathStep::Position(position)) else { break };
                match self.run_body(slot, item, body)? {
                    Completion::Break => break,
                    Completion::Return(value) => return Ok(Completion::Return(value)),
                    Completion::Normal | Completion::Continue => {}
                }
            }
            return Ok(Completion::Normal);
        }
        for element in self.elements(items, &of)? {
            match self.run_body(slot, element, body)? {
                Completion::Break => break,
                Completion::Return(value) => return Ok(Completion::Return(value)),
                Completion::Normal | Completion::Continue => {}
            }
        }
        Ok(Completion::Normal)
    }

    fn run_body(&mut self, slot: usize, element: Operand, body: &[Statement]) -> Result<Completion> {
        self.budget().step()?;
        self.charge_text(&element)?;
        self.set_variable(slot, element);
        self.block(body)
    }

    pub(super) fn set_variable(&mut self, slot: usize, value: Operand) {
        let of = self.types.get(slot).copied().unwrap_or(ValueType::Any);
        if let Some(variable) = self.variables.get_mut(self.frame + slot) {
            *variable = widen(of, value);
        }
    }

    pub(super) fn condition(&mut self, node: &Node) -> Result<bool> {
        let value = self.evaluate(node)?;
        self.flag(node, value)
    }

    pub(super) fn flag(&self, node: &Node, value: Operand) -> Result<bool> {
        value.into_condition().map_err(|found| {
            self.fail(node, "class_cast_exception", &format!("cannot cast def [{found}] to boolean"))
        })
    }

    /// Evaluates an expression.
    pub(super) fn evaluate(&mut self, node: &Node) -> Result<Operand> {
        self.within(|machine| machine.evaluate_expression(node))
    }

    fn evaluate_expression(&mut self, node: &Node) -> Result<Operand> {
        Ok(match &node.expression {
            Expression::Literal(literal) => match literal {
                Literal::Null => Operand::Null,
                Literal::Bool(flag) => Operand::Bool(*flag),
                Literal::Int(number) => Operand::Int(*number),
                Literal::Double(number) => Operand::Double(*number),
                Literal::Text(text) => Operand::Text(Arc::clone(text)),
            },
            Expression::Variable(slot) => {
                self.variables.get(self.frame + *slot).cloned().unwrap_or(Operand::Null)
            }
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
            Expression::Index(target, key) => self.index(node, target, key)?,
            Expression::Call { target, name, arguments, null_safe } => {
                let target = self.evaluate(target)?;
                if *null_safe && target == Operand::Null {
                    return Ok(Operand::Null);
                }
                if arguments.iter().any(has_lambdas) {
                    return self.call_with_lambdas(node, &target, name, arguments);
                }
                let arguments = self.evaluate_all(arguments)?;
                let value = self.call(node, &target, name, &arguments)?;
                self.charge_text(&value)?;
                value
            }
            Expression::Function(number, arguments) => {
                let arguments = self.evaluate_all(arguments)?;
                self.call_function(*number, arguments)?
            }
            Expression::Lambda(_) => {
                return Err(self.illegal(node, "a lambda is an argument of methods only"));
            }
            Expression::Pattern(pattern) => self.pattern(pattern)?,
            Expression::Static(function, arguments) => {
                let arguments = self.evaluate_all(arguments)?;
                self.call_static(node, *function, &arguments)?
            }
            Expression::New(class, arguments) => self.create(node, *class, arguments)?,
            Expression::List(items) => {
                let mut list = Vec::with_capacity(items.len());
                for item in items {
                    let item = self.evaluate(item)?;
                    list.push(self.copy_value(&item)?);
                }
                self.make(Value::Array(list))?
            }
            Expression::Map(members) => self.create_map(members)?,
            Expression::Not(inner) => Operand::Bool(!self.condition(inner)?),
            Expression::Minus(inner) => {
                let value = self.evaluate(inner)?;
                self.negate(node, &value)?
            }
            Expression::Complement(inner) => match self.evaluate(inner)?.as_int() {
                Some(number) => Operand::Int(!number),
                None => return Err(self.fail(node, "class_cast_exception", "[~] takes a whole number")),
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

    pub(super) fn evaluate_all(&mut self, nodes: &[Node]) -> Result<Vec<Operand>> {
        nodes.iter().map(|node| self.evaluate(node)).collect()
    }

    /// Calls a function of the script.
    fn call_function(&mut self, number: usize, arguments: Vec<Operand>) -> Result<Operand> {
        let script = self.script;
        let Some(function) = script.functions.get(number) else { return Ok(Operand::Null) };
        let (frame, types, top) = (self.frame, self.types, self.variables.len());
        let arguments = arguments.into_iter().zip(&function.types).map(|(value, of)| widen(*of, value));
        self.variables.extend(arguments);
        self.variables.resize(top + function.types.len(), Operand::Null);
        (self.frame, self.types) = (top, &function.types);
        let result = self.block(&function.body);
        (self.frame, self.types) = (frame, types);
        self.variables.truncate(top);
        match result? {
            Completion::Return(value) => Ok(widen(function.result, value)),
            _ => Ok(Operand::Null),
        }
    }

    fn index(&mut self, node: &Node, target: &Node, key: &Node) -> Result<Operand> {
        let container = self.evaluate(target)?;
        let found = self.evaluate(key)?;
        if let (Operand::Object(number), Operand::Int(at)) = (&container, &found)
            && let Some(Object::Stream(elements, _)) = self.object(*number)
        {
            let element = usize::try_from(*at).ok().and_then(|at| elements.get(at)).cloned();
            return element.ok_or_else(|| self.out_of_bounds(node, usize::try_from(*at).unwrap_or(0)));
        }
        let (container, step) = self.position(target, key, container, &found)?;
        let member = self.load(&container, step.clone()).map_or_else(|| self.absent(node, step), Ok)?;
        self.charge_text(&member)?;
        Ok(member)
    }

    /// Returns the list or map of an index expression, and the key.
    fn position(
        &mut self,
        target: &Node,
        key: &Node,
        container: Operand,
        found: &Operand,
    ) -> Result<(Reference, PathStep)> {
        let Operand::Reference(container) = container else {
            let reason = format!("Attempting to address a non-array type [{}].", container.type_name());
            return Err(self.illegal(target, &reason));
        };
        let step = match (self.view(&container), found) {
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
                    ("empty", _) => Ok(Operand::Bool(items.is_empty())),
                    (_, Ok(position)) => self
                        .load(reference, PathStep::Position(position))
                        .ok_or_else(|| self.out_of_bounds(node, position)),
                    _ => Err(self
                        .illegal(node, &format!("dynamic getter [java.util.ArrayList, {name}] not found"))),
                },
                Some(Value::Object(members)) if name == "empty" && !members.contains_key(name) => {
                    Ok(Operand::Bool(members.is_empty()))
                }
                _ => Ok(self.load(reference, PathStep::Key(name.into())).unwrap_or(Operand::Null)),
            };
        }
        match (target, name) {
            (Operand::Entry(_, key), "key") => return Ok(Operand::Text(Arc::clone(key))),
            (Operand::Entry(map, key), "value") => {
                return Ok(self.load(map, PathStep::Key(Arc::clone(key))).unwrap_or(Operand::Null));
            }
            (Operand::Object(number), "length") => {
                if let Some(Object::Stream(elements, _)) = self.object(*number) {
                    return Ok(Operand::Int(elements.len() as i64));
                }
            }
            (Operand::View(_, map), "length" | "empty") => {
                let length = self.view(map).and_then(Value::as_object).map_or(0, Map::len);
                return Ok(match name {
                    "length" => Operand::Int(length as i64),
                    _ => Operand::Bool(length == 0),
                });
            }
            _ => {}
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
                let container = self.evaluate(target)?;
                let found = self.evaluate(key)?;
                let (container, step) = self.position(target, key, container, &found)?;
                self.store(node, &container, step, value)?;
            }
            _ => return Err(self.illegal(node, "the value cannot be assigned")),
        }
        Ok(())
    }
}
