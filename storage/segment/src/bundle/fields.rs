//! Properties of a mapped field that the builder needs.

use millrace_mapping::analysis::{Analyzer, Analyzers};
use millrace_mapping::{Field, FieldType, Mapping, PathId};
use millrace_runtime::{Error, Result};

use super::Record;

/// A field as the builder sees it.
#[derive(Clone, Copy, Debug)]
pub struct FieldSpec<'a> {
    /// Its path number: the prefix of its terms.
    pub id: PathId,
    /// Its full path, for messages.
    pub path: &'a str,
    /// The column that holds its values, its own or its parent's.
    pub column: PathId,
    /// Indexing of the field.
    pub indexing: Indexing<'a>,
}

/// Indexing of a field.
#[derive(Clone, Copy, Debug)]
pub enum Indexing<'a> {
    /// Every distinct value is a term.
    Exact {
        /// Longest string indexed, in UTF-16 code units.
        ignore_above: Option<usize>,
    },
    /// Integers: terms where few values repeat.
    Number,
    /// Tokens of the text are terms.
    Text {
        /// Cuts the text.
        analyzer: &'a Analyzer,
        /// Content of a posting beside the row.
        record: Record,
        /// `true` if lengths are kept.
        norms: bool,
        /// Positions between two values of a row.
        gap: u32,
    },
    /// Values are no terms here; only which rows have one is recorded.
    PresenceOnly,
}

/// Lists the fields of a mapping that a bundle says anything about, by ascending number.
pub(super) fn of_mapping(mapping: &Mapping) -> Result<Vec<FieldSpec<'_>>> {
    let analyzers: &Analyzers = mapping.analyzers();
    let mut specs = Vec::new();
    for field in mapping.fields() {
        if field.index || field.doc_values {
            specs.push(FieldSpec {
                id: field.id,
                path: &field.path,
                column: field.column,
                indexing: indexing(field, analyzers)?,
            });
        }
    }
    specs.sort_unstable_by_key(|spec| spec.id);
    Ok(specs)
}

/// Finds how a bundle indexes the field of a number; `None` of one that it says nothing about.
///
/// # Errors
/// An analyzer that is missing.
pub(crate) fn of_field(mapping: &Mapping, id: PathId) -> Result<Option<FieldSpec<'_>>> {
    let Some(field) = mapping.field_by_id(id).filter(|field| field.index || field.doc_values) else {
        return Ok(None);
    };
    let indexing = indexing(field, mapping.analyzers())?;
    Ok(Some(FieldSpec { id: field.id, path: &field.path, column: field.column, indexing }))
}

/// Positions between the values of a row, unless the mapping or the analyzer says otherwise.
const POSITION_GAP: u32 = 100;

fn indexing<'a>(field: &'a Field, analyzers: &'a Analyzers) -> Result<Indexing<'a>> {
    if !field.index {
        return Ok(Indexing::PresenceOnly);
    }
    Ok(match field.field_type {
        FieldType::Text | FieldType::MatchOnlyText | FieldType::SearchAsYouType(_) => {
            let analyzer = analyzers.get(&field.analyzer).ok_or_else(|| {
                Error::mapper_parsing(format!(
                    "analyzer [{}] has not been configured in mappings",
                    field.analyzer
                ))
            })?;
            let scored = field.field_type != FieldType::MatchOnlyText;
            let record = match field.params.get("index_options").and_then(|option| option.as_str()) {
                _ if !scored => Record::Rows,
                Some("docs") => Record::Rows,
                Some("freqs") => Record::Frequencies,
                _ => Record::Positions,
            };
            let gap = match field.params.get("position_increment_gap").and_then(|gap| gap.as_u64()) {
                Some(gap) => u32::try_from(gap).unwrap_or(u32::MAX),
                None => analyzer.position_increment_gap().unwrap_or(POSITION_GAP),
            };
            Indexing::Text { analyzer, record, norms: scored && field.norms, gap }
        }
        FieldType::Keyword
        | FieldType::Wildcard
        | FieldType::ConstantKeyword
        | FieldType::FlatObject
        | FieldType::RankFeature
        | FieldType::RankFeatures
        | FieldType::Completion
        | FieldType::Range(_)
        | FieldType::Boolean
        | FieldType::Ip => Indexing::Exact { ignore_above: field.column_limit() },
        FieldType::Byte
        | FieldType::Short
        | FieldType::Integer
        | FieldType::Long
        | FieldType::TokenCount
        | FieldType::UnsignedLong => Indexing::Number,
        FieldType::HalfFloat
        | FieldType::Float
        | FieldType::Double
        | FieldType::ScaledFloat { .. }
        | FieldType::Date
        | FieldType::DateNanos
        | FieldType::GeoPoint
        | FieldType::Binary => Indexing::PresenceOnly,
    })
}
