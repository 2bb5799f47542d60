//! Patterns of index names, and which of a great many match one name.

use millrace_runtime::{Error, Result};
use xxhash_rust::xxh3::xxh3_64;

/// Longest pattern in bytes.
const MAX_BYTES: usize = 1024;
/// Bytes that a compiled regular expression may take.
const MAX_EXPRESSION_BYTES: usize = 256 << 10;

/// A pattern of index names: `*` stands for any run of characters, `?` for one; between slashes, a regular expression.
#[derive(Clone, Debug)]
pub struct NamePattern {
    text: Box<str>,
    expression: Option<Box<regex::Regex>>,
}

impl NamePattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// `IllegalArgument`: too long, empty, or no regular expression.
    pub fn parse(text: &str) -> Result<Self> {
        if text.is_empty() || text.len() > MAX_BYTES {
            return Err(Error::IllegalArgument(format!(
                "a pattern of index names has 1 to {MAX_BYTES} bytes, got {}",
                text.len()
            )));
        }
        let inner = text.strip_prefix('/').and_then(|text| text.strip_suffix('/'));
        let expression = inner
            .map(|inner| {
                regex::RegexBuilder::new(&format!("^(?:{inner})$"))
                    .size_limit(MAX_EXPRESSION_BYTES)
                    .build()
                    .map(Box::new)
                    .map_err(|error| {
                        Error::IllegalArgument(format!("pattern of index names [{text}]: {error}"))
                    })
            })
            .transpose()?;
        Ok(Self { text: text.into(), expression })
    }

    /// Returns the pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether a name is one of those that it stands for.
    pub fn matches(&self, name: &str) -> bool {
        match &self.expression {
            Some(expression) => expression.is_match(name),
            None => glob(self.text.as_bytes(), name.as_bytes()),
        }
    }
}

/// Returns whether a pattern with `*` and `?` matches all of a name.
fn glob(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, n));
                p += 1;
            }
            // A character is one however many bytes it has.
            Some(b'?') => {
                n += 1;
                while name.get(n).is_some_and(|byte| byte & 0xC0 == 0x80) {
                    n += 1;
                }
                p += 1;
            }
            Some(byte) if *byte == name[n] => {
                p += 1;
                n += 1;
            }
            _ => {
                let Some((after_star, from)) = retry else { return false };
                p = after_star;
                n = from + 1;
                retry = Some((after_star, n));
            }
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// Many patterns, found by what a name begins with. They stay where they are.
#[derive(Debug, Default)]
pub(super) struct Patterns {
    /// By a hash of the text before the first wildcard: patterns, in order of the hashes. There may be millions.
    by_prefix: Vec<(u64, PatternPosition)>,
    /// Lengths in bytes of these texts, in order, each once.
    lengths: Vec<usize>,
    /// Regular expressions.
    expressions: Vec<PatternPosition>,
}

/// A pattern: that of a grant, by its place, and which of the grant's it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PatternPosition {
    grant: u32,
    name: u32,
}

impl Patterns {
    /// Takes the patterns of each grant, in their order.
    pub(super) fn new<'a>(grants: impl Iterator<Item = &'a [NamePattern]>) -> Self {
        let mut patterns = Self::default();
        for (grant, names) in (0..).zip(grants) {
            for (name, pattern) in (0..).zip(names) {
                let place = PatternPosition { grant, name };
                if pattern.expression.is_some() {
                    patterns.expressions.push(place);
                    continue;
                }
                let prefix = pattern.text.split(['*', '?']).next().unwrap_or_default();
                patterns.lengths.push(prefix.len());
                patterns.by_prefix.push((xxh3_64(prefix.as_bytes()), place));
            }
        }
        patterns.by_prefix.sort_unstable();
        patterns.lengths.sort_unstable();
        patterns.lengths.dedup();
        patterns
    }

    /// Lists the places of the grants of which a pattern matches a name, in order, each once. `pattern` gives one by the
    /// places of its grant and in it.
    pub(super) fn matching<'a>(
        &self,
        name: &str,
        pattern: impl Fn(usize, usize) -> &'a NamePattern,
    ) -> Vec<usize> {
        let beginnings = self.lengths.iter().filter_map(|length| name.as_bytes().get(..*length));
        let found = beginnings.flat_map(|beginning| {
            let hash = xxh3_64(beginning);
            let first = self.by_prefix.partition_point(|(other, _)| *other < hash);
            self.by_prefix[first..]
                .iter()
                .take_while(move |(other, _)| *other == hash)
                .map(|(_, place)| place)
        });
        let matches =
            |place: &&PatternPosition| pattern(place.grant as usize, place.name as usize).matches(name);
        let found = found.chain(&self.expressions).filter(matches);
        let mut places: Vec<usize> = found.map(|place| place.grant as usize).collect();
        places.sort_unstable();
        places.dedup();
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> NamePattern {
        NamePattern::parse(text).unwrap()
    }

    #[test]
    fn patterns_match_whole_names() {
        for (text, name, expected) in [
            ("logs-*", "logs-", true),
            ("logs-*", "logs-2026", true),
            ("logs-*", "xlogs-1", false),
            ("a?c", "abc", true),
            ("a?c", "aüc", true),
            ("a?c", "ac", false),
            ("?", "", false),
            ("*x*y", "axby", true),
            ("*x*y", "axbyz", false),
            ("/logs-[0-9]+/", "logs-12", true),
            ("/logs-[0-9]+/", "logs-12a", false),
            ("/a|b/", "ab", false),
            ("exact", "exact", true),
            ("exact", "exactly", false),
            ("a*?", "a", false),
            ("*?b", "ab", true),
        ] {
            assert_eq!(pattern(text).matches(name), expected, "{text} {name}");
        }
        assert!(NamePattern::parse("").is_err());
        assert!(NamePattern::parse("/[/").is_err());
        assert!(NamePattern::parse(&"a".repeat(1025)).is_err());
    }

    #[test]
    fn many_patterns_find_what_each_alone_does() {
        let texts = ["logs-*", "logs-2026*", "*", "*-2026", "a?c", "/l.*6/", "logs-2026", "x", "ü*"];
        let grants: Vec<Vec<NamePattern>> = texts.iter().map(|text| vec![pattern(text)]).collect();
        let patterns = Patterns::new(grants.iter().map(Vec::as_slice));
        for name in ["logs-2026", "logs-", "abc", "x", "üx", "", "logs-20267"] {
            let expected: Vec<usize> = (0..texts.len()).filter(|at| grants[*at][0].matches(name)).collect();
            assert_eq!(patterns.matching(name, |grant, name| &grants[grant][name]), expected, "{name}");
        }
    }
}
