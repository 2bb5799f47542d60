//! The mapping as documents and queries use it: objects with their children by name, leaves by
//! number, everything by full path.
//!
//! Nodes live in vectors and are named by their place, so that growing by one field copies little:
//! a mapping is cloned by counting references, and only the objects that get a child are copied.
//! Nothing is ever removed, except by [`Mapping::rollback`] of what was added since a [`GrowthMark`].

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use millrace_runtime::{Error, Result};
use serde_json::{Map, Value};

use super::date::DateFormat;
use super::rules::{Rules, compile, fills_column, shares_column};
use super::scope::Scope;
use super::settings::Settings;
use super::spec::{self, AnalyzerNames, Context, Dynamic, LeafSpec, Nested, ObjectSpec, Spec};
use super::template::Template;
use super::{Field, FieldType, PathId, as_you_type};
use crate::analysis::Analyzers;
use crate::fields::FieldRules;

pub(super) type Hasher = foldhash::fast::RandomState;

/// Child of an object: the place of an object, a leaf or an alias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Child {
    Object(u32),
    Leaf(u32),
    Alias(u32),
}

/// An index's mapping; immutable, shared as `Arc<Mapping>`.
#[derive(Clone, Debug)]
pub struct Mapping {
    pub(super) version: u64,
    pub(super) settings: Arc<Settings>,
    pub(super) analysis: Analysis,
    pub(super) root: Arc<Root>,
    /// The root object is the first.
    pub(super) objects: Vec<Arc<Object>>,
    pub(super) leaves: Vec<Arc<Leaf>>,
    pub(super) aliases: Vec<Arc<Alias>>,
    pub(super) by_path: HashMap<Arc<str>, Child, Hasher>,
    /// Leaf of each path number.
    pub(super) by_id: Vec<u32>,
    /// Nested object of each number of a nested path.
    pub(super) nested: Vec<u32>,
    /// Leaves in the order of their paths, once sealed.
    pub(super) order: Vec<u32>,
    /// Leaves of type constant_keyword, which every row of their scopes has.
    pub(super) constants: Vec<u32>,
    /// Field rules for sources under this mapping; everything is shown where there is none.
    pub(super) field_rules: Arc<[Arc<FieldRules>]>,
}

/// Settings of the root, apart from its properties.
#[derive(Clone, Debug, Default)]
pub(super) struct Root {
    pub(super) templates: Vec<Template>,
    pub(super) date_detection: Option<bool>,
    pub(super) numeric_detection: Option<bool>,
    pub(super) date_formats: Option<Vec<DateFormat>>,
    pub(super) source: Map<String, Value>,
    pub(super) routing_required: bool,
    pub(super) data_stream_timestamp: bool,
    pub(super) meta: Option<Map<String, Value>>,
}

/// An object of the mapping.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    /// Full path, empty at the root.
    pub(crate) path: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) parent: u32,
    /// Number of objects above.
    pub(crate) depth: usize,
    pub(crate) dynamic: Option<Dynamic>,
    pub(crate) enabled: bool,
    pub(crate) nested: Option<Nested>,
    /// Number of the nested path that it is.
    pub(crate) nested_id: Option<PathId>,
    /// Scopes of the values below: the elements of the nearest nested object or, outside of any, the document; and the scope that
    /// includes these.
    pub(crate) scopes: Box<[Scope]>,
    pub(crate) children: HashMap<Arc<str>, Child, Hasher>,
}

/// A leaf of the mapping.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    pub(crate) field: Field,
    pub(crate) name: Arc<str>,
    /// The object that it is in (for a multi-field, that its parent is in).
    pub(crate) object: u32,
    /// The leaf that it is a multi-field of.
    pub(super) parent: Option<u32>,
    pub(crate) rules: Rules,
    /// `true` if its values are put into a column of its own.
    pub(crate) fills: bool,
    /// Multi-fields by name.
    pub(crate) multi: Vec<u32>,
    /// Multi-fields that have a column of their own.
    pub(crate) fan: Vec<u32>,
}

/// Another name of a leaf.
#[derive(Clone, Debug)]
pub(super) struct Alias {
    pub(super) path: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) object: u32,
    pub(super) target: Arc<str>,
}

/// The analyzers of an index; those of an index without analysis settings are shared by all.
#[derive(Clone, Debug)]
pub(super) enum Analysis {
    BuiltIn,
    Own(Arc<Analyzers>),
}

impl Analysis {
    pub(super) fn read(settings: &Map<String, Value>) -> Result<Self> {
        let limits = ["index.max_ngram_diff", "index.max_shingle_diff"];
        let has_own = |key: &String| key.starts_with("index.analysis.") || limits.contains(&key.as_str());
        if settings.keys().any(has_own) {
            Analyzers::new(settings).map(|analyzers| Self::Own(Arc::new(analyzers)))
        } else {
            Ok(Self::BuiltIn)
        }
    }

