//! Tokens of scripts.
//!
//! The token before and the space around tell whether `/` divides or begins an expression, as in Ruby.

use super::syntax::{Position, RegexFlags, SyntaxFault};
use super::token::{Token, TokenKind, TokenText};

const KEYWORDS: [&str; 31] = [
    "and", "begin", "break", "case", "class", "def", "defined?", "do", "else", "elsif", "end", "ensure",
    "false", "for", "if", "in", "module", "next", "nil", "not", "or", "redo", "rescue", "retry", "return",
    "self", "then", "true", "unless", "until", "when",
];
const MORE_KEYWORDS: [&str; 4] = ["while", "yield", "super", "alias"];

/// Operators, the longest first.
const OPERATORS: [&str; 53] = [
    "**=", "<=>", "===", "...", "<<=", ">>=", "&&=", "||=", "**", "==", "!=", ">=", "<=", "&&", "||", "=~",
    "!~", "..", "+=", "-=", "*=", "/=", "%=", "|=", "&=", "^=", "<<", ">>", "&.", "::", "=>", "->", "+", "-",
    "*", "/", "%", "=", "<", ">", "!", "&", "|", "^", "~", "?", ":", ",", ".", "(", ")", "[", "]",
];
const BRACES: [&str; 3] = ["{", "}", ";"];

/// Most tokens of a script.
const MAX_TOKENS: usize = 100_000;

pub(super) struct Lexer<'a> {
    text: &'a str,
    rest: &'a str,
    base: Position,
    tokens: Vec<Token>,
    /// Open parentheses and brackets, within which ends of lines do not count.
    depth: Vec<char>,
}

impl<'a> Lexer<'a> {
    /// Makes tokens of a text that begins at a place.
    ///
    /// # Errors
    /// A text that is no token, with its place.
    pub(super) fn tokens(text: &'a str, base: Position) -> Result<Vec<Token>, SyntaxFault> {
        let mut lexer = Self { text, rest: text, base, tokens: Vec::new(), depth: Vec::new() };
        lexer.run()?;
        Ok(lexer.tokens)
    }

    fn at(&self) -> Position {
        let before = self.text.get(..self.text.len() - self.rest.len()).unwrap_or_default();
        position_behind(self.base, before)
    }

