//! The analyzers and normalizers of an index, by name.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use serde_json::{Map, Value};

use super::Analyzer;
use super::filter::{
    AsciiFolding, EnglishPossessive, Filter, Length, Lowercase, PorterStem, Stop, Truncate, Unique,
    english_stop_words,
};
use super::settings::{Params, components};
use super::tokenizer::{
    CharClass, CharTokenizer, DEFAULT_MAX_TOKEN_LENGTH, Keyword, Pattern, Standard, Tokenizer,
};
use crate::{Error, Result};

/// Lucene's bound on `max_token_length`.
const MAX_MAX_TOKEN_LENGTH: usize = 1_048_576;

/// Java's `\W+`, the default of everything called `pattern`.
const NON_WORD: &str = "\\W+";

/// The analyzers and normalizers of one index.
#[derive(Debug)]
pub struct Analyzers {
    analyzers: HashMap<String, Analyzer>,
    normalizers: HashMap<String, Analyzer>,
}

impl Analyzers {
    /// Builds the built-in analyzers and those under `index.analysis.*` of the flattened settings.
    ///
    /// `default` and `default_search` are found by [`Analyzers::get`] only where they are configured.
    ///
    /// # Errors
    /// An unknown type, a reference to a component that does not exist, or a parameter that cannot
    /// be used: invalid input with OpenSearch's message.
    pub fn new(settings: &Map<String, Value>) -> Result<Self> {
        let tokenizers = components(settings, "tokenizer");
        let filters = components(settings, "filter");
        // A broken component is refused even where nothing refers to it, as OpenSearch does.
        for params in tokenizers.values() {
            tokenizer(params)?;
        }
        for params in filters.values() {
            filter(params)?;
        }
        if let Some(params) = components(settings, "char_filter").values().next() {
            return Err(Error::IllegalArgument(match params.type_name() {
                Some(kind) => format!("Unknown char_filter type [{kind}] for [{}]", params.name),
                None => format!(
                    "char_filter [{}] must specify either an analyzer type, or a tokenizer",
                    params.name
                ),
            }));
        }
        let scope = Scope { tokenizers, filters };
        let mut analyzers = built_in()?;
        for (name, params) in components(settings, "analyzer") {
            let analyzer = scope.analyzer(&params)?;
            analyzers.insert(name, analyzer);
        }
        let mut normalizers = HashMap::new();
        normalizers
            .insert("lowercase".to_owned(), Analyzer::new(Box::new(Keyword), vec![Box::new(Lowercase)]));
        for (name, params) in components(settings, "normalizer") {
            let normalizer = scope.normalizer(&params)?;
            normalizers.insert(name, normalizer);
        }
        Ok(Self { analyzers, normalizers })
    }

    /// Finds an analyzer by name.
    pub fn get(&self, name: &str) -> Option<&Analyzer> {
        self.analyzers.get(name)
    }

    /// Whether there is a normalizer of that name.
    pub fn has_normalizer(&self, name: &str) -> bool {
        self.normalizers.contains_key(name)
    }

    /// Applies a normalizer to a keyword value; `None` when there is no such normalizer.
    pub fn normalize(&self, name: &str, value: &str) -> Option<String> {
        let mut out = String::new();
        self.normalizers.get(name)?.analyze(value, &mut |token| out.push_str(&token.text));
        Some(out)
    }
}

fn built_in() -> Result<HashMap<String, Analyzer>> {
    let characters = |class| {
        Box::new(CharTokenizer { class, max_token_length: DEFAULT_MAX_TOKEN_LENGTH }) as Box<dyn Tokenizer>
    };
    let standard = || Box::new(Standard { max_token_length: DEFAULT_MAX_TOKEN_LENGTH }) as Box<dyn Tokenizer>;
    let mut analyzers = HashMap::new();
    let mut add = |name: &str, tokenizer, filters| {
        analyzers.insert(name.to_owned(), Analyzer::new(tokenizer, filters));
    };
    add("standard", standard(), vec![Box::new(Lowercase)]);
    add("simple", characters(CharClass::Letter), vec![Box::new(Lowercase)]);
    add("whitespace", characters(CharClass::NotWhitespace), vec![]);
    add("keyword", Box::new(Keyword), vec![]);
    add(
        "stop",
        characters(CharClass::Letter),
        vec![Box::new(Lowercase), Box::new(Stop::new(english_stop_words(), false))],
    );
    add("pattern", Box::new(Pattern::new(NON_WORD, "", -1)?), vec![Box::new(Lowercase)]);
    add("english", standard(), english(english_stop_words()));
    Ok(analyzers)
}

