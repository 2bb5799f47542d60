//! An analyzer: character filters, one tokenizer, and the filters behind it.

use std::sync::Arc;

use super::allowance::{MAX_ADDED_BYTES, most_made};
use super::char_filter::{CharFilter, Corrections, most_bytes};
use super::filter::{Filter, Shingles, Stage, TextEnd, lowercase};
use super::tokenizer::Tokenizer;
use crate::term::MAX_TERM_BYTES;

/// A token of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The term.
    pub text: String,
    /// Position; the first token has 0; gaps where a filter removed tokens.
    pub position: u32,
    /// Number of positions that the token spans: more than one where other tokens of the graph lie beside it.
    pub position_length: u32,
    /// Start of the token in the text that was given, in UTF-16 code units.
    pub start: u32,
    /// End of the token, in UTF-16 code units.
    pub end: u32,
    /// The type, as Lucene names it: `<ALPHANUM>`, `word`, `SYNONYM`.
    pub kind: &'static str,
    /// `true` if stemmers leave the token alone.
    pub keyword: bool,
    /// Payload that a filter attached to the token, shown by `_analyze`; it is not indexed.
    pub payload: Option<Box<[u8]>>,
    /// Number of times that the token counts.
    pub frequency: u32,
}

impl Default for Token {
    fn default() -> Self {
        Self {
            text: String::new(),
            position: 0,
            position_length: 1,
            start: 0,
            end: 0,
            kind: "word",
            keyword: false,
            payload: None,
            frequency: 1,
        }
    }
}

/// Turns text into tokens.
#[derive(Debug)]
pub struct Analyzer {
    char_filters: Vec<Arc<dyn CharFilter>>,
    tokenizer: Arc<dyn Tokenizer>,
    filters: Vec<Arc<dyn Filter>>,
    /// The filters are exactly `lowercase`: applied in place, without a stage.
    only_lowercase: bool,
    /// Bytes that the character filters may make of a byte, and those that each filter may that multiplies tokens.
    growth: (usize, Vec<usize>),
    parts: Option<AnalyzerComponents>,
    /// Positions between the values of a field.
    position_increment_gap: Option<u32>,
}

/// The names of the parts that an analyzer was put together from.
#[derive(Clone, Debug)]
pub struct AnalyzerComponents {
    /// Character filters in order.
    pub char_filters: Vec<String>,
    /// The tokenizer.
    pub tokenizer: String,
    /// Token filters in order.
    pub filters: Vec<String>,
}

/// Outcome of analyzing a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Positions that the text took, removed tokens included: the next value of the field goes on
    /// behind them.
    pub positions: u32,
    /// `true` if a token was cut for its length, or the text.
    pub cut: bool,
    /// True if the end of the text was left out, since too much would come of it.
    pub text_cut: bool,
    /// End of the text, in UTF-16 code units.
    pub end: u32,
}

impl Analyzer {
    pub(crate) fn new(tokenizer: Arc<dyn Tokenizer>, filters: Vec<Arc<dyn Filter>>) -> Self {
        Self::with_char_filters(Vec::new(), tokenizer, filters)
    }

    pub(crate) fn with_char_filters(
        char_filters: Vec<Arc<dyn CharFilter>>,
        tokenizer: Arc<dyn Tokenizer>,
        filters: Vec<Arc<dyn Filter>>,
    ) -> Self {
        let only_lowercase = filters.len() == 1 && filters[0].is_lowercase();
        let text_growth = char_filters.iter().map(|filter| filter.growth()).fold(1, usize::saturating_mul);
        let growths = filters.iter().map(|filter| filter.growth()).filter(|growth| *growth > 1).collect();
        Self {
            char_filters,
            tokenizer,
            filters,
            only_lowercase,
            growth: (text_growth, growths),
            parts: None,
            position_increment_gap: None,
        }
    }

    pub(crate) fn with_parts(mut self, parts: AnalyzerComponents) -> Self {
        self.parts = Some(parts);
        self
    }

    /// Makes the analyzer that has more filters behind its own.
    pub(crate) fn followed_by(&self, more: Vec<Arc<dyn Filter>>) -> Self {
        let filters = self.filters.iter().cloned().chain(more).collect();
        Self::with_char_filters(self.char_filters.clone(), Arc::clone(&self.tokenizer), filters)
            .with_position_increment_gap(self.position_increment_gap)
    }

    pub(crate) fn with_position_increment_gap(mut self, gap: Option<u32>) -> Self {
        self.position_increment_gap = gap;
        self
    }

    /// The parts of a custom analyzer; `None` where it is one of those that are whole.
    pub fn parts(&self) -> Option<&AnalyzerComponents> {
        self.parts.as_ref()
    }

