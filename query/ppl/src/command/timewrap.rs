//! `timewrap length [align=now|end] [series=relative|short|exact] [time_format=text]`: periods side by side.

use crate::ast::SpanLength;
use crate::parser::{Mismatch, Parser, Parsing};

/// `timewrap`: lays periods of a `timechart` side by side, a column each.
#[derive(Clone, Debug, PartialEq)]
pub struct TimewrapCommand {
    /// The length of a period.
    pub length: SpanLength,
    /// `align` (default end).
    pub align: TimewrapAlign,
    /// `series` (default relative).
    pub series: TimewrapSeries,
    /// `time_format`: the format of names with `series=exact`.
    pub time_format: Option<String>,
}

/// The end of the last period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimewrapAlign {
    /// Now.
    Now,
    /// The end of the search.
    #[default]
    End,
}

/// The names of periods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimewrapSeries {
    /// `1day_before`
    #[default]
    Relative,
    /// `s1`
    Short,
    /// The time of the period.
    Exact,
}

impl Parser<'_> {
    pub(crate) fn timewrap_command(&mut self) -> Parsing<TimewrapCommand> {
        let mut command = TimewrapCommand {
            length: self.unit_or_length()?,
            align: TimewrapAlign::default(),
            series: TimewrapSeries::default(),
            time_format: None,
        };
        loop {
            if self.option("align") {
                let aligns = [("now", TimewrapAlign::Now), ("end", TimewrapAlign::End)];
                command.align = self.one_of(&aligns).ok_or(Mismatch)?;
            } else if self.option("series") {
                let series = [
                    ("relative", TimewrapSeries::Relative),
                    ("short", TimewrapSeries::Short),
                    ("exact", TimewrapSeries::Exact),
                ];
                command.series = self.one_of(&series).ok_or(Mismatch)?;
            } else if self.option("time_format") {
                command.time_format = Some(self.string()?.value);
            } else {
                return Ok(command);
            }
        }
    }
}
