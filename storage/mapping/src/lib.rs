//! Mappings, and what they make of documents: fields, analyzers, automata, terms and columns.
//!
//! [`Mapping`] is the schema of an index. [`document::ChunkBuilder`] parses documents by it into columns, which
//! `millrace-segment` turns into files; [`analysis`] turns text into tokens; [`automaton`] compiles the expressions that
//! queries and rules match terms with; [`term`] writes values as terms.

pub mod analysis;
pub mod automaton;
pub mod document;
pub mod fields;
#[doc(hidden)]
pub mod fuzzing;
mod mapping;
pub mod pattern;
pub mod source;
pub mod term;

pub use mapping::*;
