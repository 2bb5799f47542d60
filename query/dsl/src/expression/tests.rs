use super::*;

fn number(source: &str) -> String {
    let params = BTreeMap::from([("f".to_owned(), Value::from(2)), ("half".to_owned(), Value::from(0.5))]);
    let scope = Scope { params: &[("a", 1.5), ("b", 4.0)], values: &[1.0, 2.0, 6.0] };
    match Expression::parse(source, &params).and_then(|expression| expression.number(&scope)) {
        Ok(Some(number)) => format!("{number:?}"),
        Ok(None) => "null".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn expressions_evaluate_as_java_does() {
    let cases = [
        ("params.a + params.b * 2", "9.5"),
        ("(params.a + params['b']) * params.f", "11.0"),
        ("1 / 2", "0.0"),
        ("1 / 2.0", "0.5"),
        ("1d / 2", "0.5"),
        ("-params.a - -1", "-0.5"),
        ("7 % 4 - 10", "-7.0"),
        ("params.a / 0", "inf"),
        ("params.a > 1 && params.b >= 4 ? 1 : 0", "1.0"),
        ("params.a != null ? params.a : 0", "1.5"),
        ("params.zz == null || !(params.a < 1) ? 3 : 4", "3.0"),
        ("return Math.round(params.a) + Math.max(1, 2);", "4.0"),
        ("Math.pow(params.b, params.half)", "2.0"),
        ("(double) 1 / 2", "0.5"),
        ("MovingFunctions.sum(values) / values.length", "3.0"),
        ("MovingFunctions.max(values)", "6.0"),
        ("MovingFunctions.stdDev(values, MovingFunctions.unweightedAvg(values))", "2.160246899469287"),
        ("if (values.length > 5) { return 1 } else { 2 }", "2.0"),
        ("if (values.length > 5) { return 1 } return 7;", "7.0"),
        ("if (values.length > 5) {1}", "null"),
        ("Double.isNaN(0.0 / 0) ? 1 : 2", "1.0"),
        ("1e2 + .5", "100.5"),
    ];
    for (source, expected) in cases {
        assert_eq!(number(source), expected, "{source}");
    }
}

#[test]
fn what_is_no_expression_is_refused() {
    let deep = format!("{}1{}", "(".repeat(500), ")".repeat(500));
    let long = vec!["1"; 2000].join("+");
    let minus = "-".repeat(5000) + "1";
    let sources = [
        "1 / 0",
        "params.a +",
        "params.zz + 1",
        "params.a > 1",
        "doc['x'].value",
        "for (int i = 0; i < 5; i++) {}",
        "while (true) {}",
        "System.exit(1)",
        "MovingFunctions.foo(values)",
        "MovingFunctions.max(1)",
        "Math.pow(1)",
        "'abc",
        "1 2",
        "@",
        "",
        &deep,
        &long,
        &minus,
    ];
    let texts: Vec<String> = sources.iter().map(|source| number(source)).collect();
    insta::assert_snapshot!(texts.join("\n"), @r#"
    runtime error: / by zero
    compile error: unexpected end of script.
    runtime error: Cannot invoke "Object.getClass()" because a value is null
    compile error: Cannot cast from [boolean] to [java.lang.Number].
    compile error: Cannot resolve symbol [doc].
    compile error: unexpected character [= 0; i < 5; i++)].
    compile error: Cannot resolve symbol [while]: only expressions over [params], [Math] and [MovingFunctions] are supported.
    compile error: Cannot resolve symbol [System]: only expressions over [params], [Math] and [MovingFunctions] are supported.
    compile error: Unknown call [MovingFunctions.foo] with [1] arguments.
    runtime error: the first argument of a function of MovingFunctions must be [values]
    compile error: Unknown call [Math.pow] with [1] arguments.
    compile error: unexpected character ['abc].
    compile error: unexpected token ['2'].
    compile error: unexpected character [@].
    compile error: unexpected end of script.
    compile error: expression is nested deeper than 64 levels.
    compile error: expression has more than 512 operators.
    compile error: expression is nested deeper than 64 levels.
    "#);
}

#[test]
fn names_alone_are_parameters_of_expressions() {
    let scope = Scope { params: &[("count", 3.0)], values: &[] };
    let number = |source: &str| {
        Expression::parse_as(source, &BTreeMap::new(), true).and_then(|expression| expression.number(&scope))
    };
    assert_eq!(number("count * 1").unwrap(), Some(3.0));
    assert_eq!(number("max(count, 5) + ln(1)").unwrap(), Some(5.0));
    assert!(number("count.a").is_err() && number("system(1)").is_err());
}
