//! Stemmers that take the first suffix of a list that fits: Arabic and Persian, Hindi (A. Ramanathan and
//! D. Rao, "A Lightweight Stemmer for Hindi", 2003), Bengali, Bulgarian (J. Savoy, "Searching Strategies
//! for the Bulgarian Language", 2007) and Sorani, in the form that Lucene gives them.

use super::light::{ends, swap};

/// Suffixes of the same length, and how long a word must be to lose one.
pub(super) type Suffixes = [(usize, &'static [&'static str])];

/// Takes off the first suffix that fits; says whether one did.
pub(super) fn cut(word: &mut Vec<char>, suffixes: &Suffixes) -> bool {
    let found = suffixes
        .iter()
        .find_map(|(over, suffixes)| suffixes.iter().find(|suffix| word.len() > *over && ends(word, suffix)));
    if let Some(suffix) = found {
        swap(word, suffix.chars().count(), "");
    }
    found.is_some()
}

#[rustfmt::skip]
const HINDI: [(usize, &[&str]); 5] = [
    (6, &[
        "ाएंगी", "ाएंगे", "ाऊंगी", "ाऊंगा", "ाइयाँ", "ाइयों", "ाइयां",
    ]),
    (5, &[
        "ाएगी", "ाएगा", "ाओगी", "ाओगे", "एंगी", "ेंगी", "एंगे", "ेंगे", "ूंगी", "ूंगा", "ातीं", "नाओं",
        "नाएं", "ताओं", "ताएं", "ियाँ", "ियों", "ियां",
    ]),
    (4, &[
        "ाकर", "ाइए", "ाईं", "ाया", "ेगी", "ेगा", "ोगी", "ोगे", "ाने", "ाना", "ाते", "ाती", "ाता",
        "तीं", "ाओं", "ाएं", "ुओं", "ुएं", "ुआं",
    ]),
    (3, &[
        "कर", "ाओ", "िए", "ाई", "ाए", "ने", "नी", "ना", "ते", "ीं", "ती", "ता", "ाँ", "ां", "ों", "ें",
    ]),
    (2, &[
        "ो", "े", "ू", "ु", "ी", "ि", "ा",
    ]),
];

pub(super) fn hindi(word: &mut Vec<char>) {
    cut(word, &HINDI);
}

#[rustfmt::skip]
const BENGALI: [(usize, &[&str]); 8] = [
    (9, &[
        "িয়াছিলাম", "িতেছিলাম", "িতেছিলেন", "ইতেছিলেন", "িয়াছিলেন", "ইয়াছিলেন",
    ]),
    (8, &[
        "িতেছিলি", "িতেছিলে", "িয়াছিলা", "িয়াছিলে", "িতেছিলা", "িয়াছিলি", "য়েদেরকে",
    ]),
    (7, &[
        "িতেছিস", "িতেছেন", "িয়াছিস", "িয়াছেন", "েছিলাম", "েছিলেন", "েদেরকে",
    ]),
    (6, &[
        "িতেছি", "িতেছা", "িতেছে", "ছিলাম", "ছিলেন", "িয়াছি", "িয়াছা", "িয়াছে", "েছিলে", "েছিলা",
        "য়েদের", "দেরকে",
    ]),
    (5, &[
        "িলাম", "িলেন", "িতাম", "িতেন", "িবেন", "ছিলি", "ছিলে", "ছিলা", "তেছে", "িতেছ", "খানা", "খানি",
        "গুলো", "গুলি", "য়েরা", "েদের",
    ]),
    (4, &[
        "লাম", "িলি", "ইলি", "িলে", "ইলে", "লেন", "িলা", "ইলা", "তাম", "িতি", "ইতি", "িতে", "ইতে",
        "তেন", "িতা", "িবা", "ইবা", "িবি", "ইবি", "বেন", "িবে", "ইবে", "ছেন", "য়োন", "য়ের", "েরা",
        "দের",
    ]),
    (3, &[
        "িস", "েন", "লি", "লে", "লা", "তি", "তে", "তা", "বি", "বে", "বা", "ছি", "ছা", "ছে", "ুন", "ুক",
        "টা", "টি", "নি", "ের", "রা", "কে",
    ]),
    (2, &[
        "ি", "ী", "া", "ো", "ে", "ব", "ত",
    ]),
];

pub(super) fn bengali(word: &mut Vec<char>) {
    cut(word, &BENGALI);
}

