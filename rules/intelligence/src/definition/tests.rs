//! Definitions of forecasts: fields read, refused and written back.

use super::*;

pub(crate) fn body() -> Value {
    json!({
        "algorithm_type": "TL",
        "model_name": "cpu",
        "search": "search:3fa85f64",
        "label_field": {"field": "system.cpu.idle.pct"},
        "max_probes": 100,
        "time_frame": "1 hour",
        "value_type": "avg",
        "max_predictions": 10,
        "threshold": -1,
        "automatic_cron": "*/5 * * * *",
        "automatic_enable": true,
        "automatic_flag": true,
        "start_date": "now",
        "multiply_by_values": [],
        "multiply_by_field": "none",
        "selectedroles": ["operators"],
    })
}

#[test]
fn a_rule_is_read_and_written_as_it_was() {
    let definition = Definition::parse(&body()).unwrap();
    assert_eq!(definition.search_id(), "3fa85f64");
    assert!(definition.is_scheduled() && definition.level().is_none());
    assert_eq!(definition.runs(), [None]);
    let written = Value::Object(definition.document());
    assert_eq!(written["automatic"], true);
    let again = Definition::parse(&written).unwrap();
    assert_eq!(Value::Object(again.document()), written);
    // What a client was shown it may send back.
    let mut back = written;
    for name in MAINTAINED {
        back[name] = json!({"any": "thing"});
    }
    Definition::parse(&back).unwrap();
    let mut deep = body();
    deep["label_field"]["field"] = json!(format!("{}.b_pre", ["a"; 19].join(".")));
    Definition::parse(&deep).unwrap();
    let mut multiplied = body();
    multiplied["multiply_by_field"] = json!("host.name");
    multiplied["multiply_by_values"] = json!(["a", "b"]);
    assert_eq!(Definition::parse(&multiplied).unwrap().runs(), [Some("a"), Some("b")]);
}

#[test]
fn every_field_is_refused_by_its_name() {
    let long = "x".repeat(1000);
    let deep = ["a"; 21].join(".");
    let many: Vec<String> = (0..101).map(|at| at.to_string()).collect();
    let cases = [
        ("algorithm_type", vec![json!(null), json!(1), json!("SARIMA"), json!("sma"), json!("")]),
        (
            "model_name",
            vec![json!(null), json!(""), json!("  "), json!(7), json!(long), json!("a[b]"), json!("a\nb")],
        ),
        ("search", vec![json!(null), json!(""), json!(["a"]), json!(long)]),
        (
            "label_field.field",
            vec![
                json!({}),
                json!({"field": ""}),
                json!({"field": "a..b"}),
                json!({"field": "a*"}),
                json!({"field": "rmse.x"}),
                json!({"field": "a.b_pre.c"}),
                json!({"field": deep}),
                json!({"field": 1}),
                json!({"field": long}),
            ],
        ),
        ("label_field", vec![json!("x"), json!([])]),
        (
            "max_probes",
            vec![
                json!(null),
                json!(1),
                json!(0),
                json!(-5),
                json!("100"),
                json!(1.5),
                json!(100_001),
                json!(u64::MAX),
            ],
        ),
        ("time_frame", vec![json!(null), json!("2 hours"), json!(60), json!("1 Hour")]),
        ("value_type", vec![json!(null), json!("sum"), json!([])]),
        ("max_predictions", vec![json!(null), json!(0), json!(10_001), json!("x")]),
        ("threshold", vec![json!(1.5), json!("5"), json!(i64::MAX), json!([])]),
        (
            "automatic_cron",
            vec![json!(null), json!(""), json!("* * *"), json!("* * * * * *"), json!(5), json!(long)],
        ),
        ("automatic_enable", vec![json!(null), json!("true"), json!(1)]),
        ("automatic_flag", vec![json!("yes"), json!(0)]),
        (
            "start_date",
            vec![json!("yesterday"), json!("2026-13-01 00:00"), json!(5), json!("2026-01-01T00:00")],
        ),
        (
            "multiply_by_values",
            vec![json!(null), json!("a"), json!([1]), json!(["a", "a"]), json!(many), json!([""])],
        ),
        ("multiply_by_field", vec![json!(null), json!(""), json!(5), json!("a b")]),
        ("selectedroles", vec![json!("admin"), json!([1]), json!(many)]),
        ("color", vec![json!("red")]),
    ];
    for (name, values) in cases {
        for value in values {
            let mut body = body();
            let key = if name == "label_field.field" { "label_field" } else { name };
            body[key] = value.clone();
            let refused = Definition::parse(&body).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("[{name}]")), "{name} {value}: {refused}");
        }
    }
    let mut both = body();
    both["automatic"] = json!(false);
    assert!(Definition::parse(&both).unwrap_err().to_string().starts_with("[automatic_flag]"));
    let mut none = body();
    none.as_object_mut().unwrap().remove("automatic_flag");
    assert!(Definition::parse(&none).unwrap_err().to_string().starts_with("[automatic] is required"));
    let mut forest = body();
    (forest["algorithm_type"], forest["max_probes"]) = (json!("RFRS"), json!(10_001));
    assert!(Definition::parse(&forest).unwrap_err().to_string().starts_with("[max_probes]"));
    for wrong in [json!([]), json!("x"), json!(null)] {
        assert!(Definition::parse(&wrong).unwrap_err().to_string().starts_with("[body]"));
    }
}
