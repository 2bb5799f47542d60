//! Pinned indices: what is searched, and what its searcher may see of it.

use std::collections::HashMap;
use std::sync::Arc;

use millrace_catalog::metadata::IndexMeta;
use millrace_mapping::Mapping;
use millrace_scoring::collect::Address;
use millrace_scoring::reader::SegmentReader;
use millrace_scoring::ruled_rows::RuledRows;
use millrace_scoring::source::Source;
use millrace_work::QueryContext;
use roaring::RoaringBitmap;

use super::access_snapshot::AccessSnapshot;
use super::predicate::Predicate;

/// One index of a table.
#[derive(Clone, Debug)]
pub struct TableIndex {
    /// Name, settings, aliases.
    pub meta: Arc<IndexMeta>,
    /// Fields.
    pub mapping: Arc<Mapping>,
    /// Filter of the aliases through which the index was named.
    pub filter: Option<Predicate>,
    /// The documents and fields that the searcher may see.
    pub seen: AccessSnapshot,
    /// Numbers of its shards that are searched.
    pub shards: Vec<u32>,
    /// Factor of the scores of its rows.
    pub boost: f32,
}

/// One segment of a table; its number is its place in the list.
#[derive(Clone, Debug)]
pub struct TableSegment {
    /// Place of its index in the table.
    pub index: usize,
    /// Number of its shard in the table.
    pub shard: u32,
    /// The segment.
    pub reader: Arc<dyn SegmentReader>,
    /// Deleted rows.
    pub deleted: Arc<RoaringBitmap>,
    /// Rows that rules for documents show; absent where there are no rules.
    pub ruled: Option<RuledRows>,
}

/// The indices and segments that a search pins; a scroll pins them as long as it is open.
#[derive(Clone, Debug, Default)]
pub struct TableSnapshot {
    /// Indices in order.
    pub indices: Vec<TableIndex>,
    /// Segments in order of index, shard, age.
    pub segments: Vec<TableSegment>,
    /// Number of shards over all indices.
    pub shards: u32,
    /// Rows that a slice is cut to, by segment.
    pub listed: Option<Arc<HashMap<u32, RoaringBitmap>>>,
}

impl TableSnapshot {
    /// Opens one of the segments for a part of some work, without functions to score by: prepared state is held for as long as
    /// it, or a clone of it, is.
    pub fn source(
        &self,
        number: u32,
        segment: &TableSegment,
        work: &QueryContext,
    ) -> millrace_work::error::Result<Source> {
        Ok(Source {
            number,
            shard: self.shard_number(segment),
            reader: Arc::clone(&segment.reader),
            inverted: segment.reader.inverted()?,
            functions: Arc::default(),
            ruled: segment.ruled.clone(),
            work: work.part(),
        })
    }

    /// Returns true if no alias and no rule leaves out documents of any index.
    pub fn shows_all(&self) -> bool {
        self.indices.iter().all(|index| index.filter.is_none() && index.seen.documents.is_empty())
    }

    /// Returns the number of a segment's shard in its index.
    pub fn shard_number(&self, segment: &TableSegment) -> u32 {
        let before: usize = self.indices.iter().take(segment.index).map(|index| index.shards.len()).sum();
        let place = (segment.shard as usize).checked_sub(before);
        let shards = self.indices.get(segment.index).map(|index| &index.shards);
        shards.zip(place).and_then(|(shards, place)| shards.get(place)).copied().unwrap_or(0)
    }

    /// Names the shard of a row: its index and its number there.
    pub fn shard_of(&self, address: Address) -> Option<(&TableIndex, u32)> {
        let segment = self.segments.get(address.segment as usize)?;
        self.shards().nth(segment.shard as usize)
    }

    /// Lists the shards by their numbers in the table: the index and the number there.
    pub fn shards(&self) -> impl Iterator<Item = (&TableIndex, u32)> {
        self.indices.iter().flat_map(|index| index.shards.iter().map(move |shard| (index, *shard)))
    }
}
