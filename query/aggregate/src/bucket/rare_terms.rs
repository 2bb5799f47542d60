//! `rare_terms`: values that few documents have, rarest first.

use std::sync::Arc;

use millrace_dsl::aggs::RareTerms;
use millrace_work::error::{Error, Result};

use super::keyed::{KeyedAggregation, KeyedCollector, Kind};
use super::terms::{filter, key_type};
use crate::collector::Reduction;
use crate::compiler::{Compiler, Context};
use crate::field::{AcceptedTypes, ValueKind};
use crate::keys::{KeyForm, KeyRule};
use crate::ordinals::Children;
use crate::result::{self, KeyType, Outcome};

/// Specification of the answer.
#[derive(Debug)]
pub(crate) struct RareTermsSpec {
    most: u64,
    key_type: KeyType,
}

/// Lets the aggregation meet the mappings.
pub(crate) fn compile(
    compiler: &mut Compiler<'_>,
    context: Context,
    rare: &Arc<RareTerms>,
) -> Result<Arc<KeyedAggregation>> {
    let values = compiler.values(context, &rare.source, "rare_terms", AcceptedTypes::Keys)?;
    if matches!(values.kind, Some(ValueKind::Double)) {
        compiler.fail_all(Error::IllegalArgument(
            "RareTerms aggregation does not support floating point fields.".to_owned(),
        ));
    }
    let shape = RareTermsSpec { most: rare.max_doc_count, key_type: key_type(&values) };
    let form = KeyForm::Terms(filter(compiler, &rare.include, &values, Error::IllegalArgument)?);
    let rule = Arc::new(KeyRule { values, form, null: false });
    Ok(Arc::new(KeyedAggregation { rules: vec![rule], list: false, kind: Kind::RareTerms(shape) }))
}

/// Makes the answer.
pub(crate) fn reduce(
    shape: &RareTermsSpec,
    level: &mut KeyedCollector,
    children: &Children,
    parents: &[u32],
    reduction: &mut Reduction<'_>,
) -> Result<Vec<Outcome>> {
    let mut chosen = Vec::with_capacity(parents.len());
    for parent in parents {
        let mut candidates = level.candidates(children, *parent, reduction)?;
        candidates.retain(|candidate| candidate.doc_count <= shape.most);
        candidates.sort_unstable_by(|a, b| a.doc_count.cmp(&b.doc_count).then_with(|| a.key.compare(&b.key)));
        level.made(candidates.len(), reduction)?;
        chosen.push(candidates);
    }
    let lists = level.finish(chosen, reduction)?;
    let outcome = |buckets| Outcome::buckets(result::BucketsKind::RareTerms(shape.key_type), false, buckets);
    Ok(lists.into_iter().map(outcome).collect())
}
