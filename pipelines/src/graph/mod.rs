//! Definitions as running parts: every plugin built, every option checked, before anything starts.
//!
//! [`Graph::build`] makes a graph of a [`Definition`] or reports all that is wrong with it. The runtime runs its
//! inputs and takes batches of events through [`walk`]: filters change a whole selection of
//! events one after another, branches cut selections by their conditions, outputs collect what goes where.

pub(crate) mod decoration;
mod naming;
pub(crate) mod output_event;
pub(crate) mod route;
pub(crate) mod walk;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use millrace_ingest::input::Input;
use millrace_ingest::output::Output;
use millrace_ingest::{Fault, Location, Options, input, output};

use crate::condition::Condition;
use crate::filter::{self, FilterContext, FilterPlugin};
use crate::language::{Definition, Plugin, Statement};
use crate::meter::Meter;
use decoration::{Decoration, InputDecoration, PluginLabel};
use naming::{Names, Section};

/// A pipeline ready to run.
#[derive(Debug)]
pub struct Graph {
    /// Sources.
    pub(crate) inputs: Vec<Arc<InputNode>>,
    /// Filters, which change events.
    pub(crate) filters: Block<FilterNode>,
    /// Outputs, which send events.
    pub(crate) outputs: Block<Arc<OutputNode>>,
}

/// Plugins and branches, one after another.
pub(crate) type Block<N> = Vec<Node<N>>;

/// A line of a block.
#[derive(Debug)]
pub(crate) enum Node<N> {
    Plugin(N),
    Branch(Arms<N>),
}

/// Alternatives; an event takes the first whose condition it meets.
#[derive(Debug)]
pub(crate) struct Arms<N> {
    /// Id under which its failures are reported.
    pub(crate) id: Arc<str>,
    pub(crate) arms: Vec<(Condition, Block<N>)>,
    pub(crate) otherwise: Block<N>,
}

/// Label of a plugin's figures.
#[derive(Clone, Debug)]
pub(crate) struct Label {
    pub(crate) id: Arc<str>,
    pub(crate) name: Arc<str>,
    /// `true` if it is in the figures.
    pub(crate) shown: bool,
    pub(crate) meter: Arc<Meter>,
}

/// An input.
pub(crate) struct InputNode {
    pub(crate) label: Label,
    pub(crate) input: Box<dyn Input>,
    /// Identity of an input and its text: an input that has both from an earlier graph goes on.
    pub(crate) identity: String,
    /// Its name in positions.
    pub(crate) source: Arc<str>,
    pub(crate) decoration: InputDecoration,
}

/// Without the identity, which has the values of all options.
impl fmt::Debug for InputNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InputNode")
            .field("label", &self.label)
            .field("input", &self.input)
            .finish_non_exhaustive()
    }
}

/// A filter.
#[derive(Debug)]
pub(crate) struct FilterNode {
    pub(crate) label: Label,
    pub(crate) filter: FilterPlugin,
    pub(crate) decoration: Decoration,
}

/// An output.
#[derive(Debug)]
pub(crate) struct OutputNode {
    pub(crate) label: Label,
    pub(crate) output: Output,
}

impl Graph {
    /// Builds all plugins of a definition. Nothing is started.
    ///
    /// # Errors
    /// All that is wrong, by place.
    pub fn build(definition: Definition) -> Result<Self, Vec<Fault>> {
        Self::build_after(definition, None)
    }

    /// Builds a graph that takes the place of another; the figures of plugins that stay go on.
    pub(crate) fn build_after(definition: Definition, before: Option<&Self>) -> Result<Self, Vec<Fault>> {
        let meters = before.map(Self::meters).unwrap_or_default();
        let mut builder = Builder {
            faults: Vec::new(),
            names: Names::default(),
            meters,
            sources: HashSet::new(),
            addresses: HashSet::new(),
            filters: FilterContext::default(),
        };
        let inputs = definition.inputs.into_iter().filter_map(|plugin| builder.input(plugin)).collect();
        let filters = builder.block(Section::Filter, definition.filters, Builder::filter);
        let outputs = builder.block(Section::Output, definition.outputs, Builder::output);
        let mut faults = builder.faults;
        if faults.is_empty() {
            return Ok(Self { inputs, filters, outputs });
        }
        faults.sort_by(|a, b| a.at.cmp(&b.at).then_with(|| a.message.cmp(&b.message)));
        faults.dedup();
        Err(faults)
    }

