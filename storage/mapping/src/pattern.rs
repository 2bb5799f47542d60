//! Simple patterns: text in which `*` stands for any run of characters.
//!
//! Index expressions, template patterns, names of fields and of files, alias names and `action.auto_create_index` all use them.

/// Returns whether the text has a wildcard.
pub fn is_wildcard(text: &str) -> bool {
    text.contains('*')
}

/// Returns whether a pattern matches all of a text. Runs in time proportional to the sum of both lengths.
pub fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let (pieces, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let middle = text.strip_prefix(start).and_then(|text| text.strip_suffix(end));
    let Some(mut middle) = middle else { return false };
    // What is between two stars may as well be where it comes first.
    pieces.split('*').all(|piece| match middle.split_once(piece) {
        Some((_, behind)) => {
            middle = behind;
            true
        }
        None => false,
    })
}

/// Returns whether some text is matched by both patterns.
pub fn overlap(left: &str, right: &str) -> bool {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    let width = right.len() + 1;
    // reachable[i][j]: left[i..] and right[j..] have a text in common.
    let mut next = vec![false; width];
    for i in (0..=left.len()).rev() {
        let mut row = vec![false; width];
        for j in (0..=right.len()).rev() {
            row[j] = match (left.get(i), right.get(j)) {
                (None, None) => true,
                (Some(b'*'), None) => next[j],
                (Some(b'*'), Some(_)) => next[j] || row[j + 1],
                (None, Some(b'*')) => row[j + 1],
                (Some(_), Some(b'*')) => row[j + 1] || next[j],
                (Some(a), Some(b)) => a == b && next[j + 1],
                _ => false,
            };
        }
        next = row;
    }
    next[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_stands_for_any_run() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("*", "a", true),
            ("a*c", "abbc", true),
            ("a*c", "ac", true),
            ("a*c", "acb", false),
            ("a*b*c", "axbxc", true),
            ("a*b*c", "axc", false),
            ("*b*", "abc", true),
            ("a", "ab", false),
            ("ab", "a", false),
            ("*aab", "aaaaab", true),
            ("", "", true),
            ("", "a", false),
            ("logs-*-2", "logs-a-2-2", true),
            ("a*a", "a", false),
            ("ab*b", "ab", false),
            ("ab*bc", "abc", false),
            ("a**b", "ab", true),
            ("*a*ab*", "aab", true),
            ("*b*a*", "ab", false),
            ("*é*", "café", true),
            ("*a*a*a*b*", "aaaaaaaa", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} against {text}");
        }
    }

    #[test]
    fn patterns_overlap_when_a_text_fits_both() {
        for (left, right, expected) in [
            ("a*", "*b", true),
            ("a*", "b*", false),
            ("test-*", "test-1", true),
            ("test-*", "t*", true),
            ("foo", "foo", true),
            ("foo", "fo", false),
            ("*", "", true),
            ("a*b*c", "axbyc", true),
            ("a*b", "a*c", false),
            ("*x*", "*y*", true),
        ] {
            assert_eq!(overlap(left, right), expected, "{left} and {right}");
            assert_eq!(overlap(right, left), expected, "{right} and {left}");
        }
    }
}
