//! Clauses meet a mapping: [`Predicate`] to [`ResolvedPredicate`], one index at a time.
//!
//! Here a clause becomes what its field's type makes of it. An error is an error of the shards of
//! that index (`failed to create query: …`), other indices of the search still answer. A field that
//! an index does not have matches nothing in it.

mod analyzed;
mod as_you_type;
mod boolean;
mod distance_feature;
mod exists;
mod fields;
mod full_text;
mod function_score;
mod geo;
mod graph;
mod intervals;
mod match_all;
mod more_like_this;
mod multi_match;
mod nested;
mod pattern;
mod phrase;
mod query_string;
mod range;
mod range_field;
mod rank_feature;
mod simple_query_string;
pub(super) mod spans;
mod term;
mod tokens;

use std::sync::Arc;

use millrace_catalog::metadata::IndexMeta;
use millrace_dsl::json::{integer, text};
use millrace_mapping::pattern::matches;
use millrace_mapping::{Field, FieldType, Mapping};
use millrace_scoring::metadata::Metadata;
use millrace_scoring::node::{Expansion, Join, Node, ResolvedPredicate, StatisticsTerm, TermStatistics};
use millrace_scoring::operands::Weight;
use serde_json::Value;

use self::nested::Scope;
pub use self::term::max_terms;
use millrace_dsl::query::MAX_CLAUSES;
use millrace_work::error::{Error, Result};

use super::leaf::Leaf;
use super::lower_clause::{self, LowerClause};
use super::metadata_field::MetadataField;
use super::predicate::Predicate;
use super::values;

/// Metadata fields that every document has.
const PRESENT: &[&str] = &["_id", "_index", "_type", "_seq_no", "_version", "_primary_term"];
/// Metadata fields that some documents have.
const OPTIONAL: &[&str] = &["_ignored", "_routing"];

/// One index as clauses see it.
#[derive(Clone, Copy, Debug)]
pub struct IndexContext<'a> {
    /// Name, aliases, settings.
    pub meta: &'a IndexMeta,
    /// Fields.
    pub mapping: &'a Mapping,
    /// Value of `now` in dates.
    pub now_ms: i64,
}

/// Resolves a predicate for an index.
pub fn resolve(predicate: &Predicate, index: IndexContext<'_>) -> Result<ResolvedPredicate> {
    resolve_under(predicate, index, usize::MAX)
}

/// Resolves a predicate of a filter, which outlives the time at which it is resolved: a range relative to `now` that is empty
/// at this time matches nothing, where a search is refused.
pub(crate) fn resolve_filter(predicate: &Predicate, index: IndexContext<'_>) -> Result<ResolvedPredicate> {
    Resolver { is_filter: true, ..Resolver::new(index, usize::MAX) }.resolve(predicate)
}

/// Resolves a predicate whose terms are chosen among those of the documents that the first `rules` for documents show.
pub(crate) fn resolve_under(
    predicate: &Predicate,
    index: IndexContext<'_>,
    rules: usize,
) -> Result<ResolvedPredicate> {
    let everything =
        ResolvedPredicate { node: Node::And(Vec::new()), statistics: Vec::new(), expansions: Vec::new() };
    resolve_within(everything, predicate, index, rules)
}

/// Resolves a predicate for an index and joins it with what was resolved for it before.
pub(crate) fn resolve_and(
    before: ResolvedPredicate,
    predicate: &Predicate,
    index: IndexContext<'_>,
) -> Result<ResolvedPredicate> {
    resolve_within(before, predicate, index, usize::MAX)
}

/// Resolves a predicate as [`resolve_under`] does and joins it with what was resolved before.
pub(crate) fn resolve_within(
    before: ResolvedPredicate,
    predicate: &Predicate,
    index: IndexContext<'_>,
    rules: usize,
) -> Result<ResolvedPredicate> {
    let ResolvedPredicate { node, statistics, expansions } = before;
    let own = Resolver { statistics, expansions, ..Resolver::new(index, rules) }.resolve(predicate)?;
    let node = match node {
        Node::And(parts) if parts.is_empty() => own.node,
        other => other.and(own.node),
    };
    Ok(ResolvedPredicate { node, ..own })
}

/// A bound of a range of strings, and whether it is included.
type StringBound = Option<(String, bool)>;

