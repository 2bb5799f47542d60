//! Fields of a rule, read from requests and stored documents, and written back.
//!
//! Every field is checked by its name. Fields that runs maintain may be sent, as a client does that sends back what it was shown, and are
//! not read here.

use std::ops::RangeInclusive;

use millrace_forecast::{Algorithm, MAX_PREDICTIONS};
use millrace_schedule::{Fields as CronFields, Schedule};
use serde_json::{Map, Value, json};

use crate::error::{Error, Result};
use crate::frame::TimeFrame;
use crate::results;
use crate::samples::SeriesQuery;
use crate::source::Source;
use crate::time;

/// Longest name of a rule, and longest value that it is multiplied by, in bytes: both are in the ids of documents.
pub(crate) const MAX_NAME_BYTES: usize = 128;
/// Longest name of a field, in bytes.
pub(crate) const MAX_FIELD_BYTES: usize = 255;
/// Longest id of a saved search, in bytes.
const MAX_ID_BYTES: usize = 400;
/// Values that a rule is multiplied by, and roles, at most.
const MAX_VALUES: usize = 100;
/// Predictions of a run, all values together, at most.
const MAX_RESULTS: usize = 100_000;

/// Fields that users set.
const EDITABLE: [&str; 18] = [
    "model_name",
    "algorithm_type",
    "search",
    "label_field",
    "label_field.field",
    "max_probes",
    "time_frame",
    "value_type",
    "max_predictions",
    "threshold",
    "automatic_cron",
    "automatic_enable",
    "automatic",
    "automatic_flag",
    "start_date",
    "multiply_by_values",
    "multiply_by_field",
    "selectedroles",
];
/// Fields that runs maintain, and what names a record.
const MAINTAINED: [&str; 19] = [
    "id",
    "_id",
    "_index",
    "_type",
    "preparation_date",
    "machine_state_uid",
    "path_to_logs",
    "path_to_machine_state",
    "searchSourceJSON",
    "processing_time",
    "last_execute_mili",
    "last_execute",
    "last_execute_timestamp",
    "pid",
    "exit_code",
    "error_description",
    "error_message",
    "threshold_time",
    "state",
];

/// Aggregation that turns the documents of a bucket into a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueType {
    Min,
    Max,
    Avg,
    /// Number of documents that have the field.
    Count,
    /// Of rules with a model alone.
    Sum,
    /// Number of distinct values, of rules with a model alone.
    Cardinality,
}

impl ValueType {
    /// All of them; the first four are those of forecasts.
    const ALL: [(&str, Self); 6] = [
        ("min", Self::Min),
        ("max", Self::Max),
        ("avg", Self::Avg),
        ("count", Self::Count),
        ("sum", Self::Sum),
        ("cardinality", Self::Cardinality),
    ];

    /// Finds one by its name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, of)| of)
    }

    /// Lists all names.
    pub(crate) fn names() -> String {
        Self::ALL.map(|(name, _)| name).join(", ")
    }

    /// Returns whether a bucket without a document has the value 0.
    pub(crate) fn is_zero_when_empty(self) -> bool {
        matches!(self, Self::Count | Self::Sum | Self::Cardinality)
    }

    /// Returns its name, which is that of the aggregation.
    pub(crate) fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, of)| *of == self).map_or("", |(name, _)| name)
    }
}

/// From when on a rule forecasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForecastStart {
    /// From the time of each run.
    Now,
    /// From this time, in milliseconds, which may be long ago.
    At(i64),
}

/// Definition of a rule.
#[derive(Clone, Debug)]
pub(crate) struct Definition {
    pub(crate) name: String,
    pub(crate) algorithm: Algorithm,
    /// As it was given; [`Definition::search_id`] is the id.
    pub(crate) search: String,
    pub(crate) field: String,
    pub(crate) max_probes: usize,
    pub(crate) frame: TimeFrame,
    pub(crate) value_type: ValueType,
    pub(crate) max_predictions: usize,
    pub(crate) threshold: i64,
    pub(crate) schedule: Schedule,
    pub(crate) enable: bool,
    pub(crate) automatic: bool,
    pub(crate) start: ForecastStart,
    pub(crate) multiply_by: Option<String>,
    pub(crate) values: Vec<String>,
    pub(crate) roles: Vec<String>,
}

