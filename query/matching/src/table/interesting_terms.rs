//! The most interesting terms of examples: those by which documents like them are found in a shard.
//!
//! Terms are weighed as Lucene's `MoreLikeThis` does: by how often the examples have them, and how rare they are in the
//! shard.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use millrace_mapping::PathId;
use millrace_scoring::interesting_terms::{InterestingTerm, InterestingTerms};
use millrace_scoring::node::Expansion;
use millrace_scoring::visible_terms::VisibleTerms;
use millrace_work::QueryContext;
use millrace_work::error::Result;

use super::statistics::searched;
use crate::table::snapshot::TableSegment;

/// A term that was chosen: its field, and its boost.
type ChosenTerm = (PathId, String, f32);

/// Terms that were chosen in a shard so far. The expansions of the same examples, one a field, share them.
#[derive(Debug, Default)]
pub(super) struct SelectedTerms(Vec<(Arc<InterestingTerms>, Vec<ChosenTerm>)>);

impl SelectedTerms {
    /// Returns the terms of an expansion with their boosts, ascending: those that are taken as terms of its field.
    pub(super) fn terms<'a>(
        &mut self,
        telling: &Arc<InterestingTerms>,
        expansion: &Expansion,
        segments: impl Iterator<Item = &'a TableSegment> + Clone,
        work: &QueryContext,
    ) -> Result<Vec<(String, f32)>> {
        let known = self.0.iter().position(|(known, _)| Arc::ptr_eq(known, telling));
        let at = match known {
            Some(at) => at,
            None => {
                self.0.push((Arc::clone(telling), choose(telling, expansion, segments, work)?));
                self.0.len() - 1
            }
        };
        let own = self.0[at].1.iter().filter(|(path, ..)| *path == expansion.path);
        let mut terms: Vec<(String, f32)> = own.map(|(_, term, boost)| (term.clone(), *boost)).collect();
        terms.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(terms)
    }
}

/// Chooses the terms of a shard: field, term and boost of each.
fn choose<'a>(
    telling: &InterestingTerms,
    expansion: &Expansion,
    segments: impl Iterator<Item = &'a TableSegment> + Clone,
    work: &QueryContext,
) -> Result<Vec<ChosenTerm>> {
    let mut docs = 0;
    for segment in segments.clone() {
        docs += match segment.visible(expansion.rules, None, work)? {
            None => u64::from(segment.reader.rows()).saturating_sub(segment.deleted.len()),
            Some(visible) => visible.len(),
        };
    }
    let mut most = BTreeMap::new();
    for (at, (path, text)) in telling.fields.iter().enumerate() {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for segment in segments.clone() {
            let Some(inverted) = searched(&segment.reader, expansion.nested)? else { continue };
            let pattern = expansion.pattern.until(work.stop());
            let visible = segment.visible(expansion.rules, expansion.nested, work)?;
            let rows = visible.as_deref();
            let terms = VisibleTerms { inverted: inverted.as_ref(), path: *path, text: *text, rows };
            terms.for_each(pattern, &mut |term, count| {
                *counts.entry(term.to_owned()).or_default() += count;
                ControlFlow::Continue(())
            })?;
            work.check()?;
        }
        for (term, count) in counts {
            let most = most.entry(term).or_insert((at, 0));
            if count > most.1 {
                *most = (at, count);
            }
        }
    }
    let taken = telling.taken(&most, docs);
    // As Lucene has it: boosts are relative to the least interesting of the terms.
    let least = taken.first().map_or(1.0, |taken| taken.score);
    let boost =
        |score: f32| if telling.boost_terms <= 0.0 { 1.0 } else { telling.boost_terms * score / least };
    let found = |taken: InterestingTerm<'_>| {
        let (path, _) = telling.fields.get(taken.field)?;
        Some((*path, taken.term.to_owned(), boost(taken.score)))
    };
    Ok(taken.into_iter().filter_map(found).collect())
}