/// A field that a clause names, perhaps a place inside of it.
#[derive(Debug)]
struct Target<'a> {
    field: &'a Field,
    /// Prefix of the values of a flat_object at this place: `path=`, or `=` for any.
    inside: Option<String>,
}

impl Target<'_> {
    /// Returns the text that a string field holds for a value.
    fn string(&self, mapping: &Mapping, value: &Value) -> Result<String> {
        let value = values::keyword(mapping, self.field, value)?;
        Ok(match &self.inside {
            None => value,
            Some(inside) => format!("{inside}{value}"),
        })
    }

    /// Returns the bounds of a range that is open at an end: all values of the place.
    fn open_range(&self) -> (StringBound, StringBound) {
        let Some(inside) = &self.inside else { return (None, None) };
        // `>` is the letter after `=`.
        let end = format!("{}>", inside.trim_end_matches('='));
        (Some((inside.clone(), true)), Some((end, false)))
    }
}

/// Resolves the clauses of a query for an index.
pub(crate) struct Resolver<'a> {
    index: IndexContext<'a>,
    statistics: Vec<TermStatistics>,
    expansions: Vec<Expansion>,
    /// Leaves met, as Lucene counts them.
    leaves: usize,
    /// The nested path whose elements are searched; documents where absent.
    scope: Option<Scope>,
    /// Number of the rules for documents that show what terms are chosen among.
    rules: usize,
    /// `true` for a filter, which is resolved for one time and asked at others.
    is_filter: bool,
}

impl<'a> Resolver<'a> {
    fn new(index: IndexContext<'a>, rules: usize) -> Self {
        Self {
            index,
            statistics: Vec::new(),
            expansions: Vec::new(),
            leaves: 0,
            scope: None,
            rules,
            is_filter: false,
        }
    }

    /// Resolves a whole predicate.
    fn resolve(mut self, predicate: &Predicate) -> Result<ResolvedPredicate> {
        let node = self.node(predicate).map_err(Error::failed_to_create_query)?;
        Ok(ResolvedPredicate { node, statistics: self.statistics, expansions: self.expansions })
    }

    fn node(&mut self, predicate: &Predicate) -> Result<Node> {
        Ok(match predicate {
            Predicate::All => Node::All(Weight::Constant(1.0)),
            Predicate::Leaf(leaf) => self.leaf(leaf)?,
            Predicate::And(parts) => Node::And(self.nodes(parts)?),
            Predicate::AtLeast(required, parts) => Node::AtLeast(*required, self.nodes(parts)?),
            Predicate::Not(part) => Node::Not(Box::new(self.node(part)?)),
            Predicate::Constant(score, part) => Node::Constant(*score, Box::new(self.node(part)?)),
            Predicate::Boosting { positive, negative, factors } => Node::Boosting {
                positive: Box::new(self.node(positive)?),
                negative: Box::new(self.node(negative)?),
                factors: *factors,
            },
            Predicate::DisMax(tie_breaker, _) if !(0.0..=1.0).contains(tie_breaker) => {
                return Err(Error::IllegalArgument("tieBreakerMultiplier must be in [0, 1]".to_owned()));
            }
            Predicate::DisMax(tie_breaker, parts) => Node::DisMax(*tie_breaker, self.nodes(parts)?),
            Predicate::Nested(query, inner) => self.nested(query, inner)?,
            Predicate::FunctionScore(query, base, filters) => self.function_score(query, base, filters)?,
        })
    }

    fn nodes(&mut self, parts: &[Predicate]) -> Result<Vec<Node>> {
        if parts.len() > MAX_CLAUSES {
            return Err(Error::TooManyClauses(MAX_CLAUSES));
        }
        parts.iter().map(|part| self.node(part)).collect()
    }

    /// Counts a leaf. Lucene looks before it counts: there may be one more than the limit says.
    fn count_leaf(&mut self) -> Result<()> {
        if self.leaves > MAX_CLAUSES {
            return Err(Error::TooManyNestedClauses(MAX_CLAUSES));
        }
        self.leaves += 1;
        Ok(())
    }

    fn leaf(&mut self, leaf: &Leaf) -> Result<Node> {
        let weight = if leaf.scored { Weight::Constant(leaf.boost) } else { Weight::None };
        lower_clause::resolve(&leaf.query, self, weight)
    }

