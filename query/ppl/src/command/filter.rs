//! `where condition`: rows for which a condition holds.

use crate::ast::Expression;
use crate::parser::{Parser, Parsing};

/// `where`: keeps rows for which a condition holds.
#[derive(Clone, Debug, PartialEq)]
pub struct WhereCommand {
    /// The condition.
    pub condition: Expression,
}

impl Parser<'_> {
    pub(crate) fn where_command(&mut self) -> Parsing<WhereCommand> {
        Ok(WhereCommand { condition: self.expression()? })
    }
}
