//! `composite`: pages over all combinations of values of several sources.

use std::cmp::Ordering;
use std::sync::Arc;

use millrace_dsl::aggs::{Composite, CompositeKind, CompositeSource, MissingOrder};
use millrace_dsl::json::text;
use millrace_mapping::Scalar;
use millrace_time::{Rounding, Zone};
use millrace_work::error::{Error, Result};
use serde_json::Value;

use super::keyed::{Candidate, KeyedAggregation, KeyedCollector, Kind};
use crate::collector::Reduction;
use crate::compiler::{Compiler, Context, ParentContext};
use crate::field::{AcceptedTypes, ValueKind, Values};
use crate::keys::{KeyForm, KeyRule};
use crate::ordinals::Children;
use crate::result::{self, Format, Key, Outcome};
use crate::source::{FirstValues, Question};
use crate::term_filter::TermFilter;

/// Specification of the answer.
#[derive(Debug)]
pub(crate) struct CompositeSpec {
    composite: Arc<Composite>,
    parts: Arc<[(Arc<str>, Format)]>,
    after: Option<Key>,
}

impl CompositeSpec {
    /// Returns how many buckets a page has.
    pub(crate) fn size(&self) -> usize {
        self.composite.size
    }

    /// Asks for the rows that may be on the page, by the values of the first source; `None` where rows without a value may be,
    /// or values are not told apart as they are.
    pub(super) fn first_of<'a>(&'a self, rules: &'a [Arc<KeyRule>]) -> Option<Question<'a>> {
        let (source, others) = rules.split_first()?;
        if !matches!(source.form, KeyForm::Terms(_)) || source.null {
            return None;
        }
        let from = match &self.after {
            Some(Key::List(after)) => after.first(),
            _ => None,
        };
        Some(Question::First(FirstValues {
            values: &source.values,
            ascending: self.composite.sources.first().is_none_or(|source| source.ascending),
            from,
            // The buckets of the value at which the page begins may all be before it.
            wanted: self.size().saturating_add(usize::from(from.is_some())),
            others,
        }))
    }

    /// Keeps the buckets of the page, in no order.
    pub(super) fn page(&self, mut candidates: Vec<Candidate>) -> Vec<Candidate> {
        let (sources, size) = (&self.composite.sources, self.composite.size);
        if let Some(after) = &self.after {
            candidates.retain(|candidate| by_sources(sources, &candidate.key, after).is_gt());
        }
        if candidates.len() > size && size > 0 {
            candidates.select_nth_unstable_by(size - 1, |a, b| by_sources(sources, &a.key, &b.key));
            candidates.truncate(size);
        }
        candidates
    }
}

/// Lets the aggregation meet the mappings.
pub(crate) fn compile(
    compiler: &mut Compiler<'_>,
    context: Context,
    composite: &Arc<Composite>,
) -> Result<Arc<KeyedAggregation>> {
    if let ParentContext::Other(parent) = context.below {
        compiler.fail_all(Error::IllegalArgument(format!(
            "[composite] aggregation cannot be used with a parent aggregation of type: [{parent}]"
        )));
    }
    let (mut rules, mut parts, mut after) = (Vec::new(), Vec::new(), Vec::new());
    for (at, source) in composite.sources.iter().enumerate() {
        let (name, accepts) = match source.kind {
            CompositeKind::Terms => ("terms", AcceptedTypes::Keys),
            CompositeKind::Histogram { .. } => ("histogram", AcceptedTypes::Numbers),
            CompositeKind::DateHistogram { .. } => ("date_histogram", AcceptedTypes::Dates),
        };
        let mut values = compiler.values(context, &source.source, name, accepts)?;
        if matches!(values.format, Format::Date(..)) && source.source.format.is_none() {
            // Dates are numbers here, unless the request says how to write them.
            values.format = Format::Raw;
        }
        if let Some(Some(value)) = composite.after.as_ref().map(|after| after.get(at)) {
            after.push(match parse(compiler, source, &values, value) {
                Ok(key) => key,
                Err(error) => {
                    compiler.fail_all(error);
                    Key::Null
                }
            });
        }
        parts.push((source.name.as_str().into(), values.format.clone()));
        let form = match source.kind {
            CompositeKind::Terms => KeyForm::Terms(TermFilter::default()),
            CompositeKind::Histogram { interval } => {
                KeyForm::Interval { interval, offset: 0.0, bounds: None }
            }
            CompositeKind::DateHistogram { interval, offset_ms } => {
                let zone = source.source.time_zone.unwrap_or(Zone::UTC);
                KeyForm::Dates { rounding: Rounding { interval, zone, offset_ms }, bounds: None }
            }
        };
        rules.push(Arc::new(KeyRule { values, form, null: source.missing_bucket }));
    }
    let after = composite.after.is_some().then(|| Key::List(after.into()));
    let shape = CompositeSpec { composite: Arc::clone(composite), parts: parts.into(), after };
    Ok(Arc::new(KeyedAggregation { rules, list: true, kind: Kind::Composite(shape) }))
}

