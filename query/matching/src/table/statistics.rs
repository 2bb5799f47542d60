//! Statistics of a whole shard for scores: terms that patterns find there, and the frequencies of terms. Looked up once a shard,
//! shared by the partitions of a scan.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashSet};
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use millrace_dsl::query::FeatureFunction;
use millrace_mapping::document::{feature_of, feature_value};
use millrace_mapping::{PathId, Scalar};
use millrace_scoring::bm25::{Bm25, Statistics, idf};
use millrace_scoring::functions::LeafScore;
use millrace_scoring::functions::{ExpandedTerm, ExpandedTerms, ShardFunctions};
use millrace_scoring::node::{
    ExpandedScore, Expansion, ExpansionSelection, Join, ResolvedPredicate, StatisticsTerm, TermStatistics,
};
use millrace_scoring::reader::{InvertedIndex, SegmentReader};
use millrace_scoring::visible_terms::VisibleTerms;
use millrace_work::QueryContext;
use millrace_work::error::{Error, Result, ShardFailure};

use super::blend::blend;
use super::interesting_terms::SelectedTerms;
use crate::table::snapshot::{TableSegment, TableSnapshot};

/// Most terms that an expansion keeps, under any request.
const MAX_KEPT: usize = 10_000;

/// The functions and expanded terms of each shard.
#[derive(Debug)]
pub struct Functions {
    shards: Vec<OnceLock<Arc<ShardFunctions>>>,
    global: bool,
}

impl Functions {
    /// Makes the functions of so many shards; `global` joins the statistics of all of them.
    pub fn new(shards: u32, global: bool) -> Self {
        Self { shards: (0..shards).map(|_| OnceLock::new()).collect(), global }
    }

    /// Returns the functions of a shard of an index; terms alone unless `scored`, which is the same
    /// for all calls. They are looked up for some work, which may end on the way.
    pub fn of(
        &self,
        snapshot: &TableSnapshot,
        resolved: &[Option<ResolvedPredicate>],
        index: usize,
        shard: u32,
        scored: bool,
        work: &QueryContext,
    ) -> Result<Arc<ShardFunctions>> {
        let Some(Some(own)) = resolved.get(index) else { return Ok(Arc::default()) };
        if own.expansions.is_empty() && (own.statistics.is_empty() || !scored) {
            return Ok(Arc::default());
        }
        let Some(cell) = self.shards.get(shard as usize) else { return Ok(Arc::default()) };
        if let Some(functions) = cell.get() {
            return Ok(Arc::clone(functions));
        }
        let lookup = Lookup { snapshot, resolved, index, shard, global: self.global, work };
        let functions = lookup.functions(own, scored).map_err(|error| refused(error, snapshot, index))?;
        let functions = Arc::new(functions);
        // Partitions that came here together computed the same.
        Ok(Arc::clone(cell.get_or_init(|| functions)))
    }
}

/// Makes the failure of an index's shards of terms that are too many.
fn refused(error: Error, snapshot: &TableSnapshot, index: usize) -> Error {
    let (Error::TooManyClauses(_), Some(index)) = (&error, snapshot.indices.get(index)) else { return error };
    let failure = |shard: &u32| ShardFailure {
        index: index.meta.name.to_string(),
        index_uuid: index.meta.uuid.to_string(),
        shard: *shard,
        error_type: error.error_type(),
        reason: error.reason(),
        caused_by: None,
        status: 400,
    };
    Error::SearchPhase { failures: index.shards.iter().map(failure).collect() }
}

/// Finds the terms of expansions in the segments of a shard, without scores: for rows that are
/// matched one by one. Blocks.
pub fn expanded(
    expansions: &[Expansion],
    segments: &[TableSegment],
    work: &QueryContext,
) -> Result<Arc<ShardFunctions>> {
    let (mut found, mut chosen) = (Vec::with_capacity(expansions.len()), SelectedTerms::default());
    for expansion in expansions {
        let unscored = |(term, _)| ExpandedTerm { term, score: LeafScore::Flat(0.0) };
        let terms =
            expand(expansion, segments.iter(), &mut chosen, work)?.into_iter().map(unscored).collect();
        found.push(ExpandedTerms { path: expansion.path, text: expansion.text, terms });
    }
    Ok(Arc::new(ShardFunctions { functions: Vec::new(), expansions: found }))
}

