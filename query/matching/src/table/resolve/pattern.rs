//! `prefix`, `wildcard`, `regexp`, `fuzzy`, and values in either case: the terms of a pattern.

use std::sync::Arc;

use millrace_dsl::json::text;
use millrace_dsl::query::{
    Fuzziness, FuzzyOptions, FuzzyQuery, MAX_CLAUSES, Normalize, PrefixQuery, RegexpQuery, Rewrite,
    WildcardQuery,
};
use millrace_mapping::{Field, FieldType};
use millrace_scoring::automaton::{Pattern, WildcardItem, pieces};
use millrace_scoring::node::{ExpandedScore, Expansion, ExpansionSelection, Node, StringColumn};
use millrace_scoring::operands::Weight;
use millrace_work::error::{Error, Result};
use serde_json::Value;

use super::{
    LowerClause, Resolver, Target, has_values_as_indexed, is_opaque_metadata, is_searched_by_column,
    searchable_strings, setting,
};

/// Longest expression where the index does not say otherwise.
const MAX_REGEX_LENGTH: usize = 1_000;
/// Most work that an expression's automaton may be allowed.
const MOST_STATES: usize = 100_000;

impl LowerClause for PrefixQuery {
    fn resolve(&self, resolver: &mut Resolver<'_>, weight: Weight) -> Result<Node> {
        resolver.rewrite_known(self.rewrite.as_ref())?;
        let Some(target) = resolver.target(&self.field) else {
            return resolver.metadata_pattern("prefix", &self.field, &format!("{}*", self.value), weight);
        };
        fit("prefix", target.field)?;
        let value = resolver.normalized(&target, &self.value, &self.normalize)?;
        resolver.count_leaf()?;
        let folded = self.case_insensitive;
        if let Some(node) = resolver.shingle_start(&target, &value, folded, self.rewrite.as_ref(), weight)? {
            return Ok(node);
        }
        let pattern = Pattern::prefix(&value, folded)?;
        let lead = target.inside.clone().unwrap_or_default();
        Ok(resolver.pattern_node(&target, lead, pattern, self.rewrite.as_ref(), weight))
    }
}

impl LowerClause for WildcardQuery {
    fn resolve(&self, resolver: &mut Resolver<'_>, weight: Weight) -> Result<Node> {
        resolver.rewrite_known(self.rewrite.as_ref())?;
        let Some(target) = resolver.target(&self.field) else {
            return resolver.metadata_pattern("wildcard", &self.field, &self.value, weight);
        };
        fit("wildcard", target.field)?;
        let mut normal = Vec::new();
        let mut plain = String::new();
        // What is between the wildcards is made fit by itself.
        for piece in pieces(&self.value) {
            match piece {
                WildcardItem::Character(character) => plain.push(character),
                other => {
                    resolver.push_plain(&target, &mut plain, &self.normalize, &mut normal)?;
                    normal.push(other);
                }
            }
        }
        resolver.push_plain(&target, &mut plain, &self.normalize, &mut normal)?;
        let pattern = Pattern::of_pieces(&normal, self.case_insensitive)?;
        resolver.count_leaf()?;
        let lead = target.inside.clone().unwrap_or_default();
        Ok(resolver.pattern_node(&target, lead, pattern, self.rewrite.as_ref(), weight))
    }
}

impl LowerClause for RegexpQuery {
    fn resolve(&self, resolver: &mut Resolver<'_>, weight: Weight) -> Result<Node> {
        let limit = setting(resolver.index.meta, "index.max_regex_length", MAX_REGEX_LENGTH);
        let length = self.value.encode_utf16().count();
        if length > limit {
            return Err(Error::IllegalArgument(format!(
                "The length of regex [{length}] used in the Regexp Query request has exceeded the allowed maximum of [{limit}]. This maximum can be set by changing the [index.max_regex_length] index level setting."
            )));
        }
        resolver.rewrite_known(self.rewrite.as_ref())?;
        let Some(target) = resolver.target(&self.field) else {
            return match is_opaque_metadata(&self.field) {
                true => Err(unfit("regexp", &self.field, &self.field)),
                false => Ok(Node::None),
            };
        };
        fit("regexp", target.field)?;
        let value = resolver.normalized(&target, &self.value, &self.normalize)?;
        let states = self.max_determinized_states.min(MOST_STATES) as i64;
        let pattern = Pattern::regexp(&value, self.flags, self.case_insensitive, states)?;
        resolver.count_leaf()?;
        let lead = target.inside.clone().unwrap_or_default();
        Ok(resolver.pattern_node(&target, lead, pattern, self.rewrite.as_ref(), weight))
    }
}

