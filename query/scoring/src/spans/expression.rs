//! Span queries: an expression over leaves, which are occurrences of terms.

use std::sync::Arc;

use millrace_mapping::PathId;

/// Spans that are searched.
#[derive(Clone, Debug)]
pub struct Spans {
    /// The expression.
    pub root: Span,
    /// Its leaves, by number.
    pub leaves: Vec<SpanLeaf>,
}

/// Occurrences of terms of a field.
#[derive(Clone, Debug)]
pub struct SpanLeaf {
    /// Field.
    pub path: PathId,
    /// Field's name.
    pub field: Arc<str>,
    /// `true` if positions of the field are kept.
    pub positions: bool,
    /// Terms.
    pub terms: SpanTerms,
}

/// The terms of a leaf.
#[derive(Clone, Debug)]
pub enum SpanTerms {
    /// One term.
    One(String),
    /// Those that an expansion finds, with what finds them as it is shown.
    Expanded(usize, String),
}

/// An expression.
#[derive(Clone, Debug)]
pub enum Span {
    /// No span; the text of what cannot be found in the index.
    Nothing(String),
    /// The occurrences of a leaf's terms, one position each.
    Leaf(usize),
    /// So many positions, wherever they are needed: in a row of [`Span::Near`] only.
    Gap(i64),
    /// Spans of all parts, with at most so many positions between them.
    Near {
        /// The parts.
        parts: Vec<Span>,
        /// Positions between them, in all.
        slop: i64,
        /// `true` if they must be in this order, and not overlap.
        in_order: bool,
    },
    /// Spans of any part.
    Any(Vec<Span>),
    /// Spans of one that are not near those of another.
    Without {
        /// Spans that are taken.
        include: Box<Span>,
        /// Spans that they must not overlap.
        exclude: Box<Span>,
        /// Positions before and behind that must be free of it as well.
        around: (i64, i64),
    },
    /// Spans that end at or before a position.
    First(Box<Span>, i64),
    /// Spans of the one in which there is one of the other.
    Containing {
        /// The outer.
        big: Box<Span>,
        /// The inner.
        little: Box<Span>,
    },
    /// Spans of the other that are within one of the one.
    Within {
        /// The outer.
        big: Box<Span>,
        /// The inner.
        little: Box<Span>,
    },
    /// Spans of one field that pass for those of the named one.
    Masked(Box<Span>, String),
}

impl Span {
    /// Calls `each` with the leaves whose terms count for the score: all that spans are made of.
    pub fn for_each_leaf(&self, each: &mut dyn FnMut(usize)) {
        match self {
            Self::Nothing(_) | Self::Gap(_) => {}
            Self::Leaf(leaf) => each(*leaf),
            Self::Near { parts, .. } | Self::Any(parts) => {
                parts.iter().for_each(|part| part.for_each_leaf(each));
            }
            Self::Without { include: part, .. } | Self::First(part, _) | Self::Masked(part, _) => {
                part.for_each_leaf(each);
            }
            Self::Containing { big, little } | Self::Within { big, little } => {
                big.for_each_leaf(each);
                little.for_each_leaf(each);
            }
        }
    }

    /// Writes the expression as Lucene prints its queries. `expanded` are the terms of an expansion, where they
    /// are known.
    pub fn text(&self, leaves: &[SpanLeaf], expanded: &dyn Fn(usize) -> Option<Vec<String>>) -> String {
        let one = |part: &Self| part.text(leaves, expanded);
        let list = |parts: &[Self]| parts.iter().map(one).collect::<Vec<_>>().join(", ");
        match self {
            Self::Nothing(text) => text.clone(),
            Self::Leaf(at) => {
                let Some(leaf) = leaves.get(*at) else { return String::new() };
                match &leaf.terms {
                    SpanTerms::One(term) => format!("{}:{term}", leaf.field),
                    SpanTerms::Expanded(slot, shown) => match expanded(*slot) {
                        Some(terms) => {
                            let terms: Vec<String> =
                                terms.iter().map(|term| format!("{}:{term}", leaf.field)).collect();
                            format!("spanOr([{}])", terms.join(", "))
                        }
                        None => format!("SpanMultiTermQueryWrapper({}:{shown})", leaf.field),
                    },
                }
            }
            Self::Gap(width) => format!("SpanGap({width})"),
            Self::Near { parts, slop, in_order } => {
                format!("spanNear([{}], {slop}, {in_order})", list(parts))
            }
            Self::Any(parts) => format!("spanOr([{}])", list(parts)),
            Self::Without { include, exclude, around: (before, behind) } => {
                format!("spanNot({}, {}, {before}, {behind})", one(include), one(exclude))
            }
            Self::First(part, end) => format!("spanFirst({}, {end})", one(part)),
            Self::Containing { big, little } => format!("SpanContaining({}, {})", one(big), one(little)),
            Self::Within { big, little } => format!("SpanWithin({}, {})", one(big), one(little)),
            Self::Masked(part, field) => format!("mask({}) as {field}", one(part)),
        }
    }
}
