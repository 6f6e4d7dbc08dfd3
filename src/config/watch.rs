//! Notices that a file has other content, however it was put there: written in place, renamed over, or switched by a symlink
//! as Kubernetes does.
//!
//! It reads the files twice a second and compares their content. That is cheap (they are small), works on every file
//! system, and cannot miss a change or be fooled by a touch, as notifications on an old inode are. A change counts once two
//! looks in a row saw the same, so that a half-written file is not read as a whole one.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::time::Duration;

/// Between two looks.
pub const PAUSE: Duration = Duration::from_millis(500);
/// Beyond this a file is no configuration, certificate or secret; its beginning is enough to see that.
const MOST: usize = 4 * 1024 * 1024;

/// The content of each file as a hash, `None` where it cannot be read. It stays in this process.
type Contents = Vec<Option<u64>>;

pub struct Watch {
    files: Vec<PathBuf>,
    /// What was last acted on.
    acted_on: Contents,
    /// What the last look saw, if that was something else.
    seen: Option<Contents>,
}

impl Watch {
    pub fn start(files: Vec<PathBuf>) -> Self {
        let acted_on = contents(&files);
        Self { files, acted_on, seen: None }
    }

    /// One look: whether the content differs from what was last acted on, and has stood still since the last look.
    pub fn has_changed(&mut self) -> bool {
        let now = contents(&self.files);
        if now == self.acted_on {
            self.seen = None;
            return false;
        }
        let stood_still = self.seen.as_ref() == Some(&now);
        self.seen = Some(now);
        stood_still
    }

    /// What is there now is acted on; from here on these files are watched.
    pub fn act(&mut self, files: Vec<PathBuf>) {
        *self = Self::start(files);
    }

    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }
}

fn contents(files: &[PathBuf]) -> Contents {
    let hash = |path: &PathBuf| {
        let bytes = fs::read(path).ok()?;
        let mut hasher = DefaultHasher::new();
        (bytes.len(), &bytes[..bytes.len().min(MOST)]).hash(&mut hasher);
        Some(hasher.finish())
    };
    files.iter().map(hash).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    /// Looks until the change counts; panics if it does not within a few looks.
    fn assert_noticed(watch: &mut Watch, how: &str) {
        assert!((0..3).any(|_| watch.has_changed()), "{how}");
        watch.act(watch.files().to_vec());
        assert!(!watch.has_changed() && !watch.has_changed(), "once: {how}");
    }

    fn put(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
    }

    // RL-33: every way in which files change.
    #[test]
    fn every_style_of_change_is_noticed_once() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let file = at("tallygate.yaml");
        put(&file, "1");
        let mut watch = Watch::start(vec![file.clone()]);
        put(&file, "2");
        assert_noticed(&mut watch, "written in place");
        put(&at("new"), "3");
        fs::rename(at("new"), &file).unwrap();
        assert_noticed(&mut watch, "renamed over");
        fs::remove_file(&file).unwrap();
        assert_noticed(&mut watch, "removed");
        put(&file, "4");
        assert_noticed(&mut watch, "there again");
        put(&file, "4");
        assert!(!watch.has_changed() && !watch.has_changed(), "a touch is no change");

        for version in ["v1", "v2"] {
            fs::create_dir(at(version)).unwrap();
            put(&at(version).join("c.yaml"), version);
        }
        symlink(at("v1"), at("..data")).unwrap();
        symlink(at("..data").join("c.yaml"), at("mounted.yaml")).unwrap();
        let mut watch = Watch::start(vec![at("mounted.yaml")]);
        symlink(at("v2"), at("..data_tmp")).unwrap();
        fs::rename(at("..data_tmp"), at("..data")).unwrap();
        assert_noticed(&mut watch, "switched by a symlink");
    }

    #[test]
    fn a_file_that_is_still_being_written_does_not_count_yet() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tallygate.yaml");
        put(&file, "1");
        let mut watch = Watch::start(vec![file.clone()]);
        for part in ["2", "22", "222"] {
            put(&file, part);
            assert!(!watch.has_changed(), "{part}");
        }
        assert!(watch.has_changed());
        put(&file, "1");
        assert!(!watch.has_changed(), "back to what is in use");
    }
}
