//! The `html_strip` character filter: text without markup.
//!
//! Tags of inline elements vanish; others become a line feed, as do scripts and styles. Comments,
//! declarations and processing instructions vanish, CDATA sections leave their content, character references
//! become characters. What is not well formed stays as it is.

use hashbrown::HashSet;
use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};

use super::{CharFilter, Corrections, units};

/// Elements whose tags do not separate words.
const INLINE: [&str; 31] = [
    "a", "abbr", "acronym", "b", "basefont", "bdo", "big", "cite", "code", "dfn", "em", "font", "i", "img",
    "input", "kbd", "label", "q", "s", "samp", "select", "small", "span", "strike", "strong", "sub", "sup",
    "textarea", "tt", "u", "var",
];

/// Longest markup that is looked for the end of, in bytes: an unclosed one costs no more.
const MAX_MARKUP_BYTES: usize = 1 << 20;

const CDATA: &str = "<![CDATA[";
const CDATA_END: &str = "]]>";

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct HtmlStrip {
    /// Names of elements whose tags stay.
    escaped: HashSet<String>,
}

impl HtmlStrip {
    pub(crate) fn new(escaped: Vec<String>) -> Self {
        Self { escaped: escaped.into_iter().map(|tag| tag.to_lowercase()).collect() }
    }
}

/// Replacement of a piece of markup.
enum MarkupReplacement {
    /// Nothing: `len` bytes vanish.
    Gone(usize),
    /// A line feed.
    Break(usize),
    /// A character.
    Character(usize, char),
    /// The bytes from and up to which stay; all of it is `len` long.
    Content { len: usize, from: usize, to: usize },
    /// Stays as it is.
    Kept(usize),
}

impl CharFilter for HtmlStrip {
    // What it makes of a text is no longer than that.
    fn apply(&self, text: &str, _most: usize) -> (String, Corrections) {
        let mut out = Output { text: String::with_capacity(text.len()), ..Output::default() };
        let mut at = 0;
        // Up to where no end of a declaration and an instruction was found: it is not looked for again.
        let mut unclosed = [0; 2];
        while at < text.len() {
            let rest = &text[at..];
            let plain = rest.find(['<', '&']).unwrap_or(rest.len());
            if plain > 0 {
                out.keep(&rest[..plain]);
                at += plain;
                continue;
            }
            let piece = match rest.starts_with('<').then(|| unclosed_kind(rest)) {
                None => reference(rest),
                Some(Some(kind)) if at < unclosed[kind] => None,
                Some(kind) => {
                    let piece = self.markup(rest);
                    if let (Some(kind), None) = (kind, &piece) {
                        unclosed[kind] = at + MAX_MARKUP_BYTES;
                    }
                    piece
                }
            };
            match piece {
                Some(MarkupReplacement::Gone(len)) => {
                    out.replace(&rest[..len], "");
                    at += len;
                }
                Some(MarkupReplacement::Break(len)) => {
                    out.replace(&rest[..len], "\n");
                    at += len;
                }
                Some(MarkupReplacement::Character(len, c)) => {
                    out.replace(&rest[..len], c.encode_utf8(&mut [0; 4]));
                    at += len;
                }
                Some(MarkupReplacement::Content { len, from, to }) => {
                    out.replace(&rest[..from], "");
                    out.keep(&rest[from..to]);
                    out.replace(&rest[to..len], "");
                    at += len;
                }
                Some(MarkupReplacement::Kept(len)) => {
                    out.keep(&rest[..len]);
                    at += len;
                }
                None => {
                    out.keep(&rest[..1]);
                    at += 1;
                }
            }
        }
        (out.text, out.corrections)
    }
}

#[derive(Default)]
struct Output {
    text: String,
    written: u32,
    corrections: Corrections,
}

impl Output {
    fn keep(&mut self, text: &str) {
        self.text.push_str(text);
        self.written += units(text);
    }

    fn replace(&mut self, from: &str, to: &str) {
        let (before, after) = (units(from), units(to));
        self.text.push_str(to);
        self.written += after;
        if before != after {
            let difference = self.corrections.last_difference() + i64::from(before) - i64::from(after);
            self.corrections.add(self.written, difference);
        }
    }
}

/// Tells declarations and instructions from other markup.
fn unclosed_kind(text: &str) -> Option<usize> {
    match text.as_bytes() {
        _ if text.starts_with(CDATA) => None,
        [b'<', b'!', rest @ ..] if !rest.starts_with(b"--") => Some(0),
        [b'<', b'?', ..] => Some(1),
        _ => None,
    }
}