/// Reads a value of the key after which buckets begin.
fn parse(
    compiler: &mut Compiler<'_>,
    source: &CompositeSource,
    values: &Values,
    value: &Value,
) -> Result<Key> {
    if value.is_null() {
        if source.missing_bucket {
            return Ok(Key::Null);
        }
        return Err(Error::IllegalArgument(format!("Missing value for [{}]", source.name)));
    }
    let invalid = || {
        let shown = text(value).unwrap_or_default();
        let field = source.source.field.as_deref().unwrap_or_default();
        Error::IllegalArgument(format!("invalid value, expected number, got [{shown}] for field [{field}]"))
    };
    let number = || match value {
        Value::Number(number) => number.as_f64().ok_or_else(invalid),
        Value::String(text) => {
            text.parse::<f64>().map_err(|_| Error::NumberFormat(format!("For input string: \"{text}\"")))
        }
        _ => Err(invalid()),
    };
    match (&source.kind, values.kind) {
        (CompositeKind::Histogram { .. }, _) => number().map(Key::Double),
        (CompositeKind::DateHistogram { .. }, _) | (_, Some(ValueKind::Long)) => {
            if let (Format::Date(format, zone), Value::String(text)) = (&values.format, value) {
                return compiler.date(format, *zone, text, false).map(Key::Long);
            }
            match value {
                Value::Number(number) if number.is_i64() => {
                    Ok(Key::Long(number.as_i64().unwrap_or_default()))
                }
                Value::Bool(flag) => Ok(Key::Long(i64::from(*flag))),
                Value::String(text) if values.kind.is_some() && text.parse::<i64>().is_err() => {
                    match compiler.parse(values, value)? {
                        Some(Scalar::I64(found)) => Ok(Key::Long(found)),
                        Some(Scalar::Bool(flag)) => Ok(Key::Long(i64::from(flag))),
                        _ => Err(invalid()),
                    }
                }
                _ => number().map(|number| Key::Long(number as i64)),
            }
        }
        (_, Some(ValueKind::Unsigned)) => match value.as_u64() {
            Some(number) => Ok(Key::Unsigned(number)),
            None => number().map(|number| Key::Unsigned(number as u64)),
        },
        (_, Some(ValueKind::Double)) => number().map(Key::Double),
        (_, Some(ValueKind::Ip)) => match compiler.parse(values, value)? {
            Some(Scalar::Ip(address)) => Ok(Key::Ip(address)),
            _ => Err(invalid()),
        },
        (_, Some(ValueKind::Text | ValueKind::Point)) => match value {
            Value::String(text) => Ok(Key::Text(text.as_str().into())),
            other => Err(Error::IllegalArgument(format!(
                "invalid value, expected string, got {}",
                match other {
                    Value::Number(number) if number.is_f64() => "Double",
                    Value::Number(_) => "Integer",
                    Value::Bool(_) => "Boolean",
                    _ => "Object",
                }
            ))),
        },
        (_, None) => Ok(Key::Text(text(value).unwrap_or_default().into())),
    }
}

/// Makes the answer.
pub(crate) fn reduce(
    shape: &CompositeSpec,
    level: &mut KeyedCollector,
    children: &Children,
    parents: &[u32],
    reduction: &mut Reduction<'_>,
) -> Result<Vec<Outcome>> {
    let size = shape.size() as u64;
    if size > reduction.max_buckets {
        return Err(Error::TooManyBuckets { limit: reduction.max_buckets, made: size });
    }
    let mut chosen = Vec::with_capacity(parents.len());
    for parent in parents {
        let mut page = shape.page(level.candidates(children, *parent, reduction)?);
        page.sort_unstable_by(|a, b| by_sources(&shape.composite.sources, &a.key, &b.key));
        level.made(page.len(), reduction)?;
        chosen.push(page);
    }
    let lists = level.finish(chosen, reduction)?;
    let outcome = |buckets: Vec<result::Bucket>| {
        let (parts, after) = (Arc::clone(&shape.parts), buckets.last().map(|bucket| bucket.key.clone()));
        Outcome::buckets(result::BucketsKind::Composite { parts, after }, false, buckets)
    };
    Ok(lists.into_iter().map(outcome).collect())
}

/// Compares keys in the order of the sources.
fn by_sources(sources: &[CompositeSource], a: &Key, b: &Key) -> Ordering {
    let (Key::List(a), Key::List(b)) = (a, b) else { return Ordering::Equal };
    for (source, (a, b)) in sources.iter().zip(a.iter().zip(b.iter())) {
        let found = match (a, b, source.missing_order) {
            (Key::Null, Key::Null, _) => Ordering::Equal,
            (Key::Null, _, MissingOrder::First) | (_, Key::Null, MissingOrder::Last) => Ordering::Less,
            (Key::Null, _, MissingOrder::Last) | (_, Key::Null, MissingOrder::First) => Ordering::Greater,
            _ if source.ascending => a.compare(b),
            _ => b.compare(a),
        };
        if found != Ordering::Equal {
            return found;
        }
    }
    Ordering::Equal
}