    pub(super) fn get(&self) -> &Arc<Analyzers> {
        static BUILT_IN: OnceLock<Arc<Analyzers>> = OnceLock::new();
        match self {
            Self::Own(analyzers) => analyzers,
            Self::BuiltIn => BUILT_IN.get_or_init(|| {
                Arc::new(Analyzers::new(&Map::new()).expect("built-in analyzers need no settings"))
            }),
        }
    }
}

impl AnalyzerNames for Analysis {
    fn has_analyzer(&self, name: &str) -> bool {
        self.get().has_analyzer(name)
    }
    fn has_normalizer(&self, name: &str) -> bool {
        self.get().has_normalizer(name)
    }
}

/// Growth of a mapping up to some moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrowthMark {
    pub(super) objects: usize,
    pub(super) leaves: usize,
    pub(super) aliases: usize,
    ids: usize,
    nested: usize,
    constants: usize,
}

/// Path numbers given before, for decoding: of leaves, and of nested paths, which may lack some.
#[derive(Debug)]
pub(crate) struct Numbers {
    pub(super) leaves: HashMap<String, u32>,
    pub(super) nested: HashMap<String, u32>,
}

impl Mapping {
    pub(super) fn bare(settings: Settings, analysis: Analysis) -> Self {
        Self {
            version: 0,
            settings: Arc::new(settings),
            analysis,
            root: Arc::new(Root::default()),
            objects: vec![Arc::new(Object {
                path: "".into(),
                name: "".into(),
                parent: 0,
                depth: 0,
                dynamic: None,
                enabled: true,
                nested: None,
                nested_id: None,
                scopes: Box::new([Scope::DOCUMENT]),
                children: HashMap::default(),
            })],
            leaves: Vec::new(),
            aliases: Vec::new(),
            by_path: HashMap::default(),
            by_id: Vec::new(),
            nested: Vec::new(),
            order: Vec::new(),
            constants: Vec::new(),
            field_rules: Arc::default(),
        }
    }

    pub(crate) fn context(&self) -> Context<'_> {
        Context { analyzers: &self.analysis }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn object(&self, object: u32) -> &Object {
        &self.objects[object as usize]
    }

    pub(crate) fn leaf(&self, leaf: u32) -> &Leaf {
        &self.leaves[leaf as usize]
    }

    /// Lists the constant_keyword leaves, which every row of their scopes has.
    pub(crate) fn constants(&self) -> &[u32] {
        &self.constants
    }

    /// Finds what a full path names, multi-fields included.
    pub(crate) fn lookup(&self, path: &str) -> Option<Child> {
        self.by_path.get(path).copied()
    }

    /// Returns the full path of an alias.
    pub(crate) fn alias_path(&self, alias: u32) -> &str {
        &self.aliases[alias as usize].path
    }

    /// Says what an object does with unknown fields: its own word, or that of the nearest object above.
    pub(crate) fn dynamic(&self, object: u32) -> Dynamic {
        let mut at = object;
        loop {
            let object = self.object(at);
            match object.dynamic {
                Some(dynamic) => return dynamic,
                None if at == 0 => return Dynamic::True,
                None => at = object.parent,
            }
        }
    }

    /// Dynamic templates in order.
    pub(crate) fn templates(&self) -> &[Template] {
        &self.root.templates
    }

    /// Returns whether strings are tried as dates.
    pub(crate) fn date_detection(&self) -> bool {
        self.root.date_detection.unwrap_or(true)
    }

    /// Returns whether strings are tried as numbers.
    pub(crate) fn numeric_detection(&self) -> bool {
        self.root.numeric_detection.unwrap_or(false)
    }

    /// Formats by which strings are recognised as dates.
    pub(crate) fn dynamic_date_formats(&self) -> &[DateFormat] {
        static DEFAULT: OnceLock<Vec<DateFormat>> = OnceLock::new();
        match &self.root.date_formats {
            Some(formats) => formats,
            None => DEFAULT.get_or_init(|| {
                [spec::DEFAULT_DATE_FORMAT, "yyyy/MM/dd HH:mm:ss||yyyy/MM/dd||epoch_millis"]
                    .iter()
                    .filter_map(|text| DateFormat::parse(text).ok())
                    .collect()
            }),
        }
    }

    /// Counts what `index.mapping.total_fields.limit` counts.
    pub(super) fn total_fields(&self) -> usize {
        self.leaves.len() + self.aliases.len() + self.objects.len() - 1
    }

    /// Returns whether no field can be added any more.
    pub(crate) fn is_full(&self) -> bool {
        self.total_fields() >= self.settings.total_fields
    }