/// Finds `end` (ASCII, in any case) and returns the length up to its own end.
fn until(text: &str, end: &str) -> Option<usize> {
    let bytes = &text.as_bytes()[..text.len().min(MAX_MARKUP_BYTES)];
    bytes
        .windows(end.len())
        .position(|window| window.eq_ignore_ascii_case(end.as_bytes()))
        .map(|at| at + end.len())
}

impl HtmlStrip {
    /// Reads what begins with `<`.
    fn markup(&self, text: &str) -> Option<MarkupReplacement> {
        if let Some(comment) = text.strip_prefix("<!--") {
            let len = until(comment, "-->").map_or(text.len(), |len| 4 + len);
            return Some(MarkupReplacement::Gone(len));
        }
        if let Some(content) = text.strip_prefix(CDATA) {
            let from = CDATA.len();
            // A section without an end goes on to the end of the text.
            return Some(match content.find(CDATA_END) {
                Some(at) => {
                    MarkupReplacement::Content { len: from + at + CDATA_END.len(), from, to: from + at }
                }
                None => MarkupReplacement::Content { len: text.len(), from, to: text.len() },
            });
        }
        if text.starts_with("<!") {
            return declaration(text).map(MarkupReplacement::Gone);
        }
        if let Some(instruction) = text.strip_prefix("<?") {
            return until(instruction, "?>").map(|len| MarkupReplacement::Gone(2 + len));
        }
        let (name, len, closing) = tag(text)?;
        if self.escaped.contains(&name) {
            return Some(MarkupReplacement::Kept(len));
        }
        if !closing && !text[..len].ends_with("/>") && matches!(name.as_str(), "script" | "style") {
            let end = format!("</{name}");
            let close = until(&text[len..], &end)
                .and_then(|content| Some(len + content + until(&text[len + content..], ">")?));
            return Some(close.map_or(MarkupReplacement::Gone(text.len()), MarkupReplacement::Break));
        }
        if len == text.len() && !text.ends_with('>') {
            return Some(MarkupReplacement::Gone(len));
        }
        Some(if INLINE.contains(&name.as_str()) {
            MarkupReplacement::Gone(len)
        } else {
            MarkupReplacement::Break(len)
        })
    }
}

/// Reads a tag: its name in lower case, its length, and whether it closes an element.
fn tag(text: &str) -> Option<(String, usize, bool)> {
    let mut rest = &text[1..];
    rest = rest.trim_start_matches(is_space);
    let closing = rest.starts_with('/');
    if closing {
        rest = rest[1..].trim_start_matches(is_space);
    }
    let name_end = rest.find(|c: char| !is_name(c)).unwrap_or(rest.len());
    let name = &rest[..name_end];
    if !name.starts_with(|c: char| (c.is_alphabetic() && !is_mark(c)) || c == '_' || c == ':') {
        return None;
    }
    let mut rest = &rest[name_end..];
    if rest.is_empty() {
        // A tag that the text ends in.
        return Some((name.to_lowercase(), text.len(), closing));
    }
    let limit = rest.len().min(MAX_MARKUP_BYTES);
    let start = rest.len();
    let mut behind_name = !closing;
    loop {
        if start - rest.len() > limit {
            return None;
        }
        let spaces = rest.trim_start_matches(is_space);
        let spaced = spaces.len() < rest.len();
        rest = spaces;
        if let Some(after) = rest.strip_prefix('>') {
            return Some((name.to_lowercase(), text.len() - after.len(), closing));
        }
        if let Some(after) = rest.strip_prefix('/') {
            let after = after.trim_start_matches(is_space).strip_prefix('>')?;
            return Some((name.to_lowercase(), text.len() - after.len(), closing));
        }
        // Lucene takes a value right behind the name of a start tag, too.
        let may_lack_name = std::mem::take(&mut behind_name) && rest.starts_with('=');
        if !spaced && !may_lack_name {
            return None;
        }
        // An attribute, with or without a value.
        let end = rest
            .find(|c: char| is_space(c) || matches!(c, '=' | '>' | '/' | '<' | '"' | '\''))
            .unwrap_or(rest.len());
        if end == 0 && !may_lack_name {
            return None;
        }
        rest = &rest[end..];
        let Some(value) = rest.trim_start_matches(is_space).strip_prefix('=') else { continue };
        let value = value.trim_start_matches(is_space);
        rest = match value.chars().next()? {
            quote @ ('"' | '\'') => &value[1..][value[1..].find(quote)? + 1..],
            _ => {
                let end = value.find(|c: char| is_space(c) || matches!(c, '>' | '<')).unwrap_or(value.len());
                &value[end..]
            }
        };
    }
}

