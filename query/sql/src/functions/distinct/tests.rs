use std::collections::{BTreeMap, BTreeSet};

use datafusion::arrow::array::{Float64Array, ListBuilder, StringViewArray, StringViewBuilder};
use datafusion::arrow::datatypes::Int64Type;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

const GROUPS: usize = 5;

/// Row of a test: a group, a value, and a flag for rows that the filter leaves.
type Row = (usize, Option<u8>, bool);

fn text(value: u8) -> String {
    format!("a longer text {value}")
}

fn texts(rows: &[Row]) -> ArrayRef {
    Arc::new(rows.iter().map(|(_, value, _)| value.map(text)).collect::<StringViewArray>())
}

/// Lists of the value and of another one that is the same in all of them.
fn lists(rows: &[Row]) -> ArrayRef {
    let mut lists = ListBuilder::new(StringViewBuilder::new());
    for (at, (_, value, _)) in rows.iter().enumerate() {
        if let Some(value) = value {
            lists.values().append_value(text(*value));
            lists.values().append_value(text(0));
            lists.values().append_null();
        }
        lists.append(value.is_some() || at % 2 == 0);
    }
    Arc::new(lists.finish())
}

fn expected(rows: &[Row], lists: bool) -> Vec<i64> {
    let mut sets: BTreeMap<usize, BTreeSet<u8>> = BTreeMap::new();
    for (group, value, kept) in rows {
        if let (Some(value), true) = (value, kept) {
            sets.entry(*group).or_default().extend([Some(*value), lists.then_some(0)].into_iter().flatten());
        }
    }
    (0..GROUPS).map(|group| sets.get(&group).map_or(0, |set| set.len() as i64)).collect()
}

fn counted(counts: &mut DistinctCounts, emitted: EmitTo) -> Vec<i64> {
    counts.evaluate(emitted).unwrap().as_primitive::<Int64Type>().values().to_vec()
}

#[test]
fn counts_are_those_of_sets() {
    for seed in 0..64 {
        let rng = &mut StdRng::seed_from_u64(seed);
        let rows: Vec<Row> = (0..rng.random_range(1..60))
            .map(|_| {
                let value = rng.random_bool(0.8).then(|| rng.random_range(0..6));
                (rng.random_range(0..GROUPS), value, rng.random_bool(0.8))
            })
            .collect();
        let as_lists = rng.random_bool(0.5);
        let (step, first) = (rng.random_range(1..20), rng.random_range(0..GROUPS));
        let array = |rows: &[Row]| if as_lists { lists(rows) } else { texts(rows) };
        let make = || DistinctCounts::new(&DataType::Utf8View, as_lists).unwrap();
        let wanted = expected(&rows, as_lists);
        let (mut whole, mut merged) = (make(), make());
        for rows in rows.chunks(step) {
            let groups: Vec<usize> = rows.iter().map(|(group, ..)| *group).collect();
            let kept: BooleanArray = rows.iter().map(|(.., kept)| Some(*kept)).collect();
            whole.update_batch(&[array(rows)], &groups, Some(&kept), GROUPS).unwrap();
            // By way of states: of rows, and of groups in two pieces.
            let states = merged.convert_to_state(&[array(rows)], Some(&kept)).unwrap();
            let mut partial = make();
            partial.merge_batch(&states, &groups, GROUPS).unwrap();
            let some = partial.state(EmitTo::First(first)).unwrap();
            let rest = partial.state(EmitTo::All).unwrap();
            merged.merge_batch(&some, &(0..first).collect::<Vec<_>>(), GROUPS).unwrap();
            merged.merge_batch(&rest, &(first..GROUPS).collect::<Vec<_>>(), GROUPS).unwrap();
        }
        assert_eq!(counted(&mut merged, EmitTo::All), wanted, "{seed}: {rows:?}");
        assert_eq!(counted(&mut whole, EmitTo::First(first)), wanted[..first], "{seed}: {rows:?}");
        assert_eq!(counted(&mut whole, EmitTo::All), wanted[first..], "{seed}: {rows:?}");
    }
}

#[test]
fn equal_numbers_are_one() {
    let mut counts = DistinctCounts::new(&DataType::Float64, false).unwrap();
    let values: ArrayRef = Arc::new(Float64Array::from(vec![1.5, f64::NAN, 1.5, f64::NAN, 2.0]));
    counts.update_batch(&[values], &[0, 0, 0, 0, 1], None, 2).unwrap();
    assert_eq!(counted(&mut counts, EmitTo::All), [2, 1]);
}

#[test]
fn memory_is_that_of_the_values() {
    let mut counts = DistinctCounts::new(&DataType::Utf8View, false).unwrap();
    let groups: Vec<usize> = (0..50_000).collect();
    let values: StringViewArray = groups.iter().map(|group| Some(format!("{group}"))).collect();
    counts.update_batch(&[Arc::new(values)], &groups, None, groups.len()).unwrap();
    // A set for each group would take gigabytes.
    assert!((1 << 20..32 << 20).contains(&counts.size()), "{}", counts.size());
}
