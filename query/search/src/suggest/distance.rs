//! Similarity of two terms, as Lucene's string distances measure it: 1 for the same, 0 for nothing in common. Lengths are counted
//! in characters.

use millrace_dsl::suggest::Distance;

/// Weight of a common start in Jaro's and Winkler's measure.
const START_WEIGHT: f32 = 0.1;
/// Similarity from which a common start counts in it.
const START_THRESHOLD: f32 = 0.7;

/// Measures the similarity of two terms; `internal` is what the search for candidates has measured.
pub(super) fn similarity(distance: Distance, internal: f32, asked: &str, found: &str) -> f32 {
    let (a, b): (Vec<char>, Vec<char>) = (asked.chars().collect(), found.chars().collect());
    match distance {
        Distance::Internal => internal,
        Distance::Levenshtein => of_edits(&a, &b, false, a.len().max(b.len())),
        Distance::DamerauLevenshtein => of_edits(&a, &b, true, a.len().min(b.len())),
        Distance::JaroWinkler => jaro_winkler(&a, &b),
        Distance::Ngram => ngrams(&a, &b),
    }
}

fn of_edits(a: &[char], b: &[char], transpositions: bool, length: usize) -> f32 {
    if length == 0 {
        return if a.len() == b.len() { 1.0 } else { 0.0 };
    }
    1.0 - edits(a, b, transpositions) as f32 / length as f32
}

fn edits(a: &[char], b: &[char], transpositions: bool) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (row, x) in a.iter().enumerate() {
        let mut next = vec![row + 1];
        for (column, y) in b.iter().enumerate() {
            let mut cell =
                (last[column] + usize::from(x != y)).min(last[column + 1] + 1).min(next[column] + 1);
            if transpositions
                && row > 0
                && column > 0
                && Some(x) == b.get(column - 1)
                && a.get(row - 1) == Some(y)
            {
                cell = cell.min(before[column - 1] + 1);
            }
            next.push(cell);
        }
        before = std::mem::replace(&mut last, next);
    }
    last.last().copied().unwrap_or(0)
}

fn jaro_winkler(a: &[char], b: &[char]) -> f32 {
    let (shorter, longer) = if a.len() > b.len() { (b, a) } else { (a, b) };
    let range = (longer.len() / 2).saturating_sub(1);
    let mut taken = vec![false; longer.len()];
    let mut matched = Vec::new();
    for (at, character) in shorter.iter().enumerate() {
        let window = at.saturating_sub(range)..(at + range + 1).min(longer.len());
        if let Some(place) = window.into_iter().find(|place| !taken[*place] && longer[*place] == *character) {
            taken[place] = true;
            matched.push(*character);
        }
    }
    let count = matched.len() as f32;
    if matched.is_empty() {
        return 0.0;
    }
    let others = longer.iter().zip(&taken).filter(|(_, taken)| **taken).map(|(character, _)| character);
    let moved = matched.iter().zip(others).filter(|(own, other)| *own != *other).count() / 2;
    let start = shorter.iter().zip(longer).take_while(|(own, other)| own == other).count();
    let jaro = (count / a.len() as f32 + count / b.len() as f32 + (count - moved as f32) / count) / 3.0;
    if jaro < START_THRESHOLD {
        return jaro;
    }
    jaro + START_WEIGHT.min(1.0 / longer.len() as f32) * start as f32 * (1.0 - jaro)
}

/// Kondrak's measure over pairs of characters.
fn ngrams(a: &[char], b: &[char]) -> f32 {
    const PAIR: usize = 2;
    if a.is_empty() || b.is_empty() {
        return if a.len() == b.len() { 1.0 } else { 0.0 };
    }
    if a.len() < PAIR || b.len() < PAIR {
        let same = a.iter().zip(b).filter(|(x, y)| x == y).count();
        return same as f32 / a.len().max(b.len()) as f32;
    }
    // Before the first character stands one that no term has.
    let padded: Vec<char> = std::iter::once('\0').chain(a.iter().copied()).collect();
    let mut last: Vec<f32> = (0..=a.len()).map(|at| at as f32).collect();
    for column in 1..=b.len() {
        let pair = match column {
            1 => ['\0', b[0]],
            _ => [b[column - 2], b[column - 1]],
        };
        let mut next = vec![column as f32];
        for row in 1..=a.len() {
            let (mut cost, mut length) = (0usize, PAIR);
            for (own, other) in padded[row - 1..=row].iter().zip(&pair) {
                if own != other {
                    cost += 1;
                } else if *own == '\0' {
                    // What stands before both is no match.
                    length -= 1;
                }
            }
            let share = cost as f32 / length as f32;
            next.push((next[row - 1] + 1.0).min(last[row] + 1.0).min(last[row - 1] + share));
        }
        last = next;
    }
    1.0 - last.last().copied().unwrap_or(0.0) / a.len().max(b.len()) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(distance: Distance, asked: &str, found: &str, expected: f32) {
        let measured = similarity(distance, 0.0, asked, found);
        assert!((measured - expected).abs() < 1e-5, "{distance:?} {asked} {found}: {measured}");
    }

    /// Values of Lucene's own tests.
    #[test]
    fn distances_are_lucenes() {
        check(Distance::Levenshtein, "banana", "bandana", 0.857_143);
        check(Distance::Levenshtein, "abcde", "", 0.0);
        check(Distance::JaroWinkler, "dwayne", "duane", 0.840_000);
        check(Distance::JaroWinkler, "frog", "fog", 0.925);
        check(Distance::JaroWinkler, "fly", "ant", 0.0);
        check(Distance::Ngram, "al", "al", 1.0);
        check(Distance::Ngram, "a", "aa", 0.5);
        check(Distance::Ngram, "martha", "marhta", 0.666_667);
        check(Distance::Ngram, "jones", "johnson", 0.428_571);
        check(Distance::Ngram, "natural", "contrary", 0.25);
        check(Distance::Ngram, "abcvwxyz", "cabvwxyz", 0.625);
        check(Distance::Ngram, "six", "ten", 0.0);
        check(Distance::DamerauLevenshtein, "abcd", "abdc", 0.75);
    }
}
