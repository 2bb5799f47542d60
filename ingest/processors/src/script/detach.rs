//! Variables of a script whose lists and maps leave the document.
//!
//! A [`Reference`] is a path. Before the value at a path is replaced or removed, the variables within it get a copy, as the
//! objects of Painless live on. Variables behind an inserted or removed item of a list follow their items.

use serde_json::Value;

use super::evaluate::Machine;
use super::memory::{Operand, PathStep, Reference};
use crate::error::Result;

/// A variable by its slot, with the path from a value to the variable's list or map.
pub(super) type VariablePath = (usize, Vec<PathStep>);

impl Machine<'_> {
    /// Returns whether an operand is the member of a list or map at a step.
    pub(super) fn is_member(&self, container: &Reference, step: &PathStep, operand: &Operand) -> bool {
        let Operand::Reference(reference) = operand else { return false };
        let (reference, container) = (self.normalise(reference), self.normalise(container));
        let Some((last, parents)) = reference.path.split_last() else { return false };
        reference.root == container.root && last == step && *parents == *container.path
    }

    /// Finds the variables at or below a member of a list or map. Without a step it finds those below the list or map itself.
    pub(super) fn variables_in(&self, container: &Reference, step: Option<&PathStep>) -> Vec<VariablePath> {
        let outer = self.normalise(container);
        let path_below = |operand: &Operand| {
            let reference = self.normalise(operand.reference()?);
            let rest = reference.path.strip_prefix(outer.path.as_slice())?;
            let rest = match step {
                Some(step) => rest.strip_prefix(std::slice::from_ref(step))?,
                None if rest.is_empty() => return None,
                None => rest,
            };
            (reference.root == outer.root).then(|| rest.to_vec())
        };
        let variables = self.variables.iter().enumerate();
        variables.filter_map(|(slot, operand)| Some((slot, path_below(operand)?))).collect()
    }

    /// Lets variables name the same paths within another list or map.
    pub(super) fn redirect(&mut self, variables: Vec<VariablePath>, value: &Operand) {
        let Operand::Reference(target) = value else { return };
        for (slot, rest) in variables {
            let path = target.path.iter().cloned().chain(rest).collect();
            if let Some(reference) = self.variables.get_mut(slot).and_then(Operand::reference_mut) {
                *reference = Reference { root: target.root, path };
            }
        }
    }

    /// Gives the variables at or below a member a copy of it, as the member goes away.
    pub(super) fn detach(&mut self, container: &Reference, step: &PathStep) -> Result<()> {
        self.count_move(container, step)?;
        let variables = self.variables_in(container, Some(step));
        let mut member = container.clone();
        member.path.push(step.clone());
        self.detach_variables(variables, member)
    }

    /// Gives the variables below a list or map a copy of it, as its members go away.
    pub(super) fn detach_members(&mut self, container: &Reference) -> Result<()> {
        self.note_move(container.clone())?;
        let variables = self.variables_in(container, None);
        self.detach_variables(variables, container.clone())
    }

    /// Notes that a member leaves its place. Items behind one of a list do so, too.
    pub(super) fn count_move(&mut self, container: &Reference, step: &PathStep) -> Result<()> {
        let mut moved = container.clone();
        if let PathStep::Key(key) = step {
            let member = self.view(container).and_then(|value| value.get(&**key));
            if !matches!(member, Some(Value::Array(_) | Value::Object(_))) {
                return self.charge_variables();
            }
            moved.path.push(step.clone());
        }
        self.note_move(moved)
    }

    fn note_move(&mut self, moved: Reference) -> Result<()> {
        if !self.objects.is_empty() {
            let bytes = moved.path.len().saturating_mul(std::mem::size_of::<PathStep>());
            self.budget().charge(bytes.saturating_add(std::mem::size_of::<Reference>()))?;
            let moved = self.normalise(&moved).into_owned();
            self.moves.push(moved);
        }
        self.charge_variables()
    }

    /// Spends the search through all variables.
    fn charge_variables(&mut self) -> Result<()> {
        let bytes = self.variables.len().saturating_mul(std::mem::size_of::<Operand>());
        self.budget().charge_read(bytes)
    }

    /// Returns whether one of the elements has left its place since a number of moves.
    pub(super) fn have_moved(&mut self, elements: &[Operand], since: usize) -> Result<bool> {
        let moves = self.moves.len().saturating_sub(since);
        self.budget().charge_read(moves.saturating_mul(elements.len()).saturating_mul(8))?;
        let moves = self.moves.get(since..).unwrap_or_default();
        Ok(!moves.is_empty()
            && elements.iter().filter_map(Operand::reference).any(|reference| {
                let reference = self.normalise(reference);
                moves.iter().any(|moved| {
                    moved.root == reference.root && reference.path.starts_with(moved.path.as_slice())
                })
            }))
    }

    fn detach_variables(&mut self, variables: Vec<VariablePath>, value: Reference) -> Result<()> {
        if variables.is_empty() {
            return Ok(());
        }
        let copy = self.copy_value(&Operand::Reference(value))?;
        let copy = self.make(copy)?;
        self.redirect(variables, &copy);
        Ok(())
    }

    /// Lists the members of a list or map that variables are at or below.
    pub(super) fn members_in_variables(&self, container: &Reference) -> Vec<PathStep> {
        let variables = self.variables_in(container, None).into_iter();
        variables.filter_map(|(_, rest)| rest.into_iter().next()).collect()
    }

    /// Moves the positions of variables in a list, from a position on, as items were inserted or removed before them.
    pub(super) fn shift_positions(&mut self, list: &Reference, from: usize, delta: isize) {
        let mut variables = self.variables_in(list, None);
        variables.retain_mut(|(_, rest)| match rest.first_mut() {
            Some(PathStep::Position(position)) if *position >= from => {
                *position = position.saturating_add_signed(delta);
                true
            }
            _ => false,
        });
        let list = Operand::Reference(self.normalise(list).into_owned());
        self.redirect(variables, &list);
    }
}
