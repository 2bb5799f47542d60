//! Strings and names of JSON as YAML scalars.

use std::io::Write;

/// Longest name that stands on the line of its value, in bytes: YAML allows 1,024.
const MAX_SIMPLE_NAME: usize = 512;

/// Names that YAML would read as something else than text.
const RESERVED: [&str; 9] = ["y", "n", "yes", "no", "true", "false", "on", "off", "null"];

/// Appends a string, which is written as in JSON, between double quotes.
pub(super) fn push_string(out: &mut Vec<u8>, written: &[u8]) {
    // Escapes of JSON that YAML lacks, and characters that YAML has only as escapes, are beyond these.
    let is_plain = |byte: &u8| byte.is_ascii() && !matches!(byte, b'\\' | 0x7f);
    match written.iter().all(is_plain) {
        true => out.extend_from_slice(written),
        false => match serde_json::from_slice::<String>(written) {
            Ok(text) => push_quoted(out, &text),
            Err(_) => out.extend_from_slice(written),
        },
    }
}

/// Appends the name of a member, which is written as in JSON, behind so many bytes of indentation.
pub(super) fn push_name(out: &mut Vec<u8>, written: &[u8], indentation: usize) {
    let inner = written.get(1..written.len().saturating_sub(1)).unwrap_or_default();
    if is_plain_name(inner) {
        out.extend_from_slice(inner);
        return;
    }
    if written.len() <= MAX_SIMPLE_NAME {
        return push_string(out, written);
    }
    out.extend_from_slice(b"? ");
    push_string(out, written);
    out.push(b'\n');
    out.resize(out.len() + indentation, b' ');
}

/// Returns true if a name means itself without quotes.
fn is_plain_name(name: &[u8]) -> bool {
    let is_inner =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-' | b'/' | b' ');
    let starts = name.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_');
    let reserved = || RESERVED.iter().any(|word| name.eq_ignore_ascii_case(word.as_bytes()));
    starts
        && name.len() <= MAX_SIMPLE_NAME
        && name.last() != Some(&b' ')
        && name.iter().all(is_inner)
        && !reserved()
}

fn push_quoted(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for c in text.chars() {
        match c {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            '\u{0}'..'\u{20}' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' => {
                // Writing to memory cannot fail.
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_back_as_they_were() {
        let texts =
            ["plain", "a: b", "é😀", "\u{1}\u{7f}\u{85}\u{2028}\u{feff}\"\\\n\t", "null", "- x", "#", ""];
        for text in texts {
            for written in [serde_json::to_string(text).unwrap(), escaped(text)] {
                let mut out = b"? ".to_vec();
                push_string(&mut out, written.as_bytes());
                out.extend_from_slice(b"\n: ");
                push_string(&mut out, written.as_bytes());
                out.extend_from_slice(b"\n");
                push_name(&mut out, format!("\"k{}", &written[1..]).as_bytes(), 0);
                out.extend_from_slice(b": 1\n");
                let read: serde_json::Value = serde_norway::from_slice(&out).unwrap();
                let expected = serde_json::json!({ text: text, format!("k{text}"): 1 });
                assert_eq!(read, expected, "{}", String::from_utf8_lossy(&out));
            }
        }
    }

    #[test]
    fn names_have_quotes_where_they_need_them() {
        for (name, expected) in
            [("a b", "a b"), ("n", "\"n\""), ("1", "\"1\""), ("_x-y.z", "_x-y.z"), ("@t", "\"@t\"")]
        {
            let mut out = Vec::new();
            push_name(&mut out, serde_json::to_string(name).unwrap().as_bytes(), 0);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
        let mut out = Vec::new();
        push_name(&mut out, serde_json::to_string(&"x".repeat(600)).unwrap().as_bytes(), 2);
        assert!(out.starts_with(b"? \"xxx") && out.ends_with(b"\n  "));
    }

    /// Writes a text with every character as an escape of JSON.
    fn escaped(text: &str) -> String {
        let units = text.encode_utf16().map(|unit| format!("\\u{unit:04x}"));
        format!("\"{}\"", units.collect::<String>())
    }
}
