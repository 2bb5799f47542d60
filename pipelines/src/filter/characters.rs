//! Sets of characters, as they are written between the brackets of regular expressions.

/// A set of characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Characters {
    ranges: Vec<(char, char)>,
    negated: bool,
}

impl Characters {
    /// Reads a set: characters, ranges `a-z`, escapes such as `\t`, `\s` and `\]`; `^` at the beginning
    /// negates it.
    pub(super) fn parse(text: &str) -> Self {
        let mut set = Self::default();
        let mut rest = text;
        if let Some(behind) = rest.strip_prefix('^').filter(|behind| !behind.is_empty()) {
            set.negated = true;
            rest = behind;
        }
        let mut letters = rest.chars().peekable();
        while let Some(letter) = letters.next() {
            let first = match letter {
                '\\' => match letters.next() {
                    None => '\\',
                    Some('t') => '\t',
                    Some('n') => '\n',
                    Some('r') => '\r',
                    Some('f') => '\u{c}',
                    Some('v') => '\u{b}',
                    Some('e') => '\u{1b}',
                    Some('0') => '\0',
                    Some('s') => {
                        set.ranges.extend([(' ', ' '), ('\t', '\r')]);
                        continue;
                    }
                    Some('d') => {
                        set.ranges.push(('0', '9'));
                        continue;
                    }
                    Some('w') => {
                        set.ranges.extend([('a', 'z'), ('A', 'Z'), ('0', '9'), ('_', '_')]);
                        continue;
                    }
                    Some('h') => {
                        set.ranges.extend([('a', 'f'), ('A', 'F'), ('0', '9')]);
                        continue;
                    }
                    Some(other) => other,
                },
                other => other,
            };
            let mut ahead = letters.clone();
            let last = match (ahead.next(), ahead.next()) {
                (Some('-'), Some(last)) if last != '\\' && first <= last => {
                    letters = ahead;
                    last
                }
                _ => first,
            };
            set.ranges.push((first, last));
        }
        set
    }

    pub(super) fn contains(&self, letter: char) -> bool {
        self.ranges.iter().any(|(first, last)| (*first..=*last).contains(&letter)) != self.negated
    }
}

#[cfg(test)]
mod tests {
    use super::Characters;

    #[test]
    fn sets_have_what_is_written() {
        for (set, inside, outside) in [
            ("&?", "&?", "a"),
            (r"<>\[\],", "<>[],", "\\a"),
            ("a-c-", "abc-", "d"),
            (r"\s", " \t\n", "s\\"),
            ("^a", "b^", "a"),
            ("^", "^", "a"),
            ("-a", "-a", "b"),
            (r"\\", "\\", "a"),
        ] {
            let set = Characters::parse(set);
            assert!(inside.chars().all(|letter| set.contains(letter)), "{set:?}");
            assert!(!outside.chars().any(|letter| set.contains(letter)), "{set:?}");
        }
    }
}
