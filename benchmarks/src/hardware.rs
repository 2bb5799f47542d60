//! Description of the machine: figures of a report mean nothing without it.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use serde::Serialize;
use tokio::time::Instant;

use crate::latency::Histogram;

/// Processors that the system sees.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The machine.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Hardware {
    /// Processor model.
    pub(crate) processor: String,
    /// Processors that the system sees.
    pub(crate) cores: usize,
    /// Memory in bytes.
    pub(crate) memory_bytes: u64,
    /// Kernel release.
    pub(crate) kernel: String,
    /// Device and file system of the data directory.
    pub(crate) disk: String,
    /// Median of a 4 KiB append with fsync on that disk, in milliseconds.
    pub(crate) fsync_p50_ms: f64,
    /// 99th percentile of the same.
    pub(crate) fsync_p99_ms: f64,
    /// Load average of the last minute when the run began.
    pub(crate) load_average: String,
}

impl Hardware {
    /// Looks at the machine, and measures the disk of a directory.
    pub(crate) fn new(directory: &Path) -> Result<Self> {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let fsync = fsyncs(directory)?;
        Ok(Self {
            processor: field(&cpuinfo, "model name").unwrap_or_else(|| "unknown".to_owned()),
            cores: cores(),
            memory_bytes: memory(&fs::read_to_string("/proc/meminfo").unwrap_or_default()),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
            disk: disk(directory),
            fsync_p50_ms: fsync.quantile_ms(0.5),
            fsync_p99_ms: fsync.quantile_ms(0.99),
            load_average: fs::read_to_string("/proc/loadavg")
                .ok()
                .and_then(|text| text.split(' ').next().map(str::to_owned))
                .unwrap_or_default(),
        })
    }
}

fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn memory(meminfo: &str) -> u64 {
    let kilobytes =
        field(meminfo, "MemTotal").and_then(|text| text.strip_suffix("kB")?.trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

fn disk(directory: &Path) -> String {
    let output = Command::new("df").args(["--output=source,fstype,size"]).arg(directory).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().nth(1).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).unwrap_or_default()
}

fn fsyncs(directory: &Path) -> Result<Histogram> {
    let path = directory.join("fsync-probe");
    let mut file = File::create(&path)?;
    let mut latencies = Histogram::default();
    for _ in 0..100 {
        let start = Instant::now();
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        latencies.record(start.elapsed());
    }
    fs::remove_file(&path)?;
    Ok(latencies)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_described() {
        let directory = tempfile::tempdir().unwrap();
        let hardware = Hardware::new(directory.path()).unwrap();
        assert!(hardware.cores > 0 && hardware.memory_bytes > 0 && !hardware.kernel.is_empty());
        assert!(hardware.fsync_p50_ms > 0.0);
        assert_eq!(memory("MemTotal:       1024 kB\n"), 1 << 20);
    }
}
