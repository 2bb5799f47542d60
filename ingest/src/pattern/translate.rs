//! From the syntax of Oniguruma, as Ruby has it, to that of PCRE2.
//!
//! Both are nearly one. What differs and is turned: `\h` and `\H` are hexadecimal digits, `\v` is one
//! character, escaped letters without a meaning stand for themselves, `\uHHHH`, `{,n}`, `(?m)` means that `.` matches ends
//! of lines, the POSIX classes know all of Unicode, sets within sets, quantifiers of quantifiers, names of groups may be any text. `^` and `$` are ends of lines
//! always, by an option of the compiler. What PCRE2 cannot do is refused: `&&` in sets, `(?~…)`.

use std::iter::Peekable;
use std::str::Chars;

use super::Capture;
use super::expand::MARK;
use super::matcher::Kind;

/// Longest interval between braces.
const MAX_INTERVAL: usize = 16;
/// Deepest nesting of sets.
const MAX_SETS: usize = 16;
/// Most groups with a name.
const MAX_GROUPS: usize = 4_000;

/// Turns an expression, and numbers the groups that capture: those made by [`super::expand`], whose captures are
/// given, and those with a name.
pub(super) fn translate(expression: &str, made: Vec<Capture>) -> Result<(String, Vec<Capture>), String> {
    let mut translation = Translation::new(expression, made);
    translation.run()?;
    Ok((translation.out, translation.captures))
}

/// Turns an expression that calls definitions, and these.
pub(super) fn translate_shared(
    expression: &str,
    definitions: &[String],
    made: Vec<Capture>,
) -> Result<String, String> {
    let (mut out, _) = translate(expression, made)?;
    // Behind all groups, so that the numbers of these stay.
    out.push_str("(?(DEFINE)");
    for (at, definition) in definitions.iter().enumerate() {
        let (definition, _) = translate(definition, Vec::new())?;
        out.push_str(&format!("(?<{}>{definition})", shared_name(&at.to_string())));
    }
    out.push(')');
    Ok(out)
}

struct Translation<'a> {
    rest: Peekable<Chars<'a>>,
    out: String,
    /// Captures of the groups with a mark.
    made: Vec<Capture>,
    /// Captures in the order of their groups; the group of the first is 1.
    captures: Vec<Capture>,
    /// Begins of the groups that are not closed.
    open: Vec<usize>,
    /// Begin of the atom that a quantifier would repeat.
    atom: Option<usize>,
    /// Quantifier that it has already.
    quantified: Option<QuantifierTarget>,
    /// `true` if it is a place in the text, which PCRE2 repeats in a group only.
    is_place: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum QuantifierTarget {
    /// By one sign alone.
    Sign,
    /// By more.
    Other,
}

impl<'a> Translation<'a> {
    fn new(expression: &'a str, made: Vec<Capture>) -> Self {
        Self {
            rest: expression.chars().peekable(),
            out: String::with_capacity(expression.len() + 64),
            made,
            captures: Vec::new(),
            open: Vec::new(),
            atom: None,
            quantified: None,
            is_place: false,
        }
    }

    fn run(&mut self) -> Result<(), String> {
        while let Some(letter) = self.rest.next() {
            let start = self.out.len();
            match letter {
                '*' | '+' | '?' => {
                    self.quantifier(letter);
                    continue;
                }
                '{' => {
                    if let Some(interval) = self.interval() {
                        self.repeat(&interval);
                        self.quantified = Some(QuantifierTarget::Other);
                        // Other than after a sign, a plus behind it is a quantifier of its own.
                        if let Some(lazy) = self.rest.next_if_eq(&'?') {
                            self.out.push(lazy);
                        }
                        continue;
                    }
                    self.out.push('{');
                    self.atom = Some(start);
                }
                '(' => {
                    self.open.push(start);
                    self.group()?;
                    if self.out.len() == start {
                        // It was a comment.
                        self.open.pop();
                        continue;
                    }
                    self.atom = None;
                }
                ')' => {
                    self.out.push(')');
                    self.atom = self.open.pop();
                }
                '|' => {
                    self.out.push('|');
                    self.atom = None;
                }
                '\\' => {
                    self.escape()?;
                    self.atom = Some(start);
                }
                '[' => {
                    self.set(0)?;
                    self.atom = Some(start);
                }
                other => {
                    self.out.push(other);
                    self.atom = Some(start);
                }
            }
            let written = self.out.get(start..).unwrap_or_default();
            self.is_place =
                matches!(written, "^" | "$" | "\\b" | "\\B" | "\\A" | "\\z" | "\\Z" | "\\G" | "\\K");
            self.quantified = None;
        }
        Ok(())
    }

