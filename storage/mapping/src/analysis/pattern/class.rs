//! Sets of characters: predefined classes, POSIX classes, Unicode properties, blocks and scripts, as `java.util.regex` names them.

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange, HirKind};

/// Ranges of the Unicode blocks: name without spaces and underscores, first and last code point.
const BLOCKS: &str = include_str!("blocks.tsv");

/// General categories, and the names that stand for several.
const CATEGORIES: [&str; 40] = [
    "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Me", "Mc", "Nd", "Nl", "No", "Zs", "Zl", "Zp", "Cc", "Cf",
    "Co", "Cs", "Pd", "Ps", "Pe", "Pc", "Po", "Sm", "Sc", "Sk", "So", "Pi", "Pf", "L", "M", "N", "Z", "C",
    "P", "S", "LC", "LD", "L1",
];

/// Line terminators of `.`, `^` and `$`.
pub(super) const LINE_TERMINATORS: [char; 5] = ['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'];

/// Reads a class in the syntax of the `regex` crate.
pub(super) fn parse(expression: &str) -> Option<ClassUnicode> {
    match regex_syntax::parse(expression).ok()?.into_kind() {
        HirKind::Class(regex_syntax::hir::Class::Unicode(class)) => Some(class),
        HirKind::Class(regex_syntax::hir::Class::Bytes(class)) => class.to_unicode_class(),
        HirKind::Literal(literal) => {
            let text = std::str::from_utf8(&literal.0).ok()?;
            Some(ranges(text.chars().map(|c| (c, c))))
        }
        _ => None,
    }
}

/// Returns the class of some ranges.
pub(super) fn ranges(ranges: impl IntoIterator<Item = (char, char)>) -> ClassUnicode {
    ClassUnicode::new(ranges.into_iter().map(|(low, high)| ClassUnicodeRange::new(low, high)))
}

/// Returns a class of code points: those of surrogates are left out, since no text has them.
pub(super) fn code_points(low: u32, high: u32) -> ClassUnicode {
    let below = (low, high.min(0xd7ff));
    let above = (low.max(0xe000), high);
    ranges(
        [below, above]
            .into_iter()
            .filter(|(low, high)| low <= high)
            .filter_map(|(low, high)| char::from_u32(low).zip(char::from_u32(high))),
    )
}

/// Returns all characters that are not in a class.
pub(super) fn negate(mut class: ClassUnicode) -> ClassUnicode {
    class.negate();
    class
}

/// Returns the predefined class of a letter behind a backslash.
pub(super) fn predefined(letter: char, unicode: bool) -> Option<ClassUnicode> {
    let class = match (letter.to_ascii_lowercase(), unicode) {
        ('d', false) => parse("[0-9]"),
        ('d', true) => parse(r"\p{Nd}"),
        ('w', false) => parse("[0-9A-Za-z_]"),
        ('w', true) => parse(r"[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]"),
        ('s', false) => parse(r"[ \t-\r]"),
        ('s', true) => parse(r"\p{White_Space}"),
        ('h', _) => parse(r"[ \t\xA0\u{1680}\u{180e}\u{2000}-\u{200a}\u{202f}\u{205f}\u{3000}]"),
        ('v', _) => parse(r"[\n-\r\x85\u{2028}\u{2029}]"),
        _ => None,
    }?;
    Some(if letter.is_ascii_uppercase() { negate(class) } else { class })
}

/// Returns the property of a name, or `None` where there is none. `unicode` is UNICODE_CHARACTER_CLASS.
pub(super) fn property(name: &str, unicode: bool, ignore_case: bool) -> Option<ClassUnicode> {
    if let Some((key, value)) = name.split_once('=') {
        return match key.to_ascii_lowercase().as_str() {
            "sc" | "script" => script(value),
            "blk" | "block" => block(value),
            "gc" | "general_category" => category(value, ignore_case),
            _ => None,
        };
    }
    if let Some(name) = name.strip_prefix("In") {
        return block(name);
    }
    if let Some(name) = name.strip_prefix("Is") {
        return binary(name, ignore_case)
            .or_else(|| category(name, ignore_case))
            .or_else(|| posix(name, ignore_case))
            .or_else(|| java(name, ignore_case))
            .or_else(|| script(name));
    }
    let wide = || if unicode { unicode_posix(name, ignore_case) } else { None };
    wide()
        .or_else(|| category(name, ignore_case))
        .or_else(|| posix(name, ignore_case))
        .or_else(|| java(name, ignore_case))
}

