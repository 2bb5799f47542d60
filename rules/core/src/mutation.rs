//! Faults that tests switch on, to see that the simulation notices them. Outside of tests all of this is `false`.

/// Declares the faults, and the list of all of them.
macro_rules! mutations {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(not(test), allow(dead_code))]
        pub(crate) enum Mutation {
            $($(#[$doc])* $name,)*
        }

        #[cfg(test)]
        impl Mutation {
            /// All of them.
            pub(crate) const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}

mutations! {
    /// Firing does not clear the key.
    KeepAfterFiring,
    /// An event leaves a window only when it is older than the timeframe.
    LeaveLate,
    /// An alert carries the event that arrived last.
    CarryTrigger,
    /// Late events are dropped.
    DropLate,
    /// `realert` is not looked at.
    ForgetRealert,
    /// `realert` is one for all keys.
    RealertWithoutKey,
    /// `exponential_realert` is not looked at.
    ConstantRealert,
    /// After a crash the state begins empty.
    SkipSnapshot,
    /// Between snapshot and position operators are not muted.
    NotMuted,
    /// Events of a frame are taken as they come.
    ArrivalOrder,
    /// A piece of a frame is evaluated when it comes.
    EvaluatePieces,
    /// Events of a piece that comes twice are events twice.
    CountPiecesTwice,
    /// Updates are events.
    CountUpdates,
    /// Of several values of the key only the first one counts.
    FirstValueOnly,
    /// Events without a key are always skipped.
    SkipMissingKey,
    /// Keys are never forgotten.
    NeverForget,
    /// Keys are forgotten without an allowance for late events.
    ForgetEarly,
    /// The identity of an alert leaves the key out.
    IdentityWithoutKey,
    /// The identity of an alert leaves the sequence number out.
    IdentityWithoutSequence,
    /// The most values of a cardinality is reached, not exceeded.
    CardinalityReached,
    /// A value of a cardinality keeps the time when it was first seen.
    CardinalityFirstTime,
    /// A change is noticed however long ago the value was seen.
    ChangeWithoutTimeframe,
    /// The value of `change` is not replaced by a change.
    ChangeKeepsFirst,
    /// A new term is not remembered.
    TermNotRemembered,
    /// Terms stay known though they are not seen any more.
    TermNeverForgotten,
    /// A whitelist takes a missing value as listed.
    WhitelistMissing,
    /// A snapshot leaves `realert` out.
    SnapshotWithoutRealert,
    /// A snapshot leaves the watermark out.
    SnapshotWithoutWatermark,
    /// Late events do not change windows that are closed.
    LateNotSettled,
    /// Windows that overlap are told of each by itself.
    OverlappingFire,
    /// Keys that were told of go on being told of.
    KeysNotForgotten,
    /// A flatline has as many events as are enough.
    FlatlineReached,
    /// Of both kinds of spikes only those upwards are seen.
    SpikeUpOnly,
    /// A key that is new is compared with nothing.
    SpikeOfNewKeys,
    /// Enough values are too few.
    CardinalityEnough,
    /// A share of too few events counts.
    DenominatorForgotten,
    /// A figure of too few events counts.
    DocCountForgotten,
    /// A threshold is reached, not exceeded.
    ThresholdReached,
    /// Time in which the source lagged counts as time without events.
    LagsForgotten,
    /// Time before the rule began counts as time without events.
    JudgedBeforeOrigin,
    /// Time in which the server was down counts as time without events.
    DowntimeForgotten,
    /// Event time waits for events for ever.
    IdleWaits,
    /// Alerts are raised whatever the schedule says.
    ScheduleForgotten,
    /// The end of a condition is told each time.
    RecoverAgain,
    /// Windows close at their end, without waiting for events.
    CloseEarly,
    /// A window's identity leaves its start out.
    IdentityWithoutStart,
    /// A frame is evaluated again though the state has seen it.
    TakeFramesTwice,
    /// An event that is given again is taken as one that comes.
    ObserveAgain,
    /// Windows that late events belong to are not looked at again where there was enough to be written.
    ForgetLate,
    /// The findings of an event are not raised any more, once a full write batch has been made.
    ForgetFound,
}

#[cfg(test)]
thread_local! {
    static ACTIVE: std::cell::Cell<Option<Mutation>> = const { std::cell::Cell::new(None) };
}

/// Switches a fault on for this thread, or off.
#[cfg(test)]
pub(crate) fn mutate(mutation: Option<Mutation>) {
    ACTIVE.set(mutation);
}

/// Tells whether a fault is switched on.
#[cfg(test)]
pub(crate) fn mutated(mutation: Mutation) -> bool {
    ACTIVE.get() == Some(mutation)
}

/// Tells whether a fault is switched on: never.
#[cfg(not(test))]
pub(crate) const fn mutated(_: Mutation) -> bool {
    false
}
