//! Dynamic filters: keys of the build side of a join, which leave rows of the probe side's scan out.
//!
//! A hash join reads its build side first. Then its `DynamicFilterPhysicalExpr` holds the keys of that side, or the least and the
//! greatest key where they are many. A [`DynamicFilter`] belongs to a column of the probe side's scan. It asks the join's expression
//! when the scan comes to a segment, and finds the rows that may have a key: by postings where the values of the column are terms, by
//! the bounds of pages elsewhere. Values of rows that postings find are those of the terms, so the column is not read.
//!
//! The join tests all rows again. A filter may leave too few rows out, or none; it never leaves a row out that has a key.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::{cmp, fmt};

use datafusion::arrow::array::{ArrayRef, StringViewArray, UInt32Array};
use datafusion::arrow::compute::take;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, Column, DynamicFilterPhysicalExpr, InListExpr, Literal,
};
use datafusion::physical_expr::{ScalarFunctionExpr, split_conjunction};
use datafusion::physical_plan::PhysicalExpr;
use datafusion::scalar::ScalarValue;
use futures::FutureExt;
use millrace_mapping::{PathId, Scalar};
use millrace_matching::table::predicate::Predicate;
use millrace_matching::table::resolve::{IndexContext, resolve};
use millrace_matching::table::{TableSegment, TableState};
use millrace_scoring::node::Node;
use millrace_segment::NumberBounds;
use millrace_work::QueryContext;
use millrace_work::error::Result;
use parking_lot::Mutex;
use roaring::RoaringBitmap;

use super::ScanSource;
use crate::column::{ColumnSource, SqlColumn};
use crate::pushdown;
use crate::types::SqlType;

/// Most distinct keys that are looked up. Of more, the least and the greatest count.
pub(crate) const MAX_KEYS: usize = 10_000;
/// Most bytes of the keys that are looked up, those of equal ones included.
pub(crate) const MAX_KEY_BYTES: usize = 4 << 20;
/// Rows of a segment a key, at least, for keys to be looked up: a look-up costs as much as reading so many rows. Debug builds look
/// keys up as soon as they can, so that tests meet it.
const ROWS_A_KEY: u64 = if cfg!(debug_assertions) { 1 } else { 100 };
/// One row in so many of a segment is few: a filter that leaves more rows is not applied by postings, nor by pages unless it leaves
/// at least so many out.
const FEW_SHARE: u64 = if cfg!(debug_assertions) { 2 } else { 8 };
/// Most rows that a filter keeps of postings, over all segments.
const MAX_ROWS: u64 = 1 << 20;

/// A filter of a scan by a key of a join.
#[derive(Debug)]
pub(crate) struct DynamicFilter {
    key: JoinKey,
    source: Arc<ScanSource>,
    /// Place of the column in the source.
    column: usize,
    keys: OnceLock<Option<KeySet>>,
    segments: Vec<Mutex<SegmentRows>>,
    /// Segments whose rows were found by postings, and by the bounds of pages.
    narrowed: [AtomicUsize; 2],
    /// Rows that are kept of postings.
    kept: AtomicU64,
}

/// A key of a join.
#[derive(Clone, Debug)]
pub(crate) struct JoinKey {
    /// Expression of the join that has the keys of its build side.
    pub(crate) filter: Arc<DynamicFilterPhysicalExpr>,
    /// Place of the key among those of the join.
    pub(crate) place: usize,
    /// Its column on the probe side.
    pub(crate) column: usize,
}

/// Keys of a build side.
#[derive(Debug)]
struct KeySet {
    /// Number of distinct keys; `None` where only their bounds are known.
    count: Option<usize>,
    numbers: Option<KeyNumbers>,
    /// By index of the scan.
    indices: Vec<IndexKeys>,
}

/// Keys as an index of a scan has them.
#[derive(Debug)]
enum IndexKeys {
    /// No row of the index has one.
    Absent,
    /// Terms of a field.
    Terms(KeyTerms),
    /// Other values, or values that are not known to be terms.
    Values,
}

