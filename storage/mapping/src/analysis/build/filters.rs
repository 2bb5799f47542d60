//! Token filters by type.

use std::sync::Arc;

use millrace_runtime::{Error, Result};

use super::tokenizers::{check_ngram_diff, gram_range};
use super::{MAX_DEPTH, PrecedingChain, Scope, needs_settings, stemmers};
use crate::analysis::filter::lowercase::lower;
use crate::analysis::filter::{
    Apostrophe, AsciiFolding, Characters, CjkBigram, ClassicTokens, CommonGrams, Decompounder,
    DelimitedPayload, Edge, Elision, Encoding, Filter, Fingerprint, FlattenGraph, Grams, KeepTypes,
    KeepWords, KeywordMarker, KeywordRepeat, Length, Limit, Lowercase, LowercaseLanguage, MinHash,
    Multiplexer, PatternCapture, PatternReplaceTokens, PorterStem, RemoveDuplicates, Shingle,
    StemmerOverride, Stop, Synonyms, Trim, Truncate, TypeAsPayload, Unique, Uppercase, WordBoundaries,
    WordDelimiter, subword_types,
};
use crate::analysis::language;
use crate::analysis::pattern::JavaPattern;
use crate::analysis::settings::Params;
use crate::analysis::synonyms::Rules;

fn refused(message: impl Into<String>) -> Error {
    Error::IllegalArgument(message.into())
}

/// A filter that is named without having been configured: some differ from those of their type.
pub(super) fn preconfigured(
    name: &str,
    scope: &Scope,
    before: PrecedingChain<'_>,
) -> Result<Option<Arc<dyn Filter>>> {
    Ok(Some(match name {
        "edge_ngram" => Arc::new(Grams { min: 1, max: 1, edge: Edge::Front, preserve_original: false }),
        "edgeNGram" | "nGram" => {
            let new = if name == "nGram" { "ngram" } else { "edge_ngram" };
            return Err(refused(format!(
                "The [{name}] token filter name was deprecated in 6.4 and cannot be used in new indices. Please \
                 change the filter name to [{new}] instead."
            )));
        }
        "elision" => Arc::new(Elision::new(language::french_articles(), true)),
        "keyword_repeat" => Arc::new(KeywordRepeat),
        "common_grams" => {
            Arc::new(CommonGrams { words: Default::default(), ignore_case: false, query_mode: false })
        }
        "truncate" => Arc::new(Truncate { length: 10 }),
        "stemmer" => Arc::new(PorterStem),
        _ => return build(name, &Params::unconfigured(name), scope, before),
    }))
}

/// Builds a filter; `None` where the type is unknown.
pub(super) fn build(
    kind: &str,
    params: &Params,
    scope: &Scope,
    before: PrecedingChain<'_>,
) -> Result<Option<Arc<dyn Filter>>> {
    if let Some(filter) = mapping_characters(kind, params)? {
        return Ok(Some(filter));
    }
    if let Some(filter) = choosing_tokens(kind, params)? {
        return Ok(Some(filter));
    }
    if let Some(filter) = stemmers::build(kind, params)? {
        return Ok(Some(filter));
    }
    combining_tokens(kind, params, scope, before)
}