/// Finds the terms of an expansion with their boosts, ascending.
fn expand<'a>(
    expansion: &Expansion,
    segments: impl Iterator<Item = &'a TableSegment> + Clone,
    chosen: &mut SelectedTerms,
    work: &QueryContext,
) -> Result<Vec<(String, f32)>> {
    let mut kept = match &expansion.keep {
        ExpansionSelection::InterestingTerms(telling) => {
            return chosen.terms(telling, expansion, segments, work);
        }
        ExpansionSelection::Best(most) => TermCollector::best(*most),
        ExpansionSelection::AtMost(most) => TermCollector::all(*most, true),
        ExpansionSelection::First(most) => TermCollector::all((*most).min(MAX_KEPT), false),
    };
    for segment in segments {
        let Some(inverted) = searched(&segment.reader, expansion.nested)? else { continue };
        let pattern = expansion.pattern.until(work.stop());
        let visible = segment.visible(expansion.rules, expansion.nested, work)?;
        let terms = VisibleTerms {
            inverted: inverted.as_ref(),
            path: expansion.path,
            text: expansion.text,
            rows: visible.as_deref(),
        };
        terms.for_each(pattern, &mut |term, _| {
            kept.offer(term, || expansion.pattern.boost(&expansion.lead, term))
        })?;
        work.check()?;
        if kept.full() {
            break;
        }
    }
    match kept.refused() {
        Some(most) => Err(Error::TooManyClauses(most)),
        None => Ok(kept.terms()),
    }
}

/// Returns the inverted index of documents, or of the elements of a nested path where there are any.
pub(super) fn searched(
    segment: &Arc<dyn SegmentReader>,
    nested: Option<PathId>,
) -> Result<Option<Arc<dyn InvertedIndex>>> {
    let Some(path) = nested else { return Ok(Some(segment.inverted()?)) };
    let elements = segment.nested(path)?;
    Ok(elements.map(|elements| Arc::clone(elements.bundle()) as Arc<dyn InvertedIndex>))
}

/// A field whose terms are counted.
#[derive(Clone, Copy)]
struct CountedField<'a> {
    path: PathId,
    /// Nested path whose elements are counted; documents where absent.
    nested: Option<PathId>,
    name: &'a str,
}

impl<'a> From<&'a TermStatistics> for CountedField<'a> {
    fn from(wanted: &'a TermStatistics) -> Self {
        Self { path: wanted.path, nested: wanted.nested, name: &wanted.field }
    }
}

impl<'a> From<&'a Expansion> for CountedField<'a> {
    fn from(expansion: &'a Expansion) -> Self {
        Self { path: expansion.path, nested: expansion.nested, name: &expansion.field }
    }
}

/// A look at the segments of a shard.
struct Lookup<'a> {
    snapshot: &'a TableSnapshot,
    resolved: &'a [Option<ResolvedPredicate>],
    index: usize,
    shard: u32,
    global: bool,
    work: &'a QueryContext,
}