    /// The positions between two values of a field that the analyzer asks for, if it does.
    pub fn position_increment_gap(&self) -> Option<u32> {
        self.position_increment_gap
    }

    /// Returns whether Lucene would report the keyword mark of tokens behind the first `filters` filters.
    pub fn reports_keywords(&self, filters: usize) -> bool {
        self.filters.iter().take(filters).any(|filter| filter.reports_keywords())
    }

    /// Returns true if queries take its tokens by position alone, although some span several positions.
    pub fn disables_graph(&self) -> bool {
        self.filters.iter().any(|filter| filter.disables_graph())
    }

    /// Returns the neighbouring tokens that it joins, if it does.
    pub fn shingles(&self) -> Option<Shingles> {
        self.filters.iter().find_map(|filter| filter.shingles())
    }

    /// The number of token filters.
    pub fn filter_count(&self) -> usize {
        self.filters.len()
    }

    /// Feeds every token of `text` to `sink`; the token is reused between calls. Returns whether a
    /// token was cut or left out for its length (the value is then listed in `_ignored`): a term
    /// is never longer than [`MAX_TERM_BYTES`].
    pub fn analyze(&self, text: &str, sink: &mut dyn FnMut(&Token)) -> bool {
        self.run(text, sink).cut
    }

    /// As [`Analyzer::analyze`], saying how many positions the text took.
    pub fn run(&self, text: &str, sink: &mut dyn FnMut(&Token)) -> Outcome {
        let mut last = IndexTokenSink { sink, cut: false };
        if !self.char_filters.is_empty() {
            return self.run_filtered(text, self.filters.len(), &mut last);
        }
        let mut text_cut = self.tokenizer.cuts(text);
        let positions = if self.filters.is_empty() {
            self.tokenizer.tokenize(text, &mut |token| last.token(token))
        } else if self.only_lowercase {
            self.tokenizer.tokenize(text, &mut |token| {
                lowercase::apply(token);
                last.token(token);
            })
        } else {
            let mut stage = chain(&self.filters, Box::new(&mut last));
            let positions = self.tokenizer.tokenize(text, &mut |token| stage.token(token));
            let end = stage.end(TextEnd { positions, offset: units(text), cut: text_cut });
            text_cut = end.cut;
            end.positions
        };
        Outcome { positions, cut: text_cut || last.cut, text_cut, end: 0 }
    }

    /// Returns true if more than its own tokens may come of a text.
    pub(super) fn multiplies(&self) -> bool {
        const ANY: usize = 1 << 20;
        self.growth.0 > 1 || !self.growth.1.is_empty() || self.tokenizer.growth(ANY) > ANY
    }

    /// Returns true if the end of a text is left out, since too much would come of it.
    pub(crate) fn exceeds_bounds(&self, text: &str) -> bool {
        self.may_exceed_bounds(text.len()) && self.run(text, &mut |_| {}).text_cut
    }

    /// Returns true if too much could come of any text of so many bytes: most are far from that, and are not analyzed
    /// to be told.
    pub(super) fn may_exceed_bounds(&self, bytes: usize) -> bool {
        let (text_growth, growths) = &self.growth;
        let filtered = bytes.saturating_mul(*text_growth);
        if filtered > most_bytes(bytes) {
            return true;
        }
        let cut = self.tokenizer.growth(filtered);
        let made = growths.iter().fold(cut, |bytes, growth| most_made(bytes, *growth));
        made > filtered && made > MAX_ADDED_BYTES
    }

    /// Counts the tokens of a text: the positions that it takes or, without `positions`, those that have one.
    pub fn count(&self, text: &str, positions: bool) -> i64 {
        let (mut count, mut last) = (0, None);
        let outcome = self.run(text, &mut |token| {
            count += i64::from(last.replace(token.position) != Some(token.position));
        });
        if positions { i64::from(outcome.positions) } else { count }
    }

    /// Feeds the tokens behind the first `filters` filters to `sink`, however long they are.
    pub fn run_until(&self, text: &str, filters: usize, sink: &mut dyn FnMut(&Token)) -> Outcome {
        let filters = filters.min(self.filters.len());
        let mut outcome = self.run_filtered(text, filters, &mut UnboundedTokenSink { sink });
        outcome.end = units(text);
        outcome
    }

