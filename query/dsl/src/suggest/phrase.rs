//! The `phrase` suggester: a text with the words that its author most likely meant.

use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::term::SpellingOptions;
use super::{name_of, required_field, size};
use crate::json;

/// Most generators of candidates.
const MAX_GENERATORS: usize = 16;

/// A `phrase` suggester.
#[derive(Clone, Debug, PartialEq)]
pub struct PhraseSuggester {
    /// Field path.
    pub field: String,
    /// Analyzer of the text; the field's own where absent.
    pub analyzer: Option<String>,
    /// Most options.
    pub size: usize,
    /// Most options that a shard gives.
    pub shard_size: usize,
    /// Most words that are looked at together; the size of the field's shingles where absent.
    pub gram_size: Option<usize>,
    /// Probability that an existing word is meant.
    pub real_word_likelihood: f64,
    /// Factor by which an option must be more probable than the text.
    pub confidence: f64,
    /// Most words that are wrong: a share of all below 1.
    pub max_errors: f32,
    /// Separator of the words of a shingle.
    pub separator: String,
    /// `true` if the field must have single words.
    pub force_unigrams: bool,
    /// Words from which on nothing is suggested.
    pub token_limit: usize,
    /// Generators of candidates; the field's own where there are none.
    pub generators: Vec<Generator>,
    /// Smoothing model for words that were not seen together.
    pub smoothing: Smoothing,
    /// Texts before and behind changed words.
    pub highlight: Option<(String, String)>,
}

/// Generator of candidates.
#[derive(Clone, Debug, PartialEq)]
pub struct Generator {
    /// Field path.
    pub field: String,
    /// Most candidates of a word.
    pub size: usize,
    /// Options for terms near another.
    pub spelling: SpellingOptions,
    /// Analyzer of words before candidates are looked for.
    pub pre_filter: Option<String>,
    /// Analyzer of candidates.
    pub post_filter: Option<String>,
}

impl Generator {
    /// Makes the generator of a field where the request names none.
    pub fn new(field: &str) -> Self {
        Self {
            field: field.to_owned(),
            size: 5,
            spelling: SpellingOptions::default(),
            pre_filter: None,
            post_filter: None,
        }
    }

    fn parse(options: &Map<String, Value>) -> Result<Self> {
        let mut generator = Self::new("");
        let mut field = None;
        for (key, value) in options {
            match key.as_str() {
                "field" => field = Some(name_of(value, key)?),
                "size" => generator.size = size("size", value)?,
                "pre_filter" => generator.pre_filter = Some(name_of(value, key)?),
                "post_filter" => generator.post_filter = Some(name_of(value, key)?),
                _ if generator.spelling.take(key, value)? => {}
                _ => return Err(json::content(format!("[direct_generator] unknown field [{key}]"))),
            }
        }
        generator.field = field.ok_or_else(|| {
            Error::IllegalArgument("[direct_generator] expects exactly one field parameter".to_owned())
        })?;
        Ok(generator)
    }
}

/// Smoothing model for words that were not seen together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Smoothing {
    /// As likely as fewer of them are, times this.
    StupidBackoff(f64),
    /// As if each had been seen so much more often.
    Laplace(f64),
    /// The sum of what one, two and three words are, times these.
    Linear {
        /// Of three words.
        trigram: f64,
        /// Of two words.
        bigram: f64,
        /// Of one word.
        unigram: f64,
    },
}

impl Smoothing {
    fn parse(members: &Map<String, Value>) -> Result<Self> {
        let mut entries = members.iter();
        let (Some((name, options)), None) = (entries.next(), entries.next()) else {
            return Err(Error::Parsing("suggester[phrase] expects one smoothing model".to_owned()));
        };
        let options = json::object(name, options)?;
        let number = |key: &str, default: f64| -> Result<f64> {
            match options.get(key) {
                None => Ok(default),
                Some(value) => Ok(f64::from(json::float(value)?)),
            }
        };
        let only = |known: &[&str]| match options.keys().find(|key| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => Err(Error::unknown_member(name, key)),
        };
        match name.as_str() {
            "stupid_backoff" => {
                only(&["discount"])?;
                Ok(Self::StupidBackoff(number("discount", 0.4)?))
            }
            "laplace" => {
                only(&["alpha"])?;
                Ok(Self::Laplace(number("alpha", 0.5)?))
            }
            "linear" => {
                only(&["trigram_lambda", "bigram_lambda", "unigram_lambda"])?;
                let (trigram, bigram, unigram) = (
                    number("trigram_lambda", 0.0)?,
                    number("bigram_lambda", 0.0)?,
                    number("unigram_lambda", 0.0)?,
                );
                if (trigram + bigram + unigram - 1.0).abs() > 0.001 {
                    return Err(Error::IllegalArgument("linear smoothing lambdas must sum to 1".to_owned()));
                }
                Ok(Self::Linear { trigram, bigram, unigram })
            }
            other => Err(Error::IllegalArgument(format!(
                "suggester[phrase] doesn't support object field [{other}]"
            ))),
        }
    }
}