/// A term as it is counted.
enum CountedTerm<'a> {
    Text(&'a str),
    Exact(&'a Scalar),
}

impl Lookup<'_> {
    fn functions(&self, own: &ResolvedPredicate, scored: bool) -> Result<ShardFunctions> {
        let (mut found, mut chosen) = (Vec::with_capacity(own.expansions.len()), SelectedTerms::default());
        for expansion in &own.expansions {
            let shard = self.snapshot.segments.iter().filter(|segment| segment.shard == self.shard);
            found.push(expand(expansion, shard, &mut chosen, self.work)?);
        }
        let mut functions = Vec::new();
        if scored {
            let blended = self.blended(own)?;
            for (at, wanted) in own.statistics.iter().enumerate() {
                functions.push(Arc::new(match blended.get(&at) {
                    Some(statistics) => Bm25::new(wanted.boost, *statistics),
                    None => self.function(wanted, own, &found)?,
                }));
            }
        }
        let mut expansions = Vec::with_capacity(found.len());
        for (expansion, terms) in own.expansions.iter().zip(found) {
            expansions.push(self.scored(expansion, terms, scored)?);
        }
        Ok(ShardFunctions { functions, expansions })
    }

    /// Counts the terms that are one in several fields, by their place among all.
    fn blended(&self, own: &ResolvedPredicate) -> Result<BTreeMap<usize, Statistics>> {
        let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        // Statistics that are joined over shards count as they are, as in OpenSearch.
        for (at, wanted) in own.statistics.iter().enumerate().filter(|_| !self.global) {
            if let Some(group) = wanted.blend {
                groups.entry(group).or_default().push(at);
            }
        }
        let mut blended = BTreeMap::new();
        for group in groups.into_values() {
            let mut sums = Vec::with_capacity(group.len());
            for wanted in group.iter().map(|at| &own.statistics[*at]) {
                sums.push(match wanted.terms.first() {
                    Some(StatisticsTerm::Text(term)) => {
                        self.count(wanted.into(), &CountedTerm::Text(term))?
                    }
                    Some(StatisticsTerm::Exact(value)) => {
                        self.count(wanted.into(), &CountedTerm::Exact(value))?
                    }
                    Some(StatisticsTerm::Expanded(_) | StatisticsTerm::In { .. }) | None => {
                        Statistics::default()
                    }
                });
            }
            let own_segments = self.snapshot.segments.iter().filter(|segment| segment.shard == self.shard);
            blend(&mut sums, own_segments.map(|segment| u64::from(segment.reader.rows())).sum());
            blended.extend(group.into_iter().zip(sums));
        }
        Ok(blended)
    }

    /// Makes the scores of the terms of an expansion.
    fn scored(
        &self,
        expansion: &Expansion,
        terms: Vec<(String, f32)>,
        scored: bool,
    ) -> Result<ExpandedTerms> {
        if let (true, ExpandedScore::Feature(function)) = (scored, expansion.score) {
            return self.features(expansion, terms, function);
        }
        let mut counted = Vec::with_capacity(terms.len());
        if scored && expansion.score != ExpandedScore::Boost {
            for (term, _) in &terms {
                counted.push(match expansion.text {
                    true => self.count(expansion.into(), &CountedTerm::Text(term))?,
                    false => {
                        let value = Scalar::Str(term.clone());
                        self.count(expansion.into(), &CountedTerm::Exact(&value))?
                    }
                });
            }
        }
        if expansion.score == ExpandedScore::Blended {
            let most = counted.iter().map(|statistics| statistics.doc_freq).max().unwrap_or(0);
            counted.iter_mut().for_each(|statistics| statistics.doc_freq = most);
        }
        let scored_term = |(at, (term, boost)): (usize, (String, f32))| {
            let boost = boost.max(0.0) * expansion.boost;
            let score = match counted.get(at) {
                Some(statistics) => LeafScore::Bm25(Arc::new(Bm25::new(boost, *statistics))),
                None if scored => LeafScore::Flat(boost),
                None => LeafScore::Flat(0.0),
            };
            ExpandedTerm { term, score }
        };
        let terms = terms.into_iter().enumerate().map(scored_term).collect();
        Ok(ExpandedTerms { path: expansion.path, text: expansion.text, terms })
    }

    /// Makes the scores of the numbers of a feature.
    fn features(
        &self,
        expansion: &Expansion,
        terms: Vec<(String, f32)>,
        function: FeatureFunction,
    ) -> Result<ExpandedTerms> {
        let (mut rows, mut sum) = (0u64, 0u64);
        let mut numbers = Vec::with_capacity(terms.len());
        for (term, _) in terms {
            let Some((bits, number)) = feature_of(&term, &expansion.lead) else { continue };
            if function == FeatureFunction::Saturation(None) {
                let value = Scalar::Str(term.clone());
                let count = self.count(expansion.into(), &CountedTerm::Exact(&value))?.doc_freq;
                rows += count;
                sum += count * u64::from(bits);
            }
            numbers.push((term, number));
        }
        // About the geometric mean: numbers are kept as exponents and a little more.
        let mean = sum.checked_div(rows).and_then(|mean| u32::try_from(mean).ok()).map_or(1.0, feature_value);
        let scored = |(term, number): (String, f32)| ExpandedTerm {
            term,
            score: LeafScore::Flat(expansion.boost * function.score(number, mean)),
        };
        let terms = numbers.into_iter().map(scored).collect();
        Ok(ExpandedTerms { path: expansion.path, text: expansion.text, terms })
    }

    /// Makes the function of terms that are scored together.
    fn function(
        &self,
        wanted: &TermStatistics,
        own: &ResolvedPredicate,
        found: &[Vec<(String, f32)>],
    ) -> Result<Bm25> {
        if wanted.join == Join::Spans {
            return self.spans(wanted, own, found);
        }
        let mut all = Vec::new();
        for term in &wanted.terms {
            match term {
                StatisticsTerm::In { path, field, term } => {
                    let field = CountedField { path: *path, nested: wanted.nested, name: field };
                    all.push(self.count(field, &CountedTerm::Text(term))?);
                }
                StatisticsTerm::Text(term) => all.push(self.count(wanted.into(), &CountedTerm::Text(term))?),
                StatisticsTerm::Exact(value) => {
                    all.push(self.count(wanted.into(), &CountedTerm::Exact(value))?);
                }
                StatisticsTerm::Expanded(slot) => {
                    let text = own.expansions.get(*slot).is_some_and(|expansion| expansion.text);
                    for (term, _) in found.get(*slot).into_iter().flatten().filter(|_| text) {
                        all.push(self.count(wanted.into(), &CountedTerm::Text(term))?);
                    }
                }
            }
        }
        let Some(field) = all.first().copied() else {
            return Ok(Bm25::new(wanted.boost, Statistics::default()));
        };
        Ok(match wanted.join {
            Join::Synonyms => {
                let doc_freq = all.iter().map(|statistics| statistics.doc_freq).max().unwrap_or(0);
                Bm25::new(wanted.boost, Statistics { doc_freq, ..field })
            }
            Join::Phrase | Join::Spans => {
                // Terms that do not occur do not count.
                let idfs = all.iter().filter(|statistics| statistics.doc_freq > 0).map(|statistics| {
                    f64::from(idf(statistics.docs.max(statistics.doc_freq), statistics.doc_freq))
                });
                Bm25::with_idf(wanted.boost, idfs.sum::<f64>() as f32, field)
            }
        })
    }

    /// Makes the function of spans, whose terms count once each. Documents are those of the field that scores, of
    /// whichever field a term is.
    fn spans(
        &self,
        wanted: &TermStatistics,
        own: &ResolvedPredicate,
        found: &[Vec<(String, f32)>],
    ) -> Result<Bm25> {
        let mut terms = BTreeSet::new();
        for term in &wanted.terms {
            match term {
                StatisticsTerm::In { path, field, term } => {
                    terms.insert((field.as_ref(), term.as_str(), *path));
                }
                StatisticsTerm::Expanded(slot) => {
                    let Some(expansion) = own.expansions.get(*slot) else { continue };
                    let all = found.get(*slot).into_iter().flatten();
                    terms.extend(
                        all.map(|(term, _)| (expansion.field.as_ref(), term.as_str(), expansion.path)),
                    );
                }
                StatisticsTerm::Text(_) | StatisticsTerm::Exact(_) => {}
            }
        }
        let field = Statistics { doc_freq: 0, ..self.count(wanted.into(), &CountedTerm::Text(""))? };
        let mut sum = 0.0;
        for (name, term, path) in terms {
            let counted = CountedField { path, nested: wanted.nested, name };
            let doc_freq = self.count(counted, &CountedTerm::Text(term))?.doc_freq;
            // Terms that do not occur do not count.
            if doc_freq > 0 {
                sum += f64::from(idf(field.docs.max(doc_freq), doc_freq));
            }
        }
        Ok(Bm25::with_idf(wanted.boost, sum as f32, field))
    }

    /// Counts a term over the segments whose statistics are joined.
    fn count(&self, field: CountedField<'_>, term: &CountedTerm<'_>) -> Result<Statistics> {
        self.work.check()?;
        let mut sum = Statistics::default();
        for segment in &self.snapshot.segments {
            if !self.global && segment.shard != self.shard {
                continue;
            }
            let here = match segment.index == self.index {
                true => Some((field.path, field.nested)),
                // Another index numbers its paths otherwise: names join them.
                false => self.paths_in(segment.index, field),
            };
            if let Some((path, nested)) = here
                && let Some(inverted) = searched(&segment.reader, nested)?
            {
                let index = self.snapshot.indices.get(segment.index);
                let column = index.and_then(|index| Some(index.mapping.field_by_id(path)?.column));
                let single = nested.is_none() && column.is_some_and(|column| !segment.reader.is_list(column));
                add(&mut sum, path, single, term, inverted.as_ref())?;
            }
        }
        Ok(sum)
    }

    /// Finds the numbers that another index gives a field and the nested path that it is searched in.
    fn paths_in(&self, index: usize, field: CountedField<'_>) -> Option<(PathId, Option<PathId>)> {
        // An index that refused the query is not searched and counts for nothing.
        self.resolved.get(index)?.as_ref()?;
        let own = &self.snapshot.indices.get(self.index)?.mapping;
        let theirs = &self.snapshot.indices.get(index)?.mapping;
        let nested = match field.nested {
            None => None,
            Some(nested) => Some(theirs.nested_id(own.nested_path_of(nested)?)?),
        };
        Some((theirs.field(field.name)?.id, nested))
    }
}

