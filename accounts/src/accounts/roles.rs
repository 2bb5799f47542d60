//! Roles and role mappings.

use std::sync::Arc;

use super::{Accounts, Edit, bound};

use crate::error::{Error, Result};
use crate::limits::{
    MAX_EXPRESSIONS, MAX_HOSTS, MAX_MAPPED, MAX_MAPPINGS, MAX_PATTERNS, MAX_ROLES, check_name, shorten,
};
use crate::privileges::QueryCheck;
use crate::role::{Role, builtin};
use crate::state::{CachedRole, Change, State};
use crate::user::Mapping;

const ROLE: &str = "role";
const MAPPING: &str = "role mapping";

impl Accounts {
    /// Lists the roles by name, built-in ones among them.
    pub fn roles(&self) -> Vec<(Arc<str>, Arc<Role>)> {
        let state = self.0.state.load();
        let role = |(name, known): (&Arc<str>, &Arc<CachedRole>)| (Arc::clone(name), Arc::clone(&known.role));
        let mut roles: Vec<_> = state.roles.iter().map(role).collect();
        roles.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        roles
    }

    /// Finds a role.
    pub fn role(&self, name: &str) -> Option<Arc<Role>> {
        self.0.state.load().roles.get(name).map(|known| Arc::clone(&known.role))
    }

    /// Makes or replaces a role. Returns whether it was made.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::TooMany`], [`Error::Reserved`].
    pub async fn put_role(&self, name: &str, role: Role) -> Result<bool> {
        self.edit_one(Edit::PutRole(name.to_owned(), role)).await
    }

    /// Deletes a role. Whoever has it keeps its name, which grants nothing any more.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Reserved`].
    pub async fn delete_role(&self, name: &str) -> Result<()> {
        self.edit_one(Edit::DeleteRole(name.to_owned())).await.map(drop)
    }

    /// Lists the role mappings by the name of the role.
    pub fn mappings(&self) -> Vec<(Arc<str>, Arc<Mapping>)> {
        let state = self.0.state.load();
        let mapping = |(name, mapping): (&Arc<str>, &Arc<Mapping>)| (Arc::clone(name), Arc::clone(mapping));
        let mut mappings: Vec<_> = state.mappings.iter().map(mapping).collect();
        mappings.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        mappings
    }

    /// Finds the mapping of a role.
    pub fn mapping(&self, role: &str) -> Option<Arc<Mapping>> {
        self.0.state.load().mappings.get(role).cloned()
    }

    /// Makes or replaces the mapping of a role. Returns whether it was made.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::TooMany`]; [`Error::NotFound`] where there is no such role.
    pub async fn put_mapping(&self, role: &str, mapping: Mapping) -> Result<bool> {
        self.edit_one(Edit::PutMapping(role.to_owned(), mapping)).await
    }

    /// Deletes the mapping of a role.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub async fn delete_mapping(&self, role: &str) -> Result<()> {
        self.edit_one(Edit::DeleteMapping(role.to_owned())).await.map(drop)
    }
}

/// Checks a role as far as it says by itself, and understands it.
pub(super) fn understand(name: &str, role: Role, meaning: &dyn QueryCheck) -> Result<Arc<CachedRole>> {
    check_name(ROLE, name)?;
    let role = Role { reserved: false, ..role };
    role.check(meaning)?;
    Ok(Arc::new(CachedRole::new(role)?))
}

pub(super) fn put_role(state: &State, name: Arc<str>, known: Arc<CachedRole>) -> Result<(Vec<Change>, bool)> {
    check_reserved(&name, "changed")?;
    // Those that are built in take nobody's room.
    let is_other = |(other, known): &(&Arc<str>, &Arc<CachedRole>)| **other != name && !known.role.reserved;
    let others = || state.roles.iter().filter(is_other).map(|(_, known)| known);
    let patterns: usize = others().map(|other| other.compiled.patterns).sum();
    bound("patterns of index names", patterns + known.compiled.patterns, MAX_PATTERNS)?;
    let expressions: usize = others().map(|other| other.expressions).sum();
    bound("regular expressions of index names", expressions + known.expressions, MAX_EXPRESSIONS)?;
    let made = !state.roles.contains_key(&name);
    bound("roles", others().count() + 1, MAX_ROLES)?;
    Ok((vec![Change::PutRole(name, known)], made))
}

pub(super) fn delete_role(state: &State, name: Arc<str>) -> Result<(Vec<Change>, bool)> {
    check_reserved(&name, "deleted")?;
    if !state.roles.contains_key(&name) {
        return Err(Error::NotFound { what: ROLE, name: shorten(&name) });
    }
    Ok((vec![Change::DeleteRole(name)], false))
}

pub(super) fn put_mapping(state: &State, role: Arc<str>, mapping: Mapping) -> Result<(Vec<Change>, bool)> {
    if !state.roles.contains_key(&role) {
        return Err(Error::NotFound { what: ROLE, name: shorten(&role) });
    }
    let made = !state.mappings.contains_key(&role);
    bound("role mappings", state.mappings.size() + usize::from(made), MAX_MAPPINGS)?;
    let of_others = |count: fn(&Mapping) -> usize| -> usize { others(state, &role).map(count).sum() };
    bound("entries of role mappings", of_others(Mapping::entries) + mapping.entries(), MAX_MAPPED)?;
    let hosts = of_others(|other| other.hosts.len());
    bound("hosts of role mappings", hosts + mapping.hosts.len(), MAX_HOSTS)?;
    Ok((vec![Change::PutMapping(role, Arc::new(mapping))], made))
}

pub(super) fn delete_mapping(state: &State, role: Arc<str>) -> Result<(Vec<Change>, bool)> {
    if !state.mappings.contains_key(&role) {
        return Err(Error::NotFound { what: MAPPING, name: shorten(&role) });
    }
    Ok((vec![Change::DeleteMapping(role)], false))
}

fn others<'a>(state: &'a State, role: &str) -> impl Iterator<Item = &'a Mapping> {
    state.mappings.iter().filter(move |(other, _)| &***other != role).map(|(_, mapping)| &**mapping)
}

fn check_reserved(name: &str, change: &'static str) -> Result<()> {
    if builtin::is_reserved(name) {
        return Err(Error::Reserved { what: ROLE, name: name.to_owned(), change });
    }
    Ok(())
}