/// Keys as terms.
#[derive(Debug)]
struct KeyTerms {
    path: PathId,
    values: Vec<Scalar>,
    /// Column that has the terms themselves, and these as an array.
    column: Option<(PathId, ArrayRef)>,
}

/// Keys that are compared with the bounds of pages.
#[derive(Debug, PartialEq)]
enum KeyNumbers {
    Whole(KeyRange<i128>),
    Real(KeyRange<f64>),
}

/// Numbers of keys.
#[derive(Debug, PartialEq)]
enum KeyRange<T> {
    /// Each of them, ascending.
    Listed(Vec<T>),
    /// The least and the greatest.
    Between(T, T),
}

/// Rows of a segment that may have a key.
#[derive(Debug)]
enum SegmentRows {
    /// They have not been looked for.
    Unread,
    All,
    Few(Arc<KeyRows>),
}

/// Column of values, the place of the value of each row, ascending by row, and the values.
type RowValues = (PathId, Vec<(u32, u32)>, ArrayRef);

/// Some rows of a segment, and the values that they have as far as these are known.
#[derive(Debug)]
pub(super) struct KeyRows {
    pub(super) rows: RoaringBitmap,
    values: Option<RowValues>,
    /// Holds the memory of the rows.
    _memory: QueryContext,
}

impl<T: PartialOrd + Copy> KeyRange<T> {
    /// Returns whether a key may lie between two values.
    fn meets(&self, least: T, most: T) -> bool {
        match self {
            Self::Listed(keys) => {
                let behind = keys.partition_point(|key| *key < least);
                keys.get(behind).is_some_and(|key| *key <= most)
            }
            Self::Between(first, last) => *first <= most && least <= *last,
        }
    }
}

impl KeyNumbers {
    /// Reads numbers and times; `None` of other values.
    fn new(keys: &[ScalarValue]) -> Option<Self> {
        if let Some(mut whole) = keys.iter().map(whole).collect::<Option<Vec<i128>>>() {
            whole.sort_unstable();
            return Some(Self::Whole(KeyRange::Listed(whole)));
        }
        let mut real = keys.iter().map(real).collect::<Option<Vec<f64>>>()?;
        real.sort_unstable_by(f64::total_cmp);
        Some(Self::Real(KeyRange::Listed(real)))
    }

    /// Reads the least and the greatest key.
    fn between(least: &ScalarValue, most: &ScalarValue) -> Option<Self> {
        match (whole(least), whole(most)) {
            (Some(least), Some(most)) => Some(Self::Whole(KeyRange::Between(least, most))),
            _ => Some(Self::Real(KeyRange::Between(real(least)?, real(most)?))),
        }
    }

    /// Returns whether a run of rows with such values may have a key.
    fn meets(&self, bounds: &NumberBounds) -> bool {
        match (self, bounds) {
            (_, NumberBounds::Empty) => false,
            (Self::Whole(keys), NumberBounds::I64(least, most)) => {
                keys.meets(i128::from(*least), i128::from(*most))
            }
            (Self::Whole(keys), NumberBounds::U64(least, most)) => {
                keys.meets(i128::from(*least), i128::from(*most))
            }
            (Self::Real(keys), NumberBounds::F64(least, most)) => keys.meets(*least, *most),
            _ => true,
        }
    }
}

/// Reads an integer, or a time as its column counts it.
fn whole(value: &ScalarValue) -> Option<i128> {
    Some(match value {
        ScalarValue::Int8(Some(number)) => (*number).into(),
        ScalarValue::Int16(Some(number)) => (*number).into(),
        ScalarValue::Int32(Some(number)) => (*number).into(),
        ScalarValue::Int64(Some(number)) => (*number).into(),
        ScalarValue::UInt64(Some(number)) => (*number).into(),
        ScalarValue::TimestampMillisecond(Some(time), None) => (*time).into(),
        ScalarValue::TimestampNanosecond(Some(time), None) => (*time).into(),
        _ => return None,
    })
}

/// Reads a floating point number that is one.
fn real(value: &ScalarValue) -> Option<f64> {
    let number = match value {
        ScalarValue::Float32(Some(number)) => f64::from(*number),
        ScalarValue::Float64(Some(number)) => *number,
        _ => return None,
    };
    (!number.is_nan()).then_some(number)
}

