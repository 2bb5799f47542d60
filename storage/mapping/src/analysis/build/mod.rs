//! Building components from their settings: one file a kind.
//!
//! A component is found by name among those of the settings first, then among those that every index
//! has; one that needs settings is not found without. A type that is not built is refused with
//! OpenSearch's message: a component that did something else than its name says would corrupt an index
//! silently.

mod analyzers;
mod char_filters;
mod filters;
mod stemmers;
mod tokenizers;

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_runtime::{Error, Result};
use serde_json::{Map, Value};

use super::analyzer::AnalyzerComponents;
use super::char_filter::CharFilter;
use super::filter::{Filter, InSynonyms};
use super::settings::{Params, components};
use super::tokenizer::{Keyword, Tokenizer};
use super::{Analyzer, Component};

pub(super) use analyzers::{BUILT_IN, built_in};

/// Deepest nesting of filters within filters (`multiplexer`).
const MAX_DEPTH: usize = 8;

/// The configured components that an analyzer may name, and the limits on them.
#[derive(Debug)]
pub(super) struct Scope {
    tokenizers: BTreeMap<String, Params>,
    filters: BTreeMap<String, Params>,
    char_filters: BTreeMap<String, Params>,
    max_ngram_diff: i64,
    max_shingle_diff: i64,
    /// `true` if it is that of an index: messages differ.
    index: bool,
}

/// Components in the order in which they apply, with their names.
type NamedComponents<T> = Vec<(String, Arc<T>)>;

/// Chain before a filter, by which synonym rules are analyzed.
#[derive(Clone, Copy)]
struct PrecedingChain<'a> {
    char_filters: &'a [Arc<dyn CharFilter>],
    tokenizer: &'a Arc<dyn Tokenizer>,
    filters: &'a [(String, Arc<dyn Filter>)],
    depth: usize,
}

impl Scope {
    pub(super) fn new(settings: &Map<String, Value>, index: bool) -> Result<Self> {
        let limit = |name: &str, default: i64| -> Result<i64> {
            match settings.get(name) {
                None | Some(Value::Null) => Ok(default),
                Some(value) => {
                    value.as_str().map_or_else(|| value.as_i64(), |text| text.parse().ok()).ok_or_else(|| {
                        Error::IllegalArgument(format!(
                            "Failed to parse value [{value}] for setting [{name}]"
                        ))
                    })
                }
            }
        };
        Ok(Self {
            tokenizers: components(settings, "tokenizer"),
            filters: components(settings, "filter"),
            char_filters: components(settings, "char_filter"),
            max_ngram_diff: limit("index.max_ngram_diff", 1)?,
            max_shingle_diff: limit("index.max_shingle_diff", 3)?,
            index,
        })
    }

    /// Refuses a broken component even where nothing refers to it, as OpenSearch does.
    pub(super) fn check(&self) -> Result<()> {
        for params in self.tokenizers.values() {
            self.typed_tokenizer(params)?;
        }
        for params in self.char_filters.values() {
            typed_char_filter(params)?;
        }
        let tokenizer: Arc<dyn Tokenizer> = Arc::new(Keyword);
        let before = PrecedingChain { char_filters: &[], tokenizer: &tokenizer, filters: &[], depth: 0 };
        for params in self.filters.values() {
            // Synonyms are analyzed by the chain that they are put into.
            if !matches!(params.type_name(), Some("synonym" | "synonym_graph" | "multiplexer")) {
                self.typed_filter(params, before)?;
            }
        }
        Ok(())
    }

    fn typed_tokenizer(&self, params: &Params) -> Result<Arc<dyn Tokenizer>> {
        let kind = type_of(params, "tokenizer")?;
        tokenizers::build(kind, params, self)?.ok_or_else(|| unknown_type("tokenizer", kind, params))
    }

    fn typed_filter(&self, params: &Params, before: PrecedingChain<'_>) -> Result<Arc<dyn Filter>> {
        let kind = type_of(params, "filter")?;
        filters::build(kind, params, self, before)?.ok_or_else(|| unknown_type("filter", kind, params))
    }

    fn named_tokenizer(&self, name: &str) -> Result<Option<Arc<dyn Tokenizer>>> {
        match self.tokenizers.get(name) {
            Some(params) => self.typed_tokenizer(params).map(Some),
            None => tokenizers::build(name, &Params::unconfigured(name), self),
        }
    }

    fn named_filter(&self, name: &str, before: PrecedingChain<'_>) -> Result<Option<Arc<dyn Filter>>> {
        match self.filters.get(name) {
            Some(params) => self.typed_filter(params, before).map(Some),
            None => filters::preconfigured(name, self, before),
        }
    }

    fn named_char_filter(&self, name: &str) -> Result<Option<Arc<dyn CharFilter>>> {
        match self.char_filters.get(name) {
            Some(params) => typed_char_filter(params).map(Some),
            None => char_filters::build(name, &Params::unconfigured(name)),
        }
    }

