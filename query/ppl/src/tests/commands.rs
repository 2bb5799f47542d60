//! Commands: options, defaults and forms.

use sqlparser::ast::Expr;

use super::{command, pipeline};
use crate::ast::{CommandKind, ExplainMode, GroupingKey, PipelineSource, SourceRelation, SpanUnit};
use crate::command::*;
use crate::parse;

/// Unwraps the command of one kind.
macro_rules! parsed {
    ($kind:ident, $text:expr) => {
        match command($text) {
            CommandKind::$kind(command) => command,
            other => panic!("{}: {other:?}", $text),
        }
    };
}

fn paths(fields: &[crate::ast::FieldName]) -> Vec<&str> {
    fields.iter().map(|field| field.path.as_str()).collect()
}

#[test]
fn aggregates_are_calls_with_the_text_as_name() {
    let found = parsed!(
        Stats,
        "stats bucket_nullable=false count, c() as n, count(eval(a > 1)), dc(b), p95(c), perc99.5(c), Take(d, 2) by span(@timestamp, 1.5h) as t, `e f`, g"
    );
    let calls: Vec<String> =
        found.aggregates.iter().map(|aggregate| aggregate.call.expr.to_string()).collect();
    assert_eq!(
        calls,
        [
            "count(*)",
            "count(*)",
            "count(*) FILTER (WHERE a > 1)",
            "count(DISTINCT b)",
            "percentile(c, 95)",
            "percentile(c, 99.5)",
            "Take(d, 2)"
        ]
    );
    let texts: Vec<&str> = found.aggregates.iter().map(|aggregate| aggregate.call.text.as_str()).collect();
    assert_eq!(texts, ["count", "c()", "count(eval(a > 1))", "dc(b)", "p95(c)", "perc99.5(c)", "Take(d, 2)"]);
    assert_eq!(found.bucket_nullable, Some(false));
    let keys = found.by.expect("keys").keys;
    let GroupingKey::Span(bucket) = &keys[0] else { panic!("{keys:?}") };
    assert_eq!((bucket.length.count, bucket.length.unit), (1.5, Some(SpanUnit::Hour)));
    assert_eq!(bucket.text, "span(@timestamp,1.5h)");
    assert_eq!(keys.len(), 3);
}

#[test]
fn a_minute_is_no_month() {
    let unit = |text| parsed!(Bin, text).options.span;
    for (text, expected) in [("bin a span=1m", SpanUnit::Minute), ("bin a span=1M", SpanUnit::Month)] {
        let Some(BinSpan::Length(length)) = unit(text) else { panic!("{text}") };
        assert_eq!(length.unit, Some(expected), "{text}");
    }
    assert_eq!(unit("bin a span=2log10"), Some(BinSpan::Log { coefficient: 2.0, base: 10.0 }));
    assert_eq!(unit("bin a span=log"), Some(BinSpan::Log { coefficient: 1.0, base: 10.0 }));
}

#[test]
fn rows_are_chosen_by_count_and_offset() {
    assert_eq!(parsed!(Head, "head"), HeadCommand { count: 10, from: 0 });
    assert_eq!(parsed!(Head, "head 5 from 2"), HeadCommand { count: 5, from: 2 });
    assert_eq!(parsed!(Head, "head limit=3"), HeadCommand { count: 3, from: 0 });
    assert_eq!(parsed!(Tail, "tail 3").count, 3);
    let found = parsed!(Dedup, "dedup 2 a b, c keepempty=true consecutive=t");
    assert_eq!((found.count, paths(&found.fields)), (2, vec!["a", "b", "c"]));
    assert!(found.keepempty && found.consecutive);
}

#[test]
fn orders_have_signs_or_words() {
    let found = parsed!(Sort, "sort 5 - a, + num(b.c), ip(d) desc, asc");
    let keys: Vec<_> =
        found.keys.iter().map(|key| (key.field.path.as_str(), key.is_descending, key.comparison)).collect();
    assert_eq!(
        keys,
        [
            ("a", true, SortComparison::Auto),
            ("b.c", false, SortComparison::Number),
            ("d", true, SortComparison::Ip),
            ("asc", false, SortComparison::Auto)
        ]
    );
    assert_eq!(found.count, Some(5));
}

