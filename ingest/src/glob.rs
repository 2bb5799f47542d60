//! Patterns of paths: `*`, `?`, `[a-z]`, `[^a]`, `{one,two}`, and `**` for directories at any depth.

use std::path::{Path, PathBuf};

/// Entries of directories that one look goes through at most.
const MAX_ENTRIES: usize = 1_000_000;
/// Depth to which `**` goes.
const MAX_DEPTH: usize = 64;
/// Patterns that the braces of one give at most.
const MAX_ALTERNATIVES: usize = 1_000;

/// A pattern, its braces resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Glob {
    alternatives: Vec<Vec<String>>,
}

impl Glob {
    /// Parses the pattern of an absolute path.
    ///
    /// # Errors
    /// The reason why it is refused.
    pub(crate) fn path(text: &str) -> Result<Self, String> {
        if !text.starts_with('/') {
            return Err(format!("path [{text}] must be absolute"));
        }
        Self::new(text)
    }

    /// Parses the pattern of a file's name, or of a whole path where it has a slash.
    ///
    /// # Errors
    /// The reason why it is refused.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let mut alternatives = Vec::new();
        expand(text, &mut alternatives).map_err(|why| format!("pattern [{text}] {why}"))?;
        let components =
            |text: String| text.split('/').filter(|c| !c.is_empty()).map(str::to_owned).collect();
        Ok(Self { alternatives: alternatives.into_iter().map(components).collect() })
    }

    /// Returns whether a file's name (or its path, for a pattern with a slash) matches.
    pub(crate) fn matches(&self, path: &Path) -> bool {
        let components: Vec<_> =
            path.components().filter_map(|c| c.as_os_str().to_str()).filter(|c| *c != "/").collect();
        self.alternatives.iter().any(|pattern| match pattern.as_slice() {
            [name] => components.last().is_some_and(|last| matches(name, last)),
            pattern => match_path(pattern, &components),
        })
    }

    /// Files that match, and the directories that they may lie in. What cannot be read is left out.
    pub(crate) fn find(&self, files: &mut Vec<PathBuf>) {
        if !self.find_below(Path::new("/"), files) {
            tracing::warn!(pattern = ?self.alternatives, "not all files are looked at: there are over {MAX_ENTRIES}");
        }
    }

    /// Finds files below a directory; returns `false` where there are more entries than one look goes through.
    fn find_below(&self, directory: &Path, files: &mut Vec<PathBuf>) -> bool {
        let mut left = MAX_ENTRIES;
        for pattern in &self.alternatives {
            walk(directory, pattern, 0, &mut left, files);
        }
        left > 0
    }

    /// Directories without wildcards that the pattern begins with.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        let fixed = |pattern: &Vec<String>| {
            let directories = pattern.len().saturating_sub(1);
            let mut path = PathBuf::from("/");
            path.extend(pattern.iter().take(directories).take_while(|name| !is_wild(name)));
            path
        };
        self.alternatives.iter().map(fixed).collect()
    }
}

/// Finds the files that the pattern of a path names. A relative one begins at a directory. What cannot be read is left out.
///
/// # Errors
/// The reason why the pattern is refused, or more entries of directories than one look goes through.
pub fn find_files(directory: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    let glob = Glob::new(pattern)?;
    let root = if pattern.starts_with('/') { Path::new("/") } else { directory };
    let mut files = Vec::new();
    match glob.find_below(root, &mut files) {
        true => Ok(files),
        false => {
            Err(format!("pattern [{pattern}] goes through more than {MAX_ENTRIES} entries of directories"))
        }
    }
}

fn is_wild(name: &str) -> bool {
    name.contains(['*', '?', '['])
}

fn expand(text: &str, out: &mut Vec<String>) -> Result<(), &'static str> {
    let Some(open) = text.find('{') else {
        if out.len() >= MAX_ALTERNATIVES {
            return Err("has too many alternatives");
        }
        out.push(text.to_owned());
        return Ok(());
    };
    let close = text[open..].find('}').ok_or("has a brace that is not closed")? + open;
    for alternative in text[open + 1..close].split(',') {
        expand(&format!("{}{alternative}{}", &text[..open], &text[close + 1..]), out)?;
    }
    Ok(())
}

fn walk(directory: &Path, pattern: &[String], depth: usize, left: &mut usize, files: &mut Vec<PathBuf>) {
    let Some((first, rest)) = pattern.split_first() else { return };
    if first == "**" && !rest.is_empty() {
        // No directory at all, too.
        walk(directory, rest, depth, left, files);
        if depth < MAX_DEPTH {
            for (path, is_directory) in entries(directory, left) {
                if is_directory {
                    walk(&path, pattern, depth + 1, left, files);
                }
            }
        }
        return;
    }
    if !is_wild(first) {
        let path = directory.join(first);
        match std::fs::metadata(&path) {
            Ok(found) if rest.is_empty() && found.is_file() => files.push(path),
            Ok(found) if !rest.is_empty() && found.is_dir() => walk(&path, rest, depth, left, files),
            _ => {}
        }
        return;
    }
    for (path, is_directory) in entries(directory, left) {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if !matches(first, name) {
            continue;
        }
        if rest.is_empty() {
            if std::fs::metadata(&path).is_ok_and(|found| found.is_file()) {
                files.push(path);
            }
        } else if is_directory || std::fs::metadata(&path).is_ok_and(|found| found.is_dir()) {
            walk(&path, rest, depth, left, files);
        }
    }
}

