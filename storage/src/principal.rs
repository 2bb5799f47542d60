//! Who asks: the identity that every request carries from its listener down to the store.

use std::sync::Arc;

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    name: Arc<str>,
    roles: Arc<[String]>,
}

impl Principal {
    /// Makes a principal from a user name and its roles.
    pub fn new(name: impl Into<Arc<str>>, roles: impl Into<Arc<[String]>>) -> Self {
        Self { name: name.into(), roles: roles.into() }
    }

    /// Makes the principal of the server's own background work.
    pub fn system() -> Self {
        Self::new("_system", vec!["admin".to_owned()])
    }

    /// Returns the user's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the roles.
    pub fn roles(&self) -> &[String] {
        &self.roles
    }
}
