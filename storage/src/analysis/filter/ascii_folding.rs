//! The `asciifolding` filter: letters, digits and punctuation outside ASCII become what they look
//! like in it (é to e, ß to ss, “ to ").
//!
//! Where Unicode's compatibility decomposition less its marks is ASCII, that is the answer; letters
//! without a decomposition (ø, đ, þ, æ, phonetic letters) have a table. Only the blocks that
//! Lucene's `ASCIIFoldingFilter` covers are touched: letterlike symbols and fractions stay.

use std::sync::Arc;

use unicode_normalization::char::{decompose_compatible, is_combining_mark};

use super::{End, Filter, InSynonyms, Stage};
use crate::analysis::Token;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct AsciiFolding {
    /// Whether a folded token is followed by its original at the same position.
    pub(crate) preserve_original: bool,
}

impl Filter for AsciiFolding {
    fn stage<'a>(&'a self, next: Box<dyn Stage + 'a>) -> Box<dyn Stage + 'a> {
        Box::new(Folding { preserve_original: self.preserve_original, folded: String::new(), next })
    }

    fn is_normalizing(&self) -> bool {
        !self.preserve_original
    }

    fn in_synonyms(&self) -> InSynonyms {
        if self.preserve_original {
            InSynonyms::Other(Arc::new(Self { preserve_original: false }))
        } else {
            InSynonyms::Same
        }
    }
}

struct Folding<'a> {
    preserve_original: bool,
    folded: String,
    next: Box<dyn Stage + 'a>,
}

impl Stage for Folding<'_> {
    fn token(&mut self, token: &mut Token) {
        if token.text.is_ascii() {
            return self.next.token(token);
        }
        self.folded.clear();
        for c in token.text.chars() {
            fold(c, &mut self.folded);
        }
        if self.folded == token.text {
            return self.next.token(token);
        }
        std::mem::swap(&mut self.folded, &mut token.text);
        if self.preserve_original {
            let mut original = token.clone();
            original.text = std::mem::take(&mut self.folded);
            self.next.token(token);
            return self.next.token(&mut original);
        }
        self.next.token(token);
    }

    fn end(&mut self, end: End) -> End {
        self.next.end(end)
    }
}

fn fold(c: char, out: &mut String) {
    if c.is_ascii() || !is_covered(c) {
        return out.push(c);
    }
    if let Some(text) = special(c) {
        return out.push_str(text);
    }
    let start = out.len();
    let mut ascii = true;
    decompose_compatible(c, |part| {
        if !is_combining_mark(part) {
            ascii &= part.is_ascii();
            out.push(part);
        }
    });
    if !ascii || out.len() == start {
        out.truncate(start);
        out.push(c);
    }
}

/// The blocks in which Lucene folds.
fn is_covered(c: char) -> bool {
    matches!(c,
        '\u{ab}' | '\u{b2}'..='\u{b3}' | '\u{b9}' | '\u{bb}' | '\u{c0}'..='\u{24f}'
        | '\u{250}'..='\u{2af}' | '\u{1d00}'..='\u{1dbf}' | '\u{1e00}'..='\u{1eff}'
        | '\u{2010}'..='\u{205f}' | '\u{2070}'..='\u{209c}' | '\u{2184}' | '\u{2460}'..='\u{24ff}'
        | '\u{275b}'..='\u{2793}' | '\u{2c60}'..='\u{2c7f}' | '\u{2e28}'..='\u{2e29}'
        | '\u{a722}'..='\u{a7ff}' | '\u{fb00}'..='\u{fb06}' | '\u{ff01}'..='\u{ff5e}')
}

