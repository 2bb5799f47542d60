//! User agents by the expressions of uap-core: the first one that matches names the browser, the operating system, the device. The
//! filter `useragent` and the processor `user_agent` share them.

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use millrace_runtime::GenerationalCache;
use parking_lot::Mutex;
use serde::Deserialize;

use crate::pattern::{Deadline, Expression, MatchStopped};

/// Expressions that every installation knows, by their authors' licence (see NOTICE).
const EXPRESSIONS: &str = include_str!("user_agent/regexes.yaml");
/// Name of what no expression knows.
pub const OTHER: &str = "Other";
/// Bytes that a cache takes at most.
const MAX_CACHE_BYTES: usize = 64 << 20;
/// Bytes of a cached agent beside its text, about.
const ENTRY_BYTES: usize = 512;
/// Time for one user agent.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Compiled expressions.
#[derive(Debug)]
pub struct UserAgentParser {
    browsers: Vec<Rule>,
    systems: Vec<Rule>,
    devices: Vec<Rule>,
}

/// An expression, with what it says of a match: family and parts of the version.
#[derive(Debug)]
struct Rule {
    expression: Expression,
    replacements: [Option<String>; 5],
}

/// Result for a user agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedUserAgent {
    /// Browser.
    pub browser: SoftwareVersion,
    /// Operating system.
    pub os: SoftwareVersion,
    /// Device.
    pub device: String,
}

/// A name with a version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SoftwareVersion {
    /// Name.
    pub family: String,
    major: Option<String>,
    minor: Option<String>,
    patch: Option<String>,
    /// Part behind the patch.
    pub patch_minor: Option<String>,
}

impl SoftwareVersion {
    /// Returns major, minor and patch.
    pub fn parts(&self) -> [Option<&str>; 3] {
        [self.major.as_deref(), self.minor.as_deref(), self.patch.as_deref()]
    }
}

#[derive(Deserialize)]
struct ExpressionFile {
    #[serde(default)]
    user_agent_parsers: Vec<BrowserEntry>,
    #[serde(default)]
    os_parsers: Vec<SystemEntry>,
    #[serde(default)]
    device_parsers: Vec<DeviceEntry>,
}

#[derive(Deserialize)]
struct BrowserEntry {
    regex: String,
    family_replacement: Option<String>,
    v1_replacement: Option<String>,
    v2_replacement: Option<String>,
    v3_replacement: Option<String>,
    v4_replacement: Option<String>,
}

#[derive(Deserialize)]
struct SystemEntry {
    regex: String,
    os_replacement: Option<String>,
    os_v1_replacement: Option<String>,
    os_v2_replacement: Option<String>,
    os_v3_replacement: Option<String>,
    os_v4_replacement: Option<String>,
}

#[derive(Deserialize)]
struct DeviceEntry {
    regex: String,
    regex_flag: Option<String>,
    device_replacement: Option<String>,
}

impl Rule {
    fn new(regex: &str, replacements: [Option<String>; 5]) -> Result<Self, String> {
        Ok(Self { expression: Expression::compile(regex)?, replacements })
    }

    /// Returns the family and the version of a match; `None` where the expression does not match, or names none.
    fn find(&self, text: &str, deadline: &Deadline) -> Result<Option<SoftwareVersion>, MatchStopped> {
        let Some(groups) = self.expression.captures_at(text, 0, deadline)? else { return Ok(None) };
        let group = |at: usize| -> Option<&str> {
            let range: Range<usize> = groups.get(at).cloned().flatten()?;
            text.get(range).filter(|text| !text.is_empty())
        };
        let part = |at: usize| match self.replacements.get(at).and_then(Option::as_ref) {
            Some(replacement) => Some(fill(replacement, group)).filter(|text| !text.is_empty()),
            None => group(at + 1).map(str::to_owned),
        };
        let Some(family) = part(0) else { return Ok(None) };
        let [major, minor, patch, patch_minor] = [part(1), part(2), part(3), part(4)];
        Ok(Some(SoftwareVersion { family, major, minor, patch, patch_minor }))
    }
}

/// Replaces `$1` to `$9` by the groups of a match.
fn fill<'a>(replacement: &str, group: impl Fn(usize) -> Option<&'a str>) -> String {
    let mut out = String::with_capacity(replacement.len());
    let mut rest = replacement;
    while let Some((before, behind)) = rest.split_once('$') {
        out.push_str(before);
        match behind.chars().next().and_then(|digit| digit.to_digit(10)) {
            Some(number) => {
                out.push_str(group(number as usize).unwrap_or_default());
                rest = behind.get(1..).unwrap_or_default();
            }
            None => {
                out.push('$');
                rest = behind;
            }
        }
    }
    out.push_str(rest);
    out.trim().to_owned()
}

impl UserAgentParser {
    /// Returns the parser with the expressions that every installation knows, compiled at the first call.
    ///
    /// # Errors
    /// The expressions exceed what all pipelines may have.
    pub fn shared() -> Result<Arc<Self>, String> {
        static SHARED: OnceLock<Result<Arc<UserAgentParser>, String>> = OnceLock::new();
        SHARED.get_or_init(|| Self::parse(EXPRESSIONS).map(Arc::new)).clone()
    }

