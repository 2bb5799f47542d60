//! All accounts as of one moment. States share what a change leaves alone, so that a change costs the same whatever there is.

use std::net::IpAddr;
use std::sync::Arc;

use millrace_catalog::{AccountChange, AccountRecord};
use rpds::{HashTrieMapSync, HashTrieSetSync};
use serde::{Deserialize, Serialize};

use crate::api_key::ApiKey;
use crate::error::{Error, Result};
use crate::privileges::CompiledRole;
use crate::role::{Role, builtin, is_expression};
use crate::secret::Hash;
use crate::store;
use crate::token::{Token, TokenBody};
use crate::user::{Mapping, User, canonical_host, matches, texts_of};

const USER: &str = "user";
const ROLE: &str = "role";
const MAPPING: &str = "role_mapping";
const KEY: &str = "api_key";
const TOKEN: &str = "token";

/// A user with its name.
pub struct Account {
    /// The name.
    pub name: Arc<str>,
    /// The rest.
    pub user: User,
    /// Argon2id hash of the password; a user without one comes in by certificate only.
    pub(crate) hash: Option<Arc<str>>,
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Account").field("name", &self.name).field("user", &self.user).finish_non_exhaustive()
    }
}

impl Account {
    /// Returns whether it is built in: it cannot be deleted or disabled.
    pub fn is_reserved(&self) -> bool {
        *self.name == *builtin::ADMIN
    }
}

#[derive(Serialize, Deserialize)]
struct UserBody<'a> {
    #[serde(default)]
    hash: Option<Arc<str>>,
    #[serde(flatten)]
    user: std::borrow::Cow<'a, User>,
}

/// A role with what is made of it.
#[derive(Debug)]
pub(crate) struct CachedRole {
    pub(crate) role: Arc<Role>,
    pub(crate) compiled: CompiledRole,
    /// Regular expressions among its patterns.
    pub(crate) expressions: usize,
}

impl CachedRole {
    /// Understands a role.
    ///
    /// # Errors
    /// As a check of it.
    pub(crate) fn new(role: Role) -> Result<Self> {
        let compiled = CompiledRole::new(&role)?;
        let patterns = role.indices.iter().flat_map(|grant| &grant.names);
        let expressions = patterns.filter(|pattern| is_expression(pattern)).count();
        Ok(Self { role: Arc::new(role), compiled, expressions })
    }
}

type Map<T> = HashTrieMapSync<Arc<str>, Arc<T>>;
type OfUsers<T> = HashTrieMapSync<Arc<str>, HashTrieSetSync<T>>;

#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) users: Map<Account>,
    pub(crate) roles: Map<CachedRole>,
    pub(crate) mappings: Map<Mapping>,
    pub(crate) keys: Map<ApiKey>,
    pub(crate) tokens: HashTrieMapSync<Hash, Arc<Token>>,
    /// Ids of the keys of each user.
    keys_of: OfUsers<Arc<str>>,
    /// The tokens of each user.
    tokens_of: OfUsers<Hash>,
    /// Users by the subjects of their certificates.
    subjects: HashTrieMapSync<Arc<str>, Arc<str>>,
    /// Hosts of all role mappings, with the role.
    hosts: Arc<[(String, Arc<str>)]>,
    /// Bytes that all keys take in memory.
    pub(crate) key_bytes: usize,
    /// The same of the keys of each user.
    key_bytes_of: HashTrieMapSync<Arc<str>, usize>,
    /// Counts changes of roles and role mappings.
    pub(crate) version: u64,
}

/// A change of accounts.
#[derive(Debug)]
pub(crate) enum Change {
    PutUser(Arc<Account>),
    DeleteUser(Arc<str>),
    PutRole(Arc<str>, Arc<CachedRole>),
    DeleteRole(Arc<str>),
    PutMapping(Arc<str>, Arc<Mapping>),
    DeleteMapping(Arc<str>),
    PutKey(Arc<ApiKey>),
    DeleteKey(Arc<str>),
    PutToken(Arc<Token>),
    /// Stores when it was used last.
    NoteToken(Arc<Token>, i64),
    DeleteToken(Hash),
}

