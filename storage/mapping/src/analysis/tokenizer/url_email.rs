//! The `uax_url_email` tokenizer: words as [`Standard`] has them, but URLs and mail addresses whole.
//!
//! At each place where a word may begin, the longest of URL, host, address and word is taken. A host without a
//! scheme ends in a top-level domain of the list beside this file (IANA's, of 2024) or is an IP address, and nothing
//! that could belong to its name follows. The syntax is that of RFC 1123, 3986, 5321 and 5322, as Lucene has it.

use std::collections::VecDeque;
use std::sync::LazyLock;

use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory};

use super::standard::next_run;
use super::{Emitter, Standard, Tokenizer, prefix_of_utf16_units};
use crate::analysis::Token;
use crate::automaton::{Dfa, Flags};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct UrlEmail {
    words: Standard,
}

const HEX: &str = "[0-9A-Fa-f]{1,4}";
const IPV4: &str = r"(0{0,2}[0-9]|0?[1-9][0-9]|1[0-9][0-9]|2([0-4][0-9]|5[0-5]))";
const LABELS: &str = r"[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*";
const PORT: &str = ":[0-9]{1,5}";
const LOGIN: &str = r"([-._~A-Za-z0-9!$&'()*+,;=]|%[0-9A-Fa-f][0-9A-Fa-f])*";
const HTTP_PATH: &str = r"(/([-._~A-Za-z0-9;:@&=]|%[0-9A-Fa-f][0-9A-Fa-f])*)+";
const FTP_PATH: &str = r"(/([-._~A-Za-z0-9?:@&=]|%[0-9A-Fa-f][0-9A-Fa-f])*)+";
/// Pattern of a query or a fragment.
const TAIL: &str = r"([-._~A-Za-z0-9!$&'()*+,;=:@/?]|%[0-9A-Fa-f][0-9A-Fa-f])*";

/// The automata of URLs, of hosts and of addresses.
struct Syntax {
    url: Dfa,
    host: Dfa,
    email: Dfa,
}

static SYNTAX: LazyLock<Syntax> = LazyLock::new(|| {
    let domains: Vec<&str> = include_str!("top_level_domains.txt").split_ascii_whitespace().collect();
    let name = format!(r"{LABELS}\.({})\.?", domains.join("|"));
    let ipv4 = format!(r"{IPV4}(\.{IPV4}){{3}}");
    let ip = format!(r"\[{}\]|{ipv4}", ipv6(&ipv4));
    let host = format!("({ip}|{name})");
    let any_host = format!("({ip}|{LABELS})");
    let login = format!("({LOGIN}(:{LOGIN})?@)?");
    let (query, fragment) = (format!(r"\?{TAIL}"), format!("#{TAIL}"));
    let http = format!("https?://{login}{any_host}({PORT})?({HTTP_PATH})?({query})?({fragment})?");
    // Without a scheme, something must follow the host.
    let rest = format!(
        "({PORT}({HTTP_PATH})?({query})?({fragment})?|{HTTP_PATH}({query})?({fragment})?|{query}({fragment})?|{fragment})"
    );
    let ftp = format!("ftp://{login}{any_host}({PORT})?{FTP_PATH}(;type=[aAiIdD])?({fragment})?");
    let file = format!("file://({any_host})?{FTP_PATH}({fragment})?");
    let quoted = "\\\"([\u{1}-\u{8}\u{b}\u{c}\u{e}-!#-\\[\\]-~]|\\\\[\u{0}-\u{7f}])*\\\"";
    let label = format!(r"([A-Za-z0-9!#$%&'*+\-/=?\^_`{{|}}~]+|{quoted})");
    let bracketed = "\\[([\u{1}-\u{8}\u{b}\u{c}\u{e}-Z\\^-\u{7f}]|\\\\[\u{0}-\u{7f}])*\\]";
    let email = format!(r"{label}(\.{label})*@({name}|{bracketed})");
    Syntax {
        url: automaton(&format!("{http}|{host}{rest}|{ftp}|{file}")),
        host: automaton(&host),
        email: automaton(&email),
    }
});

/// The forms of an IPv6 address: up to eight groups, a run of which `::` may stand for.
fn ipv6(ipv4: &str) -> String {
    let last = format!("({ipv4}|{HEX}:{HEX})");
    let mut forms = vec![format!("({HEX}:){{6}}{last}"), format!("::({HEX}:){{5}}{last}")];
    for before in 0..=4 {
        let groups = 4 - before;
        forms.push(format!("(({HEX}:){{0,{before}}}{HEX})?::({HEX}:){{{groups}}}{last}"));
    }
    forms.push(format!("(({HEX}:){{0,5}}{HEX})?::{HEX}"));
    forms.push(format!("(({HEX}:){{0,6}}{HEX})?::"));
    format!("({})", forms.join("|"))
}

/// Returns whether a character behind a host says that it was none.
fn is_of_name(c: char) -> bool {
    c == '-'
        || c.is_alphanumeric()
        || c.general_category_group() == GeneralCategoryGroup::Mark
        || c.general_category() == GeneralCategory::ConnectorPunctuation
}

