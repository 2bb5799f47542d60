use super::*;

fn pieces(text: &str, unit: Unit) -> Vec<String> {
    let units: Vec<u16> = text.encode_utf16().collect();
    let boundaries = Boundaries::new(&units, unit).places;
    boundaries.windows(2).map(|pair| String::from_utf16(&units[pair[0]..pair[1]]).unwrap()).collect()
}

#[test]
fn sentences_end_as_the_jdk_ends_them() {
    let cases: &[(&str, &[&str])] = &[
        ("Hello world. This is it.", &["Hello world. ", "This is it."]),
        ("Version 3.5 is e.g. good! Yes", &["Version 3.5 is e.g. good! ", "Yes"]),
        ("\"Yes.\" He said. no\nnewline\n\nPara", &["\"Yes.\" ", "He said. no\nnewline\n\nPara"]),
        ("One.\u{2029}two", &["One.\u{2029}", "two"]),
        ("what?! (so) they", &["what?! ", "(so) they"]),
        ("", &[]),
    ];
    for (text, expected) in cases {
        assert_eq!(pieces(text, Unit::Sentence), *expected, "{text}");
    }
}

#[test]
fn words_end_as_the_jdk_ends_them() {
    let cases: &[(&str, &[&str])] = &[
        ("don't stop-it 3.5% a1b", &["don't", " ", "stop-it", " ", "3.5%", " ", "a1b"]),
        ("$5,000.10 #1.", &["$5,000.10", " ", "#1", "."]),
        ("a  \r\nb", &["a", "  \r\n", "b"]),
        ("\u{30a2}\u{30fc}\u{4e2d}\u{3042}", &["\u{30a2}\u{30fc}", "\u{4e2d}", "\u{3042}"]),
    ];
    for (text, expected) in cases {
        assert_eq!(pieces(text, Unit::Word), *expected, "{text}");
    }
}

#[test]
fn boundaries_are_found_from_anywhere() {
    let units: Vec<u16> = "A b. C d.".encode_utf16().collect();
    let sentences = Boundaries::new(&units, Unit::Sentence);
    assert_eq!(
        (sentences.following(0), sentences.following(5), sentences.following(9)),
        (Some(5), Some(9), None)
    );
    assert_eq!(
        (sentences.preceding(9), sentences.preceding(5), sentences.preceding(0)),
        (Some(5), Some(0), None)
    );
}

#[test]
fn full_stops_before_marks_resume_sentences() {
    let units: Vec<u16> = "bb. -1c.;d".encode_utf16().collect();
    let sentences = Boundaries::new(&units, Unit::Sentence);
    assert_eq!(sentences.places, [0, 8, 10]);
    assert_eq!(
        (sentences.resumption(4), sentences.resumption(5), sentences.resumption(10)),
        (None, Some(2), Some(7))
    );
}
