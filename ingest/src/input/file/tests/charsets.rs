//! Files whose characters have several bytes.

use super::*;

fn codec_of(charset: &str) -> OptionValue {
    OptionValue(Setting::Plugin(Box::new(options("plain", &[("charset", charset.into())]))))
}

fn write(path: &Path, text: &str) {
    let bytes: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    file.write_all(&bytes).unwrap();
}

#[tokio::test]
async fn lines_of_wide_characters_are_cut_at_their_ends() {
    let dir = tempfile::tempdir().unwrap();
    let (path, stored) = (dir.path().join("app.log"), Arc::default());
    let name = path.display().to_string();
    let given =
        [beginning(), vec![("codec", codec_of("UTF-16LE")), ("ecs_compatibility", "v8".into())]].concat();
    // The bytes of a line end lie between U+0A0D and U+0100.
    write(&path, "\u{feff}one \u{a0d}\u{100}\nt\u{d0a}wo\n");
    let mut running = start(input(&name, &given), &stored);
    running.until(2).await;
    let fields = running.pipeline.events[0].fields().clone();
    assert_eq!(fields["log"]["file"]["path"], name.as_str());
    assert_eq!(fields["host"]["name"], host_name());
    assert_eq!(running.stop().await, ["one \u{a0d}\u{100}", "t\u{d0a}wo"]);
    write(&path, "three\n");
    let mut running = start(input(&name, &given), &stored);
    running.until(1).await;
    assert_eq!(running.stop().await, ["three"]);
}

#[test]
fn reading_begins_behind_the_last_line_of_wide_characters() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app.log");
    let delimiter = Delimiter::new(
        "\n",
        crate::codec::Charset::take(&mut options("plain", &[("charset", "UTF-16LE".into())])),
    );
    for (text, expected) in [("a\nb\u{d0a}", 4), ("a", 0), ("a\u{a0d}\u{100}", 0), ("\n", 2)] {
        std::fs::remove_file(&path).ok();
        write(&path, text);
        let end = reader::last_line(&File::open(&path).unwrap(), &delimiter).unwrap();
        assert_eq!(end, expected, "{text:?}");
    }
}

#[test]
fn lines_need_an_order_of_bytes() {
    let given = [("path", "/var/log/app.log".into()), ("codec", codec_of("UTF-16"))];
    let faults = Tail::new(options("file", &given)).unwrap_err();
    assert!(faults.iter().any(|fault| fault.message.contains("such as UTF-16LE")), "{faults:?}");
}
