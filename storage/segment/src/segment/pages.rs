//! Statistics of a stored segment, without decoding: bounds of pages, ranges over them, and columns that have one value
//! throughout.

use std::collections::HashSet;

use arrow::datatypes::DataType;
use millrace_mapping::PathId;
use millrace_runtime::Result;
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::statistics::Statistics;
use roaring::RoaringBitmap;

use super::layout;
use super::range::{Bounds, NumberBounds, PageBounds, Relation, ValueRange};
use super::stored::{StoredSegment, get_or_try_init};
use super::union::StringRepetition;

impl StoredSegment {
    /// Returns `_version` and `_primary_term` where the statistics prove them to be the same in all rows.
    pub(super) fn constants(&self) -> Result<&[Option<u64>; 2]> {
        get_or_try_init(&self.constants, || {
            let mut constants = [None; 2];
            for (name, constant) in [layout::VERSION, layout::PRIMARY_TERM].into_iter().zip(&mut constants) {
                if let Some(root) = self.named_root(name)? {
                    *constant = self.constant(root)?;
                }
            }
            Ok(constants)
        })
    }

    /// Returns the value that all rows of a column of whole numbers have, if the statistics tell.
    fn constant(&self, root: usize) -> Result<Option<u64>> {
        let data = self.data()?;
        let (_, metadata) = data.parts();
        let Some(leaf) = leaf_of(metadata, root) else { return Ok(None) };
        let mut constant = None;
        for group in metadata.metadata().row_groups() {
            let Some(Statistics::Int64(bounds)) = group.column(leaf).statistics() else { return Ok(None) };
            let exact = bounds.min_is_exact() && bounds.max_is_exact();
            match (bounds.min_opt(), bounds.max_opt()) {
                (Some(min), Some(max))
                    if exact && min == max && constant.is_none_or(|constant| constant == *min) =>
                {
                    constant = Some(*min);
                }
                _ => return Ok(None),
            }
        }
        Ok(constant.map(i64::cast_unsigned))
    }

    /// Tells how much the strings of a column repeat; `None` of other columns and of few strings.
    pub(super) fn repetition(&self, column: PathId) -> Result<Option<StringRepetition>> {
        let Some(root) = self.root_of(column)? else { return Ok(None) };
        let present = self.column_record(column).map_or(0, |record| record.present);
        let data = self.data()?;
        let (_, metadata) = data.parts();
        Ok(leaf_of(metadata, root)
            .and_then(|leaf| StringRepetition::of_chunks(metadata.metadata(), leaf, present)))
    }

