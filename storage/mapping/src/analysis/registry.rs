//! The analyzers and normalizers of an index, by name.

use std::sync::OnceLock;

use hashbrown::HashMap;
use millrace_runtime::Result;
use serde_json::{Map, Value};

use super::as_you_type::{AsYouTypeSubfield, Family};
use super::build::{BUILT_IN, Scope, built_in, lowercase_normalizer};
use super::settings::components;
use super::{Analyzer, Component};

/// The analyzers and normalizers of one index.
#[derive(Debug)]
pub struct Analyzers {
    analyzers: HashMap<String, Family>,
    normalizers: HashMap<String, Analyzer>,
    scope: Scope,
    multiply: bool,
}

/// Those that every index has, each built when it is first asked for.
fn shared(name: &str) -> Option<&'static Family> {
    static SHARED: OnceLock<HashMap<&'static str, OnceLock<Option<Family>>>> = OnceLock::new();
    let shared = SHARED.get_or_init(|| BUILT_IN.iter().map(|name| (*name, OnceLock::new())).collect());
    shared.get(name)?.get_or_init(|| built_in(name).ok().flatten().map(Family::new)).as_ref()
}

impl Analyzers {
    /// Builds the analyzers and normalizers under `index.analysis.*` of the flattened settings, beside
    /// those that every index has.
    ///
    /// `default` and `default_search` are found by [`Analyzers::get`] only where they are configured.
    ///
    /// # Errors
    /// An unknown type, a reference to a component that does not exist, or a parameter that cannot
    /// be used: invalid input with OpenSearch's message.
    pub fn new(settings: &Map<String, Value>) -> Result<Self> {
        Self::with_scope(settings, true)
    }

    /// Those that are at hand without an index.
    ///
    /// # Errors
    /// None that input could cause.
    pub fn global() -> Result<Self> {
        Self::with_scope(&Map::new(), false)
    }

    fn with_scope(settings: &Map<String, Value>, index: bool) -> Result<Self> {
        let scope = Scope::new(settings, index)?;
        scope.check()?;
        let mut analyzers = HashMap::new();
        for (name, params) in components(settings, "analyzer") {
            let analyzer = scope.analyzer(&params)?;
            analyzers.insert(name, Family::new(analyzer));
        }
        let mut normalizers = HashMap::new();
        normalizers.insert("lowercase".to_owned(), lowercase_normalizer());
        for (name, params) in components(settings, "normalizer") {
            let normalizer = scope.normalizer(&params)?;
            normalizers.insert(name, normalizer);
        }
        let multiply = analyzers.values().any(|family: &Family| family.own().multiplies());
        Ok(Self { analyzers, normalizers, scope, multiply })
    }

    /// Returns true if more than its own tokens may come of a text by any analyzer of the index: by those that every
    /// index has, it does not.
    pub(crate) fn multiply(&self) -> bool {
        self.multiply
    }

    /// Finds an analyzer by name, or by the name that [`AsYouTypeSubfield::of`] makes of one.
    pub fn get(&self, name: &str) -> Option<&Analyzer> {
        match (self.family(name), AsYouTypeSubfield::split(name)) {
            (Some(family), _) => Some(family.own()),
            (None, Some((name, part))) => Some(self.family(name)?.part(part)),
            (None, None) => None,
        }
    }

    fn family(&self, name: &str) -> Option<&Family> {
        match self.analyzers.get(name) {
            None => shared(name),
            found => found,
        }
    }

    /// Finds a normalizer by name.
    pub fn normalizer(&self, name: &str) -> Option<&Analyzer> {
        self.normalizers.get(name)
    }

    /// Builds the analyzer that a request describes by its parts; without a tokenizer it is a normalizer.
    ///
    /// # Errors
    /// A component that does not exist or cannot be built, with OpenSearch's message.
    pub fn custom(
        &self,
        tokenizer: Option<&Component>,
        char_filters: &[Component],
        filters: &[Component],
    ) -> Result<Analyzer> {
        self.scope.request(tokenizer, char_filters, filters)
    }

    /// Returns whether there is a normalizer of that name.
    pub fn has_normalizer(&self, name: &str) -> bool {
        self.normalizers.contains_key(name)
    }

    /// Applies a normalizer to a keyword value; `None` when there is no such normalizer.
    pub fn normalize(&self, name: &str, value: &str) -> Option<String> {
        let mut out = String::new();
        self.normalizers.get(name)?.analyze(value, &mut |token| out.push_str(&token.text));
        Some(out)
    }
}
