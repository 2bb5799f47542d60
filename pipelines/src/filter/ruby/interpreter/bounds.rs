//! Bounds of one run of a script: steps, bytes of values, events, regular expressions.
//!
//! [`Interpreter::step`] and [`Interpreter::allocate`] count; the others make or compare values and count what that takes.

use std::sync::Arc;

use millrace_ingest::Event;
use millrace_ingest::pattern::Expression;
use serde_json::Value;

use super::super::methods;
use super::super::value::{EventHandle, Key, Members, RaisedError, Val};
use super::{Evaluated, Flow, Interpreter};

/// Steps of one run.
const MAX_STEPS: u64 = 2_000_000;
/// Bytes that the values of one run take, about.
pub(in super::super) const MAX_BYTES: usize = 64 << 20;
/// Expressions that one run compiles.
const MAX_EXPRESSIONS: usize = 1_000;
/// Events that one run makes.
const MAX_EVENTS: usize = 10_000;
/// Values that one comparison looks at.
const MAX_COMPARISONS: usize = 4 << 20;

impl Interpreter<'_> {
    /// Counts steps.
    pub(in super::super) fn step(&mut self, count: usize) -> Result<(), Flow> {
        self.steps += count as u64;
        if self.steps > MAX_STEPS {
            return Err(Flow::Exceeded(format!("the script takes more than {MAX_STEPS} steps for an event")));
        }
        Ok(())
    }

    /// Counts bytes of new values.
    pub(in super::super) fn allocate(&mut self, bytes: usize) -> Result<(), Flow> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_BYTES {
            return Err(Flow::Exceeded(format!(
                "the script makes more than {MAX_BYTES} bytes of values for an event"
            )));
        }
        Ok(())
    }

    pub(in super::super) fn text(&mut self, text: impl Into<Arc<str>>) -> Evaluated {
        let text = text.into();
        self.allocate(text.len())?;
        Ok(Val::Text(text))
    }

    pub(in super::super) fn array(&mut self, elements: Vec<Val>) -> Evaluated {
        self.allocate(elements.len().saturating_mul(32))?;
        self.step(elements.len() / 8)?;
        Ok(Val::array(elements))
    }

    pub(in super::super) fn hash(&mut self, members: Members) -> Evaluated {
        self.allocate(members.len().saturating_mul(96))?;
        self.step(members.len() / 8)?;
        Ok(Val::hash(members))
    }

    /// Adds an event that the script made.
    pub(in super::super) fn add_event(&mut self, event: Event) -> Evaluated {
        if self.events.len() >= MAX_EVENTS {
            return Err(Flow::Exceeded(format!("the script makes more than {MAX_EVENTS} events")));
        }
        self.allocate(usize::try_from(event.bytes()).unwrap_or(usize::MAX))?;
        self.events.push(event);
        Ok(self.event(self.events.len() - 1))
    }

    /// Makes the value of an event of this run.
    pub(in super::super) fn event(&self, number: usize) -> Val {
        Val::Event(EventHandle { run: self.run, number })
    }

    /// Returns the number of an event.
    ///
    /// # Errors
    /// The event is one of an earlier run.
    pub(in super::super) fn event_number(&self, handle: EventHandle) -> Result<usize, RaisedError> {
        match handle.run == self.run {
            true => Ok(handle.number),
            false => Err(RaisedError::argument(
                "the event of an earlier run is gone: put its fields into the variable, not the event",
            )),
        }
    }

    /// Compiles an expression, or takes it from those of this run.
    pub(in super::super) fn expression(&mut self, text: &str) -> Result<Arc<Expression>, Flow> {
        if let Some(expression) = self.expressions.get(text) {
            return Ok(Arc::clone(expression));
        }
        if self.expressions.len() >= MAX_EXPRESSIONS {
            return Err(Flow::Exceeded(format!(
                "the script makes more than {MAX_EXPRESSIONS} regular expressions"
            )));
        }
        let expression = methods::compile(text)?;
        self.expressions.insert(text.to_owned(), Arc::clone(&expression));
        Ok(expression)
    }

    /// Returns the bytes of values that the run has made so far, about.
    pub(in super::super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Hands on an event behind the first.
    pub(in super::super) fn hand_on(&mut self, number: usize) -> Result<(), Flow> {
        if self.handed_on.len() >= MAX_EVENTS {
            return Err(Flow::Exceeded(format!("the script hands on more than {MAX_EVENTS} events")));
        }
        let bytes = self.events.get(number).map_or(0, Event::bytes);
        self.allocate(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        self.handed_on.push(number);
        Ok(())
    }

    /// Hands on the events of an array; the first event ends if it is not among them.
    ///
    /// # Errors
    /// The value is no array of events.
    pub(in super::super) fn hand_on_all(&mut self, value: &Val) -> Result<(), RaisedError> {
        let refused = || RaisedError::type_error("`filter` must return an array of events");
        let events = value.elements().ok_or_else(refused)?;
        self.is_cancelled = true;
        for event in events {
            let Val::Event(handle) = event else { return Err(refused()) };
            match self.event_number(handle)? {
                0 => self.is_cancelled = false,
                number if self.handed_on.len() < MAX_EVENTS => self.handed_on.push(number),
                _ => return Err(refused()),
            }
        }
        Ok(())
    }

    /// Makes a key of a hash.
    pub(in super::super) fn key(&mut self, value: &Val) -> Result<Key, Flow> {
        let key = Key::new(value);
        if let Key::Other(text) = &key {
            self.step(text.len() / 256)?;
            self.allocate(text.len())?;
        }
        Ok(key)
    }

    /// Compares by value.
    pub(in super::super) fn equals(&mut self, value: &Val, other: &Val) -> Result<bool, Flow> {
        let mut fuel = MAX_COMPARISONS;
        let is_equal = value.equals(other, &mut fuel);
        self.step((MAX_COMPARISONS - fuel) / 64)?;
        if fuel == 0 {
            return Err(Flow::Exceeded(format!("a comparison takes more than {MAX_COMPARISONS} values")));
        }
        Ok(is_equal)
    }

    /// Counts the bytes of a copy of a value.
    pub(in super::super) fn allocate_copy(&mut self, value: &Val) -> Result<(), Flow> {
        let weight = value.weight(MAX_BYTES);
        if weight >= usize::MAX / 1024 {
            return Err(RaisedError::too_deep().into());
        }
        self.allocate(weight)?;
        self.step(weight / 1024)
    }

    /// Makes the value of an event.
    pub(in super::super) fn json(&mut self, value: &Val) -> Result<Value, Flow> {
        self.allocate_copy(value)?;
        Ok(value.to_json()?)
    }
}
