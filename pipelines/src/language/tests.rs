use std::fmt::Write as _;
use std::path::Path;

use chrono::DateTime;
use insta::assert_snapshot;
use millrace_ingest::{Event, Fault};
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::condition::{Condition, Operand};

fn dialect() -> Dialect {
    let environment = [("SET", "value"), ("EMPTY", "")];
    let environment =
        environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter().collect();
    Dialect { environment, support_escapes: false }
}

fn cases() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

/// Calls for each file of a folder, in order.
fn each(folder: &str, mut case: impl FnMut(&str, &str)) {
    let mut files: Vec<_> =
        std::fs::read_dir(cases().join(folder)).unwrap().map(|f| f.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "conf"));
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let name = file.file_stem().unwrap().to_str().unwrap();
        case(name, &std::fs::read_to_string(&file).unwrap());
    }
}

fn shown(faults: &[Fault]) -> String {
    faults.iter().fold(String::new(), |all, fault| all + &fault.to_string() + "\n")
}

#[test]
fn good_definitions_are_understood() {
    each("good", |name, text| {
        let definition =
            parse(text, &dialect()).unwrap_or_else(|faults| panic!("{name}:\n{}", shown(&faults)));
        let mut out = String::new();
        for plugin in &definition.inputs {
            let _ = writeln!(out, "input {} at {}", plugin.canonical, plugin.options.at());
        }
        show(&definition.filters, "filter ", &mut out);
        show(&definition.outputs, "output ", &mut out);
        insta::with_settings!({snapshot_path => cases().join("good"), prepend_module_to_snapshot => false}, {
            assert_snapshot!(name, out);
        });
    });
}

#[test]
fn every_fault_of_bad_definitions_is_reported() {
    each("bad", |name, text| {
        let faults = parse(text, &dialect()).expect_err(name);
        insta::with_settings!({snapshot_path => cases().join("bad"), prepend_module_to_snapshot => false}, {
            assert_snapshot!(name, shown(&faults));
        });
    });
}

fn show(statements: &[Statement], indent: &str, out: &mut String) {
    for statement in statements {
        match statement {
            Statement::Plugin(plugin) => _ = writeln!(out, "{indent}{}", plugin.canonical),
            Statement::Branch(branch) => {
                for arm in &branch.arms {
                    let _ = writeln!(out, "{indent}if {} at {}", text_of(&arm.condition), arm.at);
                    show(&arm.body, &format!("{indent}  "), out);
                }
                if !branch.otherwise.is_empty() {
                    let _ = writeln!(out, "{indent}else");
                    show(&branch.otherwise, &format!("{indent}  "), out);
                }
            }
        }
    }
}

fn text_of(condition: &Condition) -> String {
    let two = |word: &str, a: &Condition, b: &Condition| format!("({} {word} {})", text_of(a), text_of(b));
    let side = |operand: &Operand| operand.to_string();
    match condition {
        Condition::And(a, b) => two("and", a, b),
        Condition::Nand(a, b) => two("nand", a, b),
        Condition::Or(a, b) => two("or", a, b),
        Condition::Xor(a, b) => two("xor", a, b),
        Condition::Not(inner) => format!("!{}", text_of(inner)),
        Condition::Truthy(operand) => side(operand),
        Condition::Compare(a, comparison, b) => format!("({} {} {})", side(a), comparison.sign(), side(b)),
        Condition::Matches(operand, pattern) => format!("({} =~ {pattern:?})", side(operand)),
        Condition::In(a, b) => format!("({} in {})", side(a), side(b)),
    }
}

