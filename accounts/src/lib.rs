//! Access control: users, roles, API keys and login tokens, and the one layer that authenticates requests.
//!
//! [`Accounts`] is the whole of it. It keeps everything in memory, writes changes through to a [`Store`] (the engine's
//! catalog), and turns the headers of a request into an [`Authenticated`] principal with its privileges, or refuses it
//! ([`Refusal`]). What a principal may do is asked of `millrace_catalog::access`; HTTP forms of accounts are made above.
//!
//! - [`accounts`]: the operations
//! - [`state`], [`store`]: what is known, and how it is kept
//! - [`user`], [`role`], [`api_key`], [`token`]: the records
//! - [`privileges`], [`resolve`]: what roles grant, compiled and remembered
//! - [`credentials`], [`password`], [`secret`]: what requests show, and how it is checked
//! - [`failures`]: which of those that are refused are in the log

mod accounts;
mod api_key;
mod credentials;
mod error;
mod failures;
#[doc(hidden)]
pub mod fuzzing;
pub mod limits;
mod password;
mod privileges;
mod resolve;
mod role;
mod secret;
mod state;
mod store;
mod token;
mod user;

pub use accounts::{Accounts, Authenticated, Config, Edit, Login, NewPassword, Scheme, VerifiedLogin};
pub use api_key::{ApiKey, ApiKeyChange, ApiKeyQuery, CreatedApiKey, InvalidationReport, NewApiKey};
pub use credentials::Credentials;
pub use error::{Error, Refusal, Result};
pub use password::Setter;
pub use password::hash::generate as generate_password;
pub use privileges::{AnyQuery, PrivilegeScope, QueryCheck, privilege, privilege_names};
pub use role::{FieldSecurity, IndexGrant, Role};
pub use state::Account;
pub use store::Store;
pub use token::TokenLifetimes;
pub use user::{CERTIFICATE_SUBJECT, Mapping, User, check_password};