/// Filters that look at each token by itself.
fn mapping_characters(kind: &str, params: &Params) -> Result<Option<Arc<dyn Filter>>> {
    Ok(Some(match kind {
        "lowercase" => match params.string("language").as_deref() {
            None => Arc::new(Lowercase),
            Some(name) => match name.to_lowercase().as_str() {
                "greek" => Arc::new(LowercaseLanguage::Greek),
                "irish" => Arc::new(LowercaseLanguage::Irish),
                "turkish" => Arc::new(LowercaseLanguage::Turkish),
                _ => return Err(refused(format!("language [{name}] not support for lower case"))),
            },
        },
        "uppercase" => Arc::new(Uppercase),
        "asciifolding" => {
            Arc::new(AsciiFolding { preserve_original: params.boolean("preserve_original", false)? })
        }
        "trim" => Arc::new(Trim),
        "reverse" => Arc::new(Characters::Reverse),
        "decimal_digit" => Arc::new(Characters::DecimalDigit),
        "cjk_width" => Arc::new(Characters::CjkWidth),
        "scandinavian_folding" => Arc::new(Characters::ScandinavianFolding),
        "scandinavian_normalization" => Arc::new(Characters::ScandinavianNormalization),
        "apostrophe" => Arc::new(Apostrophe),
        "classic" => Arc::new(ClassicTokens),
        "elision" => {
            needs_settings(params)?;
            let ignore_case = params.boolean("articles_case", false)?;
            if params.words("articles")?.is_none() {
                return Err(refused("elision filter requires [articles] or [articles_path] setting"));
            }
            Arc::new(Elision::new(params.list("articles").unwrap_or_default(), ignore_case))
        }
        "truncate" => {
            needs_settings(params)?;
            let length = params.integer("length", -1)?;
            let length = usize::try_from(length)
                .ok()
                .filter(|&length| length > 0)
                .ok_or_else(|| refused("length parameter must be provided"))?;
            Arc::new(Truncate { length })
        }
        "pattern_replace" => {
            needs_settings(params)?;
            let pattern = params.string("pattern").ok_or_else(|| {
                refused(format!(
                    "pattern is missing for [{}] token filter of type 'pattern_replace'",
                    params.name
                ))
            })?;
            let pattern = JavaPattern::new(&pattern, &params.string("flags").unwrap_or_default())?;
            let replacement = pattern.replacement(&params.string("replacement").unwrap_or_default())?;
            Arc::new(PatternReplaceTokens { pattern, replacement, all: params.boolean("all", true)? })
        }
        "delimited_payload" => Arc::new(DelimitedPayload {
            delimiter: params.string("delimiter").and_then(|text| text.chars().next()).unwrap_or('|'),
            encoding: match params.string("encoding").as_deref() {
                None | Some("float") => Encoding::Float,
                Some("int") => Encoding::Int,
                Some("identity") => Encoding::Identity,
                Some(_) => Encoding::Float,
            },
        }),
        "delimited_payload_filter" => {
            return Err(refused(
                "[delimited_payload_filter] is not supported for new indices, use [delimited_payload] instead",
            ));
        }
        "type_as_payload" => Arc::new(TypeAsPayload),
        _ => return Ok(None),
    }))
}

/// Filters that drop, repeat or mark tokens.
fn choosing_tokens(kind: &str, params: &Params) -> Result<Option<Arc<dyn Filter>>> {
    Ok(Some(match kind {
        "stop" => {
            let stop = Stop::new(params.stop_words("_english_")?, params.boolean("ignore_case", false)?);
            let trailing = params.boolean("remove_trailing", true)?;
            Arc::new(if trailing { stop } else { stop.keeping_trailing() })
        }
        "length" => {
            let max = i64::from(i32::MAX);
            let (min, max) = (params.integer("min", 0)?, params.integer("max", max)?);
            if min < 0 {
                return Err(refused("minimum length must be greater than or equal to zero"));
            }
            if min > max {
                return Err(refused("maximum length must not be greater than minimum length"));
            }
            Arc::new(Length {
                min: usize::try_from(min).unwrap_or(0),
                max: usize::try_from(max).unwrap_or(usize::MAX),
            })
        }
        "unique" => {
            Arc::new(Unique { only_on_same_position: params.boolean("only_on_same_position", false)? })
        }
        "limit" => {
            let count = params.integer("max_token_count", 1)?;
            let count = usize::try_from(count)
                .ok()
                .filter(|&count| count > 0)
                .ok_or_else(|| refused("maxTokenCount must be greater than zero"))?;
            params.boolean("consume_all_tokens", false)?;
            Arc::new(Limit { count })
        }
        "remove_duplicates" => Arc::new(RemoveDuplicates),
        "keep" => {
            needs_settings(params)?;
            let ignore_case = params.boolean("keep_words_case", false)?;
            let words = params.word_set("keep_words", ignore_case)?.ok_or_else(|| {
                refused("keep requires either `keep_words` or `keep_words_path` to be configured")
            })?;
            Arc::new(KeepWords { words, ignore_case })
        }
        "keep_types" => {
            needs_settings(params)?;
            let types = params
                .list("types")
                .filter(|types| !types.is_empty())
                .ok_or_else(|| refused("keep_types requires `types` to be configured"))?;
            let include = match params.string("mode").as_deref() {
                None | Some("include") => true,
                Some("exclude") => false,
                Some(other) => {
                    return Err(refused(format!(
                        "`keep_types` tokenfilter mode can only be [include] or [exclude] but was [{other}]."
                    )));
                }
            };
            Arc::new(KeepTypes { types: types.into_iter().collect(), include })
        }
        "keyword_marker" => {
            needs_settings(params)?;
            let ignore_case = params.boolean("ignore_case", false)?;
            if let Some(pattern) = params.string("keywords_pattern") {
                if params.string("keywords").is_some() || params.string("keywords_path").is_some() {
                    return Err(refused(
                        "cannot specify both `keywords_pattern` and `keywords` or `keywords_path`",
                    ));
                }
                let pattern = Some(JavaPattern::entire(&pattern)?);
                Arc::new(KeywordMarker { words: Default::default(), ignore_case, pattern })
            } else {
                let words = params.word_set("keywords", ignore_case)?.ok_or_else(|| {
                    refused(
                        "keyword filter requires either `keywords`, `keywords_path`, or `keywords_pattern` to be \
                         configured",
                    )
                })?;
                Arc::new(KeywordMarker { words, ignore_case, pattern: None })
            }
        }
        "stemmer_override" => {
            needs_settings(params)?;
            let rules = params.words("rules")?.ok_or_else(|| {
                refused("stemmer override filter requires either `rules` or `rules_path` to be configured")
            })?;
            Arc::new(StemmerOverride::new(&rules)?)
        }
        _ => return Ok(None),
    }))
}

