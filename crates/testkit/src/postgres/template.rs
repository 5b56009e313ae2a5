//! A fresh data directory in a fraction of initdb's time: a cached one is copied and given its own identity.
//!
//! The copy gets a new system identifier, because tests ask whether two servers are the same cluster. It stands in
//! `pg_control` (first field; a CRC-32C follows the fields) and in the long header of each WAL segment's first page:
//! <https://www.postgresql.org/docs/15/wal-internals.html>.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::install::PgInstall;
use crate::account::Account;
use crate::cache;
use crate::container::container_name;
use crate::error::Error;
use crate::process;

/// Superuser of every test cluster.
pub(crate) const SUPERUSER: &str = "postgres";

/// Changed when the arguments of initdb change, so that old templates are not used any more.
const GENERATION: u32 = 1;

/// Makes `data` a new cluster of this version, owned by `account`.
pub(crate) fn new_cluster(install: &PgInstall, account: &Account, data: &Path) -> Result<(), Error> {
    let name = format!("templates/postgres-{}-{GENERATION}", install.version());
    let template = cache::entry(&name, |place| initdb(install, account, place))?;
    cache::copy_tree(&template, data)?;
    std::fs::set_permissions(data, std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .map_err(Error::file(data))?;
    set_system_identifier(data, rand::random::<u64>() >> 1)?;
    account.own(data)
}

fn initdb(install: &PgInstall, account: &Account, place: &Path) -> Result<(), Error> {
    // In a directory of its own below the system's temporary one: the account may not be able to reach the cache.
    let scratch = tempfile::Builder::new()
        .prefix("crabka-initdb-")
        .tempdir()
        .map_err(Error::io("making a directory"))?;
    account.own(scratch.path())?;
    let data = scratch.path().join("data");
    let mut command = match install.container() {
        Some(container) => {
            let words = container.words(&container_name("initdb"), scratch.path(), account, "initdb");
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            command
        }
        None => {
            let mut command = Command::new(install.bin_for(account)?.join("initdb"));
            account.apply(&mut command);
            command
        }
    };
    command.args(["--username", SUPERUSER, "--auth", "trust", "--encoding", "UTF8", "--locale", "C"]);
    command.arg("--no-sync").arg("--pgdata").arg(&data).current_dir(scratch.path());
    process::output(&mut command, "initdb")?;
    cache::copy_tree(&data, place)
}

fn set_system_identifier(data: &Path, identifier: u64) -> Result<(), Error> {
    let control = data.join("global/pg_control");
    let mut bytes = std::fs::read(&control).map_err(Error::file(&control))?;
    if !stamp_control(&mut bytes, identifier) {
        return Err(Error::State(format!("no checksum found in {}", control.display())));
    }
    std::fs::write(&control, bytes).map_err(Error::file(&control))?;
    for segment in wal_segments(&data.join("pg_wal"))? {
        // Short header 20 bytes, padded to 24; the identifier is the long header's first field.
        let file = std::fs::OpenOptions::new().write(true).open(&segment).map_err(Error::file(&segment))?;
        file.write_all_at(&identifier.to_ne_bytes(), 24).map_err(Error::file(&segment))?;
    }
    Ok(())
}

fn wal_segments(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut segments = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(Error::file(dir))? {
        let path = entry.map_err(Error::file(dir))?.path();
        if path.is_file() {
            segments.push(path);
        }
    }
    Ok(segments)
}

/// Where the checksum stands differs between versions: it is where the CRC of all bytes before it is found.
fn stamp_control(bytes: &mut [u8], identifier: u64) -> bool {
    let mut crc = Crc32c::default();
    let mut place = None;
    for (index, word) in bytes.chunks_exact(4).enumerate() {
        if index > 2 && word == crc.value().to_ne_bytes() {
            place = Some(index * 4);
            break;
        }
        crc.update(word);
    }
    let Some(place) = place else { return false };
    bytes[..8].copy_from_slice(&identifier.to_ne_bytes());
    let mut crc = Crc32c::default();
    crc.update(&bytes[..place]);
    bytes[place..place + 4].copy_from_slice(&crc.value().to_ne_bytes());
    true
}

/// CRC-32C (Castagnoli), bit by bit: a few hundred bytes once per server.
struct Crc32c(u32);

impl Default for Crc32c {
    fn default() -> Self {
        Self(u32::MAX)
    }
}

impl Crc32c {
    fn update(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 ^= u32::from(*byte);
            for _ in 0..8 {
                let low = self.0 & 1;
                self.0 >>= 1;
                if low == 1 {
                    self.0 ^= 0x82F6_3B78;
                }
            }
        }
    }

    fn value(&self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_of_the_check_string() {
        let mut crc = Crc32c::default();
        crc.update(b"123456789");
        assert_eq!(crc.value(), 0xE306_9283);
    }

    #[test]
    fn a_stamped_control_file_has_a_valid_checksum_at_the_same_place() {
        let mut bytes = vec![7_u8; 40];
        let mut crc = Crc32c::default();
        crc.update(&bytes);
        bytes.extend(crc.value().to_ne_bytes());
        bytes.extend([0; 20]);
        assert!(stamp_control(&mut bytes, 42));
        assert_eq!(bytes[..8], 42_u64.to_ne_bytes());
        let mut crc = Crc32c::default();
        crc.update(&bytes[..40]);
        assert_eq!(bytes[40..44], crc.value().to_ne_bytes());
        bytes[20] ^= 1;
        assert!(!stamp_control(&mut bytes, 43), "a damaged file is refused");
    }
}
