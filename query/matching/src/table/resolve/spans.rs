//! Clauses of spans: expressions over the terms of an index.

use std::sync::Arc;

use millrace_dsl::json::text;
use millrace_dsl::query::{
    Bound, MAX_CLAUSES, Query, SpanEnclosureQuery, SpanFieldMaskingQuery, SpanFirstQuery, SpanGapQuery,
    SpanMultiQuery, SpanNearQuery, SpanNotQuery, SpanOrQuery, SpanTermQuery,
};
use millrace_mapping::{Field, FieldType, PathId, Scalar};
use millrace_scoring::automaton::Pattern;
use millrace_scoring::node::{ExpandedScore, Expansion, ExpansionSelection, Join, Node, StatisticsTerm};
use millrace_scoring::operands::{ExactValue, Weight};
use millrace_scoring::spans::expression::{Span, SpanLeaf, SpanTerms, Spans};
use millrace_work::error::{Error, Result};

use super::full_text::has_positions;
use super::{LowerClause, Resolver};
use crate::table::lower_clause;

/// Spans with the name of the field that they pass for.
#[derive(Debug)]
pub(crate) struct FieldSpans {
    field: String,
    span: Span,
}

/// Makes an expression of clauses.
pub(crate) struct SpanBuilder<'r, 'a> {
    resolver: &'r mut Resolver<'a>,
    leaves: Vec<SpanLeaf>,
}

/// Resolves a clause that finds spans.
pub(crate) fn resolved<C: LowerClause>(
    clause: &C,
    resolver: &mut Resolver<'_>,
    weight: Weight,
) -> Result<Node> {
    let mut builder = SpanBuilder { resolver, leaves: Vec::new() };
    let FieldSpans { field, span: root } = clause.spans(&mut builder)?;
    let leaves = builder.leaves;
    let Some(field) = resolver.index.mapping.field(&field) else { return Ok(Node::None) };
    let mut terms = Vec::new();
    root.for_each_leaf(&mut |leaf| {
        let Some(leaf) = leaves.get(leaf) else { return };
        terms.push(match &leaf.terms {
            SpanTerms::One(term) => {
                StatisticsTerm::In { path: leaf.path, field: Arc::clone(&leaf.field), term: term.clone() }
            }
            SpanTerms::Expanded(slot, _) => StatisticsTerm::Expanded(*slot),
        });
    });
    let weight = resolver.joined(weight, field, terms, Join::Spans);
    Ok(Node::Spans { path: field.id, spans: Arc::new(Spans { root, leaves }), weight })
}

impl<'a> SpanBuilder<'_, 'a> {
    fn of(&mut self, query: &Query) -> Result<FieldSpans> {
        lower_clause::spans(query, self)
    }

    /// Makes spans that all are of one field.
    fn all(&mut self, queries: &[Query], refused: &str) -> Result<(String, Vec<Span>)> {
        let (mut field, mut spans) = (None, Vec::with_capacity(queries.len()));
        for query in queries {
            let own = self.of(query)?;
            same_field(field.get_or_insert_with(|| own.field.clone()), &own.field, refused)?;
            spans.push(own.span);
        }
        Ok((field.unwrap_or_default(), spans))
    }

    fn leaf(&mut self, field: &Field, terms: SpanTerms) -> Result<Span> {
        self.resolver.count_leaf()?;
        let (path, name) = (field.id, Arc::clone(&field.path));
        self.leaves.push(SpanLeaf { path, field: name, positions: has_positions(field), terms });
        Ok(Span::Leaf(self.leaves.len() - 1))
    }

    /// Names a field as the index does.
    fn field_name(&self, name: &str) -> String {
        self.resolver.index.mapping.field(name).map_or(name, |field| &field.path).to_owned()
    }

    fn field(&self, path: PathId) -> Result<&'a Field> {
        let field = self.resolver.index.mapping.field_by_id(path);
        field.ok_or_else(|| Error::Execution(format!("field {path:?} is gone")))
    }

    /// Makes the leaf of the terms that a clause finds.
    fn terms_of(&mut self, node: Node, shown: String) -> Result<Span> {
        let slot = match node {
            Node::None => return Ok(Span::Nothing("SpanMatchNoDocsQuery".to_owned())),
            Node::Constant(_, inner) => return self.terms_of(*inner, shown),
            Node::Text { path, term, .. } => return self.leaf(self.field(path)?, SpanTerms::One(term)),
            Node::Expanded(slot) => slot,
            Node::Matching { path, text, pattern, .. } => self.expansion(path, text, pattern)?,
            Node::TextRange { path, from, to, .. } => {
                self.expansion(path, true, Arc::new(Pattern::between(from, to)))?
            }
            _ => {
                let reason = "unsupported inner query, should be org.apache.lucene.search.MultiTermQuery but was org.apache.lucene.search.IndexOrDocValuesQuery";
                return Err(Error::QueryShard {
                    reason: format!("failed to create query: {reason}"),
                    caused_by: Some(("unsupported_operation_exception".to_owned(), reason.to_owned())),
                });
            }
        };
        let Some(expansion) = self.resolver.expansions.get_mut(slot) else {
            return Err(Error::Execution("an expansion is gone".to_owned()));
        };
        if !matches!(expansion.keep, ExpansionSelection::Best(_)) {
            expansion.keep = ExpansionSelection::AtMost(MAX_CLAUSES);
        }
        (expansion.score, expansion.boost) = (ExpandedScore::Boost, 0.0);
        let path = expansion.path;
        self.leaf(self.field(path)?, SpanTerms::Expanded(slot, shown))
    }

    fn expansion(&mut self, path: PathId, text: bool, pattern: Arc<Pattern>) -> Result<usize> {
        let field = Arc::clone(&self.field(path)?.path);
        self.resolver.expansions.push(Expansion {
            path,
            nested: self.resolver.nested_id(),
            field,
            text,
            pattern,
            lead: String::new(),
            keep: ExpansionSelection::AtMost(MAX_CLAUSES),
            score: ExpandedScore::Boost,
            boost: 0.0,
            rules: self.resolver.rules,
        });
        Ok(self.resolver.expansions.len() - 1)
    }
}