impl LowerClause for FuzzyQuery {
    fn resolve(&self, resolver: &mut Resolver<'_>, weight: Weight) -> Result<Node> {
        resolver.rewrite_known(self.options.rewrite.as_ref())?;
        let Some(target) = resolver.target(&self.field) else {
            return match is_opaque_metadata(&self.field) {
                true => Err(unfit_for_fuzzy(&self.field, &self.field)),
                false => Ok(Node::None),
            };
        };
        if !near_terms(target.field) {
            return Err(unfit_for_fuzzy(&target.field.path, target.field.type_name()));
        }
        let value = resolver.normalized(&target, &self.value, &self.normalize)?;
        resolver.near(&target, &value, self.fuzziness, &self.options, weight)
    }
}

impl<'a> Resolver<'a> {
    fn push_plain(
        &self,
        target: &Target<'_>,
        plain: &mut String,
        normalize: &Normalize,
        pieces: &mut Vec<WildcardItem>,
    ) -> Result<()> {
        if !plain.is_empty() {
            let normal = self.normalized(target, plain, normalize)?;
            pieces.extend(normal.chars().map(WildcardItem::Character));
            plain.clear();
        }
        Ok(())
    }

    /// Makes the node of the terms near one.
    pub(super) fn near(
        &mut self,
        target: &Target<'_>,
        term: &str,
        fuzziness: Fuzziness,
        options: &FuzzyOptions,
        weight: Weight,
    ) -> Result<Node> {
        if !near_terms(target.field) {
            return Err(unfit_for_fuzzy(&target.field.path, target.field.type_name()));
        }
        searchable_strings(target.field)?;
        if options.max_expansions == 0 {
            return Err(Error::IllegalArgument("maxExpansions must be positive.".to_owned()));
        }
        let edits = fuzziness.edits(term);
        let pattern = Pattern::near(term, edits, options.prefix_length, options.transpositions);
        let rewrite = options.rewrite.clone().unwrap_or(Rewrite::TopTermsBlended(options.max_expansions));
        self.count_leaf()?;
        let lead = target.inside.clone().unwrap_or_default();
        Ok(self.pattern_node(target, lead, pattern, Some(&rewrite), weight))
    }

    /// A value in either case of its letters.
    pub(super) fn folded(&mut self, target: &Target<'_>, value: &Value, weight: Weight) -> Result<Node> {
        let field = target.field;
        if field.field_type == FieldType::Boolean && field.index {
            return self.exact(target, value, weight);
        }
        if !(is_string(field) || field.field_type.is_text()) {
            return Err(Error::QueryShard {
                reason: format!(
                    "[{}] field which is of type [{}], does not support case insensitive term queries",
                    field.path,
                    field.type_name()
                ),
                caused_by: None,
            });
        }
        searchable_strings(field)?;
        let value = self.normalized(target, &text(value).unwrap_or_default(), &Normalize::Field)?;
        let pattern = Pattern::folded(&value)?;
        let lead = target.inside.clone().unwrap_or_default();
        Ok(self.pattern_node(target, lead, pattern, None, weight))
    }

