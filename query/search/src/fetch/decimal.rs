//! Number patterns such as `#,##0.00`, as `java.text.DecimalFormat` reads them.

use millrace_dsl::fields::check_format;
use millrace_work::error::{Error, Result};

/// Most digits that a pattern may ask for.
const MAX_DIGITS: usize = 340;

/// A pattern, parsed. Its part for negative numbers is not kept apart: those get a minus sign.
#[derive(Clone, Debug, PartialEq)]
pub struct DecimalFormat {
    prefix: String,
    suffix: String,
    /// Least digits before the point.
    whole: usize,
    /// Least and most digits behind it.
    fraction: (usize, usize),
    /// Digits of a group.
    group: Option<usize>,
    /// Factor: 100 for percents, 1000 for per mille.
    factor: f64,
    /// Least digits of the exponent of scientific notation.
    exponent: Option<usize>,
}

impl DecimalFormat {
    /// Parses a pattern.
    ///
    /// # Errors
    /// A pattern that is none.
    pub fn parse(pattern: &str) -> Result<Self> {
        check_format(pattern)?;
        let malformed = |what: &str| Error::IllegalArgument(format!("{what} in pattern \"{pattern}\""));
        let mut format = Self {
            prefix: String::new(),
            suffix: String::new(),
            whole: 0,
            fraction: (0, 0),
            group: None,
            factor: 1.0,
            exponent: None,
        };
        let (mut in_number, mut behind, mut point, mut quoted) = (false, false, false, false);
        let mut chars = pattern.chars().peekable();
        while let Some(c) = chars.next() {
            if quoted {
                if c == '\'' {
                    quoted = false
                } else {
                    format.affix(behind).push(c)
                }
                continue;
            }
            match c {
                '\'' if chars.peek() == Some(&'\'') => {
                    chars.next();
                    format.affix(behind).push('\'');
                }
                '\'' => {
                    behind = in_number;
                    quoted = true;
                }
                ';' => break,
                '#' | '0' | ',' | '.' | 'E' if behind && c != 'E' => {
                    return Err(malformed("Unquoted special character"));
                }
                '#' if point => format.fraction.1 += 1,
                '#' => {
                    in_number = true;
                    if format.whole > 0 {
                        return Err(malformed("Unexpected '0'"));
                    }
                    format.group = format.group.map(|digits| digits + 1);
                }
                '0' if point => {
                    if format.fraction.1 > format.fraction.0 {
                        return Err(malformed("Unexpected '0'"));
                    }
                    format.fraction = (format.fraction.0 + 1, format.fraction.1 + 1);
                }
                '0' => {
                    in_number = true;
                    format.whole += 1;
                    format.group = format.group.map(|digits| digits + 1);
                }
                ',' => {
                    in_number = true;
                    format.group = Some(0);
                }
                '.' if point => return Err(malformed("Multiple decimal separators")),
                '.' => {
                    in_number = true;
                    point = true;
                }
                'E' if in_number && !behind => {
                    let mut digits = 0;
                    while chars.next_if_eq(&'0').is_some() {
                        digits += 1;
                    }
                    if digits == 0 {
                        return Err(malformed("Malformed exponential pattern"));
                    }
                    format.exponent = Some(digits);
                    behind = true;
                }
                '%' | '\u{2030}' => {
                    format.factor = if c == '%' { 100.0 } else { 1000.0 };
                    behind = in_number;
                    format.affix(behind).push(c);
                }
                other => {
                    behind = in_number;
                    format.affix(behind).push(other);
                }
            }
            if format.whole > MAX_DIGITS || format.fraction.1 > MAX_DIGITS {
                return Err(malformed("Too many digits"));
            }
        }
        if format.group == Some(0) {
            return Err(malformed("Malformed pattern"));
        }
        // A pattern of `#` alone before the point still shows a zero where nothing is behind it.
        if !point && format.whole == 0 && in_number && format.exponent.is_none() {
            format.whole = 1;
        }
        Ok(format)
    }

    fn affix(&mut self, behind: bool) -> &mut String {
        if behind { &mut self.suffix } else { &mut self.prefix }
    }

    /// Writes a number; halves are rounded to even.
    pub fn write(&self, number: f64) -> String {
        if number.is_nan() {
            return "NaN".to_owned();
        }
        let sign = if number.is_sign_negative() && number != 0.0 { "-" } else { "" };
        let size = number.abs() * self.factor;
        let digits = if size.is_infinite() { "\u{221e}".to_owned() } else { self.digits(size) };
        let sign =
            if digits.bytes().all(|b| !(b'1'..=b'9').contains(&b)) && size.is_finite() { "" } else { sign };
        format!("{sign}{}{digits}{}", self.prefix, self.suffix)
    }

    fn digits(&self, size: f64) -> String {
        if let Some(least) = self.exponent {
            let text = format!("{size:.*e}", self.fraction.1);
            let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let (minus, exponent) = exponent.strip_prefix('-').map_or(("", exponent), |e| ("-", e));
            let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
            let fraction = self.fraction_digits(fraction);
            return format!("{whole}{fraction}E{minus}{exponent:0>least$}");
        }
        // Rust rounds the exact binary value, ties to even, as DecimalFormat does.
        let text = format!("{size:.*}", self.fraction.1);
        let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
        let whole = whole.trim_start_matches('0');
        let mut whole = format!("{whole:0>least$}", least = self.whole);
        let fraction = self.fraction_digits(fraction);
        if whole.is_empty() && fraction.is_empty() {
            whole.push('0');
        }
        match self.group {
            Some(group) => {
                let length = whole.len();
                let mut grouped = String::with_capacity(length + length / group);
                for (at, digit) in whole.chars().enumerate() {
                    if at > 0 && (length - at) % group == 0 {
                        grouped.push(',');
                    }
                    grouped.push(digit);
                }
                grouped + &fraction
            }
            None => whole + &fraction,
        }
    }

    /// The digits behind the point, with it; zeros that need not be are left out.
    fn fraction_digits(&self, digits: &str) -> String {
        let mut digits = digits.to_owned();
        while digits.len() > self.fraction.0 && digits.ends_with('0') {
            digits.pop();
        }
        if digits.is_empty() { digits } else { format!(".{digits}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_write_as_java_writes() {
        let cases = [
            ("#.0", 3.0, "3.0"),
            ("000", 5.0, "005"),
            ("#.##", 1.1, "1.1"),
            ("#.##", 0.25, ".25"),
            ("0.0", 0.25, "0.2"),
            ("#,##0.00", 1234567.891, "1,234,567.89"),
            ("0%", 0.256, "26%"),
            ("'n:'0", 7.0, "n:7"),
            ("0.#", -0.01, "0"),
            ("#", 0.0, "0"),
            ("0.00E00", 12345.0, "1.23E04"),
            ("$0.0", -2.5, "-$2.5"),
        ];
        for (pattern, number, expected) in cases {
            assert_eq!(DecimalFormat::parse(pattern).unwrap().write(number), expected, "{pattern} {number}");
        }
        assert!(DecimalFormat::parse("0.0.0").is_err() && DecimalFormat::parse("0,").is_err());
    }
}
