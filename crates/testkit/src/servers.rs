//! The one place that decides whether a test that needs a server runs, is left out, or fails.
//!
//! | environment | a server that is there | a server that is missing |
//! |---|---|---|
//! | nothing set | the test runs | left out, with a line on standard error |
//! | `CI=true` | the test runs | the test fails |
//! | `CRABKA_TEST_SERVERS=all` (set by `cargo xtask test`) | the test runs | the test fails |
//! | `CRABKA_TEST_SERVERS=none` (set by `cargo xtask test --quick`) | left out | left out |
//!
//! A test of one PostgreSQL version is also left out of a run whose versions (`CRABKA_TEST_PG_MAJORS`) do not include it.
//!
//! Each test that is left out adds a line to the file named by `CRABKA_TEST_LEFT_OUT`, when that is set: that is how
//! `cargo xtask test --quick` counts them.

use std::io::Write;

use crate::error::Error;
use crate::kafka::KafkaInstall;
use crate::postgres::PgInstall;

/// A server that a test needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Need {
    /// A PostgreSQL of any supported major version.
    Postgres,
    /// A PostgreSQL of this major version.
    PostgresMajor(u32),
    /// Apache Kafka.
    Kafka,
}

/// Returns from the surrounding test when the servers it needs are left out of this run; panics where a missing
/// server is a failure. The first line of every test that starts a server, in a function returning `()`:
///
/// ```
/// # fn body() {
/// crabka_testkit::needs!(postgres);
/// crabka_testkit::needs!(postgres(17), kafka);
/// # }
/// ```
#[macro_export]
macro_rules! needs {
    ($($server:ident $(($major:expr))?),+ $(,)?) => {
        $(if !$crate::may_run(module_path!(), $crate::needs!(@ $server $(($major))?)) {
            return;
        })+
    };
    (@ postgres) => { $crate::Need::Postgres };
    (@ postgres($major:expr)) => { $crate::Need::PostgresMajor($major) };
    (@ kafka) => { $crate::Need::Kafka };
}

/// What [`needs!`](crate::needs) asks: `true` when the test runs, `false` when it is left out.
///
/// # Panics
///
/// When the server is missing and this run must not leave anything out; the test fails with the reason.
#[must_use]
pub fn may_run(module: &str, need: Need) -> bool {
    let missing = find(need).err();
    match decide(&Run::from_env(), need, missing.as_ref()) {
        Decision::Run => true,
        Decision::LeaveOut(reason) => {
            leave_out(module, &reason);
            false
        }
        Decision::Fail(reason) => panic!("{reason}"),
    }
}

/// For the servers themselves: a test that forgot `needs!` must not quietly start one in a quick run.
pub(crate) fn check_allowed(what: &'static str) -> Result<(), Error> {
    if Run::from_env().servers == Servers::None { Err(Error::LeftOut { what }) } else { Ok(()) }
}

fn find(need: Need) -> Result<(), Error> {
    match need {
        Need::Postgres => PgInstall::find(None).map(drop),
        Need::PostgresMajor(major) => PgInstall::find(Some(major)).map(drop),
        Need::Kafka if std::env::var("CRABKA_TEST_KAFKA").is_ok_and(|servers| !servers.is_empty()) => Ok(()),
        Need::Kafka => KafkaInstall::check(),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Servers {
    /// Use what is there.
    Unsaid,
    /// Every server must be there.
    All,
    /// Leave the tests that need one out.
    None,
}

#[derive(Debug, Clone)]
struct Run {
    servers: Servers,
    ci: bool,
    /// The PostgreSQL versions of this run; `None`: whatever is there.
    majors: Option<Vec<u32>>,
}

impl Run {
    fn from_env() -> Self {
        let servers = match std::env::var("CRABKA_TEST_SERVERS").as_deref() {
            Ok("none") => Servers::None,
            Ok("all") => Servers::All,
            _ => Servers::Unsaid,
        };
        let ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
        Self { servers, ci, majors: crate::postgres::chosen_majors() }
    }
}

/// Begins the reason of a test that is of a version which this run does not cover, by choice.
pub const NOT_CHOSEN: &str = "not among the versions of this run";

#[derive(Debug, PartialEq, Eq)]
enum Decision {
    Run,
    LeaveOut(String),
    Fail(String),
}

fn decide(run: &Run, need: Need, missing: Option<&Error>) -> Decision {
    if let (Need::PostgresMajor(major), Some(majors)) = (need, &run.majors)
        && !majors.contains(&major)
    {
        return Decision::LeaveOut(format!("{NOT_CHOSEN}: PostgreSQL {major}"));
    }
    match (run.servers, missing) {
        (Servers::None, _) => Decision::LeaveOut("servers are left out of this run".into()),
        (_, None) => Decision::Run,
        (Servers::All, Some(error)) => Decision::Fail(error.to_string()),
        (Servers::Unsaid, Some(error)) if run.ci => Decision::Fail(error.to_string()),
        (Servers::Unsaid, Some(error)) => Decision::LeaveOut(error.to_string()),
    }
}

fn leave_out(module: &str, reason: &str) {
    let thread = std::thread::current();
    let test = format!("{module}::{}", thread.name().unwrap_or("test"));
    eprintln!("left out: {test}: {reason}");
    if let Some(path) = std::env::var_os("CRABKA_TEST_LEFT_OUT") {
        // One short write in append mode: lines of test processes that run at once do not mix.
        let line = format!("{test}\t{reason}\n");
        let written = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .and_then(|mut file| file.write_all(line.as_bytes()));
        if let Err(error) = written {
            panic!("a test is left out, and the list of them cannot be written: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing() -> Error {
        Error::Missing { what: "PostgreSQL".into(), help: "install it".into() }
    }

    fn run(servers: Servers, ci: bool) -> Run {
        Run { servers, ci, majors: None }
    }

    #[test]
    fn a_missing_server_fails_in_ci_and_where_all_are_asked_for() {
        let fails = |run: Run| matches!(decide(&run, Need::Kafka, Some(&missing())), Decision::Fail(_));
        assert!(fails(run(Servers::Unsaid, true)));
        assert!(fails(run(Servers::All, false)));
        assert!(fails(run(Servers::All, true)));
        assert!(!fails(run(Servers::Unsaid, false)));
    }

    #[test]
    fn a_quick_run_leaves_tests_out_even_where_the_server_is_there() {
        let left_out =
            |run: Run, missing| matches!(decide(&run, Need::Kafka, missing), Decision::LeaveOut(_));
        assert!(left_out(run(Servers::None, false), None));
        assert!(left_out(run(Servers::None, true), Some(&missing())));
    }

    #[test]
    fn a_server_that_is_there_is_used() {
        for servers in [Servers::Unsaid, Servers::All] {
            assert_eq!(decide(&run(servers, false), Need::Postgres, None), Decision::Run);
            assert_eq!(decide(&run(servers, true), Need::Postgres, None), Decision::Run);
        }
    }

    #[test]
    fn a_version_that_the_run_does_not_cover_is_left_out_and_one_that_it_covers_must_be_there() {
        let run = Run { majors: Some(vec![15, 18]), ..run(Servers::All, true) };
        let of_17 = decide(&run, Need::PostgresMajor(17), Some(&missing()));
        assert!(matches!(of_17, Decision::LeaveOut(reason) if reason.starts_with(NOT_CHOSEN)));
        assert!(matches!(decide(&run, Need::PostgresMajor(18), Some(&missing())), Decision::Fail(_)));
        assert!(matches!(decide(&run, Need::Postgres, Some(&missing())), Decision::Fail(_)));
    }
}
