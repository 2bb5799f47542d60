use std::fs;
use std::path::{Path, PathBuf};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::simple::{Flags, Item};
use super::{ParsedQuery, escape, parse, simple};

/// Parses a text of the classic syntax, and shows the tree or the error.
fn classic(text: &str) -> String {
    match parse(text, None) {
        ParsedQuery { error: Some(error), .. } => format!("error: {}", error.0),
        ParsedQuery { group: Some(group), .. } => group.to_string(),
        ParsedQuery { group: None, .. } => "nothing".to_owned(),
    }
}

/// Parses a text of the simple syntax, and shows the row.
fn plain(text: &str) -> String {
    let items = simple::parse(text, Flags::ALL).unwrap();
    items.iter().map(Item::to_string).collect::<Vec<_>>().join(" ")
}

/// Checks the cases of a directory: a query, a line of dashes, and what is made of it.
fn check(directory: &str, parse: fn(&str) -> String) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/query_string/cases").join(directory);
    let mut files: Vec<PathBuf> = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    let mut wrong = Vec::new();
    for file in files {
        let case = fs::read_to_string(&file).unwrap();
        let (query, expected) = case.split_once("\n----\n").unwrap();
        let made = parse(query);
        if made != expected.trim_end_matches('\n') {
            wrong.push(format!("{}\n{query}\n{made}\n", file.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn classic_cases() {
    check("classic", classic);
}

#[test]
fn simple_cases() {
    check("simple", plain);
}

/// Pieces of both languages; texts of them get further than random characters do.
const PIECES: &[&str] = &[
    "a",
    "b",
    "title",
    "AND",
    "OR",
    "NOT",
    "TO",
    "&&",
    "||",
    "!",
    "+",
    "-",
    "(",
    ")",
    ":",
    "^",
    "2",
    "1.5",
    "~",
    "*",
    "?",
    "\"",
    "\\",
    "/",
    "[",
    "]",
    "{",
    "}",
    "|",
    " ",
    "\t",
    "\u{3000}",
    "\\u0041",
    "\\u00",
    "_exists_",
    ">",
    ">=",
    "<",
    "é",
    "\u{1f600}",
    ".",
    ",",
    "=",
];

fn text(rng: &mut StdRng) -> String {
    (0..rng.random_range(0..30)).map(|_| PIECES[rng.random_range(0..PIECES.len())]).collect()
}

#[test]
fn any_text_is_parsed_or_refused() {
    let mut rng = StdRng::seed_from_u64(7);
    let mut parsed = 0;
    for _ in 0..20_000 {
        let text = text(&mut rng);
        parsed += usize::from(parse(&text, Some("f")).error.is_none());
        let flags = Flags(rng.random_range(-1..1_024));
        simple::parse(&text, flags).unwrap();
    }
    assert!(parsed > 1_000, "{parsed}");
}

#[test]
fn escaped_texts_are_words() {
    let mut rng = StdRng::seed_from_u64(8);
    for _ in 0..2_000 {
        let escaped = escape(&text(&mut rng));
        let tree = classic(&escaped);
        let operators = ["AND", "OR", "NOT"].iter().any(|word| escaped.contains(word));
        assert!(operators || !tree.contains("error"), "{escaped}: {tree}");
    }
}

#[test]
fn depth_and_clauses_are_bounded() {
    assert_eq!(classic(&format!("{}a{}", "(".repeat(100_000), ")".repeat(100_000))), "word[a]");
    let deep = |levels| format!("{}a{}", "(-".repeat(levels), ")".repeat(levels));
    assert!(parse(&deep(256), None).error.is_none());
    assert!(classic(&deep(257)).ends_with("more than 256 levels of groups"));
    let many = |clauses| vec!["a:b"; clauses].join(" ");
    assert!(parse(&many(1_024), None).error.is_none());
    assert!(classic(&many(1_025)).ends_with("too many boolean clauses"));
    assert!(classic(&"a ".repeat(1_025)).ends_with("too many boolean clauses"));
    assert!(classic(&"a".repeat((1 << 20) + 1)).contains("exceeds max allowed length"));
    for open in ["(", "[", "\"", "/", "a:", "-"] {
        assert!(parse(&open.repeat(50_000), None).error.is_some());
    }
}

#[test]
fn simple_texts_are_bounded() {
    let error = |text: String| simple::parse(&text, Flags::ALL).unwrap_err().to_string();
    assert_eq!(error("a ".repeat(1_025)), "maxClauseCount is set to 1024");
    let around = format!("{}a{}", "(".repeat(50_000), ")".repeat(50_000));
    assert_eq!(plain(&around), "(words[a])");
    let nested = format!("{}b{}", "(a ".repeat(600), ")".repeat(600));
    assert!(error(nested).contains("levels of parentheses"));
    assert_eq!(plain(&"(".repeat(50_000)), "");
    assert_eq!(plain(&"\"".repeat(50_001)).matches("nothing").count(), 25_000);
}