impl KeyRows {
    /// Returns whether the values of the rows are known.
    pub(super) fn has_values(&self) -> bool {
        self.values.is_some()
    }

    /// Returns the values of some of the rows, and the column that has them; `None` where they are not known.
    pub(super) fn values_of(&self, rows: &RoaringBitmap) -> Option<(PathId, ArrayRef)> {
        let (column, places, values) = self.values.as_ref()?;
        let mut places = places.iter();
        let place = |row: u32| places.by_ref().find(|(other, _)| *other == row).map(|(_, place)| *place);
        let places: Option<Vec<u32>> = rows.iter().map(place).collect();
        let values = take(values, &UInt32Array::from(places?), None).ok()?;
        Some((*column, values))
    }
}

impl DynamicFilter {
    /// Makes the filter of a column of a source; `None` where rows may have several values of it, or it is no field.
    pub(super) fn new(key: JoinKey, source: &Arc<ScanSource>, column: usize) -> Option<Self> {
        let own = source.columns.get(column)?;
        if own.list || own.bits || !own.is_field() {
            return None;
        }
        let segments = source.snapshot.segments.iter().map(|_| Mutex::new(SegmentRows::Unread)).collect();
        let (keys, narrowed, kept) = (OnceLock::new(), Default::default(), AtomicU64::new(0));
        Some(Self { key, source: Arc::clone(source), column, keys, segments, narrowed, kept })
    }

    /// Returns the expression of the join.
    pub(super) fn expression(&self) -> Arc<dyn PhysicalExpr> {
        Arc::clone(&self.key.filter) as Arc<dyn PhysicalExpr>
    }

    /// Finds the rows of a segment that may have a key, where so many of a part of it are found otherwise. `None` where all may,
    /// where these are fewer than is worth a look-up, and before the join has read its build side. Blocks; runs on a compute thread.
    pub(super) fn rows(&self, table: &TableState, number: u32, found: u64) -> Result<Option<Arc<KeyRows>>> {
        let Some(keys) = self.keys(table.options.now_ms) else { return Ok(None) };
        if found == 0 || keys.count.is_some_and(|count| count as u64 * ROWS_A_KEY > found) {
            return Ok(None);
        }
        let (Some(cell), Some(segment)) =
            (self.segments.get(number as usize), table.snapshot.segments.get(number as usize))
        else {
            return Ok(None);
        };
        // Who reads another part of the segment waits for it.
        let mut cell = cell.lock();
        if let SegmentRows::Unread = *cell {
            *cell = match self.find(keys, segment, &table.options.work)? {
                Some(rows) => SegmentRows::Few(Arc::new(rows)),
                None => SegmentRows::All,
            };
        }
        Ok(match &*cell {
            SegmentRows::Few(rows) => Some(Arc::clone(rows)),
            SegmentRows::Unread | SegmentRows::All => None,
        })
    }

    fn find(&self, keys: &KeySet, segment: &TableSegment, work: &QueryContext) -> Result<Option<KeyRows>> {
        let count = |place: usize| {
            if let Some(narrowed) = self.narrowed.get(place) {
                narrowed.fetch_add(1, Ordering::Relaxed);
            }
        };
        match keys.indices.get(segment.index) {
            Some(IndexKeys::Absent) => {
                count(0);
                return Ok(Some(KeyRows { rows: RoaringBitmap::new(), values: None, _memory: work.part() }));
            }
            Some(IndexKeys::Terms(terms)) => {
                let most = MAX_ROWS.saturating_sub(self.kept.load(Ordering::Relaxed));
                if let Some(rows) = by_terms(terms, segment, most, work)? {
                    count(0);
                    self.kept.fetch_add(rows.rows.len(), Ordering::Relaxed);
                    return Ok(Some(rows));
                }
            }
            Some(IndexKeys::Values) | None => {}
        }
        let found = self.by_pages(keys, segment, work)?;
        if found.is_some() {
            count(1);
        }
        Ok(found)
    }

