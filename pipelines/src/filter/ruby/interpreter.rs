//! Evaluation of scripts, within the bounds of [`bounds`].

mod bounds;
mod functions;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use millrace_ingest::Event;
use millrace_ingest::pattern::{Deadline, Expression};

use super::methods;
use super::syntax::{
    AssignOp, Block, Call, Expr, Function, Position, RegexFlags, Rescue, Script, Target, TextItem,
};
use super::value::{MatchData, Members, RaisedError, Val, empty_nested};
pub(super) use bounds::MAX_BYTES;

/// Number of the next run.
static RUNS: AtomicU64 = AtomicU64::new(0);

/// A change of the order of evaluation.
#[derive(Debug)]
pub(super) enum Flow {
    Raise(RaisedError),
    Next(Val),
    Break(Val),
    Return(Val),
    /// A bound is exceeded; nothing rescues that.
    Exceeded(String),
}

impl From<RaisedError> for Flow {
    fn from(error: RaisedError) -> Self {
        Self::Raise(error)
    }
}

pub(super) type Evaluated = Result<Val, Flow>;

/// Variables that outlive an event, by their names with sigils.
pub(super) type ScriptState = HashMap<Arc<str>, Val>;

/// One run of a script.
#[derive(Debug)]
pub(super) struct Interpreter<'a> {
    slots: Vec<Val>,
    pub(super) state: &'a mut ScriptState,
    /// The event that the filter got, and those that the script made. Empty during `init`.
    pub(super) events: Vec<Event>,
    /// Numbers of events that go on behind the first.
    pub(super) handed_on: Vec<usize>,
    pub(super) is_cancelled: bool,
    last_match: Option<Arc<MatchData>>,
    steps: u64,
    bytes: usize,
    expressions: HashMap<String, Arc<Expression>>,
    pub(super) deadline: Deadline,
    functions: Vec<Option<Arc<Function>>>,
    /// Calls of functions that have not returned.
    calls: usize,
    /// Expressions that wait for the one that is evaluated.
    nesting: usize,
    /// Local variables of functions that have returned, kept so that values which contain themselves are freed.
    returned: Vec<Val>,
    /// Number of this run among those of the process.
    run: u64,
}

