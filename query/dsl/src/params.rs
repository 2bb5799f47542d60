//! URL parameters: taken one by one; the rest at the end was not known.

use millrace_catalog::metadata::IndicesOptions;
use millrace_work::error::{Error, Result};
use serde_json::Value;

use crate::json;
use crate::query::{self, Query};

/// Parameters that say how to answer, for the layer that writes the answer.
const RENDERING: &[&str] =
    &["pretty", "human", "error_trace", "filter_path", "format", "source_content_type"];

/// Indices of a request, and the selection of their shards.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Options for the resolution of the expression.
    pub options: IndicesOptions,
    /// Routing values that restrict shards.
    pub routing: Option<Vec<String>>,
    /// Numbers of the shards that `preference` restricts the search to.
    pub shards: Option<Vec<u32>>,
    /// Names of what was said of all this, as refusals name it.
    pub said: Vec<&'static str>,
}

/// The parameters of a request.
#[derive(Clone, Debug)]
pub struct Params {
    path: String,
    given: Vec<(String, String)>,
    asked: Vec<&'static str>,
}

impl Params {
    /// Wraps the parameters of a request to `path`, which error texts name.
    pub fn new(path: String, mut given: Vec<(String, String)>) -> Self {
        given.retain(|(name, _)| !RENDERING.contains(&name.as_str()));
        Self { path, given, asked: Vec::new() }
    }

    /// Takes a parameter's text; the last one wins where it is given several times.
    pub fn take(&mut self, name: &'static str) -> Option<String> {
        self.asked.push(name);
        let mut found = None;
        self.given.retain_mut(|(key, value)| {
            let other = key != name;
            if !other {
                found = Some(std::mem::take(value));
            }
            other
        });
        found
    }

    /// Takes a boolean; given without a value it is true.
    pub fn boolean(&mut self, name: &'static str) -> Result<Option<bool>> {
        match self.take(name) {
            None => Ok(None),
            Some(text) if text.is_empty() => Ok(Some(true)),
            Some(text) => json::parse_boolean(&text).map(Some),
        }
    }