    /// Finds the rows of the pages that may have a key by their bounds; `None` where these are most of the segment.
    fn by_pages(
        &self,
        keys: &KeySet,
        segment: &TableSegment,
        work: &QueryContext,
    ) -> Result<Option<KeyRows>> {
        let (Some(numbers), Some(column)) = (&keys.numbers, self.source.columns.get(self.column)) else {
            return Ok(None);
        };
        let Some(ColumnSource::Column { id, ty, .. }) = column.sources.get(segment.index) else {
            return Ok(None);
        };
        let is_number = column.ty.is_number() || matches!(column.ty, SqlType::Timestamp(_));
        if *ty != column.ty || !is_number {
            return Ok(None);
        }
        let mut rows = RoaringBitmap::new();
        for page in segment.reader.pages(*id)? {
            if numbers.meets(&page.values) {
                rows.insert_range(page.rows);
            }
        }
        let all = u64::from(segment.reader.rows());
        if rows.len() > all - all / FEW_SHARE {
            return Ok(None);
        }
        let memory = work.part();
        // The join does without what there is no memory for.
        if memory.hold_rows(&rows).is_err() {
            return Ok(None);
        }
        Ok(Some(KeyRows { rows, values: None, _memory: memory }))
    }

    /// Returns the keys; `None` before the join has read its build side, and where it has none that count here.
    fn keys(&self, now_ms: i64) -> Option<&KeySet> {
        if let Some(keys) = self.keys.get() {
            return keys.as_ref();
        }
        self.key.filter.wait_complete().now_or_never()?;
        self.keys.get_or_init(|| self.read_keys(now_ms)).as_ref()
    }

    fn read_keys(&self, now_ms: i64) -> Option<KeySet> {
        let column = self.source.columns.get(self.column)?;
        let expr = self.key.filter.current().ok()?;
        let (mut listed, mut least, mut most) = (None, None, None);
        for part in split_conjunction(&expr) {
            if let Some(list) = part.downcast_ref::<InListExpr>() {
                listed = listed.or_else(|| self.key.listed(list));
            } else if let Some((operator, bound)) = self.key.bound(part) {
                match operator {
                    Operator::GtEq => least = Some(bound),
                    Operator::LtEq => most = Some(bound),
                    _ => {}
                }
            }
        }
        let Some(keys) = listed else {
            let numbers = Some(KeyNumbers::between(&least?, &most?)?);
            return Some(KeySet { count: None, numbers, indices: Vec::new() });
        };
        let indices = self.indices(column, &keys, now_ms).unwrap_or_default();
        Some(KeySet { count: Some(keys.len()), numbers: KeyNumbers::new(&keys), indices })
    }

    /// Looks keys up in the mappings of the indices.
    fn indices(&self, column: &SqlColumn, keys: &[ScalarValue], now_ms: i64) -> Option<Vec<IndexKeys>> {
        let clause = pushdown::any_of(column, keys, &self.source)?;
        let predicate = Predicate::from_expr(&clause.expr(false).ok()?)?;
        let of_index = |(index, source): (usize, &ColumnSource)| {
            let index = self.source.snapshot.indices.get(index)?;
            let context = IndexContext { meta: &index.meta, mapping: &index.mapping, now_ms };
            // The scan does without what an index refuses.
            let Ok(resolved) = resolve(&predicate, context) else { return Some(IndexKeys::Values) };
            Some(match resolved.node {
                Node::None => IndexKeys::Absent,
                Node::AnyExact { path, column: own, values, .. } => {
                    let values: Vec<Scalar> = values.iter().map(|value| value.value.clone()).collect();
                    let reads = |id: &PathId| *id == own && column.ty.is_string();
                    let column = match source {
                        ColumnSource::Column { id, .. } if reads(id) => {
                            strings(&values).map(|own| (*id, own))
                        }
                        _ => None,
                    };
                    IndexKeys::Terms(KeyTerms { path, values, column })
                }
                _ => IndexKeys::Values,
            })
        };
        column.sources.iter().enumerate().map(of_index).collect()
    }
}

/// Makes an array of strings; `None` where a value is none.
fn strings(values: &[Scalar]) -> Option<ArrayRef> {
    let string = |value: &Scalar| match value {
        Scalar::Str(text) => Some(text.clone()),
        _ => None,
    };
    let strings: Option<Vec<String>> = values.iter().map(string).collect();
    Some(Arc::new(StringViewArray::from_iter_values(strings?)))
}

