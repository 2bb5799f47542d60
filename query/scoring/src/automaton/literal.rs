//! Texts that are in all terms of a pattern: most terms are told by them to be none of it.

use crate::automaton::WildcardItem;

/// Returns the longest text between the signs of a pattern.
pub(super) fn of_pieces(pieces: &[WildcardItem]) -> String {
    let mut longest = LongestLiteral::default();
    for piece in pieces {
        match piece {
            WildcardItem::Character(character) => longest.push(*character),
            WildcardItem::Any | WildcardItem::One => longest.end(),
        }
    }
    longest.finish()
}

/// Returns a text that is in all terms of a regular expression; empty where none is found. Signs that it does not know for
/// certain are taken for such that nothing follows from.
pub(super) fn of_regexp(text: &str) -> String {
    let mut longest = LongestLiteral::default();
    let mut characters = text.chars();
    let mut depth = 0_usize;
    while let Some(character) = characters.next() {
        match character {
            // Which of the parts is there, is not known; the others are operators or change what is read.
            '|' if depth == 0 => return String::new(),
            '"' | '&' | '~' | '<' | '>' | '#' | '@' => return String::new(),
            '(' => {
                longest.end();
                depth += 1;
            }
            ')' => depth = depth.saturating_sub(1),
            '[' => {
                longest.end();
                let mut escaped = false;
                for inside in characters.by_ref() {
                    match inside {
                        ']' if !escaped => break,
                        own => escaped = own == '\\' && !escaped,
                    }
                }
            }
            // What comes once or more often may be followed by a sign that takes it back.
            '*' | '?' | '+' | '{' => {
                longest.take_back();
                if character == '{' {
                    characters.by_ref().find(|inside| *inside == '}');
                }
            }
            '.' | '^' | '$' | ']' | '}' => longest.end(),
            '\\' => match characters.next() {
                // Letters may stand for classes.
                Some(escaped) if depth == 0 && !escaped.is_alphanumeric() => longest.push(escaped),
                _ => longest.end(),
            },
            plain if depth == 0 => longest.push(plain),
            _ => {}
        }
    }
    longest.finish()
}

/// The longest of some runs of characters.
#[derive(Default)]
struct LongestLiteral {
    run: String,
    longest: String,
}

impl LongestLiteral {
    fn push(&mut self, character: char) {
        self.run.push(character);
    }

    fn end(&mut self) {
        if self.run.len() > self.longest.len() {
            self.longest.clone_from(&self.run);
        }
        self.run.clear();
    }

    /// Ends the run before its last character, which need not be there.
    fn take_back(&mut self) {
        self.run.pop();
        self.end();
    }

    fn finish(mut self) -> String {
        self.end();
        self.longest
    }
}

#[cfg(test)]
mod tests {
    use millrace_mapping::automaton::pieces;

    use crate::automaton::literal::*;

    #[test]
    fn what_is_in_all_terms_is_found() {
        assert_eq!(of_pieces(&pieces("*fail?d pass*word*")), "d pass");
        assert_eq!(of_pieces(&pieces("*?*")), "");
        let expressions = [
            (".*failed.*", "failed"),
            ("fails?", "fail"),
            ("abb+cd*e", "ab"),
            ("ab+?cd", "cd"),
            ("ab{0,3}cde", "cde"),
            ("x(abc|abd)yz", "yz"),
            ("abc|abd", ""),
            ("(abc|abd)?[abc\\]d]ef", "ef"),
            (r"a\.bc\d", "a.bc"),
            ("\"a\"b", ""),
            ("ab&cd", ""),
            ("((ab)c)d", "d"),
        ];
        for (expression, literal) in expressions {
            assert_eq!(of_regexp(expression), literal, "{expression}");
        }
    }
}
