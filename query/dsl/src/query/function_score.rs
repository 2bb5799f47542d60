//! `function_score`: the score of a clause combined with functions of the document.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::size::written;
use super::{Clause, Common, Parser, Query, Role};
use crate::json::{self, token};

/// Names of the functions that take an object.
const FUNCTIONS: &[&str] =
    &["exp", "field_value_factor", "gauss", "linear", "random_score", "script_score", "weight"];

/// A `function_score` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionScoreQuery {
    /// Query that matches.
    pub query: Query,
    /// The functions; without any the score stays.
    pub functions: Vec<FilteredFunction>,
    /// Combination of the functions' values with the score.
    pub combination: Combination,
    /// Boost and name.
    pub common: Common,
}

/// Combination of the values of functions with each other, and with the score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Combination {
    /// Mode that combines the values of several functions.
    pub score_mode: ScoreMode,
    /// Mode that combines their result with the score.
    pub boost_mode: BoostMode,
    /// Greatest result of the functions.
    pub max_boost: f32,
    /// Least score that matches.
    pub min_score: Option<f32>,
}

/// Mode that combines the values of several functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ScoreMode {
    First,
    Avg,
    Max,
    Sum,
    Min,
    Multiply,
}

/// Mode that combines the result of the functions with the score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum BoostMode {
    Multiply,
    Replace,
    Sum,
    Avg,
    Min,
    Max,
}

/// A function and the documents to which it applies.
#[derive(Clone, Debug, PartialEq)]
pub struct FilteredFunction {
    /// The documents; all where absent.
    pub filter: Option<Query>,
    /// The function.
    pub function: Function,
    /// Factor of its value.
    pub weight: Option<f32>,
}

/// A function of a document.
#[derive(Clone, Debug, PartialEq)]
pub enum Function {
    /// 1, so that the weight alone counts.
    One,
    /// The least value of a numeric field.
    FieldValue(FieldValueFactor),
    /// The distance of a field's value from an origin.
    Decay(Decay),
    /// A number that looks random.
    Random(RandomScore),
}

/// `field_value_factor`.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldValueFactor {
    /// Field path.
    pub field: String,
    /// Factor of the value.
    pub factor: f32,
    /// Modifier of the product.
    pub modifier: Modifier,
    /// Value of documents without any.
    pub missing: Option<f64>,
}

/// Modifier of a value in `field_value_factor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Modifier {
    None,
    Log,
    Log1p,
    Log2p,
    Ln,
    Ln1p,
    Ln2p,
    Square,
    Sqrt,
    Reciprocal,
}

/// `gauss`, `exp` and `linear`.
#[derive(Clone, Debug, PartialEq)]
pub struct Decay {
    /// The curve.
    pub shape: DecayShape,
    /// Field path.
    pub field: String,
    /// `origin`, `scale`, `offset`, `decay`; their types depend on the field's type.
    pub params: Map<String, Value>,
    /// Mode that picks one of several values.
    pub mode: MultiValueMode,
}

/// The curve of a decay function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum DecayShape {
    Gauss,
    Exp,
    Linear,
}

/// Mode that combines the distances of several values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum MultiValueMode {
    Min,
    Max,
    Avg,
    Sum,
    Median,
}

/// `random_score`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RandomScore {
    /// Seed that makes the numbers repeatable.
    pub seed: Option<i32>,
    /// Field whose value decides the number.
    pub field: Option<String>,
}

