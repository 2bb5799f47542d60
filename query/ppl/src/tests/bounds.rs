//! Bounds: whatever a text nests or repeats, it is an error or an answer, and soon.

use super::error;
use crate::{MAX_BYTES, ParseErrorKind, parse};

#[test]
fn nesting_is_bounded() {
    for (open, close) in [
        ("(", ")"),
        ("[ source=t | where a in ", "]"),
        ("not ", ""),
        ("- ", ""),
        ("f(", ")"),
        ("x -> ", ""),
        ("case(a, ", ")"),
        ("cast(", " as int)"),
        ("exists [ source=t | where ", "]"),
        ("interval ", " day"),
    ] {
        let text = format!("source=t | where {}a{}", open.repeat(10_000), close.repeat(10_000));
        if let Err(error) = parse(&text) {
            assert!(
                matches!(error.kind, ParseErrorKind::TooLarge | ParseErrorKind::Syntax),
                "{open}: {error}"
            );
        } else {
            panic!("{open} is nested without end");
        }
    }
    for open in ["(", "NOT ", "[ source=", "source=[ "] {
        let _refused = error(&format!("source=t {}", open.repeat(10_000)));
    }
    let open = "append [ source=t | ".repeat(10_000);
    assert_eq!(error(&format!("source=t | {open}")).kind, ParseErrorKind::TooLarge);
}

#[test]
fn chains_of_and_and_or_have_no_depth() {
    let condition = "a = 1 or ".repeat(15_000);
    parse(&format!("source=t | where {condition} b = 2")).expect("a long chain is balanced");
    let sum = "1 + ".repeat(5_000);
    assert_eq!(error(&format!("source=t | where {sum} 1")).kind, ParseErrorKind::TooLarge);
    let tests = "a ".to_owned() + &"is null ".repeat(5_000);
    assert_eq!(error(&format!("source=t | where {tests}")).kind, ParseErrorKind::TooLarge);
}

#[test]
fn texts_lists_and_pipelines_are_bounded() {
    assert_eq!(error(&"x".repeat(1 << 20)).kind, ParseErrorKind::TooLarge);
    let commands = "| head 1 ".repeat(1_000);
    assert_eq!(error(&format!("source=t {commands}")).kind, ParseErrorKind::TooLarge);
    parse(&format!("source=t {}", "| ".repeat(10_000))).expect("empty pipes are no commands");
    let fields = "a, ".repeat(20_000);
    assert_eq!(error(&format!("source=t | fields {fields} a")).kind, ParseErrorKind::TooLarge);
    let name = "a.".repeat(1_000);
    assert_eq!(error(&format!("source=t | fields {name}a")).kind, ParseErrorKind::TooLarge);
    let words = "word ".repeat(9_000);
    parse(&format!("source=t {words}")).expect("many words");
    let line = "é".repeat(MAX_BYTES / 2 - 10);
    parse(&format!("source=t {line}")).expect("a long word");
}
