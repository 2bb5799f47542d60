//! `significant_terms`: values that are more frequent among the matching documents than elsewhere.

use std::collections::HashMap;
use std::sync::Arc;

use millrace_dsl::aggs::{Heuristic, SignificantTerms};
use millrace_work::error::{Error, Result};

use super::keyed::{Candidate, KeyedAggregation, KeyedCollector, Kind};
use super::terms::{filter, key_type};
use crate::collector::Reduction;
use crate::compiler::{Compiler, Context};
use crate::field::{AcceptedTypes, ValueKind};
use crate::keys::{KeyForm, KeyRule};
use crate::ordinals::Children;
use crate::result::{self, Detail, KeyType, Outcome};

/// Bytes of a term of the background while an answer is made.
const BACKGROUND_TERM_BYTES: usize = 64;

/// Specification of the answer.
#[derive(Debug)]
pub(crate) struct SignificantTermsSpec {
    significant: Arc<SignificantTerms>,
    key_type: KeyType,
    background: usize,
}

/// Lets the aggregation meet the mappings.
pub(crate) fn compile(
    compiler: &mut Compiler<'_>,
    context: Context,
    significant: &Arc<SignificantTerms>,
) -> Result<Arc<KeyedAggregation>> {
    let values = compiler.values(context, &significant.source, "significant_terms", AcceptedTypes::Keys)?;
    if values.kind == Some(ValueKind::Double) {
        compiler
            .fail_all(Error::IllegalArgument("No support for examining floating point numerics".to_owned()));
    }
    let form = KeyForm::Terms(filter(compiler, &significant.include, &values, Error::IllegalArgument)?);
    let filter = significant.background_filter.as_deref();
    let background = compiler.background(context, &significant.source, filter)?;
    let shape = SignificantTermsSpec {
        significant: Arc::clone(significant),
        key_type: key_type(&values),
        background,
    };
    let rule = Arc::new(KeyRule { values, form, null: false });
    Ok(Arc::new(KeyedAggregation { rules: vec![rule], list: false, kind: Kind::SignificantTerms(shape) }))
}

/// Makes the answer.
pub(crate) fn reduce(
    shape: &SignificantTermsSpec,
    level: &mut KeyedCollector,
    children: &Children,
    parents: &[u32],
    reduction: &mut Reduction<'_>,
) -> Result<Vec<Outcome>> {
    let mut everywhere: HashMap<u64, u64> = HashMap::new();
    let mut total = 0;
    if let Some(background) = reduction.backgrounds.get(shape.background) {
        total = background.total;
        reduction.room_for(background.len() * BACKGROUND_TERM_BYTES)?;
        let (keys, counts): (Vec<u64>, Vec<u64>) = background.counted().unzip();
        everywhere
            .extend(level.row_keys.adopt(background.reader(), keys.into_iter()).into_iter().zip(counts));
    }
    let thresholds = &shape.significant.thresholds;
    let (mut chosen, mut totals) = (Vec::with_capacity(parents.len()), Vec::with_capacity(parents.len()));
    for parent in parents {
        let foreground = level.rows(*parent);
        let mut scored = Vec::new();
        for counted in level.counted(children, *parent, reduction)? {
            let background = everywhere.get(&counted.key).copied().unwrap_or(0);
            let score =
                score(shape.significant.heuristic, [counted.doc_count, foreground, background, total]);
            if score > 0.0 && counted.doc_count >= thresholds.min_doc_count {
                scored.push((score, background, counted));
            }
        }
        scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| level.row_keys.compare(a.2.key, b.2.key)));
        scored.truncate(thresholds.size);
        level.made(scored.len(), reduction)?;
        let candidate = |(score, background, counted)| Candidate {
            detail: Detail::Significant { score, background },
            ..level.candidate(counted)
        };
        chosen.push(scored.into_iter().map(candidate).collect());
        totals.push(foreground);
    }
    let lists = level.finish(chosen, reduction)?;
    let outcome = |(buckets, doc_count)| {
        let shape =
            result::BucketsKind::SignificantTerms { key_type: shape.key_type, doc_count, background: total };
        Outcome::buckets(shape, false, buckets)
    };
    Ok(lists.into_iter().zip(totals).map(outcome).collect())
}

