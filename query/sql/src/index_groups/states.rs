//! States of groups, made of what segments tell.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, Decimal128Array, Int64Array, ListArray, RecordBatch, StringViewBuilder, UInt64Array,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, FieldRef, SchemaRef};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::scalar::ScalarValue;
use millrace_aggregate::Value;
use millrace_matching::address::AddressText;
use millrace_matching::table::TableSegment;
use millrace_matching::table::partitions::RowPartition;
use millrace_work::error::{Error, Result};

use super::shape::OfValues;
use crate::column::SqlColumn;

/// Groups of one batch.
const BATCH_GROUPS: usize = 8_192;
/// Bytes by which values grow without being accounted for.
const UNACCOUNTED_BYTES: usize = 1 << 18;
/// Bytes of a value with its count, and of what is computed of it, but for the text.
const VALUE_BYTES: usize = 64;

/// Subject of a count of rows by their values.
#[derive(Clone, Debug)]
pub(super) enum CountOf {
    Rows,
    /// Those that have a value.
    Values,
    /// Different values, as a list of such items.
    Distinct(FieldRef),
}

/// Summary of whole columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnSummary {
    /// Number of rows.
    Rows,
    /// Number of rows with a value.
    Values,
    /// The least value.
    Least,
    /// The greatest value.
    Greatest,
}

/// Summary and its column: none where it is the rows.
pub(super) type OfColumn = (ColumnSummary, Option<SqlColumn>);

/// Values as they come.
enum ValueVisitor {
    Texts(StringViewBuilder),
    Bits(Vec<i128>),
    Longs(Vec<i64>),
    Unsigned(Vec<u64>),
}

/// Values of a column, and how many rows have each.
pub(super) struct ColumnValueCounts<'a> {
    column: &'a SqlColumn,
    told: ValueVisitor,
    counts: Vec<i64>,
    /// Accounts for the values.
    memory: &'a MemoryReservation,
    bytes: usize,
}

impl<'a> ColumnValueCounts<'a> {
    /// Makes what has none yet.
    pub(super) fn new(column: &'a SqlColumn, memory: &'a MemoryReservation) -> Self {
        let told = match column.arrow() {
            DataType::Utf8View => ValueVisitor::Texts(StringViewBuilder::new()),
            DataType::Decimal128(..) => ValueVisitor::Bits(Vec::new()),
            DataType::UInt64 => ValueVisitor::Unsigned(Vec::new()),
            _ => ValueVisitor::Longs(Vec::new()),
        };
        Self { column, told, counts: Vec::new(), memory, bytes: 0 }
    }

    /// Adds a value of some rows.
    ///
    /// # Errors
    /// No memory, a value of another type.
    pub(super) fn add(&mut self, value: Value<'_>, rows: u64) -> Result<()> {
        let mut length = VALUE_BYTES;
        match (&mut self.told, value) {
            (ValueVisitor::Texts(texts), Value::Text(text)) => {
                length += text.len();
                texts.append_value(text);
            }
            (ValueVisitor::Texts(texts), Value::Ip(address)) => {
                texts.append_value(&*AddressText::new(address))
            }
            (ValueVisitor::Bits(bits), Value::Ip(address)) => bits.push(i128::from_be_bytes(address)),
            (ValueVisitor::Longs(longs), Value::Long(value)) => longs.push(value),
            (ValueVisitor::Unsigned(numbers), Value::Unsigned(value)) => numbers.push(value),
            (_, value) => {
                let name = &self.column.name;
                return Err(Error::Execution(format!("the column [{name}] has the value {value:?}")));
            }
        }
        self.counts.push(i64::try_from(rows).unwrap_or(i64::MAX));
        self.bytes += length;
        if self.bytes >= UNACCOUNTED_BYTES {
            self.memory.try_grow(std::mem::take(&mut self.bytes))?;
        }
        Ok(())
    }

