//! Where a password comes from: a file, standard input, or chance.

use std::fs::File;
use std::io::{IsTerminal, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};
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
        let Some(file) = &args.password_file else {
            return Ok(Self { text: generate_password(), generated: true });
        };
        let text = if file == Path::new("-") {
            let stdin = std::io::stdin();
            if stdin.is_terminal() {
                bail!(
                    "a terminal would show the password: pipe it in, name a file with --password-file, or use --generate"
                );
            }
            first_line(stdin.lock()).context("cannot take the password from standard input")?
        } else {
            let take = || first_line(File::open(file)?);
            take().with_context(|| format!("cannot take the password from {}", file.display()))?
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
