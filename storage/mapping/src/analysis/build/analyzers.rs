//! Analyzers by type, those of languages among them.

use std::sync::Arc;

use millrace_runtime::{Error, Result};

use super::stemmers::{light, snowball_filter};
use super::tokenizers::{NON_WORD, letters, max_token_length};
use crate::analysis::Analyzer;
use crate::analysis::char_filter::{CharFilter, Mapping};
use crate::analysis::filter::{
    Apostrophe, AsciiFolding, Characters, CjkBigram, Elision, EnglishPossessive, Filter, Fingerprint,
    KeywordMarker, Lowercase, LowercaseLanguage, PorterStem, StemmerOverride, Stop,
};
use crate::analysis::language::{articles, normalization, stop_words};
use crate::analysis::settings::Params;
use crate::analysis::tokenizer::{
    CharClass, CharTokenizer, DEFAULT_MAX_TOKEN_LENGTH, Keyword, Pattern, Standard, Tokenizer,
};

/// The analyzers that every index has by name.
pub(in crate::analysis) const BUILT_IN: &[&str] = &[
    "arabic",
    "armenian",
    "basque",
    "bengali",
    "brazilian",
    "bulgarian",
    "catalan",
    "chinese",
    "cjk",
    "czech",
    "danish",
    "dutch",
    "english",
    "estonian",
    "fingerprint",
    "finnish",
    "french",
    "galician",
    "german",
    "greek",
    "hindi",
    "hungarian",
    "indonesian",
    "irish",
    "italian",
    "keyword",
    "latvian",
    "lithuanian",
    "norwegian",
    "pattern",
    "persian",
    "portuguese",
    "romanian",
    "russian",
    "simple",
    "snowball",
    "sorani",
    "spanish",
    "standard",
    "stop",
    "swedish",
    "turkish",
    "whitespace",
];

/// Builds one of [`BUILT_IN`].
pub(in crate::analysis) fn built_in(name: &str) -> Result<Option<Analyzer>> {
    build(name, &Params::unconfigured(name))
}

fn standard() -> Arc<dyn Tokenizer> {
    Arc::new(Standard { max_token_length: DEFAULT_MAX_TOKEN_LENGTH })
}

/// Builds an analyzer; `None` where the type is unknown.
pub(super) fn build(kind: &str, params: &Params) -> Result<Option<Analyzer>> {
    Ok(Some(match kind {
        "standard" => {
            let tokenizer = Arc::new(Standard { max_token_length: max_token_length(params)? });
            with_stop_words(tokenizer, vec![Arc::new(Lowercase)], params.stop_words("_none_")?)
        }
        "chinese" => with_stop_words(standard(), vec![Arc::new(Lowercase)], params.stop_words("_english_")?),
        "simple" => Analyzer::new(Arc::new(letters()), vec![Arc::new(Lowercase)]),
        "whitespace" => Analyzer::new(
            Arc::new(CharTokenizer {
                class: CharClass::NotWhitespace,
                max_token_length: max_token_length(params)?,
            }),
            vec![],
        ),
        "keyword" => Analyzer::new(Arc::new(Keyword), vec![]),
        "stop" => {
            with_stop_words(Arc::new(letters()), vec![Arc::new(Lowercase)], params.stop_words("_english_")?)
        }
        "pattern" => {
            let pattern = params.string("pattern").unwrap_or_else(|| NON_WORD.to_owned());
            let tokenizer = Pattern::new(&pattern, &params.string("flags").unwrap_or_default(), -1)?;
            let mut filters: Vec<Arc<dyn Filter>> = vec![];
            if params.boolean("lowercase", true)? {
                filters.push(Arc::new(Lowercase));
            }
            with_stop_words(Arc::new(tokenizer), filters, params.stop_words("_none_")?)
        }
        "fingerprint" => {
            let separator = params.string("separator").unwrap_or_else(|| " ".to_owned());
            let mut characters = separator.chars();
            let (Some(separator), None) = (characters.next(), characters.next()) else {
                return Err(Error::IllegalArgument(
                    "Setting [separator] must be a single, non-null character.".to_owned(),
                ));
            };
            let max_output_size = params.length("max_output_size", 255, 0)?;
            let mut filters: Vec<Arc<dyn Filter>> =
                vec![Arc::new(Lowercase), Arc::new(AsciiFolding { preserve_original: false })];
            let words = params.stop_words("_none_")?;
            if !words.is_empty() {
                filters.push(Arc::new(Stop::new(words, false)));
            }
            filters.push(Arc::new(Fingerprint { separator, max_output_size }));
            Analyzer::new(standard(), filters)
        }
        "snowball" => {
            let language = params.string("language").or_else(|| params.string("name"));
            let language = language.unwrap_or_else(|| "English".to_owned());
            let stemmer = snowball_filter(&language).ok_or_else(|| {
                Error::IllegalArgument(format!("Invalid stemmer class specified: {language}"))
            })?;
            let default = match language.as_str() {
                "English" | "Dutch" | "German" | "German2" | "French" => {
                    format!("_{}_", language.to_lowercase())
                }
                _ => "_none_".to_owned(),
            };
            let mut filters: Vec<Arc<dyn Filter>> = vec![];
            if language == "English" {
                filters.push(Arc::new(EnglishPossessive));
            }
            filters.push(if language == "Turkish" {
                Arc::new(LowercaseLanguage::Turkish) as Arc<dyn Filter>
            } else {
                Arc::new(Lowercase)
            });
            let words = params.stop_words(&default)?;
            if !words.is_empty() {
                filters.push(Arc::new(Stop::new(words, false)));
            }
            filters.push(stemmer);
            Analyzer::new(standard(), filters)
        }
        language => return of_language(language, params),
    }))
}

