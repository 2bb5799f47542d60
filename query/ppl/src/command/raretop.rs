//! `top [n] [options] fields [by fields]` and `rare …`: the most and the least frequent values.

use crate::ast::FieldName;
use crate::parser::{Expectation, Parser, Parsing};

/// `top` and `rare`: counts combinations of values and keeps the most or the least frequent ones.
#[derive(Clone, Debug, PartialEq)]
pub struct RareTopCommand {
    /// `true` for `rare`.
    pub is_rare: bool,
    /// The most combinations that stay in each group (default 10).
    pub count: u64,
    /// `countfield`: the column with the counts (default `count`).
    pub countfield: String,
    /// `showcount`: whether counts are shown (default true).
    pub showcount: bool,
    /// `usenull`: whether rows that miss a field count; `None` takes the setting.
    pub usenull: Option<bool>,
    /// At least one field.
    pub fields: Vec<FieldName>,
    /// The fields behind `by`.
    pub by: Vec<FieldName>,
}

impl Parser<'_> {
    pub(crate) fn raretop_command(&mut self, is_rare: bool) -> Parsing<RareTopCommand> {
        let mut command = RareTopCommand {
            is_rare,
            count: 10,
            countfield: "count".to_owned(),
            showcount: true,
            usenull: None,
            fields: Vec::new(),
            by: Vec::new(),
        };
        self.note(Expectation::Integer);
        if self.peek_digit() || self.peek_symbol("-") {
            command.count = self.count(if is_rare { "rare" } else { "top" })?;
        }
        loop {
            if self.option("limit") {
                command.count = self.count("limit")?;
            } else if self.option("countfield") {
                command.countfield = self.string()?.value;
            } else if self.option("showcount") {
                command.showcount = self.boolean()?;
            } else if self.option("usenull") {
                command.usenull = Some(self.boolean()?);
            } else {
                break;
            }
        }
        command.fields = self.field_list_before(&["by"])?;
        if self.keyword("by") {
            command.by = self.field_list()?;
        }
        Ok(command)
    }
}
