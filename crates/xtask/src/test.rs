//! `cargo xtask test`: everything, against real servers.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use crabka_testkit::KafkaBroker;

use crate::provision;
use crate::{Flags, cargo};

pub(crate) fn run(flags: &Flags) -> Result<(), String> {
    let began = Instant::now();
    let plan = if flags.quick {
        provision::build_only()?
    } else {
        provision::everything(&provision::majors(flags.all_majors))?
    };
    plan.print();
    println!("    run   cargo {}, {}", test_arguments(flags, false).join(" "), against(flags));
    plan.carry_out()?;

    let build = test_arguments(flags, true);
    cargo::step("build", &build.iter().map(String::as_str).collect::<Vec<_>>(), &[])?;

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    // After the build, which takes long and wants the memory. Stopped when this goes out of scope.
    let broker = if flags.quick || is_set("CRABKA_TEST_KAFKA") {
        None
    } else {
        println!("== start kafka");
        Some(runtime.block_on(KafkaBroker::start()).map_err(|error| error.to_string())?)
    };
    let left_out_list = crabka_testkit::cache_dir()
        .map_err(|error| error.to_string())?
        .join(format!("left-out-{}", std::process::id()));
    let mut env = vec![("CRABKA_TEST_LEFT_OUT".to_owned(), left_out_list.to_string_lossy().into_owned())];
    env.extend(server_choice(flags, broker.as_ref()));
    env.extend(built_binary(flags));

    let outcome = run_tests(flags, &env)?;
    let left_out = read_lines(&left_out_list);
    // Nobody needs the list once it is told; it may never have been made.
    let _ = std::fs::remove_file(&left_out_list);
    drop(broker);
    println!("== summary after {} s, {}", began.elapsed().as_secs(), against(flags));
    verdict(&outcome, &left_out, flags.quick)
}

fn test_arguments(flags: &Flags, build: bool) -> Vec<String> {
    let mut arguments = vec!["test".to_owned()];
    let chooses_package = |argument: &String| {
        ["-p", "--workspace", "--all"].contains(&argument.as_str()) || argument.starts_with("--package")
    };
    if !flags.passed_on.iter().any(chooses_package) {
        arguments.push("--workspace".to_owned());
    }
    arguments.push(if build { "--no-run" } else { "--no-fail-fast" }.to_owned());
    // While building, what stands after a second `--` is not for cargo.
    let passed_on = flags.passed_on.iter().take_while(|argument| !build || *argument != "--");
    arguments.extend(passed_on.cloned());
    arguments
}

fn against(flags: &Flags) -> &'static str {
    match (flags.quick, flags.all_majors) {
        (true, _) => "without servers",
        (false, false) => "against postgresql 15 and 18 and kafka",
        (false, true) => "against postgresql 14 to 18 and kafka",
    }
}

/// End-to-end tests run the command itself. A build of everything has made it, beside this program; a build by
/// cargo inside a test would choose other features and compile most dependencies again.
fn built_binary(flags: &Flags) -> Option<(String, String)> {
    let binary = std::env::current_exe().ok()?.with_file_name("crabka");
    let everything = flags.passed_on.first().is_none_or(|argument| argument == "--");
    let fresh = everything && binary.is_file();
    fresh.then(|| ("CRABKA_TEST_BIN".to_owned(), binary.to_string_lossy().into_owned()))
}

/// The environment by which the testkit knows what this run is; what the user has set stays.
fn server_choice(flags: &Flags, broker: Option<&KafkaBroker>) -> Vec<(String, String)> {
    let mut env = Vec::new();
    if flags.quick {
        env.push(("CRABKA_TEST_SERVERS".to_owned(), "none".to_owned()));
        return env;
    }
    env.push(("CRABKA_TEST_SERVERS".to_owned(), "all".to_owned()));
    if !is_set("CRABKA_TEST_PG_MAJORS") {
        let majors: Vec<String> = provision::majors(flags.all_majors).iter().map(u32::to_string).collect();
        env.push(("CRABKA_TEST_PG_MAJORS".to_owned(), majors.join(",")));
    }
    if let Some(broker) = broker {
        env.push(("CRABKA_TEST_KAFKA".to_owned(), broker.bootstrap_servers()));
    }
    env
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    passed: u64,
    failed: u64,
    ignored: u64,
    failures: Vec<String>,
    /// cargo itself was content.
    success: bool,
}

