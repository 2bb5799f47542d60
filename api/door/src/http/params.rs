//! Query parameters, consumed by name so that what is left can be refused.

use std::time::Duration;

use millrace_catalog::metadata::edit_distance;

use crate::error::Error;
use crate::http::path;

/// Query parameters; every handler consumes those that it knows, and the rest is refused.
///
/// A name given twice counts with its last value. At most [`Params::MAX`] parameters are read.
#[derive(Clone, Debug, Default)]
pub struct Params {
    values: Vec<(String, String)>,
    /// Values that were given before those, for parameters that may be given several times.
    earlier: Vec<(String, String)>,
    /// Names that were asked for while others were left: candidates for "did you mean".
    known: Vec<String>,
    /// `true` if the answer is for people: `human`, which every endpoint has.
    pub human: bool,
}

impl Params {
    /// Most parameters of one request.
    pub const MAX: usize = 1024;

    /// Parses a query string.
    ///
    /// # Errors
    /// Malformed escapes; more than [`Params::MAX`] parameters.
    pub fn parse(query: &str) -> Result<Self, Error> {
        let mut params = Self::default();
        for (number, pair) in query.split('&').filter(|pair| !pair.is_empty()).enumerate() {
            if number == Self::MAX {
                return Err(Error::illegal_argument(format!("more than [{}] query parameters", Self::MAX)));
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (path::decode(name, true)?, path::decode(value, true)?);
            if let Some((_, slot)) = params.values.iter_mut().find(|(known, _)| *known == name) {
                let before = std::mem::replace(slot, value);
                params.earlier.push((name, before));
            } else {
                params.values.push((name, value));
            }
        }
        Ok(params)
    }

    /// Sets a parameter, replacing an earlier value.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let (name, value) = (name.into(), value.into());
        match self.values.iter_mut().find(|(known, _)| *known == name) {
            Some(slot) => slot.1 = value,
            None => self.values.push((name, value)),
        }
    }

    /// Reads a parameter and leaves it.
    pub fn peek(&self, name: &str) -> Option<&str> {
        self.values.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns how many bytes names and values have together.
    pub fn bytes(&self) -> usize {
        self.values.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// Takes a parameter.
    pub fn take(&mut self, name: &str) -> Option<String> {
        if self.values.is_empty() {
            return None;
        }
        match self.values.iter().position(|(known, _)| known == name) {
            Some(at) => Some(self.values.remove(at).1),
            None => {
                self.known.push(name.to_owned());
                None
            }
        }
    }

    /// Takes a boolean; an empty value means true.
    ///
    /// # Errors
    /// Values other than `true`, `false` and the empty one.
    pub fn take_bool(&mut self, name: &str) -> Result<Option<bool>, Error> {
        match self.take(name).as_deref() {
            None => Ok(None),
            Some("" | "true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(value) => Err(Error::illegal_argument(format!(
                "Failed to parse value [{value}] as only [true] or [false] are allowed."
            ))),
        }
    }

    /// Takes a time value such as `30s`; `-1` means without bound ([`Duration::MAX`]).
    ///
    /// # Errors
    /// A missing or unknown unit, or no number.
    pub fn take_time(&mut self, name: &str) -> Result<Option<Duration>, Error> {
        self.take(name).map(|value| parse_time(name, &value)).transpose()
    }

    /// Takes an integer.
    ///
    /// # Errors
    /// Anything that is not an integer.
    pub fn take_int(&mut self, name: &str) -> Result<Option<i64>, Error> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => value.parse().map(Some).map_err(|_| {
                Error::illegal_argument(format!(
                    "Failed to parse int parameter [{name}] with value [{value}]"
                ))
            }),
        }
    }

    /// Takes a comma-separated list; empty elements are dropped.
    pub fn take_list(&mut self, name: &str) -> Option<Vec<String>> {
        let value = self.take(name)?;
        Some(value.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect())
    }

    /// Takes the values of all parameters of a name, in their order.
    pub fn take_each(&mut self, name: &str) -> Vec<String> {
        let last = self.take(name);
        let of_name = self.earlier.iter().filter(|(known, _)| known == name);
        of_name.map(|(_, value)| value.clone()).chain(last).collect()
    }

    /// Takes the elements of the comma-separated lists of all parameters of a name, in their order.
    pub fn take_lists(&mut self, name: &str) -> Vec<String> {
        let lists = self.take_each(name);
        let parts = lists.iter().flat_map(|list| list.split(',')).filter(|part| !part.is_empty());
        parts.map(str::to_owned).collect()
    }

    /// Lists the names that are left.
    pub fn remaining(&self) -> Vec<&str> {
        self.values.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// Takes everything that is left.
    pub fn take_all(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.values)
    }

    /// Refuses what is left, in OpenSearch's words.
    pub fn refuse_rest(&self, uri: &str) -> Result<(), Error> {
        use std::fmt::Write as _;
        if self.values.is_empty() {
            return Ok(());
        }
        let plural = if self.values.len() == 1 { "" } else { "s" };
        let mut reason = format!("request [{uri}] contains unrecognized parameter{plural}: ");
        let mut names = self.remaining();
        names.sort_unstable();
        for (number, name) in names.into_iter().enumerate() {
            let _ = write!(reason, "{}[{name}]", if number == 0 { "" } else { ", " });
            let near = nearest(name, self.known.iter().map(String::as_str));
            match near.as_slice() {
                [] => {}
                [one] => _ = write!(reason, " -> did you mean [{one}]?"),
                many => _ = write!(reason, " -> did you mean any of [{}]?", many.join(", ")),
            }
        }
        Err(Error::illegal_argument(reason))
    }
}

