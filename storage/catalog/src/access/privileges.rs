//! Privileges of a principal: cluster actions, and grants on patterns of index names.
//!
//! [`Privileges`] are made of roles once and shared by all who have the same roles. What they say of one index
//! ([`IndexAccess`]) is found by an index over the patterns (`patterns`) and remembered, so that a request costs the same
//! however many roles there are.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millrace_mapping::fields::FieldRules;
use millrace_runtime::GenerationalCache;
use parking_lot::RwLock;

use super::action::{Action, ActionSet, Scope};
use super::patterns::{NamePattern, Patterns};
use super::system::{NameClass, REMOVES, backed_stream};

/// Indices whose access is remembered, those of late, together with the rules of each. There are privileges of many, and names are
/// the callers' choice.
const REMEMBERED: usize = 4_096;
/// The same of what is allowed within other privileges, which remember theirs: there are many more. What a thousand API keys, as many
/// as are known at a time, remember is half a gigabyte at most, with some 250 bytes for each.
const REMEMBERED_WITHIN: usize = 2_048;
/// Bytes of a name that count as one index more.
const NAME_BYTES: usize = 64;
/// Longest name that is remembered, in bytes: that of an index at most.
const REMEMBERED_BYTES: usize = 255;

/// Grant of a role on the indices that patterns name.
#[derive(Clone, Debug)]
pub struct Grant {
    /// Names of indices.
    pub names: Vec<NamePattern>,
    /// Actions that are allowed.
    pub actions: ActionSet,
    /// `true` if it reaches system indices, too, where they are named.
    pub system: bool,
    /// The documents that may be seen, as a query of the search language; all of them where there is none.
    pub documents: Option<Arc<str>>,
    /// The fields that may be seen; all of them where there is none.
    pub fields: Option<Arc<FieldRules>>,
}

/// Privileges of a principal. Cheap to share, never changed: a change of roles makes new ones.
#[derive(Debug)]
pub struct Privileges {
    version: u64,
    cluster: ActionSet,
    grants: Vec<Grant>,
    patterns: Patterns,
    /// Actions that some grant allows on some index.
    somewhere: ActionSet,
    /// `true` if some grant has rules for documents or fields: most have none, and need not be asked for each index.
    ruled: bool,
    /// Nothing is refused, system indices included: the server's own work.
    unrestricted: bool,
    /// `true` if what is granted on the name of an alias holds for writes through it.
    through_aliases: bool,
    /// The documents of indices that rules write which may be seen, as a query; all of them where there is none.
    of_rules: Option<Arc<str>>,
    /// Also what these allow, and no more: the owner's, of an API key.
    within: Option<Arc<Privileges>>,
    remembered: RwLock<GenerationalCache<Arc<str>, Arc<IndexAccess>>>,
}

/// Access to one index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexAccess {
    actions: ActionSet,
    rules: Vec<Rules>,
}

/// Rules for documents and fields under some grants; each of several has to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rules {
    grants: Vec<GrantedRules>,
    /// Number of the rules before these that bind their writer, too: the owner's, where they are an API key's.
    within: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct GrantedRules {
    actions: ActionSet,
    documents: Option<Arc<str>>,
    fields: Option<Arc<FieldRules>>,
}

/// The documents that may be seen: each rule shows them. Empty: all documents. A rule whose writer is bound by others comes behind
/// these.
pub type DocumentRules = Vec<DocumentRule>;

/// Queries for documents, of which one has to match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct DocumentRule {
    /// The queries; without any, no document is shown.
    pub any_of: Vec<Arc<str>>,
    /// Fields that the writer of the queries may see, and the queries with it; empty where these are all.
    pub fields: Vec<Arc<FieldRules>>,
}

impl DocumentRule {
    /// Makes the rule of queries that see all fields.
    pub fn new(any_of: Vec<Arc<str>>) -> Self {
        Self { any_of, fields: Vec::new() }
    }
}

impl Privileges {
    /// Makes privileges of what roles grant.
    pub fn new(cluster: ActionSet, grants: Vec<Grant>) -> Self {
        static VERSIONS: AtomicU64 = AtomicU64::new(1);
        let somewhere = grants.iter().fold(ActionSet::NONE, |set, grant| set.or(grant.actions));
        let ruled = grants.iter().any(|grant| grant.documents.is_some() || grant.fields.is_some());
        let patterns = Patterns::new(grants.iter().map(|grant| grant.names.as_slice()));
        Self {
            version: VERSIONS.fetch_add(1, Ordering::Relaxed),
            cluster,
            grants,
            patterns,
            somewhere,
            ruled,
            unrestricted: false,
            through_aliases: false,
            of_rules: None,
            within: None,
            remembered: RwLock::new(GenerationalCache::new(REMEMBERED)),
        }
    }

