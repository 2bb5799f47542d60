//! The order of the rows of a [`Pipe`].

use millrace_sql::error::Result;
use millrace_sql::relational::RelationPlanner;
use sqlparser::ast;

use super::super::syntax;
use super::{Pipe, SortKey};

impl Pipe {
    /// Returns the order of the rows as that of a window.
    pub(crate) fn window_order(
        &mut self,
        planner: &mut RelationPlanner<'_, '_>,
    ) -> Result<Vec<ast::OrderByExpr>> {
        if self.limit.is_some() || self.groups.is_some() || self.windowed {
            self.close(planner)?;
        }
        let keys = self.order.iter();
        Ok(keys.map(|key| syntax::order_by(key.expr.clone(), key.ascending, key.nulls_first)).collect())
    }

    /// Returns the order of the rows.
    pub(crate) fn order(&self) -> &[SortKey] {
        &self.order
    }

    /// Turns the order round.
    pub(crate) fn reverse(&mut self) {
        for key in &mut self.order {
            key.ascending = !key.ascending;
            key.nulls_first = !key.nulls_first;
        }
    }

    /// Forgets the order.
    pub(crate) fn unorder(&mut self) {
        self.order.clear();
    }
}
