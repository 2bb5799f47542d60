//! Roles made into what can be asked.

use std::sync::Arc;

use millrace_catalog::access::{ActionSet, Grant, NamePattern, Privileges};
use millrace_mapping::fields::FieldRules;
use serde_json::json;

use super::names::{PrivilegeScope, privilege};
use super::query::{is_personal, substitute};
use crate::error::Result;
use crate::role::{IndexGrant, Role};

/// The privilege of everything.
const ALL: &str = "all";

/// A role whose names and patterns are understood.
#[derive(Debug)]
pub(crate) struct CompiledRole {
    cluster: ActionSet,
    grants: Vec<Grant>,
    /// `true` if a query says who asks.
    pub(crate) personal: bool,
    /// Number of its patterns.
    pub(crate) patterns: usize,
    /// `true` if it grants everything.
    pub(crate) full: bool,
}

/// Whom privileges are made for, where queries ask.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    pub(crate) user: &'a str,
    pub(crate) roles: &'a [String],
}

impl CompiledRole {
    /// Makes it of a role.
    ///
    /// # Errors
    /// Those that a check of the role has.
    pub(crate) fn new(role: &Role) -> Result<Self> {
        let grants = role.indices.iter().map(grant).collect::<Result<Vec<_>>>()?;
        let cluster = actions(PrivilegeScope::Cluster, &role.cluster)?;
        Ok(Self {
            full: cluster == actions(PrivilegeScope::Cluster, &[ALL.to_owned()])?
                && role.indices.iter().zip(&grants).any(is_full),
            cluster,
            personal: role.indices.iter().filter_map(|grant| grant.query.as_deref()).any(is_personal),
            patterns: grants.iter().map(|grant| grant.names.len()).sum(),
            grants,
        })
    }
}

fn grant(grant: &IndexGrant) -> Result<Grant> {
    let names = grant.names.iter().map(|name| NamePattern::parse(name));
    let fields = grant.field_security.as_ref().map(|fields| FieldRules::new(&fields.grant, &fields.except));
    Ok(Grant {
        names: names.collect::<millrace_runtime::Result<_>>()?,
        actions: actions(PrivilegeScope::Indices, &grant.privileges)?,
        system: grant.allow_restricted_indices,
        documents: grant.query.as_deref().map(Into::into),
        fields: fields.map(Arc::new),
    })
}

/// Returns whether a grant is everything on all indices.
fn is_full((written, grant): (&IndexGrant, &Grant)) -> bool {
    written.names.iter().any(|name| name == "*")
        && privilege(PrivilegeScope::Indices, ALL).is_ok_and(|all| grant.actions == all)
        && grant.system
        && grant.documents.is_none()
        && grant.fields.is_none()
}

fn actions(over: PrivilegeScope, names: &[String]) -> Result<ActionSet> {
    names.iter().try_fold(ActionSet::NONE, |set, name| Ok(set.or(privilege(over, name)?)))
}

/// Makes the privileges that roles grant together.
pub(crate) fn privileges<'a>(
    roles: impl Iterator<Item = &'a CompiledRole>,
    reader: Reader<'_>,
) -> Privileges {
    let (mut cluster, mut grants) = (ActionSet::NONE, Vec::new());
    for role in roles {
        cluster = cluster.or(role.cluster);
        grants.extend(role.grants.iter().map(|grant| {
            let query = grant.documents.as_ref();
            let personal = query.filter(|query| is_personal(query));
            let personal = personal.map(|query| Arc::from(&*substitute(query, reader.user, reader.roles)));
            Grant { documents: personal.or_else(|| query.cloned()), ..grant.clone() }
        }));
    }
    Privileges::new(cluster, grants)
}

/// Returns which documents of rules roles see, as a query: those that name one of them, or none; `None` for who has full
/// rights, and sees all. Documents name the roles of the rule that they are of (its `selectedroles`).
pub(crate) fn of_rules<'a>(
    roles: impl Iterator<Item = &'a CompiledRole>,
    names: &[String],
) -> Option<Arc<str>> {
    let mut roles = roles;
    if roles.any(|role| role.full) {
        return None;
    }
    let for_all = json!({"bool": {"must_not": [{"exists": {"field": "roles"}}]}});
    let query = match names {
        [] => for_all,
        names => {
            json!({"bool": {"minimum_should_match": 1, "should": [for_all, {"terms": {"roles": names}}]}})
        }
    };
    Some(query.to_string().into())
}
