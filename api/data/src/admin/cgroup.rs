//! Memory limit of the process: the machine's, or less where a control group of Linux says so.

use std::fs;
use std::path::{Component, Path, PathBuf};

use super::process::Machine;

/// Returns the bytes of memory that the process may have, 0 where the system does not tell.
pub fn memory_limit() -> u64 {
    Machine::read().memory_total
}

/// Returns the least limit of the control groups that the process is in, of either version of their interface.
pub(super) fn limit() -> Option<u64> {
    least(&fs::read_to_string("/proc/self/cgroup").ok()?, Path::new("/sys/fs/cgroup"))
}

/// Finds the least limit; `groups` are lines `id:controllers:path`, whose paths are below `root`.
fn least(groups: &str, root: &Path) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let (mounts, file): (&[&str], &str) = match controllers {
            "" => (&["", "unified"], "memory.max"),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                (&["memory"], "memory.limit_in_bytes")
            }
            _ => return None,
        };
        mounts.iter().filter_map(|mount| least_above(&root.join(mount), path, file)).min()
    });
    limits.min()
}

/// Finds the least limit of a group and those that it is in. A container may see its own group as the root, by another
/// path than the one that it is told: what is not there has no limit.
fn least_above(mount: &Path, path: &str, file: &str) -> Option<u64> {
    let names = Path::new(path).components().filter(|part| matches!(part, Component::Normal(_)));
    let group: PathBuf = names.collect();
    let limit = |group: &Path| {
        let text = fs::read_to_string(mount.join(group).join(file)).ok()?;
        // `max` is none.
        text.trim().parse::<u64>().ok()
    };
    group.ancestors().filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_counts() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let put = |file: &str, limit: &str| {
            let file = root.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, format!("{limit}\n")).unwrap();
        };
        put("system.slice/memory.max", "3000");
        put("system.slice/millrace.service/memory.max", "max");
        put("system.slice/small.service/memory.max", "1000");
        put("memory/memory.limit_in_bytes", "5000");
        put("memory/docker/abc/memory.limit_in_bytes", "9223372036854771712");
        put("memory/docker/def/memory.limit_in_bytes", "2000");
        put("unified/job/memory.max", "7000");
        for (groups, limit) in [
            ("0::/system.slice/millrace.service\n", Some(3000)),
            ("0::/system.slice/small.service\n", Some(1000)),
            ("0::/\n", None),
            ("0::/user.slice\n", None),
            ("0::/../../system.slice/small.service\n", Some(1000)),
            ("0::/job\n", Some(7000)),
            ("12:cpu,cpuacct:/docker/def\n5:memory:/docker/abc\n", Some(5000)),
            ("5:hugetlb,memory:/docker/def\n", Some(2000)),
            // Seen from within the container.
            ("5:memory:/kubepods/xyz\n", Some(5000)),
            ("5:memory:/docker/def\n0::/system.slice/small.service\n", Some(1000)),
            ("", None),
            ("nonsense\n", None),
        ] {
            assert_eq!(least(groups, root), limit, "{groups}");
        }
        assert!(memory_limit() > 0);
    }
}
