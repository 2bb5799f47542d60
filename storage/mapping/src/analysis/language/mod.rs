//! Language-specific parts: stop words, articles, stemmers and the normalization of letters.
//!
//! Stemmers and normalizations work on the characters of one token ([`Rewrite`]). The Snowball stemmers
//! come from crates; those that Lucene has beyond them have a file each.

mod brazilian;
mod caumanns;
mod greek;
mod indic;
mod indonesian;
mod kstem;
mod light;
mod normalize;
mod rslp;
mod savoy;
mod snowball;
mod suffix;
mod words;

use super::Token;
use super::filter::{Filter, Stage, TextEnd};

pub(crate) use snowball::snowball;
pub(crate) use words::{articles, french_articles, named_stop_words, stop_words};

/// Longest token that is stemmed or normalized, in characters: no word comes near, and rules may take
/// quadratic time.
const MAX_CHARACTERS: usize = 1_000;

/// The stemmers beyond Snowball, by the names of the filter `stemmer`.
pub(crate) fn light_stemmer(name: &str) -> Option<Rewrite> {
    Some(Rewrite::Stem(match name {
        "arabic" => suffix::arabic,
        "bengali" => suffix::bengali,
        "brazilian" => brazilian::stem,
        "bulgarian" => suffix::bulgarian,
        "czech" => light::czech,
        "galician" => rslp::galician,
        "german_stem" => caumanns::stem,
        "greek" => greek::stem,
        "hindi" => suffix::hindi,
        "indonesian" => indonesian::stem,
        "kstem" | "light_english" | "lightenglish" => kstem::stem,
        "latvian" => light::latvian,
        "light_finnish" | "lightfinnish" | "light_finish" | "lightfinish" => savoy::finnish,
        "light_french" | "lightfrench" => light::french,
        "light_german" | "lightgerman" => light::german,
        "light_hungarian" | "lighthungarian" => savoy::hungarian,
        "light_italian" | "lightitalian" => light::italian,
        "light_norwegian" | "lightnorwegian" => savoy::norwegian,
        "light_nynorsk" | "lightnynorsk" => savoy::nynorsk,
        "light_portuguese" | "lightportuguese" => light::portuguese,
        "light_russian" | "lightrussian" => savoy::russian,
        "light_spanish" | "lightspanish" => light::spanish,
        "light_swedish" | "lightswedish" => savoy::swedish,
        "minimal_english" | "minimalenglish" => light::english_minimal,
        "minimal_french" | "minimalfrench" => light::french_minimal,
        "minimal_galician" => rslp::galician_minimal,
        "minimal_german" | "minimalgerman" => light::german_minimal,
        "minimal_norwegian" => savoy::norwegian_minimal,
        "minimal_nynorsk" | "minimalnynorsk" => savoy::nynorsk_minimal,
        "minimal_portuguese" | "minimalportuguese" => rslp::portuguese_minimal,
        "persian" => suffix::persian,
        "portuguese_rslp" => rslp::portuguese,
        "sorani" => suffix::sorani,
        _ => return None,
    }))
}

/// The normalization of the letters of a language, by the names of filters.
pub(crate) fn normalization(name: &str) -> Option<Rewrite> {
    Some(Rewrite::Normalize(match name {
        "arabic_normalization" => normalize::arabic,
        "bengali_normalization" => normalize::bengali,
        "german_normalization" => normalize::german,
        "hindi_normalization" => normalize::hindi,
        "indic_normalization" => indic::normalize,
        "persian_normalization" => normalize::persian,
        "serbian_normalization" => normalize::serbian,
        "sorani_normalization" => normalize::sorani,
        _ => return None,
    }))
}

/// A filter that rewrites the characters of each token.
#[derive(Clone, Copy)]
pub(crate) enum Rewrite {
    /// Stems words without the keyword mark.
    Stem(fn(&mut Vec<char>)),
    /// Stems words by a Snowball algorithm.
    Snowball(snowball::Stemmer),
    /// Maps letters to those of their kind.
    Normalize(fn(&mut Vec<char>)),
}

impl std::fmt::Debug for Rewrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Stem(_) => "Stem",
            Self::Snowball(_) => "Snowball",
            Self::Normalize(_) => "Normalize",
        })
    }
}

impl Filter for Rewrite {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        Box::new(RewriteFilter { rewrite: self, characters: Vec::new(), next })
    }

    fn is_normalizing(&self) -> bool {
        matches!(self, Self::Normalize(_))
    }

    fn reports_keywords(&self) -> bool {
        !self.is_normalizing()
    }
}

struct RewriteFilter<'a> {
    rewrite: &'a Rewrite,
    characters: Vec<char>,
    next: Box<dyn Stage + 'a>,
}

impl Stage for RewriteFilter<'_> {
    fn token(&mut self, token: &mut Token) {
        let stems = !matches!(self.rewrite, Rewrite::Normalize(_));
        if stems && token.keyword {
            return self.next.token(token);
        }
        if let Rewrite::Snowball(stemmer) = self.rewrite {
            if token.text.len() <= MAX_CHARACTERS {
                stemmer.stem(&mut token.text);
            }
            return self.next.token(token);
        }
        self.characters.clear();
        self.characters.extend(token.text.chars());
        if self.characters.len() <= MAX_CHARACTERS || !stems {
            match self.rewrite {
                Rewrite::Stem(rewrite) | Rewrite::Normalize(rewrite) => rewrite(&mut self.characters),
                Rewrite::Snowball(_) => {}
            }
            token.text.clear();
            token.text.extend(self.characters.iter());
        }
        self.next.token(token);
    }

    fn end(&mut self, end: TextEnd) -> TextEnd {
        self.next.end(end)
    }
}
