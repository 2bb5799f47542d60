//! The state of a simulated disk: its namespace, files, operations and planned accidents.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path, PathBuf};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::contents::{Contents, UnsyncedChange};

pub(super) type Inode = u64;

pub(super) const ROOT: Inode = 0;

pub(super) struct State {
    pub(super) seed: u64,
    pub(super) rng: SmallRng,
    pub(super) files: HashMap<Inode, Contents>,
    pub(super) next_inode: Inode,
    /// The namespace as processes see it.
    pub(super) current: Namespace,
    /// The namespace as of a power loss that drops everything in `changes`.
    pub(super) durable: Namespace,
    pub(super) changes: Vec<Change>,
    pub(super) locks: HashSet<PathBuf>,
    pub(super) capacity: u64,
    pub(super) operations: u64,
    pub(super) crash_after: Option<u64>,
    pub(super) crashed: bool,
    pub(super) syncs: u64,
    pub(super) failing_syncs: HashSet<u64>,
    pub(super) appends: u64,
    pub(super) failing_appends: HashSet<u64>,
}

/// Directories by inode; every directory ever made has an entry.
pub(super) type Namespace = HashMap<Inode, BTreeMap<OsString, Inode>>;

/// One atomic change of the namespace: entries set (or, with `None`, removed).
#[derive(Clone)]
pub(super) struct Change(pub(super) Vec<(Inode, OsString, Option<Inode>)>);

/// Step of an operation: carried out or not.
pub(super) enum Step {
    Go,
    /// The power fails during it; `act` says whether it still reached the cache.
    Crash {
        act: bool,
    },
}

pub(super) fn power_failure() -> io::Error {
    io::Error::other("simulated power loss")
}

impl State {
    pub(super) fn fresh(seed: u64, capacity: u64) -> Self {
        Self {
            seed,
            rng: SmallRng::seed_from_u64(seed),
            files: HashMap::new(),
            next_inode: ROOT + 1,
            current: Namespace::new(),
            durable: Namespace::new(),
            changes: Vec::new(),
            locks: HashSet::new(),
            capacity,
            operations: 0,
            crash_after: None,
            crashed: false,
            syncs: 0,
            failing_syncs: HashSet::new(),
            appends: 0,
            failing_appends: HashSet::new(),
        }
    }

    pub(super) fn alive(&self) -> io::Result<()> {
        if self.crashed { Err(power_failure()) } else { Ok(()) }
    }

    pub(super) fn begin(&mut self) -> io::Result<Step> {
        self.alive()?;
        let number = self.operations;
        self.operations += 1;
        if self.crash_after.is_some_and(|after| number >= after) {
            self.crashed = true;
            return Ok(Step::Crash { act: self.rng.random_bool(0.5) });
        }
        Ok(Step::Go)
    }

    /// Runs `operation` unless the power fails before it.
    pub(super) fn operate<T>(&mut self, operation: impl FnOnce(&mut Self) -> io::Result<T>) -> io::Result<T> {
        match self.begin()? {
            Step::Go => operation(self),
            Step::Crash { act } => {
                if act {
                    // Nobody hears the answer of the operation during which the power failed.
                    let _ = operation(self);
                }
                Err(power_failure())
            }
        }
    }

    pub(super) fn used(&self) -> u64 {
        let linked: HashSet<Inode> =
            self.current.values().flat_map(|entries| entries.values().copied()).collect();
        linked.iter().filter_map(|inode| self.files.get(inode)).map(|file| file.cached.len() as u64).sum()
    }

    pub(super) fn lookup(&self, path: &Path) -> io::Result<Inode> {
        let mut inode = ROOT;
        for component in path.components() {
            let name = match component {
                Component::RootDir | Component::CurDir => continue,
                Component::Normal(name) => name,
                Component::ParentDir | Component::Prefix(_) => {
                    return Err(io::Error::from(io::ErrorKind::InvalidInput));
                }
            };
            let entries = self.current.get(&inode).ok_or(io::ErrorKind::NotADirectory)?;
            inode = *entries.get(name).ok_or(io::ErrorKind::NotFound)?;
        }
        Ok(inode)
    }

    pub(super) fn file(&self, path: &Path) -> io::Result<Inode> {
        let inode = self.lookup(path)?;
        if self.files.contains_key(&inode) { Ok(inode) } else { Err(io::ErrorKind::IsADirectory.into()) }
    }

    pub(super) fn dir(&self, path: &Path) -> io::Result<Inode> {
        let inode = self.lookup(path)?;
        if self.current.contains_key(&inode) { Ok(inode) } else { Err(io::ErrorKind::NotADirectory.into()) }
    }

