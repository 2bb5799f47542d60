//! Values of scripts.
//!
//! Arrays and hashes are shared, as in Ruby; texts are not: a method that changes one changes the variable that has it.

use std::cmp::Ordering;
use std::fmt::Write as _;
use std::ops::Deref;
use std::sync::Arc;

use chrono::{DateTime, FixedOffset, Utc};
use indexmap::IndexMap;
use millrace_ingest::Event;
use millrace_ingest::pattern::Expression;
use parking_lot::Mutex;
use serde_json::{Map, Number, Value};

/// Deepest nesting of values.
const MAX_DEPTH: usize = 100;
/// Bytes after which the text of a value ends. The interpreter refuses a text of more bytes.
const MAX_TEXT: usize = 64 << 20;
/// Values that an order compares. Values that are the same for longer have no order.
const MAX_ORDERED: usize = 1 << 20;
/// Weight beyond every limit, of a value that is nested too deep.
const TOO_DEEP: usize = usize::MAX / 1024;

/// A value.
#[derive(Clone, Debug)]
pub(super) enum Val {
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Arc<str>),
    Symbol(Arc<str>),
    Array(Arc<SharedArray>),
    Hash(Arc<SharedHash>),
    Range {
        from: Box<Val>,
        to: Box<Val>,
        exclusive: bool,
    },
    Regex(Arc<Expression>),
    Match(Arc<MatchData>),
    Time(DateTime<FixedOffset>),
    /// A time of Logstash, in UTC.
    Timestamp(DateTime<Utc>),
    Event(EventHandle),
    Constant(&'static str),
    Error(Arc<RaisedError>),
}

/// An event of a run of a script. Maps and variables outlive the run; the handle is of no use in a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventHandle {
    /// Number of the run.
    pub(super) run: u64,
    /// Number of the event: 0 is the one that the filter got.
    pub(super) number: usize,
}

/// Members of a hash, in their order.
pub(super) type Members = IndexMap<Key, Val>;

/// Elements of an array. Dropping it takes no more stack for values that are nested deeper.
#[derive(Debug)]
pub(super) struct SharedArray(Mutex<Vec<Val>>);

/// Members of a hash. Dropping it takes no more stack for values that are nested deeper.
#[derive(Debug)]
pub(super) struct SharedHash(Mutex<Members>);

impl Deref for SharedArray {
    type Target = Mutex<Vec<Val>>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Deref for SharedHash {
    type Target = Mutex<Members>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Drop for SharedArray {
    fn drop(&mut self) {
        drop_nested(std::mem::take(self.0.get_mut()));
    }
}

impl Drop for SharedHash {
    fn drop(&mut self) {
        drop_nested(std::mem::take(self.0.get_mut()).into_values().collect());
    }
}

/// Drops values, and those within that nothing else has.
fn drop_nested(mut pending: Vec<Val>) {
    while let Some(value) = pending.pop() {
        match value {
            Val::Array(array) => {
                if let Some(mut array) = Arc::into_inner(array) {
                    pending.append(array.0.get_mut());
                }
            }
            Val::Hash(hash) => {
                if let Some(mut hash) = Arc::into_inner(hash) {
                    pending.extend(std::mem::take(hash.0.get_mut()).into_values());
                }
            }
            _ => {}
        }
    }
}

/// Empties values and those within, so that values which contain themselves are freed.
pub(super) fn empty_nested(mut pending: Vec<Val>) {
    while let Some(value) = pending.pop() {
        match value {
            Val::Array(array) => pending.append(&mut array.lock()),
            Val::Hash(hash) => pending.extend(std::mem::take(&mut *hash.lock()).into_values()),
            _ => {}
        }
    }
}

/// A key of a hash.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Nil,
    Bool(bool),
    Int(i64),
    /// Bits of the number.
    Float(u64),
    Text(Arc<str>),
    Symbol(Arc<str>),
    /// Any other value, by the text that shows it.
    Other(Arc<str>),
}

/// A match of an expression.
#[derive(Debug)]
pub(super) struct MatchData {
    pub(super) text: Arc<str>,
    /// Ranges of the groups; the first is the whole match.
    pub(super) groups: Vec<Option<std::ops::Range<usize>>>,
    pub(super) names: Vec<(String, usize)>,
}

impl MatchData {
    pub(super) fn group(&self, number: usize) -> Option<&str> {
        self.text.get(self.groups.get(number)?.clone()?)
    }

