//! Options of the types that wait for the end of windows.

use serde_json::{Value, json};

use super::options::{self, MAX_NAME, Options, kind, short};
use super::rule_type::{MAX_CARDINALITY, RuleType, TIMEFRAME};
use super::search;
use crate::error::{Error, Result};
use crate::time::Span;

/// The shortest window.
const SHORTEST: Span = Span::from_secs(1);
/// Events of a window that a rule may ask for.
const MAX_EVENTS: u64 = u32::MAX as u64;

type Set<'a> = &'a mut dyn FnMut(&str, Value);

/// Options of `spike`.
#[derive(Clone, Debug, PartialEq)]
pub struct Spike {
    /// `spike_height`: how many times as much, or as little.
    pub height: f64,
    /// `spike_type`.
    pub direction: Direction,
    /// `threshold_ref`: events that the time before has at least.
    pub threshold_ref: u64,
    /// `threshold_cur`: events that the window has at least.
    pub threshold_cur: u64,
    /// The length of the window, and of the time before that it is compared with.
    pub timeframe: Span,
    /// `true` if a key is compared that was not there in the time before.
    pub alert_on_new_data: bool,
    /// The field whose mean is compared in place of the number of events.
    pub field_value: Option<String>,
}

/// Direction of the spikes that raise alerts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// More than before.
    Up,
    /// Less than before.
    Down,
    /// More or less.
    Both,
}

/// Options of `metric_aggregation`.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregation {
    /// `metric_agg_key`: the field.
    pub field: String,
    /// `metric_agg_type`.
    pub metric: Metric,
    /// `max_threshold`: more than that is told.
    pub max: Option<f64>,
    /// `min_threshold`: less than that is told.
    pub min: Option<f64>,
    /// The length of the window: `bucket_interval`, else `timeframe`, else `buffer_time`.
    pub window: Span,
    /// `min_doc_count`: events that a window has at least.
    pub min_doc_count: u64,
}

/// A figure of the values of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Metric {
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// The mean.
    Avg,
    /// The sum.
    Sum,
    /// Number of different values.
    Cardinality,
    /// Number of values.
    ValueCount,
    /// Value that this percentage of the values does not exceed.
    Percentile(f64),
}

/// Options of `percentage_match`.
#[derive(Clone, Debug, PartialEq)]
pub struct Percentage {
    /// `match_bucket_filter` as it was written.
    pub filter: Value,
    /// `max_percentage`: more than that is told.
    pub max: Option<f64>,
    /// `min_percentage`: less than that is told.
    pub min: Option<f64>,
    /// `min_denominator`: events that a window has at least.
    pub min_denominator: u64,
    /// The length of the window: `bucket_interval`, else `timeframe`, else `buffer_time`.
    pub window: Span,
}

/// Takes `timeframe` of a window.
pub(super) fn timeframe(options: &mut Options) -> Result<Span> {
    Ok(options.span("timeframe", SHORTEST)?.unwrap_or(TIMEFRAME))
}

/// Takes the length of a window that is a bucket of ElastAlert's.
fn bucket(options: &mut Options) -> Result<Span> {
    let bucket = options.span("bucket_interval", SHORTEST)?;
    let timeframe = options.span("timeframe", SHORTEST)?;
    let buffer = options.span("buffer_time", SHORTEST)?;
    Ok(bucket.or(timeframe).or(buffer).unwrap_or(TIMEFRAME))
}

fn missing(field: &str, reason: &str) -> Error {
    Error::invalid(field, format!("is missing: {reason}"))
}

/// Takes a pair of bounds, of which one has to be there.
fn bounds(
    options: &mut Options,
    (max, min): (&str, &str),
    range: (f64, f64),
) -> Result<(Option<f64>, Option<f64>)> {
    let (above, below) = (options.number(max, range)?, options.number(min, range)?);
    match (above, below) {
        (None, None) => {
            Err(missing(max, &format!("it says what is too much, and [{min}] what is too little")))
        }
        (Some(above), Some(below)) if below > above => {
            Err(Error::invalid(min, format!("[{below}] is more than [{max}]: each window would be told")))
        }
        both => Ok(both),
    }
}

