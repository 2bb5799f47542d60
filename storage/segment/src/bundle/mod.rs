//! The inverted index of a segment: tantivy's postings of all fields in a single file, the "bundle".
//!
//! [`build`] turns a [`Chunk`](millrace_mapping::document::Chunk) into a bundle, [`merge`] turns bundles into one
//! bundle by their postings, and [`Bundle`] answers lookups with row numbers: the document number of
//! a posting *is* the row number of the segment. Flush and refresh hand chunks in, compaction hands
//! bundles in, queries take rows out.
//!
//! Terms, posting lists and positions are encoded by tantivy's own serializers and read by its own
//! readers; tantivy's index writer, schema, document store and fast fields are not used. A bundle is
//! three term dictionaries with their postings, one for each amount of detail that a posting can
//! have ([`Record`]): rows alone, with frequencies, with positions. The fields of a mapping share
//! them: a term starts with the number of its path (`millrace_mapping::term`). So a mapping of a thousand fields
//! costs no more than one of ten, opening a bundle takes constant work, and bundles of different
//! mappings merge without adapting anything. `docs/internals/bundle-format.md` describes the file.
//!
//! | file | concept |
//! |---|---|
//! | `fields` | what the builder needs to know of a mapped field |
//! | `build`, `exact`, `text` | from columns to sorted terms and their rows |
//! | `postings` | one dictionary with its postings, as a writer |
//! | `norms` | field lengths |
//! | `contents`, `file` | table of contents, sections, footer, checksum |
//! | `directory` | the view through which tantivy reads a section |
//! | `reader`, `text_index`, `rows` | lookups |
//! | `skips`, `impacts`, `row_list`, `text_postings` | the postings of a term block by block |
//! | `term_rows`, `frequent` | the rows of a term, those of frequent ones kept as bits |
//! | `merge` | compaction |
//! | `nested` | the indices of nested paths in the same file |

mod build;
mod contents;
mod dense_postings;
mod dictionary;
mod directory;
mod exact;
mod fields;
mod file;
mod impacts;
mod interner;
mod merge;
mod nested;
mod norms;
mod postings;
mod reader;
mod row_list;
mod rows;
mod skips;
mod term_rows;
mod text;
mod text_index;
mod text_postings;

#[cfg(test)]
mod tests;

pub(crate) use build::build_some;
pub use build::{build, build_fields};
pub(crate) use dense_postings::{FrequentCache, FrequentTerms};
pub(crate) use fields::of_field;
pub use fields::{FieldSpec, Indexing};
pub use impacts::Impact;
pub(crate) use merge::DROPPED;
pub use merge::{RowMap, merge, merge_cancellable};
pub use nested::{NestedBundle, NestedPositions};
pub use postings::Record;
pub use reader::{Bundle, ValueWalker, Walk};
pub use row_list::RowList;
pub use term_rows::TermRows;
pub use text_index::TextIndex;
pub use text_postings::TextPostings;

use millrace_runtime::Result;

/// Checks the checksum of a whole bundle.
///
/// # Errors
/// [`millrace_runtime::Error::Corrupt`] names the file.
pub fn verify(bytes: &[u8], name: &str) -> Result<()> {
    file::open(bytes, name, true).map(drop)
}

/// Most distinct integers of a path that become terms; see [`is_low_cardinality`].
const MAX_DISTINCT_NUMBERS: usize = 8192;

/// Rows up to which every integer becomes a term.
const SMALL_SEGMENT_ROWS: u32 = 1024;

/// Distinct integers of a path that become terms in any case.
const FEW_DISTINCT_NUMBERS: usize = 64;

/// Returns whether the integers of a path become terms: few distinct values, each in many of the `present` rows that have one.
/// Otherwise Parquet's statistics find them, and a term for nearly every value would only cost.
///
/// A small segment takes them all: what is not a term in one input of a merge is a term in none of
/// its output, so a field must not lose its terms because a segment happened to be small. For the same
/// reason a few distinct values are terms however seldom a segment has the field.
fn is_low_cardinality(distinct: usize, present: usize, rows: u32) -> bool {
    distinct <= FEW_DISTINCT_NUMBERS
        || distinct <= MAX_DISTINCT_NUMBERS && (rows <= SMALL_SEGMENT_ROWS || distinct <= present / 8)
}
