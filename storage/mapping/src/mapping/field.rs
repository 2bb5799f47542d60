//! The mapped leaf: [`Field`] with its type, its column and its parameters.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::RangeType;
use crate::analysis::AsYouTypeSubfield;

/// Number of a mapped path: given once in an index, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PathId(pub u32);

/// Type of a mapped field.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum FieldType {
    Text,
    MatchOnlyText,
    Keyword,
    Wildcard,
    ConstantKeyword,
    FlatObject,
    Byte,
    Short,
    Integer,
    Long,
    UnsignedLong,
    HalfFloat,
    Float,
    Double,
    ScaledFloat { scaling_factor: f64 },
    Boolean,
    Date,
    DateNanos,
    Ip,
    GeoPoint,
    Binary,
    TokenCount,
    RankFeature,
    RankFeatures,
    Completion,
    SearchAsYouType(AsYouType),
    Range(RangeType),
}

/// A `search_as_you_type` field, or a field that it brings along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsYouType {
    /// The field itself, with the most tokens of a shingle.
    Whole {
        /// `max_shingle_size`.
        max: u8,
    },
    /// `_2gram` and so on, or `_index_prefix`.
    Part(AsYouTypeSubfield),
}

impl FieldType {
    /// Finds a leaf type by its name in the mapping language. A scaled_float's factor and a
    /// search_as_you_type's shingles are set later.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "text" => Self::Text,
            "match_only_text" => Self::MatchOnlyText,
            "keyword" => Self::Keyword,
            "wildcard" => Self::Wildcard,
            "constant_keyword" => Self::ConstantKeyword,
            // Elasticsearch calls it otherwise.
            "flat_object" | "flattened" => Self::FlatObject,
            "byte" => Self::Byte,
            "short" => Self::Short,
            "integer" => Self::Integer,
            "long" => Self::Long,
            "unsigned_long" => Self::UnsignedLong,
            "half_float" => Self::HalfFloat,
            "float" => Self::Float,
            "double" => Self::Double,
            "scaled_float" => Self::ScaledFloat { scaling_factor: 1.0 },
            "boolean" => Self::Boolean,
            "date" => Self::Date,
            "date_nanos" => Self::DateNanos,
            "ip" => Self::Ip,
            "geo_point" => Self::GeoPoint,
            "binary" => Self::Binary,
            "token_count" => Self::TokenCount,
            "rank_feature" => Self::RankFeature,
            "rank_features" => Self::RankFeatures,
            "completion" => Self::Completion,
            "search_as_you_type" => Self::SearchAsYouType(AsYouType::Whole { max: 3 }),
            _ => return RangeType::from_name(name).map(Self::Range),
        })
    }

    /// Returns the name in the mapping language.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::MatchOnlyText => "match_only_text",
            Self::Keyword => "keyword",
            Self::Wildcard => "wildcard",
            Self::ConstantKeyword => "constant_keyword",
            Self::FlatObject => "flat_object",
            Self::Byte => "byte",
            Self::Short => "short",
            Self::Integer => "integer",
            Self::Long => "long",
            Self::UnsignedLong => "unsigned_long",
            Self::HalfFloat => "half_float",
            Self::Float => "float",
            Self::Double => "double",
            Self::ScaledFloat { .. } => "scaled_float",
            Self::Boolean => "boolean",
            Self::Date => "date",
            Self::DateNanos => "date_nanos",
            Self::Ip => "ip",
            Self::GeoPoint => "geo_point",
            Self::Binary => "binary",
            Self::TokenCount => "token_count",
            Self::RankFeature => "rank_feature",
            Self::RankFeatures => "rank_features",
            Self::Completion => "completion",
            Self::SearchAsYouType(AsYouType::Part(AsYouTypeSubfield::Prefixes(_))) => "prefix",
            Self::SearchAsYouType(_) => "search_as_you_type",
            Self::Range(range_type) => range_type.name(),
        }
    }

    /// Returns how columns of this type hold values.
    pub fn column_kind(&self) -> ColumnKind {
        match self {
            Self::Text
            | Self::MatchOnlyText
            | Self::Keyword
            | Self::Wildcard
            | Self::ConstantKeyword
            | Self::FlatObject
            | Self::RankFeature
            | Self::RankFeatures
            | Self::Completion
            | Self::SearchAsYouType(_)
            | Self::Range(_)
            | Self::Binary => ColumnKind::Str,
            Self::Byte => ColumnKind::Int(8),
            Self::Short => ColumnKind::Int(16),
            Self::Integer | Self::TokenCount => ColumnKind::Int(32),
            Self::Long => ColumnKind::Int(64),
            Self::UnsignedLong => ColumnKind::U64,
            Self::HalfFloat | Self::Float => ColumnKind::F32,
            Self::Double | Self::ScaledFloat { .. } => ColumnKind::F64,
            Self::Boolean => ColumnKind::Bool,
            Self::Date => ColumnKind::DateMs,
            Self::DateNanos => ColumnKind::DateNanos,
            Self::Ip => ColumnKind::Ip,
            Self::GeoPoint => ColumnKind::GeoPoint,
        }
    }

    /// Returns whether values are full text, cut into tokens.
    pub fn is_text(&self) -> bool {
        matches!(self, Self::Text | Self::MatchOnlyText | Self::SearchAsYouType(_))
    }

    /// Returns whether values have a format of dates: dates, and ranges of dates.
    pub fn has_date_format(&self) -> bool {
        matches!(self, Self::Date | Self::DateNanos | Self::Range(RangeType::Date))
    }
}

