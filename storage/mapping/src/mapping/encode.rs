//! Mappings as bytes, for log and catalog: JSON of the body, the version, and the path of each number.
//! Nested paths are numbered apart from leaves; a mapping stored before they were lacks their list.

use std::collections::HashMap;

use millrace_runtime::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::settings::Settings;
use super::spec;
use super::tree::{Analysis, Mapping, Numbers};

#[derive(Deserialize)]
struct Version {
    version: u64,
}

#[derive(Serialize, Deserialize)]
struct EncodedSettings {
    version: u64,
    /// Path of each number; numbers are places in this list.
    paths: Vec<String>,
    /// Nested path of each of their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    nested: Vec<String>,
    mapping: Value,
}

fn corrupt(reason: impl Into<String>) -> Error {
    Error::Corrupt { file: "mapping".to_owned(), offset: 0, reason: reason.into() }
}

impl Mapping {
    /// Encodes the mapping with its path numbers for log and catalog.
    pub fn encode(&self) -> Vec<u8> {
        let paths = self.by_id.iter().map(|leaf| self.leaf(*leaf).field.path.to_string()).collect();
        let nested = self.nested_objects().map(|object| object.path.to_string()).collect();
        let encoded = EncodedSettings { version: self.version, paths, nested, mapping: self.to_json() };
        serde_json::to_vec(&encoded).expect("JSON of strings and numbers is always writable")
    }

    /// Reads the version of an encoded mapping, which may be one that today's settings cannot decode.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where the bytes are something else.
    pub fn version_of(bytes: &[u8]) -> Result<u64> {
        let encoded: Version = serde_json::from_slice(bytes).map_err(|error| corrupt(error.to_string()))?;
        Ok(encoded.version)
    }

    /// Decodes what [`Mapping::encode`] made. Limits are not checked: what was accepted stays.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where the bytes are something else.
    pub fn decode(bytes: &[u8], settings: &Map<String, Value>) -> Result<Self> {
        let encoded: EncodedSettings =
            serde_json::from_slice(bytes).map_err(|error| corrupt(error.to_string()))?;
        let mut mapping = Self::bare(Settings::read(settings)?, Analysis::read(settings)?);
        let spec = spec::parse_root(&encoded.mapping, mapping.context())?;
        let count = encoded.paths.len();
        let numbered = |paths: Vec<String>| -> Result<HashMap<String, u32>> {
            let count = paths.len();
            let numbers: HashMap<_, _> =
                paths.into_iter().enumerate().map(|(id, path)| (path, id as u32)).collect();
            if numbers.len() == count { Ok(numbers) } else { Err(corrupt("a path has two numbers")) }
        };
        let numbers = Numbers { leaves: numbered(encoded.paths)?, nested: numbered(encoded.nested)? };
        mapping.apply(spec, Some(&numbers))?;
        if mapping.leaves.len() != count {
            return Err(corrupt(format!("{count} numbers for {} paths", mapping.leaves.len())));
        }
        if mapping.nested.contains(&u32::MAX) {
            return Err(corrupt("a number of a nested path that the mapping lacks"));
        }
        mapping.seal(encoded.version);
        Ok(mapping)
    }
}
