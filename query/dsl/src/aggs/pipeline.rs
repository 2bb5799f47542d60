//! Pipeline aggregations: computed of the results of others.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::members::Part;
use super::percentiles::DEFAULT_PERCENTS;
use crate::expression::Expression;
use crate::json::{self, token};

/// Most paths of one aggregation.
const MAX_PATHS: usize = 256;

/// A pipeline aggregation.
#[derive(Clone, Debug)]
pub enum Pipeline {
    /// Siblings: `avg_bucket`, `extended_stats_bucket`, `max_bucket`, `min_bucket`, `percentiles_bucket`, `stats_bucket`, `sum_bucket`.
    BucketMetric(BucketMetric),
    /// Parent of a histogram: `derivative`.
    Derivative(Derivative),
    /// Parent of a histogram: `cumulative_sum`.
    CumulativeSum {
        /// The summed value.
        path: String,
        /// How sums are written.
        format: Option<String>,
    },
    /// Parent of a histogram: `moving_fn`.
    MovingFn(MovingFn),
    /// Parent of a histogram: `serial_diff`.
    SerialDiff(SerialDiff),
    /// Parent: `bucket_sort`.
    BucketSort(BucketSort),
    /// Parent: `bucket_selector`.
    BucketSelector(BucketExpression),
    /// Parent: `bucket_script`.
    BucketScript(BucketExpression),
}

/// What stands for a bucket without a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GapPolicy {
    /// Nothing: the bucket is left out.
    #[default]
    Skip,
    /// Zero.
    InsertZeros,
}

/// A sibling over the buckets of another aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct BucketMetric {
    /// What is computed.
    pub statistic: Statistic,
    /// The values.
    pub path: String,
    /// What stands for missing values.
    pub gap_policy: GapPolicy,
    /// How results are written.
    pub format: Option<String>,
}

/// What a [`BucketMetric`] computes.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Statistic {
    Avg,
    Max,
    Min,
    Sum,
    Stats,
    ExtendedStats { sigma: f64 },
    Percentiles { percents: Vec<f64>, keyed: bool },
}

/// `derivative`.
#[derive(Clone, Debug, PartialEq)]
pub struct Derivative {
    /// The values.
    pub path: String,
    /// What stands for missing values.
    pub gap_policy: GapPolicy,
    /// How results are written.
    pub format: Option<String>,
    /// Milliseconds by which `normalized_value` is per.
    pub unit_ms: Option<f64>,
}

/// `moving_fn`.
#[derive(Clone, Debug)]
pub struct MovingFn {
    /// The values.
    pub path: String,
    /// What stands for missing values.
    pub gap_policy: GapPolicy,
    /// How results are written.
    pub format: Option<String>,
    /// Buckets of the window, at least 1.
    pub window: usize,
    /// Buckets by which the window is moved to the right.
    pub shift: i64,
    /// The function.
    pub script: Arc<Expression>,
}

/// `serial_diff`.
#[derive(Clone, Debug, PartialEq)]
pub struct SerialDiff {
    /// The values.
    pub path: String,
    /// What stands for missing values.
    pub gap_policy: GapPolicy,
    /// How results are written.
    pub format: Option<String>,
    /// Buckets back to the value that is subtracted, at least 1.
    pub lag: usize,
}

/// `bucket_sort`.
#[derive(Clone, Debug, PartialEq)]
pub struct BucketSort {
    /// Keys of the order; the order stays where empty.
    pub sort: Vec<SortPath>,
    /// Buckets left out at the beginning.
    pub from: usize,
    /// Most buckets.
    pub size: Option<usize>,
    /// What becomes of buckets without a value.
    pub gap_policy: GapPolicy,
}

/// One key of [`BucketSort`].
#[derive(Clone, Debug, PartialEq)]
pub struct SortPath {
    /// The value.
    pub path: String,
    /// Whether greater values come first.
    pub descending: bool,
}

/// `bucket_script` or `bucket_selector`.
#[derive(Clone, Debug)]
pub struct BucketExpression {
    /// Names of variables and the values that they stand for, ordered by name.
    pub paths: Vec<(String, String)>,
    /// The expression.
    pub expression: Arc<Expression>,
    /// What stands for missing values.
    pub gap_policy: GapPolicy,
    /// How results are written.
    pub format: Option<String>,
}

/// The value of `buckets_path`.
#[derive(Debug)]
enum Paths {
    One(String),
    Several(Vec<String>),
    Named(BTreeMap<String, String>),
}

