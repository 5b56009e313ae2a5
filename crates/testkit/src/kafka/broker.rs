//! One throw-away broker, or the running one that the environment names.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::builder::KafkaBrokerBuilder;
use super::install::KafkaInstall;
use super::wire;
use crate::account::Account;
use crate::container::{Container, container_name};
use crate::error::Error;
use crate::port::free_port;
use crate::process;
use crate::supervisor::{self, Process, Supervisor, Watch, shell_word};

const START_TIMEOUT: Duration = Duration::from_secs(120);
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
const HEAP_MB: u32 = 384;

/// How much of the log an error shows.
const LOG_LINES: usize = 40;

/// One answer to a metadata request may take this long.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// One line per event, without the hundreds of lines in which Kafka prints its configuration.
const LOG4J: &str = "\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
logger.config.name = org.apache.kafka.common.config
logger.config.level = warn
";

/// How a broker came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrokerStopped {
    /// From the signal to the end of the process.
    pub took: Duration,
    /// Exit code as a shell gives it: 143 after an orderly shutdown (Java ends by its SIGTERM), 137 after a kill.
    pub code: i32,
}

/// A Kafka broker. Dropping one that was started here stops it and removes its files; so does the end of the test
/// process, however it ends. It belongs to no runtime: any thread and any runtime may use it.
///
/// Topics are not created by use, and each internal topic has one partition and one replica.
#[derive(Debug)]
pub struct KafkaBroker {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Somebody else's, named by `CRABKA_TEST_KAFKA`.
    Running(String),
    Own(Arc<Inner>),
}

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    version: String,
    container: Option<Container>,
    /// Used when the broker runs in a container.
    container_name: String,
    port: u16,
    proxied_port: Option<u16>,
    start_timeout: Duration,
    watch: Watch,
    supervisor: Mutex<Supervisor>,
}

/// The ports of one broker.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ports {
    clients: u16,
    pub(super) controller: u16,
    proxied: Option<u16>,
}

impl Ports {
    pub(super) fn free(builder: &KafkaBrokerBuilder) -> Result<Self, Error> {
        Ok(Self {
            clients: free_port()?,
            controller: free_port()?,
            proxied: builder.advertised.as_ref().map(|_| free_port()).transpose()?,
        })
    }
}

/// What makes a broker a member of a cluster.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) id: usize,
    pub(super) cluster_id: String,
    /// `controller.quorum.voters`.
    pub(super) voters: String,
    pub(super) ports: Ports,
}

impl KafkaBroker {
    /// A broker of the test's own, to be stopped, killed and configured; also where `CRABKA_TEST_KAFKA` is set.
    ///
    /// # Errors
    ///
    /// As [`KafkaBrokerBuilder::start`].
    pub async fn start() -> Result<Self, Error> {
        Self::builder().start().await
    }

    /// Describes a broker that is to differ from the default.
    #[must_use]
    pub fn builder() -> KafkaBrokerBuilder {
        KafkaBrokerBuilder::default()
    }

