//! The older stemmer for German: J. Caumanns, "A Fast and Simple Stemming Algorithm for German Words",
//! 1999, in the form that Lucene gives it.

use super::light::{ends, swap};
use crate::analysis::tokenizer::class::is_letter;

/// Combinations of letters that count as one while suffixes are taken off.
const TOKENS: [(&str, char); 6] =
    [("sch", '$'), ("ch", '§'), ("ei", '%'), ("ie", '&'), ("ig", '#'), ("st", '!')];

pub(super) fn stem(word: &mut Vec<char>) {
    *word = word.iter().collect::<String>().to_lowercase().chars().collect();
    if !word.iter().all(|&c| is_letter(c)) {
        return;
    }
    let saved = substitute(word);
    strip(word, saved);
    if word.len() > 5 && ends(word, "erin*") {
        word.pop();
        strip(word, saved);
    }
    if let Some(last @ 'z') = word.last_mut() {
        *last = 'x';
    }
    resubstitute(word);
    if word.len() > 4
        && let Some(at) = word.windows(4).position(|four| four == ['g', 'e', 'g', 'e'])
    {
        word.drain(at..at + 2);
    }
}

/// Writes tokens, and `*` for a letter that repeats the one before; returns how many letters that saved.
fn substitute(word: &mut Vec<char>) -> usize {
    let mut saved = 0;
    let mut at = 0;
    while at < word.len() {
        if at > 0 && word[at] == word[at - 1] {
            word[at] = '*';
        } else {
            match word[at] {
                'ä' => word[at] = 'a',
                'ö' => word[at] = 'o',
                'ü' => word[at] = 'u',
                'ß' => {
                    word[at] = 's';
                    word.insert(at + 1, 's');
                    saved += 1;
                }
                _ => {}
            }
        }
        let token = TOKENS
            .iter()
            .find(|(letters, _)| letters.chars().enumerate().all(|(nth, c)| word.get(at + nth) == Some(&c)));
        if let Some((letters, token)) = token {
            word[at] = *token;
            word.drain(at + 1..at + letters.len());
            saved += letters.len() - 1;
        }
        at += 1;
    }
    saved
}

fn strip(word: &mut Vec<char>, saved: usize) {
    while word.len() > 3 {
        let length = word.len() + saved;
        match word.as_slice() {
            [.., 'n', 'd'] if length > 5 => swap(word, 2, ""),
            [.., 'e', 'm' | 'r'] if length > 4 => swap(word, 2, ""),
            [.., 'e' | 's' | 'n' | 't'] => swap(word, 1, ""),
            _ => return,
        }
    }
}

fn resubstitute(word: &mut Vec<char>) {
    let mut out: Vec<char> = Vec::with_capacity(word.len() + 4);
    for &c in word.iter() {
        match TOKENS.iter().find(|(_, token)| *token == c) {
            Some((letters, _)) => out.extend(letters.chars()),
            None if c == '*' => out.extend(out.last().copied()),
            None => out.push(c),
        }
    }
    *word = out;
}
