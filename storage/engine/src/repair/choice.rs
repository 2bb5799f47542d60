//! Choice of a shard's valid segments, decided from their descriptions alone.
//!
//! Of segments that cover the same operations the one of the greater generation holds: it replaced the others, or a commit that came
//! to nothing was made again. So the newest is taken first, and whatever overlaps one that was taken is not. What is taken
//! is disjoint; no row is there twice.

use millrace_catalog::description::{CoveredRanges, SegmentCoverage};
use uuid::Uuid;

/// A described segment, or operations of which no row is left.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) id: Uuid,
    pub(super) account: SegmentCoverage,
    /// `true` if all files that it names are there, in their length.
    pub(super) whole: bool,
    /// Generation of its newest deletes file, 0 for none.
    pub(super) deletes: u64,
    /// Deletes files of other segments that its commit consists of.
    pub(super) needs: Vec<(Uuid, u64)>,
}

/// Verdict on a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is taken.
    Taken,
    /// One that is newer stands for it.
    Replaced,
    /// Deletions that were to be committed with it are gone: its commit was taken back.
    Undone,
    /// It would be taken, were it whole. What it replaces is not taken in its place: deletions that it knows of would
    /// be lost.
    Damaged,
    /// One that is damaged stands for it.
    OfDamaged,
}

/// Judges each candidate of a shard.
pub(super) fn choose(candidates: &[Candidate]) -> Vec<Verdict> {
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    let breadth =
        |covers: &CoveredRanges| covers.ranges().iter().map(|(from, below)| below - from).sum::<u64>();
    order.sort_by_key(|at| {
        let account = &candidates[*at].account;
        // Between two of one generation nothing was committed: the later one covers more.
        std::cmp::Reverse((account.generation, breadth(&account.covers)))
    });
    let undone = |candidate: &Candidate| {
        candidate.needs.iter().any(|(id, generation)| {
            candidates.iter().any(|other| other.id == *id && other.deletes < *generation)
        })
    };
    let mut verdicts = vec![Verdict::Replaced; candidates.len()];
    let (mut taken, mut damaged) = (CoveredRanges::default(), CoveredRanges::default());
    for at in order {
        let candidate = &candidates[at];
        let covers = &candidate.account.covers;
        verdicts[at] = if covers.overlaps(&taken) {
            Verdict::Replaced
        } else if covers.overlaps(&damaged) {
            Verdict::OfDamaged
        } else if undone(candidate) {
            Verdict::Undone
        } else if candidate.whole {
            taken = CoveredRanges::union([&taken, covers]);
            Verdict::Taken
        } else {
            damaged = CoveredRanges::union([&damaged, covers]);
            Verdict::Damaged
        };
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidate(id: u128, covers: &[(u64, u64)], generation: u64) -> Candidate {
        let account = SegmentCoverage { covers: covers.to_vec().into(), next_frame: 0, generation };
        Candidate { id: Uuid::from_u128(id), account, whole: true, deletes: 0, needs: Vec::new() }
    }

    #[test]
    fn a_replacement_stands_for_what_it_replaced() {
        let flushed = [candidate(1, &[(0, 5)], 1), candidate(2, &[(5, 9)], 2), candidate(4, &[(9, 12)], 4)];
        let [one, two, four] = flushed;
        let mut all = vec![one, two, candidate(3, &[(0, 9)], 3), four];
        use Verdict::{Damaged, OfDamaged, Replaced, Taken, Undone};
        assert_eq!(choose(&all), [Replaced, Replaced, Taken, Taken]);
        all[2].whole = false;
        assert_eq!(choose(&all), [OfDamaged, OfDamaged, Damaged, Taken]);
        // A commit that was taken back stands for nothing.
        (all[2].whole, all[2].needs) = (true, vec![(Uuid::from_u128(4), 2)]);
        assert_eq!(choose(&all), [Taken, Taken, Undone, Taken]);
        all[3].deletes = 2;
        assert_eq!(choose(&all), [Replaced, Replaced, Taken, Taken]);
    }

    #[test]
    fn a_flush_that_was_made_again_holds() {
        let all = [candidate(1, &[(0, 9)], 1), candidate(2, &[(0, 4)], 2), candidate(3, &[(4, 12)], 3)];
        assert_eq!(choose(&all), [Verdict::Replaced, Verdict::Taken, Verdict::Taken]);
        // Of the same generation the later one.
        let all = [candidate(1, &[(2, 3)], 1), candidate(2, &[(0, 4)], 1)];
        assert_eq!(choose(&all), [Verdict::Replaced, Verdict::Taken]);
    }

    proptest! {
        /// Flushes and compactions, with what they replaced still there or not.
        #[test]
        fn what_was_committed_is_what_is_taken(
            steps in proptest::collection::vec((0..4u8, 0..8usize, any::<bool>()), 1..30)
        ) {
            let (mut all, mut live): (Vec<Candidate>, Vec<Candidate>) = (Vec::new(), Vec::new());
            let mut below = 0;
            for (generation, (kind, at, kept)) in (1..).zip(steps) {
                let id = u128::from(generation);
                if kind > 0 || live.len() < 2 {
                    below += u64::from(kind) + 1;
                    let covers = CoveredRanges::union(live.iter().map(|one| &one.account.covers)).missing(below);
                    let made = candidate(id, covers.ranges(), generation);
                    // What was uncommitted is made again.
                    if kept {
                        all.push(candidate(id + 1_000, &[(below - 1, below)], generation - 1));
                    }
                    all.push(made.clone());
                    live.push(made);
                } else {
                    let at = at % (live.len() - 1);
                    let pair: Vec<Candidate> = live.drain(at..at + 2).collect();
                    let covers = CoveredRanges::union(pair.iter().map(|one| &one.account.covers));
                    let made = candidate(id, covers.ranges(), generation);
                    if !kept {
                        all.retain(|one| pair.iter().all(|gone| gone.id != one.id));
                    }
                    all.push(made.clone());
                    live.insert(at, made);
                }
            }
            let verdicts = choose(&all);
            for (one, verdict) in all.iter().zip(verdicts) {
                let is_live = live.iter().any(|other| other.id == one.id);
                prop_assert_eq!(verdict == Verdict::Taken, is_live, "{:?}", one);
            }
        }
    }
}