    fn run_filtered(&self, text: &str, filters: usize, last: &mut (dyn TokenSink + '_)) -> Outcome {
        let mut corrections = Vec::with_capacity(self.char_filters.len());
        let mut current = std::borrow::Cow::Borrowed(text);
        for filter in &self.char_filters {
            let (filtered, correction) = filter.apply(&current, most_bytes(text.len()));
            corrections.push(correction);
            current = std::borrow::Cow::Owned(filtered);
        }
        let correct = |offset: u32| {
            corrections.iter().rev().fold(offset, |offset, step: &Corrections| step.correct(offset))
        };
        let mut text_cut = corrections.iter().any(Corrections::is_cut) || self.tokenizer.cuts(&current);
        let positions = {
            let mut stage = chain(&self.filters[..filters], Box::new(&mut *last));
            let positions = self.tokenizer.tokenize(&current, &mut |token| {
                if !corrections.is_empty() {
                    token.start = correct(token.start);
                    token.end = correct(token.end);
                }
                stage.token(token);
            });
            let end = stage.end(TextEnd { positions, offset: units(text), cut: text_cut });
            text_cut = end.cut;
            end.positions
        };
        Outcome { positions, cut: text_cut || last.cut(), text_cut, end: 0 }
    }

    /// Returns the text as the first `count` character filters leave it.
    pub fn filtered_text(&self, text: &str, count: usize) -> String {
        let most = most_bytes(text.len());
        let filters = self.char_filters.iter().take(count);
        filters.fold(text.to_owned(), |text, filter| filter.apply(&text, most).0)
    }

    /// Prepares a term that is not to be cut (a prefix, a pattern, a bound of a range): only the
    /// filters that map characters apply.
    pub fn normalize(&self, text: &str) -> String {
        let mut out = String::new();
        let filters: Vec<Arc<dyn Filter>> =
            self.filters.iter().filter(|filter| filter.is_normalizing()).cloned().collect();
        let char_filters: Vec<Arc<dyn CharFilter>> =
            self.char_filters.iter().filter(|filter| filter.is_normalizing()).cloned().collect();
        let most = most_bytes(text.len());
        let text = char_filters.iter().fold(text.to_owned(), |text, filter| filter.apply(&text, most).0);
        let mut last = UnboundedTokenSink { sink: &mut |token: &Token| out.push_str(&token.text) };
        let mut token = Token { text, ..Token::default() };
        {
            let mut stage = chain(&filters, Box::new(&mut last as &mut dyn TokenSink));
            stage.token(&mut token);
            stage.end(TextEnd { positions: 1, ..TextEnd::default() });
        }
        out
    }
}

/// UTF-16 code units of a text.
fn units(text: &str) -> u32 {
    let units = if text.is_ascii() { text.len() } else { text.chars().map(char::len_utf16).sum() };
    u32::try_from(units).unwrap_or(u32::MAX)
}

/// Builds the stages of `filters` in front of `last`.
pub(super) fn chain<'a>(filters: &'a [Arc<dyn Filter>], last: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
    filters.iter().rev().fold(last, |next, filter| filter.stage(next))
}

/// The end of a chain.
trait TokenSink: Stage {
    /// Returns whether a token was cut for its length.
    fn cut(&self) -> bool;
}

/// The end of a chain of the index: bounds the term and hands it to the caller.
struct IndexTokenSink<'a> {
    sink: &'a mut dyn FnMut(&Token),
    cut: bool,
}

impl Stage for &mut IndexTokenSink<'_> {
    fn token(&mut self, token: &mut Token) {
        IndexTokenSink::token(self, token);
    }

    fn end(&mut self, end: TextEnd) -> TextEnd {
        end
    }
}

impl Stage for IndexTokenSink<'_> {
    fn token(&mut self, token: &mut Token) {
        IndexTokenSink::token(self, token);
    }

    fn end(&mut self, end: TextEnd) -> TextEnd {
        end
    }
}

impl TokenSink for IndexTokenSink<'_> {
    fn cut(&self) -> bool {
        self.cut
    }
}

impl IndexTokenSink<'_> {
    fn token(&mut self, token: &mut Token) {
        if token.text.len() > MAX_TERM_BYTES {
            let mut end = MAX_TERM_BYTES;
            while !token.text.is_char_boundary(end) {
                end -= 1;
            }
            token.text.truncate(end);
            self.cut = true;
        }
        (self.sink)(token);
    }
}

/// The end of a chain that hands on terms of any length.
struct UnboundedTokenSink<'a> {
    sink: &'a mut dyn FnMut(&Token),
}

impl Stage for UnboundedTokenSink<'_> {
    fn token(&mut self, token: &mut Token) {
        (self.sink)(token);
    }

    fn end(&mut self, end: TextEnd) -> TextEnd {
        end
    }
}

impl TokenSink for UnboundedTokenSink<'_> {
    fn cut(&self) -> bool {
        false
    }
}

impl Stage for &mut (dyn TokenSink + '_) {
    fn token(&mut self, token: &mut Token) {
        (**self).token(token);
    }

    fn end(&mut self, end: TextEnd) -> TextEnd {
        (**self).end(end)
    }
}
