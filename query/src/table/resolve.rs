//! Clauses meet a mapping: [`Predicate`] to [`Resolved`], one index at a time.
//!
//! Here a clause becomes what its field's type makes of it. An error is an error of the shards of
//! that index (`failed to create query: …`), other indices of the search still answer.

use std::collections::HashSet;
use std::sync::Arc;

use millrace_storage::mapping::{ColumnKind, Field, FieldType, Mapping, PathId, Scalar};
use millrace_storage::metadata::IndexMeta;
use millrace_storage::segment::ValueRange;
use serde_json::Value;

use super::leaf::Leaf;
use super::node::{ExactValue, Node, Resolved, StatisticsTerm, TermStatistics, Weight};
use super::predicate::Predicate;
use super::values;
use crate::dsl::json::{simple_match, text};
use crate::dsl::query::{
    ExistsQuery, MAX_CLAUSES, MatchQuery, Operator, PrefixQuery, Query, RangeQuery, TermQuery, TermsQuery,
    ZeroTerms,
};
use crate::error::{Error, Result};

/// Most values of a `terms` clause where the index does not say otherwise.
const MAX_TERMS: usize = 65_536;
/// Letters whose spellings in either case are looked up one by one.
const FOLDED_LETTERS: usize = 8;
/// Metadata fields that every document has.
const PRESENT: &[&str] = &["_id", "_index", "_type", "_seq_no", "_version", "_primary_term"];

/// One index as clauses see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexContext<'a> {
    /// Name, aliases, settings.
    pub meta: &'a IndexMeta,
    /// Fields.
    pub mapping: &'a Mapping,
    /// What `now` means in dates.
    pub now_ms: i64,
}

/// Resolves a predicate for an index.
pub(crate) fn resolve(predicate: &Predicate, index: IndexContext<'_>) -> Result<Resolved> {
    let mut resolver = Resolver { index, statistics: Vec::new() };
    let node = resolver.node(predicate).map_err(Error::failed_to_create_query)?;
    Ok(Resolved { node, statistics: resolver.statistics })
}

struct Resolver<'a> {
    index: IndexContext<'a>,
    statistics: Vec<TermStatistics>,
}

