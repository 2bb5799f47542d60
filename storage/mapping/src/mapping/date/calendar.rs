//! The calendar, as the files beside this one name it.

pub(super) use millrace_time::calendar::*;
