//! Patterns of log lines by the method of Brain (Yu and others, "Brain: Log Parsing with Bidirectional Parallel Tree", 2023).
//!
//! Lines of one length whose most frequent words are as frequent form a group. A word that is more frequent than these is variable where
//! others stand at its position in the group; a rarer one where so many others do. Numbers, addresses and the like are variable at once.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringViewArray, StringViewBuilder};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result as PlanResult, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use millrace_work::QueryContext;
use parking_lot::Mutex;
use regex::Regex;
use serde_json::{Map, Value, json};

use super::row::held;
use crate::error::evaluation;

/// Longest text of the lines of a model, in bytes.
const MAX_BYTES: usize = 32 << 20;
/// Most words of a line; its pattern has no further ones.
const MAX_WORDS: usize = 500;
/// Most words of the lines of a model.
const MAX_MODEL_WORDS: usize = 2_000_000;
/// Bytes of memory of a model for each byte of its lines.
const MODEL_FACTOR: usize = 8;
/// Lines between two looks at the stop.
const LINES_AT_A_TIME: usize = 1_000;

/// Words that are variable whatever the other lines have: times, addresses, identifiers, numbers, and words that end with digits.
static VARIABLE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?P<time>\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\S*)|(?P<address>(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?)|(?P<uuid>[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12})|0[xX][0-9a-fA-F]+|[A-Za-z]+\d+|[+-]?\d+(?:\.\d*)?",
    )
    .expect("the expression is valid")
});

/// Bounds of the method.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BrainBounds {
    /// Words at a position that make a rare word variable.
    pub(crate) variable_count: u64,
    /// Share of the greatest frequency, in hundredths, that the words of a group have at least.
    pub(crate) frequency_percent: u64,
}

/// A word of a line: its form, and the parts of the line that its variables stand for.
#[derive(Clone, Debug, PartialEq)]
struct Word {
    form: String,
    parts: Vec<String>,
}

/// Lines that form a group: their length, the frequency of their words, and the number of these.
type Group = (usize, u64, usize);

/// The words of all lines.
#[derive(Debug, Default)]
struct BrainModel {
    frequencies: HashMap<(usize, String), u64>,
    words: HashMap<(Group, usize), HashSet<String>>,
    bounds: Option<BrainBounds>,
}

impl BrainModel {
    fn new(lines: &[String], bounds: BrainBounds, work: &QueryContext) -> PlanResult<Self> {
        let (mut split, mut count): (Vec<Vec<Word>>, usize) = (Vec::with_capacity(lines.len()), 0);
        for (at, line) in lines.iter().enumerate() {
            if at % LINES_AT_A_TIME == 0 {
                work.check()?;
            }
            let line = words(line);
            count = count.saturating_add(line.len());
            if count > MAX_MODEL_WORDS {
                return Err(evaluation(format!(
                    "the lines of patterns have more than {MAX_MODEL_WORDS} words; lower buffer_limit"
                )));
            }
            split.push(line);
        }
        let mut model = Self { bounds: Some(bounds), ..Self::default() };
        for (at, line) in split.iter().enumerate() {
            if at % LINES_AT_A_TIME == 0 {
                work.check()?;
            }
            for (at, word) in line.iter().enumerate() {
                *model.frequencies.entry((at, word.form.clone())).or_default() += 1;
            }
        }
        for (at, line) in split.iter().enumerate() {
            if at % LINES_AT_A_TIME == 0 {
                work.check()?;
            }
            let group = model.group(line);
            for (at, word) in line.iter().enumerate() {
                model.words.entry((group, at)).or_default().insert(word.form.clone());
            }
        }
        Ok(model)
    }

    fn frequency(&self, at: usize, word: &Word) -> u64 {
        self.frequencies.get(&(at, word.form.clone())).copied().unwrap_or(0)
    }

