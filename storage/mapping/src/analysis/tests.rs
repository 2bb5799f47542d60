use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{Analyzer, Analyzers, Component};

fn analyzers(settings: Value) -> millrace_runtime::Result<Analyzers> {
    let settings: Map<String, Value> = settings.as_object().expect("an object").clone();
    Analyzers::new(&settings)
}

fn tokens(analyzers: &Analyzers, name: &str, text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    analyzers
        .get(name)
        .expect("the analyzer exists")
        .analyze(text, &mut |token| tokens.push(token.text.clone()));
    tokens
}

fn positions(analyzers: &Analyzers, name: &str, text: &str) -> Vec<(String, u32)> {
    let mut tokens = Vec::new();
    analyzers
        .get(name)
        .expect("the analyzer exists")
        .analyze(text, &mut |token| tokens.push((token.text.clone(), token.position)));
    tokens
}

#[test]
fn built_in_analyzers_cut_as_documented() {
    let built_in = analyzers(json!({})).unwrap();
    // The example of the reference documentation of each.
    let text = "The 2 QUICK Brown-Foxes jumped over the lazy dog's bone.";
    let cases: [(&str, &[&str]); 7] = [
        (
            "standard",
            &["the", "2", "quick", "brown", "foxes", "jumped", "over", "the", "lazy", "dog's", "bone"],
        ),
        ("simple", &["the", "quick", "brown", "foxes", "jumped", "over", "the", "lazy", "dog", "s", "bone"]),
        (
            "whitespace",
            &["The", "2", "QUICK", "Brown-Foxes", "jumped", "over", "the", "lazy", "dog's", "bone."],
        ),
        ("keyword", &[text]),
        ("stop", &["quick", "brown", "foxes", "jumped", "over", "lazy", "dog", "s", "bone"]),
        (
            "pattern",
            &["the", "2", "quick", "brown", "foxes", "jumped", "over", "the", "lazy", "dog", "s", "bone"],
        ),
        ("english", &["2", "quick", "brown", "fox", "jump", "over", "lazi", "dog", "bone"]),
    ];
    for (name, expected) in cases {
        assert_eq!(tokens(&built_in, name, text), expected, "{name}");
    }
}

#[test]
fn standard_follows_uax_29_and_lucene() {
    let built_in = analyzers(json!({})).unwrap();
    let cases: [(&str, &[&str]); 16] = [
        ("can't 3.14 a.b foo_bar 1,000", &["can't", "3.14", "a.b", "foo_bar", "1,000"]),
        ("GET /english/index.html HTTP/1.0", &["get", "english", "index.html", "http", "1.0"]),
        ("10.0.0.1:8080 a:b 1:2", &["10.0.0.1", "8080", "a:b", "1", "2"]),
        ("_ __ _a a_ 'a' \"b\"", &["_a", "a_", "a", "b"]),
        ("a.1 1.a a'1 1a.2b", &["a", "1", "1", "a", "a", "1", "1a", "2b"]),
        ("naïve Café ÀÉ", &["naïve", "café", "àé"]),
        ("日本語", &["日", "本", "語"]),
        ("ひらカタカナ", &["ひ", "ら", "カタカナ"]),
        ("한국어 단어", &["한국어", "단어"]),
        ("สวัสดีครับ abc", &["สวัสดีครับ", "abc"]),
        ("½ ² ① 5", &["5"]),
        ("😀 a👨‍👩‍👧b 🇫🇷 ©", &["😀", "a", "👨‍👩‍👧", "b", "🇫🇷", "©"]),
        ("İstanbul ΣΑΣ", &["istanbul", "σασ"]),
        ("a\u{a0}b", &["a", "b"]),
        ("", &[]),
        ("--- ... !!!", &[]),
    ];
    for (text, expected) in cases {
        assert_eq!(tokens(&built_in, "standard", text), expected, "{text:?}");
    }
}

#[test]
fn long_words_are_cut_into_pieces() {
    let built_in = analyzers(json!({})).unwrap();
    for letter in ["a", "é"] {
        let lengths: Vec<usize> =
            tokens(&built_in, "standard", &letter.repeat(600)).iter().map(|t| t.chars().count()).collect();
        assert_eq!(lengths, [255, 255, 90]);
    }
    let mut cut = false;
    let mut length = 0;
    let long = "é".repeat(20_000);
    cut |= built_in.get("keyword").unwrap().analyze(&long, &mut |token| length = token.text.len());
    assert!(cut);
    assert_eq!(length, 32_766);
}

