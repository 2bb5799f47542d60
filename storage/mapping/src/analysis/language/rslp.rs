//! Stemmers by rules of suffixes, for Galician and Portuguese: RSLP (V. M. Orengo and C. Huyck, "A Stemming
//! Algorithm for the Portuguese Language", 2001), its plural step alone (RSLP-S), and the rules of the
//! University of A Coruña for Galician.
//!
//! The rules are files of tab-separated lines, made of Lucene's. A line `=name`, least length of a
//! word (0: what the rules need), whether exceptions are whole words (1) or suffixes (0), and the
//! endings without which the step is left out, begins a step; each line behind it is a rule: suffix, least
//! length of what is left, replacement, exceptions. The first rule that fits is the one that is applied.

use std::sync::LazyLock;

use hashbrown::HashMap;

use super::light::{ends, swap};

/// The steps of a language, by name.
type Steps = HashMap<&'static str, Step>;

static GALICIAN: LazyLock<Steps> = LazyLock::new(|| steps(include_str!("rslp/galician.tsv")));
static PORTUGUESE: LazyLock<Steps> = LazyLock::new(|| steps(include_str!("rslp/portuguese.tsv")));

#[derive(Debug, Default)]
struct Step {
    least: usize,
    /// Exceptions are words, not suffixes.
    whole: bool,
    endings: Vec<&'static str>,
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    suffix: &'static str,
    letters: usize,
    /// Least length of what is left without the suffix.
    least: usize,
    replacement: &'static str,
    exceptions: Vec<&'static str>,
}

fn steps(file: &'static str) -> Steps {
    let mut steps = Steps::new();
    let mut name = "";
    for line in file.lines() {
        let mut fields = line.split('\t');
        let first = fields.next().unwrap_or_default();
        let least = fields.next().and_then(|number| number.parse().ok()).unwrap_or(0);
        let third = fields.next().unwrap_or_default();
        let rest = fields.collect();
        match first.strip_prefix('=') {
            Some(step) => {
                name = step;
                steps.insert(name, Step { least, whole: third == "1", endings: rest, rules: Vec::new() });
            }
            None => {
                let letters = first.chars().count();
                let rule = Rule { suffix: first, letters, least, replacement: third, exceptions: rest };
                steps.entry(name).or_default().rules.push(rule);
            }
        }
    }
    for step in steps.values_mut().filter(|step| step.least == 0) {
        step.least = step.rules.iter().map(|rule| rule.least + rule.letters).min().unwrap_or(0);
    }
    steps
}

/// Applies a step; returns whether a rule was.
fn apply(steps: &Steps, name: &str, word: &mut Vec<char>) -> bool {
    let Some(step) = steps.get(name) else { return false };
    if word.len() < step.least
        || (!step.endings.is_empty() && !step.endings.iter().any(|ending| ends(word, ending)))
    {
        return false;
    }
    let excepted =
        |exception: &&str| ends(word, exception) && (!step.whole || exception.chars().count() == word.len());
    let rule = step.rules.iter().find(|rule| {
        word.len() >= rule.letters + rule.least
            && ends(word, rule.suffix)
            && !rule.exceptions.iter().any(excepted)
    });
    match rule {
        Some(rule) => {
            swap(word, rule.letters, rule.replacement);
            true
        }
        None => false,
    }
}

pub(super) fn galician(word: &mut Vec<char>) {
    let steps = &GALICIAN;
    apply(steps, "Plural", word);
    apply(steps, "Unification", word);
    apply(steps, "Adverb", word);
    // As long as the length changes.
    loop {
        let before = word.len();
        apply(steps, "Augmentative", word);
        if word.len() == before {
            break;
        }
    }
    let before = word.len();
    apply(steps, "Noun", word);
    if word.len() == before {
        apply(steps, "Verb", word);
    }
    apply(steps, "Vowel", word);
    for c in word {
        *c = match *c {
            'á' => 'a',
            'é' | 'ê' => 'e',
            'í' => 'i',
            'ó' => 'o',
            'ú' => 'u',
            other => other,
        };
    }
}

pub(super) fn galician_minimal(word: &mut Vec<char>) {
    apply(&GALICIAN, "Plural", word);
}

pub(super) fn portuguese(word: &mut Vec<char>) {
    let steps = &PORTUGUESE;
    for step in ["Plural", "Adverb", "Feminine", "Augmentative"] {
        apply(steps, step, word);
    }
    let before = word.len();
    apply(steps, "Noun", word);
    if word.len() == before {
        apply(steps, "Verb", word);
        if word.len() == before {
            apply(steps, "Vowel", word);
        }
    }
    for c in word {
        *c = match *c {
            'à'..='å' => 'a',
            'ç' => 'c',
            'è'..='ë' => 'e',
            'ì'..='ï' => 'i',
            'ñ' => 'n',
            'ò'..='ö' => 'o',
            'ù'..='ü' => 'u',
            'ý' | 'ÿ' => 'y',
            other => other,
        };
    }
}

pub(super) fn portuguese_minimal(word: &mut Vec<char>) {
    apply(&PORTUGUESE, "Plural", word);
}