    /// Puts leaves into the order of their paths, after growth.
    pub(crate) fn seal(&mut self, version: u64) {
        self.version = version;
        if self.order.len() != self.leaves.len() {
            self.order = (0..self.leaves.len() as u32).collect();
            let leaves = &self.leaves;
            self.order
                .sort_unstable_by(|a, b| leaves[*a as usize].field.path.cmp(&leaves[*b as usize].field.path));
        }
    }

    /// Remembers how far the mapping has grown.
    pub(crate) fn mark(&self) -> GrowthMark {
        GrowthMark {
            objects: self.objects.len(),
            leaves: self.leaves.len(),
            aliases: self.aliases.len(),
            ids: self.by_id.len(),
            nested: self.nested.len(),
            constants: self.constants.len(),
        }
    }

    /// Returns whether anything was added since a mark.
    pub(crate) fn grown_since(&self, mark: GrowthMark) -> bool {
        self.total_fields() + 1 != mark.objects + mark.leaves + mark.aliases
    }

    /// Returns true if a child was added since a mark.
    pub(crate) fn is_newer(&self, child: Child, mark: GrowthMark) -> bool {
        match child {
            Child::Object(at) => at as usize >= mark.objects,
            Child::Leaf(at) => at as usize >= mark.leaves,
            Child::Alias(at) => at as usize >= mark.aliases,
        }
    }

    /// Removes what dynamic mapping added since a mark.
    pub(crate) fn rollback(&mut self, mark: GrowthMark) {
        for leaf in self.leaves.drain(mark.leaves..) {
            self.by_path.remove(&leaf.field.path);
            if leaf.parent.is_none() && (leaf.object as usize) < mark.objects {
                Arc::make_mut(&mut self.objects[leaf.object as usize]).children.remove(&leaf.name);
            }
        }
        for alias in self.aliases.drain(mark.aliases..) {
            self.by_path.remove(&alias.path);
            if (alias.object as usize) < mark.objects {
                Arc::make_mut(&mut self.objects[alias.object as usize]).children.remove(&alias.name);
            }
        }
        let added: Vec<Arc<Object>> = self.objects.drain(mark.objects..).collect();
        for object in added {
            self.by_path.remove(&object.path);
            if (object.parent as usize) < mark.objects {
                Arc::make_mut(&mut self.objects[object.parent as usize]).children.remove(&object.name);
            }
        }
        self.by_id.truncate(mark.ids);
        self.nested.truncate(mark.nested);
        self.constants.truncate(mark.constants);
    }

    fn path_of(&self, object: u32, name: &str) -> Arc<str> {
        let parent = &self.object(object).path;
        if parent.is_empty() { name.into() } else { format!("{parent}.{name}").into() }
    }

    /// Adds a child that is not there yet, with everything below it.
    pub(crate) fn add(
        &mut self,
        object: u32,
        name: &str,
        spec: Spec,
        numbers: Option<&Numbers>,
    ) -> Result<Child> {
        match spec {
            Spec::Leaf(leaf) => self.add_leaf(object, name, &leaf, numbers).map(Child::Leaf),
            Spec::Object(spec) => self.add_object(object, name, spec, numbers).map(Child::Object),
            Spec::Alias(target) => {
                let path = self.path_of(object, name);
                let at = Child::Alias(self.aliases.len() as u32);
                let name: Arc<str> = name.into();
                self.link(object, &name, path.clone(), at);
                self.aliases.push(Arc::new(Alias { path, name, object, target: target.into() }));
                Ok(at)
            }
        }
    }

    fn link(&mut self, object: u32, name: &Arc<str>, path: Arc<str>, child: Child) {
        Arc::make_mut(&mut self.objects[object as usize]).children.insert(name.clone(), child);
        self.by_path.insert(path, child);
    }

    fn add_object(
        &mut self,
        parent: u32,
        name: &str,
        spec: ObjectSpec,
        numbers: Option<&Numbers>,
    ) -> Result<u32> {
        let path = self.path_of(parent, name);
        let above = self.object(parent);
        let depth = above.depth + 1;
        let at = self.objects.len() as u32;
        let nested_id = spec.nested.map(|_| self.number_nested(&path, at, numbers));
        let above = self.object(parent);
        let scopes = match (spec.nested, nested_id) {
            (Some(nested), Some(id)) => {
                let mut scopes = vec![Scope::of_nested(id)];
                if nested.include_in_parent {
                    scopes.extend_from_slice(&above.scopes);
                }
                if nested.include_in_root && !scopes.contains(&Scope::DOCUMENT) {
                    scopes.push(Scope::DOCUMENT);
                }
                scopes.into()
            }
            _ => above.scopes.clone(),
        };
        let name: Arc<str> = name.into();
        let object = Object {
            path: path.clone(),
            name: name.clone(),
            parent,
            depth,
            dynamic: spec.dynamic,
            enabled: spec.enabled.unwrap_or(true),
            nested: spec.nested,
            nested_id,
            scopes,
            children: HashMap::default(),
        };
        self.objects.push(Arc::new(object));
        self.link(parent, &name, path, Child::Object(at));
        self.apply_properties(at, spec.properties, numbers)?;
        Ok(at)
    }