    /// The broker that tests share: the one named by `CRABKA_TEST_KAFKA` (bootstrap servers), or else one per test
    /// process, started by the first call. Each test uses topics of its own
    /// ([`unique_name`](crate::unique_name)).
    ///
    /// # Errors
    ///
    /// As [`KafkaBrokerBuilder::start`]; [`Error::NotReady`] when the named broker does not answer. A later call
    /// tries again.
    pub async fn shared() -> Result<&'static Self, Error> {
        static SHARED: Mutex<Option<&'static KafkaBroker>> = Mutex::new(None);
        process::blocking(|| {
            // Held while the broker starts: the other tests wait for it.
            let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(broker) = *shared {
                return Ok(broker);
            }
            crate::servers::check_allowed("kafka")?;
            let kind = match std::env::var("CRABKA_TEST_KAFKA") {
                Ok(servers) if !servers.is_empty() => Kind::Running(reachable(servers)?),
                _ => Kind::Own(Arc::new(Inner::launch(&KafkaBrokerBuilder::default())?)),
            };
            // A static is not dropped: the supervisor ends an own broker when this process is gone.
            let broker: &'static Self = Box::leak(Box::new(Self { kind }));
            *shared = Some(broker);
            Ok(broker)
        })
        .await
    }

    pub(crate) async fn launch(builder: KafkaBrokerBuilder) -> Result<Self, Error> {
        let inner = process::blocking(move || Inner::launch(&builder)).await?;
        Ok(Self { kind: Kind::Own(Arc::new(inner)) })
    }

    /// Blocks until the broker answers, which a member of a cluster does when most of them run.
    pub(super) fn launch_member(builder: &KafkaBrokerBuilder, member: &Member) -> Result<Self, Error> {
        let inner = Inner::launch_member(builder, &KafkaInstall::get()?, member)?;
        Ok(Self { kind: Kind::Own(Arc::new(inner)) })
    }

    /// `host:port`, or several separated by commas: what a client's `bootstrap.servers` takes.
    #[must_use]
    pub fn bootstrap_servers(&self) -> String {
        match &self.kind {
            Kind::Running(servers) => servers.clone(),
            Kind::Own(inner) => format!("127.0.0.1:{}", inner.port),
        }
    }

    /// Address of the listener that [`advertise`](KafkaBrokerBuilder::advertise) added: the target of the proxy.
    #[must_use]
    pub fn proxied_address(&self) -> Option<String> {
        match &self.kind {
            Kind::Running(_) => None,
            Kind::Own(inner) => inner.proxied_port.map(|port| format!("127.0.0.1:{port}")),
        }
    }

    /// Whether the broker runs without us, named by `CRABKA_TEST_KAFKA`; such a broker is never stopped.
    #[must_use]
    pub fn is_external(&self) -> bool {
        matches!(self.kind, Kind::Running(_))
    }

    /// Kafka's version; `None` for a broker that runs without us.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        match &self.kind {
            Kind::Running(_) => None,
            Kind::Own(inner) => Some(&inner.version),
        }
    }

    /// Orderly shutdown (SIGTERM); returns when the process has ended.
    ///
    /// # Errors
    ///
    /// [`Error::StillRunning`] after 60 s, [`Error::State`] when it does not run or is not ours.
    ///
    /// # Cancel safety
    ///
    /// The shutdown goes on when the future is dropped.
    pub async fn stop(&self) -> Result<BrokerStopped, Error> {
        self.end("TERM").await
    }

    /// Kills the broker with SIGKILL; returns when the process has ended.
    ///
    /// # Errors
    ///
    /// [`Error::State`] when it does not run or is not ours.
    pub async fn kill9(&self) -> Result<BrokerStopped, Error> {
        self.end("KILL").await
    }

    /// Starts a stopped or killed broker on its old ports and data; it answers clients when this returns.
    ///
    /// # Errors
    ///
    /// [`Error::NotReady`] with the end of its log, [`Error::State`] when it runs already or is not ours.
    pub async fn start_again(&self) -> Result<(), Error> {
        let inner = self.own()?;
        process::blocking(move || inner.start(&mut inner.lock())).await
    }

    /// What the broker has logged, from its first start on; empty for one that runs without us.
    #[must_use]
    pub fn log(&self) -> String {
        match &self.kind {
            Kind::Running(_) => String::new(),
            Kind::Own(inner) => {
                let bytes = std::fs::read(inner.dir.join("log")).unwrap_or_default();
                String::from_utf8_lossy(&bytes).into_owned()
            }
        }
    }

    fn own(&self) -> Result<Arc<Inner>, Error> {
        match &self.kind {
            Kind::Running(servers) => Err(Error::State(format!(
                "the broker of CRABKA_TEST_KAFKA is not the test's to start or stop: {servers}"
            ))),
            Kind::Own(inner) => Ok(Arc::clone(inner)),
        }
    }

    async fn end(&self, signal: &'static str) -> Result<BrokerStopped, Error> {
        let inner = self.own()?;
        process::blocking(move || inner.end(signal)).await
    }
}

impl Inner {
    fn launch(builder: &KafkaBrokerBuilder) -> Result<Self, Error> {
        crate::servers::check_allowed("kafka")?;
        let install = KafkaInstall::get()?;
        on_free_ports(|| {
            let ports = Ports::free(builder)?;
            let voters = format!("1@127.0.0.1:{}", ports.controller);
            let member = Member { id: 1, cluster_id: cluster_id(), voters, ports };
            Self::launch_member(builder, &install, &member)
        })
    }