impl Change {
    /// Writes it for the store.
    ///
    /// # Errors
    /// [`Error::Internal`].
    pub(crate) fn record(&self) -> Result<AccountChange> {
        match self {
            Self::PutUser(account) => {
                let user = std::borrow::Cow::Borrowed(&account.user);
                store::put(USER, &account.name, &UserBody { hash: account.hash.clone(), user })
            }
            Self::DeleteUser(name) => Ok(store::delete(USER, name)),
            Self::PutRole(name, known) => store::put(ROLE, name, &*known.role),
            Self::DeleteRole(name) => Ok(store::delete(ROLE, name)),
            Self::PutMapping(name, mapping) => store::put(MAPPING, name, &**mapping),
            Self::DeleteMapping(name) => Ok(store::delete(MAPPING, name)),
            Self::PutKey(key) => store::put(KEY, &key.id, &**key),
            Self::DeleteKey(id) => Ok(store::delete(KEY, id)),
            Self::PutToken(token) => store::put(TOKEN, &token.hash.hex(), &token.body()),
            Self::NoteToken(token, used_ms) => {
                store::put(TOKEN, &token.hash.hex(), &TokenBody { used_ms: *used_ms, ..token.body() })
            }
            Self::DeleteToken(hash) => Ok(store::delete(TOKEN, &hash.hex())),
        }
    }

    /// Returns whether a snapshot has a record. Login tokens are in none, and the administrator is each store's own.
    pub(crate) fn is_exported(record: &AccountRecord) -> bool {
        match record.kind.as_str() {
            USER => record.name != builtin::ADMIN,
            ROLE | MAPPING => true,
            // A key of the administrator would be one of another store's.
            KEY => store::read::<ApiKey>(record).is_ok_and(|key| *key.owner != *builtin::ADMIN),
            _ => false,
        }
    }

    /// Reads it from the store; `None` for a record that a later version made.
    pub(crate) fn read(record: &AccountRecord) -> Result<Option<Self>> {
        let name: Arc<str> = record.name.as_str().into();
        Ok(Some(match record.kind.as_str() {
            USER => {
                let UserBody { hash, user } = store::read(record)?;
                Self::PutUser(Arc::new(Account { name, user: user.into_owned(), hash }))
            }
            ROLE => {
                let role: Role = store::read(record)?;
                // What is not understood grants nothing, rather than that nothing works.
                let known = CachedRole::new(role.clone()).or_else(|error| {
                    tracing::error!(role = record.name, %error, "a stored role is not understood and grants nothing");
                    let compiled = CompiledRole::new(&Role::default())?;
                    Ok::<_, Error>(CachedRole { role: Arc::new(role), compiled, expressions: 0 })
                })?;
                Self::PutRole(name, Arc::new(known))
            }
            MAPPING => Self::PutMapping(name, Arc::new(store::read(record)?)),
            KEY => {
                let key: ApiKey = store::read(record)?;
                let bytes = key.weight(record.body.len());
                Self::PutKey(Arc::new(ApiKey { id: name, bytes, ..key }))
            }
            TOKEN => {
                let Some(hash) = Hash::from_hex(&record.name) else {
                    return Err(Error::Internal("the name of a stored token is not a hash".to_owned()));
                };
                Self::PutToken(Arc::new(Token::new(hash, store::read(record)?)))
            }
            other => {
                tracing::warn!(kind = other, "stored accounts of an unknown kind are left alone");
                return Ok(None);
            }
        }))
    }
}

impl State {
    /// Makes what the records of a store say, with what is always there.
    ///
    /// # Errors
    /// [`Error::Internal`] for a record that cannot be read.
    pub(crate) fn load(records: &[AccountRecord]) -> Result<Self> {
        let mut state = Self::default();
        for record in records {
            if let Some(change) = Change::read(record)? {
                state.apply_one(&change);
            }
        }
        for (name, role) in builtin::roles() {
            state.apply_one(&Change::PutRole(name.into(), Arc::new(CachedRole::new(role)?)));
        }
        state.hosts = state.find_hosts();
        Ok(state)
    }

