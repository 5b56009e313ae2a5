//! How the program ends: its exit code, and the last line it writes.
//!
//! The codes are part of what users script against: see `docs/OPERATIONS.md`.

use std::fmt;
use std::panic::PanicHookInfo;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use crabka_connect::{ConnectError, ErrorClass, SourceOffset};

use crate::config::ConfigError;
use crate::logging::LogFormat;

/// Ended as asked.
pub(crate) const DONE: u8 = 0;
/// The command line is wrong; the code that clap uses.
pub(crate) const USAGE: u8 = 2;
/// A second SIGINT: 128 + the number of the signal, as shells say it.
pub(crate) const INTERRUPTED: u8 = 130;

/// The exit code of an error class.
pub(crate) const fn code(class: ErrorClass) -> u8 {
    match class {
        ErrorClass::Transient => 10,
        ErrorClass::Configuration => 11,
        ErrorClass::Data => 12,
        ErrorClass::LostPosition => 13,
        ErrorClass::Fenced => 14,
        ErrorClass::Bug => 15,
    }
}

/// What to do about a class when the error itself does not say.
const fn advice(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::Transient => "start it again; if it stays, look at the server or broker it names",
        ErrorClass::Configuration => "correct the setting, grant or option it names, then start it again",
        ErrorClass::Data => "correct or remove what cannot be delivered, then start it again",
        ErrorClass::LostPosition => {
            "decide where to go on: changes may be missing between the checkpoint and what the server still has"
        }
        ErrorClass::Fenced => "nothing: another instance runs this connector",
        ErrorClass::Bug => "report it with this line; the position is kept, and starting again is safe",
    }
}

/// Why the program ends without having done what was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error of one of the classes.
    Error(ConnectError),
    /// An error that ended a run, with the position that was checkpointed last.
    Run(ConnectError, Option<Arc<SourceOffset>>),
    /// The command line does not make sense; clap has its own for what it can see.
    Usage(String),
    /// Stopped at once, on request.
    Interrupted,
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        Self::Error(error)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::Error(error.into())
    }
}

impl Failure {
    fn code(&self) -> u8 {
        match self {
            Self::Error(error) | Self::Run(error, _) => code(error.class()),
            Self::Usage(_) => USAGE,
            Self::Interrupted => INTERRUPTED,
        }
    }

    /// The position of a run in JSON: where it goes on.
    fn position(&self) -> Option<serde_json::Value> {
        match self {
            Self::Run(_, Some(offset)) => serde_json::to_value(&offset.position).ok(),
            Self::Run(_, None) | Self::Error(_) | Self::Usage(_) | Self::Interrupted => None,
        }
    }

    /// The last line: class, what happened, what to do.
    fn last_line(&self) -> LastLine {
        match self {
            Self::Error(error) | Self::Run(error, _) => {
                let mut message = error.message().to_owned();
                if let Some(sqlstate) = error.sqlstate() {
                    message.push_str(&format!(" (SQLSTATE {sqlstate})"));
                }
                let fix = error.fix().unwrap_or(advice(error.class()));
                LastLine {
                    class: error.class().as_str(),
                    message,
                    position: self.position(),
                    fix: fix.to_owned(),
                    code: self.code(),
                }
            }
            Self::Usage(message) => LastLine {
                class: "usage",
                message: message.clone(),
                position: None,
                fix: "crabka --help".to_owned(),
                code: self.code(),
            },
            Self::Interrupted => LastLine {
                class: "interrupted",
                message: "stopped at once by a second signal".to_owned(),
                position: None,
                fix: "nothing: what was not checkpointed is delivered again at the next start".to_owned(),
                code: self.code(),
            },
        }
    }
}

struct LastLine {
    class: &'static str,
    message: String,
    position: Option<serde_json::Value>,
    fix: String,
    code: u8,
}

impl LastLine {
    fn render(&self, format: LogFormat) -> String {
        match format {
            LogFormat::Human => format!("crabka: {}", one_line(&self.to_string())),
            LogFormat::Json => serde_json::json!({
                "level": "ERROR",
                "class": self.class,
                "message": self.message,
                "position": self.position,
                "fix": self.fix,
                "exit_code": self.code,
            })
            .to_string(),
        }
    }
}

impl fmt::Display for LastLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class, self.message)?;
        if let Some(position) = &self.position {
            write!(f, "; checkpointed at: {position}")?;
        }
        write!(f, "; to do: {}", self.fix)
    }
}