    fn launch_member(
        builder: &KafkaBrokerBuilder,
        install: &KafkaInstall,
        member: &Member,
    ) -> Result<Self, Error> {
        let dir = process::server_dir("crabka-kafka-")?;
        let ports = member.ports;
        let put = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).map_err(Error::file(path))
        };
        put("server.properties", &properties(builder, member, &dir.path().join("data").to_string_lossy()))?;
        put("log4j2.properties", LOG4J)?;
        let container_name = container_name("kafka");
        let words = install.java_words(
            &container_name,
            dir.path(),
            &java_options(builder.heap_mb.unwrap_or(HEAP_MB)),
        );
        let removal =
            install.container().map(|container| container.removal(&container_name)).unwrap_or_default();
        let quoted: Vec<String> = words.iter().map(shell_word).collect();
        put("run", &format!("{removal}\nexec {} kafka.Kafka server.properties\n", quoted.join(" ")))?;
        let mut format = Command::new(&words[0]);
        format.args(&words[1..]).args([
            "kafka.tools.StorageTool",
            "format",
            "--cluster-id",
            &member.cluster_id,
        ]);
        format.args(["--config", "server.properties"]).current_dir(dir.path());
        process::output(&mut format, "kafka.tools.StorageTool")?;

        let supervisor = Supervisor::new(dir.path(), &Account::Own, "KILL", &removal)?;
        let inner = Self {
            dir: dir.keep(),
            version: install.version(),
            container: install.container().cloned(),
            container_name,
            port: ports.clients,
            proxied_port: ports.proxied,
            start_timeout: builder.start_timeout.unwrap_or(START_TIMEOUT),
            watch: supervisor.watch(),
            supervisor: Mutex::new(supervisor),
        };
        inner.start(&mut inner.lock())?;
        Ok(inner)
    }

    fn start(&self, supervisor: &mut Supervisor) -> Result<(), Error> {
        let began = Instant::now();
        supervisor.start()?;
        let address = format!("127.0.0.1:{}", self.port);
        loop {
            let answer = wire::brokers(&address, ANSWER_TIMEOUT);
            let reason = match (self.watch.process(), answer) {
                (Process::Running(_), Ok(brokers)) if !brokers.is_empty() => return Ok(()),
                (Process::Running(_), _) if began.elapsed() < self.start_timeout => {
                    std::thread::sleep(Duration::from_millis(50));
                    continue;
                }
                (Process::Running(pid), answer) => {
                    supervisor.signal("KILL", &[pid])?;
                    self.watch.wait_end(STOP_TIMEOUT);
                    format!("no metadata after {} s: {answer:?}", began.elapsed().as_secs())
                }
                (Process::Ended(code), _) => format!("it ended with exit code {code}"),
                (other, _) => format!("its supervisor is gone: {other:?}"),
            };
            return Err(Error::NotReady { what: self.name(), reason, log: self.log_tail() });
        }
    }

    fn end(&self, signal: &str) -> Result<BrokerStopped, Error> {
        let pid = self.watch.pid().ok_or_else(|| Error::State("the kafka broker does not run".into()))?;
        let began = Instant::now();
        match &self.container {
            Some(container) => container.signal(&self.container_name, signal)?,
            None => self.lock().signal(signal, &[pid])?,
        }
        match self.watch.wait_end(STOP_TIMEOUT) {
            Some(Process::Ended(code)) => Ok(BrokerStopped { took: began.elapsed(), code }),
            Some(other) => Err(Error::State(format!("the supervisor lost the broker: {other:?}"))),
            None => {
                Err(Error::StillRunning { what: self.name(), waited: began.elapsed(), log: self.log_tail() })
            }
        }
    }

    fn log_tail(&self) -> String {
        supervisor::tail(&self.dir.join("log"), LOG_LINES)
    }

    fn name(&self) -> String {
        format!("kafka {}", self.version)
    }

    fn lock(&self) -> MutexGuard<'_, Supervisor> {
        self.supervisor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The broker that the environment names, when one of its addresses answers.
