//! Halves of surrogate pairs in JSON text, which programs leave that cut strings by UTF-16 code units.
//!
//! JSON allows them as escapes (`\ud83d`), UTF-8 and the parsers here do not. They become U+FFFD, the replacement
//! character, as Lucene makes of them in its index.

use memchr::memmem;

/// Longest escape: a pair of surrogates.
const UNIT: usize = 6;

/// Returns the text with `\ufffd` for each escape of half a pair, or `None` where it has none. Its length stays.
pub fn replace_lone_surrogates(json: &[u8]) -> Option<Vec<u8>> {
    let mut replaced: Option<Vec<u8>> = None;
    let mut behind = 0;
    for at in memmem::find_iter(json, b"\\u") {
        let backslashes = json[..at].iter().rev().take_while(|&&byte| byte == b'\\').count();
        // The second backslash of two is a character of the string.
        if at < behind || backslashes % 2 == 1 {
            continue;
        }
        match code_unit(json, at) {
            Some(0xd800..0xdc00) if matches!(code_unit(json, at + UNIT), Some(0xdc00..0xe000)) => {
                behind = at + 2 * UNIT;
            }
            Some(0xd800..0xe000) => {
                let out = replaced.get_or_insert_with(|| json.to_vec());
                out[at + 2..at + UNIT].copy_from_slice(b"fffd");
            }
            _ => {}
        }
    }
    replaced
}

/// Reads the escape at a position.
fn code_unit(json: &[u8], at: usize) -> Option<u32> {
    let digits = json.get(at..at + UNIT)?.strip_prefix(b"\\u")?;
    digits.iter().try_fold(0, |code, &digit| Some(code * 16 + char::from(digit).to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_pairs_become_the_replacement_character() {
        for (json, expected) in [
            (r#"{"a":"x"}"#, None),
            (r#"["\ud83d\ude00","\u00e9"]"#, None),
            (r#"["a\ud83d"]"#, Some(r#"["a\ufffd"]"#)),
            (r#"["\uDE00b"]"#, Some(r#"["\ufffdb"]"#)),
            (r#"["\ud83d\ud83d\ude00"]"#, Some(r#"["\ufffd\ud83d\ude00"]"#)),
            (r#"["\ud83d\ude00\ude00"]"#, Some(r#"["\ud83d\ude00\ufffd"]"#)),
            (r#"["\ud83d\u0041"]"#, Some(r#"["\ufffd\u0041"]"#)),
            (r#"["\ud83d\\ude00"]"#, Some(r#"["\ufffd\\ude00"]"#)),
            (r#"["\\ud83d","\\\ud83d"]"#, Some(r#"["\\ud83d","\\\ufffd"]"#)),
            (r#"{"\udfff":1}"#, Some(r#"{"\ufffd":1}"#)),
            (r#"["\ud83"#, None),
            (r#"["\uzzzz"]"#, None),
        ] {
            let replaced = replace_lone_surrogates(json.as_bytes());
            assert_eq!(replaced.as_deref(), expected.map(str::as_bytes), "{json}");
        }
    }
}