    /// Makes those of the server's own work: everything, system indices included.
    pub fn unrestricted() -> Self {
        Self { unrestricted: true, somewhere: ActionSet::ALL, ..Self::new(ActionSet::ALL, Vec::new()) }
    }

    /// Has what is granted on the name of an alias hold for writes through it, whatever index it stands for that is not
    /// kept from all.
    #[must_use]
    pub fn through_aliases(self) -> Self {
        Self { through_aliases: true, ..self }
    }

    /// Returns whether writes are allowed by the names that they are to, those of aliases included.
    pub fn are_through_aliases(&self) -> bool {
        self.through_aliases
    }

    /// Allows no more than `owner` allows, too.
    #[must_use]
    pub fn within(self, owner: Arc<Self>) -> Self {
        Self {
            within: Some(owner),
            remembered: RwLock::new(GenerationalCache::new(REMEMBERED_WITHIN)),
            ..self
        }
    }

    /// Shows of the indices that rules write, whatever is granted on them, no more than the documents that a query of the search
    /// language matches.
    #[must_use]
    pub fn showing_of_rules(self, query: Arc<str>) -> Self {
        Self { of_rules: Some(query), ..self }
    }

    /// Returns whether what is granted on indices that rules write shows all of their documents: whoever has full rights.
    pub fn sees_all_of_rules(&self) -> bool {
        self.of_rules.is_none() && self.within.as_ref().is_none_or(|owner| owner.sees_all_of_rules())
    }

    /// Returns whether some grant has rules for documents or fields.
    pub fn has_rules(&self) -> bool {
        self.ruled || self.within.as_ref().is_some_and(|owner| owner.has_rules())
    }

    /// Lists all rules for fields, on whatever indices they are.
    pub fn field_rules(&self) -> Vec<Arc<FieldRules>> {
        let mut rules: Vec<_> = self.grants.iter().filter_map(|grant| grant.fields.clone()).collect();
        if let Some(owner) = &self.within {
            rules.extend(owner.field_rules());
        }
        rules
    }

    /// Returns whether some grant has rules for documents.
    pub fn has_document_rules(&self) -> bool {
        let within = self.within.as_ref().is_some_and(|owner| owner.has_document_rules());
        within || self.grants.iter().any(|grant| grant.documents.is_some())
    }

    /// Returns a number that no other privileges of this process have.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns whether nothing is refused.
    pub fn is_unrestricted(&self) -> bool {
        self.unrestricted
    }

    /// Returns whether an action is allowed at all: one of the cluster's, or one that is allowed on some index. What it may be
    /// done to is asked with [`Privileges::on`].
    pub fn allows(&self, action: Action) -> bool {
        let here = match action.scope() {
            Scope::Own => true,
            Scope::Cluster => self.cluster.contains(action),
            Scope::Index => self.somewhere.contains(action),
        };
        here && self.within.as_ref().is_none_or(|owner| owner.allows(action))
    }

    /// Returns what may be done with an index of this name, whether there is one or not.
    pub fn on(&self, index: &str) -> Arc<IndexAccess> {
        if let Some(known) = self.remembered.read().peek(index) {
            return Arc::clone(known);
        }
        if index.len() > REMEMBERED_BYTES {
            return Arc::new(self.find(index));
        }
        let known = self.remembered.write().get(index);
        known.unwrap_or_else(|| {
            let access = Arc::new(self.find(index));
            let weight = access.weight() + index.len() / NAME_BYTES;
            // However many rules there are, two names are remembered: what is remembered of these is less than the grants are. What is
            // within others counts the rules of those, and finds them there.
            let weight = if self.within.is_none() { weight.min(REMEMBERED / 2) } else { weight };
            self.remembered.write().insert(index.into(), Arc::clone(&access), weight);
            access
        })
    }

    /// Returns what may be done with an index by writing to a name that stands for it.
    pub fn written(&self, name: &str, index: &str) -> Arc<IndexAccess> {
        let access = self.on(index);
        if !self.through_aliases || name == index {
            return access;
        }
        let grantable = NameClass::new(index).grantable();
        let grantable =
            if NameClass::new(index) == NameClass::Ordinary { grantable } else { grantable.without(REMOVES) };
        let through = self.on(name).actions.and(grantable);
        Arc::new(IndexAccess { actions: access.actions.or(through), rules: access.rules.clone() })
    }