    fn fault<T>(&self, message: impl Into<String>) -> Result<T, SyntaxFault> {
        Err(SyntaxFault { at: self.at(), message: message.into() })
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    fn run(&mut self) -> Result<(), SyntaxFault> {
        loop {
            let before = self.rest.len();
            self.skip_blank();
            let spaced = self.rest.len() < before || self.tokens.is_empty();
            let at = self.at();
            if self.tokens.len() > MAX_TOKENS {
                return self.fault(format!("the script has more than {MAX_TOKENS} tokens"));
            }
            if self.rest.is_empty() {
                self.tokens.push(Token { kind: TokenKind::Newline, at, spaced });
                self.tokens.push(Token { kind: TokenKind::End, at, spaced });
                return Ok(());
            }
            if self.rest.starts_with('\n') {
                self.skip(1);
                if !matches!(self.depth.last(), Some('(' | '[')) && !self.continues() {
                    self.tokens.push(Token { kind: TokenKind::Newline, at, spaced });
                }
                continue;
            }
            let kind = self.token(spaced)?;
            self.tokens.push(Token { kind, at, spaced });
        }
    }

    fn skip_blank(&mut self) {
        loop {
            let trimmed = self.rest.trim_start_matches([' ', '\t', '\r', '\u{c}']);
            self.rest = trimmed;
            if let Some(comment) = self.rest.strip_prefix('#') {
                let end = comment.find('\n').unwrap_or(comment.len());
                self.rest = comment.get(end..).unwrap_or_default();
            } else if self.rest.starts_with("\\\n") {
                self.skip(2);
            } else {
                return;
            }
        }
    }

    /// Returns whether the next line continues this one: it begins with a dot.
    fn continues(&self) -> bool {
        let mut lines = self.rest.lines().map(str::trim_start);
        let next = lines.find(|line| !line.is_empty() && !line.starts_with('#')).unwrap_or_default();
        (next.starts_with('.') && !next.starts_with("..")) || next.starts_with("&.")
    }

    /// Returns whether the token before ends a value.
    fn after_value(&self) -> bool {
        match self.tokens.last().map(|token| &token.kind) {
            None => false,
            Some(kind) => match kind {
                TokenKind::Keyword(word) => matches!(*word, "end" | "self" | "true" | "false" | "nil"),
                TokenKind::Op(op) => matches!(*op, ")" | "]" | "}"),
                TokenKind::Newline | TokenKind::End | TokenKind::Label(_) => false,
                _ => true,
            },
        }
    }

    /// Returns whether a sign begins a literal here: no value precedes, or a name with space before and none behind.
    fn begins_literal(&self, spaced: bool, length: usize) -> bool {
        if !self.after_value() {
            return true;
        }
        let is_name = matches!(self.tokens.last().map(|token| &token.kind), Some(TokenKind::Name(_)));
        let follows = self.rest.get(length..).and_then(|rest| rest.chars().next());
        is_name && spaced && follows.is_some_and(|letter| !letter.is_whitespace() && letter != '=')
    }

    fn token(&mut self, spaced: bool) -> Result<TokenKind, SyntaxFault> {
        let first = self.rest.chars().next().unwrap_or_default();
        let second = self.rest.chars().nth(1).unwrap_or_default();
        match first {
            '0'..='9' => self.number(),
            '"' => {
                self.skip(1);
                self.text(None, '"', true).map(TokenKind::Text)
            }
            '\'' => {
                self.skip(1);
                self.text(None, '\'', false).map(TokenKind::Text)
            }
            '`' => self.fault("commands of the system are not supported"),
            '@' => self.state(),
            '$' => self.global(),
            ':' if self.after_value() && (second == '"' || self.awaits_colon()) => self.operator(),
            ':' if second == '"' => {
                self.skip(2);
                match self.text(None, '"', true)?.as_slice() {
                    [] => Ok(TokenKind::Symbol(String::new())),
                    [TokenText::Literal(text)] => Ok(TokenKind::Symbol(text.clone())),
                    _ => self.fault("symbols with interpolation are not supported"),
                }
            }
            ':' if second != ':' && (is_name_start(second) || second.is_ascii_uppercase()) => {
                self.skip(1);
                Ok(TokenKind::Symbol(self.word(true)))
            }
            ':' if second != ':' && !self.after_value() => {
                let operator = ["<=>", "==", "+", "-", "*", "/", "<<", "[]"].into_iter();
                match operator
                    .into_iter()
                    .find(|op| self.rest.get(1..).is_some_and(|rest| rest.starts_with(op)))
                {
                    Some(op) => {
                        self.skip(1 + op.len());
                        Ok(TokenKind::Symbol(op.to_owned()))
                    }
                    None => self.operator(),
                }
            }
            '/' if self.begins_literal(spaced, 1) => {
                self.skip(1);
                self.regex(None, '/')
            }
            '%' if self.begins_literal(spaced, 1) => self.percent(),
            '<' if self.rest.starts_with("<<~") || self.rest.starts_with("<<-") => {
                self.fault("here documents are not supported: use a text in quotes")
            }
            '?' if self.character().is_some() => {
                let letter = self.character().unwrap_or_default();
                self.skip(1 + letter.len_utf8());
                Ok(TokenKind::Text(vec![TokenText::Literal(letter.to_string())]))
            }
            letter if is_name_start(letter) || letter.is_ascii_uppercase() => Ok(self.name()),
            _ => self.operator(),
        }
    }

    /// Returns the letter of a literal such as `?a`.
    fn character(&self) -> Option<char> {
        let mut letters = self.rest.chars().skip(1);
        let letter = letters.next().filter(|letter| letter.is_alphanumeric())?;
        let behind = letters.next().unwrap_or(' ');
        (!self.after_value() && !behind.is_alphanumeric() && behind != '_').then_some(letter)
    }

    fn word(&mut self, with_sign: bool) -> String {
        let end = self.rest.find(|letter: char| !is_name_part(letter)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        let mut word = word.to_owned();
        // `a!=b` is a comparison; `x ?y:z` and `defined?` are not told apart by the sign alone.
        if with_sign
            && let Some(sign @ ('?' | '!')) = self.rest.chars().next()
            && (!self.rest.get(1..).is_some_and(|rest| rest.starts_with('='))
                || self.rest.get(1..).is_some_and(|rest| rest.starts_with("==")))
        {
            word.push(sign);
            self.skip(1);
        }
        word
    }

    fn name(&mut self) -> TokenKind {
        let is_constant = self.rest.starts_with(|letter: char| letter.is_ascii_uppercase());
        let is_member =
            matches!(self.tokens.last().map(|token| &token.kind), Some(TokenKind::Op("." | "&.")));
        let word = self.word(!is_constant || is_member);
        let is_label =
            self.rest.starts_with(':') && !self.rest.starts_with("::") && !is_member && !self.awaits_colon();
        if is_label {
            self.skip(1);
            return TokenKind::Label(word);
        }
        if !is_member {
            let keyword = KEYWORDS.iter().chain(&MORE_KEYWORDS).find(|keyword| **keyword == word);
            if let Some(keyword) = keyword {
                return TokenKind::Keyword(keyword);
            }
        }
        if is_constant && !is_member { TokenKind::Constant(word) } else { TokenKind::Name(word) }
    }

    /// Returns whether a `?` on this line waits for its `:`.
    fn awaits_colon(&self) -> bool {
        let line = self.tokens.iter().rev().take_while(|token| token.kind != TokenKind::Newline);
        let mut colons = 0_usize;
        for token in line {
            match token.kind {
                TokenKind::Op(":") => colons += 1,
                TokenKind::Op("?") if colons == 0 => return true,
                TokenKind::Op("?") => colons -= 1,
                _ => {}
            }
        }
        false
    }

    fn state(&mut self) -> Result<TokenKind, SyntaxFault> {
        let sigils = self.rest.len() - self.rest.trim_start_matches('@').len();
        let (sigil, rest) = self.rest.split_at(sigils);
        self.rest = rest;
        let word = self.word(false);
        if sigils > 2 || word.is_empty() {
            return self.fault("a variable needs a name");
        }
        Ok(TokenKind::State(format!("{sigil}{word}")))
    }

    fn global(&mut self) -> Result<TokenKind, SyntaxFault> {
        let at = self.rest;
        self.skip(1);
        if self.rest.starts_with('~') {
            self.skip(1);
            return Ok(TokenKind::Group(0));
        }
        let word = self.word(false);
        if let Ok(group) = word.parse() {
            return Ok(TokenKind::Group(group));
        }
        if word.starts_with(|letter: char| letter.is_alphabetic() || letter == '_') {
            return Ok(TokenKind::State(format!("${word}")));
        }
        self.rest = at;
        self.fault("special variables are not supported, but for $~ and $1 to $9")
    }

    fn number(&mut self) -> Result<TokenKind, SyntaxFault> {
        let radix = match self.rest.get(..2) {
            Some("0x" | "0X") => Some(16),
            Some("0b" | "0B") => Some(2),
            Some("0o") => Some(8),
            _ => None,
        };
        if let Some(radix) = radix {
            self.skip(2);
            let digits = self.word(false).replace('_', "");
            return match i64::from_str_radix(&digits, radix) {
                Ok(number) => Ok(TokenKind::Int(number)),
                Err(_) => self.fault(format!("[{digits}] is not a number of 64 bits")),
            };
        }
        let is_digit = |letter: char| letter.is_ascii_digit() || letter == '_';
        let mut end = self.rest.find(|letter| !is_digit(letter)).unwrap_or(self.rest.len());
        let mut is_float = false;
        let follows = |from: usize, text: &str| {
            text.get(from..).is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()))
        };
        if self.rest.get(end..).is_some_and(|rest| rest.starts_with('.')) && follows(end + 1, self.rest) {
            is_float = true;
            end += 1 + self
                .rest
                .get(end + 1..)
                .and_then(|rest| rest.find(|letter| !is_digit(letter)))
                .unwrap_or(self.rest.len() - end - 1);
        }
        if self.rest.get(end..).is_some_and(|rest| rest.starts_with(['e', 'E'])) {
            let sign = usize::from(self.rest.get(end + 1..).is_some_and(|rest| rest.starts_with(['+', '-'])));
            if follows(end + 1 + sign, self.rest) {
                is_float = true;
                let from = end + 1 + sign;
                end = from
                    + self
                        .rest
                        .get(from..)
                        .and_then(|rest| rest.find(|letter| !is_digit(letter)))
                        .unwrap_or(self.rest.len() - from);
            }
        }
        let digits = self.rest.get(..end).unwrap_or_default().replace('_', "");
        let parsed = if is_float {
            digits.parse().ok().map(TokenKind::Float)
        } else {
            digits.parse().ok().map(TokenKind::Int)
        };
        match parsed {
            Some(number) => {
                self.skip(end);
                Ok(number)
            }
            None => self.fault(format!("[{digits}] is not a number of 64 bits")),
        }
    }

