//! The broker's jars: resolved by Maven once, kept in the cache.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cache;
use crate::error::Error;
use crate::process;

/// Tried in this order; the first that resolves with all it depends on is used.
const VERSIONS: &[&str] = &["4.4.0", "4.3.1", "4.2.1", "4.1.2", "4.0.2"];

/// Binding of the logging interface that Kafka's jars use; without it a broker that fails says nothing.
const LOG_BINDING_VERSION: &str = "2.25.4";

/// What is needed to run Kafka on this machine's Java.
#[derive(Debug, Clone)]
pub struct KafkaJars {
    dir: PathBuf,
    java: PathBuf,
}

impl KafkaJars {
    /// Whether [`get`](Self::get) has what it needs: jars in the cache or Maven to resolve them, and Java.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] with the way to get it.
    pub fn check() -> Result<(), Error> {
        java()?;
        if jar_dir().is_some() { Ok(()) } else { maven().map(drop) }
    }

    /// The jars in the cache, where Java is there too.
    #[must_use]
    pub fn cached() -> Option<Self> {
        Some(Self { dir: jar_dir()?, java: java().ok()? })
    }

    /// The jars, which Maven resolves when the cache has none. Blocks, at the first time for as long as it takes to
    /// fetch about 45 MB.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] without Java or Maven, [`Error::Program`] when no version resolves.
    pub fn get() -> Result<Self, Error> {
        let java = java()?;
        if let Some(dir) = jar_dir() {
            return Ok(Self { dir, java });
        }
        let maven = maven()?;
        let mut reasons = String::new();
        for version in VERSIONS {
            match cache::entry(&entry_name(version), |place| resolve(&maven, version, place)) {
                Ok(dir) => return Ok(Self { dir, java }),
                Err(error) => reasons.push_str(&format!("\nkafka_2.13 {version}: {error}")),
            }
        }
        Err(Error::Program { program: "maven".into(), reason: reasons })
    }

    /// Kafka's version.
    #[must_use]
    pub fn version(&self) -> String {
        self.dir.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The `java` that runs it.
    #[must_use]
    pub fn java(&self) -> &Path {
        &self.java
    }

    /// Class path of all jars.
    pub(crate) fn class_path(&self) -> String {
        format!("{}/*", self.dir.display())
    }
}

fn entry_name(version: &str) -> String {
    format!("kafka/{version}")
}

fn jar_dir() -> Option<PathBuf> {
    let cache = cache::cache_dir().ok()?;
    VERSIONS.iter().map(|version| cache.join(entry_name(version))).find(|dir| dir.is_dir())
}

fn java() -> Result<PathBuf, Error> {
    let home = std::env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin/java"));
    home.filter(|java| java.is_file()).or_else(|| process::on_path("java")).ok_or_else(|| Error::Missing {
        what: "Kafka (no java)".into(),
        help:
            "run `cargo xtask servers`, install a Java runtime 17 or later, or set CRABKA_TEST_KAFKA to the \
               bootstrap servers of a running broker"
                .into(),
    })
}

fn maven() -> Result<PathBuf, Error> {
    process::on_path("mvn").ok_or_else(|| Error::Missing {
        what: "Kafka (no jars in the cache, and no mvn to resolve them)".into(),
        help: "run `cargo xtask servers`, install Maven, or set CRABKA_TEST_KAFKA to the bootstrap servers of a \
               running broker"
            .into(),
    })
}

fn resolve(maven: &Path, version: &str, place: &Path) -> Result<(), Error> {
    let scratch = tempfile::tempdir().map_err(Error::io("making a directory"))?;
    let pom = scratch.path().join("pom.xml");
    std::fs::write(&pom, project(version)).map_err(Error::file(&pom))?;
    let mut command = Command::new(maven);
    command.args(["--batch-mode", "--quiet", "--file"]).arg(&pom);
    command.args(["dependency:copy-dependencies", "-DincludeScope=runtime"]);
    command.arg(format!("-DoutputDirectory={}", place.display())).current_dir(scratch.path());
    process::output(&mut command, "maven")?;
    let broker = place.join(format!("kafka_2.13-{version}.jar"));
    if broker.is_file() { Ok(()) } else { Err(Error::State("maven copied no broker".into())) }
}

fn project(version: &str) -> String {
    let dependency = |group: &str, artifact: &str, version: &str| {
        format!(
            "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>\
             <version>{version}</version></dependency>"
        )
    };
    format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
         <groupId>crabka</groupId><artifactId>test-kafka</artifactId><version>1</version><packaging>pom</packaging>\
         <dependencies>{}{}</dependencies></project>\n",
        dependency("org.apache.kafka", "kafka_2.13", version),
        dependency("org.apache.logging.log4j", "log4j-slf4j-impl", LOG_BINDING_VERSION),
    )
}
