//! Columns, new fields and refusals of documents; and properties over arbitrary input.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Int64Type, TimestampMillisecondType};
use millrace_runtime::Error;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::mapping::Mapping;

fn mapping_with(body: Value, settings: Value) -> Arc<Mapping> {
    let settings = settings.as_object().cloned().unwrap_or_default();
    Arc::new(Mapping::parse(&body, &settings).unwrap_or_else(|error| panic!("{body}: {error}")))
}

fn mapping(properties: Value) -> Arc<Mapping> {
    mapping_with(json!({ "properties": properties }), json!({}))
}

/// Values of a chunk as JSON: path -> list of (row, value).
fn shown(chunk: &Chunk, mapping: &Mapping) -> Value {
    let mut columns = BTreeMap::new();
    for column in &chunk.columns {
        let values: Vec<Value> = (0..column.rows.len())
            .map(|at| match &column.values {
                Values::Str(strings) => json!(String::from_utf8_lossy(strings.value(at))),
                Values::I64(values) => json!(values[at]),
                Values::U64(values) => json!(values[at]),
                Values::F64(values) => json!(values[at]),
                Values::Bool(values) => json!(values[at]),
                Values::Ip(values) => json!(std::net::Ipv6Addr::from(values[at]).to_string()),
                Values::GeoPoint(values) => json!(values[at]),
            })
            .collect();
        let path = mapping.field_by_id(column.id).unwrap().path.to_string();
        let rows: Vec<u32> = column.rows.clone();
        columns.insert(
            path,
            if rows.iter().all(|row| *row == 0) { json!(values) } else { json!([rows, values]) },
        );
    }
    json!(columns)
}

fn push_one(mapping: &Arc<Mapping>, source: &str) -> Result<(Chunk, Arc<Mapping>), Error> {
    let mut builder = ChunkBuilder::new(mapping.clone());
    builder.push("1", source.as_bytes())?;
    Ok(builder.finish())
}

