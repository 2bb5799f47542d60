//! `where condition`: rows for which a condition holds.

use crate::ast::Expression;

/// `where`: keeps rows for which a condition holds.
#[derive(Clone, Debug, PartialEq)]
pub struct WhereCommand {
    /// The condition.
    pub condition: Expression,
}