    /// Makes the states of the groups of all values and of so many rows without one.
    ///
    /// # Errors
    /// What the expressions of groups refuse.
    pub(super) fn states(
        mut self,
        without: u64,
        of: &OfValues,
        schema: &SchemaRef,
    ) -> Result<Vec<RecordBatch>> {
        let null = without > 0;
        if null {
            self.counts.push(i64::try_from(without).unwrap_or(i64::MAX));
        }
        let values: ArrayRef = match self.told {
            ValueVisitor::Texts(mut texts) => {
                (0..usize::from(null)).for_each(|_| texts.append_null());
                Arc::new(texts.finish())
            }
            ValueVisitor::Bits(bits) => {
                let bits: Decimal128Array = with_null(bits, null).collect();
                Arc::new(bits.with_data_type(self.column.arrow()))
            }
            ValueVisitor::Longs(longs) => Arc::new(with_null(longs, null).collect::<Int64Array>()),
            ValueVisitor::Unsigned(numbers) => Arc::new(with_null(numbers, null).collect::<UInt64Array>()),
        };
        let (values, counts) = (cast(&values, &self.column.arrow())?, Int64Array::from(self.counts));
        let starts = (0..values.len()).step_by(BATCH_GROUPS);
        let batches = starts.map(|start| {
            let length = BATCH_GROUPS.min(values.len() - start);
            states(&values.slice(start, length), &counts.slice(start, length), of, schema)
        });
        batches.collect()
    }
}

fn with_null<T>(values: Vec<T>, null: bool) -> impl Iterator<Item = Option<T>> {
    values.into_iter().map(Some).chain(null.then_some(None))
}

/// Makes the states of groups.
fn states(values: &ArrayRef, counts: &Int64Array, of: &OfValues, schema: &SchemaRef) -> Result<RecordBatch> {
    let input = RecordBatch::try_new(Arc::clone(&of.input), vec![Arc::clone(values)])?;
    let mut columns = Vec::with_capacity(schema.fields().len());
    for group in &of.groups {
        columns.push(group.evaluate(&input)?.into_array(values.len())?);
    }
    // What has no value counts for none.
    let of_value =
        || counts.iter().enumerate().map(|(at, rows)| rows.filter(|_| values.is_valid(at)).unwrap_or(0));
    for state in &of.states {
        let (alone, each): (i64, Int64Array) = match state {
            CountOf::Rows => (counts.iter().flatten().sum(), counts.clone()),
            CountOf::Values => (of_value().sum(), of_value().collect()),
            CountOf::Distinct(item) => {
                let there = values.slice(0, values.len() - values.null_count());
                let offsets = OffsetBuffer::from_lengths([there.len()]);
                columns.push(Arc::new(ListArray::try_new(Arc::clone(item), offsets, there, None)?));
                continue;
            }
        };
        columns.push(match of.groups.is_empty() {
            true => Arc::new(Int64Array::from(vec![alone])),
            false => Arc::new(each),
        });
    }
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

/// Makes the states of all rows of a part of what is known of whole columns of its segment, at the part that has its first
/// row; `None` where something is not known.
pub(super) fn whole_states(
    states: &[OfColumn],
    segment: &TableSegment,
    part: &RowPartition,
    schema: &SchemaRef,
) -> Result<Option<Vec<RecordBatch>>> {
    let rows = i64::from(segment.reader.rows());
    let mut columns = Vec::with_capacity(states.len());
    for (whole, column) in states {
        let known = match column {
            None => None,
            Some(column) => match column.extremes(segment) {
                Some(known) => Some(known),
                None => return Ok(None),
            },
        };
        let state: ScalarValue = match (whole, known) {
            (ColumnSummary::Rows, _) => rows.into(),
            (ColumnSummary::Values, Some(known)) if known.full => rows.into(),
            (ColumnSummary::Values, Some(known)) if known.least.is_null() => 0_i64.into(),
            (ColumnSummary::Least, Some(known)) => known.least,
            (ColumnSummary::Greatest, Some(known)) => known.most,
            (ColumnSummary::Values | ColumnSummary::Least | ColumnSummary::Greatest, _) => return Ok(None),
        };
        columns.push(state.to_array()?);
    }
    if part.rows.start > 0 {
        return Ok(Some(Vec::new()));
    }
    Ok(Some(vec![RecordBatch::try_new(Arc::clone(schema), columns)?]))
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool};

    use super::*;
    use crate::types::SqlType;

    #[test]
    fn values_are_memory_of_the_statement() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 20));
        let memory = MemoryConsumer::new("test").register(&pool);
        let (name, sources) = ("k".to_owned(), Vec::new());
        let column =
            SqlColumn { name, ty: SqlType::Keyword, list: false, bits: false, elements: None, sources };
        let mut counted = ColumnValueCounts::new(&column, &memory);
        let added = (0..100_000).find_map(|number: u32| {
            counted.add(Value::Text(&number.to_string()), 1).err().map(|error| (number, error))
        });
        let (number, error) = added.unwrap();
        assert!((1_000..20_000).contains(&number), "{number}");
        assert!(error.to_string().contains("test"), "{error}");
        assert!(counted.add(Value::Long(1), 1).is_err());
    }
}
