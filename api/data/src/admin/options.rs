//! Parameters that many administrative endpoints share.

use millrace_catalog::metadata::IndicesOptions;

use crate::error::Error;
use crate::http::Params;

/// Takes `ignore_unavailable`, `allow_no_indices` and `expand_wildcards` over an endpoint's defaults.
pub(super) fn indices(params: &mut Params, defaults: IndicesOptions) -> Result<IndicesOptions, Error> {
    let mut options = defaults;
    if let Some(flag) = params.take_bool("ignore_unavailable")? {
        options.ignore_unavailable = flag;
    }
    if let Some(flag) = params.take_bool("allow_no_indices")? {
        options.allow_no_indices = flag;
    }
    // No index is ever throttled, so that there is none to leave out.
    params.take_bool("ignore_throttled")?;
    if let Some(words) = params.take("expand_wildcards") {
        (options.expand_open, options.expand_closed, options.expand_hidden) = (false, false, false);
        for word in words.split(',') {
            match word {
                "open" => options.expand_open = true,
                "closed" => options.expand_closed = true,
                "hidden" => options.expand_hidden = true,
                "none" => {
                    (options.expand_open, options.expand_closed, options.expand_hidden) =
                        (false, false, false);
                }
                "all" => {
                    (options.expand_open, options.expand_closed, options.expand_hidden) = (true, true, true)
                }
                _ => {
                    return Err(Error::illegal_argument(format!("No valid expand wildcard value [{word}]")));
                }
            }
        }
    }
    Ok(options)
}

/// Takes the parameters of a cluster manager that may be far away. Here it is this process: there is
/// nothing to wait for, but a value that is none is refused.
pub(crate) fn manager(params: &mut Params) -> Result<(), Error> {
    params.take_time("timeout")?;
    params.take_time("master_timeout")?;
    params.take_time("cluster_manager_timeout")?;
    params.take_bool("local")?;
    Ok(())
}

/// Takes `wait_for_active_shards`: a count or `all`. The one copy of a shard is active as soon as the
/// index is.
pub(super) fn active_shards(params: &mut Params) -> Result<(), Error> {
    match params.take("wait_for_active_shards") {
        Some(value) if value != "all" && value.parse::<u32>().is_err() => {
            Err(Error::illegal_argument(format!("cannot parse ActiveShardCount[{value}]")))
        }
        _ => Ok(()),
    }
}

/// Takes a flag that has a value of its own where absent.
pub(super) fn flag_or(params: &mut Params, name: &str, absent: bool) -> Result<bool, Error> {
    Ok(params.take_bool(name)?.unwrap_or(absent))
}

/// Takes a flag that is false where absent.
pub(super) fn flag(params: &mut Params, name: &str) -> Result<bool, Error> {
    Ok(params.take_bool(name)?.unwrap_or(false))
}
