//! Patterns against slow and simple definitions, on random terms.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tantivy_fst::{IntoStreamer, MapBuilder, Streamer};

use crate::automaton::*;

const LETTERS: &[char] = &['a', 'b', 'A', 'ä', '€', '𝄞', '1', '-'];

fn word(rng: &mut StdRng, most: usize) -> String {
    (0..rng.random_range(0..=most)).map(|_| LETTERS[rng.random_range(0..LETTERS.len())]).collect()
}

fn regexp(text: &str) -> Pattern {
    Pattern::regexp(text, RegexpFlags::ALL, false, 10_000).unwrap()
}

#[track_caller]
fn check(pattern: &Pattern, matching: &[&str], others: &[&str]) {
    for term in matching {
        assert!(pattern.matches(term), "{term:?} does not match");
    }
    for term in others {
        assert!(!pattern.matches(term), "{term:?} matches");
    }
}

#[test]
fn ascii_letters_fold_outside_of_ranges() {
    let folded = |text: &str| Pattern::regexp(text, RegexpFlags::ALL, true, 10_000).unwrap();
    check(&folded("ab[c][d-e]ä"), &["ABCdä", "abCdä"], &["abcDä", "abcdÄ"]);
    check(&Pattern::folded("aÄ").unwrap(), &["AÄ", "aÄ"], &["aä"]);
    check(&Pattern::prefix("aB", true).unwrap(), &["ab", "ABx"], &["a", "bab"]);
}

#[test]
fn wrong_expressions_are_refused_in_lucenes_words() {
    let wrong = |text: &str| {
        Pattern::regexp(text, RegexpFlags::ALL, false, 10_000).map(|_| ()).unwrap_err().to_string()
    };
    let texts = [
        "a\\b", "a\\", "[a-", "[a", "(a", "a)", "a{", "a{2", "a{x}", "a{3,1}", "<1>", "<a-b>", "<1-5",
        "\"abc", "a|", "[]", "[z-a]", "é)", "~",
    ];
    let reasons: Vec<String> = texts.iter().map(|text| format!("{text}: {}", wrong(text))).collect();
    insta::assert_snapshot!(reasons.join("\n"), @r#"
    a\b: invalid character class \98
    a\: unexpected end-of-string
    [a-: unexpected end-of-string
    [a: expected ']' at position 2
    (a: expected ')' at position 2
    a): end-of-string expected at position 1
    a{: integer expected at position 2
    a{2: expected '}' at position 3
    a{x}: integer expected at position 2
    a{3,1}: invalid repetition range(out of order): 3..1
    <1>: '1' not found
    <a-b>: interval syntax error at position 4
    <1-5: expected '>' at position 4
    "abc: expected '"' at position 4
    a|: unexpected end-of-string
    []: expected ']' at position 2
    [z-a]: invalid range: from (122) cannot be > to (97)
    é): end-of-string expected at position 1
    ~: unexpected end-of-string
    "#);
}

#[test]
fn work_is_bounded() {
    let refused =
        |text: &str| Pattern::regexp(text, RegexpFlags::ALL, false, 10_000).unwrap_err().to_string();
    for text in [".*a.{20}", "(a|b)*a(a|b){15}"] {
        assert_eq!(refused(text), format!("Determinizing {text} would require more than 10000 effort."));
    }
    assert_eq!(refused("a{99999}"), "Determinizing a{99999} would require more than 99999 effort.");
    assert!(refused("((a{1,50}){1,50}){1,50}").contains("would require more than"));
    assert!(refused(&"(".repeat(5_000)).contains("nested"));
    check(&regexp("(a|b)*a(a|b){10}"), &["abbbbbbbbbb"], &["bbbbbbbbbbb"]);
    let questions = pieces(&format!("*a{}", "?".repeat(40)));
    assert_eq!(
        Pattern::of_pieces(&questions, false).unwrap_err().to_string(),
        "Determinizing automaton with 83 states and 83 transitions would require more than 10000 effort."
    );
    assert!(Pattern::of_pieces(&pieces(&"*a".repeat(100)), false).is_ok());
}

/// The distance by its definition, over the whole table.
fn distance(a: &str, b: &str, transpositions: bool) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut table = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            table[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let same = usize::from(a[i - 1] != b[j - 1]);
                let mut cell = (table[i - 1][j] + 1).min(table[i][j - 1] + 1).min(table[i - 1][j - 1] + same);
                if transpositions && i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    cell = cell.min(table[i - 2][j - 2] + 1);
                }
                cell
            };
        }
    }
    table[a.len()][b.len()]
}

#[test]
fn near_terms_agree_with_the_distance() {
    let mut rng = StdRng::seed_from_u64(5);
    for _ in 0..20_000 {
        let (asked, term) = (word(&mut rng, 6), word(&mut rng, 6));
        let (edits, prefix) = (rng.random_range(0..3), rng.random_range(0..3));
        let transpositions = rng.random_bool(0.5);
        let pattern = Pattern::near(&asked, edits, prefix, transpositions);
        let start: String = asked.chars().take(prefix).collect();
        let rest = |text: &str| text.chars().skip(start.chars().count()).collect::<String>();
        let expected = term.starts_with(&start)
            && distance(&rest(&asked), &rest(&term), transpositions) <= usize::from(edits);
        assert_eq!(pattern.matches(&term), expected, "{asked:?} {term:?} {edits} {prefix} {transpositions}");
        if expected && asked != term && start.is_empty() {
            let shorter = asked.chars().count().min(term.chars().count()) as f32;
            let boost = 1.0 - distance(&asked, &term, transpositions) as f32 / shorter;
            assert_eq!(pattern.boost("", &term), boost);
        }
    }
}

