//! The `Warning` header: a grant that differs from its sender's likely intent.

/// The code of a warning that holds for as long as what it is about (RFC 7234, 5.5).
const CODE: u16 = 299;

/// Makes the header of some warnings; `None` without any. What is no printable ASCII is written as `\u{…}`.
pub(super) fn warning_header(texts: &[String]) -> Option<(&'static str, String)> {
    let of = |text: &String| {
        let mut quoted = String::with_capacity(text.len());
        for letter in text.chars() {
            match letter {
                '"' | '\\' => quoted.extend(['\\', letter]),
                ' '..='~' => quoted.push(letter),
                other => quoted.extend(other.escape_unicode()),
            }
        }
        format!("{CODE} Millrace-{} \"{quoted}\"", env!("CARGO_PKG_VERSION"))
    };
    let values: Vec<String> = texts.iter().map(of).collect();
    (!values.is_empty()).then(|| ("warning", values.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted() {
        assert_eq!(warning_header(&[]), None);
        let (name, value) = warning_header(&["a \"b\" \\ é\n".to_owned(), "c".to_owned()]).unwrap();
        let version = env!("CARGO_PKG_VERSION");
        let expected = format!(
            "299 Millrace-{version} \"a \\\"b\\\" \\\\ \\u{{e9}}\\u{{a}}\", 299 Millrace-{version} \"c\""
        );
        assert_eq!((name, value.as_str()), ("warning", expected.as_str()));
        http::HeaderValue::from_str(&value).unwrap();
    }
}
