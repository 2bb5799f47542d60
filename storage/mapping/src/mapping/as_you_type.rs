//! The fields that a `search_as_you_type` field brings along: `_2gram` and so on, and `_index_prefix`.

use super::spec::LeafSpec;
use super::{AsYouType, Field, FieldType};
use crate::analysis::AsYouTypeSubfield;

/// Name of the field of starts of shingles.
pub(super) const PREFIXES: &str = "_index_prefix";
/// Parameters that name analyzers.
const ANALYZERS: [&str; 3] = ["analyzer", "search_analyzer", "search_quote_analyzer"];

/// Lists the fields that a field brings along, by name; none unless it is of that type.
pub(super) fn parts_of(field: &Field) -> Vec<(String, LeafSpec)> {
    let FieldType::SearchAsYouType(AsYouType::Whole { max }) = field.field_type else { return Vec::new() };
    let mut parts: Vec<(String, LeafSpec)> = (2..=max)
        .map(|size| (format!("_{size}gram"), part_of(field, AsYouTypeSubfield::Shingles(size))))
        .collect();
    parts.push((PREFIXES.to_owned(), part_of(field, AsYouTypeSubfield::Prefixes(max))));
    parts
}

fn part_of(field: &Field, part: AsYouTypeSubfield) -> LeafSpec {
    let mut params = field.params.clone();
    let quoted = params.get("search_quote_analyzer").and_then(|name| name.as_str());
    let quoted = quoted.unwrap_or(&field.search_analyzer).to_owned();
    // Texts of queries are joined to shingles, but never cut to their starts.
    let searched = match part {
        AsYouTypeSubfield::Prefixes(size) => AsYouTypeSubfield::Shingles(size),
        shingles => shingles,
    };
    let names = [part.of(&field.analyzer), searched.of(&field.search_analyzer), searched.of(&quoted)];
    if let AsYouTypeSubfield::Prefixes(_) = part {
        params.insert("norms".to_owned(), false.into());
    }
    for (param, name) in ANALYZERS.into_iter().zip(names) {
        params.insert(param.to_owned(), name.into());
    }
    LeafSpec {
        field_type: FieldType::SearchAsYouType(AsYouType::Part(part)),
        params,
        copy_to: Vec::new(),
        fields: Vec::new(),
    }
}

impl AsYouType {
    /// Returns whether the mapping shows the field, rather than another one bringing it along.
    pub(super) fn is_own(self) -> bool {
        matches!(self, Self::Whole { .. })
    }
}

impl super::Mapping {
    /// Finds the part of a `search_as_you_type` field, given itself or one of its parts, that has whole
    /// shingles of a size, or that has their starts.
    pub fn as_you_type_part(&self, field: &Field, size: Option<u8>) -> Option<&Field> {
        let whole = match field.field_type {
            FieldType::SearchAsYouType(AsYouType::Whole { .. }) => field.path.as_ref(),
            FieldType::SearchAsYouType(AsYouType::Part(_)) => field.path.rsplit_once('.')?.0,
            _ => return None,
        };
        match size {
            Some(size) => self.field(&format!("{whole}._{size}gram")),
            None => self.field(&format!("{whole}.{PREFIXES}")),
        }
    }
}
