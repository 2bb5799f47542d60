//! Cache of privileges of users and API keys. Users of the same roles share privileges, and an entry counts for the state that it
//! was made of only.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use millrace_catalog::access::{Caller, Principal, Privileges};
use parking_lot::RwLock;

use crate::api_key::ApiKey;
use crate::error::Result;
use crate::limits::MAX_PATTERNS;
use crate::privileges::{CompiledRole, Reader, of_rules, privileges};
use crate::state::{Account, State};

/// Users that are remembered; beyond that, memory of them starts anew.
const USERS: usize = 16_384;
/// Addresses that are remembered with the roles that role mappings give them; the same holds.
const HOSTS: usize = 16_384;
/// API keys that are remembered; the same holds. Each remembers indices in turn, which are most of what it takes.
const KEYS: usize = 1_024;
/// Sets of roles that are remembered, and patterns in them. Beyond that, memory starts anew, that of users and keys included, who
/// hold what was made of them.
const SETS: (usize, usize) = (1_024, 4 * MAX_PATTERNS);

#[derive(Debug, Default)]
pub(crate) struct Resolver {
    users: RwLock<HashMap<UserWithRoles, OfUser>>,
    hosts: RwLock<HashMap<IpAddr, OfHost>>,
    sets: RwLock<Sets>,
    keys: RwLock<HashMap<Arc<str>, OfKey>>,
    #[cfg(test)]
    pub(crate) made: std::sync::atomic::AtomicUsize,
}

/// A user, and the roles of where it comes from.
type UserWithRoles = (Arc<str>, HostRoles);

/// Roles that everybody has who comes from an address.
pub(crate) type HostRoles = Arc<[String]>;

#[derive(Debug)]
struct OfHost {
    version: u64,
    roles: HostRoles,
}

#[derive(Debug)]
struct OfUser {
    account: Arc<Account>,
    version: u64,
    principal: Principal,
}

/// Roles, in order, and the user where it makes a difference.
type Set = (Arc<[String]>, Option<Arc<str>>);

#[derive(Debug, Default)]
struct Sets {
    version: u64,
    patterns: usize,
    known: HashMap<Set, Arc<Privileges>>,
}

#[derive(Debug)]
struct OfKey {
    key: Arc<ApiKey>,
    owner: Arc<Privileges>,
    principal: Principal,
}

impl Resolver {
    /// Forgets everything.
    pub(crate) fn forget(&self) {
        self.users.write().clear();
        self.hosts.write().clear();
        *self.sets.write() = Sets::default();
        self.keys.write().clear();
    }

    /// Returns the roles of an address.
    pub(crate) fn roles_of_host(&self, state: &State, address: IpAddr) -> HostRoles {
        if !state.has_hosts() {
            return HostRoles::default();
        }
        let address = address.to_canonical();
        if let Some(known) = self.hosts.read().get(&address).filter(|known| known.version == state.version) {
            return Arc::clone(&known.roles);
        }
        let roles: HostRoles = state.roles_of_host(address).into();
        let known = OfHost { version: state.version, roles: Arc::clone(&roles) };
        remember(&mut self.hosts.write(), address, known, HOSTS);
        roles
    }

    /// Returns the principal of a user that comes from an address with these roles.
    pub(crate) fn user(&self, state: &State, account: &Arc<Account>, of_host: &HostRoles) -> Principal {
        if let Some(known) = self.known(state, account, of_host) {
            return known;
        }
        let principal = self.make(state, account, of_host);
        let known =
            OfUser { account: Arc::clone(account), version: state.version, principal: principal.clone() };
        let whence = (Arc::clone(&account.name), Arc::clone(of_host));
        remember(&mut self.users.write(), whence, known, USERS);
        principal
    }

    /// Returns the same if it is remembered.
    pub(crate) fn known(
        &self,
        state: &State,
        account: &Arc<Account>,
        of_host: &HostRoles,
    ) -> Option<Principal> {
        let users = self.users.read();
        let known = users.get(&(Arc::clone(&account.name), Arc::clone(of_host)))?;
        let holds = Arc::ptr_eq(&known.account, account) && known.version == state.version;
        holds.then(|| known.principal.clone())
    }

