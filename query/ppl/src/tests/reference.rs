//! The table of the language beside the parser and the pages of the documentation.

use std::path::PathBuf;

use crate::parser::{COMMANDS as PARSED, Expectation, expected_at_end};
use crate::reference::{COMMANDS, FUNCTIONS, Support};
use crate::{ParseErrorKind, parse};

fn documentation(file: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The texts of fenced blocks of PPL.
fn examples(page: &str) -> Vec<&str> {
    page.split("```ppl\n").skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

#[test]
fn the_table_has_each_command_that_the_parser_reads() {
    let tabled: Vec<&str> = COMMANDS.iter().map(|command| command.name).collect();
    for (name, _) in PARSED {
        assert!(tabled.contains(&name), "the table misses {name}");
    }
    for command in COMMANDS.iter().filter(|command| !command.is_source && command.name != "union") {
        assert!(PARSED.iter().any(|(name, _)| *name == command.name), "the parser misses {}", command.name);
    }
    for command in COMMANDS {
        if let Support::Refused(advice) = command.support {
            let error = parse(&format!("source=t | {}", command.name)).expect_err(command.name);
            assert_eq!(
                (error.kind, error.suggestion.as_deref()),
                (ParseErrorKind::Unsupported, Some(advice))
            );
        }
    }
}

/// Lists the options that the parser looks for behind the beginnings of examples.
fn options_of(example: &str) -> Vec<&'static str> {
    let ends = example.char_indices().filter(|(_, letter)| letter.is_whitespace()).map(|(at, _)| at);
    let mut options = Vec::new();
    for end in ends.chain([example.len()]) {
        let lead = example.get(..end).unwrap_or_default();
        let expected = expected_at_end(lead);
        if expected.offset() < lead.trim_end().len() {
            continue;
        }
        options.extend(expected.tokens().iter().filter_map(|token| match token {
            Expectation::OptionName(name) => Some(*name),
            _ => None,
        }));
    }
    options
}

#[test]
fn the_parser_looks_for_each_option_of_the_table() {
    for command in COMMANDS {
        let page = match command.support {
            Support::Accepted | Support::Parsed(_) => documentation(&format!("ppl/{}.md", command.name)),
            Support::Refused(_) => continue,
        };
        let found: Vec<&str> = examples(&page).into_iter().flat_map(options_of).collect();
        for option in command.options {
            assert!(found.contains(&option.name), "{}: no example reaches {}", command.name, option.name);
        }
    }
}

#[test]
fn the_pages_show_syntax_options_and_examples_that_parse() {
    let overview = documentation("ppl.md");
    for command in COMMANDS {
        assert!(overview.contains(&format!("`{}`", command.name)), "ppl.md misses {}", command.name);
        if matches!(command.support, Support::Refused(_)) {
            continue;
        }
        let page = documentation(&format!("ppl/{}.md", command.name));
        assert!(
            page.starts_with(&format!("# {}\n\n{}\n", command.name, command.summary)),
            "{}",
            command.name
        );
        for option in command.options {
            let line = format!("| `{}` | {} | {} |", option.name, option.values, option.summary);
            assert!(page.contains(&line), "{}: {line}", command.name);
        }
        if let Support::Parsed(reason) = command.support {
            assert!(page.contains(&format!("read and then refused: {reason}.")), "{}", command.name);
        }
        let examples = examples(&page);
        assert!(!examples.is_empty(), "{} has no example", command.name);
        for example in examples {
            parse(example).unwrap_or_else(|error| panic!("{}: {example}: {error}", command.name));
        }
    }
    for example in examples(&overview) {
        parse(example).unwrap_or_else(|error| panic!("{example}: {error}"));
    }
}

#[test]
fn the_overview_lists_each_function() {
    let overview = documentation("ppl.md");
    for function in FUNCTIONS {
        assert!(
            overview.contains(&format!("`{}`", function.signature)),
            "ppl.md misses {}",
            function.signature
        );
    }
}

#[test]
fn the_table_has_each_option_that_the_parser_looks_for() {
    for command in COMMANDS.iter().filter(|command| !matches!(command.support, Support::Refused(_))) {
        let page = documentation(&format!("ppl/{}.md", command.name));
        for option in examples(&page).into_iter().flat_map(options_of) {
            let is_tabled =
                COMMANDS.iter().any(|other| other.options.iter().any(|tabled| tabled.name == option));
            assert!(is_tabled, "the table misses the option {option}, which {} reaches", command.name);
        }
    }
}
