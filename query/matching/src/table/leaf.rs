//! Leaf clauses: the elements of a predicate.

use std::fmt;

use millrace_dsl::query::Query;

/// A leaf clause with what it adds to the score.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// The clause; never one that is made of others, such as `bool`.
    pub query: Query,
    /// Product of the boosts from the root down to here.
    pub boost: f32,
    /// `true` if it scores; filters and exclusions do not.
    pub scored: bool,
}

impl Leaf {
    /// Makes a leaf.
    pub fn new(query: Query, boost: f32, scored: bool) -> Self {
        Self { query, boost, scored }
    }
}

impl fmt::Display for Leaf {
    /// Writes what is asked; `~` marks a leaf that does not score.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.scored {
            f.write_str("~")?;
        }
        write!(f, "{}", self.query)?;
        if self.scored && self.boost != 1.0 {
            write!(f, " ^{}", self.boost)?;
        }
        Ok(())
    }
}
