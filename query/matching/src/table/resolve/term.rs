//! Exact values: `term`, `terms`, and `match` on fields that are not analyzed.

use std::collections::HashSet;
use std::slice;

use millrace_catalog::metadata::IndexMeta;
use millrace_dsl::json::text;
use millrace_dsl::query::{TermQuery, TermsQuery};
use millrace_mapping::{Field, FieldType, Scalar};
use millrace_scoring::node::{Node, StatisticsTerm};
use millrace_scoring::operands::{ExactValue, Weight};
use millrace_segment::ValueRange;
use millrace_work::error::{Error, Result};
use serde_json::Value;

use super::range::column_range;
use super::{LowerClause, Resolver, Target, not_searchable, searchable, setting};
use crate::table::values;

/// Most values of a `terms` clause where the index does not say otherwise.
const MAX_TERMS: usize = 65_536;

/// Returns the most values that an index lets a `terms` clause have.
pub fn max_terms(meta: &IndexMeta) -> usize {
    setting(meta, "index.max_terms_count", MAX_TERMS)
}

impl LowerClause for TermQuery {
    fn resolve(&self, resolver: &mut Resolver<'_>, weight: Weight) -> Result<Node> {
        resolver.count_leaf()?;
        if let Some(node) = resolver.metadata_term(&self.field, &[&self.value], weight) {
            return node;
        }
        let Some(target) = resolver.target(&self.field) else { return Ok(Node::None) };
        if self.case_insensitive {
            return resolver.folded(&target, &self.value, weight);
        }
        resolver.exact(&target, &self.value, weight)
    }
}

impl LowerClause for TermsQuery {
    fn resolve(&self, resolver: &mut Resolver<'_>, weight: Weight) -> Result<Node> {
        resolver.count_leaf()?;
        if self.lookup.is_some() {
            return Err(Error::IllegalArgument("query must be rewritten first".to_owned()));
        }
        let limit = max_terms(resolver.index.meta);
        if self.values.len() > limit {
            return Err(Error::IllegalArgument(format!(
                "The number of terms [{}] used in the Terms Query request has exceeded the allowed maximum of [{limit}]. This maximum can be set by changing the [index.max_terms_count] index level setting.",
                self.values.len()
            )));
        }
        let given: Vec<&Value> = self.values.iter().collect();
        if let Some(node) = resolver.metadata_term(&self.field, &given, weight) {
            return node;
        }
        let Some(target) = resolver.target(&self.field) else { return Ok(Node::None) };
        if let FieldType::Range(range_type) = target.field.field_type {
            return resolver.ranges_with(target.field, range_type, &self.values, weight);
        }
        let (mut exact, mut others) = (Vec::new(), Vec::new());
        for value in &self.values {
            // A value found by other means than one term, such as a whole day, stays a clause.
            match resolver.exact(&target, value, Weight::None)? {
                Node::Exact { value, .. } => exact.push(value),
                Node::None => {}
                other => others.push(other),
            }
        }
        let mut seen = HashSet::new();
        exact.retain(|value| seen.insert(format!("{:?}", value.value)));
        if !exact.is_empty() {
            others.push(Node::AnyExact {
                path: target.field.id,
                column: target.field.column,
                values: exact.into(),
                weight: Weight::None,
            });
        }
        let any = match others.len() {
            0 => return Ok(Node::None),
            1 => others.remove(0),
            _ => Node::AtLeast(1, others),
        };
        Ok(match weight {
            Weight::Constant(score) => Node::Constant(score, Box::new(any)),
            _ => any,
        })
    }
}

impl Resolver<'_> {
    /// One exact value of a field, not analyzed.
    pub(super) fn exact(&mut self, target: &Target<'_>, value: &Value, weight: Weight) -> Result<Node> {
        let (mapping, field) = (self.index.mapping, target.field);
        match field.field_type {
            FieldType::Text | FieldType::MatchOnlyText | FieldType::SearchAsYouType(_) => {
                searchable(field)?;
                Ok(self.text_term(field, text(value).unwrap_or_default(), weight))
            }
            FieldType::Date | FieldType::DateNanos => {
                let (from, to) = values::date_span(mapping, field, value, self.index.now_ms)?;
                let range = ValueRange::I64(from, to);
                if from == to && field.index {
                    let value = ExactValue { value: Scalar::I64(from), range: Some(range) };
                    return Ok(Node::Exact { path: field.id, column: field.column, value, weight });
                }
                column_range(field, range, weight)
            }
            FieldType::Ip => {
                let (value, range) = values::ip_value(mapping, field, value, self.index.now_ms)?;
                match value {
                    Some(value) => self.exact_node(field, ExactValue { value, range: Some(range) }, weight),
                    None => self.ip_between(field, range, weight),
                }
            }
            FieldType::Range(range_type) => {
                self.ranges_with(field, range_type, slice::from_ref(value), weight)
            }
            _ => match self.exact_value(target, value)? {
                None => Ok(Node::None),
                Some(value) => {
                    let scores = matches!(field.field_type, FieldType::Keyword | FieldType::Boolean);
                    let weight = if scores && field.index {
                        self.bm25(weight, field, StatisticsTerm::Exact(value.value.clone()))
                    } else {
                        weight
                    };
                    self.exact_node(field, value, weight)
                }
            },
        }
    }

    fn exact_node(&self, field: &Field, value: ExactValue, weight: Weight) -> Result<Node> {
        if !field.index {
            return match value.range {
                Some(range) => column_range(field, range, weight),
                None => Err(not_searchable(field)),
            };
        }
        Ok(Node::Exact { path: field.id, column: field.column, value, weight })
    }

    /// The value of keyword, boolean and numeric fields; `None` where none can equal it.
    fn exact_value(&self, target: &Target<'_>, value: &Value) -> Result<Option<ExactValue>> {
        let (mapping, field) = (self.index.mapping, target.field);
        match &field.field_type {
            FieldType::Keyword | FieldType::Wildcard | FieldType::ConstantKeyword | FieldType::FlatObject => {
                let string = target.string(mapping, value)?;
                let bound = Some((string.clone(), true));
                let range = Some(ValueRange::Str(bound.clone(), bound));
                Ok(Some(ExactValue { value: Scalar::Str(string), range }))
            }
            FieldType::Boolean => {
                let flag = values::boolean(value)?;
                let range = Some(ValueRange::Bool(flag, flag));
                Ok(Some(ExactValue { value: Scalar::Bool(flag), range }))
            }
            FieldType::GeoPoint => Err(Error::QueryShard {
                reason: format!(
                    "Geometry fields do not support exact searching, use dedicated geometry queries instead: [{}]",
                    field.path
                ),
                caused_by: None,
            }),
            FieldType::RankFeature | FieldType::RankFeatures => Err(Error::IllegalArgument(format!(
                "Queries on [{}] fields are not supported",
                field.type_name()
            ))),
            FieldType::Completion => Err(Error::IllegalArgument(format!(
                "field [{}] of type [completion] is searched by suggesters only",
                field.path
            ))),
            FieldType::Binary => Err(Error::QueryShard {
                reason: "Binary fields do not support searching".to_owned(),
                caused_by: None,
            }),
            _ => values::exact_number(field, value),
        }
    }
}
