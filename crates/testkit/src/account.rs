//! The account a server runs under: PostgreSQL refuses to run as root, so root's tests give it to another user.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::error::Error;

/// Who a server runs as, and who owns its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Account {
    /// Whoever runs the tests.
    Own,
    /// Another user, which only root can become.
    Other { uid: u32, gid: u32 },
}

impl Account {
    /// For a program that may not run as root. `ours` is any file made by this process: its owner is who we are.
    pub(crate) fn unprivileged(ours: &Path) -> Result<Self, Error> {
        if std::fs::metadata(ours).map_err(Error::file(ours))?.uid() != 0 {
            return Ok(Self::Own);
        }
        let passwd = std::fs::read_to_string("/etc/passwd").map_err(Error::file("/etc/passwd"))?;
        ["postgres", "nobody"].iter().find_map(|name| lookup(&passwd, name)).ok_or_else(|| Error::Missing {
            what: "user `postgres` or `nobody` to run PostgreSQL as".into(),
            help: "make one: useradd --system postgres".into(),
        })
    }

    /// Makes a command run as this account, without any supplementary group of ours.
    pub(crate) fn apply(&self, command: &mut Command) {
        if let Self::Other { uid, gid } = *self {
            command.uid(uid).gid(gid);
        }
    }

    /// Gives a file or a whole directory to this account.
    pub(crate) fn own(&self, path: &Path) -> Result<(), Error> {
        let Self::Other { uid, gid } = *self else { return Ok(()) };
        std::os::unix::fs::lchown(path, Some(uid), Some(gid)).map_err(Error::file(path))?;
        if std::fs::symlink_metadata(path).map_err(Error::file(path))?.is_dir() {
            for entry in std::fs::read_dir(path).map_err(Error::file(path))? {
                self.own(&entry.map_err(Error::file(path))?.path())?;
            }
        }
        Ok(())
    }
}

fn lookup(passwd: &str, name: &str) -> Option<Account> {
    let mut fields =
        passwd.lines().map(|line| line.split(':')).find(|fields| fields.clone().next() == Some(name))?;
    let uid = fields.nth(2)?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    Some(Account::Other { uid, gid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_ids_by_whole_name() {
        let passwd =
            "postgresql:x:7:8::/:/bin/sh\npostgres:x:101:104:PostgreSQL,,,:/var/lib/postgresql:/bin/bash\n";
        assert_eq!(lookup(passwd, "postgres"), Some(Account::Other { uid: 101, gid: 104 }));
        assert_eq!(lookup(passwd, "nobody"), None);
    }
}