fn reachable(servers: String) -> Result<String, Error> {
    let mut reasons = String::new();
    for server in servers.split(',').map(str::trim) {
        match wire::brokers(server, ANSWER_TIMEOUT) {
            Ok(_) => return Ok(servers),
            Err(error) => {
                let _ = writeln!(reasons, "{server}: {error}");
            }
        }
    }
    Err(Error::NotReady {
        what: format!("the broker of CRABKA_TEST_KAFKA ({servers})"),
        reason: "no answer to a metadata request".into(),
        log: reasons,
    })
}

fn java_options(heap_mb: u32) -> Vec<String> {
    vec![
        format!("-Xmx{heap_mb}m"),
        // A broker that lives for seconds is never worth the optimising compiler.
        "-XX:TieredStopAtLevel=1".into(),
        "-XX:+UseSerialGC".into(),
        "-Djava.awt.headless=true".into(),
        "-Dlog4j2.configurationFile=log4j2.properties".into(),
    ]
}

/// Runs it again when somebody else has taken a port between looking for one and using it.
pub(super) fn on_free_ports<T>(mut launch: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    for _ in 0..4 {
        match launch() {
            Err(Error::NotReady { log, .. }) if log.contains("Address already in use") => {}
            outcome => return outcome,
        }
    }
    Err(Error::State("free ports were taken by somebody else four times in turn".into()))
}

fn properties(builder: &KafkaBrokerBuilder, member: &Member, data: &str) -> String {
    let Ports { clients, controller, proxied } = member.ports;
    let mut listeners = format!("CLIENTS://127.0.0.1:{clients},CONTROLLER://127.0.0.1:{controller}");
    let mut advertised = format!("CLIENTS://127.0.0.1:{clients}");
    if let (Some(port), Some(address)) = (proxied, &builder.advertised) {
        let _ = write!(listeners, ",PROXIED://127.0.0.1:{port}");
        let _ = write!(advertised, ",PROXIED://{address}");
    }
    let own = [
        ("process.roles", "broker,controller"),
        ("node.id", &member.id.to_string()),
        ("controller.quorum.voters", &member.voters),
        ("listeners", &listeners),
        ("advertised.listeners", &advertised),
        ("listener.security.protocol.map", "CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT"),
        ("controller.listener.names", "CONTROLLER"),
        ("inter.broker.listener.name", "CLIENTS"),
        ("log.dirs", data),
    ];
    own.into_iter().chain(builder.all_settings()).fold(String::new(), |mut text, (name, value)| {
        // The backslash is the format's escape character.
        let _ = writeln!(text, "{name}={}", value.replace('\\', "\\\\"));
        text
    })
}

/// 22 characters of URL-safe base64, as Kafka writes 16 bytes.
pub(super) fn cluster_id() -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut bits = rand::random::<u128>();
    // The last character holds two bits only; the first must not look like an option's dash.
    let mut text = String::from("A");
    for _ in 0..20 {
        text.push(char::from(ALPHABET[(bits & 63) as usize]));
        bits >>= 6;
    }
    text.push('A');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::{Direction, FaultProxy};

    #[tokio::test]
    async fn clients_of_the_proxied_listener_are_told_to_come_to_the_proxy() {
        crate::needs!(kafka);
        let proxy = FaultProxy::start("127.0.0.1:1").unwrap();
        let broker = KafkaBroker::builder().advertise(proxy.address()).start().await.unwrap();
        proxy.set_target(broker.proxied_address().unwrap());
        let (direct, through) = (broker.bootstrap_servers(), proxy.address().to_string());
        assert_eq!(wire::brokers(&through, ANSWER_TIMEOUT), Ok(vec![through.clone()]));
        assert_eq!(wire::brokers(&direct, ANSWER_TIMEOUT), Ok(vec![direct.clone()]));
        proxy.blackhole(Direction::ToClient);
        assert!(wire::brokers(&through, Duration::from_millis(200)).is_err());
    }

    #[test]
    fn a_cluster_id_has_the_form_of_sixteen_bytes() {
        let id = cluster_id();
        assert!(id.len() == 22 && id.starts_with('A') && id.ends_with('A'), "{id}");
        assert_ne!(id, cluster_id());
    }
}
