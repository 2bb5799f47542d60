//! Completions at the end of a text.

use crate::{CandidateKind, CompletionNames, completions, source_of};

fn complete(text: &str) -> Vec<String> {
    let names = CompletionNames {
        fields: vec!["age".to_owned(), "address".to_owned(), "a field".to_owned()],
        indices: vec!["accounts".to_owned(), "logs".to_owned()],
        values: vec![("level".to_owned(), "error".to_owned()), ("level".to_owned(), "it's".to_owned())],
    };
    completions(text, text.len(), &names).into_iter().map(|completion| completion.text).collect()
}

#[test]
fn completions_follow_the_syntax() {
    for (text, expected) in [
        ("source=", vec!["accounts", "logs"]),
        ("source=a", vec!["accounts"]),
        ("sou", vec!["source="]),
        ("source=logs | ev", vec!["eval", "eventstats"]),
        ("source=logs | sort - ag", vec!["age"]),
        ("source=logs | dedup age ke", vec!["keepempty="]),
        ("source=logs | dedup age keepempty=", vec!["true", "false"]),
        ("source=logs | stats med", vec!["median("]),
        (
            "source=logs | where address = jso",
            vec![
                "json_valid(",
                "json(",
                "json_append(",
                "json_array(",
                "json_array_length(",
                "json_delete(",
                "json_extend(",
                "json_extract(",
                "json_keys(",
                "json_object(",
                "json_set(",
            ],
        ),
        ("source=logs | fields `a f", vec![]),
        ("source=logs | rex field=age mode=", vec!["extract", "sed"]),
        ("source=logs | inner jo", vec!["join"]),
        ("source=logs | nonsense age ", vec![]),
        ("source=logs level=e", vec!["'error'"]),
        ("source=logs | where level = ", vec!["'error'", "'it\\'s'"]),
    ] {
        let found = complete(text);
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        // A value is one of many things that can stand there.
        if text.ends_with("level = ") {
            assert!(expected.iter().all(|value| found.contains(value)), "{text}: {found:?}");
        } else {
            assert_eq!(found, expected, "{text}");
        }
    }
}

#[test]
fn a_completion_replaces_the_word_at_the_cursor() {
    let text = "source=logs | whe | head";
    let found = completions(text, 17, &CompletionNames::default());
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        (found[0].start, found[0].text.as_str(), found[0].kind),
        (14, "where", CandidateKind::Command)
    );
}

#[test]
fn the_source_of_an_incomplete_text_is_known() {
    for (text, expected) in [
        ("search error SOURCE = logs-*, b | whe", Some("logs-*,b")),
        ("index=a ", Some("a")),
        ("source=a", None),
        ("source=[ source=b | ", None),
        ("nothing", None),
    ] {
        assert_eq!(source_of(text).as_deref(), expected, "{text}");
    }
}