impl PhraseSuggester {
    pub(super) fn parse(options: &Map<String, Value>) -> Result<Self> {
        let mut suggester = Self {
            field: String::new(),
            analyzer: None,
            size: 5,
            shard_size: 5,
            gram_size: None,
            real_word_likelihood: 0.95,
            confidence: 1.0,
            max_errors: 1.0,
            separator: " ".to_owned(),
            force_unigrams: true,
            token_limit: 10,
            generators: Vec::new(),
            smoothing: Smoothing::StupidBackoff(0.4),
            highlight: None,
        };
        let (mut field, mut shard_size) = (None, None);
        for (key, value) in options {
            match key.as_str() {
                "field" => field = Some(name_of(value, key)?),
                "analyzer" => suggester.analyzer = Some(name_of(value, key)?),
                "size" => suggester.size = size("size", value)?,
                "shard_size" => shard_size = Some(size("shardSize", value)?),
                "gram_size" => suggester.gram_size = Some(size("gramSize", value)?),
                "real_word_error_likelihood" => {
                    suggester.real_word_likelihood = f64::from(json::float(value)?);
                    if suggester.real_word_likelihood <= 0.0 {
                        return Err(Error::IllegalArgument(
                            "real_word_error_likelihood must be > 0.0".to_owned(),
                        ));
                    }
                }
                "confidence" => {
                    suggester.confidence = f64::from(json::float(value)?);
                    if suggester.confidence < 0.0 {
                        return Err(Error::IllegalArgument("confidence must be >= 0.0".to_owned()));
                    }
                }
                "max_errors" => {
                    suggester.max_errors = json::float(value)?;
                    if suggester.max_errors.is_nan() || suggester.max_errors <= 0.0 {
                        return Err(Error::IllegalArgument("max_error must be > 0.0".to_owned()));
                    }
                }
                "separator" => suggester.separator = name_of(value, key)?,
                "force_unigrams" => suggester.force_unigrams = json::boolean(value)?,
                "token_limit" => suggester.token_limit = size("token_limit", value)?,
                "direct_generator" => {
                    let items = match value {
                        Value::Array(items) => items.as_slice(),
                        one => std::slice::from_ref(one),
                    };
                    if items.len() > MAX_GENERATORS {
                        return Err(Error::IllegalArgument(format!(
                            "too many generators: {} given, at most {MAX_GENERATORS} allowed",
                            items.len()
                        )));
                    }
                    for item in items {
                        suggester.generators.push(Generator::parse(json::object("direct_generator", item)?)?);
                    }
                }
                "smoothing" => suggester.smoothing = Smoothing::parse(json::object(key, value)?)?,
                "highlight" => {
                    let members = json::object(key, value)?;
                    let tag = |name: &str| members.get(name).and_then(json::text).unwrap_or_default();
                    if let Some(unknown) =
                        members.keys().find(|key| !matches!(key.as_str(), "pre_tag" | "post_tag"))
                    {
                        return Err(Error::IllegalArgument(format!(
                            "suggester[phrase][highlight] doesn't support field [{unknown}]"
                        )));
                    }
                    suggester.highlight = Some((tag("pre_tag"), tag("post_tag")));
                }
                "collate" => {
                    return Err(Error::IllegalArgument(
                        "suggester[phrase] doesn't support [collate]: its query is a script, and scripts are not supported by this server"
                            .to_owned(),
                    ));
                }
                _ => {
                    return Err(Error::Parsing(format!("suggester[phrase] doesn't support field [{key}]")));
                }
            }
        }
        suggester.field = required_field(field)?;
        suggester.shard_size = shard_size.unwrap_or(suggester.size.max(5));
        Ok(suggester)
    }
}
