//! Detects word segments that are emoji: Lucene's `standard` tokenizer keeps them as tokens.

use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory};

/// Returns whether a UAX #29 segment (an emoji sequence is never split by it) is an emoji.
pub(super) fn is_emoji(segment: &str) -> bool {
    // Joiners in front of an emoji belong to it.
    let mut characters = segment.chars().skip_while(|&c| c == JOINER);
    let Some(first) = characters.next() else { return false };
    let second = characters.find(|c| !matches!(c, '\u{200c}' | '\u{200d}' | '\u{ad}'));
    match first {
        // Flags are pairs of regional indicators; one alone is no emoji.
        '\u{1f1e6}'..='\u{1f1ff}' => second.is_some_and(|c| ('\u{1f1e6}'..='\u{1f1ff}').contains(&c)),
        '#' | '*' | '0'..='9' => is_keycap(segment),
        // A skin tone may stand alone.
        '\u{1f3fb}'..='\u{1f3ff}' => true,
        _ => is_pictographic(first),
    }
}

/// Returns true if a segment is a key with its cap: right before it an emoji presentation selector may stand,
/// elsewhere only other marks.
fn is_keycap(segment: &str) -> bool {
    const CAP: char = '\u{20e3}';
    const SELECTOR: char = '\u{fe0f}';
    let Some((key, marks)) = segment.split_once(CAP) else { return false };
    let key = key.strip_suffix(SELECTOR).unwrap_or(key);
    let is_mark = |c: char| {
        c != SELECTOR
            && (c.general_category_group() == GeneralCategoryGroup::Mark
                || c.general_category() == GeneralCategory::Format)
    };
    key.chars().skip(1).chain(marks.chars()).all(is_mark)
}

const JOINER: char = '\u{200d}';

/// Returns whether a segment begins with a flag: an emoji that a joiner ties to it is another token.
pub(super) fn is_flag(segment: &str) -> bool {
    segment.starts_with(|c: char| ('\u{1f1e6}'..='\u{1f1ff}').contains(&c))
}

/// Returns the begin of an emoji behind something else in a segment, as joiners tie it there: the joiners in front of it, and the
/// emoji itself. Lucene takes the two for two tokens.
pub(super) fn emoji_behind(segment: &str) -> Option<(usize, usize)> {
    let mut joiners = None;
    for (at, c) in segment.char_indices() {
        match (c, joiners) {
            (JOINER, None) => joiners = Some(at),
            (JOINER, Some(_)) => {}
            (c, Some(start)) if is_pictographic(c) => return Some((start, at)),
            _ => joiners = None,
        }
    }
    None
}

/// `\p{Extended_Pictographic}` of Unicode 12.1.
fn is_pictographic(c: char) -> bool {
    if c < '\u{1f000}' {
        return matches!(c, '\u{a9}' | '\u{ae}' | '\u{203c}' | '\u{2049}' | '\u{2122}' | '\u{2139}'
            | '\u{2194}'..='\u{2199}' | '\u{21a9}'..='\u{21aa}' | '\u{231a}'..='\u{231b}' | '\u{2328}'
            | '\u{2388}' | '\u{23cf}' | '\u{23e9}'..='\u{23f3}' | '\u{23f8}'..='\u{23fa}' | '\u{24c2}'
            | '\u{25aa}'..='\u{25ab}' | '\u{25b6}' | '\u{25c0}' | '\u{25fb}'..='\u{25fe}'
            | '\u{2600}'..='\u{2605}' | '\u{2607}'..='\u{2612}' | '\u{2614}'..='\u{2685}'
            | '\u{2690}'..='\u{2705}' | '\u{2708}'..='\u{2712}' | '\u{2714}' | '\u{2716}' | '\u{271d}'
            | '\u{2721}' | '\u{2728}' | '\u{2733}'..='\u{2734}' | '\u{2744}' | '\u{2747}' | '\u{274c}'
            | '\u{274e}' | '\u{2753}'..='\u{2755}' | '\u{2757}' | '\u{2763}'..='\u{2767}'
            | '\u{2795}'..='\u{2797}' | '\u{27a1}' | '\u{27b0}' | '\u{27bf}' | '\u{2934}'..='\u{2935}'
            | '\u{2b05}'..='\u{2b07}' | '\u{2b1b}'..='\u{2b1c}' | '\u{2b50}' | '\u{2b55}' | '\u{3030}'
            | '\u{303d}' | '\u{3297}' | '\u{3299}');
    }
    matches!(c, '\u{1f000}'..='\u{1f0ff}' | '\u{1f10d}'..='\u{1f10f}' | '\u{1f12f}'
        | '\u{1f16c}'..='\u{1f171}' | '\u{1f17e}'..='\u{1f17f}' | '\u{1f18e}' | '\u{1f191}'..='\u{1f19a}'
        | '\u{1f1ad}'..='\u{1f1e5}' | '\u{1f201}'..='\u{1f20f}' | '\u{1f21a}' | '\u{1f22f}'
        | '\u{1f232}'..='\u{1f23a}' | '\u{1f23c}'..='\u{1f23f}' | '\u{1f249}'..='\u{1f3fa}'
        | '\u{1f400}'..='\u{1f53d}' | '\u{1f546}'..='\u{1f64f}' | '\u{1f680}'..='\u{1f6ff}'
        | '\u{1f774}'..='\u{1f77f}' | '\u{1f7d5}'..='\u{1f7ff}' | '\u{1f80c}'..='\u{1f80f}'
        | '\u{1f848}'..='\u{1f84f}' | '\u{1f85a}'..='\u{1f85f}' | '\u{1f888}'..='\u{1f88f}'
        | '\u{1f8ae}'..='\u{1f8ff}' | '\u{1f90c}'..='\u{1f93a}' | '\u{1f93c}'..='\u{1f945}'
        | '\u{1f947}'..='\u{1fffd}')
}