/// Takes off every suffix of a list that leaves two characters, one after the other.
fn cut_each(word: &mut Vec<char>, suffixes: &[&str]) {
    for suffix in suffixes {
        let length = suffix.chars().count();
        if word.len() >= length + 2 && ends(word, suffix) {
            swap(word, length, "");
        }
    }
}

pub(super) fn arabic(word: &mut Vec<char>) {
    // Article, conjunction, prepositions.
    let prefixes = ["ال", "وال", "بال", "كال", "فال", "لل", "و"];
    let found = prefixes.iter().map(|prefix| prefix.chars().collect::<Vec<char>>()).find(|prefix| {
        let least = if prefix.len() == 1 { 4 } else { prefix.len() + 2 };
        word.len() >= least && word.starts_with(prefix)
    });
    if let Some(prefix) = found {
        word.drain(..prefix.len());
    }
    cut_each(word, &["ها", "ان", "ات", "ون", "ين", "يه", "ية", "ه", "ة", "ي"]);
}

pub(super) fn persian(word: &mut Vec<char>) {
    cut_each(word, &["ات", "ان", "ترين", "تر", "يي", "ي", "ها", "\u{200c}"]);
}

pub(super) fn bulgarian(word: &mut Vec<char>) {
    if word.len() < 4 {
        return;
    }
    if word.len() > 5 && ends(word, "ища") {
        return swap(word, 3, "");
    }
    bulgarian_article(word);
    bulgarian_plural(word);
    if word.len() > 3 {
        if ends(word, "я") {
            word.pop();
        }
        if matches!(word.last(), Some('а' | 'о' | 'е')) {
            word.pop();
        }
    }
    if word.len() > 4 && ends(word, "ен") {
        swap(word, 2, "н");
    }
    if word.len() > 5 && word[word.len() - 2] == 'ъ' {
        word.remove(word.len() - 2);
    }
}

fn bulgarian_article(word: &mut Vec<char>) {
    let articles: [(usize, &[&str]); 3] = [(6, &["ият"]), (5, &["ът", "то", "те", "та", "ия"]), (4, &["ят"])];
    cut(word, &articles);
}

fn bulgarian_plural(word: &mut Vec<char>) {
    let length = word.len();
    match word.as_slice() {
        [.., 'о', 'в', 'ц', 'и'] | [.., 'о', 'в', 'е'] if length > 6 => swap(word, 3, ""),
        [.., 'е', 'в', 'е'] if length > 6 => swap(word, 3, "й"),
        [.., 'и', 'щ', 'а'] if length > 5 => swap(word, 3, ""),
        [.., 'т', 'а'] if length > 5 => swap(word, 2, ""),
        [.., 'ц', 'и'] if length > 5 => swap(word, 2, "к"),
        [.., 'з', 'и'] if length > 5 => swap(word, 2, "г"),
        [.., 'е', _, 'и'] if length > 5 => {
            word[length - 3] = 'я';
            word.pop();
        }
        [.., 'с', 'и'] if length > 4 => swap(word, 2, "х"),
        [.., 'и'] if length > 4 => swap(word, 1, ""),
        _ => {}
    }
}

/// Postpositions, of which the one that is shortened keeps a letter, and possessive pronouns.
pub(super) fn sorani(word: &mut Vec<char>) {
    if word.len() > 5 && ends(word, "دا") {
        swap(word, 2, "");
    } else if word.len() > 4 && ends(word, "نا") {
        swap(word, 1, "");
    } else if word.len() > 6 && ends(word, "ەوە") {
        swap(word, 3, "");
    }
    if word.len() > 6 && ["مان", "یان", "تان"].iter().any(|suffix| ends(word, suffix)) {
        swap(word, 3, "");
    }
    // Suffix, what a word must be longer than, and what is taken off.
    let suffixes = [
        ("ێکی", 6, 3),
        ("یەکی", 7, 4),
        ("ێک", 5, 2),
        ("یەک", 6, 3),
        ("ەکە", 6, 3),
        ("کە", 5, 2),
        ("ەکان", 7, 4),
        ("کان", 6, 3),
        ("یانی", 7, 4),
        ("انی", 6, 3),
        ("یان", 6, 3),
        ("ان", 5, 2),
        ("یانە", 7, 4),
        ("انە", 6, 3),
        ("ایە", 5, 2),
        ("ەیە", 5, 2),
        ("ە", 4, 1),
        ("ی", 4, 1),
    ];
    if let Some((_, _, count)) =
        suffixes.iter().find(|(suffix, over, _)| word.len() > *over && ends(word, suffix))
    {
        swap(word, *count, "");
    }
}
