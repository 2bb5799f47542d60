//! Figures of the operating system about this process and its machine, read from `/proc`.
//!
//! Figures are absent, rather than invented, where `/proc` is missing.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use super::cgroup;

/// Figures of this process.
#[derive(Clone, Debug, Default)]
pub(super) struct Process {
    /// Process id.
    pub(super) id: u32,
    /// Resident bytes.
    pub(super) resident: u64,
    /// Resident bytes that no file backs: the process's own allocations.
    pub(super) anonymous: u64,
    /// Greatest resident bytes so far.
    pub(super) peak_resident: u64,
    /// Bytes of address space.
    pub(super) virtual_bytes: u64,
    /// Threads.
    pub(super) threads: u64,
    /// CPU time used, in milliseconds.
    pub(super) cpu_ms: u64,
    /// Milliseconds since it started.
    pub(super) uptime_ms: u64,
    /// Open file descriptors.
    pub(super) open_files: u64,
    /// Most file descriptors it may open; `None` without a limit.
    pub(super) max_files: Option<u64>,
}

/// Figures of the machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Machine {
    /// Bytes of memory, or of what the process's control group may have of it.
    pub(super) memory_total: u64,
    /// Bytes of it that are available without swapping; no more than the group may have.
    pub(super) memory_free: u64,
    /// Bytes of swap space.
    pub(super) swap_total: u64,
    /// Bytes of swap space that are free.
    pub(super) swap_free: u64,
    /// Load averages over 1, 5 and 15 minutes.
    pub(super) load: Option<[f64; 3]>,
    /// Processors.
    pub(super) processors: usize,
    /// Kernel release.
    pub(super) release: String,
}

/// Figures of a file system.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FileSystem {
    /// Bytes in all.
    pub(super) total: u64,
    /// Free bytes.
    pub(super) free: u64,
    /// Bytes that this process may still use.
    pub(super) available: u64,
}

/// Clock ticks a second in `/proc`; fixed by the kernel's interface on every Linux we run on.
const TICKS: u64 = 100;

impl Process {
    pub(super) fn read() -> Self {
        let status = read("/proc/self/status");
        let status = table(&status);
        let kilobytes = |key: &str| status.get(key).copied().unwrap_or(0) * 1024;
        let stat = read("/proc/self/stat");
        // The command name may hold spaces: fields are counted after its closing parenthesis.
        let fields: Vec<&str> =
            stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
        let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let since_boot_ms = read("/proc/uptime")
            .split_whitespace()
            .next()
            .and_then(|text| text.parse::<f64>().ok())
            .map_or(0, |seconds| (seconds * 1000.0) as u64);
        let limit = read("/proc/self/limits");
        let max_files = limit
            .lines()
            .find_map(|line| line.strip_prefix("Max open files"))
            .and_then(|rest| rest.split_whitespace().next())
            .and_then(|text| text.parse().ok());
        Self {
            id: std::process::id(),
            resident: kilobytes("VmRSS"),
            anonymous: kilobytes("RssAnon"),
            peak_resident: kilobytes("VmHWM"),
            virtual_bytes: kilobytes("VmSize"),
            threads: status.get("Threads").copied().unwrap_or(0),
            cpu_ms: (ticks(11) + ticks(12)) * 1000 / TICKS,
            uptime_ms: since_boot_ms.saturating_sub(ticks(19) * 1000 / TICKS),
            open_files: fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64),
            max_files,
        }
    }
}

impl Machine {
    pub(super) fn read() -> Self {
        let memory = read("/proc/meminfo");
        let memory = table(&memory);
        let bytes = |key: &str| memory.get(key).copied().unwrap_or(0) * 1024;
        let total = bytes("MemTotal");
        let total = cgroup::limit().map_or(total, |limit| limit.min(total));
        let load: Vec<f64> =
            read("/proc/loadavg").split_whitespace().take(3).filter_map(|text| text.parse().ok()).collect();
        Self {
            memory_total: total,
            memory_free: bytes("MemAvailable").min(total),
            swap_total: bytes("SwapTotal"),
            swap_free: bytes("SwapFree"),
            load: load.try_into().ok(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            release: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }

    pub(super) fn memory_used(&self) -> u64 {
        self.memory_total.saturating_sub(self.memory_free)
    }
}

impl FileSystem {
    /// Reads the file system that a directory is on.
    pub(super) fn read(path: &Path) -> Self {
        rustix::fs::statvfs(path).map_or_else(
            |_| Self::default(),
            |figures| Self {
                total: figures.f_blocks.saturating_mul(figures.f_frsize),
                free: figures.f_bfree.saturating_mul(figures.f_frsize),
                available: figures.f_bavail.saturating_mul(figures.f_frsize),
            },
        )
    }
}

/// Computes a percentage, 0 of nothing.
pub(super) fn percent(part: u64, whole: u64) -> u64 {
    if whole == 0 { 0 } else { (u128::from(part) * 100 / u128::from(whole)) as u64 }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns the bytes of the process's memory that no file backs, 0 where the system does not tell.
pub fn anonymous_bytes() -> u64 {
    table(&read("/proc/self/status")).get("RssAnon").map_or(0, |kilobytes| kilobytes * 1024)
}

/// Reads lines of the form `Name:   123 kB`.
fn table(text: &str) -> HashMap<&str, u64> {
    text.lines()
        .filter_map(|line| {
            let (name, rest) = line.split_once(':')?;
            Some((name, rest.split_whitespace().next()?.parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_figures() {
        let process = Process::read();
        assert!(process.resident > 0 && process.anonymous > 0 && process.anonymous <= process.resident);
        assert!(process.peak_resident >= process.resident / 2);
        assert!(process.threads > 0 && process.open_files > 0);
        assert!(anonymous_bytes() > 1 << 16);
        let machine = Machine::read();
        assert!(machine.memory_total > machine.memory_used());
        assert!(FileSystem::read(Path::new("/")).total > 0);
    }

    #[test]
    fn percentages_do_not_overflow() {
        assert_eq!(percent(u64::MAX, u64::MAX), 100);
        assert_eq!(percent(1, 0), 0);
    }
}