/// Reads `<!DOCTYPE …>`: quoted parts may hold brackets.
fn declaration(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, c) in text.char_indices().skip(2).take(MAX_MARKUP_BYTES) {
        match (quote, c) {
            (None, '>') => return Some(at + 1),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            _ => {}
        }
    }
    None
}

fn is_mark(c: char) -> bool {
    c.general_category_group() == GeneralCategoryGroup::Mark
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || is_mark(c) || matches!(c, '.' | '-' | '_' | ':' | '\u{b7}')
}

/// Reads what begins with `&`. A reference ends in a semicolon or where the text does.
fn reference(text: &str) -> Option<MarkupReplacement> {
    let body = &text[1..];
    if body.starts_with('#') {
        let (code, len) = number(text)?;
        let low = || number(&text[len..]).filter(|_| text[..len].ends_with(';'));
        // Two references to the halves of a surrogate pair are one character.
        if is_half(code, text, len, 0xd800)
            && let Some((second, more)) = low()
            && is_half(second, &text[len..], more, 0xdc00)
            && text[..len + more].ends_with(';')
        {
            let c = char::from_u32(0x1_0000 + ((code - 0xd800) << 10) + (second - 0xdc00))?;
            return Some(MarkupReplacement::Character(len + more, c));
        }
        return Some(MarkupReplacement::Character(
            len,
            char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER),
        ));
    }
    let end = body.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(body.len());
    let c = entity(&body[..end])?;
    closed(text, 1 + end).map(|len| MarkupReplacement::Character(len, c))
}

/// The length of a reference whose name or number ends at a place; `None` where something else follows.
fn closed(text: &str, end: usize) -> Option<usize> {
    match text[end..].chars().next() {
        None => Some(end),
        Some(';') => Some(end + 1),
        Some(_) => None,
    }
}

/// Reads a numeric reference: the code point, and its length. Lucene takes no more than five digits of
/// base 16 and seven of base 10.
fn number(text: &str) -> Option<(u32, usize)> {
    let number = text.strip_prefix("&#")?;
    let (digits, radix, prefix, most) = match number.strip_prefix(['x', 'X']) {
        Some(hex) => (hex, 16, 3, 5),
        None => (number, 10, 2, 7),
    };
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    if end == 0 || end > most {
        return None;
    }
    let code =
        u32::from_str_radix(&digits[..end], radix).ok().filter(|code| *code <= u32::from(char::MAX))?;
    Some((code, closed(text, prefix + end)?))
}

/// Returns true if a reference is to half of a surrogate pair, from `first` on, without leading zeros.
fn is_half(code: u32, text: &str, len: usize, first: u32) -> bool {
    let digits = text[..len].trim_end_matches(';').trim_start_matches(['&', '#', 'x', 'X']);
    (first..first + 0x400).contains(&code) && !digits.starts_with('0')
}

/// The character of an entity of HTML 4; a no-break space is a space.
fn entity(name: &str) -> Option<char> {
    if name == "nbsp" {
        return Some(' ');
    }
    ENTITIES.binary_search_by(|entry| entry.0.cmp(name)).ok().map(|at| ENTITIES[at].1)
}

