//! Escapes: a backslash takes the meaning from the character behind it, `\u0041` spells one.

use super::SyntaxError;

/// Characters that mean something in the classic syntax.
const SPECIAL: &str = "\\+-!():^[]\"{}~*?|&/";

/// Puts a backslash before every character that means something.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if SPECIAL.contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// Replaces escapes by what they stand for.
pub(super) fn unescape(text: &str) -> Result<String, SyntaxError> {
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut buffer = [0; 2];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            units.extend_from_slice(c.encode_utf16(&mut buffer));
            continue;
        }
        match chars.next() {
            None => return Err(SyntaxError("Term can not end with escape character.".to_owned())),
            Some('u') => {
                let mut unit = 0;
                for _ in 0..4 {
                    let Some(digit) = chars.next() else {
                        return Err(SyntaxError("Truncated unicode escape sequence.".to_owned()));
                    };
                    let value = digit.to_digit(16).ok_or_else(|| {
                        SyntaxError(format!("Non-hex character in Unicode escape sequence: {digit}"))
                    })?;
                    unit = unit << 4 | value as u16;
                }
                units.push(unit);
            }
            Some(escaped) => units.extend_from_slice(escaped.encode_utf16(&mut buffer)),
        }
    }
    // Two escapes may spell a pair of surrogates; a lone one stands for no character.
    Ok(String::from_utf16_lossy(&units))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_stand_for_characters() {
        assert_eq!(unescape(r"a\:b\\c\u0041").unwrap(), r"a:b\cA");
        assert_eq!(unescape(r"\ud83d\ude00").unwrap(), "\u{1f600}");
        assert_eq!(unescape(r"a\").unwrap_err().0, "Term can not end with escape character.");
        assert_eq!(unescape(r"\u00").unwrap_err().0, "Truncated unicode escape sequence.");
        assert_eq!(unescape(r"\u00g0").unwrap_err().0, "Non-hex character in Unicode escape sequence: g");
        assert_eq!(unescape(&escape("a+b (c)")).unwrap(), "a+b (c)");
    }
}
