//! Values of configuration keys: parsed from TOML, from the environment and from flags alike.
//!
//! [`Kind`] says what a key takes; [`Value`] is what it was given, in the unit the rest of the
//! program wants (bytes, milliseconds). Text forms are those that people write: `64MB`, `1s`.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// Kind of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `true` or `false`.
    Bool,
    /// A whole number from 0 to the given greatest.
    Count(u64),
    /// An amount of memory or disk of at least so many bytes: `64MB`, or a number of bytes.
    Bytes(u64),
    /// A time span of at least so many milliseconds: `1s`, `250ms`, or a number of seconds.
    Span(u64),
    /// Any text.
    Text,
    /// One of the given words.
    Word(&'static [&'static str]),
    /// One or more `HOST:PORT`, in the environment and on the command line separated by commas.
    Addresses,
    /// The same or none: `off`, in a file also an empty array.
    AddressesOrNone,
}

/// Value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// A switch.
    Bool(bool),
    /// A number.
    Count(u64),
    /// Bytes.
    Bytes(u64),
    /// A time span.
    Span(Duration),
    /// Text.
    Text(String),
    /// Addresses, resolved.
    Addresses(Vec<SocketAddr>),
}

impl Kind {
    /// Parses text, as the environment and flags give it.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the text and what is expected, without naming the key.
    pub(crate) fn parse(self, text: &str) -> Result<Value, String> {
        let trimmed = text.trim();
        match self {
            Self::Bool => match trimmed.to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" | "1" => Ok(Value::Bool(true)),
                "false" | "no" | "off" | "0" => Ok(Value::Bool(false)),
                _ => Err(format!("`{text}` is neither true nor false")),
            },
            Self::Count(most) => match trimmed.parse::<u64>() {
                Ok(count) if count <= most => Ok(Value::Count(count)),
                _ => Err(format!("`{text}` is not a whole number from 0 to {most}")),
            },
            Self::Bytes(least) => at_least(parse_bytes(trimmed)?, least, text).map(Value::Bytes),
            Self::Span(least) => {
                let span = parse_span(trimmed)?;
                if span.as_millis() < u128::from(least) {
                    let least = format_span(Duration::from_millis(least));
                    return Err(format!("`{text}` is less than {least}, the least allowed"));
                }
                Ok(Value::Span(span))
            }
            Self::Text if text.is_empty() => Err("it must not be empty".to_owned()),
            Self::Text => Ok(Value::Text(text.to_owned())),
            Self::Word(words) => match words.iter().find(|word| word.eq_ignore_ascii_case(trimmed)) {
                Some(word) => Ok(Value::Text((*word).to_owned())),
                None => Err(format!("`{text}` is not one of {}", words.join(", "))),
            },
            Self::AddressesOrNone if trimmed.eq_ignore_ascii_case("off") => Ok(Value::Addresses(Vec::new())),
            Self::Addresses | Self::AddressesOrNone => {
                let addresses: Vec<SocketAddr> =
                    trimmed.split(',').map(|part| parse_address(part.trim())).collect::<Result<_, _>>()?;
                Ok(Value::Addresses(addresses))
            }
        }
    }

    /// Takes a TOML value: text as [`Kind::parse`] does, and the natural TOML type beside it.
    ///
    /// # Errors
    ///
    /// As [`Kind::parse`].
    pub(crate) fn take(self, value: &toml::Value) -> Result<Value, String> {
        let number = |number: i64| {
            u64::try_from(number).map_err(|_| format!("`{number}` is negative; it must be 0 or greater"))
        };
        match (self, value) {
            (_, toml::Value::String(text)) => self.parse(text),
            (Self::Bool, toml::Value::Boolean(value)) => Ok(Value::Bool(*value)),
            (Self::Count(_) | Self::Bytes(_) | Self::Span(_), toml::Value::Integer(value)) => {
                self.parse(&number(*value)?.to_string())
            }
            (Self::Span(_), toml::Value::Float(seconds)) => self.parse(&seconds.to_string()),
            (Self::Addresses | Self::AddressesOrNone, toml::Value::Array(parts))
                if !parts.is_empty() || self == Self::AddressesOrNone =>
            {
                let mut addresses = Vec::with_capacity(parts.len());
                for part in parts {
                    match part.as_str() {
                        Some(text) => addresses.push(parse_address(text)?),
                        None => return Err(format!("`{part}` is not a HOST:PORT string")),
                    }
                }
                Ok(Value::Addresses(addresses))
            }
            _ => Err(format!("`{value}` is {}, expected {self}", value.type_str())),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("true or false"),
            Self::Count(most) => write!(f, "a whole number from 0 to {most}"),
            Self::Bytes(_) => f.write_str("a size such as \"64MB\" or a number of bytes"),
            Self::Span(_) => f.write_str("a time span such as \"1s\" or a number of seconds"),
            Self::Text => f.write_str("a string"),
            Self::Word(words) => write!(f, "one of {}", words.join(", ")),
            Self::Addresses => f.write_str("\"HOST:PORT\" or an array of them"),
            Self::AddressesOrNone => f.write_str("\"HOST:PORT\", an array of them, or \"off\""),
        }
    }
}

