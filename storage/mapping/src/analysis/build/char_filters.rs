//! Character filters by type.

use std::sync::Arc;

use millrace_runtime::{Error, Result};

use super::needs_settings;
use crate::analysis::char_filter::{CharFilter, HtmlStrip, Mapping, PatternReplace};
use crate::analysis::settings::Params;

/// Builds a character filter; `None` where the type is unknown.
pub(super) fn build(kind: &str, params: &Params) -> Result<Option<Arc<dyn CharFilter>>> {
    Ok(Some(match kind {
        "html_strip" => Arc::new(HtmlStrip::new(params.list("escaped_tags").unwrap_or_default())),
        "mapping" => {
            needs_settings(params)?;
            let Some(lines) = params.words("mappings")? else {
                return Err(Error::IllegalArgument(
                    "mapping requires either `mappings` or `mappings_path` to be configured".to_owned(),
                ));
            };
            Arc::new(Mapping::new(&lines)?)
        }
        "pattern_replace" => {
            needs_settings(params)?;
            let pattern =
                params.string("pattern").filter(|pattern| !pattern.is_empty()).ok_or_else(|| {
                    Error::IllegalArgument(format!(
                        "pattern is missing for [{}] char filter of type 'pattern_replace'",
                        params.name
                    ))
                })?;
            let flags = params.string("flags").unwrap_or_default();
            let replacement = params.string("replacement").unwrap_or_default();
            Arc::new(PatternReplace::new(&pattern, &flags, &replacement)?)
        }
        _ => return Ok(None),
    }))
}
