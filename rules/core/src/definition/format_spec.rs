//! Format specifications of Python, such as `.2f` in `{0:.2f}`.
//!
//! `[[fill]align][sign][#][0][width][grouping][.precision][type]`, as `str.format` reads it. A value that is no number is a text,
//! whatever the type says: one odd event costs no alert.

use std::fmt::Write;

/// Most characters of a width or a precision.
const MAX_WIDTH: usize = 1_000;

/// Alignment of a value within its width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Align {
    Left,
    Right,
    Center,
    /// Right, with the sign before the fill.
    AfterSign,
}

/// A format specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FormatSpec {
    fill: char,
    align: Option<Align>,
    sign: char,
    alternate: bool,
    width: usize,
    grouping: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

impl FormatSpec {
    /// Reads a specification; `None` where it is none.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut spec = Self {
            fill: ' ',
            align: None,
            sign: '-',
            alternate: false,
            width: 0,
            grouping: None,
            precision: None,
            kind: None,
        };
        let mut rest: Vec<char> = text.chars().collect();
        let align = |c: &char| match c {
            '<' => Some(Align::Left),
            '>' => Some(Align::Right),
            '^' => Some(Align::Center),
            '=' => Some(Align::AfterSign),
            _ => None,
        };
        if let Some(found) = rest.get(1).and_then(align) {
            (spec.fill, spec.align) = (rest[0], Some(found));
            rest.drain(..2);
        } else if let Some(found) = rest.first().and_then(align) {
            spec.align = Some(found);
            rest.remove(0);
        }
        let mut rest = rest.into_iter().peekable();
        if let Some(sign) = rest.next_if(|c| matches!(c, '+' | '-' | ' ')) {
            spec.sign = sign;
        }
        spec.alternate = rest.next_if_eq(&'#').is_some();
        if rest.next_if_eq(&'0').is_some() && spec.align.is_none() {
            (spec.fill, spec.align) = ('0', Some(Align::AfterSign));
        }
        let number = |rest: &mut std::iter::Peekable<std::vec::IntoIter<char>>| -> Option<Option<usize>> {
            let mut digits = String::new();
            while let Some(digit) = rest.next_if(char::is_ascii_digit) {
                digits.push(digit);
            }
            match digits.is_empty() {
                true => Some(None),
                false => digits.parse().ok().filter(|number| *number <= MAX_WIDTH).map(Some),
            }
        };
        spec.width = number(&mut rest)?.unwrap_or(0);
        spec.grouping = rest.next_if(|c| matches!(c, ',' | '_'));
        if rest.next_if_eq(&'.').is_some() {
            spec.precision = Some(number(&mut rest)??);
        }
        spec.kind = rest.next();
        let known = spec.kind.is_none_or(|kind| "bdoxXeEfFgGn%s".contains(kind));
        (known && rest.next().is_none()).then_some(spec)
    }

    /// Writes a value.
    pub(super) fn apply(&self, value: &str) -> String {
        match value.trim().parse::<f64>() {
            Ok(number) if number.is_finite() && self.kind != Some('s') => self.number(value.trim(), number),
            _ => {
                let most = self.precision.filter(|_| matches!(self.kind, None | Some('s')));
                let cut = value.chars().take(most.unwrap_or(usize::MAX)).collect();
                self.padded("", cut, Align::Left)
            }
        }
    }

    fn number(&self, text: &str, number: f64) -> String {
        let whole = text.parse::<i128>().ok().or_else(|| {
            let is_whole = number.fract() == 0.0 && number.abs() < 1e18;
            (is_whole && matches!(self.kind, Some('b' | 'd' | 'o' | 'x' | 'X' | 'n')))
                .then_some(number as i128)
        });
        let precision = self.precision.unwrap_or(6);
        let size = number.abs();
        let mut digits = match (self.kind, whole) {
            (Some('b'), Some(whole)) => format!("{:b}", whole.unsigned_abs()),
            (Some('o'), Some(whole)) => format!("{:o}", whole.unsigned_abs()),
            (Some('x'), Some(whole)) => format!("{:x}", whole.unsigned_abs()),
            (Some('X'), Some(whole)) => format!("{:X}", whole.unsigned_abs()),
            (None | Some('d' | 'n'), Some(whole)) if self.precision.is_none() => {
                whole.unsigned_abs().to_string()
            }
            (Some('f' | 'F'), _) => format!("{size:.precision$}"),
            (Some('%'), _) => format!("{:.precision$}%", size * 100.0),
            (Some('e'), _) => scientific(size, precision),
            (Some('E'), _) => scientific(size, precision).to_uppercase(),
            (None, None) if self.precision.is_none() => text.trim_start_matches(['-', '+']).to_owned(),
            (kind, _) => {
                let shortest = general(size, precision.max(1));
                if kind == Some('G') { shortest.to_uppercase() } else { shortest }
            }
        };
        if self.alternate && whole.is_some() {
            let prefix = match self.kind {
                Some('b') => "0b",
                Some('o') => "0o",
                Some('x') => "0x",
                Some('X') => "0X",
                _ => "",
            };
            digits.insert_str(0, prefix);
        }
        if let Some(separator) = self.grouping {
            digits = grouped(&digits, separator);
        }
        let negative = number.is_sign_negative() && (number != 0.0 || text.starts_with('-'));
        let sign = match (negative, self.sign) {
            (true, _) => "-",
            (false, '+') => "+",
            (false, ' ') => " ",
            _ => "",
        };
        self.padded(sign, digits, Align::Right)
    }

    fn padded(&self, sign: &str, text: String, usual: Align) -> String {
        let fill = self.width.saturating_sub(sign.len() + text.chars().count());
        let of = |count: usize| -> String { std::iter::repeat_n(self.fill, count).collect() };
        match self.align.unwrap_or(usual) {
            Align::Left => format!("{sign}{text}{}", of(fill)),
            Align::Right => format!("{}{sign}{text}", of(fill)),
            Align::Center => format!("{}{sign}{text}{}", of(fill / 2), of(fill - fill / 2)),
            Align::AfterSign => format!("{sign}{}{text}", of(fill)),
        }
    }
}