impl Paths {
    fn parse(part: Part<'_>, value: &Value) -> Result<Self> {
        let unexpected = || Error::Parsing(format!("Unexpected token {} in [{}].", token(value), part.name));
        let path = |value: &Value| value.as_str().map(str::to_owned).ok_or_else(unexpected);
        let paths = match value {
            Value::String(path) => Self::One(path.clone()),
            Value::Array(items) => Self::Several(items.iter().map(path).collect::<Result<_>>()?),
            Value::Object(named) => {
                // Only expressions have names for what they read.
                if !matches!(part.kind, "bucket_script" | "bucket_selector") {
                    return Err(unexpected());
                }
                let named = named.iter().map(|(name, value)| Ok((name.clone(), path(value)?)));
                Self::Named(named.collect::<Result<_>>()?)
            }
            _ => return Err(unexpected()),
        };
        let number = match &paths {
            Self::One(_) => 1,
            Self::Several(paths) => paths.len(),
            Self::Named(paths) => paths.len(),
        };
        match number {
            1..=MAX_PATHS => Ok(paths),
            _ => Err(Error::IllegalArgument(format!(
                "[buckets_path] of aggregation [{}] must have 1 to {MAX_PATHS} paths, found {number}",
                part.name
            ))),
        }
    }

    /// The one path of an aggregation that has one.
    fn single(self, part: Part<'_>) -> Result<String> {
        match self {
            Self::One(path) => Ok(path),
            Self::Several(paths) => match <[String; 1]>::try_from(paths) {
                Ok([path]) => Ok(path),
                Err(_) => Err(Error::validation(&[format!(
                    "must contain a single entry for aggregation [{}]",
                    part.name
                )])),
            },
            Self::Named(_) => {
                Err(Error::Parsing(format!("Unexpected token START_OBJECT in [{}].", part.name)))
            }
        }
    }

    /// Paths with the names that expressions know them by.
    fn named(self) -> Vec<(String, String)> {
        match self {
            Self::One(path) => vec![("_value".to_owned(), path)],
            Self::Several(paths) => {
                paths.into_iter().enumerate().map(|(at, path)| (format!("_value{at}"), path)).collect()
            }
            Self::Named(paths) => paths.into_iter().collect(),
        }
    }
}

/// The members of a pipeline aggregation, as far as they are read.
#[derive(Debug, Default)]
struct Members {
    paths: Option<Paths>,
    format: Option<String>,
    gap_policy: GapPolicy,
}

