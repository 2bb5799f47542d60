//! Who a request comes from.

use std::fmt;
use std::sync::Arc;

use super::privileges::Privileges;

/// What kind of caller it is, with what names it. Scrolls, points in time and cursors belong to one of these.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Caller {
    /// A user, by name.
    User(Arc<str>),
    /// An API key, by its id, with its name and its owner's.
    ApiKey {
        /// Id.
        id: Arc<str>,
        /// Name that was given to it.
        name: Arc<str>,
        /// User who made it.
        owner: Arc<str>,
    },
    /// A pipeline, by its id.
    Pipeline(Arc<str>),
    /// A rule, by its id.
    Rule(Arc<str>),
    /// The server's own work.
    System,
}

/// An authenticated caller with what it may do.
#[derive(Clone, Debug)]
pub struct Principal {
    caller: Caller,
    roles: Arc<[String]>,
    privileges: Arc<Privileges>,
}

impl Principal {
    /// Makes a principal from a caller, the names of its roles and what they grant.
    pub fn new(caller: Caller, roles: impl Into<Arc<[String]>>, privileges: Arc<Privileges>) -> Self {
        Self { caller, roles: roles.into(), privileges }
    }

    /// Makes the principal of the server's own background work.
    pub fn system() -> Self {
        Self::new(Caller::System, Vec::new(), Arc::new(Privileges::unrestricted()))
    }

    /// Returns what kind of caller it is.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Returns the name of the user whose rights it has; of work of the server's own, what that is.
    pub fn name(&self) -> &str {
        match &self.caller {
            Caller::User(name) => name,
            Caller::ApiKey { owner, .. } => owner,
            Caller::Pipeline(name) | Caller::Rule(name) => name,
            Caller::System => "_system",
        }
    }

    /// Returns the names of the roles.
    pub fn roles(&self) -> &[String] {
        &self.roles
    }

    /// Returns what it may do.
    pub fn privileges(&self) -> &Arc<Privileges> {
        &self.privileges
    }
}

/// Names the caller for messages: `user [ann]`.
impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(name) => write!(f, "user [{name}]"),
            Self::ApiKey { id, owner, .. } => write!(f, "API key id [{id}] of user [{owner}]"),
            Self::Pipeline(name) => write!(f, "pipeline [{name}]"),
            Self::Rule(name) => write!(f, "rule [{name}]"),
            Self::System => f.write_str("the server"),
        }
    }
}
