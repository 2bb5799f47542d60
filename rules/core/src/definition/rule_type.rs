//! Rule types and the options that are theirs.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::options::{self, MAX_NAME, Options};
use super::waiting::{self, Aggregation, Percentage, Spike};
use crate::error::{Error, Result};
use crate::time::Span;

/// Events that a rule may wait for.
const MAX_EVENTS: u64 = 100_000;
/// Values that a rule may count.
pub(super) const MAX_CARDINALITY: u64 = 100_000;
/// Entries of a list, and their bytes together.
const MAX_ENTRIES: usize = 100_000;
const MAX_ENTRY_BYTES: usize = 4 << 20;
/// Fields that a rule compares, counts or watches.
pub(crate) const MAX_FIELDS: usize = 10;
const SHORTEST: Span = Span::from_ms(1);
/// Time within which events count together where a rule says nothing.
pub(super) const TIMEFRAME: Span = Span::from_secs(300);

/// Condition that a rule looks for.
#[derive(Clone, Debug, PartialEq)]
pub enum RuleType {
    /// Each event.
    Any,
    /// Many events of a key within a time.
    Frequency {
        /// Number of events.
        num_events: usize,
        /// Within which time.
        timeframe: Span,
        /// `true` if the alert shows the other events, too.
        attach_related: bool,
    },
    /// Many values of a field within a time.
    Cardinality {
        /// The field.
        field: String,
        /// Number of values that raises no alert yet.
        max: usize,
        /// Within which time.
        timeframe: Span,
    },
    /// Few values of a field within a time.
    MinCardinality {
        /// The field.
        field: String,
        /// Number of values that is enough.
        min: usize,
        /// Within which time.
        timeframe: Span,
    },
    /// Many more or fewer events than in the time before.
    Spike(Spike),
    /// Few events within a time.
    Flatline {
        /// Number of events that is enough.
        threshold: u64,
        /// Within which time.
        timeframe: Span,
        /// `true` if a key that was told of is forgotten until it comes again.
        forget_keys: bool,
    },
    /// A figure of a field's values within a time.
    MetricAggregation(Aggregation),
    /// A share of events within a time.
    PercentageMatch(Percentage),
    /// A value that is in a list.
    Blacklist {
        /// Fields that are looked at.
        compare_key: Vec<String>,
        /// The list.
        entries: Arc<BTreeSet<String>>,
    },
    /// A value that is not in a list.
    Whitelist {
        /// Fields that are looked at.
        compare_key: Vec<String>,
        /// The list.
        entries: Arc<BTreeSet<String>>,
        /// `true` if a missing value is fine.
        ignore_null: bool,
    },
    /// A value that is another than before.
    Change {
        /// Fields that are compared.
        compare_key: Vec<String>,
        /// Largest age of the value before.
        timeframe: Option<Span>,
        /// `true` if events without a value are passed over.
        ignore_null: bool,
    },
    /// A value that was not there before.
    NewTerm {
        /// Fields that are watched, each a list of the fields that it is composed of.
        fields: Vec<Vec<String>>,
        /// For how long a value stays known.
        window: Span,
        /// `true` if a missing value is an alert.
        alert_on_missing_field: bool,
    },
}

/// Names of the types that are there.
pub(crate) const THERE: [&str; 11] = [
    "any",
    "frequency",
    "cardinality",
    "blacklist",
    "whitelist",
    "change",
    "new_term",
    "spike",
    "flatline",
    "metric_aggregation",
    "percentage_match",
];
/// Names of those that will be.
const LATER: [&str; 9] = [
    "spike_aggregation",
    "unique_long_term",
    "find_match",
    "consecutive_growth",
    "logical",
    "chain",
    "difference",
    "and",
    "or",
];