/// The value of [`Definition::threshold`] that asks for nothing.
const NO_THRESHOLD: i64 = -1;

/// Reads a schedule of cron that comes at most once a minute.
///
/// # Errors
/// [`Error::Invalid`] of `automatic_cron`.
pub(crate) fn schedule(text: &str) -> Result<Schedule> {
    let wrong = |reason| Error::invalid("automatic_cron", reason);
    let schedule = Schedule::parse(text, CronFields::FiveOrSix).map_err(wrong)?;
    let mut fields = schedule.line().split(' ');
    let second = if fields.clone().count() == 6 { fields.next() } else { None };
    if second.is_some_and(|second| second.parse::<u8>().is_err()) {
        return Err(wrong(
            "has a second that is not one number: a rule runs at most once a minute".to_owned(),
        ));
    }
    Ok(schedule)
}

impl Definition {
    /// Reads a rule.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the first field that cannot be used.
    pub(crate) fn parse(body: &Value) -> Result<Self> {
        let members = body.as_object().ok_or_else(|| Error::invalid("body", "must be an object"))?;
        let known = |name: &&String| EDITABLE.contains(&name.as_str()) || MAINTAINED.contains(&name.as_str());
        if let Some(name) = members.keys().find(|name| !known(name)) {
            return Err(Error::invalid(&excerpt(name), "is no field of an AI rule"));
        }
        let fields = FieldReader(members);
        let algorithm = fields.text("algorithm_type", 16)?;
        let names = || Algorithm::ALL.map(Algorithm::name).join(", ");
        let algorithm = Algorithm::named(algorithm).ok_or_else(|| {
            Error::invalid(
                "algorithm_type",
                format!("must be one of {}, not [{}]", names(), excerpt(algorithm)),
            )
        })?;
        let frame = fields.text("time_frame", 32)?;
        let frame = TimeFrame::named(frame).ok_or_else(|| {
            let names = TimeFrame::names();
            Error::invalid("time_frame", format!("must be one of {names}, not [{}]", excerpt(frame)))
        })?;
        let value_type = fields.text("value_type", 16)?;
        let of_name = ValueType::ALL.into_iter().take(4).find(|(name, _)| *name == value_type);
        let (_, value_type) = of_name.ok_or_else(|| {
            Error::invalid(
                "value_type",
                format!("must be one of min, max, avg, count, not [{}]", excerpt(value_type)),
            )
        })?;
        let name = fields.text("model_name", MAX_NAME_BYTES)?;
        if name.contains(['[', ']']) {
            return Err(Error::invalid("model_name", "must not have brackets: they set values apart in ids"));
        }
        let multiply_by = match fields.text("multiply_by_field", MAX_FIELD_BYTES)? {
            "none" => None,
            field => Some(path("multiply_by_field", field)?.to_owned()),
        };
        let cron = fields.text("automatic_cron", usize::MAX)?;
        let definition = Self {
            name: name.to_owned(),
            algorithm,
            search: fields.text("search", MAX_ID_BYTES)?.to_owned(),
            field: fields.label()?,
            max_probes: fields.count("max_probes", algorithm.least()..=algorithm.most())?,
            frame,
            value_type,
            max_predictions: fields.count("max_predictions", 1..=MAX_PREDICTIONS)?,
            threshold: fields.threshold()?,
            schedule: schedule(cron)?,
            enable: fields.boolean("automatic_enable")?,
            automatic: fields.automatic()?,
            start: fields.start()?,
            values: fields.texts("multiply_by_values", true)?,
            roles: fields.texts("selectedroles", false)?,
            multiply_by,
        };
        let results = definition.runs().len() * definition.max_predictions;
        if results > MAX_RESULTS {
            let reason =
                format!("would make {results} predictions a run with all values; {MAX_RESULTS} are allowed");
            return Err(Error::invalid("max_predictions", reason));
        }
        Ok(definition)
    }

