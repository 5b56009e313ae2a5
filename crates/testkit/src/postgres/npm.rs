//! PostgreSQL server programs from the npm registry, for the versions that a distribution does not have.
//!
//! The packages hold relocatable builds of `initdb`, `pg_ctl` and `postgres`. Their symbolic links are listed in a
//! file, since a package cannot hold any; they are made here, so that no script of the package has to run.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::install::PgInstall;
use crate::cache;
use crate::error::Error;
use crate::process;

/// One version of the package for each major version of PostgreSQL.
const VERSIONS: &[(u32, &str)] = &[
    (14, "14.23.0-beta.17"),
    (15, "15.18.0-beta.17"),
    (16, "16.14.0-beta.17"),
    (17, "17.10.0-beta.17"),
    (18, "18.4.0-beta.17"),
];

/// Brings the server programs of this major version into the cache, unless they are there.
pub(crate) fn fetch(major: u32) -> Result<PgInstall, Error> {
    let (_, version) = VERSIONS.iter().find(|(known, _)| *known == major).ok_or_else(|| Error::Missing {
        what: format!("PostgreSQL {major}"),
        help: "the versions that can be fetched are 14 to 18".into(),
    })?;
    let place = cache::entry(&format!("postgres/{version}"), |place| install(version, place))?;
    PgInstall::at(&place.join("bin")).ok_or_else(|| Error::Program {
        program: "postgres --version".into(),
        reason: format!("it does not run on this machine; remove {}", place.display()),
    })
}

fn install(version: &str, place: &Path) -> Result<(), Error> {
    let npm = process::on_path("npm").ok_or_else(|| Error::Missing {
        what: "npm to fetch PostgreSQL with".into(),
        help: "install npm, or set CRABKA_TEST_PG_BIN to the directories of the servers' programs".into(),
    })?;
    let package = package_name()?;
    let scratch = tempfile::tempdir().map_err(Error::io("making a directory"))?;
    let mut command = Command::new(npm);
    command.args([
        "install",
        "--ignore-scripts",
        "--no-save",
        "--no-audit",
        "--no-fund",
        "--loglevel",
        "error",
    ]);
    command
        .arg("--prefix")
        .arg(scratch.path())
        .arg(format!("{package}@{version}"))
        .current_dir(scratch.path());
    process::output(&mut command, "npm")?;
    let fetched = scratch.path().join("node_modules").join(&package).join("native");
    cache::copy_tree(&fetched, place)?;
    make_links(place)?;
    let bin = place.join("bin");
    for program in std::fs::read_dir(&bin).map_err(Error::file(&bin))? {
        let program = program.map_err(Error::file(&bin))?.path();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&program, mode).map_err(Error::file(&program))?;
    }
    Ok(())
}

fn package_name() -> Result<String, Error> {
    let system = match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    };
    let machine = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => {
            return Err(Error::Missing {
                what: format!("PostgreSQL package for {other}"),
                help: "set CRABKA_TEST_PG_BIN to the directories of the servers' programs".into(),
            });
        }
    };
    Ok(format!("@embedded-postgres/{system}-{machine}"))
}

#[derive(serde::Deserialize)]
struct Link {
    /// The file, `native/lib/libpq.so.5.17`.
    source: String,
    /// The link to it, `native/lib/libpq.so.5`.
    target: String,
}

fn make_links(place: &Path) -> Result<(), Error> {
    let list = place.join("pg-symlinks.json");
    let text = std::fs::read_to_string(&list).map_err(Error::file(&list))?;
    let links: Vec<Link> = serde_json::from_str(&text)
        .map_err(|error| Error::State(format!("{} is not a list of links: {error}", list.display())))?;
    for link in links {
        let (source, target) = (inside(&link.source), inside(&link.target));
        let (Some(source), Some(target)) = (source, target) else {
            return Err(Error::State(format!("a link that leaves the package: {}", link.target)));
        };
        let path = place.join(target);
        if path.symlink_metadata().is_ok() {
            continue;
        }
        // Relative, so that the tree can be copied: every level up from the link, then down to the file.
        let up = "../".repeat(target.matches('/').count());
        std::os::unix::fs::symlink(format!("{up}{source}"), &path).map_err(Error::file(&path))?;
    }
    Ok(())
}

fn inside(path: &str) -> Option<&str> {
    let path = path.strip_prefix("native/")?;
    (!path.split('/').any(|part| part == "..")).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_links_are_made_relative_and_stay_inside() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("lib")).unwrap();
        std::fs::write(place.path().join("lib/libpq.so.5.17"), "library").unwrap();
        let list = place.path().join("pg-symlinks.json");
        let links = r#"[{"source":"native/lib/libpq.so.5.17","target":"native/lib/libpq.so.5"}]"#;
        std::fs::write(&list, links).unwrap();
        make_links(place.path()).unwrap();
        make_links(place.path()).unwrap();
        assert_eq!(std::fs::read_to_string(place.path().join("lib/libpq.so.5")).unwrap(), "library");

        std::fs::write(&list, r#"[{"source":"native/lib/x","target":"native/../../x"}]"#).unwrap();
        assert!(make_links(place.path()).is_err());
    }
}