fn automaton(expression: &str) -> Dfa {
    Dfa::regexp(expression, Flags::NONE, true, i64::MAX).expect("an expression of this file")
}

/// A word: its bounds in bytes and its type.
type Word = (usize, usize, &'static str);

impl UrlEmail {
    pub(crate) fn new(max_token_length: usize) -> Self {
        Self { words: Standard { max_token_length } }
    }

    /// The URL or address at the start of a text: its length, type, and how much of the text it explains. Behind a
    /// host, the character that ends it counts.
    fn special(&self, text: &str) -> Option<(usize, &'static str, usize)> {
        if !text.starts_with(|c: char| c.is_ascii_graphic()) {
            return None;
        }
        let text = self.seen(text);
        let url = SYNTAX.url.longest_match(text).map(|length| (length, "<URL>", length));
        // A dot at the end of the text is none of the host.
        let ends = |rest: &str| !(rest.starts_with(is_of_name) || rest.is_empty() && text.ends_with('.'));
        let host = SYNTAX.host.longest_match_if(text, &ends).map(|length| {
            let next = text[length..].chars().next().map_or(0, char::len_utf8);
            (length, "<URL>", length + next)
        });
        let email = SYNTAX.email.longest_match(text).map(|length| (length, "<EMAIL>", length));
        // Of those that explain as much the first counts.
        [email, host, url].into_iter().flatten().max_by_key(|(_, _, explained)| *explained)
    }

    /// The length of the word `mailto` at the start of a text, where an address follows it, which is a token
    /// of its own.
    fn mailto(&self, text: &str) -> Option<usize> {
        const WORD: &str = "mailto";
        let word = text.get(..WORD.len())?;
        let rest = text[WORD.len()..].strip_prefix(':')?;
        let follows =
            word.eq_ignore_ascii_case(WORD) && SYNTAX.email.longest_match(self.seen(rest)).is_some();
        follows.then_some(WORD.len())
    }

    /// As much of a text as a token may have.
    fn seen<'t>(&self, text: &'t str) -> &'t str {
        &text[..prefix_of_utf16_units(text, self.words.max_token_length)]
    }

    /// The words from a place on, and how far they are known. No more than a window is looked at: the words
    /// behind a URL are cut anew, which must not cost the length of the text each time.
    fn words(&self, text: &str, start: usize, end: usize, words: &mut VecDeque<Word>) -> usize {
        let margin = self.words.max_token_length.saturating_mul(4).saturating_add(64);
        let boundary = |mut at: usize| {
            while !text.is_char_boundary(at) {
                at += 1;
            }
            at
        };
        let window = boundary(start.saturating_add(margin.saturating_mul(4)).min(end));
        self.words.run(text, start, window, &mut |start, end, kind| words.push_back((start, end, kind)));
        if window == end {
            return end;
        }
        // Words near the end of the window may go on behind it.
        let known = boundary(window - margin);
        while words.back().is_some_and(|(_, end, _)| *end > known) {
            words.pop_back();
        }
        words.back().map_or(known, |(_, end, _)| *end).max(start + 1)
    }
}

impl Tokenizer for UrlEmail {
    fn tokenize(&self, text: &str, sink: &mut dyn FnMut(&mut Token)) -> u32 {
        let mut out = Emitter::new(text, sink);
        let mut at = 0;
        while let Some((start, end)) = next_run(text, at) {
            let special = text.as_bytes()[start..end].iter().any(|byte| b".@:[\"".contains(byte));
            at = if special {
                self.run(text, start, end, &mut out)
            } else {
                self.words.run(text, start, end, &mut |start, end, kind| out.emit_as(text, start, end, kind));
                end
            };
        }
        out.next_position
    }
}

impl UrlEmail {
    /// Cuts a stretch without white space; returns where it ended, behind `end` where an address did.
    fn run(&self, text: &str, start: usize, end: usize, out: &mut Emitter<'_>) -> usize {
        let mut at = start;
        let mut words = VecDeque::new();
        let mut known = start;
        while at < end {
            // A URL may have ended within a word.
            while words.front().is_some_and(|(start, _, _)| *start < at) {
                if words.pop_front().is_some_and(|(_, end, _)| end > at) {
                    words.clear();
                    known = at;
                }
            }
            if words.is_empty() && known < end {
                known = self.words(text, known.max(at), end, &mut words);
            }
            let word = words.front().copied().filter(|(start, _, _)| *start == at);
            if let Some((start, _, kind)) = word
                && let Some(length) = self.mailto(&text[start..])
            {
                out.emit_as(text, start, start + length, kind);
                at += length;
                continue;
            }
            at = match (self.special(&text[at..]), word) {
                (Some((length, kind, explained)), word)
                    if word.is_none_or(|(_, end, _)| at + explained >= end) =>
                {
                    out.emit_as(text, at, at + length, kind);
                    at + length
                }
                (_, Some((start, end, kind))) => {
                    out.emit_as(text, start, end, kind);
                    end
                }
                _ => at + text[at..].chars().next().map_or(1, char::len_utf8),
            };
        }
        at
    }
}
