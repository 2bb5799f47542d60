//! `simple_query_string`: a row of signs and branches as an index understands it.

use millrace_dsl::query::{
    Fuzziness, FuzzyOptions, FuzzyQuery, MatchType, Normalize, Operator, SimpleQueryStringQuery,
};
use millrace_dsl::query_string::simple::{Branch, Item, parse};
use millrace_scoring::node::Node;
use millrace_scoring::operands::Weight;
use millrace_work::error::Result;

use super::boolean::Boolean;
use super::fields::{Fields, plain};
use super::multi_match::{TextOptions, best_of, minimum, scaled, unforgivable};
use super::{LowerClause, Resolver};

/// A clause's options, read for an index.
struct Row<'q> {
    query: &'q SimpleQueryStringQuery,
    fields: Fields,
    lenient: bool,
}

/// Clauses in a row so far: nothing, one condition, or clauses that more may join.
enum ClauseBuffer {
    Nothing,
    One(Node),
    Clauses(Boolean),
}

impl LowerClause for SimpleQueryStringQuery {
    fn resolve(&self, resolver: &mut Resolver<'_>, weight: Weight) -> Result<Node> {
        const CLAUSE: &str = "simple_query_string";
        let named = match self.fields.is_empty() {
            true => resolver.default_fields(CLAUSE)?,
            false => self.fields.clone(),
        };
        let fields = resolver.fields(&named, None)?;
        resolver.known_analyzer(CLAUSE, "analyzer", self.analyzer.as_deref())?;
        let row = Row { query: self, fields, lenient: self.lenient.unwrap_or(named.all()) };
        let minimum = minimum(self.minimum_should_match.as_deref())?;
        if self.query.trim() == "*" {
            return Ok(Node::All(weight));
        }
        let items = parse(&self.query, self.flags)?;
        Ok(match resolver.row(&row, &items, weight)? {
            ClauseBuffer::Nothing => Node::None,
            ClauseBuffer::One(node) => node,
            ClauseBuffer::Clauses(mut boolean) => {
                boolean.require(minimum.as_ref());
                boolean.node(weight)
            }
        })
    }
}