fn script(name: &str) -> Option<ClassUnicode> {
    parse(&format!(r"\p{{script={}}}", identifier(name)?))
}

/// Checks that a name can be put between braces.
fn identifier(name: &str) -> Option<&str> {
    (!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'))
        .then_some(name)
}

fn block(name: &str) -> Option<ClassUnicode> {
    let bare = |name: &str| -> String {
        name.chars().filter(|c| !matches!(c, ' ' | '_' | '-')).collect::<String>().to_ascii_uppercase()
    };
    let wanted = bare(name);
    BLOCKS.lines().find_map(|line| {
        let mut columns = line.split('\t');
        if bare(columns.next()?) != wanted {
            return None;
        }
        let mut bound = || u32::from_str_radix(columns.next()?, 16).ok();
        Some(code_points(bound()?, bound()?))
    })
}

fn category(name: &str, ignore_case: bool) -> Option<ClassUnicode> {
    if !CATEGORIES.contains(&name) {
        return None;
    }
    match name {
        "LC" => parse(r"\p{LC}"),
        "Lu" | "Ll" | "Lt" if ignore_case => parse(r"\p{LC}"),
        "LD" => parse(r"[\p{L}\p{Nd}]"),
        "L1" => parse(r"[\x00-\xff]"),
        "Cs" => Some(ClassUnicode::empty()),
        name => parse(&format!(r"\p{{{name}}}")),
    }
}

fn posix(name: &str, ignore_case: bool) -> Option<ClassUnicode> {
    match name {
        "Lower" | "Upper" if ignore_case => parse("[A-Za-z]"),
        "Lower" => parse("[a-z]"),
        "Upper" => parse("[A-Z]"),
        "ASCII" => parse(r"[\x00-\x7f]"),
        "Alpha" => parse("[A-Za-z]"),
        "Digit" => parse("[0-9]"),
        "Alnum" => parse("[0-9A-Za-z]"),
        "Punct" => parse("[[:punct:]]"),
        "Graph" => parse("[!-~]"),
        "Print" => parse("[ -~]"),
        "Blank" => parse(r"[ \t]"),
        "Cntrl" => parse(r"[\x00-\x1f\x7f]"),
        "XDigit" => parse("[0-9A-Fa-f]"),
        "Space" => parse(r"[ \t-\r]"),
        "all" | "L*" => Some(code_points(0, 0x10_ffff)),
        _ => None,
    }
}

/// Returns the class of a method `Character.is…`.
fn java(name: &str, ignore_case: bool) -> Option<ClassUnicode> {
    match name.strip_prefix("java")? {
        "LowerCase" | "UpperCase" | "TitleCase" if ignore_case => {
            parse(r"[\p{Lowercase}\p{Uppercase}\p{Lt}]")
        }
        "LowerCase" => parse(r"\p{Lowercase}"),
        "UpperCase" => parse(r"\p{Uppercase}"),
        "TitleCase" => parse(r"\p{Lt}"),
        "Alphabetic" => parse(r"\p{Alphabetic}"),
        "Ideographic" => parse(r"\p{Ideographic}"),
        "Digit" => parse(r"\p{Nd}"),
        "Defined" => parse(r"\P{Cn}"),
        "Letter" => parse(r"\p{L}"),
        "LetterOrDigit" => parse(r"[\p{L}\p{Nd}]"),
        "JavaIdentifierStart" => parse(r"[\p{L}\p{Nl}\p{Sc}\p{Pc}]"),
        "UnicodeIdentifierStart" => parse(r"\p{ID_Start}"),
        "JavaIdentifierPart" => {
            parse(r"[\p{L}\p{Nl}\p{Sc}\p{Pc}\p{Nd}\p{Mc}\p{Mn}\p{Cf}\x00-\x08\x0e-\x1b\x7f-\x9f]")
        }
        "UnicodeIdentifierPart" => parse(r"[\p{ID_Continue}\p{Cf}\x00-\x08\x0e-\x1b\x7f-\x9f]"),
        "IdentifierIgnorable" => parse(r"[\p{Cf}\x00-\x08\x0e-\x1b\x7f-\x9f]"),
        "SpaceChar" => parse(r"\p{Z}"),
        "Whitespace" => parse(r"[\t-\r\x1c-\x1f[\p{Z}--[\u{a0}\u{2007}\u{202f}]]]"),
        "ISOControl" => parse(r"[\x00-\x1f\x7f-\x9f]"),
        _ => None,
    }
}

/// Returns a POSIX class with UNICODE_CHARACTER_CLASS.
fn unicode_posix(name: &str, ignore_case: bool) -> Option<ClassUnicode> {
    match name.to_ascii_uppercase().as_str() {
        "LOWER" | "UPPER" if ignore_case => parse(r"[\p{Lowercase}\p{Uppercase}\p{Lt}]"),
        "LOWER" => parse(r"\p{Lowercase}"),
        "UPPER" => parse(r"\p{Uppercase}"),
        "ALPHA" => parse(r"\p{Alphabetic}"),
        "DIGIT" => parse(r"\p{Nd}"),
        "ALNUM" => parse(r"[\p{Alphabetic}\p{Nd}]"),
        "PUNCT" => parse(r"\p{P}"),
        "GRAPH" => parse(r"[^\p{White_Space}\p{Cc}\p{Cn}]"),
        "PRINT" => parse(r"[[^\p{White_Space}\p{Cc}\p{Cn}]\p{Zs}]"),
        "BLANK" => parse(r"[\p{Zs}\t]"),
        "CNTRL" => parse(r"\p{Cc}"),
        "XDIGIT" => parse(r"[\p{Nd}\p{Hex_Digit}]"),
        "SPACE" => parse(r"\p{White_Space}"),
        _ => None,
    }
}

/// Returns a property behind `Is`.
fn binary(name: &str, ignore_case: bool) -> Option<ClassUnicode> {
    let upper = name.to_ascii_uppercase();
    match upper.as_str() {
        "LOWERCASE" | "UPPERCASE" | "TITLECASE" if ignore_case => {
            parse(r"[\p{Lowercase}\p{Uppercase}\p{Lt}]")
        }
        "LOWERCASE" => parse(r"\p{Lowercase}"),
        "UPPERCASE" => parse(r"\p{Uppercase}"),
        "TITLECASE" => parse(r"\p{Lt}"),
        "ALPHABETIC" => parse(r"\p{Alphabetic}"),
        "LETTER" => parse(r"\p{L}"),
        "IDEOGRAPHIC" => parse(r"\p{Ideographic}"),
        "WHITE_SPACE" | "WHITESPACE" => parse(r"\p{White_Space}"),
        "CONTROL" => parse(r"\p{Cc}"),
        "PUNCTUATION" => parse(r"\p{P}"),
        "HEX_DIGIT" | "HEXDIGIT" => parse(r"[\p{Nd}\p{Hex_Digit}]"),
        "ASSIGNED" => parse(r"\P{Cn}"),
        "NONCHARACTER_CODE_POINT" | "NONCHARACTERCODEPOINT" => parse(r"\p{Noncharacter_Code_Point}"),
        "WORD" => predefined('w', true),
        "JOIN_CONTROL" | "JOINCONTROL" => parse(r"\p{Join_Control}"),
        _ => unicode_posix(&upper, ignore_case),
    }
}

/// Adds the other case of each letter: of ASCII alone, or of all.
pub(super) fn fold(class: &mut ClassUnicode, unicode: bool) {
    if unicode {
        // Java looks for the other cases of letters with an upper case alone.
        if *class == ranges([('ß', 'ß')]) {
            return;
        }
        // It compares upper and lower cases, which `İ` and `ı` share with `i`.
        let mut dotted = ranges("Iiİı".chars().map(|c| (c, c)));
        dotted.intersect(class);
        if !dotted.ranges().is_empty() {
            class.union(&ranges("Iiİı".chars().map(|c| (c, c))));
        }
        // Case folding tables are a feature that is on.
        let _ = class.try_case_fold_simple();
        return;
    }
    let mut letters = ranges([('A', 'Z'), ('a', 'z')]);
    letters.intersect(class);
    let flip = |c: char| if c.is_ascii_lowercase() { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() };
    class.union(&ranges(letters.ranges().iter().map(|range| (flip(range.start()), flip(range.end())))));
}
