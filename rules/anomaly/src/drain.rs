//! Drain (He, Zhu, Zheng, Lyu 2017): log templates by a tree of fixed depth.
//!
//! A line is masked (`mask`) and split at white space. The tree leads by the number of words, then by the first word, to templates.
//! The line joins the template with the most equal words in equal places, where that share is at least 0.4; among equals the one
//! with more wildcards, then the older one. Words that differ become `<*>`. Else the line founds a template. A first word with digits, or
//! one too many for its node, goes by `<*>`. This is `drain3` with depth 4, similarity 0.4, and 100 children.

use std::collections::{BTreeMap, HashMap};

use crate::artefact::{ArtefactReader, ArtefactWriter, corrupt};
use crate::error::Result;

/// Templates of a model, at most.
pub const MAX_TEMPLATES: usize = 10_000;
/// Bytes of all templates together, at most.
const MAX_TEMPLATE_BYTES: usize = 32 << 20;
/// Words of a line, at most: the last one has the rest of a longer line.
const MAX_WORDS: usize = 512;
/// Children of a node, at most, the wildcard among them.
const MAX_CHILDREN: usize = 100;
const SIMILARITY: f64 = 0.4;
const WILDCARD: &str = "<*>";
const WILDCARD_ID: u32 = 0;
/// Number of a word that no template has.
const UNKNOWN: u32 = u32::MAX;

/// Templates with the tree that leads to them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Drain {
    words: WordTable,
    /// Words of each template.
    templates: Vec<Vec<u32>>,
    /// Templates by number of words and first word; lines of up to one word go by the wildcard.
    groups: BTreeMap<u32, BTreeMap<u32, Vec<u32>>>,
    bytes: usize,
}

/// Template of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TemplateMatch {
    Existing(u32),
    New(u32),
    /// The bounds of a model allow no further template.
    Full,
}

/// Numbers of words. The map is for look-ups alone, so that no order of hashes matters.
#[derive(Clone, Debug, PartialEq)]
struct WordTable {
    words: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Default for WordTable {
    fn default() -> Self {
        let mut table = Self { words: Vec::new(), numbers: HashMap::new() };
        table.insert(WILDCARD);
        table
    }
}

impl WordTable {
    fn insert(&mut self, word: &str) -> u32 {
        if let Some(number) = self.numbers.get(word) {
            return *number;
        }
        let number = self.words.len() as u32;
        self.words.push(word.to_owned());
        self.numbers.insert(word.to_owned(), number);
        number
    }
}

impl Drain {
    /// Finds the template of a masked line, or founds one.
    pub(crate) fn add(&mut self, masked: &str) -> TemplateMatch {
        let words = split_words(masked);
        let line: Vec<u32> =
            words.iter().map(|word| self.words.numbers.get(*word).copied().unwrap_or(UNKNOWN)).collect();
        if let Some(template) = self.find(&line) {
            for (own, word) in self.templates[template as usize].iter_mut().zip(&line) {
                if own != word {
                    *own = WILDCARD_ID;
                }
            }
            return TemplateMatch::Existing(template);
        }
        let bytes = masked.len() + 4 * words.len();
        if self.templates.len() >= MAX_TEMPLATES || self.bytes + bytes > MAX_TEMPLATE_BYTES {
            return TemplateMatch::Full;
        }
        self.bytes += bytes;
        let line: Vec<u32> = words.iter().map(|word| self.words.insert(word)).collect();
        let template = self.templates.len() as u32;
        let key = self.choose_key(&line, words.first().copied().unwrap_or_default());
        self.groups.entry(line.len() as u32).or_default().entry(key).or_default().push(template);
        self.templates.push(line);
        TemplateMatch::New(template)
    }

    fn find(&self, line: &[u32]) -> Option<u32> {
        let group = self.groups.get(&(line.len() as u32))?;
        let key = if line.len() > 1 { line[0] } else { WILDCARD_ID };
        let leaf = group.get(&key).or_else(|| group.get(&WILDCARD_ID))?;
        let mut best = None;
        for template in leaf {
            let (mut equal, mut wildcards) = (0_usize, 0_usize);
            for (own, word) in self.templates[*template as usize].iter().zip(line) {
                wildcards += usize::from(*own == WILDCARD_ID);
                equal += usize::from(own == word && *own != WILDCARD_ID);
            }
            if best.is_none_or(|(most, more, _)| (equal, wildcards) > (most, more)) {
                best = Some((equal, wildcards, *template));
            }
        }
        let (equal, _, template) = best?;
        let share = if line.is_empty() { 1.0 } else { equal as f64 / line.len() as f64 };
        (share >= SIMILARITY).then_some(template)
    }