#[test]
fn long_words_beyond_ascii_are_cut_at_the_same_places() {
    let built_in = analyzers(json!({})).unwrap();
    let word = format!("é{}", "a1".repeat(100_000));
    let cut = tokens(&built_in, "standard", &format!("{word} end"));
    assert_eq!(cut.concat(), format!("{word}end"));
    assert!(cut.iter().rev().skip(2).all(|token| token.chars().count() == 255), "{}", cut.len());
}

#[test]
fn markup_that_is_never_closed_is_read_once() {
    let analyzers = analyzers(json!({
        "index.analysis.analyzer.a.tokenizer": "keyword",
        "index.analysis.analyzer.a.char_filter.0": "html_strip",
    }))
    .unwrap();
    for opening in ["<?", "<!", "<![CDATA["] {
        // Each of these costs a search of a megabyte otherwise.
        let text = opening.repeat(1_000_000 / opening.len());
        let made: usize = tokens(&analyzers, "a", &text).iter().map(String::len).sum();
        assert!(made > 0, "{opening}");
    }
}

#[test]
fn custom_analyzers_chain_filters() {
    let custom = analyzers(json!({
        "index.analysis.tokenizer.commas.type": "pattern",
        "index.analysis.tokenizer.commas.pattern": "\\s*,\\s*",
        "index.analysis.filter.short.type": "truncate",
        "index.analysis.filter.short.length": "3",
        "index.analysis.filter.mine.type": "stop",
        "index.analysis.filter.mine.stopwords": ["foo", "bar"],
        "index.analysis.filter.both.type": "asciifolding",
        "index.analysis.filter.both.preserve_original": "true",
        "index.analysis.analyzer.a.type": "custom",
        "index.analysis.analyzer.a.tokenizer": "commas",
        "index.analysis.analyzer.a.filter": ["lowercase", "asciifolding", "short"],
        "index.analysis.analyzer.b.tokenizer": "whitespace",
        "index.analysis.analyzer.b.filter.0": "mine",
        "index.analysis.analyzer.b.filter.1": "unique",
        "index.analysis.analyzer.c.tokenizer": "keyword",
        "index.analysis.analyzer.c.filter": "both",
        "index.analysis.analyzer.d.type": "standard",
        "index.analysis.analyzer.d.max_token_length": 5,
        "index.analysis.analyzer.d.stopwords": "_english_",
    }))
    .unwrap();
    assert_eq!(tokens(&custom, "a", "Électricité , ÜBER,œuvre"), ["ele", "ube", "oeu"]);
    assert_eq!(
        positions(&custom, "b", "x foo y x bar z"),
        [("x".to_owned(), 0), ("y".to_owned(), 2), ("z".to_owned(), 4)]
    );
    assert_eq!(positions(&custom, "c", "é"), [("e".to_owned(), 0), ("é".to_owned(), 0)]);
    assert_eq!(positions(&custom, "d", "the jumping"), [("jumpi".to_owned(), 1), ("ng".to_owned(), 2)]);
}

#[test]
fn normalizers_map_values() {
    let custom = analyzers(json!({
        "index.analysis.normalizer.fold.type": "custom",
        "index.analysis.normalizer.fold.filter": ["lowercase", "asciifolding"],
    }))
    .unwrap();
    assert_eq!(custom.normalize("fold", "Crème Brûlée ß").as_deref(), Some("creme brulee ss"));
    assert_eq!(custom.normalize("fold", "ŉŀẚẜỺꜩꝧﬅ…ᴬₜ｜").as_deref(), Some("nlaslltzthﬅ…ᴬₜ｜"));
    assert_eq!(custom.normalize("lowercase", "ÀB c").as_deref(), Some("àb c"));
    assert_eq!(custom.normalize("none", "x"), None);
}