impl RuleType {
    /// Returns the name of the type.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Frequency { .. } => "frequency",
            Self::Cardinality { .. } | Self::MinCardinality { .. } => "cardinality",
            Self::Spike(_) => "spike",
            Self::Flatline { .. } => "flatline",
            Self::MetricAggregation(_) => "metric_aggregation",
            Self::PercentageMatch(_) => "percentage_match",
            Self::Blacklist { .. } => "blacklist",
            Self::Whitelist { .. } => "whitelist",
            Self::Change { .. } => "change",
            Self::NewTerm { .. } => "new_term",
        }
    }

    /// Returns whether it decides when a window of event time is over, not when an event comes.
    pub fn is_waiting(&self) -> bool {
        match self {
            Self::MinCardinality { .. }
            | Self::Spike(_)
            | Self::Flatline { .. }
            | Self::MetricAggregation(_)
            | Self::PercentageMatch(_) => true,
            Self::Any
            | Self::Frequency { .. }
            | Self::Cardinality { .. }
            | Self::Blacklist { .. }
            | Self::Whitelist { .. }
            | Self::Change { .. }
            | Self::NewTerm { .. } => false,
        }
    }

    /// Takes the type and its options.
    pub(super) fn take(options: &mut Options, query_key: &[String], ignore_null: bool) -> Result<Self> {
        let written = options.text("type", MAX_NAME)?;
        let name = match &written {
            None => without_type(options)?,
            Some(written) => written.trim().to_lowercase().replace([' ', '-'], "_"),
        };
        match name.as_str() {
            "any" => Ok(Self::Any),
            "frequency" => Ok(Self::Frequency {
                num_events: options.integer("num_events", 1, MAX_EVENTS)?.unwrap_or(1) as usize,
                timeframe: timeframe(options)?,
                attach_related: options.flag("attach_related")?.unwrap_or(false),
            }),
            "cardinality" => cardinality(options),
            "spike" => Spike::take(options, query_key).map(Self::Spike),
            "flatline" => waiting::flatline(options),
            "metric_aggregation" => Aggregation::take(options).map(Self::MetricAggregation),
            "percentage_match" => Percentage::take(options).map(Self::PercentageMatch),
            "blacklist" => {
                let compare_key = compare_key(options)?;
                Ok(Self::Blacklist { compare_key, entries: entries(options, "blacklist")? })
            }
            "whitelist" => {
                let compare_key = compare_key(options)?;
                Ok(Self::Whitelist { compare_key, entries: entries(options, "whitelist")?, ignore_null })
            }
            "change" => {
                if query_key.is_empty() {
                    return Err(Error::invalid(
                        "query_key",
                        "is missing: type [change] compares values for each key",
                    ));
                }
                let timeframe = options.span("timeframe", SHORTEST)?;
                Ok(Self::Change { compare_key: compare_key(options)?, timeframe, ignore_null })
            }
            "new_term" | "newterm" | "new_terms" => new_term(options, query_key),
            other => {
                let there = THERE.join(", ");
                let reason = if LATER.contains(&other) {
                    format!("[{other}] is not there yet; there are {there}")
                } else {
                    format!(
                        "unknown type [{}]; there are {there}",
                        options::short(&written.unwrap_or_default())
                    )
                };
                Err(Error::invalid("type", reason))
            }
        }
    }
}

/// Without a type it is a frequency, unless an option belongs to another type.
fn without_type(options: &Options) -> Result<String> {
    const OTHERS: [(&str, &str); 13] = [
        ("spike_height", "spike"),
        ("spike_type", "spike"),
        ("threshold", "flatline"),
        ("metric_agg_type", "metric_aggregation"),
        ("match_bucket_filter", "percentage_match"),
        ("min_cardinality", "cardinality"),
        ("blacklist", "blacklist"),
        ("whitelist", "whitelist"),
        ("compare_key", "change, blacklist or whitelist"),
        ("cardinality_field", "cardinality"),
        ("max_cardinality", "cardinality"),
        ("fields", "new_term"),
        ("alert_on_missing_field", "new_term"),
    ];
    match OTHERS.iter().find(|(option, _)| options.has(option)) {
        None => Ok("frequency".to_owned()),
        Some((option, name)) => {
            let reason =
                format!("is missing, and [{option}] is an option of {name}; without a type it is frequency");
            Err(Error::invalid("type", reason))
        }
    }
}

fn timeframe(options: &mut Options) -> Result<Span> {
    Ok(options.span("timeframe", SHORTEST)?.unwrap_or(TIMEFRAME))
}

