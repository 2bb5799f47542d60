//! `bin field [span=…] [bins=n] [minspan=…] [aligntime=…] [start=n] [end=n] [as alias]`: values to buckets.

use crate::ast::{Expression, FieldName, SpanLength};
use crate::parser::{Expectation, Parser, Parsing};

/// `bin`: replaces the values of a field by their buckets.
#[derive(Clone, Debug, PartialEq)]
pub struct BinCommand {
    /// The field.
    pub field: FieldName,
    /// The size of buckets.
    pub options: BinOptions,
    /// The name behind `as`; the field stays then.
    pub alias: Option<FieldName>,
}

/// Options of buckets, for `bin` and the splits of `chart`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BinOptions {
    /// `span`: the length of a bucket.
    pub span: Option<BinSpan>,
    /// `bins`: the most buckets there may be.
    pub bins: Option<u64>,
    /// `minspan`: the least length of a bucket.
    pub minspan: Option<SpanLength>,
    /// `aligntime`: a start of a bucket, for times.
    pub aligntime: Option<AlignTime>,
    /// `start`: the lower end of the range that `bins` divides.
    pub start: Option<f64>,
    /// `end`: the upper end of that range.
    pub end: Option<f64>,
}

impl BinOptions {
    /// Returns whether no option was given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The length of a bucket.
#[derive(Clone, Debug, PartialEq)]
pub enum BinSpan {
    /// A number, or a length of time.
    Length(SpanLength),
    /// `2log10`: buckets between `coefficient * base^n`.
    Log {
        /// The number in front (default 1).
        coefficient: f64,
        /// The number behind.
        base: f64,
    },
}

/// The start of buckets of time.
#[expect(clippy::large_enum_variant, reason = "a syntax tree has few of these nodes")]
#[derive(Clone, Debug, PartialEq)]
pub enum AlignTime {
    /// `earliest`: the least time of the input.
    Earliest,
    /// `latest`: the greatest time of the input.
    Latest,
    /// A literal: seconds since 1970, a date, or steps such as `@d`.
    At(Expression),
}

impl Parser<'_> {
    pub(crate) fn bin_command(&mut self) -> Parsing<BinCommand> {
        let field = self.field()?;
        let options = self.bin_options()?;
        Ok(BinCommand { field, options, alias: self.alias()? })
    }

    /// Reads options of buckets, in any order.
    pub(crate) fn bin_options(&mut self) -> Parsing<BinOptions> {
        let mut options = BinOptions::default();
        loop {
            if self.option("span") {
                options.span = Some(self.bin_span()?);
            } else if self.option("bins") {
                options.bins = Some(self.count("bins")?);
            } else if self.option("minspan") {
                options.minspan = Some(self.span_length()?);
            } else if self.option("aligntime") {
                options.aligntime = Some(self.align_time()?);
            } else if self.option("start") {
                options.start = Some(self.number()?);
            } else if self.option("end") {
                options.end = Some(self.number()?);
            } else {
                return Ok(options);
            }
        }
    }

    fn bin_span(&mut self) -> Parsing<BinSpan> {
        if let Some((coefficient, base)) = self.log_span()? {
            return Ok(BinSpan::Log { coefficient, base });
        }
        self.span_length().map(BinSpan::Length)
    }

    fn align_time(&mut self) -> Parsing<AlignTime> {
        let ends = [("earliest", AlignTime::Earliest), ("latest", AlignTime::Latest)];
        for (word, end) in ends {
            if self.keyword(word) {
                return Ok(end);
            }
        }
        self.note(Expectation::Time);
        self.value_expression().map(AlignTime::At)
    }
}
