//! Formats such as `%05.2f`.

use std::sync::Arc;

use super::super::interpreter::{Flow, Interpreter};
use super::super::value::{RaisedError, Val};
use super::number;

/// Fills a format such as `%05.2f`.
///
/// # Errors
/// A directive that is not supported, or has no value; a text that is too long.
pub(super) fn format(run: &mut Interpreter<'_>, template: &str, values: &[Val]) -> Result<String, Flow> {
    let mut out = String::with_capacity(template.len());
    let mut values = values.iter();
    let mut rest = template;
    while let Some((before, behind)) = rest.split_once('%') {
        out.push_str(before);
        let flags_end =
            behind.find(|letter| !matches!(letter, '-' | '0' | '+' | ' ' | '#')).unwrap_or(behind.len());
        let (flags, behind) = behind.split_at(flags_end);
        let width_end = behind.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(behind.len());
        let (width, behind) = behind.split_at(width_end);
        let (precision, behind) = match behind.strip_prefix('.') {
            Some(digits) => {
                let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
                let (digits, behind) = digits.split_at(end);
                (Some(digits.parse::<usize>().unwrap_or(0).min(300)), behind)
            }
            None => (None, behind),
        };
        let width = width.parse::<usize>().unwrap_or(0).min(4096);
        let mut letters = behind.chars();
        let Some(directive) = letters.next() else {
            return Err(RaisedError::argument("incomplete format specifier").into());
        };
        rest = letters.as_str();
        if directive == '%' {
            out.push('%');
            continue;
        }
        let value = values.next().ok_or_else(|| RaisedError::argument("too few arguments"))?;
        let text = directive_text(directive, precision, flags, value)?;
        let missing = width.saturating_sub(text.chars().count());
        run.allocate(text.len() + missing)?;
        if flags.contains('-') {
            out.push_str(&text);
            out.extend(std::iter::repeat_n(' ', missing));
        } else if flags.contains('0') && directive != 's' {
            let (sign, digits) = match text.strip_prefix(['-', '+']) {
                Some(digits) => text.split_at(text.len() - digits.len()),
                None => ("", text.as_str()),
            };
            out.push_str(sign);
            out.extend(std::iter::repeat_n('0', missing));
            out.push_str(digits);
        } else {
            out.extend(std::iter::repeat_n(' ', missing));
            out.push_str(&text);
        }
    }
    out.push_str(rest);
    Ok(out)
}

fn directive_text(
    directive: char,
    precision: Option<usize>,
    flags: &str,
    value: &Val,
) -> Result<String, RaisedError> {
    let int = || -> Result<i64, RaisedError> {
        match value {
            Val::Text(text) => match number::integer_of(&Val::Text(Arc::clone(text)), None) {
                Ok(Val::Int(number)) => Ok(number),
                _ => Err(RaisedError::argument(format!("invalid value for Integer(): {text:?}"))),
            },
            other => other.number().map(|number| number.floor() as i64).ok_or_else(|| {
                RaisedError::type_error(format!("can't convert {} into Integer", other.class()))
            }),
        }
    };
    let float = || -> Result<f64, RaisedError> {
        match value {
            Val::Text(text) => text
                .trim()
                .parse()
                .map_err(|_| RaisedError::argument(format!("invalid value for Float(): {text:?}"))),
            other => other.number().ok_or_else(|| {
                RaisedError::type_error(format!("can't convert {} into Float", other.class()))
            }),
        }
    };
    let signed =
        |text: String| if flags.contains('+') && !text.starts_with('-') { format!("+{text}") } else { text };
    Ok(match directive {
        's' => {
            let text = value.to_text();
            precision.map_or_else(|| text.to_string(), |most| text.chars().take(most).collect())
        }
        'p' => value.inspect(),
        'd' | 'i' | 'u' => signed(int()?.to_string()),
        'f' => signed(format!("{:.*}", precision.unwrap_or(6), float()?)),
        'e' => {
            let text = format!("{:.*e}", precision.unwrap_or(6), float()?);
            let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let exponent: i32 = exponent.parse().unwrap_or(0);
            signed(format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs()))
        }
        'g' => signed(format!("{}", float()?)),
        'x' => format!("{:x}", int()?),
        'X' => format!("{:X}", int()?),
        'o' => format!("{:o}", int()?),
        'b' => format!("{:b}", int()?),
        'c' => match value {
            Val::Int(number) => {
                u32::try_from(*number).ok().and_then(char::from_u32).map(String::from).unwrap_or_default()
            }
            other => other.to_text().chars().take(1).collect(),
        },
        other => return Err(RaisedError::argument(format!("malformed format string - %{other}"))),
    })
}
