//! Date math in names: `<logs-{now/d}>` stands for `logs-2026.11.21` on that day.
//!
//! The grammar is OpenSearch's: text outside braces is literal, `{expression{format|zone}}` is a
//! date written in a format of mappings (default `uuuu.MM.dd`, UTC), and `\` escapes a brace.

use std::borrow::Cow;

use millrace_mapping::DateFormat;
use millrace_runtime::{Error, Result};

const DEFAULT_FORMAT: &str = "uuuu.MM.dd";

/// Resolves date math in a name; a name that is not in angle brackets is returned as it is.
///
/// # Errors
/// [`Error::IllegalArgument`] for a malformed expression.
pub(super) fn resolve(name: &str, now_ms: i64) -> Result<Cow<'_, str>> {
    let Some(inner) = name.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')) else {
        return Ok(Cow::Borrowed(name));
    };
    let fault =
        |what: &str| Error::IllegalArgument(format!("invalid dynamic name expression [{inner}]. {what}"));
    let mut resolved = String::with_capacity(inner.len());
    let mut chars = inner.char_indices();
    while let Some((position, c)) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some((_, escaped)) => resolved.push(escaped),
                None => return Err(fault("nothing follows the last `\\`")),
            },
            '}' => {
                return Err(fault(&format!(
                    "invalid character at position [{position}]. `{{` and `}}` are reserved characters and should be \
                     escaped when used as part of the index name using `\\` (e.g. `\\{{text\\}}`)"
                )));
            }
            '{' => {
                let mut math = String::new();
                let mut format = None;
                loop {
                    match chars.next() {
                        None => return Err(fault("date math placeholder is open ended")),
                        Some((_, '}')) => break,
                        Some((_, '{')) if format.is_none() => {
                            let mut text = String::new();
                            loop {
                                match chars.next() {
                                    None => return Err(fault("date math placeholder is open ended")),
                                    Some((_, '}')) => break,
                                    Some((at, '{')) => {
                                        return Err(fault(&format!(
                                            "invalid character in placeholder at position [{at}]"
                                        )));
                                    }
                                    Some((_, '\\')) => text.extend(chars.next().map(|(_, c)| c)),
                                    Some((_, c)) => text.push(c),
                                }
                            }
                            format = Some(text);
                        }
                        Some((at, '{')) => {
                            return Err(fault(&format!(
                                "invalid character in placeholder at position [{at}]"
                            )));
                        }
                        Some((_, '\\')) => math.extend(chars.next().map(|(_, c)| c)),
                        Some((_, c)) => math.push(c),
                    }
                }
                let (pattern, zone) = match &format {
                    None => (DEFAULT_FORMAT, None),
                    Some(text) => match text.split_once('|') {
                        None => (text.as_str(), None),
                        Some((_, "")) => return Err(fault("missing timezone")),
                        Some((pattern, zone)) => (pattern, Some(zone)),
                    },
                };
                if pattern.is_empty() {
                    return Err(fault("missing date format"));
                }
                let date = DateFormat::parse(pattern)
                    .and_then(|format| format.evaluate(&math, now_ms, zone))
                    .map_err(|what| fault(&what))?;
                resolved.push_str(&date);
            }
            c => resolved.push(c),
        }
    }
    if resolved.is_empty() {
        return Err(fault("nothing captured"));
    }
    Ok(Cow::Owned(resolved))
}

#[cfg(test)]
mod tests {
    use super::*;

    // 2024-03-22T01:02:03.456Z, a Friday.
    const NOW: i64 = 1_711_069_323_456;

    #[test]
    fn names_resolve() {
        for (name, expected) in [
            ("plain", "plain"),
            ("<plain>", "plain"),
            ("<logs-{now/d}>", "logs-2024.03.22"),
            ("<logs-{now}>", "logs-2024.03.22"),
            ("<logs-{now/M}>", "logs-2024.03.01"),
            ("<logs-{now/M{yyyy.MM}}>", "logs-2024.03"),
            ("<logs-{now/M-1M{uuuu.MM}}>", "logs-2024.02"),
            ("<logs-{now/w}>", "logs-2024.03.18"),
            ("<logs-{now-1y/y}>", "logs-2023.01.01"),
            ("<logs-{now/d{yyyy.MM.dd|+12:00}}>", "logs-2024.03.22"),
            ("<logs-{now-2h{yyyy.MM.dd-HH|-03:00}}>", "logs-2024.03.21-20"),
            ("<logs-{now{yyyy.MM.dd.HH|America/New_York}}>", "logs-2024.03.21.21"),
            ("<a-{now+1d}-b-{now-1d}>", "a-2024.03.23-b-2024.03.21"),
            ("<\\{x\\}-{now{HH.mm.ss.SSS}}>", "{x}-01.02.03.456"),
            ("<w-{now{YYYY.ww}}>", "w-2024.12"),
            ("<q-{now{yyyy'y'}}>", "q-2024y"),
            ("<q-{now{Q}}>", "q-1"),
            ("<d-{now{eee a}}>", "d-Fri AM"),
            ("<d-{now{basic_date}}>", "d-20240322"),
            ("<d-{now{epoch_second}}>", "d-1711069323.456"),
            ("<d-{now/M{yyyy[.MM]}}>", "d-2024.03"),
            ("<d-{2024.02.10||/M}>", "d-2024.02.01"),
            ("<z-{now{z|Europe/Oslo}}>", "z-CET"),
            ("<z-{now+1M{VV z|Europe/Oslo}}>", "z-Europe/Oslo CEST"),
            ("<z-{now{HH x|+05:30}}>", "z-06 +0530"),
            ("<z-{now{HH|UTC+2}}>", "z-03"),
            ("<z-{now/d{dd HH|America/New_York}}>", "z-21 00"),
            // Clocks skip the hour of two there.
            ("<z-{now/d+9d+2h{HH|Europe/Oslo}}>", "z-03"),
        ] {
            assert_eq!(resolve(name, NOW).unwrap(), expected, "{name}");
        }
    }

    #[test]
    fn malformed_expressions_are_refused() {
        for name in [
            "<logs-{now/d>",
            "<logs-}>",
            "<logs-{yesterday}>",
            "<logs-{now/x}>",
            "<logs-{now*2d}>",
            "<logs-{now{{}}}>",
            "<logs-{now{yyyy|}}>",
            "<logs-{now{yyyy|Mars/Base}}>",
            "<logs-{now+999999999y}>",
            "<logs-{now{foo}}>",
            "<logs-{now{yyyy||MM}}>",
            "<logs-{2024-02-10||/M}>",
            "<>",
            "<a\\>",
        ] {
            assert!(matches!(resolve(name, NOW), Err(Error::IllegalArgument(_))), "{name}");
        }
    }
}
