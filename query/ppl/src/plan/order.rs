//! The effect of each command on the order of rows.

/// Effect of a command on the order of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderEffect {
    /// The rows that are left come in the order in which they came.
    Keeps,
    /// The command gives an order of its own.
    Sets,
    /// The rows come in any order.
    Destroys,
}

/// The effect of each command that is built.
pub const ORDER_EFFECTS: &[(&str, OrderEffect)] = &[
    ("addcoltotals", OrderEffect::Sets),
    ("addtotals", OrderEffect::Keeps),
    ("append", OrderEffect::Sets),
    ("appendcol", OrderEffect::Sets),
    ("appendpipe", OrderEffect::Sets),
    ("bin", OrderEffect::Keeps),
    ("chart", OrderEffect::Sets),
    ("convert", OrderEffect::Keeps),
    ("dedup", OrderEffect::Keeps),
    ("eval", OrderEffect::Keeps),
    ("eventstats", OrderEffect::Keeps),
    ("expand", OrderEffect::Keeps),
    ("fieldformat", OrderEffect::Keeps),
    ("fields", OrderEffect::Keeps),
    ("fieldsummary", OrderEffect::Sets),
    ("fillnull", OrderEffect::Keeps),
    ("flatten", OrderEffect::Keeps),
    ("foreach", OrderEffect::Keeps),
    ("graphlookup", OrderEffect::Keeps),
    ("grok", OrderEffect::Keeps),
    ("head", OrderEffect::Keeps),
    ("join", OrderEffect::Destroys),
    ("lookup", OrderEffect::Keeps),
    ("multisearch", OrderEffect::Sets),
    ("mvcombine", OrderEffect::Destroys),
    ("mvexpand", OrderEffect::Keeps),
    ("nomv", OrderEffect::Keeps),
    ("parse", OrderEffect::Keeps),
    ("patterns", OrderEffect::Keeps),
    ("rare", OrderEffect::Sets),
    ("regex", OrderEffect::Keeps),
    ("rename", OrderEffect::Keeps),
    ("replace", OrderEffect::Keeps),
    ("reverse", OrderEffect::Sets),
    ("rex", OrderEffect::Keeps),
    ("sort", OrderEffect::Sets),
    ("spath", OrderEffect::Keeps),
    ("stats", OrderEffect::Destroys),
    ("streamstats", OrderEffect::Keeps),
    ("table", OrderEffect::Keeps),
    ("tail", OrderEffect::Sets),
    ("timechart", OrderEffect::Sets),
    ("timewrap", OrderEffect::Sets),
    ("top", OrderEffect::Sets),
    ("transpose", OrderEffect::Sets),
    ("trendline", OrderEffect::Keeps),
    ("union", OrderEffect::Sets),
    ("where", OrderEffect::Keeps),
    ("xyseries", OrderEffect::Sets),
];

/// Returns the effect of a command; `None` for one that is not built.
pub fn order_effect(command: &str) -> Option<OrderEffect> {
    ORDER_EFFECTS.iter().find(|(name, _)| *name == command).map(|(_, effect)| *effect)
}
