//! Options of plugins as they were written, and taking them one by one with every fault reported.
//!
//! A plugin takes what it knows by name and kind; [`Options::finish`] then tells all that was wrong at
//! once: values that do not fit, what is required and missing, and names that nobody took.

use std::fmt;
use std::ops::RangeInclusive;

use serde_json::Number;

use crate::former_options::instead_of;
use crate::{FieldReference, Secret, Template};

/// Least similarity of a suggestion.
const SIMILAR: f64 = 0.75;

/// A place in a file of pipelines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// Fault in the definition of a pipeline, with its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Location of the fault.
    pub at: Location,
    /// Description of the fault, with a remedy.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.message)
    }
}

/// Value of an option.
#[derive(Clone, PartialEq)]
pub enum Setting {
    /// Text, quoted or a bare word, with environment variables replaced.
    Text(String),
    /// Number.
    Number(Number),
    /// Array.
    Array(Vec<Setting>),
    /// Hash in the order written.
    Hash(Vec<(String, Setting)>),
    /// A plugin in place of a value: a codec.
    Plugin(Box<Options>),
}

/// Shows what kind it is: any value may be a password.
impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}

impl Setting {
    fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a text",
            Self::Number(_) => "a number",
            Self::Array(_) => "an array",
            Self::Hash(_) => "a hash",
            Self::Plugin(_) => "a codec",
        }
    }

    /// The elements of an array, or the value itself.
    fn into_elements(self) -> Vec<Self> {
        match self {
            Self::Array(elements) => elements,
            single => vec![single],
        }
    }

    /// The value as text, where it is a text or a number.
    pub fn as_text(&self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.clone()),
            Self::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }
}

/// Names of fields that plugins use: their own, or those of the Elastic Common Schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EcsCompatibility {
    /// The plugins' own.
    #[default]
    Disabled,
    /// Those of version 1.
    V1,
    /// Those of version 8, which are the same in all plugins here.
    V8,
}

impl EcsCompatibility {
    /// Finds a value by its name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Disabled, Self::V1, Self::V8].into_iter().find(|value| value.name() == name)
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::V1 => "v1",
            Self::V8 => "v8",
        }
    }

    /// Returns whether fields have the names of the schema.
    pub fn is_enabled(self) -> bool {
        self != Self::Disabled
    }

    /// Returns the first of two values where names are the plugins' own, else the second.
    pub fn select<T>(self, own: T, schema: T) -> T {
        if self.is_enabled() { schema } else { own }
    }
}

/// Options of one plugin, taken one by one.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    plugin: String,
    at: Location,
    /// `ecs_compatibility` where the plugin does not say it.
    default_ecs: EcsCompatibility,
    given: Vec<(String, Location, Setting)>,
    /// Options that were given several times with different values, and where the second is.
    repeated: Vec<(String, Location)>,
    known: Vec<&'static str>,
    faults: Vec<Fault>,
}

impl Options {
    /// Options as they were written. The same option given several times is joined, as in Logstash: hashes by their members, all else
    /// to an array; equal values are one. Where one value is needed, several are a fault.
    pub fn new(
        plugin: impl Into<String>,
        at: Location,
        given: impl IntoIterator<Item = (String, Location, Setting)>,
    ) -> Self {
        let mut options = Self {
            plugin: plugin.into(),
            at,
            default_ecs: EcsCompatibility::default(),
            given: Vec::new(),
            repeated: Vec::new(),
            known: Vec::new(),
            faults: Vec::new(),
        };
        for (name, at, setting) in given {
            match options.given.iter_mut().find(|(have, ..)| *have == name).map(|(_, _, have)| have) {
                None => options.given.push((name, at, setting)),
                Some(have) => match (have, setting) {
                    (Setting::Hash(have), Setting::Hash(more)) => have.extend(more),
                    (have, setting) if *have == setting => {}
                    (have, setting) => {
                        if let Setting::Array(elements) = have {
                            elements.extend(setting.into_elements());
                        } else {
                            let mut elements = vec![have.clone()];
                            elements.extend(setting.into_elements());
                            *have = Setting::Array(elements);
                        }
                        options.repeated.push((name, at));
                    }
                },
            }
        }
        options
    }

    /// Name of the plugin.
    pub fn plugin(&self) -> &str {
        &self.plugin
    }

