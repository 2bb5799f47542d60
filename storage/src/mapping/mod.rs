//! Mappings: which fields an index has and how their values are typed.
// CONTRACT STUB (owner: mapping)
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Result;
use crate::analysis::Analyzers;

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
}

/// How the values of a column are held in memory and in Parquet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// `Utf8View`: text, keyword, wildcard, constant_keyword, flat_object leaves, binary (base64 as sent).
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
#[derive(Clone, Debug)]
pub struct Field {
    /// Its number.
    pub id: PathId,
    /// Full dotted path, such as `request.raw`.
    pub path: Arc<str>,
    /// Its type.
    pub field_type: FieldType,
    /// The column that holds its values: its own, or its parent's for a keyword multi-field without
    /// normalizer of a string field (then `ignore_above` is rechecked on reading).
    pub column: PathId,
    /// Whether it is searchable by the inverted index.
    pub index: bool,
    /// Whether its values are held in a column for sorting and aggregating.
    pub doc_values: bool,
    /// Longest string indexed, in UTF-16 code units as OpenSearch counts.
    pub ignore_above: Option<usize>,
    /// Analyzer name at index time (text types), `standard` by default.
    pub analyzer: Arc<str>,
    /// Analyzer name at search time.
    pub search_analyzer: Arc<str>,
    /// Normalizer name (keyword).
    pub normalizer: Option<Arc<str>>,
    /// Whether norms are kept (text).
    pub norms: bool,
    /// Parameters as given, for rendering.
    pub params: Map<String, Value>,
}

/// An index's mapping; immutable, shared as `Arc<Mapping>`.
#[derive(Clone, Debug)]
pub struct Mapping {}

impl Mapping {
    /// Makes the mapping of an index created without one. `settings` are the index's settings,
    /// flattened (`index.mapping.total_fields.limit` and so on).
    pub fn empty(_settings: &Map<String, Value>) -> Self {
        todo!()
    }
    /// Parses a mapping body (without a type level) over an empty mapping.
    pub fn parse(_body: &Value, _settings: &Map<String, Value>) -> Result<Self> {
        todo!()
    }
    /// Merges a body into this mapping; a conflict names the field and both types.
    pub fn merge(&self, _body: &Value) -> Result<Self> {
        todo!()
    }
    /// Renders the body that `GET _mapping` shows under `mappings`.
    pub fn to_json(&self) -> Value {
        todo!()
    }
    /// Encodes the mapping with its path numbers for log and catalog.
    pub fn encode(&self) -> Vec<u8> {
        todo!()
    }
    /// Decodes what [`Mapping::encode`] made.
    pub fn decode(_bytes: &[u8], _settings: &Map<String, Value>) -> Result<Self> {
        todo!()
    }
    /// Counts changes: a merged or dynamically grown mapping has a greater version.
    pub fn version(&self) -> u64 {
        todo!()
    }
    /// Finds a leaf by full path; multi-fields and `alias` fields resolve to their target.
    pub fn field(&self, _path: &str) -> Option<&Field> {
        todo!()
    }
    /// Finds a leaf by number.
    pub fn field_by_id(&self, _id: PathId) -> Option<&Field> {
        todo!()
    }
    /// Lists all leaves in path order, multi-fields included, aliases excluded.
    pub fn fields(&self) -> impl Iterator<Item = &Field> {
        std::iter::empty()
    }
    /// Whether the path names an object (not a leaf), as `exists` accepts it.
    pub fn is_object(&self, _path: &str) -> bool {
        todo!()
    }
    /// Parses a query value (a JSON scalar) for a field into the column's own form: what a term
    /// or a range bound compares with. Dates honour the field's format and date math
    /// (`now` = `now_ms`); `round_up` fills missing parts upwards, as `lte` and `gt` bounds do.
    pub fn parse_value(
        &self,
        _field: &Field,
        _value: &Value,
        _now_ms: i64,
        _round_up: bool,
    ) -> Result<Scalar> {
        todo!()
    }
    /// Whether `_source` is kept.
    pub fn source_enabled(&self) -> bool {
        todo!()
    }
    /// Whether documents need a routing value (`_routing: {required: true}`).
    pub fn routing_required(&self) -> bool {
        todo!()
    }
    /// Analyzers and normalizers of the index, built-in ones included.
    pub fn analyzers(&self) -> &Arc<Analyzers> {
        todo!()
    }
}

impl Field {
    /// Returns how its column holds values.
    pub fn column_kind(&self) -> ColumnKind {
        todo!()
    }
    /// Returns the type's name in OpenSearch's mapping language, such as `match_only_text`.
    pub fn type_name(&self) -> &'static str {
        todo!()
    }
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
