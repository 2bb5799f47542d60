//! `query_string`: the tree of the classic syntax as an index understands it.
//!
//! Groups are combined as Lucene's parser does: a condition of which analysis leaves nothing is as
//! if it had not been written, and words side by side become clauses of the group they stand in.

mod leaf;

use millrace_dsl::query::{MAX_CLAUSES, Operator, QueryStringQuery};
use millrace_dsl::query_string::syntax::{Clause, Conjunction, Expression, Group, Leaf, Modifier};
use millrace_dsl::query_string::{ParsedQuery, SyntaxError, escape, parse};
use millrace_scoring::node::Node;
use millrace_scoring::operands::Weight;
use millrace_work::error::{Error, Result};

use self::leaf::Strings;
use super::boolean::Boolean;
use super::multi_match::{minimum, scaled};
use super::{LowerClause, Resolver};

/// Result of an expression: nothing, clauses that may still be taken apart, or one condition.
enum BuiltExpression {
    Nothing,
    Clauses(Boolean),
    Node(Node),
}

/// Occurrence of a clause in a group: must, may or must not match.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Occur {
    Must,
    Should,
    MustNot,
}

impl LowerClause for QueryStringQuery {
    fn resolve(&self, resolver: &mut Resolver<'_>, weight: Weight) -> Result<Node> {
        let refused = |error: SyntaxError| Error::QueryShard {
            reason: format!("Failed to parse query [{}]", self.query),
            caused_by: Some(("parse_exception".to_owned(), error.0)),
        };
        let (strings, field) = Strings::new(resolver, self)?;
        let minimum = minimum(self.minimum_should_match.as_deref())?;
        let text = if self.escape { escape(&self.query) } else { self.query.clone() };
        let ParsedQuery { group, error } = parse(&text, field.as_deref());
        let built = match group.map(|group| resolver.group(&strings, &group, weight)) {
            None => BuiltExpression::Nothing,
            Some(Err(Error::TooManyClauses(_))) => {
                let reason = format!("Cannot parse '{text}': too many boolean clauses");
                return Err(refused(SyntaxError(reason)));
            }
            // What stands before an error of the text is refused first, as it is read first.
            Some(built) => built?,
        };
        if let Some(error) = error {
            return Err(refused(error));
        }
        Ok(match built {
            BuiltExpression::Nothing => Node::None,
            BuiltExpression::Node(node) => node,
            BuiltExpression::Clauses(mut boolean) => {
                boolean.require(minimum.as_ref());
                boolean.node(weight)
            }
        })
    }
}

impl Resolver<'_> {
    fn group(&mut self, strings: &Strings<'_>, group: &Group, weight: Weight) -> Result<BuiltExpression> {
        let mut clauses: Vec<(Occur, BuiltExpression, Weight)> = Vec::new();
        // Whether the first clause has no sign: alone in its group, it is what the group is.
        let mut unsigned = false;
        for (at, clause) in group.clauses.iter().enumerate() {
            join(&mut clauses, clause.conjunction, strings.operator());
            let excluded = clause.modifier == Modifier::Excluded;
            let own = match excluded {
                true => Weight::None,
                false => scaled(weight, clause.boost.unwrap_or(1.0)),
            };
            let built = self.expression(strings, &clause.expression, own)?;
            let words = match &clause.expression {
                Expression::Leaf(field, Leaf::Words(_)) => self.plain_fields(strings, field.as_deref())?,
                _ => false,
            };
            match built {
                BuiltExpression::Nothing => continue,
                BuiltExpression::Clauses(boolean) if words => {
                    let must = boolean.must.into_iter().map(|node| (Occur::Must, node));
                    let should = boolean.should.into_iter().map(|node| (Occur::Should, node));
                    clauses.extend(
                        must.chain(should).map(|(occur, node)| (occur, BuiltExpression::Node(node), own)),
                    );
                }
                built => {
                    unsigned |= at == 0 && clause.modifier == Modifier::None;
                    clauses.push((occur(clause, strings.operator()), built, own));
                }
            }
            if clauses.len() > MAX_CLAUSES {
                return Err(Error::TooManyClauses(MAX_CLAUSES));
            }
        }
        if clauses.len() == 1 && unsigned {
            return Ok(clauses.pop().map_or(BuiltExpression::Nothing, |(_, built, _)| built));
        }
        if clauses.is_empty() {
            return Ok(BuiltExpression::Nothing);
        }
        let mut boolean = Boolean::default();
        for (occur, built, own) in clauses {
            let node = built.node(own);
            match occur {
                Occur::Must => boolean.must.push(node),
                Occur::Should => boolean.should.push(node),
                Occur::MustNot => boolean.must_not.push(node),
            }
        }
        boolean.complete();
        Ok(BuiltExpression::Clauses(boolean))
    }

    fn expression(
        &mut self,
        strings: &Strings<'_>,
        expression: &Expression,
        weight: Weight,
    ) -> Result<BuiltExpression> {
        let (field, leaf) = match expression {
            Expression::Group(group) => return self.group(strings, group, weight),
            Expression::Leaf(field, leaf) => (field.as_deref(), leaf),
        };
        let Some(node) = self.string_leaf(strings, field, leaf, weight)? else {
            return Ok(BuiltExpression::Nothing);
        };
        // The terms of a text in one field are clauses themselves.
        Ok(match (leaf, node) {
            (Leaf::Word(_) | Leaf::Words(_), Node::AtLeast(1, should))
                if strings.operator() == Operator::Or =>
            {
                BuiltExpression::Clauses(Boolean { should, ..Boolean::default() })
            }
            (Leaf::Word(_) | Leaf::Words(_), Node::And(must)) => {
                BuiltExpression::Clauses(Boolean { must, ..Boolean::default() })
            }
            (_, node) => BuiltExpression::Node(node),
        })
    }
}

impl BuiltExpression {
    fn node(self, weight: Weight) -> Node {
        match self {
            Self::Nothing => Node::None,
            Self::Clauses(boolean) => boolean.node(weight),
            Self::Node(node) => node,
        }
    }
}

/// Lets an operator decide about the clause before it, unless that is excluded.
fn join(clauses: &mut [(Occur, BuiltExpression, Weight)], conjunction: Conjunction, default: Operator) {
    let Some((occur, ..)) = clauses.last_mut() else { return };
    if *occur == Occur::MustNot {
        return;
    }
    match (conjunction, default) {
        (Conjunction::And, _) => *occur = Occur::Must,
        (Conjunction::Or, Operator::And) => *occur = Occur::Should,
        _ => {}
    }
}

fn occur(clause: &Clause, default: Operator) -> Occur {
    let required = match default {
        Operator::Or => clause.modifier == Modifier::Required || clause.conjunction == Conjunction::And,
        Operator::And => clause.conjunction != Conjunction::Or,
    };
    match (clause.modifier, required) {
        (Modifier::Excluded, _) => Occur::MustNot,
        (_, true) => Occur::Must,
        (_, false) => Occur::Should,
    }
}