    /// Returns the location of the plugin.
    pub fn at(&self) -> Location {
        self.at
    }

    /// Returns the options that were given and not taken yet, in the order written.
    pub fn given(&self) -> impl Iterator<Item = (&str, &Setting)> {
        self.given.iter().map(|(name, _, setting)| (name.as_str(), setting))
    }

    /// Gives an option that was given by an older name its present one. Both names count as known.
    pub fn rename(&mut self, old: &'static str, new: &'static str) {
        self.known.push(old);
        let Some(at) = self.given.iter().position(|(have, ..)| have == old) else { return };
        if self.given.iter().any(|(have, ..)| have == new) {
            let (_, location, _) = self.given.remove(at);
            self.fault(location, format!("options [{new}] and [{old}] are names of the same one: give one"));
        } else if let Some((name, ..)) = self.given.get_mut(at) {
            new.clone_into(name);
        }
    }

    /// Sets an option that was not given.
    pub fn set_missing(&mut self, name: &'static str, setting: Setting) {
        if !self.given.iter().any(|(have, ..)| have == name) {
            self.given.push((name.to_owned(), self.at, setting));
        }
    }

    /// Gives a codec another name, where it has one of these.
    pub fn rename_codec(&mut self, name: &str, renamed: &[(&str, &str)]) {
        let Some((.., setting)) = self.given.iter_mut().find(|(have, ..)| have == name) else { return };
        let codec = match setting {
            Setting::Plugin(options) => &mut options.plugin,
            Setting::Text(codec) => codec,
            _ => return,
        };
        if let Some((_, new)) = renamed.iter().find(|(old, _)| old == codec) {
            (*new).clone_into(codec);
        }
    }

    /// Sets the value of `ecs_compatibility` where the plugin and its codec do not say it.
    pub fn set_default_ecs(&mut self, default: EcsCompatibility) {
        self.default_ecs = default;
    }

    /// Takes the option `ecs_compatibility`.
    pub fn ecs_compatibility(&mut self) -> EcsCompatibility {
        let given = self.one_of("ecs_compatibility", &["disabled", "v1", "v8"]);
        given.and_then(EcsCompatibility::parse).unwrap_or(self.default_ecs)
    }

    /// Takes an option whatever it is.
    pub fn take(&mut self, name: &'static str) -> Option<(Location, Setting)> {
        self.known.push(name);
        let at = self.given.iter().position(|(have, ..)| have == name)?;
        let (_, location, setting) = self.given.remove(at);
        Some((location, setting))
    }

    /// Takes an option and reads it; an unreadable value is a fault and counts as not given. `wanted` completes "must be …".
    pub fn read<T>(
        &mut self,
        name: &'static str,
        wanted: &str,
        read: impl Fn(&Setting) -> Option<T>,
    ) -> Option<T> {
        self.read_shown(name, wanted, read, Setting::as_text)
    }

    /// The same for options that may hold secrets: the value is not shown.
    pub fn read_hidden<T>(
        &mut self,
        name: &'static str,
        wanted: &str,
        read: impl Fn(&Setting) -> Option<T>,
    ) -> Option<T> {
        self.read_shown(name, wanted, read, |_| None)
    }

    fn read_shown<T>(
        &mut self,
        name: &'static str,
        wanted: &str,
        read: impl Fn(&Setting) -> Option<T>,
        show: impl FnOnce(&Setting) -> Option<String>,
    ) -> Option<T> {
        let (at, setting) = self.take(name)?;
        // An array of one stands for its element, as in Logstash.
        let value = read(&setting).or_else(|| match &setting {
            Setting::Array(elements) => match elements.as_slice() {
                [single] => read(single),
                _ => None,
            },
            _ => None,
        });
        if value.is_none() {
            if let Some((_, at)) = self.repeated.iter().find(|(repeated, _)| repeated == name) {
                self.fault(*at, format!("option [{name}] is given twice, with different values"));
                return None;
            }
            let given = show(&setting).map_or_else(|| setting.kind().to_owned(), |text| format!("[{text}]"));
            self.fault(at, format!("option [{name}] of [{}] must be {wanted}, not {given}", self.plugin));
        }
        value
    }

    /// Takes a text.
    pub fn text(&mut self, name: &'static str) -> Option<String> {
        self.read(name, "a text", Setting::as_text)
    }