/// A walk over a dictionary finds what matching every term finds.
#[test]
fn dictionaries_are_walked() {
    let mut rng = StdRng::seed_from_u64(9);
    let mut terms: Vec<String> = (0..500).map(|_| word(&mut rng, 6)).collect();
    terms.sort();
    terms.dedup();
    let mut builder = MapBuilder::memory();
    for (number, term) in terms.iter().enumerate() {
        builder.insert(term, number as u64).unwrap();
    }
    let map = tantivy_fst::Map::from_bytes(builder.into_inner().unwrap()).unwrap();
    for text in ["a.*", ".*€.*", "~(a.*)", "[ab]{2,4}", "ä?(b|1)+", "𝄞.", "a"] {
        let pattern = regexp(text);
        let mut found = Vec::new();
        if pattern.start().is_empty() {
            let mut stream = map.search(&pattern).into_stream();
            while let Some((term, _)) = stream.next() {
                found.push(String::from_utf8(term.to_vec()).unwrap());
            }
            let expected: Vec<String> = terms.iter().filter(|term| pattern.matches(term)).cloned().collect();
            assert_eq!(found, expected, "{text}");
        }
    }
}

#[test]
fn lists_and_bounds_are_compared_by_bytes() {
    let mut rng = StdRng::seed_from_u64(7);
    for _ in 0..300 {
        let list: Vec<String> = (0..rng.random_range(0..6)).map(|_| word(&mut rng, 3)).collect();
        let bound = |rng: &mut StdRng| rng.random_bool(0.8).then(|| (word(rng, 3), rng.random_bool(0.5)));
        let (from, to) = (bound(&mut rng), bound(&mut rng));
        let (listed, between) = (Pattern::one_of(list.clone()), Pattern::between(from.clone(), to.clone()));
        for _ in 0..40 {
            let term = word(&mut rng, 3);
            assert_eq!(listed.matches(&term), list.contains(&term), "{term:?} in {list:?}");
            let above = from.as_ref().is_none_or(|(bound, included)| {
                term.as_bytes() > bound.as_bytes() || *included && term == *bound
            });
            let below = to.as_ref().is_none_or(|(bound, included)| {
                term.as_bytes() < bound.as_bytes() || *included && term == *bound
            });
            assert_eq!(between.matches(&term), above && below, "{term:?} from {from:?} to {to:?}");
        }
    }
}

#[test]
fn only_folded_texts_between_stars_are_containments() {
    let contained = |text: &str, folded| {
        let pattern = Pattern::of_pieces(&pieces(text), folded).unwrap();
        pattern.contained().map(str::to_owned)
    };
    assert_eq!(contained("*goo/gle*", true).as_deref(), Some("goo/gle"));
    for (text, folded) in [
        ("*google*", false),
        ("google*", true),
        ("*google", true),
        ("*goo?le*", true),
        ("*a*b*", true),
        ("*", true),
        ("**", true),
    ] {
        assert_eq!(contained(text, folded), None, "{text}");
    }
    let pattern = Pattern::of_pieces(&pieces("*a*"), true).unwrap();
    assert_eq!(pattern.behind("lead").contained(), None);
}

#[test]
fn halves_are_between_those_of_two_terms() {
    let pattern = Pattern::halves_between("1030".to_owned(), "2040".to_owned());
    for (term, expected) in [
        ("1030", true),
        ("2040", true),
        ("1535", true),
        // Each half counts by itself.
        ("1029", false),
        ("1541", false),
        ("1540", true),
        ("0935", false),
        ("2135", false),
        ("2030", true),
        ("15", false),
        ("153", false),
        ("15355", false),
        ("", false),
    ] {
        assert_eq!(pattern.matches(term), expected, "{term}");
    }
    let one = Pattern::halves_between("1030".to_owned(), "1030".to_owned());
    assert!(one.matches("1030") && !one.matches("1031") && !one.matches("1130"));
    assert!(pattern.only_prefix().is_none() && pattern.literals().next().is_none());
}

#[test]
fn halves_are_looked_for_across_ranges() {
    let walked = |pattern: &Pattern, term: &str| {
        let mut state = Automaton::start(&pattern);
        for byte in term.bytes() {
            if !pattern.can_match(&state) {
                return false;
            }
            state = pattern.accept(&state, byte);
        }
        pattern.is_match(&state)
    };
    let written = |(from, to): (u32, u32)| format!("{from:02}{to:02}");
    for ranges in
        [vec![(7, 7)], vec![(0, 3), (9, 9), (11, 20), (22, 24), (33, 40)], vec![(10, 10), (20, 20)], vec![]]
    {
        let across = Pattern::halves_across(ranges.iter().copied().map(written).collect());
        let (lower, upper) = ("0012".to_owned(), "2529".to_owned());
        let between = Pattern::halves_between(lower, upper);
        for term in (0..45).flat_map(|from| (0..45).map(move |to| (from, to))) {
            let text = written(term);
            let shared = ranges.iter().any(|(from, to)| *from <= term.1 && term.0 <= *to);
            // The halves of a term that is a range are in order.
            if term.0 <= term.1 {
                assert_eq!(
                    (across.matches(&text), walked(&across, &text)),
                    (shared, shared),
                    "{ranges:?} {text}"
                );
            }
            let inside = term.0 <= 25 && (12..=29).contains(&term.1);
            assert_eq!((between.matches(&text), walked(&between, &text)), (inside, inside), "{text}");
        }
        for text in ["", "0", "070", "07070", "é7é7"] {
            assert!(!across.matches(text) && !walked(&across, text), "{text}");
        }
    }
}