    /// Applies changes in order.
    pub(crate) fn apply(&mut self, changes: &[Change]) {
        changes.iter().for_each(|change| self.apply_one(change));
        let of_mappings =
            |change: &Change| matches!(change, Change::PutMapping(..) | Change::DeleteMapping(_));
        if changes.iter().any(of_mappings) {
            self.hosts = self.find_hosts();
        }
    }

    /// Applies one of several that are decided one behind another. What is made of all of them is not.
    pub(crate) fn apply_one(&mut self, change: &Change) {
        match change {
            Change::PutUser(account) => {
                self.drop_subject(&account.name);
                if let Some(subject) = account.user.subject() {
                    self.subjects.insert_mut(subject.into(), Arc::clone(&account.name));
                }
                self.users.insert_mut(Arc::clone(&account.name), Arc::clone(account));
            }
            Change::DeleteUser(name) => {
                self.drop_subject(name);
                self.users.remove_mut(name);
            }
            Change::PutRole(name, known) => {
                self.roles.insert_mut(Arc::clone(name), Arc::clone(known));
                self.version += 1;
            }
            Change::DeleteRole(name) => {
                self.roles.remove_mut(name);
                self.version += 1;
            }
            Change::PutMapping(name, mapping) => {
                self.mappings.insert_mut(Arc::clone(name), Arc::clone(mapping));
                self.version += 1;
            }
            Change::DeleteMapping(name) => {
                self.mappings.remove_mut(name);
                self.version += 1;
            }
            Change::PutKey(key) => {
                let before = self.keys.get(&key.id).map_or(0, |key| key.bytes);
                self.count_key_bytes(&key.owner, before, key.bytes);
                self.keys.insert_mut(Arc::clone(&key.id), Arc::clone(key));
                add(&mut self.keys_of, &key.owner, Arc::clone(&key.id));
            }
            Change::DeleteKey(id) => {
                let Some(key) = self.keys.get(id).cloned() else { return };
                self.count_key_bytes(&key.owner, key.bytes, 0);
                self.keys.remove_mut(id);
                take(&mut self.keys_of, &key.owner, id);
            }
            Change::PutToken(token) => {
                self.tokens.insert_mut(token.hash, Arc::clone(token));
                add(&mut self.tokens_of, &token.user, token.hash);
            }
            Change::NoteToken(token, used_ms) => token.noted(*used_ms),
            Change::DeleteToken(hash) => {
                let Some(token) = self.tokens.get(hash).cloned() else { return };
                self.tokens.remove_mut(hash);
                take(&mut self.tokens_of, &token.user, hash);
            }
        }
    }

    /// Counts that a key of a user takes so many bytes, and not those before.
    fn count_key_bytes(&mut self, owner: &Arc<str>, before: usize, now: usize) {
        self.key_bytes = self.key_bytes - before + now;
        let of_user = self.key_bytes_of(owner) - before + now;
        if of_user == 0 {
            self.key_bytes_of.remove_mut(owner);
        } else {
            self.key_bytes_of.insert_mut(Arc::clone(owner), of_user);
        }
    }

    /// Drops the subject of the certificates of a user that is to have another one.
    pub(crate) fn release_subject(&mut self, name: &str, user: &User) {
        let before = self.users.get(name).and_then(|account| account.user.subject());
        if before != user.subject() {
            self.drop_subject(name);
        }
    }

    /// Drops the subject of a user's certificates, unless it is another's by now.
    fn drop_subject(&mut self, user: &str) {
        let before = self.users.get(user).cloned();
        if let Some(subject) = before.as_ref().and_then(|account| account.user.subject())
            && self.subjects.get(subject).is_some_and(|name| **name == *user)
        {
            self.subjects.remove_mut(subject);
        }
    }