/// Filters that make tokens of tokens.
fn combining_tokens(
    kind: &str,
    params: &Params,
    scope: &Scope,
    before: PrecedingChain<'_>,
) -> Result<Option<Arc<dyn Filter>>> {
    Ok(Some(match kind {
        "ngram" | "nGram" => {
            let (min, max) = gram_range(params, 1, 2)?;
            check_ngram_diff(min, max, scope.max_ngram_diff, "NGram Tokenizer")?;
            let preserve_original = params.boolean("preserve_original", false)?;
            Arc::new(Grams { min, max, edge: Edge::None, preserve_original })
        }
        "edge_ngram" | "edgeNGram" => {
            let (min, max) = gram_range(params, 1, 2)?;
            let edge = match params.string("side").as_deref() {
                None | Some("front") => Edge::Front,
                Some("back") => Edge::Back,
                Some(other) => return Err(refused(format!("invalid side: {other}"))),
            };
            let preserve_original = params.boolean("preserve_original", false)?;
            Arc::new(Grams { min, max, edge, preserve_original })
        }
        "shingle" => Arc::new(shingle(params, scope)?),
        "common_grams" => {
            needs_settings(params)?;
            let ignore_case = params.boolean("ignore_case", false)?;
            let words = match params.words("common_words")? {
                Some(_) => {
                    let words = params.words_or("common_words", "_none_")?;
                    words
                        .into_iter()
                        .map(|word| if ignore_case { word.chars().map(lower).collect() } else { word })
                        .collect()
                }
                None => {
                    return Err(refused(
                        "missing or empty [common_words] or [common_words_path] configuration for common_grams \
                         token filter",
                    ));
                }
            };
            Arc::new(CommonGrams { words, ignore_case, query_mode: params.boolean("query_mode", false)? })
        }
        "fingerprint" => {
            let separator = params.string("separator").unwrap_or_else(|| " ".to_owned());
            let mut characters = separator.chars();
            let (Some(separator), None) = (characters.next(), characters.next()) else {
                return Err(refused("Setting [separator] must be a single, non-null character."));
            };
            let max_output_size = params.length("max_output_size", 255, 0)?;
            Arc::new(Fingerprint { separator, max_output_size })
        }
        "flatten_graph" => Arc::new(FlattenGraph),
        "min_hash" => Arc::new(min_hash(params)?),
        "cjk_bigram" => {
            let mut kinds = vec!["<IDEOGRAPHIC>", "<HIRAGANA>", "<KATAKANA>", "<HANGUL>"];
            for script in params.list("ignored_scripts").unwrap_or_default() {
                let kind = match script.as_str() {
                    "han" => "<IDEOGRAPHIC>",
                    "hiragana" => "<HIRAGANA>",
                    "katakana" => "<KATAKANA>",
                    "hangul" => "<HANGUL>",
                    // OpenSearch overlooks other names.
                    _ => continue,
                };
                kinds.retain(|known| *known != kind);
            }
            Arc::new(CjkBigram { kinds, output_unigrams: params.boolean("output_unigrams", false)? })
        }
        "dictionary_decompounder" => {
            needs_settings(params)?;
            let ignore_case = params.boolean("word_list_case", false)?;
            let words = params.word_set("word_list", ignore_case)?.ok_or_else(|| {
                refused(format!(
                    "word_list must be provided for [{}], either as a path to a file, or directly",
                    params.name
                ))
            })?;
            let size = |name: &str, title: &str, default: i64| {
                usize::try_from(params.integer(name, default)?)
                    .map_err(|_| refused(format!("{title} cannot be negative")))
            };
            let word = size("min_word_size", "minWordSize", 5)?;
            let least = size("min_subword_size", "minSubwordSize", 2)?;
            let most = size("max_subword_size", "maxSubwordSize", 15)?;
            let only_longest_match = params.boolean("only_longest_match", false)?;
            let filter = Decompounder::new(words, ignore_case).with_sizes(word, least, most);
            Arc::new(filter.only_longest_match(only_longest_match))
        }
        "word_delimiter" => Arc::new(word_delimiter(params, false)?),
        "word_delimiter_graph" => Arc::new(word_delimiter(params, true)?),
        "pattern_capture" => {
            needs_settings(params)?;
            let patterns = params.raw_list("patterns").ok_or_else(|| {
                refused(format!("required setting 'patterns' is missing for token filter [{}]", params.name))
            })?;
            Arc::new(PatternCapture {
                patterns: patterns
                    .iter()
                    .map(|pattern| JavaPattern::new(pattern, ""))
                    .collect::<Result<_>>()?,
                preserve_original: params.boolean("preserve_original", true)?,
            })
        }
        "synonym" => Arc::new(synonyms(params, scope, before, false)?),
        "synonym_graph" => Arc::new(synonyms(params, scope, before, true)?),
        "multiplexer" => Arc::new(multiplexer(params, scope, before)?),
        _ => return Ok(None),
    }))
}

