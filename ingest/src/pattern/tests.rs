use std::fs;
use std::time::Duration;

use proptest::prelude::*;

use crate::EcsCompatibility;

use super::{Deadline, Expression, Kind, Library, MatchStopped, Pattern, Replacement};

fn compile(pattern: &str) -> Result<Pattern, String> {
    Pattern::compile(pattern, &Library::new(), true)
}

fn captured(pattern: &Pattern, text: &str) -> Option<Vec<(String, String)>> {
    let found = pattern.find(text, &Deadline::default()).unwrap()?;
    let names = pattern.captures().iter().map(|capture| capture.name.clone()).enumerate();
    let part = |at| found.range(at).map(|range| text[range].to_owned());
    Some(names.filter_map(|(at, name)| Some((name, part(at)?))).collect())
}

fn matches(pattern: &str, text: &str) -> bool {
    compile(pattern).unwrap().is_match(text, &Deadline::default()).unwrap()
}

#[test]
fn every_definition_compiles() {
    let library = Library::new();
    for name in library.names() {
        let compiled = Pattern::compile(&format!("%{{{name}}}"), &library, true);
        assert!(compiled.is_ok(), "{name}: {:?}", compiled.err());
    }
}

#[test]
fn definitions_of_the_schema_compile_and_name_their_fields() {
    let library = Library::with_ecs(EcsCompatibility::V8);
    for name in library.names() {
        let compiled = Pattern::compile(&format!("%{{{name}}}"), &library, true);
        assert!(compiled.is_ok(), "{name}: {:?}", compiled.err());
    }
    let pattern = Pattern::compile("%{COMMONAPACHELOG}", &library, true).unwrap();
    let line = r#"83.149.9.216 - frank [24/Feb/2015:23:13:42 +0000] "GET /a HTTP/1.1" 200 171"#;
    let found = captured(&pattern, line).unwrap();
    for (name, text) in
        [("[source][address]", "83.149.9.216"), ("[http][request][method]", "GET"), ("[user][name]", "frank")]
    {
        assert!(found.contains(&(name.to_owned(), text.to_owned())), "{name}: {found:?}");
    }
}

#[test]
fn characters_behind_the_name_of_a_field_have_no_meaning() {
    let pattern = compile("%{INT:[a][b]:int?} %{WORD:c d:int}").unwrap();
    assert_eq!((pattern.captures()[0].kind, pattern.captures()[1].kind), (Kind::Integer, Kind::Text));
    let found = captured(&pattern, "1 x").unwrap();
    assert_eq!(found, [("[a][b]".to_owned(), "1".to_owned()), ("c".to_owned(), "x".to_owned())]);
    let library = Library::with_ecs(EcsCompatibility::V8);
    let pattern = Pattern::compile("%{HTTPD_ERRORLOG}", &library, true).unwrap();
    let line = "[Fri Feb 01 22:03:08.319124 2019] [proxy:error] [pid 9:tid 140396576945920] (111)Connection refused: \
        AH00957: HTTP: attempt to connect to 127.0.0.1:8000 (localhost) failed";
    let found = captured(&pattern, line).unwrap();
    for (name, text) in [
        ("[apache][error][module]", "proxy"),
        ("[apache][error][proxy][error][code]", "111"),
        ("[apache][error][proxy][error][message]", "Connection refused"),
        ("[error][code]", "AH00957"),
    ] {
        assert!(found.contains(&(name.to_owned(), text.to_owned())), "{name}: {found:?}");
    }
}

#[test]
fn fields_are_captured_in_order() {
    let pattern = compile("%{IP:client} %{WORD:[http][method]} %{NUMBER:took:float} (?<rest>.*)").unwrap();
    let found = captured(&pattern, "55.3.244.1 GET 0.043 and more").unwrap();
    let found: Vec<(&str, &str)> = found.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    assert_eq!(
        found,
        [("client", "55.3.244.1"), ("[http][method]", "GET"), ("took", "0.043"), ("rest", "and more")]
    );
    assert_eq!(pattern.captures()[2].kind, Kind::Float);
    assert!(captured(&pattern, "no address").is_none());
}

#[test]
fn unnamed_ones_are_captured_on_demand() {
    let all = Pattern::compile("%{WORD} %{INT:n}", &Library::new(), false).unwrap();
    let found = captured(&all, "a 1").unwrap();
    assert!(found.contains(&("WORD".to_owned(), "a".to_owned())), "{found:?}");
}

