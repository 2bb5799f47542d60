use serde::Deserialize;

use super::*;

/// Constructs of Java's patterns, with the answers of OpenJDK 17 in UTF-16 code units: each match with its groups, -1
/// where a group matched nothing, and whether the pattern matches the whole text.
const CASES: &str = include_str!("java.jsonl");

#[derive(Debug, Deserialize)]
struct Case {
    pattern: String,
    #[serde(default)]
    flags: String,
    #[serde(default)]
    text: String,
    /// `None` where Java refuses the pattern.
    matches: Option<Vec<Vec<(i64, i64)>>>,
    #[serde(default)]
    entire: bool,
}

#[test]
fn what_repeats_nothing_costs_nothing() {
    for pattern in ["(?:(?:){4294967295}){4294967295}", "(?:(?:ab){0}){4000000000}c", "(?:){9,}x"] {
        assert!(JavaPattern::new(pattern, "").is_ok(), "{pattern}");
    }
    // Classes that are long in the `regex` crate are matched by backtracking.
    let many = "\\pL".repeat(3_000);
    let pattern = JavaPattern::new(&many, "").unwrap();
    assert!(pattern.captures_all(&"a".repeat(3_000)).find_next().is_some());
}

fn units(text: &str, range: Option<Range<usize>>) -> (i64, i64) {
    let at = |end: usize| text[..end].encode_utf16().count() as i64;
    range.map_or((-1, -1), |range| (at(range.start), at(range.end)))
}

fn all(pattern: &JavaPattern, mut matches: Matches<'_, '_>, text: &str) -> Vec<Vec<(i64, i64)>> {
    let mut found = Vec::new();
    while matches.find_next().is_some() {
        found.push((0..=pattern.groups()).map(|group| units(text, matches.group(group))).collect());
    }
    found
}

/// Lists the cases that either way of matching answers otherwise than Java.
fn differences(lines: &str) -> Vec<String> {
    let mut differences = Vec::new();
    for line in lines.lines() {
        let case: Case = serde_json::from_str(line).unwrap();
        let compiled = JavaPattern::new(&case.pattern, &case.flags);
        let (pattern, expected) = match (compiled, case.matches) {
            (Ok(pattern), Some(expected)) => (pattern, expected),
            (Err(_), None) => continue,
            (Ok(_), None) => {
                differences.push(format!("{line}: not refused"));
                continue;
            }
            (Err(error), Some(_)) => {
                differences.push(format!("{line}: {error}"));
                continue;
            }
        };
        let text = case.text.as_str();
        let found = all(&pattern, pattern.captures_all(text), text);
        if found != expected {
            differences.push(format!("{line}: {found:?}"));
        }
        let engine = Engine::Backtracking(&pattern.program, Matcher::new(&pattern.program, text));
        let found = all(&pattern, Matches { text, engine, from: Some(0) }, text);
        if found != expected {
            differences.push(format!("{line}: by backtracking {found:?}"));
        }
        if case.flags.is_empty() && JavaPattern::entire(&case.pattern).unwrap().matches(text) != case.entire {
            differences.push(format!("{line}: the whole text"));
        }
    }
    differences
}

#[test]
fn constructs_match_as_in_java() {
    let differences = differences(CASES);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(CASES.lines().count() > 100);
}

#[test]
fn steps_are_bounded_by_the_length_of_the_text() {
    // Exponential in Java.
    let text = "a".repeat(40);
    for pattern in ["(?=(a+)+b)x", "(a|aa)+\\1c", "(?<=(a*)*b)c", "(?:(?>a|aa)*)*+b"] {
        let pattern = JavaPattern::new(pattern, "").unwrap();
        assert!(pattern.find_all(&text).find_next().is_none());
    }
    // Linear without look-around, whatever the pattern.
    let pattern = JavaPattern::new("(a+)+$", "").unwrap();
    assert!(pattern.find_all(&format!("{text}b")).find_next().is_none());
    assert_eq!(pattern.find_all(&text).find_next(), Some(0..40));
}

#[test]
fn patterns_are_bounded() {
    for pattern in [
        "a".repeat(MAX_PATTERN_BYTES + 1),
        "(".repeat(101) + &")".repeat(101),
        "(a{1000}){1000}".to_owned(),
        "(?:(?:a{1,100}b){1,100}c){1,100}".to_owned(),
        "()".repeat(1_001),
    ] {
        assert!(JavaPattern::new(&pattern, "").is_err(), "{}", &pattern[..15]);
    }
}
