//! Serialized JSON in another form: indented, as YAML, with readable twins of quantities.
//!
//! A [`Rewriter`] goes from text to text in one pass and in steps of [`CHUNK_BYTES`]: a long answer is never held a second time,
//! and its numbers stay as they are written. The connection asks for the next step when it has sent the one before.

use std::collections::{HashSet, VecDeque};

use bytes::Bytes;
use millrace_mapping::source::Scanner;

use super::render::{bytes_text, millis_text};
use super::yaml;

/// Bytes of a step; a longer text of one value is passed on as a slice of the answer.
pub(super) const CHUNK_BYTES: usize = 64 << 10;

/// Names that are longer have no twins, in bytes.
const LONGEST_SHORT_NAME: usize = 1 << 10;

/// Members whose values are documents, which have no twins.
const DOCUMENTS: [&[u8]; 3] = [b"\"_source\"", b"\"fields\"", b"\"hits\""];

/// Layout of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Without any space.
    Compact,
    /// Two spaces of indentation and `"name" : value`, as OpenSearch prints.
    Pretty,
    /// YAML, as OpenSearch prints it.
    Yaml,
}

/// The form of a rewritten answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct RewriteForm {
    pub layout: Layout,
    /// True if every `*_in_bytes` and `*_in_millis` has a readable twin before it, outside of documents.
    pub human: bool,
}

/// An object or array that is being written.
#[derive(Debug)]
struct Frame {
    is_object: bool,
    /// True if nothing of it is written yet.
    is_empty: bool,
    /// Levels of indentation of its members or items.
    level: usize,
    /// True if the first of them goes on the line at hand, behind the dash of an array in YAML.
    inline: bool,
    /// True if its members get twins.
    human: bool,
    /// Offset of its opening.
    start: usize,
    /// Names of its members, once one of them gets a twin.
    names: Option<HashSet<Vec<u8>>>,
}

impl Frame {
    fn end(&self) -> u8 {
        if self.is_object { b'}' } else { b']' }
    }
}

/// Next step through the text.
#[derive(Clone, Copy, Debug)]
enum RewriteStep {
    /// A value; `human` tells whether objects in it get twins.
    Value {
        human: bool,
    },
    /// A member or item of the innermost object or array.
    Item,
    /// The comma, bracket or end that follows a value.
    Behind,
    Done,
}

/// Rewrites a text step by step; see the module.
#[derive(Debug)]
pub(super) struct Rewriter {
    text: Bytes,
    /// Bytes of the text that were read.
    at: usize,
    form: RewriteForm,
    frames: Vec<Frame>,
    next: RewriteStep,
    out: Vec<u8>,
    ready: VecDeque<Bytes>,
}

/// The text is not JSON.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("an answer is not JSON")]
pub(super) struct NotJson;

impl Rewriter {
    /// Starts at the beginning of a text.
    pub(super) fn new(text: Bytes, form: RewriteForm) -> Self {
        let next = RewriteStep::Value { human: form.human };
        let out = if form.layout == Layout::Yaml { b"---".to_vec() } else { Vec::new() };
        Self { text, at: 0, form, frames: Vec::new(), next, out, ready: VecDeque::new() }
    }

    /// Returns true if a text has the outline of one JSON value.
    pub(super) fn takes(text: &[u8]) -> bool {
        let mut scanner = Scanner::new(text);
        scanner.skip().is_some() && scanner.is_at_end()
    }

    /// Rewrites all of it at once; `None` where it is not JSON.
    pub(super) fn finish(self) -> Option<Bytes> {
        let mut whole = Vec::with_capacity(self.text.len());
        for step in self {
            whole.extend_from_slice(&step.ok()?);
        }
        Some(whole.into())
    }

