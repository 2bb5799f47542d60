//! Conditions of branches, evaluated on events as Logstash does it.
//!
//! What values of which kinds mean to an operator:
//! - A field by itself holds where it is there and its text is neither empty nor `false`.
//! - `==` compares kind and value: `1`, `1.0` and `"1"` are three values; what is missing equals only what is missing.
//!   Texts are compared in a time that does not tell where they differ.
//! - `<`, `<=`, `>`, `>=` order numbers by value and texts by their bytes. Of anything else, and of a missing
//!   field, neither they nor their opposite holds: the event cannot be decided ([`UndecidedCondition`]), takes no branch
//!   and becomes a dead letter, so that `else` is not taken for want of a field.
//! - `=~` holds for texts only. `^` and `$` are the ends of lines, as in Ruby.
//! - `a in b` asks for a part of a text, an element of an array, or a member of a hash; against a written array
//!   the texts of values are compared, so that `1` is in `["1"]`.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use millrace_ingest::pattern::{Deadline, Expression};
use millrace_ingest::{Event, FieldReference};
use serde_json::{Number, Value};

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// Both hold.
    And(Box<Condition>, Box<Condition>),
    /// Not both hold.
    Nand(Box<Condition>, Box<Condition>),
    /// One or both hold.
    Or(Box<Condition>, Box<Condition>),
    /// Exactly one holds.
    Xor(Box<Condition>, Box<Condition>),
    /// It does not hold.
    Not(Box<Condition>),
    /// The value is there, and neither empty nor false.
    Truthy(Operand),
    /// Two values compare as wanted.
    Compare(Operand, Comparison, Operand),
    /// A text matches.
    Matches(Operand, Pattern),
    /// The first is in the second.
    In(Operand, Operand),
}

/// A side of an operator.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A field of the event.
    Field(FieldReference),
    /// A value as written.
    Value(Value),
}

/// Operators that compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `<=`
    AtMost,
    /// `>=`
    AtLeast,
    /// `<`
    Less,
    /// `>`
    Greater,
}

impl Comparison {
    /// All of them; a comparison that begins another one stands behind it.
    pub(crate) const ALL: [Self; 6] =
        [Self::Equal, Self::NotEqual, Self::AtMost, Self::AtLeast, Self::Less, Self::Greater];

    /// Returns its sign in the language.
    pub fn sign(self) -> &'static str {
        match self {
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::AtMost => "<=",
            Self::AtLeast => ">=",
            Self::Less => "<",
            Self::Greater => ">",
        }
    }

    fn holds(self, ordering: Ordering) -> bool {
        match self {
            Self::Equal => ordering.is_eq(),
            Self::NotEqual => ordering.is_ne(),
            Self::AtMost => ordering.is_le(),
            Self::AtLeast => ordering.is_ge(),
            Self::Less => ordering.is_lt(),
            Self::Greater => ordering.is_gt(),
        }
    }
}

/// A regular expression of a condition.
#[derive(Clone)]
pub struct Pattern(Arc<Expression>);

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Pattern {
    /// Compiles an expression.
    ///
    /// # Errors
    /// The reason why it is refused.
    pub fn new(text: &str) -> Result<Self, String> {
        Ok(Self(Arc::new(Expression::compile(text)?)))
    }
}

/// A condition has no answer for an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UndecidedCondition(pub String);

impl Condition {
    /// Writes it as a text that does not depend on how it was laid out.
    pub(crate) fn canonical(&self, out: &mut String) {
        let (name, a, b) = match self {
            Self::And(a, b) => ("and", a, Some(b)),
            Self::Nand(a, b) => ("nand", a, Some(b)),
            Self::Or(a, b) => ("or", a, Some(b)),
            Self::Xor(a, b) => ("xor", a, Some(b)),
            Self::Not(inner) => ("not", inner, None),
            Self::Truthy(operand) => return out.push_str(&format!("({operand})")),
            Self::Compare(a, comparison, b) => {
                return out.push_str(&format!("({a} {} {b})", comparison.sign()));
            }
            Self::Matches(operand, pattern) => {
                return out.push_str(&format!("({operand} =~ {:?})", pattern.0.as_str()));
            }
            Self::In(a, b) => return out.push_str(&format!("({a} in {b})")),
        };
        out.push_str(name);
        out.push('(');
        for part in [Some(a), b].into_iter().flatten() {
            part.canonical(out);
        }
        out.push(')');
    }

