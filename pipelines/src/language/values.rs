//! Values of options: texts, numbers, arrays, hashes, codecs.

use millrace_ingest::{Options, Setting};
use serde_json::Number;

use super::cursor::is_name;
use super::{Parser, Plugin, SyntaxRecovery};

/// Longest list of elements or members, and longest list of options of a plugin.
const MAX_ELEMENTS: usize = 100_000;

impl Parser<'_> {
    /// Reads a value.
    pub(super) fn value(&mut self) -> Result<Setting, SyntaxRecovery> {
        self.deeper(|parser| match parser.cursor.peek() {
            Some('"' | '\'') => parser.text().map(Setting::Text),
            Some('[') => {
                let read = parser.reference_or_array();
                parser.or_behind(']', read)
            }
            Some('{') => {
                let read = parser.hash();
                parser.or_behind('}', read)
            }
            Some(c) if c.is_ascii_digit() || c == '-' => parser.number().map(Setting::Number),
            Some(c) if is_name(c) => parser.word_or_plugin(),
            _ => Err(parser.expected("a value (a text, number, array, hash or codec)")),
        })
    }

    /// Reads a quoted text. A backslash keeps the quote behind it from ending the text, and stays.
    pub(super) fn text(&mut self) -> Result<String, SyntaxRecovery> {
        let start = self.cursor.offset();
        let raw = self.quoted()?.to_owned();
        if self.dialect.support_escapes {
            return Ok(self.replaced(start, &unescaped(&raw)));
        }
        Ok(self.replaced(start, &raw))
    }

    /// Replaces variables in a text. One that is not set is a fault, and does not keep the rest from being read.
    pub(super) fn replaced(&mut self, start: usize, raw: &str) -> String {
        self.dialect.environment.replace(raw).unwrap_or_else(|missing| {
            for name in missing {
                let advice = format!("set it or write ${{{name}:default}}");
                self.fault(start, format!("the environment variable [{name}] is not set; {advice}"));
            }
            raw.to_owned()
        })
    }

    /// Takes a quoted text as it is written, without its quotes.
    pub(super) fn quoted(&mut self) -> Result<&str, SyntaxRecovery> {
        let start = self.cursor.offset();
        let Some(quote) = self.cursor.next().filter(|c| matches!(c, '"' | '\'')) else {
            return Err(self.expected("a quoted text"));
        };
        loop {
            match self.cursor.next() {
                Some('\\') if self.cursor.peek() == Some(quote) => _ = self.cursor.next(),
                Some(c) if c == quote => break,
                Some(_) => {}
                None => {
                    self.fault(start, format!("the text that begins here has no closing {quote}"));
                    return Err(SyntaxRecovery);
                }
            }
        }
        let with_quotes = self.cursor.since(start);
        Ok(with_quotes.get(1..with_quotes.len() - 1).unwrap_or_default())
    }

    /// Reads a number.
    pub(super) fn number(&mut self) -> Result<Number, SyntaxRecovery> {
        let start = self.cursor.offset();
        self.cursor.take("-");
        if self.cursor.take_while(|c| c.is_ascii_digit()).is_empty() {
            return Err(self.expected("digits"));
        }
        let fraction = self.cursor.take(".");
        if fraction {
            self.cursor.take_while(|c| c.is_ascii_digit());
        }
        if self.cursor.peek().is_some_and(|c| is_name(c) || c == '.') {
            self.cursor.take_while(|c| is_name(c) || c == '.');
            let word = self.cursor.since(start).to_owned();
            self.fault(
                start,
                format!("`{word}` is not a number; texts with other characters need quotes: \"{word}\""),
            );
            return Err(SyntaxRecovery);
        }
        let digits = self.cursor.since(start);
        let number = if fraction {
            digits.parse().ok().and_then(Number::from_f64)
        } else {
            digits.parse::<i64>().ok().map(Number::from)
        };
        number.ok_or_else(|| {
            let message = format!("the number {digits} is out of range");
            self.fault(start, message);
            SyntaxRecovery
        })
    }

    /// A bare word, or a plugin if a brace follows.
    fn word_or_plugin(&mut self) -> Result<Setting, SyntaxRecovery> {
        let start = self.cursor.offset();
        let word = self.cursor.take_while(is_name).to_owned();
        if self.cursor.peek().is_some_and(|c| ".:/\\@$%*".contains(c)) {
            self.cursor.take_while(|c| !c.is_whitespace() && !"{}[],#\"'".contains(c));
            let word = self.cursor.since(start).to_owned();
            self.fault(start, format!("the text `{word}` needs quotes: \"{word}\""));
            return Err(SyntaxRecovery);
        }
        let end = self.cursor.offset();
        self.cursor.skip_blank();
        if self.cursor.peek() != Some('{') {
            self.cursor.back_to(end);
            return Ok(Setting::Text(word));
        }
        let Plugin { options, .. } = self.plugin_behind(start, word)?;
        Ok(Setting::Plugin(Box::new(options)))
    }

    /// An array, or a field reference of several names: `[a][b]`.
    fn reference_or_array(&mut self) -> Result<Setting, SyntaxRecovery> {
        let start = self.cursor.offset();
        let mut names = 0;
        while self.cursor.take("[") {
            let name = self.cursor.take_while(|c| !"[],\"'{}#\r\n".contains(c));
            if name.trim().is_empty() || !self.cursor.take("]") {
                names = 0;
                break;
            }
            names += 1;
        }
        if names > 1 {
            return Ok(Setting::Text(self.cursor.since(start).to_owned()));
        }
        self.cursor.back_to(start);
        self.array()
    }

    fn array(&mut self) -> Result<Setting, SyntaxRecovery> {
        let start = self.cursor.offset();
        self.cursor.take("[");
        let mut elements = Vec::new();
        loop {
            self.cursor.skip_blank();
            if self.cursor.take("]") {
                return Ok(Setting::Array(elements));
            }
            if self.cursor.at_end() {
                self.fault(start, "the array that begins here has no closing ]");
                return Err(SyntaxRecovery);
            }
            self.check_length(start, elements.len())?;
            elements.push(self.value()?);
            self.cursor.skip_blank();
            if !self.cursor.take(",") && self.cursor.peek() != Some(']') {
                if self.cursor.at_end() {
                    continue;
                }
                return Err(self.expected("`,` or `]` in the array"));
            }
        }
    }

    fn hash(&mut self) -> Result<Setting, SyntaxRecovery> {
        let start = self.cursor.offset();
        self.cursor.take("{");
        let mut members: Vec<(String, Setting)> = Vec::new();
        let mut names = std::collections::HashSet::new();
        loop {
            self.cursor.skip_blank();
            if self.cursor.take("}") {
                return Ok(Setting::Hash(members));
            }
            if self.cursor.at_end() {
                self.fault(start, "the hash that begins here has no closing }");
                return Err(SyntaxRecovery);
            }
            self.check_length(start, members.len())?;
            let key = self.cursor.offset();
            let name = match self.cursor.peek() {
                Some('"' | '\'') => self.text()?,
                Some('[') => match self.reference_or_array()? {
                    Setting::Text(reference) => reference,
                    _ => self.cursor.since(key).to_owned(),
                },
                Some(c) if is_name(c) => self.cursor.take_while(|c| is_name(c) || c == '.').to_owned(),
                _ => return Err(self.expected("a name or `}` in the hash")),
            };
            self.arrow(&name)?;
            let value = self.value()?;
            if !names.insert(name.clone()) {
                self.fault(key, format!("[{name}] is given twice in the hash"));
            }
            members.push((name, value));
            self.cursor.skip_blank();
            self.cursor.take(",");
        }
    }

    /// Goes behind the bracket that closes what could not be read, so that what follows it can be.
    fn or_behind<T>(&mut self, close: char, read: Result<T, SyntaxRecovery>) -> Result<T, SyntaxRecovery> {
        if read.is_err() {
            self.skip_to_close(close);
            self.cursor.take(close.encode_utf8(&mut [0; 4]));
        }
        read
    }

    /// Takes the arrow between a name and its value.
    pub(super) fn arrow(&mut self, name: &str) -> Result<(), SyntaxRecovery> {
        self.cursor.skip_blank();
        if !self.cursor.take("=>") {
            return Err(self.expected(&format!("`=>` behind [{name}]")));
        }
        self.cursor.skip_blank();
        Ok(())
    }

    pub(super) fn check_length(&mut self, start: usize, length: usize) -> Result<(), SyntaxRecovery> {
        if length < MAX_ELEMENTS {
            return Ok(());
        }
        self.fault(start, format!("what begins here has more than {MAX_ELEMENTS} elements"));
        Err(SyntaxRecovery)
    }
}