fn same_field(field: &str, other: &str, refused: &str) -> Result<()> {
    match field == other {
        true => Ok(()),
        false => Err(Error::IllegalArgument(refused.to_owned())),
    }
}

impl LowerClause for SpanTermQuery {
    fn spans(&self, builder: &mut SpanBuilder<'_, '_>) -> Result<FieldSpans> {
        let query = &self.0;
        let field = builder.field_name(&query.field);
        let shown = || text(&query.value).unwrap_or_default();
        let Some(target) = builder.resolver.target(&query.field) else {
            return Ok(FieldSpans { span: Span::Nothing(format!("{field}:{}", shown())), field });
        };
        let no_term = |kind: &str, text: String| {
            Err(Error::IllegalArgument(format!(
                "Cannot extract a term from a query of type class org.apache.lucene.search.{kind}: {text}"
            )))
        };
        let term = match builder.resolver.exact(&target, &query.value, Weight::None)? {
            Node::Text { term, .. } if target.field.field_type == FieldType::MatchOnlyText => {
                return no_term("ConstantScoreQuery", format!("ConstantScore({field}:{term})"));
            }
            Node::Text { term, .. } => term,
            Node::Exact { value: ExactValue { value: Scalar::Str(term), .. }, .. } => term,
            _ => return no_term("IndexOrDocValuesQuery", format!("{field}:{}", shown())),
        };
        Ok(FieldSpans { span: builder.leaf(target.field, SpanTerms::One(term))?, field })
    }
}

impl LowerClause for SpanMultiQuery {
    fn spans(&self, builder: &mut SpanBuilder<'_, '_>) -> Result<FieldSpans> {
        let field = builder.resolver.index.mapping.field(&self.field);
        if let (Query::Prefix(_), Some(field)) = (&self.inner, field)
            && !field.field_type.is_text()
        {
            return Err(Error::IllegalArgument(format!(
                "Can only use span prefix queries on text fields - not on [{}] which is of type [{}]",
                field.path,
                field.type_name()
            )));
        }
        if let Some(field) = field.filter(|field| matches!(field.field_type, FieldType::Range(_))) {
            return Err(Error::IllegalArgument(format!(
                "Field [{}] of type [{}] does not support span queries",
                field.path,
                field.type_name()
            )));
        }
        let node = lower_clause::resolve(&self.inner, builder.resolver, Weight::Constant(1.0))?;
        Ok(FieldSpans {
            span: builder.terms_of(node, shown(&self.inner))?,
            field: builder.field_name(&self.field),
        })
    }
}

/// Writes what finds terms, as Lucene prints its queries.
fn shown(query: &Query) -> String {
    let end = |bound: &Option<Bound>, (open, closed): (char, char)| {
        let sign = if bound.as_ref().is_none_or(|bound| bound.included) { closed } else { open };
        (bound.as_ref().and_then(|bound| text(&bound.value)).unwrap_or_else(|| "*".to_owned()), sign)
    };
    match query {
        Query::Prefix(query) => format!("{}*", query.value),
        Query::Wildcard(query) => query.value.clone(),
        Query::Regexp(query) => format!("/{}/", query.value),
        Query::Fuzzy(query) => format!("{}~{}", query.value, query.fuzziness.edits(&query.value)),
        Query::Range(query) => {
            let ((from, opened), (to, closed)) = (end(&query.from, ('{', '[')), end(&query.to, ('}', ']')));
            format!("{opened}{from} TO {to}{closed}")
        }
        other => other.to_string(),
    }
}

