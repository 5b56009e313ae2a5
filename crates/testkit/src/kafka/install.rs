//! The broker's programs: jars that Maven resolves once and the cache keeps, or a container image's.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::account::Account;
use crate::cache;
use crate::container::Container;
use crate::error::Error;
use crate::process;

/// Tried in this order; the first that resolves with all it depends on is used.
const VERSIONS: &[&str] = &["4.4.0", "4.3.1", "4.2.1", "4.1.2", "4.0.2"];

/// Binding of the logging interface that Kafka's jars use; without it a broker that fails says nothing.
const LOG_BINDING_VERSION: &str = "2.25.4";

/// The image that is used where Java or the jars cannot be had.
const IMAGE: &str = "apache/kafka:4.3.1";

/// Where the image has its jars.
const IMAGE_JARS: &str = "/opt/kafka/libs/*";

/// What is needed to run Kafka here.
#[derive(Debug, Clone)]
pub struct KafkaInstall {
    origin: Origin,
}

#[derive(Debug, Clone)]
enum Origin {
    Jars { dir: PathBuf, java: PathBuf },
    Image(Container),
}

impl KafkaInstall {
    /// Whether [`get`](Self::get) has what it needs: Java, and jars in the cache or Maven to resolve them; or a
    /// container engine.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] with the way to get it.
    pub fn check() -> Result<(), Error> {
        let jars = java().and_then(|_| if jar_dir().is_some() { Ok(()) } else { maven().map(drop) });
        jars.or_else(|missing| Container::of(IMAGE).map(drop).ok_or(missing))
    }

    /// The jars in the cache, where Java is there too.
    #[must_use]
    pub fn cached() -> Option<Self> {
        Some(Self { origin: Origin::Jars { dir: jar_dir()?, java: java().ok()? } })
    }

    /// The jars, which Maven resolves when the cache has none; or the official image where that cannot be and Docker
    /// runs. Blocks, at the first time for as long as it takes to fetch about 45 MB.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] without Java or Maven, [`Error::Program`] when no version resolves.
    pub fn get() -> Result<Self, Error> {
        let origin = jars().or_else(|missing| Container::of(IMAGE).map(Origin::Image).ok_or(missing))?;
        Ok(Self { origin })
    }

    /// Kafka's version.
    #[must_use]
    pub fn version(&self) -> String {
        match &self.origin {
            Origin::Jars { dir, .. } => dir.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            Origin::Image(container) => container.image().rsplit(':').next().unwrap_or_default().to_owned(),
        }
    }

    /// Where it comes from, for people.
    #[must_use]
    pub fn origin(&self) -> String {
        match &self.origin {
            Origin::Jars { dir, java } => format!("{} with {}", dir.display(), java.display()),
            Origin::Image(container) => format!("image {}", container.image()),
        }
    }

    /// The `java` of this machine and the class path of the jars, for programs that use Kafka's own clients; `None` with
    /// an image.
    #[must_use]
    pub fn java_and_class_path(&self) -> Option<(&Path, String)> {
        match &self.origin {
            Origin::Jars { dir, java } => Some((java, format!("{}/*", dir.display()))),
            Origin::Image(_) => None,
        }
    }

    pub(crate) fn container(&self) -> Option<&Container> {
        match &self.origin {
            Origin::Jars { .. } => None,
            Origin::Image(container) => Some(container),
        }
    }

    /// The words of a Java command whose class path is Kafka's; `options` come before it, the main class follows.
    pub(crate) fn java_words(&self, container_name: &str, dir: &Path, options: &[String]) -> Vec<String> {
        let (mut words, class_path) = match &self.origin {
            Origin::Jars { dir, java } => {
                (vec![java.to_string_lossy().into_owned()], format!("{}/*", dir.display()))
            }
            Origin::Image(container) => {
                (container.words(container_name, dir, &Account::Own, "java"), IMAGE_JARS.to_owned())
            }
        };
        words.extend_from_slice(options);
        words.extend(["-cp".to_owned(), class_path]);
        words
    }
}

fn jars() -> Result<Origin, Error> {
    let java = java()?;
    if let Some(dir) = jar_dir() {
        return Ok(Origin::Jars { dir, java });
    }
    let maven = maven()?;
    let mut reasons = String::new();
    for version in VERSIONS {
        match cache::entry(&entry_name(version), |place| resolve(&maven, version, place)) {
            Ok(dir) => return Ok(Origin::Jars { dir, java }),
            Err(error) => reasons.push_str(&format!("\nkafka_2.13 {version}: {error}")),
        }
    }
    Err(Error::Program { program: "maven".into(), reason: reasons })
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
