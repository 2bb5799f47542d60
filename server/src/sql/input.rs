//! Cuts input into statements at semicolons outside of quotes and comments.

use super::Language;

/// Input that is not cut yet, and statements that are.
#[derive(Debug)]
pub(super) struct Statements {
    language: Language,
    open: String,
    quote: Option<char>,
    done: Vec<String>,
}

impl Statements {
    pub(super) fn new(language: Language) -> Self {
        Self { language, open: String::new(), quote: None, done: Vec::new() }
    }

    /// Takes over a line.
    pub(super) fn add(&mut self, line: &str) {
        let mut letters = line.chars().peekable();
        let mut before = ' ';
        while let Some(letter) = letters.next() {
            let is_first = before.is_whitespace();
            before = letter;
            match (self.quote, letter) {
                (Some(quote), letter) if letter == quote => self.quote = None,
                (Some('\'' | '"'), '\\') => {
                    self.open.push(letter);
                    if let Some(escaped) = letters.next() {
                        self.open.push(escaped);
                    }
                    continue;
                }
                (None, '\'' | '"' | '`') => self.quote = Some(letter),
                // The rest of the line is a comment. In PPL, `//` within a word such as a URL is none.
                (None, '/') if self.language == Language::Ppl && is_first && letters.peek() == Some(&'/') => {
                    break;
                }
                (None, '#') if self.language == Language::Sql => break,
                (None, '-') if self.language == Language::Sql && letters.peek() == Some(&'-') => {
                    letters.next();
                    match letters.peek() {
                        None | Some(' ' | '\t') => break,
                        Some(_) => self.open.push('-'),
                    }
                }
                (None, ';') => {
                    self.end();
                    continue;
                }
                _ => {}
            }
            self.open.push(letter);
        }
        if !self.open.is_empty() {
            self.open.push('\n');
        }
    }

    /// Ends the statement that is open.
    pub(super) fn end(&mut self) {
        let statement = std::mem::take(&mut self.open);
        let statement = statement.trim();
        if !statement.is_empty() {
            self.done.push(statement.to_owned());
        }
        self.quote = None;
    }

    /// Returns whether a statement is begun.
    pub(super) fn is_open(&self) -> bool {
        !self.open.trim().is_empty()
    }

    /// Returns the statement that is begun.
    pub(super) fn open_text(&self) -> &str {
        &self.open
    }

    /// Takes the statements that are complete.
    pub(super) fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_end_at_semicolons() {
        let mut statements = Statements::new(Language::Sql);
        for line in ["SELECT ';' , \"it's;\" -- a; b", "FROM x; SELECT 1; # c", "SELECT `a;b`", "FROM y"] {
            statements.add(line);
        }
        assert_eq!(statements.take(), ["SELECT ';' , \"it's;\" \nFROM x", "SELECT 1"]);
        assert!(statements.is_open());
        statements.end();
        assert_eq!(statements.take(), ["SELECT `a;b`\nFROM y"]);
        assert!(!statements.is_open());
    }

    #[test]
    fn comments_of_ppl_are_no_words() {
        let mut statements = Statements::new(Language::Ppl);
        for line in ["source=a http://x/y -- # // b; c", "| head 1; // d;", "source=b"] {
            statements.add(line);
        }
        assert_eq!(statements.take(), ["source=a http://x/y -- # \n| head 1"]);
        assert!(statements.is_open());
    }
}
