//! Terms that are one in several fields: how frequent each is taken for.

use std::cmp::Reverse;

use millrace_scoring::bm25::Statistics;

/// Lets terms be as frequent as the most frequent of them, and a little more where they are rarer, as
/// Lucene's `BlendedTermQuery` does, so that a match in one field weighs as much as in another. `rows`
/// is the number of documents of the shard.
pub(super) fn blend(sums: &mut [Statistics], rows: u64) {
    let found = || sums.iter().filter(|sum| sum.doc_freq > 0);
    let Some(most) = found().map(|sum| sum.doc_freq).max() else { return };
    let rows = found().map(|sum| sum.tokens).fold(rows, u64::min);
    let mut order: Vec<usize> = (0..sums.len()).collect();
    order.sort_by_key(|at| Reverse(sums[*at].doc_freq));
    let (mut doc_freq, mut before) = (most.min(rows), most);
    for at in order {
        let sum = &mut sums[at];
        if sum.doc_freq == 0 {
            break;
        }
        doc_freq += u64::from(before > sum.doc_freq);
        before = std::mem::replace(&mut sum.doc_freq, doc_freq.min(sum.docs).min(rows));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_counts_for_all() {
        let sum = |docs, doc_freq| Statistics { docs, doc_freq, tokens: 1_000 };
        let mut sums = [sum(50, 2), sum(100, 20), sum(4, 1), sum(9, 0)];
        blend(&mut sums, 100);
        // The most frequent keeps its number, each rarer one has one more than the one before, none more
        // than its field has documents; what does not occur stays so.
        assert_eq!(sums.map(|sum| sum.doc_freq), [21, 20, 4, 0]);
    }
}
