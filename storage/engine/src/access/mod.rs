//! Sessions: the engine as one principal sees it.
//!
//! A [`Session`] binds a principal of `millrace-catalog` and one action to the engine. [`Visibility`] finds the documents
//! that rules show; searches implement it.
//!
//! - [`session`]: requests to the engine, within the principal's rights
//! - [`search_session`]: the session that searches and statements ask
//! - [`descriptions`]: settings and aliases where rules hide fields
//! - [`visibility`]: documents by id where rules hide some

mod descriptions;
mod search_session;
mod session;
mod slow_writes;
#[cfg(test)]
mod tests;
mod visibility;

pub use session::{Sender, Session};
pub(crate) use visibility::Views;
pub use visibility::{DocumentLookup, Visibility};