    /// Returns whether any of some columns has a dictionary in a row group.
    pub(super) fn has_dictionary(&self, columns: &HashSet<PathId>) -> Result<bool> {
        let data = self.data()?;
        let (_, metadata) = data.parts();
        for column in columns {
            let Some(leaf) = self.root_of(*column)?.and_then(|root| leaf_of(metadata, root)) else {
                continue;
            };
            let mut groups = metadata.metadata().row_groups().iter();
            if groups.any(|group| group.column(leaf).dictionary_page_offset().is_some()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the bounds of a column page by page, in row order; `None` where the file lacks it.
    pub(crate) fn pages(&self, column: PathId) -> Result<Option<Vec<PageBounds>>> {
        let Some(root) = self.root_of(column)? else { return Ok(None) };
        let list = self.column_record(column).is_none_or(|record| record.list);
        let mut pages = Vec::new();
        self.for_each_page(root, |rows, bounds, full| {
            pages.push(PageBounds { rows, values: NumberBounds::from(&bounds), full: full && !list });
        })?;
        Ok(Some(pages))
    }

    /// Returns the rows of each page of the sources, in their order.
    pub(crate) fn source_pages(&self) -> Result<Vec<std::ops::Range<u32>>> {
        let mut pages = Vec::new();
        if let Some(root) = self.named_root(layout::SOURCE)? {
            self.for_each_page(root, |rows, _, _| pages.push(rows))?;
        }
        Ok(pages)
    }

    /// Visits the pages of a root column that is a single leaf: rows, bounds, and whether every row
    /// has a value.
    pub(super) fn for_each_page(
        &self,
        root: usize,
        mut visit: impl FnMut(std::ops::Range<u32>, Bounds<'_>, bool),
    ) -> Result<()> {
        let data = self.data()?;
        let (_, metadata) = data.parts();
        let parquet = metadata.metadata();
        let leaf = leaf_of(metadata, root).unwrap_or(0);
        let unsigned = matches!(metadata.schema().field(root).data_type(), DataType::UInt64);
        let mut base = 0u32;
        for group in 0..parquet.num_row_groups() {
            let group_rows = u32::try_from(parquet.row_group(group).num_rows()).unwrap_or(u32::MAX - base);
            let pages =
                parquet.offset_index().and_then(|i| i.get(group)?.get(leaf)).map(|i| i.page_locations());
            let stats = parquet.column_index().and_then(|i| i.get(group)?.get(leaf));
            // Sources have none.
            let stats = stats.filter(|stats| !matches!(stats, ColumnIndexMetaData::NONE));
            match pages {
                None => visit(base..base + group_rows, Bounds::Unknown, false),
                Some(pages) => {
                    for (i, page) in pages.iter().enumerate() {
                        let start = u32::try_from(page.first_row_index).unwrap_or(group_rows);
                        let end = pages
                            .get(i + 1)
                            .and_then(|next| u32::try_from(next.first_row_index).ok())
                            .unwrap_or(group_rows);
                        let full = stats.and_then(|s| s.null_count(i)) == Some(0);
                        let bounds = match stats {
                            Some(stats) if stats.is_null_page(i) => Bounds::Empty,
                            Some(stats) => page_bounds(stats, i, unsigned),
                            None => Bounds::Unknown,
                        };
                        visit(base + start..base + end, bounds, full);
                    }
                }
            }
            base += group_rows;
        }
        Ok(())
    }

    /// Finds the rows with a value in the range.
    pub(crate) fn range_rows(
        &self,
        column: PathId,
        range: &ValueRange,
        among: Option<&RoaringBitmap>,
    ) -> Result<RoaringBitmap> {
        let nothing = Ok(RoaringBitmap::new());
        let Some(record) = self.column_record(column) else { return nothing };
        match range.relation_to_record(&record.min, &record.max) {
            Relation::Disjoint => return nothing,
            Relation::Covers if record.present == self.record.rows => {
                let mut all = RoaringBitmap::new();
                all.insert_range(0..self.record.rows);
                return Ok(among.map_or(all, Clone::clone));
            }
            _ => {}
        }
        let Some(root) = self.root_of(column)? else { return nothing };
        let mut found = RoaringBitmap::new();
        let mut straddling = RoaringBitmap::new();
        self.for_each_page(root, |rows, bounds, full| match range.relation(&bounds) {
            Relation::Disjoint => {}
            Relation::Covers if full && !record.list => {
                found.insert_range(rows);
            }
            _ => {
                straddling.insert_range(rows);
            }
        })?;
        if let Some(among) = among {
            found &= among;
            straddling &= among;
        }
        if !straddling.is_empty() {
            let mut numbers = straddling.iter();
            let mut batch_rows = Vec::with_capacity(self.batch_rows());
            for batch in self.reader(&[root], Some(&straddling))? {
                let batch = batch.map_err(|e| self.read_error(e))?;
                batch_rows.clear();
                batch_rows.extend(numbers.by_ref().take(batch.num_rows()));
                range.matches(batch.column(0), &mut |at| {
                    found.insert(batch_rows[at]);
                });
            }
        }
        Ok(found)
    }
}

/// Finds the first leaf of a root column.
fn leaf_of(metadata: &ArrowReaderMetadata, root: usize) -> Option<usize> {
    let schema = metadata.parquet_schema();
    (0..schema.num_columns()).find(|&leaf| schema.get_column_root_idx(leaf) == root)
}

fn page_bounds(index: &ColumnIndexMetaData, page: usize, unsigned: bool) -> Bounds<'_> {
    match index {
        ColumnIndexMetaData::INT32(i) => match (i.min_value(page), i.max_value(page)) {
            (Some(min), Some(max)) => Bounds::I64(i64::from(*min), i64::from(*max)),
            _ => Bounds::Unknown,
        },
        ColumnIndexMetaData::INT64(i) => match (i.min_value(page), i.max_value(page)) {
            (Some(min), Some(max)) if unsigned => Bounds::U64(min.cast_unsigned(), max.cast_unsigned()),
            (Some(min), Some(max)) => Bounds::I64(*min, *max),
            _ => Bounds::Unknown,
        },
        ColumnIndexMetaData::FLOAT(i) => match (i.min_value(page), i.max_value(page)) {
            (Some(min), Some(max)) => Bounds::F64(f64::from(*min), f64::from(*max)),
            _ => Bounds::Unknown,
        },
        ColumnIndexMetaData::DOUBLE(i) => match (i.min_value(page), i.max_value(page)) {
            (Some(min), Some(max)) => Bounds::F64(*min, *max),
            _ => Bounds::Unknown,
        },
        ColumnIndexMetaData::BYTE_ARRAY(i) | ColumnIndexMetaData::FIXED_LEN_BYTE_ARRAY(i) => {
            match (i.min_value(page), i.max_value(page)) {
                (Some(min), Some(max)) => Bounds::Bytes(min, max),
                _ => Bounds::Unknown,
            }
        }
        _ => Bounds::Unknown,
    }
}