    pub(super) fn named(&self, name: &str) -> Option<&str> {
        let (_, number) = self.names.iter().rev().find(|(have, _)| have == name)?;
        self.group(*number)
    }
}

/// An error that a script raises or rescues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RaisedError {
    pub(super) class: &'static str,
    pub(super) message: String,
}

impl RaisedError {
    pub(super) fn new(class: &'static str, message: impl Into<String>) -> Self {
        Self { class, message: message.into() }
    }

    pub(super) fn argument(message: impl Into<String>) -> Self {
        Self::new("ArgumentError", message)
    }

    pub(super) fn too_deep() -> Self {
        Self::argument(format!("a value is nested more than {MAX_DEPTH} levels deep"))
    }

    pub(super) fn type_error(message: impl Into<String>) -> Self {
        Self::new("TypeError", message)
    }
}

impl Val {
    pub(super) fn text(text: impl Into<Arc<str>>) -> Self {
        Self::Text(text.into())
    }

    pub(super) fn array(elements: Vec<Val>) -> Self {
        Self::Array(Arc::new(SharedArray(Mutex::new(elements))))
    }

    pub(super) fn hash(members: Members) -> Self {
        Self::Hash(Arc::new(SharedHash(Mutex::new(members))))
    }

    pub(super) fn optional(text: Option<&str>) -> Self {
        text.map_or(Self::Nil, Self::text)
    }

    pub(super) fn is_true(&self) -> bool {
        !matches!(self, Self::Nil | Self::Bool(false))
    }

