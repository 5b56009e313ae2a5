//! A hot standby: made from an online backup of its primary, promoted on demand.
//!
//! <https://www.postgresql.org/docs/18/continuous-archiving.html#BACKUP-LOWLEVEL-BASE-BACKUP>: the functions are used
//! instead of `pg_basebackup`, which not every installation has.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::builder::PgServerBuilder;
use super::server::PgServer;
use super::template::SUPERUSER;
use crate::error::Error;
use crate::process;

/// What a backup must leave behind, or may: <https://www.postgresql.org/docs/18/protocol-replication.html>.
const LEFT_OUT: &[&str] = &["postmaster.pid", "postmaster.opts", "pg_wal", "pg_replslot", "standby.signal"];

impl PgServer {
    /// Describes a hot standby of this server; [`PgServerBuilder::start`] starts it. It streams through a physical
    /// slot named `slot` with `hot_standby_feedback`, on a port of its own, and has the same programs.
    ///
    /// # Errors
    ///
    /// [`Error::Sql`] when the backup is refused, [`Error::File`] when the files cannot be copied.
    pub async fn standby(&self, slot: &str) -> Result<PgServerBuilder, Error> {
        let client = self.connect("postgres").await?;
        client.execute("SELECT pg_create_physical_replication_slot($1, true)", &[&slot]).await?;
        // Before 15 the functions had other names.
        let (start, stop) = if self.major() < 15 {
            ("pg_start_backup('standby', true, false)", "pg_stop_backup(false, false)")
        } else {
            ("pg_backup_start('standby', true)", "pg_backup_stop(false)")
        };
        client.batch_execute(&format!("SELECT {start}")).await?;
        let from = self.data_dir();
        let backup = process::blocking(move || {
            let backup = process::server_dir("crabka-pg-")?;
            fs::set_permissions(backup.path(), fs::Permissions::from_mode(0o700))
                .map_err(Error::file(backup.path()))?;
            copy_live(&from, backup.path(), LEFT_OUT)?;
            for empty in ["pg_wal", "pg_wal/archive_status", "pg_replslot"] {
                let dir = backup.path().join(empty);
                fs::create_dir(&dir).map_err(Error::file(&dir))?;
            }
            Ok(backup)
        })
        .await?;
        let label: String = client.query_one(&format!("SELECT labelfile FROM {stop}"), &[]).await?.get(0);
        let primary = format!(
            "host=127.0.0.1 port={} user={SUPERUSER} dbname=postgres application_name={slot}",
            self.port()
        );
        Ok(Self::builder()
            .install(self.install().clone())
            .setting("primary_conninfo", primary)
            .setting("primary_slot_name", slot)
            .setting("hot_standby_feedback", "on")
            .file("backup_label", label)
            .file("standby.signal", "")
            .backup(backup))
    }

    /// Makes a standby a primary, and returns when it is one.
    ///
    /// # Errors
    ///
    /// [`Error::Sql`] when it is none; [`Error::State`] when it does not become one within 60 s.
    pub async fn promote(&self) -> Result<(), Error> {
        let client = self.connect("postgres").await?;
        let promoted: bool = client.query_one("SELECT pg_promote(true, 60)", &[]).await?.get(0);
        if promoted { Ok(()) } else { Err(Error::State("the standby was not promoted within 60 s".into())) }
    }
}

/// Copies a directory whose files come and go meanwhile. The control file last: recovery starts at the backup's label,
/// but must find its end.
fn copy_live(from: &Path, to: &Path, left_out: &[&str]) -> Result<(), Error> {
    let control = from.join("global/pg_control");
    for entry in fs::read_dir(from).map_err(Error::file(from))? {
        let entry = entry.map_err(Error::file(from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if left_out.iter().any(|name| entry.file_name() == *name) || source == control {
            continue;
        }
        if source.is_dir() {
            fs::create_dir(&target).map_err(Error::file(&target))?;
            copy_live(&source, &target, &[])?;
        } else if let Err(error) = fs::copy(&source, &target)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(Error::file(&source)(error));
        }
    }
    if control.is_file() {
        let target = to.join("global/pg_control");
        fs::copy(&control, &target).map_err(Error::file(&target))?;
    }
    Ok(())
}
