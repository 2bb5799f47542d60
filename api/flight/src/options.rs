//! Options of sessions: the messages of Flight that `arrow-flight` has none for, and what they are answered.
//!
//! A session is the login token, which needs no state of its own here. The one option there is names the catalog, and there is one.

use std::collections::HashMap;

use prost::{Enumeration, Message, Oneof};

/// Value of an option.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct OptionValue {
    #[prost(oneof = "Value", tags = "1, 2, 3, 4, 5")]
    pub(crate) value: Option<Value>,
}

/// Type of an option's value.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(sfixed64, tag = "3")]
    Int(i64),
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(message, tag = "5")]
    Texts(Texts),
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Texts {
    #[prost(string, repeated, tag = "1")]
    pub(crate) values: Vec<String>,
}

/// `SetSessionOptionsRequest`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SetRequest {
    #[prost(map = "string, message", tag = "1")]
    pub(crate) options: HashMap<String, OptionValue>,
}

/// `SetSessionOptionsResult`: the options that could not be set, with the reasons.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SetResult {
    #[prost(map = "string, message", tag = "1")]
    pub(crate) errors: HashMap<String, SetError>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct SetError {
    #[prost(enumeration = "ErrorValue", tag = "1")]
    pub(crate) value: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(crate) enum ErrorValue {
    Unspecified = 0,
    InvalidName = 1,
    InvalidValue = 2,
    Error = 3,
}

/// `GetSessionOptionsResult`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetResult {
    #[prost(map = "string, message", tag = "1")]
    pub(crate) options: HashMap<String, OptionValue>,
}

/// `CloseSessionResult`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct CloseResult {
    #[prost(enumeration = "CloseStatus", tag = "1")]
    pub(crate) status: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(crate) enum CloseStatus {
    Unspecified = 0,
    Closed = 1,
    Closing = 2,
    NotCloseable = 3,
}

/// Answers a request to set options: an option may be set to its present value.
pub(crate) fn set(request: &SetRequest, catalog: &str) -> SetResult {
    let error = |name: &str, value: &OptionValue| {
        let wanted = match name {
            "catalog" => catalog,
            "schema" => "",
            _ => return Some(ErrorValue::InvalidName),
        };
        match &value.value {
            Some(Value::Text(text)) if text == wanted => None,
            // Unset.
            None => None,
            _ => Some(ErrorValue::InvalidValue),
        }
    };
    let errors = request.options.iter().filter_map(|(name, value)| {
        error(name, value).map(|error| (name.clone(), SetError { value: error.into() }))
    });
    SetResult { errors: errors.collect() }
}

/// Answers the present options.
pub(crate) fn get(catalog: &str) -> GetResult {
    let value = OptionValue { value: Some(Value::Text(catalog.to_owned())) };
    GetResult { options: HashMap::from([("catalog".to_owned(), value)]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_so_can_be_set_and_nothing_else() {
        let text = |text: &str| OptionValue { value: Some(Value::Text(text.to_owned())) };
        let options = HashMap::from([
            ("catalog".to_owned(), text("millrace")),
            ("schema".to_owned(), text("other")),
            ("speed".to_owned(), text("high")),
        ]);
        let result = set(&SetRequest { options }, "millrace");
        let mut errors: Vec<(String, i32)> =
            result.errors.into_iter().map(|(name, error)| (name, error.value)).collect();
        errors.sort();
        let expected = [("schema".to_owned(), 2), ("speed".to_owned(), 1)];
        assert_eq!(errors, expected);
    }
}
