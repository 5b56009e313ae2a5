//! `crabka run` that stands still at a named point, for tests to kill it there.
//!
//! `crabka-held CONFIG POINT NTH JOURNAL`: every point that is reached becomes a line of the journal, on the disk before
//! the run goes on. At the NTH time of POINT it prints a line and never returns.

#![allow(clippy::expect_used)]

use std::fs::File;
use std::io::Write;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use crabka_connect::{Observer, Point};

struct Hold {
    point: String,
    /// How often the point is still passed before it holds.
    passes: Mutex<u32>,
    journal: Mutex<File>,
}

impl Hold {
    fn note(&self, point: Point) {
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(journal, "{point}").and_then(|()| journal.sync_data()).expect("the journal is written");
    }

    fn is_due(&self, point: Point) -> bool {
        if point.as_str() != self.point {
            return false;
        }
        let mut passes = self.passes.lock().unwrap_or_else(PoisonError::into_inner);
        let due = *passes == 0;
        *passes = passes.saturating_sub(1);
        due
    }
}

#[async_trait]
impl Observer for Hold {
    async fn reached(&self, point: Point) {
        self.note(point);
        if self.is_due(point) {
            println!("held at {point}");
            std::future::pending::<()>().await;
        }
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let mut next = |what: &str| arguments.next().unwrap_or_else(|| panic!("missing argument: {what}"));
    let (config, point) = (next("CONFIG"), next("POINT"));
    let nth: u32 = next("NTH").parse().expect("a number");
    let journal = File::options().create(true).append(true).open(next("JOURNAL")).expect("the journal");
    let passes = Mutex::new(nth.saturating_sub(1));
    let hold = Hold { point, passes, journal: Mutex::new(journal) };
    crabka_worker::run_observed(config.into(), Arc::new(hold))
}