fn with_stop_words(
    tokenizer: Arc<dyn Tokenizer>,
    mut filters: Vec<Arc<dyn Filter>>,
    words: Vec<String>,
) -> Analyzer {
    if !words.is_empty() {
        filters.push(Arc::new(Stop::new(words, false)));
    }
    Analyzer::new(tokenizer, filters)
}

/// Filters before and behind the stop words in the analyzer of a language.
struct Chain {
    before: Vec<Arc<dyn Filter>>,
    /// Behind the stop words and the words that are not stemmed.
    after: Vec<Arc<dyn Filter>>,
}

fn of_language(language: &str, params: &Params) -> Result<Option<Analyzer>> {
    let lowercase = || Arc::new(Lowercase) as Arc<dyn Filter>;
    let snowball = |name: &str| snowball_filter(name).into_iter().collect::<Vec<_>>();
    let elision = || Arc::new(Elision::new(articles(language), true)) as Arc<dyn Filter>;
    let light = |name: &str| light(name).into_iter().collect::<Vec<_>>();
    let normalize = |name: &str| -> Vec<Arc<dyn Filter>> {
        normalization(name).map(|filter| Arc::new(filter) as Arc<dyn Filter>).into_iter().collect()
    };
    let digits = || Arc::new(Characters::DecimalDigit) as Arc<dyn Filter>;
    if language == "cjk" {
        let kinds = vec!["<IDEOGRAPHIC>", "<HIRAGANA>", "<KATAKANA>", "<HANGUL>"];
        let filters: Vec<Arc<dyn Filter>> = vec![
            Arc::new(Characters::CjkWidth),
            lowercase(),
            Arc::new(CjkBigram { kinds, output_unigrams: false }),
        ];
        let words = match params.words("stopwords")? {
            Some(_) => params.stop_words("_none_")?,
            None => stop_words(language).unwrap_or_default(),
        };
        return Ok(Some(with_stop_words(standard(), filters, words)));
    }
    let mut char_filters: Vec<Arc<dyn CharFilter>> = Vec::new();
    // Normalization that comes behind the stop words, before what is not stemmed.
    let mut between: Vec<Arc<dyn Filter>> = Vec::new();
    let chain = match language {
        "arabic" => {
            between = normalize("arabic_normalization");
            Chain { before: vec![lowercase(), digits()], after: light("arabic") }
        }
        "bengali" => {
            let mut before = vec![lowercase(), digits()];
            let mut after = normalize("indic_normalization");
            after.extend(normalize("bengali_normalization"));
            // What is not stemmed is marked before, stop words go behind the normalization.
            before.extend(marker(params));
            before.extend(after);
            return finish(language, params, char_filters, before, light("bengali")).map(Some);
        }
        "brazilian" => Chain { before: vec![lowercase()], after: light("brazilian") },
        "bulgarian" => Chain { before: vec![lowercase()], after: light("bulgarian") },
        "czech" => Chain { before: vec![lowercase()], after: light("czech") },
        "french" => Chain { before: vec![elision(), lowercase()], after: light("light_french") },
        "galician" => Chain { before: vec![lowercase()], after: light("galician") },
        "german" => {
            let mut after = normalize("german_normalization");
            after.extend(light("light_german"));
            Chain { before: vec![lowercase()], after }
        }
        "greek" => Chain { before: vec![Arc::new(LowercaseLanguage::Greek)], after: light("greek") },
        "hindi" => {
            let mut before = vec![lowercase(), digits()];
            before.extend(marker(params));
            before.extend(normalize("indic_normalization"));
            before.extend(normalize("hindi_normalization"));
            return finish(language, params, char_filters, before, light("hindi")).map(Some);
        }
        "indonesian" => Chain { before: vec![lowercase()], after: light("indonesian") },
        "italian" => Chain { before: vec![elision(), lowercase()], after: light("light_italian") },
        "latvian" => Chain { before: vec![lowercase()], after: light("latvian") },
        "persian" => {
            char_filters.push(Arc::new(Mapping::new(&["\\u200c => \\u0020".to_owned()])?));
            let mut before = vec![lowercase(), digits()];
            before.extend(normalize("arabic_normalization"));
            before.extend(normalize("persian_normalization"));
            return finish(language, params, char_filters, before, Vec::new()).map(Some);
        }
        "portuguese" => Chain { before: vec![lowercase()], after: light("light_portuguese") },
        "sorani" => {
            let mut before = normalize("sorani_normalization");
            before.extend([lowercase(), digits()]);
            Chain { before, after: light("sorani") }
        }
        "spanish" => Chain { before: vec![lowercase()], after: light("light_spanish") },
        "armenian" => Chain { before: vec![lowercase()], after: snowball("Armenian") },
        "basque" => Chain { before: vec![lowercase()], after: snowball("Basque") },
        "catalan" => Chain { before: vec![elision(), lowercase()], after: snowball("Catalan") },
        "danish" => Chain { before: vec![lowercase()], after: snowball("Danish") },
        "dutch" => {
            let rules = ["fiets => fiets", "bromfiets => bromfiets", "ei => eier", "kind => kinder"];
            let stems = StemmerOverride::new(&rules.map(str::to_owned))?;
            let mut after: Vec<Arc<dyn Filter>> = vec![Arc::new(stems)];
            after.extend(snowball_filter("Dutch"));
            Chain { before: vec![lowercase()], after }
        }
        "english" => Chain {
            before: vec![Arc::new(EnglishPossessive), lowercase()],
            after: vec![Arc::new(PorterStem)],
        },
        "estonian" => Chain { before: vec![lowercase()], after: snowball("Estonian") },
        "finnish" => Chain { before: vec![lowercase()], after: snowball("Finnish") },
        "hungarian" => Chain { before: vec![lowercase()], after: snowball("Hungarian") },
        "irish" => {
            let hyphens = Stop::new(["h", "n", "t"].map(str::to_owned).to_vec(), true);
            Chain {
                before: vec![Arc::new(hyphens), elision(), Arc::new(LowercaseLanguage::Irish)],
                after: snowball("Irish"),
            }
        }
        "lithuanian" => Chain { before: vec![lowercase()], after: snowball("Lithuanian") },
        "norwegian" => Chain { before: vec![lowercase()], after: snowball("Norwegian") },
        "romanian" => Chain { before: vec![lowercase()], after: snowball("Romanian") },
        "russian" => Chain { before: vec![lowercase()], after: snowball("Russian") },
        "swedish" => Chain { before: vec![lowercase()], after: snowball("Swedish") },
        "turkish" => Chain {
            before: vec![Arc::new(Apostrophe), Arc::new(LowercaseLanguage::Turkish)],
            after: snowball("Turkish"),
        },
        _ => return Ok(None),
    };
    let mut after = between;
    after.extend(marker(params));
    after.extend(chain.after);
    finish(language, params, char_filters, chain.before, after).map(Some)
}

/// Marks the words that are not to be stemmed.
fn marker(params: &Params) -> Option<Arc<dyn Filter>> {
    let excluded = params.list("stem_exclusion").filter(|words| !words.is_empty())?;
    Some(Arc::new(KeywordMarker { words: excluded.into_iter().collect(), ignore_case: false, pattern: None }))
}

/// Puts the stop words of a language between two parts of a chain.
fn finish(
    language: &str,
    params: &Params,
    char_filters: Vec<Arc<dyn CharFilter>>,
    mut filters: Vec<Arc<dyn Filter>>,
    after: Vec<Arc<dyn Filter>>,
) -> Result<Analyzer> {
    let words = match params.words("stopwords")? {
        Some(_) => params.stop_words("_none_")?,
        None => stop_words(language).unwrap_or_default(),
    };
    filters.push(Arc::new(Stop::new(words, false)));
    filters.extend(after);
    Ok(Analyzer::with_char_filters(char_filters, standard(), filters))
}
