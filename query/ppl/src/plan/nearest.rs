//! The nearest name to one that is not known.

/// Most names that are compared.
const MAX_NAMES: usize = 5_000;
/// Longest name that is compared, in letters.
const MAX_LETTERS: usize = 64;

/// Finds the known name that differs least; `None` where all differ in more than a third of their letters.
pub(super) fn nearest(name: &str, known: &[String]) -> Option<String> {
    let name: Vec<char> = name.to_lowercase().chars().collect();
    if name.len() > MAX_LETTERS {
        return None;
    }
    let most = (name.len() / 3).max(1);
    let distances = known.iter().take(MAX_NAMES).filter(|own| !own.starts_with('\u{1}')).filter_map(|own| {
        let letters: Vec<char> = own.to_lowercase().chars().collect();
        let fits = letters.len() <= MAX_LETTERS && letters.len().abs_diff(name.len()) <= most;
        fits.then(|| (distance(&name, &letters), own))
    });
    let (distance, own) = distances.min()?;
    (distance <= most).then(|| own.clone())
}

/// Counts the letters to insert, delete and replace.
fn distance(one: &[char], other: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.iter().enumerate() {
        let mut diagonal = at;
        let mut left = at + 1;
        if let Some(first) = row.first_mut() {
            *first = left;
        }
        for (place, own) in other.iter().enumerate() {
            let Some(cell) = row.get_mut(place + 1) else { break };
            let next = (*cell + 1).min(left + 1).min(diagonal + usize::from(letter != own));
            (diagonal, left) = (*cell, next);
            *cell = next;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_suggested() {
        let known = ["age", "balance", "firstname"].map(str::to_owned);
        assert_eq!(nearest("ballance", &known), Some("balance".to_owned()));
        assert_eq!(nearest("Age", &known), Some("age".to_owned()));
        assert_eq!(nearest("xyz", &known), None);
    }
}