fn run_tests(flags: &Flags, env: &[(String, String)]) -> Result<Outcome, String> {
    let arguments = test_arguments(flags, false);
    println!("== test: cargo {}", arguments.join(" "));
    let mut child = cargo::cargo()
        .args(&arguments)
        .envs(env.iter().map(|(name, value)| (name, value)))
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    let mut outcome = Outcome::default();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).split(b'\n') {
            let line = line.map_err(|error| format!("reading the output of cargo: {error}"))?;
            let mut out = std::io::stdout().lock();
            // A closed standard output must not end the tests: their exit code still counts.
            let _ = out.write_all(&line).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
            outcome.count(&String::from_utf8_lossy(&line));
        }
    }
    outcome.success = child.wait().map_err(|error| format!("waiting for cargo: {error}"))?.success();
    Ok(outcome)
}

impl Outcome {
    /// Adds what a line of libtest's output tells.
    fn count(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            self.failures.push(name.to_owned());
        }
        let Some(result) = line.strip_prefix("test result: ") else { return };
        let number = |word: &str| {
            let parts = result.split(['.', ';']).map(str::trim);
            parts.filter_map(|part| part.strip_suffix(word)?.trim().parse::<u64>().ok()).sum::<u64>()
        };
        self.passed += number(" passed");
        self.failed += number(" failed");
        self.ignored += number(" ignored");
    }
}

/// A test that was left out has passed, as far as libtest knows.
fn verdict(outcome: &Outcome, left_out: &[String], quick: bool) -> Result<(), String> {
    for failure in &outcome.failures {
        println!("    failed    {failure}");
    }
    if !left_out.is_empty() {
        println!("    left out  {} tests of servers that this run does not start", left_out.len());
    }
    let left_out_count = left_out.len() as u64;
    let passed = outcome.passed.saturating_sub(left_out_count);
    let skipped = left_out_count + outcome.ignored;
    println!("tests: {passed} passed, {} failed, {skipped} skipped", outcome.failed);
    if !outcome.success || outcome.failed > 0 {
        return Err("tests failed".into());
    }
    if passed == 0 {
        return Err("no test was run".into());
    }
    let by_choice = |line: &String| line.contains(crabka_testkit::NOT_CHOSEN);
    match left_out.iter().find(|line| !by_choice(line)) {
        Some(first) if !quick => {
            Err(format!("tests were left out, which only --quick may do, such as: {first}"))
        }
        _ => Ok(()),
    }
}

fn read_lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(text: &str) -> Outcome {
        let mut outcome = Outcome { success: true, ..Outcome::default() };
        text.lines().for_each(|line| outcome.count(line));
        outcome
    }

    #[test]
    fn adds_up_what_the_test_binaries_tell() {
        let all = outcome(
            "running 3 tests\ntest a ... ok\ntest b::c ... FAILED\n\
             test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s\n\
             test result: ok. 10 passed; 0 failed; 4 ignored; 0 measured; 7 filtered out; finished in 12.00s",
        );
        assert_eq!((all.passed, all.failed, all.ignored), (12, 1, 4));
        assert_eq!(all.failures, ["b::c"]);
    }

    #[test]
    fn a_run_without_a_test_has_failed() {
        let nothing = outcome("test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out");
        assert_eq!(verdict(&nothing, &[], false), Err("no test was run".into()));
        let only_left_out =
            outcome("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out");
        assert_eq!(verdict(&only_left_out, &["t".into()], true), Err("no test was run".into()));
    }

    #[test]
    fn only_a_quick_run_may_leave_tests_out() {
        let two = outcome("test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
        assert_eq!(verdict(&two, &["t".into()], true), Ok(()));
        assert!(verdict(&two, &["t".into()], false).is_err());
        let of_17 = format!("t\t{}: PostgreSQL 17", crabka_testkit::NOT_CHOSEN);
        assert_eq!(verdict(&two, &[of_17], false), Ok(()));
    }

    #[test]
    fn a_binary_that_crashed_is_a_failure_though_it_told_no_result() {
        let mut crashed =
            outcome("test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
        crashed.success = false;
        assert!(verdict(&crashed, &[], false).is_err());
    }

    #[test]
    fn arguments_after_the_second_dashes_are_for_the_tests() {
        let passed_on = ["-p", "crabka-testkit", "--", "proxy"].map(str::to_owned).to_vec();
        let flags = Flags { passed_on, ..Flags::default() };
        assert_eq!(test_arguments(&flags, true), ["test", "--no-run", "-p", "crabka-testkit"]);
        let run = ["test", "--no-fail-fast", "-p", "crabka-testkit", "--", "proxy"];
        assert_eq!(test_arguments(&flags, false), run);
    }
}
