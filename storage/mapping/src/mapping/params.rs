//! Parameters of field types, their defaults, and those that a mapping update may change.

use serde_json::{Map, Value};

use super::{FieldType, java};

/// A parameter of a field type.
#[derive(Clone, Copy, Debug)]
pub(super) struct Param {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// `true` if a mapping update may change it.
    pub(super) updatable: bool,
}

/// Kind of a parameter's values.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// A boolean and its default.
    Flag(bool),
    /// A boolean that is shown whenever it was given, even with its default.
    Explicit,
    /// An integer and its default.
    Int(i64),
    /// A number and its default.
    Float(f64),
    /// One of some words; the first is the default.
    Word(&'static [&'static str]),
    /// A name and its default.
    Name(&'static str),
    /// A name without default.
    OptionalName,
    /// A scalar without default.
    Scalar,
    /// An object.
    Object,
}

const fn fixed(name: &'static str, kind: Kind) -> Param {
    Param { name, kind, updatable: false }
}

const fn free(name: &'static str, kind: Kind) -> Param {
    Param { name, kind, updatable: true }
}

const META: Param = free("meta", Kind::Object);
const BOOST: Param = free("boost", Kind::Float(1.0));
const INDEX: Param = fixed("index", Kind::Flag(true));
const DOC_VALUES: Param = fixed("doc_values", Kind::Flag(true));
const STORE: Param = fixed("store", Kind::Flag(false));
const NULL_VALUE: Param = fixed("null_value", Kind::Scalar);
const IGNORE_MALFORMED: Param = free("ignore_malformed", Kind::Explicit);
const COERCE: Param = free("coerce", Kind::Explicit);
const IGNORE_ABOVE: Param = free("ignore_above", Kind::Int(i32::MAX as i64));
const ORDINALS: Param = free("eager_global_ordinals", Kind::Flag(false));
const SIMILARITY: Param = fixed("similarity", Kind::Word(&["BM25", "boolean"]));
const NORMALIZER: Param = fixed("normalizer", Kind::Name("default"));
const SKIP_LIST: Param = fixed("skip_list", Kind::Flag(false));

const TERM_VECTOR: Param = fixed(
    "term_vector",
    Kind::Word(&[
        "no",
        "yes",
        "with_positions",
        "with_offsets",
        "with_positions_offsets",
        "with_positions_payloads",
        "with_positions_offsets_payloads",
    ]),
);

const TEXT: &[Param] = &[
    INDEX,
    STORE,
    fixed("index_options", Kind::Word(&["positions", "docs", "freqs", "offsets"])),
    free("norms", Kind::Flag(true)),
    SIMILARITY,
    fixed("analyzer", Kind::Name("default")),
    free("search_analyzer", Kind::OptionalName),
    free("search_quote_analyzer", Kind::OptionalName),
    free("fielddata", Kind::Flag(false)),
    free("fielddata_frequency_filter", Kind::Object),
    ORDINALS,
    fixed("index_phrases", Kind::Flag(false)),
    fixed("index_prefixes", Kind::Object),
    fixed("position_increment_gap", Kind::Int(100)),
    TERM_VECTOR,
    BOOST,
    META,
];
const MATCH_ONLY_TEXT: &[Param] = &[
    INDEX,
    STORE,
    fixed("index_options", Kind::Word(&["docs"])),
    fixed("norms", Kind::Flag(false)),
    SIMILARITY,
    fixed("analyzer", Kind::Name("default")),
    free("search_analyzer", Kind::OptionalName),
    free("search_quote_analyzer", Kind::OptionalName),
    free("fielddata", Kind::Flag(false)),
    free("fielddata_frequency_filter", Kind::Object),
    ORDINALS,
    fixed("position_increment_gap", Kind::Int(100)),
    BOOST,
    META,
];
const KEYWORD: &[Param] = &[
    INDEX,
    DOC_VALUES,
    STORE,
    NULL_VALUE,
    ORDINALS,
    IGNORE_ABOVE,
    fixed("index_options", Kind::Word(&["docs", "freqs"])),
    free("norms", Kind::Flag(false)),
    SIMILARITY,
    free("use_similarity", Kind::Flag(false)),
    NORMALIZER,
    free("split_queries_on_whitespace", Kind::Flag(false)),
    SKIP_LIST,
    BOOST,
    META,
];
const WILDCARD: &[Param] =
    &[NORMALIZER, IGNORE_ABOVE, NULL_VALUE, fixed("doc_values", Kind::Flag(false)), META];
