//! The filters of an index, as the owners of rules may see it, in one matcher.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use millrace_catalog::metadata::IndexMeta;
use millrace_mapping::Mapping;
use millrace_mapping::fields::FieldRules;
use millrace_query::QueryContext;
use millrace_query::filters::{ArrivedDocument, Batch, Changes, Filter, IndexView, Matcher};
use millrace_runtime::{Compute, Priority};
use roaring::RoaringBitmap;
use serde_json::Value;

use super::formats::Formats;
use super::panic_isolation::Rows;
use super::slow::Slow;
use super::targets::Owners;
use super::{MatchRequest, panic_isolation};
use crate::reason::reason_of;

/// Parts of a source that an owner may see; nothing where the owner sees all.
pub(super) type OwnerProjection = Arc<[Arc<FieldRules>]>;

/// Rules that a document matches, as a [`super::Hit`] has them.
pub(super) type RuleHits = Vec<(Arc<MatchRequest>, bool)>;

/// Rows by rule, or why the rule's filter could not be asked.
pub(super) type RuleMatches = Vec<(Arc<MatchRequest>, Result<Matches, String>)>;

/// Rows that match a rule's filter, and those that match its second one.
#[derive(Debug, Default)]
pub(super) struct Matches {
    pub(super) rows: Vec<u32>,
    pub(super) second: RoaringBitmap,
}

/// The filters of an index.
#[derive(Debug)]
pub(super) struct CompiledFilters {
    meta: Arc<IndexMeta>,
    mapping: Arc<Mapping>,
    uuid: Arc<str>,
    /// The rules that watch it, those that cannot be asked included.
    watching: Vec<Arc<MatchRequest>>,
    owners: Arc<Owners>,
    filters: Arc<[CompiledFilter]>,
    /// By rule, for those whose owners do not see all fields.
    shown: HashMap<String, OwnerProjection>,
    formats: Formats,
    matcher: Arc<Matcher>,
    includes_updates: bool,
    allows_alerts: bool,
    problems: BTreeMap<String, String>,
    /// Estimated bytes of its filters.
    weight: usize,
}

/// A rule's filter.
#[derive(Clone, Debug)]
struct CompiledFilter {
    rule: Arc<MatchRequest>,
    /// `true` if it is the second one of its rule.
    is_second: bool,
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
    /// Changes between an earlier view and the present one, by the addresses of both.
    changes: HashMap<(usize, usize), Changes>,
}

impl<'a> Views<'a> {
    fn view_for(&mut self, rule: &'a MatchRequest) -> View {
        let (meta, mapping, owners) = (self.meta, self.mapping, self.owners);
        let make = || {
            let Some(Some(owner)) = owners.get(&rule.owner) else {
                return Err(format!("its owner, user [{}], is deleted or disabled", rule.owner));
            };
            let access = owner.privileges().on(&meta.name);
            let view = IndexView::new(Arc::clone(meta), Arc::clone(mapping), &access);
            let view = view.and_then(|view| view.named_by(&rule.parts));
            view.map(Arc::new).map_err(|error| reason_of(&error))
        };
        self.made.entry((rule.owner.as_str(), rule.parts.as_slice())).or_insert_with(make).clone()
    }

    fn needs_recompile(&mut self, before: &CompiledFilter, view: &Arc<IndexView>) -> bool {
        let key = (Arc::as_ptr(&before.view).addr(), Arc::as_ptr(view).addr());
        let changes = self.changes.entry(key).or_insert_with(|| Changes::between(&before.view, view));
        before.filter.needs_recompile(changes)
    }
}

