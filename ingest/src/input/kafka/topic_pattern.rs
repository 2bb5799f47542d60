//! `topics_pattern`: an expression in the syntax of Java becomes one in that of POSIX, which librdkafka matches names with.

/// Turns an expression; it is for whole names.
///
/// # Errors
/// What POSIX has nothing for.
pub(super) fn to_posix(pattern: &str) -> Result<String, String> {
    let refused = |what: &str| {
        Err(format!(
            "option [topics_pattern] cannot have [{what}]: names are matched by an extended expression of POSIX"
        ))
    };
    let mut out = String::new();
    let mut rest = pattern.chars().peekable();
    while let Some(letter) = rest.next() {
        match letter {
            '\\' => match rest.next() {
                Some(class @ ('d' | 'w' | 's' | 'D' | 'W' | 'S')) => {
                    let negated = if class.is_ascii_uppercase() { "^" } else { "" };
                    out.push_str(&format!("[{negated}{}]", members(class.to_ascii_lowercase())));
                }
                Some(escaped) if !escaped.is_ascii_alphanumeric() => out.extend(['\\', escaped]),
                Some(other) => return refused(&format!("\\{other}")),
                None => return refused("\\"),
            },
            '(' if rest.next_if_eq(&'?').is_some() => match rest.next() {
                Some(':') => out.push('('),
                Some('<') if rest.peek().is_some_and(char::is_ascii_alphabetic) => {
                    // What a group is called says nothing.
                    rest.by_ref().find(|letter| *letter == '>');
                    out.push('(');
                }
                Some(other) => return refused(&format!("(?{other}")),
                None => return refused("(?"),
            },
            '[' => out.push_str(&set(&mut rest).or_else(|what| refused(&what))?),
            '*' | '+' | '?' | '}' => {
                out.push(letter);
                // A whole name matches or not, however much is tried first.
                if rest.next_if_eq(&'?').is_none() && rest.peek() == Some(&'+') {
                    return refused(&format!("{letter}+"));
                }
            }
            other => out.push(other),
        }
    }
    Ok(format!("^({out})$"))
}

fn members(class: char) -> &'static str {
    match class {
        'd' => "0-9",
        'w' => "A-Za-z0-9_",
        _ => "[:space:]",
    }
}

/// Reads a set whose bracket was read. In sets of POSIX, backslashes stand for themselves, and a hyphen for itself at the end.
fn set(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<String, String> {
    let negated = rest.next_if_eq(&'^').is_some();
    let (mut inner, mut first, mut last) = (String::new(), String::new(), String::new());
    loop {
        match rest.next() {
            None => return Err("[".to_owned()),
            Some(']') if inner.is_empty() && first.is_empty() && last.is_empty() => first.push(']'),
            Some(']') => break,
            Some('[') => return Err("[ within a set".to_owned()),
            Some('&') if rest.peek() == Some(&'&') => return Err("&&".to_owned()),
            Some('\\') => match rest.next() {
                Some(class @ ('d' | 'w' | 's')) => inner.push_str(members(class)),
                Some('-') => last = "-".to_owned(),
                Some(']') => first = "]".to_owned(),
                Some(escaped) if !escaped.is_ascii_alphanumeric() => inner.push(escaped),
                other => return Err(format!("\\{}", other.map(String::from).unwrap_or_default())),
            },
            Some(other) => inner.push(other),
        }
    }
    // A circumflex at the beginning would negate the set.
    if !negated
        && first.is_empty()
        && let Some(behind) = inner.strip_prefix('^')
    {
        inner = format!("{behind}^");
    }
    Ok(format!("[{}{first}{inner}{last}]", if negated { "^" } else { "" }))
}

#[cfg(test)]
mod tests {
    use super::to_posix;

    #[test]
    fn expressions_of_java_become_those_of_posix() {
        for (java, posix) in [
            (r"logs-\d+", "^(logs-[0-9]+)$"),
            (r"a\.b|c", r"^(a\.b|c)$"),
            (r"(?:a|b)-[\d\-x]+?", "^((a|b)-[0-9x-]+)$"),
            (r"[\w.]{2,}\S*", "^([A-Za-z0-9_.]{2,}[^[:space:]]*)$"),
            (r"(?<env>prod|test)_.*", "^((prod|test)_.*)$"),
            (r"[^\]a]", "^([^]a])$"),
            (r"[\^a]", "^([a^])$"),
        ] {
            assert_eq!(to_posix(java).as_deref(), Ok(posix), "{java}");
        }
        for refused in [r"(?!a).*", r"a\b", r"(?i)a", "a*+", r"\1", "[a", r"[a-z&&[^b]]", "a\\"] {
            assert!(to_posix(refused).is_err(), "{refused}");
        }
    }
}