/// Writes a number with an exponent of at least two digits.
fn scientific(number: f64, precision: usize) -> String {
    let text = format!("{number:.precision$e}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    format!("{digits}e{sign}{exponent:0>2}")
}

/// Writes a number with so many significant digits, without zeros at the end.
fn general(number: f64, precision: usize) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    let scientific = scientific(number, precision - 1);
    let exponent =
        scientific.split_once('e').and_then(|(_, exponent)| exponent.parse::<i64>().ok()).unwrap_or(0);
    let trimmed = |digits: &str| match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => digits.to_owned(),
    };
    if exponent < -4 || exponent >= precision as i64 {
        let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "+00"));
        return format!("{}e{exponent}", trimmed(digits));
    }
    let decimals = usize::try_from(precision as i64 - 1 - exponent).unwrap_or(0);
    trimmed(&format!("{number:.decimals$}"))
}

/// Separates thousands of the digits before the point.
fn grouped(digits: &str, separator: char) -> String {
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let (whole, rest) = digits.split_at(end);
    let mut out = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            out.push(separator);
        }
        out.push(digit);
    }
    // Writing to a text cannot fail.
    let _ = out.write_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_python_writes_them() {
        for (spec, value, expected) in [
            (".2f", "3.14159", "3.14"),
            (".2f", "3", "3.00"),
            ("", "3.5", "3.5"),
            ("d", "42", "42"),
            ("05d", "-42", "-0042"),
            ("+", "7", "+7"),
            (",", "1234567", "1,234,567"),
            (",.1f", "1234567.25", "1,234,567.2"),
            ("_d", "1234", "1_234"),
            (">8", "abc", "     abc"),
            ("<6", "abc", "abc   "),
            ("*^7", "abc", "**abc**"),
            (".2", "abcdef", "ab"),
            ("5", "ab", "ab   "),
            ("5", "12", "   12"),
            (".1%", "0.256", "25.6%"),
            ("e", "12345", "1.234500e+04"),
            (".2E", "0.00012", "1.20E-04"),
            ("g", "0.00001234", "1.234e-05"),
            ("g", "1234567", "1.23457e+06"),
            (".3g", "1234", "1.23e+03"),
            (".3", "2.5", "2.5"),
            ("x", "255", "ff"),
            ("#X", "255", "0XFF"),
            ("b", "5", "101"),
            ("s", "12", "12"),
            (".2f", "many", "many"),
            ("=+6d", "42", "+   42"),
        ] {
            assert_eq!(FormatSpec::parse(spec).unwrap().apply(value), expected, "{spec} of {value}");
        }
    }

    #[test]
    fn what_is_no_specification_is_told() {
        for spec in ["q", ".", ".f", "5x5", "9999d", "{width}", "%H:%M", "ff"] {
            assert_eq!(FormatSpec::parse(spec), None, "{spec}");
        }
    }
}
