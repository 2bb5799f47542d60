//! Cases of mapping bodies: what is kept, what is refused, what an update may change.

use serde_json::{Map, Value, json};

use super::*;

fn settings(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

fn mapping(body: Value) -> Mapping {
    Mapping::parse(&body, &Map::new()).unwrap_or_else(|error| panic!("{body}: {error}"))
}

fn properties(value: Value) -> Value {
    json!({ "properties": value })
}

#[test]
fn bodies_are_shown_as_opensearch_shows_them() {
    let cases = [
        (json!({}), json!({})),
        (properties(json!({})), json!({})),
        (
            properties(
                json!({"b": {"type": "keyword", "index": true}, "a": {"type": "long", "coerce": true}}),
            ),
            properties(json!({"a": {"type": "long", "coerce": true}, "b": {"type": "keyword"}})),
        ),
        (
            properties(json!({"a.b": {"type": "text"}, "a": {"properties": {"c": {"type": "ip"}}}})),
            properties(json!({"a": {"properties": {"b": {"type": "text"}, "c": {"type": "ip"}}}})),
        ),
        (
            properties(json!({"o": {"type": "object"}, "p": {"enabled": false}})),
            properties(json!({"o": {"type": "object"}, "p": {"type": "object", "enabled": false}})),
        ),
        (
            json!({"dynamic": false, "date_detection": false, "properties": {"n": {"type": "nested", "dynamic": "Strict"}}}),
            json!({"dynamic": "false", "date_detection": false, "properties": {"n": {"type": "nested", "dynamic": "strict"}}}),
        ),
        (
            properties(json!({"t": {"type": "text", "analyzer": "standard", "search_analyzer": "standard",
                "fields": {"raw": {"type": "keyword", "ignore_above": "10"}}, "copy_to": "all"}, "all": {"type": "text"}})),
            properties(json!({"t": {"type": "text", "analyzer": "standard",
                "fields": {"raw": {"type": "keyword", "ignore_above": 10}}, "copy_to": ["all"]}, "all": {"type": "text"}})),
        ),
        (
            json!({"_routing": {"required": true}, "_source": {"enabled": true}, "_meta": {"x": 1}, "_data_stream_timestamp": {"enabled": true}}),
            json!({"_routing": {"required": true}, "_meta": {"x": 1}, "_data_stream_timestamp": {"enabled": true}}),
        ),
        (
            properties(
                json!({"a": {"type": "alias", "path": "k"}, "k": {"type": "keyword", "null_value": "NULL", "doc_values": false}}),
            ),
            properties(
                json!({"a": {"type": "alias", "path": "k"}, "k": {"type": "keyword", "null_value": "NULL", "doc_values": false}}),
            ),
        ),
        (
            properties(
                json!({"d": {"type": "date", "format": "yyyy-MM-dd||epoch_millis"}, "s": {"type": "scaled_float", "scaling_factor": 100}}),
            ),
            properties(
                json!({"d": {"type": "date", "format": "yyyy-MM-dd||epoch_millis"}, "s": {"type": "scaled_float", "scaling_factor": 100.0}}),
            ),
        ),
        (
            json!({"dynamic_templates": [{"t": {"match": "*_s", "mapping": {"type": "keyword"}}}, {"u": {"match_mapping_type": "*", "mapping": {"index": false}}}]}),
            json!({"dynamic_templates": [{"t": {"match": "*_s", "mapping": {"type": "keyword"}}}, {"u": {"match_mapping_type": "*", "mapping": {"index": false}}}]}),
        ),
    ];
    for (body, expected) in cases {
        assert_eq!(mapping(body.clone()).to_json(), expected, "{body}");
    }
}

/// The list of an update takes the place of the one before.
#[test]
fn dynamic_templates_of_an_update_replace_those_that_are_there() {
    let templates = |name: &str, made: &str| json!({"dynamic_templates": [{name: {"match_mapping_type": "string", "mapping": {"type": made}}}]});
    let first = mapping(templates("a", "text"));
    let updated = first.merge(&templates("b", "keyword")).unwrap();
    assert_eq!(updated.to_json(), templates("b", "keyword"));
    let other = updated.merge(&properties(json!({"n": {"type": "long"}}))).unwrap();
    assert_eq!(other.to_json()["dynamic_templates"], templates("b", "keyword")["dynamic_templates"]);
}

#[test]
fn bad_bodies_are_refused_in_opensearch_words() {
    let cases = [
        (json!({"foo": "bar"}), "Root mapping definition has unsupported parameters:  [foo : bar]"),
        (
            json!({"foo": {"a": [1, "b"]}}),
            "Root mapping definition has unsupported parameters:  [foo : {a=[1, b]}]",
        ),
        (properties(json!({"f": {"type": "nope"}})), "No handler for type [nope] declared on field [f]"),
        (
            properties(json!({"f": {"type": "geo_shape"}})),
            "No handler for type [geo_shape] declared on field [f]",
        ),
        (
            properties(json!({"f": {"type": "search_as_you_type", "max_shingle_size": 5}})),
            "[max_shingle_size] must be at least [2] and at most [4], got [5]",
        ),
        (
            properties(json!({"f": {"type": "ip_range", "null_value": "10.0.0.0/8"}})),
            "unknown parameter [null_value] on mapper [f] of type [ip_range]",
        ),
        (
            properties(json!({"f": {"type": "integer_range", "format": "yyyy"}})),
            "field [f] of type [range] should not define a dateTimeFormatter unless it is a DATE type",
        ),
        (properties(json!({"f": {"type": "date_range", "format": "bogus"}})), "Unknown pattern letter: b"),
        (properties(json!({"f": {"type": "token_count"}})), "Analyzer must be set for field [f] but wasn't."),
        (
            properties(json!({"f": {"type": "completion", "contexts": [{"name": "x", "type": "zip"}]}})),
            "No context type for [zip]",
        ),
        (
            properties(json!({"f": {"type": "completion", "contexts": []}})),
            "expected at least one context mapping",
        ),
        (
            properties(json!({"f": {"type": "keyword", "x": 1}})),
            "unknown parameter [x] on mapper [f] of type [keyword]",
        ),
        (
            properties(json!({"f": {"type": "long", "index": null}})),
            "[index] on mapper [f] of type [long] must not have a [null] value",
        ),
        (
            properties(json!({"f": {"type": "long", "index": "no"}})),
            "Failed to parse value [no] as only [true] or [false] are allowed.",
        ),
        (properties(json!({"f": {}})), "No type specified for field [f]"),
        (properties(json!({"f": 1})), "Expected map for property [fields] on field [f]"),
        (properties(json!({"f": {"type": "scaled_float"}})), "Field [scaling_factor] is required"),
        (
            properties(json!({"f": {"type": "scaled_float", "scaling_factor": -1}})),
            "[scaling_factor] must be a positive number, got [-1.0]",
        ),
        (properties(json!({"f": {"type": "date", "format": "fff"}})), "Unknown pattern letter: f"),
        (properties(json!({"f": {"type": "ip", "null_value": "x"}})), "'x' is not an IP string literal."),
        (
            properties(json!({"f": {"type": "object", "bar": 1}})),
            "Mapping definition for [f] has unsupported parameters:  [bar : 1]",
        ),
        (properties(json!({"f": {"type": "alias"}})), "The [path] property must be specified for field [f]."),
        (
            properties(json!({"f": {"type": "alias", "path": "g"}})),
            "an alias must refer to an existing field in the mappings.",
        ),
        (
            properties(json!({"f": {"type": "text", "fields": {"a": {"type": "object"}}}})),
            "Type [object] cannot be used in multi field",
        ),
        (properties(json!({"": {"type": "text"}})), "name cannot be empty string"),
        (properties(json!({"a..b": {"type": "text"}})), "Invalid field name a..b"),
        (json!({"dynamic": "maybe"}), "Failed to parse value [maybe] as only [true] or [false] are allowed."),
        (
            json!({"dynamic_templates": [{"t": {"mapping": {}}}]}),
            "template must have match, path_match or match_mapping_type set",
        ),
        (
            json!({"dynamic_templates": [{"t": {"match": "("  , "match_pattern": "regex", "mapping": {}}}]}),
            "Pattern [(] of type [regex] is invalid",
        ),
        (json!({"_source": {"x": 1}}), "unsupported parameters:  [x : 1]"),
        (
            properties(json!({"a": {"type": "long"}, "a.b": {"type": "long"}})),
            "can't merge a non object mapping [a] with an object mapping",
        ),
    ];
    for (body, expected) in cases {
        match Mapping::parse(&body, &Map::new()) {
            Ok(_) => panic!("{body} is let through"),
            Err(error) => assert!(error.to_string().contains(expected), "{body}: {error}"),
        }
    }
    let Err(Error::MapperParsing { reason, caused_by }) = Mapping::parse(&json!({"x": 1}), &Map::new())
    else {
        panic!("not a mapper_parsing_exception");
    };
    assert!(reason.starts_with("Failed to parse mapping [_doc]: Root"), "{reason}");
    assert_eq!(caused_by.unwrap().0, "mapper_parsing_exception");
}

#[test]
fn updates_add_change_or_conflict() {
    let base = mapping(properties(json!({
        "k": {"type": "keyword", "ignore_above": 10}, "n": {"type": "long", "index": false},
        "t": {"type": "text"}, "o": {"properties": {"x": {"type": "ip"}}}, "ne": {"type": "nested"},
        "m": {"type": "keyword", "meta": {"bar": "baz"}},
        "ir": {"type": "integer_range"}, "dr": {"type": "date_range", "format": "yyyy"},
    })));
    let grown = base
        .merge(&properties(
            json!({"k": {"type": "keyword", "ignore_above": 20, "fields": {"t": {"type": "text"}}},
            "new": {"type": "date"}, "o": {"properties": {"y": {"type": "long"}}},
            "ir": {"type": "integer_range", "coerce": false},
            "m": {"type": "keyword", "meta": {"baz": "quux"}}}),
        ))
        .unwrap();
    assert_eq!(grown.version(), base.version() + 1);
    assert_eq!(grown.field("k").unwrap().ignore_above, Some(20));
    assert_eq!(grown.field("k.t").unwrap().type_name(), "text");
    assert_eq!(grown.to_json()["properties"]["m"]["meta"], json!({"baz": "quux"}));
    assert_eq!(base.field("new").map(|f| f.id), None);
    for field in base.fields() {
        assert_eq!(grown.field(&field.path).unwrap().id, field.id);
    }
    let conflicts = [
        (json!({"n": {"type": "keyword"}}), "mapper [n] cannot be changed from type [long] to [keyword]"),
        (
            json!({"n": {"type": "long"}}),
            "Mapper for [n] conflicts with existing mapper:\n\tCannot update parameter [index] from [false] to [true]",
        ),
        (json!({"k": {"properties": {}}}), "can't merge a non object mapping [k] with an object mapping"),
        (json!({"o": {"type": "long"}}), "can't merge a non object mapping [o] with an object mapping"),
        (
            json!({"ir": {"type": "long_range"}}),
            "mapper [ir] cannot be changed from type [integer_range] to [long_range]",
        ),
        (
            json!({"dr": {"type": "date_range", "format": "yyyy-MM"}}),
            "Cannot update parameter [format] from [yyyy] to [yyyy-MM]",
        ),
        (json!({"o": {"type": "nested"}}), "cannot change object mapping from non-nested to nested"),
        (json!({"ne": {"type": "object"}}), "cannot change object mapping from nested to non-nested"),
        (
            json!({"o": {"properties": {"x": {"type": "ip", "store": true}}}}),
            "Cannot update parameter [store] from [false] to [true]",
        ),
    ];
    for (update, expected) in conflicts {
        let error = base.merge(&properties(update.clone())).unwrap_err();
        assert_eq!(error.to_string(), error.to_string());
        assert!(error.to_string().contains(expected), "{update}: {error}");
        assert!(matches!(error, Error::IllegalArgument(_)), "{update}: {error:?}");
    }
}

#[test]
fn limits_hold() {
    let cases = [
        (
            json!({"index.mapping.total_fields.limit": "2"}),
            json!({"a": {"type": "text", "fields": {"b": {"type": "keyword"}, "c": {"type": "keyword"}}}}),
            "Limit of total fields [2] has been exceeded",
        ),
        (
            json!({"index.mapping.depth.limit": 2}),
            json!({"a": {"properties": {"b": {"properties": {"c": {"type": "long"}}}}}}),
            "Limit of mapping depth [2] has been exceeded due to object field [a.b]",
        ),
        (
            json!({"index.mapping.nested_fields.limit": "1"}),
            json!({"a": {"type": "nested"}, "b": {"type": "nested"}}),
            "Limit of nested fields [1] has been exceeded",
        ),
        (
            json!({}),
            json!({"a": {"type": "keyword", "copy_to": "n.x"}, "n": {"type": "nested", "properties": {"x": {"type": "keyword"}}}}),
            "Illegal combination of [copy_to] and [nested] mappings: [copy_to] may only copy data to the current nested document or any of its parents, however one [copy_to] directive is trying to copy data from nested object [null] to [n]",
        ),
        (
            json!({"index.mapping.field_name_length.limit": "3"}),
            json!({"abcd": {"type": "long"}}),
            "Field name [abcd] is longer than the limit of [3] characters",
        ),
    ];
    for (limits, body, expected) in cases {
        let error = Mapping::parse(&properties(body), &settings(limits)).unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert!(matches!(error, Error::IllegalArgument(_)));
    }
}

#[test]
fn text_and_its_keyword_share_a_column() {
    let mapping = mapping(properties(json!({
        "t": {"type": "text", "fields": {"raw": {"type": "keyword", "ignore_above": 9}, "n": {"type": "keyword", "null_value": "x"}}},
        "k": {"type": "keyword", "fields": {"t": {"type": "text"}}},
        "al": {"type": "alias", "path": "t.raw"},
    })));
    let field = |path: &str| mapping.field(path).unwrap();
    assert_eq!(field("t.raw").column, field("t").id);
    assert_eq!(field("t.n").column, field("t.n").id);
    assert_eq!(field("k.t").column, field("k.t").id);
    assert_eq!(field("al").id, field("t.raw").id);
    let paths: Vec<&str> = mapping.fields().map(|f| f.path.as_ref()).collect();
    assert_eq!(paths, ["k", "k.t", "t", "t.n", "t.raw"]);
    assert_eq!(mapping.field_by_id(field("k").id).unwrap().path.as_ref(), "k");
    assert!(mapping.field_by_id(PathId(99)).is_none());
}

#[test]
fn encoding_keeps_everything() {
    let first = mapping(json!({
        "dynamic": "strict", "numeric_detection": true, "dynamic_date_formats": ["yyyy"], "_routing": {"required": true},
        "dynamic_templates": [{"t": {"path_match": "a.*", "match_pattern": "regex", "mapping": {"type": "{dynamic_type}"}}}],
        "properties": {
            "z": {"type": "text", "fields": {"k": {"type": "keyword"}}, "norms": false},
            "o": {"properties": {"b": {"type": "half_float", "null_value": 1.5}, "e": {"type": "object"}}},
            "n": {"type": "nested", "include_in_root": true, "properties": {"x": {"type": "binary", "doc_values": true}}},
            "sy": {"type": "search_as_you_type", "max_shingle_size": 4, "search_analyzer": "simple", "fields": {"n": {"type": "token_count", "analyzer": "simple"}}},
            "co": {"type": "completion", "preserve_separators": false, "contexts": [{"name": "g", "type": "geo", "precision": "5km", "path": "p"}]},
            "rf": {"type": "rank_feature", "positive_score_impact": false}, "rs": {"type": "rank_features"},
            "c": {"type": "constant_keyword", "value": "v"}, "al": {"type": "alias", "path": "z"},
            "s": {"type": "scaled_float", "scaling_factor": 10, "ignore_malformed": true},
            "dr": {"type": "date_range", "format": "yyyy", "coerce": false, "store": true}, "ir": {"type": "ip_range", "index": false},
        }
    }));
    let grown = first.merge(&properties(json!({"a": {"type": "long"}, "z": {"type": "text", "norms": false, "fields": {"j": {"type": "text"}}}}))).unwrap();
    let decoded = Mapping::decode(&grown.encode(), &Map::new()).unwrap();
    assert_eq!(decoded.to_json(), grown.to_json());
    assert_eq!(decoded.version(), grown.version());
    assert_eq!(decoded.encode(), grown.encode());
    for field in grown.fields() {
        let other = decoded.field(&field.path).unwrap();
        assert_eq!(format!("{other:?}"), format!("{field:?}"));
    }
    assert!(decoded.routing_required());
    let next = decoded.merge(&properties(json!({"b": {"type": "long"}}))).unwrap();
    assert_eq!(next.field("b").unwrap().id.0 as usize, grown.fields().count());
    for bytes in [&b"{}"[..], b"", b"{\"version\":1,\"paths\":[\"a\"],\"mapping\":{}}"] {
        assert!(matches!(Mapping::decode(bytes, &Map::new()), Err(Error::Corrupt { .. })));
    }
}

#[test]
fn query_values() {
    let mapping = mapping(properties(json!({
        "l": {"type": "long"}, "b": {"type": "byte"}, "f": {"type": "float"}, "u": {"type": "unsigned_long"}, "d": {"type": "date"},
        "ns": {"type": "date_nanos"}, "ip": {"type": "ip"}, "bo": {"type": "boolean"}, "k": {"type": "keyword"}, "g": {"type": "geo_point"},
    })));
    let now = 1_710_510_330_123;
    let v4 = |last| {
        let mut ip = [0; 16];
        ip[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, last]);
        Scalar::Ip(ip)
    };
    for (path, value, round_up, expected) in [
        ("l", json!("5"), false, Scalar::I64(5)),
        ("l", json!(5.7), false, Scalar::I64(6)),
        ("l", json!(5.7), true, Scalar::I64(5)),
        ("l", json!(1e30), true, Scalar::I64(i64::MAX)),
        ("u", json!(18_446_744_073_709_551_615u64), false, Scalar::U64(u64::MAX)),
        ("f", json!("1.5"), false, Scalar::F64(1.5)),
        ("d", json!("2024-03-15"), false, Scalar::I64(1_710_460_800_000)),
        ("d", json!("2024-03-15"), true, Scalar::I64(1_710_547_199_999)),
        ("d", json!("now/d"), false, Scalar::I64(1_710_460_800_000)),
        ("d", json!("2024-01-01||+1M/d"), false, Scalar::I64(1_706_745_600_000)),
        ("d", json!(17), false, Scalar::I64(17)),
        ("ns", json!("1970-01-01T00:00:00.000000001Z"), false, Scalar::I64(1)),
        ("ip", json!("10.0.0.7"), false, v4(7)),
        ("bo", json!("true"), false, Scalar::Bool(true)),
        ("k", json!(12), false, Scalar::Str("12".into())),
        ("g", json!({"lat": 1, "lon": 2}), false, Scalar::GeoPoint { lat: 1.0, lon: 2.0 }),
    ] {
        let field = mapping.field(path).unwrap();
        assert_eq!(mapping.parse_value(field, &value, now, round_up).unwrap(), expected, "{path} {value}");
    }
    for (path, value) in
        [("l", json!("abc")), ("d", json!("xx")), ("ip", json!("1.2.3")), ("bo", json!(1)), ("k", json!([1]))]
    {
        let field = mapping.field(path).unwrap();
        assert!(mapping.parse_value(field, &value, now, false).is_err(), "{path} {value}");
    }
    for (path, value, some) in [
        ("l", json!(5.5), false),
        ("l", json!(5.0), true),
        ("b", json!(300), false),
        ("b", json!(3), true),
        ("l", json!(1e30), false),
        ("u", json!(-1), false),
        ("u", json!(u64::MAX), true),
        ("l", json!(i64::MAX), true),
    ] {
        let term = mapping.parse_term(mapping.field(path).unwrap(), &value, now).unwrap();
        assert_eq!(term.is_some(), some, "{path} {value}");
    }
}

