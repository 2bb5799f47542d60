//! The section of the configuration about snapshots.

use std::path::PathBuf;

/// Allowed locations of repositories, and the credentials of those on S3.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Directories below which repositories of type `fs` may lie. None: there are no such repositories.
    pub path_repo: Vec<PathBuf>,
    /// The client of repositories of type `s3`.
    pub s3: S3Client,
}

/// The service of repositories of type `s3`.
#[derive(Clone, Default)]
pub struct S3Client {
    /// URL of the service; the region's own when absent.
    pub endpoint: Option<String>,
    /// Region.
    pub region: Option<String>,
    /// Access key id; the machine's credentials when absent.
    pub access_key_id: Option<String>,
    /// Secret access key.
    pub secret_access_key: Option<String>,
    /// `true` if plain HTTP is allowed.
    pub allow_http: bool,
}

impl std::fmt::Debug for S3Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { endpoint, region, access_key_id, allow_http, .. } = self;
        f.debug_struct("S3Client")
            .field("endpoint", endpoint)
            .field("region", region)
            .field("access_key_id", access_key_id)
            .field("allow_http", allow_http)
            .finish_non_exhaustive()
    }
}