/// Parses a time value by OpenSearch's units; `-1` is the longest time.
///
/// # Errors
/// The text is no time value.
pub fn parse_time(name: &str, text: &str) -> Result<Duration, Error> {
    let time = millrace_catalog::metadata::parse_time(text).map_err(|reason| {
        Error::illegal_argument(format!(
            "failed to parse setting [{name}] with value [{text}] as a time value: {reason}"
        ))
    })?;
    Ok(time.unwrap_or(Duration::MAX))
}

/// Finds the known names that resemble a misspelt one, nearest first.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut scored = known
        .map(|candidate| {
            let longest = name.chars().count().max(candidate.chars().count()).max(1);
            (1.0 - distance(name, candidate) as f64 / longest as f64, candidate)
        })
        .filter(|(score, _)| *score > 0.5)
        .collect::<Vec<_>>();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    scored.dedup_by(|a, b| a.1 == b.1);
    scored.into_iter().map(|(_, candidate)| candidate).collect()
}

/// Levenshtein distance; names beyond 100 characters are taken to be wholly different.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.chars().collect::<Vec<_>>(), b.chars().collect::<Vec<_>>());
    if a.len() > 100 || b.len() > 100 {
        return a.len().max(b.len());
    }
    edit_distance(&a, &b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_typed_and_consumed() {
        let mut params = Params::parse("refresh&size=10&timeout=30s&a=x%20y+z&pretty=true&size=11").unwrap();
        assert_eq!(params.take_bool("refresh").unwrap(), Some(true));
        assert_eq!(params.take_int("size").unwrap(), Some(11));
        assert_eq!(params.take_time("timeout").unwrap(), Some(Duration::from_secs(30)));
        assert_eq!(params.take("a").as_deref(), Some("x y z"));
        assert_eq!(params.take("a"), None);
        assert_eq!(params.remaining(), ["pretty"]);
    }

    #[test]
    fn lists_may_be_given_several_times() {
        let mut params = Params::parse("a=x,y&b=1&a=&a=z%2Cw&b=2").unwrap();
        assert_eq!(params.take_lists("a"), ["x", "y", "z", "w"]);
        assert_eq!(params.take("b").as_deref(), Some("2"), "elsewhere the last one counts");
        assert_eq!(params.take_lists("c"), Vec::<String>::new());
        assert!(params.remaining().is_empty());
    }

    #[test]
    fn bad_values_are_named() {
        let mut params = Params::parse("a=maybe&b=1.5&c=5&d=99999999999999999999d").unwrap();
        assert!(params.take_bool("a").unwrap_err().reason().contains("[maybe]"));
        assert!(params.take_int("b").unwrap_err().reason().contains("[b] with value [1.5]"));
        assert!(params.take_time("c").unwrap_err().reason().contains("unit is missing"));
        assert!(params.take_time("d").is_err());
        assert_eq!(Params::parse("t=-1").unwrap().take_time("t").unwrap(), Some(Duration::MAX));
    }

    #[test]
    fn what_is_left_is_refused_with_a_suggestion() {
        let mut params = Params::parse("refersh=true&zzzz=1").unwrap();
        params.take("refresh");
        params.take("routing");
        let error = params.refuse_rest("/logs/_doc").unwrap_err();
        assert_eq!(
            error.reason(),
            "request [/logs/_doc] contains unrecognized parameters: [refersh] -> did you mean [refresh]?, [zzzz]"
        );
    }
}