    /// Writes the fields as they are stored and shown.
    pub(crate) fn document(&self) -> Map<String, Value> {
        let document = json!({
            "model_name": self.name,
            "algorithm_type": self.algorithm.name(),
            "search": self.search,
            "label_field": {"field": self.field},
            "max_probes": self.max_probes,
            "time_frame": self.frame.name(),
            "value_type": self.value_type.name(),
            "max_predictions": self.max_predictions,
            "threshold": self.threshold,
            "automatic_cron": self.schedule.to_string(),
            "automatic_enable": self.enable,
            "automatic": self.automatic,
            "start_date": match self.start {
                ForecastStart::Now => "now".to_owned(),
                ForecastStart::At(ms) => time::minute(ms),
            },
            "multiply_by_values": self.values,
            "multiply_by_field": self.multiply_by.as_deref().unwrap_or("none"),
            "selectedroles": self.roles,
        });
        match document {
            Value::Object(members) => members,
            _ => Map::new(),
        }
    }

    /// Returns the series of buckets that it forecasts, as its source gives it.
    pub(crate) fn series_query(&self, source: &Source) -> SeriesQuery {
        SeriesQuery {
            expression: source.expression.clone(),
            time_field: source.time_field.clone(),
            query: source.query.clone(),
            field: self.field.clone(),
            multiply_by: self.multiply_by.clone(),
            value_type: self.value_type,
            frame: self.frame,
        }
    }

    /// Returns the id of the saved search.
    pub(crate) fn search_id(&self) -> &str {
        self.search.strip_prefix("search:").unwrap_or(&self.search)
    }

    /// Returns whether it runs by its schedule.
    pub(crate) fn is_scheduled(&self) -> bool {
        self.enable && self.automatic
    }

    /// Returns the level whose crossing is looked for.
    pub(crate) fn level(&self) -> Option<f64> {
        (self.threshold != NO_THRESHOLD).then_some(self.threshold as f64)
    }

    /// Lists the series that a run is made for: each value, or all documents together.
    pub(crate) fn runs(&self) -> Vec<Option<&str>> {
        match &self.multiply_by {
            Some(_) if !self.values.is_empty() => {
                self.values.iter().map(|value| Some(value.as_str())).collect()
            }
            _ => vec![None],
        }
    }
}

/// A name as errors show it.
pub(crate) fn excerpt(name: &str) -> String {
    name.chars().take(64).collect()
}

/// Checks the path of a field.
pub(crate) fn path<'a>(name: &str, path: &'a str) -> Result<&'a str> {
    if path.contains(['*', ' ']) || path.split('.').any(str::is_empty) {
        return Err(Error::invalid(name, format!("[{}] is no name of a field", excerpt(path))));
    }
    Ok(path)
}

/// Reader of the members of a rule.
pub(crate) struct FieldReader<'a>(pub(crate) &'a Map<String, Value>);

