//! Entry points of fuzzers: bytes go through a parser of this crate, and its result is used as a request would use it.
//!
//! Input may be refused; a panic, a slow run or a broken promise that is asserted here is a fault. The
//! targets of `fuzz/` call these functions, and so does a test of `millrace-api` with mutated seeds.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::analysis::{Analyzers, Component};
use crate::automaton::{DEFAULT_EFFORT, Dfa, Flags};
use crate::document::ChunkBuilder;
use crate::mapping::{DateFormat, Instant, Mapping};

/// Takes the bytes before and behind the first line end for texts.
fn two_texts(data: &[u8]) -> Option<(&str, &str)> {
    let text = std::str::from_utf8(data).ok()?;
    Some(text.split_once('\n').unwrap_or((text, "")))
}

/// A regular expression: operators and case in the first byte, then the expression, a line end, and a text
/// that it is matched with.
pub fn regexp(data: &[u8]) {
    let Some((options, data)) = data.split_first() else { return };
    let Some((expression, text)) = two_texts(data) else { return };
    let (flags, folded) = (Flags(u32::from(options & 0x3f)), options & 0x40 != 0);
    if let Ok(automaton) = Dfa::regexp(expression, flags, folded, DEFAULT_EFFORT) {
        let start = automaton.literal_start();
        if let Some(length) = automaton.longest_match(text) {
            assert!(text.is_char_boundary(length), "{expression:?} ends within a character of {text:?}");
            assert!(text.starts_with(&start), "{expression:?} does not start {text:?} with {start:?}");
        }
    }
}

/// Date math: a format, a line end, and an expression.
pub fn date_math(data: &[u8]) {
    let Some((format, expression)) = two_texts(data) else { return };
    let Ok(format) = DateFormat::parse(format) else { return };
    let now = Instant::from_millis(1_711_069_323_456);
    for round_up in [false, true] {
        if let Ok(instant) = format.parse_math(expression, now, round_up)
            && let Some(nanos) = instant.nanos()
        {
            format.format_nanos(nanos.into());
        }
    }
}

/// A mapping: a body, a line end, and a document for it.
pub fn mapping(data: &[u8]) {
    let Some((body, document)) = two_texts(data) else { return };
    let Ok(body) = serde_json::from_str::<Value>(body) else { return };
    let settings = Map::new();
    let Ok(mapping) = Mapping::parse(&body, &settings) else { return };
    let shown = mapping.to_json();
    let again = Mapping::parse(&shown, &settings)
        .unwrap_or_else(|error| panic!("{shown} is refused, as which {body} is shown: {error}"));
    assert_eq!(again.to_json(), shown, "{body} is shown in two ways");
    let mut builder = ChunkBuilder::new(Arc::new(mapping));
    if builder.push("1", document.as_bytes()).is_ok() {
        let (_, grown) = builder.finish();
        let shown = grown.to_json();
        Mapping::parse(&shown, &settings)
            .unwrap_or_else(|error| panic!("{shown} is refused, to which {document} led: {error}"));
    }
}

/// Analysis: the members `tokenizer`, `char_filter` and `filter` of an `_analyze` request, a line end, and a text.
pub fn analysis(data: &[u8]) {
    let Some((body, text)) = two_texts(data) else { return };
    let Ok(body) = serde_json::from_str::<Map<String, Value>>(body) else { return };
    let component = |value: &Value| match value {
        Value::String(name) => Some(Component::Named(name.clone())),
        Value::Object(definition) => Some(Component::Inline(definition.clone())),
        _ => None,
    };
    let components = |name: &str| -> Vec<Component> {
        body.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(component).collect()
    };
    let Ok(analyzers) = Analyzers::global() else { return };
    let tokenizer = body.get("tokenizer").and_then(component);
    let Ok(analyzer) =
        analyzers.custom(tokenizer.as_ref(), &components("char_filter"), &components("filter"))
    else {
        return;
    };
    let units = u32::try_from(text.encode_utf16().count()).unwrap_or(u32::MAX);
    let mut last = 0;
    analyzer.run_until(text, usize::MAX, &mut |token| {
        assert!(token.start <= token.end && token.end <= units, "{token:?} of {text:?}");
        assert!(token.position >= last, "{token:?} comes behind position {last}");
        last = token.position;
    });
    analyzer.normalize(text);
}
