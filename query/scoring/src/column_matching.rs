//! Rows with a string of a pattern, looked for in a column that has no index.

use arrow::array::{Array, AsArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use millrace_mapping::PathId;
use millrace_work::error::Result;
use roaring::RoaringBitmap;

use crate::automaton::Pattern;
use crate::source::{Source, visit};

/// Finds the rows, of those that matter. Strings longer than `ignore_above` UTF-16 code units do not count.
pub(super) fn rows(
    source: &Source,
    column: PathId,
    ignore_above: Option<usize>,
    pattern: &Pattern,
    among: Option<&RoaringBitmap>,
) -> Result<RoaringBitmap> {
    let mut rows = RoaringBitmap::new();
    visit(source, column, among.cloned(), &mut |batch, array| {
        let list = array.as_list_opt::<i32>();
        let strings = cast(list.map_or(array, |list| list.values()), &DataType::Utf8View)?;
        let strings = strings.as_string_view();
        let counts = |text: &str| {
            ignore_above.is_none_or(|most| text.len() <= most || text.encode_utf16().count() <= most)
        };
        let fits = |at: usize| {
            strings.is_valid(at) && counts(strings.value(at)) && pattern.matches(strings.value(at))
        };
        for (at, row) in batch.rows.iter().enumerate() {
            let found = match list {
                None => fits(at),
                Some(list) if list.is_valid(at) => {
                    let offsets = list.value_offsets();
                    (offsets[at] as usize..offsets[at + 1] as usize).any(fits)
                }
                Some(_) => false,
            };
            if found {
                rows.insert(*row);
            }
        }
        Ok(())
    })?;
    Ok(rows)
}
