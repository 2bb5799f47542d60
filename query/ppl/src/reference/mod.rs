//! The table of commands, options and functions: the one list that parser, completions and documentation are held against.
//!
//! [`COMMANDS`] and [`FUNCTIONS`] are data. Tests compare them with the parser and with the pages below `docs/ppl`.

mod commands;
mod functions;

pub use commands::COMMANDS;
pub use functions::FUNCTIONS;

use crate::suggestion::nearest;

/// A command.
#[derive(Clone, Copy, Debug)]
pub struct CommandReference {
    /// The name, in lower case.
    pub name: &'static str,
    /// The purpose, in one sentence.
    pub summary: &'static str,
    /// The forms of the command, with `|` between them.
    pub syntax: &'static str,
    /// `true` for a command that begins a query.
    pub is_source: bool,
    /// The options with `=`.
    pub options: &'static [OptionReference],
    /// The answer to the command.
    pub support: Support,
}

/// An option of a command.
#[derive(Clone, Copy, Debug)]
pub struct OptionReference {
    /// The name, in lower case.
    pub name: &'static str,
    /// The values that it takes.
    pub values: &'static str,
    /// The meaning, in one sentence or two.
    pub summary: &'static str,
}

/// The answer to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// The parser reads the command.
    Accepted,
    /// The parser reads the command, and its plan is refused for this reason.
    Parsed(&'static str),
    /// The parser refuses the command by name, with this advice.
    Refused(&'static str),
}

/// A function.
#[derive(Clone, Copy, Debug)]
pub struct FunctionReference {
    /// The name, in lower case.
    pub name: &'static str,
    /// Name and arguments; those in brackets can be left out.
    pub signature: &'static str,
    /// The group in the documentation.
    pub group: FunctionGroup,
}

/// Groups of functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionGroup {
    /// Aggregates, for `stats` and its like.
    Aggregate,
    /// Functions over the order of rows, for `eventstats` and `streamstats`.
    Window,
    /// Numbers.
    Math,
    /// Texts.
    Text,
    /// Conditions, choices and types.
    Condition,
    /// Dates and times.
    Time,
    /// Arrays and lambdas.
    Collection,
    /// Texts that are JSON.
    Json,
    /// Digests and addresses.
    Other,
    /// Full text.
    Relevance,
}

impl FunctionGroup {
    /// Returns whether the functions stand behind `stats` and its like rather than in expressions.
    #[must_use]
    pub fn is_aggregate(self) -> bool {
        matches!(self, Self::Aggregate | Self::Window)
    }
}

/// Finds the function with the nearest name, for the error of an unknown one.
#[must_use]
pub fn nearest_function(name: &str) -> Option<&'static str> {
    nearest(name, FUNCTIONS.iter().map(|function| function.name))
}

/// Finds the name of a list that is nearest to another, for the error of an unknown field or index.
#[must_use]
pub fn nearest_name<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    nearest(name, names)
}
