//! Stemmers and the normalization of letters, by the names of filters and of languages.

use std::sync::Arc;

use millrace_runtime::{Error, Result};

use crate::analysis::filter::{EnglishPossessive, Filter, PorterStem};
use crate::analysis::language::{Rewrite, light_stemmer, normalization, snowball};
use crate::analysis::settings::Params;

/// Builds a stemming or normalizing filter; `None` where the type is unknown.
pub(super) fn build(kind: &str, params: &Params) -> Result<Option<Arc<dyn Filter>>> {
    Ok(Some(match kind {
        "stemmer" => {
            let language = params
                .string("language")
                .or_else(|| params.string("name"))
                .unwrap_or_else(|| "porter".to_owned())
                .to_lowercase();
            stemmer(&language).ok_or_else(|| {
                Error::IllegalArgument(format!("Invalid stemmer class specified: {}", capitalized(&language)))
            })?
        }
        "snowball" => {
            let language = params.string("language").or_else(|| params.string("name"));
            let language = capitalized(&language.unwrap_or_else(|| "English".to_owned()));
            snowball_filter(&language).ok_or_else(|| {
                Error::IllegalArgument(format!("Invalid stemmer class specified: {language}"))
            })?
        }
        "porter_stem" | "porterStem" => Arc::new(PorterStem),
        "dutch_stem" => return Ok(snowball_filter("Dutch")),
        "french_stem" => return Ok(snowball_filter("French")),
        "russian_stem" => return Ok(snowball_filter("Russian")),
        "arabic_stem" => return Ok(light("arabic")),
        "brazilian_stem" => return Ok(light("brazilian")),
        "czech_stem" => return Ok(light("czech")),
        "german_stem" => return Ok(light("german_stem")),
        "kstem" => return Ok(light("kstem")),
        "persian_stem" => return Ok(light("persian")),
        _ => return Ok(normalization(kind).map(|filter| Arc::new(filter) as Arc<dyn Filter>)),
    }))
}

fn capitalized(name: &str) -> String {
    let mut name = name.to_owned();
    if let Some(first) = name.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    name
}

pub(super) fn snowball_filter(language: &str) -> Option<Arc<dyn Filter>> {
    Some(Arc::new(Rewrite::Snowball(snowball(language)?)))
}

/// The stemmer that the filter `stemmer` knows by a name.
fn stemmer(name: &str) -> Option<Arc<dyn Filter>> {
    let language = match name {
        "armenian" => "Armenian",
        "basque" => "Basque",
        "catalan" => "Catalan",
        "danish" => "Danish",
        "dutch" => "Dutch",
        "estonian" => "Estonian",
        "porter2" => "English",
        "lovins" => "Lovins",
        "finnish" => "Finnish",
        "french" => "French",
        "german" => "German",
        "hungarian" => "Hungarian",
        "irish" => "Irish",
        "italian" => "Italian",
        "lithuanian" => "Lithuanian",
        "norwegian" => "Norwegian",
        "portuguese" => "Portuguese",
        "romanian" => "Romanian",
        "russian" => "Russian",
        "spanish" => "Spanish",
        "swedish" => "Swedish",
        "turkish" => "Turkish",
        "english" | "porter" => return Some(Arc::new(PorterStem)),
        "possessive_english" | "possessiveenglish" => return Some(Arc::new(EnglishPossessive)),
        "german_stem" => return None,
        other => return light(other),
    };
    snowball_filter(language)
}

/// A stemmer that is none of Snowball's.
pub(super) fn light(name: &str) -> Option<Arc<dyn Filter>> {
    Some(Arc::new(light_stemmer(name)?))
}
