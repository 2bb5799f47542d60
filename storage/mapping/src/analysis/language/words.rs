//! Stop words and articles by language: Lucene's lists, which come from the Snowball project and from
//! J. Savoy (BSD licences).

use crate::analysis::filter::english_stop_words;

macro_rules! lists {
    ($($name:literal),*) => {
        /// Returns the stop words of a language.
        pub(crate) fn stop_words(language: &str) -> Option<Vec<String>> {
            if language == "english" {
                return Some(english_stop_words());
            }
            let list = match language {
                $($name => include_str!(concat!("stop_words/", $name, ".txt")),)*
                _ => return None,
            };
            Some(list.split([',', '\n']).map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect())
        }
    };
}

lists!(
    "arabic",
    "armenian",
    "basque",
    "bengali",
    "brazilian",
    "bulgarian",
    "catalan",
    "cjk",
    "czech",
    "danish",
    "dutch",
    "estonian",
    "finnish",
    "french",
    "galician",
    "german",
    "greek",
    "hindi",
    "hungarian",
    "indonesian",
    "irish",
    "italian",
    "latvian",
    "lithuanian",
    "norwegian",
    "persian",
    "portuguese",
    "romanian",
    "russian",
    "sorani",
    "spanish",
    "swedish",
    "thai",
    "turkish"
);

/// Returns the list that a setting names as `_language_`.
pub(crate) fn named_stop_words(name: &str) -> Option<Vec<String>> {
    let language = name.strip_prefix('_')?.strip_suffix('_')?;
    if language == "cjk" { None } else { stop_words(language) }
}

/// The elided articles of French.
pub(crate) fn french_articles() -> Vec<String> {
    articles("french")
}

/// The elided articles of a language that has them.
pub(crate) fn articles(language: &str) -> Vec<String> {
    let list: &[&str] = match language {
        "french" => &["l", "m", "t", "qu", "n", "s", "j", "d", "c", "jusqu", "quoiqu", "lorsqu", "puisqu"],
        "italian" => &[
            "c", "l", "all", "dall", "dell", "nell", "sull", "coll", "pell", "gl", "agl", "dagl", "degl",
            "negl", "sugl", "un", "m", "t", "s", "v", "d",
        ],
        "catalan" => &["d", "l", "m", "n", "s", "t"],
        "irish" => &["d", "m", "b"],
        _ => &[],
    };
    list.iter().map(|word| (*word).to_owned()).collect()
}
