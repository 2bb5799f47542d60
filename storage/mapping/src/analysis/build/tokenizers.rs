//! Tokenizers by type.

use std::sync::Arc;

use millrace_runtime::{Error, Result};

use super::Scope;
use crate::analysis::char_filter::unescape;
use crate::analysis::filter::lowercase;
use crate::analysis::settings::Params;
use crate::analysis::tokenizer::{
    CharClass, CharTokenizer, Classic, DEFAULT_MAX_TOKEN_LENGTH, Keyword, NGram, PathHierarchy, Pattern,
    Separators, SimplePattern, Standard, TokenChars, Tokenizer, UrlEmail,
};

/// Lucene's bound on `max_token_length`.
const MAX_MAX_TOKEN_LENGTH: usize = 1_048_576;

/// Java's `\W+`, the default of everything called `pattern`.
pub(super) const NON_WORD: &str = "\\W+";

/// Builds a tokenizer; `None` where the type is unknown.
pub(super) fn build(kind: &str, params: &Params, scope: &Scope) -> Result<Option<Arc<dyn Tokenizer>>> {
    Ok(Some(match kind {
        "standard" => Arc::new(Standard { max_token_length: max_token_length(params)? }),
        "uax_url_email" => Arc::new(UrlEmail::new(max_token_length(params)?)),
        "whitespace" => Arc::new(CharTokenizer {
            class: CharClass::NotWhitespace,
            max_token_length: max_token_length(params)?,
        }),
        "letter" => Arc::new(letters()),
        "lowercase" => Arc::new(LowercaseLetters(letters())),
        "keyword" => Arc::new(Keyword),
        "char_group" => {
            let separators = separators(params)?;
            Arc::new(CharTokenizer {
                class: CharClass::Except(separators),
                max_token_length: max_token_length(params)?,
            })
        }
        "classic" => Arc::new(Classic { max_token_length: max_token_length(params)? }),
        "pattern" => {
            let pattern = params.string("pattern").unwrap_or_else(|| NON_WORD.to_owned());
            let flags = params.string("flags").unwrap_or_default();
            Arc::new(Pattern::new(&pattern, &flags, params.integer("group", -1)?)?)
        }
        "simple_pattern" | "simple_pattern_split" => {
            let pattern = params.string("pattern").unwrap_or_default();
            Arc::new(SimplePattern::new(&pattern, kind == "simple_pattern_split")?)
        }
        "ngram" | "nGram" => {
            let (min, max) = gram_range(params, 1, 2)?;
            check_ngram_diff(min, max, scope.max_ngram_diff, "NGram Tokenizer")?;
            Arc::new(NGram { min, max, edges_only: false, chars: token_chars(params)? })
        }
        "edge_ngram" | "edgeNGram" => {
            let (min, max) = gram_range(params, 1, 2)?;
            Arc::new(NGram { min, max, edges_only: true, chars: token_chars(params)? })
        }
        "path_hierarchy" | "PathHierarchy" => {
            let delimiter = one_character(params, "delimiter")?.unwrap_or('/');
            Arc::new(PathHierarchy {
                delimiter,
                replacement: one_character(params, "replacement")?.unwrap_or(delimiter),
                skip: params.length("skip", 0, 0)?,
                reverse: params.boolean("reverse", false)?,
            })
        }
        _ => return Ok(None),
    }))
}

pub(super) fn letters() -> CharTokenizer {
    CharTokenizer { class: CharClass::Letter, max_token_length: DEFAULT_MAX_TOKEN_LENGTH }
}

pub(super) fn max_token_length(params: &Params) -> Result<usize> {
    let length = params.integer("max_token_length", DEFAULT_MAX_TOKEN_LENGTH as i64)?;
    usize::try_from(length).ok().filter(|length| (1..=MAX_MAX_TOKEN_LENGTH).contains(length)).ok_or_else(
        || {
            Error::IllegalArgument(format!(
                "maxTokenLength must be greater than 0 and less than {MAX_MAX_TOKEN_LENGTH} passed: {length}"
            ))
        },
    )
}