    /// A sign that quantifies, with what makes it lazy or possessive.
    fn quantifier(&mut self, sign: char) {
        if sign == '*' && self.quantified == Some(QuantifierTarget::Sign) {
            // `.?*` is `.*`.
            self.out.pop();
            self.out.push('*');
            return;
        }
        self.repeat(&sign.to_string());
        self.quantified = Some(QuantifierTarget::Sign);
        if let Some(suffix) = self.rest.next_if(|letter| matches!(letter, '?' | '+')) {
            self.out.push(suffix);
            self.quantified = Some(QuantifierTarget::Other);
        }
    }

    /// Appends a quantifier; PCRE2 wants what has one already, and places, in a group.
    fn repeat(&mut self, quantifier: &str) {
        if let Some(atom) = self.atom.filter(|_| self.quantified.is_some() || self.is_place) {
            self.is_place = false;
            self.out.insert_str(atom, "(?:");
            self.out.push(')');
        }
        self.out.push_str(quantifier);
    }

    /// `{2}`, `{2,}`, `{2,3}`, `{,3}`, of which the opening brace was read; braces around anything else are characters.
    fn interval(&mut self) -> Option<String> {
        let mut ahead = self.rest.clone();
        let inner: String = ahead.by_ref().take_while(|letter| *letter != '}').take(MAX_INTERVAL).collect();
        let closed = self.rest.clone().nth(inner.len()) == Some('}');
        let (low, high) = inner.split_once(',').unwrap_or((&inner, "0"));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !closed
            || !digits(low)
            || !digits(high)
            || (low.is_empty() && (high.is_empty() || inner.is_empty()))
        {
            return None;
        }
        self.rest.nth(inner.len());
        Some(if low.is_empty() { format!("{{0{inner}}}") } else { format!("{{{inner}}}") })
    }

    /// Translates the character behind a backslash, outside of sets.
    fn escape(&mut self) -> Result<(), String> {
        let Some(letter) = self.rest.next() else {
            return Err("a regular expression ends with a backslash".to_owned());
        };
        match letter {
            'h' => self.out.push_str("[0-9a-fA-F]"),
            'H' => self.out.push_str("[^0-9a-fA-F]"),
            'v' => self.out.push_str("\\x0b"),
            'u' => self.code_point()?,
            'k' | 'g' if matches!(self.rest.peek(), Some('<' | '\'')) => {
                let name = self.name()?;
                // A number or a level stays as it is.
                let number = name.trim_start_matches(['+', '-']).bytes().all(|byte| byte.is_ascii_digit());
                let name = if number { name } else { self.group_of(&name)? };
                self.out.push_str(&format!("\\{letter}<{name}>"));
            }
            letter => self.plain_escape(letter, "tnrfaexcwWsSdDRXAzZGbBpPK"),
        }
        Ok(())
    }

    /// A backslash before a letter: kept where it means the same in both, else the letter itself.
    fn plain_escape(&mut self, letter: char, same: &str) {
        if letter.is_ascii() && (!letter.is_ascii_alphabetic() || same.contains(letter)) {
            self.out.push('\\');
        }
        self.out.push(letter);
    }

    /// Four digits behind `\u`.
    fn code_point(&mut self) -> Result<(), String> {
        let digits: String =
            std::iter::from_fn(|| self.rest.next_if(char::is_ascii_hexdigit)).take(4).collect();
        if digits.len() < 4 {
            return Err("\\u must have four hexadecimal digits".to_owned());
        }
        self.out.push_str(&format!("\\x{{{digits}}}"));
        Ok(())
    }

    /// A name in `<>` or quotes.
    fn name(&mut self) -> Result<String, String> {
        let close = if self.rest.next() == Some('<') { '>' } else { '\'' };
        let mut name = String::new();
        loop {
            match self.rest.next() {
                Some(letter) if letter == close => return Ok(name),
                Some(letter) => name.push(letter),
                None => return Err("the name of a group is not closed".to_owned()),
            }
        }
    }