#[test]
fn conditions_hold_as_they_should() {
    let text = std::fs::read_to_string(cases().join("conditions.txt")).unwrap();
    let mut event = None;
    let mut count = 0;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line.starts_with('{') {
            let Value::Object(fields) = serde_json::from_str(line).unwrap() else { panic!("{line}") };
            event = Some(Event::from_fields(fields, DateTime::UNIX_EPOCH));
            continue;
        }
        let (expected, condition) = line.split_once(' ').unwrap();
        let whole = format!("input {{ stdin {{ }} }} filter {{ if {} {{ drop {{ }} }} }}", condition.trim());
        let definition =
            parse(&whole, &dialect()).unwrap_or_else(|faults| panic!("{line}: {}", shown(&faults)));
        let Some(Statement::Branch(branch)) = definition.filters.first() else { panic!("{line}") };
        let held = match branch.arms[0].condition.holds(event.as_ref().unwrap()) {
            Ok(true) => "true",
            Ok(false) => "false",
            Err(_) => "undecided",
        };
        assert_eq!(held, expected, "{condition}");
        count += 1;
    }
    assert!(count > 100);
}

#[test]
fn what_is_undecided_says_why() {
    let definition = parse("input { a { } } filter { if [x][y] > 5 { b { } } }", &dialect()).unwrap();
    let Some(Statement::Branch(branch)) = definition.filters.first() else { panic!() };
    let condition = &branch.arms[0].condition;
    let event = Event::new(DateTime::UNIX_EPOCH);
    assert_eq!(condition.holds(&event).unwrap_err().0, "[x][y] > 5 has no answer for nothing and a number");
}

#[test]
fn an_expression_that_takes_too_long_is_given_up() {
    let pattern = crate::condition::Pattern::new("^(([a-z])+.)+[A-Z]([a-z])+$").unwrap();
    let field = Operand::Value(Value::String("a".repeat(5_000)));
    let event = Event::new(DateTime::UNIX_EPOCH);
    assert!(Condition::Matches(field, pattern).holds(&event).is_err());
}

#[test]
fn escapes_are_read_where_they_are_asked_for() {
    let text = r#"input { a { x => "tab\tline\nquote\" slash\\ other\d" y => 'it\'s' } }"#;
    let escaped = Dialect { support_escapes: true, ..dialect() };
    let canonical = |dialect: &Dialect| parse(text, dialect).unwrap().inputs[0].canonical.clone();
    assert_eq!(canonical(&escaped), r#"a(x=>"tab\tline\nquote\" slash\\ other\\d";y=>"it's";)"#);
    assert_eq!(canonical(&dialect()), r#"a(x=>"tab\\tline\\nquote\\\" slash\\\\ other\\d";y=>"it\\'s";)"#);
}

#[test]
fn how_it_is_written_does_not_change_what_it_is() {
    let of = |text: &str| parse(text, &dialect()).unwrap().inputs[0].canonical.clone();
    let one = of("input { http { port => 8080 tags => [\"a\", b] codec => json { } } }");
    let other =
        of("# moved\n\ninput {\n  http { port => '8080'\n tags => ['a','b'] # here\n codec => json {} } }");
    assert_eq!(one, other);
    assert_ne!(one, of("input { http { port => 8081 tags => [\"a\", b] codec => json { } } }"));
}

const PARTS: &[&str] = &[
    "input", "filter", "output", "{", "}", "if", "else", "=>", "==", "=~", "in", "not", "and", "!", "(", ")",
    "[", "]", "\"", "'", "/", "\\", "#", "\n", " ", ",", "a", "[a][b]", "1.5", "-", "${X", "${SET}",
    "grok {", "x => ", "é", "\u{feff}",
];

proptest! {
    #[test]
    fn anything_is_read_or_refused(text in "\\PC{0,200}") {
        crate::fuzzing::language(text.as_bytes());
    }

    #[test]
    fn anything_alike_is_read_or_refused(parts in proptest::collection::vec(proptest::sample::select(PARTS), 0..120)) {
        crate::fuzzing::language(parts.concat().as_bytes());
    }

    #[test]
    fn a_definition_may_end_anywhere(cut in 0..2_000_usize) {
        let text = include_str!("../../tests/cases/good/conditions.conf");
        crate::fuzzing::language(text.get(..cut).unwrap_or(text).as_bytes());
    }
}
