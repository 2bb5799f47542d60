//! Survey of the object store: descriptions, and whether the files that they name are there.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use millrace_catalog::description::{self, INDEX, IndexDescription, MAX_BYTES, SEGMENT, SegmentDescription};
use millrace_runtime::{Error, Result};
use millrace_segment::objects::Objects;
use millrace_segment::{bundle_path, data_path, ids_path, parse_deletes_name};
use object_store::ObjectMeta;
use object_store::path::Path;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::choice::Candidate;
use crate::engine::identity::segment_of;

/// Descriptions that are read at once.
const AT_ONCE: usize = 32;

/// A described segment.
#[derive(Debug)]
pub(super) struct DescribedSegment {
    pub(super) description: SegmentDescription,
    pub(super) candidate: Candidate,
    /// The attempts to write its newest deletes file that are there.
    pub(super) attempts: Vec<Option<Uuid>>,
}

/// Inventory of the object store.
#[derive(Debug, Default)]
pub(super) struct StoreInventory {
    /// Indices that were not deleted.
    pub(super) indices: BTreeMap<Uuid, IndexDescription>,
    /// Described segments by their shards.
    pub(super) shards: BTreeMap<(Uuid, u32), Vec<DescribedSegment>>,
    /// Directories of segments without a description, by their index, with bytes.
    pub(super) undescribed: BTreeMap<String, (u64, u64)>,
    /// Descriptions that cannot be read, with the reason.
    pub(super) unreadable: Vec<String>,
}

impl StoreInventory {
    /// Reads all descriptions.
    pub(super) async fn make(objects: &Objects, listed: &[ObjectMeta]) -> Result<Self> {
        let sizes: HashMap<&Path, u64> =
            listed.iter().map(|object| (&object.location, object.size)).collect();
        let mut deletes: HashMap<Uuid, (u64, Vec<Option<Uuid>>)> = HashMap::new();
        let mut undescribed: BTreeMap<Uuid, (String, u64)> = BTreeMap::new();
        for object in listed {
            let Some(segment) = segment_of(&object.location) else { continue };
            if let Some((generation, attempt)) = object.location.filename().and_then(parse_deletes_name) {
                let newest = deletes.entry(segment).or_default();
                match generation.cmp(&newest.0) {
                    Ordering::Less => {}
                    Ordering::Equal => newest.1.push(attempt),
                    Ordering::Greater => *newest = (generation, vec![attempt]),
                }
            }
            let index = object.location.parts().next().map(|part| part.as_ref().to_owned());
            undescribed.entry(segment).or_insert((index.unwrap_or_default(), 0)).1 += object.size;
        }
        let mut survey = Self::default();
        let named =
            |name: &'static str| listed.iter().filter(move |object| object.location.filename() == Some(name));
        let indices = named(INDEX).filter(|object| object.location.parts().count() == 2);
        for read in read_all::<IndexDescription>(objects, indices).await? {
            match read {
                Ok((_, index)) => drop(survey.indices.insert(index.uuid, index)),
                Err(reason) => survey.unreadable.push(reason),
            }
        }
        let segments = named(SEGMENT).filter(|object| segment_of(&object.location).is_some());
        for read in read_all::<SegmentDescription>(objects, segments).await? {
            let description = match read {
                Ok((path, description)) if description.path() == path => description,
                Ok((path, _)) => {
                    survey.unreadable.push(format!("[{path}] describes another segment"));
                    continue;
                }
                Err(reason) => {
                    survey.unreadable.push(reason);
                    continue;
                }
            };
            undescribed.remove(&description.id);
            let (generation, attempts) = deletes.remove(&description.id).unwrap_or_default();
            let candidate = judged(&description, &sizes, generation);
            let shard = survey.shards.entry((description.index.uuid, description.shard)).or_default();
            shard.push(DescribedSegment { description, candidate, attempts });
        }
        for (index, bytes) in undescribed.into_values() {
            let sum = survey.undescribed.entry(index).or_default();
            *sum = (sum.0 + 1, sum.1 + bytes);
        }
        Ok(survey)
    }
}

fn judged(description: &SegmentDescription, sizes: &HashMap<&Path, u64>, deletes: u64) -> Candidate {
    let (index, shard, id) = (description.index.uuid, description.shard, description.id);
    let has = |path: Path, bytes: u64| sizes.get(&path).copied() == Some(bytes);
    let whole = description.record.as_ref().is_none_or(|record| {
        has(data_path(index, shard, id), record.data_bytes)
            && has(bundle_path(index, shard, id), record.bundle_bytes)
            && (record.ids_bytes == 0 || has(ids_path(index, shard, id), record.ids_bytes))
            && (record.delete_generation <= deletes)
    });
    Candidate { id, account: description.account.clone(), whole, deletes, needs: description.deletes.clone() }
}

/// Reads descriptions, or says why one cannot be read.
async fn read_all<T: DeserializeOwned>(
    objects: &Objects,
    listed: impl Iterator<Item = &ObjectMeta>,
) -> Result<Vec<Result<(Path, T), String>>> {
    let read = listed.map(|object| async move {
        let path = object.location.clone();
        if object.size > MAX_BYTES {
            return Ok(Err(format!("[{path}] is longer than {MAX_BYTES} bytes")));
        }
        let decode = |bytes: &Bytes| {
            let corrupt = |reason| Error::Corrupt { file: path.to_string(), offset: 0, reason };
            description::decode(bytes).map_err(corrupt)
        };
        let unreadable = |reason: &str| Ok(Err(format!("[{path}] cannot be read: {reason}")));
        match objects.get_checked(&path, decode).await {
            Ok(Some(description)) => Ok(Ok((path, description))),
            Ok(None) => unreadable("it is missing"),
            Err(Error::Corrupt { reason, .. }) => unreadable(&reason),
            Err(error) => Err(error),
        }
    });
    stream::iter(read).buffered(AT_ONCE).try_collect().await
}
