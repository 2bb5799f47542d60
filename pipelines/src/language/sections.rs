//! Sections, plugins with their options, and branches.

use millrace_ingest::options::suggest;
use millrace_ingest::{Location, Options, Setting};

use super::cursor::is_name;
use super::values::canonical_plugin;
use super::{Arm, Branch, Definition, Parser, Plugin, Statement, SyntaxRecovery};

const SECTIONS: [&str; 3] = ["input", "filter", "output"];
/// Most options of a plugin.
const MAX_OPTIONS: usize = 1_000;

impl Parser<'_> {
    /// Reads the whole text.
    pub(super) fn definition(&mut self) -> Definition {
        let mut definition = Definition::default();
        loop {
            self.cursor.skip_blank();
            if self.cursor.at_end() {
                break;
            }
            let start = self.cursor.offset();
            let name = self.cursor.take_while(is_name).to_owned();
            if !SECTIONS.contains(&name.as_str()) {
                self.cursor.back_to(start);
                let suggestion = suggest(&name, SECTIONS);
                let _ = self.expected(&format!("`input`, `filter` or `output`{suggestion}"));
                self.skip_section();
                continue;
            }
            self.cursor.skip_blank();
            let open = self.cursor.offset();
            if !self.cursor.take("{") {
                let _ = self.expected(&format!("`{{` behind `{name}`"));
                self.skip_section();
                continue;
            }
            let statements = self.statements(open, &format!("section `{name}`"));
            match name.as_str() {
                "input" => self.add_inputs(&mut definition, statements),
                "filter" => definition.filters.extend(statements),
                _ => definition.outputs.extend(statements),
            }
        }
        if self.faults.is_empty() && definition.inputs.is_empty() {
            let end = self.cursor.offset();
            self.fault(
                end,
                "the pipeline has no input; add a section `input { … }`, or, if it is a part of a pipeline such as the files of conf.d, \
                 name all parts by `path.config` in a pipelines.yml and check its directory",
            );
        }
        definition
    }

    fn add_inputs(&mut self, definition: &mut Definition, statements: Vec<Statement>) {
        for statement in statements {
            match statement {
                Statement::Plugin(plugin) => definition.inputs.push(plugin),
                Statement::Branch(branch) => {
                    // Without arms it is an `else` by itself, which is a fault already.
                    let Some(at) = branch.arms.first().map(|arm| arm.at) else { continue };
                    let message =
                        "conditions have no meaning in `input`: there is no event yet; move them to `filter`";
                    self.faults.push(millrace_ingest::Fault { at, message: message.to_owned() });
                }
            }
        }
    }

    /// Reads plugins and branches up to the closing brace. `what` has the brace at `open`.
    fn statements(&mut self, open: usize, what: &str) -> Vec<Statement> {
        let mut statements = Vec::new();
        loop {
            self.cursor.skip_blank();
            if self.cursor.take("}") {
                return statements;
            }
            if self.cursor.at_end() {
                self.fault(open, format!("the {what} that begins here has no closing }}"));
                return statements;
            }
            if self.check_length(open, statements.len()).is_err() {
                self.cursor.end();
                return statements;
            }
            let start = self.cursor.offset();
            match self.deeper(Self::statement) {
                Ok(statement) => statements.push(statement),
                Err(SyntaxRecovery) => self.next_statement(start),
            }
        }
    }

    fn statement(&mut self) -> Result<Statement, SyntaxRecovery> {
        let start = self.cursor.offset();
        if self.cursor.take_word("if") {
            return self.branch(start).map(Statement::Branch);
        }
        if self.cursor.take_word("else") {
            self.fault(start, "`else` without `if`: it must follow the `}` of an `if` or `else if`");
            self.cursor.skip_blank();
            if self.cursor.take_word("if") {
                return self.branch(start).map(Statement::Branch);
            }
            let open = self.cursor.offset();
            if self.cursor.take("{") {
                let otherwise = self.statements(open, "branch");
                return Ok(Statement::Branch(Branch { arms: Vec::new(), otherwise }));
            }
            return Err(SyntaxRecovery);
        }
        let name = match self.cursor.peek() {
            Some('"' | '\'') => self.text()?,
            Some(c) if is_name(c) => self.cursor.take_while(is_name).to_owned(),
            _ => return Err(self.expected("a plugin, `if` or `}`")),
        };
        for misspelt in ["elsif", "elseif", "elif"] {
            if name == misspelt {
                self.fault(start, format!("`{name}` is written `else if`"));
                return Err(SyntaxRecovery);
            }
        }
        self.plugin_behind(start, name).map(Statement::Plugin)
    }

    /// Reads the options of a plugin whose name has been read.
    pub(super) fn plugin_behind(&mut self, start: usize, name: String) -> Result<Plugin, SyntaxRecovery> {
        self.cursor.skip_blank();
        let open = self.cursor.offset();
        if !self.cursor.take("{") {
            return Err(self.expected(&format!("`{{` behind the plugin `{name}`")));
        }
        let at = self.cursor.location(start);
        let mut given: Vec<(String, Location, Setting)> = Vec::new();
        loop {
            self.cursor.skip_blank();
            if self.cursor.take("}") {
                break;
            }
            if self.cursor.at_end() {
                self.fault(open, format!("the plugin `{name}` that begins here has no closing }}"));
                return Err(SyntaxRecovery);
            }
            if given.len() == MAX_OPTIONS {
                self.fault(open, format!("the plugin `{name}` has more than {MAX_OPTIONS} options"));
                return Err(SyntaxRecovery);
            }
            let start = self.cursor.offset();
            match self.deeper(Self::option) {
                Ok((name, setting)) => given.push((name, self.cursor.location(start), setting)),
                Err(SyntaxRecovery) => self.next_option(),
            }
        }
        let options = Options::new(name, at, given);
        let mut canonical = String::new();
        canonical_plugin(&options, &mut canonical);
        Ok(Plugin { options, canonical })
    }

    fn option(&mut self) -> Result<(String, Setting), SyntaxRecovery> {
        let name = match self.cursor.peek() {
            Some('"' | '\'') => self.quoted()?.to_owned(),
            Some(c) if is_name(c) => self.cursor.take_while(is_name).to_owned(),
            Some(',') => {
                let offset = self.cursor.offset();
                self.fault(offset, "options are not separated by commas; leave it out");
                self.cursor.next();
                return Err(SyntaxRecovery);
            }
            _ => return Err(self.expected("an option or `}`")),
        };
        self.arrow(&name)?;
        Ok((name, self.value()?))
    }

    fn branch(&mut self, start: usize) -> Result<Branch, SyntaxRecovery> {
        let mut branch = Branch { arms: Vec::new(), otherwise: Vec::new() };
        let mut start = start;
        loop {
            let at = self.cursor.location(start);
            self.cursor.skip_blank();
            let condition = self.condition();
            if condition.is_err() && !self.skip_to_body() {
                return Err(SyntaxRecovery);
            }
            self.cursor.skip_blank();
            let open = self.cursor.offset();
            if !self.cursor.take("{") {
                let lost = self.expected("`{` behind the condition, or `and`, `or`, `xor`, `nand`");
                if !self.skip_to_body() || !self.cursor.take("{") {
                    return Err(lost);
                }
            }
            let body = self.statements(open, "branch");
            if let Ok(condition) = condition {
                branch.arms.push(Arm { at, condition, body });
            }
            let end = self.cursor.offset();
            self.cursor.skip_blank();
            start = self.cursor.offset();
            if !self.cursor.take_word("else") {
                self.cursor.back_to(end);
                return Ok(branch);
            }
            self.cursor.skip_blank();
            if self.cursor.take_word("if") {
                continue;
            }
            let open = self.cursor.offset();
            if !self.cursor.take("{") {
                return Err(self.expected("`if` or `{` behind `else`"));
            }
            branch.otherwise = self.statements(open, "branch");
            return Ok(branch);
        }
    }
}

