//! Columns of the elements of nested paths: one list for each row of a table.
//!
//! An [`ElementColumn`] tells where an index has the values of elements: in columns of the path, or in `_source`. [`ElementLayout`]
//! tells what an item of the list is: an element, or one value of all elements. Columns of elements are unnested above the scan, so
//! that every layout of one path has the same number of items in a row. [`list_valued_fields`] finds the fields whose elements hold
//! several values.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int32Array, ListArray, RecordBatch, UInt32Array, new_null_array,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::{concat, take};
use datafusion::arrow::datatypes::{DataType, Field};
use millrace_dsl::query;
use millrace_mapping::PathId;
use millrace_matching::lower;
use millrace_matching::table::TableSnapshot;
use millrace_matching::table::resolve::{IndexContext, resolve};
use millrace_matching::table::statistics::Functions;
use millrace_scoring::nested::matching_elements;
use millrace_scoring::node::{Node, ResolvedPredicate};
use millrace_scoring::reader::SegmentReader;
use millrace_scoring::source::Source;
use millrace_segment::Nested;
use millrace_work::compute::Compute;
use millrace_work::error::{Error, Result};
use roaring::RoaringBitmap;
use serde_json::{Value, json};

use super::column::{ColumnSource, SqlColumn, at_path};
use super::push::Clause;
use super::renderer::clause_json;

/// Most elements that are read at a time, where they are of several documents.
const STEP_ELEMENTS: usize = 1 << 17;
/// Most rows that the elements of one document make.
const MAX_COMBINATIONS: u64 = 1 << 18;
/// Most rows that the elements of the documents of one batch make, where it has several.
const BATCH_COMBINATIONS: u64 = 1 << 14;

/// Item of the list that a column of elements has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ElementLayout {
    /// A value: all of those that the elements of a row have.
    Values,
    /// An element.
    Each,
    /// The list of the elements that lie in one of the path around.
    Within,
}

/// Source of a column of elements in an index.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ElementColumn {
    /// The nested path.
    pub path: PathId,
    /// The nested path around it, for [`ElementLayout::Within`].
    pub around: Option<PathId>,
    /// Source of an element's value.
    pub value: ElementValue,
}

impl ElementColumn {
    /// Returns the clause whose truth the column is.
    pub(crate) fn clause(&self) -> Option<&Clause> {
        match &self.value {
            ElementValue::Mark(mark) => Some(&mark.clause),
            _ => None,
        }
    }
}

/// Source of the value of an element.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ElementValue {
    /// A column of the path.
    Column(Box<ColumnSource>, PathId),
    /// In `_source`: the steps to the elements, and those from an element to the value.
    Source(Vec<String>, Vec<String>),
    /// The place of the element in its document.
    Ordinal,
    /// The truth of a clause.
    Mark(Arc<ElementMark>),
}

/// A clause on elements whose truth is a column.
#[derive(Debug)]
pub(crate) struct ElementMark {
    /// The nested path.
    path: String,
    clause: Clause,
    resolved: OnceLock<Arc<ResolvedMark>>,
}

/// A clause on elements as the indices of a snapshot understand it.
#[derive(Debug)]
struct ResolvedMark {
    resolved: Vec<Option<ResolvedPredicate>>,
    functions: Functions,
}

impl PartialEq for ElementMark {
    fn eq(&self, other: &Self) -> bool {
        (&self.path, &self.clause) == (&other.path, &other.clause)
    }
}

impl ElementMark {
    /// Makes the column of a clause on the elements of a path.
    pub(crate) fn new(path: &str, clause: Clause) -> Self {
        Self { path: path.to_owned(), clause, resolved: OnceLock::new() }
    }