/// Most hashes that `min_hash` keeps for a text.
const MAX_HASHES: i64 = 1 << 20;

fn min_hash(params: &Params) -> Result<MinHash> {
    let positive = |name: &str, title: &str, default: i64| -> Result<i64> {
        let value = params.integer(name, default)?;
        if value <= 0 {
            return Err(refused(format!("{title} must be greater than zero")));
        }
        Ok(value)
    };
    let hashes = positive("hash_count", "hashCount", 1)?;
    let buckets = positive("bucket_count", "bucketCount", 512)?;
    let set_size = positive("hash_set_size", "hashSetSize", 1)?;
    let all = hashes.saturating_mul(buckets).saturating_mul(set_size);
    if all > MAX_HASHES {
        return Err(refused(format!("min_hash would keep [{all}] hashes, more than [{MAX_HASHES}]")));
    }
    Ok(MinHash {
        hashes: u32::try_from(hashes).unwrap_or(1),
        buckets: usize::try_from(buckets).unwrap_or(1),
        set_size: usize::try_from(set_size).unwrap_or(1),
        rotate: params.boolean("with_rotation", buckets > 1)?,
    })
}

fn shingle(params: &Params, scope: &Scope) -> Result<Shingle> {
    let max = params.integer("max_shingle_size", 2)?;
    let min = params.integer("min_shingle_size", 2)?;
    let output_unigrams = params.boolean("output_unigrams", true)?;
    let difference = max - min + i64::from(output_unigrams);
    if difference > scope.max_shingle_diff {
        return Err(refused(format!(
            "In Shingle TokenFilter the difference between max_shingle_size and min_shingle_size (and +1 if \
             outputting unigrams) must be less than or equal to: [{}] but was [{difference}]. This limit can be set \
             by changing the [index.max_shingle_diff] index level setting.",
            scope.max_shingle_diff
        )));
    }
    if max < 2 {
        return Err(refused("Max shingle size must be >= 2"));
    }
    if min < 2 {
        return Err(refused("Min shingle size must be >= 2"));
    }
    if min > max {
        return Err(refused("Min shingle size must be <= max shingle size"));
    }
    let size = |n: i64| usize::try_from(n).unwrap_or(2);
    Ok(Shingle {
        min: size(min),
        max: size(max),
        output_unigrams,
        output_unigrams_if_no_shingles: params.boolean("output_unigrams_if_no_shingles", false)?,
        separator: params.string("token_separator").unwrap_or_else(|| " ".to_owned()),
        filler: params.string("filler_token").unwrap_or_else(|| "_".to_owned()),
    })
}

