//! Automata against slow and simple definitions, on random texts.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

const LETTERS: &[char] = &['a', 'b', 'A', 'ä', '€', '𝄞', '1', '-'];

fn word(rng: &mut StdRng, most: usize) -> String {
    (0..rng.random_range(0..=most)).map(|_| LETTERS[rng.random_range(0..LETTERS.len())]).collect()
}

fn regexp(text: &str) -> Dfa {
    Dfa::regexp(text, Flags::ALL, false, DEFAULT_EFFORT).unwrap()
}

fn matches(automaton: &Dfa, text: &str) -> bool {
    automaton.longest_match(text) == Some(text.len())
}

#[track_caller]
fn check(automaton: &Dfa, matching: &[&str], others: &[&str]) {
    for text in matching {
        assert!(matches(automaton, text), "{text:?} does not match");
    }
    for text in others {
        assert!(!matches(automaton, text), "{text:?} matches");
    }
}

#[test]
fn operators_of_expressions() {
    check(&regexp("ab|c"), &["ab", "c"], &["abc", "a", ""]);
    check(&regexp("a?b*c+"), &["c", "abbcc", "bc"], &["ab", "aac"]);
    check(&regexp("a{2}b{1,2}c{2,}"), &["aabcc", "aabbccc"], &["abcc", "aabbbcc", "aabc"]);
    check(&regexp("[a-c€][^a-c]"), &["ax", "€é"], &["aa", "x1", "a"]);
    check(&regexp("\\d\\D\\w\\W\\s\\."), &["1a_- ."], &["aa_- .", "1a_- x"]);
    check(&regexp("\"a.b\""), &["a.b"], &["axb"]);
    check(&regexp(".+&~(ab.*)"), &["ba", "xab"], &["ab", "abc", ""]);
    check(&regexp("~a"), &["", "aa", "b"], &["a"]);
    check(&regexp("~~a"), &["a"], &["b"]);
    check(&regexp("a@b"), &["ab", "axyb"], &["a", "b"]);
    check(&regexp("#|a"), &["a"], &["", "#"]);
    check(&regexp("<7-12>"), &["7", "12", "007", "10"], &["6", "13", "", "1"]);
    check(&regexp("<01-12>"), &["01", "12"], &["1", "001", "13", "00"]);
    check(&regexp("<0-200>"), &["0", "00", "200", "0199"], &["201", "2000"]);
    check(&regexp("(ab){0}"), &[""], &["ab"]);
    check(&regexp(""), &[""], &["a"]);
    check(&regexp("(a*)*b"), &["b", "aaab"], &["a"]);
    check(&regexp("(a|b*)+c|(d?e*)*"), &["c", "abbac", "", "deed"], &["cd"]);
}

#[test]
fn flags_turn_operators_off() {
    let plain = |text: &str| Dfa::regexp(text, Flags::NONE, false, 10_000).unwrap();
    for text in ["a~b", "a&b", "a@b", "a#b", "<1-5>"] {
        check(&plain(text), &[text], &["ab"]);
    }
}

/// Any text either parses or is refused; what parses is run.
#[test]
fn any_text_is_an_expression_or_refused() {
    let mut rng = StdRng::seed_from_u64(7);
    let symbols: Vec<char> = "ab.?*+{}[]()^-~&@#<>\"\\|1,5dDwWé𝄞".chars().collect();
    let mut parsed = 0;
    for _ in 0..20_000 {
        let text: String =
            (0..rng.random_range(0..16)).map(|_| symbols[rng.random_range(0..symbols.len())]).collect();
        let flags = Flags(rng.random_range(0..256));
        if let Ok(pattern) = Dfa::regexp(&text, flags, rng.random_bool(0.5), 1_000) {
            parsed += 1;
            pattern.longest_match(&word(&mut rng, 6));
        }
    }
    assert!(parsed > 1_000, "{parsed}");
}