    /// Takes a text that nobody may see.
    pub fn secret(&mut self, name: &'static str) -> Option<Secret> {
        self.read_hidden(name, "a text", Setting::as_text).map(Secret::new)
    }

    /// Takes a text that must be given; an empty text stands for a missing one, and is a fault.
    pub fn required_text(&mut self, name: &'static str) -> String {
        let given = self.given.iter().any(|(have, ..)| have == name);
        let text = self.text(name);
        if !given {
            self.fault(self.at, format!("[{}] needs the option [{name}]", self.plugin));
        }
        text.unwrap_or_default()
    }

    /// Takes a text that must be one of a few.
    pub fn one_of(&mut self, name: &'static str, choices: &[&'static str]) -> Option<&'static str> {
        let wanted = format!("one of [{}]", choices.join(", "));
        self.read(name, &wanted, |setting| {
            let text = setting.as_text()?;
            choices.iter().copied().find(|choice| *choice == text)
        })
    }

    /// Takes `true` or `false`.
    pub fn boolean(&mut self, name: &'static str) -> Option<bool> {
        self.read(name, "true or false", |setting| setting.as_text()?.parse().ok())
    }

    /// Takes a whole number within bounds.
    pub fn integer(&mut self, name: &'static str, bounds: RangeInclusive<i64>) -> Option<i64> {
        let wanted = format!("a whole number from {} to {}", bounds.start(), bounds.end());
        self.read(name, &wanted, |setting| {
            setting.as_text()?.parse().ok().filter(|number| bounds.contains(number))
        })
    }

    /// Takes a number.
    pub fn float(&mut self, name: &'static str) -> Option<f64> {
        self.read(name, "a number", |setting| {
            setting.as_text()?.parse().ok().filter(|number: &f64| number.is_finite())
        })
    }

    /// Takes an array of texts; a single text counts as an array of one. Empty where not given.
    pub fn texts(&mut self, name: &'static str) -> Vec<String> {
        let texts = self.read(name, "an array of texts", |setting| match setting {
            Setting::Array(elements) => elements.iter().map(Setting::as_text).collect(),
            single => single.as_text().map(|text| vec![text]),
        });
        texts.unwrap_or_default()
    }

    /// Takes a hash, or an array of names and values in turns. Empty where not given.
    pub fn hash(&mut self, name: &'static str) -> Vec<(String, Setting)> {
        let hash = self.read_hidden(name, "a hash", |setting| match setting {
            Setting::Hash(members) => Some(members.clone()),
            Setting::Array(elements) if elements.len() % 2 == 0 => elements
                .chunks_exact(2)
                .map(|pair| Some((pair.first()?.as_text()?, pair.get(1)?.clone())))
                .collect(),
            _ => None,
        });
        hash.unwrap_or_default()
    }

    /// Takes a field reference.
    pub fn field(&mut self, name: &'static str) -> Option<FieldReference> {
        self.read(name, "a field reference", |setting| FieldReference::parse(&setting.as_text()?).ok())
    }

    /// Takes a format.
    pub fn template(&mut self, name: &'static str) -> Option<Template> {
        self.text(name).map(|text| Template::parse(&text))
    }

    /// Takes a codec: a plugin, or its bare name.
    pub fn codec(&mut self, name: &'static str) -> Option<Options> {
        let at = self.given.iter().find(|(have, ..)| have == name).map_or(self.at, |(_, at, _)| *at);
        let codec = self.read(name, "a codec", |setting| match setting {
            Setting::Plugin(options) => Some((**options).clone()),
            Setting::Text(plugin) => Some(Options::new(plugin.clone(), at, [])),
            _ => None,
        });
        codec.map(|codec| self.inherit(codec))
    }

    /// Gives the options of a plugin within this one the defaults of this one.
    pub fn inherit(&self, inner: Options) -> Options {
        Options { default_ecs: self.default_ecs, ..inner }
    }

    /// Records a fault.
    pub fn fault(&mut self, at: Location, message: impl Into<String>) {
        self.faults.push(Fault { at, message: message.into() });
    }

    /// Records a fault of the plugin as a whole.
    pub fn fault_here(&mut self, message: impl Into<String>) {
        self.fault(self.at, message);
    }

    /// Ends the taking.
    ///
    /// # Errors
    /// All that was wrong, options that nobody took included, with a suggestion where a known name is
    /// similar.
    pub fn finish(mut self) -> Result<(), Vec<Fault>> {
        for (name, at, _) in std::mem::take(&mut self.given) {
            let suggestion = match instead_of(&self.plugin, &name) {
                Some(instead) => format!(": {instead}"),
                None => suggest(&name, self.known.iter().copied()),
            };
            let message = format!("[{}] has no option [{name}]{suggestion}", self.plugin);
            self.faults.push(Fault { at, message });
        }
        self.faults.sort_by_key(|fault| fault.at);
        if self.faults.is_empty() { Ok(()) } else { Err(self.faults) }
    }
}