    /// Reads `%w[a b]`, `%i[a b]`, `%q(a)`, `%Q(a)`, `%(a)` and `%r{a}`.
    fn percent(&mut self) -> Result<TokenKind, SyntaxFault> {
        let mut letters = self.rest.chars().skip(1);
        let kind = letters.next().unwrap_or_default();
        let (kind, open) =
            if kind.is_ascii_alphabetic() { (kind, letters.next().unwrap_or_default()) } else { ('Q', kind) };
        let close = match open {
            '(' => ')',
            '[' => ']',
            '{' => '}',
            '<' => '>',
            '|' | '!' | '/' | '-' | ',' => open,
            _ => return self.operator(),
        };
        let nested = (open != close).then_some(open);
        self.skip(if self.rest.chars().nth(1) == Some(open) { 2 } else { 3 });
        match kind {
            'w' | 'i' | 'W' | 'I' => match self.text(nested, close, false)?.as_slice() {
                [] => Ok(TokenKind::Words(Vec::new())),
                [TokenText::Literal(text)] => {
                    Ok(TokenKind::Words(text.split_whitespace().map(str::to_owned).collect()))
                }
                _ => self.fault("lists of words have no interpolation"),
            },
            'q' => self.text(nested, close, false).map(TokenKind::Text),
            'Q' => self.text(nested, close, true).map(TokenKind::Text),
            'r' => self.regex(nested, close),
            other => self.fault(format!("literals of the kind %{other} are not supported")),
        }
    }

