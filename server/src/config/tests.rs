//! Tests of merging, parsing and messages.

use std::time::Duration;

use super::value::{Kind, Value, format_bytes, format_span, parse_bytes, parse_span};
use super::*;

fn load(
    file: &str,
    environment: &[(&str, &str)],
    flags: &[(&'static str, &'static str, &str)],
) -> Result<Settings> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("millrace.toml");
    std::fs::write(&path, file).unwrap();
    let flags = Flags {
        config: Some(path),
        keys: flags.iter().map(|(flag, key, text)| (*flag, *key, (*text).to_owned())).collect(),
    };
    Settings::load(&flags, environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())))
}

fn message(result: Result<Settings>) -> String {
    let text = result.unwrap_err().to_string();
    assert!(!text.contains('\n'), "one line: {text}");
    text
}

#[test]
fn defaults_need_no_configuration() {
    let config = Settings::load_within(0, &Flags::default(), []).unwrap().config().unwrap();
    assert_eq!(config.api.listen, ["127.0.0.1:9200".parse().unwrap()]);
    assert_eq!(config.storage.data_dir, PathBuf::from("data"));
    let storage = millrace_engine::Config::default();
    assert_eq!(config.storage.flush_bytes, storage.flush_bytes);
    assert_eq!(config.storage.memtable_max_bytes, storage.memtable_max_bytes);
    assert_eq!(config.storage.wal_max_bytes, storage.wal_max_bytes);
    assert_eq!(config.storage.cache_bytes, storage.cache_bytes);
    assert_eq!(config.storage.flush_age_secs, storage.flush_age_secs);
    assert_eq!(config.query_memory_bytes, millrace_query::Config::default().memory_bytes);
    assert_eq!(config.query_spill_bytes, millrace_query::Config::default().spill_bytes);
    assert!(!config.api.insecure);
}

#[test]
fn defaults_fit_the_memory() {
    let environment = [("MILLRACE_PIPELINES__MEMORY_BYTES".to_owned(), "400MB".to_owned())];
    let within = |memory| {
        let settings = Settings::load_within(memory, &Flags::default(), environment.clone()).unwrap();
        let config = settings.config().unwrap();
        let storage = &config.storage;
        [
            config.query_memory_bytes as u64,
            storage.memtable_max_bytes,
            storage.flush_bytes,
            config.pipelines.memory_bytes,
        ]
    };
    // What is set is not touched.
    assert_eq!(within(512 << 20), [128 << 20, 64 << 20, 16 << 20, 400 << 20]);
    assert_eq!(within(64 << 30), [512 << 20, 128 << 20, 32 << 20, 400 << 20]);
    assert_eq!(within(0), within(64 << 30));
    // The least that keys take is the least that they have.
    assert_eq!(within(1), [1 << 20, 1 << 20, 1 << 10, 400 << 20]);
}

#[test]
fn the_strongest_source_wins() {
    let settings = load(
        "data = 'file'\n[storage]\nflush_bytes = '1MB'\nwal_max_bytes = 8388608\n",
        &[("MILLRACE_DATA", "environment"), ("MILLRACE_STORAGE__FLUSH_BYTES", "2MB"), ("PATH", "/bin")],
        &[("--data", "data", "flag")],
    )
    .unwrap();
    let config = settings.config().unwrap();
    assert_eq!(config.storage.data_dir, PathBuf::from("flag"));
    assert_eq!(config.storage.flush_bytes, 2 << 20);
    assert_eq!(config.storage.wal_max_bytes, 8 << 20);
    let printed = settings.print();
    assert!(printed.contains("# flag --data"), "{printed}");
    assert!(printed.contains("# environment MILLRACE_STORAGE__FLUSH_BYTES"), "{printed}");
    assert!(printed.contains("wal_max_bytes = \"8MB\"") && printed.contains("millrace.toml"), "{printed}");
}

#[test]
fn misspelt_keys_are_refused_with_a_suggestion() {
    let text = message(load("[storage]\nflush_byte = 1\n", &[], &[]));
    assert!(
        text.ends_with("unknown key `storage.flush_byte`, did you mean `storage.flush_bytes`?"),
        "{text}"
    );
    let text = message(load("[sotrage]\nflush_bytes = 1\n", &[], &[]));
    assert!(text.ends_with("unknown key `sotrage`, did you mean `storage`?"), "{text}");
    let text = message(load("flush_bytes = 1\n", &[], &[]));
    assert!(text.ends_with("did you mean `storage.flush_bytes`?"), "{text}");
    let text = message(load("zebra = 1\n", &[], &[]));
    assert!(text.contains("unknown key `zebra`; `millrace config` prints every key"), "{text}");
    let text = message(load("", &[("MILLRACE_LISTNE", "127.0.0.1:1")], &[]));
    assert_eq!(text, "unknown environment variable `MILLRACE_LISTNE`, did you mean `MILLRACE_LISTEN`?");
}

