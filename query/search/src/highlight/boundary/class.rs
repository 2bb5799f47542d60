//! The general categories of characters that boundaries go by.

use std::sync::OnceLock;

use regex_syntax::hir::{Class, HirKind};

/// A general category, as far as boundaries tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Category {
    Lower,
    OtherLetter,
    Number,
    SpacingMark,
    Mark,
    Format,
    Control,
    Space,
    Line,
    Dash,
    Connector,
    Opening,
    Closing,
    Currency,
    Other,
}

/// The classes of regular expressions that name the categories.
const NAMES: &[(&str, Category)] = &[
    (r"\p{Ll}", Category::Lower),
    (r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}]", Category::OtherLetter),
    (r"\p{N}", Category::Number),
    (r"\p{Mc}", Category::SpacingMark),
    (r"[\p{Mn}\p{Me}]", Category::Mark),
    (r"\p{Cf}", Category::Format),
    (r"\p{Cc}", Category::Control),
    (r"\p{Zs}", Category::Space),
    (r"[\p{Zl}\p{Zp}]", Category::Line),
    (r"\p{Pd}", Category::Dash),
    (r"\p{Pc}", Category::Connector),
    (r"[\p{Ps}\p{Pi}]", Category::Opening),
    (r"[\p{Pe}\p{Pf}]", Category::Closing),
    (r"\p{Sc}", Category::Currency),
];

/// Returns the category of a character.
pub(super) fn category(c: char) -> Category {
    static RANGES: OnceLock<Vec<(char, char, Category)>> = OnceLock::new();
    let ranges = RANGES.get_or_init(ranges);
    let at = ranges.partition_point(|(_, last, _)| *last < c);
    match ranges.get(at) {
        Some((first, _, category)) if *first <= c => *category,
        _ => Category::Other,
    }
}

fn ranges() -> Vec<(char, char, Category)> {
    let mut ranges = Vec::new();
    for (name, category) in NAMES {
        let class = regex_syntax::parse(name).expect("a constant class of Unicode categories is valid");
        if let HirKind::Class(Class::Unicode(class)) = class.kind() {
            ranges.extend(class.ranges().iter().map(|range| (range.start(), range.end(), *category)));
        }
    }
    ranges.sort_unstable_by_key(|range| range.0);
    ranges
}
