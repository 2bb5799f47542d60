//! Values of scripts.
//!
//! Arrays and hashes are shared, as in Ruby; texts are not: a method that changes one changes the variable that has it.

use std::cmp::Ordering;
use std::sync::Arc;

use chrono::{DateTime, FixedOffset, Utc};
use indexmap::IndexMap;
use millrace_ingest::Event;
use millrace_ingest::pattern::Expression;
use parking_lot::Mutex;
use serde_json::{Map, Number, Value};

/// Deepest nesting of values.
const MAX_DEPTH: usize = 100;

/// A value.
#[derive(Clone, Debug)]
pub(super) enum Val {
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Arc<str>),
    Symbol(Arc<str>),
    Array(Arc<Mutex<Vec<Val>>>),
    Hash(Arc<Mutex<Members>>),
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
    /// An event by its number: 0 is the one that the filter got.
    Event(usize),
    Constant(&'static str),
    Error(Arc<RaisedError>),
}

/// Members of a hash, in their order.
pub(super) type Members = IndexMap<Key, Val>;

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

    pub(super) fn type_error(message: impl Into<String>) -> Self {
        Self::new("TypeError", message)
    }
}

impl Val {
    pub(super) fn text(text: impl Into<Arc<str>>) -> Self {
        Self::Text(text.into())
    }

    pub(super) fn array(elements: Vec<Val>) -> Self {
        Self::Array(Arc::new(Mutex::new(elements)))
    }

    pub(super) fn hash(members: Members) -> Self {
        Self::Hash(Arc::new(Mutex::new(members)))
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

    /// Bytes that it takes, about, to a depth.
    pub(super) fn weight(&self, depth: usize) -> usize {
        const EACH: usize = 48;
        if depth > MAX_DEPTH {
            return EACH;
        }
        EACH + match self {
            Self::Text(text) | Self::Symbol(text) => text.len(),
            Self::Array(elements) => elements.lock().iter().map(|element| element.weight(depth + 1)).sum(),
            Self::Hash(members) => {
                members.lock().values().map(|value| EACH * 2 + value.weight(depth + 1)).sum()
            }
            _ => 0,
        }
    }

    /// Returns the text of `to_s`.
    pub(super) fn to_text(&self) -> Arc<str> {
        match self {
            Self::Text(text) | Self::Symbol(text) => Arc::clone(text),
            Self::Nil => Arc::from(""),
            other => Arc::from(other.show(false, 0)),
        }
    }

    /// Returns the text of `inspect`.
    pub(super) fn inspect(&self) -> String {
        self.show(true, 0)
    }

    fn show(&self, inspects: bool, depth: usize) -> String {
        if depth > MAX_DEPTH {
            return "…".to_owned();
        }
        match self {
            Self::Nil => if inspects { "nil" } else { "" }.to_owned(),
            Self::Bool(value) => value.to_string(),
            Self::Int(number) => number.to_string(),
            Self::Float(number) => show_float(*number),
            Self::Text(text) if inspects => format!("{text:?}"),
            Self::Symbol(name) if inspects => format!(":{name}"),
            Self::Text(text) | Self::Symbol(text) => text.to_string(),
            Self::Array(elements) => {
                let elements = elements.lock().clone();
                let shown: Vec<String> =
                    elements.iter().map(|element| element.show(true, depth + 1)).collect();
                format!("[{}]", shown.join(", "))
            }
            Self::Hash(members) => {
                let members = members.lock().clone();
                let shown: Vec<String> = members
                    .iter()
                    .map(|(key, value)| {
                        format!("{}=>{}", key.value().show(true, depth + 1), value.show(true, depth + 1))
                    })
                    .collect();
                format!("{{{}}}", shown.join(", "))
            }
            Self::Range { from, to, exclusive } => {
                let dots = if *exclusive { "..." } else { ".." };
                format!("{}{dots}{}", from.show(inspects, depth + 1), to.show(inspects, depth + 1))
            }
            Self::Regex(regex) => format!("(?-mix:{})", regex.as_str()),
            Self::Match(found) => found.group(0).unwrap_or_default().to_owned(),
            Self::Time(time) if time.offset().local_minus_utc() == 0 => {
                time.format("%Y-%m-%d %H:%M:%S UTC").to_string()
            }
            Self::Time(time) => time.format("%Y-%m-%d %H:%M:%S %z").to_string(),
            Self::Timestamp(time) => Event::new(*time).timestamp_text(),
            Self::Event(_) => "#<LogStash::Event>".to_owned(),
            Self::Constant(name) => (*name).to_owned(),
            Self::Error(error) => error.message.clone(),
        }
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

    /// Makes the value of an event.
    ///
    /// # Errors
    /// It has no form in JSON, or is nested too deep.
    pub(super) fn to_json(&self) -> Result<Value, RaisedError> {
        self.json(0)
    }

    fn json(&self, depth: usize) -> Result<Value, RaisedError> {
        if depth > MAX_DEPTH {
            return Err(RaisedError::argument(format!(
                "a value is nested more than {MAX_DEPTH} levels deep"
            )));
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

    /// Compares by value.
    pub(super) fn equals(&self, other: &Val) -> bool {
        self.equals_to(other, 0)
    }

    fn equals_to(&self, other: &Val, depth: usize) -> bool {
        if depth > MAX_DEPTH {
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
                a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a.equals_to(b, depth + 1))
            }
            (Self::Hash(a), Self::Hash(b)) => {
                if Arc::ptr_eq(a, b) {
                    return true;
                }
                let (a, b) = (a.lock().clone(), b.lock().clone());
                let same = |(key, value): (&Key, &Val)| {
                    b.get(key).is_some_and(|other| value.equals_to(other, depth + 1))
                };
                a.len() == b.len() && a.iter().all(same)
            }
            (Self::Range { from, to, exclusive }, Self::Range { from: a, to: b, exclusive: c }) => {
                exclusive == c && from.equals_to(a, depth + 1) && to.equals_to(b, depth + 1)
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
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => Some(a.cmp(b)),
            (Self::Text(a), Self::Text(b)) | (Self::Symbol(a), Self::Symbol(b)) => Some(a.cmp(b)),
            (Self::Array(_), Self::Array(_)) => {
                let (a, b) = (self.elements()?, other.elements()?);
                for (a, b) in a.iter().zip(&b) {
                    match a.order(b)? {
                        Ordering::Equal => {}
                        order => return Some(order),
                    }
                }
                Some(a.len().cmp(&b.len()))
            }
            _ => match (self.number(), other.number(), self.instant(), other.instant()) {
                (Some(a), Some(b), ..) => a.partial_cmp(&b),
                (.., Some(a), Some(b)) => Some(a.cmp(&b)),
                _ => self.equals(other).then_some(Ordering::Equal),
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
