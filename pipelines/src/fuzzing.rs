//! Entry points of fuzzers.

use millrace_ingest::{Event, Location, Options, Setting};
use serde_json::Value;

use crate::condition::Condition;
use crate::filter::{self, FilterContext, FilterPlugin};
use crate::language::{self, Dialect, Statement};

/// A script of the filter `ruby`: it is refused, or changes an event within its bounds.
pub fn ruby(data: &[u8]) {
    let Ok(code) = std::str::from_utf8(data) else { return };
    let given = [("code".to_owned(), Location::default(), Setting::Text(code.to_owned()))];
    let options = Options::new("ruby", Location::default(), given);
    let Ok(FilterPlugin::Local(filter)) = filter::build(options, &mut FilterContext::default()) else {
        return;
    };
    let mut event = Event::new(chrono::DateTime::UNIX_EPOCH);
    event.set_text("message", code);
    filter.apply(&mut event, &mut Vec::new());
}

/// The text of a definition. Faults lie within the text; conditions can be evaluated.
pub fn language(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let environment = [("SET".to_owned(), "value".to_owned())].into_iter().collect();
    let dialect = Dialect { environment, support_escapes: data.len() % 2 == 1 };
    match language::parse(text, &dialect) {
        Ok(definition) => {
            let fields = serde_json::json!({"a": {"b": [1, "x"]}, "n": 1.5, "t": "text", "tags": ["x"]});
            let Value::Object(fields) = fields else { return };
            let event = Event::from_fields(fields, chrono::DateTime::UNIX_EPOCH);
            evaluate(&definition.filters, &event);
            evaluate(&definition.outputs, &event);
        }
        Err(faults) => {
            assert!(!faults.is_empty(), "a refusal gives a reason");
            let lines = text.matches('\n').count() + 1;
            for fault in faults {
                assert!((1..=lines).contains(&(fault.at.line as usize)) && fault.at.column > 0, "{fault}");
            }
        }
    }
}

fn evaluate(statements: &[Statement], event: &Event) {
    for statement in statements {
        match statement {
            Statement::Plugin(plugin) => drop(plugin.options.given().map(depth).max()),
            Statement::Branch(branch) => {
                for arm in &branch.arms {
                    // That there is no answer is an answer.
                    let _ = Condition::holds(&arm.condition, event);
                    evaluate(&arm.body, event);
                }
                evaluate(&branch.otherwise, event);
            }
        }
    }
}

fn depth((_, setting): (&str, &Setting)) -> usize {
    let of_plugin = |options: &Options| options.given().map(depth).max().unwrap_or(0);
    1 + match setting {
        Setting::Array(elements) => elements.iter().map(|element| depth(("", element))).max().unwrap_or(0),
        Setting::Hash(members) => members.iter().map(|(_, value)| depth(("", value))).max().unwrap_or(0),
        Setting::Plugin(options) => of_plugin(options),
        Setting::Text(_) | Setting::Number(_) => 0,
    }
}