/// Finds the rows of terms; `None` where the values are no terms in the segment, or the rows are not few.
fn by_terms(
    terms: &KeyTerms,
    segment: &TableSegment,
    most: u64,
    work: &QueryContext,
) -> Result<Option<KeyRows>> {
    let all = u64::from(segment.reader.rows());
    if terms.values.len() as u64 * ROWS_A_KEY > all {
        return Ok(None);
    }
    let inverted = segment.reader.inverted()?;
    if !inverted.has_exact(terms.path) {
        return Ok(None);
    }
    let most = (all / FEW_SHARE).min(most);
    let mut places: Vec<(u32, u32)> = Vec::new();
    let mut add = |place: usize, rows: &[u32]| {
        let place = u32::try_from(place).unwrap_or(u32::MAX);
        places.extend(rows.iter().map(|row| (*row, place)));
    };
    if !inverted.rows_of_values(terms.path, &terms.values, most, work.stop(), &mut add)? {
        return Ok(None);
    }
    work.check()?;
    places.sort_unstable();
    places.dedup_by_key(|(row, _)| *row);
    let memory = work.part();
    // The join does without what there is no memory for.
    if memory.hold(places.len() * (size_of::<(u32, u32)>() + size_of::<u32>())).is_err() {
        return Ok(None);
    }
    let rows = places.iter().map(|(row, _)| *row).collect();
    // A segment may have come to have several values in a row behind the look at the mapping.
    let column = terms.column.as_ref().filter(|(column, _)| !segment.reader.is_list(*column));
    let values = column.map(|(column, values)| (*column, places, Arc::clone(values)));
    Ok(Some(KeyRows { rows, values, _memory: memory }))
}

impl JoinKey {
    /// Reads the distinct values of the key in a list, without nulls, ascending.
    fn listed(&self, list: &InListExpr) -> Option<Vec<ScalarValue>> {
        let (own, within) = match list.expr().downcast_ref::<Column>() {
            Some(own) => (own, None),
            // Keys of several columns are structs.
            None => {
                let call = list.expr().downcast_ref::<ScalarFunctionExpr>()?;
                (call.args().get(self.place)?.downcast_ref::<Column>()?, Some(self.place))
            }
        };
        if list.negated() || own.index() != self.column {
            return None;
        }
        let value = |item: &Arc<dyn PhysicalExpr>| match (item.downcast_ref::<Literal>()?.value(), within) {
            (value, None) => Some(value.clone()),
            (ScalarValue::Struct(fields), Some(place)) => {
                ScalarValue::try_from_array(fields.columns().get(place)?, 0).ok()
            }
            _ => None,
        };
        let mut values = list.list().iter().map(value).collect::<Option<Vec<ScalarValue>>>()?;
        values.retain(|value| !value.is_null());
        values.sort_unstable_by(|one, other| one.partial_cmp(other).unwrap_or(cmp::Ordering::Equal));
        values.dedup();
        Some(values)
    }

    /// Reads a bound of the key.
    fn bound(&self, part: &Arc<dyn PhysicalExpr>) -> Option<(Operator, ScalarValue)> {
        let both = part.downcast_ref::<BinaryExpr>()?;
        let column = both.left().downcast_ref::<Column>()?;
        let value = both.right().downcast_ref::<Literal>()?.value();
        (column.index() == self.column && !value.is_null()).then(|| (*both.op(), value.clone()))
    }
}

impl fmt::Display for DynamicFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.source.columns.get(self.column).map_or("", |column| column.name.as_str());
        f.write_str(name)?;
        let Some(Some(keys)) = self.keys.get() else { return Ok(()) };
        match keys.count {
            Some(count) => write!(f, " in {count} keys")?,
            None => f.write_str(" between two keys")?,
        }
        let [postings, pages] = self.narrowed.each_ref().map(|narrowed| narrowed.load(Ordering::Relaxed));
        write!(f, ": postings of {postings} segments, pages of {pages}")
    }
}