/// Sorted by name.
#[rustfmt::skip]
const ENTITIES: [(&str, char); 258] = [
    ("AElig", '\u{c6}'), ("AMP", '\u{26}'), ("Aacute", '\u{c1}'), ("Acirc", '\u{c2}'), ("Agrave", '\u{c0}'),
    ("Alpha", '\u{391}'), ("Aring", '\u{c5}'), ("Atilde", '\u{c3}'), ("Auml", '\u{c4}'),
    ("Beta", '\u{392}'), ("COPY", '\u{a9}'), ("Ccedil", '\u{c7}'), ("Chi", '\u{3a7}'),
    ("Dagger", '\u{2021}'), ("Delta", '\u{394}'), ("ETH", '\u{d0}'), ("Eacute", '\u{c9}'),
    ("Ecirc", '\u{ca}'), ("Egrave", '\u{c8}'), ("Epsilon", '\u{395}'), ("Eta", '\u{397}'),
    ("Euml", '\u{cb}'), ("GT", '\u{3e}'), ("Gamma", '\u{393}'), ("Iacute", '\u{cd}'), ("Icirc", '\u{ce}'),
    ("Igrave", '\u{cc}'), ("Iota", '\u{399}'), ("Iuml", '\u{cf}'), ("Kappa", '\u{39a}'), ("LT", '\u{3c}'),
    ("Lambda", '\u{39b}'), ("Mu", '\u{39c}'), ("Ntilde", '\u{d1}'), ("Nu", '\u{39d}'), ("OElig", '\u{152}'),
    ("Oacute", '\u{d3}'), ("Ocirc", '\u{d4}'), ("Ograve", '\u{d2}'), ("Omega", '\u{3a9}'),
    ("Omicron", '\u{39f}'), ("Oslash", '\u{d8}'), ("Otilde", '\u{d5}'), ("Ouml", '\u{d6}'),
    ("Phi", '\u{3a6}'), ("Pi", '\u{3a0}'), ("Prime", '\u{2033}'), ("Psi", '\u{3a8}'), ("QUOT", '\u{22}'),
    ("REG", '\u{ae}'), ("Rho", '\u{3a1}'), ("Scaron", '\u{160}'), ("Sigma", '\u{3a3}'), ("THORN", '\u{de}'),
    ("Tau", '\u{3a4}'), ("Theta", '\u{398}'), ("Uacute", '\u{da}'), ("Ucirc", '\u{db}'),
    ("Ugrave", '\u{d9}'), ("Upsilon", '\u{3a5}'), ("Uuml", '\u{dc}'), ("Xi", '\u{39e}'),
    ("Yacute", '\u{dd}'), ("Yuml", '\u{178}'), ("Zeta", '\u{396}'), ("aacute", '\u{e1}'),
    ("acirc", '\u{e2}'), ("acute", '\u{b4}'), ("aelig", '\u{e6}'), ("agrave", '\u{e0}'),
    ("alefsym", '\u{2135}'), ("alpha", '\u{3b1}'), ("amp", '\u{26}'), ("and", '\u{2227}'),
    ("ang", '\u{2220}'), ("apos", '\u{27}'), ("aring", '\u{e5}'), ("asymp", '\u{2248}'),
    ("atilde", '\u{e3}'), ("auml", '\u{e4}'), ("bdquo", '\u{201e}'), ("beta", '\u{3b2}'),
    ("brvbar", '\u{a6}'), ("bull", '\u{2022}'), ("cap", '\u{2229}'), ("ccedil", '\u{e7}'),
    ("cedil", '\u{b8}'), ("cent", '\u{a2}'), ("chi", '\u{3c7}'), ("circ", '\u{2c6}'), ("clubs", '\u{2663}'),
    ("cong", '\u{2245}'), ("copy", '\u{a9}'), ("crarr", '\u{21b5}'), ("cup", '\u{222a}'),
    ("curren", '\u{a4}'), ("dArr", '\u{21d3}'), ("dagger", '\u{2020}'), ("darr", '\u{2193}'),
    ("deg", '\u{b0}'), ("delta", '\u{3b4}'), ("diams", '\u{2666}'), ("divide", '\u{f7}'),
    ("eacute", '\u{e9}'), ("ecirc", '\u{ea}'), ("egrave", '\u{e8}'), ("empty", '\u{2205}'),
    ("emsp", '\u{2003}'), ("ensp", '\u{2002}'), ("epsilon", '\u{3b5}'), ("equiv", '\u{2261}'),
    ("eta", '\u{3b7}'), ("eth", '\u{f0}'), ("euml", '\u{eb}'), ("euro", '\u{20ac}'), ("exist", '\u{2203}'),
    ("fnof", '\u{192}'), ("forall", '\u{2200}'), ("frac12", '\u{bd}'), ("frac14", '\u{bc}'),
    ("frac34", '\u{be}'), ("frasl", '\u{2044}'), ("gamma", '\u{3b3}'), ("ge", '\u{2265}'), ("gt", '\u{3e}'),
    ("hArr", '\u{21d4}'), ("harr", '\u{2194}'), ("hearts", '\u{2665}'), ("hellip", '\u{2026}'),
    ("iacute", '\u{ed}'), ("icirc", '\u{ee}'), ("iexcl", '\u{a1}'), ("igrave", '\u{ec}'),
    ("image", '\u{2111}'), ("infin", '\u{221e}'), ("int", '\u{222b}'), ("iota", '\u{3b9}'),
    ("iquest", '\u{bf}'), ("isin", '\u{2208}'), ("iuml", '\u{ef}'), ("kappa", '\u{3ba}'),
    ("lArr", '\u{21d0}'), ("lambda", '\u{3bb}'), ("lang", '\u{2329}'), ("laquo", '\u{ab}'),
    ("larr", '\u{2190}'), ("lceil", '\u{2308}'), ("ldquo", '\u{201c}'), ("le", '\u{2264}'),
    ("lfloor", '\u{230a}'), ("lowast", '\u{2217}'), ("loz", '\u{25ca}'), ("lrm", '\u{200e}'),
    ("lsaquo", '\u{2039}'), ("lsquo", '\u{2018}'), ("lt", '\u{3c}'), ("macr", '\u{af}'),
    ("mdash", '\u{2014}'), ("micro", '\u{b5}'), ("middot", '\u{b7}'), ("minus", '\u{2212}'),
    ("mu", '\u{3bc}'), ("nabla", '\u{2207}'), ("ndash", '\u{2013}'), ("ne", '\u{2260}'), ("ni", '\u{220b}'),
    ("not", '\u{ac}'), ("notin", '\u{2209}'), ("nsub", '\u{2284}'), ("ntilde", '\u{f1}'), ("nu", '\u{3bd}'),
    ("oacute", '\u{f3}'), ("ocirc", '\u{f4}'), ("oelig", '\u{153}'), ("ograve", '\u{f2}'),
    ("oline", '\u{203e}'), ("omega", '\u{3c9}'), ("omicron", '\u{3bf}'), ("oplus", '\u{2295}'),
    ("or", '\u{2228}'), ("ordf", '\u{aa}'), ("ordm", '\u{ba}'), ("oslash", '\u{f8}'), ("otilde", '\u{f5}'),
    ("otimes", '\u{2297}'), ("ouml", '\u{f6}'), ("para", '\u{b6}'), ("part", '\u{2202}'),
    ("permil", '\u{2030}'), ("perp", '\u{22a5}'), ("phi", '\u{3c6}'), ("pi", '\u{3c0}'), ("piv", '\u{3d6}'),
    ("plusmn", '\u{b1}'), ("pound", '\u{a3}'), ("prime", '\u{2032}'), ("prod", '\u{220f}'),
    ("prop", '\u{221d}'), ("psi", '\u{3c8}'), ("quot", '\u{22}'), ("rArr", '\u{21d2}'),
    ("radic", '\u{221a}'), ("rang", '\u{232a}'), ("raquo", '\u{bb}'), ("rarr", '\u{2192}'),
    ("rceil", '\u{2309}'), ("rdquo", '\u{201d}'), ("real", '\u{211c}'), ("reg", '\u{ae}'),
    ("rfloor", '\u{230b}'), ("rho", '\u{3c1}'), ("rlm", '\u{200f}'), ("rsaquo", '\u{203a}'),
    ("rsquo", '\u{2019}'), ("sbquo", '\u{201a}'), ("scaron", '\u{161}'), ("sdot", '\u{22c5}'),
    ("sect", '\u{a7}'), ("shy", '\u{ad}'), ("sigma", '\u{3c3}'), ("sigmaf", '\u{3c2}'), ("sim", '\u{223c}'),
    ("spades", '\u{2660}'), ("sub", '\u{2282}'), ("sube", '\u{2286}'), ("sum", '\u{2211}'),
    ("sup", '\u{2283}'), ("sup1", '\u{b9}'), ("sup2", '\u{b2}'), ("sup3", '\u{b3}'), ("supe", '\u{2287}'),
    ("szlig", '\u{df}'), ("tau", '\u{3c4}'), ("there4", '\u{2234}'), ("theta", '\u{3b8}'),
    ("thetasym", '\u{3d1}'), ("thinsp", '\u{2009}'), ("thorn", '\u{fe}'), ("tilde", '\u{2dc}'),
    ("times", '\u{d7}'), ("trade", '\u{2122}'), ("uArr", '\u{21d1}'), ("uacute", '\u{fa}'),
    ("uarr", '\u{2191}'), ("ucirc", '\u{fb}'), ("ugrave", '\u{f9}'), ("uml", '\u{a8}'),
    ("upsih", '\u{3d2}'), ("upsilon", '\u{3c5}'), ("uuml", '\u{fc}'), ("weierp", '\u{2118}'),
    ("xi", '\u{3be}'), ("yacute", '\u{fd}'), ("yen", '\u{a5}'), ("yuml", '\u{ff}'), ("zeta", '\u{3b6}'),
    ("zwj", '\u{200d}'), ("zwnj", '\u{200c}'),
];