impl<'a> FieldReader<'a> {
    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub(crate) fn required(&self, name: &str) -> Result<&'a Value> {
        self.get(name).ok_or_else(|| Error::invalid(name, "is required"))
    }

    pub(crate) fn text(&self, name: &str, most: usize) -> Result<&'a str> {
        text(name, self.required(name)?, most)
    }

    pub(crate) fn boolean(&self, name: &str) -> Result<bool> {
        boolean(name, self.required(name)?)
    }

    fn count(&self, name: &str, range: RangeInclusive<usize>) -> Result<usize> {
        let value = self.required(name)?;
        let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
        count.filter(|count| range.contains(count)).ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            Error::invalid(name, format!("must be an integer from {least} to {most}"))
        })
    }

    /// A list of texts, each there once.
    pub(crate) fn texts(&self, name: &str, required: bool) -> Result<Vec<String>> {
        let value = match self.get(name) {
            None if !required => return Ok(Vec::new()),
            None => return Err(Error::invalid(name, "is required")),
            Some(value) => value,
        };
        let items = value.as_array().filter(|items| items.len() <= MAX_VALUES);
        let wrong = || Error::invalid(name, format!("must be an array of at most {MAX_VALUES} strings"));
        let mut texts: Vec<String> = Vec::new();
        for item in items.ok_or_else(wrong)? {
            let item = text(name, item, MAX_NAME_BYTES)?;
            if texts.iter().any(|known| known == item) {
                return Err(Error::invalid(name, format!("has [{}] twice", excerpt(item))));
            }
            texts.push(item.to_owned());
        }
        Ok(texts)
    }

    fn label(&self) -> Result<String> {
        const NAME: &str = "label_field.field";
        let value = match (self.get("label_field"), self.get(NAME)) {
            (Some(_), Some(_)) => {
                return Err(Error::invalid(NAME, "stands beside [label_field]: give one of them"));
            }
            (Some(Value::Object(members)), None) => {
                if let Some(other) = members.keys().find(|name| *name != "field") {
                    return Err(Error::invalid(&format!("label_field.{}", excerpt(other)), "is not known"));
                }
                members.get("field").filter(|value| !value.is_null())
            }
            (Some(_), None) => {
                return Err(Error::invalid("label_field", "must be an object with a member [field]"));
            }
            (None, dotted) => dotted,
        };
        let value = value.ok_or_else(|| Error::invalid(NAME, "is required"))?;
        let field = path(NAME, text(NAME, value, MAX_FIELD_BYTES)?)?;
        let first = field.split('.').next().unwrap_or_default();
        if field.contains('.') && results::OWN_FIELDS.contains(&first) {
            let reason = format!("begins with [{first}], which results have for something else");
            return Err(Error::invalid(NAME, reason));
        }
        let parts = field.split('.').count();
        if parts > results::MAX_PARTS {
            let reason = format!("has {parts} parts; {} are allowed", results::MAX_PARTS);
            return Err(Error::invalid(NAME, reason));
        }
        let within = field.rsplit_once('.').map_or("", |(within, _)| within);
        let is_predicted = |part: &&str| results::ENDINGS.iter().any(|ending| part.ends_with(*ending));
        if let Some(part) = within.split('.').find(is_predicted) {
            let reason = format!("is within [{part}], which results have for numbers");
            return Err(Error::invalid(NAME, reason));
        }
        Ok(field.to_owned())
    }

    fn threshold(&self) -> Result<i64> {
        let wrong = || Error::invalid("threshold", "must be an integer; -1 looks for nothing");
        self.get("threshold").map_or(Ok(NO_THRESHOLD), |value| {
            value.as_i64().filter(|level| level.unsigned_abs() <= 1 << 53).ok_or_else(wrong)
        })
    }

    /// `automatic`, or its other name.
    pub(crate) fn automatic(&self) -> Result<bool> {
        let given = |name| self.get(name).map(|value| boolean(name, value)).transpose();
        match (given("automatic")?, given("automatic_flag")?) {
            (Some(one), Some(other)) if one != other => {
                Err(Error::invalid("automatic_flag", "is another name of [automatic], and has another value"))
            }
            (Some(value), _) | (None, Some(value)) => Ok(value),
            (None, None) => Err(Error::invalid("automatic", "is required")),
        }
    }

    /// `start_date` in milliseconds; `None` for now.
    pub(crate) fn start_ms(&self) -> Result<Option<i64>> {
        Ok(match self.start()? {
            ForecastStart::Now => None,
            ForecastStart::At(ms) => Some(ms),
        })
    }

    fn start(&self) -> Result<ForecastStart> {
        let Some(value) = self.get("start_date") else { return Ok(ForecastStart::Now) };
        let text = text("start_date", value, 32)?;
        if text == "now" {
            return Ok(ForecastStart::Now);
        }
        let wrong = || {
            Error::invalid("start_date", format!("must be YYYY-MM-DD HH:mm or now, not [{}]", excerpt(text)))
        };
        time::read_minute(text).map(ForecastStart::At).ok_or_else(wrong)
    }
}

/// Reads a text that is not empty.
///
/// # Errors
/// [`Error::Invalid`] of the field.
pub(crate) fn text<'a>(name: &str, value: &'a Value, most: usize) -> Result<&'a str> {
    let text = value.as_str().ok_or_else(|| Error::invalid(name, "must be a string"))?;
    if text.trim().is_empty() {
        return Err(Error::invalid(name, "must not be empty"));
    }
    if text.len() > most {
        return Err(Error::invalid(name, format!("must have at most {most} bytes")));
    }
    match text.chars().any(char::is_control) {
        true => Err(Error::invalid(name, "must not have control characters")),
        false => Ok(text),
    }
}

fn boolean(name: &str, value: &Value) -> Result<bool> {
    value.as_bool().ok_or_else(|| Error::invalid(name, "must be true or false"))
}

#[cfg(test)]
pub(crate) mod tests;
