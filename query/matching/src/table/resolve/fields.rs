//! Selects the fields of a text: names, patterns and boosts against a mapping.

use std::collections::BTreeMap;

use millrace_dsl::json;
use millrace_dsl::query::{FieldBoosts, MAX_CLAUSES};
use millrace_mapping::pattern::matches;
use millrace_mapping::{FieldType, Mapping};
use millrace_work::error::{Error, Result};

use super::{OPTIONAL, PRESENT, Resolver};

/// Fields with the factors of their scores, in the order of their names.
pub(super) type Fields = BTreeMap<String, f32>;

/// The setting that lists the fields of queries that name none.
const DEFAULT_FIELD: &str = "index.query.default_field";

/// Selection of the fields that fit a pattern.
#[derive(Clone, Copy, Debug)]
struct FieldSelection {
    /// Those that no exact value can be asked of, such as points, as well.
    all_types: bool,
    /// Metadata fields as well.
    metadata: bool,
}

impl Resolver<'_> {
    /// Returns the fields of queries that name none.
    pub(super) fn default_fields(&self, clause: &str) -> Result<FieldBoosts> {
        FieldBoosts::new(clause, &self.default_field_names())
    }

    /// Lists the fields of queries that name none, as the index has them.
    pub(super) fn default_field_names(&self) -> Vec<String> {
        let listed = self.index.meta.settings.get(DEFAULT_FIELD).and_then(json::strings);
        listed.unwrap_or_else(|| vec!["*".to_owned()])
    }

    /// Resolves names and patterns; `suffix` is put behind a name where a field of that name exists.
    pub(super) fn fields(&self, boosts: &FieldBoosts, suffix: Option<&str>) -> Result<Fields> {
        let mut resolved = Fields::new();
        for (name, boost) in &boosts.0 {
            let taken = FieldSelection { all_types: !name.contains('*'), metadata: name != "*" };
            for (field, boost) in self.expanded(name, *boost, taken, suffix) {
                resolved.entry(field).and_modify(|sum| *sum *= boost).or_insert(boost);
            }
        }
        few_enough(&resolved, None)?;
        Ok(resolved)
    }

    /// Resolves the field, or pattern, that a condition of a query string names.
    pub(super) fn named_fields(&self, name: &str, suffix: Option<&str>) -> Result<Fields> {
        let taken = FieldSelection { all_types: name != "*", metadata: !name.contains('*') };
        let resolved = self.expanded(name, 1.0, taken, suffix);
        few_enough(&resolved, Some(name))?;
        Ok(resolved)
    }

    /// Resolves fields that are resolved already once more, with a suffix.
    pub(super) fn suffixed(&self, fields: &Fields, suffix: Option<&str>) -> Fields {
        let with_suffix = |name: &String| suffix.map(|suffix| format!("{name}{suffix}"));
        let exists = |name: &String| self.is_mapped(name);
        fields
            .iter()
            .map(|(name, boost)| (with_suffix(name).filter(exists).unwrap_or_else(|| name.clone()), *boost))
            .collect()
    }

    /// Returns whether a name leads to something that can be searched.
    pub(super) fn is_mapped(&self, name: &str) -> bool {
        self.target(name).is_some() || PRESENT.contains(&name) || OPTIONAL.contains(&name)
    }

    fn expanded(&self, pattern: &str, boost: f32, taken: FieldSelection, suffix: Option<&str>) -> Fields {
        let mapping = self.index.mapping;
        let names: Vec<&str> = match pattern.contains('*') {
            false => vec![pattern],
            true => {
                let leaves = mapping.fields().map(|field| field.path.as_ref());
                let aliases = mapping.aliases().map(|(path, _)| path);
                let metadata = PRESENT.iter().copied();
                leaves.chain(aliases).chain(metadata).filter(|name| matches(pattern, name)).collect()
            }
        };
        let mut fields = Fields::new();
        for name in names {
            let with_suffix = suffix.map(|suffix| format!("{name}{suffix}")).filter(|n| self.is_mapped(n));
            let name = with_suffix.as_deref().unwrap_or(name);
            let unfit =
                |mapping: &Mapping| mapping.field(name).is_some_and(|field| !has_terms(&field.field_type));
            if !self.is_mapped(name)
                || (!taken.metadata && name.starts_with('_'))
                || (!taken.all_types && unfit(mapping))
            {
                continue;
            }
            // An alias and its field, both meant by a pattern, are one.
            let concrete = mapping.field(name).map(|field| field.path.as_ref());
            let name = concrete.filter(|path| matches(pattern, path)).unwrap_or(name);
            fields.entry(name.to_owned()).and_modify(|product| *product *= boost).or_insert(boost);
        }
        fields
    }
}

/// Returns whether a text can be asked of fields of a type.
pub(super) fn has_terms(field_type: &FieldType) -> bool {
    !matches!(
        field_type,
        FieldType::GeoPoint
            | FieldType::Binary
            | FieldType::RankFeature
            | FieldType::RankFeatures
            | FieldType::Completion
    )
}

/// Returns whether no field has a boost.
pub(super) fn plain(fields: &Fields) -> bool {
    fields.values().all(|boost| *boost == 1.0)
}

fn few_enough(fields: &Fields, pattern: Option<&str>) -> Result<()> {
    if fields.len() <= MAX_CLAUSES {
        return Ok(());
    }
    let pattern = pattern.map(|pattern| format!("for [{pattern}] ")).unwrap_or_default();
    Err(Error::IllegalArgument(format!(
        "field expansion {pattern}matches too many fields, limit: {MAX_CLAUSES}, got: {}",
        fields.len()
    )))
}
