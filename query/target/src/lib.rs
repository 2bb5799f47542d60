//! The edge between queries and the store: what a request names becomes a pinned snapshot of tables.
//!
//! [`target`] resolves index expressions and pins snapshots, [`lookup`] reads values that clauses take from other documents, and
//! [`access_checkpoint`] checks that what was pinned may be read on. The service and SQL hand in a
//! [`SearchSession`](millrace_session::SearchSession); the crates below know only the tables.

pub mod access_checkpoint;
pub mod lookup;
pub mod target;
