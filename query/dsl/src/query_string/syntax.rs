//! The tree of a query string: groups of clauses, whose leaves name a field or leave it open.

use std::fmt;
use std::sync::Arc;

/// Clauses side by side: the whole string, or what stands between parentheses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// The clauses in order; never empty.
    pub clauses: Vec<Clause>,
}

/// One clause of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Clause {
    /// Conjunction with the clause before.
    pub conjunction: Conjunction,
    /// Modifier: required, excluded or neither.
    pub modifier: Modifier,
    /// Expression of the clause.
    pub expression: Expression,
    /// Factor of its score.
    pub boost: Option<f32>,
}

/// Conjunction of a clause with the clause before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conjunction {
    /// Nothing: the default operator decides.
    None,
    /// `AND`, `&&`.
    And,
    /// `OR`, `||`.
    Or,
}

/// The sign before a clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Modifier {
    /// None.
    None,
    /// `+`.
    Required,
    /// `-`, `!`, `NOT`.
    Excluded,
}

/// Expression of a clause.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// Clauses in parentheses.
    Group(Group),
    /// A condition on a field, or on the default fields where none is named.
    Leaf(Option<Arc<str>>, Leaf),
}

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub enum Leaf {
    /// A word.
    Word(String),
    /// Several words without an operator between them, analyzed as one text.
    Words(String),
    /// A quoted text.
    Phrase {
        /// The text.
        text: String,
        /// Distance by which its terms may be moved, where given.
        slop: Option<i32>,
    },
    /// A word with `*` or `?`, escapes kept.
    Wildcard(String),
    /// A word that ends with its only `*`, which is left out.
    Prefix(String),
    /// Text between slashes.
    Regexp(String),
    /// A word followed by `~`.
    Fuzzy {
        /// The word.
        text: String,
        /// Text behind the tilde.
        fuzziness: Option<String>,
    },
    /// Values between bounds; open where absent.
    Range {
        /// Lower bound.
        from: Option<String>,
        /// Upper bound.
        to: Option<String>,
        /// `true` if the lower bound belongs to the range.
        include_from: bool,
        /// `true` if the upper bound belongs to the range.
        include_to: bool,
    },
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, clause) in self.clauses.iter().enumerate() {
            if at > 0 {
                f.write_str(" ")?;
            }
            write!(f, "{clause}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Clause {
    /// Writes the clause so that what was understood is plain; not the language itself.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.conjunction {
            Conjunction::None => "",
            Conjunction::And => "and ",
            Conjunction::Or => "or ",
        })?;
        f.write_str(match self.modifier {
            Modifier::None => "",
            Modifier::Required => "+",
            Modifier::Excluded => "-",
        })?;
        match &self.expression {
            Expression::Group(group) => write!(f, "({group})")?,
            Expression::Leaf(None, leaf) => write!(f, "{leaf}")?,
            Expression::Leaf(Some(field), leaf) => write!(f, "{field}: {leaf}")?,
        }
        match self.boost {
            Some(boost) => write!(f, "^{boost}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(text) => write!(f, "word[{text}]"),
            Self::Words(text) => write!(f, "words[{text}]"),
            Self::Phrase { text, slop: None } => write!(f, "phrase[{text}]"),
            Self::Phrase { text, slop: Some(slop) } => write!(f, "phrase[{text}]~{slop}"),
            Self::Wildcard(text) => write!(f, "wildcard[{text}]"),
            Self::Prefix(text) => write!(f, "prefix[{text}]"),
            Self::Regexp(text) => write!(f, "regexp[{text}]"),
            Self::Fuzzy { text, fuzziness } => {
                write!(f, "fuzzy[{text}]~{}", fuzziness.as_deref().unwrap_or_default())
            }
            Self::Range { from, to, include_from, include_to } => {
                let bound =
                    |bound: &Option<String>| bound.as_ref().map_or("*".to_owned(), |b| format!("\"{b}\""));
                let (open, close) =
                    (if *include_from { '[' } else { '{' }, if *include_to { ']' } else { '}' });
                write!(f, "range{open}{} to {}{close}", bound(from), bound(to))
            }
        }
    }
}