fn english(stop_words: Vec<String>) -> Vec<Box<dyn Filter>> {
    vec![
        Box::new(EnglishPossessive),
        Box::new(Lowercase),
        Box::new(Stop::new(stop_words, false)),
        Box::new(PorterStem),
    ]
}

/// The configured tokenizers and filters that an analyzer may name.
struct Scope {
    tokenizers: BTreeMap<String, Params>,
    filters: BTreeMap<String, Params>,
}

impl Scope {
    fn analyzer(&self, params: &Params) -> Result<Analyzer> {
        let kind = match params.type_name() {
            Some(kind) => kind,
            None if params.string("tokenizer").is_some() => "custom",
            None => {
                return Err(Error::IllegalArgument(format!(
                    "analyzer [{}] must specify either an analyzer type, or a tokenizer",
                    params.name
                )));
            }
        };
        let standard = |params: &Params| -> Result<Box<dyn Tokenizer>> {
            Ok(Box::new(Standard { max_token_length: max_token_length(params)? }))
        };
        let letters =
            Box::new(CharTokenizer { class: CharClass::Letter, max_token_length: DEFAULT_MAX_TOKEN_LENGTH });
        Ok(match kind {
            "custom" => self.custom(params)?,
            "standard" => {
                params.allow(&["stopwords", "max_token_length"])?;
                let filters = with_stop_words(vec![Box::new(Lowercase)], params.stop_words("_none_")?);
                Analyzer::new(standard(params)?, filters)
            }
            "simple" => {
                params.allow(&[])?;
                Analyzer::new(letters, vec![Box::new(Lowercase)])
            }
            "whitespace" => {
                params.allow(&[])?;
                let class = CharClass::NotWhitespace;
                let tokenizer = CharTokenizer { class, max_token_length: DEFAULT_MAX_TOKEN_LENGTH };
                Analyzer::new(Box::new(tokenizer), vec![])
            }
            "keyword" => {
                params.allow(&[])?;
                Analyzer::new(Box::new(Keyword), vec![])
            }
            "stop" => {
                params.allow(&["stopwords"])?;
                let words = params.stop_words("_english_")?;
                Analyzer::new(letters, with_stop_words(vec![Box::new(Lowercase)], words))
            }
            "pattern" => {
                params.allow(&["pattern", "flags", "lowercase", "stopwords"])?;
                let pattern = params.string("pattern").unwrap_or_else(|| NON_WORD.to_owned());
                let tokenizer = Pattern::new(&pattern, &params.string("flags").unwrap_or_default(), -1)?;
                let mut filters: Vec<Box<dyn Filter>> = vec![];
                if params.boolean("lowercase", true)? {
                    filters.push(Box::new(Lowercase));
                }
                Analyzer::new(Box::new(tokenizer), with_stop_words(filters, params.stop_words("_none_")?))
            }
            "english" => {
                params.allow(&["stopwords"])?;
                Analyzer::new(
                    Box::new(Standard { max_token_length: DEFAULT_MAX_TOKEN_LENGTH }),
                    english(params.stop_words("_english_")?),
                )
            }
            unknown => {
                return Err(Error::IllegalArgument(format!(
                    "Unknown analyzer type [{unknown}] for [{}]",
                    params.name
                )));
            }
        })
    }

