//! Source of a password: a file, the terminal, standard input, or chance.

use std::fs::File;
use std::io::{IsTerminal, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};
use console::Term;
use millrace_accounts::generate_password;
use millrace_accounts::limits::MAX_PASSWORD_BYTES;

use crate::cli::PasswordArgs;

/// A password that is to be set.
#[derive(Default)]
pub(super) struct Password {
    pub(super) text: String,
    generated: bool,
}

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Password").finish_non_exhaustive()
    }
}

impl Password {
    /// Reads or makes it.
    pub(super) fn read(args: &PasswordArgs) -> Result<Self> {
        if args.generate {
            return Ok(Self { text: generate_password(), generated: true });
        }
        let text = match args.password_file.as_deref().filter(|file| *file != Path::new("-")) {
            Some(file) => {
                let take = || first_line(File::open(file)?);
                take().with_context(|| format!("cannot take the password from {}", file.display()))?
            }
            None if std::io::stdin().is_terminal() => twice(ask)?,
            None => {
                first_line(std::io::stdin().lock()).context("cannot take the password from standard input")?
            }
        };
        Ok(Self { text, generated: false })
    }

    /// Shows it where nobody else knows it.
    pub(super) fn show(&self) {
        if self.generated {
            super::say(&self.text);
        }
    }
}

/// Asks for a line on the terminal, which does not show it.
fn ask(what: &str) -> Result<String> {
    let terminal = Term::stderr();
    if !terminal.is_term() {
        bail!(
            "there is no terminal to ask on: pipe the password in, name a file with --password-file, or use --generate"
        );
    }
    terminal.write_str(what)?;
    let line = terminal.read_secure_line().context("cannot take the password from the terminal")?;
    first_line(line.as_bytes()).context("cannot take the password from the terminal")
}

/// Asks twice, as nobody sees what is typed.
fn twice(mut ask: impl FnMut(&str) -> Result<String>) -> Result<String> {
    let (first, second) = (ask("New password: ")?, ask("The same again: ")?);
    if first != second {
        bail!("the two passwords are not the same: nothing is changed");
    }
    Ok(first)
}

/// Reads the first line, which is to be all there is.
fn first_line(from: impl Read) -> Result<String> {
    let mut text = String::new();
    // Room for the end of the line, and for one byte that is too many.
    from.take(MAX_PASSWORD_BYTES as u64 + 3).read_to_string(&mut text)?;
    let line = text.strip_suffix('\n').map_or(text.as_str(), |line| line.strip_suffix('\r').unwrap_or(line));
    if line.is_empty() {
        bail!("it is empty");
    }
    if line.contains(['\n', '\r']) {
        bail!("it has more than one line");
    }
    if line.len() > MAX_PASSWORD_BYTES {
        bail!("it is longer than {MAX_PASSWORD_BYTES} bytes");
    }
    Ok(line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_typed_twice() {
        let type_in = |lines: &[&str]| {
            let mut lines = lines.iter();
            twice(|_| Ok((*lines.next().unwrap()).to_owned()))
        };
        assert_eq!(type_in(&["correct horse", "correct horse"]).unwrap(), "correct horse");
        type_in(&["correct horse", "correct horses"]).unwrap_err();
        twice(|_| bail!("interrupted")).unwrap_err();
    }

    #[test]
    fn a_password_is_one_line() {
        assert_eq!(first_line(&b"correct horse\r\n"[..]).unwrap(), "correct horse");
        assert_eq!(first_line(&b" x "[..]).unwrap(), " x ");
        let longest = "x".repeat(MAX_PASSWORD_BYTES);
        assert_eq!(first_line(format!("{longest}\r\n").as_bytes()).unwrap(), longest);
        for wrong in ["", "\n", "a\nb\n", &format!("{longest}x"), &format!("{longest}\r\nx")] {
            first_line(wrong.as_bytes()).unwrap_err();
        }
    }
}