    /// Chooses the branch of a new template.
    fn choose_key(&self, line: &[u32], first: &str) -> u32 {
        if line.len() < 2 {
            return WILDCARD_ID;
        }
        let Some(group) = self.groups.get(&(line.len() as u32)) else {
            return if has_digits(first) { WILDCARD_ID } else { line[0] };
        };
        // The wildcard has a place of its own among the children.
        let has_room = match group.contains_key(&WILDCARD_ID) {
            true => group.len() < MAX_CHILDREN,
            false => group.len() + 1 < MAX_CHILDREN,
        };
        match group.contains_key(&line[0]) || (has_room && !has_digits(first)) {
            true => line[0],
            false => WILDCARD_ID,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.templates.len()
    }

    /// Returns the text of a template, with `<*>` for words that vary.
    pub(crate) fn text(&self, template: u32) -> Option<String> {
        let words = self.templates.get(template as usize)?;
        let words: Vec<&str> = words.iter().map(|word| self.words.words[*word as usize].as_str()).collect();
        Some(words.join(" "))
    }

    pub(crate) fn encode(&self, out: &mut ArtefactWriter) {
        out.count(self.words.words.len());
        self.words.words.iter().for_each(|word| out.text(word));
        out.count(self.templates.len());
        self.templates.iter().for_each(|template| out.u32s(template));
        let leaves: Vec<(u32, &Vec<u32>)> =
            self.groups.values().flat_map(|group| group.iter().map(|(key, leaf)| (*key, leaf))).collect();
        out.count(leaves.len());
        for (key, leaf) in leaves {
            out.u32(key);
            out.u32s(leaf);
        }
        out.u64(self.bytes as u64);
    }

    pub(crate) fn decode(from: &mut ArtefactReader<'_>) -> Result<Self> {
        let mut words = WordTable { words: Vec::new(), numbers: HashMap::new() };
        for number in 0..from.count(MAX_TEMPLATE_BYTES, 4)? {
            if words.insert(&from.text(crate::MAX_LINE_BYTES * 8)?) as usize != number {
                return Err(corrupt("a word is there twice"));
            }
        }
        if words.words.first().is_none_or(|word| word != WILDCARD) {
            return Err(corrupt("it has no wildcard"));
        }
        let count = from.count(MAX_TEMPLATES, 4)?;
        let mut templates = Vec::with_capacity(count);
        for _ in 0..count {
            let template = from.u32s(MAX_WORDS)?;
            if template.iter().any(|word| *word as usize >= words.words.len()) {
                return Err(corrupt("a word is not there"));
            }
            templates.push(template);
        }
        let mut groups: BTreeMap<u32, BTreeMap<u32, Vec<u32>>> = BTreeMap::new();
        for _ in 0..from.count(MAX_TEMPLATES, 8)? {
            let (key, leaf) = (from.u32()?, from.u32s(MAX_TEMPLATES)?);
            let length = |template: &u32| templates.get(*template as usize).map(Vec::len);
            let Some(own) = leaf.first().and_then(length) else { return Err(corrupt("a leaf is empty")) };
            if leaf.iter().any(|template| length(template) != Some(own)) {
                return Err(corrupt("a leaf has templates of several lengths"));
            }
            groups.entry(own as u32).or_default().insert(key, leaf);
        }
        let bytes = from.u64()? as usize;
        if bytes > MAX_TEMPLATE_BYTES {
            return Err(corrupt("its templates are too large"));
        }
        Ok(Self { words, templates, groups, bytes })
    }
}

fn has_digits(word: &str) -> bool {
    word.chars().any(char::is_numeric)
}

/// Splits a line at white space. The last word has the rest of a line with too many.
fn split_words(line: &str) -> Vec<&str> {
    let mut words: Vec<&str> = line.split_whitespace().take(MAX_WORDS).collect();
    if words.len() == MAX_WORDS
        && let Some(last) = words.last_mut()
    {
        let start = last.as_ptr() as usize - line.as_ptr() as usize;
        *last = line[start..].trim_end();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artefact::ArtefactKind;

    #[test]
    fn lines_of_one_template_meet() {
        let mut drain = Drain::default();
        assert_eq!(drain.add("connected to <IP>"), TemplateMatch::New(0));
        assert_eq!(drain.add("connected to <IP>"), TemplateMatch::Existing(0));
        assert_eq!(drain.add("connected from host"), TemplateMatch::New(1));
        assert_eq!(drain.add("user alice logged in"), TemplateMatch::New(2));
        assert_eq!(drain.add("user bob logged in"), TemplateMatch::Existing(2));
        assert_eq!(drain.text(2).unwrap(), "user <*> logged in");
        assert_eq!(drain.add(""), TemplateMatch::New(3));
        assert_eq!(drain.add("  "), TemplateMatch::Existing(3));
        assert_eq!(drain.add("one"), TemplateMatch::New(4));
        assert_eq!(drain.add("two"), TemplateMatch::New(5));
        let mut out = ArtefactWriter::new(ArtefactKind::Text);
        drain.encode(&mut out);
        let bytes = out.finish();
        let read = Drain::decode(&mut ArtefactReader::new(&bytes, ArtefactKind::Text).unwrap()).unwrap();
        assert_eq!(read, drain);
    }

    #[test]
    fn templates_are_bounded() {
        let mut drain = Drain::default();
        for number in 0..MAX_TEMPLATES + 10 {
            // Numbers as letters: nothing is masked here.
            let word = |shift: u32| char::from(b'a' + (number as u32 >> shift & 15) as u8).to_string();
            let line = [word(0), word(4), word(8), word(12), word(16)].map(|one| one.repeat(3));
            drain.add(&format!("{} {} {} {} {} {number}", line[0], line[1], line[2], line[3], line[4]));
        }
        assert!(drain.len() <= MAX_TEMPLATES);
        let long = "x ".repeat(2000);
        assert!(split_words(&long).len() == MAX_WORDS);
        assert!(split_words(&long)[MAX_WORDS - 1].len() > 1000);
        assert!(drain.groups.values().all(|group| group.len() <= MAX_CHILDREN));
    }
}