    fn resolved(&self, snapshot: &TableSnapshot, now_ms: i64) -> Result<Arc<ResolvedMark>> {
        if let Some(resolved) = self.resolved.get() {
            return Ok(Arc::clone(resolved));
        }
        let predicate = lower::lower_filter(&query::parse(&nested_clause(&self.path, &self.clause))?);
        let mut resolved = Vec::with_capacity(snapshot.indices.len());
        for index in &snapshot.indices {
            let context = IndexContext { meta: &index.meta, mapping: &index.mapping, now_ms };
            let known = index.mapping.nested_id(&self.path).is_some();
            resolved.push(known.then(|| resolve(&predicate, context)).transpose()?);
        }
        let made = Arc::new(ResolvedMark { resolved, functions: Functions::new(snapshot.shards, false) });
        Ok(Arc::clone(self.resolved.get_or_init(|| made)))
    }

    /// Finds the elements of some rows of a segment for which the clause holds.
    fn matching(
        &self,
        snapshot: &TableSnapshot,
        (number, source): (u32, &Source),
        rows: &[u32],
        now_ms: i64,
    ) -> Result<RoaringBitmap> {
        let ResolvedMark { resolved, functions } = &*self.resolved(snapshot, now_ms)?;
        let Some(segment) = snapshot.segments.get(number as usize) else { return Ok(RoaringBitmap::new()) };
        let Some(Some(own)) = resolved.get(segment.index) else { return Ok(RoaringBitmap::new()) };
        let Node::Nested(node) = &own.node else { return Ok(RoaringBitmap::new()) };
        let work = &source.work;
        let functions = functions.of(snapshot, resolved, segment.index, segment.shard, false, work)?;
        let source = Source { functions, ..source.clone() };
        let found = matching_elements(node, &source, rows)?;
        Ok(found.into_iter().flatten().map(|element| element.element).collect())
    }
}

/// Makes the clause of the rows that have an element for which a clause holds.
pub(crate) fn nested_clause(path: &str, clause: &Clause) -> Value {
    json!({"nested": {"path": path, "query": clause_json(clause)}})
}

/// Rows of a segment whose elements are read.
#[derive(Clone, Copy)]
pub(crate) struct ElementRows<'a> {
    pub snapshot: &'a TableSnapshot,
    /// Number of the segment.
    pub segment: u32,
    /// The rows, ascending.
    pub rows: &'a [u32],
    /// Their sources, where a column needs them.
    pub sources: &'a [Value],
    pub now_ms: i64,
    pub work: &'a millrace_work::QueryContext,
}

/// The elements of some rows, as ranges of a list of them.
struct ElementRanges {
    elements: RoaringBitmap,
    /// For each row: where its elements begin; and the end.
    offsets: Vec<i32>,
}

impl ElementRanges {
    fn new(nested: &Nested, rows: &[u32]) -> Result<Self> {
        let mut elements = RoaringBitmap::new();
        let mut offsets = Vec::with_capacity(rows.len() + 1);
        offsets.push(0);
        for row in rows {
            elements.insert_range(nested.elements_of(*row));
            offsets.push(i32::try_from(elements.len()).map_err(|_| too_many())?);
        }
        Ok(Self { elements, offsets })
    }

    /// Makes lists of items, one for each element.
    fn lists(&self, items: ArrayRef) -> Result<ArrayRef> {
        list_array(items, self.offsets.clone())
    }
}

fn too_many() -> Error {
    Error::IllegalArgument("the rows of a batch have more nested elements than a list holds".to_owned())
}

/// Makes lists, of which an empty one is null.
fn list_array(items: ArrayRef, offsets: Vec<i32>) -> Result<ArrayRef> {
    let nulls: NullBuffer = offsets.windows(2).map(|pair| pair[0] < pair[1]).collect();
    let field = Arc::new(Field::new_list_field(items.data_type().clone(), true));
    Ok(Arc::new(ListArray::try_new(field, OffsetBuffer::new(offsets.into()), items, Some(nulls))?))
}