pub(super) fn flatline(options: &mut Options) -> Result<RuleType> {
    let Some(threshold) = options.integer("threshold", 1, MAX_EVENTS)? else {
        return Err(missing("threshold", "type [flatline] tells fewer events than that"));
    };
    Ok(RuleType::Flatline {
        threshold,
        timeframe: timeframe(options)?,
        forget_keys: options.flag("forget_keys")?.unwrap_or(false),
    })
}

impl Spike {
    pub(super) fn take(options: &mut Options, query_key: &[String]) -> Result<Self> {
        let Some(height) = options.number("spike_height", (1.0, 1e9))? else {
            return Err(missing("spike_height", "it says how many times as much is a spike"));
        };
        let direction = match options.text("spike_type", MAX_NAME)?.as_deref().map(str::trim) {
            Some("up") => Direction::Up,
            Some("down") => Direction::Down,
            Some("both") => Direction::Both,
            Some(other) => {
                let reason = format!("[{}] is not there; there are up, down and both", short(other));
                return Err(Error::invalid("spike_type", reason));
            }
            None => return Err(missing("spike_type", "up, down or both")),
        };
        let alert_on_new_data = options.flag("alert_on_new_data")?.unwrap_or(false);
        if alert_on_new_data && query_key.is_empty() {
            return Err(Error::invalid(
                "alert_on_new_data",
                "needs query_key: it is about keys that are new",
            ));
        }
        Ok(Self {
            height,
            direction,
            threshold_ref: options.integer("threshold_ref", 0, MAX_EVENTS)?.unwrap_or(0),
            threshold_cur: options.integer("threshold_cur", 0, MAX_EVENTS)?.unwrap_or(0),
            timeframe: timeframe(options)?,
            alert_on_new_data,
            field_value: options.path("field_value")?,
        })
    }

    pub(super) fn write(&self, set: Set<'_>) {
        set("spike_height", json!(self.height));
        set("spike_type", json!(self.direction.name()));
        set("threshold_ref", json!(self.threshold_ref));
        set("threshold_cur", json!(self.threshold_cur));
        set("timeframe", json!(self.timeframe.text()));
        set("alert_on_new_data", json!(self.alert_on_new_data));
        if let Some(field) = &self.field_value {
            set("field_value", json!(field));
        }
    }
}

impl Direction {
    fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Both => "both",
        }
    }
}

impl Metric {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Min => "min",
            Self::Max => "max",
            Self::Avg => "avg",
            Self::Sum => "sum",
            Self::Cardinality => "cardinality",
            Self::ValueCount => "value_count",
            Self::Percentile(_) => "percentiles",
        }
    }

    fn take(options: &mut Options) -> Result<Self> {
        const NAME: &str = "metric_agg_type";
        let range = options.number("percentile_range", (0.0, 100.0))?;
        let metric = match options.text(NAME, MAX_NAME)?.as_deref().map(str::trim) {
            Some("min") => Self::Min,
            Some("max") => Self::Max,
            Some("avg") => Self::Avg,
            Some("sum") => Self::Sum,
            Some("cardinality") => Self::Cardinality,
            Some("value_count") => Self::ValueCount,
            Some("percentiles") => match range {
                Some(percent) => return Ok(Self::Percentile(percent)),
                None => return Err(missing("percentile_range", "it says of how many per cent")),
            },
            Some(other) => {
                let reason = format!(
                    "[{}] is not there; there are min, max, avg, sum, cardinality, value_count and percentiles",
                    short(other)
                );
                return Err(Error::invalid(NAME, reason));
            }
            None => return Err(missing(NAME, "it says which figure of the values is looked at")),
        };
        match range {
            None => Ok(metric),
            Some(_) => {
                Err(Error::invalid("percentile_range", "is an option of metric_agg_type: percentiles"))
            }
        }
    }
}

