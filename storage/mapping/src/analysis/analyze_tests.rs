//! Tokens of `_analyze` requests, as OpenSearch 2.19.3 answered them: `analyze_cases.json`.

use serde_json::{Value, json};

use super::{Analyzer, Analyzers, Component};

fn component(value: &Value) -> Component {
    match value {
        Value::Object(definition) => Component::Inline(definition.clone()),
        name => Component::Named(name.as_str().unwrap().to_owned()),
    }
}

fn answer(analyzer: &Analyzer, text: &str) -> Value {
    let mut tokens = Vec::new();
    analyzer.run_until(text, usize::MAX, &mut |token| {
        tokens.push(json!([
            token.text,
            token.position,
            token.position_length,
            token.start,
            token.end,
            token.kind
        ]));
    });
    tokens.into()
}

#[test]
fn texts_are_cut_as_in_opensearch() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("analyze_cases.json")).unwrap();
    let global = Analyzers::global().unwrap();
    let mut wrong = Vec::new();
    for case in &cases {
        let request = &case["request"];
        let text = request["text"].as_str().unwrap();
        let components = |name: &str| -> Vec<Component> {
            request[name].as_array().into_iter().flatten().map(component).collect()
        };
        let found = match request["analyzer"].as_str() {
            Some(name) => answer(global.get(name).unwrap(), text),
            None => {
                let tokenizer = component(&request["tokenizer"]);
                let built =
                    global.custom(Some(&tokenizer), &components("char_filter"), &components("filter"));
                answer(&built.unwrap_or_else(|error| panic!("{request}: {error}")), text)
            }
        };
        if found != case["tokens"] {
            wrong.push(format!("{case}\n  found {found}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}