    /// The latest group of a name.
    fn group_of(&self, name: &str) -> Result<String, String> {
        let at = self.captures.iter().rposition(|capture| capture.name == name);
        at.map(group_name).ok_or_else(|| format!("there is no group [{name}] before what refers to it"))
    }

    /// Translates the text behind an opening bracket.
    fn group(&mut self) -> Result<(), String> {
        self.out.push('(');
        match self.rest.peek() {
            Some('*') => {
                return Err(
                    "a regular expression cannot have [(*]; put a backslash before the star".to_owned()
                );
            }
            Some('?') => {
                self.rest.next();
            }
            _ => return Ok(()),
        }
        self.out.push('?');
        match self.rest.peek() {
            Some(&MARK) => {
                self.rest.next();
                let place: String = std::iter::from_fn(|| self.rest.next_if(char::is_ascii_digit)).collect();
                self.out.push_str(&format!("&{}", shared_name(&place)));
                Ok(())
            }
            Some('~') => Err("absent operators [(?~…)] are not supported".to_owned()),
            Some('<') => {
                let mut ahead = self.rest.clone();
                ahead.next();
                if matches!(ahead.peek(), Some('=' | '!')) {
                    self.out.push('<');
                    self.rest.next();
                    return Ok(());
                }
                self.named_group()
            }
            Some('\'') => self.named_group(),
            Some('P') => {
                self.rest.next();
                if self.rest.peek() == Some(&'<') {
                    self.named_group()
                } else {
                    Err("[(?P] must be followed by a name in [<>]".to_owned())
                }
            }
            Some('(') => {
                self.rest.next();
                self.out.push('(');
                if matches!(self.rest.peek(), Some('<' | '\'')) {
                    let name = self.name()?;
                    let name = self.group_of(&name)?;
                    self.out.push_str(&format!("<{name}>"));
                }
                Ok(())
            }
            Some('#') => {
                // A comment: brackets in it mean nothing.
                self.out.truncate(self.out.len() - 2);
                self.rest.by_ref().find(|letter| *letter == ')');
                Ok(())
            }
            Some(letter) if letter.is_ascii_alphabetic() || *letter == '-' => self.options(),
            _ => Ok(()),
        }
    }

    fn named_group(&mut self) -> Result<(), String> {
        let name = self.name()?;
        if name.is_empty() {
            return Err("a group has an empty name".to_owned());
        }
        let group = self.captures.len() + 1;
        if group > MAX_GROUPS {
            return Err(format!("the pattern has more than {MAX_GROUPS} groups"));
        }
        let capture = match name.strip_prefix(MARK).and_then(|number| number.parse::<usize>().ok()) {
            Some(at) => {
                let made = self.made.get(at).ok_or("a group has lost its field")?;
                Capture { group, ..made.clone() }
            }
            None => Capture { name, kind: Kind::Text, type_name: None, group },
        };
        self.out.push_str(&format!("<{}>", group_name(self.captures.len())));
        self.captures.push(capture);
        Ok(())
    }

    /// Options such as `(?mi-x)`: `m` of Ruby is `s` here, and what chooses a character set is left out.
    fn options(&mut self) -> Result<(), String> {
        let mut options = String::new();
        while let Some(letter) = self.rest.next_if(|letter| letter.is_ascii_alphabetic() || *letter == '-') {
            match letter {
                'm' => options.push('s'),
                'i' | 'x' | '-' => options.push(letter),
                'a' | 'd' | 'u' => {}
                other => {
                    return Err(format!(
                        "there is no option [{other}] in [(?{other})]; [i], [m] and [x] are"
                    ));
                }
            }
        }
        self.out.push_str(&options);
        Ok(())
    }