/// Tells by trying every split whether an expression describes a text.
fn describes(expression: &regexp::Expression, text: &[char]) -> bool {
    use regexp::Expression as E;
    match expression {
        E::Nothing => false,
        E::AnyString => true,
        E::Text(own) => own.chars().eq(text.iter().copied()),
        E::Character(own) => text == [*own],
        E::Class(ranges) => {
            text.len() == 1 && ranges.iter().any(|(a, b)| (*a..=*b).contains(&u32::from(text[0])))
        }
        E::Interval(from, to, digits) => {
            let text: String = text.iter().collect();
            (*digits == 0 || text.len() == *digits)
                && text.bytes().all(|byte| byte.is_ascii_digit())
                && text.parse::<u32>().is_ok_and(|number| (from..=to).contains(&&number))
        }
        E::Union(parts) => parts.iter().any(|part| describes(part, text)),
        E::Concatenation(parts) => match parts.split_first() {
            None => text.is_empty(),
            Some((first, rest)) => (0..=text.len()).any(|at| {
                describes(first, &text[..at]) && describes(&E::Concatenation(rest.to_vec()), &text[at..])
            }),
        },
        E::Intersection(left, right) => describes(left, text) && describes(right, text),
        E::Complement(inner) => !describes(inner, text),
        E::Repeat(inner, least, most) => {
            // An empty copy adds nothing but its count.
            let empty = describes(inner, &[]);
            fn copies(inner: &regexp::Expression, text: &[char], count: usize, found: &mut Vec<usize>) {
                if text.is_empty() {
                    found.push(count);
                }
                for at in 1..=text.len() {
                    if describes(inner, &text[..at]) {
                        copies(inner, &text[at..], count + 1, found);
                    }
                }
            }
            let mut counts = Vec::new();
            copies(inner, text, 0, &mut counts);
            counts.iter().any(|count| most.is_none_or(|most| *count <= most) && (*count >= *least || empty))
        }
    }
}

#[test]
fn automata_agree_with_trying_every_split() {
    let mut rng = StdRng::seed_from_u64(11);
    let tokens = ["a", "b", "ä", ".", "[ab]", "[^a]", "\\d", "<1-11>", "@", "#", "()", "\"ab\""];
    fn expression(rng: &mut StdRng, tokens: &[&str], depth: usize) -> String {
        let atom = tokens[rng.random_range(0..tokens.len())].to_owned();
        if depth == 0 {
            return atom;
        }
        let below = |rng: &mut StdRng| expression(rng, tokens, depth - 1);
        match rng.random_range(0..9) {
            0 => format!("({}|{})", below(rng), below(rng)),
            1 | 2 => format!("{}{}", below(rng), below(rng)),
            3 => format!("({})*", below(rng)),
            4 => format!("({})+", below(rng)),
            5 => format!("({})?", below(rng)),
            6 => format!("({}){{{},{}}}", below(rng), rng.random_range(0..2), rng.random_range(2..4)),
            7 => format!("~({})", below(rng)),
            _ => format!("({}&{})", below(rng), below(rng)),
        }
    }
    for _ in 0..600 {
        let text = expression(&mut rng, &tokens, 3);
        let parsed = regexp::parse(&text, Flags::ALL, false).unwrap();
        let Ok(pattern) = Dfa::regexp(&text, Flags::ALL, false, 10_000) else { continue };
        for _ in 0..12 {
            let term = word(&mut rng, 4);
            let characters: Vec<char> = term.chars().collect();
            assert_eq!(matches(&pattern, &term), describes(&parsed, &characters), "{text:?} and {term:?}");
        }
    }
}

fn fits(pieces: &[WildcardItem], text: &[char]) -> bool {
    match (pieces.split_first(), text.split_first()) {
        (None, rest) => rest.is_none(),
        (Some((WildcardItem::Any, behind)), None) => fits(behind, text),
        (Some((WildcardItem::Any, behind)), Some((_, rest))) => fits(behind, text) || fits(pieces, rest),
        (Some((WildcardItem::One, behind)), Some((_, rest))) => fits(behind, rest),
        (Some((WildcardItem::Character(own), behind)), Some((next, rest))) => {
            own == next && fits(behind, rest)
        }
        (Some(_), None) => false,
    }
}

#[test]
fn wildcards_agree_with_backtracking() {
    let mut rng = StdRng::seed_from_u64(3);
    for _ in 0..4_000 {
        let pattern: String = (0..rng.random_range(0..7))
            .map(|_| *['*', '?', 'a', 'b', 'ä', '\\'].get(rng.random_range(0..6)).unwrap())
            .collect();
        let pieces = pieces(&pattern);
        let automaton = Dfa::wildcard(&pieces, false, DEFAULT_EFFORT).unwrap();
        let term = word(&mut rng, 6);
        let characters: Vec<char> = term.chars().collect();
        assert_eq!(matches(&automaton, &term), fits(&pieces, &characters), "{pattern:?} and {term:?}");
    }
}

#[test]
fn the_longest_match_counts() {
    for (expression, text, length) in [
        ("a|ab|abc", "abcd", Some(3)),
        ("ab*(cd)?", "abbc", Some(3)),
        ("é+", "ééx", Some(4)),
        ("a*", "b", Some(0)),
        ("a", "b", None),
        ("#", "a", None),
        ("a~b", "ab a", Some(4)),
    ] {
        assert_eq!(regexp(expression).longest_match(text), length, "{expression:?} in {text:?}");
    }
}