    /// `type: custom` of the settings, and any other type.
    pub(super) fn analyzer(&self, params: &Params) -> Result<Analyzer> {
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
        if kind != "custom" {
            return analyzers::build(kind, params)?.ok_or_else(|| unknown_type("analyzer", kind, params));
        }
        let Some(tokenizer_name) = params.string("tokenizer") else {
            return Err(Error::IllegalArgument(format!(
                "Custom Analyzer [{}] must be configured with a tokenizer",
                params.name
            )));
        };
        let what = "Custom Analyzer";
        let tokenizer = self.named_tokenizer(&tokenizer_name)?.ok_or_else(|| {
            Error::IllegalArgument(format!(
                "{what} [{}] failed to find tokenizer under name [{tokenizer_name}]",
                params.name
            ))
        })?;
        let (char_filters, filters) = self.named_parts(what, params, &tokenizer)?;
        let gap = params
            .string("position_increment_gap")
            .map(|_| params.length("position_increment_gap", 100, 0))
            .transpose()?
            .map(|gap| u32::try_from(gap).unwrap_or(u32::MAX));
        Ok(assemble(char_filters, (tokenizer_name, tokenizer), filters).with_position_increment_gap(gap))
    }

    fn named_parts(
        &self,
        what: &str,
        params: &Params,
        tokenizer: &Arc<dyn Tokenizer>,
    ) -> Result<(NamedComponents<dyn CharFilter>, NamedComponents<dyn Filter>)> {
        let mut char_filters = Vec::new();
        for name in params.list("char_filter").unwrap_or_default() {
            let filter = self.named_char_filter(&name)?.ok_or_else(|| {
                Error::IllegalArgument(format!(
                    "{what} [{}] failed to find char_filter under name [{name}]",
                    params.name
                ))
            })?;
            char_filters.push((name, filter));
        }
        let plain: Vec<Arc<dyn CharFilter>> = char_filters.iter().map(|(_, filter)| filter.clone()).collect();
        let mut filters: NamedComponents<dyn Filter> = Vec::new();
        for name in params.list("filter").unwrap_or_default() {
            let before = PrecedingChain { char_filters: &plain, tokenizer, filters: &filters, depth: 0 };
            let filter = self.named_filter(&name, before)?.ok_or_else(|| {
                Error::IllegalArgument(format!(
                    "{what} [{}] failed to find filter under name [{name}]",
                    params.name
                ))
            })?;
            filters.push((name, filter));
        }
        Ok((char_filters, filters))
    }

    /// A normalizer of the settings.
    pub(super) fn normalizer(&self, params: &Params) -> Result<Analyzer> {
        let keyword: Arc<dyn Tokenizer> = Arc::new(Keyword);
        match params.type_name() {
            None | Some("custom") => {}
            Some("lowercase") => return Ok(lowercase_normalizer()),
            Some(unknown) => return Err(unknown_type("normalizer", unknown, params)),
        }
        if params.string("tokenizer").is_some() {
            return Err(Error::IllegalArgument(format!(
                "Custom normalizer [{}] cannot configure a tokenizer",
                params.name
            )));
        }
        let (char_filters, filters) = self.named_parts("Custom normalizer", params, &keyword)?;
        let refused = |kind: &str, name: &str| {
            Error::IllegalArgument(format!("Custom normalizer [{}] may not use {kind} [{name}]", params.name))
        };
        if let Some((name, _)) = char_filters.iter().find(|(_, filter)| !filter.is_normalizing()) {
            return Err(refused("char filter", name));
        }
        if let Some((name, _)) = filters.iter().find(|(_, filter)| !filter.is_normalizing()) {
            return Err(refused("filter", name));
        }
        Ok(assemble(char_filters, ("keyword".to_owned(), keyword), filters))
    }

