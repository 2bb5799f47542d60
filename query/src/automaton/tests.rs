//! Patterns against slow and simple definitions, on random terms.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tantivy_fst::{IntoStreamer, MapBuilder, Streamer};

use super::*;

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
    let plain = |text: &str| Pattern::regexp(text, RegexpFlags::NONE, false, 10_000).unwrap();
    for text in ["a~b", "a&b", "a@b", "a#b", "<1-5>"] {
        check(&plain(text), &[text], &["ab"]);
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
    assert!(refused("((a{1,50}){1,50}){1,50}").contains("249950"));
    assert!(refused(&"(".repeat(5_000)).contains("nested"));
    check(&regexp("(a|b)*a(a|b){10}"), &["abbbbbbbbbb"], &["bbbbbbbbbbb"]);
    let questions = pieces(&format!("*a{}", "?".repeat(40)));
    assert_eq!(
        Pattern::of_pieces(&questions, false).unwrap_err().to_string(),
        "Determinizing automaton with 83 states and 83 transitions would require more than 10000 effort."
    );
    assert!(Pattern::of_pieces(&pieces(&"*a".repeat(100)), false).is_ok());
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
        let flags = RegexpFlags(rng.random_range(0..256));
        if let Ok(pattern) = Pattern::regexp(&text, flags, rng.random_bool(0.5), 1_000) {
            parsed += 1;
            pattern.matches(&word(&mut rng, 6));
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
        let parsed = regexp::parse(&text, RegexpFlags::ALL, false).unwrap();
        let Ok(pattern) = Pattern::regexp(&text, RegexpFlags::ALL, false, 10_000) else { continue };
        for _ in 0..12 {
            let term = word(&mut rng, 4);
            let characters: Vec<char> = term.chars().collect();
            assert_eq!(pattern.matches(&term), describes(&parsed, &characters), "{text:?} and {term:?}");
        }
    }
}

fn fits(pieces: &[Piece], text: &[char]) -> bool {
    match (pieces.split_first(), text.split_first()) {
        (None, rest) => rest.is_none(),
        (Some((Piece::Any, behind)), None) => fits(behind, text),
        (Some((Piece::Any, behind)), Some((_, rest))) => fits(behind, text) || fits(pieces, rest),
        (Some((Piece::One, behind)), Some((_, rest))) => fits(behind, rest),
        (Some((Piece::Character(own), behind)), Some((next, rest))) => own == next && fits(behind, rest),
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
        let automaton = Pattern::of_pieces(&pieces, false).unwrap();
        let term = word(&mut rng, 6);
        let characters: Vec<char> = term.chars().collect();
        assert_eq!(automaton.matches(&term), fits(&pieces, &characters), "{pattern:?} and {term:?}");
    }
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
        let rest = |text: &str| text.chars().skip(prefix).collect::<String>();
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
