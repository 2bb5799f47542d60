//! `range` over every type that has an order.

use millrace_dsl::json::{self, text};
use millrace_dsl::query::RangeQuery;
use millrace_mapping::{Field, FieldType};
use millrace_scoring::metadata::Metadata;
use millrace_scoring::node::Node;
use millrace_scoring::operands::Weight;
use millrace_segment::ValueRange;
use millrace_work::error::{Error, Result};

use super::{LowerClause, Resolver, is_opaque_metadata, metadata, not_searchable, searchable};
use crate::table::values;

impl LowerClause for RangeQuery {
    fn resolve(&self, resolver: &mut Resolver<'_>, weight: Weight) -> Result<Node> {
        resolver.count_leaf()?;
        let mapping = resolver.index.mapping;
        if self.field == "_seq_no" {
            return seq_no_range(self, weight);
        }
        let Some(target) = resolver.target(&self.field) else {
            return match is_opaque_metadata(&self.field) {
                true => Err(Error::IllegalArgument(format!(
                    "Field [{}] of type [{}] does not support range queries",
                    self.field, self.field
                ))),
                false => Ok(Node::None),
            };
        };
        let field = target.field;
        let is_date = matches!(field.field_type, FieldType::Date | FieldType::DateNanos);
        if let FieldType::Range(range_type) = field.field_type {
            return resolver.related_ranges(field, range_type, self, weight);
        }
        if !is_date && self.time_zone.is_some() {
            return Err(Error::QueryShard {
                reason: format!(
                    "Field [{}] of type [{}] does not support [time_zone]",
                    field.path,
                    field.type_name()
                ),
                caused_by: None,
            });
        }
        match &field.field_type {
            FieldType::Text | FieldType::MatchOnlyText | FieldType::SearchAsYouType(_) => {
                searchable(field)?;
                let edge = |bound: &Option<millrace_dsl::query::Bound>| {
                    bound.as_ref().map(|bound| (text(&bound.value).unwrap_or_default(), bound.included))
                };
                Ok(Node::TextRange { path: field.id, from: edge(&self.from), to: edge(&self.to), weight })
            }
            FieldType::GeoPoint
            | FieldType::Binary
            | FieldType::RankFeature
            | FieldType::RankFeatures
            | FieldType::Completion => Err(Error::IllegalArgument(format!(
                "Field [{}] of type [{}] does not support range queries",
                field.path,
                field.type_name()
            ))),
            FieldType::Date | FieldType::DateNanos => {
                match values::date_range(mapping, field, self, resolver.index.now_ms)? {
                    Some(range) => column_range(field, range, weight),
                    None => Ok(Node::None),
                }
            }
            FieldType::Ip => match values::ip_range(mapping, field, self, resolver.index.now_ms)? {
                Some((from, to)) => resolver.ip_between(field, ValueRange::Ip(from, to), weight),
                None => Ok(Node::None),
            },
            FieldType::Boolean => {
                let edge = |bound: &Option<millrace_dsl::query::Bound>| -> Result<Option<(bool, bool)>> {
                    bound.as_ref().map(|b| Ok((values::boolean(&b.value)?, b.included))).transpose()
                };
                let from = match edge(&self.from)? {
                    None | Some((false, true)) => false,
                    Some((true, true)) | Some((false, false)) => true,
                    Some((true, false)) => return Ok(Node::None),
                };
                let to = match edge(&self.to)? {
                    None | Some((true, true)) => true,
                    Some((false, true)) | Some((true, false)) => false,
                    Some((false, false)) => return Ok(Node::None),
                };
                match from <= to {
                    true => column_range(field, ValueRange::Bool(from, to), weight),
                    false => Ok(Node::None),
                }
            }
            FieldType::Keyword | FieldType::Wildcard | FieldType::ConstantKeyword | FieldType::FlatObject => {
                let edge = |bound: &Option<millrace_dsl::query::Bound>| -> Result<Option<(String, bool)>> {
                    bound.as_ref().map(|b| Ok((target.string(mapping, &b.value)?, b.included))).transpose()
                };
                let (open_from, open_to) = target.open_range();
                let from = edge(&self.from)?.or(open_from);
                let to = edge(&self.to)?.or(open_to);
                let range = ValueRange::Str(from.clone(), to.clone());
                if !field.index {
                    return column_range(field, range, weight);
                }
                let raw = |bound: Option<(String, bool)>| bound.map(|(s, i)| (s.into_bytes(), i));
                Ok(Node::RawRange {
                    path: field.id,
                    column: field.column,
                    from: raw(from),
                    to: raw(to),
                    range,
                    weight,
                })
            }
            _ => match values::number_range(field, self)? {
                Some(range) => column_range(field, range, weight),
                None => Ok(Node::None),
            },
        }
    }
}

impl Resolver<'_> {
    pub(super) fn ip_between(&self, field: &Field, range: ValueRange, weight: Weight) -> Result<Node> {
        let ValueRange::Ip(from, to) = range else { return column_range(field, range, weight) };
        if !field.index {
            return column_range(field, range, weight);
        }
        Ok(Node::RawRange {
            path: field.id,
            column: field.column,
            from: Some((from.to_vec(), true)),
            to: Some((to.to_vec(), true)),
            range,
            weight,
        })
    }
}

/// Makes the node of a range of sequence numbers.
fn seq_no_range(query: &RangeQuery, weight: Weight) -> Result<Node> {
    let number = |bound: &millrace_dsl::query::Bound| json::integer(&bound.value);
    let from = match &query.from {
        None => 0,
        Some(bound) => number(bound)?.saturating_add(i64::from(!bound.included)),
    };
    let to = match &query.to {
        None => i64::MAX,
        Some(bound) => number(bound)?.saturating_sub(i64::from(!bound.included)),
    };
    match (u64::try_from(from.max(0)), u64::try_from(to)) {
        (Ok(from), Ok(to)) if from <= to => Ok(metadata(Metadata::SeqNo(from, to), weight)),
        _ => Ok(Node::None),
    }
}

/// Makes the node of a range over a column.
pub(super) fn column_range(field: &Field, range: ValueRange, weight: Weight) -> Result<Node> {
    if !field.index && !field.doc_values {
        return Err(not_searchable(field));
    }
    let terms = field.index.then_some(field.id);
    Ok(Node::ColumnRange { column: field.column, terms, range, weight })
}