    /// The analyzer of an `_analyze` request; without a tokenizer it is a normalizer.
    pub(super) fn request(
        &self,
        tokenizer: Option<&Component>,
        char_filters: &[Component],
        filters: &[Component],
    ) -> Result<Analyzer> {
        let normalizing = tokenizer.is_none();
        let missing = |kind: &str, name: &str| {
            let global = if self.index { "" } else { "global " };
            Error::IllegalArgument(format!("failed to find {global}{kind} under [{name}]"))
        };
        let tokenizer = match tokenizer {
            None => ("keyword".to_owned(), Arc::new(Keyword) as Arc<dyn Tokenizer>),
            Some(Component::Named(name)) => {
                (name.clone(), self.named_tokenizer(name)?.ok_or_else(|| missing("tokenizer", name))?)
            }
            Some(Component::Inline(definition)) => {
                let (name, kind, params) = anonymous("tokenizer", definition)?;
                let made =
                    tokenizers::build(&kind, &params, self)?.ok_or_else(|| missing("tokenizer", &kind))?;
                (name, made)
            }
        };
        let mut made_char_filters: NamedComponents<dyn CharFilter> = Vec::new();
        for component in char_filters {
            let (name, filter) = match component {
                Component::Named(name) => {
                    (name.clone(), self.named_char_filter(name)?.ok_or_else(|| missing("char_filter", name))?)
                }
                Component::Inline(definition) => {
                    let (name, kind, params) = anonymous("char_filter", definition)?;
                    (name, char_filters::build(&kind, &params)?.ok_or_else(|| missing("char_filter", &kind))?)
                }
            };
            made_char_filters.push((name, filter));
        }
        let plain: Vec<Arc<dyn CharFilter>> =
            made_char_filters.iter().map(|(_, filter)| filter.clone()).collect();
        let mut made_filters: NamedComponents<dyn Filter> = Vec::new();
        for component in filters {
            let before = PrecedingChain {
                char_filters: &plain,
                tokenizer: &tokenizer.1,
                filters: &made_filters,
                depth: 0,
            };
            let (name, filter) = match component {
                Component::Named(name) => {
                    (name.clone(), self.named_filter(name, before)?.ok_or_else(|| missing("filter", name))?)
                }
                Component::Inline(definition) => {
                    let (name, kind, params) = anonymous("filter", definition)?;
                    let made = filters::build(&kind, &params, self, before)?;
                    (name, made.ok_or_else(|| missing("filter", &kind))?)
                }
            };
            if normalizing && !filter.is_normalizing() {
                return Err(Error::IllegalArgument(format!("Custom normalizer may not use filter [{name}]")));
            }
            made_filters.push((name, filter));
        }
        Ok(assemble(made_char_filters, tokenizer, made_filters))
    }
}

/// The normalizer that every index has.
pub(super) fn lowercase_normalizer() -> Analyzer {
    Analyzer::new(Arc::new(Keyword), vec![Arc::new(super::filter::Lowercase)])
}

fn assemble(
    char_filters: NamedComponents<dyn CharFilter>,
    tokenizer: (String, Arc<dyn Tokenizer>),
    filters: NamedComponents<dyn Filter>,
) -> Analyzer {
    let (char_filter_names, char_filters) = char_filters.into_iter().unzip();
    let (filter_names, filters) = filters.into_iter().unzip();
    Analyzer::with_char_filters(char_filters, tokenizer.1, filters).with_parts(AnalyzerComponents {
        char_filters: char_filter_names,
        tokenizer: tokenizer.0,
        filters: filter_names,
    })
}

fn typed_char_filter(params: &Params) -> Result<Arc<dyn CharFilter>> {
    let kind = type_of(params, "char_filter")?;
    char_filters::build(kind, params)?.ok_or_else(|| unknown_type("char_filter", kind, params))
}

fn type_of<'p>(params: &'p Params, kind: &str) -> Result<&'p str> {
    params.type_name().ok_or_else(|| {
        Error::IllegalArgument(format!(
            "{kind} [{}] must specify either an analyzer type, or a tokenizer",
            params.name
        ))
    })
}

fn unknown_type(kind: &str, given: &str, params: &Params) -> Error {
    Error::IllegalArgument(format!("Unknown {kind} type [{given}] for [{}]", params.name))
}

/// Name, type and parameters of a component that a request defines.
fn anonymous(kind: &str, definition: &Map<String, Value>) -> Result<(String, String, Params)> {
    let params = Params::inline(definition);
    match params.type_name() {
        Some(given) => Ok((params.name.clone(), given.to_owned(), params)),
        None => Err(Error::IllegalArgument(format!(
            "Missing [type] setting for anonymous {kind}: {}",
            params.to_json()
        ))),
    }
}

impl PrecedingChain<'_> {
    /// The chain that the terms of synonym rules go through.
    fn for_synonyms(&self, tokenizer: Option<Arc<dyn Tokenizer>>) -> Result<Analyzer> {
        let mut filters = Vec::with_capacity(self.filters.len());
        for (name, filter) in self.filters {
            match filter.in_synonyms() {
                InSynonyms::Same => filters.push(filter.clone()),
                InSynonyms::Nothing => {}
                InSynonyms::Other(other) => filters.push(other),
                InSynonyms::Refused => {
                    return Err(Error::IllegalArgument(format!(
                        "Token filter [{name}] cannot be used to parse synonyms"
                    )));
                }
            }
        }
        let tokenizer = tokenizer.unwrap_or_else(|| self.tokenizer.clone());
        Ok(Analyzer::with_char_filters(self.char_filters.to_vec(), tokenizer, filters))
    }
}

/// Refuses a component that is named without having been configured.
fn needs_settings(params: &Params) -> Result<()> {
    if params.is_unconfigured() {
        return Err(Error::IllegalArgument(
            "Analysis settings required - can't instantiate analysis factory".to_owned(),
        ));
    }
    Ok(())
}
