//! Fields that hold ranges: `term` finds ranges that contain a value, `range` those with a relation to a range.
//!
//! Each range of a row is one term, whose halves are its ends (see [`RangeType`]). A relation is a condition on each end, which
//! one pattern asks of the whole term, so ends of two ranges of a row are never mixed.

use std::sync::Arc;

use millrace_dsl::json::text;
use millrace_dsl::query::{Bound, RangeQuery, RangeRelation};
use millrace_mapping::{Field, RangeEnd, RangeType, Scalar};
use millrace_scoring::automaton::Pattern;
use millrace_scoring::node::{Node, StringColumn};
use millrace_scoring::operands::Weight;
use millrace_work::error::{Error, Result};
use serde_json::Value;

use super::{Resolver, searchable};
use crate::table::values;

impl Resolver<'_> {
    /// Rows with a range that has any of some values in it; a date without a time of day is a whole day.
    pub(super) fn ranges_with(
        &self,
        field: &Field,
        range_type: RangeType,
        values: &[Value],
        weight: Weight,
    ) -> Result<Node> {
        if !values.is_empty() {
            searchable(field)?;
        }
        let mut spans = Vec::with_capacity(values.len());
        for value in values {
            spans.extend(self.point_ends(field, range_type, value)?);
        }
        if spans.is_empty() {
            return Ok(Node::None);
        }
        let spans = disjoint(spans).into_iter().map(|(from, to)| range_type.encode(from, to));
        Ok(matching(field, Pattern::halves_across(spans.collect()), weight))
    }

    /// The ends of what a value stands for: the value itself, or all times that a date leaves open.
    fn point_ends(
        &self,
        field: &Field,
        range_type: RangeType,
        value: &Value,
    ) -> Result<Option<(RangeEnd, RangeEnd)>> {
        let (mapping, now_ms) = (self.index.mapping, self.index.now_ms);
        if range_type == RangeType::Date {
            let (from, to) = values::date_span(mapping, field, value, now_ms)?;
            return Ok(range_type.end(&Scalar::I64(from)).zip(range_type.end(&Scalar::I64(to))));
        }
        let value = values::range_value(mapping, field, range_type, value, now_ms)?;
        Ok(range_type.end(&value).map(|end| (end, end)))
    }

    /// Rows with a range that has the relation of a clause to its range.
    pub(super) fn related_ranges(
        &self,
        field: &Field,
        range_type: RangeType,
        query: &RangeQuery,
        weight: Weight,
    ) -> Result<Node> {
        if query.from.is_none() && query.to.is_none() {
            // As in OpenSearch, such a clause asks for a value, whatever the relation.
            return Ok(Node::Exists { paths: vec![field.id], weight });
        }
        searchable(field)?;
        let Some((from, to)) = self.ends(field, range_type, query)? else { return Ok(Node::None) };
        let (least, greatest) = (range_type.least(), range_type.greatest());
        // No range lies within ends that are the wrong way round.
        let relation = if from <= to { query.relation } else { RangeRelation::Within };
        let (lower, upper) = match relation {
            RangeRelation::Intersects => ((least, from), (to, greatest)),
            RangeRelation::Contains => ((least, to), (from, greatest)),
            RangeRelation::Within => ((from, least), (greatest, to)),
        };
        let term = |(first, second)| range_type.encode(first, second);
        Ok(matching(field, Pattern::halves_between(term(lower), term(upper)), weight))
    }

    /// The ends of the range of a clause; `None` where nothing is between them. A filter may have them the wrong way round at one
    /// time and not at another: then they stay so.
    fn ends(
        &self,
        field: &Field,
        range_type: RangeType,
        query: &RangeQuery,
    ) -> Result<Option<(RangeEnd, RangeEnd)>> {
        let (mapping, now_ms) = (self.index.mapping, self.index.now_ms);
        let (from, to) = if range_type == RangeType::Date {
            let (from, to) = values::date_bounds(mapping, field, query, now_ms)?;
            (from.map(Scalar::I64), to.map(Scalar::I64))
        } else {
            let value = |bound: &Option<Bound>| {
                let value = bound.as_ref().map(|bound| &bound.value);
                value.map(|value| values::range_value(mapping, field, range_type, value, now_ms)).transpose()
            };
            (value(&query.from)?, value(&query.to)?)
        };
        if let (Some(from), Some(to)) = (&from, &to)
            && range_type.end(from) > range_type.end(to)
        {
            if self.is_filter && (is_relative(&query.from) || is_relative(&query.to)) {
                return Ok(range_type.end(from).zip(range_type.end(to)));
            }
            let given = |bound: &Option<Bound>| bound.as_ref().and_then(|bound| text(&bound.value));
            return Err(Error::IllegalArgument(format!(
                "Range query `from` value ({}) is greater than `to` value ({})",
                given(&query.from).unwrap_or_default(),
                given(&query.to).unwrap_or_default()
            )));
        }
        let is_included = |bound: &Option<Bound>| bound.as_ref().is_none_or(|bound| bound.included);
        let from = match from {
            None => Some(range_type.least()),
            Some(value) if is_included(&query.from) => range_type.end(&value),
            Some(value) => range_type.after(&value),
        };
        let to = match to {
            None => Some(range_type.greatest()),
            Some(value) if is_included(&query.to) => range_type.end(&value),
            Some(value) => range_type.before(&value),
        };
        Ok(from.zip(to).filter(|(from, to)| from <= to))
    }
}

/// Returns whether a bound is a date relative to `now`.
fn is_relative(bound: &Option<Bound>) -> bool {
    let given = bound.as_ref().and_then(|bound| text(&bound.value));
    given.is_some_and(|given| given.starts_with("now"))
}

/// Joins spans that have a value in common; they are in ascending order then.
fn disjoint(mut spans: Vec<(RangeEnd, RangeEnd)>) -> Vec<(RangeEnd, RangeEnd)> {
    spans.sort_unstable();
    spans.dedup_by(|next, span| {
        let joins = next.0 <= span.1;
        if joins {
            span.1 = span.1.max(next.1);
        }
        joins
    });
    spans
}

/// Makes the node of the rows whose ranges have a pattern.
fn matching(field: &Field, pattern: Pattern, weight: Weight) -> Node {
    let column = field.doc_values.then_some(StringColumn { path: field.column, ignore_above: None });
    Node::Matching { path: field.id, text: false, column, pattern: Arc::new(pattern), weight }
}
