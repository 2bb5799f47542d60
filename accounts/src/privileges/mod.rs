//! From what roles say to what a principal may do.
//!
//! - [`names`]: names of privileges and their actions
//! - [`query`]: queries of the documents that a role shows
//! - [`compile`]: a role, and several together

mod compile;
mod names;
mod query;

pub(crate) use compile::{CompiledRole, Reader, of_rules, privileges};
pub use names::{PrivilegeScope, privilege, privilege_names};
pub(crate) use query::check as check_query;
pub use query::{AnyQuery, QueryCheck};