/// Replaces escapes by what they stand for; a backslash before anything else stays.
fn unescaped(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    let mut characters = raw.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            out.push(character);
            continue;
        }
        match characters.next() {
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some(plain @ ('\\' | '"' | '\'' | '/')) => out.push(plain),
            Some(other) => out.extend(['\\', other]),
            None => out.push('\\'),
        }
    }
    out
}

/// Writes a value in the one form that all spellings of it have.
pub(super) fn canonical(setting: &Setting, out: &mut String) {
    match setting {
        Setting::Text(text) => out.push_str(&format!("{text:?}")),
        // `5` and `"5"` mean the same to every plugin.
        Setting::Number(number) => out.push_str(&format!("{:?}", number.to_string())),
        Setting::Array(elements) => {
            out.push('[');
            for element in elements {
                canonical(element, out);
                out.push(',');
            }
            out.push(']');
        }
        Setting::Hash(members) => {
            out.push('{');
            for (name, value) in members {
                out.push_str(&format!("{name:?}=>"));
                canonical(value, out);
                out.push(',');
            }
            out.push('}');
        }
        Setting::Plugin(options) => canonical_plugin(options, out),
    }
}

/// Writes a plugin in the one form that all spellings of it have.
pub(super) fn canonical_plugin(options: &Options, out: &mut String) {
    out.push_str(options.plugin());
    out.push('(');
    for (name, setting) in options.given() {
        out.push_str(name);
        out.push_str("=>");
        canonical(setting, out);
        out.push(';');
    }
    out.push(')');
}