/// Adds what one segment has; `single` says that no row has several values.
fn add(
    sum: &mut Statistics,
    path: PathId,
    single: bool,
    term: &CountedTerm<'_>,
    inverted: &dyn InvertedIndex,
) -> Result<()> {
    match term {
        CountedTerm::Text(term) => {
            if let Some(text) = inverted.text(path) {
                sum.docs += u64::from(text.docs());
                sum.tokens += text.tokens();
                sum.doc_freq += u64::from(text.count(term)?);
            }
        }
        CountedTerm::Exact(value) => {
            let docs = u64::from(inverted.exists_count(path)?);
            sum.docs += docs;
            // Lucene takes several values for a longer field, though it keeps no lengths here.
            sum.tokens += if single { docs } else { inverted.value_count(path)? };
            sum.doc_freq += u64::from(inverted.exact_count(path, value)?);
        }
    }
    Ok(())
}

/// Terms while they are found.
enum TermCollector {
    /// The best: in the heap, the worst first, and whether a term is there.
    Best { most: usize, heap: BinaryHeap<Reverse<RankedTerm>>, seen: HashSet<String> },
    /// All, or the first.
    All { most: usize, refuse: bool, terms: BTreeMap<String, f32>, over: bool },
}

/// A term by its boost; among equals the lesser term is greater.
#[derive(Debug, PartialEq)]
struct RankedTerm(f32, Reverse<String>);