    /// `type: custom`. The position increment gap belongs to the mapping and is fixed at Lucene's
    /// 100; another value is refused.
    fn custom(&self, params: &Params) -> Result<Analyzer> {
        params.allow(&["tokenizer", "filter", "char_filter", "position_increment_gap"])?;
        if params.integer("position_increment_gap", 100)? != 100 {
            return Err(Error::IllegalArgument(format!(
                "Custom Analyzer [{}] may not set position_increment_gap to another value than 100",
                params.name
            )));
        }
        self.no_char_filters("Custom Analyzer", params)?;
        let Some(name) = params.string("tokenizer") else {
            return Err(Error::IllegalArgument(format!(
                "Custom Analyzer [{}] must be configured with a tokenizer",
                params.name
            )));
        };
        let tokenizer = match self.tokenizers.get(&name) {
            Some(configured) => tokenizer(configured)?,
            None => plain_tokenizer(&name)?.ok_or_else(|| {
                Error::IllegalArgument(format!(
                    "Custom Analyzer [{}] failed to find tokenizer under name [{name}]",
                    params.name
                ))
            })?,
        };
        let filters = self.filters("Custom Analyzer", params)?;
        Ok(Analyzer::new(tokenizer, filters))
    }

    fn normalizer(&self, params: &Params) -> Result<Analyzer> {
        match params.type_name() {
            None | Some("custom") => {}
            Some("lowercase") => {
                params.allow(&[])?;
                return Ok(Analyzer::new(Box::new(Keyword), vec![Box::new(Lowercase)]));
            }
            Some(unknown) => {
                return Err(Error::IllegalArgument(format!(
                    "Unknown normalizer type [{unknown}] for [{}]",
                    params.name
                )));
            }
        }
        params.allow(&["filter", "char_filter"])?;
        self.no_char_filters("Custom normalizer", params)?;
        let filters = self.filters("Custom normalizer", params)?;
        if let Some(at) = filters.iter().position(|filter| !filter.is_normalizing()) {
            let name = params.list("filter").and_then(|names| names.get(at).cloned()).unwrap_or_default();
            return Err(Error::IllegalArgument(format!(
                "Custom normalizer [{}] may not use filter [{name}]",
                params.name
            )));
        }
        Ok(Analyzer::new(Box::new(Keyword), filters))
    }

    fn no_char_filters(&self, what: &str, params: &Params) -> Result<()> {
        match params.list("char_filter").unwrap_or_default().first() {
            None => Ok(()),
            Some(name) => Err(Error::IllegalArgument(format!(
                "{what} [{}] failed to find char_filter under name [{name}]",
                params.name
            ))),
        }
    }

    fn filters(&self, what: &str, params: &Params) -> Result<Vec<Box<dyn Filter>>> {
        let names = params.list("filter").unwrap_or_default();
        names
            .iter()
            .map(|name| match self.filters.get(name) {
                Some(configured) => filter(configured),
                None => plain_filter(name)?.ok_or_else(|| {
                    Error::IllegalArgument(format!(
                        "{what} [{}] failed to find filter under name [{name}]",
                        params.name
                    ))
                }),
            })
            .collect()
    }
}

fn with_stop_words(mut filters: Vec<Box<dyn Filter>>, words: Vec<String>) -> Vec<Box<dyn Filter>> {
    if !words.is_empty() {
        filters.push(Box::new(Stop::new(words, false)));
    }
    filters
}

fn max_token_length(params: &Params) -> Result<usize> {
    let length = params.length("max_token_length", DEFAULT_MAX_TOKEN_LENGTH, 1)?;
    if length > MAX_MAX_TOKEN_LENGTH {
        return Err(Error::IllegalArgument(format!(
            "maxTokenLength must be greater than 0 and less than {MAX_MAX_TOKEN_LENGTH} passed: {length}"
        )));
    }
    Ok(length)
}

/// Parameters of a component that is named without having been configured.
fn unconfigured(kind: &'static str, name: &str) -> Params {
    let mut settings = Map::new();
    settings.insert(format!("index.analysis.{kind}.{name}.type"), Value::String(name.to_owned()));
    components(&settings, kind).remove(name).expect("a group with one parameter was put in")
}

fn plain_tokenizer(name: &str) -> Result<Option<Box<dyn Tokenizer>>> {
    match name {
        "standard" | "whitespace" | "keyword" | "letter" | "lowercase" | "pattern" => {
            tokenizer(&unconfigured("tokenizer", name)).map(Some)
        }
        _ => Ok(None),
    }
}