impl LowerClause for SpanNearQuery {
    fn spans(&self, builder: &mut SpanBuilder<'_, '_>) -> Result<FieldSpans> {
        let (mut field, mut parts): (Option<String>, _) = (None, Vec::with_capacity(self.clauses.len()));
        for clause in &self.clauses {
            let own = match clause {
                Query::SpanGap(gap) => {
                    FieldSpans { field: builder.field_name(&gap.field), span: Span::Gap(gap.width.into()) }
                }
                other => builder.of(other)?,
            };
            let field = field.get_or_insert_with(|| own.field.clone());
            if let Span::Gap(_) = &own.span {
                same_field(field, &own.field, "[span_near] clauses must have same field")?;
                if !self.in_order {
                    let reason = "Gaps can only be added to ordered near queries".to_owned();
                    return Err(Error::IllegalArgument(reason));
                }
            } else if *field != own.field {
                return Err(Error::IllegalArgument(format!(
                    "Cannot add clause {} to SpanNearQuery for field {field}",
                    own.span.text(&builder.leaves, &|_| None)
                )));
            }
            parts.push(own.span);
        }
        let gaps_alone = parts.iter().all(|part| matches!(part, Span::Gap(_)));
        let span = match parts.len() {
            1 => parts.remove(0),
            _ => Span::Near { parts, slop: self.slop.into(), in_order: self.in_order },
        };
        // Gaps lie between spans: by themselves they would have no end.
        let span = match gaps_alone {
            true => Span::Nothing(span.text(&builder.leaves, &|_| None)),
            false => span,
        };
        Ok(FieldSpans { field: field.unwrap_or_default(), span })
    }
}

impl LowerClause for SpanGapQuery {
    fn spans(&self, _: &mut SpanBuilder<'_, '_>) -> Result<FieldSpans> {
        // It stands within `span_near` only.
        Err(Error::Exception {
            kind: "illegal_state_exception",
            status: 400,
            reason: "provided query builder [class org.opensearch.index.query.SpanNearQueryBuilder$SpanGapQueryBuilder] class should inherit from AbstractQueryBuilder, but it doesn't".to_owned(),
        })
    }
}

impl LowerClause for SpanOrQuery {
    fn spans(&self, builder: &mut SpanBuilder<'_, '_>) -> Result<FieldSpans> {
        let (field, parts) = builder.all(&self.clauses, "Clauses must have same field.")?;
        Ok(FieldSpans { field, span: Span::Any(parts) })
    }
}

impl LowerClause for SpanNotQuery {
    fn spans(&self, builder: &mut SpanBuilder<'_, '_>) -> Result<FieldSpans> {
        let (include, exclude) = (builder.of(&self.include)?, builder.of(&self.exclude)?);
        same_field(&include.field, &exclude.field, "Clauses must have same field.")?;
        let span = Span::Without {
            include: Box::new(include.span),
            exclude: Box::new(exclude.span),
            around: (self.before.into(), self.behind.into()),
        };
        Ok(FieldSpans { field: include.field, span })
    }
}

impl LowerClause for SpanFirstQuery {
    fn spans(&self, builder: &mut SpanBuilder<'_, '_>) -> Result<FieldSpans> {
        let FieldSpans { field, span } = builder.of(&self.inner)?;
        Ok(FieldSpans { field, span: Span::First(Box::new(span), self.end.into()) })
    }
}

impl<const WITHIN: bool> LowerClause for SpanEnclosureQuery<WITHIN> {
    fn spans(&self, builder: &mut SpanBuilder<'_, '_>) -> Result<FieldSpans> {
        let (big, little) = (builder.of(&self.big)?, builder.of(&self.little)?);
        same_field(&big.field, &little.field, "big and little not same field")?;
        let (field, big, little) = (big.field, Box::new(big.span), Box::new(little.span));
        let span = if WITHIN { Span::Within { big, little } } else { Span::Containing { big, little } };
        Ok(FieldSpans { field, span })
    }
}

impl LowerClause for SpanFieldMaskingQuery {
    /// By itself it is what it masks.
    fn resolve(&self, resolver: &mut Resolver<'_>, weight: Weight) -> Result<Node> {
        lower_clause::resolve(&self.inner, resolver, weight)
    }

    fn spans(&self, builder: &mut SpanBuilder<'_, '_>) -> Result<FieldSpans> {
        let (field, inner) = (builder.field_name(&self.field), builder.of(&self.inner)?);
        Ok(FieldSpans { span: Span::Masked(Box::new(inner.span), field.clone()), field })
    }
}