    /// Returns the name of its class.
    pub(super) fn class(&self) -> &'static str {
        match self {
            Self::Nil => "NilClass",
            Self::Bool(true) => "TrueClass",
            Self::Bool(false) => "FalseClass",
            Self::Int(_) => "Integer",
            Self::Float(_) => "Float",
            Self::Text(_) => "String",
            Self::Symbol(_) => "Symbol",
            Self::Array(_) => "Array",
            Self::Hash(_) => "Hash",
            Self::Range { .. } => "Range",
            Self::Regex(_) => "Regexp",
            Self::Match(_) => "MatchData",
            Self::Time(_) => "Time",
            Self::Timestamp(_) => "LogStash::Timestamp",
            Self::Event(_) => "LogStash::Event",
            Self::Constant(_) => "Class",
            Self::Error(error) => error.class,
        }
    }

    /// Returns the elements of an array; a copy, so that the array may change meanwhile.
    pub(super) fn elements(&self) -> Option<Vec<Val>> {
        match self {
            Self::Array(elements) => Some(elements.lock().clone()),
            _ => None,
        }
    }

    /// Returns the bytes that it takes, about, as a tree: a shared value weighs each time that it is reached.
    ///
    /// The sum ends beyond a limit. A value that is nested too deep, as one that contains itself, exceeds every limit.
    pub(super) fn weight(&self, limit: usize) -> usize {
        let mut total = 0;
        self.add_weight(0, limit, &mut total);
        total
    }

    fn add_weight(&self, depth: usize, limit: usize, total: &mut usize) {
        const EACH: usize = 48;
        let mut add = |bytes: usize| {
            *total = total.saturating_add(bytes);
            *total <= limit
        };
        if !add(EACH) {
            return;
        }
        if depth > MAX_DEPTH {
            add(TOO_DEEP);
            return;
        }
        // A value may contain itself: no lock is held while its elements are weighed.
        match self {
            Self::Text(text) | Self::Symbol(text) => {
                add(text.len());
            }
            Self::Array(elements) => {
                let elements = elements.lock().clone();
                for element in elements {
                    element.add_weight(depth + 1, limit, total);
                    if *total > limit {
                        return;
                    }
                }
            }
            Self::Hash(members) => {
                let members = members.lock().clone();
                for (key, value) in members {
                    *total = total.saturating_add(EACH * 2 + key.bytes());
                    value.add_weight(depth + 1, limit, total);
                    if *total > limit {
                        return;
                    }
                }
            }
            _ => {}
        }
    }

    /// Returns the text of `to_s`.
    pub(super) fn to_text(&self) -> Arc<str> {
        match self {
            Self::Text(text) | Self::Symbol(text) => Arc::clone(text),
            Self::Nil => Arc::from(""),
            other => {
                let mut text = String::new();
                other.show(false, 0, &mut text);
                Arc::from(text)
            }
        }
    }

    /// Returns the text of `inspect`.
    pub(super) fn inspect(&self) -> String {
        let mut text = String::new();
        self.show(true, 0, &mut text);
        text
    }

    /// Appends its text, which ends beyond [`MAX_TEXT`].
    fn show(&self, inspects: bool, depth: usize, out: &mut String) {
        if out.len() > MAX_TEXT {
            return;
        }
        if depth > MAX_DEPTH {
            out.push('…');
            return;
        }
        // Writing into a text cannot fail.
        let _ = match self {
            Self::Nil => write!(out, "{}", if inspects { "nil" } else { "" }),
            Self::Bool(value) => write!(out, "{value}"),
            Self::Int(number) => write!(out, "{number}"),
            Self::Float(number) => write!(out, "{}", show_float(*number)),
            Self::Text(text) if inspects => write!(out, "{text:?}"),
            Self::Symbol(name) if inspects => write!(out, ":{name}"),
            Self::Text(text) | Self::Symbol(text) => write!(out, "{text}"),
            Self::Array(elements) => {
                let elements = elements.lock().clone();
                out.push('[');
                for (number, element) in elements.iter().enumerate() {
                    out.push_str(if number > 0 { ", " } else { "" });
                    element.show(true, depth + 1, out);
                    if out.len() > MAX_TEXT {
                        return;
                    }
                }
                write!(out, "]")
            }
            Self::Hash(members) => {
                let members = members.lock().clone();
                out.push('{');
                for (number, (key, value)) in members.iter().enumerate() {
                    out.push_str(if number > 0 { ", " } else { "" });
                    key.value().show(true, depth + 1, out);
                    out.push_str("=>");
                    value.show(true, depth + 1, out);
                    if out.len() > MAX_TEXT {
                        return;
                    }
                }
                write!(out, "}}")
            }
            Self::Range { from, to, exclusive } => {
                from.show(inspects, depth + 1, out);
                out.push_str(if *exclusive { "..." } else { ".." });
                to.show(inspects, depth + 1, out);
                Ok(())
            }
            Self::Regex(regex) => write!(out, "(?-mix:{})", regex.as_str()),
            Self::Match(found) => write!(out, "{}", found.group(0).unwrap_or_default()),
            Self::Time(time) if time.offset().local_minus_utc() == 0 => {
                write!(out, "{}", time.format("%Y-%m-%d %H:%M:%S UTC"))
            }
            Self::Time(time) => write!(out, "{}", time.format("%Y-%m-%d %H:%M:%S %z")),
            Self::Timestamp(time) => write!(out, "{}", Event::new(*time).timestamp_text()),
            Self::Event(_) => write!(out, "#<LogStash::Event>"),
            Self::Constant(name) => write!(out, "{name}"),
            Self::Error(error) => write!(out, "{}", error.message),
        };
    }

    /// Makes a value of that of an event.
    pub(super) fn from_json(value: &Value) -> Self {
        match value {
            Value::Null => Self::Nil,
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(number) => match number.as_i64() {
                Some(whole) => Self::Int(whole),
                None => Self::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => Self::text(text.as_str()),
            Value::Array(elements) => Self::array(elements.iter().map(Self::from_json).collect()),
            Value::Object(members) => Self::hash(
                members
                    .iter()
                    .map(|(name, value)| (Key::Text(Arc::from(name.as_str())), Self::from_json(value)))
                    .collect(),
            ),
        }
    }

    /// Makes the value of an event. The interpreter weighs values before, as shared ones multiply.
    ///
    /// # Errors
    /// It has no form in JSON, or is nested too deep.
    pub(super) fn to_json(&self) -> Result<Value, RaisedError> {
        self.json(0)
    }

    fn json(&self, depth: usize) -> Result<Value, RaisedError> {
        if depth > MAX_DEPTH {
            return Err(RaisedError::too_deep());
        }
        Ok(match self {
            Self::Nil => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(number) => Value::Number((*number).into()),
            Self::Float(number) => match Number::from_f64(*number) {
                Some(number) => Value::Number(number),
                None => {
                    return Err(RaisedError::new(
                        "FloatDomainError",
                        format!("[{number}] is no number of JSON"),
                    ));
                }
            },
            Self::Text(text) | Self::Symbol(text) => Value::String(text.to_string()),
            Self::Array(elements) => {
                let elements = elements.lock().clone();
                Value::Array(
                    elements.iter().map(|element| element.json(depth + 1)).collect::<Result<_, _>>()?,
                )
            }
            Self::Hash(members) => {
                let members = members.lock().clone();
                let mut object = Map::new();
                for (key, value) in members {
                    object.insert(key.value().to_text().to_string(), value.json(depth + 1)?);
                }
                Value::Object(object)
            }
            Self::Time(time) => Value::String(Event::new(time.to_utc()).timestamp_text()),
            Self::Timestamp(time) => Value::String(Event::new(*time).timestamp_text()),
            Self::Range { .. } | Self::Match(_) | Self::Regex(_) | Self::Error(_) | Self::Constant(_) => {
                Value::String(self.to_text().to_string())
            }
            Self::Event(_) => return Err(RaisedError::type_error("an event cannot be a value of a field")),
        })
    }

    /// Returns the bytes of a text; 0 for other values.
    pub(super) fn text_bytes(&self) -> usize {
        match self {
            Self::Text(text) | Self::Symbol(text) => text.len(),
            _ => 0,
        }
    }

    /// Returns the number that a number is.
    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Self::Int(number) => Some(*number as f64),
            Self::Float(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the instant of a time.
    pub(super) fn instant(&self) -> Option<DateTime<Utc>> {
        match self {
            Self::Time(time) => Some(time.to_utc()),
            Self::Timestamp(time) => Some(*time),
            _ => None,
        }
    }

    /// Compares by value. `fuel` loses one for each value; the answer holds only where some is left.
    pub(super) fn equals(&self, other: &Val, fuel: &mut usize) -> bool {
        self.equals_to(other, 0, fuel)
    }

    fn equals_to(&self, other: &Val, depth: usize, fuel: &mut usize) -> bool {
        *fuel = fuel.saturating_sub(1);
        if depth > MAX_DEPTH || *fuel == 0 {
            return false;
        }
        match (self, other) {
            (Self::Nil, Self::Nil) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::Text(a), Self::Text(b)) | (Self::Symbol(a), Self::Symbol(b)) => a == b,
            (Self::Event(a), Self::Event(b)) => a == b,
            (Self::Constant(a), Self::Constant(b)) => a == b,
            (Self::Regex(a), Self::Regex(b)) => a.as_str() == b.as_str(),
            (Self::Array(a), Self::Array(b)) => {
                if Arc::ptr_eq(a, b) {
                    return true;
                }
                let (a, b) = (a.lock().clone(), b.lock().clone());
                a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a.equals_to(b, depth + 1, fuel))
            }
            (Self::Hash(a), Self::Hash(b)) => {
                if Arc::ptr_eq(a, b) {
                    return true;
                }
                let (a, b) = (a.lock().clone(), b.lock().clone());
                let same = |(key, value): (&Key, &Val)| {
                    b.get(key).is_some_and(|other| value.equals_to(other, depth + 1, fuel))
                };
                a.len() == b.len() && a.iter().all(same)
            }
            (Self::Range { from, to, exclusive }, Self::Range { from: a, to: b, exclusive: c }) => {
                exclusive == c && from.equals_to(a, depth + 1, fuel) && to.equals_to(b, depth + 1, fuel)
            }
            _ => match (self.number(), other.number(), self.instant(), other.instant()) {
                (Some(a), Some(b), ..) => a == b,
                (.., Some(a), Some(b)) => a == b,
                _ => false,
            },
        }
    }

    /// Compares by order; `None` where two values have none.
    pub(super) fn order(&self, other: &Val) -> Option<Ordering> {
        let mut fuel = MAX_ORDERED;
        self.order_to(other, 0, &mut fuel)
    }

    fn order_to(&self, other: &Val, depth: usize, fuel: &mut usize) -> Option<Ordering> {
        *fuel = fuel.saturating_sub(1);
        if depth > MAX_DEPTH || *fuel == 0 {
            return None;
        }
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => Some(a.cmp(b)),
            (Self::Text(a), Self::Text(b)) | (Self::Symbol(a), Self::Symbol(b)) => Some(a.cmp(b)),
            (Self::Array(_), Self::Array(_)) => {
                let (a, b) = (self.elements()?, other.elements()?);
                for (a, b) in a.iter().zip(&b) {
                    match a.order_to(b, depth + 1, fuel)? {
                        Ordering::Equal => {}
                        order => return Some(order),
                    }
                }
                Some(a.len().cmp(&b.len()))
            }
            _ => match (self.number(), other.number(), self.instant(), other.instant()) {
                (Some(a), Some(b), ..) => a.partial_cmp(&b),
                (.., Some(a), Some(b)) => Some(a.cmp(&b)),
                _ => self.equals_to(other, depth, fuel).then_some(Ordering::Equal),
            },
        }
    }
}