impl<'a> Interpreter<'a> {
    pub(super) fn new(slots: usize, events: Vec<Event>, state: &'a mut ScriptState) -> Self {
        Self {
            slots: vec![Val::Nil; slots],
            state,
            events,
            handed_on: Vec::new(),
            is_cancelled: false,
            last_match: None,
            steps: 0,
            bytes: 0,
            expressions: HashMap::new(),
            deadline: Deadline::default(),
            functions: Vec::new(),
            calls: 0,
            nesting: 0,
            returned: Vec::new(),
            run: RUNS.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Sets the first local variables.
    pub(super) fn bind(&mut self, values: Vec<Val>) {
        for (slot, value) in self.slots.iter_mut().zip(values) {
            *slot = value;
        }
    }

    /// Runs a script.
    ///
    /// # Errors
    /// An error that nothing rescues, or a bound that is exceeded.
    pub(super) fn run(&mut self, script: &Script) -> Result<Val, RaisedError> {
        self.functions.clone_from(&script.functions);
        match self.eval(&script.body) {
            Ok(value) | Err(Flow::Next(value) | Flow::Break(value) | Flow::Return(value)) => Ok(value),
            Err(Flow::Raise(error)) => Err(error),
            Err(Flow::Exceeded(message)) => Err(RaisedError::new("NoMemoryError", message)),
        }
    }

    /// Empties local variables, so that values which contain themselves are freed. Variables that outlive the event must not share them.
    pub(super) fn empty_locals(&mut self) {
        empty_nested(std::mem::take(&mut self.slots));
        empty_nested(std::mem::take(&mut self.returned));
    }

    pub(super) fn set_match(&mut self, found: Option<MatchData>) -> Val {
        self.last_match = found.map(Arc::new);
        self.last_match.as_ref().map_or(Val::Nil, |found| Val::Match(Arc::clone(found)))
    }

    fn evaluate(&mut self, expr: &Expr) -> Evaluated {
        self.step(1)?;
        match expr {
            Expr::Nil => Ok(Val::Nil),
            Expr::True => Ok(Val::Bool(true)),
            Expr::False => Ok(Val::Bool(false)),
            Expr::Int(number) => Ok(Val::Int(*number)),
            Expr::Float(number) => Ok(Val::Float(*number)),
            Expr::Symbol(name) => Ok(Val::Symbol(Arc::clone(name))),
            Expr::Constant(name) => Ok(methods::constant_value(name)),
            Expr::Text(items) => match items.as_slice() {
                [TextItem::Literal(text)] => Ok(Val::Text(Arc::clone(text))),
                items => {
                    let text = self.render(items)?;
                    self.text(text)
                }
            },
            Expr::Regex { items, flags, at, compiled } => match compiled.get() {
                Some(compiled) => Ok(Val::Regex(Arc::clone(compiled))),
                None => self.regex(items, *flags, *at, compiled),
            },
            Expr::Array(elements) => {
                let elements = self.eval_all(elements)?;
                self.array(elements)
            }
            Expr::Hash(pairs) => {
                let mut members = Members::new();
                for (key, value) in pairs {
                    let key = self.eval(key)?;
                    let key = self.key(&key)?;
                    members.insert(key, self.eval(value)?);
                }
                self.hash(members)
            }
            Expr::Range { from, to, exclusive } => {
                let from = Box::new(self.range_end(from.as_deref())?);
                let to = Box::new(self.range_end(to.as_deref())?);
                Ok(Val::Range { from, to, exclusive: *exclusive })
            }
            Expr::Splat(value) => {
                let value = self.eval(value)?;
                Ok(Val::array(spread(value)))
            }
            Expr::Local(slot) => Ok(self.slots.get(*slot).cloned().unwrap_or(Val::Nil)),
            Expr::State(name) => Ok(self.state.get(name).cloned().unwrap_or(Val::Nil)),
            Expr::Group(0) => Ok(self.last_match.clone().map_or(Val::Nil, Val::Match)),
            Expr::Group(number) => {
                Ok(Val::optional(self.last_match.as_ref().and_then(|found| found.group(*number))))
            }
            Expr::Assign(target, value) => {
                let value = self.eval(value)?;
                self.assign(target, value.clone())?;
                Ok(value)
            }
            Expr::AssignOp { target, op, value, at } => self.assign_op(target, *op, value, *at),
            Expr::AssignMany(targets, value) => {
                let value = self.eval(value)?;
                self.assign_many(targets, spread(value.clone()))?;
                Ok(value)
            }
            Expr::And(left, right) => {
                let left = self.eval(left)?;
                if left.is_true() { self.eval(right) } else { Ok(left) }
            }
            Expr::Or(left, right) => {
                let left = self.eval(left)?;
                if left.is_true() { Ok(left) } else { self.eval(right) }
            }
            Expr::Not(value) => Ok(Val::Bool(!self.eval(value)?.is_true())),
            Expr::Defined(value) => match self.eval(value) {
                Ok(Val::Nil) | Err(Flow::Raise(_)) => Ok(Val::Nil),
                Ok(_) => Ok(Val::text("expression")),
                Err(flow) => Err(flow),
            },
            Expr::Call(call) => self.call(call),
            Expr::CallFunction { function, args, at } => {
                let args = self.eval_all(args)?;
                self.call_function(*function, args, *at)
            }
            Expr::Sequence(statements) => {
                let mut last = Val::Nil;
                for statement in statements {
                    last = self.eval(statement)?;
                }
                Ok(last)
            }
            Expr::If { condition, then, otherwise } => {
                let branch = if self.eval(condition)?.is_true() { then } else { otherwise };
                self.eval(branch)
            }
            Expr::While { condition, body, until } => self.while_loop(condition, body, *until),
            Expr::For { target, over, body, at } => self.for_loop(target, over, body, *at),
            Expr::Case { subject, arms, otherwise } => self.case(subject.as_deref(), arms, otherwise),
            Expr::Begin { body, rescues, otherwise, ensure } => {
                let mut result = self.eval(body);
                result = match result {
                    Err(Flow::Raise(error)) => self.rescue(error, rescues),
                    Ok(value) => match otherwise {
                        Some(otherwise) => self.eval(otherwise),
                        None => Ok(value),
                    },
                    other => other,
                };
                if let Some(ensure) = ensure {
                    self.eval(ensure)?;
                }
                result
            }
            Expr::Return(value) => Err(Flow::Return(self.eval(value)?)),
            Expr::Next(value) => Err(Flow::Next(self.eval(value)?)),
            Expr::Break(value) => Err(Flow::Break(self.eval(value)?)),
        }
    }

    /// Evaluates an end of a range. A range has no values that are nested.
    fn range_end(&mut self, expr: Option<&Expr>) -> Evaluated {
        let Some(expr) = expr else { return Ok(Val::Nil) };
        match self.eval(expr)? {
            end @ (Val::Nil
            | Val::Int(_)
            | Val::Float(_)
            | Val::Text(_)
            | Val::Time(_)
            | Val::Timestamp(_)) => Ok(end),
            other => Err(RaisedError::argument(format!("bad value for range: {}", other.class())).into()),
        }
    }

    /// Evaluates elements or arguments; those with a splat become several.
    fn eval_all(&mut self, exprs: &[Expr]) -> Result<Vec<Val>, Flow> {
        let mut values = Vec::with_capacity(exprs.len());
        for expr in exprs {
            match (expr, self.eval(expr)?) {
                (Expr::Splat(_), Val::Array(elements)) => values.extend(elements.lock().iter().cloned()),
                (_, value) => values.push(value),
            }
        }
        Ok(values)
    }

    fn render(&mut self, items: &[TextItem]) -> Result<String, Flow> {
        let mut text = String::new();
        for item in items {
            match item {
                TextItem::Literal(literal) => text.push_str(literal),
                TextItem::Interpolated(expr) => text.push_str(&self.eval(expr)?.to_text()),
            }
            if text.len() > MAX_BYTES {
                self.allocate(text.len())?;
            }
        }
        Ok(text)
    }

    /// Compiles an expression. One without interpolation is compiled once for all events.
    fn regex(
        &mut self,
        items: &[TextItem],
        flags: RegexFlags,
        at: Position,
        cell: &OnceLock<Arc<Expression>>,
    ) -> Evaluated {
        let text = self.render(items)?;
        let with_flags = match (flags.ignore_case, flags.dot_all, flags.extended) {
            (false, false, false) => text,
            (i, m, x) => {
                let letters: String = [(i, 'i'), (m, 'm'), (x, 'x')]
                    .iter()
                    .filter(|(set, _)| *set)
                    .map(|(_, letter)| *letter)
                    .collect();
                format!("(?{letters}){text}")
            }
        };
        let compiled = self.expression(&with_flags).map_err(|flow| match flow {
            Flow::Raise(error) => {
                Flow::Raise(RaisedError::new(error.class, format!("{at}: {}", error.message)))
            }
            other => other,
        })?;
        if items.iter().all(|item| matches!(item, TextItem::Literal(_))) {
            // Another thread may have compiled the same.
            let _ = cell.set(Arc::clone(&compiled));
        }
        Ok(Val::Regex(compiled))
    }

    /// Assigns a value.
    pub(super) fn assign(&mut self, target: &Target, value: Val) -> Result<(), Flow> {
        match target {
            Target::Local(slot) => {
                if let Some(variable) = self.slots.get_mut(*slot) {
                    *variable = value;
                }
            }
            Target::State(name) => drop(self.state.insert(Arc::clone(name), value)),
            Target::Element { receiver, index, at } => {
                let receiver = self.eval(receiver)?;
                let mut args = self.eval_all(index)?;
                args.push(value);
                self.dispatch(&receiver, "[]=", args, None, *at)?;
            }
            Target::Attribute { receiver, name, at } => {
                let receiver = self.eval(receiver)?;
                self.dispatch(&receiver, name, vec![value], None, *at)?;
            }
            Target::Nested(targets) => self.assign_many(targets, spread(value))?,
            Target::Rest(Some(target)) => self.assign(target, Val::array(spread(value)))?,
            Target::Rest(None) => {}
        }
        Ok(())
    }

    /// Assigns values to targets in turns; a target with a star takes what the others leave.
    pub(super) fn assign_many(&mut self, targets: &[Target], values: Vec<Val>) -> Result<(), Flow> {
        let behind = targets.iter().rev().take_while(|target| !matches!(target, Target::Rest(_))).count();
        let has_rest = behind < targets.len();
        let mut values = values.into_iter();
        for target in targets {
            if let Target::Rest(_) = target {
                let count = values.len().saturating_sub(behind);
                let rest: Vec<Val> = values.by_ref().take(count).collect();
                self.assign(target, Val::array(rest))?;
            } else {
                let value = values.next().unwrap_or(Val::Nil);
                self.assign(target, value)?;
            }
        }
        debug_assert!(has_rest || behind == targets.len());
        Ok(())
    }

    /// Returns the value of what an assignment changes.
    fn current(&mut self, target: &Target) -> Evaluated {
        match target {
            Target::Local(slot) => Ok(self.slots.get(*slot).cloned().unwrap_or(Val::Nil)),
            Target::State(name) => Ok(self.state.get(name).cloned().unwrap_or(Val::Nil)),
            Target::Element { receiver, index, at } => {
                let receiver = self.eval(receiver)?;
                let args = self.eval_all(index)?;
                self.dispatch(&receiver, "[]", args, None, *at)
            }
            Target::Attribute { receiver, name, at } => {
                let receiver = self.eval(receiver)?;
                let name = methods::find(name.trim_end_matches('=')).unwrap_or(name);
                self.dispatch(&receiver, name, Vec::new(), None, *at)
            }
            Target::Nested(_) | Target::Rest(_) => Ok(Val::Nil),
        }
    }

    fn assign_op(&mut self, target: &Target, op: AssignOp, value: &Expr, at: Position) -> Evaluated {
        let current = self.current(target)?;
        let value = match op {
            AssignOp::Or if current.is_true() => return Ok(current),
            AssignOp::And if !current.is_true() => return Ok(current),
            AssignOp::Or | AssignOp::And => self.eval(value)?,
            AssignOp::Method(name) => {
                let operand = self.eval(value)?;
                self.dispatch(&current, name, vec![operand], None, at)?
            }
        };
        self.assign(target, value.clone())?;
        Ok(value)
    }

    fn call(&mut self, call: &Call) -> Evaluated {
        let Some(receiver_expr) = &call.receiver else {
            let args = self.eval_all(&call.args)?;
            let called = methods::call_function(self, call.name, args, call.block.as_ref(), call.at);
            return catch_break(called, call.block.is_some());
        };
        let receiver = self.eval(receiver_expr)?;
        if call.safe && matches!(receiver, Val::Nil) {
            return Ok(Val::Nil);
        }
        let args = self.eval_all(&call.args)?;
        if let Val::Text(text) = &receiver
            && methods::changes_text(call.name)
        {
            let (changed, result) =
                methods::change_text(self, text, call.name, args, call.block.as_ref(), call.at)?;
            if let Some(target) = place_of(root_of(receiver_expr)) {
                self.assign(&target, changed)?;
            } else if let Expr::Call(inner) = receiver_expr
                && let Call { receiver: Some(outer), name: "[]", args, at, .. } = &**inner
            {
                let outer = self.eval(outer)?;
                let mut index = self.eval_all(args)?;
                index.push(changed);
                // An event's fields change by `set` only.
                if !matches!(outer, Val::Event(_)) {
                    self.dispatch(&outer, "[]=", index, None, *at)?;
                }
            }
            return Ok(result);
        }
        let called = self.dispatch(&receiver, call.name, args, call.block.as_ref(), call.at);
        catch_break(called, call.block.is_some())
    }

    /// Calls a method of a value.
    pub(super) fn dispatch(
        &mut self,
        receiver: &Val,
        name: &'static str,
        args: Vec<Val>,
        block: Option<&Block>,
        at: Position,
    ) -> Evaluated {
        self.step(1)?;
        match methods::call(self, receiver, name, args, block) {
            Err(Flow::Raise(error)) if error.class == methods::NO_METHOD && error.message.is_empty() => {
                let message = format!("undefined method '{name}' for {} at {at}", describe(receiver));
                Err(RaisedError::new(methods::NO_METHOD, message).into())
            }
            other => other,
        }
    }

    /// Runs a block with arguments.
    pub(super) fn run_block(&mut self, block: &Block, mut args: Vec<Val>) -> Evaluated {
        self.step(1)?;
        match block {
            Block::Method(name, at) => {
                if args.is_empty() {
                    return Err(RaisedError::argument("no receiver given").into());
                }
                let receiver = args.remove(0);
                self.dispatch(&receiver, name, args, None, *at)
            }
            Block::Code { params, body, own } => {
                for slot in own {
                    if let Some(variable) = self.slots.get_mut(*slot) {
                        *variable = Val::Nil;
                    }
                }
                let takes_several = params.len() > 1 || matches!(params.as_slice(), [Target::Nested(_)]);
                let values = match (takes_several, args.as_slice()) {
                    (true, [Val::Array(elements)]) if params.len() > 1 => elements.lock().clone(),
                    _ => args,
                };
                self.assign_many(params, values)?;
                match self.eval(body) {
                    Err(Flow::Next(value)) => Ok(value),
                    other => other,
                }
            }
        }
    }

    fn while_loop(&mut self, condition: &Expr, body: &Expr, until: bool) -> Evaluated {
        while self.eval(condition)?.is_true() != until {
            match self.eval(body) {
                Ok(_) | Err(Flow::Next(_)) => {}
                Err(Flow::Break(value)) => return Ok(value),
                Err(flow) => return Err(flow),
            }
        }
        Ok(Val::Nil)
    }

    fn for_loop(&mut self, target: &Target, over: &Expr, body: &Expr, at: Position) -> Evaluated {
        let over = self.eval(over)?;
        let elements = match self.dispatch(&over, "to_a", Vec::new(), None, at)? {
            Val::Array(elements) => elements.lock().clone(),
            _ => Vec::new(),
        };
        for element in elements {
            self.assign(target, element)?;
            match self.eval(body) {
                Ok(_) | Err(Flow::Next(_)) => {}
                Err(Flow::Break(value)) => return Ok(value),
                Err(flow) => return Err(flow),
            }
        }
        Ok(over)
    }

    fn case(&mut self, subject: Option<&Expr>, arms: &[(Vec<Expr>, Expr)], otherwise: &Expr) -> Evaluated {
        let subject = match subject {
            Some(subject) => Some(self.eval(subject)?),
            None => None,
        };
        for (values, body) in arms {
            for value in values {
                let value_is_splat = matches!(value, Expr::Splat(_));
                let value = self.eval(value)?;
                let patterns = if value_is_splat { spread(value) } else { vec![value] };
                for pattern in patterns {
                    let matches = match &subject {
                        None => pattern.is_true(),
                        Some(subject) => methods::case_equals(self, &pattern, subject)?,
                    };
                    if matches {
                        return self.eval(body);
                    }
                }
            }
        }
        self.eval(otherwise)
    }

    fn rescue(&mut self, error: RaisedError, rescues: &[Rescue]) -> Evaluated {
        let catches = |rescue: &&Rescue| {
            rescue.classes.is_empty()
                || rescue.classes.iter().any(|class| methods::is_error_of(&error, class))
        };
        let Some(rescue) = rescues.iter().find(catches) else { return Err(Flow::Raise(error)) };
        if let Some(variable) = rescue.variable.and_then(|slot| self.slots.get_mut(slot)) {
            *variable = Val::Error(Arc::new(error));
        }
        self.eval(&rescue.body)
    }
}

/// Returns what `a << b << c` begins with.
fn root_of(expr: &Expr) -> &Expr {
    match expr {
        Expr::Call(call) if call.name == "<<" => call.receiver.as_ref().map_or(expr, root_of),
        other => other,
    }
}

/// Returns the variable that an expression is.
fn place_of(expr: &Expr) -> Option<Target> {
    match expr {
        Expr::Local(slot) => Some(Target::Local(*slot)),
        Expr::State(name) => Some(Target::State(Arc::clone(name))),
        _ => None,
    }
}

/// Ends a call whose block broke off.
fn catch_break(called: Evaluated, has_block: bool) -> Evaluated {
    match called {
        Err(Flow::Break(value)) if has_block => Ok(value),
        other => other,
    }
}

/// Returns the elements of an array, or the value itself.
pub(super) fn spread(value: Val) -> Vec<Val> {
    match value {
        Val::Array(elements) => elements.lock().clone(),
        single => vec![single],
    }
}

fn describe(value: &Val) -> String {
    match value {
        Val::Nil => "nil".to_owned(),
        Val::Bool(value) => value.to_string(),
        other => format!("an instance of {}", other.class()),
    }
}
