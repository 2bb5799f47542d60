//! Tables of reports in Markdown: [`header`] writes the names of the columns with the line below them.

use std::fmt::Write as _;

/// Begins a table with these columns.
pub(crate) fn header(out: &mut String, columns: &[impl AsRef<str>]) {
    out.push('|');
    for column in columns {
        // Writing to a string cannot fail.
        let _ = write!(out, " {} |", column.as_ref());
    }
    let _ = writeln!(out, "\n|{}", "---|".repeat(columns.len()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_as_many_columns_as_there_are_names() {
        let mut out = String::new();
        header(&mut out, &["x", "a"]);
        assert_eq!(out, "| x | a |\n|---|---|\n");
    }
}
