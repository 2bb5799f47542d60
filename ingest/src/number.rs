//! Numbers at the beginning of texts, as Ruby's `to_i` and `to_f` find them.

use serde_json::Number;

/// The whole number that a text begins with, 0 where it begins with none. What is too large for 64 bits
/// becomes the nearest number with a fraction.
pub fn integer(text: &str) -> Number {
    let text = text.trim_start();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let length = text.len() - digits.len() + run(digits);
    let number = text.get(..length).unwrap_or_default().trim_start_matches('+').replace('_', "");
    if let Ok(whole) = number.parse::<i64>() {
        return whole.into();
    }
    if let Ok(whole) = number.parse::<u64>() {
        return whole.into();
    }
    number.parse::<f64>().ok().and_then(Number::from_f64).unwrap_or_else(|| 0.into())
}

/// The number that a text begins with, 0.0 where it begins with none.
pub fn float(text: &str) -> f64 {
    let text = text.trim_start();
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let mut rest = unsigned;
    let mut length = run(rest);
    if length == 0 {
        return 0.0;
    }
    rest = rest.get(length..).unwrap_or_default();
    if let Some(fraction) = rest.strip_prefix('.')
        && run(fraction) > 0
    {
        let more = 1 + run(fraction);
        length += more;
        rest = rest.get(more..).unwrap_or_default();
    }
    if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        if run(digits) > 0 {
            length += 1 + (exponent.len() - digits.len()) + run(digits);
        }
    }
    let signed = text.len() - unsigned.len() + length;
    text.get(..signed).unwrap_or_default().replace('_', "").parse().unwrap_or(0.0)
}

/// Returns the number of digit bytes that a text begins with; single underscores between digits count.
fn run(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut length = 0;
    while let Some(byte) = bytes.get(length) {
        let next_is_digit = bytes.get(length + 1).is_some_and(u8::is_ascii_digit);
        match byte {
            b'0'..=b'9' => length += 1,
            b'_' if length > 0 && next_is_digit => length += 1,
            _ => break,
        }
    }
    length
}

#[cfg(test)]
mod tests {
    use super::{float, integer};

    #[test]
    fn numbers_begin_texts() {
        for (text, expected) in [
            ("42", "42"),
            ("-17x", "-17"),
            ("+5", "5"),
            (" 7", "7"),
            ("1_000", "1000"),
            ("x", "0"),
            ("", "0"),
            ("-", "0"),
            ("18446744073709551615", "18446744073709551615"),
            ("12.9", "12"),
        ] {
            assert_eq!(integer(text).to_string(), expected, "{text}");
        }
        for (text, expected) in [
            ("1.5", 1.5),
            ("-2e3x", -2000.0),
            ("3.", 3.0),
            (".5", 0.0),
            ("x", 0.0),
            ("1e", 1.0),
            ("+0.25s", 0.25),
        ] {
            assert!((float(text) - expected).abs() < f64::EPSILON, "{text}");
        }
    }
}
