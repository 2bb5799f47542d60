//! `eval field = expression, …`: new columns.

use crate::ast::Assignment;
use crate::parser::{Parser, Parsing};

/// `eval`: adds columns, or replaces those of the same name. Each expression sees the columns of those before it.
#[derive(Clone, Debug, PartialEq)]
pub struct EvalCommand {
    /// At least one assignment.
    pub assignments: Vec<Assignment>,
}

impl Parser<'_> {
    pub(crate) fn eval_command(&mut self) -> Parsing<EvalCommand> {
        let mut assignments = Vec::new();
        loop {
            let start = self.start();
            let field = self.field()?;
            self.expect_symbol("=")?;
            assignments.push(Assignment { field, value: self.expression()? });
            self.check_count(start, assignments.len())?;
            if !self.symbol(",") {
                return Ok(EvalCommand { assignments });
            }
        }
    }
}