    /// Reads on until a step is full.
    fn fill(&mut self) -> Option<()> {
        let text = self.text.clone();
        let rest = text.get(self.at..)?;
        let mut scanner = Scanner::new(rest);
        let start = self.at;
        while self.out.len() < CHUNK_BYTES && self.ready.len() < 2 {
            match self.next {
                RewriteStep::Done => break,
                RewriteStep::Value { human } => self.value(&mut scanner, start, human)?,
                RewriteStep::Item => self.item(&mut scanner)?,
                RewriteStep::Behind => self.behind(&mut scanner)?,
            }
        }
        self.at = start + scanner.position();
        Some(())
    }

    fn value(&mut self, scanner: &mut Scanner<'_>, start: usize, human: bool) -> Option<()> {
        let first = scanner.peek()?;
        if !matches!(first, b'{' | b'[') {
            let value = scanner.skip()?;
            self.space_before_scalar();
            self.scalar(value);
            self.next = RewriteStep::Behind;
            return Some(());
        }
        let opened = start + scanner.position();
        let frame = self.frame(first == b'{', human, opened);
        match scanner.open(frame.end())? {
            false => {
                self.space_before_scalar();
                self.out.extend_from_slice(if frame.is_object { b"{}" } else { b"[]" });
                self.next = RewriteStep::Behind;
            }
            true => {
                if self.form.layout != Layout::Yaml {
                    self.out.push(first);
                }
                self.frames.push(frame);
                self.next = RewriteStep::Item;
            }
        }
        Some(())
    }

    fn frame(&self, is_object: bool, human: bool, start: usize) -> Frame {
        let is_yaml = self.form.layout == Layout::Yaml;
        let (level, inline) = match self.frames.last() {
            None if is_yaml => (0, false),
            None => (1, false),
            // An array in a member is not indented in YAML.
            Some(outer) if is_yaml && outer.is_object && !is_object => (outer.level, false),
            Some(outer) => (outer.level + 1, is_yaml && !outer.is_object),
        };
        Frame { is_object, is_empty: true, level, inline, human, start, names: None }
    }

    /// Writes what stands between a name in YAML, or the start of the document, and a scalar.
    fn space_before_scalar(&mut self) {
        if self.form.layout == Layout::Yaml && self.frames.last().is_none_or(|frame| frame.is_object) {
            self.out.push(b' ');
        }
    }

    fn scalar(&mut self, value: &[u8]) {
        if self.form.layout == Layout::Yaml && value.first() == Some(&b'"') {
            return yaml::push_string(&mut self.out, value);
        }
        self.push(value);
    }

    /// Writes a part of the text: a long one without a copy.
    fn push(&mut self, part: &[u8]) {
        if part.len() < CHUNK_BYTES {
            self.out.extend_from_slice(part);
            return;
        }
        if !self.out.is_empty() {
            self.ready.push_back(std::mem::take(&mut self.out).into());
        }
        self.ready.push_back(self.text.slice_ref(part));
    }

    fn item(&mut self, scanner: &mut Scanner<'_>) -> Option<()> {
        let frame = self.frames.last()?;
        let human = frame.human;
        if !frame.is_object {
            self.separate();
            if self.form.layout == Layout::Yaml {
                self.out.extend_from_slice(b"- ");
            }
            self.next = RewriteStep::Value { human };
            return Some(());
        }
        let name = scanner.string()?;
        scanner.expect(b':')?;
        if human {
            self.twin(name, scanner)?;
        }
        self.name(name);
        self.next = RewriteStep::Value { human: human && !DOCUMENTS.contains(&name) };
        Some(())
    }

    /// Writes what stands before a member or item: a comma behind another one, and a new line.
    fn separate(&mut self) {
        let Some(frame) = self.frames.last_mut() else { return };
        let is_first = std::mem::replace(&mut frame.is_empty, false);
        let (level, inline) = (frame.level, frame.inline);
        match self.form.layout {
            Layout::Compact | Layout::Pretty if !is_first => self.out.push(b','),
            Layout::Yaml if is_first && inline => return,
            _ => {}
        }
        self.line(level);
    }

