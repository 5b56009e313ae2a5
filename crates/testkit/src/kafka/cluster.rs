//! Several brokers that replicate each other's partitions.

use std::time::{Duration, Instant};

use super::broker::{ANSWER_TIMEOUT, KafkaBroker, Member, Ports, cluster_id, on_free_ports};
use super::builder::KafkaBrokerBuilder;
use super::wire;
use crate::error::Error;
use crate::process;

/// How long a start of all of them may take.
const START_TIMEOUT: Duration = Duration::from_secs(300);

/// How long the members may take to find each other once each of them answers.
const MEET_TIMEOUT: Duration = Duration::from_secs(120);

/// Brokers in one cluster, each of them also a controller: any minority of them may be killed. Everything is replicated
/// to all of them and takes a write when most have it.
#[derive(Debug)]
pub struct KafkaCluster {
    brokers: Vec<KafkaBroker>,
}

impl KafkaCluster {
    /// Starts `count` brokers; each answers and knows all others when this returns.
    ///
    /// # Errors
    ///
    /// As [`KafkaBrokerBuilder::start`].
    pub async fn start(count: usize) -> Result<Self, Error> {
        let majority = count / 2 + 1;
        let mut builder = KafkaBroker::builder();
        for name in ["default", "offsets.topic", "transaction.state.log", "share.coordinator.state.topic"] {
            builder = builder.setting(format!("{name}.replication.factor"), count);
        }
        for name in
            ["min.insync.replicas", "transaction.state.log.min.isr", "share.coordinator.state.topic.min.isr"]
        {
            builder = builder.setting(name, majority);
        }
        // A member that was killed is noticed soon.
        builder = builder.setting("broker.session.timeout.ms", 6000).heap_mb(256);
        // Several Java machines start at once.
        builder = builder.start_timeout(START_TIMEOUT);
        let brokers = process::blocking(move || {
            crate::servers::check_allowed("kafka")?;
            on_free_ports(|| launch(&builder, count))
        })
        .await?;
        Ok(Self { brokers })
    }

    /// The member with this `node.id`, counted from 1.
    ///
    /// # Errors
    ///
    /// [`Error::State`] when there is none.
    pub fn broker(&self, id: usize) -> Result<&KafkaBroker, Error> {
        let broker = id.checked_sub(1).and_then(|index| self.brokers.get(index));
        broker.ok_or_else(|| Error::State(format!("the cluster has no such member: {id}")))
    }

    /// The addresses of all members.
    #[must_use]
    pub fn bootstrap_servers(&self) -> String {
        self.brokers.iter().map(KafkaBroker::bootstrap_servers).collect::<Vec<_>>().join(",")
    }
}

fn launch(builder: &KafkaBrokerBuilder, count: usize) -> Result<Vec<KafkaBroker>, Error> {
    let ports = (0..count).map(|_| Ports::free(builder)).collect::<Result<Vec<_>, _>>()?;
    let voter = |(index, ports): (usize, &Ports)| format!("{}@127.0.0.1:{}", index + 1, ports.controller);
    let voters = ports.iter().enumerate().map(voter).collect::<Vec<_>>().join(",");
    let cluster_id = cluster_id();
    // At once: none of them is ready alone.
    let brokers = std::thread::scope(|scope| {
        let starting: Vec<_> = (1..)
            .zip(ports)
            .map(|(id, ports)| {
                let member = Member { id, cluster_id: cluster_id.clone(), voters: voters.clone(), ports };
                scope.spawn(move || KafkaBroker::launch_member(builder, &member))
            })
            .collect();
        let ended = starting.into_iter().map(|thread| match thread.join() {
            Ok(broker) => broker,
            Err(_) => Err(Error::State("starting a broker panicked".into())),
        });
        ended.collect::<Result<Vec<_>, _>>()
    })?;
    for broker in &brokers {
        meet(broker, count)?;
    }
    Ok(brokers)
}

fn meet(broker: &KafkaBroker, count: usize) -> Result<(), Error> {
    let began = Instant::now();
    loop {
        let known = wire::brokers(&broker.bootstrap_servers(), ANSWER_TIMEOUT);
        if known.as_ref().is_ok_and(|known| known.len() == count) {
            return Ok(());
        }
        if began.elapsed() > MEET_TIMEOUT {
            return Err(Error::NotReady {
                what: "a kafka cluster".into(),
                reason: format!("{count} brokers wanted, known: {known:?}"),
                log: broker.log(),
            });
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
