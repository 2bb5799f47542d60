//! Checks of the pipelines of a directory: built as the server builds them, with their settings, and not started.

use std::path::Path;

use super::source_files;
use crate::language::Environment;

/// Result of the check of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedPipeline {
    /// Id of the pipeline.
    pub id: String,
    /// Faults, a line each, with their files; `None` if there is none.
    pub faults: Option<String>,
}

/// Checks each pipeline that the server would find in a directory, those of `pipelines.yml` included.
///
/// # Errors
/// The directory or `pipelines.yml` cannot be read.
pub fn check_directory(directory: &Path, environment: &Environment) -> Result<Vec<CheckedPipeline>, String> {
    let sources = source_files::find(directory)?;
    let check = |source: &source_files::PipelineSource| CheckedPipeline {
        id: source.id.clone(),
        faults: source_files::build(source, environment.clone(), None).err(),
    };
    Ok(sources.values().map(check).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipelines_are_checked_with_their_settings() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        // By the schema, the filter needs a target.
        let text =
            "input { stdin { } } filter { http { url => \"http://127.0.0.1:1/\" } } output { stdout { } }";
        write("own.conf", text);
        write("ecs.conf", text);
        write(
            "pipelines.yml",
            "- pipeline.id: ecs\n  path.config: ecs.conf\n  pipeline.ecs_compatibility: v8\n",
        );
        let checked = check_directory(directory.path(), &Environment::default()).unwrap();
        let faults: Vec<(&str, bool)> =
            checked.iter().map(|checked| (checked.id.as_str(), checked.faults.is_some())).collect();
        assert_eq!(faults, [("ecs", true), ("own", false)]);
        assert!(checked[0].faults.as_ref().unwrap().contains("ecs.conf:1:"), "{checked:?}");
    }
}
