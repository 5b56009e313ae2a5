//! Runs cargo for the other commands.

use std::process::Command;

/// A cargo command that behaves as one typed by the user: what cargo told *us* about the package `xtask` must not reach
/// build scripts, which would take it for a change and build again.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let ours = text.starts_with("CARGO_PKG_")
            || ["CARGO_MANIFEST_DIR", "CARGO_MANIFEST_PATH", "CARGO_BIN_NAME", "CARGO_CRATE_NAME", "OUT_DIR"]
                .contains(&&*text);
        if ours {
            command.env_remove(&name);
        }
    }
    command
}

/// Runs one step under a heading; it prints for itself.
pub(crate) fn step(heading: &str, arguments: &[&str], env: &[(&str, &str)]) -> Result<(), String> {
    println!("== {heading}: cargo {}", arguments.join(" "));
    let status = cargo()
        .args(arguments)
        .envs(env.iter().copied())
        .status()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{heading} failed: {status}")) }
}