const CONSTANT_KEYWORD: &[Param] = &[fixed("value", Kind::OptionalName), META];
const FLAT_OBJECT: &[Param] = &[
    INDEX,
    DOC_VALUES,
    IGNORE_ABOVE,
    NULL_VALUE,
    free("depth_limit", Kind::Int(20)),
    ORDINALS,
    SIMILARITY,
    free("split_queries_on_whitespace", Kind::Flag(false)),
    META,
];
const NUMBER: &[Param] =
    &[INDEX, DOC_VALUES, STORE, SKIP_LIST, IGNORE_MALFORMED, COERCE, NULL_VALUE, BOOST, META];
const SCALED_FLOAT: &[Param] = &[
    INDEX,
    DOC_VALUES,
    STORE,
    SKIP_LIST,
    IGNORE_MALFORMED,
    COERCE,
    fixed("scaling_factor", Kind::Float(0.0)),
    NULL_VALUE,
    BOOST,
    META,
];
const BOOLEAN: &[Param] = &[INDEX, DOC_VALUES, STORE, NULL_VALUE, BOOST, META];
const DATE: &[Param] = &[
    INDEX,
    DOC_VALUES,
    STORE,
    SKIP_LIST,
    fixed("format", Kind::OptionalName),
    fixed("print_format", Kind::OptionalName),
    fixed("locale", Kind::OptionalName),
    NULL_VALUE,
    IGNORE_MALFORMED,
    BOOST,
    META,
];
const IP: &[Param] = &[INDEX, DOC_VALUES, STORE, SKIP_LIST, IGNORE_MALFORMED, NULL_VALUE, BOOST, META];
const RANGE: &[Param] = &[
    INDEX,
    DOC_VALUES,
    STORE,
    COERCE,
    IGNORE_MALFORMED,
    fixed("format", Kind::OptionalName),
    fixed("locale", Kind::OptionalName),
    BOOST,
    META,
];
const GEO_POINT: &[Param] = &[
    INDEX,
    DOC_VALUES,
    STORE,
    IGNORE_MALFORMED,
    free("ignore_z_value", Kind::Explicit),
    fixed("null_value", Kind::Object),
    META,
];
const BINARY: &[Param] = &[fixed("doc_values", Kind::Flag(false)), STORE, META];

const TOKEN_COUNT: &[Param] = &[
    INDEX,
    DOC_VALUES,
    STORE,
    fixed("analyzer", Kind::OptionalName),
    NULL_VALUE,
    fixed("enable_position_increments", Kind::Flag(true)),
    META,
];
const RANK_FEATURE: &[Param] = &[fixed("positive_score_impact", Kind::Flag(true)), META];
const RANK_FEATURES: &[Param] = &[fixed("positive_score_impact", Kind::Flag(true)), META];
const COMPLETION: &[Param] = &[
    fixed("analyzer", Kind::Name("simple")),
    free("search_analyzer", Kind::OptionalName),
    fixed("preserve_separators", Kind::Flag(true)),
    fixed("preserve_position_increments", Kind::Flag(true)),
    free("max_input_length", Kind::Int(50)),
    fixed("contexts", Kind::Object),
    META,
];
const SEARCH_AS_YOU_TYPE: &[Param] = &[
    INDEX,
    STORE,
    fixed("doc_values", Kind::Explicit),
    fixed("max_shingle_size", Kind::Int(3)),
    fixed("analyzer", Kind::Name("default")),
    free("search_analyzer", Kind::OptionalName),
    free("search_quote_analyzer", Kind::OptionalName),
    fixed("index_options", Kind::Word(&["positions", "docs", "freqs", "offsets"])),
    free("norms", Kind::Flag(true)),
    SIMILARITY,
    TERM_VECTOR,
    META,
];

