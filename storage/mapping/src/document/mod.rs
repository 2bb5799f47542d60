//! From JSON bytes to columns: documents are parsed once, by the mapping, straight into a chunk.
//!
//! [`ChunkBuilder`] is handed documents by the shard, walks each with a pull parser along the mapping's
//! tree, and appends the values to columns; unknown fields grow a private copy of the mapping. The
//! [`Chunk`] that it ends with goes to the memtable and to the inverted index (`millrace_segment::bundle`), and as
//! Arrow arrays ([`Column::to_array`]) to the segment writer.
//!
//! What a column holds:
//! - strings as sent (a text field, and the multi-fields that share its column), normalized (a keyword
//!   with a normalizer), or as the JSON text of a number or boolean; a keyword field leaves out what is
//!   longer than its `ignore_above`, and lists the row in [`Chunk::ignored`];
//! - of a `flat_object`, two strings a leaf: `path=value`, with the dotted path below the field, finds a
//!   value at its place, and `=value` finds it anywhere. Numbers and booleans are their JSON text;
//! - of a `constant_keyword`, the constant in every row;
//! - of a `completion`, `rank_feature` or `rank_features`, what the modules of these names say;
//! - of a range, one string of both ends ([`RangeType`](crate::RangeType)).
//!
//! Values inside of a `nested` object belong to its elements, not to the document: each element is a
//! row of its path's own chunk ([`Elements`]). Where the mapping says `include_in_parent` or
//! `include_in_root`, they are in what the element lies in, too.
//!
//! Cost is proportional to the members of a document: one hash lookup a key, one hash a distinct string
//! of a column, whatever the size of the mapping. Bounds: JSON nests at most [`MAX_DEPTH`] deep; the
//! distinct strings of a column of one chunk take less than 2 GiB.

mod array;
mod builder;
mod chunk;
mod columns;
mod completion;
mod concat;
mod dynamic;
mod failure;
mod features;
mod leaf;
mod projection;
mod range;
mod scopes;
#[cfg(test)]
mod special_tests;
mod structured;
mod surrogates;
#[cfg(test)]
mod tests;
mod walk;

pub use builder::ChunkBuilder;
pub use chunk::{Chunk, Column, Elements, Strings, Values};
pub use completion::Completion;
pub use failure::token;
pub use features::{feature_lead, feature_of, feature_value};
pub use surrogates::replace_lone_surrogates;
pub use walk::MAX_DEPTH;
