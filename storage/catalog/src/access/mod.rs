//! Callers and their access.
//!
//! A [`Principal`] comes with [`Privileges`], which are made of roles by who keeps accounts. A `Session` of `millrace-engine` is a
//! principal that does one [`Action`]: all that a request's handler gets of the store. It sees the indices on which that
//! action is allowed and nothing else, so that wildcards, aliases and listings need no check of their own.
//!
//! - [`action`]: the closed list of actions
//! - [`privileges`], [`patterns`]: what is granted, on which indices, documents and fields ([`FieldRules`])
//! - [`system`]: indices that are not for everybody, whatever is granted
//! - [`guard`]: what metadata shows
//! - [`refusals`]: what a request was refused in parts
//!
//! [`FieldRules`]: millrace_mapping::fields::FieldRules

mod action;
mod guard;
mod mapped;
mod patterns;
mod principal;
mod privileges;
mod refusals;
mod system;

pub use action::{Action, ActionSet, Scope};
pub use guard::{Guard, refusal};
pub use mapped::check_mapping;
pub use patterns::NamePattern;
pub use principal::{Caller, Origin, Principal};
pub use privileges::{DocumentRule, DocumentRules, Grant, IndexAccess, Privileges};
pub use refusals::{Refusals, RepeatedRefusal};
pub(crate) use system::is_written_last;
pub use system::{NameClass, backed_stream};

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use super::*;

    /// Makes a user with actions on names.
    pub(crate) fn restricted(grants: &[(&str, &[Action])]) -> Principal {
        let grants = grants.iter().map(|(name, actions)| Grant {
            names: vec![NamePattern::parse(name).unwrap()],
            actions: ActionSet::new(actions),
            system: false,
            documents: None,
            fields: None,
        });
        let privileges = Arc::new(Privileges::new(ActionSet::NONE, grants.collect()));
        Principal::new(Caller::User("ann".into()), Vec::new(), privileges)
    }
}
