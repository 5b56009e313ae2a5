//! Server programs out of a container image, where Docker or Podman runs and nothing is installed.
//!
//! The container brings programs and nothing else: it sees the server's directory under the same path, runs under the
//! same account and uses the machine's own network, so that configuration, sockets, logs and data are exactly those of
//! a server that is installed. That needs an engine on this machine, not one in a virtual machine.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::account::Account;
use crate::error::Error;
use crate::process;
use crate::supervisor::shell_word;

/// An image, and the engine that runs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Container {
    engine: PathBuf,
    image: String,
}

impl Container {
    /// `None` where no engine answers. The image is pulled at its first use.
    pub(crate) fn of(image: impl Into<String>) -> Option<Self> {
        static ENGINE: OnceLock<Option<PathBuf>> = OnceLock::new();
        let engine = ENGINE.get_or_init(find_engine).clone()?;
        Some(Self { engine, image: image.into() })
    }

    pub(crate) fn image(&self) -> &str {
        &self.image
    }

    /// The words that run `program` of the image in `dir`; its arguments follow. The engine's client ends with it.
    pub(crate) fn words(&self, name: &str, dir: &Path, account: &Account, program: &str) -> Vec<String> {
        let dir = dir.to_string_lossy();
        let (uid, gid) = match *account {
            Account::Own => own_ids(Path::new(&*dir)),
            Account::Other { uid, gid } => (uid, gid),
        };
        let mut words = vec![self.engine.to_string_lossy().into_owned()];
        words.extend(["run", "--rm", "--network", "host", "--name", name].map(str::to_owned));
        words.extend(["--user".to_owned(), format!("{uid}:{gid}")]);
        // initdb wants to know the name of its user.
        words.extend(["--volume", "/etc/passwd:/etc/passwd:ro"].map(str::to_owned));
        words.extend([
            "--volume".to_owned(),
            format!("{dir}:{dir}"),
            "--workdir".to_owned(),
            dir.into_owned(),
        ]);
        words.extend(["--entrypoint".to_owned(), program.to_owned(), self.image.clone()]);
        words
    }

    /// Sends a signal to the server in the container; `KILL` ends everything in it. Not left to the engine's client: a
    /// shell starts background processes with SIGINT and SIGQUIT ignored.
    pub(crate) fn signal(&self, name: &str, signal: &str) -> Result<(), Error> {
        process::output(
            Command::new(&self.engine).args(["kill", "--signal", signal, name]),
            "the container engine",
        )
    }

    /// A shell command that ends and removes the container, if there is one.
    pub(crate) fn removal(&self, name: &str) -> String {
        format!("{} rm --force {} >/dev/null 2>&1", shell_word(&self.engine), shell_word(name))
    }
}

/// A name that no other container has.
pub(crate) fn container_name(server: &str) -> String {
    crate::unique_name(&format!("crabka-test-{server}"))
}

fn own_ids(ours: &Path) -> (u32, u32) {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(ours).map_or((0, 0), |metadata| (metadata.uid(), metadata.gid()))
}

fn find_engine() -> Option<PathBuf> {
    ["docker", "podman"].into_iter().filter_map(process::on_path).find(|engine| {
        let mut info = Command::new(engine);
        info.arg("info").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        info.status().is_ok_and(|status| status.success())
    })
}
