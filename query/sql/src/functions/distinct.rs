//! Counts of distinct values, of many groups at once.
//!
//! DataFusion has a set of values for each group, and does not count what an empty one takes: kilobytes for texts. Here the pairs of
//! group and value are in one table ([`GroupValues`]), as groups of several columns are, and the memory of all of it is counted.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, ListArray, UInt32Array, UInt64Array,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::{filter, take};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, UInt32Type};
use datafusion::common::{Result as PlanResult, exec_err, resources_err};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, Signature,
};
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;
use datafusion::scalar::ScalarValue;

/// Makes the aggregate that counts distinct values.
pub(crate) fn count() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(DistinctCount { inner: count_udaf() }))
}

/// DataFusion's count, but for distinct values of groups.
#[derive(Debug, PartialEq, Eq, Hash)]
struct DistinctCount {
    inner: Arc<AggregateUDF>,
}

impl AggregateUDFImpl for DistinctCount {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> PlanResult<DataType> {
        self.inner.return_type(arg_types)
    }

    fn is_nullable(&self) -> bool {
        self.inner.is_nullable()
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        self.inner.accumulator(args)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> PlanResult<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn default_value(&self, data_type: &DataType) -> PlanResult<ScalarValue> {
        self.inner.default_value(data_type)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        args.is_distinct && args.exprs.len() == 1 || self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn GroupsAccumulator>> {
        match args.expr_fields {
            [field] if args.is_distinct => Ok(Box::new(DistinctCounts::new(field.data_type(), false)?)),
            _ => self.inner.create_groups_accumulator(args),
        }
    }
}

/// Counts the distinct values of each of many groups.
pub(super) struct DistinctCounts {
    /// A group and a value.
    schema: SchemaRef,
    /// `true` if lists of the values are aggregated.
    lists: bool,
    /// Each pair once.
    seen: Box<dyn GroupValues>,
    /// By group.
    counts: Vec<i64>,
    /// Places of the pairs of a batch, kept for the next one.
    places: Vec<usize>,
}

impl fmt::Debug for DistinctCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistinctCounts").field("pairs", &self.seen.len()).finish_non_exhaustive()
    }
}

/// Values of groups, a value and its group a row. No value is null.
struct Pairs {
    groups: UInt32Array,
    values: ArrayRef,
}

impl Pairs {
    /// Takes the values of rows, each of which is of a group, but for nulls and what the filter leaves out.
    fn of_values(
        values: &ArrayRef,
        groups: impl IntoIterator<Item = usize>,
        kept: Option<&BooleanArray>,
    ) -> PlanResult<Self> {
        let groups = groups.into_iter().map(|group| match u32::try_from(group) {
            Ok(group) => Ok(group),
            Err(_) => resources_err!("values of more than {} groups are told apart", u32::MAX),
        });
        let groups = UInt32Array::from(groups.collect::<PlanResult<Vec<_>>>()?);
        let nulls = values.logical_nulls();
        if nulls.is_none() && kept.is_none() {
            return Ok(Self { groups, values: Arc::clone(values) });
        }
        let kept: BooleanArray = (0..values.len())
            .map(|row| {
                let there = nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
                Some(there && kept.is_none_or(|kept| kept.is_valid(row) && kept.value(row)))
            })
            .collect();
        let groups = filter(&groups, &kept)?.as_primitive::<UInt32Type>().clone();
        Ok(Self { groups, values: filter(values, &kept)? })
    }

    /// Takes the values of lists, each of which is of a group.
    fn of_lists(lists: &ArrayRef, groups: &[usize], kept: Option<&BooleanArray>) -> PlanResult<Self> {
        let Some(lists) = lists.as_list_opt::<i32>() else {
            return exec_err!("distinct values of lists are counted, but they come as {}", lists.data_type());
        };
        let offsets = lists.offsets();
        let (from, to) = (offsets[0] as usize, offsets[lists.len()] as usize);
        let mut of_values = Vec::with_capacity(to - from);
        // Null lists may still span values.
        let mut there = Vec::with_capacity(to - from);
        for (row, group) in groups.iter().enumerate() {
            let length = (offsets[row + 1] - offsets[row]) as usize;
            let kept = lists.is_valid(row) && kept.is_none_or(|kept| kept.is_valid(row) && kept.value(row));
            of_values.extend(std::iter::repeat_n(*group, length));
            there.extend(std::iter::repeat_n(kept, length));
        }
        let all = there.iter().all(|there| *there);
        let there = BooleanArray::from(there);
        Self::of_values(&lists.values().slice(from, to - from), of_values, (!all).then_some(&there))
    }

    /// Splits off those of the first groups, and makes the others those of groups behind them.
    fn split(self, first: usize) -> PlanResult<(Self, Self)> {
        let is_first = BooleanArray::from_unary(&self.groups, |group| (group as usize) < first);
        let others = datafusion::arrow::compute::not(&is_first)?;
        let part = |kept: &BooleanArray| {
            let groups = filter(&self.groups, kept)?.as_primitive::<UInt32Type>().clone();
            Ok::<_, datafusion::error::DataFusionError>(Self { groups, values: filter(&self.values, kept)? })
        };
        let (one, mut other) = (part(&is_first)?, part(&others)?);
        other.groups = other.groups.unary(|group| group - first as u32);
        Ok((one, other))
    }