/// SQL that fixes something may have line breaks; the last line has none.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// Says how the last line is written, once the command line is known.
pub(crate) fn set_format(format: LogFormat) {
    // A second call would mean that two command lines were parsed; the first one counts.
    let _ = FORMAT.set(format);
}

fn format() -> LogFormat {
    FORMAT.get().copied().unwrap_or(LogFormat::Human)
}

/// Writes the last line and gives the exit code.
pub(crate) fn end(outcome: Result<(), Failure>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::from(DONE),
        Err(failure) => {
            eprintln!("{}", failure.last_line().render(format()));
            ExitCode::from(failure.code())
        }
    }
}

/// Ends at once, without waiting for anything.
pub(crate) fn end_now(failure: &Failure) -> ! {
    eprintln!("{}", failure.last_line().render(format()));
    std::process::exit(i32::from(failure.code()))
}

/// Makes a panic on any thread end the program with the code of a bug. What the panic says is not printed: it may
/// hold a value of a row.
pub(crate) fn install_panic_hook() {
    std::panic::set_hook(Box::new(|info: &PanicHookInfo<'_>| {
        let place = match info.location() {
            Some(location) => format!("{}:{}", source_path(location.file()), location.line()),
            None => "an unknown place".to_owned(),
        };
        end_now(&Failure::Error(ConnectError::bug(format!("panic at {place}"))));
    }));
}

/// The path of a source file from its crate on: where it was built is nobody's business.
fn source_path(file: &str) -> &str {
    for mark in ["/crates/", "/registry/src/", "/library/"] {
        if let Some(at) = file.rfind(mark) {
            return &file[at + 1..];
        }
    }
    file
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const CLASSES: [ErrorClass; 6] = [
        ErrorClass::Transient,
        ErrorClass::Configuration,
        ErrorClass::Data,
        ErrorClass::LostPosition,
        ErrorClass::Fenced,
        ErrorClass::Bug,
    ];

    #[test]
    fn every_class_has_its_own_code() {
        let mut codes: Vec<u8> = CLASSES.iter().map(|class| code(*class)).collect();
        codes.extend([DONE, USAGE, INTERRUPTED]);
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), CLASSES.len() + 3);
    }

    #[test]
    fn the_codes_are_documented() {
        let page = include_str!("../../../docs/OPERATIONS.md");
        for class in CLASSES {
            let row = format!("| {} | `{}` |", code(class), class.as_str());
            assert!(page.contains(&row), "docs/OPERATIONS.md has no row: {row}");
        }
        for row in ["| 0 |", "| 2 | `usage` |", "| 130 | `interrupted` |"] {
            assert!(page.contains(row), "docs/OPERATIONS.md has no row: {row}");
        }
    }

    #[test]
    fn the_last_line_is_one_line_with_class_message_and_fix() {
        let error =
            ConnectError::configuration("no rights").with_sqlstate("42501").with_fix("GRANT a;\nGRANT b;");
        let line = Failure::from(error).last_line();
        assert_eq!(
            line.render(LogFormat::Human),
            "crabka: configuration: no rights (SQLSTATE 42501); to do: GRANT a; GRANT b;"
        );
        let json: serde_json::Value = serde_json::from_str(&line.render(LogFormat::Json)).unwrap();
        assert_eq!(json["class"], "configuration");
        assert_eq!(json["fix"], "GRANT a;\nGRANT b;");
        assert_eq!(json["exit_code"], 11);
    }

    const IN_CHILD: &str = "CRABKA_TEST_PANIC";

    #[test]
    fn a_panic_ends_with_the_code_of_a_bug_and_without_its_payload() {
        if std::env::var_os(IN_CHILD).is_some() {
            install_panic_hook();
            let row = "CANARY";
            std::thread::spawn(move || panic!("value of a row: {row}")).join().unwrap();
        }
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture"])
            .arg("exit::tests::a_panic_ends_with_the_code_of_a_bug_and_without_its_payload")
            .env(IN_CHILD, "1")
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&child.stderr);
        assert_eq!(child.status.code(), Some(i32::from(code(ErrorClass::Bug))), "{stderr}");
        assert!(!stderr.contains("CANARY"), "{stderr}");
        let last = stderr.lines().last().unwrap();
        assert!(last.starts_with("crabka: bug: panic at crates/worker/src/exit.rs:"), "{last}");
    }
}
