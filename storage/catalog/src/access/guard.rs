//! Guard of metadata: it shows each caller only permitted parts.

use millrace_runtime::Error;

use super::system::{NameClass, names_system};
use super::{Action, ActionSet, Principal, Scope};

/// A principal and what it does: decides which names it sees.
#[derive(Clone, Debug)]
pub struct Guard {
    principal: Principal,
    action: Action,
    /// Indices are seen on which one of these is allowed.
    any: ActionSet,
}

impl Guard {
    /// Makes the guard of an action; `None` where nothing is hidden. What is done to the cluster sees the indices on which
    /// anything is allowed.
    pub fn new(principal: &Principal, action: Action) -> Option<Self> {
        let any = if action.scope() == Scope::Index { ActionSet::new(&[action]) } else { ActionSet::ALL };
        Self::of_any(principal, action, any)
    }

    /// Makes the guard of a request whose parts are different actions on documents, which are asked for one by one.
    pub fn of_writes(principal: &Principal) -> Option<Self> {
        Self::of_any(principal, Action::Bulk, ActionSet::WRITES)
    }

    fn of_any(principal: &Principal, action: Action, any: ActionSet) -> Option<Self> {
        let restricted = !principal.privileges().is_unrestricted();
        restricted.then(|| Self { principal: principal.clone(), action, any })
    }

    /// Returns whether the action is allowed on an index of this name.
    pub fn sees(&self, index: &str) -> bool {
        !self.principal.privileges().on(index).actions().and(self.any).is_empty()
    }

    /// Returns whether a wildcard stands for an index: for system indices only where it names them.
    pub(crate) fn reaches(&self, pattern: &str, index: &str) -> bool {
        (NameClass::new(index) != NameClass::System || names_system(pattern)) && self.sees(index)
    }

    /// Checks that another action is allowed on a name, which a part of a request needs.
    ///
    /// # Errors
    /// [`Error::Unauthorized`].
    pub(crate) fn check_part(&self, action: Action, name: &str) -> Result<(), Error> {
        match self.principal.privileges().on(name).allows(action) {
            true => Ok(()),
            false => Err(refusal(&self.principal, action, name)),
        }
    }

    /// Makes the refusal of a name: the same whether there is such an index or not.
    pub fn refusal(&self, index: &str) -> Error {
        refusal(&self.principal, self.action, index)
    }
}

/// Says that a principal may not do something with an index.
pub fn refusal(principal: &Principal, action: Action, index: &str) -> Error {
    Error::Unauthorized {
        action: action.name(),
        caller: principal.caller().to_string(),
        index: Some(index.to_owned()),
    }
}