    /// Takes a whole number.
    pub fn integer(&mut self, name: &'static str) -> Result<Option<i64>> {
        let Some(text) = self.take(name) else { return Ok(None) };
        match text.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(Error::IllegalArgument(format!(
                "Failed to parse int parameter [{name}] with value [{text}]"
            ))),
        }
    }

    /// Takes a whole number that is at least `least`; refusals name it `label`.
    pub fn at_least(&mut self, name: &'static str, least: i64, label: &str) -> Result<Option<i64>> {
        match self.integer(name)? {
            Some(number) if number < least => {
                Err(Error::IllegalArgument(format!("{label} must be >= {least}")))
            }
            other => Ok(other),
        }
    }

    /// Takes a comma-separated list.
    pub fn list(&mut self, name: &'static str) -> Option<Vec<String>> {
        let text = self.take(name)?;
        Some(text.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect())
    }

    /// Takes a time, in milliseconds; `-1` is none.
    pub fn time(&mut self, name: &'static str) -> Result<Option<Option<u64>>> {
        self.take(name).map(|text| json::parse_time(name, &text)).transpose()
    }

    /// Takes the body that is given as a parameter.
    pub fn source(&mut self) -> Result<Option<Value>> {
        let Some(text) = self.take("source") else { return Ok(None) };
        serde_json::from_str(&text)
            .map(Some)
            .map_err(|error| Error::Parsing(format!("cannot parse parameter [source]: {error}")))
    }

    /// Takes the query of the parameter `q` and what goes with it.
    pub fn uri_query(&mut self) -> Result<Option<Query>> {
        query::from_uri(self)
    }

    /// Takes what says which indices and shards the request is about, for an endpoint that by itself
    /// refuses expressions that stand for nothing.
    pub fn strict_scope(&mut self) -> Result<Scope> {
        let said = self.given.iter().any(|(name, _)| name == "allow_no_indices");
        let mut scope = self.scope()?;
        scope.options.allow_no_indices &= said;
        Ok(scope)
    }

    /// Takes what says which indices and shards the request is about.
    pub fn scope(&mut self) -> Result<Scope> {
        let mut said = Vec::new();
        const OPTIONS: [&str; 4] =
            ["ignore_unavailable", "allow_no_indices", "expand_wildcards", "ignore_throttled"];
        if OPTIONS.iter().any(|name| self.given.iter().any(|(key, _)| key == name)) {
            said.push("indicesOptions");
        }
        let options = self.indices_options()?;
        let routing = self.list("routing");
        if routing.is_some() {
            said.push("routing");
        }
        let preference = self.take("preference");
        if preference.is_some() {
            said.push("preference");
        }
        Ok(Scope { options, routing, shards: preferred(preference.as_deref())?, said })
    }

    /// Takes what says which indices an expression may stand for.
    pub(crate) fn indices_options(&mut self) -> Result<IndicesOptions> {
        let mut options = IndicesOptions {
            ignore_unavailable: self.boolean("ignore_unavailable")?.unwrap_or(false),
            allow_no_indices: self.boolean("allow_no_indices")?.unwrap_or(true),
            expand_open: true,
            expand_closed: false,
            expand_hidden: false,
            forbid_closed: true,
            ignore_aliases: false,
        };
        self.boolean("ignore_throttled")?;
        if let Some(states) = self.list("expand_wildcards") {
            options.expand_open = false;
            for state in states {
                match state.as_str() {
                    "open" => options.expand_open = true,
                    "closed" => options.expand_closed = true,
                    "hidden" => options.expand_hidden = true,
                    "none" => {
                        options.expand_open = false;
                        options.expand_closed = false;
                        options.expand_hidden = false;
                    }
                    "all" => {
                        options.expand_open = true;
                        options.expand_closed = true;
                        options.expand_hidden = true;
                    }
                    _ => {
                        return Err(Error::IllegalArgument(format!(
                            "No valid expand wildcard value [{state}]"
                        )));
                    }
                }
            }
        }
        Ok(options)
    }

    /// Refuses what nobody took.
    pub fn finish(self) -> Result<()> {
        let Some((first, _)) = self.given.first() else { return Ok(()) };
        let names: Vec<&str> = self.given.iter().map(|(name, _)| name.as_str()).collect();
        let (plural, named) = match names.as_slice() {
            [_] => ("", format!("[{first}]{}", suggestion(first, &self.asked))),
            many => {
                let each: Vec<String> =
                    many.iter().map(|n| format!("[{n}]{}", suggestion(n, &self.asked))).collect();
                ("s", each.join(", "))
            }
        };
        Err(Error::IllegalArgument(format!(
            "request [{}] contains unrecognized parameter{plural}: {named}",
            self.path
        )))
    }
}

/// Reads `preference`: of one node's copies there is nothing to choose, but shards can be named.
fn preferred(preference: Option<&str>) -> Result<Option<Vec<u32>>> {
    let Some(text) = preference.filter(|text| text.starts_with('_')) else { return Ok(None) };
    let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
    match kind {
        "_shards" => {
            let numbers = rest.split('|').next().unwrap_or_default();
            let numbers = numbers.split(',').filter(|number| !number.is_empty());
            let parsed = numbers.map(|number| number.parse().map_err(|_| json::not_a_number(number)));
            parsed.collect::<Result<Vec<u32>>>().map(Some)
        }
        "_local" | "_primary" | "_replica" | "_primary_first" | "_replica_first" | "_only_local"
        | "_prefer_nodes" | "_only_nodes" => Ok(None),
        _ => Err(Error::IllegalArgument(format!("no Preference for [{text}]"))),
    }
}

fn suggestion(name: &str, known: &[&str]) -> String {
    let close = json::did_you_mean(name, known);
    if close.is_empty() { close } else { format!(" ->{close}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_takes_is_refused() {
        let given = vec![("siez".to_owned(), "1".to_owned()), ("pretty".to_owned(), String::new())];
        let mut params = Params::new("/logs/_search".to_owned(), given);
        assert_eq!(params.integer("size").unwrap(), None);
        insta::assert_snapshot!(
            params.finish().unwrap_err(),
            @"request [/logs/_search] contains unrecognized parameter: [siez]"
        );
    }
}