/// Reads columns of elements of some rows, each with its source in the index of the segment. Blocks; runs on a compute thread.
///
/// # Errors
/// Segments that cannot be read, or elements that are too many.
pub(crate) fn element_arrays(
    of: ElementRows<'_>,
    columns: &[(&SqlColumn, &ElementColumn)],
) -> Result<Vec<ArrayRef>> {
    let lost = || Error::Execution(format!("segment {} is not in the snapshot", of.segment));
    let segment = of.snapshot.segments.get(of.segment as usize).ok_or_else(lost)?;
    let mut arrays = Vec::with_capacity(columns.len());
    for (column, own) in columns {
        of.work.check()?;
        let none = || new_null_array(&column.arrow(), of.rows.len());
        let Some(nested) = segment.reader.nested(own.path)? else {
            arrays.push(none());
            continue;
        };
        let ranges = ElementRanges::new(&nested, of.rows)?;
        if ranges.elements.is_empty() {
            arrays.push(none());
            continue;
        }
        let items = items(of, column, own, &nested, &ranges)?;
        arrays.push(match column.elements {
            Some(ElementLayout::Values) => values(&items, &ranges.offsets)?,
            Some(ElementLayout::Within) => {
                let around = own.around.and_then(|around| segment.reader.nested(around).transpose());
                match around.transpose()? {
                    Some(around) => within(items, (&nested, &ranges), &around, of.rows)?,
                    None => none(),
                }
            }
            _ => ranges.lists(items)?,
        });
    }
    Ok(arrays)
}

/// Returns how many of some rows are read at a time for their elements of some paths to be few enough.
///
/// # Errors
/// Segments that cannot be read.
pub(crate) fn element_steps(
    reader: &dyn SegmentReader,
    paths: &[PathId],
    rows: &[u32],
) -> Result<Vec<usize>> {
    let mut nested = Vec::with_capacity(paths.len());
    for path in paths {
        nested.extend(reader.nested(*path)?);
    }
    let (mut steps, mut length, mut sum) = (Vec::new(), 0, 0);
    for row in rows {
        let elements: usize = nested.iter().map(|nested| nested.elements_of(*row).len()).sum();
        if length > 0 && sum + elements > STEP_ELEMENTS {
            steps.push(length);
            (length, sum) = (0, 0);
        }
        (length, sum) = (length + 1, sum + elements);
    }
    steps.push(length);
    Ok(steps)
}

/// Cuts a batch where the rows that its elements make would be too many for one batch.
///
/// # Errors
/// A document with too many combinations of elements.
pub(crate) fn split_by_elements(
    batch: RecordBatch,
    columns: &[(usize, &SqlColumn, &ElementColumn)],
) -> Result<Vec<RecordBatch>> {
    let mut weights = vec![1_u64; batch.num_rows()];
    let mut known: Vec<PathId> = Vec::new();
    for (at, column, own) in columns {
        if column.elements == Some(ElementLayout::Values) || known.contains(&own.path) {
            continue;
        }
        let Some(lists) = batch.columns().get(*at).and_then(|array| array.as_list_opt::<i32>()) else {
            continue;
        };
        known.push(own.path);
        let inner = lists.values().as_list_opt::<i32>();
        let inner = inner.filter(|_| column.elements == Some(ElementLayout::Within));
        for (row, weight) in weights.iter_mut().enumerate() {
            let bounds = lists.value_offsets()[row]..lists.value_offsets()[row + 1];
            let count = u64::try_from(bounds.end - bounds.start).unwrap_or_default();
            *weight = weight.saturating_mul(match inner {
                None => count.max(1),
                // The elements around are counted by their own list.
                Some(inner) => {
                    let offset = |at: i32| usize::try_from(at).unwrap_or_default();
                    let ends = (offset(bounds.start), offset(bounds.end));
                    let within = inner.value_offsets()[ends.1] - inner.value_offsets()[ends.0];
                    u64::try_from(within).unwrap_or_default().div_ceil(count.max(1)).max(1)
                }
            });
        }
    }
    let (mut batches, mut start, mut sum) = (Vec::new(), 0, 0_u64);
    for (row, weight) in weights.into_iter().enumerate() {
        if weight > MAX_COMBINATIONS {
            return Err(Error::IllegalArgument(format!(
                "a document has {weight} combinations of nested elements, more than the {MAX_COMBINATIONS} that are allowed"
            )));
        }
        if row > start && sum + weight > BATCH_COMBINATIONS {
            batches.push(batch.slice(start, row - start));
            (start, sum) = (row, 0);
        }
        sum += weight;
    }
    batches.push(batch.slice(start, batch.num_rows() - start));
    Ok(batches)
}