#[test]
fn address_ranges() {
    let (low, high) = parse_ip_range("10.1.2.3/8").unwrap();
    assert_eq!((&low[12..], &high[12..]), (&[10, 0, 0, 0][..], &[10, 255, 255, 255][..]));
    let (low, high) = parse_ip_range("2001:db8::/32").unwrap();
    assert_eq!((low[3], low[4], high[4], high[15]), (0xb8, 0, 0xff, 0xff));
    assert_eq!(parse_ip_range("::1").map(|(a, b)| a == b), Some(true));
    assert!(parse_ip_range("::/0").is_some_and(|(low, high)| low == [0; 16] && high == [255; 16]));
    for text in ["10.0.0.0/33", "x/8", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/+8", "", "::/129"] {
        assert_eq!(parse_ip_range(text), None, "{text}");
    }
}

#[test]
fn paths_below_flat_and_nested_objects() {
    let mapping = mapping(properties(json!({
        "labels": {"type": "flat_object"}, "n": {"type": "nested", "properties": {"x": {"properties": {"y": {"type": "long"}}}}},
    })));
    let (field, below) = mapping.flat_object("labels.a.b").unwrap();
    assert_eq!((field.path.as_ref(), below.as_str()), ("labels", "a.b"));
    assert!(mapping.flat_object("labels").is_none());
    assert_eq!(mapping.nested_path("n.x.y"), Some("n"));
    assert_eq!(mapping.nested_path("labels"), None);
    assert!(mapping.is_object("n.x") && !mapping.is_object("labels"));
}