/// ", did you mean [name]?" for the most similar of the known names, or nothing.
pub fn suggest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    known
        .into_iter()
        .map(|known| (strsim::jaro_winkler(name, known), known))
        .filter(|(similarity, _)| *similarity >= SIMILAR)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map_or_else(String::new, |(_, known)| format!(", did you mean [{known}]?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(given: &[(&str, Setting)]) -> Options {
        let given = given.iter().enumerate().map(|(line, (name, setting))| {
            let at = Location { line: line as u32 + 1, column: 1 };
            ((*name).to_owned(), at, setting.clone())
        });
        Options::new("plugin", Location::default(), given)
    }

    fn text(text: &str) -> Setting {
        Setting::Text(text.to_owned())
    }

    #[test]
    fn an_array_of_one_is_its_element() {
        let one = |setting| Setting::Array(vec![setting]);
        let mut options = options(&[
            ("text", one(text("a"))),
            ("number", one(Setting::Number(7.into()))),
            ("flag", one(text("true"))),
            ("choice", one(text("b"))),
            ("field", one(text("[a][b]"))),
            ("secret", one(text("s"))),
            ("none", Setting::Array(Vec::new())),
        ]);
        assert_eq!(options.text("text").as_deref(), Some("a"));
        assert_eq!(options.integer("number", 0..=9), Some(7));
        assert_eq!(options.boolean("flag"), Some(true));
        assert_eq!(options.one_of("choice", &["a", "b"]), Some("b"));
        assert!(options.field("field").is_some() && options.secret("secret").is_some());
        assert_eq!(options.text("none"), None);
        let faults = options.finish().unwrap_err();
        assert!(matches!(faults.as_slice(), [fault] if fault.message.contains("[none]")), "{faults:?}");
    }

    #[test]
    fn former_options_name_what_stands_in_their_place() {
        for (plugin, name, instead) in [
            (
                "elasticsearch",
                "cluster",
                "has no option [cluster]: give the addresses of its nodes by [hosts]",
            ),
            ("kv", "trim", "has no option [trim]: give [trim_value]"),
            ("grok", "type", "has no option [type]: put the plugin into a branch"),
            ("grok", "mtch", "has no option [mtch], did you mean [match]?"),
        ] {
            let mut options = Options::new(
                plugin,
                Location::default(),
                [(name.to_owned(), Location::default(), text("x"))],
            );
            assert_eq!(options.text("match"), None);
            let faults = options.finish().unwrap_err();
            assert!(matches!(faults.as_slice(), [fault] if fault.message.contains(instead)), "{faults:?}");
        }
    }

    #[test]
    fn options_that_are_given_twice_are_joined() {
        let hash = |name: &str| Setting::Hash(vec![(name.to_owned(), text("x"))]);
        let mut options = options(&[
            ("list", text("a")),
            ("list", Setting::Array(vec![text("b"), text("c")])),
            ("list", text("d")),
            ("same", text("a")),
            ("same", text("a")),
            ("hash", hash("a")),
            ("hash", hash("b")),
            ("other", text("a")),
            ("other", text("b")),
        ]);
        assert_eq!(options.texts("list"), ["a", "b", "c", "d"]);
        assert_eq!(options.text("same").as_deref(), Some("a"));
        assert_eq!(options.hash("hash").len(), 2);
        assert_eq!(options.text("other"), None);
        let faults = options.finish().unwrap_err();
        let [fault] = faults.as_slice() else { panic!("{faults:?}") };
        assert_eq!(fault.at.line, 9);
        assert!(fault.message.contains("option [other] is given twice"), "{fault}");
    }
}