#[test]
fn values_by_type() {
    let cases = [
        (json!({"type": "keyword"}), r#""a""#, json!(["a"])),
        (
            json!({"type": "keyword"}),
            r#"[1.50, true, null, "x", ["y"], []]"#,
            json!(["1.50", "true", "x", "y"]),
        ),
        (json!({"type": "keyword", "null_value": "N"}), "null", json!(["N"])),
        (json!({"type": "keyword"}), r#""a\u00e9\n""#, json!(["aé\n"])),
        (json!({"type": "wildcard"}), r#""a""#, json!(["a"])),
        (json!({"type": "text"}), r#"["Hello World", 5]"#, json!(["Hello World", "5"])),
        (json!({"type": "match_only_text"}), r#""x""#, json!(["x"])),
        (
            json!({"type": "long"}),
            r#"[5, "5", 5.7, "-5.7", 1e3, -9223372036854775808, ""]"#,
            json!([5, 5, 5, -5, 1000, i64::MIN]),
        ),
        (json!({"type": "byte"}), "[-128, 127]", json!([-128, 127])),
        (json!({"type": "unsigned_long"}), r#"[18446744073709551615, "7"]"#, json!([u64::MAX, 7])),
        (json!({"type": "float"}), r#"[0.1, "2.5"]"#, json!([f64::from(0.1f32), 2.5])),
        (json!({"type": "half_float"}), "0.1", json!([0.0999755859375])),
        (json!({"type": "double"}), r#"[0.1, 3, "1e2"]"#, json!([0.1, 3.0, 100.0])),
        (json!({"type": "scaled_float", "scaling_factor": 100}), "[1.239, -1.125]", json!([1.24, -1.12])),
        (json!({"type": "boolean"}), r#"[true, "false", ""]"#, json!([true, false, false])),
        (json!({"type": "date"}), r#"["1970-01-01T00:00:01Z", 7, "8"]"#, json!([1000, 7, 8])),
        (
            json!({"type": "date", "format": "dd/MMM/yyyy:HH:mm:ss Z"}),
            r#""10/Oct/2000:13:55:36 -0700""#,
            json!([971211336000i64]),
        ),
        (json!({"type": "date_nanos"}), r#""1970-01-01T00:00:00.000000005Z""#, json!([5])),
        (json!({"type": "ip"}), r#"["10.0.0.1", "::1"]"#, json!(["::ffff:10.0.0.1", "::1"])),
        (json!({"type": "geo_point"}), r#"{"lat": 1.5, "lon": "2"}"#, json!([[1.5, 2.0]])),
        (json!({"type": "geo_point"}), "[2, 1]", json!([[1.0, 2.0]])),
        (
            json!({"type": "geo_point"}),
            r#"["1,2", "POINT (2 1)", {"type": "Point", "coordinates": [2, 1]}, [2, 1, 9]]"#,
            json!([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0]]),
        ),
        (json!({"type": "geo_point"}), r#""u""#, json!([[45.0, 0.0]])),
        (json!({"type": "binary", "doc_values": true}), r#""aGk=""#, json!(["aGk="])),
        (
            json!({"type": "flat_object"}),
            r#"{"a": {"b": ["x", 1]}, "c": null}"#,
            json!(["a.b=x", "=x", "a.b=1", "=1"]),
        ),
        (json!({"type": "long", "ignore_malformed": true}), r#"["x", 3]"#, json!([3])),
    ];
    for (field, value, expected) in cases {
        let mapping = mapping(json!({ "f": field }));
        let (chunk, after) = push_one(&mapping, &format!(r#"{{"f": {value}}}"#))
            .unwrap_or_else(|error| panic!("{field} {value}: {error}"));
        assert_eq!(shown(&chunk, &mapping)["f"], expected, "{field} {value}");
        assert!(Arc::ptr_eq(&mapping, &after));
    }
}

#[test]
fn misfits_are_refused_in_opensearch_words() {
    let cases = [
        (json!({"type": "long"}), r#""abc""#, "illegal_argument_exception", "For input string: \"abc\""),
        (json!({"type": "integer"}), r#""abc""#, "number_format_exception", "For input string: \"abc\""),
        (
            json!({"type": "byte"}),
            "300",
            "illegal_argument_exception",
            "Value [300] is out of range for a byte",
        ),
        (
            json!({"type": "short"}),
            "\"40000\"",
            "illegal_argument_exception",
            "Value [40000] is out of range for a short",
        ),
        (json!({"type": "long"}), "9223372036854775808", "input_coercion_exception", "out of range of long"),
        (
            json!({"type": "long", "coerce": false}),
            "\"5\"",
            "illegal_argument_exception",
            "Long value passed as String",
        ),
        (
            json!({"type": "integer", "coerce": false}),
            "5.5",
            "illegal_argument_exception",
            "5.5 cannot be converted to Integer without data loss",
        ),
        (
            json!({"type": "unsigned_long"}),
            "-1",
            "illegal_argument_exception",
            "Value [-1] is out of range for an unsigned long",
        ),
        (
            json!({"type": "float"}),
            "1e300",
            "illegal_argument_exception",
            "[float] supports only finite values, but got [Infinity]",
        ),
        (json!({"type": "long"}), "true", "json_parse_exception", "not numeric"),
        (
            json!({"type": "long"}),
            r#"{"a": [1, "b"]}"#,
            "illegal_argument_exception",
            "Cannot parse object as number",
        ),
        (
            json!({"type": "keyword"}),
            r#"{"a": 1}"#,
            "illegal_state_exception",
            "Can't get text on a START_OBJECT at 1:7",
        ),
        (
            json!({"type": "boolean"}),
            "\"yes\"",
            "illegal_argument_exception",
            "Failed to parse value [yes] as only [true] or [false] are allowed.",
        ),
        (
            json!({"type": "date"}),
            "\"abc\"",
            "illegal_argument_exception",
            "failed to parse date field [abc] with format [strict_date_optional_time||epoch_millis]",
        ),
        (
            json!({"type": "ip"}),
            "\"1.2.3\"",
            "illegal_argument_exception",
            "'1.2.3' is not an IP string literal.",
        ),
        (
            json!({"type": "geo_point"}),
            r#"{"lat": 91, "lon": 0}"#,
            "illegal_argument_exception",
            "illegal latitude value [91.0] for f",
        ),
        (json!({"type": "geo_point"}), r#"{"lat": 9}"#, "parse_exception", "field [lon] missing"),
        (json!({"type": "geo_point"}), "5", "parse_exception", "geo_point expected"),
        (
            json!({"type": "flat_object"}),
            "5",
            "parsing_exception",
            "[f] unexpected token [VALUE_NUMBER] in flat_object field value",
        ),
        (
            json!({"type": "constant_keyword", "value": "v"}),
            "\"w\"",
            "illegal_argument_exception",
            "constant keyword field [f] must have a value of [v]",
        ),
        (json!({"type": "binary", "doc_values": true}), "\"***\"", "json_parse_exception", "base64"),
    ];
    for (field, value, kind, reason) in cases {
        let mapping = mapping(json!({ "f": field }));
        let Err(Error::MapperParsing { reason: outer, caused_by: Some((k, r)) }) =
            push_one(&mapping, &format!(r#"{{"f": {value}}}"#))
        else {
            panic!("{field} {value} is let through");
        };
        let type_name = field["type"].as_str().unwrap();
        let prefix = format!(
            "failed to parse field [f] of type [{type_name}] in document with id '1'. Preview of field's value: '"
        );
        assert!(outer.starts_with(&prefix), "{outer}");
        assert_eq!(k, kind, "{field} {value}: {r}");
        assert!(r.contains(reason), "{field} {value}: {r}");
    }
    let long = mapping(json!({"n": {"type": "long"}}));
    let error = push_one(&long, r#"{"n": {"a": [1, "b"]}}"#).unwrap_err();
    assert!(error.to_string().ends_with("value: '{a=[1, b]}'"), "{error}");
}

#[test]
fn documents_that_are_refused_whole() {
    let mapping = mapping_with(
        json!({"properties": {
            "o": {"properties": {"s": {"type": "long"}}}, "al": {"type": "alias", "path": "k"}, "k": {"type": "keyword"},
            "strict": {"dynamic": "strict", "properties": {}}, "off": {"enabled": false}, "ne": {"type": "nested"}, "fl": {"type": "flat_object"},
            "loose": {"dynamic": false, "properties": {}},
        }}),
        json!({"index.mapping.nested_objects.limit": "2"}),
    );
    let deep = format!("{{\"off\":{}{}}}", "[".repeat(1001), "]".repeat(1001));
    let cases: &[(&str, &str, &str)] = &[
        ("", "failed to parse, document is empty", ""),
        ("[1]", "Malformed content, must start with an object", ""),
        ("{", "failed to parse", "Unexpected end-of-input"),
        ("{} {}", "failed to parse", "Malformed content, found extra data after parsing: START_OBJECT"),
        ("{}}", "failed to parse", "Unexpected character ('}')"),
        (r#"{"k": 01}"#, "failed to parse", "invalid number"),
        (r#"{"k": "a}"#, "failed to parse", "Unexpected end-of-input"),
        (r#"{"k": NaN}"#, "failed to parse", "Unexpected character"),
        (r#"{"k": 1, "k": 2}"#, "failed to parse", "Duplicate field 'k'"),
        (r#"{"x": 1, "x": 2}"#, "failed to parse", "Duplicate field 'x'"),
        (r#"{"o.s": 1, "o.s": 2}"#, "failed to parse", "Duplicate field 'o.s'"),
        (r#"{"loose": {"a": 1, "a": 2}}"#, "failed to parse", "Duplicate field 'a'"),
        (r#"{"off": {"b": [{"a": 1, "b": 1, "a": 2}]}}"#, "failed to parse", "Duplicate field 'a'"),
        (r#"{"fl": {"a": {"b": 1, "b": 2}}}"#, "failed to parse", "Duplicate field 'b'"),
        (r#"{"": 1}"#, "failed to parse", "field name cannot be an empty string"),
        (r#"{"a..b": 1}"#, "failed to parse", "makes object resolution ambiguous: [a..b]"),
        (r#"{"a. .b": 1}"#, "failed to parse", "object field cannot contain only whitespace: ['a. .b']"),
        (r#"{".": 1}"#, "failed to parse", "field name cannot contain only the character [.]"),
        (r#"{"al": 1}"#, "failed to parse", "Cannot write to a field alias [al]."),
        (r#"{"_id": 1}"#, "Field [_id] is a metadata field and cannot be added inside a document.", ""),
        (
            r#"{"o": 1}"#,
            "object mapping for [o] tried to parse field [o] as object, but found a concrete value",
            "",
        ),
        (
            r#"{"k.x": 1}"#,
            "Could not dynamically add mapping for field [k.x]. Existing mapping for [k] must be of type object but found [keyword].",
            "",
        ),
        (r#"{"ne.x": 1}"#, "since one of the intermediate objects is mapped as a nested object: [ne]", ""),
        (
            r#"{"strict": {"n": null}}"#,
            "mapping set to strict, dynamic introduction of [n] within [strict] is not allowed",
            "",
        ),
        (
            r#"{"ne": [{}, {}, {}]}"#,
            "The number of nested documents has exceeded the allowed limit of [2].",
            "",
        ),
        (&deep, "failed to parse", "Document nesting depth (1001) exceeds the maximum allowed (1000)"),
    ];
    for (source, reason, cause) in cases {
        let mut builder = ChunkBuilder::new(mapping.clone());
        builder.push("0", br#"{"k": "before"}"#).unwrap();
        let error = builder.push("1", source.as_bytes()).unwrap_err();
        assert!(error.to_string().contains(reason), "{source}: {error}");
        if let Error::MapperParsing { caused_by: Some((_, inner)), .. } = &error {
            assert!(inner.contains(cause), "{source}: {inner}");
        } else {
            assert_eq!(*cause, "", "{source}: {error:?}");
        }
        builder.push("2", br#"{"k": "after"}"#).unwrap();
        let (chunk, after) = builder.finish();
        assert!(Arc::ptr_eq(&after, &mapping), "{source}");
        assert_eq!(shown(&chunk, &mapping), json!({"k": [[0, 1], ["before", "after"]]}), "{source}");
    }
    let error = push_one(&mapping, "{\"k\": \"\u{1}\"}").unwrap_err();
    assert!(matches!(error, Error::MapperParsing { .. }));
    assert!(ChunkBuilder::new(mapping).push("1", b"{\"off\": \"\xff\"}").is_err());
}

#[test]
fn documents_that_contradict_themselves_are_told_from_those_that_contradict_the_mapping() {
    let mapping = mapping_with(json!({"properties": {"k": {"type": "keyword"}}}), json!({}));
    for (source, field) in [
        (r#"{"a": 1, "a.b": 2}"#, "a"),
        (r#"{"a.b": 2, "a": 1}"#, "a"),
        (r#"{"a": [1, {"b": 2}]}"#, "a"),
        (r#"{"a": [{"b": 2}, 1]}"#, "a"),
        (r#"{"a.b": 1, "a.b.c": 2}"#, "a.b"),
        (r#"{"a": {"b": "x", "b.c": 2}}"#, "a.b"),
    ] {
        let mut builder = ChunkBuilder::new(mapping.clone());
        let error = builder.push("1", source.as_bytes()).unwrap_err();
        let expected = format!("can't merge a non object mapping [{field}] with an object mapping");
        assert!(
            matches!(&error, Error::IllegalArgument(reason) if *reason == expected),
            "{source}: {error:?}"
        );
        // The next document is held against the mapping that the first one made.
        builder.push("2", br#"{"a": 1}"#).unwrap();
        let error = builder.push("3", br#"{"a.b": 2}"#).unwrap_err();
        assert!(matches!(error, Error::MapperParsing { .. }), "{source}: {error:?}");
    }
}

#[test]
fn unknown_fields_are_mapped_as_opensearch_does() {
    let keyword = json!({"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}});
    let cases = [
        (
            json!({}),
            r#"{"s": "x", "i": 1, "d": 1.5, "b": true, "o": {"n": [1]}}"#,
            json!({"s": keyword, "i": {"type": "long"}, "d": {"type": "float"}, "b": {"type": "boolean"}, "o": {"properties": {"n": {"type": "long"}}}}),
        ),
        (json!({}), r#"{"n": null, "e": [], "ee": [null, []], "o": {}}"#, json!({"o": {"type": "object"}})),
        (
            json!({}),
            r#"{"t": "2024-01-01T00:00:00Z", "u": "2024/01/01", "v": "2024/01/01 10:00:00", "n": "2024"}"#,
            json!({"t": {"type": "date"}, "u": {"type": "date", "format": "yyyy/MM/dd HH:mm:ss||yyyy/MM/dd||epoch_millis"},
                "v": {"type": "date", "format": "yyyy/MM/dd HH:mm:ss||yyyy/MM/dd||epoch_millis"}, "n": keyword}),
        ),
        (json!({"date_detection": false}), r#"{"t": "2024-01-01"}"#, json!({"t": keyword})),
        (
            json!({"numeric_detection": true}),
            r#"{"i": "5", "f": "5.5"}"#,
            json!({"i": {"type": "long"}, "f": {"type": "float"}}),
        ),
        (
            json!({"dynamic_date_formats": ["MM/dd/yyyy"]}),
            r#"{"t": "01/31/2024"}"#,
            json!({"t": {"type": "date", "format": "MM/dd/yyyy"}}),
        ),
        (
            json!({}),
            r#"{"a.b.c": 1, "a.d": "x", "a": {"e": 1}}"#,
            json!({"a": {"properties": {"b": {"properties": {"c": {"type": "long"}}}, "d": keyword, "e": {"type": "long"}}}}),
        ),
        (json!({"dynamic": false}), r#"{"a": 1}"#, Value::Null),
        (
            json!({"dynamic_templates": [
            {"ids": {"match": "*_id", "match_mapping_type": "string", "mapping": {"type": "keyword"}}},
            {"geo": {"match": "loc", "mapping": {"type": "geo_point"}}},
            {"paths": {"path_match": "a.*", "path_unmatch": "*.not", "mapping": {"type": "{dynamic_type}", "index": false}}},
            {"re": {"match": "^x\\d+$", "match_pattern": "regex", "mapping": {"type": "double"}}},
            {"named": {"match_mapping_type": "boolean", "mapping": {"type": "keyword", "meta": {"name": "{name}"}}}}]}),
            r#"{"user_id": "u", "n_id": 3, "loc": [1, 2], "a": {"l": 1, "not": 2}, "x12": 1, "x1a": 1, "flag": true}"#,
            json!({"user_id": {"type": "keyword"}, "n_id": {"type": "long"}, "loc": {"type": "geo_point"},
                "a": {"properties": {"l": {"type": "long", "index": false}, "not": {"type": "long"}}},
                "x12": {"type": "double"}, "x1a": {"type": "long"}, "flag": {"type": "keyword", "meta": {"name": "flag"}}}),
        ),
    ];
    for (body, source, expected) in cases {
        let mapping = mapping_with(body.clone(), json!({}));
        let (_, grown) = push_one(&mapping, source).unwrap_or_else(|error| panic!("{source}: {error}"));
        let rendered = grown.to_json();
        assert_eq!(rendered.get("properties").cloned().unwrap_or_default(), expected, "{source}");
        let grew = !Arc::ptr_eq(&mapping, &grown);
        assert_eq!(grew, !expected.is_null(), "{source}");
        assert_eq!(grown.version(), mapping.version() + u64::from(grew));
    }
}

#[test]
fn a_failed_document_takes_its_fields_with_it() {
    let mapping = mapping(json!({"n": {"type": "long"}}));
    let mut builder = ChunkBuilder::new(mapping);
    builder.push("0", br#"{"a": "x", "o": {"p": 1}}"#).unwrap();
    assert!(builder.push("1", br#"{"a": "y", "b": 1, "o": {"q": {"r": 1}}, "n": "bad"}"#).is_err());
    builder.push("2", br#"{"c": true, "a": "z", "o": {"q": 5}}"#).unwrap();
    let (chunk, grown) = builder.finish();
    let paths: Vec<&str> = grown.fields().map(|field| field.path.as_ref()).collect();
    assert_eq!(paths, ["a", "a.keyword", "c", "n", "o.p", "o.q"]);
    assert_eq!(
        shown(&chunk, &grown),
        json!({"a": [[0, 1], ["x", "z"]], "o.p": [1], "c": [[1], [true]], "o.q": [[1], [5]]})
    );
    let Some(Values::Str(strings)) = chunk.column(grown.field("a").unwrap().id).map(|column| &column.values)
    else {
        panic!("no strings");
    };
    assert_eq!(strings.bytes, b"xz");
    let numbers: Vec<u32> = grown.fields().map(|field| field.id.0).collect();
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..numbers.len() as u32).collect::<Vec<_>>());
}

#[test]
fn what_does_not_fit_is_refused_or_stored() {
    let body = json!({"properties": {"n": {"type": "long"}, "o": {"properties": {"x": {"type": "long"}}}}});
    let limit = json!({"index.mapping.total_fields.limit": "4"});
    let error = push_one(&mapping_with(body.clone(), limit), r#"{"a": "x"}"#).unwrap_err();
    assert_eq!(error.to_string(), "Limit of total fields [4] has been exceeded");
    assert!(matches!(error, Error::IllegalArgument(_)));

    let store = json!({"index.mapping.total_fields.limit": "4", "index.mapping.overflow": "store"});
    let mapping = mapping_with(body, store);
    let (chunk, grown) = push_one(
        &mapping,
        r#"{"n": ["bad", 5, {"x": 1}], "o": ["concrete", {"x": 1}], "l": 1, "more": "x", "deep": {"er": 1}, "n.sub": 1}"#,
    )
    .unwrap();
    assert_eq!(shown(&chunk, &grown), json!({"n": [5], "o.x": [1], "l": [1]}));
    let ignored: Vec<&str> = chunk.ignored.iter().map(|(_, path)| path.as_ref()).collect();
    assert_eq!(ignored, ["deep", "more", "n", "n.sub", "o"]);
}

/// The setting of the index is about every type and about objects; the parameter of a field about its scalars.
#[test]
fn malformed_values_are_left_out_where_the_index_says_so() {
    let types = ["keyword", "text", "long", "date", "ip", "boolean", "wildcard", "float", "binary"];
    let properties: Map<String, Value> =
        types.iter().map(|name| ((*name).to_owned(), json!({ "type": name }))).collect();
    let body = json!({ "properties": properties });
    let lenient = mapping_with(body.clone(), json!({"index.mapping.ignore_malformed": "true"}));
    for name in types {
        let source = format!(r#"{{"{name}": {{"a": 1}}}}"#);
        push_one(&mapping_with(body.clone(), json!({})), &source).unwrap_err();
        let (chunk, grown) = push_one(&lenient, &source).unwrap();
        assert_eq!(shown(&chunk, &grown), json!({}), "{name}");
        assert_eq!(chunk.ignored, [(0, name.into())]);
    }
    let (chunk, grown) =
        push_one(&lenient, r#"{"boolean": ["x", true], "keyword": ["a", {"b": 1}]}"#).unwrap();
    assert_eq!(shown(&chunk, &grown), json!({"boolean": [true], "keyword": ["a"]}));
    let field = mapping(json!({"n": {"type": "long", "ignore_malformed": true}}));
    push_one(&field, r#"{"n": "x"}"#).unwrap();
    push_one(&field, r#"{"n": {"x": 1}}"#).unwrap_err();
}

#[test]
fn strict_objects_may_let_templates_add_fields() {
    let mapping = mapping_with(
        json!({
            "dynamic": "strict_allow_templates",
            "dynamic_templates": [
                {"s": {"match": "s_*", "mapping": {"type": "keyword"}}},
                {"o": {"match": "o_*", "match_mapping_type": "object", "mapping": {"dynamic": "true"}}},
            ],
            "properties": {"a": {"type": "keyword"}},
        }),
        json!({}),
    );
    assert_eq!(mapping.to_json()["dynamic"], "strict_allow_templates");
    let (chunk, grown) = push_one(&mapping, r#"{"a": "1", "s_1": "2", "o_1": {"any": 3}}"#).unwrap();
    assert_eq!(shown(&chunk, &grown), json!({"a": ["1"], "s_1": ["2"], "o_1.any": [3]}));
    for (source, field) in [(r#"{"z": 1}"#, "z"), (r#"{"z.s_1": 1}"#, "z"), (r#"{"z": {"s_1": 1}}"#, "z")] {
        let error = push_one(&mapping, source).unwrap_err().to_string();
        assert!(error.contains(&format!("dynamic introduction of [{field}]")), "{source}: {error}");
    }
}

/// Templates that no document has needed may name what is not there.
#[test]
fn unusable_dynamic_templates_refuse_only_what_needs_them() {
    let body = json!({"dynamic_templates": [
        {"r": {"match": "r_*", "mapping": {"type": "flat"}}},
        {"p": {"match": "p_*", "mapping": {"type": "keyword", "nope": 1}}},
        {"s": {"match_mapping_type": "string", "mapping": {"type": "keyword"}}},
    ]});
    let mapping = mapping_with(body, json!({}));
    let (chunk, grown) = push_one(&mapping, r#"{"s": "v"}"#).unwrap();
    assert_eq!(shown(&chunk, &grown), json!({"s": ["v"]}));
    for source in [r#"{"r_1": "v"}"#, r#"{"p_1": "v"}"#] {
        let error = push_one(&mapping, source).unwrap_err();
        assert!(matches!(error, Error::MapperParsing { .. }), "{source}: {error}");
    }
}

#[test]
fn whole_parts_of_texts_are_exact() {
    let mapping = mapping(json!({"n": {"type": "long"}}));
    for (text, expected) in [
        ("9007199254740993.9", Some(9_007_199_254_740_993_i64)),
        ("-9223372036854775808", Some(i64::MIN)),
        ("9223372036854775807.5", Some(i64::MAX)),
        ("1e3", Some(1000)),
        ("-9223372036854775809", None),
        ("9223372036854775808", None),
        ("-9223372036854775809.0", None),
    ] {
        let pushed = push_one(&mapping, &format!(r#"{{"n": "{text}"}}"#));
        match expected {
            Some(number) => {
                let (chunk, grown) = pushed.unwrap();
                assert_eq!(shown(&chunk, &grown), json!({ "n": [number] }), "{text}");
            }
            None => assert!(pushed.is_err(), "{text}"),
        }
    }
}

#[test]
fn long_keywords_are_ignored_and_said_so() {
    let mapping = mapping(json!({
        "k": {"type": "keyword", "ignore_above": 3},
        "t": {"type": "text", "fields": {"raw": {"type": "keyword", "ignore_above": 3}}},
    }));
    let (chunk, _) = push_one(&mapping, r#"{"k": ["abcd", "abc", "äöü", "💥💥"], "t": "abcd"}"#).unwrap();
    assert_eq!(shown(&chunk, &mapping), json!({"k": ["abc", "äöü"], "t": ["abcd"]}));
    assert_eq!(chunk.ignored, [(0, "k".into())]);
}

#[test]
fn copies_multi_fields_and_constants() {
    let mapping = mapping(json!({
        "a": {"type": "keyword", "copy_to": ["all", "made.up"], "fields": {"t": {"type": "text"}, "n": {"type": "long", "ignore_malformed": true}}},
        "b": {"type": "long", "copy_to": "all"}, "all": {"type": "text"}, "c": {"type": "constant_keyword", "value": "v"},
    }));
    let mut builder = ChunkBuilder::new(mapping);
    builder.push("0", br#"{"a": ["x", "5"], "b": 7}"#).unwrap();
    builder.push("1", br#"{"c": "v"}"#).unwrap();
    let (chunk, grown) = builder.finish();
    assert_eq!(
        shown(&chunk, &grown),
        json!({"a": ["x", "5"], "a.t": ["x", "5"], "a.n": [5], "b": [7], "all": ["x", "5", "7"],
            "made.up": ["x", "5"], "c": [[0, 1], ["v", "v"]]})
    );
    assert_eq!(chunk.ignored, [(0, "a.n".into())]);
}

#[test]
fn nested_values_stay_out_of_the_row() {
    let mapping = mapping(json!({
        "n": {"type": "nested", "properties": {"x": {"type": "long"}}},
        "r": {"type": "nested", "include_in_root": true, "properties": {"x": {"type": "long"}}},
    }));
    let (chunk, grown) =
        push_one(&mapping, r#"{"n": [{"x": 1, "new": "y"}, {"x": 2}], "r": [{"x": 3}, {"x": 4}]}"#).unwrap();
    assert_eq!(shown(&chunk, &grown), json!({"r.x": [3, 4]}));
    assert_eq!(grown.field("n.new").unwrap().type_name(), "text");
    assert!(push_one(&mapping, r#"{"n": [{"x": "bad"}]}"#).is_err());
}

/// Elements of a path of a chunk: parents, elements that they lie in, values.
fn elements(chunk: &Chunk, mapping: &Mapping, path: &str) -> (Vec<u32>, Vec<u32>, Value) {
    let id = mapping.nested_id(path).unwrap();
    match chunk.nested.iter().find(|nested| nested.path == id) {
        Some(nested) => (nested.parents.clone(), nested.within.clone(), shown_rows(&nested.chunk, mapping)),
        None => (Vec::new(), Vec::new(), json!({})),
    }
}

fn shown_rows(chunk: &Chunk, mapping: &Mapping) -> Value {
    let columns: serde_json::Map<String, Value> = chunk
        .columns
        .iter()
        .map(|column| {
            let path = mapping.field_by_id(column.id).unwrap().path.to_string();
            let Values::I64(values) = &column.values else { return (path, json!(column.rows)) };
            (path, json!(column.rows.iter().zip(values).collect::<Vec<_>>()))
        })
        .collect();
    json!(columns)
}

#[test]
fn elements_are_rows_of_their_own() {
    let mapping = mapping(json!({
        "o": {"properties": {"n": {"type": "nested", "properties": {
            "x": {"type": "long"}, "c": {"type": "constant_keyword", "value": "v"},
            "m": {"type": "nested", "include_in_parent": true, "properties": {"y": {"type": "long"}}},
            "r": {"type": "nested", "include_in_root": true, "properties": {"z": {"type": "long", "copy_to": "all"}}},
        }}}},
        "all": {"type": "long"},
    }));
    let mut builder = ChunkBuilder::new(mapping.clone());
    builder.push("0", br#"{"o": {"n": [{"x": 1, "m": [{"y": 2}, {"y": 3}]}, {"x": [4, 5]}]}}"#).unwrap();
    // A document that fails leaves no element behind.
    assert!(builder.push("1", br#"{"o": {"n": [{"x": 6, "m": {"y": 7}}, {"x": "bad"}]}}"#).is_err());
    builder
        .push("2", br#"{"o": [{"n": {"x": 8}}, {"n": {"m": [null, {"y": 9}], "r": {"z": 10}}}]}"#)
        .unwrap();
    let (chunk, mapping) = builder.finish();
    let expected = [
        (
            "o.n",
            vec![0, 0, 1, 1],
            vec![],
            json!({
            "o.n.x": [[0, 1], [1, 4], [1, 5], [2, 8]], "o.n.c": [0, 1, 2, 3], "o.n.m.y": [[0, 2], [0, 3], [3, 9]]}),
        ),
        ("o.n.m", vec![0, 0, 1], vec![0, 0, 3], json!({"o.n.m.y": [[0, 2], [1, 3], [2, 9]]})),
        ("o.n.r", vec![1], vec![3], json!({"o.n.r.z": [[0, 10]]})),
    ];
    for (path, parents, within, values) in &expected {
        assert_eq!(
            elements(&chunk, &mapping, path),
            (parents.clone(), within.clone(), values.clone()),
            "{path}"
        );
    }
    assert_eq!(shown_rows(&chunk, &mapping), json!({"o.n.r.z": [[1, 10]], "all": [[1, 10]]}));

    // Elements go with their documents.
    let joined = Chunk::concat(&[&chunk, &chunk], &|at, row| (at, row) != (0, 0)).unwrap();
    assert_eq!(joined.rows, 3);
    assert_eq!(elements(&joined, &mapping, "o.n").0, [0, 0, 1, 1, 2, 2]);
    assert_eq!(elements(&joined, &mapping, "o.n.m").0, [0, 1, 1, 2]);
    assert_eq!(elements(&joined, &mapping, "o.n.m").1, [1, 2, 2, 5]);
    let of_last = json!({"o.n.m.y": [[0, 9], [1, 2], [2, 3], [3, 9]]});
    assert_eq!(elements(&joined, &mapping, "o.n.m").2, of_last);
}

#[test]
fn arrays_are_scalar_or_lists() {
    let mapping = mapping(
        json!({"a": {"type": "long"}, "b": {"type": "keyword"}, "d": {"type": "date"}, "g": {"type": "geo_point"}, "i": {"type": "ip"}}),
    );
    let mut builder = ChunkBuilder::new(mapping.clone());
    builder
        .push("0", br#"{"a": 1, "b": ["x", "a string longer than twelve bytes"], "d": 5, "i": "1.2.3.4"}"#)
        .unwrap();
    builder.push("1", br#"{"a": 2, "g": [1, 2]}"#).unwrap();
    builder.push("2", br#"{"a": 3, "b": "x"}"#).unwrap();
    let (chunk, _) = builder.finish();
    let array = |path: &str| chunk.column(mapping.field(path).unwrap().id).unwrap().to_array(3);
    assert_eq!(array("a").as_primitive::<Int64Type>().values(), &[1, 2, 3]);
    assert_eq!(array("a").null_count(), 0);
    let b = array("b");
    let lists = b.as_list::<i32>();
    assert_eq!(lists.value_length(0), 2);
    assert!(lists.is_null(1));
    assert_eq!(lists.values().as_string_view().value(1), "a string longer than twelve bytes");
    let d = array("d");
    assert_eq!(d.data_type(), &ColumnKindType::of(&chunk, &mapping, "d"));
    assert_eq!((d.as_primitive::<TimestampMillisecondType>().value(0), d.null_count()), (5, 2));
    assert_eq!(
        array("g").as_struct().column(0).as_primitive::<arrow::datatypes::Float64Type>().value(1),
        2.0
    );
    assert_eq!(array("i").as_fixed_size_binary().value(0)[10..], [0xff, 0xff, 1, 2, 3, 4]);
}

struct ColumnKindType;
impl ColumnKindType {
    fn of(chunk: &Chunk, mapping: &Mapping, path: &str) -> DataType {
        chunk.column(mapping.field(path).unwrap().id).unwrap().kind.data_type()
    }
}

fn arbitrary_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z0-9.:/ -]{0,12}".prop_map(Value::from),
        Just(json!("2024-01-01T00:00:00Z")),
        Just(json!("10.0.0.1")),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[a-f](\\.[a-f])?|lat|lon|", inner), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn test_mapping(overflow: bool) -> Arc<Mapping> {
    let settings = if overflow {
        json!({"index.mapping.overflow": "store", "index.mapping.total_fields.limit": 30})
    } else {
        json!({})
    };
    mapping_with(
        json!({"properties": {
            "a": {"type": "long"}, "b": {"properties": {"c": {"type": "ip"}, "d": {"type": "nested"}}}, "c": {"type": "geo_point"},
            "d": {"type": "flat_object"}, "e": {"type": "text", "fields": {"k": {"type": "keyword", "ignore_above": 5}, "n": {"type": "double", "ignore_malformed": true}}},
            "f": {"type": "completion"}, "g": {"type": "rank_features"},
        }}),
        settings,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), text in "[\\[\\]{}\",:a-f0-9.\\\\ntrue-]{0,48}") {
        let mut builder = ChunkBuilder::new(test_mapping(false));
        let _ = builder.push("1", &bytes);
        let _ = builder.push("2", text.as_bytes());
        let _ = builder.push("3", format!("{{\"a\":{text}}}").as_bytes());
        let is_json = serde_json::from_slice::<Value>(text.as_bytes()).is_ok_and(|value| value.is_object());
        if ChunkBuilder::new(test_mapping(true)).push("4", text.as_bytes()).is_ok() {
            prop_assert!(is_json);
        }
        let (chunk, mapping) = builder.finish();
        for column in &chunk.columns {
            column.to_array(chunk.rows);
        }
        Mapping::decode(&mapping.encode(), &Map::new()).unwrap();
    }

    #[test]
    fn concatenating_equals_pushing_into_one(
        documents in prop::collection::vec(arbitrary_json(), 1..12),
        cut in 0usize..12,
        drop in prop::collection::vec(any::<bool>(), 12),
        overflow in any::<bool>(),
    ) {
        let sources: Vec<String> = documents.iter().map(|document| json!({"b": document, "x": document}).to_string()).collect();
        // Documents that fit, in the order in which they grow the mapping.
        let mut probe = ChunkBuilder::new(test_mapping(overflow));
        let good: Vec<&String> = sources.iter().filter(|source| probe.push("1", source.as_bytes()).is_ok()).collect();
        let (whole, grown) = probe.finish();
        let again = Mapping::decode(&grown.encode(), &Map::new()).unwrap();
        prop_assert_eq!(again.to_json(), grown.to_json());
        let cut = cut.min(good.len());
        let mut first = ChunkBuilder::new(grown.clone());
        let mut second = ChunkBuilder::new(grown.clone());
        let mut kept = ChunkBuilder::new(grown.clone());
        for (at, source) in good.iter().enumerate() {
            let half = if at < cut { &mut first } else { &mut second };
            half.push_accepted("1", source.as_bytes()).unwrap();
            if !drop[at] {
                kept.push_accepted("1", source.as_bytes()).unwrap();
            }
        }
        let (first, _) = first.finish();
        let (second, after) = second.finish();
        prop_assert!(Arc::ptr_eq(&after, &grown));
        let (kept, _) = kept.finish();
        let all = Chunk::concat(&[&first, &second], &|_, _| true).unwrap();
        let some = Chunk::concat(&[&first, &second], &|chunk, row| !drop[chunk * cut + row as usize]).unwrap();
        for (left, right) in [(&all, &whole), (&some, &kept)] {
            prop_assert_eq!(left.rows, right.rows);
            prop_assert_eq!(left.columns.len(), right.columns.len());
            for (a, b) in left.columns.iter().zip(&right.columns) {
                prop_assert_eq!(a.id, b.id);
                prop_assert_eq!(&a.to_array(left.rows), &b.to_array(right.rows));
            }
        }
        prop_assert!(all.heap_bytes() > 0 || all.columns.is_empty());
    }
}