    fn regex(&mut self, nested: Option<char>, close: char) -> Result<TokenKind, SyntaxFault> {
        let items = self.raw(nested, close)?;
        let mut flags = RegexFlags::default();
        while let Some(letter) = self.rest.chars().next().filter(char::is_ascii_alphabetic) {
            match letter {
                'i' => flags.ignore_case = true,
                'm' => flags.dot_all = true,
                'x' => flags.extended = true,
                'o' | 'u' | 'n' => {}
                other => return self.fault(format!("regular expressions have no option [{other}]")),
            }
            self.skip(1);
        }
        Ok(TokenKind::Regex(items, flags))
    }

    /// Reads a text up to its closing sign, behind the opening one.
    fn text(
        &mut self,
        nested: Option<char>,
        close: char,
        interpolates: bool,
    ) -> Result<Vec<TokenText>, SyntaxFault> {
        let mut items = Vec::new();
        let mut literal = String::new();
        let mut depth = 0_usize;
        loop {
            let Some(letter) = self.rest.chars().next() else { return self.fault("a text is not closed") };
            if letter == '\\' {
                self.escape(close, interpolates, &mut literal)?;
                continue;
            }
            if interpolates && self.rest.starts_with("#{") {
                if !literal.is_empty() {
                    items.push(TokenText::Literal(std::mem::take(&mut literal)));
                }
                items.push(self.code()?);
                continue;
            }
            self.skip(letter.len_utf8());
            if Some(letter) == nested {
                depth += 1;
            } else if letter == close {
                if depth == 0 {
                    break;
                }
                depth -= 1;
            }
            literal.push(letter);
        }
        if !literal.is_empty() {
            items.push(TokenText::Literal(literal));
        }
        Ok(items)
    }