#[test]
fn what_is_not_built_is_refused_in_opensearch_words() {
    let cases = [
        (json!({"index.analysis.analyzer.x.type": "kuromoji"}), "Unknown analyzer type [kuromoji] for [x]"),
        (json!({"index.analysis.tokenizer.x.type": "icu"}), "Unknown tokenizer type [icu] for [x]"),
        (json!({"index.analysis.filter.x.type": "odd"}), "Unknown filter type [odd] for [x]"),
        (json!({"index.analysis.char_filter.x.type": "odd"}), "Unknown char_filter type [odd] for [x]"),
        (json!({"index.analysis.normalizer.x.type": "odd"}), "Unknown normalizer type [odd] for [x]"),
        (
            json!({"index.analysis.analyzer.x.filter": "lowercase"}),
            "analyzer [x] must specify either an analyzer type, or a tokenizer",
        ),
        (
            json!({"index.analysis.analyzer.x.type": "custom"}),
            "Custom Analyzer [x] must be configured with a tokenizer",
        ),
        (
            json!({"index.analysis.analyzer.x.tokenizer": "odd"}),
            "Custom Analyzer [x] failed to find tokenizer under name [odd]",
        ),
        (
            json!({"index.analysis.analyzer.x.tokenizer": "standard", "index.analysis.analyzer.x.filter": "odd"}),
            "Custom Analyzer [x] failed to find filter under name [odd]",
        ),
        (
            json!({"index.analysis.normalizer.x.type": "custom", "index.analysis.normalizer.x.filter": ["stop"]}),
            "Custom normalizer [x] may not use filter [stop]",
        ),
        (
            json!({"index.analysis.filter.s.type": "synonym", "index.analysis.filter.s.synonyms": ["a, b"],
                "index.analysis.analyzer.x.tokenizer": "standard",
                "index.analysis.analyzer.x.filter": ["keyword_repeat", "s"]}),
            "Token filter [keyword_repeat] cannot be used to parse synonyms",
        ),
    ];
    for (settings, expected) in cases {
        assert_eq!(analyzers(settings).unwrap_err().to_string(), expected);
    }
}

#[test]
fn stems_by_the_original_algorithm() {
    // Examples of the paper, and words that the later Snowball stemmer cuts otherwise.
    let cases = [
        ("caresses", "caress"),
        ("ponies", "poni"),
        ("ties", "ti"),
        ("caress", "caress"),
        ("cats", "cat"),
        ("feed", "feed"),
        ("agreed", "agre"),
        ("plastered", "plaster"),
        ("bled", "bled"),
        ("motoring", "motor"),
        ("sing", "sing"),
        ("conflated", "conflat"),
        ("troubled", "troubl"),
        ("sized", "size"),
        ("hopping", "hop"),
        ("tanned", "tan"),
        ("falling", "fall"),
        ("hissing", "hiss"),
        ("fizzed", "fizz"),
        ("failing", "fail"),
        ("filing", "file"),
        ("happy", "happi"),
        ("sky", "sky"),
        ("relational", "relat"),
        ("conditional", "condit"),
        ("valenci", "valenc"),
        ("digitizer", "digit"),
        ("radicalli", "radic"),
        ("differentli", "differ"),
        ("vileli", "vile"),
        ("analogousli", "analog"),
        ("vietnamization", "vietnam"),
        ("predication", "predic"),
        ("operator", "oper"),
        ("feudalism", "feudal"),
        ("decisiveness", "decis"),
        ("hopefulness", "hope"),
        ("callousness", "callous"),
        ("formaliti", "formal"),
        ("sensitiviti", "sensit"),
        ("sensibiliti", "sensibl"),
        ("triplicate", "triplic"),
        ("formative", "form"),
        ("formalize", "formal"),
        ("electriciti", "electr"),
        ("electrical", "electr"),
        ("hopeful", "hope"),
        ("goodness", "good"),
        ("revival", "reviv"),
        ("allowance", "allow"),
        ("inference", "infer"),
        ("airliner", "airlin"),
        ("gyroscopic", "gyroscop"),
        ("adjustable", "adjust"),
        ("defensible", "defens"),
        ("irritant", "irrit"),
        ("replacement", "replac"),
        ("adjustment", "adjust"),
        ("dependent", "depend"),
        ("adoption", "adopt"),
        ("homologou", "homolog"),
        ("communism", "commun"),
        ("activate", "activ"),
        ("angulariti", "angular"),
        ("homologous", "homolog"),
        ("effective", "effect"),
        ("bowdlerize", "bowdler"),
        ("probate", "probat"),
        ("rate", "rate"),
        ("cease", "ceas"),
        ("controll", "control"),
        ("roll", "roll"),
        ("possibly", "possibl"),
        ("apology", "apolog"),
        ("dying", "dy"),
        ("generically", "gener"),
        ("news", "new"),
        ("is", "is"),
        // Letters outside ASCII are consonants, as in Lucene.
        ("cafés", "café"),
        ("façades", "façad"),
        ("naïveness", "naïv"),
        ("áente", "áent"),
        ("rđs", "rđ"),
        ("éés", "éé"),
        ("aéééd", "aéééd"),
        ("x😀😀ing", "x😀😀ing"),
        ("a😀ing", "a😀"),
        ("😀s", "😀"),
    ];
    for (word, expected) in cases {
        let mut stemmed = word.to_owned();
        super::filter::porter_stem(&mut stemmed);
        assert_eq!(stemmed, expected, "{word}");
    }
}