#[test]
fn faults_name_what_is_wrong() {
    let mut library = Library::new();
    library.define("A", "%{B}").unwrap();
    library.define("B", "x%{A}").unwrap();
    let fault = |pattern: &str| Pattern::compile(pattern, &library, true).err().unwrap_or_default();
    assert!(fault("%{A:x}").contains("A -> B -> A"), "{}", fault("%{A:x}"));
    assert!(fault("%{COMBINEDAPACHELOGS}").contains("did you mean [COMBINEDAPACHELOG]?"));
    assert!(fault("(a").contains("[(a]"));
    assert!(fault("[a-z&&[^b]]").contains("&&"));
    assert!(fault("[a-[bc]]").contains("backslash before the [-]"));
    assert!(fault("(*ACCEPT)").contains("(*"));
    assert!(fault("(?~a)").contains("absent"));
    assert!(library.define("A-B", "x").is_err());
}

#[test]
fn definitions_that_grow_without_end_are_refused() {
    let mut library = Library::new();
    library.define("G0", "xxxxxxxxxxxxxxxx").unwrap();
    for level in 1..=20 {
        let before = level - 1;
        library.define(&format!("G{level}"), &format!("%{{G{before}}}%{{G{before}}}")).unwrap();
    }
    let fault = Pattern::compile("%{G20}", &library, true).unwrap_err();
    assert!(fault.contains("longer than"), "{fault}");
}

#[test]
fn files_of_definitions_are_read() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("own.grok"), "# a comment\nQUEUE [0-9A-F]{10,11}\n\n  SHORT  \\w{2}\n")
        .unwrap();
    fs::write(directory.path().join("own.txt"), "WORD never\n").unwrap();
    let mut library = Library::new();
    library.load(directory.path(), "*.grok").unwrap();
    let pattern = Pattern::compile("%{QUEUE:q}: %{SHORT:s} %{WORD:w}", &library, true).unwrap();
    assert_eq!(captured(&pattern, "BEF25A72965: ab cd").unwrap().len(), 3);
    assert!(library.load(&directory.path().join("none"), "*").unwrap_err().contains("none"));
}

#[test]
fn the_syntax_is_that_of_oniguruma() {
    for (pattern, text, expected) in [
        (r"^\h+$", "beef09", true),
        (r"^\h+$", "hello", false),
        (r"^[\h:]+$", "be:ef", true),
        (r"^b$", "a\nb\nc", true),
        ("a.b", "a\nb", true),
        ("^A.+Z$", "A\nb\nZ", true),
        ("(?m)a.b", "a\nb", true),
        ("(?m:a.)b", "a\nb", true),
        ("(?-m:a.)b", "a\nb", false),
        ("(?-m)a.b", "a\nb", false),
        ("a(?m-i:.)b", "a\nb", true),
        (r"\u00e4", "ä", true),
        (r"^[[:alpha:]]+$", "größe", true),
        (r"^[^[:alpha:]]+$", "größe", false),
        (r"^[[:digit:][a-c]]+$", "1a2b", true),
        ("^a{,2}b$", "aab", true),
        ("^a{,2}b$", "aaab", false),
        (r"^(?<x>a|b)\k<x>$", "aa", true),
        (r"^(?<x>a|b)\k<x>$", "ab", false),
        (r"(?<!a)b", "cb", true),
        (r"\Ab\z", "b\n", false),
        (r"\Ab\Z", "b\n", true),
        (r"(?i)ABC", "abc", true),
        ("a(?#no ( comment)b", "ab", true),
        (r"x\yz", "xyz", true),
        (r"[]a]+", "]a", true),
        (r"a++b", "aab", true),
        (r"^.?*b$", "aab", true),
        (r"^a{2}+b$", "aaaab", true),
        (r"^a{2}+b$", "aaab", false),
        (r"^(?:ab){1,2}{2}$", "ababab", true),
        (r"^a{x}$", "a{x}", true),
        (r"^x{$", "x{", true),
        (r"^x{}$", "x{}", true),
        (r"^*b", "ab", true),
        (r"^+b$?c", "ab", false),
        (r"\b*b\B{2}c", "abc", true),
        (r"^[a[:.,]b]+$", "a:.b,", true),
        (r"^[a[:.,]b]+$", "a[", false),
        (r"^[[:alpha:]:]+$", "a:b", true),
        // A hyphen at the end of a set within a set is a character.
        (r"^x[a[9+-]b]y$", "x:y", false),
        (r"^[a[9+-]b]+$", "a9+-b", true),
        (r"^[(a[0-9.+-])b]+$", "(0.+-)b", true),
        (r"^[9[-a]]$", "-", true),
        (r"^[9[-a]]$", ":", false),
        (r"^[-b[a]]+$", "-ba", true),
        // It does not end a range around it.
        (r"^[a[9]-z]+$", "9bz", true),
        (r"^[a-[x]d]+$", "bx", true),
        (r"^[a-c[x]-]+$", "b-x", true),
        (r"(?>a+)b", "aab", true),
    ] {
        assert_eq!(matches(pattern, text), expected, "{pattern} on {text:?}");
    }
}