    /// Returns whether an output writes into indices of this server.
    pub fn writes_here(&self) -> bool {
        let mut found = false;
        each_plugin(&self.outputs, &mut |node: &Arc<OutputNode>| {
            found |= matches!(node.output, Output::Local(_));
        });
        found
    }

    /// Returns whether the clock flushes one of its filters.
    pub(crate) fn is_flushed(&self) -> bool {
        let mut is_flushed = false;
        each_plugin(&self.filters, &mut |node: &FilterNode| is_flushed |= node.filter.is_flushed());
        is_flushed
    }

    /// Returns whether one of its filters adds large answers of other servers.
    pub(crate) fn has_large_answers(&self) -> bool {
        let mut has_large_answers = false;
        each_plugin(&self.filters, &mut |node: &FilterNode| {
            has_large_answers |= node.filter.has_large_answers()
        });
        has_large_answers
    }

    /// Returns the addresses at which it takes events of other pipelines.
    pub(crate) fn receiving_addresses(&self) -> HashSet<String> {
        self.inputs.iter().filter_map(|node| node.input.pipeline_address().map(str::to_owned)).collect()
    }

    /// Returns the addresses of other pipelines that it sends to.
    pub(crate) fn sending_addresses(&self) -> HashSet<String> {
        let mut addresses = HashSet::new();
        each_plugin(&self.outputs, &mut |node: &Arc<OutputNode>| {
            addresses.extend(node.output.pipeline_addresses().iter().cloned());
        });
        addresses
    }

    pub(crate) fn input_labels(&self) -> Vec<Label> {
        self.inputs.iter().map(|node| node.label.clone()).collect()
    }

    pub(crate) fn filter_labels(&self) -> Vec<Label> {
        let mut labels = Vec::new();
        each_plugin(&self.filters, &mut |node: &FilterNode| labels.push(node.label.clone()));
        labels
    }

    pub(crate) fn output_labels(&self) -> Vec<Label> {
        let mut labels = Vec::new();
        each_plugin(&self.outputs, &mut |node: &Arc<OutputNode>| labels.push(node.label.clone()));
        labels
    }

    /// Returns whether an output sends events elsewhere.
    pub(crate) fn has_sinks(&self) -> bool {
        let mut has_sinks = false;
        each_plugin(&self.outputs, &mut |node: &Arc<OutputNode>| {
            has_sinks |= matches!(node.output, Output::Sink(_));
        });
        has_sinks
    }

    fn meters(&self) -> HashMap<Arc<str>, Arc<Meter>> {
        let labels = self.input_labels().into_iter().chain(self.filter_labels()).chain(self.output_labels());
        labels.map(|label| (label.id, label.meter)).collect()
    }
}

/// Calls for each plugin of a block, those within branches included.
pub(crate) fn each_plugin<N>(block: &[Node<N>], call: &mut impl FnMut(&N)) {
    for node in block {
        match node {
            Node::Plugin(plugin) => call(plugin),
            Node::Branch(branch) => {
                for (_, block) in &branch.arms {
                    each_plugin(block, call);
                }
                each_plugin(&branch.otherwise, call);
            }
        }
    }
}

struct Builder {
    faults: Vec<Fault>,
    names: Names,
    meters: HashMap<Arc<str>, Arc<Meter>>,
    /// Names of inputs in positions.
    sources: HashSet<Arc<str>>,
    /// Addresses of the inputs `pipeline`.
    addresses: HashSet<String>,
    /// State that filters share.
    filters: FilterContext,
}