/// Lists the parameters of a type.
pub(super) fn of(field_type: &FieldType) -> &'static [Param] {
    match field_type {
        FieldType::Text => TEXT,
        FieldType::MatchOnlyText => MATCH_ONLY_TEXT,
        FieldType::Keyword => KEYWORD,
        FieldType::Wildcard => WILDCARD,
        FieldType::ConstantKeyword => CONSTANT_KEYWORD,
        FieldType::FlatObject => FLAT_OBJECT,
        FieldType::Byte
        | FieldType::Short
        | FieldType::Integer
        | FieldType::Long
        | FieldType::UnsignedLong
        | FieldType::HalfFloat
        | FieldType::Float
        | FieldType::Double => NUMBER,
        FieldType::ScaledFloat { .. } => SCALED_FLOAT,
        FieldType::Boolean => BOOLEAN,
        FieldType::Date | FieldType::DateNanos => DATE,
        FieldType::Ip => IP,
        FieldType::GeoPoint => GEO_POINT,
        FieldType::Binary => BINARY,
        FieldType::TokenCount => TOKEN_COUNT,
        FieldType::RankFeature => RANK_FEATURE,
        FieldType::RankFeatures => RANK_FEATURES,
        FieldType::Completion => COMPLETION,
        FieldType::SearchAsYouType(_) => SEARCH_AS_YOU_TYPE,
        FieldType::Range(_) => RANGE,
    }
}

impl Param {
    /// Checks a given value and brings it into its own form; `None` where it is the default.
    ///
    /// # Errors
    /// The text of the refusal, without the field's name.
    pub(super) fn normalise(&self, value: &Value) -> Result<Option<Value>, String> {
        match self.kind {
            Kind::Flag(default) => {
                let flag = java::boolean(value)?;
                Ok((flag != default).then_some(Value::Bool(flag)))
            }
            Kind::Explicit => Ok(Some(Value::Bool(java::boolean(value)?))),
            Kind::Int(default) => {
                let number = match value {
                    Value::Number(number) => number.as_i64().or_else(|| number.as_f64().map(|f| f as i64)),
                    Value::String(text) => text.parse().ok(),
                    _ => None,
                }
                .filter(|n| i32::try_from(*n).is_ok())
                .ok_or_else(|| format!("For input string: \"{}\"", java::to_string(value)))?;
                if number < 0 {
                    return Err(format!("[{}] must be positive, got [{number}]", self.name));
                }
                Ok((number != default).then(|| Value::from(number)))
            }
            Kind::Float(default) => {
                let number = match value {
                    Value::Number(number) => number.as_f64(),
                    Value::String(text) => text.parse().ok().filter(|n: &f64| n.is_finite()),
                    _ => None,
                }
                .ok_or_else(|| format!("For input string: \"{}\"", java::to_string(value)))?;
                Ok((number != default).then(|| Value::from(number)))
            }
            Kind::Word(words) => {
                let word = java::to_string(value);
                if !words.contains(&word.as_str()) {
                    return Err(if self.name == "similarity" {
                        format!("Unknown Similarity type [{word}]")
                    } else {
                        format!(
                            "Unknown value [{word}] for field [{}] - accepted values are [{}]",
                            self.name,
                            words.join(", ")
                        )
                    });
                }
                Ok((word != words[0]).then_some(Value::String(word)))
            }
            Kind::Name(default) => {
                let name = java::to_string(value);
                Ok((name != default).then_some(Value::String(name)))
            }
            Kind::OptionalName => match value {
                Value::Array(_) | Value::Object(_) => {
                    Err(format!("[{}] must be a string, got [{}]", self.name, java::to_string(value)))
                }
                other => Ok(Some(Value::String(java::to_string(other)))),
            },
            Kind::Scalar => match value {
                Value::Array(_) | Value::Object(_) => {
                    Err(format!("[{}] must be a value, got [{}]", self.name, java::to_string(value)))
                }
                other => Ok(Some(other.clone())),
            },
            Kind::Object => Ok(Some(value.clone())),
        }
    }

    /// Renders the value in effect as conflict messages show it.
    pub(super) fn shown(&self, params: &Map<String, Value>) -> String {
        match (params.get(self.name), self.kind) {
            (Some(value), _) => java::to_string(value),
            (None, Kind::Flag(default)) => default.to_string(),
            (None, Kind::Explicit) => (self.name == "coerce" || self.name == "ignore_z_value").to_string(),
            (None, Kind::Int(default)) => default.to_string(),
            (None, Kind::Float(default)) => format!("{default:?}"),
            (None, Kind::Word(words)) => words.first().copied().unwrap_or_default().to_owned(),
            (None, Kind::Name(default)) => default.to_owned(),
            (None, Kind::OptionalName) if self.name == "locale" => "en".to_owned(),
            (None, _) => "null".to_owned(),
        }
    }
}
