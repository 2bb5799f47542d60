//! `patterns expression [by keys] [options]`: log lines to their patterns.

use crate::ast::{Expression, Grouping, StringLiteral};
use crate::parser::{Mismatch, Parser, Parsing};

/// `patterns`: finds the pattern of each text, or counts texts by pattern.
#[derive(Clone, Debug, PartialEq)]
pub struct PatternsCommand {
    /// The text.
    pub source: Expression,
    /// The keys behind `by`: patterns are found within each group.
    pub by: Option<Grouping>,
    /// `method`; `None` takes the setting.
    pub method: Option<PatternMethod>,
    /// `mode`; `None` takes the setting.
    pub mode: Option<PatternMode>,
    /// `max_sample_count`: how many texts of a pattern are shown (default 10).
    pub max_sample_count: Option<u64>,
    /// `buffer_limit`: how many texts `brain` collects (default 100000).
    pub buffer_limit: Option<u64>,
    /// `show_numbered_token`: whether variable tokens have numbers (default false).
    pub show_numbered_token: Option<bool>,
    /// `pattern`: the expression whose matches `simple_pattern` leaves out.
    pub pattern: Option<StringLiteral>,
    /// `new_field`: the column (default `patterns_field`).
    pub new_field: Option<String>,
    /// `variable_count_threshold` of `brain` (default 5).
    pub variable_count_threshold: Option<u64>,
    /// `frequency_threshold_percentage` of `brain` (default 0.3).
    pub frequency_threshold_percentage: Option<f64>,
}

/// Method of finding patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternMethod {
    /// `simple_pattern`: letters and digits are left out.
    SimplePattern,
    /// `brain`: by the frequency of words.
    Brain,
}

/// Rows that `patterns` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternMode {
    /// `label`: each row with its pattern.
    Label,
    /// `aggregation`: a row for each pattern.
    Aggregation,
}

impl Parser<'_> {
    pub(crate) fn patterns_command(&mut self) -> Parsing<PatternsCommand> {
        let mut command = PatternsCommand {
            source: self.value_expression()?,
            by: self.grouping()?,
            method: None,
            mode: None,
            max_sample_count: None,
            buffer_limit: None,
            show_numbered_token: None,
            pattern: None,
            new_field: None,
            variable_count_threshold: None,
            frequency_threshold_percentage: None,
        };
        loop {
            if self.option("method") {
                let methods =
                    [("simple_pattern", PatternMethod::SimplePattern), ("brain", PatternMethod::Brain)];
                command.method = Some(self.one_of(&methods).ok_or(Mismatch)?);
            } else if self.option("mode") {
                let modes = [("label", PatternMode::Label), ("aggregation", PatternMode::Aggregation)];
                command.mode = Some(self.one_of(&modes).ok_or(Mismatch)?);
            } else if self.option("max_sample_count") {
                command.max_sample_count = Some(self.count("max_sample_count")?);
            } else if self.option("buffer_limit") {
                command.buffer_limit = Some(self.count("buffer_limit")?);
            } else if self.option("show_numbered_token") {
                command.show_numbered_token = Some(self.boolean()?);
            } else if self.option("pattern") {
                command.pattern = Some(self.string()?);
            } else if self.option("new_field") {
                command.new_field = Some(self.string()?.value);
            } else if self.option("variable_count_threshold") {
                command.variable_count_threshold = Some(self.count("variable_count_threshold")?);
            } else if self.option("frequency_threshold_percentage") {
                command.frequency_threshold_percentage = Some(self.number()?);
            } else {
                return Ok(command);
            }
        }
    }
}
