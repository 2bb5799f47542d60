//! The backtracking matcher: for look-around, back references, possessive quantifiers, and ends of lines and of words in texts where the
//! `regex` crate does not know them.
//!
//! It tries the ways of a pattern in Java's order. Its steps are counted over all matches of a text, and so are the ways
//! that are left to try: beyond the bound, no further match is found.

use super::class::LINE_TERMINATORS;
use super::program::{Instruction, Program};
use super::syntax::{Assertion, Case};

/// Most marks on one letter that are looked behind.
const MAX_MARKS: usize = 1_000;
/// Steps for a text, those for each of its bytes, and the most.
const STEPS: (usize, usize, usize) = (1 << 14, 1_000, 1 << 28);
/// Most entries of the stack.
const MAX_STACK: usize = 1 << 20;

/// State of a match: the position that is tried, and the groups that were found.
#[derive(Debug)]
pub(super) struct Matcher<'t> {
    text: &'t str,
    steps: usize,
    stack: Vec<Entry>,
    /// The end of the match before.
    pub(super) previous_end: usize,
    /// Positions of the latest match.
    pub(super) slots: Vec<usize>,
}

#[derive(Debug)]
enum Entry {
    /// Another way.
    Way { instruction: usize, at: usize },
    /// One character less of a run, down to a position.
    Shorter { instruction: usize, low: usize, at: usize },
    /// The value of a slot before.
    Slot { slot: usize, value: usize },
}

/// The steps or the stack are used up.
#[derive(Debug)]
pub(super) struct Exhausted;

impl<'t> Matcher<'t> {
    pub(super) fn new(program: &Program, text: &'t str) -> Self {
        let (fixed, per_byte, most) = STEPS;
        let steps = text.len().saturating_mul(per_byte).saturating_add(fixed).min(most);
        Self { text, steps, stack: Vec::new(), previous_end: 0, slots: vec![usize::MAX; program.slots] }
    }

    /// Searches a match that begins at a position or behind it.
    pub(super) fn find(&mut self, program: &Program, from: usize) -> Result<bool, Exhausted> {
        let mut start = from;
        loop {
            if self.matches(program, start)? {
                self.previous_end = self.slots[1];
                return Ok(true);
            }
            match self.text[start..].chars().next() {
                Some(c) => start += c.len_utf8(),
                None => return Ok(false),
            }
        }
    }

    fn matches(&mut self, program: &Program, start: usize) -> Result<bool, Exhausted> {
        self.slots.fill(usize::MAX);
        self.stack.clear();
        let mut next = Some((0, start));
        while let Some((mut instruction, mut at)) = next {
            loop {
                self.steps = self.steps.checked_sub(1).ok_or(Exhausted)?;
                if matches!(program.instructions[instruction], Instruction::Match) {
                    return Ok(true);
                }
                match self.step(program, instruction, at)? {
                    Some(there) => (instruction, at) = there,
                    None => break,
                }
            }
            next = self.back_track();
        }
        Ok(false)
    }

    /// Takes the latest way that is left.
    fn back_track(&mut self) -> Option<(usize, usize)> {
        loop {
            match self.stack.pop()? {
                Entry::Way { instruction, at } => return Some((instruction, at)),
                Entry::Shorter { instruction, low, at } => {
                    let at = at - self.before(at).map_or(0, char::len_utf8);
                    if at > low {
                        self.stack.push(Entry::Shorter { instruction, low, at });
                    }
                    return Some((instruction, at));
                }
                Entry::Slot { slot, value } => self.slots[slot] = value,
            }
        }
    }

    fn push(&mut self, entry: Entry) -> Result<(), Exhausted> {
        if self.stack.len() >= MAX_STACK {
            return Err(Exhausted);
        }
        self.stack.push(entry);
        Ok(())
    }

    fn save(&mut self, slot: usize, value: usize) -> Result<(), Exhausted> {
        self.push(Entry::Slot { slot, value: self.slots[slot] })?;
        self.slots[slot] = value;
        Ok(())
    }

    fn after(&self, at: usize) -> Option<char> {
        self.text[at..].chars().next()
    }

    fn before(&self, at: usize) -> Option<char> {
        self.text[..at].chars().next_back()
    }