    /// Adds properties to an object, merging those that are there.
    pub(super) fn apply_properties(
        &mut self,
        object: u32,
        properties: Vec<(String, Spec)>,
        numbers: Option<&Numbers>,
    ) -> Result<()> {
        for (name, spec) in properties {
            match self.object(object).children.get(name.as_str()).copied() {
                None => {
                    self.add(object, &name, spec, numbers)?;
                }
                Some(child) => self.merge_child(child, spec, numbers)?,
            }
        }
        Ok(())
    }

    fn add_leaf(
        &mut self,
        object: u32,
        name: &str,
        spec: &LeafSpec,
        numbers: Option<&Numbers>,
    ) -> Result<u32> {
        let path = self.path_of(object, name);
        let at = self.push_leaf(object, None, name, path.clone(), spec, numbers)?;
        let name = self.leaf(at).name.clone();
        self.link(object, &name, path, Child::Leaf(at));
        for (sub, spec) in &spec.fields {
            self.add_multi_field(at, sub, spec, numbers)?;
        }
        self.add_parts(at, numbers)?;
        Ok(at)
    }

    pub(super) fn add_multi_field(
        &mut self,
        parent: u32,
        name: &str,
        spec: &LeafSpec,
        numbers: Option<&Numbers>,
    ) -> Result<()> {
        let above = self.leaf(parent);
        let (object, path): (u32, Arc<str>) = (above.object, format!("{}.{name}", above.field.path).into());
        let at = self.push_leaf(object, Some(parent), name, path.clone(), spec, numbers)?;
        self.by_path.insert(path, Child::Leaf(at));
        let own_column = self.leaf(at).field.column == self.leaf(at).field.id;
        let above = Arc::make_mut(&mut self.leaves[parent as usize]);
        above.multi.push(at);
        if own_column {
            above.fan.push(at);
        }
        self.add_parts(at, numbers)
    }

    /// Adds the fields that a field brings along by its type.
    fn add_parts(&mut self, leaf: u32, numbers: Option<&Numbers>) -> Result<()> {
        for (name, part) in as_you_type::parts_of(&self.leaf(leaf).field) {
            self.add_multi_field(leaf, &name, &part, numbers)?;
        }
        Ok(())
    }

    fn push_leaf(
        &mut self,
        object: u32,
        parent: Option<u32>,
        name: &str,
        path: Arc<str>,
        spec: &LeafSpec,
        numbers: Option<&Numbers>,
    ) -> Result<u32> {
        let at = self.leaves.len() as u32;
        let id = match numbers {
            None => self.by_id.len() as u32,
            Some(numbers) => *numbers.leaves.get(path.as_ref()).ok_or_else(|| Error::Corrupt {
                file: "mapping".to_owned(),
                offset: 0,
                reason: format!("path [{path}] has no number"),
            })?,
        };
        let id_at = id as usize;
        if self.by_id.len() <= id_at {
            self.by_id.resize(id_at + 1, u32::MAX);
        }
        self.by_id[id_at] = at;
        let column = match parent.map(|parent| &self.leaf(parent).field) {
            Some(above) if shares_column(&above.field_type, spec) => above.column,
            _ => PathId(id),
        };
        let (field, rules) = compile(spec, path, PathId(id), column, &self.settings)?;
        if field.field_type == FieldType::ConstantKeyword && parent.is_none() {
            self.constants.push(at);
        }
        let fills = fills_column(&field);
        self.leaves.push(Arc::new(Leaf {
            field,
            name: name.into(),
            object,
            parent,
            rules,
            fills,
            multi: Vec::new(),
            fan: Vec::new(),
        }));
        Ok(at)
    }

    /// Gives a leaf the parameters of an update that was found compatible.
    pub(super) fn update_leaf(&mut self, at: u32, spec: &LeafSpec) -> Result<()> {
        let leaf = self.leaf(at);
        let (field, rules) =
            compile(spec, leaf.field.path.clone(), leaf.field.id, leaf.field.column, &self.settings)?;
        let leaf = Arc::make_mut(&mut self.leaves[at as usize]);
        leaf.fills = fills_column(&field);
        leaf.field = field;
        leaf.rules = rules;
        Ok(())
    }
}