    /// Reads an expression, whose escapes are its own.
    fn raw(&mut self, nested: Option<char>, close: char) -> Result<Vec<TokenText>, SyntaxFault> {
        let mut items = Vec::new();
        let mut literal = String::new();
        let mut depth = 0_usize;
        loop {
            let Some(letter) = self.rest.chars().next() else {
                return self.fault("a regular expression is not closed");
            };
            if letter == '\\' {
                self.skip(1);
                let Some(escaped) = self.rest.chars().next() else { continue };
                self.skip(escaped.len_utf8());
                if escaped != '/' {
                    literal.push('\\');
                }
                literal.push(escaped);
                continue;
            }
            if self.rest.starts_with("#{") {
                items.push(TokenText::Literal(std::mem::take(&mut literal)));
                items.push(self.code()?);
                continue;
            }
            self.skip(letter.len_utf8());
            if Some(letter) == nested {
                depth += 1;
            } else if letter == close {
                if depth == 0 {
                    break;
                }
                depth -= 1;
            }
            literal.push(letter);
        }
        items.push(TokenText::Literal(literal));
        Ok(items)
    }

    /// Reads `#{code}`.
    fn code(&mut self) -> Result<TokenText, SyntaxFault> {
        self.skip(2);
        let at = self.at();
        let mut depth = 0_usize;
        let mut quote = None;
        let mut is_escaped = false;
        for (end, letter) in self.rest.char_indices() {
            match (quote, letter) {
                _ if is_escaped => is_escaped = false,
                (_, '\\') => is_escaped = true,
                (Some(open), letter) if letter == open => quote = None,
                (Some(_), _) => {}
                (None, '"' | '\'') => quote = Some(letter),
                (None, '{') => depth += 1,
                (None, '}') if depth == 0 => {
                    let code = self.rest.get(..end).unwrap_or_default().to_owned();
                    self.skip(end + 1);
                    return Ok(TokenText::Code(code, at));
                }
                (None, '}') => depth -= 1,
                (None, _) => {}
            }
        }
        self.fault("an interpolation is not closed")
    }

    fn escape(&mut self, close: char, interpolates: bool, literal: &mut String) -> Result<(), SyntaxFault> {
        self.skip(1);
        let Some(escaped) = self.rest.chars().next() else { return self.fault("a text is not closed") };
        self.skip(escaped.len_utf8());
        if !interpolates {
            if escaped != close && escaped != '\\' {
                literal.push('\\');
            }
            literal.push(escaped);
            return Ok(());
        }
        let letter = match escaped {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            '0' => '\0',
            'e' => '\u{1b}',
            's' => ' ',
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'v' => '\u{b}',
            '\n' => return Ok(()),
            'u' | 'x' => {
                let braced = escaped == 'u' && self.rest.starts_with('{');
                self.skip(usize::from(braced));
                let most = if escaped == 'x' {
                    2
                } else if braced {
                    6
                } else {
                    4
                };
                let length = self.rest.bytes().take(most).take_while(u8::is_ascii_hexdigit).count();
                let digits = self.rest.get(..length).unwrap_or_default();
                let Some(letter) = u32::from_str_radix(digits, 16).ok().and_then(char::from_u32) else {
                    return self.fault("an escape needs hexadecimal digits of a character");
                };
                self.skip(length + usize::from(braced));
                letter
            }
            other => other,
        };
        literal.push(letter);
        Ok(())
    }

    fn operator(&mut self) -> Result<TokenKind, SyntaxFault> {
        let found = OPERATORS.iter().chain(&BRACES).find(|op| self.rest.starts_with(**op));
        let Some(op) = found else {
            let letter = self.rest.chars().next().unwrap_or_default();
            return self.fault(format!("[{letter}] is not understood"));
        };
        self.skip(op.len());
        match *op {
            ";" => return Ok(TokenKind::Newline),
            "(" | "[" | "{" => self.depth.push(op.chars().next().unwrap_or_default()),
            ")" | "]" | "}" => drop(self.depth.pop()),
            _ => {}
        }
        Ok(TokenKind::Op(op))
    }
}

fn is_name_start(letter: char) -> bool {
    letter.is_alphabetic() && !letter.is_ascii_uppercase() || letter == '_'
}

fn is_name_part(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Returns the place behind a text that begins at a place.
fn position_behind(base: Position, before: &str) -> Position {
    let lines = before.matches('\n').count();
    let last = before.rsplit('\n').next().unwrap_or_default();
    let columns = u32::try_from(last.chars().count()).unwrap_or(u32::MAX);
    let line = base.line.saturating_add(u32::try_from(lines).unwrap_or(u32::MAX));
    let column = if lines == 0 { base.column.saturating_add(columns) } else { columns.saturating_add(1) };
    Position { line, column }
}
