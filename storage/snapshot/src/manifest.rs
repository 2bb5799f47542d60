//! Manifest of a snapshot: what is in it, in one file that is checked as a whole.
//!
//! The file is a magic number, the SHA-256 of the rest, and gzipped JSON. It is written last: a snapshot whose manifest is there
//! is complete. `docs/internals/snapshot-format.md` describes it.

use std::io::{Read, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::digest::ContentDigest;

/// Version of the format of manifests and contents.
pub(crate) const FORMAT: u32 = 1;
const MAGIC: &[u8; 8] = b"MRSNAP\x00\x01";
/// Bytes of a manifest or of an index's contents as a file, at most.
pub(crate) const MAX_FILE_BYTES: u64 = 64 << 20;
/// Bytes of either once inflated, at most.
const MAX_JSON_BYTES: u64 = 256 << 20;
/// Shards of an index, at most; no store makes one with more.
const MAX_INDEX_SHARDS: u32 = 1024;
/// Shards of a snapshot, at most.
const MAX_SHARDS: u64 = 1_000_000;

/// Outcome of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SnapshotState {
    /// Everything that was asked for is in it.
    Success,
    /// Indices that could not be read are missing.
    Partial,
}

impl SnapshotState {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "SUCCESS",
            Self::Partial => "PARTIAL",
        }
    }
}

/// An index of a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IndexSummary {
    /// Name.
    pub name: String,
    /// Uuid in the store that was captured.
    pub uuid: Uuid,
    /// Number of shards.
    pub shards: u32,
    /// `true` for an index of the server's own, which belongs to the global state.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub system: bool,
    /// The file with its metadata and segments.
    pub contents: ContentDigest,
    /// Length of that file.
    pub contents_bytes: u64,
    /// Files of its segments.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
}

/// A shard that is not in a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MissingShard {
    /// Name of the index.
    pub index: String,
    /// Number of the shard.
    pub shard: u32,
    /// Why it is missing.
    pub reason: String,
}

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the format.
    pub format: u32,
    /// Name of the snapshot.
    pub snapshot: String,
    /// Uuid of the snapshot.
    pub uuid: Uuid,
    /// Id of the store that was captured.
    pub store: Uuid,
    /// Version of the program that wrote it.
    pub version: String,
    /// Frame of the log that it holds everything up to.
    pub frame: Option<u64>,
    /// Outcome.
    pub state: SnapshotState,
    /// Time of its begin, in milliseconds since the epoch.
    pub started_ms: i64,
    /// Time of its end.
    pub ended_ms: i64,
    /// `true` if it has the global state.
    pub include_global_state: bool,
    /// The member `metadata` of its request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// Its indices, by name.
    pub indices: Vec<IndexSummary>,
    /// Shards that are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<MissingShard>,
    /// The file with the global state, and its length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub global_state: Option<(ContentDigest, u64)>,
    /// The file with the accounts, and its length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accounts: Option<(ContentDigest, u64)>,
    /// Files that this snapshot brought to the repository.
    pub added_files: u64,
    /// Bytes of these files.
    pub added_bytes: u64,
}

impl Manifest {
    /// Returns one that stands in until the manifest is read.
    pub(crate) fn empty() -> Self {
        Self {
            format: 0,
            snapshot: String::new(),
            uuid: Uuid::nil(),
            store: Uuid::nil(),
            version: String::new(),
            frame: None,
            state: SnapshotState::Success,
            started_ms: 0,
            ended_ms: 0,
            include_global_state: false,
            metadata: None,
            indices: Vec::new(),
            failures: Vec::new(),
            global_state: None,
            accounts: None,
            added_files: 0,
            added_bytes: 0,
        }
    }

    /// Lists the indices that users see: those of the server's own belong to the global state.
    pub fn visible_indices(&self) -> impl Iterator<Item = &IndexSummary> {
        self.indices.iter().filter(|index| !index.system)
    }

    /// Counts shards: those that are in it and those that are missing.
    pub fn shard_counts(&self) -> (u64, u64) {
        let there = self.visible_indices().map(|index| u64::from(index.shards)).sum();
        (there, self.failures.len() as u64)
    }

    /// Says which bound it exceeds; `None` where it exceeds none.
    fn fault(&self) -> Option<String> {
        if let Some(index) = self.indices.iter().find(|index| index.shards > MAX_INDEX_SHARDS) {
            return Some(format!("index [{}] has {} shards", index.name, index.shards));
        }
        let shards: u64 = self.indices.iter().map(|index| u64::from(index.shards)).sum();
        (shards > MAX_SHARDS).then(|| format!("it has {shards} shards, more than {MAX_SHARDS}"))
    }

    /// Encodes it as a file.
    ///
    /// # Errors
    /// A bound that it exceeds.
    pub(crate) fn encode(&self) -> Result<Bytes, String> {
        if let Some(fault) = self.fault() {
            return Err(fault);
        }
        let body = encode_json(self)?;
        let mut file = Vec::with_capacity(MAGIC.len() + 32 + body.len());
        file.extend_from_slice(MAGIC);
        file.extend_from_slice(ContentDigest::of_bytes(&body).as_bytes());
        file.extend_from_slice(&body);
        Ok(file.into())
    }

