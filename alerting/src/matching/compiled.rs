//! The filters of an index, as the owners of rules may see it, in one matcher.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use millrace_query::Work;
use millrace_query::filters::{Arrival, Batch, Changes, Filter, IndexView, Matcher};
use millrace_storage::Compute;
use millrace_storage::access::FieldRules;
use millrace_storage::mapping::Mapping;
use millrace_storage::metadata::IndexMeta;

use super::slow::Slow;
use super::targets::Owners;
use super::{Asked, apart};

/// What a source has to keep that is shown to an owner; nothing where all is shown.
pub(super) type Shown = Arc<[Arc<FieldRules>]>;

/// Rows by rule, or why the rule's filter could not be asked.
type Found = Vec<(Arc<Asked>, Result<Vec<u32>, String>)>;

/// The filters of an index.
#[derive(Debug)]
pub(super) struct Compiled {
    meta: Arc<IndexMeta>,
    mapping: Arc<Mapping>,
    uuid: Arc<str>,
    /// The rules that watch it, those that cannot be asked included.
    watching: Vec<Arc<Asked>>,
    owners: Arc<Owners>,
    filters: Vec<One>,
    /// By rule, for those whose owners do not see all fields.
    shown: HashMap<String, Shown>,
    matcher: Matcher,
    problems: BTreeMap<String, String>,
}

/// A rule's filter.
#[derive(Clone, Debug)]
struct One {
    rule: Arc<Asked>,
    view: Arc<IndexView>,
    filter: Arc<Filter>,
}

/// The index as one owner sees it, or why it cannot be seen.
type View = Result<Arc<IndexView>, String>;

/// The index as owners see it by the patterns of their rules.
struct Views<'a> {
    meta: &'a Arc<IndexMeta>,
    mapping: &'a Arc<Mapping>,
    owners: &'a Owners,
    made: HashMap<(&'a str, &'a [String]), View>,
    /// What is said otherwise than in views before.
    changes: HashMap<(usize, usize), Changes>,
}

impl<'a> Views<'a> {
    fn of(&mut self, rule: &'a Asked) -> View {
        let (meta, mapping, owners) = (self.meta, self.mapping, self.owners);
        let make = || {
            let Some(Some(owner)) = owners.get(&rule.owner) else {
                return Err(format!("its owner, user [{}], is deleted or disabled", rule.owner));
            };
            let access = owner.privileges().on(&meta.name);
            let view = IndexView::of(Arc::clone(meta), Arc::clone(mapping), &access);
            let view = view.and_then(|view| view.named_by(&rule.parts));
            view.map(Arc::new).map_err(|error| error.to_string())
        };
        self.made.entry((rule.owner.as_str(), rule.parts.as_slice())).or_insert_with(make).clone()
    }

    fn needs_recompile(&mut self, before: &One, view: &Arc<IndexView>) -> bool {
        let key = (Arc::as_ptr(&before.view).addr(), Arc::as_ptr(view).addr());
        let changes = self.changes.entry(key).or_insert_with(|| Changes::between(&before.view, view));
        before.filter.needs_recompile(changes)
    }
}

impl Compiled {
    /// Compiles the filters of the rules that watch an index; those of `before` that mean the same are taken over.
    pub(super) fn new(
        meta: &Arc<IndexMeta>,
        mapping: &Arc<Mapping>,
        rules: &[Arc<Asked>],
        owners: &Arc<Owners>,
        before: Option<&Self>,
        to_tell: &mut Vec<(String, String)>,
    ) -> Self {
        let known: HashMap<&str, &One> =
            before.into_iter().flat_map(|b| &b.filters).map(|one| (one.rule.id.as_str(), one)).collect();
        let mut views = Views { meta, mapping, owners, made: HashMap::new(), changes: HashMap::new() };
        let (mut filters, mut problems) = (Vec::with_capacity(rules.len()), BTreeMap::new());
        for rule in rules {
            let compiled = views.of(rule).and_then(|view| {
                let same = known
                    .get(rule.id.as_str())
                    .filter(|one| Arc::ptr_eq(&one.rule, rule) && !views.needs_recompile(one, &view));
                let filter = match same {
                    Some(one) => Arc::clone(&one.filter),
                    None => {
                        let compiled = apart::guarded(|| Filter::compile(&rule.body, &view))?;
                        Arc::new(compiled.map_err(|error| error.to_string())?)
                    }
                };
                Ok(One { rule: Arc::clone(rule), view, filter })
            });
            match compiled {
                Ok(one) => filters.push(one),
                Err(reason) => {
                    let reason = format!("index [{}] is not watched: {reason}", meta.name);
                    if before.is_none_or(|before| before.problems.get(&rule.id) != Some(&reason)) {
                        to_tell.push((rule.id.clone(), reason.clone()));
                    }
                    problems.insert(rule.id.clone(), reason);
                }
            }
        }
        let restricted = filters.iter().filter(|one| !one.view.field_rules().is_empty());
        let shown = restricted.map(|one| (one.rule.id.clone(), Arc::clone(one.view.field_rules())));
        let shown = shown.collect();
        let all: Vec<Arc<Filter>> = filters.iter().map(|one| Arc::clone(&one.filter)).collect();
        Self {
            uuid: meta.uuid_text().into(),
            meta: Arc::clone(meta),
            mapping: Arc::clone(mapping),
            watching: rules.to_vec(),
            owners: Arc::clone(owners),
            matcher: Matcher::new(&all),
            filters,
            shown,
            problems,
        }
    }