impl Value {
    /// Renders the value as TOML that [`Kind::take`] reads back as the same value.
    pub(crate) fn to_toml(&self) -> String {
        let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
        match self {
            Self::Bool(value) => value.to_string(),
            Self::Count(value) => value.to_string(),
            Self::Bytes(value) => quoted(&format_bytes(*value)),
            Self::Span(value) => quoted(&format_span(*value)),
            Self::Text(text) => quoted(text),
            Self::Addresses(addresses) => {
                let quoted: Vec<String> = addresses.iter().map(|a| quoted(&a.to_string())).collect();
                format!("[{}]", quoted.join(", "))
            }
        }
    }
}

const UNITS: [(&str, u64); 5] =
    [("TB", 1 << 40), ("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10), ("B", 1)];

fn at_least(bytes: u64, least: u64, text: &str) -> Result<u64, String> {
    if bytes < least {
        return Err(format!("`{text}` is less than {}, the least allowed", format_bytes(least)));
    }
    Ok(bytes)
}

/// Splits `64MB` into number and lower-case unit.
fn split_unit(text: &str) -> (&str, String) {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    (text[..end].trim(), text[end..].trim().to_ascii_lowercase())
}

/// Parses bytes. Units count in steps of 1,024, as OpenSearch's do; `KiB` is the same as `KB`.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let refused = || format!("`{text}` is not a size such as 512KB, 64MB or 1GB");
    let (number, unit) = split_unit(text);
    let factor = match unit.as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return Err(refused()),
    };
    if let Ok(number) = number.parse::<u64>() {
        return number.checked_mul(factor).ok_or_else(refused);
    }
    let number: f64 = number.parse().map_err(|_| refused())?;
    let bytes = number * factor as f64;
    if bytes < 9e18 { Ok(bytes.round() as u64) } else { Err(refused()) }
}

/// Parses a time span; a bare number is seconds.
pub(crate) fn parse_span(text: &str) -> Result<Duration, String> {
    let refused = || format!("`{text}` is not a time span such as 250ms, 1s, 10m or 2h");
    let (number, unit) = split_unit(text);
    let seconds = match unit.as_str() {
        "ms" => 0.001,
        "" | "s" | "sec" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return Err(refused()),
    };
    let number: f64 = number.parse().map_err(|_| refused())?;
    let millis = number * seconds * 1_000.0;
    if millis < 1e15 { Ok(Duration::from_millis(millis.round() as u64)) } else { Err(refused()) }
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    use std::net::ToSocketAddrs;
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let refused = || format!("`{text}` is not HOST:PORT, such as 127.0.0.1:9200");
    let (host, port) = text.rsplit_once(':').ok_or_else(refused)?;
    let port: u16 = port.parse().map_err(|_| refused())?;
    if host.is_empty() {
        return Err(refused());
    }
    let mut found =
        (host, port).to_socket_addrs().map_err(|error| format!("`{text}` cannot be resolved: {error}"))?;
    found.next().ok_or_else(|| format!("`{text}` resolves to no address"))
}

/// Renders bytes in the greatest unit that divides them.
pub(crate) fn format_bytes(bytes: u64) -> String {
    for (unit, factor) in UNITS {
        if bytes >= factor && bytes.is_multiple_of(factor) {
            return format!("{}{unit}", bytes / factor);
        }
    }
    format!("{bytes}B")
}

/// Renders a time span in the greatest unit that divides it.
pub(crate) fn format_span(span: Duration) -> String {
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    for (unit, factor) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)] {
        if millis >= factor && millis.is_multiple_of(factor) {
            return format!("{}{unit}", millis / factor);
        }
    }
    if millis == 0 { "0s".to_owned() } else { format!("{millis}ms") }
}
