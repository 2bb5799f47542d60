//! Files of cases: the worked ones of the documentation, and those of the rules that are ready for use.

use std::fs;
use std::path::{Path, PathBuf};

use millrace_rules::cases::{RULE, Suite};

use crate::filter::Filter;

fn files(directory: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.to_str().is_some_and(|name| name.ends_with(ending)));
    files.sort();
    files
}

/// Runs a file; returns how many cases it has, and what failed.
fn run(suite: &Suite) -> (usize, Vec<String>) {
    let outcomes = suite.run(&mut Filter::new(RULE, &suite.rule));
    let failed = outcomes.iter().filter(|outcome| !outcome.failures.is_empty());
    (
        outcomes.len(),
        failed.map(|outcome| format!("{}: {}", outcome.name, outcome.failures.join("\n"))).collect(),
    )
}

#[test]
fn worked_cases_hold() {
    let files = files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases"), ".yaml");
    assert!(files.len() >= 10, "{} files", files.len());
    for file in files {
        let suite = Suite::read(&fs::read_to_string(&file).unwrap(), None)
            .unwrap_or_else(|error| panic!("{file:?}: {error}"));
        let (cases, failed) = run(&suite);
        assert!(cases > 0 && failed.is_empty(), "{file:?}: {failed:#?}");
    }
}

#[test]
fn rules_that_are_ready_for_use_hold_their_cases() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/rules");
    let tests = files(&directory, ".test.yaml");
    let mut rules = files(&directory, ".yaml");
    rules.retain(|file| !tests.contains(file));
    assert!(rules.len() >= 10, "{} rules", rules.len());
    for file in rules {
        let cases = file.with_extension("test.yaml");
        let rule = fs::read_to_string(&file).unwrap();
        let cases = fs::read_to_string(&cases).unwrap_or_else(|error| panic!("{cases:?}: {error}"));
        let suite = Suite::read(&cases, Some(&rule)).unwrap_or_else(|error| panic!("{file:?}: {error}"));
        let notices = suite.rule.notices();
        assert!(notices.is_empty(), "{file:?} has options that are not used: {notices:?}");
        let (cases, failed) = run(&suite);
        assert!(cases > 0 && failed.is_empty(), "{file:?}: {failed:#?}");
    }
}

#[test]
fn a_case_that_does_not_hold_is_told() {
    let file = r#"
rule: { name: r, index: i, type: any }
cases:
  - name: three faults
    events:
      - { "@timestamp": "2026-01-01T00:00:00Z", user: ann }
      - { "@timestamp": "2026-01-01T00:00:01Z", user: bob }
    alerts:
      - { trigger: 1, match_body.user: bob }
  - name: one is missing
    events: []
    alerts:
      - { trigger: 1 }
"#;
    let suite = Suite::read(file, None).unwrap();
    let outcomes = suite.run(&mut Filter::new(RULE, &suite.rule));
    let failures: Vec<_> = outcomes.iter().map(|outcome| outcome.failures.len()).collect();
    assert_eq!(failures, [2, 1], "{outcomes:?}");
    assert!(
        outcomes[0].failures[0].contains("[match_body.user] is [ann], [bob] is expected"),
        "{outcomes:?}"
    );
}