    /// Makes a list of the values of each of so many groups.
    fn into_lists(self, groups: usize) -> PlanResult<ArrayRef> {
        let mut lengths = vec![0_usize; groups];
        for group in self.groups.values() {
            lengths[*group as usize] += 1;
        }
        if i32::try_from(self.values.len()).is_err() {
            return resources_err!("{} distinct values are counted at once", self.values.len());
        }
        let mut next = Vec::with_capacity(groups);
        let mut sum = 0;
        for length in &lengths {
            next.push(sum);
            sum += length;
        }
        let mut order = vec![0_u64; self.values.len()];
        for (row, group) in self.groups.values().iter().enumerate() {
            let place = &mut next[*group as usize];
            order[*place] = row as u64;
            *place += 1;
        }
        let values = take(&self.values, &UInt64Array::from(order), None)?;
        let item = Arc::new(Field::new_list_field(values.data_type().clone(), true));
        Ok(Arc::new(ListArray::try_new(item, OffsetBuffer::from_lengths(lengths), values, None)?))
    }
}

impl DistinctCounts {
    /// Makes what counts values of a type, or those of lists of such.
    pub(super) fn new(ty: &DataType, lists: bool) -> PlanResult<Self> {
        let fields =
            vec![Field::new("group", DataType::UInt32, false), Field::new("value", ty.clone(), true)];
        let schema = Arc::new(Schema::new(fields));
        let seen = new_group_values(Arc::clone(&schema), &GroupOrdering::None)?;
        Ok(Self { schema, lists, seen, counts: Vec::new(), places: Vec::new() })
    }

    /// Takes what is aggregated as values of groups.
    fn pairs(&self, values: &[ArrayRef], groups: &[usize], kept: Option<&BooleanArray>) -> PlanResult<Pairs> {
        match (values, self.lists) {
            ([values], false) => Pairs::of_values(values, groups.iter().copied(), kept),
            ([lists], true) => Pairs::of_lists(lists, groups, kept),
            _ => exec_err!("distinct values of {} arguments are counted", values.len()),
        }
    }

    /// Notes pairs, and counts those that are new.
    fn add(&mut self, pairs: &Pairs, groups: usize) -> PlanResult<()> {
        self.counts.resize(groups.max(self.counts.len()), 0);
        for group in self.intern(pairs)? {
            self.counts[group] += 1;
        }
        Ok(())
    }

    /// Notes pairs; returns the group of each that is new.
    fn intern(&mut self, pairs: &Pairs) -> PlanResult<Vec<usize>> {
        let before = self.seen.len();
        let columns = [Arc::new(pairs.groups.clone()) as ArrayRef, Arc::clone(&pairs.values)];
        self.seen.intern(&columns, &mut self.places)?;
        let mut noted = vec![false; self.seen.len() - before];
        let mut new = Vec::with_capacity(noted.len());
        for (place, group) in self.places.iter().zip(pairs.groups.values()) {
            let Some(at) = place.checked_sub(before) else { continue };
            if !std::mem::replace(&mut noted[at], true) {
                new.push(*group as usize);
            }
        }
        Ok(new)
    }

    /// Takes all pairs out.
    fn take(&mut self) -> PlanResult<Pairs> {
        let all = match self.seen.is_empty() {
            true => Vec::new(),
            false => self.seen.emit(EmitTo::All)?,
        };
        self.seen = new_group_values(Arc::clone(&self.schema), &GroupOrdering::None)?;
        match all.as_slice() {
            [groups, values] => {
                Ok(Pairs { groups: groups.as_primitive::<UInt32Type>().clone(), values: Arc::clone(values) })
            }
            _ => {
                let ty = self.schema.field(1).data_type();
                Ok(Pairs {
                    groups: UInt32Array::from(Vec::<u32>::new()),
                    values: datafusion::arrow::array::new_empty_array(ty),
                })
            }
        }
    }

    /// Takes the pairs of groups out that are emitted.
    fn take_of(&mut self, emitted: EmitTo) -> PlanResult<Pairs> {
        let all = self.take()?;
        let EmitTo::First(groups) = emitted else { return Ok(all) };
        let (first, others) = all.split(groups)?;
        self.intern(&others)?;
        Ok(first)
    }
}

impl GroupsAccumulator for DistinctCounts {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> PlanResult<()> {
        let pairs = self.pairs(values, group_indices, opt_filter)?;
        self.add(&pairs, total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> PlanResult<ArrayRef> {
        self.take_of(emit_to)?;
        Ok(Arc::new(Int64Array::from(emit_to.take_needed(&mut self.counts))))
    }

    fn state(&mut self, emit_to: EmitTo) -> PlanResult<Vec<ArrayRef>> {
        let pairs = self.take_of(emit_to)?;
        let groups = emit_to.take_needed(&mut self.counts).len();
        Ok(vec![pairs.into_lists(groups)?])
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> PlanResult<()> {
        let [lists] = values else {
            return exec_err!("distinct values have one state, not {}", values.len());
        };
        let pairs = Pairs::of_lists(lists, group_indices, None)?;
        self.add(&pairs, total_num_groups)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> PlanResult<Vec<ArrayRef>> {
        let rows = values.first().map_or(0, |values| values.len());
        let each: Vec<usize> = (0..rows).collect();
        Ok(vec![self.pairs(values, &each, opt_filter)?.into_lists(rows)?])
    }

    fn size(&self) -> usize {
        size_of::<Self>()
            + self.seen.size()
            + self.counts.capacity() * size_of::<i64>()
            + self.places.capacity() * size_of::<usize>()
    }
}

#[cfg(test)]
mod tests;