fn cardinality(options: &mut Options) -> Result<RuleType> {
    let Some(field) = options.path("cardinality_field")? else {
        return Err(Error::invalid("cardinality_field", "is missing: type [cardinality] counts its values"));
    };
    let max = options.integer("max_cardinality", 0, MAX_CARDINALITY)?;
    let min = options.integer("min_cardinality", 1, MAX_CARDINALITY)?;
    match (max, min) {
        (Some(max), None) => {
            Ok(RuleType::Cardinality { field, max: max as usize, timeframe: timeframe(options)? })
        }
        (None, Some(min)) => {
            Ok(RuleType::MinCardinality { field, min: min as usize, timeframe: waiting::timeframe(options)? })
        }
        (Some(_), Some(_)) => {
            let reason = "is there beside max_cardinality: make a rule of each, one decides when an event comes and the \
                          other at the end of a window";
            Err(Error::invalid("min_cardinality", reason))
        }
        (None, None) => {
            let reason =
                "is missing: type [cardinality] tells more values than that, or fewer than min_cardinality";
            Err(Error::invalid("max_cardinality", reason))
        }
    }
}

fn compare_key(options: &mut Options) -> Result<Vec<String>> {
    match options.paths("compare_key", MAX_FIELDS)? {
        Some(fields) if !fields.is_empty() => Ok(fields),
        _ => Err(Error::invalid("compare_key", "is missing: it names the fields that are compared")),
    }
}

fn entries(options: &mut Options, name: &str) -> Result<Arc<BTreeSet<String>>> {
    let Some(value) = options.take(name) else {
        return Err(Error::invalid(name, "is missing: it lists the values"));
    };
    // Numbers and booleans are listed as what they are in sources.
    let value = match value {
        Value::Array(list) => {
            let flags =
                |value| if let Value::Bool(flag) = value { Value::from(flag.to_string()) } else { value };
            Value::Array(list.into_iter().map(flags).collect())
        }
        other => other,
    };
    let entries = options::texts(name, value, MAX_ENTRIES, options::MAX_TEXT)?;
    if entries.is_empty() {
        return Err(Error::invalid(name, "is empty: it lists the values"));
    }
    if let Some(file) = entries.iter().find(|entry| entry.starts_with("!file") || entry.starts_with("!yaml"))
    {
        let reason = format!("[{}]: files are not read; list the values themselves", options::short(file));
        return Err(Error::invalid(name, reason));
    }
    let size = entries.iter().map(String::len).sum();
    if size > MAX_ENTRY_BYTES {
        return Err(Error::TooLarge { field: name.to_owned(), size, unit: "bytes", bound: MAX_ENTRY_BYTES });
    }
    Ok(Arc::new(entries.into_iter().collect()))
}

fn new_term(options: &mut Options, query_key: &[String]) -> Result<RuleType> {
    let fields = match options.take("fields") {
        None if query_key.is_empty() => {
            return Err(Error::invalid(
                "fields",
                "is missing: type [new_term] watches these, or those of query_key",
            ));
        }
        None => vec![query_key.to_vec()],
        Some(Value::Array(list)) => {
            if list.is_empty() || list.len() > MAX_FIELDS {
                return Err(Error::invalid(
                    "fields",
                    format!("has {} entries, 1 to {MAX_FIELDS} are allowed", list.len()),
                ));
            }
            list.into_iter().map(composite).collect::<Result<_>>()?
        }
        Some(one) => vec![composite(one)?],
    };
    Ok(RuleType::NewTerm {
        fields,
        window: options
            .span("terms_window_size", Span::from_secs(1))?
            .unwrap_or(Span::from_secs(30 * 86_400)),
        alert_on_missing_field: options.flag("alert_on_missing_field")?.unwrap_or(false),
    })
}

fn composite(value: Value) -> Result<Vec<String>> {
    let fields = options::texts("fields", value, MAX_FIELDS, options::MAX_PATH)?;
    if fields.is_empty() {
        return Err(Error::invalid("fields", "has an empty list"));
    }
    fields.into_iter().map(|field| options::path("fields", field)).collect()
}