    fn find_hosts(&self) -> Arc<[(String, Arc<str>)]> {
        let of = |(role, mapping): (&Arc<str>, &Arc<Mapping>)| {
            mapping.hosts.iter().map(|host| (canonical_host(host), Arc::clone(role))).collect::<Vec<_>>()
        };
        self.mappings.iter().flat_map(of).collect()
    }

    /// Lists the keys of a user.
    pub(crate) fn keys_of(&self, user: &str) -> impl Iterator<Item = &Arc<ApiKey>> {
        let ids = self.keys_of.get(user).into_iter().flat_map(HashTrieSetSync::iter);
        ids.filter_map(|id| self.keys.get(id))
    }

    /// Returns the number of a user's keys, including those that have ended.
    pub(crate) fn count_keys_of(&self, user: &str) -> usize {
        self.keys_of.get(user).map_or(0, HashTrieSetSync::size)
    }

    /// Returns the bytes in memory of a user's keys, including those that have ended.
    pub(crate) fn key_bytes_of(&self, user: &str) -> usize {
        self.key_bytes_of.get(user).copied().unwrap_or_default()
    }

    /// Lists the tokens of a user.
    pub(crate) fn tokens_of(&self, user: &str) -> impl Iterator<Item = &Arc<Token>> {
        let hashes = self.tokens_of.get(user).into_iter().flat_map(HashTrieSetSync::iter);
        hashes.filter_map(|hash| self.tokens.get(hash))
    }

    /// Returns the number of a user's tokens.
    pub(crate) fn count_tokens_of(&self, user: &str) -> usize {
        self.tokens_of.get(user).map_or(0, HashTrieSetSync::size)
    }

    /// Finds the user whose certificates have a subject.
    pub(crate) fn user_of_subject(&self, subject: &str) -> Option<&Arc<Account>> {
        let name = self.subjects.get(subject).map_or(subject, |name| name);
        self.users.get(name)
    }

    /// Returns whether role mappings name hosts at all.
    pub(crate) fn has_hosts(&self) -> bool {
        !self.hosts.is_empty()
    }

    /// Lists the roles that whoever comes from an address has.
    pub(crate) fn roles_of_host(&self, address: IpAddr) -> Vec<String> {
        let texts = texts_of(address);
        let of = self.hosts.iter().filter(|(host, _)| texts.iter().any(|text| matches(host, text)));
        of.map(|(_, role)| role.to_string()).collect()
    }

    /// Returns the number of patterns of a user's roles, and of those of its host.
    pub(crate) fn patterns_of(&self, account: &Account, of_host: &[String]) -> usize {
        let roles = self.roles_of(account);
        roles
            .iter()
            .chain(of_host)
            .filter_map(|role| self.roles.get(role.as_str()))
            .map(|known| known.compiled.patterns)
            .sum()
    }

    /// Lists the roles of a user, wherever it comes from.
    pub(crate) fn roles_of(&self, account: &Account) -> Vec<String> {
        let mapped = self.mappings.iter().filter(|(_, mapping)| mapping.takes(&account.name, &account.user));
        account.user.roles.iter().cloned().chain(mapped.map(|(role, _)| role.to_string())).collect()
    }
}

fn add<T: std::hash::Hash + Eq + Clone>(of_users: &mut OfUsers<T>, user: &Arc<str>, entry: T) {
    match of_users.get_mut(user) {
        Some(entries) => entries.insert_mut(entry),
        None => of_users.insert_mut(Arc::clone(user), HashTrieSetSync::default().insert(entry)),
    }
}

fn take<T: std::hash::Hash + Eq + Clone>(of_users: &mut OfUsers<T>, user: &Arc<str>, entry: &T) {
    if let Some(entries) = of_users.get_mut(user) {
        entries.remove_mut(entry);
        if entries.is_empty() {
            of_users.remove_mut(user);
        }
    }
}