#[test]
fn nested_paths_have_numbers_of_their_own() {
    let body = |properties: Value| json!({ "properties": properties });
    let first = Mapping::parse(
        &body(json!({"b": {"type": "nested", "properties": {"x": {"type": "long"}}}, "c": {"type": "long"}})),
        &Map::new(),
    )
    .unwrap();
    let second = first
        .merge(&body(json!({"a": {"type": "nested"}, "b": {"type": "nested", "properties": {"in": {"type": "nested"}}}})))
        .unwrap();
    let ids = |mapping: &Mapping| ["b", "a", "b.in"].map(|path| mapping.nested_id(path));
    assert_eq!(first.nested_id("c"), None);
    assert_eq!(first.nested_id("b"), second.nested_id("b"));
    let [Some(b), Some(a), Some(inner)] = ids(&second) else { panic!("a nested path lacks a number") };
    assert!(b != a && a != inner && b != inner);
    assert!(Mapping::is_nested_id(a) && !Mapping::is_nested_id(second.field("b.x").unwrap().id));
    assert_eq!(second.nested_path_of(inner), Some("b.in"));
    let decoded = Mapping::decode(&second.encode(), &Map::new()).unwrap();
    assert_eq!(ids(&decoded), ids(&second));
    // A mapping stored before nested paths had numbers gets them.
    let mut old: Value = serde_json::from_slice(&second.encode()).unwrap();
    assert!(old.as_object_mut().unwrap().remove("nested").is_some());
    let decoded = Mapping::decode(&serde_json::to_vec(&old).unwrap(), &Map::new()).unwrap();
    assert!(ids(&decoded).iter().all(Option::is_some));
}