    fn line(&mut self, level: usize) {
        if self.form.layout != Layout::Compact {
            self.out.push(b'\n');
            self.out.resize(self.out.len() + 2 * level, b' ');
        }
    }

    fn name(&mut self, name: &[u8]) {
        self.separate();
        match self.form.layout {
            Layout::Yaml => {
                let level = self.frames.last().map_or(0, |frame| frame.level);
                yaml::push_name(&mut self.out, name, 2 * level);
                self.out.push(b':');
            }
            Layout::Pretty => {
                self.push(name);
                self.out.extend_from_slice(b" : ");
            }
            Layout::Compact => {
                self.push(name);
                self.out.push(b':');
            }
        }
    }

    /// Writes the readable twin of a quantity, unless there is a member of its name.
    fn twin(&mut self, name: &[u8], scanner: &Scanner<'_>) -> Option<()> {
        const BYTES: &[u8] = b"_in_bytes\"";
        const MILLIS: &[u8] = b"_in_millis\"";
        let (short, write): (_, fn(i64) -> String) =
            match (name.strip_suffix(BYTES), name.strip_suffix(MILLIS)) {
                (Some(short), _) => (short, bytes_text),
                (_, Some(short)) => (short, millis_text),
                _ => return Some(()),
            };
        let value = scanner.clone().skip()?;
        let number = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok());
        let Some(number) = number.filter(|_| short.len() < LONGEST_SHORT_NAME) else { return Some(()) };
        let short = [short, b"\""].concat();
        let text = &self.text;
        let frame = self.frames.last_mut()?;
        let names = match &mut frame.names {
            Some(names) => names,
            none => none.insert(names_of(text.get(frame.start..)?)?),
        };
        if names.contains(&short) {
            return Some(());
        }
        self.name(&short);
        self.space_before_scalar();
        self.scalar(format!("\"{}\"", write(number)).as_bytes());
        Some(())
    }

    fn behind(&mut self, scanner: &mut Scanner<'_>) -> Option<()> {
        let Some(frame) = self.frames.last() else {
            if self.form.layout != Layout::Compact {
                self.out.push(b'\n');
            }
            self.next = RewriteStep::Done;
            return scanner.is_at_end().then_some(());
        };
        let (end, level) = (frame.end(), frame.level);
        if scanner.goes_on(end)? {
            self.next = RewriteStep::Item;
            return Some(());
        }
        self.frames.pop();
        if self.form.layout != Layout::Yaml {
            self.line(level - 1);
            self.out.push(end);
        }
        Some(())
    }
}

/// Lists the names of the members of the object that a text begins with.
fn names_of(text: &[u8]) -> Option<HashSet<Vec<u8>>> {
    let mut names = HashSet::new();
    let mut scanner = Scanner::new(text);
    let mut more = scanner.open(b'}')?;
    while more {
        names.insert(scanner.string()?.to_vec());
        scanner.expect(b':')?;
        scanner.skip()?;
        more = scanner.goes_on(b'}')?;
    }
    Some(names)
}

