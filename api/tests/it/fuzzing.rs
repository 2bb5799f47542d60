//! The fuzz targets of `fuzz/`, fed with mutated seeds: the same ones in every run. `FUZZ_RUNS` (inputs a target) and
//! `FUZZ_SEED` ask for more and for others, `FUZZ_TARGET` for one target alone.

use std::fs;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 14] = [
    ("analysis", millrace_mapping::fuzzing::analysis),
    ("bulk", millrace_data_api::fuzzing::bulk),
    ("credentials", millrace_accounts::fuzzing::credentials),
    ("dashboards", millrace_saved_objects::fuzzing::dashboards),
    ("date_math", millrace_mapping::fuzzing::date_math),
    ("dsl", millrace_query::fuzzing::dsl),
    ("mapping", millrace_mapping::fuzzing::mapping),
    ("ppl", millrace_query::fuzzing::ppl),
    ("ppl_plan", millrace_query::fuzzing::ppl_plan),
    ("query_string", millrace_query::fuzzing::query_string),
    ("regexp", millrace_mapping::fuzzing::regexp),
    ("role", millrace_accounts::fuzzing::role),
    ("simple_query_string", millrace_query::fuzzing::simple_query_string),
    ("sql", millrace_query::fuzzing::sql),
];

/// Longest input.
const MAX_LENGTH: usize = 4_096;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds").join(target);
    let mut files: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} has no seeds", directory.display());
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

/// A place in an input that is no place within a character, where the input is text.
fn place(input: &[u8], rng: &mut StdRng) -> usize {
    let mut at = rng.random_range(0..=input.len());
    while input.get(at).is_some_and(|byte| byte & 0xc0 == 0x80) {
        at += 1;
    }
    at
}

/// A word of an input, or nothing where no letter is.
fn word(input: &[u8], rng: &mut StdRng) -> Range<usize> {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let at = place(input, rng);
    let before = input[..at].iter().rev().take_while(|byte| is_letter(byte)).count();
    let behind = input[at..].iter().take_while(|byte| is_letter(byte)).count();
    at - before..at + behind
}

/// Changes an input in one to six places: pieces are dropped, doubled, taken from other seeds, or replaced, and so are words.
fn mutate(seeds: &[Vec<u8>], rng: &mut StdRng) -> Vec<u8> {
    const PIECES: &[&str] = &[
        "0",
        "-1",
        "9223372036854775808",
        "1e400",
        "\"",
        "\\",
        "\\u0000",
        "\n",
        " ",
        "\u{0}",
        "é",
        "𝄞",
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        "null",
        "true",
        "[]",
        "{}",
        "\"\"",
        ":",
        ",",
        "*",
        "?",
        "~",
        "^",
        "|",
        "&",
        "<",
        ">",
        "||",
        "/",
    ];
    let mut input = seeds[rng.random_range(0..seeds.len())].clone();
    for _ in 0..rng.random_range(1..=6) {
        let (one, other) = (place(&input, rng), place(&input, rng));
        let (from, to) = (one.min(other), one.max(other));
        match rng.random_range(0..9) {
            0 => drop(input.drain(from..to.min(from + 16))),
            1 => {
                let piece = input[from..to].to_vec();
                input.splice(from..from, piece);
            }
            2 => {
                let donor = &seeds[rng.random_range(0..seeds.len())];
                let (one, other) = (place(donor, rng), place(donor, rng));
                let piece = donor[one.min(other)..one.max(other)].to_vec();
                input.splice(from..to.min(from + 16), piece);
            }
            7 | 8 => {
                let donor = &seeds[rng.random_range(0..seeds.len())];
                let (own, other) = (word(&input, rng), word(donor, rng));
                input.splice(own, donor[other].to_vec());
            }
            3 if from < input.len() => input[from] ^= 1 << rng.random_range(0..7),
            4 if from < input.len() => input[from] = rng.random(),
            _ => {
                let piece = PIECES[rng.random_range(0..PIECES.len())];
                let repeated = piece.repeat(if rng.random_bool(0.05) { 300 } else { 1 });
                let end = if rng.random_bool(0.5) { from } else { to.min(from + 4) };
                input.splice(from..end, repeated.into_bytes());
            }
        }
    }
    input.truncate(MAX_LENGTH);
    input
}

#[test]
fn targets_survive_seeds_and_what_becomes_of_them() {
    let runs = number("FUZZ_RUNS", 1_000);
    let only = std::env::var("FUZZ_TARGET").ok();
    let chosen =
        TARGETS.map(|(name, target)| (only.as_deref().is_none_or(|only| only == name), name, target));
    assert!(chosen.iter().any(|(is_chosen, ..)| *is_chosen), "no target is called {only:?}");
    for (_, name, target) in chosen.into_iter().filter(|(is_chosen, ..)| *is_chosen) {
        let mut rng = StdRng::seed_from_u64(number("FUZZ_SEED", 1));
        let seeds = seeds(name);
        let mutated = (0..runs).map(|_| mutate(&seeds, &mut rng));
        for input in seeds.iter().cloned().chain(mutated) {
            let survived = catch_unwind(AssertUnwindSafe(|| target(&input)));
            assert!(survived.is_ok(), "{name} fails on \"{}\"", input.escape_ascii());
        }
    }
}
