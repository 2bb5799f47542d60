//! `terms`: a bucket for each value, the first of them in an order.

use std::collections::HashSet;
use std::sync::Arc;

use millrace_dsl::aggs::{self, IncludeExclude, Terms};
use millrace_dsl::json::text;
use millrace_dsl::query::RegexpFlags;
use millrace_mapping::Scalar;
use millrace_scoring::automaton::Pattern;
use millrace_work::error::{Error, Result};
use serde_json::{Value, json};

use super::keyed::{BucketCandidate, KeyedAggregation, KeyedCollector, Kind};
use super::sorted;
use crate::collector::Reduction;
use crate::compiler::{Compiler, Context};
use crate::field::{AcceptedTypes, ValueKind, Values};
use crate::keys::{KeyForm, KeyRule};
use crate::ordinals::{Children, NONE};
use crate::result::{self, KeyType, Outcome};
use crate::term_filter::{TermFilter, TermSet};

/// Most work that the automaton of an expression may be.
const MAX_STATES: i64 = 10_000;

/// Bytes of a key in a set of keys, about.
const KNOWN_KEY_BYTES: usize = 16;

/// Specification of the answer.
#[derive(Debug)]
pub(crate) struct TermsSpec {
    terms: Arc<Terms>,
    key_type: KeyType,
    /// Counts of all terms, where terms without documents are shown.
    all: Option<usize>,
}

/// Lets the aggregation meet the mappings.
pub(crate) fn compile(
    compiler: &mut Compiler<'_>,
    context: Context,
    terms: &Arc<Terms>,
) -> Result<Arc<KeyedAggregation>> {
    let values = compiler.values(context, &terms.source, "terms", AcceptedTypes::Keys)?;
    let key_type = key_type(&values);
    let refused = |reason| Error::Exception { kind: "aggregation_execution_exception", status: 500, reason };
    let filter = filter(compiler, &terms.include, &values, refused)?;
    let all = match terms.thresholds.min_doc_count {
        0 => Some(compiler.background(context, &terms.source, None)?),
        _ => None,
    };
    let rule = KeyRule { values, form: KeyForm::Terms(filter), null: false };
    let kind = Kind::Terms(TermsSpec { terms: Arc::clone(terms), key_type, all });
    Ok(Arc::new(KeyedAggregation { rules: vec![Arc::new(rule)], list: false, kind }))
}

/// Returns the type of the keys of values.
pub(crate) fn key_type(values: &Values) -> KeyType {
    match values.kind {
        None => KeyType::Unmapped,
        Some(ValueKind::Text | ValueKind::Ip | ValueKind::Point) => KeyType::Strings,
        Some(ValueKind::Long) => KeyType::Longs,
        Some(ValueKind::Unsigned) => KeyType::Unsigned,
        Some(ValueKind::Double) => KeyType::Doubles,
    }
}

/// Makes sets of `include` and `exclude`; `refused` makes the error of an expression over what is no text.
pub(crate) fn filter(
    compiler: &mut Compiler<'_>,
    wanted: &IncludeExclude,
    values: &Values,
    refused: fn(String) -> Error,
) -> Result<TermFilter> {
    let mut set = |pattern: &Option<aggs::Pattern>| -> Result<Option<TermSet>> {
        let Some(pattern) = pattern else { return Ok(None) };
        let found = match pattern {
            aggs::Pattern::Regexp(regexp) => match values.kind {
                Some(ValueKind::Text) | None => {
                    TermSet::Pattern(Pattern::regexp(regexp, RegexpFlags::ALL, false, MAX_STATES)?)
                }
                Some(kind) => {
                    let instead = match kind {
                        ValueKind::Ip => "values for include/exclude clauses",
                        _ => "numeric values for include/exclude clauses used to filter numeric fields",
                    };
                    let error = refused(format!(
                        "Aggregation [{}] cannot support regular expression style include/exclude settings as they can only be applied to string fields. Use an array of {instead}",
                        compiler.name()
                    ));
                    compiler.fail_all(error);
                    return Ok(None);
                }
            },
            aggs::Pattern::Values(list) => values_of(compiler, values, list)?,
        };
        Ok(Some(found))
    };
    let include = set(&wanted.include)?;
    let exclude = set(&wanted.exclude)?;
    Ok(TermFilter { include, exclude, partition: wanted.partition })
}

