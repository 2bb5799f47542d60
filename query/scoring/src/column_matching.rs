//! Rows with a string of a pattern, looked for in a column: one that has no index, or whose dictionary takes longer to walk.

use aho_corasick::AhoCorasick;
use arrow::array::{Array, AsArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use millrace_work::error::Result;
use roaring::RoaringBitmap;

use crate::automaton::Pattern;
use crate::node::StringColumn;
use crate::source::{Source, visit};

/// Makes a search for the longest text that all strings of a pattern have; most strings are told by it to be none of it.
fn literal(pattern: &Pattern) -> Option<AhoCorasick> {
    let longest = pattern.literals().max_by_key(|text| text.len())?;
    AhoCorasick::builder().ascii_case_insensitive(true).build([longest]).ok()
}

/// Finds the rows, of those that matter. Strings longer than `ignore_above` UTF-16 code units do not count.
pub(super) fn rows(
    source: &Source,
    column: StringColumn,
    pattern: &Pattern,
    among: Option<&RoaringBitmap>,
) -> Result<RoaringBitmap> {
    let mut rows = RoaringBitmap::new();
    let literal = literal(pattern);
    visit(source, column.path, among.cloned(), &mut |batch, array| {
        let list = array.as_list_opt::<i32>();
        let strings = cast(list.map_or(array, |list| list.values()), &DataType::Utf8View)?;
        let strings = strings.as_string_view();
        let counts = |text: &str| {
            column.ignore_above.is_none_or(|most| text.len() <= most || text.encode_utf16().count() <= most)
        };
        let fits = |at: usize| {
            if strings.is_null(at) {
                return false;
            }
            let text = strings.value(at);
            literal.as_ref().is_none_or(|literal| literal.is_match(text))
                && counts(text)
                && pattern.matches(text)
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