impl Eq for RankedTerm {}

impl Ord for RankedTerm {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0).then_with(|| self.1.cmp(&other.1))
    }
}

impl PartialOrd for RankedTerm {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl TermCollector {
    fn best(most: usize) -> Self {
        Self::Best { most: most.min(MAX_KEPT), heap: BinaryHeap::new(), seen: HashSet::new() }
    }

    fn all(most: usize, refuse: bool) -> Self {
        Self::All { most, refuse, terms: BTreeMap::new(), over: false }
    }

    fn offer(&mut self, term: &str, boost: impl FnOnce() -> f32) -> ControlFlow<()> {
        match self {
            Self::Best { most: 0, .. } => ControlFlow::Break(()),
            Self::Best { most, heap, seen } => {
                if seen.contains(term) {
                    return ControlFlow::Continue(());
                }
                let ranked = RankedTerm(boost(), Reverse(term.to_owned()));
                if heap.len() == *most {
                    if heap.peek().is_some_and(|worst| ranked <= worst.0) {
                        return ControlFlow::Continue(());
                    }
                    if let Some(Reverse(RankedTerm(_, Reverse(worst)))) = heap.pop() {
                        seen.remove(&worst);
                    }
                }
                seen.insert(term.to_owned());
                heap.push(Reverse(ranked));
                ControlFlow::Continue(())
            }
            Self::All { most, refuse, terms, over } => {
                if !terms.contains_key(term) {
                    if terms.len() >= *most && *refuse {
                        *over = true;
                        return ControlFlow::Break(());
                    }
                    terms.insert(term.to_owned(), boost());
                }
                // Lucene takes one term of each segment before it looks how many there are.
                match !*refuse && terms.len() >= *most {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            }
        }
    }

    fn full(&self) -> bool {
        match self {
            Self::Best { .. } => false,
            Self::All { most, refuse, terms, over } => *over || (!*refuse && terms.len() >= *most),
        }
    }

    fn refused(&self) -> Option<usize> {
        match self {
            Self::All { most, over: true, .. } => Some(*most),
            _ => None,
        }
    }

    fn terms(self) -> Vec<(String, f32)> {
        match self {
            Self::All { terms, .. } => terms.into_iter().collect(),
            Self::Best { heap, .. } => {
                let mut terms: Vec<(String, f32)> =
                    heap.into_iter().map(|Reverse(RankedTerm(boost, Reverse(term)))| (term, boost)).collect();
                terms.sort_by(|a, b| a.0.cmp(&b.0));
                terms
            }
        }
    }
}
