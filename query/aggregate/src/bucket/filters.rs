//! `filter`, `filters`, `adjacency_matrix`, `missing` and `global`: buckets of rows by what they match.

use std::sync::Arc;

use millrace_dsl::aggs::{AdjacencyMatrix, Filters, ValuesSource};
use millrace_dsl::query::Query;
use millrace_work::error::Result;

use super::slot_rule::Rule;
use super::slots::{Answer, Slots};
use crate::compiler::{Compiler, Context};
use crate::field::AcceptedTypes;
use crate::result::{BucketsKind, Detail, Format, Key, SingleKind};

fn single(kind: SingleKind, rule: Rule) -> Arc<Slots> {
    Arc::new(Slots { slots: 1, rule, answer: Answer::Single(kind), format: Format::Raw })
}

/// Makes the bucket of what a query matches.
pub(crate) fn filter(compiler: &mut Compiler<'_>, context: Context, query: &Query) -> Result<Arc<Slots>> {
    let filters = vec![compiler.filter(context, query)?];
    Ok(single(SingleKind::Filter, Rule::Filters { filters, other: false }))
}

/// Makes a bucket for each query.
pub(crate) fn filters(compiler: &mut Compiler<'_>, context: Context, list: &Filters) -> Result<Arc<Slots>> {
    let (mut filters, mut buckets) = (Vec::new(), Vec::new());
    let key = |key: &str| if list.keyed { Key::Text(key.into()) } else { Key::Null };
    for named in &list.filters {
        filters.push(compiler.filter(context, &named.query)?);
        buckets.push((key(&named.key), Detail::None));
    }
    if let Some(other) = &list.other {
        buckets.push((key(other), Detail::None));
    }
    Ok(Arc::new(Slots {
        slots: buckets.len().max(1),
        rule: Rule::Filters { filters, other: list.other.is_some() },
        answer: Answer::Several { buckets, shape: BucketsKind::Filters, keyed: list.keyed, empty: true },
        format: Format::Raw,
    }))
}

/// Makes a bucket for each query and each pair of queries.
pub(crate) fn adjacency_matrix(
    compiler: &mut Compiler<'_>,
    context: Context,
    matrix: &AdjacencyMatrix,
) -> Result<Arc<Slots>> {
    let mut filters = Vec::new();
    for named in &matrix.filters {
        filters.push(compiler.filter(context, &named.query)?);
    }
    let mut buckets = Vec::new();
    for (at, first) in matrix.filters.iter().enumerate() {
        buckets.push((Key::Text(first.key.as_str().into()), Detail::None));
        for second in matrix.filters.iter().skip(at + 1) {
            let key = format!("{}{}{}", first.key, matrix.separator, second.key);
            buckets.push((Key::Text(key.into()), Detail::None));
        }
    }
    Ok(Arc::new(Slots {
        slots: buckets.len().max(1),
        rule: Rule::Pairs(filters),
        answer: Answer::Several { buckets, shape: BucketsKind::AdjacencyMatrix, keyed: false, empty: false },
        format: Format::Raw,
    }))
}

/// Makes the bucket of rows without a value.
pub(crate) fn missing(
    compiler: &mut Compiler<'_>,
    context: Context,
    source: &ValuesSource,
) -> Result<Arc<Slots>> {
    let values = compiler.values(context, source, "missing", AcceptedTypes::Any)?;
    Ok(single(SingleKind::Missing, Rule::Missing(values)))
}

/// Makes the bucket of all documents.
pub(crate) fn global() -> Arc<Slots> {
    single(SingleKind::Global, Rule::All)
}
