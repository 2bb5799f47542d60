//! Queries, pipelines and the table of commands.

use super::{Expectation, MAX_COMMANDS, Mismatch, Parser, Parsing};
use crate::ast::{Command, CommandKind, ExplainMode, PipedQuery, Pipeline, PipelineSource};
use crate::command::JoinKind;
use crate::error::ParseErrorKind;

/// Reads a command behind its name.
type Reader = fn(&mut Parser<'_>) -> Parsing<CommandKind>;

/// The commands behind pipes, by name. Errors and completions list them in this order.
pub(crate) const COMMANDS: [(&str, Reader); 51] = [
    ("where", |p| p.where_command().map(CommandKind::Where)),
    ("fields", |p| p.fields_command().map(CommandKind::Fields)),
    ("table", |p| p.fields_command().map(CommandKind::Fields)),
    ("eval", |p| p.eval_command().map(CommandKind::Eval)),
    ("stats", |p| p.stats_command().map(CommandKind::Stats)),
    ("sort", |p| p.sort_command().map(CommandKind::Sort)),
    ("head", |p| p.head_command().map(CommandKind::Head)),
    ("rename", |p| p.rename_command().map(CommandKind::Rename)),
    ("dedup", |p| p.dedup_command().map(CommandKind::Dedup)),
    ("bin", |p| p.bin_command().map(CommandKind::Bin)),
    ("timechart", |p| p.timechart_command().map(CommandKind::Timechart)),
    ("chart", |p| p.chart_command().map(CommandKind::Chart)),
    ("top", |p| p.raretop_command(false).map(CommandKind::RareTop)),
    ("rare", |p| p.raretop_command(true).map(CommandKind::RareTop)),
    ("eventstats", |p| p.eventstats_command().map(CommandKind::EventStats)),
    ("streamstats", |p| p.streamstats_command().map(CommandKind::StreamStats)),
    ("join", |p| p.join_command(JoinKind::Inner).map(CommandKind::Join)),
    ("lookup", |p| p.lookup_command().map(CommandKind::Lookup)),
    ("rex", |p| p.rex_command().map(CommandKind::Rex)),
    ("parse", |p| p.parse_command().map(CommandKind::Parse)),
    ("grok", |p| p.grok_command().map(CommandKind::Grok)),
    ("regex", |p| p.regex_command().map(CommandKind::Regex)),
    ("patterns", |p| p.patterns_command().map(CommandKind::Patterns)),
    ("fillnull", |p| p.fillnull_command().map(CommandKind::FillNull)),
    ("replace", |p| p.replace_command().map(CommandKind::Replace)),
    ("convert", |p| p.convert_command().map(CommandKind::Convert)),
    ("spath", |p| p.spath_command().map(CommandKind::Spath)),
    ("reverse", |_| Ok(CommandKind::Reverse)),
    ("append", |p| p.append_command().map(CommandKind::Append)),
    ("appendcol", |p| p.appendcol_command().map(CommandKind::AppendCol)),
    ("appendpipe", |p| p.appendpipe_command().map(CommandKind::AppendPipe)),
    ("union", |p| p.union_command().map(CommandKind::Union)),
    ("flatten", |p| p.flatten_command().map(CommandKind::Flatten)),
    ("expand", |p| p.expand_command().map(CommandKind::Expand)),
    ("mvexpand", |p| p.mvexpand_command().map(CommandKind::MvExpand)),
    ("mvcombine", |p| p.mvcombine_command().map(CommandKind::MvCombine)),
    ("nomv", |p| p.nomv_command().map(CommandKind::NoMv)),
    ("trendline", |p| p.trendline_command().map(CommandKind::Trendline)),
    ("foreach", |p| p.foreach_command().map(CommandKind::Foreach)),
    ("fieldformat", |p| p.fieldformat_command().map(CommandKind::FieldFormat)),
    ("addtotals", |p| p.addtotals_command().map(CommandKind::AddTotals)),
    ("addcoltotals", |p| p.addcoltotals_command().map(CommandKind::AddColTotals)),
    ("transpose", |p| p.transpose_command().map(CommandKind::Transpose)),
    ("xyseries", |p| p.xyseries_command().map(CommandKind::XySeries)),
    ("timewrap", |p| p.timewrap_command().map(CommandKind::Timewrap)),
    ("graphlookup", |p| p.graphlookup_command().map(CommandKind::GraphLookup)),
    ("tail", |p| p.tail_command().map(CommandKind::Tail)),
    ("fieldsummary", |p| p.fieldsummary_command().map(CommandKind::FieldSummary)),
    ("ad", |p| p.refuse_command("ad")),
    ("kmeans", |p| p.refuse_command("kmeans")),
    ("ml", |p| p.refuse_command("ml")),
];

/// Commands that are refused by name: anomalies are the work of AI rules.
pub(crate) const REFUSED: [&str; 3] = ["ad", "kmeans", "ml"];

/// The words in front of `join`.
const JOIN_KINDS: [(&str, JoinKind); 12] = [
    ("inner", JoinKind::Inner),
    ("cross", JoinKind::Cross),
    ("left outer", JoinKind::Left),
    ("left semi", JoinKind::Semi),
    ("left anti", JoinKind::Anti),
    ("left", JoinKind::Left),
    ("outer", JoinKind::Left),
    ("right outer", JoinKind::Right),
    ("right", JoinKind::Right),
    ("full outer", JoinKind::Full),
    ("full", JoinKind::Full),
    ("semi", JoinKind::Semi),
];

impl Parser<'_> {
    /// Reads a whole text.
    pub(super) fn query(&mut self) -> Parsing<PipedQuery> {
        let explain = if self.keyword("explain") { Some(self.explain_mode()) } else { None };
        let pipeline = self.search_pipeline()?;
        while self.peek_symbol(";") {
            self.cursor.advance(1);
        }
        self.cursor.skip_blank();
        if !self.cursor.at_end() {
            return self.expected(Expectation::Symbol("|"));
        }
        Ok(PipedQuery { explain, pipeline })
    }

    fn explain_mode(&mut self) -> ExplainMode {
        let modes = [
            ("simple", ExplainMode::Simple),
            ("standard", ExplainMode::Standard),
            ("cost", ExplainMode::Cost),
            ("extended", ExplainMode::Extended),
        ];
        self.one_of(&modes).unwrap_or_default()
    }

    /// Reads a source and its commands. A pipe may stand in front.
    pub(super) fn search_pipeline(&mut self) -> Parsing<Pipeline> {
        let start = self.start();
        if self.peek_symbol("|") {
            self.cursor.advance(1);
        }
        let source = self.pipeline_source()?;
        let commands = self.piped_commands()?;
        Ok(Pipeline { source, commands, span: self.span_from(start) })
    }

    fn pipeline_source(&mut self) -> Parsing<PipelineSource> {
        if self.keyword("describe") {
            return self.describe_command().map(PipelineSource::Describe);
        }
        let place = self.cursor.checkpoint();
        if self.keyword("show") {
            if self.keyword("datasources") {
                return Ok(PipelineSource::ShowDatasources);
            }
            self.cursor.back_to(place);
        }
        if self.keyword("makeresults") {
            return self.makeresults_command().map(PipelineSource::MakeResults);
        }
        if self.keyword("multisearch") {
            return self.multisearch_command().map(PipelineSource::MultiSearch);
        }
        if self.keyword("union") {
            return self.union_command().map(PipelineSource::Union);
        }
        if self.keyword("graphlookup") {
            return self.graphlookup_command().map(PipelineSource::GraphLookup);
        }
        self.search_source().map(PipelineSource::Search)
    }

    /// Reads commands behind pipes. Nothing between two pipes is no command.
    fn piped_commands(&mut self) -> Parsing<Vec<Command>> {
        let mut commands = Vec::new();
        while self.symbol("|") {
            if self.ends_command() {
                self.note_commands();
                continue;
            }
            commands.push(self.command()?);
            self.check_commands(commands.len())?;
        }
        Ok(commands)
    }

    /// Reads commands in brackets, whose rows come from elsewhere.
    pub(crate) fn bracketed_commands(&mut self, source: PipelineSource) -> Parsing<Pipeline> {
        self.nest(|parser| {
            parser.expect_symbol("[")?;
            let start = parser.start();
            let mut commands = Vec::new();
            if !parser.ends_command() {
                commands.push(parser.command()?);
            }
            commands.extend(parser.piped_commands()?);
            parser.check_commands(commands.len())?;
            let span = parser.span_from(start);
            parser.expect_symbol("]")?;
            Ok(Pipeline { source, commands, span })
        })
    }

    /// Returns whether `[` is next.
    pub(crate) fn peek_bracket(&mut self) -> bool {
        self.note(Expectation::Symbol("["));
        self.peek_symbol("[")
    }

    /// Returns whether a source stands behind the bracket that is next, rather than a pipe or a command.
    pub(crate) fn begins_source(&mut self) -> bool {
        let place = self.cursor.checkpoint();
        self.cursor.skip_blank();
        self.cursor.advance(1);
        let begins_command = self.ends_command() || self.join_kind().is_some() || {
            let word = self.peek_word();
            let is_option = self.peek_option().is_some();
            !is_option && COMMANDS.iter().any(|(name, _)| name.eq_ignore_ascii_case(word) && *name != "union")
        };
        self.cursor.back_to(place);
        !begins_command
    }

    fn ends_command(&mut self) -> bool {
        self.cursor.skip_blank();
        let rest = self.cursor.rest();
        rest.is_empty() || rest.starts_with(['|', ']', ';'])
    }

    fn check_commands(&mut self, count: usize) -> Parsing<()> {
        if count <= MAX_COMMANDS {
            return Ok(());
        }
        let offset = self.cursor.offset();
        let message = format!("a pipeline has more than {MAX_COMMANDS} commands");
        self.refuse(ParseErrorKind::TooLarge, offset, message, None)
    }

    fn note_commands(&mut self) {
        for (name, _) in COMMANDS {
            if !REFUSED.contains(&name) {
                self.note(Expectation::Command(name));
            }
        }
    }

    fn command(&mut self) -> Parsing<Command> {
        let start = self.start();
        self.note_commands();
        let kind = match self.join_kind() {
            Some(kind) => self.join_command(kind).map(CommandKind::Join)?,
            None => {
                let word = self.peek_word();
                let found = COMMANDS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
                let Some((name, read)) = found else { return Err(Mismatch) };
                self.cursor.advance(name.len());
                read(self)?
            }
        };
        let span = self.span_from(start);
        if !self.ends_command() {
            return self.expected(Expectation::Symbol("|"));
        }
        Ok(Command { span, kind })
    }

    /// Takes the kind of a join in front of `join`, with `join`.
    fn join_kind(&mut self) -> Option<JoinKind> {
        let place = self.cursor.checkpoint();
        let kinds = JOIN_KINDS.iter().copied().chain([("anti", JoinKind::Anti)]);
        for (words, kind) in kinds {
            let is_kind = words.split(' ').all(|word| self.take_word(word));
            if is_kind && self.keyword("join") {
                return Some(kind);
            }
            self.cursor.back_to(place);
        }
        None
    }

    /// Refuses a command that finds anomalies.
    fn refuse_command(&mut self, name: &str) -> Parsing<CommandKind> {
        let offset = self.cursor.last_end().saturating_sub(name.len());
        self.refuse(
            ParseErrorKind::Unsupported,
            offset,
            format!("the command [{name}] is not supported"),
            Some("AI rules train models over a saved search and report anomalies; see docs/ai.md"),
        )
    }
}