#[test]
fn columns_are_lists_with_or_without_commas() {
    let found = parsed!(Fields, "fields - a*, *b c.*d `e f`");
    let patterns: Vec<&str> = found.fields.iter().map(|field| field.pattern.as_str()).collect();
    assert!(found.is_exclusion);
    assert_eq!(patterns, ["a*", "*b", "c.*d", "e f"]);
    assert!(!parsed!(Fields, "table a b").is_exclusion);
    let found = parsed!(Rename, "rename a as b c* as d*, `e` as f");
    assert_eq!(found.renamings.len(), 3);
    assert_eq!(found.renamings[1].to.pattern, "d*");
}

#[test]
fn joins_have_kinds_criteria_and_sources() {
    for (text, kind) in [
        ("join on a = b t2", JoinKind::Inner),
        ("left join on a = b t2", JoinKind::Left),
        ("LEFT OUTER JOIN on a = b t2", JoinKind::Left),
        ("outer join on a = b t2", JoinKind::Left),
        ("right join on a = b t2", JoinKind::Right),
        ("full outer join on a = b t2", JoinKind::Full),
        ("left semi join on a = b t2", JoinKind::Semi),
        ("anti join on a = b t2", JoinKind::Anti),
        ("cross join t2", JoinKind::Cross),
        ("join type=anti a t2", JoinKind::Anti),
    ] {
        assert_eq!(parsed!(Join, text).kind, kind, "{text}");
    }
    let found = parsed!(
        Join,
        "join left=l, right=r hint.left.key1 = v ON l.a = r.b AND l.c > 1 [ source=t2 | head 1 ] as x"
    );
    assert_eq!(found.left_alias.map(|alias| alias.path).as_deref(), Some("l"));
    assert_eq!(found.right_alias.map(|alias| alias.path).as_deref(), Some("r"));
    assert_eq!(found.hints, [JoinHint { is_left: true, name: "key1".to_owned(), value: "v".to_owned() }]);
    assert!(matches!(found.criteria, JoinCriteria::On(_)));
    assert!(matches!(found.right, SourceRelation::Subsearch { alias: Some(_), .. }));
    for (text, fields) in [
        ("join t2", vec![]),
        ("join a t2", vec!["a"]),
        ("join type=left overwrite=false max=1 a, b t2", vec!["a", "b"]),
        ("join a b [ source=t2 ]", vec!["a", "b"]),
        ("join a t2 as x", vec!["a"]),
        ("join `a.b` t-2*", vec!["a.b"]),
    ] {
        let found = parsed!(Join, text);
        match &found.criteria {
            JoinCriteria::Fields(found) => assert_eq!(paths(found), fields, "{text}"),
            JoinCriteria::Common => assert!(fields.is_empty(), "{text}"),
            JoinCriteria::On(condition) => panic!("{text}: {condition:?}"),
        }
    }
}

#[test]
fn lookups_pair_fields() {
    let found = parsed!(Lookup, "lookup hosts id as host, zone APPEND name as owner, rack");
    let pair = |pair: &LookupPair| (pair.lookup_field.path.clone(), pair.input_field.path.clone());
    assert_eq!(
        found.keys.iter().map(pair).collect::<Vec<_>>(),
        [("id".into(), "host".into()), ("zone".into(), "zone".into())]
    );
    let output = found.output.expect("output");
    assert_eq!(output.mode, LookupMode::Append);
    assert_eq!(output.fields.len(), 2);
}