/// Representation of a column's values in memory and in Parquet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// `Utf8View`: text, keyword, wildcard, constant_keyword, flat_object leaves, binary (base64 as sent),
    /// rank features, completions and ranges (see [`crate::document`]).
    Str,
    /// `Int8`, `Int16`, `Int32` or `Int64` by width in bits.
    Int(u8),
    /// `UInt64`.
    U64,
    /// `Float32` (half_float and float).
    F32,
    /// `Float64` (double and scaled_float).
    F64,
    /// `Boolean`.
    Bool,
    /// `Timestamp(ms, UTC)`.
    DateMs,
    /// `Timestamp(ns, UTC)`.
    DateNanos,
    /// `FixedSizeBinary(16)`, big-endian, IPv4 mapped.
    Ip,
    /// `Struct{lat: Float64, lon: Float64}`.
    GeoPoint,
}

/// A mapped leaf, multi-fields included.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its number.
    pub id: PathId,
    /// Full dotted path, such as `request.raw`.
    pub path: Arc<str>,
    /// Its type.
    pub field_type: FieldType,
    /// The column that holds its values: its own, or its parent's for a string multi-field without
    /// normalizer and `null_value` of a text field (then `ignore_above` is rechecked on reading).
    pub column: PathId,
    /// `true` if it is searchable by the inverted index.
    pub index: bool,
    /// `true` if its values are held in a column for sorting and aggregating.
    pub doc_values: bool,
    /// Longest string indexed, in UTF-16 code units as OpenSearch counts.
    pub ignore_above: Option<usize>,
    /// Analyzer name at index time (text types), `standard` by default.
    pub analyzer: Arc<str>,
    /// Analyzer name at search time.
    pub search_analyzer: Arc<str>,
    /// Normalizer name (keyword).
    pub normalizer: Option<Arc<str>>,
    /// `true` if norms are kept (text).
    pub norms: bool,
    /// Parameters as given, for rendering.
    pub params: Map<String, Value>,
}

impl Field {
    /// Returns how its column holds values.
    pub fn column_kind(&self) -> ColumnKind {
        self.field_type.column_kind()
    }

    /// Returns the type's name in OpenSearch's mapping language, such as `match_only_text`.
    pub fn type_name(&self) -> &'static str {
        self.field_type.name()
    }

    /// Returns whether a string is longer than `ignore_above` lets into the index.
    pub fn ignores(&self, value: &str) -> bool {
        exceeds(value, self.ignore_above)
    }

    /// Longest string of the column that counts for the field. A column of its own has no longer ones, but
    /// for those that a normalizer made longer, which count.
    pub fn column_limit(&self) -> Option<usize> {
        self.ignore_above.filter(|_| self.column != self.id)
    }

    /// Returns true if a string of the column does not count for the field.
    pub fn ignores_in_column(&self, value: &str) -> bool {
        exceeds(value, self.column_limit())
    }
}

/// Returns true if a string has more UTF-16 code units than a limit.
fn exceeds(value: &str, limit: Option<usize>) -> bool {
    // UTF-8 never has fewer bytes than UTF-16 has code units: most strings are settled by length.
    limit.is_some_and(|limit| value.len() > limit && value.encode_utf16().count() > limit)
}

/// One value in the form in which its column holds it.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Scalar {
    Str(String),
    /// byte..long, date (ms), date_nanos (ns).
    I64(i64),
    U64(u64),
    F64(f64),
    Bool(bool),
    Ip([u8; 16]),
    GeoPoint {
        lat: f64,
        lon: f64,
    },
}