impl Iterator for Rewriter {
    type Item = Result<Bytes, NotJson>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(ready) = self.ready.pop_front() {
            return Some(Ok(ready));
        }
        if self.fill().is_none() {
            self.next = RewriteStep::Done;
            self.at = self.text.len();
            return Some(Err(NotJson));
        }
        if let Some(ready) = self.ready.pop_front() {
            return Some(Ok(ready));
        }
        match std::mem::take(&mut self.out) {
            nothing if nothing.is_empty() => None,
            step => Some(Ok(step.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(text: &str, layout: Layout, human: bool) -> Option<String> {
        let text = Bytes::copy_from_slice(text.as_bytes());
        let whole = Rewriter::new(text, RewriteForm { layout, human }).finish()?;
        Some(String::from_utf8(whole.to_vec()).unwrap())
    }

    #[test]
    fn values_stay_as_they_are_written() {
        let text = r#"{ "a" : [1.0,{},[ ],{"b":"\u0041\"}"}] ,"n":1e29,"m":123456789012345678901234567890}"#;
        let pretty = "{\n  \"a\" : [\n    1.0,\n    {},\n    [],\n    {\n      \"b\" : \"\\u0041\\\"}\"\n    }\n  ],\n  \"n\" : 1e29,\n  \"m\" : 123456789012345678901234567890\n}\n";
        assert_eq!(rewritten(text, Layout::Pretty, false).unwrap(), pretty);
        let compact = r#"{"a":[1.0,{},[],{"b":"\u0041\"}"}],"n":1e29,"m":123456789012345678901234567890}"#;
        assert_eq!(rewritten(text, Layout::Compact, false).unwrap(), compact);
        for broken in ["{\"a\"", "{\"a\":1", "[1 2]", "{} {}"] {
            assert_eq!(rewritten(broken, Layout::Pretty, false), None, "{broken}");
        }
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(rewritten(&deep, Layout::Compact, false).unwrap(), deep);
    }

    #[test]
    fn yaml_is_laid_out_as_opensearch_does() {
        let text = r#"{"hits":[{"a b":"x: y","n":1.50,"l":[1,[2,3],{"z":null,"q":[4]},[]],"e":{},"true":"yes","m":"l\nb\/","":4,"o":{"p":{"q":[{"r":1,"s":2},[[5]]]}}}]}"#;
        let yaml = "---\nhits:\n- a b: \"x: y\"\n  \"n\": 1.50\n  l:\n  - 1\n  - - 2\n    - 3\n  - z: null\n    q:\n    - 4\n  - []\n  e: {}\n  \"true\": \"yes\"\n  m: \"l\\nb/\"\n  \"\": 4\n  o:\n    p:\n      q:\n      - r: 1\n        s: 2\n      - - - 5\n";
        assert_eq!(rewritten(text, Layout::Yaml, false).unwrap(), yaml);
        assert_eq!(rewritten("[]", Layout::Yaml, false).unwrap(), "--- []\n");
        assert_eq!(rewritten("[1]", Layout::Yaml, false).unwrap(), "---\n- 1\n");
        let read: serde_json::Value = serde_norway::from_str(yaml).unwrap();
        assert_eq!(read, serde_json::from_str::<serde_json::Value>(text).unwrap());
    }

    #[test]
    fn quantities_have_twins_outside_of_documents() {
        let text = r#"{"a_in_bytes":1536,"b":{"t_in_millis":61000,"t":1},"c_in_bytes":1e3,"d_in_millis":5,"hits":{"x_in_bytes":1},"l":[{"y_in_bytes":2}]}"#;
        let human = r#"{"a":"1.5kb","a_in_bytes":1536,"b":{"t_in_millis":61000,"t":1},"c_in_bytes":1e3,"d":"5ms","d_in_millis":5,"hits":{"x_in_bytes":1},"l":[{"y":"2b","y_in_bytes":2}]}"#;
        assert_eq!(rewritten(text, Layout::Compact, true).unwrap(), human);
    }

    #[test]
    fn long_answers_come_in_steps() {
        let long = "x".repeat(3 * CHUNK_BYTES);
        let text = format!(r#"{{"a":"{long}","b":[{}1]}}"#, "1234567,".repeat(CHUNK_BYTES));
        let rewriter =
            Rewriter::new(text.clone().into(), RewriteForm { layout: Layout::Compact, human: false });
        let steps: Vec<Bytes> = rewriter.map(|step| step.unwrap()).collect();
        assert!(steps.len() > 8);
        assert!(steps.iter().all(|step| step.len() <= long.len() + 2));
        assert_eq!(steps.concat(), text.as_bytes());
    }
}
