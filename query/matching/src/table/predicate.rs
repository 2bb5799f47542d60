//! The predicate of a scan: a query as a tree of leaves.

use std::fmt;
use std::sync::Arc;

use millrace_dsl::query::{FunctionScoreQuery, NestedQuery, Query};

use super::leaf::Leaf;

/// Predicate on rows, still independent of any index.
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
        /// Predicate that matches.
        positive: Box<Predicate>,
        /// Predicate whose matches get the second factor.
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
    /// Joins predicates of which all must be fulfilled; the parts of those that are such themselves become its own.
    pub fn all(parts: Vec<Self>) -> Self {
        let mut own = Vec::with_capacity(parts.len());
        for part in parts {
            match part {
                Self::And(inner) => own.extend(inner),
                part => own.push(part),
            }
        }
        match own.len() {
            0 => Self::All,
            1 => own.remove(0),
            _ => Self::And(own),
        }
    }

    /// Returns the same predicate without its parts that want a field to have a value; `None` if it has none.
    pub fn without_presence(&self, field: &str) -> Option<Self> {
        let is_presence = |part: &Self| match part {
            Self::Leaf(leaf) => matches!(&leaf.query, Query::Exists(exists) if exists.field == field),
            _ => false,
        };
        match self {
            Self::And(parts) if parts.iter().any(is_presence) => {
                Some(Self::all(parts.iter().filter(|part| !is_presence(part)).cloned().collect()))
            }
            part => is_presence(part).then_some(Self::All),
        }
    }

    /// Joins predicates of which any must be fulfilled, as [`Self::all`] does. There is at least one.
    pub fn any(parts: Vec<Self>) -> Self {
        let mut own = Vec::with_capacity(parts.len());
        for part in parts {
            match part {
                Self::AtLeast(1, inner) => own.extend(inner),
                part => own.push(part),
            }
        }
        if own.len() == 1 { own.remove(0) } else { Self::AtLeast(1, own) }
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
