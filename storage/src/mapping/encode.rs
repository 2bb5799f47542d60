//! Mappings as bytes, for log and catalog: JSON of the body, the version, and the path of each number.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::settings::Settings;
use super::spec;
use super::tree::{Analysis, Mapping, Numbers};
use crate::{Error, Result};

#[derive(Serialize, Deserialize)]
struct Encoded {
    version: u64,
    /// Path of each number; numbers are places in this list.
    paths: Vec<String>,
    mapping: Value,
}

fn corrupt(reason: impl Into<String>) -> Error {
    Error::Corrupt { file: "mapping".to_owned(), offset: 0, reason: reason.into() }
}

impl Mapping {
    /// Encodes the mapping with its path numbers for log and catalog.
    pub fn encode(&self) -> Vec<u8> {
        let paths = self.by_id.iter().map(|leaf| self.leaf(*leaf).field.path.to_string()).collect();
        let encoded = Encoded { version: self.version, paths, mapping: self.to_json() };
        serde_json::to_vec(&encoded).expect("JSON of strings and numbers is always writable")
    }

    /// Decodes what [`Mapping::encode`] made. Limits are not checked: what was accepted stays.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where the bytes are something else.
    pub fn decode(bytes: &[u8], settings: &Map<String, Value>) -> Result<Self> {
        let encoded: Encoded = serde_json::from_slice(bytes).map_err(|error| corrupt(error.to_string()))?;
        let mut mapping = Self::bare(Settings::read(settings)?, Analysis::read(settings)?);
        let spec = spec::parse_root(&encoded.mapping, mapping.context())?;
        let count = encoded.paths.len();
        let distinct: HashSet<&String> = encoded.paths.iter().collect();
        if distinct.len() != count {
            return Err(corrupt("a path has two numbers"));
        }
        let numbers: Numbers =
            encoded.paths.into_iter().enumerate().map(|(id, path)| (path, id as u32)).collect();
        mapping.apply(spec, Some(&numbers))?;
        if mapping.leaves.len() != count {
            return Err(corrupt(format!("{count} numbers for {} paths", mapping.leaves.len())));
        }
        mapping.seal(encoded.version);
        Ok(mapping)
    }
}
