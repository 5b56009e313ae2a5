//! The `crabka` command as a process of its own, so that it can really be killed.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The built command: the one named by `CRABKA_TEST_BIN`, which `cargo xtask test` has just built with everything else.
/// Without that it is built here, since `cargo test` of this package alone does not build it; a no-op when it is up to
/// date.
pub fn crabka() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        if let Some(bin) = std::env::var_os("CRABKA_TEST_BIN") {
            return bin.into();
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        // What cargo told this test about its package would look like a change to build scripts that read it, and
        // half of the dependencies would be built again.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                build.env_remove(&name);
            }
        }
        let status = build
            .args(["build", "--quiet", "--package", "crabka", "--bin", "crabka"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .expect("cargo runs");
        assert!(status.success(), "crabka does not build");
        // target/debug/deps/test-binary → target/debug/crabka
        let test = std::env::current_exe().expect("a path of this test");
        let bin = test.parent().and_then(Path::parent).expect("a target directory").join("crabka");
        assert!(bin.is_file(), "no crabka at {}", bin.display());
        bin
    })
}

/// A running `crabka run`.
pub struct Worker {
    child: Child,
    log: PathBuf,
}

impl Worker {
    /// Starts it with a configuration; its log goes to a file beside it.
    pub fn run(dir: &Path, config: &str) -> Self {
        let file = dir.join("crabka.toml");
        std::fs::write(&file, config).expect("the configuration is written");
        let log = dir.join("crabka.log");
        let output = File::options().create(true).append(true).open(&log).expect("a log file");
        let child = Command::new(crabka())
            .args(["run", "-c"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(output)
            .spawn()
            .expect("crabka starts");
        Self { child, log }
    }

    /// SIGKILL.
    pub fn kill9(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// SIGTERM, and the exit status; panics when it does not end in time.
    pub fn terminate(mut self, limit: Duration) -> ExitStatus {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs");
        assert!(sent.success());
        self.ended(limit)
    }

    /// The exit status; panics when it does not end in time.
    pub fn ended(&mut self, limit: Duration) -> ExitStatus {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                return status;
            }
            assert!(Instant::now() < deadline, "still running after {limit:?}:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it can be waited for").is_none()
    }

    /// What it has logged, runs before this one in the same directory included.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