    /// Finds the group of a line: that of the most words of one frequency.
    fn group(&self, line: &[Word]) -> Group {
        let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
        for (at, word) in line.iter().enumerate() {
            *counts.entry(self.frequency(at, word)).or_default() += 1;
        }
        let greatest = counts.keys().next_back().copied().unwrap_or(0);
        let percent = self.bounds.map_or(0, |bounds| bounds.frequency_percent);
        let frequent = counts.iter().filter(|(own, _)| **own * 100 >= greatest * percent);
        let found = frequent.max_by_key(|(own, count)| (**count, **own));
        let (frequency, count) = found.map_or((0, 0), |(frequency, count)| (*frequency, *count));
        (line.len(), frequency, count)
    }

    /// Returns the words of a line, with those that are variable in its group.
    fn pattern(&self, line: &str) -> Vec<Word> {
        let mut line_words = words(line);
        let group = self.group(&line_words);
        let most = self.bounds.map_or(u64::MAX, |bounds| bounds.variable_count);
        let originals: Vec<&str> = line.split_whitespace().collect();
        for at in 0..line_words.len() {
            let Some(word) = line_words.get(at) else { continue };
            let frequency = self.frequency(at, word);
            let others = self.words.get(&(group, at)).map_or(0, HashSet::len);
            let is_variable = match frequency.cmp(&group.1) {
                std::cmp::Ordering::Greater => others > 1,
                std::cmp::Ordering::Less => others as u64 >= most,
                std::cmp::Ordering::Equal => false,
            };
            if is_variable
                && word.parts.is_empty()
                && let (Some(word), Some(own)) = (line_words.get_mut(at), originals.get(at))
            {
                *word = Word { form: "<*>".to_owned(), parts: vec![(*own).to_owned()] };
            }
        }
        line_words
    }
}

/// Splits a line at blanks, with signs for what is variable at once.
fn words(line: &str) -> Vec<Word> {
    let all: Vec<&str> = line.split_whitespace().take(MAX_WORDS).collect();
    let last = all.len().saturating_sub(1);
    all.iter().enumerate().map(|(at, word)| masked(word, at == last)).collect()
}

/// Replaces what is variable in a word. A number between blanks stays, since it may be a code.
fn masked(word: &str, is_last: bool) -> Word {
    let (mut form, mut parts, mut last) = (String::with_capacity(word.len()), Vec::new(), 0);
    for found in VARIABLE.captures_iter(word) {
        let Some(whole) = found.get(0) else { continue };
        let before = word.get(..whole.start()).and_then(|before| before.chars().next_back());
        let behind = word.get(whole.end()..).and_then(|behind| behind.chars().next());
        let is_signed = whole.as_str().starts_with(['-', '+']);
        let is_bounded = (is_signed || before.is_none_or(|letter| !letter.is_alphanumeric()))
            && behind.is_none_or(|letter| !letter.is_alphanumeric());
        let sign = match (found.name("time"), found.name("address"), found.name("uuid")) {
            (Some(_), ..) => "<*DATETIME*>",
            (_, Some(_), _) => "<*IP*>",
            (.., Some(_)) => "<*UUID*>",
            _ => "<*>",
        };
        let is_code = sign == "<*>"
            && whole.len() == word.len()
            && !is_last
            && !whole.as_str().starts_with(|letter: char| letter.is_ascii_alphabetic());
        if !is_bounded || is_code {
            continue;
        }
        form.push_str(word.get(last..whole.start()).unwrap_or_default());
        form.push_str(sign);
        parts.push(whole.as_str().to_owned());
        last = whole.end();
    }
    form.push_str(word.get(last..).unwrap_or_default());
    Word { form, parts }
}

/// Result of the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum BrainAnswer {
    /// The pattern of a line.
    Pattern,
    /// The pattern, whose variable parts have numbers.
    Numbered,
    /// The variable parts of lines, by their numbers.
    Tokens,
}

/// A model with the lines that it is of, and their memory.
#[derive(Debug)]
struct CachedModel {
    text: String,
    model: Arc<BrainModel>,
    _memory: QueryContext,
}

/// Finds patterns of lines.
#[derive(Debug)]
pub(super) struct BrainFunction {
    answer: BrainAnswer,
    variable_count: u64,
    frequency_percent: u64,
    signature: Signature,
    /// The last model, which is that of all rows of a statement.
    model: Arc<Mutex<Option<CachedModel>>>,
    /// Context of the statement that calls it.
    work: QueryContext,
}