impl Key {
    pub(super) fn new(value: &Val) -> Self {
        match value {
            Val::Nil => Self::Nil,
            Val::Bool(value) => Self::Bool(*value),
            Val::Int(number) => Self::Int(*number),
            Val::Float(number) => Self::Float(number.to_bits()),
            Val::Text(text) => Self::Text(Arc::clone(text)),
            Val::Symbol(name) => Self::Symbol(Arc::clone(name)),
            other => Self::Other(Arc::from(other.inspect())),
        }
    }

    /// Returns the bytes of its text.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Text(text) | Self::Other(text) | Self::Symbol(text) => text.len(),
            Self::Nil | Self::Bool(_) | Self::Int(_) | Self::Float(_) => 0,
        }
    }

    pub(super) fn value(&self) -> Val {
        match self {
            Self::Nil => Val::Nil,
            Self::Bool(value) => Val::Bool(*value),
            Self::Int(number) => Val::Int(*number),
            Self::Float(bits) => Val::Float(f64::from_bits(*bits)),
            Self::Text(text) | Self::Other(text) => Val::Text(Arc::clone(text)),
            Self::Symbol(name) => Val::Symbol(Arc::clone(name)),
        }
    }
}

/// Shows a number with a fraction as Ruby does.
fn show_float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    Number::from_f64(number)
        .map_or_else(String::new, |number| millrace_ingest::event::text_of(&Value::Number(number)))
}
