//! Principals: the authenticated callers of requests.

use std::fmt;
use std::sync::Arc;

use super::privileges::Privileges;

/// Kind of a caller, with its name. Scrolls, points in time and cursors belong to one of these.
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

/// Origin of writes, as the log notes it with each frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The frame is of a version that noted none.
    #[default]
    Unknown,
    /// A user or an API key.
    User,
    /// A pipeline.
    Pipeline,
    /// A copy of what was stored before: a restored snapshot, reindexing within the server.
    Restore,
    /// A rule.
    Rule,
    /// The server's own work.
    System,
}

impl Origin {
    /// Returns the number that stands for it in files.
    pub fn code(self) -> u8 {
        match self {
            Self::Unknown => 0,
            Self::User => 1,
            Self::Pipeline => 2,
            Self::Restore => 3,
            Self::Rule => 4,
            Self::System => 5,
        }
    }

    /// Returns what a number stands for; `None` where a newer version gave it.
    pub fn of_code(code: u8) -> Option<Self> {
        use Origin::{Pipeline, Restore, Rule, System, Unknown, User};
        [Unknown, User, Pipeline, Restore, Rule, System].into_iter().find(|origin| origin.code() == code)
    }
}

impl Caller {
    /// Returns the caller whose bounds it shares: an API key has none of its own, but those of the user who made it, however many
    /// keys that user has.
    pub fn bounded_as(&self) -> Self {
        match self {
            Self::ApiKey { owner, .. } => Self::User(Arc::clone(owner)),
            other => other.clone(),
        }
    }

    /// Returns the origin of its writes, unless they have another.
    fn origin(&self) -> Origin {
        match self {
            Self::User(_) | Self::ApiKey { .. } => Origin::User,
            Self::Pipeline(_) => Origin::Pipeline,
            Self::Rule(_) => Origin::Rule,
            Self::System => Origin::System,
        }
    }
}

/// An authenticated caller with what it may do.
#[derive(Clone, Debug)]
pub struct Principal {
    caller: Caller,
    origin: Origin,
    roles: Arc<[String]>,
    privileges: Arc<Privileges>,
}

impl Principal {
    /// Makes a principal from a caller, the names of its roles and what they grant.
    pub fn new(caller: Caller, roles: impl Into<Arc<[String]>>, privileges: Arc<Privileges>) -> Self {
        Self { origin: caller.origin(), caller, roles: roles.into(), privileges }
    }

    /// Makes the principal of the server's own background work.
    pub fn system() -> Self {
        Self::new(Caller::System, Vec::new(), Arc::new(Privileges::unrestricted()))
    }

    /// Makes the principal of what rules write themselves, not their owners: `part` says which part of them it is.
    pub fn of_rules(part: &str) -> Self {
        Self::new(Caller::Rule(part.into()), Vec::new(), Arc::new(Privileges::unrestricted()))
    }

    /// Returns what kind of caller it is.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Makes the same principal at work on copies of what was stored before: its writes have [`Origin::Restore`].
    pub fn restoring(self) -> Self {
        Self { origin: Origin::Restore, ..self }
    }

    /// Returns where its writes come from.
    pub fn origin(&self) -> Origin {
        self.origin
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