#[test]
fn charts_have_a_row_and_a_column() {
    let split = |text| {
        let found = parsed!(Chart, text);
        (found.row.map(|split| split.field.path), found.column.map(|split| split.field.path))
    };
    let some = |name: &str| Some(name.to_owned());
    assert_eq!(split("chart count()"), (None, None));
    assert_eq!(split("chart count() over a"), (some("a"), None));
    assert_eq!(split("chart count() by a"), (some("a"), None));
    assert_eq!(split("chart count() over a by b"), (some("a"), some("b")));
    assert_eq!(split("chart count() by a span=10, b limit=3"), (some("a"), some("b")));
    assert_eq!(split("chart count() by a b"), (some("a"), some("b")));
    let found = parsed!(Chart, "chart limit=bottom3 count() over a useother=false nullstr='none'");
    assert_eq!(found.series.limit, Some(SeriesLimit::Bottom(3)));
    assert_eq!((found.series.useother, found.series.nullstr.as_deref()), (Some(false), Some("none")));
    let found = parsed!(Timechart, "timechart span=1h timefield=t avg(a) as x by host limit=2");
    assert_eq!(found.by.map(|field| field.path).as_deref(), Some("host"));
    assert_eq!(found.series.limit, Some(SeriesLimit::Top(2)));
}

#[test]
fn streams_have_windows_and_resets() {
    let found = parsed!(
        StreamStats,
        "streamstats current=false window=-1 global=false reset_before=a > 1 reset_after=(b = 2) avg(c) as d by e"
    );
    assert_eq!((found.current, found.window, found.global), (false, -1, false));
    assert_eq!(found.reset_before.map(|condition| condition.text).as_deref(), Some("a > 1"));
    assert_eq!(found.reset_after.map(|condition| condition.text).as_deref(), Some("(b = 2)"));
    assert_eq!(found.functions.len(), 1);
}

#[test]
fn texts_are_taken_apart() {
    let found = parsed!(Rex, "rex field=a.b max_match=3 \"(?<x>\\d+)\" offset_field=o mode=extract");
    assert_eq!((found.pattern.value.as_str(), found.max_match), ("(?<x>\\d+)", 3));
    assert_eq!(found.offset_field.map(|field| field.path).as_deref(), Some("o"));
    assert!(parsed!(Regex, "regex a!='x'").is_negated);
    let found = parsed!(Spath, "spath input=doc output=x a.b{0}.`c d`");
    assert_eq!(found.path.map(|path| path.path).as_deref(), Some("a.b{0}.c d"));
    let found = parsed!(
        Patterns,
        "patterns concat(a, b) by c method=brain mode=aggregation frequency_threshold_percentage=0.2"
    );
    assert_eq!((found.method, found.mode), (Some(PatternMethod::Brain), Some(PatternMode::Aggregation)));
    assert_eq!(found.frequency_threshold_percentage, Some(0.2));
    let found = parsed!(FieldFormat, "fieldformat a = 'x: '.tostring(b).' y', c = 'z'");
    assert_eq!(found.formats[0].prefix.as_ref().map(|text| text.value.as_str()), Some("x: "));
    assert_eq!(found.formats[0].value.expr.to_string(), "tostring(b)");
    assert_eq!(found.formats[0].suffix.as_ref().map(|text| text.value.as_str()), Some(" y"));
    assert!(matches!(found.formats[1].value.expr, Expr::Value(_)));
}

#[test]
fn nulls_are_filled_in_three_forms() {
    let FillNullCommand::One { fields, is_typed: false, .. } = parsed!(FillNull, "fillnull with 0 in a, b")
    else {
        panic!("with")
    };
    assert_eq!(paths(&fields), ["a", "b"]);
    let FillNullCommand::One { fields, is_typed: true, .. } = parsed!(FillNull, "fillnull value='x' a b")
    else {
        panic!("value")
    };
    assert_eq!(paths(&fields), ["a", "b"]);
    let FillNullCommand::Each(assignments) = parsed!(FillNull, "fillnull using a = 0, b = c + 1") else {
        panic!("using")
    };
    assert_eq!(assignments.len(), 2);
}

#[test]
fn brackets_say_where_their_rows_come_from() {
    let of = |text| match command(text) {
        CommandKind::Append(command) => command.pipeline.source,
        CommandKind::AppendCol(command) => command.pipeline.source,
        CommandKind::AppendPipe(command) => command.pipeline.source,
        other => panic!("{text}: {other:?}"),
    };
    assert!(matches!(of("append [ source=b | head 1 ]"), PipelineSource::Search(_)));
    assert!(matches!(of("append [ error source=b ]"), PipelineSource::Search(_)));
    assert!(matches!(of("append [ ]"), PipelineSource::Empty));
    assert!(matches!(of("append [ | where a = 1 ]"), PipelineSource::Empty));
    assert!(matches!(of("append [ where a = 1 | head ]"), PipelineSource::Empty));
    assert!(matches!(of("appendcol override=true [ stats count() ]"), PipelineSource::OuterSource));
    assert!(matches!(of("appendpipe [ stats count() | head 1 ]"), PipelineSource::Input));
}