    /// Decodes a file.
    ///
    /// # Errors
    /// A description of the damage.
    pub(crate) fn decode(file: &[u8]) -> Result<Self, String> {
        let rest = file.strip_prefix(MAGIC).ok_or("it is no manifest of a snapshot")?;
        let (sum, body) = rest.split_first_chunk::<32>().ok_or("it is cut off")?;
        if ContentDigest::of_bytes(body) != ContentDigest::from_bytes(*sum) {
            return Err("its checksum is wrong".to_owned());
        }
        let manifest: Self = decode_json(body)?;
        match manifest.fault() {
            None => Ok(manifest),
            Some(fault) => Err(fault),
        }
    }
}

/// Encodes a value as gzipped JSON.
///
/// # Errors
/// A value that is larger than [`decode_json`] reads.
pub(crate) fn encode_json(value: &impl Serialize) -> Result<Vec<u8>, String> {
    let json = serde_json::to_vec(value).map_err(|error| error.to_string())?;
    if json.len() as u64 > MAX_JSON_BYTES {
        return Err(format!("it has {} bytes, more than {MAX_JSON_BYTES}", json.len()));
    }
    let mut out = GzEncoder::new(Vec::new(), Compression::default());
    let file = out.write_all(&json).and_then(|()| out.finish()).map_err(|error| error.to_string())?;
    match file.len() as u64 > MAX_FILE_BYTES {
        true => Err(format!("it has {} bytes compressed, more than {MAX_FILE_BYTES}", file.len())),
        false => Ok(file),
    }
}

/// Decodes gzipped JSON whose member `format` is the version of this program.
pub(crate) fn decode_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    let mut json = Vec::new();
    let inflated = GzDecoder::new(bytes).take(MAX_JSON_BYTES + 1).read_to_end(&mut json);
    inflated.map_err(|error| format!("it cannot be inflated: {error}"))?;
    if json.len() as u64 > MAX_JSON_BYTES {
        return Err(format!("it inflates to more than {MAX_JSON_BYTES} bytes"));
    }
    let Version { format } = serde_json::from_slice(&json).map_err(|error| error.to_string())?;
    if format != FORMAT {
        return Err(format!("it has format {format}; this program reads {FORMAT}"));
    }
    serde_json::from_slice(&json).map_err(|error| error.to_string())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn manifest(snapshot: &str) -> Manifest {
        Manifest {
            format: FORMAT,
            snapshot: snapshot.to_owned(),
            uuid: Uuid::from_u128(1),
            store: Uuid::from_u128(2),
            version: "0.1.0".to_owned(),
            frame: Some(7),
            state: SnapshotState::Success,
            started_ms: 1,
            ended_ms: 2,
            include_global_state: true,
            metadata: None,
            indices: Vec::new(),
            failures: Vec::new(),
            global_state: None,
            accounts: None,
            added_files: 0,
            added_bytes: 0,
        }
    }

    #[test]
    fn any_flipped_byte_is_noticed() {
        let manifest = manifest("a");
        let file = manifest.encode().unwrap();
        assert_eq!(Manifest::decode(&file).unwrap(), manifest);
        for at in 0..file.len() {
            let mut damaged = file.to_vec();
            damaged[at] ^= 0x20;
            assert!(Manifest::decode(&damaged).is_err(), "byte {at}");
            assert!(Manifest::decode(&file[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_later_format_is_refused_by_name() {
        let later = Manifest { format: 2, ..manifest("a") };
        let error = Manifest::decode(&later.encode().unwrap()).unwrap_err();
        assert!(error.contains("format 2"), "{error}");
    }

    #[test]
    fn shards_beyond_the_bounds_are_refused() {
        let index = IndexSummary {
            name: "huge".to_owned(),
            uuid: Uuid::from_u128(3),
            shards: u32::MAX,
            system: false,
            contents: ContentDigest::of_bytes(b"a"),
            contents_bytes: 1,
            files: 0,
            bytes: 0,
        };
        let huge = Manifest { indices: vec![index.clone()], ..manifest("a") };
        assert!(huge.encode().unwrap_err().contains("[huge] has 4294967295 shards"));
        let body = encode_json(&huge).unwrap();
        let file = [&MAGIC[..], ContentDigest::of_bytes(&body).as_bytes(), &body].concat();
        assert!(Manifest::decode(&file).unwrap_err().contains("[huge]"));
        let many = IndexSummary { shards: MAX_INDEX_SHARDS, ..index };
        let many = Manifest { indices: vec![many; 1_000], ..manifest("a") };
        assert!(many.encode().unwrap_err().contains("1024000 shards"));
    }

    #[test]
    fn ten_thousand_indices_take_less_than_a_megabyte() {
        let mut large = manifest("a");
        large.indices.extend((0..10_000u32).map(|number| IndexSummary {
            name: format!("logs-2026.11.{number:05}"),
            uuid: Uuid::new_v4(),
            shards: 1,
            system: false,
            contents: ContentDigest::of_bytes(&number.to_le_bytes()),
            contents_bytes: 2_000 + u64::from(number),
            files: 3,
            bytes: 100_000 + u64::from(number),
        }));
        assert!(large.encode().unwrap().len() < 1 << 20);
    }
}
