//! The catalog: which indices, shards and segments there are, and who may do what with them.
//!
//! [`Catalog`] keeps durable records; [`metadata`] decides over indices, aliases, templates and settings; [`access`] has
//! principals and their privileges; [`routing`] finds the shard of a document; [`description`] is what objects say of
//! themselves; [`frame`] is what the write-ahead log and the change feed consist of. [`operation`] has the writes of documents and their
//! outcomes, [`system_document`] the documents of the server's own indices.

pub mod access;
mod catalog;
pub mod description;
pub mod frame;
pub mod metadata;
pub mod operation;
pub mod routing;
pub mod system_document;

pub use catalog::*;
