//! Lowers each kind of clause to a predicate, and resolves it for an index.

use std::sync::Arc;

use millrace_dsl::query::{Clause, Query};
use millrace_scoring::node::Node;
use millrace_scoring::operands::Weight;
use millrace_work::error::{Error, Result};

use super::predicate::Predicate;
use super::resolve::Resolver;
use super::resolve::spans::{self, FieldSpans, SpanBuilder};

/// The meaning of a kind of clause. One that is made of others lowers itself, one that finds spans makes these, any
/// other resolves itself.
pub(crate) trait LowerClause: Clause {
    /// Lowers a clause that is made of others; `None` for any other. `boost` is the product of the boosts down to
    /// this clause.
    fn lower(self: &Arc<Self>, _boost: f32, _scored: bool) -> Option<Predicate> {
        None
    }

    /// Makes the clause what the index's mapping lets it be.
    ///
    /// # Errors
    /// What the index cannot be asked: an error of its shards.
    fn resolve(&self, resolver: &mut Resolver<'_>, weight: Weight) -> Result<Node> {
        match self.is_span() {
            true => spans::resolved(self, resolver, weight),
            false => Err(Error::Execution("a compound clause came as a leaf".to_owned())),
        }
    }

    /// Makes the spans that the clause finds.
    ///
    /// # Errors
    /// What the index cannot be asked.
    fn spans(&self, _builder: &mut SpanBuilder<'_, '_>) -> Result<FieldSpans> {
        Err(Error::Execution("a clause without spans came as one of spans".to_owned()))
    }
}

macro_rules! dispatched {
    ($($name:literal $(| $alias:literal)* => $module:ident::$variant:ident($clause:ident),)*) => {
        /// Lowers a clause that is made of others; `None` for any other.
        pub(crate) fn lower(query: &Query, boost: f32, scored: bool) -> Option<Predicate> {
            match query {
                $(Query::$variant(clause) => clause.lower(boost, scored),)*
            }
        }

        /// Resolves a clause that is not made of others.
        pub(super) fn resolve(query: &Query, resolver: &mut Resolver<'_>, weight: Weight) -> Result<Node> {
            match query {
                $(Query::$variant(clause) => clause.resolve(resolver, weight),)*
            }
        }

        /// Makes the spans of a clause that finds some.
        pub(super) fn spans(query: &Query, builder: &mut SpanBuilder<'_, '_>) -> Result<FieldSpans> {
            match query {
                $(Query::$variant(clause) => clause.spans(builder),)*
            }
        }
    };
}

millrace_dsl::clauses!(dispatched);