    /// Returns whether an event meets the condition.
    ///
    /// # Errors
    /// Values that have no order, or an expression that takes longer than a second.
    pub fn holds(&self, event: &Event) -> Result<bool, UndecidedCondition> {
        match self {
            Self::And(a, b) => Ok(a.holds(event)? && b.holds(event)?),
            Self::Nand(a, b) => Ok(!(a.holds(event)? && b.holds(event)?)),
            Self::Or(a, b) => Ok(a.holds(event)? || b.holds(event)?),
            Self::Xor(a, b) => Ok(a.holds(event)? != b.holds(event)?),
            Self::Not(inner) => Ok(!inner.holds(event)?),
            Self::Truthy(operand) => Ok(operand.value_in(event).is_some_and(|value| is_truthy(&value))),
            Self::Compare(a, comparison, b) => compare(a, *comparison, b, event),
            Self::Matches(operand, pattern) => match operand.value_in(event).as_deref() {
                Some(Value::String(text)) => pattern
                    .0
                    .is_match(text, &Deadline::default())
                    .map_err(|_| UndecidedCondition(format!("{operand} =~ {:?} took too long", pattern.0))),
                _ => Ok(false),
            },
            Self::In(a, b) => Ok(is_in(a, b, event)),
        }
    }
}

impl Operand {
    fn value_in<'a>(&'a self, event: &'a Event) -> Option<Cow<'a, Value>> {
        match self {
            Self::Field(reference) => event.get(reference).filter(|value| !value.is_null()),
            Self::Value(value) => Some(Cow::Borrowed(value)),
        }
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(reference) if reference.path().len() == 1 => write!(f, "[{reference}]"),
            Self::Field(reference) => write!(f, "{reference}"),
            Self::Value(value) => write!(f, "{value}"),
        }
    }
}

fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::String(text) => !text.is_empty() && text != "false",
        Value::Number(_) | Value::Array(_) | Value::Object(_) => true,
    }
}

fn compare(
    a: &Operand,
    comparison: Comparison,
    b: &Operand,
    event: &Event,
) -> Result<bool, UndecidedCondition> {
    let (left, right) = (a.value_in(event), b.value_in(event));
    if matches!(comparison, Comparison::Equal | Comparison::NotEqual) {
        let equal = match (left.as_deref(), right.as_deref()) {
            (Some(Value::String(left)), Some(Value::String(right))) => is_same_text(left, right),
            (left, right) => left == right,
        };
        return Ok(equal == (comparison == Comparison::Equal));
    }
    let undecided = || {
        let shown = |value: Option<&Value>| value.map_or("nothing", kind).to_owned();
        let (left, right) = (shown(left.as_deref()), shown(right.as_deref()));
        UndecidedCondition(format!("{a} {} {b} has no answer for {left} and {right}", comparison.sign()))
    };
    let ordering = match (left.as_deref(), right.as_deref()) {
        (Some(Value::String(left)), Some(Value::String(right))) => {
            Some(left.as_bytes().cmp(right.as_bytes()))
        }
        (Some(Value::Number(left)), Some(Value::Number(right))) => order(left, right),
        _ => None,
    };
    ordering.map(|ordering| comparison.holds(ordering)).ok_or_else(undecided)
}

/// Returns whether texts are the same, in a time that depends on their lengths only: conditions compare tokens.
fn is_same_text(a: &str, b: &str) -> bool {
    let differing = a.bytes().zip(b.bytes()).fold(0, |differing, (a, b)| differing | (a ^ b));
    a.len() == b.len() && std::hint::black_box(differing) == 0
}

fn order(a: &Number, b: &Number) -> Option<Ordering> {
    let whole = |number: &Number| number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    match (whole(a), whole(b)) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "an array",
        Value::Object(_) => "a hash",
    }
}

fn is_in(a: &Operand, b: &Operand, event: &Event) -> bool {
    let (Some(item), Some(whole)) = (a.value_in(event), b.value_in(event)) else { return false };
    let by_text = matches!(b, Operand::Value(_));
    match (item.as_ref(), whole.as_ref()) {
        (Value::String(part), Value::String(text)) => text.contains(part.as_str()),
        (Value::String(name), Value::Object(members)) => members.contains_key(name),
        (Value::Array(_) | Value::Object(_), _) if matches!(a, Operand::Field(_)) => false,
        // A written array on the left: whether one of its elements is the value.
        (Value::Array(elements), single) if !single.is_array() => {
            elements.iter().any(|element| text_of(element) == text_of(single))
        }
        (item, Value::Array(elements)) if by_text => {
            elements.iter().any(|element| text_of(element) == text_of(item))
        }
        (item, Value::Array(elements)) => elements.contains(item),
        (item, whole) => item == whole,
    }
}

fn text_of(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        other => Cow::Owned(other.to_string()),
    }
}
