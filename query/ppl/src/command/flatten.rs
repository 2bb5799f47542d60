//! `flatten field [as (alias, …)]`: members of an object as columns.

use crate::ast::FieldName;
use crate::parser::{Parser, Parsing};

/// `flatten`: makes a column of each member of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct FlattenCommand {
    /// The field with objects.
    pub field: FieldName,
    /// Names for the members, in their order; empty keeps their own.
    pub aliases: Vec<FieldName>,
}

impl Parser<'_> {
    pub(crate) fn flatten_command(&mut self) -> Parsing<FlattenCommand> {
        let field = self.field()?;
        let mut aliases = Vec::new();
        if self.keyword("as") {
            let has_parenthesis = self.symbol("(");
            aliases.push(self.new_name()?);
            while self.symbol(",") {
                let start = self.start();
                aliases.push(self.new_name()?);
                self.check_count(start, aliases.len())?;
            }
            if has_parenthesis {
                self.expect_symbol(")")?;
            }
        }
        Ok(FlattenCommand { field, aliases })
    }
}