#[test]
fn queries_begin_with_a_source() {
    for (text, is_right) in [
        (
            "describe a, b",
            (|source| matches!(source, PipelineSource::Describe(_))) as fn(&PipelineSource) -> bool,
        ),
        ("show datasources", |source| matches!(source, PipelineSource::ShowDatasources)),
        ("show errors source=a", |source| matches!(source, PipelineSource::Search(_))),
        ("makeresults count=3 | eval a = 1", |source| matches!(source, PipelineSource::MakeResults(_))),
        ("| multisearch [source=a] [search source=b]", |source| {
            matches!(source, PipelineSource::MultiSearch(_))
        }),
        ("| union maxout=5 [source=a], b c-*", |source| matches!(source, PipelineSource::Union(_))),
        ("graphLookup e start='x' edge=a-->b as c", |source| {
            matches!(source, PipelineSource::GraphLookup(_))
        }),
    ] {
        assert!(is_right(&pipeline(text).source), "{text}");
    }
    assert_eq!(parse("explain source=a").expect("explain").explain, Some(ExplainMode::Standard));
    assert_eq!(parse("EXPLAIN Cost source=a").expect("explain").explain, Some(ExplainMode::Cost));
    assert_eq!(parse("explain source=a | head").expect("explain").pipeline.commands.len(), 1);
}

#[test]
fn graphs_have_edges() {
    let found = parsed!(
        GraphLookup,
        "graphlookup emp start=boss edge=boss-id<->name maxDepth=3 depthField=lvl supportArray=true filter=(a > 1) as tree"
    );
    assert_eq!((found.from_field.path.as_str(), found.to_field.path.as_str()), ("boss-id", "name"));
    assert!(found.is_bidirectional && found.support_array && found.filter.is_some());
    assert_eq!((found.max_depth, found.output.path.as_str()), (3, "tree"));
    let found = parsed!(GraphLookup, "graphlookup emp start=boss edge=boss- --> name as tree");
    assert_eq!(found.from_field.path, "boss-");
    let found = parsed!(GraphLookup, "graphlookup emp start=('a', 'b') edge=boss-->name as tree");
    assert!(matches!(&found.start, GraphStart::Values(values) if values.len() == 2));
}

#[test]
fn spans_cover_each_command() {
    let text = "source=t  |  eval a = 1 , b = 2 | head 1 ";
    let found = pipeline(text);
    let texts: Vec<&str> = found.commands.iter().map(|command| command.span.text(text)).collect();
    assert_eq!(texts, ["eval a = 1 , b = 2", "head 1"]);
    assert_eq!(found.span.text(text), text.trim_end());
}

#[test]
fn placeholders_are_replaced_in_names_values_and_texts() {
    let found =
        parsed!(Foreach, "foreach fieldstr=F a_* [ eval <<MATCHSTR>>_x = F + <<F>> + f('<<F>>', `F`) ]");
    let field = ForeachPlaceholder {
        word: "F".to_owned(),
        expr: Expr::Identifier(sqlparser::ast::Ident::new("a_1")),
        text: "a_1".to_owned(),
    };
    let matched =
        ForeachPlaceholder { word: "<<MATCHSTR>>".to_owned(), text: "1".to_owned(), ..field.clone() };
    let placeholders = [field, matched];
    assert_eq!(found.assignments[0].substitute(&placeholders, &mut 50), None);
    let substituted = found.assignments[0].substitute(&placeholders, &mut 1_000).expect("a short assignment");
    assert_eq!(substituted.target, "1_x");
    assert_eq!(substituted.value.expr.to_string(), "a_1 + a_1 + f('a_1', `F`)");
}
