//! `percentiles` and `percentile_ranks`.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::members::ErrorLabel;
use super::source::{AcceptedMembers, ValuesSource};

/// Percents where the request does not say.
pub(super) const DEFAULT_PERCENTS: [f64; 7] = [1.0, 5.0, 25.0, 50.0, 75.0, 95.0, 99.0];
/// Most percents or values.
const MAX_VALUES: usize = 10_000;
/// Members of both aggregations, beside what is wanted.
const KNOWN: &[&str] =
    &["field", "format", "hdr", "keyed", "missing", "percents", "script", "tdigest", "value_type", "values"];

/// A `percentiles` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct Percentiles {
    /// Source of values.
    pub source: ValuesSource,
    /// The percents, in the order in which they are shown.
    pub percents: Vec<f64>,
    /// `true` if values are members of an object.
    pub keyed: bool,
    /// Method of the computation.
    pub method: PercentileMethod,
}

/// A `percentile_ranks` aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct PercentileRanks {
    /// Source of values.
    pub source: ValuesSource,
    /// The values whose ranks are wanted, in the order in which they are shown.
    pub values: Vec<f64>,
    /// `true` if ranks are members of an object.
    pub keyed: bool,
    /// Method of the computation.
    pub method: PercentileMethod,
}

/// Method of computing percentiles.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum PercentileMethod {
    TDigest { compression: f64 },
    Hdr { significant_digits: u8 },
}

/// Members that both aggregations have.
struct SharedMembers {
    source: ValuesSource,
    keyed: bool,
    method: PercentileMethod,
    wanted: Option<Vec<f64>>,
}

/// Parses either; `list` is the member that says what is wanted.
fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>, list: &str) -> Result<SharedMembers> {
    let (mut source, mut keyed, mut wanted) = (ValuesSource::default(), true, None);
    let (mut tdigest, mut hdr) = (None, None);
    for (key, value) in members {
        match key.as_str() {
            "keyed" => keyed = part.boolean(key, value)?,
            "tdigest" => tdigest = Some(compression(part, key, value)?),
            "hdr" => hdr = Some(digits(part, key, value)?),
            _ if key == list => wanted = Some(numbers(part, key, value)?),
            _ if source.take(part, AcceptedMembers::Format, key, value)? => {}
            _ => {
                let known: Vec<&str> = KNOWN
                    .iter()
                    .copied()
                    .filter(|name| !matches!(*name, "percents" | "values") || *name == list)
                    .collect();
                return Err(part.unknown(key, &known));
            }
        }
    }
    let method = match (tdigest, hdr) {
        (Some(_), Some(_)) => {
            return Err(failed(part, "Only one percentiles method should be declared.".to_owned()));
        }
        (None, Some(significant_digits)) => PercentileMethod::Hdr { significant_digits },
        (compression, None) => PercentileMethod::TDigest { compression: compression.unwrap_or(100.0) },
    };
    Ok(SharedMembers { source: source.required(part)?, keyed, method, wanted })
}

/// Makes the error of values that do not go together.
fn failed(part: ErrorLabel<'_>, reason: String) -> Error {
    Error::Content {
        reason: format!("Failed to build [{}] after last required field arrived", part.kind),
        cause: Some(Box::new(Error::IllegalArgument(reason))),
    }
}

fn numbers(part: ErrorLabel<'_>, key: &str, value: &Value) -> Result<Vec<f64>> {
    let items = match value {
        Value::Array(items) => items.as_slice(),
        Value::Number(_) | Value::String(_) => std::slice::from_ref(value),
        other => return Err(part.wrong_type(key, other)),
    };
    if items.len() > MAX_VALUES {
        let reason = format!("too many values: {} given, at most {MAX_VALUES} allowed", items.len());
        return Err(part.refused(key, reason));
    }
    let mut numbers: Vec<f64> = items.iter().map(|item| part.double(key, item)).collect::<Result<_>>()?;
    numbers.sort_by(f64::total_cmp);
    Ok(numbers)
}

fn compression(part: ErrorLabel<'_>, key: &str, value: &Value) -> Result<f64> {
    let own = ErrorLabel { kind: "tdigest", name: part.name };
    let Value::Object(members) = value else { return Err(part.wrong_type(key, value)) };
    let mut compression = 100.0;
    for (option, value) in members {
        let read = || {
            if option != "compression" {
                return Err(own.unknown(option, &["compression"]));
            }
            let number = own.double(option, value)?;
            match number >= 0.0 {
                true => Ok(number),
                false => Err(own.refused(
                    option,
                    format!("[compression] must be greater than or equal to 0. Found [{number:?}]"),
                )),
            }
        };
        compression = read().map_err(|error| part.unread(key, error))?;
    }
    Ok(compression)
}

fn digits(part: ErrorLabel<'_>, key: &str, value: &Value) -> Result<u8> {
    let own = ErrorLabel { kind: "hdr", name: part.name };
    let Value::Object(members) = value else { return Err(part.wrong_type(key, value)) };
    let mut digits = 3;
    for (option, value) in members {
        let read = || {
            if option != "number_of_significant_value_digits" {
                return Err(own.unknown(option, &["number_of_significant_value_digits"]));
            }
            match own.int(option, value)? {
                number @ 0..=5 => Ok(number as u8),
                _ => Err(own
                    .refused(option, "[numberOfSignificantValueDigits] must be between 0 and 5".to_owned())),
            }
        };
        digits = read().map_err(|error| part.unread(key, error))?;
    }
    Ok(digits)
}

impl Percentiles {
    pub(super) fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        let SharedMembers { source, keyed, method, wanted } = parse(part, members, "percents")?;
        let percents = wanted.unwrap_or_else(|| DEFAULT_PERCENTS.to_vec());
        if percents.is_empty() {
            return Err(failed(part, format!("[percents] must not be empty: [{}]", part.name)));
        }
        if let Some(percent) = percents.iter().find(|percent| !(0.0..=100.0).contains(*percent)) {
            let reason = format!("percent must be in [0,100], got [{percent:?}]: [{}]", part.name);
            return Err(failed(part, reason));
        }
        Ok(Self { source, percents, keyed, method })
    }
}

impl PercentileRanks {
    pub(super) fn parse(part: ErrorLabel<'_>, members: &Map<String, Value>) -> Result<Self> {
        let SharedMembers { source, keyed, method, wanted } = parse(part, members, "values")?;
        let wanted =
            wanted.ok_or_else(|| failed(part, format!("[values] must not be null: [{}]", part.name)))?;
        if wanted.is_empty() {
            return Err(failed(part, format!("[values] must not be an empty array: [{}]", part.name)));
        }
        Ok(Self { source, values: wanted, keyed, method })
    }
}
