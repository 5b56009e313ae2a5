//! A throw-away PostgreSQL for the demo: initdb into a temporary directory, one server on a unix socket.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crabka_connect::ConnectError;

/// Keeps the server as long as its standard input is open, then stops it and removes the directory. So nothing is left
/// behind, not even when this program is killed.
const KEEPER: &str = r#"
directory=$1; shift
"$@" </dev/null >"$directory/server.log" 2>&1 &
server=$!
cat >/dev/null
kill -INT $server 2>/dev/null
wait $server
rm -rf "$directory"
"#;

/// How long the server may take to accept connections.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A running throw-away server.
pub(super) struct DemoServer {
    keeper: Child,
    directory: PathBuf,
}

impl DemoServer {
    /// Makes a cluster and starts it with the binaries of `bin`, or those that are found.
    pub(super) fn start(bin: Option<&Path>) -> Result<Self, ConnectError> {
        let bin = find_binaries(bin)?;
        let directory = std::env::temp_dir().join(format!("crabka-demo-{}", std::process::id()));
        fs::create_dir(&directory).map_err(|error| io_error("creating the demo's directory", error))?;
        match Self::start_in(&bin, &directory) {
            Ok(server) => Ok(server),
            Err(error) => {
                // The first error is the one that is told; a directory that stays is not worth another.
                let _ = fs::remove_dir_all(&directory);
                Err(error)
            }
        }
    }

    fn start_in(bin: &Path, directory: &Path) -> Result<Self, ConnectError> {
        let owner = server_account(directory)?;
        fs::set_permissions(directory, fs::Permissions::from_mode(0o700))
            .and_then(|()| owner.map_or(Ok(()), |(uid, gid)| chown(directory, Some(uid), Some(gid))))
            .map_err(|error| io_error("preparing the demo's directory", error))?;
        let data = directory.join("data");
        let mut initdb = Command::new(bin.join("initdb"));
        initdb.args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "-N", "-D"]).arg(&data);
        become_owner(&mut initdb, owner);
        let output = initdb
            .current_dir("/")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| io_error("running initdb", error))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.lines().last().unwrap_or_default().to_owned();
            return Err(ConnectError::configuration(format!("initdb failed: {said}")));
        }
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER, "sh"]).arg(directory).arg(bin.join("postgres"));
        keeper.arg("-D").arg(&data).arg("-k").arg(directory);
        for setting in
            ["listen_addresses=", "port=5432", "wal_level=logical", "fsync=off", "max_wal_senders=4"]
        {
            keeper.args(["-c", setting]);
        }
        become_owner(&mut keeper, owner);
        // Its own process group: Ctrl-C is for the demo, which then ends the server in order.
        let child = keeper
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| io_error("starting postgres", error))?;
        let mut server = Self { keeper: child, directory: directory.to_owned() };
        server.wait_until_ready()?;
        Ok(server)
    }

    fn wait_until_ready(&mut self) -> Result<(), ConnectError> {
        let started = Instant::now();
        // The server writes `ready` into the last line of its pid file when it accepts connections.
        let pid_file = self.directory.join("data/postmaster.pid");
        loop {
            let state = fs::read_to_string(&pid_file).unwrap_or_default();
            if state.lines().nth(7).is_some_and(|line| line.trim() == "ready") {
                return Ok(());
            }
            let over = self.keeper.try_wait().map_err(|error| io_error("watching postgres", error))?;
            let failed = fs::read_to_string(self.directory.join("server.log"))
                .ok()
                .and_then(|log| log.lines().find(|line| line.contains("FATAL:")).map(str::to_owned));
            if let Some(line) = failed {
                return Err(ConnectError::configuration(format!("postgres did not start: {line}")));
            }
            if over.is_some() || started.elapsed() > START_LIMIT {
                return Err(ConnectError::transient("postgres did not start in time"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The URL of its database.
    pub(super) fn url(&self) -> String {
        format!(
            "postgres:///postgres?host={}&port=5432&user=postgres&sslmode=disable",
            self.directory.display()
        )
    }
}

impl Drop for DemoServer {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        // Nobody can be told that the clean-up failed; the keeper goes on with it alone.
        let _ = self.keeper.wait();
    }
}

/// The account that runs the server: PostgreSQL refuses to run as root.
fn server_account(directory: &Path) -> Result<Option<(u32, u32)>, ConnectError> {
    let me = fs::metadata(directory).map_err(|error| io_error("reading the demo's directory", error))?.uid();
    if me != 0 {
        return Ok(None);
    }
    let accounts =
        fs::read_to_string("/etc/passwd").map_err(|error| io_error("reading /etc/passwd", error))?;
    let account = |name: &str| {
        let line = accounts.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    account("postgres").or_else(|| account("nobody")).map(Some).ok_or_else(|| {
        ConnectError::configuration(
            "postgres does not run as root and there is no other account: postgres, nobody",
        )
        .with_fix("run the demo as an ordinary user, or give it a server with --pg URL")
    })
}

fn become_owner(command: &mut Command, owner: Option<(u32, u32)>) {
    if let Some((uid, gid)) = owner {
        command.uid(uid).gid(gid);
    }
}

/// Finds the directory that holds `initdb` and `postgres`.
fn find_binaries(bin: Option<&Path>) -> Result<PathBuf, ConnectError> {
    let complete =
        |directory: &Path| ["initdb", "postgres"].iter().all(|name| directory.join(name).is_file());
    if let Some(bin) = bin {
        return if complete(bin) {
            Ok(bin.to_owned())
        } else {
            let bin = bin.display();
            Err(ConnectError::configuration(format!("there are no initdb and postgres in: {bin}")))
        };
    }
    let mut places: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .map(|entries| entries.flatten().map(|entry| entry.path().join("bin")).collect())
        .unwrap_or_default();
    places.sort();
    places.reverse();
    places.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    places.into_iter().find(|place| complete(place)).ok_or_else(|| {
        ConnectError::configuration("no PostgreSQL binaries found (initdb, postgres)").with_fix(
            "install PostgreSQL, name its directory with --pg-bin DIR, give a server with --pg URL, \
             or use `cargo xtask demo`, which gets one",
        )
    })
}

fn io_error(doing: &str, error: std::io::Error) -> ConnectError {
    ConnectError::configuration(format!("{doing}: {error}")).with_source(error)
}