#[test]
fn wrong_values_name_key_and_value() {
    let text = message(load("[storage]\nflush_bytes = 'much'\n", &[], &[]));
    assert!(text.ends_with("storage.flush_bytes: `much` is not a size such as 512KB, 64MB or 1GB"), "{text}");
    let text = message(load("insecure = 3\n", &[], &[]));
    assert!(text.ends_with("insecure: `3` is integer, expected true or false"), "{text}");
    let text = message(load("", &[("MILLRACE_LISTEN", "9200")], &[]));
    assert_eq!(text, "environment MILLRACE_LISTEN: `9200` is not HOST:PORT, such as 127.0.0.1:9200");
    let text = message(load("data = \n", &[], &[]));
    assert!(text.contains("line 1"), "{text}");
    let flags = Flags { config: Some("/does/not/exist.toml".into()), keys: Vec::new() };
    let text = message(Settings::load(&flags, []));
    assert!(text.starts_with("cannot read configuration file /does/not/exist.toml"), "{text}");
}

#[test]
fn variables_of_container_platforms_are_not_ours() {
    let variables = [
        ("MILLRACE_SERVICE_HOST", "10.0.0.1"),
        ("MILLRACE_PORT_9200_TCP", "tcp://…"),
        ("MILLRACE_CONSOLE_SERVICE_HOST", "10.0.0.2"),
        ("MILLRACE_0_PORT_9200_TCP_ADDR", "10.0.0.3"),
        ("MILLRACE_CONSOLE_URL", "http://console"),
    ];
    let config = load("", &variables, &[]).unwrap().config().unwrap();
    assert_eq!(config.strangers, ["MILLRACE_CONSOLE_URL"]);
}

#[test]
fn variables_close_to_a_key_are_refused() {
    for (variable, key) in [
        ("MILLRACE_ADMIN_PASSWRD", "MILLRACE_ADMIN_PASSWORD"),
        ("MILLRACE_PASSWORD", "MILLRACE_ADMIN_PASSWORD"),
        ("MILLRACE_STORAGE_FLUSH_BYTES", "MILLRACE_STORAGE__FLUSH_BYTES"),
    ] {
        let text = message(load("", &[(variable, "hunter2")], &[]));
        assert_eq!(text, format!("unknown environment variable `{variable}`, did you mean `{key}`?"));
    }
}

#[test]
fn insecure_is_for_loopback_only() {
    let settings = load("insecure = true\nlisten = ['127.0.0.1:1', '[::1]:2']\n", &[], &[]).unwrap();
    assert!(settings.config().unwrap().api.insecure);
    let settings = load("insecure = true\nlisten = ['127.0.0.1:1', '0.0.0.0:2']\n", &[], &[]).unwrap();
    let text = settings.config().unwrap_err().to_string();
    assert!(text.contains("0.0.0.0:2 is not on loopback"), "{text}");
}

#[test]
fn the_console_can_be_off() {
    let console = |file: &str, environment: &[(&str, &str)]| {
        load(file, environment, &[]).unwrap().config().unwrap().console.addresses
    };
    assert_eq!(console("", &[]), ["127.0.0.1:5601".parse().unwrap()]);
    assert_eq!(console("[console]\nlisten = []\n", &[]), []);
    assert_eq!(console("[console]\nlisten = 'off'\n", &[]), []);
    assert_eq!(console("", &[("MILLRACE_CONSOLE__LISTEN", "off")]), []);
    let printed = load("[console]\nlisten = 'off'\n", &[], &[]).unwrap().print();
    assert_eq!(console(&printed, &[]), []);
    let text = message(load("", &[("MILLRACE_LISTEN", "off")], &[]));
    assert!(text.contains("`off` is not HOST:PORT"), "{text}");
    let settings = load("insecure = true\n[console]\nlisten = '0.0.0.0:1'\n", &[], &[]).unwrap();
    let text = settings.config().unwrap_err().to_string();
    assert!(text.contains("console.listen 0.0.0.0:1 is not on loopback"), "{text}");
}

#[test]
fn combinations_are_checked() {
    for (file, expected) in [
        ("[tls]\nkey = 'k'\n", "tls.certificate is not"),
        ("[tls]\nclient_authorities = 'ca'\n", "tls.client_authentication is `none`"),
        ("[tls]\nclient_authentication = 'required'\n", "tls.client_authorities is not set"),
        ("[tls]\nclient_authentication = 'optional'\nclient_authorities = 'ca'\n", "tls.certificate is not"),
        ("[storage.object_store]\nkind = 's3'\n", "bucket is not set"),
        ("[storage.object_store]\nbucket = 'b'\n", "kind is `local`"),
        ("[storage]\nflush_bytes = '1GB'\n", "greater than storage.memtable_max_bytes"),
        ("[log]\nlevel = 'lou=d=er'\n", "log.level"),
        ("[log]\nlevel = 'warning'\n", "`warning` is no level"),
        ("[log]\nlevel = 'info,verbose'\n", "`verbose` is no level"),
    ] {
        let text = load(file, &[], &[]).unwrap().config().unwrap_err().to_string();
        assert!(text.contains(expected), "{file}: {text}");
    }
}

