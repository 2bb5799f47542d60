//! `eval field = expression, …`: new columns.

use crate::ast::Assignment;

/// `eval`: adds columns, or replaces those of the same name. Each expression sees the columns of those before it.
#[derive(Clone, Debug, PartialEq)]
pub struct EvalCommand {
    /// At least one assignment.
    pub assignments: Vec<Assignment>,
}