impl PartialEq for BrainFunction {
    fn eq(&self, other: &Self) -> bool {
        (self.answer, self.variable_count, self.frequency_percent)
            == (other.answer, other.variable_count, other.frequency_percent)
    }
}

impl Eq for BrainFunction {}

impl Hash for BrainFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.answer, self.variable_count, self.frequency_percent).hash(state);
    }
}

/// Finds the pattern of a line, or the variable parts of several, among all lines, which are an array of texts in JSON.
pub(crate) fn call(answer: BrainAnswer, bounds: BrainBounds, line: Expr, lines: Expr) -> Expr {
    let BrainBounds { variable_count, frequency_percent } = bounds;
    let signature = Signature::any(2, Volatility::Immutable);
    let (model, work) = (Arc::default(), QueryContext::default());
    ScalarUDF::from(BrainFunction { answer, variable_count, frequency_percent, signature, model, work })
        .call(vec![line, lines])
}

impl ScalarUDFImpl for BrainFunction {
    fn name(&self) -> &str {
        match self.answer {
            BrainAnswer::Pattern => "brain_pattern",
            BrainAnswer::Numbered => "brain_numbered",
            BrainAnswer::Tokens => "brain_tokens",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let rows = args.number_rows;
        let arrays = args.args.iter().map(|argument| argument.to_array(rows));
        let arrays = arrays.collect::<PlanResult<Vec<ArrayRef>>>()?;
        let [lines, all] = arrays.as_slice() else { return exec_err!("brain takes two texts") };
        let (Some(lines), Some(all)) = (lines.as_string_view_opt(), all.as_string_view_opt()) else {
            return exec_err!("brain takes two texts");
        };
        let mut out = StringViewBuilder::with_capacity(rows);
        let mut model: Option<(u128, Arc<BrainModel>)> = None;
        let part = self.work.part();
        for (row, line) in lines.iter().enumerate() {
            let Some(line) = line else {
                out.append_null();
                continue;
            };
            let model = self.model(all, row, &mut model)?;
            if row % LINES_AT_A_TIME == 0 {
                part.check()?;
            }
            let answer = self.answer(line, &model);
            part.hold(answer.len())?;
            out.append_value(answer);
        }
        Ok(ColumnarValue::Array(held(&(Arc::new(out.finish()) as ArrayRef), &part)?))
    }
}

impl BrainFunction {
    /// Makes the function part of some work, with a model of its own.
    pub(super) fn at_work(&self, work: &QueryContext) -> Self {
        Self {
            answer: self.answer,
            variable_count: self.variable_count,
            frequency_percent: self.frequency_percent,
            signature: self.signature.clone(),
            model: Arc::default(),
            work: work.clone(),
        }
    }

    /// Returns the model of the lines of a row, which all rows have in common.
    fn model(
        &self,
        all: &StringViewArray,
        row: usize,
        last: &mut Option<(u128, Arc<BrainModel>)>,
    ) -> PlanResult<Arc<BrainModel>> {
        let view = all.views().get(row).copied().unwrap_or_default();
        if let Some((known, model)) = last
            && *known == view
        {
            return Ok(Arc::clone(model));
        }
        let text = if all.is_valid(row) { all.value(row) } else { "[]" };
        if text.len() > MAX_BYTES {
            return Err(evaluation(format!(
                "the lines of patterns have more than {MAX_BYTES} bytes; lower buffer_limit"
            )));
        }
        let mut cached = self.model.lock();
        let own = match cached.as_ref().filter(|cached| cached.text == text) {
            Some(cached) => Arc::clone(&cached.model),
            None => {
                // The memory of the model before is free again.
                *cached = None;
                let memory = self.work.part_of(text.len() * MODEL_FACTOR)?;
                let lines: Vec<String> = serde_json::from_str(text)
                    .map_err(|error| evaluation(format!("the lines of patterns are no texts: {error}")))?;
                let bounds = BrainBounds {
                    variable_count: self.variable_count,
                    frequency_percent: self.frequency_percent,
                };
                let model = Arc::new(BrainModel::new(&lines, bounds, &memory)?);
                let own = Arc::clone(&model);
                *cached = Some(CachedModel { text: text.to_owned(), model, _memory: memory });
                own
            }
        };
        *last = Some((view, Arc::clone(&own)));
        Ok(own)
    }

