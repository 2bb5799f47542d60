//! `graphlookup index start=… edge=from-->to [options] as field`: what a walk along edges reaches.

use crate::ast::{Expression, FieldName, IndexSelector};
use crate::parser::{Expectation, Mismatch, Parser, Parsing};

/// `graphlookup`: collects the documents of an index that a walk along edges reaches.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphLookupCommand {
    /// The index with the edges; at least one.
    pub indices: Vec<IndexSelector>,
    /// `start`: where walks begin.
    pub start: GraphStart,
    /// The field that a step leaves by.
    pub from_field: FieldName,
    /// The field that a step arrives at.
    pub to_field: FieldName,
    /// `true` for `<->`: steps go both ways.
    pub is_bidirectional: bool,
    /// `maxdepth`: the most steps behind the first (default 0).
    pub max_depth: u64,
    /// `depthfield`: the member with the number of steps.
    pub depth_field: Option<FieldName>,
    /// `supportarray`: whether fields hold arrays (default false).
    pub support_array: bool,
    /// `batchmode`: whether all rows share one walk (default false).
    pub batch_mode: bool,
    /// `usepit`: whether the walk reads a point in time (default false).
    pub use_pit: bool,
    /// `filter=( … )`: a condition on the documents.
    pub filter: Option<Expression>,
    /// The name behind `as`.
    pub output: FieldName,
}

/// Start of walks.
#[derive(Clone, Debug, PartialEq)]
pub enum GraphStart {
    /// The values of a field of the input.
    Field(FieldName),
    /// Literals.
    Values(Vec<Expression>),
}

impl Parser<'_> {
    pub(crate) fn graphlookup_command(&mut self) -> Parsing<GraphLookupCommand> {
        let indices = self.index_list()?;
        self.expect_option("start")?;
        let start = self.graph_start()?;
        self.expect_option("edge")?;
        let from_field = self.field()?;
        let is_bidirectional = self.graph_arrow()?;
        let to_field = self.field()?;
        let mut command = GraphLookupCommand {
            indices,
            start,
            output: to_field.clone(),
            from_field,
            to_field,
            is_bidirectional,
            max_depth: 0,
            depth_field: None,
            support_array: false,
            batch_mode: false,
            use_pit: false,
            filter: None,
        };
        loop {
            if self.option("maxdepth") {
                command.max_depth = self.count("maxDepth")?;
            } else if self.option("depthfield") {
                command.depth_field = Some(self.field()?);
            } else if self.option("supportarray") {
                command.support_array = self.boolean()?;
            } else if self.option("batchmode") {
                command.batch_mode = self.boolean()?;
            } else if self.option("usepit") {
                command.use_pit = self.boolean()?;
            } else if self.option("filter") {
                self.expect_symbol("(")?;
                command.filter = Some(self.expression()?);
                self.expect_symbol(")")?;
            } else {
                break;
            }
        }
        self.expect_keyword("as")?;
        command.output = self.new_name()?;
        Ok(command)
    }

    fn graph_start(&mut self) -> Parsing<GraphStart> {
        if self.peek_field() {
            return self.field().map(GraphStart::Field);
        }
        let has_parenthesis = self.symbol("(");
        let mut values = vec![self.value_expression()?];
        while self.symbol(",") {
            let start = self.start();
            values.push(self.value_expression()?);
            self.check_count(start, values.len())?;
        }
        if has_parenthesis {
            self.expect_symbol(")")?;
        }
        Ok(GraphStart::Values(values))
    }

    /// Reads `-->` or `<->`; tells whether it goes both ways. Hyphens may end the name in front.
    fn graph_arrow(&mut self) -> Parsing<bool> {
        for (arrow, is_bidirectional) in [("-->", false), ("<->", true)] {
            self.note(Expectation::Symbol(arrow));
            if self.peek_symbol(arrow) {
                self.take(arrow.len());
                return Ok(is_bidirectional);
            }
        }
        Err(Mismatch)
    }
}