/// Makes an item for each element of some rows.
fn items(
    of: ElementRows<'_>,
    column: &SqlColumn,
    own: &ElementColumn,
    nested: &Nested,
    ranges: &ElementRanges,
) -> Result<ArrayRef> {
    let count = usize::try_from(ranges.elements.len()).map_err(|_| too_many())?;
    let item = SqlColumn { elements: None, ..(*column).clone() };
    Ok(match &own.value {
        ElementValue::Column(source, id) => {
            let mut read: Vec<ArrayRef> = Vec::new();
            nested.scan_blocking(&[*id], Some(ranges.elements.clone()), |batch| {
                read.extend(batch.columns.first().cloned());
                true
            })?;
            let arrays = read.iter().map(|array| item.of_array(source, array)).collect::<Result<Vec<_>>>()?;
            let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
            let array = match arrays.is_empty() {
                true => new_null_array(&item.arrow(), count),
                false => concat(&arrays)?,
            };
            if array.len() != count {
                let read = array.len();
                return Err(Error::Execution(format!("{read} of {count} nested elements were read")));
            }
            array
        }
        ElementValue::Source(steps, path) => {
            let mut elements: Vec<Value> = Vec::with_capacity(count);
            for (source, bounds) in of.sources.iter().zip(ranges.offsets.windows(2)) {
                let mut found = Vec::new();
                if let Some(value) = at_path(source, steps) {
                    collect_objects(value, &mut found);
                }
                let own = usize::try_from(bounds[1] - bounds[0]).unwrap_or_default();
                found.resize(own, Value::Null);
                elements.append(&mut found);
            }
            elements.resize(count, Value::Null);
            item.of_sources(path, &elements)?
        }
        ElementValue::Ordinal => {
            let ordinals = ranges.offsets.windows(2).flat_map(|bounds| 0..bounds[1] - bounds[0]);
            Arc::new(Int32Array::from_iter_values(ordinals))
        }
        ElementValue::Mark(mark) => {
            let segment = of.snapshot.segments.get(of.segment as usize);
            let source =
                segment.map(|segment| of.snapshot.source(of.segment, segment, of.work)).transpose()?;
            let found = match &source {
                Some(source) => mark.matching(of.snapshot, (of.segment, source), of.rows, of.now_ms)?,
                None => RoaringBitmap::new(),
            };
            Arc::new(ranges.elements.iter().map(|own| Some(found.contains(own))).collect::<BooleanArray>())
        }
    })
}

/// Collects the objects of a value that may be an array of them.
fn collect_objects(value: Value, found: &mut Vec<Value>) {
    match value {
        Value::Array(values) => values.into_iter().for_each(|value| collect_objects(value, found)),
        object @ Value::Object(_) => found.push(object),
        _ => {}
    }
}