    /// Compiles a file of expressions, in the form of uap-core.
    ///
    /// # Errors
    /// The reason why it cannot be used.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: ExpressionFile = serde_norway::from_str(text).map_err(|error| error.to_string())?;
        let browsers = file.user_agent_parsers.into_iter().map(|entry| {
            let BrowserEntry {
                regex,
                family_replacement,
                v1_replacement,
                v2_replacement,
                v3_replacement,
                v4_replacement,
            } = entry;
            Rule::new(
                &regex,
                [family_replacement, v1_replacement, v2_replacement, v3_replacement, v4_replacement],
            )
        });
        let systems = file.os_parsers.into_iter().map(|entry| {
            let replacements = [
                entry.os_replacement,
                entry.os_v1_replacement,
                entry.os_v2_replacement,
                entry.os_v3_replacement,
                entry.os_v4_replacement,
            ];
            Rule::new(&entry.regex, replacements)
        });
        let devices = file.device_parsers.into_iter().map(|entry| {
            let insensitive = entry.regex_flag.as_deref() == Some("i");
            let regex = if insensitive { format!("(?i:{})", entry.regex) } else { entry.regex };
            Rule::new(&regex, [entry.device_replacement, None, None, None, None])
        });
        Ok(Self {
            browsers: browsers.collect::<Result<_, _>>()?,
            systems: systems.collect::<Result<_, _>>()?,
            devices: devices.collect::<Result<_, _>>()?,
        })
    }

    /// Returns what a user agent is; `None` where that takes too long.
    pub fn agent(&self, text: &str) -> Option<ParsedUserAgent> {
        let deadline = Deadline::within(TIMEOUT);
        let first = |rules: &[Rule]| -> Result<SoftwareVersion, MatchStopped> {
            for rule in rules {
                if let Some(found) = rule.find(text, &deadline)? {
                    return Ok(found);
                }
            }
            Ok(SoftwareVersion { family: OTHER.to_owned(), ..SoftwareVersion::default() })
        };
        let agent = || -> Result<ParsedUserAgent, MatchStopped> {
            let (browser, os) = (first(&self.browsers)?, first(&self.systems)?);
            Ok(ParsedUserAgent { browser, os, device: first(&self.devices)?.family })
        };
        agent().ok()
    }
}

/// A parser that remembers the user agents of late.
#[derive(Debug)]
pub struct UserAgentLookup {
    parser: Arc<UserAgentParser>,
    cache: Mutex<GenerationalCache<String, Arc<ParsedUserAgent>>>,
}

impl UserAgentLookup {
    /// Makes a lookup that remembers about so many user agents, in 64 MiB at most.
    pub fn new(parser: Arc<UserAgentParser>, entries: usize) -> Self {
        let bytes = entries.saturating_mul(ENTRY_BYTES).min(MAX_CACHE_BYTES);
        Self { parser, cache: Mutex::new(GenerationalCache::new(bytes)) }
    }

    /// Returns the lookup by the shipped expressions that all callers share.
    ///
    /// # Errors
    /// As [`UserAgentParser::shared`].
    pub fn shared() -> Result<Arc<Self>, String> {
        static SHARED: OnceLock<Result<Arc<UserAgentLookup>, String>> = OnceLock::new();
        let make = || Ok(Arc::new(Self::new(UserAgentParser::shared()?, usize::MAX)));
        SHARED.get_or_init(make).clone()
    }

    /// Returns what a user agent is; `None` where that takes too long.
    pub fn find(&self, text: &str) -> Option<Arc<ParsedUserAgent>> {
        let cached = self.cache.lock().get(text);
        if cached.is_some() {
            return cached;
        }
        let agent = Arc::new(self.parser.agent(text)?);
        let weight = text.len() + ENTRY_BYTES;
        self.cache.lock().insert(text.to_owned(), Arc::clone(&agent), weight);
        Some(agent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_expressions_know_agents() {
        let parser = UserAgentParser::shared().unwrap();
        for (text, browser, os, device) in [
            (
                "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_11_1) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/45.0.2454.85 Safari/537.36",
                ["Chrome", "45", "0", "2454"],
                ["Mac OS X", "10", "11", "1"],
                "Mac",
            ),
            (
                "Mozilla/5.0 (iPhone; CPU iPhone OS 17_2 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.2 Mobile/15E148 Safari/604.1",
                ["Mobile Safari", "17", "2", ""],
                ["iOS", "17", "2", ""],
                "iPhone",
            ),
            ("something unknown", ["Other", "", "", ""], ["Other", "", "", ""], "Other"),
        ] {
            let agent = parser.agent(text).unwrap();
            for (software, expected) in [(&agent.browser, browser), (&agent.os, os)] {
                let [major, minor, patch] = software.parts().map(Option::unwrap_or_default);
                assert_eq!([&software.family, major, minor, patch], expected, "{text}");
            }
            assert_eq!(agent.device, device, "{text}");
        }
    }

    #[test]
    fn replacements_name_groups() {
        let file = "user_agent_parsers:\n- {regex: '(a+)-(b)?(\\d)', family_replacement: 'X $1 $', v1_replacement: '$3'}\n\
            device_parsers:\n- {regex: 'MODEL (\\w+)', regex_flag: 'i', device_replacement: 'D $1 '}\n";
        let agent = UserAgentParser::parse(file).unwrap().agent("model z aa-7").unwrap();
        assert_eq!(agent.browser.family, "X aa $");
        assert_eq!(agent.browser.parts(), [Some("7"), Some("7"), None]);
        assert_eq!((agent.device.as_str(), agent.os.family.as_str()), ("D z", "Other"));
        assert!(UserAgentParser::parse("os_parsers: [{regex: '('}]").is_err());
    }
}
