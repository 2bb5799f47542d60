//! Percent-decoding of paths and query strings.

use crate::error::Error;

/// Splits a path into decoded segments; empty ones are dropped.
pub fn segments(path: &str) -> Result<Vec<String>, Error> {
    path.split('/').filter(|segment| !segment.is_empty()).map(|segment| decode(segment, false)).collect()
}

/// Decodes percent escapes, and `+` as a space where asked.
pub fn decode(text: &str, plus_is_space: bool) -> Result<String, Error> {
    if !text.bytes().any(|byte| byte == b'%' || (plus_is_space && byte == b'+')) {
        return Ok(text.to_owned());
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'%' => {
                let digit = |offset: usize| bytes.get(at + offset).and_then(|b| char::from(*b).to_digit(16));
                let (Some(high), Some(low)) = (digit(1), digit(2)) else {
                    return Err(bad(format!("invalid escape sequence in [{text}]")));
                };
                out.push((high * 16 + low) as u8);
                at += 3;
            }
            b'+' if plus_is_space => {
                out.push(b' ');
                at += 1;
            }
            byte => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(out).map_err(|_| bad(format!("escaped bytes in [{text}] are not UTF-8")))
}

/// Encodes a segment for a `Location` header.
pub fn encode(segment: &str, out: &mut String) {
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(b"0123456789ABCDEF"[usize::from(byte >> 4)]));
            out.push(char::from(b"0123456789ABCDEF"[usize::from(byte & 15)]));
        }
    }
}

fn bad(reason: String) -> Error {
    Error::new(400, "bad_parameter_exception", reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_and_escapes() {
        assert_eq!(segments("//a%2Fb///c+d/").unwrap(), ["a/b", "c+d"]);
        assert_eq!(segments("/").unwrap(), Vec::<String>::new());
        assert_eq!(decode("a+b%20c", true).unwrap(), "a b c");
        assert_eq!(segments("/%E4%B8%AD").unwrap(), ["中"]);
        assert!(segments("/%E4").is_err());
        assert!(segments("/%zz").is_err());
        assert!(segments("/%").is_err());
        let mut out = String::new();
        encode("中 a", &mut out);
        assert_eq!(out, "%E4%B8%AD%20a");
    }
}