fn component(value: &Value) -> Component {
    match value {
        Value::Object(definition) => Component::Inline(definition.clone()),
        other => Component::Named(other.as_str().expect("a name").to_owned()),
    }
}

fn components(case: &Value, key: &str) -> Vec<Component> {
    case[key].as_array().map(|items| items.iter().map(component).collect()).unwrap_or_default()
}

/// Cases with the tokens that OpenSearch 2.19 answered, one a line.
fn cases() -> Vec<Value> {
    include_str!("cases.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).expect("a case is JSON"))
        .collect()
}

fn with_analyzer<T>(analyzers: &Analyzers, case: &Value, run: impl FnOnce(&Analyzer) -> T) -> T {
    match case["analyzer"].as_str() {
        Some(name) => run(analyzers.get(name).unwrap_or_else(|| panic!("{name} is built"))),
        None => {
            let tokenizer = (!case["tokenizer"].is_null()).then(|| component(&case["tokenizer"]));
            let (char_filters, filters) = (components(case, "char_filter"), components(case, "filter"));
            let custom = analyzers.custom(tokenizer.as_ref(), &char_filters, &filters);
            run(&custom.unwrap_or_else(|error| panic!("{case}: {error}")))
        }
    }
}

#[test]
fn tokens_are_those_of_opensearch() {
    let analyzers = Analyzers::global().unwrap();
    let mut wrong = Vec::new();
    for case in cases() {
        let text = case["text"].as_str().expect("a text");
        let mut tokens = Vec::new();
        with_analyzer(&analyzers, &case, |analyzer| {
            analyzer.run_until(text, usize::MAX, &mut |token| {
                tokens.push(json!([
                    token.text,
                    token.position,
                    token.start,
                    token.end,
                    token.position_length,
                    token.kind
                ]));
            });
        });
        if Value::Array(tokens.clone()) != case["tokens"] {
            wrong.push(format!("{case}\n  found {}", Value::Array(tokens)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The chains of all cases, named by the case.
fn chains() -> &'static [(String, Analyzer)] {
    static CHAINS: std::sync::LazyLock<Vec<(String, Analyzer)>> = std::sync::LazyLock::new(|| {
        let analyzers = Analyzers::global().unwrap();
        let custom = cases().into_iter().filter(|case| case["analyzer"].is_null());
        custom
            .map(|case| {
                let tokenizer = (!case["tokenizer"].is_null()).then(|| component(&case["tokenizer"]));
                let (char_filters, filters) = (components(&case, "char_filter"), components(&case, "filter"));
                let name = format!("{} {} {}", case["tokenizer"], case["char_filter"], case["filter"]);
                (name, analyzers.custom(tokenizer.as_ref(), &char_filters, &filters).unwrap())
            })
            .collect()
    });
    &CHAINS
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    /// Tests that tokens lie within any text, in order of their positions.
    #[test]
    fn every_chain_survives_any_text(text in "[a-cA-C0-2 .,'&<>;/@_éßİıΣ日本カ한ส😀\u{200d}🇫\u{301}\u{ffff}-]{0,40}|\\PC{0,40}") {
        let units = u32::try_from(text.encode_utf16().count()).unwrap();
        let global = Analyzers::global().unwrap();
        let named = super::build::BUILT_IN.iter().map(|name| (*name, global.get(name).expect("it is built")));
        for (name, analyzer) in named.chain(chains().iter().map(|(name, chain)| (name.as_str(), chain))) {
            let mut last = 0;
            let outcome = analyzer.run_until(&text, usize::MAX, &mut |token| {
                assert!(token.start <= token.end, "{name} of {text:?}: {token:?}");
                assert!(token.end <= units, "{name} of {text:?}: {token:?}");
                assert!(token.position >= last, "{name} of {text:?}: {token:?} behind {last}");
                last = token.position;
            });
            assert!(outcome.positions <= 4 * units + 4, "{name} of {text:?}: {outcome:?}");
        }
    }
}

#[test]
fn filters_that_multiply_tokens_are_bounded() {
    let difference = analyzers(json!({
        "index.analysis.filter.wide.type": "ngram",
        "index.analysis.filter.wide.min_gram": 1,
        "index.analysis.filter.wide.max_gram": 50,
    }));
    assert!(difference.unwrap_err().to_string().contains("index.max_ngram_diff"));
    let words: Vec<String> = (0..1_200).map(|number| format!("w{number}")).collect();
    let synonyms = analyzers(json!({
        "index.analysis.filter.many.type": "synonym_graph",
        "index.analysis.filter.many.synonyms": [words.join(",")],
        "index.analysis.analyzer.a.tokenizer": "standard",
        "index.analysis.analyzer.a.filter": ["many"],
    }));
    assert!(synonyms.unwrap_err().to_string().contains("synonym rules"));
    let nested = analyzers(json!({
        "index.analysis.filter.self.type": "multiplexer",
        "index.analysis.filter.self.filters": ["self"],
        "index.analysis.analyzer.a.tokenizer": "standard",
        "index.analysis.analyzer.a.filter": ["self"],
    }));
    assert!(nested.unwrap_err().to_string().contains("nested too deeply"));
}

#[test]
fn terms_that_are_not_cut_are_normalized() {
    let analyzers = analyzers(json!({
        "index.analysis.analyzer.a.tokenizer": "standard",
        "index.analysis.analyzer.a.filter": ["lowercase", "asciifolding", "stop", "porter_stem"],
    }))
    .unwrap();
    assert_eq!(analyzers.get("a").unwrap().normalize("ÉTudes The"), "etudes the");
    assert_eq!(analyzers.get("standard").unwrap().normalize("ABc-D"), "abc-d");
    assert_eq!(analyzers.get("whitespace").unwrap().normalize("ABc"), "ABc");
}

#[test]
fn what_a_text_is_made_into_is_bounded_and_told() {
    let long = "b ".repeat(5000);
    let analyzers = analyzers(json!({
        "index.analysis.char_filter.mapping.type": "mapping",
        "index.analysis.char_filter.mapping.mappings": [format!("a => {long}")],
        "index.analysis.char_filter.pattern.type": "pattern_replace",
        "index.analysis.char_filter.pattern.pattern": "a",
        "index.analysis.char_filter.pattern.replacement": long,
        "index.analysis.char_filter.doubled.type": "pattern_replace",
        "index.analysis.char_filter.doubled.pattern": "(.+)",
        "index.analysis.char_filter.doubled.replacement": "$1 $1".repeat(1000),
        "index.analysis.filter.pattern.type": "pattern_replace",
        "index.analysis.filter.pattern.pattern": "a",
        "index.analysis.filter.pattern.replacement": long,
        "index.analysis.tokenizer.path.type": "path_hierarchy",
        "index.analysis.analyzer.mapping.type": "custom",
        "index.analysis.analyzer.mapping.tokenizer": "whitespace",
        "index.analysis.analyzer.mapping.char_filter": ["mapping"],
        "index.analysis.analyzer.pattern.type": "custom",
        "index.analysis.analyzer.pattern.tokenizer": "whitespace",
        "index.analysis.analyzer.pattern.char_filter": ["pattern"],
        "index.analysis.analyzer.chain.type": "custom",
        "index.analysis.analyzer.chain.tokenizer": "whitespace",
        "index.analysis.analyzer.chain.char_filter": ["doubled", "pattern", "doubled", "mapping", "doubled"],
        "index.analysis.analyzer.token.type": "custom",
        "index.analysis.analyzer.token.tokenizer": "keyword",
        "index.analysis.analyzer.token.filter": ["pattern"],
        "index.analysis.analyzer.path.type": "custom",
        "index.analysis.analyzer.path.tokenizer": "path",
    }))
    .unwrap();
    let most = 2 * 30_000 + (1 << 20);
    for name in ["mapping", "pattern", "chain", "token", "path"] {
        let analyzer = analyzers.get(name).unwrap();
        let text = if name == "path" { "/aa".repeat(60_000) } else { "a".repeat(30_000) };
        let (mut longest, mut all) = (0, 0);
        let cut = analyzer.analyze(&text, &mut |token| {
            longest = longest.max(token.text.len());
            all += token.text.len();
            assert!(token.start <= token.end && token.end as usize <= text.len(), "{name}: {token:?}");
        });
        assert!(cut, "{name}");
        assert!(name == "path" || all <= most, "{name}: {all}");
        assert!(longest <= crate::term::MAX_TERM_BYTES, "{name}: {longest}");
        // A short text is made longer as it is told to be.
        assert!(!analyzer.analyze("a/b", &mut |_| {}) || name == "chain", "{name}");
    }
    let path = analyzers.get("path").unwrap();
    let mut longest = 0;
    path.run_until(&"/aa".repeat(3_000_000), 0, &mut |token| longest = longest.max(token.text.len()));
    assert!(longest < 1 << 18, "{longest}");
}
