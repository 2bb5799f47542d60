//! Heads of letters: time, pipeline and length from three columns, without reading the letters.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use millrace_engine::Engine;
use millrace_ingest::dead_letter::INDEX;
use millrace_mapping::{Mapping, PathId};
use millrace_runtime::{Priority, Result};
use millrace_segment::{ColumnBatch, RowParts, SegmentView};
use roaring::RoaringBitmap;

/// Assumed length of a letter where an earlier version did not record it.
pub(crate) const UNKNOWN_BYTES: u64 = 4 << 10;
/// Letters whose ids are read at once.
const IDS_AT_ONCE: usize = 1_000;

/// A letter that was not read.
#[derive(Clone, Debug)]
pub(crate) struct UnreadDeadLetter {
    /// Time of writing; 0 where that is unknown.
    pub(crate) time_ms: i64,
    /// `None` where it can only be told from the letter.
    pub(crate) pipeline: Option<Arc<str>>,
    /// Length of its document, where that is known.
    pub(crate) bytes: Option<u64>,
    /// Segment of the listing, and row there.
    pub(crate) at: (usize, u32),
}

/// The letters that a snapshot has.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) segments: Vec<SegmentView>,
    columns: [Option<PathId>; 3],
}

/// Segments, rows, and rows that are deleted: other ones where letters came or went.
pub(crate) type Contents = (usize, u64, u64);

impl Listing {
    pub(crate) fn contents(&self) -> Contents {
        let rows = self.segments.iter().map(|view| u64::from(view.segment.rows())).sum();
        (self.segments.len(), rows, self.segments.iter().map(|view| view.deleted.len()).sum())
    }

    /// Takes a snapshot. `None` where there is no index of letters.
    pub(crate) async fn take(engine: &Engine) -> Result<Option<Self>> {
        let Ok(index) = engine.index(INDEX) else { return Ok(None) };
        engine.refresh(&[Arc::clone(&index)]).await?;
        let snapshot = index.snapshot().await?;
        let mapping = &snapshot.mapping;
        let columns = [
            column(mapping, &["@timestamp"]),
            column(mapping, &["pipeline", "pipeline.keyword"]),
            column(mapping, &["bytes"]),
        ];
        let segments = snapshot.shards.iter().flat_map(|shard| shard.segments.iter().cloned()).collect();
        Ok(Some(Self { segments, columns }))
    }

    /// Folds the heads of all letters, segment by segment.
    pub(crate) async fn fold<T: Send + 'static>(
        &self,
        engine: &Engine,
        mut of: T,
        mut add: impl FnMut(&mut T, UnreadDeadLetter) + Send + 'static,
    ) -> Result<T> {
        let (segments, columns) = (self.segments.clone(), self.columns);
        let read = move || {
            let mut names: HashMap<String, Arc<str>> = HashMap::new();
            for (number, view) in segments.iter().enumerate() {
                let mut rows = RoaringBitmap::new();
                rows.insert_range(0..view.segment.rows());
                rows -= &*view.deleted;
                let wanted: Vec<_> = columns.iter().flatten().copied().collect();
                let mut failed = Ok(());
                view.segment.scan_blocking(&wanted, Some(rows), |batch| {
                    failed = show(number, &columns, &batch, &mut names, &mut |head| add(&mut of, head));
                    failed.is_ok()
                })?;
                failed?;
            }
            Ok(of)
        };
        engine.compute().run(Priority::Ingest, read).await
    }

    /// Ids of letters, in their order.
    pub(crate) async fn ids(&self, heads: &[UnreadDeadLetter]) -> Result<Vec<String>> {
        let mut by_segment: HashMap<usize, Vec<(u32, usize)>> = HashMap::new();
        for (place, head) in heads.iter().enumerate() {
            by_segment.entry(head.at.0).or_default().push((head.at.1, place));
        }
        let mut ids = vec![String::new(); heads.len()];
        for (segment, mut rows) in by_segment {
            let Some(view) = self.segments.get(segment) else { continue };
            rows.sort_unstable();
            for rows in rows.chunks(IDS_AT_ONCE) {
                let numbers: Vec<u32> = rows.iter().map(|(row, _)| *row).collect();
                let found = view.segment.fetch(&numbers, RowParts { source: false, versions: false }).await?;
                for ((_, place), row) in rows.iter().zip(found) {
                    if let Some(id) = ids.get_mut(*place) {
                        *id = row.id;
                    }
                }
            }
        }
        Ok(ids)
    }
}

fn column(mapping: &Mapping, names: &[&str]) -> Option<PathId> {
    let fields = names.iter().filter_map(|name| mapping.field(name));
    fields.filter(|field| field.doc_values).map(|field| field.column).next()
}

fn show(
    segment: usize,
    columns: &[Option<PathId>; 3],
    batch: &ColumnBatch,
    names: &mut HashMap<String, Arc<str>>,
    each: &mut impl FnMut(UnreadDeadLetter),
) -> Result<()> {
    let mut read = batch.columns.iter();
    let mut next = |kind: &DataType| match read.next() {
        // Several values of one letter are none of ours.
        Some(values) if !matches!(values.data_type(), DataType::List(_)) => cast(values, kind).map(Some),
        _ => Ok(None),
    };
    let kinds = [DataType::Int64, DataType::Utf8, DataType::Int64];
    let mut found = [None, None, None];
    for ((column, kind), found) in columns.iter().zip(&kinds).zip(&mut found) {
        if column.is_some() {
            *found = next(kind)?;
        }
    }
    let [times, pipelines, lengths] = found;
    let number = |values: &Option<arrow::array::ArrayRef>, at: usize| {
        let values = values.as_ref()?.as_primitive::<Int64Type>();
        values.is_valid(at).then(|| values.value(at))
    };
    for (at, row) in batch.rows.iter().enumerate() {
        let pipeline = pipelines.as_ref().map(|values| values.as_string::<i32>());
        let pipeline = pipeline.filter(|values| values.is_valid(at)).map(|values| values.value(at));
        let pipeline = pipeline.map(|name| match names.get(name) {
            Some(known) => Arc::clone(known),
            None => {
                let new: Arc<str> = Arc::from(name);
                names.insert(name.to_owned(), Arc::clone(&new));
                new
            }
        });
        each(UnreadDeadLetter {
            time_ms: number(&times, at).unwrap_or_default(),
            pipeline,
            bytes: number(&lengths, at).and_then(|bytes| u64::try_from(bytes).ok()),
            at: (segment, *row),
        });
    }
    Ok(())
}
