//! Indices that a rule watches: those that its patterns name for its owner, whose rights may change.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use millrace_accounts::Accounts;
use millrace_catalog::access::{Action, Principal};
use millrace_catalog::metadata::{IndexMeta, IndicesOptions, Metadata};
use millrace_engine::{Engine, Session};
use uuid::Uuid;

use super::MatchRequest;
use crate::rule_indices::{ALERT, is_never_fed};

/// Owners by name, with what they may do now; `None` of those that are gone or disabled.
pub(super) type Owners = BTreeMap<String, Option<Principal>>;

/// The indices that rules watch.
#[derive(Debug)]
pub(super) struct Targets {
    engine: Arc<Engine>,
    accounts: Arc<Accounts>,
    /// Metadata that [`Targets::refresh`] used; `None` before the first time, and once rules have changed.
    metadata: Option<Arc<Metadata>>,
    owners: Arc<Owners>,
    indices: HashMap<Uuid, (Arc<str>, Vec<Arc<MatchRequest>>)>,
    /// Why rules are not asked of all indices of their patterns.
    problems: BTreeMap<String, String>,
}

/// Patterns may name what is not there yet, and what the owner may not see is not there.
const OPTIONS: IndicesOptions =
    IndicesOptions { ignore_unavailable: true, forbid_closed: false, ..IndicesOptions::open_only() };

impl Targets {
    pub(super) fn new(engine: &Arc<Engine>, accounts: &Arc<Accounts>) -> Self {
        Self {
            engine: Arc::clone(engine),
            accounts: Arc::clone(accounts),
            metadata: None,
            owners: Arc::default(),
            indices: HashMap::new(),
            problems: BTreeMap::new(),
        }
    }

    /// Has everything looked at anew: rules have changed.
    pub(super) fn invalidate(&mut self) {
        self.metadata = None;
    }

    /// Returns the name of an index and the rules that watch it.
    pub(super) fn rules_for(&self, index: &Uuid) -> Option<(&Arc<str>, &[Arc<MatchRequest>])> {
        self.indices.get(index).map(|(name, rules)| (name, rules.as_slice()))
    }

    /// Returns whether there is such an index, with or without rules that watch it.
    pub(super) fn is_there(&self, index: &Uuid) -> bool {
        self.metadata.iter().any(|metadata| metadata.indices().any(|meta| meta.uuid == *index))
    }

    /// Returns the privileges of owners.
    pub(super) fn owners(&self) -> &Arc<Owners> {
        &self.owners
    }

    /// Lists rules that are not asked of all indices of their patterns, with the first reason.
    pub(super) fn problems(&self) -> impl Iterator<Item = (&str, &str)> {
        self.problems.iter().map(|(rule, reason)| (rule.as_str(), reason.as_str()))
    }

    /// Reads the indices and the privileges of owners, and so finds the indices that rules watch.
    pub(super) fn refresh(
        &mut self,
        rules: &BTreeMap<String, Arc<MatchRequest>>,
        to_tell: &mut Vec<(String, String)>,
    ) {
        let metadata = self.engine.metadata();
        let names: HashSet<&str> = match &self.metadata {
            Some(_) => self.owners.keys().map(String::as_str).collect(),
            None => rules.values().map(|rule| rule.owner.as_str()).collect(),
        };
        let now: Owners =
            names.into_iter().map(|name| (name.to_owned(), self.accounts.principal(name))).collect();
        let same_owners = are_same(&self.owners, &now);
        if same_owners && self.metadata.as_ref().is_some_and(|before| Arc::ptr_eq(before, &metadata)) {
            return;
        }
        if !same_owners {
            self.owners = Arc::new(now);
        }
        let mut by_target: BTreeMap<(&str, &str), Vec<&Arc<MatchRequest>>> = BTreeMap::new();
        for rule in rules.values() {
            by_target.entry((&rule.owner, &rule.expression)).or_default().push(rule);
        }
        let mut problems: BTreeMap<String, String> = BTreeMap::new();
        self.indices.clear();
        for ((owner, expression), rules) in by_target {
            let principal = self.owners.get(owner).and_then(Option::as_ref);
            let found = match principal {
                Some(principal) => {
                    watched_indices(&self.engine, principal, expression).map_err(|e| e.to_string())
                }
                None => Err(format!("its owner, user [{owner}], is deleted or disabled")),
            };
            match found {
                Ok(found) => {
                    for meta in found {
                        let is_alerts = &*meta.name == ALERT;
                        let watching = rules.iter().filter(|rule| rule.allow_alerts || !is_alerts);
                        // Filters over an empty mapping match nothing, or the wrong documents.
                        if let Some(reason) = unsupported_reason(&self.engine, &meta) {
                            for rule in watching {
                                problems.entry(rule.id.clone()).or_insert_with(|| reason.clone());
                            }
                            continue;
                        }
                        let (_, of_index) = self
                            .indices
                            .entry(meta.uuid)
                            .or_insert_with(|| (Arc::clone(&meta.name), Vec::new()));
                        of_index.extend(watching.map(|rule| Arc::clone(rule)));
                    }
                }
                Err(reason) => {
                    problems.extend(rules.iter().map(|rule| (rule.id.clone(), reason.clone())));
                }
            }
        }
        let new = problems.iter().filter(|(rule, reason)| self.problems.get(*rule) != Some(reason));
        to_tell.extend(new.map(|(rule, reason)| (rule.clone(), reason.clone())));
        self.problems = problems;
        self.metadata = Some(metadata);
    }
}

/// Returns whether the same owners may do the same.
fn are_same(before: &Owners, now: &Owners) -> bool {
    let version = |principal: &Option<Principal>| principal.as_ref().map(|p| p.privileges().version());
    before.len() == now.len()
        && before
            .iter()
            .zip(now)
            .all(|((one, before), (other, now))| one == other && version(before) == version(now))
}

/// Lists the indices that the expression of a rule names for its owner.
///
/// # Errors
/// Names that the owner may not search.
pub fn watched_indices(
    engine: &Arc<Engine>,
    principal: &Principal,
    expression: &str,
) -> millrace_runtime::Result<Vec<Arc<IndexMeta>>> {
    let session = Session::new(engine, principal.clone(), Action::Search)?;
    let mut found = session.metadata().resolve(expression, &OPTIONS, engine.clock().now_ms())?;
    found.retain(|meta| !is_never_fed(&meta.name));
    Ok(found)
}

/// Returns the reason not to watch an index: this version does not accept its mapping. `None`: rules watch it.
fn unsupported_reason(engine: &Engine, meta: &IndexMeta) -> Option<String> {
    let index = engine.index(&meta.name).ok().filter(|index| index.meta().uuid == meta.uuid)?;
    let error = index.check_supported().err()?;
    Some(format!("index [{}] is not watched: {error}", meta.name))
}