    /// Executes one instruction: where it goes on, or `None` where it fails.
    fn step(
        &mut self,
        program: &Program,
        instruction: usize,
        at: usize,
    ) -> Result<Option<(usize, usize)>, Exhausted> {
        let next = instruction + 1;
        Ok(match program.instructions[instruction] {
            Instruction::Set(set) => {
                let c = self.after(at).filter(|&c| program.sets[set].contains(c));
                c.map(|c| (next, at + c.len_utf8()))
            }
            Instruction::Run { set, min, max } => {
                let (mut count, mut end, mut low) = (0, at, at);
                while count < max
                    && let Some(c) = self.after(end).filter(|&c| program.sets[set].contains(c))
                {
                    count += 1;
                    end += c.len_utf8();
                    if count == min {
                        low = end;
                    }
                }
                self.steps = self.steps.checked_sub(count as usize).ok_or(Exhausted)?;
                if count < min {
                    return Ok(None);
                }
                if end > low {
                    self.push(Entry::Shorter { instruction: next, low, at: end })?;
                }
                Some((next, end))
            }
            Instruction::Split { first, second } => {
                self.push(Entry::Way { instruction: second, at })?;
                Some((first, at))
            }
            Instruction::Jump(to) => Some((to, at)),
            Instruction::Save(slot) => {
                self.save(slot, at)?;
                Some((next, at))
            }
            Instruction::LeaveIfEmpty { slot, exit } => {
                Some((if self.slots[slot] == at { exit } else { next }, at))
            }
            Instruction::Assert(assertion) => self.holds(assertion, at).then_some((next, at)),
            Instruction::BackReference { group, case } => {
                self.back_reference(group, case, at)?.map(|end| (next, end))
            }
            Instruction::Enter(slot) => {
                self.save(slot, at)?;
                self.save(slot + 1, usize::MAX)?;
                self.slots[slot + 1] = self.stack.len();
                Some((next, at))
            }
            Instruction::Commit { slot, rewind } => {
                self.forget_ways(self.slots[slot + 1])?;
                Some((next, if rewind { self.slots[slot] } else { at }))
            }
            Instruction::Refuse(slot) => {
                let height = self.slots[slot + 1];
                while self.stack.len() > height {
                    if let Some(Entry::Slot { slot, value }) = self.stack.pop() {
                        self.slots[slot] = value;
                    }
                }
                None
            }
            Instruction::StepBack(count) => {
                self.steps = self.steps.checked_sub(count as usize).ok_or(Exhausted)?;
                let back = (0..count).try_fold(at, |at, _| Some(at - self.before(at)?.len_utf8()));
                back.map(|at| (next, at))
            }
            Instruction::At(slot) => (self.slots[slot] == at).then_some((next, at)),
            Instruction::Match => None,
        })
    }

    /// Drops the ways above a height of the stack, but not the values of slots.
    fn forget_ways(&mut self, height: usize) -> Result<(), Exhausted> {
        self.steps = self.steps.checked_sub(self.stack.len() - height).ok_or(Exhausted)?;
        let mut end = height;
        for at in height..self.stack.len() {
            if matches!(self.stack[at], Entry::Slot { .. }) {
                self.stack.swap(at, end);
                end += 1;
            }
        }
        self.stack.truncate(end);
        Ok(())
    }

    fn back_reference(&mut self, group: usize, case: Case, at: usize) -> Result<Option<usize>, Exhausted> {
        let (start, end) = (self.slots[2 * group], self.slots[2 * group + 1]);
        // Within the group itself, its start may be behind its end.
        if end == usize::MAX || end < start {
            return Ok(None);
        }
        // Folding takes far longer than comparing.
        let cost = if case == Case::Ignore { 256 } else { 1 };
        self.steps = self.steps.checked_sub((end - start).saturating_mul(cost)).ok_or(Exhausted)?;
        let mut text = self.text[at..].chars();
        for wanted in self.text[start..end].chars() {
            if !text.next().is_some_and(|c| equal(c, wanted, case)) {
                return Ok(None);
            }
        }
        Ok(Some(self.text.len() - text.as_str().len()))
    }

    fn holds(&self, assertion: Assertion, at: usize) -> bool {
        let ends_line = |c: char, unix: bool| if unix { c == '\n' } else { LINE_TERMINATORS.contains(&c) };
        let (before, after) = (self.before(at), self.after(at));
        let in_pair = before == Some('\r') && after == Some('\n');
        match assertion {
            Assertion::TextStart => at == 0,
            Assertion::TextEnd => after.is_none(),
            Assertion::PreviousEnd => at == self.previous_end,
            Assertion::FinalEnd { unix } => {
                let rest = &self.text[at..];
                match after {
                    None => true,
                    Some(_) if unix => rest == "\n",
                    Some(_) if in_pair => false,
                    Some(c) => rest == "\r\n" || (rest.len() == c.len_utf8() && ends_line(c, false)),
                }
            }
            Assertion::LineStart { unix } => {
                after.is_some() && before.is_none_or(|c| ends_line(c, unix)) && (unix || !in_pair)
            }
            Assertion::LineEnd { unix } => after.is_none_or(|c| ends_line(c, unix)) && (unix || !in_pair),
            Assertion::WordBoundary { unicode, negated } => {
                let left = before.is_some_and(|c| self.is_word(c, at - c.len_utf8(), unicode));
                let right = after.is_some_and(|c| self.is_word(c, at, unicode));
                (left != right) != negated
            }
        }
    }

    /// Returns true if the character at a position is part of a word: a mark is where it stands on a letter or digit.
    fn is_word(&self, c: char, at: usize, unicode: bool) -> bool {
        use unicode_properties::UnicodeGeneralCategory;
        use unicode_properties::{GeneralCategory as Category, GeneralCategoryGroup as Group};
        let category = c.general_category();
        let letter_or_digit = |c: char| {
            c.general_category_group() == Group::Letter || c.general_category() == Category::DecimalNumber
        };
        if c == '_' || letter_or_digit(c) {
            return true;
        }
        if unicode {
            return c.is_alphabetic()
                || matches!(c, '\u{200c}' | '\u{200d}')
                || category == Category::ConnectorPunctuation
                || c.general_category_group() == Group::Mark;
        }
        category == Category::NonspacingMark
            && self.text[..at]
                .chars()
                .rev()
                .take(MAX_MARKS)
                .find(|c| c.general_category() != Category::NonspacingMark)
                .is_some_and(letter_or_digit)
    }
}

fn equal(a: char, b: char, case: Case) -> bool {
    let folded = |c: char| {
        let mut class = super::class::ranges([(c, c)]);
        super::class::fold(&mut class, true);
        class
    };
    match case {
        Case::Sensitive => a == b,
        Case::IgnoreAscii => a.eq_ignore_ascii_case(&b),
        Case::Ignore => a == b || folded(a) == folded(b),
    }
}
