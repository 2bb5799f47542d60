//! Roles: their grants, as they were sent. Read from bodies of requests by [`forms`]; [`builtin`] has those that are always
//! there, and `privileges::compile` makes of a role what can be asked.

pub(crate) mod builtin;
mod forms;

use millrace_catalog::access::{Action, ActionSet};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::limits::{MAX_LISTED, check_count, check_metadata, check_names, check_text, shorten};
use crate::privileges::{PrivilegeScope, QueryCheck, check_query, privilege};

/// Warnings of a role that are told.
const MAX_WARNINGS: usize = 10;

/// A role.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Role {
    /// Purpose of the role.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Privileges over the cluster, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cluster: Vec<String>,
    /// Grants on indices.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub indices: Vec<IndexGrant>,
    /// Privileges of applications beside the server, which are kept for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub applications: Vec<Value>,
    /// Tenants of dashboards, which are kept for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<Value>,
    /// Notes of its manager.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// `true` if it is built in, and not to be changed.
    #[serde(skip)]
    pub reserved: bool,
}

/// Grant of a role on some indices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct IndexGrant {
    /// Patterns of their names.
    pub names: Vec<String>,
    /// Privileges, by name.
    pub privileges: Vec<String>,
    /// `true` if system indices are among them.
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
        check_privileges(PrivilegeScope::Cluster, &self.cluster)?;
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

impl Role {
    /// Says which queries do not limit what their grants seem to say, at most [`MAX_WARNINGS`] of them.
    ///
    /// A query limits what is read, and writes touch the documents that the writer may get by id. So the query of a grant that writes and
    /// does not read limits no write: the grants that read say which documents these are.
    pub fn warnings(&self) -> Vec<String> {
        self.indices.iter().filter_map(IndexGrant::warning).take(MAX_WARNINGS).collect()
    }
}

impl IndexGrant {
    fn warning(&self) -> Option<String> {
        self.query.as_ref()?;
        // Names that are not known are refused when the role is put.
        let names = self.privileges.iter().filter_map(|name| privilege(PrivilegeScope::Indices, name).ok());
        let actions = names.fold(ActionSet::NONE, ActionSet::or);
        let writes = ActionSet::WRITES.or(ActionSet::new(&[Action::DeleteByQuery]));
        if actions.and(writes) == ActionSet::NONE || actions.contains(Action::Get) {
            return None;
        }
        let list = |texts: &[String]| shorten(&texts.join(","));
        Some(format!(
            "the query of the index privileges on [{}] does not limit writes: queries limit what is read, and [{}] reads no documents. \
             Whatever documents another grant shows can be replaced, updated and deleted; grant [read] with the query, and nothing that reads without it",
            list(&self.names),
            list(&self.privileges)
        ))
    }

    fn check(&self, meaning: &dyn QueryCheck) -> Result<()> {
        if self.names.is_empty() {
            return Err(Error::Invalid("index privileges of a role have no names of indices".to_owned()));
        }
        check_privileges(PrivilegeScope::Indices, &self.privileges)?;
        for name in &self.names {
            millrace_catalog::access::NamePattern::parse(name)?;
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

fn check_privileges(over: PrivilegeScope, names: &[String]) -> Result<()> {
    if names.len() > MAX_LISTED {
        return Err(Error::TooMany { what: "privileges of a role", limit: MAX_LISTED });
    }
    names.iter().try_for_each(|name| privilege(over, name).map(drop))
}

/// Returns whether a pattern of index names is a regular expression.
pub(crate) fn is_expression(pattern: &str) -> bool {
    pattern.len() > 1 && pattern.starts_with('/') && pattern.ends_with('/')
}

pub(crate) fn unknown_member(of: &str, member: &str) -> Error {
    Error::Invalid(format!("unexpected member [{}] in {of}", shorten(member)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn queries_of_grants_that_only_write_are_warned_of() {
        for (privileges, query, warned) in [
            (json!(["write"]), json!({"term": {"a": 1}}), true),
            (json!(["indices:data/write/*"]), json!("{\"match_all\":{}}"), true),
            (json!(["delete"]), json!({"term": {"a": 1}}), true),
            (json!(["indices:data/write/delete/byquery"]), json!({"term": {"a": 1}}), true),
            (json!(["read", "write"]), json!({"term": {"a": 1}}), false),
            (json!(["all"]), json!({"term": {"a": 1}}), false),
            (json!(["read"]), json!({"term": {"a": 1}}), false),
            (json!(["monitor"]), json!({"term": {"a": 1}}), false),
            (json!(["write"]), json!(null), false),
        ] {
            let grant = json!({"names": ["logs-*", "x"], "privileges": privileges, "query": query});
            let role = Role::from_elasticsearch(&json!({ "indices": [grant] })).unwrap();
            let warnings = role.warnings();
            assert_eq!(warnings.len(), usize::from(warned), "{privileges}: {warnings:?}");
            assert!(warnings.iter().all(|warning| warning.contains("[logs-*,x]")), "{warnings:?}");
        }
    }

    #[test]
    fn warnings_are_few_and_short() {
        let grant = json!({"names": vec!["x".repeat(200); 100], "privileges": ["write"], "query": "{}"});
        let role = Role::from_elasticsearch(&json!({ "indices": vec![grant; 50] })).unwrap();
        let warnings = role.warnings();
        assert_eq!(warnings.len(), MAX_WARNINGS);
        assert!(warnings.iter().all(|warning| warning.len() < 700), "{warnings:?}");
    }
}
