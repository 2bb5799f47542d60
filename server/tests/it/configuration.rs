//! A configuration error is reported in one line on stderr, with an exit code of its own.

use std::net::TcpListener;

use crate::process::{Server, millrace, run};

/// The last line on stderr, and the exit code.
fn refusal(command: &mut std::process::Command) -> (Option<i32>, String) {
    let (code, _, errors) = run(command);
    let said: Vec<_> = errors.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(said.len(), 1, "{errors}");
    (code, said[0].to_owned())
}

#[test]
fn wrong_keys_are_refused_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("millrace.toml");
    let with_file = || {
        let mut command = millrace(&["serve", "--config"]);
        command.arg(&file).current_dir(dir.path());
        command
    };

    let (code, line) = refusal(&mut with_file());
    assert_eq!(code, Some(3));
    assert!(line.contains("cannot read") && line.contains("millrace.toml"), "{line}");

    std::fs::write(&file, "[storage]\nflush_byte = \"1MB\"\n").unwrap();
    let (code, line) = refusal(&mut with_file());
    assert_eq!(code, Some(3));
    assert!(line.contains("`storage.flush_byte`") && line.contains("`storage.flush_bytes`?"), "{line}");

    std::fs::write(&file, "[storage]\nflush_bytes = \"many\"\n").unwrap();
    let (code, line) = refusal(&mut with_file());
    assert_eq!(code, Some(3));
    assert!(line.contains("`many`"), "{line}");

    std::fs::write(&file, "listen = [").unwrap();
    assert_eq!(refusal(&mut with_file()).0, Some(3));

    let (code, line) =
        refusal(millrace(&["serve"]).env("MILLRACE_STORAGE__FLUSH_BYTE", "1MB").current_dir(dir.path()));
    assert_eq!(code, Some(3));
    assert!(line.contains("MILLRACE_STORAGE__FLUSH_BYTES"), "{line}");
    assert!(!dir.path().join("data").exists(), "nothing was opened");
}

#[test]
fn insecure_is_refused_off_loopback() {
    let dir = tempfile::tempdir().unwrap();
    let (code, line) = refusal(
        millrace(&["serve", "--insecure", "--listen", "127.0.0.1:0", "--listen", "0.0.0.0:0"])
            .current_dir(dir.path()),
    );
    assert_eq!(code, Some(3));
    assert!(line.contains("0.0.0.0:0") && line.contains("loopback"), "{line}");
}

#[test]
fn a_port_in_use_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, line) = refusal(millrace(&["serve", "--listen", &address]).current_dir(dir.path()));
    assert_eq!(code, Some(4));
    assert!(line.contains(&address), "{line}");
}

#[test]
fn a_locked_directory_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--insecure"]);
    let (code, line) = refusal(millrace(&["serve", "--listen", "127.0.0.1:0", "--data"]).arg(dir.path()));
    assert_eq!(code, Some(5));
    assert!(line.contains(&*dir.path().to_string_lossy()), "{line}");
    server.stop();
}

#[test]
fn config_prints_sources_and_no_secret() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("millrace.toml");
    std::fs::write(&file, "[storage]\nflush_bytes = \"32MB\"\n").unwrap();
    let (code, text, errors) = run(millrace(&["config", "--data", "here", "--config"])
        .arg(&file)
        .env("MILLRACE_ADMIN_PASSWORD", "hush-hush")
        .env("MILLRACE_HTTP__MAX_CONTENT_LENGTH", "10MB"));
    assert_eq!(code, Some(0), "{errors}");
    let line = |key: &str| text.lines().find(|line| line.starts_with(key)).unwrap_or_default().to_owned();
    assert!(line("data").contains("flag --data"), "{text}");
    assert!(line("flush_bytes").contains("millrace.toml"), "{text}");
    assert!(line("max_content_length").contains("MILLRACE_HTTP__MAX_CONTENT_LENGTH"), "{text}");
    assert!(line("flush_age").contains("default"), "{text}");
    assert!(line("admin_password").contains("MILLRACE_ADMIN_PASSWORD"), "{text}");
    assert!(!text.contains("hush"), "{text}");
}
