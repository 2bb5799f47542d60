//! `match_all`, `match_none` and `ids`, which no mapping changes.

use millrace_dsl::query::{IdsQuery, MatchAllQuery, MatchNoneQuery};
use millrace_scoring::node::Node;
use millrace_scoring::operands::Weight;
use millrace_work::error::Result;

use super::{LowerClause, Resolver};

impl LowerClause for MatchAllQuery {
    fn resolve(&self, resolver: &mut Resolver<'_>, weight: Weight) -> Result<Node> {
        resolver.count_leaf()?;
        Ok(Node::All(weight))
    }
}

impl LowerClause for MatchNoneQuery {
    fn resolve(&self, _: &mut Resolver<'_>, _: Weight) -> Result<Node> {
        Ok(Node::None)
    }
}

impl LowerClause for IdsQuery {
    fn resolve(&self, resolver: &mut Resolver<'_>, weight: Weight) -> Result<Node> {
        resolver.count_leaf()?;
        Ok(Node::Ids { values: self.values.clone().into(), weight })
    }
}