#[test]
fn a_dot_does_not_match_ends_of_lines_outside_of_grok() {
    let matches = |expression: &str| {
        let expression = Expression::compile(expression).unwrap();
        expression.is_match("a\nb", &Deadline::default()).unwrap()
    };
    assert!(!matches("a.b") && matches("(?m)a.b") && matches("(?m:a.)b") && !matches("(?m)(?-m)a.b"));
}

#[test]
fn a_stack_trace_is_captured_whole() {
    let text = "ERROR first\n\tsecond\nthird";
    let found = captured(&compile("^%{LOGLEVEL:level} %{GREEDYDATA:rest}").unwrap(), text).unwrap();
    assert_eq!(found[1].1, "first\n\tsecond\nthird");
}

#[test]
fn patterns_may_name_large_definitions_often() {
    let (deadline, many) = (Deadline::within(Duration::from_secs(30)), 24);
    let address =
        |at: usize| if at.is_multiple_of(2) { format!("10.0.{at}.1") } else { format!("fe80::{at}") };
    for name in ["IP", "IPORHOST", "URI"] {
        let of =
            |at: usize| if name == "URI" { format!("http://a{at}.example/x?y={at}") } else { address(at) };
        let parts: Vec<String> = (0..many).map(|at| format!("%{{{name}:f{at}}}")).collect();
        let pattern = compile(&format!("^{}(?<rest>.*)$", parts.join(" "))).unwrap();
        let line = (0..many).map(of).collect::<Vec<_>>().join(" ");
        let found = captured(&pattern, &(line.clone() + " end")).unwrap();
        assert_eq!(found.len(), many + 1, "{name}");
        for (at, found) in found.iter().enumerate().take(many) {
            assert_eq!(*found, (format!("f{at}"), of(at)), "{name}");
        }
        // Where it does not match, it says so.
        if name != "URI" {
            assert!(pattern.find(&line.replacen(' ', "!", 1), &deadline).unwrap().is_none(), "{name}");
        }
    }
}

#[test]
fn a_large_pattern_that_does_not_match_at_once_leaves_time_for_others() {
    let parts: Vec<String> = (0..7).map(|at| format!("%{{DATA:k{at}}}=%{{IPORHOST:a{at}}}")).collect();
    let pattern = compile(&format!("^{}$", parts.join(" "))).unwrap();
    let line: Vec<String> = (0..7).map(|at| format!("s{at}=10.0.{at}.1")).collect();
    let deadline = Deadline::within(Duration::from_secs(30));
    assert!(pattern.find(&line.join(" "), &deadline).unwrap().is_some());
    assert!(pattern.find(&(line.join(" ") + " closed"), &deadline).unwrap().is_none());
}

#[test]
fn definitions_with_options_or_groups_are_not_shared() {
    let long = "x{0,1}".repeat(1_000);
    let mut library = Library::new();
    for (name, definition) in
        [("I", format!("(?i)a{long}")), ("G", format!("(?<g>b){long}")), ("B", format!("(c)\\1{long}"))]
    {
        library.define(name, &definition).unwrap();
    }
    for (pattern, text) in [("%{I}%{I}", "AA"), ("%{G}%{G}", "bb"), ("%{B}", "cc")] {
        let pattern = Pattern::compile(pattern, &library, true).unwrap();
        assert!(pattern.is_match(text, &Deadline::within(Duration::from_secs(30))).unwrap(), "{text}");
    }
}

#[test]
fn a_group_is_repeated_as_often_as_a_text_is_long() {
    let deadline = Deadline::within(Duration::from_secs(60));
    let pattern = compile(r"^(?<all>(.|\r|\n)*)$").unwrap();
    let text = "x\n".repeat(100_000);
    let found = pattern.find(&text, &deadline).unwrap().unwrap();
    assert_eq!(found.range(0), Some(0..text.len()));
}