impl Resolver<'_> {
    fn node(&mut self, predicate: &Predicate) -> Result<Node> {
        Ok(match predicate {
            Predicate::All => Node::All(Weight::Constant(1.0)),
            Predicate::Leaf(leaf) => self.leaf(leaf)?,
            Predicate::And(parts) => Node::And(self.nodes(parts)?),
            Predicate::AtLeast(required, parts) => Node::AtLeast(*required, self.nodes(parts)?),
            Predicate::Not(part) => Node::Not(Box::new(self.node(part)?)),
            Predicate::Constant(score, part) => Node::Constant(*score, Box::new(self.node(part)?)),
        })
    }

    fn nodes(&mut self, parts: &[Predicate]) -> Result<Vec<Node>> {
        parts.iter().map(|part| self.node(part)).collect()
    }

    fn leaf(&mut self, leaf: &Leaf) -> Result<Node> {
        let weight = if leaf.scored { Weight::Constant(leaf.boost) } else { Weight::None };
        match &leaf.query {
            Query::MatchAll(_) => Ok(Node::All(weight)),
            Query::MatchNone(_) => Ok(Node::None),
            Query::Match(query) => match self.match_(query, weight) {
                Err(_) if query.lenient => Ok(Node::None),
                other => other,
            },
            Query::Term(query) => self.term(query, weight),
            Query::Terms(query) => self.terms(query, weight),
            Query::Range(query) => self.range(query, weight),
            Query::Exists(query) => self.exists(query, weight),
            Query::Ids(query) => Ok(Node::Ids { values: query.values.clone().into(), weight }),
            Query::Prefix(query) => self.prefix(query, weight),
            Query::Bool(_) | Query::ConstantScore(_) => {
                Err(Error::Execution("a compound clause came as a leaf".to_owned()))
            }
        }
    }

    /// Replaces the weight of a clause that scores by BM25.
    fn bm25(&mut self, weight: Weight, field: &Field, term: StatisticsTerm) -> Weight {
        let Weight::Constant(boost) = weight else { return weight };
        self.statistics.push(TermStatistics { path: field.id, field: Arc::clone(&field.path), term, boost });
        Weight::Bm25(self.statistics.len() - 1)
    }

    /// Exact values of metadata fields; `None` where the field is not one.
    fn metadata_term(&self, field: &str, values: &[&Value], weight: Weight) -> Option<Result<Node>> {
        let texts = || values.iter().filter_map(|value| text(value));
        let constant = |matches: bool| Ok(if matches { Node::All(weight) } else { Node::None });
        Some(match field {
            "_id" => Ok(Node::Ids { values: texts().collect(), weight }),
            "_index" => {
                let meta = self.index.meta;
                constant(texts().any(|pattern| {
                    simple_match(&pattern, &meta.name)
                        || meta.aliases.keys().any(|alias| simple_match(&pattern, alias))
                }))
            }
            "_type" => constant(texts().any(|name| name == "_doc")),
            name if name.starts_with('_') && self.index.mapping.field(name).is_none() => {
                Err(not_searchable(name))
            }
            _ => return None,
        })
    }

    fn term(&mut self, query: &TermQuery, weight: Weight) -> Result<Node> {
        if let Some(node) = self.metadata_term(&query.field, &[&query.value], weight) {
            return node;
        }
        let mapping = self.index.mapping;
        let Some(field) = mapping.field(&query.field) else { return Ok(Node::None) };
        if query.case_insensitive {
            return self.folded(field, &query.value, true, weight);
        }
        self.exact(field, &query.value, weight)
    }

    /// One exact value of a field, not analyzed.
    fn exact(&mut self, field: &Field, value: &Value, weight: Weight) -> Result<Node> {
        let mapping = self.index.mapping;
        match field.field_type {
            FieldType::Text | FieldType::MatchOnlyText => {
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
            _ => match self.exact_value(field, value)? {
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
                None => Err(not_searchable(&field.path)),
            };
        }
        Ok(Node::Exact { path: field.id, column: field.column, value, weight })
    }

    /// The value of keyword, boolean and numeric fields; `None` where none can equal it.
    fn exact_value(&self, field: &Field, value: &Value) -> Result<Option<ExactValue>> {
        let mapping = self.index.mapping;
        match &field.field_type {
            FieldType::Keyword | FieldType::Wildcard | FieldType::ConstantKeyword | FieldType::FlatObject => {
                let string = values::keyword(mapping, field, value)?;
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
            FieldType::Binary => Err(Error::QueryShard {
                reason: "Binary fields do not support searching".to_owned(),
                caused_by: None,
            }),
            _ => values::exact_number(field, value),
        }
    }

    fn ip_between(&self, field: &Field, range: ValueRange, weight: Weight) -> Result<Node> {
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

    fn text_term(&mut self, field: &Field, term: String, weight: Weight) -> Node {
        let weight = match field.field_type {
            FieldType::MatchOnlyText => weight,
            _ => self.bm25(weight, field, StatisticsTerm::Text(term.clone())),
        };
        Node::Text { path: field.id, term, weight }
    }

    fn terms(&mut self, query: &TermsQuery, weight: Weight) -> Result<Node> {
        let limit = setting(self.index.meta, "index.max_terms_count", MAX_TERMS);
        if query.values.len() > limit {
            return Err(Error::IllegalArgument(format!(
                "The number of terms [{}] used in the Terms Query request has exceeded the allowed maximum of [{limit}]. This maximum can be set by changing the [index.max_terms_count] index level setting.",
                query.values.len()
            )));
        }
        let given: Vec<&Value> = query.values.iter().collect();
        if let Some(node) = self.metadata_term(&query.field, &given, weight) {
            return node;
        }
        let mapping = self.index.mapping;
        let Some(field) = mapping.field(&query.field) else { return Ok(Node::None) };
        let (mut exact, mut others) = (Vec::new(), Vec::new());
        for value in &query.values {
            // A value found by other means than one term, such as a whole day, stays a clause.
            match self.exact(field, value, Weight::None)? {
                Node::Exact { value, .. } => exact.push(value),
                Node::None => {}
                other => others.push(other),
            }
        }
        let mut seen = HashSet::new();
        exact.retain(|value| seen.insert(format!("{:?}", value.value)));
        if !exact.is_empty() {
            others.push(Node::AnyExact {
                path: field.id,
                column: field.column,
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

    fn match_(&mut self, query: &MatchQuery, weight: Weight) -> Result<Node> {
        if let Some(node) = self.metadata_term(&query.field, &[&query.query], weight) {
            return node;
        }
        let mapping = self.index.mapping;
        let Some(field) = mapping.field(&query.field) else { return Ok(Node::None) };
        if !matches!(field.field_type, FieldType::Text | FieldType::MatchOnlyText) {
            return self.exact(field, &query.query, weight);
        }
        searchable(field)?;
        let name = query.analyzer.as_deref().unwrap_or(&field.search_analyzer);
        let analyzer = mapping.analyzers().get(name).ok_or_else(|| Error::QueryShard {
            reason: format!("[match] analyzer [{name}] not found"),
            caused_by: None,
        })?;
        let mut tokens: Vec<(u32, String)> = Vec::new();
        analyzer.analyze(&text(&query.query).unwrap_or_default(), &mut |token| {
            // One more than allowed is kept, so that the excess is seen.
            if tokens.len() <= MAX_CLAUSES {
                tokens.push((token.position, token.text.clone()));
            }
        });
        if tokens.len() > MAX_CLAUSES {
            return Err(Error::TooManyClauses(MAX_CLAUSES));
        }
        if tokens.is_empty() {
            return Ok(match query.zero_terms {
                ZeroTerms::None => Node::None,
                ZeroTerms::All => Node::All(weight),
            });
        }
        let mut clauses: Vec<Node> = Vec::with_capacity(tokens.len());
        let mut at = 0;
        while at < tokens.len() {
            let position = tokens[at].0;
            let end = at + tokens[at..].iter().take_while(|(p, _)| *p == position).count();
            let mut same: Vec<Node> =
                tokens[at..end].iter().map(|(_, term)| self.text_term(field, term.clone(), weight)).collect();
            clauses.push(if same.len() == 1 { same.remove(0) } else { Node::AtLeast(1, same) });
            at = end;
        }
        if clauses.len() == 1 {
            return Ok(clauses.remove(0));
        }
        let count = clauses.len();
        let required = match (query.operator, &query.minimum_should_match) {
            (Operator::And, _) => return Ok(Node::And(clauses)),
            (Operator::Or, None) => 1,
            (Operator::Or, Some(spec)) => spec.required(count).max(1),
        };
        Ok(if required > count { Node::None } else { Node::AtLeast(required, clauses) })
    }

    fn range(&mut self, query: &RangeQuery, weight: Weight) -> Result<Node> {
        if query.field.starts_with('_') && self.index.mapping.field(&query.field).is_none() {
            return Err(not_searchable(&query.field));
        }
        let mapping = self.index.mapping;
        let Some(field) = mapping.field(&query.field) else { return Ok(Node::None) };
        let is_date = matches!(field.field_type, FieldType::Date | FieldType::DateNanos);
        if !is_date && query.time_zone.is_some() {
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
            FieldType::Text | FieldType::MatchOnlyText | FieldType::GeoPoint | FieldType::Binary => {
                Err(Error::IllegalArgument(format!(
                    "Field [{}] of type [{}] does not support range queries",
                    field.path,
                    field.type_name()
                )))
            }
            FieldType::Date | FieldType::DateNanos => {
                match values::date_range(mapping, field, query, self.index.now_ms)? {
                    Some(range) => column_range(field, range, weight),
                    None => Ok(Node::None),
                }
            }
            FieldType::Ip => match values::ip_range(mapping, field, query, self.index.now_ms)? {
                Some((from, to)) => self.ip_between(field, ValueRange::Ip(from, to), weight),
                None => Ok(Node::None),
            },
            FieldType::Boolean => {
                let edge = |bound: &Option<crate::dsl::query::Bound>| -> Result<Option<(bool, bool)>> {
                    bound.as_ref().map(|b| Ok((values::boolean(&b.value)?, b.included))).transpose()
                };
                let from = match edge(&query.from)? {
                    None | Some((false, true)) => false,
                    Some((true, true)) | Some((false, false)) => true,
                    Some((true, false)) => return Ok(Node::None),
                };
                let to = match edge(&query.to)? {
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
                let edge = |bound: &Option<crate::dsl::query::Bound>| -> Result<Option<(String, bool)>> {
                    bound
                        .as_ref()
                        .map(|b| Ok((values::keyword(mapping, field, &b.value)?, b.included)))
                        .transpose()
                };
                let (from, to) = (edge(&query.from)?, edge(&query.to)?);
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
            _ => match values::number_range(field, query)? {
                Some(range) => column_range(field, range, weight),
                None => Ok(Node::None),
            },
        }
    }

    fn exists(&mut self, query: &ExistsQuery, weight: Weight) -> Result<Node> {
        let name = query.field.as_str();
        if PRESENT.contains(&name) {
            return Ok(Node::All(weight));
        }
        let mapping = self.index.mapping;
        if let Some(field) = mapping.field(name) {
            return Ok(Node::Exists { paths: vec![field.id], weight });
        }
        if name.starts_with('_') {
            return Err(Error::QueryShard {
                reason: format!("Field [{name}] does not support exists queries"),
                caused_by: None,
            });
        }
        let below = format!("{name}.");
        let pattern = name.contains('*');
        let paths: Vec<PathId> = mapping
            .fields()
            .filter(|field| match pattern {
                true => simple_match(name, &field.path),
                false => field.path.starts_with(&below),
            })
            .map(|field| field.id)
            .collect();
        Ok(if paths.is_empty() { Node::None } else { Node::Exists { paths, weight } })
    }

    fn prefix(&mut self, query: &PrefixQuery, weight: Weight) -> Result<Node> {
        let mapping = self.index.mapping;
        let Some(field) = mapping.field(&query.field) else {
            return match query.field.as_str() {
                "_index" => {
                    let pattern = Value::String(format!("{}*", query.value));
                    self.metadata_term("_index", &[&pattern], weight).unwrap_or(Ok(Node::None))
                }
                name if name.starts_with('_') => Err(unfit_for_prefix(name, name)),
                _ => Ok(Node::None),
            };
        };
        let string = matches!(
            field.field_type,
            FieldType::Keyword | FieldType::Wildcard | FieldType::ConstantKeyword | FieldType::FlatObject
        );
        let text = matches!(field.field_type, FieldType::Text | FieldType::MatchOnlyText);
        if !string && !text {
            return Err(unfit_for_prefix(&field.path, field.type_name()));
        }
        searchable(field)?;
        let value = Value::String(query.value.clone());
        if query.case_insensitive {
            return self.folded(field, &value, false, weight);
        }
        let value = if string { values::keyword(mapping, field, &value)? } else { query.value.clone() };
        Ok(Node::Prefix { path: field.id, prefixes: vec![value], text, weight })
    }

    /// A value or prefix in either case of its letters.
    fn folded(&mut self, field: &Field, value: &Value, whole: bool, weight: Weight) -> Result<Node> {
        let text = matches!(field.field_type, FieldType::Text | FieldType::MatchOnlyText);
        let string = field.column_kind() == ColumnKind::Str && field.field_type != FieldType::Binary;
        if !string {
            return Err(Error::QueryShard {
                reason: format!(
                    "[{}] field which is of type [{}], does not support case insensitive term queries",
                    field.path,
                    field.type_name()
                ),
                caused_by: None,
            });
        }
        searchable(field)?;
        let value = match text {
            true => crate::dsl::json::text(value).unwrap_or_default(),
            false => values::keyword(self.index.mapping, field, value)?,
        };
        let (prefixes, complete) = spellings(&value);
        if text {
            if !complete {
                return Err(Error::IllegalArgument(format!(
                    "[case_insensitive] on the text field [{}] is limited to {FOLDED_LETTERS} letters, found [{value}]",
                    field.path
                )));
            }
            return Ok(match whole {
                false => Node::Prefix { path: field.id, prefixes, text: true, weight },
                true => {
                    let terms = prefixes
                        .into_iter()
                        .map(|term| Node::Text { path: field.id, term, weight: Weight::None })
                        .collect();
                    let any = Node::AtLeast(1, terms);
                    match weight {
                        Weight::Constant(score) => Node::Constant(score, Box::new(any)),
                        _ => any,
                    }
                }
            });
        }
        if complete && !whole {
            return Ok(Node::Prefix { path: field.id, prefixes, text: false, weight });
        }
        Ok(Node::Folded {
            path: field.id,
            column: field.column,
            prefixes,
            value: value.to_lowercase(),
            whole,
            ignore_above: field.ignore_above,
            weight,
        })
    }
}

/// Spells a text in either case of its first letters; whether that covers the whole text.
fn spellings(text: &str) -> (Vec<String>, bool) {
    let mut spelled = vec![String::new()];
    let mut letters = 0;
    for c in text.chars() {
        let (lower, upper) = (c.to_lowercase().to_string(), c.to_uppercase().to_string());
        if lower == upper {
            spelled.iter_mut().for_each(|prefix| prefix.push(c));
            continue;
        }
        if letters == FOLDED_LETTERS {
            return (spelled, false);
        }
        letters += 1;
        let raised: Vec<String> = spelled.iter().map(|prefix| format!("{prefix}{upper}")).collect();
        spelled.iter_mut().for_each(|prefix| prefix.push_str(&lower));
        spelled.extend(raised);
    }
    (spelled, true)
}

/// Makes the node of a range over a column.
fn column_range(field: &Field, range: ValueRange, weight: Weight) -> Result<Node> {
    if !field.index && !field.doc_values {
        return Err(not_searchable(&field.path));
    }
    Ok(Node::ColumnRange { column: field.column, range, weight })
}

fn searchable(field: &Field) -> Result<()> {
    if field.index { Ok(()) } else { Err(not_searchable(&field.path)) }
}

fn not_searchable(field: &str) -> Error {
    Error::IllegalArgument(format!("Cannot search on field [{field}] since it is not indexed."))
}

fn unfit_for_prefix(field: &str, kind: &str) -> Error {
    Error::QueryShard {
        reason: format!(
            "Can only use prefix queries on keyword, text and wildcard fields - not on [{field}] which is of type [{kind}]"
        ),
        caused_by: None,
    }
}

/// Reads a whole-number setting of an index.
pub(crate) fn setting(meta: &IndexMeta, key: &str, default: usize) -> usize {
    meta.settings.get(key).and_then(text).and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_cover_letters_only() {
        assert_eq!(spellings("a1"), (vec!["a1".to_owned(), "A1".to_owned()], true));
        let (spelled, complete) = spellings("abcdefghij");
        assert_eq!((spelled.len(), complete), (256, false));
        assert!(spelled.contains(&"aBcDeFgH".to_owned()));
    }
}
