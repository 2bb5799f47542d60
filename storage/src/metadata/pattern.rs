//! Simple patterns: text in which `*` stands for any run of characters.
//!
//! Index expressions, template patterns, alias names and `action.auto_create_index` all use them.

/// Whether the text has a wildcard.
pub fn is_wildcard(text: &str) -> bool {
    text.contains('*')
}

/// Whether a pattern matches all of a text. Runs in time proportional to the product of both
/// lengths at worst, without recursion.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            retry = Some((p + 1, t));
            p += 1;
        } else if pattern.get(p) == Some(&text[t]) {
            p += 1;
            t += 1;
        } else if let Some((after_star, from)) = retry {
            p = after_star;
            t = from + 1;
            retry = Some((after_star, t));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

/// Whether some text is matched by both patterns.
pub(crate) fn overlap(left: &str, right: &str) -> bool {
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
            ("*b*", "abc", true),
            ("a", "ab", false),
            ("ab", "a", false),
            ("*aab", "aaaaab", true),
            ("", "", true),
            ("", "a", false),
            ("logs-*-2", "logs-a-2-2", true),
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