impl Members {
    /// Takes one of the members that most have; returns whether it is one.
    fn take(&mut self, part: Part<'_>, key: &str, value: &Value) -> Result<bool> {
        match (key, value) {
            ("buckets_path", _) => self.paths = Some(Paths::parse(part, value)?),
            ("format", Value::String(format)) => self.format = Some(format.clone()),
            ("gap_policy", Value::String(policy)) => {
                self.gap_policy = match policy.to_ascii_lowercase().as_str() {
                    "skip" => GapPolicy::Skip,
                    "insert_zeros" => GapPolicy::InsertZeros,
                    _ => {
                        return Err(Error::Parsing(format!(
                            "Invalid gap policy: [{policy}], accepted values: [insert_zeros, skip]"
                        )));
                    }
                };
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn paths(&mut self, part: Part<'_>) -> Result<Paths> {
        self.paths.take().ok_or_else(|| {
            let kind = match part.kind.ends_with("_bucket") {
                true => String::new(),
                false => format!("{} ", part.kind),
            };
            Error::Parsing(format!(
                "Missing required field [buckets_path] for {kind}aggregation [{}]",
                part.name
            ))
        })
    }

    fn path(&mut self, part: Part<'_>) -> Result<String> {
        self.paths(part)?.single(part)
    }
}

impl Pipeline {
    /// Parses the pipeline aggregation that `part` names.
    pub(super) fn parse(part: Part<'_>, members: &Map<String, Value>) -> Result<Self> {
        match part.kind {
            "derivative" => derivative(part, members),
            "cumulative_sum" => cumulative_sum(part, members),
            "moving_fn" => moving_fn(part, members),
            "serial_diff" => serial_diff(part, members),
            "bucket_sort" => bucket_sort(part, members),
            "bucket_selector" => Ok(Self::BucketSelector(bucket_expression(part, members)?)),
            "bucket_script" => Ok(Self::BucketScript(bucket_expression(part, members)?)),
            _ => bucket_metric(part, members),
        }
    }

    /// Lists the paths that are read.
    pub fn paths(&self) -> Vec<&str> {
        match self {
            Self::BucketMetric(BucketMetric { path, .. })
            | Self::Derivative(Derivative { path, .. })
            | Self::CumulativeSum { path, .. }
            | Self::MovingFn(MovingFn { path, .. })
            | Self::SerialDiff(SerialDiff { path, .. }) => vec![path],
            Self::BucketSort(sort) => sort.sort.iter().map(|key| key.path.as_str()).collect(),
            Self::BucketSelector(expression) | Self::BucketScript(expression) => {
                expression.paths.iter().map(|(_, path)| path.as_str()).collect()
            }
        }
    }
}

fn unexpected(part: Part<'_>, value: &Value) -> Error {
    Error::Parsing(format!("Unexpected token {} in [{}].", token(value), part.name))
}

fn unknown_key(part: Part<'_>, key: &str, value: &Value) -> Error {
    match value {
        Value::String(_) | Value::Number(_) => {
            Error::Parsing(format!("Unknown key for a {} in [{}]: [{key}].", token(value), part.name))
        }
        other => unexpected(part, other),
    }
}

fn derivative(part: Part<'_>, members: &Map<String, Value>) -> Result<Pipeline> {
    let (mut shared, mut unit) = (Members::default(), None);
    for (key, value) in members {
        match (key.as_str(), value) {
            ("unit", Value::String(text)) => unit = Some(text),
            _ if shared.take(part, key, value)? => {}
            (_, Value::String(_)) => return Err(unknown_key(part, key, value)),
            _ => return Err(unexpected(part, value)),
        }
    }
    let unit_ms = unit.map(|unit| unit_millis(unit)).transpose()?;
    Ok(Pipeline::Derivative(Derivative {
        path: shared.path(part)?,
        gap_policy: shared.gap_policy,
        format: shared.format,
        unit_ms,
    }))
}

/// Milliseconds of a unit of time; of calendar units the estimate that Java has.
fn unit_millis(text: &str) -> Result<f64> {
    use super::interval::{CalendarUnit, time_value};
    let millis = match CalendarUnit::parse(text) {
        Some(CalendarUnit::Second) => 1_000,
        Some(CalendarUnit::Minute) => 60_000,
        Some(CalendarUnit::Hour) => 3_600_000,
        Some(CalendarUnit::Day) => 86_400_000,
        Some(CalendarUnit::Week) => 604_800_000,
        Some(CalendarUnit::Month) => 2_629_746_000,
        Some(CalendarUnit::Quarter) => 7_889_238_000,
        Some(CalendarUnit::Year) => 31_556_952_000,
        None => time_value("DerivativePipelineAggregationBuilder.unit", text)?,
    };
    if millis < 1 {
        return Err(Error::IllegalArgument("Zero or negative time interval not supported".to_owned()));
    }
    Ok(millis as f64)
}

fn cumulative_sum(part: Part<'_>, members: &Map<String, Value>) -> Result<Pipeline> {
    let mut shared = Members::default();
    for (key, value) in members {
        if key == "gap_policy" || !shared.take(part, key, value)? {
            return Err(part.unknown(key, &["buckets_path", "format"]));
        }
    }
    Ok(Pipeline::CumulativeSum { path: shared.path(part)?, format: shared.format })
}

fn moving_fn(part: Part<'_>, members: &Map<String, Value>) -> Result<Pipeline> {
    let mut shared = Members::default();
    let (mut window, mut shift, mut source) = (None, 0, None);
    for (key, value) in members {
        match key.as_str() {
            "window" => window = Some(part.int(key, value)?),
            "shift" => shift = part.int(key, value)?,
            "script" => source = Some(value),
            _ if shared.take(part, key, value)? => {}
            _ => {
                let known = &["buckets_path", "format", "gap_policy", "script", "shift", "window"];
                return Err(part.unknown(key, known));
            }
        }
    }
    let missing: Vec<&str> = [
        ("buckets_path", shared.paths.is_none()),
        ("script", source.is_none()),
        ("window", window.is_none()),
    ]
    .into_iter()
    .filter_map(|(name, missing)| missing.then_some(name))
    .collect();
    let (Some(window), Some(source), true) = (window, source, missing.is_empty()) else {
        return Err(Error::IllegalArgument(format!("Required [{}]", missing.join(", "))));
    };
    let window = usize::try_from(window).ok().filter(|window| *window > 0).ok_or_else(|| {
        let failed = Error::Content {
            reason: "Failed to build [moving_fn] after last required field arrived".to_owned(),
            cause: Some(Box::new(Error::IllegalArgument(
                "[window] must be a positive, non-zero integer.".to_owned(),
            ))),
        };
        part.unread("script", failed)
    })?;
    Ok(Pipeline::MovingFn(MovingFn {
        path: shared.path(part)?,
        gap_policy: shared.gap_policy,
        format: shared.format,
        window,
        shift,
        script: Arc::new(script(part, source)?),
    }))
}

fn serial_diff(part: Part<'_>, members: &Map<String, Value>) -> Result<Pipeline> {
    let (mut shared, mut lag) = (Members::default(), 1);
    for (key, value) in members {
        match (key.as_str(), value) {
            ("lag", Value::Number(_)) => {
                let number = part.int(key, value)?;
                lag = usize::try_from(number).ok().filter(|lag| *lag > 0).ok_or_else(|| {
                    Error::Parsing(format!(
                        "Lag must be a positive, non-zero integer.  Value supplied was{number} in [{}]: [lag].",
                        part.name
                    ))
                })?;
            }
            _ if shared.take(part, key, value)? => {}
            _ => return Err(unknown_key(part, key, value)),
        }
    }
    Ok(Pipeline::SerialDiff(SerialDiff {
        path: shared.path(part)?,
        gap_policy: shared.gap_policy,
        format: shared.format,
        lag,
    }))
}

fn bucket_sort(part: Part<'_>, members: &Map<String, Value>) -> Result<Pipeline> {
    let failed = |error: Error| Error::Content {
        reason: "failed to build [bucket_sort] after last required field arrived".to_owned(),
        cause: Some(Box::new(error)),
    };
    let mut shared = Members::default();
    let (mut sort, mut from, mut size) = (Vec::new(), 0, None);
    for (key, value) in members {
        match key.as_str() {
            "sort" => sort = sort_paths(part, key, value)?,
            "from" => {
                let number = part.int(key, value)?;
                from = usize::try_from(number).map_err(|_| {
                    failed(part.refused(key, format!("[from] must be a non-negative integer: [{number}]")))
                })?;
            }
            "size" => {
                let number = part.int(key, value)?;
                let positive = usize::try_from(number).ok().filter(|size| *size > 0);
                size = Some(positive.ok_or_else(|| {
                    failed(part.refused(key, format!("[size] must be a positive integer: [{number}]")))
                })?);
            }
            "gap_policy" if shared.take(part, key, value)? => {}
            _ => return Err(part.unknown(key, &["from", "gap_policy", "size", "sort"])),
        }
    }
    Ok(Pipeline::BucketSort(BucketSort { sort, from, size, gap_policy: shared.gap_policy }))
}

/// Reads the keys of an order: paths, or objects of paths and directions.
fn sort_paths(part: Part<'_>, key: &str, value: &Value) -> Result<Vec<SortPath>> {
    let items = match value {
        Value::Array(items) => items.as_slice(),
        Value::Object(_) => std::slice::from_ref(value),
        other => return Err(part.wrong_type(key, other)),
    };
    if items.len() > MAX_PATHS {
        let reason = format!("too many sort keys: {} given, at most {MAX_PATHS} allowed", items.len());
        return Err(part.refused(key, reason));
    }
    let mut paths = Vec::new();
    for sort in crate::sort::parse(&Value::Array(items.to_vec())).map_err(|error| part.unread(key, error))? {
        use crate::sort::SortBy;
        let path = match sort.by {
            SortBy::Field(field) => field.field,
            SortBy::Score => "_score".to_owned(),
            SortBy::Doc => "_doc".to_owned(),
            SortBy::Distance(_) => {
                return Err(part.refused(key, "buckets are not sorted by distance".to_owned()));
            }
        };
        paths.push(SortPath { path, descending: sort.descending });
    }
    Ok(paths)
}

fn bucket_expression(part: Part<'_>, members: &Map<String, Value>) -> Result<BucketExpression> {
    let (mut shared, mut source) = (Members::default(), None);
    for (key, value) in members {
        match (key.as_str(), part.kind) {
            ("script", _) => source = Some(script(part, value)?),
            ("format", "bucket_selector") => return Err(unknown_key(part, key, value)),
            _ if shared.take(part, key, value)? => {}
            _ => return Err(unknown_key(part, key, value)),
        }
    }
    let paths = shared.paths(part)?;
    let expression = source.ok_or_else(|| {
        Error::Parsing(format!(
            "Missing required field [script] for {} aggregation [{}]",
            part.kind, part.name
        ))
    })?;
    Ok(BucketExpression {
        paths: paths.named(),
        expression: Arc::new(expression),
        gap_policy: shared.gap_policy,
        format: shared.format,
    })
}

/// Reads a script: its text, or an object with `source`, `lang` and `params`.
fn script(part: Part<'_>, value: &Value) -> Result<Expression> {
    let (mut source, mut params) = (None, BTreeMap::new());
    match value {
        Value::String(text) => source = Some(text.as_str()),
        Value::Object(members) => {
            for (key, value) in members {
                match (key.as_str(), value) {
                    ("source" | "inline", Value::String(text)) => source = Some(text),
                    ("lang", Value::String(lang)) if lang == "painless" => {}
                    ("lang", Value::String(lang)) => {
                        return Err(Error::IllegalArgument(format!("script_lang not supported [{lang}]")));
                    }
                    ("params", Value::Object(given)) => {
                        for (name, value) in given {
                            let (Value::Number(_) | Value::Bool(_)) = value else {
                                return Err(Error::IllegalArgument(format!(
                                    "[script] parameter [{name}] must be a number or a boolean: other scripts are not supported"
                                )));
                            };
                            params.insert(name.clone(), value.clone());
                        }
                    }
                    ("id", _) => {
                        return Err(Error::Exception {
                            kind: "resource_not_found_exception",
                            status: 404,
                            reason: format!(
                                "unable to find script [{}] in cluster state",
                                json::text(value).unwrap_or_default()
                            ),
                        });
                    }
                    _ => return Err(Error::unknown_member("script", key)),
                }
            }
        }
        other => return Err(unexpected(part, other)),
    }
    let source = source.ok_or_else(|| {
        Error::IllegalArgument(
            "must specify either [source] for an inline script or [id] for a stored script".to_owned(),
        )
    })?;
    Expression::parse(source, &params)
}

fn bucket_metric(part: Part<'_>, members: &Map<String, Value>) -> Result<Pipeline> {
    let mut shared = Members::default();
    let (mut sigma, mut percents, mut keyed) = (2.0, DEFAULT_PERCENTS.to_vec(), true);
    for (key, value) in members {
        match (part.kind, key.as_str(), value) {
            ("extended_stats_bucket", "sigma", Value::Number(_)) => {
                sigma = value.as_f64().unwrap_or_default();
                if sigma < 0.0 {
                    return Err(Error::IllegalArgument("sigma must be a non-negative double".to_owned()));
                }
            }
            ("percentiles_bucket", "keyed", Value::Bool(flag)) => keyed = *flag,
            ("percentiles_bucket", "percents", Value::Array(items)) => {
                percents = items
                    .iter()
                    .map(|item| match item {
                        Value::Number(number) => Ok(number.as_f64().unwrap_or(f64::NAN)),
                        Value::String(text) => text.parse().map_err(|_| json::not_a_number(text)),
                        _ => Ok(f64::NAN),
                    })
                    .collect::<Result<_>>()?;
                if percents.iter().any(|percent| !(0.0..=100.0).contains(percent)) {
                    return Err(Error::IllegalArgument(
                        "percents must only contain non-null doubles from 0.0-100.0 inclusive".to_owned(),
                    ));
                }
                if percents.len() > 10_000 {
                    return Err(Error::IllegalArgument("too many [percents]".to_owned()));
                }
            }
            _ if shared.take(part, key, value)? => {}
            _ => {
                return Err(Error::Parsing(format!(
                    "Unexpected token {} [{key}] in [{}]",
                    token(value),
                    part.name
                )));
            }
        }
    }
    let statistic = match part.kind {
        "avg_bucket" => Statistic::Avg,
        "max_bucket" => Statistic::Max,
        "min_bucket" => Statistic::Min,
        "sum_bucket" => Statistic::Sum,
        "stats_bucket" => Statistic::Stats,
        "extended_stats_bucket" => Statistic::ExtendedStats { sigma },
        _ => Statistic::Percentiles { percents, keyed },
    };
    Ok(Pipeline::BucketMetric(BucketMetric {
        statistic,
        path: shared.path(part)?,
        gap_policy: shared.gap_policy,
        format: shared.format,
    }))
}
