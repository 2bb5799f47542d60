//! Pipelines as a whole: the cases of `tests/cases.jsonl` have OpenSearch's answers.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::{IngestDocument, IngestPipeline, PipelineRun, PipelineSet, ProcessorError};

fn now() -> DateTime<Utc> {
    DateTime::parse_from_rfc3339("2026-11-29T20:14:56.734Z").unwrap().to_utc()
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        other => panic!("{other} is no object"),
    }
}

fn document(source: Value) -> IngestDocument {
    let metadata = [("_index", "_index".into()), ("_id", "_id".into())];
    IngestDocument::new(object(source), metadata, "2026-11-29T20:14:56.734Z".to_owned())
}

fn pipeline(processors: Value) -> Result<IngestPipeline, ProcessorError> {
    IngestPipeline::parse("p", &object(json!({ "processors": processors })))
}

/// Runs processors; the document, or `None` where it was dropped.
fn run(processors: Value, source: Value) -> Result<Option<Value>, ProcessorError> {
    let pipeline = pipeline(processors)?;
    let mut document = document(source);
    let pipelines = PipelineSet::default();
    let goes_on = PipelineRun::new(&pipelines, now()).execute(&pipeline, &mut document)?;
    Ok(goes_on.then(|| document.render()))
}

pub(crate) fn script(source: &str, fields: Value) -> Result<Value, ProcessorError> {
    let rendered = run(json!([{ "script": { "source": source } }]), fields)?;
    Ok(rendered.unwrap()["_source"].clone())
}

#[test]
fn user_agents_have_their_details() {
    let text = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_9_2) AppleWebKit/537.36 (KHTML, like Gecko) \
        Chrome/33.0.1750.149 Safari/537.36";
    let agent = |options: Value| {
        let mut options = options;
        options["field"] = json!("a");
        let shown = run(json!([{ "user_agent": options }]), json!({ "a": text }));
        shown.map(|shown| shown.unwrap()["_source"]["user_agent"].clone())
    };
    let os = json!({ "name": "Mac OS X", "version": "10.9.2", "full": "Mac OS X 10.9.2" });
    assert_eq!(agent(json!({ "properties": ["os"], "ecs": true })).unwrap(), json!({ "os": os }));
    let all = agent(json!({})).unwrap();
    let expected = json!({
        "name": "Chrome", "version": "33.0.1750.149", "os": os, "device": { "name": "Mac" }, "original": text,
    });
    assert_eq!(all, expected);
    let refused = agent(json!({ "properties": ["build"] })).unwrap_err();
    assert!(refused.reason().contains("illegal property value [build]"), "{}", refused.reason());
    let missing = json!([{ "user_agent": { "field": "b" } }]);
    assert!(run(missing, json!({})).unwrap_err().reason().contains("[b]"));
    let ignored = json!([{ "user_agent": { "field": "b", "ignore_missing": true } }]);
    assert_eq!(run(ignored, json!({})).unwrap().unwrap()["_source"], json!({}));
}

#[test]
fn a_geo_database_that_is_not_there_is_refused() {
    let refused =
        pipeline(json!([{ "geoip": { "field": "ip", "database_file": "None.mmdb" } }])).unwrap_err();
    assert!(refused.reason().contains("database file [None.mmdb] doesn't exist"), "{}", refused.reason());
}

#[test]
fn a_geo_database_of_elasticsearch_may_come_later() {
    for file in [json!(null), json!("GeoLite2-ASN.mmdb")] {
        assert!(pipeline(json!([{ "geoip": { "field": "ip", "database_file": file } }])).is_ok());
    }
}