/// Going on after a fault.
impl Parser<'_> {
    /// Goes to the next option of the plugin, or to its end: a line that begins like an option, or a closing brace that none opened since.
    fn next_option(&mut self) {
        self.skip_until('}', |parser| {
            let rest = parser.cursor.rest();
            let name = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
            name > 0 && rest.get(name..).is_some_and(|rest| rest.trim_start().starts_with("=>"))
        });
    }

    /// Goes to what may be the next plugin or branch, or the end of the section.
    fn next_statement(&mut self, start: usize) {
        if self.cursor.offset() == start {
            self.cursor.next();
        }
        self.skip_until('}', |parser| {
            let rest = parser.cursor.rest();
            let name = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
            let behind = rest.get(name..).map(str::trim_start).unwrap_or_default();
            let word = rest.get(..name).unwrap_or_default();
            word == "if" || (name > 0 && word != "else" && behind.starts_with('{'))
        });
    }

    /// Skips what is no section: a word with its braces, or all up to the next line that begins a section.
    fn skip_section(&mut self) {
        if self.cursor.take_while(is_name).is_empty() {
            self.cursor.next();
        }
        self.cursor.skip_blank();
        if self.cursor.take("{") {
            self.skip_to_close('}');
            self.cursor.take("}");
            return;
        }
        self.skip_until('}', |parser| {
            SECTIONS.iter().any(|name| {
                let behind = parser.cursor.rest().strip_prefix(name);
                behind.is_some_and(|behind| behind.trim_start().starts_with('{'))
            })
        });
    }

    /// Goes to the bracket that closes what is open here.
    pub(super) fn skip_to_close(&mut self, close: char) {
        self.skip_until(close, |_| false);
    }

    /// Goes to the brace that opens the body of a branch; whether there is one.
    fn skip_to_body(&mut self) -> bool {
        loop {
            match self.cursor.peek() {
                None | Some('}') => return false,
                Some('{') => return true,
                Some('"' | '\'') => self.skip_text(),
                Some('#') => _ = self.cursor.take_while(|c| c != '\n'),
                Some(_) => _ = self.cursor.next(),
            }
        }
    }

    /// Skips until the beginning of a word where `is_it`, or a closing bracket that is not opened on the way.
    /// Texts and comments are skipped whole; within brackets nothing is looked for.
    fn skip_until(&mut self, close: char, is_it: impl Fn(&Self) -> bool) {
        let mut depth = 0_usize;
        let mut word_begins = true;
        loop {
            let Some(next) = self.cursor.peek() else { return };
            if depth == 0 && word_begins && is_name(next) && is_it(self) {
                return;
            }
            word_begins = next.is_whitespace() || "{}[],".contains(next);
            match next {
                '}' | ']' if depth > 0 => depth -= 1,
                next if next == close => return,
                '{' | '[' => depth += 1,
                '"' | '\'' => {
                    self.skip_text();
                    continue;
                }
                '#' => {
                    self.cursor.take_while(|c| c != '\n');
                    continue;
                }
                _ => {}
            }
            self.cursor.next();
        }
    }

    /// Skips a quoted text; one that is not closed only to the end of its line.
    fn skip_text(&mut self) {
        let start = self.cursor.offset();
        let faults = self.faults.len();
        if self.quoted().is_err() {
            self.faults.truncate(faults);
            self.cursor.back_to(start);
            self.cursor.take_while(|c| c != '\n');
        }
    }
}
