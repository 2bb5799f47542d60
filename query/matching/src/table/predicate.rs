//! The predicate of a scan: pushed-down filter expressions as a tree of leaves.

use std::fmt;
use std::sync::Arc;

use datafusion::logical_expr::{Expr, Operator};
use millrace_dsl::query::{FunctionScoreQuery, NestedQuery};

use super::leaf::{Combine, CombineFunction, Leaf, LeafFunction};

/// What a row must fulfil, still independent of any index.
#[derive(Clone, Debug)]
pub enum Predicate {
    /// Everything, with score 1.
    All,
    /// A clause.
    Leaf(Arc<Leaf>),
    /// All of them; scores add up.
    And(Vec<Predicate>),
    /// At least so many of them; scores of those that match add up.
    AtLeast(usize, Vec<Predicate>),
    /// Not this; without a score.
    Not(Box<Predicate>),
    /// This, with one score.
    Constant(f32, Box<Predicate>),
    /// The first, with its score multiplied.
    Boosting {
        /// What matches.
        positive: Box<Predicate>,
        /// Where the second factor applies too.
        negative: Box<Predicate>,
        /// Factors of all scores, and where `negative` matches.
        factors: (f32, f32),
    },
    /// Any of them; the best score counts, the others by a share.
    DisMax(f32, Vec<Predicate>),
    /// The first, with scores combined with functions; the others are the filters of those functions
    /// that have one.
    FunctionScore(Arc<FunctionScoreQuery>, Box<Predicate>, Vec<Predicate>),
    /// Some element of a nested path fulfils this.
    Nested(Arc<NestedQuery>, Box<Predicate>),
}

impl Predicate {
    /// Reads an expression; `None` where part of it is not the index's business.
    pub fn from_expr(expr: &Expr) -> Option<Self> {
        match expr {
            Expr::BinaryExpr(binary) if binary.op == Operator::And => {
                let mut parts = Vec::new();
                collect(expr, Operator::And, &mut parts)?;
                Some(Self::And(parts))
            }
            Expr::BinaryExpr(binary) if binary.op == Operator::Or => {
                let mut parts = Vec::new();
                collect(expr, Operator::Or, &mut parts)?;
                Some(Self::AtLeast(1, parts))
            }
            Expr::Not(inner) => Some(Self::Not(Box::new(Self::from_expr(inner)?))),
            Expr::ScalarFunction(call) => {
                let function = call.func.inner();
                if let Some(function) = function.downcast_ref::<LeafFunction>() {
                    return Some(Self::Leaf(Arc::clone(&function.leaf)));
                }
                let combine = &function.downcast_ref::<CombineFunction>()?.combine;
                let mut parts = call.args.iter().map(Self::from_expr).collect::<Option<Vec<_>>>()?;
                match combine {
                    Combine::AtLeast(required) => Some(Self::AtLeast(*required, parts)),
                    Combine::Constant(score) => Some(Self::Constant(*score, Box::new(parts.pop()?))),
                    Combine::Boosting { boost, negative } => {
                        let factors = (*boost, *negative);
                        let negative = Box::new(parts.pop()?);
                        Some(Self::Boosting { positive: Box::new(parts.pop()?), negative, factors })
                    }
                    Combine::DisMax(tie_breaker) => Some(Self::DisMax(*tie_breaker, parts)),
                    Combine::Nested(query) => Some(Self::Nested(Arc::clone(query), Box::new(parts.pop()?))),
                    Combine::FunctionScore(query) => {
                        let filters = parts.split_off(1.min(parts.len()));
                        Some(Self::FunctionScore(Arc::clone(query), Box::new(parts.pop()?), filters))
                    }
                }
            }
            _ => None,
        }
    }

    /// Joins the filters of a scan.
    pub fn all_of(filters: &[Expr]) -> Option<Self> {
        let mut parts = filters.iter().map(Self::from_expr).collect::<Option<Vec<_>>>()?;
        Some(match parts.len() {
            0 => Self::All,
            1 => parts.pop()?,
            _ => Self::And(parts),
        })
    }
}

fn collect(expr: &Expr, operator: Operator, parts: &mut Vec<Predicate>) -> Option<()> {
    match expr {
        Expr::BinaryExpr(binary) if binary.op == operator => {
            collect(&binary.left, operator, parts)?;
            collect(&binary.right, operator, parts)
        }
        other => {
            parts.push(Predicate::from_expr(other)?);
            Some(())
        }
    }
}

impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join = |f: &mut fmt::Formatter<'_>, parts: &[Predicate], between: &str| {
            f.write_str("(")?;
            for (at, part) in parts.iter().enumerate() {
                write!(f, "{}{part}", if at > 0 { between } else { "" })?;
            }
            f.write_str(")")
        };
        match self {
            Self::All => f.write_str("*"),
            Self::Leaf(leaf) => write!(f, "{}({leaf})", leaf.query.kind()),
            Self::And(parts) => join(f, parts, " AND "),
            Self::AtLeast(1, parts) => join(f, parts, " OR "),
            Self::AtLeast(required, parts) => {
                write!(f, "at_least_{required}")?;
                join(f, parts, ", ")
            }
            Self::Not(part) => write!(f, "NOT {part}"),
            Self::Constant(score, part) => write!(f, "constant_score_{score}({part})"),
            Self::Boosting { positive, negative, factors: (_, factor) } => {
                write!(f, "boosting_{factor}({positive}, {negative})")
            }
            Self::Nested(query, inner) => write!(f, "nested({}: {inner})", query.path),
            Self::FunctionScore(_, base, filters) => {
                write!(f, "function_score({base}")?;
                filters.iter().try_for_each(|filter| write!(f, ", {filter}"))?;
                f.write_str(")")
            }
            Self::DisMax(tie_breaker, parts) => {
                write!(f, "dis_max_{tie_breaker}")?;
                join(f, parts, ", ")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_dsl::query;
    use serde_json::json;

    use super::*;
    use crate::lower;

    #[test]
    fn expressions_come_back_as_they_went() {
        let parsed = query::parse(&json!({"bool": {
            "must": [{"term": {"a": 1}}, {"bool": {"should": [{"term": {"b": 1}}, {"ids": {"values": ["x"]}}]}}],
            "should": [{"match": {"c": "d"}}],
            "must_not": [{"prefix": {"e": "f"}}]
        }}));
        let predicate = Predicate::from_expr(&lower::lower(&parsed.unwrap())).unwrap();
        insta::assert_snapshot!(
            predicate,
            @r#"(term(a = 1) AND (term(b = 1) OR ids(_id in [x])) AND NOT prefix(~e = "f"*) AND at_least_0(match(c = "d")))"#
        );
    }
}