/// Entries of a directory in the order of their names, with whether each is a directory itself (and no link to one).
fn entries(directory: &Path, left: &mut usize) -> Vec<(PathBuf, bool)> {
    let Ok(read) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in read.flatten() {
        if *left == 0 {
            break;
        }
        *left -= 1;
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        found.push((entry.path(), is_directory));
    }
    found.sort();
    found
}

fn match_path(pattern: &[String], path: &[&str]) -> bool {
    match pattern.split_first() {
        None => path.is_empty(),
        Some((first, rest)) if first == "**" => (0..=path.len()).any(|skip| match_path(rest, &path[skip..])),
        Some((first, rest)) => {
            path.split_first().is_some_and(|(name, others)| matches(first, name) && match_path(rest, others))
        }
    }
}

/// Returns whether a name matches a pattern without slashes. A leading dot is matched by a dot only.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    if name.starts_with('.') && !pattern.starts_with('.') {
        return false;
    }
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // Where to go on when a match fails: behind the last star, with one character more for it.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        let step = match pattern.get(p) {
            Some('*') => {
                star = Some((p + 1, n));
                p += 1;
                continue;
            }
            Some('?') => Some(p + 1),
            Some('[') => match_class(&pattern, p, name[n]),
            Some('\\') if p + 1 < pattern.len() => (pattern[p + 1] == name[n]).then_some(p + 2),
            Some(c) => (*c == name[n]).then_some(p + 1),
            None => None,
        };
        match (step, &mut star) {
            (Some(next), _) => (p, n) = (next, n + 1),
            (None, Some((behind, from))) => {
                *from += 1;
                (p, n) = (*behind, *from);
            }
            (None, None) => return false,
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// Matches a class that begins at `at`; returns where the pattern goes on. A class that is not closed is a bracket.
fn match_class(pattern: &[char], at: usize, c: char) -> Option<usize> {
    let negated = matches!(pattern.get(at + 1), Some('!' | '^'));
    let first = at + 1 + usize::from(negated);
    let Some(length) = pattern.iter().skip(first + 1).position(|c| *c == ']') else {
        return (c == '[').then_some(at + 1);
    };
    let end = first + 1 + length;
    let class = &pattern[first..end];
    let mut found = false;
    let mut i = 0;
    while i < class.len() {
        if i + 2 < class.len() && class[i + 1] == '-' {
            found |= (class[i]..=class[i + 2]).contains(&c);
            i += 3;
        } else {
            found |= class[i] == c;
            i += 1;
        }
    }
    (found != negated).then_some(end + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_match_as_in_a_shell() {
        for (pattern, name, expected) in [
            ("*.log", "a.log", true),
            ("*.log", ".log", false),
            ("*.log", "a.log.1", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[a-c]x", "bx", true),
            ("[^a-c]x", "bx", false),
            ("[!a-c]x", "dx", true),
            ("[]x]", "]", true),
            ("[a", "[a", true),
            ("a*b*c", "a1b2b3c", true),
            ("a*b*c", "a1c", false),
            (r"a\*", "a*", true),
            (r"a\*", "ab", false),
            ("**", "anything", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn files_are_found() {
        let dir = tempfile::tempdir().unwrap();
        for file in ["a.log", "b.log", "c.txt", "x/a.log", "x/y/a.log", "x/y/.b.log", "z/a.txt"] {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let find = |pattern: &str| {
            let mut files = Vec::new();
            Glob::path(&format!("{}/{pattern}", dir.path().display())).unwrap().find(&mut files);
            let short = |path: PathBuf| path.strip_prefix(dir.path()).unwrap().to_str().unwrap().to_owned();
            files.into_iter().map(short).collect::<Vec<_>>()
        };
        assert_eq!(find("*.log"), ["a.log", "b.log"]);
        assert_eq!(find("a.log"), ["a.log"]);
        assert_eq!(find("{a,c}.{log,txt}"), ["a.log", "c.txt"]);
        assert_eq!(find("**/a.log"), ["a.log", "x/a.log", "x/y/a.log"]);
        assert_eq!(find("*/*.{log,txt}"), ["x/a.log", "z/a.txt"]);
        assert_eq!(find("nothing/*"), [""; 0]);
    }

    #[test]
    fn exclusions_are_names_or_paths() {
        let path = Path::new("/var/log/app/a.gz");
        assert!(Glob::new("*.gz").unwrap().matches(path));
        assert!(!Glob::new("*.log").unwrap().matches(path));
        assert!(Glob::new("/var/**/*.gz").unwrap().matches(path));
        assert!(!Glob::new("/var/*.gz").unwrap().matches(path));
        assert!(Glob::new("{a").is_err());
        assert!(Glob::path("relative/*").is_err());
    }

    proptest! {
        #[test]
        fn any_pattern_may_meet_any_name(pattern in r"[a-c*?\[\]^!\\{},-]{0,12}", name in "[a-c.]{0,8}") {
            let _ = matches(&pattern, &name);
            let _ = Glob::new(&pattern).map(|glob| glob.matches(Path::new("/a").join(&name).as_path()));
        }
    }
}
