//! States, probes and permissions, as supervisors and operators see them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use reqwest::Method;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};

use crate::process::{Server, millrace, run};

/// A supervisor's socket.
struct Supervisor {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Supervisor {
    fn new(directory: &Path) -> Self {
        let path = directory.join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self { socket, path }
    }

    fn told(&self) -> String {
        let mut buffer = [0; 1024];
        let length = self.socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    /// Waits for a state; returns what else was told with it.
    fn wait_for(&self, state: &str) -> String {
        loop {
            let told = self.told();
            if let Some(rest) = told.strip_prefix(state) {
                return rest.to_owned();
            }
            assert!(told.starts_with("STATUS="), "{told}");
        }
    }
}

#[tokio::test]
async fn a_supervisor_is_told_of_readiness_and_of_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let supervisor = Supervisor::new(dir.path());
    let server = Server::new(
        millrace(&["serve", "--insecure", "--listen", "127.0.0.1:0", "--data"])
            .arg(dir.path().join("data"))
            .env("NOTIFY_SOCKET", &supervisor.path),
    );
    assert_eq!(supervisor.told(), "STATUS=opening the store");
    let status = supervisor.wait_for("READY=1\n");
    assert_eq!(status, format!("STATUS=listening on {}", server.url));
    assert_eq!(server.call(Method::GET, "/_health/ready", "").await.0, 200);
    server.signal(Signal::HUP);
    supervisor.wait_for("RELOADING=1\n");
    assert_eq!(supervisor.wait_for("READY=1\n"), status);
    server.stop();
    supervisor.wait_for("STOPPING=1\n");
}

#[test]
fn a_start_can_be_ended() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    Server::start(&data, &["--insecure"]).stop();
    // A log that is not read to its end: one of its files is a pipe that nobody writes to.
    let mut files: Vec<_> =
        fs::read_dir(data.join("wal")).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let last = files.last().unwrap();
    fs::remove_file(last).unwrap();
    mknodat(CWD, last, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();

    let supervisor = Supervisor::new(dir.path());
    let mut child = millrace(&["serve", "--insecure", "--listen", "127.0.0.1:0", "--data"])
        .arg(&data)
        .env("NOTIFY_SOCKET", &supervisor.path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(supervisor.told(), "STATUS=opening the store");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    supervisor.wait_for("STOPPING=1\n");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn health_is_the_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let issued = rcgen::generate_simple_self_signed(vec!["elsewhere.example".to_owned()]).unwrap();
    let (certificate, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    fs::write(&certificate, issued.cert.pem()).unwrap();
    fs::write(&key, issued.signing_key.serialize_pem()).unwrap();
    // The last refuses clients without a certificate, so that the probe shows the server's, which certifies itself.
    for (tls, authentication) in [(false, "none"), (true, "none"), (true, "required")] {
        let with = |arguments: &[&str]| {
            let mut command = millrace(arguments);
            command.env("MILLRACE_DATA", &data);
            // Of no concern to a probe of this machine.
            command.env("HTTP_PROXY", "http://127.0.0.1:1").env("HTTPS_PROXY", "http://127.0.0.1:1");
            if tls {
                command.env("MILLRACE_TLS__CERTIFICATE", &certificate).env("MILLRACE_TLS__KEY", &key);
                command.env("MILLRACE_TLS__CLIENT_AUTHENTICATION", authentication);
            }
            if authentication != "none" {
                command.env("MILLRACE_TLS__CLIENT_AUTHORITIES", &certificate);
            }
            command
        };
        let server = Server::new(&mut with(&["serve", "--listen", "0.0.0.0:0"]));
        let url = server.url.clone();
        let (scheme, address) = url.split_once("://").unwrap();
        assert_eq!(scheme == "https", tls);
        let port = address.rsplit_once(':').unwrap().1;
        let asked =
            || run(with(&["health", "--timeout", "30s"]).env("MILLRACE_LISTEN", format!("0.0.0.0:{port}")));
        let (code, said, errors) = asked();
        assert_eq!((code, said), (Some(0), format!("ready: {scheme}://127.0.0.1:{port}\n")), "{errors}");
        server.signal(Signal::TERM);
        let (status, log) = server.wait();
        assert_eq!(status.code(), Some(0), "{log}");
        // Of the data API, not of the management on loopback.
        assert_eq!(log.matches("credentials are taken in clear text").count(), usize::from(!tls), "{log}");
        let (code, said, errors) = asked();
        assert_eq!((code, said.as_str()), (Some(1), ""));
        assert!(
            errors.starts_with(&format!("error: {scheme}://127.0.0.1:{port} does not answer")),
            "{errors}"
        );
    }
}

/// Lists the files below a directory, itself included, that others than its owner may use.
fn open_to_others(path: &Path, found: &mut Vec<String>) {
    let metadata = fs::symlink_metadata(path).unwrap();
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        found.push(format!("{mode:o} {}", path.display()));
    }
    if metadata.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            open_to_others(&entry.unwrap().path(), found);
        }
    }
}

#[tokio::test]
async fn data_is_its_owners_alone() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let pipelines = dir.path().join("pipelines");
    fs::create_dir(&pipelines).unwrap();
    let definition = "input { generator { count => 50 } } output { elasticsearch { index => \"made\" } }";
    fs::write(pipelines.join("made.conf"), definition).unwrap();
    fs::write(
        pipelines.join("pipelines.yml"),
        "- pipeline.id: made\n  path.config: made.conf\n  queue.type: persisted\n",
    )
    .unwrap();
    let mut server = Server::new(
        millrace(&["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(&data)
            .env("MILLRACE_PIPELINES__DIR", &pipelines)
            .env("MILLRACE_STORAGE__CACHE_BYTES", "1MB"),
    );
    let password = fs::read_to_string(data.join("admin-password")).unwrap();
    server.log_in("admin", password.trim_end());
    for n in 0..20 {
        let path = format!("/logs/_doc/{n}?refresh=true");
        assert_eq!(server.call(Method::PUT, &path, format!(r#"{{"n":{n},"at":[{{"x":1}}]}}"#)).await.0, 201);
    }
    assert_eq!(server.call(Method::POST, "/_flush", "").await.0, 200);
    assert_eq!(server.call(Method::DELETE, "/logs/_doc/3", "").await.0, 200);
    assert_eq!(server.call(Method::POST, "/logs/_forcemerge", "").await.0, 200);
    while server.call(Method::GET, "/made/_count", "").await.1["count"] != 50 {
        tokio::task::yield_now().await;
    }
    let mut found = Vec::new();
    open_to_others(&data, &mut found);
    assert!(fs::read_dir(data.join("wal")).unwrap().count() > 0 && data.join("segments").is_dir());
    assert!(data.join("catalog.sqlite").exists() && data.join("pipelines-queues").is_dir());
    assert_eq!(found, Vec::<String>::new());
    server.stop();
    open_to_others(&data, &mut found);
    assert_eq!(found, Vec::<String>::new());
}