impl Resolver<'_> {
    fn row(&mut self, row: &Row<'_>, items: &[Item], weight: Weight) -> Result<ClauseBuffer> {
        let mut sofar = ClauseBuffer::Nothing;
        let (mut sign, mut last) = (None, None);
        for item in items {
            let (excluded, branch) = match item {
                Item::And | Item::Or => {
                    // The first sign counts, and only behind something.
                    if sign.is_none() && !matches!(sofar, ClauseBuffer::Nothing) {
                        let and = matches!(item, Item::And);
                        sign = Some(if and { Operator::And } else { Operator::Or });
                    }
                    continue;
                }
                Item::Nothing => {
                    sign = None;
                    continue;
                }
                Item::Branch { excluded, branch } => (*excluded, branch),
            };
            let own = if excluded { Weight::None } else { weight };
            let Some(mut next) = self.branch(row, branch, own)? else { continue };
            if excluded {
                let should = vec![Node::All(weight)];
                next = ClauseBuffer::Clauses(Boolean {
                    should,
                    must_not: vec![next.node(own)],
                    ..Boolean::default()
                });
            }
            sofar = match sofar {
                ClauseBuffer::Nothing => next,
                sofar => {
                    let operator = sign.unwrap_or(row.query.operator);
                    let mut boolean = match sofar {
                        ClauseBuffer::Clauses(boolean) if last == Some(operator) => boolean,
                        // Another operator than before: what came is one clause of a new whole.
                        other => {
                            let mut boolean = Boolean::default();
                            add(&mut boolean, operator, other.node(weight));
                            boolean
                        }
                    };
                    add(&mut boolean, operator, next.node(weight));
                    last = Some(operator);
                    ClauseBuffer::Clauses(boolean)
                }
            };
            sign = None;
        }
        Ok(sofar)
    }

    /// A branch; `None` where analysis leaves nothing of it.
    fn branch(&mut self, row: &Row<'_>, branch: &Branch, weight: Weight) -> Result<Option<ClauseBuffer>> {
        let node = match branch {
            Branch::Group(items) => {
                return Ok(match self.row(row, items, weight)? {
                    ClauseBuffer::Nothing => None,
                    sofar => Some(sofar),
                });
            }
            Branch::Words(text) => {
                let node = self.text(&row.text(MatchType::MostFields, 0), &row.fields, text, weight)?;
                // The terms of a text in one field are clauses themselves, unless it has a boost.
                let plain = plain(&row.fields);
                return Ok(node.map(|node| match node {
                    node if !plain => ClauseBuffer::One(node),
                    Node::AtLeast(1, should) if row.query.operator == Operator::Or => {
                        ClauseBuffer::Clauses(Boolean { should, ..Boolean::default() })
                    }
                    Node::And(must) => ClauseBuffer::Clauses(Boolean { must, ..Boolean::default() }),
                    node => ClauseBuffer::One(node),
                }));
            }
            Branch::Phrase { text, slop } => {
                let fields = self.suffixed(&row.fields, row.query.quote_field_suffix.as_deref());
                let slop = u32::try_from(*slop).unwrap_or(0);
                self.text(&row.text(MatchType::Phrase, slop), &fields, text, weight)?
            }
            Branch::Prefix(text) => self.on_each(row, weight, &mut |resolver, name, weight| {
                resolver.row_prefix(row, name, text, weight)
            })?,
            Branch::Fuzzy { text, edits } => self.on_each(row, weight, &mut |resolver, name, weight| {
                let query = FuzzyQuery {
                    field: name.to_owned(),
                    value: text.clone(),
                    normalize: row.normalize(resolver, name),
                    fuzziness: Fuzziness::Edits(*edits),
                    options: row.query.fuzzy.clone(),
                    common: Default::default(),
                };
                query.resolve(resolver, weight).map(Some)
            })?,
        };
        Ok(node.map(ClauseBuffer::One))
    }

    fn row_prefix(&mut self, row: &Row<'_>, name: &str, text: &str, weight: Weight) -> Result<Option<Node>> {
        let text_field = self.target(name).filter(|target| target.field.field_type.is_text());
        match text_field {
            Some(target) if row.query.analyze_wildcard => {
                match self.tokens(&target, row.query.analyzer.as_deref(), false, text)? {
                    Some(tokens) => self.analyzed_prefix(name, &tokens, row.query.operator, None, weight),
                    None => Ok(None),
                }
            }
            _ => self.prefix_of(name, text, row.normalize(self, name), None, weight).map(Some),
        }
    }

    /// A condition on each field; the fields add up.
    #[allow(clippy::type_complexity, reason = "a callback for each field, used here alone")]
    fn on_each(
        &mut self,
        row: &Row<'_>,
        weight: Weight,
        condition: &mut dyn FnMut(&mut Self, &str, Weight) -> Result<Option<Node>>,
    ) -> Result<Option<Node>> {
        let mut parts = Vec::with_capacity(row.fields.len());
        for (name, boost) in &row.fields {
            match condition(self, name, scaled(weight, *boost)) {
                Ok(part) => parts.extend(part),
                Err(error) if unforgivable(&error) => return Err(error),
                Err(_) if row.lenient => parts.push(Node::None),
                Err(error) => return Err(error),
            }
        }
        best_of(parts, 1.0).map(Some)
    }
}

impl<'q> Row<'q> {
    fn normalize(&self, resolver: &Resolver<'_>, name: &str) -> Normalize {
        let text = resolver.target(name).is_some_and(|target| target.field.field_type.is_text());
        if text { Normalize::Analyzer(self.query.analyzer.clone()) } else { Normalize::Field }
    }

    fn text(&self, match_type: MatchType, slop: u32) -> TextOptions<'q> {
        TextOptions {
            match_type,
            operator: self.query.operator,
            minimum_should_match: None,
            analyzer: self.query.analyzer.as_deref(),
            slop,
            fuzziness: None,
            fuzzy: FuzzyOptions::default(),
            tie_breaker: match_type.tie_breaker(),
            lenient: self.lenient,
            zero_terms: None,
            synonym_phrases: self.query.synonym_phrases,
            gaps: true,
        }
    }
}

impl ClauseBuffer {
    fn node(self, weight: Weight) -> Node {
        match self {
            Self::Nothing => Node::None,
            Self::One(node) => node,
            Self::Clauses(boolean) => boolean.node(weight),
        }
    }
}

fn add(boolean: &mut Boolean, operator: Operator, node: Node) {
    match operator {
        Operator::And => boolean.must.push(node),
        Operator::Or => boolean.should.push(node),
    }
}
