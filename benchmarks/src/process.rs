//! Memory of a server's process, read from `/proc`.
//!
//! Anonymous memory is what the process itself holds; resident memory counts mapped files too, which
//! the kernel takes back when it wants to.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::Serialize;

/// Unit of processor time in `/proc` (`USER_HZ`), the same on all Linux systems of today.
const TICKS_PER_SECOND: f64 = 100.0;

/// Memory at one moment, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Memory {
    /// Anonymous resident memory.
    pub(crate) anonymous_bytes: u64,
    /// All resident memory.
    pub(crate) resident_bytes: u64,
}

impl Memory {
    /// Reads the memory of a process; `None` once it has ended.
    pub(crate) fn new(pid: u32) -> Option<Self> {
        parse(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
    }

    /// Keeps the greater of each figure.
    fn max(self, other: Self) -> Self {
        Self {
            anonymous_bytes: self.anonymous_bytes.max(other.anonymous_bytes),
            resident_bytes: self.resident_bytes.max(other.resident_bytes),
        }
    }
}

fn parse(status: &str) -> Option<Memory> {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
    };
    Some(Memory { anonymous_bytes: field("RssAnon:")?, resident_bytes: field("VmRSS:")? })
}

/// Looks at a process ten times a second and remembers the most.
#[derive(Debug)]
pub(crate) struct Sampler {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Memory>,
}

impl Sampler {
    /// Starts looking.
    pub(crate) fn start(pid: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut most = Memory::default();
            while let Some(now) = Memory::new(pid) {
                most = most.max(now);
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                thread::sleep(Duration::from_millis(100));
            }
            most
        });
        Self { stop, thread }
    }

    /// Stops looking and returns the most that was seen.
    pub(crate) fn stop(self) -> Memory {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

/// Reads the processor time that a process has taken, in seconds; `None` once it has ended.
pub(crate) fn cpu_seconds(pid: u32) -> Option<f64> {
    ticks(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?).map(|ticks| ticks as f64 / TICKS_PER_SECOND)
}

/// Adds up a process's ticks in user and in system mode.
fn ticks(stat: &str) -> Option<u64> {
    // The name before may have spaces and parentheses.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// Finds the process of this machine that listens on a TCP port, if we may see it.
pub(crate) fn listening_on(port: u16) -> Option<u32> {
    let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .flat_map(|table| listeners(&table, port))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let processes = fs::read_dir("/proc").ok()?;
    processes.flatten().find_map(|process| {
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        let mut open = fs::read_dir(process.path().join("fd")).ok()?;
        let holds = open.any(|file| {
            let link = file.and_then(|file| fs::read_link(file.path()));
            link.is_ok_and(|link| link.to_str().is_some_and(|link| inodes.iter().any(|inode| inode == link)))
        });
        holds.then_some(pid)
    })
}

/// Returns the socket inodes of a `/proc/net/tcp` table that listen on a port.
fn listeners(table: &str, port: u16) -> Vec<String> {
    const LISTEN: &str = "0A";
    let suffix = format!(":{port:04X}");
    table
        .lines()
        .filter_map(|line| {
            let columns: Vec<&str> = line.split_whitespace().collect();
            let matches = columns.len() > 9 && columns[1].ends_with(&suffix) && columns[3] == LISTEN;
            matches.then(|| columns[9].to_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_read() {
        let memory = parse("Name:\tx\nVmRSS:\t   2048 kB\nRssAnon:\t    1024 kB\n").unwrap();
        assert_eq!(memory, Memory { anonymous_bytes: 1 << 20, resident_bytes: 2 << 20 });
        assert_eq!(parse("Name:\tx\n"), None);
        assert!(Memory::new(std::process::id()).unwrap().anonymous_bytes > 0);
    }

    #[test]
    fn processor_time_is_read() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 9 0 1 1 1";
        assert_eq!(ticks(stat), Some(300));
        assert_eq!(ticks("7 (cut"), None);
        assert!(cpu_seconds(std::process::id()).is_some());
    }

    #[test]
    fn a_listener_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(listening_on(port), Some(std::process::id()));
        let table = "  sl  local_address\n 0: 0100007F:23F0 00000000:0000 0A 0:0 0:0 0 0 0 4711 1\n";
        assert_eq!(listeners(table, 9200), ["4711"]);
        assert!(listeners(table, 9201).is_empty());
    }
}
