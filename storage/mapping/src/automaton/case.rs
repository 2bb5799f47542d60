//! Letters in either case: ASCII only, as Lucene has it.

/// Returns the spellings of a character as ranges.
pub(super) fn ranges(character: char, folded: bool) -> Vec<(u32, u32)> {
    let own = u32::from(character);
    if folded && character.is_ascii_alphabetic() {
        let other = u32::from(match character.is_ascii_lowercase() {
            true => character.to_ascii_uppercase(),
            false => character.to_ascii_lowercase(),
        });
        return vec![(own.min(other), own.min(other)), (own.max(other), own.max(other))];
    }
    vec![(own, own)]
}