/// Scores a term by the documents that have it and all, in the foreground and in the background, with
/// OpenSearch's formulas.
fn score(heuristic: Heuristic, counts: [u64; 4]) -> f64 {
    let [term, all, background_term, background] = counts.map(|count| count as f64);
    /// Documents of neither, of the foreground only, of the term only, of both; and of the sums.
    struct Table {
        n00: f64,
        n01: f64,
        n10: f64,
        n11: f64,
    }
    let table = |superset: bool| match superset {
        true => Table {
            n00: background - background_term - (all - term),
            n01: all - term,
            n10: background_term - term,
            n11: term,
        },
        false => {
            Table { n00: background - background_term, n01: all - term, n10: background_term, n11: term }
        }
    };
    let negative = |table: &Table| table.n11 / (table.n01 + table.n11) < table.n10 / (table.n00 + table.n10);
    match heuristic {
        Heuristic::Jlh => {
            if all == 0.0 || background == 0.0 {
                return 0.0;
            }
            let (own, other) = (term / all, background_term.max(1.0) / background);
            let change = own - other;
            if change <= 0.0 { 0.0 } else { change * (own / other) }
        }
        Heuristic::MutualInformation { include_negatives, background_is_superset } => {
            let t = table(background_is_superset);
            let n = t.n00 + t.n01 + t.n10 + t.n11;
            let part = |both: f64, row: f64, column: f64| {
                let (numerator, denominator) = ((n * both).abs(), (row * column).abs());
                let factor = (both / n).abs();
                match numerator < 1e-7 && factor < 1e-7 {
                    true => 0.0,
                    false => factor * (numerator / denominator).ln() / 2f64.ln(),
                }
            };
            let sum = part(t.n00, t.n00 + t.n01, t.n00 + t.n10)
                + part(t.n01, t.n00 + t.n01, t.n01 + t.n11)
                + part(t.n10, t.n10 + t.n11, t.n00 + t.n10)
                + part(t.n11, t.n10 + t.n11, t.n01 + t.n11);
            match sum.is_nan() || (!include_negatives && negative(&t)) {
                true => f64::NEG_INFINITY,
                false => sum,
            }
        }
        Heuristic::ChiSquare { include_negatives, background_is_superset } => {
            let t = table(background_is_superset);
            if !include_negatives && negative(&t) {
                return f64::NEG_INFINITY;
            }
            let n = t.n00 + t.n01 + t.n10 + t.n11;
            let divisor = (t.n01 + t.n11) * (t.n10 + t.n11) * (t.n00 + t.n01) * (t.n00 + t.n10);
            n * (t.n11 * t.n00 - t.n01 * t.n10).powi(2) / divisor
        }
        Heuristic::Gnd { background_is_superset } => {
            let (with_term, n) = match background_is_superset {
                true => (background_term, background),
                false => (background_term + term, background + all),
            };
            if term == 0.0 {
                return 0.0;
            }
            if with_term == all && with_term == term {
                return 1.0;
            }
            let distance =
                (with_term.ln().max(all.ln()) - term.ln()) / (n.ln() - with_term.ln().min(all.ln()));
            (-distance).exp()
        }
        Heuristic::Percentage => match background_term {
            0.0 => 0.0,
            other => term / other,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_those_of_the_formulas() {
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(close(score(Heuristic::Jlh, [4, 10, 5, 100]), (0.4 - 0.05) * 8.0));
        assert_eq!(score(Heuristic::Jlh, [1, 10, 50, 100]), 0.0);
        assert!(close(score(Heuristic::Percentage, [4, 10, 5, 100]), 0.8));
        assert_eq!(score(Heuristic::Gnd { background_is_superset: true }, [0, 10, 5, 100]), 0.0);
        let negative = Heuristic::ChiSquare { include_negatives: false, background_is_superset: true };
        assert!(score(negative, [1, 10, 50, 100]).is_infinite());
        assert!(score(negative, [4, 10, 5, 100]) > 0.0);
    }
}
