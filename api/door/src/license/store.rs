//! The installed licence of a server: a file of the data directory, which somebody may put there by hand.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use millrace_runtime::SharedClock;
use millrace_runtime::disk::replace_file;
use tokio::sync::Mutex;

use super::{LICENSE_KEY_BYTES, License, LicenseError, MAX_LICENSE_BYTES};

/// Name of the licence in the data directory.
const FILE: &str = "license.json";

/// The installed licence. What is refused changes nothing.
#[derive(Debug)]
pub struct LicenseStore {
    path: PathBuf,
    key: Option<[u8; LICENSE_KEY_BYTES]>,
    clock: SharedClock,
    installed: ArcSwapOption<License>,
    /// Held while the licence changes.
    changing: Mutex<()>,
}

impl LicenseStore {
    /// Makes the store of a data directory without a licence; [`LicenseStore::reload`] reads the installed one.
    pub fn new(data_dir: &Path, key: Option<[u8; LICENSE_KEY_BYTES]>, clock: SharedClock) -> Self {
        let (installed, changing) = Default::default();
        Self { path: data_dir.join(FILE), key, clock, installed, changing }
    }

    /// Returns the installed licence, which may have ended since.
    pub fn installed(&self) -> Option<Arc<License>> {
        self.installed.load_full()
    }

    /// Installs a licence.
    ///
    /// # Errors
    /// The reason why it is refused, or [`LicenseError::File`].
    pub async fn install(&self, text: &[u8]) -> Result<(), LicenseError> {
        let license = License::verify(text, self.key.as_ref())?;
        license.check_current(self.clock.now_ms())?;
        let _one = self.changing.lock().await;
        let (path, text) = (self.path.clone(), license.to_text());
        let scratch = path.with_extension("new");
        let written =
            tokio::task::spawn_blocking(move || replace_file(&scratch, &path, text.as_bytes())).await;
        let written = written.map_err(|error| LicenseError::File(error.to_string()))?;
        written.map_err(|error| LicenseError::File(error.to_string()))?;
        self.installed.store(Some(Arc::new(license)));
        Ok(())
    }

    /// Reads the file again. A missing file is the community licence. A licence that has ended stays installed.
    ///
    /// # Errors
    /// The reason why the file is refused; the licence of before stays.
    pub async fn reload(&self) -> Result<(), LicenseError> {
        let _one = self.changing.lock().await;
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || read_bounded(&path)).await;
        let read = read.map_err(|error| LicenseError::File(error.to_string()))?;
        let license = match read {
            Ok(text) => Some(Arc::new(License::verify(&text, self.key.as_ref())?)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(LicenseError::File(error.to_string())),
        };
        self.installed.store(license);
        Ok(())
    }
}

/// Reads a file, and no more of it than one byte beyond the longest licence.
fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut text = Vec::new();
    std::fs::File::open(path)?.take(MAX_LICENSE_BYTES as u64 + 1).read_to_end(&mut text)?;
    Ok(text)
}
