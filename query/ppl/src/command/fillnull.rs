//! `fillnull with value [in fields]`, `fillnull using field = value, …`, `fillnull value=… [fields]`: values for nulls.

use crate::ast::{Assignment, Expression, FieldName};
use crate::parser::{Parser, Parsing};

/// `fillnull`: replaces nulls.
#[expect(clippy::large_enum_variant, reason = "a syntax tree has few of these nodes")]
#[derive(Clone, Debug, PartialEq)]
pub enum FillNullCommand {
    /// One value for several fields.
    One {
        /// The value.
        value: Expression,
        /// The fields; empty means all.
        fields: Vec<FieldName>,
        /// `true` for the form `value=…`, which fills only fields of the value's type.
        is_typed: bool,
    },
    /// `using`: a value for each field.
    Each(Vec<Assignment>),
}

impl Parser<'_> {
    pub(crate) fn fillnull_command(&mut self) -> Parsing<FillNullCommand> {
        if self.option("value") {
            let value = self.value_expression()?;
            let fields = if self.peek_field() { self.field_list()? } else { Vec::new() };
            return Ok(FillNullCommand::One { value, fields, is_typed: true });
        }
        if self.keyword("using") {
            let mut assignments = Vec::new();
            loop {
                let start = self.start();
                let field = self.field()?;
                self.expect_symbol("=")?;
                assignments.push(Assignment { field, value: self.value_expression()? });
                self.check_count(start, assignments.len())?;
                if !self.symbol(",") {
                    return Ok(FillNullCommand::Each(assignments));
                }
            }
        }
        self.expect_keyword("with")?;
        let value = self.value_expression()?;
        let fields = if self.keyword("in") { self.field_list()? } else { Vec::new() };
        Ok(FillNullCommand::One { value, fields, is_typed: false })
    }
}