    fn find(&self, index: &str) -> IndexAccess {
        if self.unrestricted {
            return IndexAccess { actions: ActionSet::ALL, rules: Vec::new() };
        }
        let standing = NameClass::new(index);
        let mut actions = ActionSet::NONE;
        let mut granted: Vec<GrantedRules> = Vec::new();
        let mut said = HashSet::new();
        let pattern = |grant: usize, name: usize| &self.grants[grant].names[name];
        let mut places = self.patterns.matching(index, pattern);
        // What is granted on a data stream holds for its backing indices.
        if let Some(stream) = backed_stream(index) {
            places.extend(self.patterns.matching(stream, pattern));
            places.sort_unstable();
            places.dedup();
        }
        for place in places {
            let grant = &self.grants[place];
            if standing == NameClass::System && !grant.system {
                continue;
            }
            let allowed = standing.granted(grant, index);
            actions = actions.or(allowed);
            // Many roles grant the same: what is said once is asked once.
            if self.ruled && said.insert((allowed, &grant.documents, &grant.fields)) {
                let (documents, fields) = (grant.documents.clone(), grant.fields.clone());
                granted.push(GrantedRules { actions: allowed, documents, fields });
            }
        }
        let ruled = granted.iter().any(|rules| rules.documents.is_some() || rules.fields.is_some());
        let mut rules = Vec::new();
        if let Some(owner) = &self.within {
            let owners = owner.on(index);
            actions = actions.and(owners.actions);
            rules.clone_from(&owners.rules);
        }
        let within = rules.len();
        if ruled {
            rules.push(Rules { grants: granted, within });
        }
        if let Some(query) = self.of_rules.as_ref().filter(|_| standing == NameClass::OfRules) {
            let all =
                GrantedRules { actions: ActionSet::ALL, documents: Some(Arc::clone(query)), fields: None };
            rules.push(Rules { grants: vec![all], within });
        }
        IndexAccess { actions, rules }
    }
}

impl IndexAccess {
    /// Returns its weight in a cache: one, and one for each grant with rules.
    fn weight(&self) -> usize {
        1 + self.rules.iter().map(|rules| rules.grants.len()).sum::<usize>()
    }

    /// Returns whether an action is allowed.
    pub fn allows(&self, action: Action) -> bool {
        self.actions.contains(action)
    }

    /// Returns what is allowed.
    pub fn actions(&self) -> ActionSet {
        self.actions
    }

    /// Returns which documents an action may see; empty where it may see all. A grant without a rule lifts those of others.
    pub fn documents(&self, action: Action) -> DocumentRules {
        let of = |rules: &Rules| {
            let any_of = rules.granted(action).map(|grant| grant.documents.clone()).collect::<Option<_>>()?;
            Some(DocumentRule { any_of, fields: self.fields_of(rules.within, action) })
        };
        self.rules.iter().filter_map(of).collect()
    }

    /// Returns whether an action sees by these the same documents and fields as by others: in whatever order, and how often,
    /// roles say so.
    pub fn shows_as(&self, other: &Self, action: Action) -> bool {
        let documents = |access: &Self| {
            let mut rules = access.documents(action);
            for rule in &mut rules {
                rule.any_of.sort_unstable();
                rule.any_of.dedup();
            }
            rules
        };
        documents(self) == documents(other) && self.fields(action) == other.fields(action)
    }

    /// Returns which fields an action may see: each of the rules has to show a field. Empty where it may see all.
    pub fn fields(&self, action: Action) -> Vec<Arc<FieldRules>> {
        self.fields_of(self.rules.len(), action)
    }

    /// Returns which fields an action may see by the first of the rules.
    fn fields_of(&self, first: usize, action: Action) -> Vec<Arc<FieldRules>> {
        let of = |rules: &Rules| {
            let granted = rules.granted(action);
            let all: Option<Vec<_>> = granted.map(|grant| grant.fields.clone()).collect();
            all.map(|all| FieldRules::any(&all))
        };
        self.rules.iter().take(first).filter_map(of).collect()
    }

    /// Returns which fields are seen by whoever writes what is kept and read later: a filter, a mapping. Empty where all are, and where
    /// nothing is searched.
    pub fn written_fields(&self) -> Vec<Arc<FieldRules>> {
        if self.allows(Action::Search) { self.fields(Action::Search) } else { Vec::new() }
    }

    /// Returns whether an action may see all documents with all their fields.
    pub fn sees_all(&self, action: Action) -> bool {
        self.rules.is_empty() || (self.documents(action).is_empty() && self.fields(action).is_empty())
    }
}

impl Rules {
    fn granted(&self, action: Action) -> impl Iterator<Item = &GrantedRules> {
        self.grants.iter().filter(move |grant| grant.actions.contains(action))
    }
}