    fn make(&self, state: &State, account: &Account, of_host: &HostRoles) -> Principal {
        #[cfg(test)]
        self.made.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut roles = state.roles_of(account);
        roles.extend_from_slice(of_host);
        roles.sort_unstable();
        roles.dedup();
        let roles: Arc<[String]> = roles.into();
        let privileges = self.set(state, &roles, &account.name);
        Principal::new(Caller::User(Arc::clone(&account.name)), roles, privileges)
    }

    /// Returns the grants of a user's roles.
    fn set(&self, state: &State, roles: &Arc<[String]>, user: &Arc<str>) -> Arc<Privileges> {
        let compiled =
            || roles.iter().filter_map(|role| state.roles.get(role.as_str())).map(|known| &known.compiled);
        let personal = compiled().any(|role| role.personal);
        let key = (Arc::clone(roles), personal.then(|| Arc::clone(user)));
        {
            let sets = self.sets.read();
            if let Some(known) = sets.known.get(&key).filter(|_| sets.version == state.version) {
                return Arc::clone(known);
            }
        }
        let made = privileges(compiled(), Reader { user, roles });
        // API keys have it of their owners.
        let made = Arc::new(match of_rules(compiled(), roles) {
            Some(query) => made.showing_of_rules(query),
            None => made,
        });
        let patterns: usize = compiled().map(|role| role.patterns).sum();
        let mut sets = self.sets.write();
        let is_full = sets.known.len() >= SETS.0 || sets.patterns + patterns > SETS.1;
        if sets.version < state.version || is_full {
            let version = sets.version.max(state.version);
            *sets = Sets { version, ..Sets::default() };
        }
        // A state may have been replaced meanwhile.
        if sets.version == state.version && sets.known.insert(key, Arc::clone(&made)).is_none() {
            sets.patterns += patterns;
        }
        drop(sets);
        if is_full {
            self.users.write().clear();
            self.keys.write().clear();
        }
        made
    }

    /// Returns the principal of an API key: its owner as `owner` has it, within what the key may do.
    ///
    /// # Errors
    /// Where what the key may do is not understood.
    pub(crate) fn key(&self, key: &Arc<ApiKey>, owner: &Principal) -> Result<Principal> {
        if let Some(known) = self.keys.read().get(&key.id)
            && Arc::ptr_eq(&known.key, key)
            && Arc::ptr_eq(&known.owner, owner.privileges())
        {
            return Ok(known.principal.clone());
        }
        let owners = owner.privileges();
        let (roles, of_key): (Arc<[String]>, _) = if key.roles.is_empty() {
            (owner.roles().into(), Arc::clone(owners))
        } else {
            let compiled = key.roles.values().map(CompiledRole::new).collect::<Result<Vec<_>>>()?;
            let reader = Reader { user: &key.owner, roles: owner.roles() };
            let own = privileges(compiled.iter(), reader).within(Arc::clone(owners));
            // It may do less than the owner's roles say: it has none of them.
            (Arc::from([]), Arc::new(own))
        };
        let caller = Caller::ApiKey {
            id: Arc::clone(&key.id),
            name: Arc::clone(&key.name),
            owner: Arc::clone(&key.owner),
        };
        let principal = Principal::new(caller, roles, of_key);
        let known = OfKey { key: Arc::clone(key), owner: Arc::clone(owners), principal: principal.clone() };
        remember(&mut self.keys.write(), Arc::clone(&key.id), known, KEYS);
        Ok(principal)
    }
}

fn remember<K: std::hash::Hash + Eq, V>(known: &mut HashMap<K, V>, key: K, value: V, most: usize) {
    if known.len() >= most && !known.contains_key(&key) {
        known.clear();
    }
    known.insert(key, value);
}