fn tokenizer(params: &Params) -> Result<Box<dyn Tokenizer>> {
    let Some(kind) = params.type_name() else {
        return Err(Error::IllegalArgument(format!(
            "tokenizer [{}] must specify either an analyzer type, or a tokenizer",
            params.name
        )));
    };
    Ok(match kind {
        "standard" => {
            params.allow(&["max_token_length"])?;
            Box::new(Standard { max_token_length: max_token_length(params)? })
        }
        "whitespace" => {
            params.allow(&["max_token_length"])?;
            let max_token_length = max_token_length(params)?;
            Box::new(CharTokenizer { class: CharClass::NotWhitespace, max_token_length })
        }
        "letter" => {
            params.allow(&[])?;
            Box::new(CharTokenizer { class: CharClass::Letter, max_token_length: DEFAULT_MAX_TOKEN_LENGTH })
        }
        "lowercase" => {
            params.allow(&[])?;
            Box::new(LowercaseLetters(CharTokenizer {
                class: CharClass::Letter,
                max_token_length: DEFAULT_MAX_TOKEN_LENGTH,
            }))
        }
        "keyword" => {
            params.allow(&["buffer_size"])?;
            Box::new(Keyword)
        }
        "pattern" => {
            params.allow(&["pattern", "flags", "group"])?;
            let pattern = params.string("pattern").unwrap_or_else(|| NON_WORD.to_owned());
            let flags = params.string("flags").unwrap_or_default();
            Box::new(Pattern::new(&pattern, &flags, params.integer("group", -1)?)?)
        }
        unknown => {
            return Err(Error::IllegalArgument(format!(
                "Unknown tokenizer type [{unknown}] for [{}]",
                params.name
            )));
        }
    })
}

/// The `lowercase` tokenizer: letters, lower-cased.
#[derive(Debug)]
struct LowercaseLetters(CharTokenizer);

impl Tokenizer for LowercaseLetters {
    fn tokenize(&self, text: &str, sink: &mut dyn FnMut(&mut super::Token)) -> u32 {
        self.0.tokenize(text, &mut |token| {
            super::filter::lowercase::apply(token);
            sink(token);
        })
    }
}

fn plain_filter(name: &str) -> Result<Option<Box<dyn Filter>>> {
    match name {
        "lowercase" | "asciifolding" | "stop" | "porter_stem" | "length" | "truncate" | "unique" => {
            filter(&unconfigured("filter", name)).map(Some)
        }
        _ => Ok(None),
    }
}

fn filter(params: &Params) -> Result<Box<dyn Filter>> {
    let Some(kind) = params.type_name() else {
        return Err(Error::IllegalArgument(format!(
            "filter [{}] must specify either an analyzer type, or a tokenizer",
            params.name
        )));
    };
    Ok(match kind {
        "lowercase" => {
            params.allow(&[])?;
            Box::new(Lowercase)
        }
        "asciifolding" => {
            params.allow(&["preserve_original"])?;
            Box::new(AsciiFolding { preserve_original: params.boolean("preserve_original", false)? })
        }
        "stop" => {
            params.allow(&["stopwords", "ignore_case"])?;
            Box::new(Stop::new(params.stop_words("_english_")?, params.boolean("ignore_case", false)?))
        }
        "porter_stem" | "porterStem" => {
            params.allow(&[])?;
            Box::new(PorterStem)
        }
        "length" => {
            params.allow(&["min", "max"])?;
            let max = usize::try_from(i32::MAX).unwrap_or(usize::MAX);
            Box::new(Length { min: params.length("min", 0, 0)?, max: params.length("max", max, 0)? })
        }
        "truncate" => {
            params.allow(&["length"])?;
            Box::new(Truncate { length: params.length("length", 10, 1)? })
        }
        "unique" => {
            params.allow(&["only_on_same_position"])?;
            Box::new(Unique { only_on_same_position: params.boolean("only_on_same_position", false)? })
        }
        unknown => {
            return Err(Error::IllegalArgument(format!(
                "Unknown filter type [{unknown}] for [{}]",
                params.name
            )));
        }
    })
}
