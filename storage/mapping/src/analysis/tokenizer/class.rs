//! Classes of characters as Java's `Character` has them.

use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory};

/// `Character.isWhitespace`: no-break spaces are not white space, separators 1C to 1F are.
pub(crate) fn is_java_whitespace(c: char) -> bool {
    match c {
        '\u{9}'..='\u{d}' | '\u{1c}'..='\u{20}' => true,
        '\u{85}' | '\u{a0}' | '\u{2007}' | '\u{202f}' => false,
        _ => c.is_whitespace(),
    }
}

/// `Character.isLetter`.
pub(crate) fn is_letter(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_alphabetic();
    }
    c.general_category_group() == GeneralCategoryGroup::Letter
}

/// The value of a decimal digit of any script.
pub(crate) fn decimal_digit(c: char) -> Option<u32> {
    if c.is_ascii() {
        return c.to_digit(10);
    }
    if !is_decimal(c) {
        return None;
    }
    let code = c as u32;
    if (0x1d7ce..=0x1d7ff).contains(&code) {
        // Five sets of mathematical digits without a gap.
        return Some((code - 0x1d7ce) % 10);
    }
    (0..10).rev().find(|&value| (0..=value).all(|back| char::from_u32(code - back).is_some_and(is_decimal)))
}

fn is_decimal(c: char) -> bool {
    c.general_category() == GeneralCategory::DecimalNumber
}

/// Returns whether a character is punctuation.
pub(crate) fn is_punctuation(c: char) -> bool {
    c.general_category_group() == GeneralCategoryGroup::Punctuation
}

/// Returns whether a character is a symbol.
pub(crate) fn is_symbol(c: char) -> bool {
    c.general_category_group() == GeneralCategoryGroup::Symbol
}
