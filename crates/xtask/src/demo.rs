//! `cargo xtask demo`: gets a PostgreSQL and runs the worker's demo with it.

use crabka_testkit::PgInstall;

use crate::cargo;
use crate::provision;

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let arguments = arguments.strip_prefix(&["--".to_owned()]).unwrap_or(arguments);
    let mut demo: Vec<String> = ["run", "--package", "crabka", "--", "demo"].map(str::to_owned).to_vec();
    let names_a_server = arguments.iter().any(|argument| {
        let name = argument.split('=').next().unwrap_or_default();
        ["--pg", "--pg-bin", "--help", "-h"].contains(&name)
    });
    let plan = provision::for_demo(!names_a_server)?;
    plan.print();
    plan.carry_out()?;
    if !names_a_server {
        let install = PgInstall::find(None).map_err(|error| error.to_string())?;
        let bin = install.reachable_bin().map_err(|error| error.to_string())?;
        demo.extend(["--pg-bin".to_owned(), bin.to_string_lossy().into_owned()]);
    }
    demo.extend(arguments.iter().cloned());
    let demo: Vec<&str> = demo.iter().map(String::as_str).collect();
    cargo::step("demo", &demo, &[])
}
