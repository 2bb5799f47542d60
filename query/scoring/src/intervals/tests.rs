use millrace_dsl::query::Relation;

use crate::intervals::evaluate::intervals;
use crate::intervals::source::Source;

/// Positions of `a`, `b` and `c` (leaves 0 to 2) in a text of words.
fn positions(text: &str) -> Vec<Vec<u32>> {
    let of = |word: &str| {
        let words = text.split(' ').enumerate();
        words.filter(|(_, own)| *own == word).map(|(at, _)| at as u32).collect()
    };
    vec![of("a"), of("b"), of("c")]
}

fn found(source: &Source, text: &str) -> String {
    let list = intervals(source, &positions(text));
    list.iter().map(|own| format!("{}-{}", own.start, own.end)).collect::<Vec<_>>().join(" ")
}

#[test]
fn intervals_are_minimal() {
    let [a, b, c] = [Source::Leaf(0), Source::Leaf(1), Source::Leaf(2)];
    let any = |parts: &[&Source]| Source::any(parts.iter().map(|part| (*part).clone()).collect());
    let ordered = |parts: &[&Source]| Source::ordered(parts.iter().map(|part| (*part).clone()).collect());
    let unordered = |parts: &[&Source]| Source::unordered(parts.iter().map(|part| (*part).clone()).collect());
    let block =
        |parts: &[&Source]| Source::block(parts.iter().map(|part| (*part).clone()).collect()).unwrap();
    let ab = ordered(&[&a, &b]);
    let cases = [
        (ordered(&[&a, &b]), "a x a b x b", "2-3"),
        (ordered(&[&a, &b]), "a b a x b", "0-1 2-4"),
        (ordered(&[&a, &a, &b]), "a x a b", "0-3"),
        (unordered(&[&a, &b]), "b x a b x a", "0-2 2-3 3-5"),
        (unordered(&[&a, &a]), "a x a a", "0-2 2-3"),
        (block(&[&a, &b]), "a x b a b", "3-4"),
        (block(&[&any(&[&a, &block(&[&a, &b])]), &c]), "a b c a c", "0-2 3-4"),
        (any(&[&a, &ab]), "a x b", "0-0"),
        (unordered(&[&a, &b]).max_gaps(1), "a x x b x a", "3-5"),
        (a.clone().behind(2), "x x x a", "1-3"),
        (a.clone().related(Relation::Before, b.clone()), "a b a", "0-0"),
        (a.clone().related(Relation::After, b.clone()), "a b a", "2-2"),
        (ab.clone().related(Relation::Containing, c.clone()), "a c b a b", "0-2"),
        (ab.clone().related(Relation::NotContaining, c.clone()), "a c b a b", "3-4"),
        (c.clone().related(Relation::ContainedBy, ab.clone()), "c a c b c", "2-2"),
        (c.clone().related(Relation::NotContainedBy, ab.clone()), "c a c b c", "0-0 4-4"),
        (ab.clone().related(Relation::Overlapping, ordered(&[&c, &b])), "a c b a b", "0-2"),
        (ab.clone().related(Relation::NotOverlapping, ordered(&[&c, &b])), "a c b a b", "3-4"),
    ];
    for (source, text, expected) in cases {
        assert_eq!(found(&source, text), expected, "{source:?} in {text}");
    }
}
