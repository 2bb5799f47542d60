use std::path::Path;
use std::sync::Arc;

use super::{Disk, SimulatedDisk, SystemDisk, is_already_exists, is_full, is_not_found};
use crate::Error;

/// Tests the contract of every disk.
fn conforms(disk: &dyn Disk, root: &Path) {
    let dir = root.join("a/b");
    disk.create_dir_all(&dir).unwrap();
    disk.create_dir_all(&dir).unwrap();
    let path = dir.join("file");
    let mut file = disk.create(&path).unwrap();
    assert!(is_already_exists(&disk.create(&path).unwrap_err()));
    file.append(b"hello ").unwrap();
    file.append(b"world").unwrap();
    file.sync().unwrap();
    assert_eq!(disk.read(&path).unwrap(), b"hello world");
    assert_eq!(&disk.open_mapped(&path).unwrap()[..], b"hello world");
    let (mapped, pages) = disk.open_mapped_pages(&path).unwrap();
    pages.release();
    assert_eq!(&mapped[..], b"hello world");
    assert_eq!(&disk.read_range(&path, 6, 5).unwrap()[..], b"world");
    let read = disk.read_ranges(&path, &[0..1, 4..4, 10..11]).unwrap();
    assert_eq!(read, ["h", "", "d"]);
    assert!(matches!(disk.read_range(&path, 6, 6), Err(Error::Io { .. })));
    assert_eq!(disk.len(&path).unwrap(), 11);
    assert!(disk.metadata(&dir).unwrap().is_dir);

    file.truncate(6).unwrap();
    file.append(b"again").unwrap();
    assert_eq!(disk.read(&path).unwrap(), b"hello again");
    drop(file);
    disk.sync_file(&path).unwrap();
    disk.truncate(&path, 5).unwrap();
    assert_eq!(disk.read(&path).unwrap(), b"hello");

    let other = root.join("a/other");
    disk.hard_link(&path, &other).unwrap();
    assert!(is_already_exists(&disk.hard_link(&path, &other).unwrap_err()));
    disk.create(&dir.join("new")).unwrap().append(b"new").unwrap();
    disk.rename(&dir.join("new"), &other).unwrap();
    disk.sync_dir(&dir).unwrap();
    assert_eq!(disk.read(&other).unwrap(), b"new");
    assert_eq!(disk.read(&path).unwrap(), b"hello");
    assert_eq!(disk.list(&root.join("a")).unwrap(), [Path::new("b"), Path::new("other")]);

    assert!(!disk.remove_dir(&dir).unwrap());
    disk.remove(&path).unwrap();
    disk.remove(&path).unwrap();
    assert!(disk.remove_dir(&dir).unwrap());
    assert!(disk.remove_dir(&dir).unwrap());
    assert_eq!(disk.list(&dir).unwrap(), Vec::<std::path::PathBuf>::new());
    for error in [
        disk.read(&path).unwrap_err(),
        disk.len(&path).unwrap_err(),
        disk.open_mapped(&path).unwrap_err(),
        disk.create(&path).unwrap_err(),
        disk.rename(&path, &other).unwrap_err(),
    ] {
        assert!(is_not_found(&error), "{error}");
    }
    // Whole blocks of aligned memory, a rest, and what comes behind it.
    let memory: Vec<u8> = (0..3 << 20).map(|at: u32| (at % 251) as u8).collect();
    let aligned = &memory[memory.as_ptr().align_offset(4096)..];
    let (uncached, mut expected) = (root.join("uncached"), Vec::new());
    let mut file = disk.create_uncached(&uncached).unwrap();
    assert!(is_already_exists(&disk.create_uncached(&uncached).unwrap_err()));
    for piece in
        [&aligned[..1 << 20], &aligned[..4096], &aligned[..70_001], &aligned[..8192], b"end".as_slice()]
    {
        file.append(piece).unwrap();
        file.begin_sync();
        expected.extend_from_slice(piece);
    }
    file.sync().unwrap();
    assert!(disk.read(&uncached).unwrap() == expected);
    file.truncate(4096).unwrap();
    file.append(&aligned[4096..8192]).unwrap();
    drop(file);
    assert!(disk.read(&uncached).unwrap() == expected[..8192]);
    disk.remove(&uncached).unwrap();
    let space = disk.space(root).unwrap();
    assert!(space.free > 0 && space.free <= space.total);

    let lock = disk.lock(&root.join("lock")).unwrap();
    let refused = disk.lock(&root.join("lock")).unwrap_err();
    assert!(matches!(&refused, Error::Locked(dir) if dir.starts_with(root.to_str().unwrap())), "{refused}");
    drop(lock);
    disk.lock(&root.join("lock")).unwrap();
}

