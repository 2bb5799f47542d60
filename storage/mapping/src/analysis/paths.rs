//! A text as the strings that a suggester compares: its terms behind one another, a string for each way
//! through terms that share positions.

use super::{Analyzer, Token};

/// Stands between positions.
pub const SEPARATOR: char = '\u{1f}';
/// Most strings of one text.
const MAX_PATHS: usize = 256;
/// Most positions without a term that are kept in a row.
const MAX_HOLES: u32 = 64;

/// Cuts a text into the strings that a suggester compares.
///
/// Positions without a term before a term count, those behind the last one do not.
/// `separators` says whether terms stay apart, `increments` whether positions without a term count.
pub fn paths(analyzer: &Analyzer, separators: bool, increments: bool, text: &str) -> Vec<String> {
    let mut tokens: Vec<Token> = Vec::new();
    analyzer.run_until(text, analyzer.filter_count(), &mut |token| tokens.push(token.clone()));
    let mut paths = vec![String::new()];
    let mut next = 0;
    let part = |paths: &mut Vec<String>, positions: u32| {
        if separators {
            for path in paths {
                path.extend((0..positions.min(MAX_HOLES)).map(|_| SEPARATOR));
            }
        }
    };
    let mut rest = tokens.as_slice();
    while let Some(first) = rest.first() {
        let here = rest.iter().take_while(|token| token.position == first.position).count();
        let (same, behind) = rest.split_at(here);
        let missing = if increments { first.position.saturating_sub(next) } else { 0 };
        part(&mut paths, missing + u32::from(next > 0));
        let mut longer = Vec::with_capacity(paths.len() * same.len());
        for path in &paths {
            longer.extend(same.iter().map(|token| format!("{path}{}", token.text)));
        }
        longer.truncate(MAX_PATHS);
        paths = longer;
        next = first.position + 1;
        rest = behind;
    }
    if tokens.is_empty() { Vec::new() } else { paths }
}
