//! Errors: position, expected tokens, nearest names, refusals by name.

use super::error;
use crate::ParseErrorKind;

#[test]
fn an_error_names_position_and_expected_tokens() {
    let found = error("source=t\n| replace 'é' with 45 in x");
    assert_eq!((found.line, found.column), (2, 20));
    assert!(found.message.starts_with("[45] is not a valid term at this part of the query"), "{found}");
    assert!(found.message.contains("Expecting tokens: DQUOTA_STRING, SQUOTA_STRING"), "{found}");
    assert!(found.message.contains("with 45' <-- HERE, at line 2, column 20"), "{found}");
}

#[test]
fn the_end_of_the_text_is_a_token() {
    let found = error("source=t | replace 'a' with 'b'");
    assert!(found.message.starts_with("[<EOF>] is not a valid term at this part of the query"), "{found}");
    assert!(found.message.contains("Expecting tokens: 'IN'"), "{found}");
}

#[test]
fn the_nearest_name_is_suggested() {
    for (text, expected) in [
        ("source=t | field a", "did you mean [fields]?"),
        ("source=t | stat count()", "did you mean [stats]?"),
        ("source=t | where a bewteen 1 and 2", "did you mean [between]?"),
        ("source=t | dedup a keepemtpy=true", "did you mean [keepempty]?"),
        ("fields a", "a query begins with its source: source=index | …"),
    ] {
        assert_eq!(error(text).suggestion.as_deref(), Some(expected), "{text}: {}", error(text));
    }
}

#[test]
fn refused_features_are_named_with_advice() {
    for (text, expected) in [
        ("source=t | ad time_field='x'", "the command [ad] is not supported"),
        ("source=t | kmeans centroids=2", "the command [kmeans] is not supported"),
        ("source=t | ml action='train'", "the command [ml] is not supported"),
        ("source=[a, b]", "dynamic sources in brackets are not supported"),
        ("source=[a=\"b\", c]", "dynamic sources in brackets are not supported"),
        ("source=f(1)", "table functions are not supported as a source"),
        ("source=other:logs", "[other:] names another cluster, which is not supported"),
    ] {
        let found = error(text);
        assert_eq!((found.kind, found.message.as_str()), (ParseErrorKind::Unsupported, expected), "{text}");
        assert!(found.suggestion.is_some(), "{text}");
    }
}

#[test]
fn wrong_texts_are_refused_with_their_reason() {
    for (text, expected) in [
        ("source=t | head -1", "[head] must not be negative, but is [-1]"),
        ("source=t | head 99999999999999999999", "[99999999999999999999] is out of the range of 64 bits"),
        ("source=t | where a = 'b", "the text that begins with ' here has no closing '"),
        ("source=t | bin a span=5fortnights", "[fortnights] is no unit of time"),
        (
            "source=t | bin a span=0m",
            "Zero or negative time interval not supported: a span must be a positive number, but is [0]",
        ),
        ("source=t | bin a span=log1", "a logarithmic span needs a base above 1"),
        ("source=t earliest=-7x", "[-7x] is no time"),
        ("source=t | sort - a desc", "Cannot mix prefix (+/-) and suffix (asc/desc)"),
        ("source=t | dedup 0 a", "the number of [dedup] must be at least 1, but is [0]"),
        ("source=t | stats p101(a)", "a percentile is between 0 and 100, but is [101]"),
        ("source=t | stats count() by span(a, 1), span(b, 1)", "at most one key of a grouping is a span"),
        ("| multisearch [ source=a ]", "Multisearch command requires at least two subsearches"),
        ("", "[<EOF>] is not a valid term"),
        ("source=t | where", "[<EOF>] is not a valid term"),
        ("source=t | where a b", "[b] is not a valid term"),
        ("source=t | where a in [ source=b", "[<EOF>] is not a valid term"),
        ("source=t ] | head", "[]] is not a valid term"),
        ("source=t | eval a = 5m", "[5m] is not a valid term"),
        ("source=t | eval a = 15d", "[15d] is not a valid term"),
    ] {
        let found = error(text);
        assert!(found.message.starts_with(expected), "{text}: {found}");
        assert_eq!(found.kind, ParseErrorKind::Syntax, "{text}");
    }
}