#[test]
fn the_system_disk_conforms() {
    let dir = tempfile::tempdir().unwrap();
    conforms(&SystemDisk::new(), dir.path());
}

/// Returns the bytes in memory of the map that an address is in.
#[cfg(target_os = "linux")]
fn resident_bytes(address: usize) -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut is_inside = false;
    for line in maps.lines() {
        if let Some((range, _)) = line.split_once(' ')
            && let Some((from, to)) = range.split_once('-')
            && let (Ok(from), Ok(to)) = (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16))
        {
            is_inside = (from..to).contains(&address);
        } else if is_inside && let Some(rss) = line.strip_prefix("Rss:") {
            return rss.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10;
        }
    }
    panic!("no map has the address");
}

#[test]
#[cfg(target_os = "linux")]
fn pages_of_a_map_are_given_back_and_read_again() {
    const BYTES: usize = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let written: Vec<u8> = (0..BYTES).map(|at| (at / 7) as u8).collect();
    std::fs::write(&path, &written).unwrap();
    let (mapped, pages) = SystemDisk::new().open_mapped_pages(&path).unwrap();
    assert!(mapped == written);
    let address = mapped.as_ptr() as usize;
    assert_eq!(resident_bytes(address), BYTES);
    pages.release();
    assert_eq!(resident_bytes(address), 0);
    assert!(mapped == written);
    drop(mapped);
    pages.release();
}

#[test]
fn the_simulated_disk_conforms() {
    let disk = SimulatedDisk::new(1);
    disk.create_dir_all(Path::new("/data")).unwrap();
    conforms(&disk, Path::new("/data"));
}

#[test]
fn a_lock_names_its_holder() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    let _lock = SystemDisk::new().lock(&path).unwrap();
    let refused = SystemDisk::new().lock(&path).unwrap_err().to_string();
    assert!(refused.contains(&format!("(process {})", std::process::id())), "{refused}");
}

/// Returns the states that a power loss leaves of one file with the given preparation, over many seeds.
fn survivors(prepare: impl Fn(&SimulatedDisk)) -> Vec<Option<Vec<u8>>> {
    let after = |seed| {
        let disk = SimulatedDisk::new(seed);
        prepare(&disk);
        let left = disk.power_loss();
        assert!(disk.read(Path::new("/f")).is_err());
        match left.read(Path::new("/f")) {
            Ok(bytes) => Some(bytes),
            Err(error) if is_not_found(&error) => None,
            Err(error) => panic!("{error}"),
        }
    };
    (0..200).map(after).collect()
}

#[test]
fn power_loss_keeps_what_was_synced_and_nothing_else_for_sure() {
    let synced = survivors(|disk| {
        let mut file = disk.create(Path::new("/f")).unwrap();
        file.append(&[7; 1000]).unwrap();
        file.sync().unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        file.append(&[8; 2000]).unwrap();
    });
    for left in &synced {
        let left = left.as_ref().unwrap();
        assert_eq!(left[..1000], [7; 1000]);
        assert!(left[1000..].iter().all(|byte| *byte == 8 || *byte == 0));
    }
    assert!(synced.iter().flatten().any(|left| left.len() == 1000));
    assert!(synced.iter().flatten().any(|left| left.len() == 3000));
    assert!(synced.iter().flatten().any(|left| left.len() > 1000 && left.ends_with(&[0])));

    let unnamed = survivors(|disk| {
        let mut file = disk.create(Path::new("/f")).unwrap();
        file.append(&[7; 1000]).unwrap();
        file.sync().unwrap();
    });
    assert!(unnamed.iter().any(Option::is_none) && unnamed.iter().any(Option::is_some));
    assert!(unnamed.iter().flatten().all(|left| *left == [7; 1000]));
}

