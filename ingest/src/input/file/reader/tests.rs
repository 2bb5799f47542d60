//! Tests of the provenance of events, however reading is cut.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::codec::Codec;
use crate::{Location, Options, Provenance, Setting, codec};

fn codec(name: &str, given: &[(&str, &str)]) -> Arc<dyn Codec> {
    let given = given
        .iter()
        .map(|(name, value)| ((*name).to_owned(), Location::default(), Setting::Text((*value).to_owned())));
    codec::build(Options::new(name, Location::default(), given)).unwrap()
}

/// Fields of events, with where they are from.
type SeenEvents = Vec<(String, Provenance)>;

/// Reads a file in steps of so many events; with `true` reading begins anew behind it where all was in events.
fn read(path: &Path, codec: &dyn Codec, steps: &[(usize, bool)]) -> SeenEvents {
    let delimiter = Delimiter::new("\n", codec.charset());
    let open = |offset| {
        let file = File::open(path).unwrap();
        Reader::open(file, false, (offset, 0), codec.line_decoder(), &delimiter, u64::MAX).unwrap()
    };
    let mut reader = open(0);
    let mut seen = Vec::new();
    let mut note = |events: Events| {
        for event in events.into_vec() {
            let text = serde_json::to_string(event.fields()).unwrap();
            seen.push((text, event.provenance().unwrap()));
        }
    };
    for (most, again) in steps.iter().cycle() {
        let Chunk { events, at_end } = reader.read(*most, u64::MAX).unwrap();
        let done = at_end && events.is_empty();
        note(events);
        if done {
            break;
        }
        if *again {
            reader = open(reader.safe());
        }
    }
    let mut rest = Events::default();
    reader.finish(true, &mut rest);
    note(rest);
    seen
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_two_cuttings_say_the_same(
        lines in prop::collection::vec("[a-c ]{0,6}|\\[\\{\"a\":1\\},\\{\"a\":1\\}\\]|\\{\"a\":2\\} \\{\"a\":2\\}", 1..60),
        one in prop::collection::vec((1_usize..9, any::<bool>()), 1..12),
        other in prop::collection::vec((1_usize..9, any::<bool>()), 1..12),
        which in 0_usize..4,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, lines.join("\n")).unwrap();
        let codec = match which {
            0 => codec("plain", &[]),
            1 => codec("json", &[]),
            2 => codec("multiline", &[("pattern", "^ "), ("what", "previous"), ("max_lines", "3")]),
            _ => codec("multiline", &[("pattern", "a$"), ("what", "next"), ("max_lines", "3")]),
        };
        let whole = read(&path, &*codec, &[(usize::MAX, false)]);
        let mut places: Vec<Provenance> = whole.iter().map(|(_, from)| *from).collect();
        places.dedup();
        prop_assert_eq!(places.len(), whole.len(), "each event has its own");
        prop_assert_eq!(&read(&path, &*codec, &one), &whole);
        prop_assert_eq!(&read(&path, &*codec, &other), &whole);
    }
}

#[test]
fn long_lines_are_cut_at_the_same_places() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let mut file = OpenOptions::new().create(true).append(true).open(&path).unwrap();
    for length in [MAX_LINE - 1, MAX_LINE, MAX_LINE + 1, READ, 2 * MAX_LINE + 7] {
        file.write_all(&vec![b'x'; length]).unwrap();
        file.write_all(b"\n").unwrap();
    }
    let codec = codec("plain", &[]);
    let lengths = |seen: &SeenEvents| seen.iter().map(|(text, from)| (text.len(), *from)).collect::<Vec<_>>();
    let whole = lengths(&read(&path, &*codec, &[(usize::MAX, false)]));
    assert_eq!(whole.len(), 1 + 1 + 2 + 1 + 3);
    assert_eq!(lengths(&read(&path, &*codec, &[(1, true)])), whole);
}
