//! Names that are near a misspelt one.

/// Most characters of a word that is compared.
const MAX_CHARACTERS: usize = 64;

/// Finds the candidate with the fewest edits from a word; `None` where all are too far.
pub(crate) fn nearest<'c>(word: &str, candidates: impl Iterator<Item = &'c str>) -> Option<&'c str> {
    let word: Vec<char> = word.to_lowercase().chars().take(MAX_CHARACTERS + 1).collect();
    if word.len() < 2 || word.len() > MAX_CHARACTERS {
        return None;
    }
    let most = (word.len() / 3).clamp(1, 3);
    candidates
        .map(|candidate| (edits(&word, candidate), candidate))
        .filter(|(edits, _)| (1..=most).contains(edits))
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Counts insertions, deletions, replacements and swaps of neighbours (optimal string alignment).
fn edits(word: &[char], candidate: &str) -> usize {
    let candidate: Vec<char> = candidate.to_lowercase().chars().collect();
    let width = candidate.len() + 1;
    let mut rows: Vec<Vec<usize>> = vec![(0..width).collect()];
    for (i, letter) in word.iter().enumerate() {
        let mut row = vec![i + 1; width];
        for (j, other) in candidate.iter().enumerate() {
            let above = &rows[i];
            let mut least = (above[j] + usize::from(letter != other)).min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && word[i - 1] == *other && *letter == candidate[j - 1] {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row[j + 1] = least;
        }
        rows.push(row);
    }
    rows[word.len()][candidate.len()]
}