impl Clause for FunctionScoreQuery {
    fn parse(parser: &mut Parser, fields: &Map<String, Value>) -> Result<Self> {
        let mut query = None;
        let mut functions: Vec<FilteredFunction> = Vec::new();
        let mut common = Common::default();
        let mut combination = Combination {
            score_mode: ScoreMode::Multiply,
            boost_mode: BoostMode::Multiply,
            max_boost: f32::MAX,
            min_score: None,
        };
        let (mut single, mut array): (Option<&str>, bool) = (None, false);
        for (key, value) in fields {
            match (key.as_str(), value) {
                ("query", Value::Object(_)) => query = Some(parser.query(value)?),
                ("functions", Value::Array(entries)) => {
                    if let Some(found) = single {
                        return Err(misplaced(&format!(
                            "already found [{found}], now encountering [functions]."
                        )));
                    }
                    array = true;
                    for entry in entries {
                        functions.push(filtered(parser, entry)?);
                    }
                }
                (_, Value::Array(_)) => return Err(failed(&format!("array [{key}] is not supported"))),
                ("score_mode", value) if !value.is_object() => {
                    combination.score_mode = score_mode(&json::text(value).unwrap_or_default())?;
                }
                ("boost_mode", value) if !value.is_object() => {
                    combination.boost_mode = boost_mode(&json::text(value).unwrap_or_default())?;
                }
                ("max_boost", value) if !value.is_object() => combination.max_boost = json::float(value)?,
                ("min_score", value) if !value.is_object() => {
                    combination.min_score = Some(json::float(value)?);
                }
                ("boost" | "_name", value) if !value.is_object() => {
                    common.take("function_score", key, value)?;
                }
                (_, value) => {
                    if let Some(found) = single {
                        return Err(failed(&format!(
                            "already found function [{found}], now encountering [{key}]. use [functions] array if you want to define several functions."
                        )));
                    }
                    if array {
                        return Err(misplaced(&format!(
                            "already found [functions] array, now encountering [{key}]."
                        )));
                    }
                    single = Some(key);
                    let (function, weight) = match (key.as_str(), value) {
                        (_, Value::Object(body)) => (Function::parse(key, body)?, None),
                        ("weight", value) => (Function::One, Some(weight(value)?)),
                        _ => return Err(failed(&format!("field [{key}] is not supported"))),
                    };
                    functions.push(FilteredFunction { filter: None, function, weight });
                }
            }
        }
        // One function for all documents has nobody to be joined with.
        if let [FilteredFunction { filter: None, .. }] = functions.as_slice() {
            combination.score_mode = ScoreMode::First;
        }
        if functions.is_empty() {
            combination.boost_mode = BoostMode::Multiply;
        }
        Ok(Self { query: query.unwrap_or_else(Query::match_all), functions, combination, common })
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn is_compound(&self) -> bool {
        true
    }

    fn parts(&self) -> Vec<(Role, &Query)> {
        let filters = self.functions.iter().filter_map(|function| function.filter.as_ref());
        let filters = filters.map(|filter| (Role::Apart, filter));
        std::iter::once((Role::Enclosed, &self.query)).chain(filters).collect()
    }

    fn parts_mut(&mut self) -> Vec<&mut Query> {
        let filters = self.functions.iter_mut().filter_map(|function| function.filter.as_mut());
        std::iter::once(&mut self.query).chain(filters).collect()
    }

    fn bytes(&self) -> usize {
        self.functions.iter().map(|function| written(&function.function)).sum()
    }
}

/// Parses an entry of `functions`.
fn filtered(parser: &mut Parser, entry: &Value) -> Result<FilteredFunction> {
    let Value::Object(members) = entry else {
        return Err(Error::Parsing(format!(
            "failed to parse [function_score]. malformed query, expected a [START_OBJECT] while parsing functions but got a [{}] instead",
            token(entry)
        )));
    };
    parser.count()?;
    let (mut filter, mut found, mut factor): (_, Option<(&str, Function)>, _) = (None, None, None);
    for (key, value) in members {
        match (key.as_str(), value) {
            ("filter", Value::Object(_)) => filter = Some(parser.query(value)?),
            (_, Value::Object(body)) => {
                if let Some((first, _)) = found {
                    return Err(Error::Parsing(format!(
                        "failed to parse function_score functions. already found [{first}], now encountering [{key}]."
                    )));
                }
                found = Some((key, Function::parse(key, body)?));
            }
            ("weight", value) if !value.is_array() => factor = Some(weight(value)?),
            _ => return Err(failed(&format!("field [{key}] is not supported"))),
        }
    }
    let function = match (found, factor) {
        (Some((_, function)), _) => function,
        (None, Some(_)) => Function::One,
        (None, None) => return Err(failed("an entry in functions list is missing a function.")),
    };
    let filter = filter.filter(|filter| !matches!(filter, Query::MatchAll(_)));
    Ok(FilteredFunction { filter, function, weight: factor })
}

impl Function {
    fn parse(name: &str, body: &Map<String, Value>) -> Result<Self> {
        match name {
            "field_value_factor" => FieldValueFactor::parse(body).map(Self::FieldValue),
            "random_score" => RandomScore::parse(body).map(Self::Random),
            "gauss" => Decay::parse(DecayShape::Gauss, body).map(Self::Decay),
            "exp" => Decay::parse(DecayShape::Exp, body).map(Self::Decay),
            "linear" => Decay::parse(DecayShape::Linear, body).map(Self::Decay),
            "script_score" => {
                Err(Error::Parsing("[script_score] is not supported: this server runs no scripts".to_owned()))
            }
            _ => Err(Error::UnknownQuery {
                reason: format!("unknown function [{name}]{}", json::did_you_mean(name, FUNCTIONS)),
                name: name.to_owned(),
            }),
        }
    }
}

impl FieldValueFactor {
    fn parse(body: &Map<String, Value>) -> Result<Self> {
        let (mut field, mut factor, mut modifier, mut missing) = (None, 1.0, Modifier::None, None);
        for (key, value) in body {
            match (key.as_str(), value) {
                ("factor", Value::Array(_) | Value::Object(_)) => {
                    return Err(Error::Parsing(
                        "[field_value_factor] field 'factor' does not support lists or objects".to_owned(),
                    ));
                }
                ("field", value) if !value.is_array() && !value.is_object() => field = json::text(value),
                ("factor", value) => factor = json::float(value)?,
                ("modifier", value) => modifier = Modifier::parse(&json::text(value).unwrap_or_default())?,
                ("missing", value) => missing = Some(double(value)?),
                _ => {
                    return Err(Error::Parsing(format!("field_value_factor query does not support [{key}]")));
                }
            }
        }
        let field = field.ok_or_else(|| {
            Error::Parsing("[field_value_factor] required field 'field' missing".to_owned())
        })?;
        Ok(Self { field, factor, modifier, missing })
    }
}

impl Modifier {
    fn parse(text: &str) -> Result<Self> {
        Ok(match text.to_ascii_lowercase().as_str() {
            "none" => Self::None,
            "log" => Self::Log,
            "log1p" => Self::Log1p,
            "log2p" => Self::Log2p,
            "ln" => Self::Ln,
            "ln1p" => Self::Ln1p,
            "ln2p" => Self::Ln2p,
            "square" => Self::Square,
            "sqrt" => Self::Sqrt,
            "reciprocal" => Self::Reciprocal,
            _ => return Err(no_constant("FieldValueFactorFunction.Modifier", text)),
        })
    }
}

impl Decay {
    fn parse(shape: DecayShape, body: &Map<String, Value>) -> Result<Self> {
        let malformed = || Error::Parsing("malformed score function score parameters.".to_owned());
        let (mut found, mut mode) = (None, MultiValueMode::Min);
        for (key, value) in body {
            match (key.as_str(), value) {
                (_, Value::Object(params)) => found = Some((key, params)),
                ("multi_value_mode", Value::String(text)) => mode = MultiValueMode::parse(text)?,
                _ => return Err(malformed()),
            }
        }
        let (field, params) = found.ok_or_else(malformed)?;
        Ok(Self { shape, field: field.clone(), params: params.clone(), mode })
    }
}

impl MultiValueMode {
    fn parse(text: &str) -> Result<Self> {
        Ok(match text.to_ascii_lowercase().as_str() {
            "min" => Self::Min,
            "max" => Self::Max,
            "avg" => Self::Avg,
            "sum" => Self::Sum,
            "median" => Self::Median,
            _ => return Err(Error::IllegalArgument(format!("Illegal sort mode: {text}"))),
        })
    }
}

impl RandomScore {
    fn parse(body: &Map<String, Value>) -> Result<Self> {
        let mut random = Self::default();
        for (key, value) in body {
            match (key.as_str(), value) {
                ("seed", value) => random.seed = Some(seed(value)?),
                ("field", Value::String(field)) => random.field = Some(field.clone()),
                _ => return Err(Error::Parsing(format!("random_score query does not support [{key}]"))),
            }
        }
        Ok(random)
    }
}

/// Reads a seed as 32 bits: whole numbers and texts beyond that by Java's hash.
fn seed(value: &Value) -> Result<i32> {
    let refused = |kinds: &str| {
        Error::Parsing(format!("random_score seed must be an {kinds} or string, not '{}'", token(value)))
    };
    match value {
        Value::Number(number) => {
            let number = number.as_i64().ok_or_else(|| refused("int, long"))?;
            Ok(i32::try_from(number).unwrap_or((number ^ (number as u64 >> 32) as i64) as i32))
        }
        Value::String(text) => Ok(java_hash(text)),
        _ => Err(refused("int/long")),
    }
}

/// Computes Java's `String.hashCode`.
pub fn java_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

fn score_mode(text: &str) -> Result<ScoreMode> {
    Ok(match text.to_ascii_lowercase().as_str() {
        "first" => ScoreMode::First,
        "avg" => ScoreMode::Avg,
        "max" => ScoreMode::Max,
        "sum" => ScoreMode::Sum,
        "min" => ScoreMode::Min,
        "multiply" => ScoreMode::Multiply,
        _ => return Err(no_constant("FunctionScoreQuery.ScoreMode", text)),
    })
}

fn boost_mode(text: &str) -> Result<BoostMode> {
    Ok(match text.to_ascii_lowercase().as_str() {
        "multiply" => BoostMode::Multiply,
        "replace" => BoostMode::Replace,
        "sum" => BoostMode::Sum,
        "avg" => BoostMode::Avg,
        "min" => BoostMode::Min,
        "max" => BoostMode::Max,
        _ => return Err(no_constant("CombineFunction", text)),
    })
}

/// Reads a weight: not negative.
fn weight(value: &Value) -> Result<f32> {
    let weight = json::float(value)?;
    if weight < 0.0 {
        return Err(Error::IllegalArgument(
            "[weight] cannot be negative for a filtering function".to_owned(),
        ));
    }
    Ok(weight)
}

/// Reads a floating point number or its text at double precision.
pub fn double(value: &Value) -> Result<f64> {
    match value {
        Value::Number(number) => Ok(number.as_f64().unwrap_or_default()),
        Value::String(text) => text.trim().parse().map_err(|_| json::not_a_number(text)),
        other => Err(Error::IllegalArgument(format!("Unexpected token {} for a number", token(other)))),
    }
}

fn failed(what: &str) -> Error {
    Error::Parsing(format!("failed to parse [function_score] query. {what}"))
}

fn misplaced(what: &str) -> Error {
    failed(&format!("[you can either define [functions] array or a single function, not both. {what}]"))
}

fn no_constant(name: &str, text: &str) -> Error {
    Error::IllegalArgument(format!(
        "No enum constant org.opensearch.common.lucene.search.function.{name}.{}",
        text.to_uppercase()
    ))
}