impl CompiledFilters {
    /// Compiles the filters of the rules that watch an index; those of `before` that mean the same are taken over. Of problems those
    /// in `told` are known.
    pub(super) fn new(
        meta: &Arc<IndexMeta>,
        mapping: &Arc<Mapping>,
        rules: &[Arc<MatchRequest>],
        owners: &Arc<Owners>,
        before: Option<&Self>,
        told: &BTreeMap<String, String>,
        to_tell: &mut Vec<(String, String)>,
    ) -> Self {
        let known: HashMap<(&str, bool), &CompiledFilter> = before
            .into_iter()
            .flat_map(|b| b.filters.iter())
            .map(|one| ((one.rule.id.as_str(), one.is_second), one))
            .collect();
        let mut views = Views { meta, mapping, owners, made: HashMap::new(), changes: HashMap::new() };
        let (mut filters, mut problems) = (Vec::with_capacity(rules.len()), BTreeMap::new());
        for rule in rules {
            let compiled = views.view_for(rule).and_then(|view| {
                let mut one = |is_second: bool, body: &Value| {
                    let same = known
                        .get(&(rule.id.as_str(), is_second))
                        .filter(|one| Arc::ptr_eq(&one.rule, rule) && !views.needs_recompile(one, &view));
                    let filter = match same {
                        Some(one) => Arc::clone(&one.filter),
                        None => {
                            let compiled = panic_isolation::guarded(|| Filter::compile(body, &view))?;
                            Arc::new(compiled.map_err(|error| reason_of(&error))?)
                        }
                    };
                    Ok(CompiledFilter { rule: Arc::clone(rule), is_second, view: Arc::clone(&view), filter })
                };
                let first = one(false, &rule.body)?;
                let second = rule.second.as_ref().map(|body| {
                    one(true, body).map_err(|error: String| format!("[match_bucket_filter] {error}"))
                });
                Ok((first, second.transpose()?))
            });
            match compiled {
                Ok((first, second)) => {
                    filters.push(first);
                    filters.extend(second);
                }
                Err(reason) => {
                    let reason = format!("index [{}] is not watched: {reason}", meta.name);
                    let is_known = |problems: &BTreeMap<_, _>| problems.get(&rule.id) == Some(&reason);
                    if !is_known(told) && !before.is_some_and(|before| is_known(&before.problems)) {
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
            formats: Formats::new(mapping, rules),
            matcher: Arc::new(Matcher::new(&all)),
            includes_updates: filters.iter().any(|one| one.rule.include_updates),
            allows_alerts: filters.iter().any(|one| one.rule.allow_alerts),
            weight: filters.iter().map(|one| one.filter.weight()).fold(0, usize::saturating_add),
            filters: filters.into(),
            shown,
            problems,
        }
    }

    /// Takes over the filters of an index that is alike, so that they are there once for both; `None` where the two differ in
    /// something that filters may go by.
    pub(super) fn shared(
        like: &Self,
        meta: &Arc<IndexMeta>,
        mapping: &Arc<Mapping>,
        rules: &[Arc<MatchRequest>],
        owners: &Arc<Owners>,
    ) -> Option<Self> {
        let same_rules = Arc::ptr_eq(&like.owners, owners)
            && like.problems.is_empty()
            && like.watching.len() == rules.len()
            && like.watching.iter().zip(rules).all(|(one, other)| Arc::ptr_eq(one, other));
        if !same_rules || !like.filters.iter().all(|one| one.filter.is_of_any_index()) {
            return None;
        }
        let mut views = Views { meta, mapping, owners, made: HashMap::new(), changes: HashMap::new() };
        // Owners of the same rights share a view.
        let mut alike: HashMap<(usize, usize), bool> = HashMap::new();
        let mut filters = Vec::with_capacity(like.filters.len());
        for one in like.filters.iter() {
            let view = views.view_for(&one.rule).ok()?;
            let pair = (Arc::as_ptr(&one.view).addr(), Arc::as_ptr(&view).addr());
            if !*alike.entry(pair).or_insert_with(|| one.view.is_like(&view)) {
                return None;
            }
            filters.push(CompiledFilter { view, ..one.clone() });
        }
        Some(Self {
            meta: Arc::clone(meta),
            mapping: Arc::clone(mapping),
            uuid: meta.uuid_text().into(),
            watching: rules.to_vec(),
            owners: Arc::clone(owners),
            filters: filters.into(),
            shown: like.shown.clone(),
            formats: like.formats.clone(),
            matcher: Arc::clone(&like.matcher),
            includes_updates: like.includes_updates,
            allows_alerts: like.allows_alerts,
            problems: BTreeMap::new(),
            weight: like.weight,
        })
    }

    /// Estimates the bytes of its filters; its share, where several indices have them together.
    pub(super) fn weight(&self) -> usize {
        self.weight / Arc::strong_count(&self.matcher).max(1)
    }

    /// Takes why rules are not asked of the index, as it is forgotten.
    pub(super) fn into_problems(self) -> BTreeMap<String, String> {
        self.problems
    }

    /// Returns whether these are the filters of what the index is now.
    pub(super) fn is_of(
        &self,
        meta: &Arc<IndexMeta>,
        mapping: &Arc<Mapping>,
        rules: &[Arc<MatchRequest>],
        owners: &Arc<Owners>,
    ) -> bool {
        Arc::ptr_eq(&self.meta, meta)
            && Arc::ptr_eq(&self.mapping, mapping)
            && Arc::ptr_eq(&self.owners, owners)
            && self.watching.len() == rules.len()
            && self.watching.iter().zip(rules).all(|(one, other)| Arc::ptr_eq(one, other))
    }

    /// Returns whether rules and owners are those that it was made for.
    pub(super) fn is_current(
        &self,
        rules: &BTreeMap<String, Arc<MatchRequest>>,
        owners: &Arc<Owners>,
    ) -> bool {
        let is_same =
            |rule: &Arc<MatchRequest>| rules.get(&rule.id).is_some_and(|now| Arc::ptr_eq(now, rule));
        Arc::ptr_eq(&self.owners, owners) && self.watching.iter().all(is_same)
    }

    /// Name of the index.
    pub(super) fn name(&self) -> &Arc<str> {
        &self.meta.name
    }

    /// Returns the formats of time fields that are written in a way of their own.
    pub(super) fn formats(&self) -> &Formats {
        &self.formats
    }

    /// Its uuid, as it is shown.
    pub(super) fn uuid(&self) -> &Arc<str> {
        &self.uuid
    }

    /// Returns whether no filter can be asked.
    pub(super) fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }

    /// Returns whether updates are events of some rule.
    pub(super) fn includes_updates(&self) -> bool {
        self.includes_updates
    }

    /// Returns whether what rules write is an event of some rule.
    pub(super) fn allows_alerts(&self) -> bool {
        self.allows_alerts
    }

    /// Puts rules together that see the same of a source.
    pub(super) fn by_sight(&self, rules: RuleHits) -> Vec<(OwnerProjection, RuleHits)> {
        if self.shown.is_empty() {
            return vec![(OwnerProjection::default(), rules)];
        }
        let mut all: Vec<(OwnerProjection, RuleHits)> = Vec::new();
        for rule in rules {
            let shown = self.shown.get(&rule.0.id).cloned().unwrap_or_default();
            match all.iter_mut().find(|(known, _)| *known == shown) {
                Some((_, of)) => of.push(rule),
                None => all.push((shown, vec![rule])),
            }
        }
        all
    }

    /// Lists the rules that are asked.
    pub(super) fn rules(&self) -> impl Iterator<Item = &Arc<MatchRequest>> {
        self.filters.iter().filter(|one| !one.is_second).map(|one| &one.rule)
    }

    /// Lists rules that are not asked of the index, with the reason.
    pub(super) fn problems(&self) -> impl Iterator<Item = (&str, &str)> {
        self.problems.iter().map(|(rule, reason)| (rule.as_str(), reason.as_str()))
    }

    /// Asks the filters of some documents each, as many at a time as fit into a batch, on several threads of a
    /// priority; in the order of `parts`.
    ///
    /// # Errors
    /// Of a part, that its documents cannot be made a batch.
    pub(super) fn found(
        &self,
        arrivals: &Arc<[ArrivedDocument]>,
        parts: &[Range<usize>],
        compute: &Compute,
        priority: Priority,
        slow: &mut Slow,
    ) -> Vec<Result<RuleMatches, String>> {
        let asked = {
            let (arrivals, parts, pool) = (Arc::clone(arrivals), parts.to_vec(), compute.clone());
            let (matcher, mapping) = (Arc::clone(&self.matcher), Arc::clone(&self.mapping));
            let filters = Arc::clone(&self.filters);
            move |at: usize| {
                let part = parts.get(at).and_then(|part| arrivals.get(part.clone())).unwrap_or_default();
                Slow::timed(|| of_part(&filters, &matcher, &mapping, part, &pool))
            }
        };
        let all = compute.each(priority, parts.len(), asked);
        let mut answers = Vec::with_capacity(parts.len());
        for (part, asked) in parts.iter().zip(all) {
            let Some((found, took)) = asked else {
                answers.push(Err("a compute job panicked".to_owned()));
                continue;
            };
            let part = arrivals.get(part.clone()).unwrap_or_default();
            answers.push(found.map(|found| self.of_rules(found, took, part, compute, slow)));
        }
        answers
    }

    /// Puts rules in the place of their filters; those that are too slow fail.
    fn of_rules(
        &self,
        found: Vec<Rows>,
        took: Duration,
        arrivals: &[ArrivedDocument],
        compute: &Compute,
        slow: &mut Slow,
    ) -> RuleMatches {
        // What cannot be asked is not asked again to see how long it takes.
        let failed: HashSet<usize> =
            found.iter().filter(|(_, rows)| rows.is_err()).map(|(filter, _)| *filter).collect();
        let mut rows: RuleMatches = Vec::with_capacity(found.len());
        let mut second: HashMap<&str, Result<RoaringBitmap, String>> = HashMap::new();
        for (filter, of) in found {
            let Some(one) = self.filters.get(filter) else { continue };
            match one.is_second {
                true => drop(second.insert(&one.rule.id, of.map(|rows| rows.into_iter().collect()))),
                false => {
                    let matches = of.map(|rows| Matches { rows, second: RoaringBitmap::new() });
                    rows.push((Arc::clone(&one.rule), matches));
                }
            }
        }
        for (rule, found) in rows.iter_mut().filter(|(rule, _)| rule.second.is_some()) {
            match second.remove(rule.id.as_str()) {
                Some(Err(reason)) => *found = Err(reason),
                Some(Ok(also)) => {
                    if let Ok(found) = found {
                        found.second = also;
                    }
                }
                // No row matches.
                None => {}
            }
        }
        if slow.is_long(took, self.filters.len()) {
            // All of it, so that each filter has what it asks for.
            let build = || Batch::build(&self.mapping, arrivals, self.matcher.fields(), compute.clone()).ok();
            let filters = self.filters.iter().enumerate().filter(|(filter, _)| !failed.contains(filter));
            let filters = filters.map(|(_, one)| (&one.rule, &one.filter));
            let blamed =
                panic_isolation::guarded(build).ok().flatten().map(|batch| slow.blame(took, &batch, filters));
            for (rule, reason) in blamed.unwrap_or_default() {
                rows.retain(|(of, _)| of.id != rule.id);
                rows.push((rule, Err(reason)));
            }
        }
        rows
    }
}

/// Asks filters of the documents of one part.
///
/// # Errors
/// The documents cannot be made a batch.
fn of_part(
    filters: &[CompiledFilter],
    matcher: &Matcher,
    mapping: &Arc<Mapping>,
    arrivals: &[ArrivedDocument],
    compute: &Compute,
) -> Result<Vec<Rows>, String> {
    let said = |error: millrace_query::Error| reason_of(&error);
    let work = QueryContext::default();
    let quick = || matcher.run(&matcher.batch(mapping, arrivals, compute)?, &work);
    if let Ok(found) = panic_isolation::guarded(quick) {
        return Ok(found.map_err(said)?.into_iter().map(panic_isolation::rows).collect());
    }
    // A filter may have been looked for when it panicked: all is made, and each is asked.
    let build = || Batch::build(mapping, arrivals, matcher.fields(), compute.clone());
    let batch = panic_isolation::guarded(build)?.map_err(said)?;
    let alone = |filter: usize| match filters.get(filter) {
        Some(one) => Matcher::new(&[Arc::clone(&one.filter)]).run(&batch, &work),
        None => Ok(Vec::new()),
    };
    panic_isolation::asked(filters.len(), || matcher.run(&batch, &work), alone)
}
