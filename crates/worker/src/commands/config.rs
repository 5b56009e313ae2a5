//! `crabka config reference` and `crabka config show`.

use crate::cli::{ConfigCommand, Global};
use crate::config::{Config, reference};
use crate::exit::Failure;
use crate::output::print;
use crate::pipeline;

/// Prints what was asked for.
pub(crate) fn config(what: ConfigCommand, global: &Global) -> Result<(), Failure> {
    match what {
        ConfigCommand::Reference => print(&reference()),
        ConfigCommand::Show(file) => {
            let config = Config::load(&file.with(global))?;
            print(&config.show(&pipeline::follows(&config)))
        }
    }
}