#[test]
fn lines_match_the_definitions_that_are_made_for_them() {
    for (pattern, text, fields) in [
        (
            "RT_FLOW2",
            "RT_FLOW_SESSION_CREATE: session created 10.1.1.1/1234->10.2.2.2/53 junos-dns-udp 10.1.1.1/1234->10.2.2.2/53 None None 17 pol-a trust untrust 99 N/A",
            &[("src-ip", "10.1.1.1"), ("dst-port", "53")][..],
        ),
        (
            "ELB_ACCESS_LOG",
            "2026-01-01T00:00:00.000001Z lb-1 10.0.0.1:50000 - -1 -1 -1 504 - 0 0 \"GET http://a.example:80/ HTTP/1.1\"",
            &[("response", "504")],
        ),
        (
            "BACULA_LOGLINE",
            "24-Feb 16:36 dir-host: Pruned 24 Jobs for client c1 from catalog.",
            &[("bts", "24-Feb 16:36")],
        ),
        (
            "BIND9",
            "30-Jun-2026 15:50:00.999 queries: info: client @0x7f0000000000 10.0.0.1#60061 (a.example): query: a.example IN A + (10.0.0.2)",
            &[("clientip", "10.0.0.1")],
        ),
        (
            "SQUID3",
            "1426235912.366     17 10.0.0.1 TCP_MISS_ABORTED/000 0 GET http://a.example/ - HIER_DIRECT/- -",
            &[("status_code", "000")],
        ),
        (
            "EXIM",
            "2026-01-30 15:01:07 1dKFvt-0003wS-A4 <= abc@b.example H=h.example [10.0.0.1]:5555 P=esmtp S=100 id=x@y for cde@d.example",
            &[
                ("exim_sender_email", "abc@b.example"),
                ("remote_port", "5555"),
                ("exim_recipient_email", "cde@d.example"),
            ],
        ),
        ("LOGLEVEL:l", "INF", &[("l", "INF")]),
        ("UNIXPATH:p", "/opt/\u{17d}lu\u{165}/x", &[("p", "/opt/\u{17d}lu\u{165}/x")]),
    ] {
        let found = captured(&compile(&format!("%{{{pattern}}}")).unwrap(), text);
        let found = found.unwrap_or_else(|| panic!("{pattern} does not match"));
        for (field, value) in fields {
            assert!(found.contains(&((*field).to_owned(), (*value).to_owned())), "{pattern}: {found:?}");
        }
    }
}

/// Processor time of this thread, which a busy machine does not stretch.
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
}

#[test]
fn a_match_ends_when_its_time_is_over() {
    let time = Duration::from_millis(100);
    let many = |part: &str, bytes: usize| part.repeat(bytes / part.len());
    for (pattern, text) in [
        ("^(a+)+$", many("a", 50) + "!"),
        ("^(a+)+$", many("a", 1 << 20) + "!"),
        ("(a+)+$", many("a", 20_000) + "!"),
        ("(.*)*[xy]", many("a", 100_000)),
        ("(?:a|aa)+$", many("a", 3_000) + "!"),
        ("(%{HOSTNAME}+)+$", many("a.", 2_000) + "!"),
        ("^(.*),(.*),(.*),(.*),(.*),(.*),(.*),(.*)[xy]$", many("a,", 5_000)),
        // Each place takes a few steps less than it may.
        ("[a-z]{0,400}[a-z]*[0-9][a-z]*[a-z]*!", many("a", 1 << 20)),
        ("a*a*a*[xy]", many("a", 4_000)),
        ("a*a*a*[xy]", many("a", 200_000)),
        // Each step looks at all of the text.
        ("(?:(?>\\p{L}*)|.)*[xy]", many("ä", 2_000)),
        ("(?:(?>\\p{L}*)|.)*[xy]", many("ä", 1 << 20)),
        ("\\s+$", many(" ", 1 << 20) + "!"),
        ("(a*)(?:\\1)*[xy]", many("a", 100_000)),
        ("(?:(?=.*!)a)*[xy]", many("a", 100_000) + "!"),
        ("\\G(?:a|a)*[xy]", many("a", 100_000)),
    ] {
        let compiled = compile(pattern).unwrap();
        let began = processor_time();
        let ended = compiled.is_match(&text, &Deadline::within(time));
        let took = processor_time() - began;
        assert!(matches!(ended, Err(MatchStopped) | Ok(false)), "{pattern}");
        assert!(took < time + Duration::from_millis(100), "{pattern} on {} bytes took {took:?}", text.len());
    }
    let endless = compile("^(a+)+$").unwrap();
    assert_eq!(endless.is_match(&(many("a", 50) + "!"), &Deadline::within(time)), Err(MatchStopped));
}