    /// A set, whose opening bracket was read. Sets within it that are not negated become part of it: they are put before
    /// its own members, so that a range has the same ends as without them.
    fn set(&mut self, depth: usize) -> Result<(), String> {
        if depth > MAX_SETS {
            return Err(format!("sets are nested more than {MAX_SETS} deep"));
        }
        let negated = self.rest.next_if_eq(&'^').is_some();
        if depth == 0 {
            self.out.push_str(if negated { "[^" } else { "[" });
        } else if negated {
            return Err("a set within a set cannot be negated".to_owned());
        }
        let start = self.out.len();
        let mut inner = String::new();
        let mut first = true;
        // A range that has no end yet, and a set within the set behind it.
        let (mut is_range, mut is_interrupted) = (false, false);
        loop {
            let Some(letter) = self.rest.next() else { return Err("a set [ is not closed".to_owned()) };
            if letter == '[' && !(self.rest.peek() == Some(&':') && self.is_posix_class()) {
                let own = self.out.split_off(start);
                self.set(depth + 1)?;
                inner.push_str(&self.out.split_off(start));
                self.out.push_str(&own);
                is_interrupted = is_range;
                first = false;
                continue;
            }
            if letter == ']' && !first && is_interrupted {
                return Err(
                    "a range in a set has another set as its end; put a backslash before the [-]".to_owned()
                );
            }
            let closes = self.rest.peek() == Some(&']');
            is_range = letter == '-' && !first && !closes;
            is_interrupted = false;
            match letter {
                // At either end it is no range, and the set becomes part of another one.
                '-' if depth > 0 && (first || closes) => self.out.push_str("\\-"),
                ']' if first => self.out.push_str("\\]"),
                ']' => break,
                '\\' => self.escape_in_set()?,
                '[' => self.posix_class()?,
                '&' if self.rest.peek() == Some(&'&') => {
                    return Err("[&&] in a set is not supported; use a look-ahead".to_owned());
                }
                other => self.out.push(other),
            }
            first = false;
        }
        if !inner.is_empty() {
            if self.out.get(start..).is_some_and(|own| own.starts_with('-')) {
                inner.push('\\');
            }
            self.out.insert_str(start, &inner);
        }
        if depth == 0 {
            self.out.push(']');
        }
        Ok(())
    }

    fn escape_in_set(&mut self) -> Result<(), String> {
        let Some(letter) = self.rest.next() else { return Err("a set [ is not closed".to_owned()) };
        match letter {
            'h' => self.out.push_str("0-9a-fA-F"),
            'H' => return Err("[\\H] in a set is not supported".to_owned()),
            'v' => self.out.push_str("\\x0b"),
            'b' => self.out.push_str("\\x08"),
            'u' => self.code_point()?,
            letter => self.plain_escape(letter, "tnrfaexcwWsSdDpP"),
        }
        Ok(())
    }

    /// `[:name:]`, of which the opening bracket was read, has no other characters than these: else the bracket opens a set within the set.
    fn is_posix_class(&self) -> bool {
        let mut ahead = self.rest.clone();
        ahead.next();
        ahead.by_ref().take_while(|letter| *letter != ':').take(16).for_each(drop);
        ahead.next() == Some(']')
    }

    /// Translates `[:name:]`, of which the opening bracket was read.
    fn posix_class(&mut self) -> Result<(), String> {
        let name: String = self.rest.clone().skip(1).take_while(|letter| *letter != ':').take(16).collect();
        let (negated, class) = name.strip_prefix('^').map_or((false, name.as_str()), |class| (true, class));
        let members = match class {
            "alpha" => "\\p{L}\\p{M}",
            "digit" => "\\p{Nd}",
            "alnum" => "\\p{L}\\p{M}\\p{Nd}",
            "upper" => "\\p{Lu}",
            "lower" => "\\p{Ll}",
            "punct" => "\\p{P}$+<=>^`|~",
            "space" => "\\s\\x85\\p{Z}",
            "word" => "\\p{L}\\p{M}\\p{Nd}\\p{Pc}",
            "blank" => " \\t\\p{Zs}",
            "cntrl" => "\\p{Cc}",
            "xdigit" => "0-9a-fA-F",
            "ascii" => "\\x00-\\x7f",
            "print" | "graph" => "",
            other => return Err(format!("there is no class [[:{other}:]]")),
        };
        if negated || members.is_empty() {
            self.out.push_str(&format!("[:{name}:]"));
        } else {
            self.out.push_str(members);
        }
        for _ in 0..name.chars().count() + 3 {
            self.rest.next();
        }
        Ok(())
    }
}

/// Name of a group in the expression that PCRE2 gets.
fn group_name(at: usize) -> String {
    format!("c{at}")
}

/// Name of a definition that is called, by its place.
fn shared_name(place: &str) -> String {
    format!("d{place}")
}
