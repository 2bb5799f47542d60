//! Descriptions of pipelines, and the files that they name.

use super::*;

#[test]
fn files_and_descriptions() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(find(&dir.path().join("absent")).unwrap().len(), 0);
    std::fs::write(dir.path().join("alone.conf"), "input { }").unwrap();
    std::fs::write(dir.path().join("10-in.conf"), "input { }\n# two lines").unwrap();
    std::fs::write(dir.path().join("20-out.conf"), "output { }").unwrap();
    let text = "
- pipeline.id: both
  path.config: '?1-*.conf'
- pipeline.id: parts
  path.config: \"*0-*.conf\"
  pipeline:
    workers: 1
    batch: {size: 50, delay: 5}
  pipeline.ordered: true
  queue: {type: persisted, max_bytes: 4gb, checkpoint.writes: 1}
  dead_letter_queue: {enable: true, max_bytes: 10mb, storage_policy: drop_older, retain.age: 2d}
- pipeline.id: wrong
  config.string: 'input {}'
  pipelin.workers: 2
  pipeline.batch.size: many
  queue.type: disk
  dead_letter_queue: {max_bytes: 1kb, storage_policy: drop_all, retain.age: 2}
- config.string: ''
  pipeline.enabled: false
";
    std::fs::write(dir.path().join("pipelines.yml"), text).unwrap();
    let found = find(dir.path()).unwrap();
    assert_eq!(found.keys().collect::<Vec<_>>(), ["alone", "both", "entry-4", "parts", "wrong"]);
    assert!(found["both"].problems[0].contains("there is no file"), "{:?}", found["both"].problems);
    let parts = &found["parts"];
    assert_eq!(parts.problems, Vec::<String>::new());
    let settings = Settings {
        workers: 1,
        batch_size: 50,
        batch_delay: Duration::from_millis(5),
        ordered: EventOrder::Yes,
    };
    assert_eq!(parts.settings, settings);
    assert_eq!((parts.persisted, found["alone"].persisted), (Some(4 << 30), None));
    let letters =
        Limits { max_bytes: 10 << 20, policy: Policy::DropOlder, retain: Some(Duration::from_secs(172_800)) };
    assert_eq!((parts.dead_letters, found["alone"].dead_letters), (letters, Limits::default()));
    assert_eq!(parts.text(), "input { }\n# two lines\noutput { }\n");
    assert!(parts.place(2).0.ends_with("10-in.conf") && parts.place(2).1 == 2);
    assert!(parts.place(3).0.ends_with("20-out.conf") && parts.place(3).1 == 1);
    let wrong = found["wrong"].problems.join("\n");
    for part in [
        "[pipelin.workers], did you mean [pipeline.workers]?",
        "not [many]",
        "not [disk]",
        "at least 1mb",
        "not [drop_all]",
        "not [2]",
    ] {
        assert!(wrong.contains(part), "{wrong}");
    }
    assert!(!found["entry-4"].enabled);

    let before = parts.hash.clone();
    std::fs::write(dir.path().join("20-out.conf"), "output {  }").unwrap();
    assert_ne!(find(dir.path()).unwrap()["parts"].hash, before);
}

#[test]
fn paths_have_the_patterns_of_logstash() {
    let dir = tempfile::tempdir().unwrap();
    for file in ["a/1.conf", "b/2.conf", "b/deep/3.conf", "b/2.conf~"] {
        let path = dir.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("# {file}\n")).unwrap();
    }
    let (one, two, three) = ("# a/1.conf\n", "# b/2.conf\n", "# b/deep/3.conf\n");
    for (paths, expected) in [
        ("'{a,b}/*.conf'", [one, two, ""]),
        ("'**/*.conf'", [one, two, three]),
        ("'*/[12].conf'", [one, two, ""]),
        ("['b', 'a/1.conf', 'b/2.conf']", [two, one, ""]),
    ] {
        let text = format!(
            "- {{pipeline.id: main, path.config: {paths}, config.reload.automatic: true, config.reload.interval: 3s,\n\
                 config.debug: false, pipeline.reloadable: true, pipeline.plugin_classloaders: false}}\n"
        );
        std::fs::write(dir.path().join("pipelines.yml"), text).unwrap();
        let main = &find(dir.path()).unwrap()["main"];
        assert_eq!((main.problems.as_slice(), main.text()), (&[][..], expected.concat()), "{paths}");
    }
    for wrong in ["[]", "[1]", "'{a'", "'none/**/*.conf'"] {
        let text = format!("- {{pipeline.id: main, path.config: {wrong}}}");
        std::fs::write(dir.path().join("pipelines.yml"), text).unwrap();
        assert!(find(dir.path()).unwrap()["main"].problems[0].contains("[path.config]"), "{wrong}");
    }
}

#[test]
fn a_directory_of_numbered_files_is_one_pipeline() {
    let dir = tempfile::tempdir().unwrap();
    let parts = dir.path().join("conf.d");
    std::fs::create_dir(&parts).unwrap();
    for (name, text) in [
        ("30-output.conf", "output { stdout { } }"),
        ("10-input.conf", "input { stdin { } }"),
        ("20-filter.conf", "filter { drop { } }"),
        ("20-filter.conf.bak", "not read"),
        ("README", "not read"),
    ] {
        std::fs::write(parts.join(name), text).unwrap();
    }
    for path in ["conf.d/*.conf".to_owned(), format!("{}/*.conf", parts.display())] {
        let text = format!("- pipeline.id: main\n  path.config: \"{path}\"\n");
        std::fs::write(dir.path().join("pipelines.yml"), text).unwrap();
        let found = find(dir.path()).unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), ["main"]);
        let main = &found["main"];
        assert_eq!(main.problems, Vec::<String>::new());
        assert_eq!(main.text(), "input { stdin { } }\nfilter { drop { } }\noutput { stdout { } }\n");
        crate::check(&main.text(), &crate::Dialect::default()).unwrap();
    }
}

#[test]
fn a_file_that_a_pattern_names_is_no_pipeline_by_itself() {
    // Relative, as the default of `pipelines.dir` is, and with signs of patterns in its name.
    let dir = tempfile::tempdir_in(".").unwrap();
    let name = dir.path().file_name().unwrap();
    let pipelines = Path::new(".").join(name).join("a[1]{2}*");
    std::fs::create_dir(&pipelines).unwrap();
    for file in ["1.conf", "2.conf", "alone.conf"] {
        std::fs::write(pipelines.join(file), "input { }\n").unwrap();
    }
    let absolute = std::fs::canonicalize(&pipelines).unwrap();
    for paths in [
        "'[12].conf'".to_owned(),
        "'{1,2}.conf'".to_owned(),
        "['./1.conf', '../a[1]{2}*/2.conf']".to_owned(),
        format!("['{0}/1.conf', '{0}/2.conf']", absolute.display()),
    ] {
        let text = format!("- {{pipeline.id: both, path.config: {paths}}}");
        std::fs::write(pipelines.join("pipelines.yml"), text).unwrap();
        let found = find(&pipelines).unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), ["alone", "both"], "{paths}");
        assert_eq!((found["both"].texts.len(), found["both"].problems.as_slice()), (2, &[][..]), "{paths}");
    }
}
