//! `crabka config reference` and `crabka config show`.

use crate::cli::{ConfigCommand, Global};
use crate::config::{Config, reference};
use crate::exit::Failure;
use crate::output::print;

/// Prints what was asked for.
pub(crate) fn config(what: ConfigCommand, global: &Global) -> Result<(), Failure> {
    match what {
        ConfigCommand::Reference => print(&reference()),
        ConfigCommand::Show(file) => print(&Config::load(&file.with(global))?.show()),
    }
}