/// `min_gram` and `max_gram`.
pub(super) fn gram_range(params: &Params, min: i64, max: i64) -> Result<(usize, usize)> {
    let (min, max) = (params.integer("min_gram", min)?, params.integer("max_gram", max)?);
    if min < 1 {
        return Err(Error::IllegalArgument("minGram must be greater than zero".to_owned()));
    }
    if min > max {
        return Err(Error::IllegalArgument("minGram must not be greater than maxGram".to_owned()));
    }
    let size = |n: i64| usize::try_from(n).unwrap_or(usize::MAX);
    Ok((size(min), size(max)))
}

pub(super) fn check_ngram_diff(min: usize, max: usize, limit: i64, what: &str) -> Result<()> {
    let difference = i64::try_from(max - min).unwrap_or(i64::MAX);
    if difference > limit {
        return Err(Error::IllegalArgument(format!(
            "The difference between max_gram and min_gram in {what} must be less than or equal to: [{limit}] but \
             was [{difference}]. This limit can be set by changing the [index.max_ngram_diff] index level setting."
        )));
    }
    Ok(())
}

fn one_character(params: &Params, name: &str) -> Result<Option<char>> {
    let Some(text) = params.string(name) else { return Ok(None) };
    let mut characters = text.chars();
    match (characters.next(), characters.next()) {
        (Some(c), None) => Ok(Some(c)),
        _ => Err(Error::IllegalArgument(format!("{name} must be a one char value"))),
    }
}

fn token_chars(params: &Params) -> Result<TokenChars> {
    let mut chars = TokenChars::default();
    for class in params.list("token_chars").unwrap_or_default() {
        match class.to_lowercase().as_str() {
            "letter" => chars.letter = true,
            "digit" => chars.digit = true,
            "whitespace" => chars.whitespace = true,
            "punctuation" => chars.punctuation = true,
            "symbol" => chars.symbol = true,
            "custom" => {
                let custom = params.string("custom_token_chars").ok_or_else(|| {
                    Error::IllegalArgument(
                        "Token type: 'custom' requires setting `custom_token_chars`".to_owned(),
                    )
                })?;
                chars.custom.extend(custom.chars());
            }
            other => {
                return Err(Error::IllegalArgument(format!(
                    "Unknown token type: '{other}', must be one of [symbol, private_use, paragraph_separator, \
                     start_punctuation, unassigned, enclosing_mark, connector_punctuation, letter_number, \
                     other_number, math_symbol, lowercase_letter, space_separator, surrogate, \
                     initial_quote_punctuation, decimal_digit_number, digit, other_punctuation, dash_punctuation, \
                     currency_symbol, non_spacing_mark, format, modifier_letter, control, uppercase_letter, \
                     other_symbol, end_punctuation, modifier_symbol, other_letter, line_separator, titlecase_letter, \
                     letter, punctuation, combining_spacing_mark, final_quote_punctuation, whitespace]"
                )));
            }
        }
    }
    Ok(chars)
}

fn separators(params: &Params) -> Result<Separators> {
    let Some(given) = params.raw_list("tokenize_on_chars").filter(|given| !given.is_empty()) else {
        return Err(Error::IllegalArgument("[tokenize_on_chars] must not be empty".to_owned()));
    };
    let mut separators = Separators::default();
    for text in given {
        let mut characters = text.chars();
        match (characters.next(), characters.next()) {
            (None, _) => {
                return Err(Error::IllegalArgument(
                    "[tokenize_on_chars] cannot contain empty characters".to_owned(),
                ));
            }
            (Some(c), None) => separators.characters.push(c),
            (Some('\\'), Some(_)) => separators.characters.extend(unescape(&text)?.chars()),
            _ => match text.as_str() {
                "letter" => separators.letter = true,
                "digit" => separators.digit = true,
                "whitespace" => separators.whitespace = true,
                "punctuation" => separators.punctuation = true,
                "symbol" => separators.symbol = true,
                _ => {
                    return Err(Error::IllegalArgument(format!("Invalid escaped char in [{text}]")));
                }
            },
        }
    }
    Ok(separators)
}

/// The `lowercase` tokenizer: letters, lower-cased.
#[derive(Debug)]
pub(super) struct LowercaseLetters(CharTokenizer);

impl Tokenizer for LowercaseLetters {
    fn tokenize(&self, text: &str, sink: &mut dyn FnMut(&mut crate::analysis::Token)) -> u32 {
        self.0.tokenize(text, &mut |token| {
            lowercase::apply(token);
            sink(token);
        })
    }
}
