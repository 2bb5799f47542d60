//! Captures on their way into events.

use serde_json::Value;

use crate::{Event, FieldReference};

/// Puts a capture into a field. A text or an array that is there becomes an array with it, unless the capture `replaces` it. Other values,
/// and values in the way of the reference, stay.
pub fn put_capture(event: &mut Event, reference: &FieldReference, value: Value, replaces: bool) {
    if replaces {
        // A value in the way stays.
        let _ = event.set(reference, value);
        return;
    }
    let value = match event.get(reference).as_deref() {
        None | Some(Value::Null) => value,
        Some(Value::String(_) | Value::Array(_)) if !value.is_null() => {
            let mut values = match event.remove(reference) {
                Some(Value::Array(values)) => values,
                present => present.into_iter().collect(),
            };
            values.push(value);
            Value::Array(values)
        }
        Some(_) => return,
    };
    // A value in the way stays.
    let _ = event.set(reference, value);
}