    fn answer(&self, line: &str, model: &BrainModel) -> String {
        let joined = |words: Vec<Word>| {
            let forms: Vec<String> = words.into_iter().map(|word| word.form).collect();
            forms.join(" ")
        };
        match self.answer {
            BrainAnswer::Pattern => joined(model.pattern(line)),
            BrainAnswer::Numbered => numbered(&joined(model.pattern(line))),
            BrainAnswer::Tokens => {
                let samples: Vec<String> = serde_json::from_str(line).unwrap_or_default();
                let mut tokens: Map<String, Value> = Map::new();
                for sample in &samples {
                    let parts = model.pattern(sample).into_iter().flat_map(|word| word.parts);
                    for (at, part) in parts.enumerate() {
                        let own = tokens.entry(format!("<token{}>", at + 1)).or_insert_with(|| json!([]));
                        if let Value::Array(own) = own {
                            own.push(json!(part));
                        }
                    }
                }
                Value::Object(tokens).to_string()
            }
        }
    }
}

/// Gives the signs of a pattern their numbers.
fn numbered(pattern: &str) -> String {
    let (mut out, mut rest, mut number) = (String::with_capacity(pattern.len()), pattern, 0);
    while let Some((before, behind)) = rest.split_once("<*") {
        let Some((_, next)) = behind.split_once('>') else { break };
        number += 1;
        out.push_str(before);
        out.push_str(&format!("<token{number}>"));
        rest = next;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: BrainBounds = BrainBounds { variable_count: 5, frequency_percent: 30 };

    #[test]
    fn numbers_and_addresses_are_variable_at_once() {
        let form = |word: &str, is_last| masked(word, is_last).form;
        assert_eq!(form("[28/Sep/2022:10:15:57", false), "[<*>/Sep/<*>:<*>:<*>:<*>");
        assert_eq!(form("-0700]", false), "<*>]");
        assert_eq!(form("10.251.31.85:50010", false), "<*IP*>");
        assert_eq!(form("blk_-7017553867379051457", false), "blk_<*>");
        assert_eq!(form("part-00296.", false), "part<*>");
        assert_eq!(form("HTTP/1.0\"", false), "HTTP/<*>\"");
        assert_eq!((form("404", false).as_str(), form("404", true).as_str()), ("404", "<*>"));
        assert_eq!(form("user_id=d664d7be-77d8-11f0-8880-0242f00b101d", false), "user_id=<*UUID*>");
        assert_eq!(form("upton5450", false), "<*>");
    }

    #[test]
    fn frequent_words_are_variable_among_others() {
        let lines = [
            "BLOCK* add: updated size 1",
            "BLOCK* add: updated size 2",
            "Verification succeeded for blk_-1",
            "Verification succeeded for blk_2",
            "Responder failed for blk_-3",
            "Responder failed for blk_4",
        ]
        .map(str::to_owned);
        let model = BrainModel::new(&lines, BOUNDS, &QueryContext::default()).unwrap();
        let pattern = |line: &str| {
            let forms: Vec<String> = model.pattern(line).into_iter().map(|word| word.form).collect();
            forms.join(" ")
        };
        assert_eq!(pattern(&lines[0]), "BLOCK* add: updated size <*>");
        assert_eq!(pattern(&lines[2]), "Verification succeeded for blk_<*>");
        assert_eq!(numbered("<*IP*> - <*>"), "<token1> - <token2>");
    }

    #[test]
    fn models_have_a_bound_of_words() {
        let line = "a ".repeat(MAX_WORDS);
        let model = |lines: usize| {
            BrainModel::new(&vec![line.clone(); lines], BOUNDS, &QueryContext::default()).map(|_| ())
        };
        model(10).unwrap();
        let error = model(MAX_MODEL_WORDS / MAX_WORDS + 1).unwrap_err().to_string();
        assert!(error.contains("lower buffer_limit"), "{error}");
    }
}