/// Characters without a decomposition that would fold them.
fn special(c: char) -> Option<&'static str> {
    Some(match c {
        'Æ' | 'Ǣ' | 'Ǽ' | 'ᴁ' => "AE",
        'æ' | 'ǣ' | 'ǽ' | 'ᴂ' => "ae",
        'Œ' | 'ɶ' => "OE",
        'œ' | 'ᴔ' => "oe",
        'Þ' => "TH",
        'þ' | 'ᵺ' => "th",
        'ß' => "ss",
        'ẞ' => "SS",
        'Ꜳ' => "AA",
        'ꜳ' => "aa",
        'Ꜵ' => "AO",
        'ꜵ' => "ao",
        'Ꜷ' => "AU",
        'ꜷ' => "au",
        'Ꜹ' | 'Ꜻ' => "AV",
        'ꜹ' | 'ꜻ' => "av",
        'Ꜽ' => "AY",
        'ꜽ' => "ay",
        'Ꝏ' => "OO",
        'ꝏ' => "oo",
        'Ꝡ' => "VY",
        'ꝡ' => "vy",
        'Ƕ' => "HV",
        'ƕ' => "hv",
        'Ȣ' | 'ᴕ' => "OU",
        'ȣ' => "ou",
        'ȸ' => "db",
        'ȹ' => "qp",
        'ʣ' | 'ʥ' => "dz",
        'ʦ' => "ts",
        'ʨ' => "tc",
        'ʪ' => "ls",
        'ʫ' => "lz",
        'ᵫ' => "ue",
        'Ə' | 'Ɐ' | 'ᴀ' | 'Ⱥ' => "A",
        'ɐ' | 'ə' | 'ɚ' | 'ⱥ' | 'ᶏ' | 'ᶕ' => "a",
        'Ɓ' | 'Ƃ' | 'Ƀ' | 'ʙ' | 'ᴃ' => "B",
        'ƀ' | 'ƃ' | 'ɓ' | 'ᵬ' | 'ᶀ' => "b",
        'Ƈ' | 'Ȼ' | 'ʗ' | 'ᴄ' => "C",
        'ƈ' | 'ȼ' | 'ɕ' | 'ↄ' | 'Ꜿ' | 'ꜿ' => "c",
        'Ð' | 'Đ' | 'Ɖ' | 'Ɗ' | 'Ƌ' | 'ᴅ' | 'ᴆ' | 'Ꝺ' => "D",
        'ð' | 'đ' | 'ƌ' | 'ȡ' | 'ɖ' | 'ɗ' | 'ᵭ' | 'ᶁ' | 'ᶑ' | 'ꝺ' => "d",
        'Ǝ' | 'Ɛ' | 'Ɇ' | 'ᴇ' | 'ⱻ' => "E",
        'ǝ' | 'ɇ' | 'ɘ' | 'ɛ' | 'ɜ' | 'ɝ' | 'ɞ' | 'ʚ' | 'ᴈ' | 'ᶒ' | 'ᶓ' | 'ᶔ' | 'ⱸ' => "e",
        'Ƒ' | 'ꜰ' | 'Ꝼ' | 'ꟻ' => "F",
        'ƒ' | 'ᵮ' | 'ᶂ' | 'ꝼ' => "f",
        'Ɠ' | 'Ǥ' | 'ɢ' | 'ʛ' | 'Ᵹ' | 'Ꝿ' => "G",
        'ǥ' | 'ɠ' | 'ɡ' | 'ᵷ' | 'ᵹ' | 'ᶃ' | 'ꝿ' => "g",
        'Ħ' | 'ʜ' | 'Ⱨ' | 'Ⱶ' => "H",
        'ħ' | 'ɥ' | 'ɦ' | 'ʮ' | 'ʯ' | 'ⱨ' | 'ⱶ' => "h",
        'Ɨ' | 'ɪ' | 'ᵻ' | 'Ɩ' => "I",
        'ı' | 'ɨ' | 'ᴉ' | 'ᵼ' | 'ᶖ' => "i",
        'Ɉ' | 'ᴊ' => "J",
        'ȷ' | 'ɉ' | 'ɟ' | 'ʄ' | 'ʝ' => "j",
        'Ƙ' | 'ᴋ' | 'Ⱪ' | 'Ꝁ' | 'Ꝃ' | 'Ꝅ' => "K",
        'ƙ' | 'ʞ' | 'ᶄ' | 'ⱪ' | 'ꝁ' | 'ꝃ' | 'ꝅ' => "k",
        'Ł' | 'Ƚ' | 'ʟ' | 'ᴌ' | 'Ⱡ' | 'Ɫ' | 'Ꝇ' | 'Ꝉ' | 'Ꞁ' => "L",
        'ł' | 'ƚ' | 'ȴ' | 'ɫ' | 'ɬ' | 'ɭ' | 'ᶅ' | 'ⱡ' | 'ꝇ' | 'ꝉ' | 'ꞁ' => "l",
        'Ɯ' | 'ᴍ' | 'Ɱ' | 'ꟽ' | 'ꟿ' => "M",
        'ɯ' | 'ɰ' | 'ɱ' | 'ᵯ' | 'ᶆ' => "m",
        'Ŋ' | 'Ɲ' | 'Ƞ' | 'ɴ' | 'ᴎ' => "N",
        'ŋ' | 'ƞ' | 'ȵ' | 'ɲ' | 'ɳ' | 'ᵰ' | 'ᶇ' => "n",
        'Ø' | 'Ɔ' | 'Ɵ' | 'Ǿ' | 'ᴏ' | 'ᴐ' | 'Ꝋ' | 'Ꝍ' => "O",
        'ø' | 'ǿ' | 'ɔ' | 'ɵ' | 'ᴖ' | 'ᴗ' | 'ᶗ' | 'ⱺ' | 'ꝋ' | 'ꝍ' => "o",
        'Ƥ' | 'ᴘ' | 'Ᵽ' | 'Ꝑ' | 'Ꝓ' | 'Ꝕ' => "P",
        'ƥ' | 'ᵱ' | 'ᵽ' | 'ᶈ' | 'ꝑ' | 'ꝓ' | 'ꝕ' | 'ꟼ' => "p",
        'Ɋ' | 'Ꝗ' | 'Ꝙ' => "Q",
        'ĸ' | 'ɋ' | 'ʠ' | 'ꝗ' | 'ꝙ' => "q",
        'Ɍ' | 'ʀ' | 'ʁ' | 'ᴙ' | 'ᴚ' | 'Ɽ' | 'Ꝛ' | 'Ꞃ' => "R",
        'ɍ' | 'ɼ' | 'ɽ' | 'ɾ' | 'ɿ' | 'ᵲ' | 'ᵳ' | 'ᶉ' | 'ꝛ' | 'ꞃ' => "r",
        'ſ' | 'ȿ' | 'ʂ' | 'ᵴ' | 'ᶊ' | 'ꞅ' => "s",
        'ꜱ' | 'Ꞅ' => "S",
        'Ŧ' | 'Ƭ' | 'Ʈ' | 'Ⱦ' | 'ᴛ' | 'Ꞇ' => "T",
        'ŧ' | 'ƫ' | 'ƭ' | 'ȶ' | 'ʇ' | 'ʈ' | 'ᵵ' | 'ⱦ' => "t",
        'Ʉ' | 'ᴜ' | 'ᵾ' => "U",
        'ʉ' | 'ᶙ' => "u",
        'Ʋ' | 'Ʌ' | 'ᴠ' | 'Ꝟ' | 'Ꝩ' => "V",
        'ʋ' | 'ʌ' | 'ᶌ' | 'ⱱ' | 'ⱴ' | 'ꝟ' => "v",
        'Ƿ' | 'ᴡ' | 'Ⱳ' => "W",
        'ƿ' | 'ʍ' | 'ⱳ' => "w",
        'ᶍ' => "x",
        'Ƴ' | 'ʏ' | 'Ɏ' | 'Ỿ' => "Y",
        'ƴ' | 'ɏ' | 'ʎ' | 'ỿ' => "y",
        'Ƶ' | 'Ȝ' | 'Ȥ' | 'ᴢ' | 'Ⱬ' | 'Ꝣ' => "Z",
        'ƶ' | 'ȝ' | 'ȥ' | 'ɀ' | 'ʐ' | 'ʑ' | 'ᵶ' | 'ᶎ' | 'ⱬ' | 'ꝣ' => "z",
        '«' | '»' | '“' | '”' | '„' | '″' | '‶' | '❝' | '❞' | '❮' | '❯' => "\"",
        '‘' | '’' | '‚' | '‛' | '′' | '‵' | '‹' | '›' | '❛' | '❜' => "'",
        '‐' | '‑' | '‒' | '–' | '—' | '⁻' | '₋' => "-",
        '❨' | '❪' => "(",
        '❩' | '❫' => ")",
        '❴' => "{",
        '❵' => "}",
        '❲' => "[",
        '❳' => "]",
        '❬' | '❰' => "<",
        '❭' | '❱' => ">",
        '⁎' => "*",
        '⁏' => ";",
        '⁒' => "%",
        '⁓' => "~",
        '⁄' => "/",
        '⸨' => "((",
        '⸩' => "))",
        '❶' | '➀' | '➊' | '⓵' => "1",
        '❷' | '➁' | '➋' | '⓶' => "2",
        '❸' | '➂' | '➌' | '⓷' => "3",
        '❹' | '➃' | '➍' | '⓸' => "4",
        '❺' | '➄' | '➎' | '⓹' => "5",
        '❻' | '➅' | '➏' | '⓺' => "6",
        '❼' | '➆' | '➐' | '⓻' => "7",
        '❽' | '➇' | '➑' | '⓼' => "8",
        '❾' | '➈' | '➒' | '⓽' => "9",
        '❿' | '➉' | '➓' | '⓾' => "10",
        '⓪' | '⓿' => "0",
        '⓫' => "11",
        '⓬' => "12",
        '⓭' => "13",
        '⓮' => "14",
        '⓯' => "15",
        '⓰' => "16",
        '⓱' => "17",
        '⓲' => "18",
        '⓳' => "19",
        '⓴' => "20",
        _ => return None,
    })
}
