//! Parameters of a leaf: its [`Field`], and the [`Rules`] by which documents are read.

use std::sync::Arc;

use millrace_runtime::Result;
use serde_json::Value;

use super::coerce::Token;
use super::date::DateFormat;
use super::leaf_spec::{date_format, geo_value};
use super::settings::Settings;
use super::spec::LeafSpec;
use super::{ColumnKind, Field, FieldType, PathId, java};

/// Rules by which a leaf treats the values of documents.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    pub(crate) coerce: bool,
    pub(crate) ignore_malformed: bool,
    pub(crate) null_value: Option<NullValue>,
    pub(crate) format: Option<Arc<DateFormat>>,
    pub(crate) copy_to: Vec<Arc<str>>,
    /// Value of a constant_keyword.
    pub(crate) constant: Option<Arc<str>>,
    /// Deepest level of a flat_object.
    pub(crate) depth_limit: usize,
}

/// A `null_value`, as the body has it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NullValue {
    Str(String),
    Number(String),
    Bool(bool),
    Point([f64; 2]),
}

impl NullValue {
    /// The value as a token; `None` for a point.
    pub(crate) fn token(&self) -> Option<Token<'_>> {
        match self {
            Self::Str(text) => Some(Token::Str(text)),
            Self::Number(text) => Some(Token::Number(text)),
            Self::Bool(flag) => Some(Token::Bool(*flag)),
            Self::Point(_) => None,
        }
    }
}

/// Returns whether a multi-field reads its parent's column: strings as sent serve any string field that does not change them.
/// Keyword parents leave long strings out, so that only text parents serve.
pub(super) fn shares_column(parent: &FieldType, spec: &LeafSpec) -> bool {
    parent.is_text()
        && matches!(
            spec.field_type,
            FieldType::Keyword
                | FieldType::Wildcard
                | FieldType::Text
                | FieldType::MatchOnlyText
                | FieldType::SearchAsYouType(_)
        )
        && !spec.params.contains_key("normalizer")
        && !spec.params.contains_key("null_value")
}

/// Returns whether a field's values go into a column of its own.
pub(super) fn fills_column(field: &Field) -> bool {
    let is_range = matches!(field.field_type, FieldType::Range(_));
    field.column == field.id
        && (field.index || field.doc_values || (field.column_kind() == ColumnKind::Str && !is_range))
        && (field.field_type != FieldType::Binary || field.doc_values)
}

/// Works out a field and its rules from what was asked for.
pub(super) fn compile(
    spec: &LeafSpec,
    path: Arc<str>,
    id: PathId,
    column: PathId,
    settings: &Settings,
) -> Result<(Field, Rules)> {
    let field_type = spec.field_type.clone();
    let params = &spec.params;
    let flag = |key: &str, default: bool| params.get(key).and_then(Value::as_bool).unwrap_or(default);
    let text = |key: &str| params.get(key).and_then(Value::as_str);
    let analyzer: Arc<str> = match text("analyzer") {
        None if field_type == FieldType::Completion => "simple".into(),
        Some("default") | None if settings.default_analyzer => "default".into(),
        Some("default") | None => "standard".into(),
        Some(name) => name.into(),
    };
    let search_analyzer = match text("search_analyzer") {
        Some("default") if !settings.default_analyzer => "standard".into(),
        Some(name) => name.into(),
        None if settings.default_search_analyzer && text("analyzer").is_none() => "default_search".into(),
        None => analyzer.clone(),
    };
    let is_date = field_type.has_date_format();
    let null_value = params.get("null_value").map(|value| match (&field_type, value) {
        (FieldType::GeoPoint, value) => NullValue::Point(geo_value(value).unwrap_or_default()),
        (_, Value::Bool(flag)) => NullValue::Bool(*flag),
        (_, Value::Number(number)) => NullValue::Number(number.to_string()),
        (_, other) => NullValue::Str(java::to_string(other)),
    });
    let rules = Rules {
        coerce: flag("coerce", settings.coerce),
        ignore_malformed: flag("ignore_malformed", settings.ignore_malformed),
        null_value,
        format: if is_date { Some(Arc::new(date_format(params)?)) } else { None },
        copy_to: spec.copy_to.clone(),
        constant: text("value").map(Into::into).filter(|_| field_type == FieldType::ConstantKeyword),
        depth_limit: params.get("depth_limit").and_then(Value::as_u64).map_or(20, |n| n as usize),
    };
    let is_string = matches!(field_type, FieldType::Keyword | FieldType::Wildcard | FieldType::FlatObject);
    // What these hold serves their own queries and suggesters only.
    let is_special =
        matches!(field_type, FieldType::RankFeature | FieldType::RankFeatures | FieldType::Completion);
    let field = Field {
        index: field_type != FieldType::Binary && flag("index", true),
        doc_values: !field_type.is_text()
            && !is_special
            && flag("doc_values", !matches!(field_type, FieldType::Binary | FieldType::Wildcard)),
        ignore_above: params
            .get("ignore_above")
            .and_then(Value::as_u64)
            .filter(|_| is_string)
            .map(|n| n as usize),
        normalizer: text("normalizer").map(Into::into),
        norms: matches!(field_type, FieldType::Text | FieldType::SearchAsYouType(_)) && flag("norms", true),
        params: params.clone(),
        analyzer,
        search_analyzer,
        id,
        path,
        field_type,
        column,
    };
    Ok((field, rules))
}
