use crate::spans::expression::Span;
use crate::spans::walk::{self, END};

/// Positions of `a`, `b` and `c` (leaves 0 to 2) in a text of words.
fn positions(text: &str) -> Vec<Vec<u32>> {
    let of = |word: &str| {
        let words = text.split(' ').enumerate();
        words.filter(|(_, own)| *own == word).map(|(at, _)| at as u32).collect()
    };
    vec![of("a"), of("b"), of("c")]
}

/// Lists the spans as `start-end/width`.
fn found(span: &Span, text: &str) -> String {
    let (mut walk, positions) = (walk::over(span), positions(text));
    let mut spans = Vec::new();
    // Walked twice: a walk that is reset begins anew.
    for _ in 0..2 {
        spans.clear();
        walk.reset();
        while walk.next(&positions) != END {
            spans.push(format!("{}-{}/{}", walk.start(), walk.end(), walk.width()));
        }
        assert_eq!((walk.start(), walk.next(&positions)), (END, END));
    }
    spans.join(" ")
}

fn boxed(span: &Span) -> Box<Span> {
    Box::new(span.clone())
}

/// The spans that Lucene's `Spans` of the same queries have.
#[test]
fn walks_find_the_spans_of_lucene() {
    let [a, b, c] = [Span::Leaf(0), Span::Leaf(1), Span::Leaf(2)];
    let near = |parts: &[&Span], slop: i64, in_order: bool| Span::Near {
        parts: parts.iter().map(|part| (*part).clone()).collect(),
        slop,
        in_order,
    };
    let any = |parts: &[&Span]| Span::Any(parts.iter().map(|part| (*part).clone()).collect());
    let without = |include: &Span, exclude: &Span, around: (i64, i64)| Span::Without {
        include: boxed(include),
        exclude: boxed(exclude),
        around,
    };
    let nothing = Span::Nothing("f:x".to_owned());
    let ab = near(&[&a, &b], 1, true);
    let cases = [
        (a.clone(), "a x a", "0-1/0 2-3/0"),
        (near(&[&a, &b], 0, true), "a b x a x b", "0-2/0"),
        (near(&[&a, &b], 1, true), "a b x a x b", "0-2/0 3-6/1"),
        (near(&[&a, &b], 9, true), "a a b", "0-3/1 1-3/0"),
        (near(&[&a, &a], 9, true), "a x a a", "0-3/1 2-4/0"),
        (near(&[&a, &Span::Gap(2), &b], 0, true), "a x x b a x b", "0-4/0"),
        (near(&[&Span::Gap(1), &b], 0, true), "a b b", "0-2/0 1-3/0"),
        (near(&[&Span::Gap(1), &b], 1, true), "a x x x x b b", "3-6/1 4-6/0 5-7/0"),
        (near(&[&Span::Gap(1), &Span::Gap(1)], 0, true), "a b", ""),
        (Span::Gap(1), "a b", ""),
        (any(&[&a, &Span::Gap(1)]), "a b", "0-1/0"),
        (without(&a, &Span::Gap(1), (0, 0)), "a b", "0-1/0"),
        (near(&[&a, &b], 0, false), "b a x b a b", "0-2/2 3-5/2 4-6/2"),
        (near(&[&a, &b], 1, false), "b x a", "0-3/3"),
        (near(&[&a, &b], 0, false), "a a a", ""),
        (near(&[&near(&[&a, &b], 0, true), &c], 1, false), "c x a b", "0-4/4"),
        (any(&[&a, &ab]), "a x b a", "0-1/0 0-3/1 3-4/0"),
        (any(&[&a, &nothing]), "a b", "0-1/0"),
        (any(&[]), "a b", ""),
        (without(&a, &b, (0, 0)), "a b a", "0-1/0 2-3/0"),
        (without(&a, &b, (0, 1)), "a b a", "2-3/0"),
        (without(&a, &b, (1, 0)), "a b a", "0-1/0"),
        (without(&ab, &c, (0, 0)), "a c b a b", "3-5/0"),
        (without(&a, &nothing, (3, 3)), "a b", "0-1/0"),
        (Span::First(boxed(&ab), 3), "a x b a b", "0-3/1"),
        (Span::First(boxed(&ab), 2), "a x b a b", ""),
        (Span::Containing { big: boxed(&ab), little: boxed(&c) }, "a c b a b", "0-3/1"),
        (Span::Within { big: boxed(&ab), little: boxed(&c) }, "c a c b c", "2-3/0"),
        (Span::Masked(boxed(&a), "g".to_owned()), "b a", "1-2/0"),
    ];
    for (span, text, expected) in cases {
        assert_eq!(found(&span, text), expected, "{span:?} in {text}");
    }
}

#[test]
fn spans_tell_the_terms_that_they_are_made_of() {
    let span = Span::Near {
        parts: vec![
            Span::Any(vec![Span::Leaf(0), Span::Leaf(1)]),
            Span::Without { include: boxed(&Span::Leaf(2)), exclude: boxed(&Span::Leaf(0)), around: (0, 0) },
        ],
        slop: 1,
        in_order: false,
    };
    let (mut walk, positions) = (walk::over(&span), positions("b x c a"));
    let mut made = Vec::new();
    while walk.next(&positions) != END {
        walk.collect(&mut |leaf, position| made.push((leaf, position)));
    }
    assert_eq!(made, [(1, 0), (2, 2), (0, 3), (2, 2)]);
    let mut leaves = Vec::new();
    span.for_each_leaf(&mut |leaf| leaves.push(leaf));
    assert_eq!(leaves, [0, 1, 2]);
}
