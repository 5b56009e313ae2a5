//! Developer commands. Each gets what it needs from the machine's package registries, says so first, and asks nothing.

// A developer's tool: real time, and a panic is a message.
#![allow(clippy::disallowed_methods)]

mod bench;
mod cargo;
mod demo;
mod fuzz;
mod provision;
mod test;

use std::process::ExitCode;

const USAGE: &str = "\
developer commands

    cargo xtask test [--quick] [--all-majors] [-- CARGO-TEST-ARGUMENTS]
        get what is missing, build, and run every test against PostgreSQL 15 and 18 and a real Kafka
        --quick       leave out the tests that need a server, and say how many
        --all-majors  PostgreSQL 14, 15, 16, 17 and 18

    cargo xtask demo [DEMO-ARGUMENTS]
        get a PostgreSQL and run `crabka demo` with it; --kafka HOST:PORT uses a real broker
        instead of an in-process mock; `cargo xtask demo -- --help` tells the other arguments

    cargo xtask bench [ARGUMENTS]
        measure a release build: how fast `crabka run` drains a backlog, next to pg_recvlogical on the
        same one, and how long a commit takes until it is in Kafka; a table, and JSON in a file
        --shape NAME     only narrow, wide, updates, small or huge; may be given more than once
        --form FORM      values only as text, or only binary
        --percent N      a share of the rows
        --repeats N      rounds, 3 without it; the figures are medians
        --no-kafka --no-latency --latency
                         leave drains into Kafka out, leave latencies out, or only latencies
        --rate N --seconds N
                         transactions a second and length of the latency run; 1000 and 5000, 20 s
        --major N        version of PostgreSQL
        --set OPTION=VALUE --worker FILE
                         an option of the worker; another built `crabka`
        --json FILE      instead of bench/report.json below cargo's target directory
        --micro          only the benches of decoder, converter, runtime and Kafka sink

    cargo xtask ci [--all-majors]
        format, clippy and rustdoc with warnings denied, then everything that `test` does

    cargo xtask fuzz [TARGET ...] [--seconds N]
        build the targets of fuzz/, show that the canary is found, and run each target (all of them) N seconds (60)

    cargo xtask servers [--all-majors]
        only get what is missing, and tell what there is

Missing Debian packages are installed with apt-get, as root or with sudo. Everything else is kept in
`test-servers` below cargo's target directory, or in CRABKA_TEST_CACHE.
";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let verb = arguments.next();
    let rest: Vec<String> = arguments.collect();
    let outcome = match verb.as_deref() {
        Some("test") => {
            Flags::parse(&rest, &["--quick", "--all-majors"], true).and_then(|flags| test::run(&flags))
        }
        Some("ci") => Flags::parse(&rest, &["--all-majors"], false).and_then(|flags| ci(&flags)),
        Some("servers") => Flags::parse(&rest, &["--all-majors"], false).and_then(|flags| servers(&flags)),
        Some("demo") => demo::run(&rest),
        Some("bench") => bench::run(&rest),
        Some("fuzz") => fuzz::run(&rest),
        Some("help" | "--help" | "-h") => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("xtask: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// What stands after a verb.
#[derive(Debug, Default, PartialEq, Eq)]
struct Flags {
    quick: bool,
    all_majors: bool,
    /// After `--`: for cargo.
    passed_on: Vec<String>,
}

impl Flags {
    fn parse(arguments: &[String], known: &[&str], may_pass_on: bool) -> Result<Self, String> {
        let mut flags = Self::default();
        for (index, argument) in arguments.iter().enumerate() {
            match argument.as_str() {
                "--" if may_pass_on => {
                    flags.passed_on = arguments[index + 1..].to_vec();
                    break;
                }
                flag if !known.contains(&flag) => {
                    return Err(format!("unknown argument, see `cargo xtask help`: {flag}"));
                }
                "--quick" => flags.quick = true,
                _ => flags.all_majors = true,
            }
        }
        if flags.quick && flags.all_majors {
            return Err("--quick leaves servers out: it cannot be combined with --all-majors".into());
        }
        Ok(flags)
    }
}

/// The gate: what has to pass before a change lands.
fn ci(flags: &Flags) -> Result<(), String> {
    cargo::step("format", &["fmt", "--all", "--check"], &[])?;
    // Before clippy: the C code that crates bring along is compiled for it too.
    provision::everything(&provision::majors(flags.all_majors))?.carry_out()?;
    cargo::step("clippy", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[])?;
    cargo::step("rustdoc", &["doc", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", "-D warnings")])?;
    println!("== cargo xtask test");
    test::run(flags)
}

fn servers(flags: &Flags) -> Result<(), String> {
    let plan = provision::everything(&provision::majors(flags.all_majors))?;
    plan.print();
    plan.carry_out()?;
    println!("postgresql");
    for install in crabka_testkit::PgInstall::all() {
        println!("    {:6} {}", install.version(), install.bin().display());
    }
    println!("kafka\n    {}", provision::kafka_here().unwrap_or_else(|| "none".into()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Flags, String> {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        Flags::parse(&arguments, &["--quick", "--all-majors"], true)
    }

    #[test]
    fn what_follows_two_dashes_is_for_cargo() {
        let flags = parse(&["--quick", "--", "-p", "crabka", "--all-majors"]).unwrap();
        assert!(flags.quick && !flags.all_majors);
        assert_eq!(flags.passed_on, ["-p", "crabka", "--all-majors"]);
    }

    #[test]
    fn unknown_and_contrary_flags_are_refused() {
        assert!(parse(&["--quik"]).unwrap_err().contains("--quik"));
        assert!(parse(&["--quick", "--all-majors"]).is_err());
    }
}