/// Makes one list of the values of all elements of each row; items are lists of values.
fn values(items: &ArrayRef, offsets: &[i32]) -> Result<ArrayRef> {
    let Some(lists) = items.as_list_opt::<i32>() else {
        return Err(Error::Execution("the values of nested elements are no lists".to_owned()));
    };
    let mut places: Vec<u32> = Vec::new();
    let mut ends = vec![0];
    for bounds in offsets.windows(2) {
        for element in bounds[0]..bounds[1] {
            let element = usize::try_from(element).unwrap_or_default();
            if lists.is_null(element) {
                continue;
            }
            let range = lists.value_offsets()[element]..lists.value_offsets()[element + 1];
            let present =
                range.filter(|at| lists.values().is_valid(usize::try_from(*at).unwrap_or_default()));
            places.extend(present.filter_map(|at| u32::try_from(at).ok()));
        }
        ends.push(i32::try_from(places.len()).map_err(|_| too_many())?);
    }
    list_array(take(lists.values(), &UInt32Array::from(places), None)?, ends)
}

/// Makes a list for each element of the path around, and lists of these for each row.
fn within(
    items: ArrayRef,
    (nested, ranges): (&Nested, &ElementRanges),
    around: &Nested,
    rows: &[u32],
) -> Result<ArrayRef> {
    let outer = ElementRanges::new(around, rows)?;
    let mut offsets = vec![0];
    let mut end = 0_i32;
    for element in &outer.elements {
        let own = nested.elements_within(element);
        let read = ranges.elements.range_cardinality(own);
        end += i32::try_from(read).map_err(|_| too_many())?;
        offsets.push(end);
    }
    outer.lists(list_array(items, offsets)?)
}

/// Finds the nested fields that hold several values in an element, of paths that a statement may unnest.
///
/// # Errors
/// Segments that cannot be read.
pub(crate) async fn list_valued_fields(
    snapshots: Vec<Arc<TableSnapshot>>,
    text: String,
    compute: &Compute,
) -> Result<HashSet<String>> {
    let unnests = |snapshot: &Arc<TableSnapshot>| {
        let mappings = snapshot.indices.iter().map(|index| &index.mapping);
        let mappings = mappings.filter(|mapping| mapping.has_nested());
        let fields = mappings.flat_map(|mapping| mapping.fields().map(move |field| (mapping, field)));
        let mut paths = fields.filter_map(|(mapping, field)| mapping.nested_path(&field.path));
        paths.any(|path| may_unnest(&text, path))
    };
    let snapshots: Vec<_> = snapshots.into_iter().filter(|snapshot| unnests(snapshot)).collect();
    if snapshots.is_empty() {
        return Ok(HashSet::new());
    }
    compute.run(move || read_list_valued(&snapshots, &text)).await
}

/// Returns whether the text of a statement may unnest a path: by `nested`, or by its last step behind the name of a source.
fn may_unnest(text: &str, path: &str) -> bool {
    let step = path.rsplit('.').next().unwrap_or(path);
    let calls = || text.as_bytes().windows(6).any(|word| word.eq_ignore_ascii_case(b"nested"));
    text.contains(&format!(".{step}")) || text.contains(step) && calls()
}

fn read_list_valued(snapshots: &[Arc<TableSnapshot>], text: &str) -> Result<HashSet<String>> {
    let mut found = HashSet::new();
    for snapshot in snapshots {
        for segment in &snapshot.segments {
            let Some(index) = snapshot.indices.get(segment.index) else { continue };
            for field in index.mapping.fields() {
                let Some(path) = index.mapping.nested_path(&field.path) else { continue };
                if !may_unnest(text, path) || found.contains(field.path.as_ref()) {
                    continue;
                }
                let Some(nested) = index.mapping.nested_id(path) else { continue };
                let Some(nested) = segment.reader.nested(nested)? else { continue };
                if nested.elements() == 0 {
                    continue;
                }
                let mut is_list = false;
                nested.scan_blocking(&[field.column], Some(RoaringBitmap::from_iter([0])), |batch| {
                    let types = batch.columns.iter().map(|column| column.data_type());
                    is_list |= types.into_iter().any(|own| matches!(own, DataType::List(_)));
                    true
                })?;
                if is_list {
                    found.insert(field.path.to_string());
                }
            }
        }
    }
    Ok(found)
}
