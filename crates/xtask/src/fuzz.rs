//! `cargo xtask fuzz`: the targets of `fuzz/` with a stable compiler and without cargo-fuzz.
//!
//! <https://llvm.org/docs/LibFuzzer.html>

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo;

/// What makes the compiler count which code an input reaches, with the checks of a debug build left on.
const INSTRUMENTED: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-sanitizer-coverage-stack-depth \
    -Ccodegen-units=1 -Cdebug-assertions -Coverflow-checks --cfg fuzzing";

/// The target that must fail, and how long it may take to.
const CANARY: &str = "canary";
const CANARY_LIMIT_S: u32 = 120;

const DEFAULT_S: u32 = 60;

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let (seconds, mut targets) = parse(arguments)?;
    let root = root();
    let known = targets_of(&root.join("fuzz/fuzz_targets"))?;
    if let Some(unknown) = targets.iter().find(|target| !known.contains(target)) {
        return Err(format!("no such target, there are {}: {unknown}", known.join(", ")));
    }
    if targets.is_empty() {
        targets = known.into_iter().filter(|target| target != CANARY).collect();
    }
    let built = build(&root)?;
    let work = built.join("fuzz-runs");
    let canary = outcome(&root, &built, &work, CANARY, CANARY_LIMIT_S)?;
    if canary {
        return Err(format!("the canary was not found in {CANARY_LIMIT_S} s: this build finds nothing"));
    }
    println!("== the canary is found: the build finds what it should");
    let mut failed = Vec::new();
    for target in targets.iter().filter(|target| *target != CANARY) {
        if !outcome(&root, &built, &work, target, seconds)? {
            failed.push(target.as_str());
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!("what failed is in {}: {}", work.display(), failed.join(", ")))
}

/// How long each target runs, in seconds, and which are named.
fn parse(arguments: &[String]) -> Result<(u32, Vec<String>), String> {
    let mut seconds = DEFAULT_S;
    let mut targets = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seconds" => {
                let number = arguments.next().and_then(|text| text.parse().ok()).filter(|&number| number > 0);
                seconds = number.ok_or("--seconds needs a whole number above 0")?;
            }
            flag if flag.starts_with('-') => {
                return Err(format!("unknown argument, see `cargo xtask help`: {flag}"));
            }
            target => targets.push(target.to_owned()),
        }
    }
    Ok((seconds, targets))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn targets_of(folder: &Path) -> Result<Vec<String>, String> {
    let failed = |error| format!("{}: {error}", folder.display());
    let mut targets = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        targets.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    targets.sort();
    Ok(targets)
}

/// Builds every target, optimised; gives the folder of the programs.
fn build(root: &Path) -> Result<PathBuf, String> {
    let about = Command::new("rustc").args(["--version", "--verbose"]).output();
    let about = about.map_err(|error| format!("cannot run rustc: {error}"))?.stdout;
    let about = String::from_utf8_lossy(&about);
    let host = about.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc names no host")?;
    let target_dir = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let target_dir = target_dir.join("fuzz");
    let manifest = root.join("fuzz/Cargo.toml");
    let status = cargo::cargo()
        .args(["build", "--release", "--bins", "--target", host, "--manifest-path"])
        .arg(&manifest)
        .arg("--target-dir")
        .arg(&target_dir)
        // With a target of its own, what runs while building is left as it is.
        .env("RUSTFLAGS", INSTRUMENTED)
        .status()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if !status.success() {
        return Err(format!("the fuzz targets do not build: {status}"));
    }
    Ok(target_dir.join(host).join("release"))
}

/// Runs one target from its committed corpus; whether it went through without a failing input. What it collects and what
/// fails is kept in `work`.
fn outcome(root: &Path, built: &Path, work: &Path, target: &str, seconds: u32) -> Result<bool, String> {
    let collected = work.join(target);
    std::fs::create_dir_all(&collected).map_err(|error| format!("{}: {error}", collected.display()))?;
    let committed = root.join("fuzz/corpus").join(target);
    println!("== fuzz {target} for {seconds} s");
    let status = Command::new(built.join(target))
        .arg(&collected)
        .args(committed.is_dir().then_some(committed))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/{target}-", work.display()))
        .args(["-print_final_stats=1", "-timeout=20", "-rss_limit_mb=1024", "-verbosity=0"])
        .status()
        .map_err(|error| format!("cannot run {target}: {error}"))?;
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(arguments: &[&str]) -> Result<(u32, Vec<String>), String> {
        parse(&arguments.iter().map(|argument| (*argument).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn targets_and_seconds() {
        assert_eq!(given(&[]), Ok((DEFAULT_S, Vec::new())));
        assert_eq!(given(&["url", "--seconds", "5", "value"]), Ok((5, vec!["url".into(), "value".into()])));
        for wrong in [&["--seconds"][..], &["--seconds", "0"], &["--second", "1"]] {
            assert!(given(wrong).is_err(), "{wrong:?}");
        }
    }

    /// A target without seeds starts from nothing, and the ordinary tests replay nothing of it.
    #[test]
    fn every_target_is_built_and_has_a_corpus() {
        let manifest = std::fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap();
        for target in targets_of(&root().join("fuzz/fuzz_targets")).unwrap() {
            assert!(manifest.contains(&format!("name = \"{target}\"")), "{target}");
            let corpus = root().join("fuzz/corpus").join(&target);
            assert!(target == CANARY || corpus.is_dir(), "{}", corpus.display());
        }
    }
}
