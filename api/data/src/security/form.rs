//! Members of a body: each is taken by who knows it, the rest is refused.

use serde_json::{Map, Value};

use crate::error::Error;
use crate::http::Request;

/// The members of a body that nobody has taken yet.
pub(super) struct BodyMembers {
    /// Subject of the body, for messages.
    of: &'static str,
    members: Map<String, Value>,
}

impl BodyMembers {
    /// Reads the body of a request, which has to be an object.
    pub(super) fn read(of: &'static str, request: &Request) -> Result<Self, Error> {
        let body =
            request.json()?.ok_or_else(|| Error::parsing(format!("request body of {of} is required")))?;
        Self::new(of, body)
    }

    /// Reads a body that need not be there.
    pub(super) fn read_optional(of: &'static str, request: &Request) -> Result<Self, Error> {
        Self::new(of, request.json()?.unwrap_or_else(|| Value::Object(Map::new())))
    }

    pub(super) fn new(of: &'static str, body: Value) -> Result<Self, Error> {
        match body {
            Value::Object(members) => Ok(Self { of, members }),
            other => Err(Error::parsing(format!("{of} must be an object, found {}", kind(&other)))),
        }
    }

    /// Takes a member; null is none.
    pub(super) fn take(&mut self, name: &str) -> Option<Value> {
        self.members.remove(name).filter(|value| !value.is_null())
    }

    /// Takes a text.
    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, Error> {
        self.take(name).map(|value| text(name, value)).transpose()
    }

    /// Takes a text that has to be there.
    pub(super) fn required(&mut self, name: &str) -> Result<String, Error> {
        let of = self.of;
        self.text(name)?.ok_or_else(|| Error::validation(&[format!("[{name}] of {of} is missing")]))
    }

    /// Takes texts, of which one may stand alone.
    pub(super) fn texts(&mut self, name: &str) -> Result<Option<Vec<String>>, Error> {
        self.take(name).map(|value| texts(name, value)).transpose()
    }

    pub(super) fn boolean(&mut self, name: &str) -> Result<Option<bool>, Error> {
        let read = |value: Value| value.as_bool().ok_or_else(|| expected(name, "a boolean", &value));
        self.take(name).map(read).transpose()
    }

    pub(super) fn number(&mut self, name: &str) -> Result<Option<usize>, Error> {
        let read = |value: Value| {
            let number = value.as_u64().and_then(|number| usize::try_from(number).ok());
            number.ok_or_else(|| expected(name, "a whole number", &value))
        };
        self.take(name).map(read).transpose()
    }

    /// Takes an object.
    pub(super) fn object(&mut self, name: &str) -> Result<Option<Map<String, Value>>, Error> {
        let read = |value: Value| match value {
            Value::Object(members) => Ok(members),
            other => Err(expected(name, "an object", &other)),
        };
        self.take(name).map(read).transpose()
    }

    /// Drops members that are answered with and mean nothing in a request.
    pub(super) fn ignore(&mut self, names: &[&str]) {
        for name in names {
            self.members.remove(*name);
        }
    }

    /// Refuses members that this server has not, unless they ask for nothing.
    pub(super) fn absent(&mut self, names: &[&str]) -> Result<(), Error> {
        for name in names {
            let is_empty = match self.take(name) {
                None => true,
                Some(Value::Array(values)) => values.is_empty(),
                Some(Value::Object(members)) => members.is_empty(),
                Some(Value::String(text)) => text.is_empty(),
                Some(_) => false,
            };
            if !is_empty {
                let of = self.of;
                return Err(Error::illegal_argument(format!(
                    "[{name}] of {of} is not available on this server"
                )));
            }
        }
        Ok(())
    }

    /// Refuses what is left.
    pub(super) fn finish(self) -> Result<(), Error> {
        match self.members.keys().next() {
            None => Ok(()),
            Some(name) => {
                let (of, name) = (self.of, name.chars().take(100).collect::<String>());
                Err(Error::parsing(format!("unexpected member [{name}] in {of}")))
            }
        }
    }
}

pub(super) fn text(name: &str, value: Value) -> Result<String, Error> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(expected(name, "a string", &other)),
    }
}

pub(super) fn texts(name: &str, value: Value) -> Result<Vec<String>, Error> {
    match value {
        Value::String(text) => Ok(vec![text]),
        Value::Array(values) => values.into_iter().map(|value| text(name, value)).collect(),
        other => Err(expected(name, "an array of strings", &other)),
    }
}

/// Describes the required type of a member. It says what was found by its kind only: it may be a secret.
pub(super) fn expected(name: &str, what: &str, found: &Value) -> Error {
    Error::parsing(format!("[{name}] must be {what}, found {}", kind(found)))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
