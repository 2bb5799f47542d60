//! The action line of a bulk item: `{"index":{"_index":"logs","_id":"1"}}`.
//!
//! The usual line is read in one pass, borrowing from the body. What that refuses is read again as a
//! JSON value, to find the words of OpenSearch for it (or to accept a rare spelling).

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;

use crate::error::Error;
use crate::http::json::{self, token};

/// What an item does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Index,
    Create,
    Update,
    Delete,
}

impl Kind {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "index" => Self::Index,
            "create" => Self::Create,
            "update" => Self::Update,
            "delete" => Self::Delete,
            _ => return None,
        })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Index => "index",
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// A scalar read as text: ids and routing values come as numbers too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Scalar;
        impl<'de> Visitor<'de> for Scalar {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a simple value")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(value.to_string())))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(value.to_string())))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(Value::from(value).to_string())))
            }
            fn visit_bool<E>(self, value: bool) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(value.to_string())))
            }
        }
        deserializer.deserialize_any(Scalar)
    }
}

/// Metadata of an item.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Meta<'a> {
    #[serde(borrow, rename = "_index")]
    pub(super) index: Option<Text<'a>>,
    #[serde(borrow, rename = "_type")]
    pub(super) doc_type: Option<Text<'a>>,
    #[serde(borrow, rename = "_id")]
    pub(super) id: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) routing: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) op_type: Option<Text<'a>>,
    pub(super) version: Option<i64>,
    #[serde(borrow)]
    pub(super) version_type: Option<Text<'a>>,
    pub(super) if_seq_no: Option<i64>,
    pub(super) if_primary_term: Option<i64>,
    pub(super) retry_on_conflict: Option<i64>,
    #[serde(borrow)]
    pub(super) pipeline: Option<Text<'a>>,
    pub(super) require_alias: Option<bool>,
    #[serde(rename = "_source")]
    pub(super) source: Option<Value>,
}

/// A parsed action line.
#[derive(Clone, Debug)]
pub(super) struct Action<'a> {
    pub(super) kind: Kind,
    pub(super) meta: Meta<'a>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Action<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Line;
        impl<'de> Visitor<'de> for Line {
            type Value = Action<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an action")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Action<'de>, A::Error> {
                let name = map.next_key::<Text<'de>>()?;
                let kind = name
                    .and_then(|name| Kind::parse(&name.0))
                    .ok_or_else(|| serde::de::Error::custom("unknown action"))?;
                let meta = map.next_value()?;
                if map.next_key::<Text<'de>>()?.is_some() {
                    return Err(serde::de::Error::custom("more than one action"));
                }
                Ok(Action { kind, meta })
            }
        }
        deserializer.deserialize_map(Line)
    }
}

/// Parses the action line with this number (from 1).
pub(super) fn parse(line: &[u8], number: usize) -> Result<Action<'_>, Error> {
    match serde_json::from_slice(line) {
        Ok(action) => Ok(action),
        Err(_) => parse_slowly(line, number),
    }
}

fn parse_slowly(line: &[u8], number: usize) -> Result<Action<'static>, Error> {
    let malformed =
        |rest: String| Error::illegal_argument(format!("Malformed action/metadata line [{number}], {rest}"));
    let value = match json::parse(line) {
        Ok(value) => value,
        Err(error) => return Err(malformed(format!("it is not JSON: {}", error.reason()))),
    };
    let Value::Object(members) = value else {
        return Err(malformed(format!("expected START_OBJECT but found [{}]", token(&value))));
    };
    let mut members = members.into_iter();
    let Some((name, value)) = members.next() else {
        return Err(malformed("expected FIELD_NAME but found [END_OBJECT]".to_owned()));
    };
    let Some(kind) = Kind::parse(&name) else {
        return Err(malformed(format!(
            "expected field [create], [delete], [index] or [update] but found [{name}]"
        )));
    };
    if members.next().is_some() {
        return Err(malformed("expected END_OBJECT but found [FIELD_NAME]".to_owned()));
    }
    let Value::Object(fields) = value else {
        return Err(malformed(format!("expected START_OBJECT but found [{}]", token(&value))));
    };
    let mut meta = Meta::default();
    for (name, value) in fields {
        if value.is_null() {
            continue;
        }
        if name == "_source" {
            meta.source = Some(value);
            continue;
        }
        let known = matches!(
            name.as_str(),
            "_index"
                | "_type"
                | "_id"
                | "routing"
                | "op_type"
                | "version"
                | "version_type"
                | "if_seq_no"
                | "if_primary_term"
                | "retry_on_conflict"
                | "pipeline"
                | "require_alias"
        );
        let text = match value {
            Value::Array(_) | Value::Object(_) => {
                return Err(malformed(format!(
                    "expected a simple value for field [{name}] but found [{}]",
                    token(&value)
                )));
            }
            _ if !known => {
                return Err(Error::illegal_argument(format!(
                    "Action/metadata line [{number}] contains an unknown parameter [{name}]"
                )));
            }
            Value::String(text) => text,
            other => other.to_string(),
        };
        let whole = || {
            text.parse::<i64>().map_err(|_| {
                malformed(format!("expected a whole number for field [{name}] but found [{text}]"))
            })
        };
        match name.as_str() {
            "version" => meta.version = Some(whole()?),
            "if_seq_no" => meta.if_seq_no = Some(whole()?),
            "if_primary_term" => meta.if_primary_term = Some(whole()?),
            "retry_on_conflict" => meta.retry_on_conflict = Some(whole()?),
            "require_alias" => {
                meta.require_alias = Some(match text.as_str() {
                    "true" => true,
                    "false" => false,
                    other => {
                        return Err(malformed(format!(
                            "expected [true] or [false] for field [{name}] but found [{other}]"
                        )));
                    }
                });
            }
            _ => {
                let slot = match name.as_str() {
                    "_index" => &mut meta.index,
                    "_type" => &mut meta.doc_type,
                    "_id" => &mut meta.id,
                    "routing" => &mut meta.routing,
                    "op_type" => &mut meta.op_type,
                    "version_type" => &mut meta.version_type,
                    _ => &mut meta.pipeline,
                };
                *slot = Some(Text(Cow::Owned(text)));
            }
        }
    }
    Ok(Action { kind, meta })
}