impl Builder {
    fn block<N>(
        &mut self,
        section: Section,
        statements: Vec<Statement>,
        build: fn(&mut Self, Plugin) -> Option<N>,
    ) -> Block<N> {
        let mut block = Vec::with_capacity(statements.len());
        for statement in statements {
            match statement {
                Statement::Plugin(plugin) => block.extend(build(self, plugin).map(Node::Plugin)),
                Statement::Branch(branch) => {
                    let id = self.names.make_of_branch(section, &branch);
                    let arms = branch
                        .arms
                        .into_iter()
                        .map(|arm| (arm.condition, self.block(section, arm.body, build)))
                        .collect();
                    let otherwise = self.block(section, branch.otherwise, build);
                    block.push(Node::Branch(Arms { id, arms, otherwise }));
                }
            }
        }
        block
    }

    fn label(
        &mut self,
        section: &str,
        naming: &PluginLabel,
        plugin: &str,
        at: Location,
        canonical: &str,
    ) -> Label {
        let id = match &naming.id {
            Some(id) => {
                if !self.names.give(id) {
                    let message = format!("two plugins have the id [{id}]; ids are unique in a pipeline");
                    self.faults.push(Fault { at, message });
                }
                Arc::from(id.as_str())
            }
            None => self.names.make(section, plugin, canonical),
        };
        let meter = self.meters.get(&id).cloned().unwrap_or_default();
        Label { id, name: plugin.into(), shown: naming.shown, meter }
    }

    fn keep<T>(&mut self, built: Result<T, Vec<Fault>>) -> Option<T> {
        built.map_err(|faults| self.faults.extend(faults)).ok()
    }

    fn input(&mut self, Plugin { mut options, canonical }: Plugin) -> Option<Arc<InputNode>> {
        let (naming, name, at) = opening(&mut options);
        let decoration = InputDecoration::take(&mut options);
        let label = self.label("input", &naming, &name, at, &canonical);
        let input = self.keep(input::build(options))?;
        self.addresses.extend(input.pipeline_address().map(str::to_owned));
        let source = Arc::from(input::source_name(&input.identity(), naming.id.as_deref()));
        if input.needs_name() && !self.sources.insert(Arc::clone(&source)) {
            let message = format!(
                "two inputs [{name}] read the same: give each an [id], by which their positions are told apart"
            );
            self.faults.push(Fault { at, message });
        }
        let identity = format!("{}\n{canonical}", input.identity());
        Some(Arc::new(InputNode { label, input, identity, source, decoration }))
    }

    fn filter(&mut self, Plugin { mut options, canonical }: Plugin) -> Option<FilterNode> {
        let (naming, name, at) = opening(&mut options);
        let decoration = Decoration::of_filter(&mut options);
        let label = self.label("filter", &naming, &name, at, &canonical);
        let built = filter::build(options, &mut self.filters);
        let filter = self.keep(built)?;
        Some(FilterNode { label, filter, decoration })
    }

    fn output(&mut self, Plugin { mut options, canonical }: Plugin) -> Option<Arc<OutputNode>> {
        let (naming, name, at) = opening(&mut options);
        if options.integer("workers", 1..=i64::from(i32::MAX)).is_some() {
            tracing::warn!(
                output = name,
                "option [workers] of an output has no effect: pipeline.workers says how many work"
            );
        }
        let label = self.label("output", &naming, &name, at, &canonical);
        let output = self.keep(output::build(options))?;
        if let Some(own) =
            output.pipeline_addresses().iter().find(|address| self.addresses.contains(*address))
        {
            let message = format!("[send_to] has the address [{own}] of an input of the same pipeline");
            self.faults.push(Fault { at, message });
        }
        Some(Arc::new(OutputNode { label, output }))
    }
}

fn opening(options: &mut Options) -> (PluginLabel, String, Location) {
    (PluginLabel::take(options), options.plugin().to_owned(), options.at())
}