    /// Finds a field, or the flat_object that a path leads into.
    fn target(&self, path: &str) -> Option<Target<'a>> {
        let mapping = self.index.mapping;
        if let Some(field) = mapping.field(path) {
            let inside = (field.field_type == FieldType::FlatObject).then(|| "=".to_owned());
            return Some(Target { field, inside });
        }
        let (field, below) = mapping.flat_object(path)?;
        Some(Target { field, inside: Some(format!("{below}=")) })
    }

    /// Replaces the weight of a clause that scores by BM25.
    fn bm25(&mut self, weight: Weight, field: &Field, term: StatisticsTerm) -> Weight {
        self.joined(weight, field, vec![term], Join::Synonyms)
    }

    /// Replaces the weight of a clause whose terms are scored together.
    fn joined(&mut self, weight: Weight, field: &Field, terms: Vec<StatisticsTerm>, join: Join) -> Weight {
        let Weight::Constant(boost) = weight else { return weight };
        self.statistics.push(TermStatistics {
            path: field.id,
            nested: self.nested_id(),
            field: Arc::clone(&field.path),
            terms,
            join,
            boost,
            blend: None,
        });
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
                    matches(&pattern, &meta.name) || meta.aliases.keys().any(|alias| matches(&pattern, alias))
                }))
            }
            "_type" => constant(texts().any(|name| name == "_doc")),
            "_routing" => Ok(metadata(Metadata::Routing(Some(texts().collect())), weight)),
            "_ignored" => Ok(metadata(self.ignored(Some(texts().collect())), weight)),
            "_seq_no" => values.iter().map(|value| seq_no_term(value)).collect::<Result<_>>().map(|any| {
                let any = Box::new(Node::AtLeast(1, any));
                match weight {
                    Weight::Constant(score) => Node::Constant(score, any),
                    _ => *any,
                }
            }),
            "_source" | "_version" => Err(Error::QueryShard {
                reason: format!("The {field} field is not searchable"),
                caused_by: None,
            }),
            "_doc_count" => Err(Error::QueryShard {
                reason: format!("Field [{field}] of type [{field}] is not searchable"),
                caused_by: None,
            }),
            _ => return None,
        })
    }
}

impl Resolver<'_> {
    /// Asks for rows of which one of these fields was ignored, or any that is shown.
    fn ignored(&self, any_of: Option<Vec<String>>) -> Metadata {
        Metadata::Ignored { any_of, rules: Arc::clone(self.index.mapping.field_rules()) }
    }
}

/// Makes the node of one sequence number.
fn seq_no_term(value: &Value) -> Result<Node> {
    Ok(match u64::try_from(integer(value)?) {
        Ok(number) => metadata(Metadata::SeqNo(number, number), Weight::None),
        Err(_) => Node::None,
    })
}

/// Returns true if values of a metadata field are no strings that patterns and ranges look for.
fn is_opaque_metadata(field: &str) -> bool {
    MetadataField::is_name(field) && !OPTIONAL.contains(&field) && field != "_nested_path"
}

/// Makes the node of what is asked of metadata.
fn metadata(metadata: Metadata, weight: Weight) -> Node {
    Node::Metadata { metadata: Arc::new(metadata), weight }
}

fn searchable(field: &Field) -> Result<()> {
    if field.index { Ok(()) } else { Err(not_searchable(field)) }
}

/// Refuses fields whose strings neither the index nor the column serves.
fn searchable_strings(field: &Field) -> Result<()> {
    if is_searched_by_column(field) { Ok(()) } else { searchable(field) }
}

/// Returns true if strings of a field are looked for in its column, for want of an index.
fn is_searched_by_column(field: &Field) -> bool {
    !field.index && field.doc_values && field.field_type == FieldType::Keyword
}

/// Returns whether the column of a keyword has the values that its index has.
fn has_values_as_indexed(field: &Field) -> bool {
    field.doc_values
        && field.field_type == FieldType::Keyword
        && field.normalizer.is_none()
        && !field.params.contains_key("null_value")
}

fn not_searchable(field: &Field) -> Error {
    let reason = match field.field_type.is_text() || matches!(field.field_type, FieldType::Range(_)) {
        true => "it is not indexed",
        false => "it is both not indexed, and does not have doc_values enabled",
    };
    Error::IllegalArgument(format!("Cannot search on field [{}] since {reason}.", field.path))
}

/// Reads a whole-number setting of an index.
pub fn setting(meta: &IndexMeta, key: &str, default: usize) -> usize {
    meta.settings.get(key).and_then(text).and_then(|text| text.parse().ok()).unwrap_or(default)
}