fn word_delimiter(params: &Params, graph: bool) -> Result<WordDelimiter> {
    let flag = |name: &str, default: bool| match params.string(name).as_deref() {
        Some("0") => Ok(false),
        Some("1") => Ok(true),
        _ => params.boolean(name, default),
    };
    Ok(WordDelimiter {
        cuts: WordBoundaries {
            on_case_change: flag("split_on_case_change", true)?,
            on_numerics: flag("split_on_numerics", true)?,
            stem_possessive: flag("stem_english_possessive", true)?,
            types: subword_types(&params.words("type_table")?.unwrap_or_default())?,
        },
        generate_word_parts: flag("generate_word_parts", true)?,
        generate_number_parts: flag("generate_number_parts", true)?,
        catenate_words: flag("catenate_words", false)?,
        catenate_numbers: flag("catenate_numbers", false)?,
        catenate_all: flag("catenate_all", false)?,
        preserve_original: flag("preserve_original", false)?,
        ignore_keywords: flag("ignore_keywords", false)?,
        adjust_offsets: !graph || flag("adjust_offsets", true)?,
        protected: params.word_set("protected_words", false)?.unwrap_or_default(),
        graph,
    })
}

fn synonyms(params: &Params, scope: &Scope, before: PrecedingChain<'_>, graph: bool) -> Result<Synonyms> {
    needs_settings(params)?;
    let lines = params
        .words("synonyms")?
        .ok_or_else(|| refused("synonym requires either `synonyms` or `synonyms_path` to be configured"))?;
    let expand = params.boolean("expand", true)?;
    let lenient = params.boolean("lenient", false)?;
    let ignore_case = params.boolean("ignore_case", false)?;
    let _ = scope;
    let chain = before.for_synonyms(None)?;
    let analyze = |term: &str| -> Result<Vec<String>> {
        let mut terms = Vec::new();
        let mut problem = None;
        let mut next = 0;
        chain.run_until(term, usize::MAX, &mut |token| {
            if token.text.is_empty() && problem.is_none() {
                problem = Some(format!("term: {term} analyzed to a zero-length token"));
            }
            if token.position != next && problem.is_none() {
                let increment = i64::from(token.position) - i64::from(next) + 1;
                problem = Some(format!(
                    "term: {term} analyzed to a token ({}) with position increment != 1 (got: {increment})",
                    token.text
                ));
            }
            next = token.position + 1;
            terms.push(if ignore_case {
                token.text.chars().map(lower).collect()
            } else {
                token.text.clone()
            });
        });
        if terms.is_empty() && problem.is_none() {
            problem = Some(format!("term: {term} was completely eliminated by analyzer"));
        }
        match problem {
            None => Ok(terms),
            Some(_) if lenient => Ok(Vec::new()),
            Some(problem) => Err(refused(problem)),
        }
    };
    let rules = match params.string("format").as_deref() {
        Some("wordnet") => Rules::wordnet(&lines, expand, &analyze),
        _ => Rules::solr(&lines, expand, &analyze),
    }
    .map_err(|error| refused(format!("Failed to build synonyms: {error}")))?;
    Ok(Synonyms { rules, ignore_case, graph })
}

fn multiplexer(params: &Params, scope: &Scope, before: PrecedingChain<'_>) -> Result<Multiplexer> {
    if before.depth >= MAX_DEPTH {
        return Err(refused(format!("filter [{}] is nested too deeply", params.name)));
    }
    let mut chains = Vec::new();
    for names in params.raw_list("filters").unwrap_or_default() {
        let mut chain: Vec<(String, Arc<dyn Filter>)> = Vec::new();
        for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let all: Vec<(String, Arc<dyn Filter>)> = before.filters.iter().chain(&chain).cloned().collect();
            let inner = PrecedingChain { filters: &all, depth: before.depth + 1, ..before };
            let filter = scope.named_filter(name, inner)?.ok_or_else(|| {
                refused(format!(
                    "Multiplexer filter [{}] refers to undefined tokenfilter [{name}]",
                    params.name
                ))
            })?;
            chain.push((name.to_owned(), filter));
        }
        chains.push(chain.into_iter().map(|(_, filter)| filter).collect());
    }
    Ok(Multiplexer { chains, preserve_original: params.boolean("preserve_original", true)? })
}