impl Aggregation {
    pub(super) fn take(options: &mut Options) -> Result<Self> {
        let Some(field) = options.path("metric_agg_key")? else {
            return Err(missing("metric_agg_key", "type [metric_aggregation] looks at its values"));
        };
        let metric = Metric::take(options)?;
        let (max, min) = bounds(options, ("max_threshold", "min_threshold"), (f64::MIN, f64::MAX))?;
        if metric == Metric::Cardinality
            && let Some(bound) = max.into_iter().chain(min).find(|bound| *bound >= MAX_CARDINALITY as f64)
        {
            let reason =
                format!("[{bound}] is out of range: fewer than {MAX_CARDINALITY} values are told apart");
            let name = if max == Some(bound) { "max_threshold" } else { "min_threshold" };
            return Err(Error::invalid(name, reason));
        }
        let min_doc_count = options.integer("min_doc_count", 0, MAX_EVENTS)?.unwrap_or(1);
        Ok(Self { field, metric, max, min, window: bucket(options)?, min_doc_count })
    }

    pub(super) fn write(&self, set: Set<'_>) {
        set("metric_agg_key", json!(self.field));
        set("metric_agg_type", json!(self.metric.name()));
        if let Metric::Percentile(percent) = self.metric {
            set("percentile_range", json!(percent));
        }
        for (name, bound) in [("max_threshold", self.max), ("min_threshold", self.min)] {
            if let Some(bound) = bound {
                set(name, json!(bound));
            }
        }
        set("bucket_interval", json!(self.window.text()));
        set("min_doc_count", json!(self.min_doc_count));
    }

    /// Returns the name under which alerts show the figure.
    pub fn member(&self) -> String {
        format!("metric_{}_{}", self.field, self.metric.name())
    }
}

impl Percentage {
    pub(super) fn take(options: &mut Options) -> Result<Self> {
        const NAME: &str = "match_bucket_filter";
        let filter = match options.take(NAME) {
            None => return Err(missing(NAME, "it says which of the events are counted")),
            Some(list @ Value::Array(_)) => list,
            Some(one @ Value::Object(_)) => Value::Array(vec![one]),
            Some(other) => {
                let reason = format!("is {}, a query or a list of them is expected", kind(&other));
                return Err(Error::invalid(NAME, reason));
            }
        };
        search::of_filters(filter.clone()).map_err(|error| match error {
            Error::Invalid { reason, .. } => Error::invalid(NAME, reason),
            Error::TooLarge { size, unit, bound, .. } => {
                Error::TooLarge { field: NAME.to_owned(), size, unit, bound }
            }
            other => other,
        })?;
        let (max, min) = bounds(options, ("max_percentage", "min_percentage"), (0.0, 100.0))?;
        let min_denominator = options.integer("min_denominator", 0, MAX_EVENTS)?.unwrap_or(0);
        Ok(Self { filter, max, min, min_denominator, window: bucket(options)? })
    }

    /// Returns the search body of `match_bucket_filter`.
    pub fn body(&self) -> Value {
        // It was read when the rule was.
        search::of_filters(self.filter.clone()).unwrap_or_else(|_| json!({"query": {"match_none": {}}}))
    }

    pub(super) fn write(&self, set: Set<'_>) {
        set("match_bucket_filter", self.filter.clone());
        for (name, bound) in [("max_percentage", self.max), ("min_percentage", self.min)] {
            if let Some(bound) = bound {
                set(name, json!(bound));
            }
        }
        set("min_denominator", json!(self.min_denominator));
        set("bucket_interval", json!(self.window.text()));
    }
}

impl options::Options {
    /// Takes a number within a range.
    fn number(&mut self, name: &str, (least, most): (f64, f64)) -> Result<Option<f64>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let number = match &value {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.trim().parse().ok(),
            // ElastAlert writes percentiles as a list of one.
            Value::Array(list) if list.len() == 1 => list.first().and_then(Value::as_f64),
            _ => None,
        };
        match number.filter(|number: &f64| number.is_finite()) {
            None => Err(Error::invalid(name, format!("is {}, a number is expected", kind(&value)))),
            Some(number) if number < least || number > most => {
                let reason = format!("[{number}] is out of range: {least} to {most} are allowed");
                Err(Error::invalid(name, reason))
            }
            number => Ok(number),
        }
    }
}