    /// Whether these are the filters of what the index is now.
    pub(super) fn is_of(
        &self,
        meta: &Arc<IndexMeta>,
        mapping: &Arc<Mapping>,
        rules: &[Arc<Asked>],
        owners: &Arc<Owners>,
    ) -> bool {
        Arc::ptr_eq(&self.meta, meta)
            && Arc::ptr_eq(&self.mapping, mapping)
            && Arc::ptr_eq(&self.owners, owners)
            && self.watching.len() == rules.len()
            && self.watching.iter().zip(rules).all(|(one, other)| Arc::ptr_eq(one, other))
    }

    /// Whether rules and owners are those that it was made for.
    pub(super) fn is_current(&self, rules: &BTreeMap<String, Arc<Asked>>, owners: &Arc<Owners>) -> bool {
        let is_same = |rule: &Arc<Asked>| rules.get(&rule.id).is_some_and(|now| Arc::ptr_eq(now, rule));
        Arc::ptr_eq(&self.owners, owners) && self.watching.iter().all(is_same)
    }

    /// Name of the index.
    pub(super) fn name(&self) -> &Arc<str> {
        &self.meta.name
    }

    /// Its uuid, as it is shown.
    pub(super) fn uuid(&self) -> &Arc<str> {
        &self.uuid
    }

    /// Whether no filter can be asked.
    pub(super) fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }

    /// Whether updates are events of some rule.
    pub(super) fn includes_updates(&self) -> bool {
        self.filters.iter().any(|one| one.rule.include_updates)
    }

    /// Whether what rules write is an event of some rule.
    pub(super) fn allows_alerts(&self) -> bool {
        self.filters.iter().any(|one| one.rule.allow_alerts)
    }

    /// Puts rules together that see the same of a source.
    pub(super) fn by_sight(&self, rules: Vec<Arc<Asked>>) -> Vec<(Shown, Vec<Arc<Asked>>)> {
        if self.shown.is_empty() {
            return vec![(Shown::default(), rules)];
        }
        let mut all: Vec<(Shown, Vec<Arc<Asked>>)> = Vec::new();
        for rule in rules {
            let shown = self.shown.get(&rule.id).cloned().unwrap_or_default();
            match all.iter_mut().find(|(known, _)| *known == shown) {
                Some((_, of)) => of.push(rule),
                None => all.push((shown, vec![rule])),
            }
        }
        all
    }

    /// Lists the rules that are asked.
    pub(super) fn rules(&self) -> impl Iterator<Item = &Arc<Asked>> {
        self.filters.iter().map(|one| &one.rule)
    }

    /// Lists rules that are not asked of the index, with the reason.
    pub(super) fn problems(&self) -> impl Iterator<Item = (&str, &str)> {
        self.problems.iter().map(|(rule, reason)| (rule.as_str(), reason.as_str()))
    }

    /// Asks the filters of documents that fit into a batch.
    ///
    /// # Errors
    /// The documents cannot be made a batch.
    pub(super) fn found(
        &self,
        arrivals: &[Arrival],
        compute: Compute,
        slow: &mut Slow,
    ) -> Result<Found, String> {
        let said = |error: millrace_query::Error| error.to_string();
        let build = || Batch::build(&self.mapping, arrivals, self.matcher.fields(), compute);
        let batch = apart::guarded(build)?.map_err(said)?;
        let work = Work::default();
        let alone = |filter: usize| match self.filters.get(filter) {
            Some(one) => Matcher::new(&[Arc::clone(&one.filter)]).run(&batch, &work),
            None => Ok(Vec::new()),
        };
        let together = || self.matcher.run(&batch, &work);
        let (found, took) = slow.timed(|| apart::asked(self.filters.len(), together, alone));
        let found = found?;
        let mut rows: Found = Vec::with_capacity(found.len());
        for (filter, of) in found {
            let Some(one) = self.filters.get(filter) else { continue };
            rows.push((Arc::clone(&one.rule), of));
        }
        let filters = self.filters.iter().map(|one| (&one.rule, &one.filter));
        for (rule, reason) in slow.blame(took, &batch, filters) {
            rows.retain(|(of, _)| of.id != rule.id);
            rows.push((rule, Err(reason)));
        }
        Ok(rows)
    }
}
