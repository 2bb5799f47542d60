//! Names and kinds of fields: the tables that are shipped, and those of the user's YAML files.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value as Json;

use super::values::Kind;
use crate::refresh::read_text;

/// Fields of NetFlow version 9.
const NETFLOW: &str = include_str!("netflow.txt");
/// Information elements of IPFIX.
const IPFIX: &str = include_str!("ipfix.txt");
/// Largest file of definitions, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// Longest name of a field, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// A field: its kind, and its name where it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldDefinition {
    pub(super) kind: Kind,
    /// `None` for a field whose bytes are skipped.
    pub(super) name: Option<Arc<str>>,
}

/// Fields by enterprise and type; those of NetFlow version 9 have enterprise 0.
#[derive(Debug)]
pub(super) struct Definitions {
    fields: HashMap<(u32, u16), FieldDefinition>,
}

impl Definitions {
    /// Reads the table for NetFlow version 9.
    pub(super) fn netflow() -> Self {
        Self { fields: NETFLOW.lines().filter_map(|line| table_line(line, false)).collect() }
    }

    /// Reads the table for IPFIX.
    pub(super) fn ipfix() -> Self {
        Self { fields: IPFIX.lines().filter_map(|line| table_line(line, true)).collect() }
    }

    /// Returns a field.
    pub(super) fn get(&self, enterprise: u32, number: u16) -> Option<&FieldDefinition> {
        self.fields.get(&(enterprise, number))
    }

    /// Adds the definitions of a YAML file in the form of Logstash; they replace those of the same number.
    ///
    /// # Errors
    /// A file that cannot be read, or a definition that is none, by the file's name.
    pub(super) fn extend_from_file(&mut self, path: &Path, has_enterprises: bool) -> Result<(), String> {
        let shown = path.display();
        let text = read_text(path, MAX_FILE_BYTES).map_err(|reason| format!("definitions: {reason}"))?;
        self.extend_from_yaml(&text, has_enterprises)
            .map_err(|problem| format!("definitions [{shown}]: {problem}"))
    }

    fn extend_from_yaml(&mut self, text: &str, has_enterprises: bool) -> Result<(), String> {
        type Fields = HashMap<u16, Vec<Json>>;
        let tables: HashMap<u32, Fields> = if has_enterprises {
            serde_norway::from_str(text).map_err(|error| error.to_string())?
        } else {
            let fields: Fields = serde_norway::from_str(text).map_err(|error| error.to_string())?;
            HashMap::from([(0, fields)])
        };
        for (enterprise, fields) in tables {
            for (number, definition) in fields {
                let field = yaml_field(&definition)
                    .ok_or_else(|| format!("field [{number}] is neither a kind with a name nor `skip`"))?;
                self.fields.insert((enterprise, number), field);
            }
        }
        Ok(())
    }
}

/// Reads a line of a shipped table; `None` for a comment.
fn table_line(line: &str, has_enterprise: bool) -> Option<((u32, u16), FieldDefinition)> {
    let mut words = line.split(' ');
    let enterprise = if has_enterprise { words.next()?.parse().ok()? } else { 0 };
    let number = words.next()?.parse().ok()?;
    let kind = Kind::parse(words.next()?)?;
    let name = words.next().filter(|_| kind != Kind::Skip).map(Arc::from);
    Some(((enterprise, number), FieldDefinition { kind, name }))
}

/// Reads a definition such as `[:uint32, :in_bytes]`, `[4, :in_bytes]` or `[:skip]`.
fn yaml_field(definition: &[Json]) -> Option<FieldDefinition> {
    let word = |value: &Json| match value {
        Json::String(text) => Some(text.trim_start_matches(':').to_owned()),
        Json::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let kind = Kind::parse(&word(definition.first()?)?)?;
    if kind == Kind::Skip {
        return Some(FieldDefinition { kind, name: None });
    }
    let name = word(definition.get(1)?)?;
    let is_name = !name.is_empty() && name.len() <= MAX_NAME_BYTES;
    is_name.then(|| FieldDefinition { kind, name: Some(name.into()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_tables_are_read_whole() {
        let lines = |table: &str| table.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(Definitions::netflow().fields.len(), lines(NETFLOW));
        assert_eq!(Definitions::ipfix().fields.len(), lines(IPFIX));
        let first = Definitions::ipfix().get(0, 1).cloned().unwrap();
        assert_eq!((first.kind, first.name.as_deref()), (Kind::Unsigned, Some("octetDeltaCount")));
    }

    #[test]
    fn a_file_of_the_user_renames_fields() {
        let mut fields = Definitions::netflow();
        fields.extend_from_yaml("---\n1:\n- 4\n- :octets\n2:\n- :skip\n", false).unwrap();
        assert_eq!(fields.get(0, 1).unwrap().name.as_deref(), Some("octets"));
        assert_eq!(fields.get(0, 2).unwrap().name, None);
        let mut elements = Definitions::ipfix();
        elements.extend_from_yaml("9:\n  12345:\n  - :string\n  - :mine\n", true).unwrap();
        assert_eq!(elements.get(9, 12345).unwrap().name.as_deref(), Some("mine"));
        assert!(elements.extend_from_yaml("9:\n  1:\n  - :colour\n  - x\n", true).is_err());
    }
}
