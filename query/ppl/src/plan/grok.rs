//! Patterns of grok, written as one regular expression with named groups.
//!
//! `%{NAME}` is a pattern of [`PATTERNS`], `%{NAME:field}` one whose text is a column. The engine of regular expressions cannot look
//! around, so the patterns here do without.

use millrace_sql::error::{Result, SqlError};

/// Deepest patterns within patterns.
const MAX_DEPTH: usize = 16;
/// Longest regular expression, in bytes.
const MAX_BYTES: usize = 64 << 10;

/// The patterns by name.
#[rustfmt::skip]
const PATTERNS: &[(&str, &str)] = &[
    ("BASE10NUM", r"[+-]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"),
    ("BASE16NUM", r"(?:0[xX])?[0-9a-fA-F]+"),
    ("COMBINEDAPACHELOG", r"%{COMMONAPACHELOG} %{QS:referrer} %{QS:agent}"),
    ("COMMONAPACHELOG", r#"%{IPORHOST:clientip} %{USER:ident} %{USER:auth} \[%{HTTPDATE:timestamp}\] "(?:%{WORD:verb} %{NOTSPACE:request}(?: HTTP/%{NUMBER:httpversion})?|%{DATA:rawrequest})" %{NUMBER:response} (?:%{NUMBER:bytes}|-)"#),
    ("DATA", r".*?"),
    ("DATE", r"%{DATE_US}|%{DATE_EU}"),
    ("DATE_EU", r"%{MONTHDAY}[./-]%{MONTHNUM}[./-]%{YEAR}"),
    ("DATE_US", r"%{MONTHNUM}[/-]%{MONTHDAY}[/-]%{YEAR}"),
    ("DAY", r"(?:Mon(?:day)?|Tue(?:sday)?|Wed(?:nesday)?|Thu(?:rsday)?|Fri(?:day)?|Sat(?:urday)?|Sun(?:day)?)"),
    ("EMAILADDRESS", r"%{EMAILLOCALPART}@%{HOSTNAME}"),
    ("EMAILLOCALPART", r"[a-zA-Z0-9!#$%&'*+/=?^_`{|}~.-]+"),
    ("GREEDYDATA", r".*"),
    ("HOSTNAME", r"\b[0-9A-Za-z][0-9A-Za-z-]{0,62}(?:\.[0-9A-Za-z][0-9A-Za-z-]{0,62})*\.?"),
    ("HOSTPORT", r"%{IPORHOST}:%{POSINT}"),
    ("HOUR", r"(?:2[0123]|[01]?[0-9])"),
    ("HTTPDATE", r"%{MONTHDAY}/%{MONTH}/%{YEAR}:%{TIME} %{INT}"),
    ("INT", r"[+-]?[0-9]+"),
    ("IP", r"(?:%{IPV6}|%{IPV4})"),
    ("IPORHOST", r"(?:%{IP}|%{HOSTNAME})"),
    ("IPV4", r"(?:(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])\.){3}(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])"),
    ("IPV6", r"(?:[0-9A-Fa-f]{0,4}:){2,7}(?:[0-9A-Fa-f]{1,4}|%{IPV4})?"),
    ("ISO8601_TIMEZONE", r"(?:Z|[+-]%{HOUR}(?::?%{MINUTE}))"),
    ("LOGLEVEL", r"(?i:alert|trace|debug|notice|info(?:rmation)?|warn(?:ing)?|err(?:or)?|crit(?:ical)?|fatal|severe|emerg(?:ency)?)"),
    ("MAC", r"(?:[A-Fa-f0-9]{2}[:-]){5}[A-Fa-f0-9]{2}"),
    ("MINUTE", r"[0-5][0-9]"),
    ("MONTH", r"\b(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sep(?:tember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\b"),
    ("MONTHDAY", r"(?:0[1-9]|[12][0-9]|3[01]|[1-9])"),
    ("MONTHNUM", r"(?:0?[1-9]|1[0-2])"),
    ("NONNEGINT", r"\b[0-9]+\b"),
    ("NOTSPACE", r"\S+"),
    ("NUMBER", r"%{BASE10NUM}"),
    ("PATH", r"(?:%{UNIXPATH}|%{WINPATH})"),
    ("POSINT", r"\b[1-9][0-9]*\b"),
    ("PROG", r"[!-Z\\^-~]+"),
    ("QS", r"%{QUOTEDSTRING}"),
    ("QUOTEDSTRING", r#"(?:"(?:\\.|[^\\"])*"|'(?:\\.|[^\\'])*')"#),
    ("SECOND", r"(?:(?:[0-5]?[0-9]|60)(?:[:.,][0-9]+)?)"),
    ("SPACE", r"\s*"),
    ("SYSLOGHOST", r"%{IPORHOST}"),
    ("SYSLOGPROG", r"%{PROG:program}(?:\[%{POSINT:pid}\])?"),
    ("SYSLOGTIMESTAMP", r"%{MONTH} +%{MONTHDAY} %{TIME}"),
    ("TIME", r"%{HOUR}:%{MINUTE}(?::%{SECOND})?"),
    ("TIMESTAMP_ISO8601", r"%{YEAR}-%{MONTHNUM}-%{MONTHDAY}[T ]%{HOUR}:?%{MINUTE}(?::?%{SECOND})?%{ISO8601_TIMEZONE}?"),
    ("UNIXPATH", r"(?:/[A-Za-z0-9_%!$@:.,+~-]*)+"),
    ("URI", r"%{URIPROTO}://(?:%{USER}(?::[^@]*)?@)?(?:%{URIHOST})?(?:%{URIPATHPARAM})?"),
    ("URIHOST", r"%{IPORHOST}(?::%{POSINT})?"),
    ("URIPARAM", r"\?[A-Za-z0-9$.+!*'|(){},~@#%&/=:;_?\[\]<>-]*"),
    ("URIPATH", r"(?:/[A-Za-z0-9$.+!*'(){},~:;=@#%&_-]*)+"),
    ("URIPATHPARAM", r"%{URIPATH}(?:%{URIPARAM})?"),
    ("URIPROTO", r"[A-Za-z][A-Za-z0-9+.-]*"),
    ("USER", r"%{USERNAME}"),
    ("USERNAME", r"[a-zA-Z0-9._-]+"),
    ("UUID", r"[A-Fa-f0-9]{8}-(?:[A-Fa-f0-9]{4}-){3}[A-Fa-f0-9]{12}"),
    ("WINPATH", r"(?:[A-Za-z]+:|\\)(?:\\[^\\?*]*)+"),
    ("WORD", r"\b\w+\b"),
    ("YEAR", r"(?:[0-9]{2}){1,2}"),
];

/// Writes a pattern as a regular expression, and lists its named groups in their order.
///
/// # Errors
/// It names a pattern that is not known, or is too long.
pub(super) fn expand(pattern: &str) -> Result<(String, Vec<String>)> {
    let (mut out, mut names) = (String::new(), Vec::new());
    write(pattern, 0, &mut out, &mut names)?;
    Ok((out, names))
}

fn write(pattern: &str, depth: usize, out: &mut String, names: &mut Vec<String>) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(SqlError::TooLarge(format!(
            "patterns of grok are nested deeper than {MAX_DEPTH} levels"
        )));
    }
    let mut rest = pattern;
    while let Some((before, behind)) = rest.split_once("%{") {
        append(before, out)?;
        let Some((reference, next)) = behind.split_once('}') else {
            return Err(SqlError::Semantic(format!("[%{{{behind}] has no closing brace")));
        };
        let mut parts = reference.splitn(3, ':');
        let (name, field) = (parts.next().unwrap_or_default(), parts.next());
        let Some((_, own)) = PATTERNS.iter().find(|(known, _)| *known == name) else {
            return Err(SqlError::Semantic(format!("grok has no pattern [{name}]")));
        };
        match field {
            None => append("(?:", out)?,
            Some(field) => {
                let is_name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.');
                if !field.starts_with(|letter: char| letter.is_ascii_alphabetic())
                    || !field.chars().all(is_name)
                {
                    return Err(SqlError::Semantic(format!("[{field}] is no name of a field of grok")));
                }
                // A name stands once in an expression: the first of them is the column.
                match names.iter().any(|known| known == field) {
                    true => append("(?:", out)?,
                    false => {
                        names.push(field.to_owned());
                        append(&format!("(?P<{field}>"), out)?;
                    }
                }
            }
        }
        write(own, depth + 1, out, names)?;
        append(")", out)?;
        rest = next;
    }
    append(rest, out)
}

fn append(text: &str, out: &mut String) -> Result<()> {
    out.push_str(text);
    match out.len() > MAX_BYTES {
        true => Err(SqlError::TooLarge(format!("a pattern of grok is longer than {MAX_BYTES} bytes"))),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_become_groups() {
        let (text, names) = expand("%{INT:n} (%{WORD})").unwrap();
        assert_eq!(
            (text.as_str(), names.as_slice()),
            (r"(?P<n>[+-]?[0-9]+) ((?:\b\w+\b))", &["n".to_owned()][..])
        );
        assert!(expand("%{NONE}").is_err() && expand("%{INT").is_err() && expand("%{INT:a b}").is_err());
        assert_eq!(expand("%{INT:a}%{INT:a}").unwrap().1, ["a"]);
    }

    #[test]
    fn every_pattern_expands() {
        assert!(PATTERNS.is_sorted_by(|(one, _), (next, _)| one < next));
        for (name, _) in PATTERNS {
            expand(&format!("%{{{name}:x}}")).unwrap();
        }
        let (_, names) = expand("%{COMMONAPACHELOG}").unwrap();
        assert_eq!(names.first().map(String::as_str), Some("clientip"));
        assert_eq!(names.last().map(String::as_str), Some("bytes"));
    }
}