    /// Makes the node of a pattern, rewritten as asked for.
    pub(super) fn pattern_node(
        &mut self,
        target: &Target<'_>,
        lead: String,
        pattern: Pattern,
        rewrite: Option<&Rewrite>,
        weight: Weight,
    ) -> Node {
        let field = target.field;
        let text = field.field_type.is_text();
        let pattern = Arc::new(pattern.behind(&lead));
        let column = StringColumn { path: field.column, ignore_above: field.column_limit() };
        if is_searched_by_column(field) {
            return Node::ColumnMatching { column, pattern, weight };
        }
        let column = has_values_as_indexed(field).then_some(column);
        let constant = matches!(field.field_type, FieldType::Wildcard | FieldType::ConstantKeyword);
        let own = if constant { ExpandedScore::Boost } else { ExpandedScore::Own };
        let (keep, score) = match rewrite {
            None | Some(Rewrite::ConstantScore | Rewrite::Unknown(_)) => {
                return Node::Matching { path: field.id, text, column, pattern, weight };
            }
            Some(Rewrite::ConstantScoreBoolean) => {
                (ExpansionSelection::AtMost(MAX_CLAUSES), ExpandedScore::Boost)
            }
            Some(Rewrite::ScoringBoolean) => (ExpansionSelection::AtMost(MAX_CLAUSES), own),
            Some(Rewrite::TopTerms(most)) => (ExpansionSelection::Best((*most).min(MAX_CLAUSES)), own),
            Some(Rewrite::TopTermsBoost(most)) => {
                (ExpansionSelection::Best((*most).min(MAX_CLAUSES)), ExpandedScore::Boost)
            }
            Some(Rewrite::TopTermsBlended(most)) => {
                let score = if constant { ExpandedScore::Boost } else { ExpandedScore::Blended };
                (ExpansionSelection::Best((*most).min(MAX_CLAUSES)), score)
            }
        };
        let (boost, score) = match weight {
            Weight::Constant(boost) => (boost, score),
            _ => (0.0, ExpandedScore::Boost),
        };
        let field_name = Arc::clone(&field.path);
        self.expansions.push(Expansion {
            path: field.id,
            nested: self.nested_id(),
            field: field_name,
            text,
            pattern,
            lead,
            keep,
            score,
            boost,
            rules: self.rules,
        });
        let node = Node::Expanded(self.expansions.len() - 1);
        match (rewrite, weight) {
            (Some(Rewrite::ConstantScoreBoolean), Weight::Constant(score)) => {
                Node::Constant(score, Box::new(node))
            }
            _ => node,
        }
    }

    /// Makes a text fit for the terms of a field, but for what leads into a flat_object.
    pub(super) fn normalized(
        &self,
        target: &Target<'_>,
        value: &str,
        normalize: &Normalize,
    ) -> Result<String> {
        let field = target.field;
        let mapping = self.index.mapping;
        match normalize {
            Normalize::Analyzer(name) if field.field_type.is_text() || name.is_some() => {
                let name = name.as_deref().unwrap_or(&field.search_analyzer);
                Ok(mapping.analyzers().get(name).map_or_else(|| value.to_owned(), |own| own.normalize(value)))
            }
            _ => match &field.normalizer {
                Some(name) => {
                    Ok(mapping.analyzers().normalize(name, value).unwrap_or_else(|| value.to_owned()))
                }
                None => Ok(value.to_owned()),
            },
        }
    }

    /// Refuses a way of rewriting that there is not.
    pub(super) fn rewrite_known(&self, rewrite: Option<&Rewrite>) -> Result<()> {
        match rewrite {
            Some(Rewrite::Unknown(name)) => {
                Err(Error::IllegalArgument(format!("Failed to parse rewrite_method [{name}]")))
            }
            _ => Ok(()),
        }
    }

    fn metadata_pattern(&self, clause: &str, field: &str, pattern: &str, weight: Weight) -> Result<Node> {
        if field == "_index" {
            let pattern = Value::String(pattern.to_owned());
            return self.metadata_term("_index", &[&pattern], weight).unwrap_or(Ok(Node::None));
        }
        match is_opaque_metadata(field) {
            true => Err(unfit(clause, field, field)),
            false => Ok(Node::None),
        }
    }
}

fn is_string(field: &Field) -> bool {
    matches!(
        field.field_type,
        FieldType::Keyword | FieldType::Wildcard | FieldType::ConstantKeyword | FieldType::FlatObject
    )
}

/// Returns whether terms near another are looked for in a field.
fn near_terms(field: &Field) -> bool {
    field.field_type.is_text()
        || matches!(field.field_type, FieldType::Keyword | FieldType::Wildcard | FieldType::FlatObject)
}

fn fit(clause: &str, field: &Field) -> Result<()> {
    if !is_string(field) && !field.field_type.is_text() {
        return Err(unfit(clause, &field.path, field.type_name()));
    }
    searchable_strings(field)
}

fn unfit(clause: &str, field: &str, kind: &str) -> Error {
    Error::QueryShard {
        reason: format!(
            "Can only use {clause} queries on keyword and text fields - not on [{field}] which is of type [{kind}]"
        ),
        caused_by: None,
    }
}

pub(super) fn unfit_for_fuzzy(field: &str, kind: &str) -> Error {
    Error::IllegalArgument(format!(
        "Can only use fuzzy queries on keyword and text fields - not on [{field}] which is of type [{kind}]"
    ))
}
