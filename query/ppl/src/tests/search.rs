//! Sources, free text, comparisons and time modifiers.

use crate::ast::{
    ComparisonOperator, SearchCondition, SourceRelation, SpanUnit, TimeBound, TimeModifierValue, TimeStep,
};

use super::{command, pipeline, source};

/// Writes a condition with all its parentheses.
fn shown(condition: &SearchCondition) -> String {
    let list = |members: &[SearchCondition], word: &str| {
        format!("({})", members.iter().map(shown).collect::<Vec<_>>().join(word))
    };
    let term = |term: &crate::ast::SearchTerm| match term.is_quoted {
        true => format!("'{}'", term.text),
        false => term.text.clone(),
    };
    match condition {
        SearchCondition::And(members) => list(members, " AND "),
        SearchCondition::Or(members) => list(members, " OR "),
        SearchCondition::Not(inner) => format!("NOT {}", shown(inner)),
        SearchCondition::Term(text) => term(text),
        SearchCondition::Comparison { field, operator, value } => {
            let sign = match operator {
                ComparisonOperator::Eq => "=",
                ComparisonOperator::NotEq => "!=",
                ComparisonOperator::Lt => "<",
                ComparisonOperator::LtEq => "<=",
                ComparisonOperator::Gt => ">",
                ComparisonOperator::GtEq => ">=",
            };
            format!("{}{sign}{}", field.path, term(value))
        }
        SearchCondition::InList { field, values } => {
            format!("{} IN {}", field.path, values.iter().map(term).collect::<Vec<_>>().join(","))
        }
        SearchCondition::Time(modifier) => format!("{:?} {:?}", modifier.bound, modifier.value),
    }
}

fn condition(text: &str) -> String {
    source(text).condition.map(|condition| shown(&condition)).unwrap_or_default()
}

#[test]
fn terms_side_by_side_are_a_conjunction() {
    for (text, expected) in [
        ("source=logs", ""),
        (
            "source=logs* error 5xx \"connection reset\" status>=500",
            "(error AND 5xx AND 'connection reset' AND status>=500)",
        ),
        ("error source=logs warn", "(error AND warn)"),
        ("search a b OR c NOT d index=logs", "(a AND (b OR c) AND NOT d)"),
        ("search a AND b source=logs", "(a AND b)"),
        ("source=logs (a b) OR NOT (c OR d)", "((a AND b) OR NOT (c OR d))"),
        ("source=logs http://x/y?z 10.0.0.* user\\ name", "(http://x/y?z AND 10.0.0.* AND user\\ name)"),
        (
            "source=logs `a.b`=1 c.d != \"x\" e IN (1, two, \"three\")",
            "(a.b=1 AND c.d!='x' AND e IN 1,two,'three')",
        ),
        ("source=logs host=web-1 path=/api/v1 code=-5", "(host=web-1 AND path=/api/v1 AND code=-5)"),
        ("source=logs in OR is", "(in OR is)"),
    ] {
        assert_eq!(condition(text), expected, "{text}");
    }
}

#[test]
fn sources_are_lists_of_indices_or_subsearches() {
    let found = source("source = logs-2024.01*, `my index` as l error");
    let SourceRelation::Indices { indices, alias } = &found.relation else { panic!("indices") };
    let names: Vec<&str> = indices.iter().map(|index| index.expression.as_str()).collect();
    assert_eq!(names, ["logs-2024.01*", "my index"]);
    assert_eq!(alias.as_ref().map(|alias| alias.path.as_str()), Some("l"));
    let found = source("source=[ source=a | where b = 1 ] as c");
    let SourceRelation::Subsearch { pipeline, alias } = &found.relation else { panic!("a subsearch") };
    assert_eq!(pipeline.commands.len(), 1);
    assert_eq!(alias.as_ref().map(|alias| alias.path.as_str()), Some("c"));
}

#[test]
fn time_modifiers_are_points_in_time() {
    let offset = |count, unit| TimeStep::Offset { count, unit };
    for (text, expected) in [
        ("now", TimeModifierValue::Now),
        ("now()", TimeModifierValue::Now),
        ("1754020061.5", TimeModifierValue::Epoch("1754020061.5".to_owned())),
        ("'2025-08-01 02:00:55'", TimeModifierValue::Absolute("2025-08-01 02:00:55".to_owned())),
        (
            "-7d@d",
            TimeModifierValue::Relative(vec![offset(-7, SpanUnit::Day), TimeStep::Snap(SpanUnit::Day)]),
        ),
        (
            "'-1M+2h'",
            TimeModifierValue::Relative(vec![offset(-1, SpanUnit::Month), offset(2, SpanUnit::Hour)]),
        ),
        ("+m", TimeModifierValue::Relative(vec![offset(1, SpanUnit::Minute)])),
        ("@w3", TimeModifierValue::Relative(vec![TimeStep::SnapToWeekday(3)])),
    ] {
        let found = source(&format!("source=t earliest={text} x")).condition;
        let Some(SearchCondition::And(members)) = found else { panic!("{text}: {found:?}") };
        let SearchCondition::Time(modifier) = &members[0] else { panic!("{text}: {members:?}") };
        assert_eq!((modifier.bound, &modifier.value), (TimeBound::Earliest, &expected), "{text}");
    }
}

#[test]
fn empty_pipes_and_comments_leave_no_command() {
    for text in [
        "source=t | head 1",
        "| source=t | | head 1 |",
        "source=t /* a | b */ | // c | d\n head 1 | |;",
        "SEARCH SOURCE = t\n|\nHEAD 1",
    ] {
        assert_eq!(pipeline(text).commands.len(), 1, "{text}");
    }
}

#[test]
fn words_of_the_language_are_names() {
    for text in [
        "fields source, index, head, by, as, span, where",
        "sort desc, asc, num, - d",
        "stats count by span, count",
        "eval source = head + 1, limit = from",
        "dedup keepempty keepempty=true",
        "rename as as by, by as as",
    ] {
        command(text);
    }
}
