//! `bytes`: sizes such as `10 MiB` to numbers of bytes.

use std::sync::Arc;

use millrace_ingest::event::text_of;
use millrace_ingest::{Event, Fault, FieldReference, Options};
use serde_json::Value;

use super::settings::{field_or, texts_or};
use super::{Filter, Outcome};

#[derive(Debug)]
struct Bytes {
    source: FieldReference,
    target: FieldReference,
    /// `true` if `kB` and its like have powers of 1000.
    is_metric: bool,
    decimal_separator: String,
    tags_on_failure: Vec<String>,
}

pub(super) fn build(mut options: Options) -> Result<Arc<dyn Filter>, Vec<Fault>> {
    let source = field_or(&mut options, "source", "message");
    let target = options.field("target").unwrap_or_else(|| source.clone());
    let is_metric = options.one_of("conversion_method", &["binary", "metric"]) == Some("metric");
    let decimal_separator = options.text("decimal_separator").filter(|text| !text.is_empty());
    let tags_on_failure = texts_or(&mut options, "tag_on_failure", &["_bytesparsefailure"]);
    options.finish()?;
    let decimal_separator = decimal_separator.unwrap_or_else(|| ".".to_owned());
    Ok(Arc::new(Bytes { source, target, is_metric, decimal_separator, tags_on_failure }))
}

impl Bytes {
    fn parse(&self, text: &str) -> Option<i64> {
        let text = text.trim();
        let is_digit = |letter: char| {
            letter.is_ascii_digit()
                || self.decimal_separator.contains(letter)
                || matches!(letter, ' ' | ',' | '_' | '.')
        };
        let end = text.find(|letter| !is_digit(letter)).unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let (whole, fraction) =
            number.trim().split_once(&*self.decimal_separator).unwrap_or((number.trim(), ""));
        let digits: String = whole.chars().filter(char::is_ascii_digit).collect();
        let number: f64 = format!("{digits}.{fraction}0")
            .parse()
            .ok()
            .filter(|_| !digits.is_empty() || !fraction.is_empty())?;
        let unit = unit.trim().to_ascii_lowercase();
        let power = match unit.chars().next() {
            None | Some('b') => 0,
            Some(prefix) => i32::try_from("kmgtpezy".find(prefix)?).ok()? + 1,
        };
        let suffix = unit.get(usize::from(power > 0)..).unwrap_or_default();
        let is_binary = suffix.starts_with('i') || !self.is_metric;
        if !matches!(suffix, "" | "b" | "i" | "ib" | "byte" | "bytes" | "yte" | "ytes") {
            return None;
        }
        let bytes = number * if is_binary { 1024_f64 } else { 1000.0 }.powi(power);
        (bytes.is_finite() && bytes < i64::MAX as f64).then_some(bytes.floor() as i64)
    }
}

impl Filter for Bytes {
    fn apply(&self, event: &mut Event, _made: &mut Vec<Event>) -> Outcome {
        let text = match event.get(&self.source).as_deref() {
            None | Some(Value::Null) => return Outcome::Unmatched,
            Some(value) => text_of(value),
        };
        let set = self.parse(&text).map(|bytes| event.set(&self.target, Value::from(bytes)));
        if set.is_some_and(|set| set.is_ok()) {
            return Outcome::Matched;
        }
        self.tags_on_failure.iter().for_each(|tag| event.tag(tag));
        Outcome::Unmatched
    }
}