#[test]
fn clients_are_verified_as_configured() {
    let tls = |mode: &str| {
        let file = "[tls]\ncertificate = 'c'\nkey = 'k'\n";
        let given =
            [("MILLRACE_TLS__CLIENT_AUTHENTICATION", mode), ("MILLRACE_TLS__CLIENT_AUTHORITIES", "ca")];
        load(file, &given[..if mode == "none" { 1 } else { 2 }], &[])
            .unwrap()
            .config()
            .unwrap()
            .api
            .tls
            .unwrap()
    };
    assert_eq!(tls("none"), TlsFiles::new("c", "k"));
    for (mode, clients) in
        [("optional", ClientCertificates::Optional), ("required", ClientCertificates::Required)]
    {
        let expected = TlsFiles { clients, authorities: vec!["ca".into()], ..TlsFiles::new("c", "k") };
        assert_eq!(tls(mode), expected);
    }
    let text = message(load("[tls]\nclient_authentication = 'maybe'\n", &[], &[]));
    assert!(text.contains("optional"), "{text}");
}

#[test]
fn secrets_are_masked_and_masks_refused() {
    let settings = load(
        "[storage.object_store]\nkind = 's3'\nbucket = 'b'\nsecret_access_key = 'sesame'\n",
        &[("MILLRACE_ADMIN_PASSWORD", "hunter2")],
        &[],
    )
    .unwrap();
    let printed = settings.print();
    assert!(!printed.contains("sesame") && !printed.contains("hunter2"), "{printed}");
    assert!(printed.contains("admin_password = \"********\""), "{printed}");
    let text = message(load("admin_password = '********'\n", &[], &[]));
    assert!(text.contains("mask"), "{text}");
}

#[test]
fn tokens_are_not_idle_for_longer_than_they_live() {
    let tokens = |file: &str| load(file, &[], &[]).unwrap().config().map(|config| config.api.tokens);
    let lifetimes = tokens("[auth]\ntoken_idle = '90m'\n").unwrap();
    assert_eq!(lifetimes.idle, Duration::from_secs(90 * 60));
    assert_eq!(lifetimes.absolute, Duration::from_secs(30 * 24 * 60 * 60));
    let error = tokens("[auth]\ntoken_idle = '2d'\ntoken_lifetime = '1d'\n").unwrap_err();
    assert!(error.to_string().contains("auth.token_idle is greater than auth.token_lifetime"), "{error}");
}

#[test]
fn what_is_printed_can_be_loaded() {
    let settings = load("[storage]\nflush_age = '90s'\n", &[], &[]).unwrap();
    let again = load(&settings.print(), &[], &[]).unwrap();
    for (name, (value, _)) in &settings.values {
        assert_eq!(again.get(name), Some(value), "{name}");
    }
}

#[test]
fn sizes_and_spans_are_read_as_people_write_them() {
    for (text, bytes) in
        [("64MB", 64 << 20), ("64 mb", 64 << 20), ("1.5k", 1536), ("7", 7), ("2GiB", 2 << 30), ("0", 0)]
    {
        assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
    }
    for text in ["", "MB", "-1", "1.2.3", "1xb", "99999999999TB", "1e3"] {
        assert!(parse_bytes(text).is_err(), "{text}");
    }
    for (text, millis) in [("1s", 1_000), ("250ms", 250), ("10m", 600_000), ("1.5h", 5_400_000), ("2", 2_000)]
    {
        assert_eq!(parse_span(text), Ok(Duration::from_millis(millis)), "{text}");
    }
    assert!(parse_span("1w").is_err() && parse_span("").is_err());
    assert_eq!(format_bytes(64 << 20), "64MB");
    assert_eq!(format_bytes(1000), "1000B");
    assert_eq!(format_span(Duration::from_millis(1500)), "1500ms");
    assert_eq!(format_span(Duration::from_secs(7200)), "2h");
    assert_eq!(Kind::Bool.parse("Yes"), Ok(Value::Bool(true)));
    assert!(Kind::Bytes(1024).parse("1").is_err());
}

#[test]
fn every_key_has_its_own_variable() {
    let mut names: Vec<String> = KEYS.iter().map(Key::variable).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), KEYS.len());
    for key in KEYS {
        assert!(describe().contains(&key.variable()));
    }
}

/// The example file that is shipped documents every key, and nothing else.
#[test]
fn the_example_file_is_complete() {
    let text = include_str!("../../../deploy/millrace.toml");
    let uncommented: String = text
        .lines()
        .map(|line| line.strip_prefix("#: ").unwrap_or(line))
        .fold(String::new(), |all, line| all + line + "\n");
    let settings = load(&uncommented, &[], &[]).unwrap();
    for key in KEYS {
        let source = settings.values.get(key.name).map(|(_, source)| source);
        assert!(matches!(source, Some(Source::File(_))), "{} is not in deploy/millrace.toml", key.name);
    }
    load(text, &[], &[]).unwrap().config().unwrap();
}