#[test]
fn set_copies_fields() {
    let set = |options: Value, source: Value| {
        let mut options = options;
        options["field"] = json!("b");
        Ok::<_, ProcessorError>(run(json!([{ "set": options }]), source)?.unwrap()["_source"].clone())
    };
    let shown = set(json!({ "copy_from": "a.x" }), json!({ "a": { "x": [1, { "y": 2 }] } })).unwrap();
    assert_eq!(shown["b"], json!([1, { "y": 2 }]));
    let ignoring = json!({ "copy_from": "z", "ignore_empty_value": true });
    assert_eq!(set(ignoring, json!({ "a": 1 })).unwrap(), json!({ "a": 1 }));
    for (options, reason) in [
        (json!({ "copy_from": "a", "value": 1 }), "cannot set both"),
        (json!({ "copy_from": "z" }), "[z] not present"),
    ] {
        let error = set(options, json!({ "a": 1 })).unwrap_err();
        assert!(error.reason().contains(reason), "{error}");
    }
}

#[test]
fn cases_have_the_answers_of_opensearch() {
    let mut wrong = Vec::new();
    for (number, line) in include_str!("../tests/cases.jsonl").lines().enumerate() {
        let case: Value = serde_json::from_str(line).unwrap();
        let compiled = pipeline(case["processors"].clone());
        let found = match (compiled, case.get("refusal")) {
            (Err(error), Some(_)) => json!({ "refusal": { "type": error.kind(), "reason": error.reason() } }),
            (Err(error), None) => json!({ "refused": error.reason() }),
            (Ok(_), _) => match run(case["processors"].clone(), case["source"].clone()) {
                Err(error) => json!({ "failure": { "type": error.kind(), "reason": error.reason() } }),
                Ok(shown) => {
                    let shown = shown.unwrap();
                    let mut found = json!({ "expected": shown["_source"] });
                    if let Some(metadata) = case.get("metadata").and_then(Value::as_object) {
                        let members = metadata.keys().map(|name| (name.clone(), shown[name].clone()));
                        found["metadata"] = Value::Object(members.collect());
                    }
                    found
                }
            },
        };
        let mut expected = object(case.clone());
        expected.retain(|name, _| name != "processors" && name != "source");
        if found != Value::Object(expected.clone()) {
            wrong.push(format!("{}: {line}\n    found {found}", number + 1));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn grok_has_the_patterns_of_opensearch() {
    let patterns = crate::grok_patterns().unwrap();
    assert_eq!(patterns.len(), 312);
    assert_eq!(patterns["PATH"], "(?:%{UNIXPATH}|%{WINPATH})");
}

#[test]
fn the_leftmost_match_of_grok_counts() {
    let grok = json!({ "grok": {
        "field": "t", "patterns": ["%{INT:b} x", "%{WORD:a} %{INT:b} x"], "trace_match": true
    } });
    let shown = run(json!([grok]), json!({ "t": "http 15 x" })).unwrap().unwrap();
    assert_eq!(shown["_source"], json!({ "t": "http 15 x", "a": "http", "b": "15" }));
    assert_eq!(shown["_ingest"]["_grok_match_index"], "1");
}

#[test]
fn splitting_drops_empty_parts_at_the_end() {
    for (text, parts) in
        [("|", json!([])), ("", json!([""])), ("a||", json!(["a"])), ("|a", json!(["", "a"]))]
    {
        let split = json!({ "split": { "field": "t", "separator": "\\|" } });
        assert_eq!(
            run(json!([split]), json!({ "t": text })).unwrap().unwrap()["_source"]["t"],
            parts,
            "{text}"
        );
    }
}

#[test]
fn scripts_change_fields() {
    for (source, fields, expected) in [
        (
            "ctx.l.add(5); ctx.m.put('k', 1); ctx.s = ctx.a.substring(1).toUpperCase() + ctx.l.size(); \
             ctx.remove('a'); for (def x : ctx.l) { ctx.t += x } if (ctx.q == null) { ctx.n = 1 } else { ctx.n = 2 }",
            json!({"a": "xyz", "l": [1], "m": {}, "t": 0}),
            json!({"s": "YZ2", "t": 6, "l": [1, 5], "m": {"k": 1}, "n": 1}),
        ),
        (
            "def tags = new ArrayList(); ctx.tags = tags; tags.add('x'); tags.add('y')",
            json!({}),
            json!({"tags": ["x", "y"]}),
        ),
        (
            "ctx.n = 7 / 2; ctx.d = 7 / 2.0; ctx.r = 7 % 4; ctx.s = 1 + 'a' + null",
            json!({}),
            json!({"n": 3, "d": 3.5, "r": 3, "s": "1anull"}),
        ),
        (
            "def m = ['a': 1, 'b': [1, 2]]; ctx.m = m; m.b[0] = 9; ctx.k = m.keySet()",
            json!({}),
            json!({"m": {"a": 1, "b": [9, 2]}, "k": ["a", "b"]}),
        ),
        ("int i = 0; while (true) { i++; if (i > 4) { break } } ctx.i = i", json!({}), json!({"i": 5})),
        ("for (int i = 0; i < 3; i++) { ctx['f' + i] = i }", json!({}), json!({"f0": 0, "f1": 1, "f2": 2})),
        (
            "for (entry in ctx.m.entrySet()) { ctx[entry.getKey()] = entry.value } ctx.remove('m')",
            json!({"m": {"x": 1, "y": {"z": 2}}}),
            json!({"x": 1, "y": {"z": 2}}),
        ),
        (
            "ctx.a = ctx.b?.c?.d ?: 'none'; ctx.e = ctx.x instanceof String ? 'text' : 'other'",
            json!({"x": "s"}),
            json!({"x": "s", "a": "none", "e": "text"}),
        ),
        (
            "ctx.p = ctx.path.splitOnToken('/'); ctx.last = ctx.p[ctx.p.length - 1]; ctx.u = Processors.uppercase(ctx.last)",
            json!({"path": "a/b/c"}),
            json!({"path": "a/b/c", "p": ["a", "b", "c"], "last": "c", "u": "C"}),
        ),
        (
            "Processors.json(ctx, 'j'); ctx.b = Processors.bytes('1kb')",
            json!({"j": "{\"q\":1}"}),
            json!({"j": "{\"q\":1}", "q": 1, "b": 1024}),
        ),
        (
            "if (ctx.a == 1 && !(ctx.b == 2) || false) { ctx.c = Math.max(1, 2) } return; ctx.d = 1",
            json!({"a": 1}),
            json!({"a": 1, "c": 2}),
        ),
    ] {
        assert_eq!(script(source, fields).unwrap(), expected, "{source}");
    }
}

#[test]
fn variables_outlive_what_they_were_read_from() {
    for (source, fields, expected) in [
        (
            "def u = ctx.user; ctx.remove('user'); u.id = 2; ctx.person = u; u.id = 3",
            json!({"user": {"id": 1}}),
            json!({"person": {"id": 3}}),
        ),
        (
            "def u = ctx.user; def n = u.name; ctx.user = 'x'; n.first = 'b'; ctx.person = u",
            json!({"user": {"name": {"first": "a"}}}),
            json!({"user": "x", "person": {"name": {"first": "b"}}}),
        ),
        (
            "def a = ctx.l[0]; def c = ctx.l[2]; ctx.l.remove(0); c.k = 9; a.k = 8; ctx.l.add(0, 'first'); c.m = 1; ctx.a = a",
            json!({"l": [{"k": 1}, {"k": 2}, {"k": 3}]}),
            json!({"l": ["first", {"k": 2}, {"k": 9, "m": 1}], "a": {"k": 8}}),
        ),
        (
            "def a = ctx.l[0]; def l = ctx.l; l.clear(); l.add(a)",
            json!({"l": [{"k": 1}]}),
            json!({"l": [{"k": 1}]}),
        ),
        (
            "def a = ctx.m.a; ctx.m.putAll(params.p); ctx.a = a; def r = ['b': 1]; ctx.r = r; ctx.r = r; r.c = 2",
            json!({"m": {"a": {"k": 1}}}),
            json!({"m": {"a": 5}, "a": {"k": 1}, "r": {"b": 1, "c": 2}}),
        ),
        (
            "def a = ctx.m.a; Processors.json(ctx, 'j'); ctx.a = a; def t = []; ctx.t = t; ctx.t = 1; t.add(2); ctx.u = t",
            json!({"m": {"a": {"k": 1}}, "j": "{\"m\": 0}"}),
            json!({"m": 0, "j": "{\"m\": 0}", "a": {"k": 1}, "t": 1, "u": [2]}),
        ),
    ] {
        let processor = json!({ "script": { "source": source, "params": {"p": {"a": 5}} } });
        let shown = run(json!([processor]), fields).unwrap().unwrap();
        assert_eq!(shown["_source"], expected, "{source}");
    }
}

#[test]
fn values_stay_shallow_and_short() {
    let chain = |depth: usize, inner: Value| (0..depth).fold(inner, |value, _| json!({ "x": value }));
    let path = format!("{0}; m = m{0}; m = m{0}", ".x".repeat(20));
    for grow in [
        format!("m.putAll(params.p); m = m{path}"),
        format!("m.x = []; m.x.add(params.p); m = m.x[0]{path}"),
        format!("m.x = []; m.x.addAll(params.l); m = m.x[0]{path}"),
        format!("m.j = params.j; Processors.json(m, 'j'); m = m{path}"),
    ] {
        let source = format!("def m = ctx; for (int i = 0; i < 1500; i++) {{ {grow} }}");
        let params = json!({"p": chain(60, json!({})), "l": [chain(60, json!({}))], "j": chain(60, json!({})).to_string()});
        let error =
            run(json!([{ "script": { "source": source, "params": params } }]), json!({})).unwrap_err();
        let (_, cause) = error.cause().unwrap_or((error.kind(), error.reason()));
        assert!(cause.contains("nested deeper"), "{source}: {error} {cause}");
    }
    let list = vec![json!("a"); 3_000];
    let separator = "-".repeat(100_000);
    for processor in [
        json!({ "join": { "field": "l", "separator": separator } }),
        json!({ "script": { "source": "ctx.a = String.join(params.s, ctx.l)", "params": { "s": separator } } }),
        json!({ "json": { "field": "t" } }),
        json!({ "split": { "field": "t", "separator": "," } }),
        json!({ "script": { "source": "ctx.a = Processors.json(ctx.t)" } }),
        json!({ "script": { "source": "ctx.a = ctx.t.splitOnToken(',')" } }),
    ] {
        let text = format!("[1{}]", ",1".repeat(2_200_000));
        let error = run(json!([processor]), json!({ "l": list, "t": text })).unwrap_err();
        assert!(error.reason().contains("more than"), "{error}");
    }
    let reading = "for (int i = 0; i < 5000; i++) { def a = ctx.t }";
    let error = script(reading, json!({ "t": "x".repeat(1 << 20) })).unwrap_err();
    assert!(error.reason().contains("read more than"), "{error}");
    let counting = "int n = 0; for (int i = 0; i < ctx.t.length(); i++) { if (ctx.t.charAt(i) == 'x') { n++ } } ctx.t = n";
    assert_eq!(script(counting, json!({ "t": "x".repeat(8_000) })).unwrap(), json!({ "t": 8_000 }));
}

#[test]
fn appending_costs_only_the_new_values() {
    let append = json!({ "append": { "field": "l", "value": ["a", "b", "c"] } });
    let unique = json!({ "append": { "field": "l", "value": ["a", "b", "c"], "allow_duplicates": false } });
    let big = json!({ "l": ["x".repeat(1 << 20)] });
    let shown = run(vec![append; 200].into(), big).unwrap().unwrap();
    assert_eq!(shown["_source"]["l"].as_array().unwrap().len(), 601);
    let shown = run(vec![unique; 3].into(), json!({ "l": "b" })).unwrap().unwrap();
    assert_eq!(shown["_source"], json!({ "l": ["b", "a", "c"] }));
}

#[test]
fn what_scripts_cannot_do_is_named() {
    for (source, reason) in [
        ("ctx.a = foo()", "Unknown call [foo] with [0] arguments."),
        ("if (true) { def f(int x) { return x } }", "[f] must stand outside"),
        ("ctx.l.sort((x, y) -> x - y)", "the method [sort] is not supported"),
        ("ctx.l.add(x -> x)", "the method [add] with a lambda"),
        ("ctx.a = ctx.l.stream().findFirst()", "the method [findFirst] is not supported"),
        ("new TreeMap()", "[new TreeMap] is not supported"),
        ("def x = 1; def f = x -> x", "[->] is supported only"),
        ("ctx.a =~ /(/", "is not a regular expression"),
        ("int f() { return ctx.a } f()", "cannot resolve symbol [ctx]"),
        ("Frob x = 1", "Not a type [Frob]."),
        ("ctx.a ===", "unexpected end of script."),
        ("new Date()", "[new Date] is not supported"),
        ("System.exit(1)", "[System.exit] is not supported"),
        ("throw 1", "[throw] takes [new Exception(message)]"),
        ("do { } while (true)", "[do] is not supported"),
        ("def ctx = 1", "is already defined"),
    ] {
        let error = pipeline(json!([{ "script": { "source": source } }])).unwrap_err();
        assert_eq!(error.kind(), "script_exception", "{source}");
        let (_, cause) = error.cause().unwrap();
        assert!(cause.contains(reason), "{source}: {cause}");
        assert!(error.members().iter().any(|(name, _)| *name == "position"), "{source}");
    }
    let long = format!("ctx.a = 0{}; ctx.b = ctx.a == 1{}", " + 1".repeat(5_000), " || true".repeat(2_000));
    assert_eq!(script(&long, json!({})).unwrap(), json!({"a": 5_000, "b": true}));
    let mut nested = "1".to_owned();
    for _ in 0..25 {
        nested = format!("({nested} + 1 - 1) * 1 == 1 && true || false ? 1 : 2");
    }
    let _ = script(&format!("ctx.a = {nested}"), json!({}));
    let deep = format!("ctx.a = {}1{}", "(".repeat(5_000), ")".repeat(5_000));
    assert!(pipeline(json!([{ "script": { "source": deep } }])).is_err());
}

#[test]
fn failures_of_scripts_have_a_position() {
    for (source, kind) in [
        ("ctx.b = ctx.a.x", "illegal_argument_exception"),
        ("ctx.b = ctx.z.x", "null_pointer_exception"),
        ("ctx.b = ctx.a - 'x'", "class_cast_exception"),
        ("ctx.b = 1 / 0", "arithmetic_exception"),
        ("ctx.b = [1][3]", "index_out_of_bounds_exception"),
        ("ctx.b = 'x'.frobnicate()", "illegal_argument_exception"),
        ("params.x = 1", "unsupported_operation_exception"),
    ] {
        let error = script(source, json!({"a": 1})).unwrap_err();
        assert_eq!(error.cause().unwrap().0, kind, "{source}");
    }
}

#[test]
fn work_is_bounded() {
    for source in [
        "while (true) { }",
        "def s = 'x'; while (true) { s += s }",
        "def l = [1]; while (true) { l.addAll(l) }",
        "ctx.a = [:]; for (;;) { ctx.a = ['x': ctx.a] }",
    ] {
        let error = script(source, json!({})).unwrap_err();
        assert_eq!(error.status(), 400, "{source}: {error}");
    }
    let doubling = json!({ "set": { "field": "a", "value": "{{a}}{{a}}" } });
    let error = run(vec![doubling; 64].into(), json!({"a": "x"})).unwrap_err();
    assert!(error.reason().contains("bytes"), "{error}");
    let nesting = json!({ "copy": { "source_field": "a", "target_field": "a.x", "override_target": true } });
    let error = run(vec![nesting; 120].into(), json!({"a": {}})).unwrap_err();
    assert!(error.reason().contains("nested deeper"), "{error}");
    let mut nested = json!({ "set": { "field": "a", "value": 1 } });
    for _ in 0..30 {
        nested = json!({ "foreach": { "field": "a", "processor": nested } });
    }
    assert!(pipeline(json!([nested])).is_err());
    assert!(pipeline(vec![json!({ "drop": {} }); 1_001].into()).is_err());
    let grok = json!({ "grok": { "field": "a", "patterns": vec!["a"; 900] } });
    let error = pipeline(vec![grok; 3].into()).unwrap_err();
    assert!(error.reason().contains("2000 patterns"), "{error}");
    let mut pipelines = PipelineSet::default();
    for number in 0..30 {
        let mut failing = json!({ "pipeline": { "name": (number + 1).to_string() } });
        for _ in 0..10 {
            failing = json!({ "fail": { "message": "x", "on_failure": [failing] } });
        }
        let definition = object(json!({ "processors": [failing] }));
        pipelines.insert(Arc::new(IngestPipeline::parse(&number.to_string(), &definition).unwrap()));
    }
    let first = Arc::clone(pipelines.get("0").unwrap());
    let mut document = document(json!({}));
    let error = PipelineRun::new(&pipelines, now()).execute(&first, &mut document).unwrap_err();
    assert!(error.reason().contains("within one another"), "{error}");
}

#[test]
fn conditions_decide_and_change_nothing() {
    let set = |condition: &str| json!([{ "set": { "if": condition, "field": "b", "value": 1 } }]);
    let shown = run(set("ctx.a == 'x'"), json!({"a": "x"})).unwrap().unwrap();
    assert_eq!(shown["_source"], json!({"a": "x", "b": 1}));
    let shown = run(set("ctx.a != null && ctx.a.startsWith('y')"), json!({"a": "x"})).unwrap().unwrap();
    assert_eq!(shown["_source"], json!({"a": "x"}));
    for condition in ["ctx.a > 1", "ctx.a", "ctx.remove('a')"] {
        assert!(run(set(condition), json!({"a": "x"})).is_err(), "{condition}");
    }
    assert_eq!(run(json!([{ "drop": { "if": "ctx?.a?.b == 1" } }]), json!({"a": {"b": 1}})).unwrap(), None);
}

#[test]
fn failures_are_handled() {
    let value = "{{_ingest.on_failure_message}}|{{_ingest.on_failure_processor_type}}|{{_ingest.on_failure_processor_tag}}";
    let failing = json!({ "rename": { "field": "z", "target_field": "y", "tag": "T" } });
    let mut handled = failing.clone();
    handled["rename"]["on_failure"] = json!([{ "set": { "field": "e", "value": value } }]);
    let shown = run(json!([handled, { "set": { "field": "b", "value": 1 } }]), json!({})).unwrap().unwrap();
    assert_eq!(shown["_source"], json!({"e": "field [z] doesn't exist|rename|T", "b": 1}));
    assert_eq!(shown["_ingest"], json!({"timestamp": "2026-11-29T20:14:56.734Z"}));
    let mut ignored = failing.clone();
    ignored["rename"]["ignore_failure"] = true.into();
    assert!(run(json!([ignored]), json!({})).is_ok());
    assert_eq!(run(json!([failing]), json!({})).unwrap_err().reason(), "field [z] doesn't exist");
    let dropping = json!([{ "fail": { "message": "m {{a}}", "on_failure": [{ "drop": {} }] } }]);
    assert_eq!(run(dropping, json!({"a": 1})).unwrap(), None);
    let whole = json!({
        "processors": [{ "fail": { "message": "x" } }, { "set": { "field": "never", "value": 1 } }],
        "on_failure": [{ "set": { "field": "failed", "value": true } }]
    });
    let pipeline = IngestPipeline::parse("p", &object(whole)).unwrap();
    let (mut failed, pipelines) = (document(json!({})), PipelineSet::default());
    assert!(PipelineRun::new(&pipelines, now()).execute(&pipeline, &mut failed).unwrap());
    assert_eq!(failed.render()["_source"], json!({"failed": true}));
    assert_eq!((pipeline.counters().figures().count, pipeline.counters().figures().failed), (1, 0));
}

#[test]
fn pipelines_call_one_another() {
    let append = json!({ "append": { "field": "p", "value": "{{_ingest.pipeline}}" } });
    let mut pipelines = PipelineSet::default();
    for (id, next) in [("one", "two"), ("two", "three"), ("three", "none"), ("loop", "loop")] {
        let call = json!({ "pipeline": { "name": next, "ignore_missing_pipeline": next == "none" } });
        let definition = object(json!({ "processors": [append.clone(), call] }));
        pipelines.insert(Arc::new(IngestPipeline::parse(id, &definition).unwrap()));
    }
    let mut called = document(json!({}));
    let one = Arc::clone(pipelines.get("one").unwrap());
    let mut run = PipelineRun::new(&pipelines, now()).with_reports();
    assert!(run.execute(&one, &mut called).unwrap());
    assert_eq!(called.render()["_source"], json!({"p": ["one", "two", "three"]}));
    let reports: Vec<Value> = run.into_reports().into_iter().map(|report| report.render()).collect();
    let kinds: Vec<_> = reports.iter().map(|report| report["processor_type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["append", "pipeline", "append", "pipeline", "append", "pipeline"]);
    let again = Arc::clone(pipelines.get("loop").unwrap());
    let error = PipelineRun::new(&pipelines, now()).execute(&again, &mut called).unwrap_err();
    assert_eq!(error.reason(), "Cycle detected for pipeline: loop");
}

proptest! {
    #[test]
    fn no_script_panics(source in "(ctx|\\.|a|\\[|\\]|\\(|\\)|1|'x'|\\+|=|;|if|for|def|\\{|\\}| |:|\\?|==|null|size|add){0,40}") {
        if let Ok(pipeline) = pipeline(json!([{ "script": { "source": source } }])) {
            let pipelines = PipelineSet::default();
            let mut document = document(json!({"a": {"a": [1, "x"]}}));
            let _ = PipelineRun::new(&pipelines, now()).execute(&pipeline, &mut document);
        }
    }

    #[test]
    fn no_script_with_lambdas_panics(source in "(ctx|\\.a|\\.values\\(\\)|\\.entrySet\\(\\)|\\.iterator\\(\\)|\\.next\\(\\)|\\.remove\\(\\)|\\.removeIf\\(|\\.forEach\\(|\\.stream\\(\\)|\\.map\\(|v->|\\(k,v\\)->|v|k|\\)|;|\\{|\\}|def f\\(def v\\)|f\\(v\\)|f\\(ctx\\)|return |try|catch\\(Exception v\\)|/a/|=~|==|\\(char\\)|'x'|1|>>|&|~|,|def k=|for\\(k in ){0,30}") {
        if let Ok(pipeline) = pipeline(json!([{ "script": { "source": source } }])) {
            let pipelines = PipelineSet::default();
            let mut document = document(json!({"a": {"a": [1, "x", {"a": null}]}}));
            let _ = PipelineRun::new(&pipelines, now()).execute(&pipeline, &mut document);
        }
    }

    #[test]
    fn no_processor_panics(text in "\\PC{0,30}", pattern in "[a-c%{}+?&*/0-9> ,\\-]{0,30}") {
        for processor in [
            json!({ "dissect": { "field": "a", "pattern": pattern } }),
            json!({ "csv": { "field": "a", "target_fields": ["x", "y"] } }),
            json!({ "kv": { "field": "a", "field_split": "[ ,]", "value_split": "=|" } }),
            json!({ "urldecode": { "field": "a" } }),
            json!({ "bytes": { "field": "a" } }),
            json!({ "json": { "field": "a" } }),
            json!({ "set": { "field": "b", "value": pattern } }),
            json!({ "date": { "field": "a", "formats": ["ISO8601", "UNIX", "yyyy-MM-dd", "TAI64N"] } }),
        ] {
            let _ = run(json!([processor]), json!({ "a": text }));
        }
    }
}