    /// Finds the directory that holds (or will hold) the last name of a path.
    pub(super) fn place<'p>(&self, path: &'p Path) -> io::Result<(Inode, &'p OsStr)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        Ok((self.dir(path.parent().unwrap_or(Path::new("")))?, name))
    }

    pub(super) fn entry(&self, dir: Inode, name: &OsStr) -> Option<Inode> {
        self.current.get(&dir).and_then(|entries| entries.get(name)).copied()
    }

    pub(super) fn change(&mut self, change: Change) {
        change.apply(&mut self.current);
        self.changes.push(change);
    }

    pub(super) fn new_inode(&mut self) -> Inode {
        self.next_inode += 1;
        self.next_inode - 1
    }

    pub(super) fn make_dir(&mut self, path: &Path) -> io::Result<()> {
        let (dir, name) = self.place(path)?;
        if self.entry(dir, name).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = self.new_inode();
        self.current.insert(inode, BTreeMap::new());
        self.durable.insert(inode, BTreeMap::new());
        self.change(Change(vec![(dir, name.to_owned(), Some(inode))]));
        Ok(())
    }

    pub(super) fn append(&mut self, inode: Inode, bytes: &[u8]) -> io::Result<()> {
        let free = self.capacity.saturating_sub(self.used());
        let operations = self.operations;
        let failing = self.failing_appends.remove(&self.appends);
        self.appends += 1;
        let mut written = usize::try_from(free).unwrap_or(usize::MAX).min(bytes.len());
        if failing {
            written = written.min(self.rng.random_range(0..=bytes.len() / 2));
        }
        let contents = self.files.entry(inode).or_default();
        contents
            .unsynced
            .push(UnsyncedChange::Write { at: contents.cached.len(), bytes: bytes[..written].to_vec() });
        contents.cached.extend_from_slice(&bytes[..written]);
        contents.modified = operations;
        if failing {
            return Err(io::Error::other("simulated write error"));
        }
        if written < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    pub(super) fn cut(&mut self, inode: Inode, len: u64) {
        let contents = self.files.entry(inode).or_default();
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(contents.cached.len());
        contents.cached.truncate(len);
        contents.unsynced.push(UnsyncedChange::Cut { len });
    }

    /// Counts a sync and fails where a fault says so.
    pub(super) fn begin_sync(&mut self) -> io::Result<()> {
        self.syncs += 1;
        if self.failing_syncs.remove(&(self.syncs - 1)) {
            return Err(io::Error::other("simulated sync error"));
        }
        Ok(())
    }

    pub(super) fn sync_file(&mut self, inode: Inode) -> io::Result<()> {
        let failed = self.begin_sync();
        let contents = self.files.entry(inode).or_default();
        let unsynced = std::mem::take(&mut contents.unsynced);
        failed?;
        for part in unsynced {
            part.apply(&mut contents.durable);
        }
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, dir: Inode) -> io::Result<()> {
        self.begin_sync()?;
        let durable = &mut self.durable;
        self.changes.retain(|change| {
            let touches = change.0.iter().any(|(changed, ..)| *changed == dir);
            if touches {
                change.apply(durable);
            }
            !touches
        });
        Ok(())
    }

    pub(super) fn after_power_loss(&mut self) -> State {
        let seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(self.operations | 1);
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut namespace = self.durable.clone();
        let chance = [0.0, 0.5, 0.5, 1.0][rng.random_range(0..4)];
        for change in &self.changes {
            if rng.random_bool(chance) {
                change.apply(&mut namespace);
            }
        }
        let mut files = HashMap::new();
        let mut kept = Namespace::new();
        let mut pending = vec![ROOT];
        while let Some(dir) = pending.pop() {
            let entries = namespace.get(&dir).cloned().unwrap_or_default();
            for inode in entries.values() {
                match self.files.get(inode) {
                    Some(contents) if !files.contains_key(inode) => {
                        files.insert(*inode, contents.after_power_loss(&mut rng));
                    }
                    Some(_) => {}
                    None => pending.push(*inode),
                }
            }
            kept.insert(dir, entries);
        }
        State {
            files,
            next_inode: self.next_inode,
            current: kept.clone(),
            durable: kept,
            ..State::fresh(seed, self.capacity)
        }
    }
}

impl Change {
    pub(super) fn apply(&self, namespace: &mut Namespace) {
        for (dir, name, inode) in &self.0 {
            let entries = namespace.entry(*dir).or_default();
            match inode {
                Some(inode) => entries.insert(name.clone(), *inode),
                None => entries.remove(name),
            };
        }
    }
}
