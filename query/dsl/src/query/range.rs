//! `range`: values between bounds.

use std::fmt;

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::{Clause, Common, Parser, single_field, unsupported};
use crate::json;

/// One end of a range.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// The value, a JSON scalar.
    pub value: Value,
    /// `true` if the value itself belongs to the range.
    pub included: bool,
}

/// Relation of the ranges of a range field to the range of a clause. On other fields they all mean the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RangeRelation {
    /// They have a value in common.
    #[default]
    Intersects,
    /// The field's range contains the clause's.
    Contains,
    /// The field's range is within the clause's.
    Within,
}

/// A `range` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct RangeQuery {
    /// Field path.
    pub field: String,
    /// Lower end; open where absent.
    pub from: Option<Bound>,
    /// Upper end; open where absent.
    pub to: Option<Bound>,
    /// Date format of the bounds instead of the field's.
    pub format: Option<String>,
    /// Time zone of bounds without one.
    pub time_zone: Option<String>,
    /// Relation to the ranges of a range field.
    pub relation: RangeRelation,
    /// Boost and name.
    pub common: Common,
}

impl Clause for RangeQuery {
    fn parse(_: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        let mut common = Common::default();
        let mut rest = Map::new();
        for (key, value) in fields {
            if value.is_object() {
                rest.insert(key.clone(), value.clone());
            } else if !common.take("range", key, value)? {
                return Err(unsupported("range", key));
            }
        }
        let (field, body) = single_field("range", &rest)?;
        let options = json::object("range", body)?;
        let (mut from, mut to) = (None, None);
        let (mut include_from, mut include_to) = (true, true);
        let (mut format, mut time_zone) = (None, None);
        let mut related = RangeRelation::default();
        for (key, value) in options {
            match key.as_str() {
                "from" => from = scalar(key, value)?,
                "to" => to = scalar(key, value)?,
                "include_lower" => include_from = json::boolean(value)?,
                "include_upper" => include_to = json::boolean(value)?,
                "gt" => (from, include_from) = (scalar(key, value)?, false),
                "gte" | "ge" => (from, include_from) = (scalar(key, value)?, true),
                "lt" => (to, include_to) = (scalar(key, value)?, false),
                "lte" | "le" => (to, include_to) = (scalar(key, value)?, true),
                "format" => format = json::text(value),
                "time_zone" => time_zone = json::text(value),
                "relation" => related = relation(value)?,
                _ if common.take("range", key, value)? => {}
                _ => return Err(unsupported("range", key)),
            }
        }
        Ok(Self {
            field: field.to_owned(),
            from: from.map(|value| Bound { value, included: include_from }),
            to: to.map(|value| Bound { value, included: include_to }),
            format,
            time_zone,
            relation: related,
            common,
        })
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = |included: bool| if included { "<=" } else { "<" };
        if let Some(from) = &self.from {
            write!(f, "{} {} ", from.value, sign(from.included))?;
        }
        f.write_str(&self.field)?;
        match &self.to {
            Some(to) => write!(f, " {} {}", sign(to.included), to.value),
            None => Ok(()),
        }
    }
}

fn scalar(key: &str, value: &Value) -> Result<Option<Value>> {
    match value {
        Value::Null => Ok(None),
        Value::Array(_) | Value::Object(_) => {
            Err(Error::Parsing(format!("[range] unknown token [{}] after [{key}]", json::token(value))))
        }
        scalar => Ok(Some(scalar.clone())),
    }
}

/// Reads a relation.
fn relation(value: &Value) -> Result<RangeRelation> {
    let text = json::text(value).unwrap_or_default();
    let refused = match text.to_ascii_lowercase().as_str() {
        "intersects" => return Ok(RangeRelation::Intersects),
        "contains" => return Ok(RangeRelation::Contains),
        "within" => return Ok(RangeRelation::Within),
        "disjoint" => "[range] query does not support relation [disjoint]".to_owned(),
        _ => format!("{text} is not a valid relation"),
    };
    Err(Error::IllegalArgument(refused))
}
