//! The password file.
//!
//! <https://www.postgresql.org/docs/18/libpq-pgpass.html>

use std::path::Path;

/// What a password is looked up by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// Host name, address, or `localhost` for the default socket directory.
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) dbname: &'a str,
    pub(super) user: &'a str,
}

/// The password of the first line that matches.
pub(super) fn find(content: &str, wanted: Wanted<'_>) -> Option<String> {
    let port = wanted.port.to_string();
    let keys = [wanted.host, port.as_str(), wanted.dbname, wanted.user];
    content.lines().find_map(|line| {
        let line = line.trim_end_matches('\r');
        if line.starts_with('#') {
            return None;
        }
        let mut fields = Fields { rest: Some(line) };
        for key in keys {
            let (raw, field) = fields.take()?;
            if raw != "*" && field != key {
                return None;
            }
        }
        fields.take().map(|(_, password)| password).filter(|password| !password.is_empty())
    })
}

/// Fields between colons, of which a backslash keeps the next character.
struct Fields<'a> {
    rest: Option<&'a str>,
}

impl<'a> Fields<'a> {
    /// The field as written and as meant.
    fn take(&mut self) -> Option<(&'a str, String)> {
        let text = self.rest?;
        let mut meant = String::new();
        let mut chars = text.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                ':' => {
                    self.rest = text.get(at.saturating_add(1)..);
                    return Some((text.get(..at)?, meant));
                }
                '\\' => meant.extend(chars.next().map(|(_, kept)| kept)),
                _ => meant.push(c),
            }
        }
        self.rest = None;
        Some((text, meant))
    }
}

/// Reads the file; `None` when it is not there or where this user may not look, as in the home of another one that `HOME`
/// still names. libpq passes over it too. A file others can read is refused, as libpq refuses it.
pub(super) fn read(path: &Path) -> Result<Option<String>, String> {
    let Ok(metadata) = std::fs::metadata(path) else { return Ok(None) };
    if !metadata.is_file() {
        return Err(format!("the password file is not a plain file: {}", path.display()));
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        if metadata.permissions().mode() & 0o077 != 0 {
            return Err(format!(
                "the password file may be read by group or others and is not used; run: chmod 0600 {}",
                path.display()
            ));
        }
    }
    std::fs::read_to_string(path)
        .map(Some)
        .map_err(|error| format!("cannot read the password file: {}: {error}", path.display()))
}
