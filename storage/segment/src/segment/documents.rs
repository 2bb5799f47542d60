//! Segments in memory of documents that belong to no shard, as a refresh would make them.
//!
//! Filters are asked of documents as they arrive, a batch at a time: `millrace-matching` makes such a segment of each.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use millrace_catalog::access::Origin;
use millrace_mapping::document::ChunkBuilder;
use millrace_mapping::{Mapping, PathId};
use millrace_runtime::{Compute, Error, Result};

use super::Segment;
use super::memory::Memory;
use super::rows::{MemChunk, StringBuffer};
use crate::next_key;

/// A document that was accepted.
#[derive(Clone, Debug)]
pub struct Document {
    /// Its id.
    pub id: Arc<str>,
    /// Its source.
    pub source: Bytes,
    /// The sequence number of the operation that wrote it.
    pub seq_no: u64,
    /// The routing value that it was written with.
    pub routing: Option<Arc<str>>,
}

impl Segment {
    /// Makes the segment of some documents, a row each, in their order. `mapping` has their fields already, as it has once
    /// they are accepted; of a value that does not fit it any more the source alone is kept. Only `fields` and their columns can
    /// be searched, all where absent. Takes the time of a refresh: it is called on a compute thread.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for more bytes than a segment in memory may have, an analyzer that is missing.
    pub fn of_documents(
        mapping: &Arc<Mapping>,
        documents: &[Document],
        fields: Option<&BTreeSet<PathId>>,
        compute: Compute,
    ) -> Result<Self> {
        let mut builder = ChunkBuilder::new(Arc::clone(mapping));
        for document in documents {
            builder.push_accepted(&document.id, &document.source)?;
        }
        let (chunk, _) = builder.finish();
        let routed = documents.iter().any(|document| document.routing.is_some());
        let routings = || documents.iter().map(|document| document.routing.as_deref().map(str::to_owned));
        let chunk = MemChunk {
            chunk,
            ids: packed(documents.iter().map(|document| document.id.as_bytes()))?,
            sources: packed(documents.iter().map(|document| document.source.as_ref()))?,
            seq_nos: documents.iter().map(|document| document.seq_no).collect(),
            versions: vec![1; documents.len()],
            routings: routed.then(|| routings().collect()),
            primary_term: 1,
            frame: 0,
            time_ms: 0,
            origin: Origin::Unknown,
            generated: false,
            replacing: Vec::new(),
        };
        let memory = Memory::build_fields(mapping, &[Arc::new(chunk)], fields)?;
        Ok(Self::memory(next_key(), compute, memory))
    }
}

/// Puts strings one behind the other.
fn packed<'a>(strings: impl Iterator<Item = &'a [u8]> + Clone) -> Result<StringBuffer> {
    let total: usize = strings.clone().map(<[u8]>::len).sum();
    if u32::try_from(total).is_err() {
        return Err(Error::TooLarge(format!("{total} bytes of documents in one segment in memory")));
    }
    let (mut bytes, mut ends) = (BytesMut::with_capacity(total), Vec::new());
    for string in strings {
        bytes.extend_from_slice(string);
        // The sum is below 2^32.
        ends.push(bytes.len() as u32);
    }
    Ok(StringBuffer { bytes: bytes.freeze(), ends })
}

#[cfg(test)]
mod tests {
    use millrace_mapping::Scalar;
    use serde_json::{Map, json};

    use super::*;

    fn document(at: u64, source: &serde_json::Value) -> Document {
        let (id, source) = (at.to_string().into(), Bytes::from(source.to_string()));
        Document { id, source, seq_no: 10 + at, routing: (at == 1).then(|| "r".into()) }
    }

    #[test]
    fn documents_without_a_shard_are_searched_like_others() {
        let body = json!({"properties": {
            "level": {"type": "keyword", "ignore_above": 5}, "size": {"type": "long"},
            "message": {"type": "text", "fields": {"raw": {"type": "keyword"}}}
        }});
        let mapping = Arc::new(Mapping::parse(&body, &Map::new()).unwrap());
        let documents = [
            document(0, &json!({"level": "info", "size": 7, "message": "disk full"})),
            // What does not fit is in the source alone, as on replay.
            document(1, &json!({"level": "too long", "size": "none", "message": "disk ok", "new": 1})),
        ];
        let compute = Compute::start(1).unwrap();
        let field = |path: &str| mapping.field(path).unwrap().id;
        let found = |segment: &Segment, path: &str, value: &str| {
            let bundle = segment.bundle_blocking().unwrap();
            bundle.doc_freq(field(path), &Scalar::Str(value.to_owned())).unwrap()
        };
        let all = Segment::of_documents(&mapping, &documents, None, compute.clone()).unwrap();
        assert_eq!((found(&all, "level", "info"), found(&all, "level", "too long")), (1, 0));
        assert_eq!(found(&all, "message.raw", "disk ok"), 1);
        let stored = all.fetch_blocking(&[1], super::super::RowParts::ALL).unwrap().remove(0);
        assert_eq!((stored.id.as_str(), stored.seq_no, stored.routing.as_deref()), ("1", 11, Some("r")));
        assert_eq!(stored.ignored, ["level", "new", "size"]);

        let raw = BTreeSet::from([field("message.raw")]);
        let some = Segment::of_documents(&mapping, &documents, Some(&raw), compute).unwrap();
        assert_eq!(found(&some, "message.raw", "disk ok"), 1);
        assert_eq!(found(&some, "level", "info"), 0);
        assert!(some.bundle_blocking().unwrap().text(field("message")).is_none());
    }
}
