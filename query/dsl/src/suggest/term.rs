//! The `term` suggester: terms of a field near those of a text.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::{name_of, required_field, size};
use crate::json;

/// A `term` suggester.
#[derive(Clone, Debug, PartialEq)]
pub struct TermSuggester {
    /// Field path.
    pub field: String,
    /// Analyzer of the text; the field's own where absent.
    pub analyzer: Option<String>,
    /// Most options of a term.
    pub size: usize,
    /// Most options of a term that a shard gives.
    pub shard_size: usize,
    /// Options for terms near another.
    pub spelling: SpellingOptions,
}

/// Options for terms near another.
#[derive(Clone, Debug, PartialEq)]
pub struct SpellingOptions {
    /// Of which terms others are looked for.
    pub mode: SuggestMode,
    /// Least similarity.
    pub accuracy: f32,
    /// Order of the suggestions.
    pub sort: SortBy,
    /// Measure of similarity.
    pub distance: Distance,
    /// Most edits, 1 or 2.
    pub max_edits: u8,
    /// Number of candidates that are inspected for each option.
    pub max_inspections: usize,
    /// Rows above which a term is taken to be right: a share of all below 1.
    pub max_term_freq: f32,
    /// Characters at the start that must be the same.
    pub prefix_length: usize,
    /// Shortest term that others are looked for.
    pub min_word_length: usize,
    /// Rows that a term must be in to be suggested: a share of all below 1.
    pub min_doc_freq: f32,
}

impl Default for SpellingOptions {
    fn default() -> Self {
        Self {
            mode: SuggestMode::Missing,
            accuracy: 0.5,
            sort: SortBy::Score,
            distance: Distance::Internal,
            max_edits: 2,
            max_inspections: 5,
            max_term_freq: 0.01,
            prefix_length: 1,
            min_word_length: 4,
            min_doc_freq: 0.0,
        }
    }
}

/// Of which terms others are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuggestMode {
    /// Those that are not in the shard.
    Missing,
    /// All, and only those that more rows have are suggested.
    Popular,
    /// All.
    Always,
}

/// Order of suggestions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortBy {
    /// The most similar.
    Score,
    /// The most frequent.
    Frequency,
}

/// Measure of the similarity of two terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// By the edits that the search for candidates counts.
    Internal,
    /// By edits, swapped neighbours being one, of the shorter term.
    DamerauLevenshtein,
    /// By edits of the longer term.
    Levenshtein,
    /// By characters in common near each other.
    JaroWinkler,
    /// By pairs of characters in common.
    Ngram,
}

impl SpellingOptions {
    /// Takes an option; returns whether it is one of these.
    pub(super) fn take(&mut self, key: &str, value: &Value) -> Result<bool> {
        match key {
            "suggest_mode" => {
                let mode = name_of(value, key)?;
                self.mode = match mode.to_ascii_lowercase().as_str() {
                    "missing" => SuggestMode::Missing,
                    "popular" => SuggestMode::Popular,
                    "always" => SuggestMode::Always,
                    _ => return Err(no_constant("term.TermSuggestionBuilder.SuggestMode", &mode)),
                };
            }
            "accuracy" => {
                self.accuracy = json::float(value)?;
                if !(0.0..=1.0).contains(&self.accuracy) {
                    return Err(Error::IllegalArgument("accuracy must be between 0 and 1".to_owned()));
                }
            }
            "sort" => {
                let sort = name_of(value, key)?;
                self.sort = match sort.to_ascii_lowercase().as_str() {
                    "score" => SortBy::Score,
                    "frequency" => SortBy::Frequency,
                    _ => return Err(no_constant("SortBy", &sort)),
                };
            }
            "string_distance" => self.distance = Distance::parse(&name_of(value, key)?)?,
            "max_edits" => {
                self.max_edits = match json::integer(value)? {
                    edits @ 1..=2 => edits as u8,
                    _ => return Err(Error::IllegalArgument("maxEdits must be between 1 and 2".to_owned())),
                };
            }
            "max_inspections" => {
                self.max_inspections = count("maxInspections", value, "positive")?.min(1_000);
            }
            "max_term_freq" => self.max_term_freq = share("maxTermFreq", value)?,
            "prefix_length" | "prefix_len" => self.prefix_length = count("prefixLength", value, "positive")?,
            "min_word_length" | "min_word_len" => {
                self.min_word_length = size("minWordLength", value)?;
            }
            "min_doc_freq" => self.min_doc_freq = share("minDocFreq", value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl Distance {
    fn parse(name: &str) -> Result<Self> {
        Ok(match name.to_ascii_lowercase().as_str() {
            "internal" => Self::Internal,
            "damerau_levenshtein" => Self::DamerauLevenshtein,
            "levenshtein" => Self::Levenshtein,
            "jaro_winkler" => Self::JaroWinkler,
            "ngram" => Self::Ngram,
            _ => return Err(Error::IllegalArgument(format!("Illegal distance option {name}"))),
        })
    }
}

fn no_constant(class: &str, name: &str) -> Error {
    Error::IllegalArgument(format!(
        "No enum constant org.opensearch.search.suggest.{class}.{}",
        name.to_ascii_uppercase()
    ))
}

fn count(name: &str, value: &Value, must: &str) -> Result<usize> {
    usize::try_from(json::integer(value)?)
        .map_err(|_| Error::IllegalArgument(format!("{name} must be {must}")))
}

/// Reads a share of all rows below 1, or a number of them.
fn share(name: &str, value: &Value) -> Result<f32> {
    let share = json::float(value)?;
    if share.is_nan() || share < 0.0 {
        return Err(Error::IllegalArgument(format!("{name} must be positive")));
    }
    if share > 1.0 && share.fract() != 0.0 {
        return Err(Error::IllegalArgument(format!(
            "if {name} is greater than 1, it must not be a fraction"
        )));
    }
    Ok(share)
}

impl TermSuggester {
    pub(super) fn parse(options: &Map<String, Value>) -> Result<Self> {
        let (mut field, mut analyzer, mut most, mut shard_size) = (None, None, 5, None);
        let mut spelling = SpellingOptions::default();
        for (key, value) in options {
            match key.as_str() {
                "field" => field = Some(name_of(value, key)?),
                "analyzer" => analyzer = Some(name_of(value, key)?),
                "size" => most = size("size", value)?,
                "shard_size" => shard_size = Some(size("shardSize", value)?),
                _ if spelling.take(key, value)? => {}
                _ => {
                    return Err(Error::Parsing(format!("suggester[term] doesn't support field [{key}]")));
                }
            }
        }
        let field = required_field(field)?;
        // A shard gives at least five, as in OpenSearch.
        Ok(Self { field, analyzer, size: most, shard_size: shard_size.unwrap_or(most.max(5)), spelling })
    }
}
