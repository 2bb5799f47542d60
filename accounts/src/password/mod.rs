//! Passwords: Argon2id hashes ([`hash`]), checked and made on threads of their own ([`verifier`]), which remember what was right
//! and wrong lately ([`memory`]) and bound attempts ([`buckets`]); the file of a generated one ([`file`]).

mod buckets;
pub(crate) mod file;
pub(crate) mod hash;
mod memory;
mod verifier;

pub use verifier::Setter;
pub(crate) use verifier::{Attempt, AttemptRefusal, Verifier};