#[test]
fn matches_that_need_many_steps_are_found() {
    let deadline = Deadline::within(Duration::from_secs(30));
    // Beyond the steps of the quick way, and found.
    let pattern = compile("^(?:a|b)*c(?<rest>.*)$").unwrap();
    let text = "ab".repeat(10_000) + "c!";
    let found = pattern.find(&text, &deadline).unwrap().unwrap();
    assert_eq!(found.range(0), Some(20_001..20_002));
    // The place of the match is behind others where the steps did not do, and in the middle of characters.
    let pattern = compile("(?:ä|ü)*?!(?<rest>x)").unwrap();
    let text = "ä".repeat(1_500) + "\n" + &"ü".repeat(400) + "!x";
    let found = pattern.find(&text, &deadline).unwrap().unwrap();
    assert_eq!(found.whole(), 3_001..text.len());
    // What stands before a place is seen.
    let expression = Expression::compile(r"(?<=a)\s+$|(?<=b)c").unwrap();
    let text = "x".repeat(300_000) + "bc";
    assert_eq!(expression.find_at(&text, 0, &deadline).unwrap(), Some(300_001..300_002));
    // A place within a character stands for the next one.
    let expression = Expression::compile("ä|b").unwrap();
    assert_eq!(expression.find_at("äb", 1, &deadline).unwrap(), Some(2..3));
    assert_eq!(expression.find_at("äb", 9, &deadline).unwrap(), None);
    // Where the search began is one place only.
    let expression = Expression::compile(r"\G,").unwrap();
    assert_eq!(expression.find_at(&("a".repeat(300_000) + ","), 0, &deadline).unwrap(), None);
}

#[test]
fn replacing_is_bounded() {
    let deadline = Deadline::within(Duration::from_secs(30));
    let expression = Expression::compile("a").unwrap();
    let replacement = Replacement::parse(&"b".repeat(1 << 20), &expression);
    assert_eq!(expression.replace_all(&"a".repeat(1 << 20), &replacement, &deadline), Err(MatchStopped));
    assert!(Expression::compile(&"a".repeat(70_000)).unwrap_err().contains("longer"));
    assert!(compile(&"(?:ab){60000}".repeat(3)).is_err());
}

#[test]
fn matches_are_replaced() {
    let replaced = |expression: &str, replacement: &str, text: &str| {
        let expression = Expression::compile(expression).unwrap();
        let replacement = Replacement::parse(replacement, &expression);
        expression.replace_all(text, &replacement, &Deadline::default()).unwrap()
    };
    for (expression, replacement, text, expected) in [
        ("/", "_", "a/b/c", Some("a_b_c")),
        (r"[\\?#-]", ".", "a\\b?c#d-e", Some("a.b.c.d.e")),
        (r"(\d+)-(\d+)", r"\2-\1", "1-2 3-4", Some("2-1 4-3")),
        (r"(?<a>\w)(?<b>\w)", r"\k<b>\k<a>", "abcd", Some("badc")),
        ("x", "y", "abc", None),
        ("", "-", "äb", Some("-ä-b-")),
        ("a*", "-", "baac", Some("-b--c-")),
        (r"b", r"[\0]\\\n", "abc", Some(r"a[b]\\nc")),
        ("^", "> ", "a\nb", Some("> a\n> b")),
    ] {
        assert_eq!(replaced(expression, replacement, text).as_deref(), expected, "{expression}");
    }
}

proptest! {
    #[test]
    fn nothing_panics(pattern in "[a-c%{}:()\\[\\]\\\\<>?*+|^$hkugdPw&~#'=!,.0-9-]{0,24}", text in "\\PC{0,40}") {
        let deadline = Deadline::within(Duration::from_millis(1));
        if let Ok(pattern) = Pattern::compile(&pattern, &Library::new(), false)
            && let Ok(Some(found)) = pattern.find(&text, &deadline)
        {
            for at in 0..pattern.captures().len() {
                let _ = found.range(at).map(|range| text.get(range).map(str::len));
            }
        }
        if let Ok(expression) = Expression::compile(&pattern) {
            let replacement = Replacement::parse(&text, &expression);
            let _ = expression.replace_all(&text, &replacement, &deadline);
        }
    }

    #[test]
    fn access_logs_match(host in "[a-z]{1,8}(\\.[a-z]{2,5}){0,2}", path in "/[a-z0-9/._-]{0,30}", bytes in 0u64..1_000_000) {
        let line = format!(
            "{host} - frank [10/Oct/2000:13:55:36 -0700] \"GET {path} HTTP/1.0\" 200 {bytes} \"-\" \"Mozilla/4.08 [en]\""
        );
        let pattern = compile("%{COMBINEDAPACHELOG}").unwrap();
        let found = captured(&pattern, &line).unwrap();
        prop_assert!(found.contains(&("request".to_owned(), path)));
        prop_assert!(found.contains(&("bytes".to_owned(), bytes.to_string())));
    }
}