fn values_of(compiler: &mut Compiler<'_>, values: &Values, list: &[Value]) -> Result<TermSet> {
    let texts = || list.iter().filter_map(text);
    let parsed = |compiler: &mut Compiler<'_>, value: &Value| -> Option<Scalar> {
        match compiler.parse(values, value) {
            Ok(found) => found,
            Err(error) => {
                compiler.fail_all(error);
                None
            }
        }
    };
    Ok(match values.kind {
        Some(ValueKind::Ip) => TermSet::Addresses(
            list.iter()
                .filter_map(|value| match parsed(compiler, value) {
                    Some(Scalar::Ip(address)) => Some(address),
                    _ => None,
                })
                .collect(),
        ),
        Some(ValueKind::Double) => {
            let numbers = texts().filter_map(|text| text.parse::<f64>().ok());
            TermSet::Numbers(numbers.map(|number| if number == 0.0 { 0 } else { number.to_bits() }).collect())
        }
        Some(ValueKind::Long | ValueKind::Unsigned) => {
            let mut numbers = HashSet::new();
            for value in list {
                // Fractions are cut off.
                let whole = value.as_f64().filter(|_| value.is_f64()).map(|number| json!(number as i64));
                numbers.extend(match parsed(compiler, whole.as_ref().unwrap_or(value)) {
                    Some(Scalar::I64(number)) => Some(number as u64),
                    Some(Scalar::U64(number)) => Some(number),
                    Some(Scalar::Bool(flag)) => Some(u64::from(flag)),
                    _ => None,
                });
            }
            TermSet::Numbers(numbers)
        }
        _ => TermSet::Texts(texts().collect()),
    })
}

/// Makes the answer.
pub(crate) fn reduce(
    shape: &TermsSpec,
    level: &mut KeyedCollector,
    children: &Children,
    parents: &[u32],
    reduction: &mut Reduction<'_>,
) -> Result<Vec<Outcome>> {
    let mut chosen = Vec::with_capacity(parents.len());
    let mut others = Vec::with_capacity(parents.len());
    let mut all = Vec::new();
    if let Some(background) = shape.all.and_then(|at| reduction.backgrounds.get(at)) {
        all = level.row_keys.adopt(background.reader(), background.counted().map(|(key, _)| key));
        all.retain(|key| level.row_keys.one().is_none_or(|reader| reader.wants(*key)));
    }
    for parent in parents {
        let mut candidates = level.counted(children, *parent, reduction)?;
        if !all.is_empty() {
            reduction.room_for(all.len() * (size_of::<BucketCandidate>() + KNOWN_KEY_BYTES))?;
            let mut known: HashSet<u64> = candidates.iter().map(|candidate| candidate.key).collect();
            let empty = all.iter().copied().filter(|key| known.insert(*key));
            candidates.extend(empty.map(|key| BucketCandidate { key, doc_count: 0, ordinal: NONE }));
        }
        let (first, other) =
            sorted::take_passing(level, &shape.terms.order, candidates, &shape.terms.thresholds, reduction)?;
        others.push(other);
        level.made(first.len(), reduction)?;
        chosen.push(first);
    }
    let lists = level.finish(chosen, reduction)?;
    let outcome = |(buckets, other)| {
        let shape = result::BucketsKind::Terms {
            key_type: shape.key_type,
            other,
            show_error: shape.terms.show_error,
        };
        Outcome::buckets(shape, false, buckets)
    };
    Ok(lists.into_iter().zip(others).map(outcome).collect())
}