#[test]
fn power_loss_undoes_renames_and_removals_that_were_not_synced() {
    let prepare = |disk: &SimulatedDisk| {
        for (name, byte) in [("/f", 1), ("/g", 2)] {
            let mut file = disk.create(Path::new(name)).unwrap();
            file.append(&[byte]).unwrap();
            file.sync().unwrap();
        }
        disk.sync_dir(Path::new("/")).unwrap();
    };
    let renamed = survivors(|disk| {
        prepare(disk);
        disk.rename(Path::new("/g"), Path::new("/f")).unwrap();
    });
    assert!(renamed.contains(&Some(vec![1])) && renamed.contains(&Some(vec![2])));
    assert!(!renamed.contains(&None));
    let removed = survivors(|disk| {
        prepare(disk);
        disk.remove(Path::new("/f")).unwrap();
    });
    assert!(removed.contains(&Some(vec![1])) && removed.contains(&None));
    let removed = survivors(|disk| {
        prepare(disk);
        disk.remove(Path::new("/f")).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
    });
    assert!(removed.iter().all(Option::is_none));
}

#[test]
fn killing_the_process_keeps_the_cache_but_does_not_sync_it() {
    let disk = SimulatedDisk::new(3);
    disk.create(Path::new("/f")).unwrap().append(b"x").unwrap();
    let next = disk.kill();
    assert!(disk.read(Path::new("/f")).is_err());
    assert_eq!(next.read(Path::new("/f")).unwrap(), b"x");
    let lost = (0..50).filter(|_| next.kill().power_loss().read(Path::new("/f")).is_err());
    // The same seed decides the same, so look at one derived disk after another instead.
    let mut disk = next.clone();
    let mut seen = lost.count() > 0;
    for _ in 0..50 {
        disk = disk.kill();
        seen |= disk.clone().power_loss().read(Path::new("/f")).is_err();
    }
    assert!(seen, "an unsynced file survived every power loss");
}

#[test]
fn faults_are_injected_where_asked() {
    let disk = SimulatedDisk::new(4);
    let mut file = disk.create(Path::new("/f")).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    disk.fail_sync(1);
    file.append(b"a").unwrap();
    file.sync().unwrap();
    file.append(b"b").unwrap();
    assert!(file.sync().is_err());
    file.sync().unwrap();
    assert_eq!(disk.read(Path::new("/f")).unwrap(), b"ab");

    disk.set_capacity(4);
    let error = file.append(b"cdef").unwrap_err();
    assert!(is_full(&error), "{error}");
    assert_eq!(disk.read(Path::new("/f")).unwrap(), b"abcd");
    disk.set_capacity(100);
    disk.fail_append(0);
    assert!(!is_full(&file.append(&[1; 20]).unwrap_err()));
    assert!(disk.len(Path::new("/f")).unwrap() <= 14);

    let operations = disk.op_count();
    disk.crash_after(1);
    file.sync().unwrap();
    assert!(!disk.crashed());
    assert!(file.append(b"z").is_err());
    assert!(disk.crashed());
    assert!(file.sync().is_err() && disk.read(Path::new("/f")).is_err());
    assert_eq!(disk.op_count(), operations + 2);
}

#[test]
fn a_transaction_happens_whole_or_not_at_all() {
    let mut outcomes = std::collections::HashSet::new();
    for seed in 0..40 {
        let disk: Arc<SimulatedDisk> = Arc::new(SimulatedDisk::new(seed));
        disk.crash_after(1);
        let mut done = 0;
        disk.transaction(|| done += 1).unwrap();
        assert!(disk.transaction(|| done += 1).is_err());
        assert!(disk.transaction(|| done += 1).is_err());
        outcomes.insert(done);
    }
    assert_eq!(outcomes, [1, 2].into());
}
