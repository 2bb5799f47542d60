//! Functions, lambdas, exceptions, patterns, objects and times of scripts.

use serde_json::{Value, json};

use crate::tests::script;

fn check(cases: impl IntoIterator<Item = (&'static str, Value, Value)>) {
    for (source, fields, expected) in cases {
        let found =
            script(source, fields).unwrap_or_else(|error| panic!("{source}: {error} {:?}", error.cause()));
        assert_eq!(found, expected, "{source}");
    }
}

#[test]
fn functions_call_one_another() {
    check([
        (
            "int twice(int x) { return add(x, x) } def add(def x, def y) { def z = x; return z + y } \
             def z = 3; ctx.a = twice(z) + twice(1); ctx.z = z",
            json!({}),
            json!({"a": 8, "z": 3}),
        ),
        (
            "void walk(def x) { if (x instanceof Map) { for (def y : x.values()) { walk(y) } x.values().removeIf(v -> v == null) } \
             else if (x instanceof List) { for (def y : x) { walk(y) } } } walk(ctx.m)",
            json!({"m": {"a": null, "b": {"c": null, "d": 1}, "l": [{"e": null}, 2]}}),
            json!({"m": {"b": {"d": 1}, "l": [{}, 2]}}),
        ),
        (
            "boolean drop(Object o) { if (o == null || o == '') { return true } else if (o instanceof Map) { \
             ((Map) o).values().removeIf(v -> drop(v)); return ((Map) o).size() == 0 } else if (o instanceof List) { \
             ((List) o).removeIf(v -> drop(v)); return ((List) o).length == 0 } return false } drop(ctx.m)",
            json!({"m": {"a": "", "b": {"c": null}, "l": ["", {"x": null}, 2, ["", 3]], "k": 1}}),
            json!({"m": {"l": [2, [3]], "k": 1}}),
        ),
        ("void set(def ctx, def x) { ctx.put('b', x) } set(ctx, 2)", json!({}), json!({"b": 2})),
        (
            "int f(int n) { if (n == 0) return 0; return 1 + f(n - 1) } ctx.a = f(30)",
            json!({}),
            json!({"a": 30}),
        ),
        ("def f() { } ctx.a = f()", json!({}), json!({"a": null})),
    ]);
    let endless = script("int f(int n) { return f(n + 1) } ctx.a = f(1)", json!({})).unwrap_err();
    assert!(endless.reason().contains("within one another"), "{endless}");
    for endless in [
        "boolean f(def l) { l.removeIf(v -> f(l)); return true } f(ctx.l)",
        "def f(def l) { l.stream().filter(v -> { if (true) { return f(l) == 1 } return false }).toArray() } f(ctx.l)",
        "def f(def l) { return l.stream().collect(Collectors.toMap(v -> 'k', v -> f(l))) } f(ctx.l)",
        "def f(def m) { m.forEach((k, v) -> { for (x in [1]) { while (true) { f(m) } } }) } f(ctx)",
        "def f(def m) { return ['a': [1, m.computeIfAbsent('x', k -> 1 + (2 * f(m)))]] } f(ctx)",
    ] {
        let error = script(endless, json!({ "l": [1] })).unwrap_err();
        assert!(error.reason().contains("within one another"), "{endless}: {error} {:?}", error.cause());
    }
    let caught =
        script("int f() { try { return f() } catch (Exception e) { return 1 } } ctx.a = f()", json!({}));
    assert!(caught.unwrap_err().reason().contains("within one another"));
    assert!(script("int f(int x) { return 1 } int f(int y) { return 2 } f(1)", json!({})).is_err());
}

#[test]
fn lambdas_are_arguments_of_methods() {
    check([
        (
            "def h = new HashMap(ctx.p); h.forEach((k, v) -> ctx.e[k] = v); ctx.l.forEach(v -> { ctx.n += v })",
            json!({"p": {"x": 1}, "e": {"y": 2}, "l": [1, 2], "n": 0}),
            json!({"p": {"x": 1}, "e": {"y": 2, "x": 1}, "l": [1, 2], "n": 3}),
        ),
        (
            "ctx.m.entrySet().removeIf(e -> e.getValue() == '-' || e.getKey() == 'z'); ctx.l.removeIf(v -> v > 1); \
             ctx.k.keySet().removeIf(k -> k.startsWith('a'))",
            json!({"m": {"a": "-", "b": "x", "z": 1}, "l": [1, 2, 3, 0], "k": {"a1": 1, "b": 2}}),
            json!({"m": {"b": "x"}, "l": [1, 0], "k": {"b": 2}}),
        ),
        (
            "ctx.s = ctx.m.entrySet().stream().filter(e -> e.value > 1).collect(Collectors.toMap(e -> e.getKey().replace('-', '_'), \
             e -> e.getValue())); ctx.v = ctx.m.entrySet().stream().collect(Collectors.toMap(e -> e.key + '!', Map.Entry::getValue))",
            json!({"m": {"a-b": 2, "c": 1}}),
            json!({"m": {"a-b": 2, "c": 1}, "s": {"a_b": 2}, "v": {"a-b!": 2, "c!": 1}}),
        ),
        (
            "ctx.d = ctx.l.stream().distinct().map(x -> x + 1).collect(Collectors.toList()); \
             ctx.any = ctx.l.stream().anyMatch(x -> x == 2); ctx.none = 'ab'.chars().noneMatch(Character::isUpperCase); \
             ctx.j = ctx.l.stream().map(x -> 'n' + x).collect(Collectors.joining(','))",
            json!({"l": [1, 2, 1]}),
            json!({"l": [1, 2, 1], "d": [2, 3], "any": true, "none": true, "j": "n1,n2,n1"}),
        ),
        (
            "def d = ctx.m; for (p in ['a', 'b']) { d = d.computeIfAbsent(p, _ -> new HashMap()) } d.put('c', 1)",
            json!({"m": {}}),
            json!({"m": {"a": {"b": {"c": 1}}}}),
        ),
        (
            "ctx.t = Stream.of(ctx.t.splitOnToken(',')).filter(s -> !s.isEmpty()).toArray(String[]::new)",
            json!({"t": "a,,b"}),
            json!({"t": ["a", "b"]}),
        ),
    ]);
}

#[test]
fn views_of_maps_reach_the_map() {
    check([
        (
            "for (e in ctx.m.entrySet()) { if (e.value instanceof Map) { e.value.n = 1 } else { e.setValue(e.key + e.value) } }",
            json!({"m": {"a": {}, "b": "x"}}),
            json!({"m": {"a": {"n": 1}, "b": "bx"}}),
        ),
        (
            "Iterator i = ctx.m.entrySet().iterator(); while (i.hasNext()) { def e = i.next(); if (e.getValue() == '?') { i.remove() } } \
             def j = ctx.l.iterator(); while (j.hasNext()) { def x = j.next(); if (x instanceof Map) { x.k = 2 } else { j.remove() } }",
            json!({"m": {"a": "?", "b": 1}, "l": [1, {"k": 1}, 3, {"k": 3}]}),
            json!({"m": {"b": 1}, "l": [{"k": 2}, {"k": 2}]}),
        ),
        (
            "def best; for (e in ctx.m.entrySet()) { if (best == null || best.getValue() < e.getValue()) best = e } ctx.b = best.getKey(); \
             ctx.k = ctx.m.keySet(); ctx.has = ctx.m.values().contains(7); ctx.n = ctx.m.entrySet().size()",
            json!({"m": {"a": 1, "b": 7}}),
            json!({"m": {"a": 1, "b": 7}, "b": "b", "k": ["a", "b"], "has": true, "n": 2}),
        ),
        (
            "def v = ctx.m.values(); ctx.remove('m'); ctx.l = new ArrayList(v); ctx.e = ctx.l.empty",
            json!({"m": {"a": 1}}),
            json!({"l": [1], "e": false}),
        ),
    ]);
}

#[test]
fn exceptions_are_caught() {
    check([
        (
            "try { ctx.a = Integer.parseInt('x') } catch (NullPointerException e) { ctx.a = 1 } catch (IllegalArgumentException e) { ctx.a = e.getMessage() }",
            json!({}),
            json!({"a": "For input string: \"x\""}),
        ),
        (
            "int f() { throw new IllegalStateException('no ' + 1) } try { f() } catch (IllegalStateException e) { ctx.a = e.message }",
            json!({}),
            json!({"a": "no 1"}),
        ),
        (
            "try { if (ctx.z == null) return; ctx.a = 1 } catch (Exception e) { ctx.a = 2 }",
            json!({}),
            json!({}),
        ),
    ]);
    let thrown = script("throw new Exception('not ' + ctx.a)", json!({"a": 1})).unwrap_err();
    assert_eq!(thrown.cause().unwrap(), ("exception", "not 1"));
    let bounded =
        script("try { while (true) { } } catch (Exception e) { ctx.a = 1 }", json!({})).unwrap_err();
    assert!(bounded.reason().contains("steps"), "{bounded}");
}

#[test]
fn patterns_match_texts() {
    check([
        (
            "ctx.w = ctx.t ==~ /[a-z0-9]+/; ctx.f = ctx.t =~ /[0-9]$/ ? 'yes' : 'no'; ctx.n = !(ctx.t ==~ /x/) && true; \
             ctx.i = ctx.t ==~ /ABC1/i",
            json!({"t": "abc1"}),
            json!({"t": "abc1", "w": true, "f": "yes", "n": true, "i": true}),
        ),
        (
            "def r = /([a-z])([A-Z]+)/; ctx.k = r.matcher('someKey').replaceAll('$1_$2').toLowerCase(); \
             ctx.s = / /.split('a b  c  '); ctx.e = /x/.split('xx').length; ctx.z = /^0+$/.matcher('00').matches(); ctx.d = 8 / 2 / 2; \
             Matcher m = /(\\d+)/.matcher('a1b22'); def l = []; while (m.find()) { l.add(m.group(1)) } ctx.l = l",
            json!({}),
            json!({"k": "some_key", "s": ["a", "b", "", "c"], "e": 0, "z": true, "d": 2, "l": ["1", "22"]}),
        ),
    ]);
}

#[test]
fn characters_bits_and_builders() {
    check([
        (
            "long hms(String s) { long c = 0, t = 0; for (char x : s.toCharArray()) { if (x >= (char)'0' && x <= (char)'9') { \
             c = (c*10) + (long)x - (char)'0' } else if (x == (char)':') { t = (t + c) * 60; c = 0 } else { return 0 } } return t + c } \
             ctx.a = hms('01:02:03'); ctx.b = hms('x')",
            json!({}),
            json!({"a": 3723, "b": 0}),
        ),
        (
            "StringBuilder s = new StringBuilder(); for (int i = 0; i < ctx.h.length(); i += 2) { int c = \
             Integer.parseInt(ctx.h.substring(i, i + 2), 16); if (c < 32) { s.append('^'); c ^= 64 } s.append((char)c) } \
             ctx.t = s.toString(); ctx.n = s.length(); ctx.d = Character.digit(ctx.h.charAt(1), 16)",
            json!({"h": "414209"}),
            json!({"h": "414209", "t": "AB^I", "n": 4, "d": 1}),
        ),
        (
            "char[] l = ctx.h.toLowerCase().toCharArray(); long n = 0; for (c in l) { if (c >= (char)'a' && c <= (char)'f') { \
             n = n * 16 + (long)c - (char)'a' + 10 } } ctx.n = n; ctx.l = l.length",
            json!({"h": "AxF"}),
            json!({"h": "AxF", "n": 175, "l": 3}),
        ),
        (
            "ctx.f = (ctx.n & 0x04) != 0; ctx.s = ctx.n >> 1; ctx.o = ctx.n | 1 ^ 1; ctx.c = ~ctx.n; ctx.q = 'x'.charAt(0) == 'x'; \
             ctx.u = 'a' + 'bc'.charAt(1)",
            json!({"n": 6}),
            json!({"n": 6, "f": true, "s": 3, "o": 6, "c": -7, "q": true, "u": "ac"}),
        ),
        (
            "StringTokenizer t = new StringTokenizer('10.1.2', '.'); int n = t.countTokens(); ctx.a = Integer.parseInt(t.nextToken()); \
             ctx.n = n; def[] l = new def[] { null }; l[0] = 5; ctx.x = String.format('%d-%s', l.clone().addAll(['a']) ? [5, 'a'] : l)",
            json!({}),
            json!({"a": 10, "n": 3, "x": "5-a"}),
        ),
    ]);
    for reading in [
        "def b = new StringBuilder(ctx.t); while (true) { b.length() }",
        "while (true) { ctx.m.forEach((k, v) -> 1) }",
        "while (true) { ctx.m.values().removeIf(v -> false) }",
        "while (true) { for (v in ctx.m.values()) { } }",
        "def m = /y/.matcher(ctx.t); while (true) { m.find() }",
    ] {
        let text = "x".repeat(1 << 20);
        let error = script(reading, json!({ "t": text, "m": { "t": text } })).unwrap_err();
        assert!(error.reason().contains("more than"), "{reading}: {error}");
    }
    let found = script("ctx.a = new StringBuilder('x')", json!({})).unwrap_err();
    assert!(found.reason().contains("is no value of a document"), "{found}");
}

#[test]
fn times_are_moved_and_compared() {
    check([(
        "ZonedDateTime s = ZonedDateTime.parse(ctx.s); ctx.e = s.plus(90, ChronoUnit.SECONDS); ctx.p = s.plusNanos(1); \
         Instant e = Instant.parse('2020-01-01T00:00:10Z'); ctx.n = ChronoUnit.NANOS.between(s, e); ctx.b = e.isAfter(s.toInstant()); \
         ctx.d = Duration.between(s, e).toMillis(); ctx.m = ZonedDateTime.ofInstant(e.minusNanos(1000000000L), ZoneOffset.UTC)",
        json!({"s": "2020-01-01T00:00:00Z"}),
        json!({
            "s": "2020-01-01T00:00:00Z", "e": "2020-01-01T00:01:30.000Z", "p": "2020-01-01T00:00:00.000000001Z",
            "n": 10_000_000_000_i64, "b": true, "d": 10_000, "m": "2020-01-01T00:00:09.000Z"
        }),
    )]);
    let far = "def t = ZonedDateTime.parse('9999-12-31T23:59:59+14:00'); for (int i = 0; i < 20000; i++) { t = t.plusDays(100000) }";
    assert_eq!(script(far, json!({})).unwrap_err().cause().unwrap().0, "arithmetic_exception");
    let wrong = script("ctx.a = Instant.parse('x')", json!({})).unwrap_err();
    assert_eq!(wrong.cause().unwrap().0, "date_time_parse_exception");
}

#[test]
fn sets_have_each_value_once() {
    check([(
        "def s = new HashSet(); for (x in ctx.l) { if (!s.add(x)) { ctx.twice = x } } ctx.l = new ArrayList(s); s.remove(3); \
         s.addAll([2, 9]); ctx.n = s.size(); ctx.t = new HashSet(['a', 'a']); ctx.has = s.contains(3)",
        json!({"l": [1, 3, 2, 3]}),
        json!({"l": [1, 3, 2], "twice": 3, "n": 3, "t": ["a"], "has": false}),
    )]);
    check([(
        "def s = ctx.l.stream().collect(Collectors.toSet()); s.add(1); ctx.n = s.size(); \
         ctx.all = ctx.l.containsAll(s); ctx.more = s.containsAll([1, 4]); ctx.keys = ctx.keySet().containsAll(['l', 'n'])",
        json!({"l": [1, 3, 1]}),
        json!({"l": [1, 3, 1], "n": 2, "all": true, "more": false, "keys": true}),
    )]);
}

#[test]
fn variables_keep_their_types() {
    check([(
        "double half(double x) { return x / 2 } int whole(int x) { return x / 2 } double t = ctx.n; ctx.k = t / 2; \
         ctx.h = half(5); ctx.w = whole(5); char c = 'a'; c++; StringBuilder b = new StringBuilder(); b.append(c); ctx.c = b.toString(); \
         double u = 1; u += 2; ctx.u = u; double r() { return 1 } ctx.r = r(); int i = 'a'.charAt(0); ctx.i = i",
        json!({"n": 5}),
        json!({"n": 5, "k": 2.5, "h": 2.5, "w": 2, "c": "b", "u": 3.0, "r": 1.0, "i": 97}),
    )]);
}

#[test]
fn patterns_have_the_flags_of_java() {
    check([(
        "ctx.r = [ctx.t =~ /^b/, ctx.t =~ /^b/m, ctx.t =~ /a$/, ctx.t =~ /a$/m, ctx.t ==~ /a.b/, ctx.t ==~ /a.b/s, ctx.t =~ /B/i, \
         ctx.t =~ /[^a]/, ctx.t =~ /\\^/, 'a^' =~ /[]^]/, ctx.t =~ /b$/, ctx.t ==~ /^a.b$/ms]",
        json!({"t": "a\nb"}),
        json!({
            "t": "a\nb", "r": [false, true, false, true, false, true, true, true, false, true, true, true]
        }),
    )]);
    assert!(script("ctx.a = 'x' =~ /x/c", json!({})).is_err());
    let matching = "int n = 0; for (int i = 0; i < 10001; i++) { if ('a' ==~ /a/) { n++ } } ctx.n = n";
    assert_eq!(script(matching, json!({})).unwrap(), json!({"n": 10_001}));
}

#[test]
fn streams_of_changed_lists_fail() {
    let fields = || json!({"l": [{"n": 1}, {"n": 9}]});
    for source in [
        "def s = ctx.l.stream().filter(x -> x.n > 5); ctx.l = [[:]]; ctx.a = s.collect(Collectors.toList())",
        "def s = ctx.l.stream(); ctx.l.remove(0); ctx.a = s.toArray()",
        "def i = ctx.l.iterator(); ctx.remove('l'); ctx.a = i.next()",
    ] {
        let error = script(source, fields()).unwrap_err();
        assert_eq!(error.cause().unwrap().0, "concurrent_modification_exception", "{source}");
    }
    let source = "def s = ctx.l.stream().filter(x -> x.n > 5); ctx.k = 1; ctx.a = s.collect(Collectors.toList()); s.forEach(x -> x.n = 2)";
    let shown = script(source, fields()).unwrap();
    assert_eq!(shown, json!({"l": [{"n": 1}, {"n": 2}], "k": 1, "a": [{"n": 9}]}));
}

#[test]
fn iterators_remove_an_element_once() {
    check([(
        "for (def i = ctx.l.iterator(); i.hasNext();) { if (i.next() != 2) { i.remove() } }",
        json!({"l": [1, 2, 3]}),
        json!({"l": [2]}),
    )]);
    for source in [
        "def i = ctx.l.iterator(); i.remove()",
        "def i = ctx.l.iterator(); i.next(); i.next(); i.remove(); i.remove()",
    ] {
        let error = script(source, json!({"l": [1, 2, 3]})).unwrap_err();
        assert_eq!(error.cause().unwrap().0, "illegal_state_exception", "{source}");
    }
}

#[test]
fn elements_cost_what_they_take() {
    let list = vec![json!({}); 100_000];
    let deep = (0..40).fold(json!(list), |value, _| json!({ "a": value }));
    let path = ".a".repeat(41);
    let literal = "x".repeat(60_000);
    for source in [
        format!("ctx{path}.stream()"),
        format!("ctx{}.values().removeIf(v -> v == null); ctx{path}.removeIf(v -> v == 1)", ".a".repeat(40)),
        format!("ctx{path}.stream().map(x -> '{literal}')"),
        "def l = []; for (int i = 0; i < 5000; i++) { l.add(i) } l.stream().map(x -> ctx.t)".to_owned(),
    ] {
        let error = script(&source, json!({ "a": deep, "t": "x".repeat(60_000) })).unwrap_err();
        assert!(error.reason().contains("more than"), "{error}");
    }
}