#[test]
fn what_a_search_as_you_type_brings_along() {
    let mapping = mapping(properties(json!({
        "a": {"type": "search_as_you_type", "analyzer": "simple"},
        "k": {"type": "keyword", "fields": {"s": {"type": "search_as_you_type", "max_shingle_size": 2}}}
    })));
    let paths: Vec<&str> = mapping.fields().map(|field| field.path.as_ref()).collect();
    let expected =
        ["a", "a._2gram", "a._3gram", "a._index_prefix", "k", "k.s", "k.s._2gram", "k.s._index_prefix"];
    assert_eq!(paths, expected);
    let field = |path: &str| mapping.field(path).unwrap();
    assert_eq!(field("a._3gram").column, field("a").id);
    assert_eq!(field("k.s._2gram").column, field("k.s").id);
    let starts = mapping.as_you_type_part(field("a._2gram"), None).unwrap();
    assert_eq!(starts.path.as_ref(), "a._index_prefix");
    for name in [&starts.analyzer, &starts.search_analyzer, &field("a._3gram").analyzer] {
        assert!(mapping.analyzers().get(name).is_some(), "{name:?}");
    }
    let shown = json!({"type": "search_as_you_type", "analyzer": "simple", "doc_values": false, "max_shingle_size": 3});
    assert_eq!(mapping.to_json()["properties"]["a"], shown);
    let quoted =
        json!({"a": {"type": "search_as_you_type", "analyzer": "simple", "search_analyzer": "standard"}});
    let merged = mapping.merge(&properties(quoted)).unwrap();
    assert_ne!(merged.field("a._2gram").unwrap().search_analyzer, field("a._2gram").search_analyzer);
    let wider = json!({"a": {"type": "search_as_you_type", "analyzer": "simple", "max_shingle_size": 4}});
    assert!(mapping.merge(&properties(wider)).is_err());
}

#[test]
fn templates_of_beats_are_taken() {
    let body = properties(json!({
        "labels": {"type": "flattened"},
        "source": {"properties": {"block": {"type": "ip_range"}}},
        "state": {"properties": {"span": {"type": "date_range"}}},
        "event": {"properties": {"module": {"type": "constant_keyword"}, "set": {"type": "constant_keyword", "value": "a"}}},
    }));
    let shown = mapping(body).to_json().to_string();
    for part in [
        r#""labels":{"type":"flat_object"}"#,
        r#""module":{"type":"keyword"}"#,
        r#""block":{"type":"ip_range"}"#,
        r#""span":{"type":"date_range"}"#,
        r#""set":{"type":"constant_keyword","value":"a"}"#,
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}
