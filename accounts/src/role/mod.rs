//! Roles: what they grant, as it was said. Read from bodies of requests by [`forms`]; [`builtin`] has those that are always
//! there, and `privileges::compile` makes of a role what can be asked.

pub(crate) mod builtin;
mod forms;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::limits::{MAX_LISTED, check_count, check_metadata, check_names, check_text, shorten};
use crate::privileges::{Over, QueryCheck, check_query, privilege};

/// A role.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Role {
    /// What it is for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Privileges over the cluster, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cluster: Vec<String>,
    /// What is granted on indices.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub indices: Vec<IndexGrant>,
    /// Privileges of applications beside the server, which are kept for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub applications: Vec<Value>,
    /// Tenants of dashboards, which are kept for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<Value>,
    /// What whoever manages roles has noted.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// Whether it is built in, and not to be changed.
    #[serde(skip)]
    pub reserved: bool,
}

/// What a role grants on some indices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct IndexGrant {
    /// Patterns of their names.
    pub names: Vec<String>,
    /// Privileges, by name.
    pub privileges: Vec<String>,
    /// Whether system indices are among them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_restricted_indices: bool,
    /// The documents that are shown, as a query; all of them without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// The fields that are shown; all of them without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_security: Option<FieldSecurity>,
}

/// Fields that are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct FieldSecurity {
    /// Patterns of those that are.
    pub grant: Vec<String>,
    /// Patterns of those that are not, all the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<String>,
}

impl Role {
    /// Checks that it can be put.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::TooMany`].
    pub fn check(&self, meaning: &dyn QueryCheck) -> Result<()> {
        check_text("description", &self.description)?;
        check_privileges(Over::Cluster, &self.cluster)?;
        check_count("index privileges of a role", self.indices.len())?;
        let patterns: usize = self.indices.iter().map(|grant| grant.names.len()).sum();
        check_count("patterns of index names of a role", patterns)?;
        check_count("applications of a role", self.applications.len())?;
        check_metadata("applications", &self.applications)?;
        check_count("tenants of a role", self.tenants.len())?;
        check_metadata("tenants", &self.tenants)?;
        check_metadata("metadata", &self.metadata)?;
        self.indices.iter().try_for_each(|grant| grant.check(meaning))
    }
}

impl IndexGrant {
    fn check(&self, meaning: &dyn QueryCheck) -> Result<()> {
        if self.names.is_empty() {
            return Err(Error::Invalid("index privileges of a role have no names of indices".to_owned()));
        }
        check_privileges(Over::Indices, &self.privileges)?;
        for name in &self.names {
            millrace_storage::access::NamePattern::parse(name)?;
        }
        if let Some(query) = &self.query {
            check_query(query, meaning)?;
        }
        if let Some(fields) = &self.field_security {
            check_names("fields", "field", &fields.grant)?;
            check_names("fields", "field", &fields.except)?;
        }
        Ok(())
    }
}

fn check_privileges(over: Over, names: &[String]) -> Result<()> {
    if names.len() > MAX_LISTED {
        return Err(Error::TooMany { what: "privileges of a role", limit: MAX_LISTED });
    }
    names.iter().try_for_each(|name| privilege(over, name).map(drop))
}

/// Whether a pattern of index names is a regular expression.
pub(crate) fn is_expression(pattern: &str) -> bool {
    pattern.len() > 1 && pattern.starts_with('/') && pattern.ends_with('/')
}

pub(crate) fn unknown_member(of: &str, member: &str) -> Error {
    Error::Invalid(format!("unexpected member [{}] in {of}", shorten(member)))
}
