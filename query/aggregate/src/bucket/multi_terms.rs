//! `multi_terms`: a bucket for each combination of values of several fields.

use std::sync::Arc;

use millrace_dsl::aggs::MultiTerms;
use millrace_work::error::Result;

use super::keyed::{KeyedAggregation, KeyedCollector, Kind};
use super::sorted;
use crate::collector::Reduction;
use crate::compiler::{Compiler, Context};
use crate::field::AcceptedTypes;
use crate::keys::{KeyForm, KeyRule};
use crate::ordinals::Children;
use crate::result::{self, Format, Outcome};
use crate::term_filter::TermFilter;

/// Specification of the answer.
#[derive(Debug)]
pub(crate) struct MultiTermsSpec {
    terms: Arc<MultiTerms>,
    formats: Arc<[Format]>,
}

/// Lets the aggregation meet the mappings.
pub(crate) fn compile(
    compiler: &mut Compiler<'_>,
    context: Context,
    terms: &Arc<MultiTerms>,
) -> Result<Arc<KeyedAggregation>> {
    let (mut rules, mut formats) = (Vec::new(), Vec::new());
    for source in &terms.terms {
        let values = compiler.values(context, source, "multi_terms", AcceptedTypes::Keys)?;
        formats.push(values.format.clone());
        rules.push(Arc::new(KeyRule { values, form: KeyForm::Terms(TermFilter::default()), null: false }));
    }
    let kind = Kind::MultiTerms(MultiTermsSpec { terms: Arc::clone(terms), formats: formats.into() });
    Ok(Arc::new(KeyedAggregation { rules, list: true, kind }))
}

/// Makes the answer.
pub(crate) fn reduce(
    shape: &MultiTermsSpec,
    level: &mut KeyedCollector,
    children: &Children,
    parents: &[u32],
    reduction: &mut Reduction<'_>,
) -> Result<Vec<Outcome>> {
    let mut chosen = Vec::with_capacity(parents.len());
    let mut others = Vec::with_capacity(parents.len());
    for parent in parents {
        let candidates = level.counted(children, *parent, reduction)?;
        let (first, other) =
            sorted::take_passing(level, &shape.terms.order, candidates, &shape.terms.thresholds, reduction)?;
        others.push(other);
        level.made(first.len(), reduction)?;
        chosen.push(first);
    }
    let lists = level.finish(chosen, reduction)?;
    let outcome = |(buckets, other)| {
        let (formats, show_error) = (Arc::clone(&shape.formats), shape.terms.show_error);
        Outcome::buckets(result::BucketsKind::MultiTerms { formats, other, show_error }, false, buckets)
    };
    Ok(lists.into_iter().zip(others).map(outcome).collect())
}
