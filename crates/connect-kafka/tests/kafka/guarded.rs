//! Brokers that ask who we are and what we may: SASL over TLS, and rights (KAF-05, KAF-14).

use std::time::Duration;

use crabka_connect::{CheckpointStore, ErrorClass, Sink, SourceOffset};
use crabka_connect_kafka::{
    KafkaCheckpointConfig, KafkaCheckpointStore, KafkaSink, KafkaSinkConfig, Rejected, Severity, check,
    dead_letter_header,
};
use crabka_testkit::{FaultProxy, KafkaBroker, needs, unique_name};
use tokio::sync::OnceCell;

use crate::support::{config, create, java, java_is_here, keyed, partitions, read, write};

/// A broker with a second listener: SASL over TLS, rights by ACL. The first one is the operator's.
struct Guarded {
    broker: KafkaBroker,
    // Keeps the address of the second listener.
    proxy: FaultProxy,
    certificate: String,
}

impl Guarded {
    async fn get() -> &'static Self {
        static BROKER: OnceCell<Guarded> = OnceCell::const_new();
        BROKER.get_or_init(Self::start).await
    }

    async fn start() -> Self {
        let proxy = FaultProxy::start("127.0.0.1:1").unwrap();
        let signed =
            rcgen::generate_simple_self_signed(vec!["localhost".into(), "127.0.0.1".into()]).unwrap();
        let certificate = signed.cert.pem();
        let line = |pem: &str| pem.trim().replace("\r\n", "\n").replace('\n', " ");
        let login = |rest: &str| format!("org.apache.kafka.common.security.{rest} ;");
        let broker = KafkaBroker::builder()
            .advertise(proxy.address())
            .setting(
                "listener.security.protocol.map",
                "CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:SASL_SSL",
            )
            .setting("listener.name.proxied.ssl.keystore.type", "PEM")
            .setting("listener.name.proxied.ssl.keystore.certificate.chain", line(&certificate))
            .setting("listener.name.proxied.ssl.keystore.key", line(&signed.signing_key.serialize_pem()))
            .setting("listener.name.proxied.sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-512")
            .setting(
                "listener.name.proxied.plain.sasl.jaas.config",
                login("plain.PlainLoginModule required user_plain=\"plain-secret\""),
            )
            .setting(
                "listener.name.proxied.scram-sha-512.sasl.jaas.config",
                login("scram.ScramLoginModule required"),
            )
            .setting("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer")
            .setting("super.users", "User:ANONYMOUS")
            .start()
            .await
            .unwrap();
        proxy.set_target(broker.proxied_address().unwrap());
        let operator = broker.bootstrap_servers();
        java(&["scram", &operator, "scram", "scram-secret"], String::new()).await;
        for user in ["User:plain", "User:scram"] {
            java(
                &["allow", &operator, user, "topic", "own*", "write,describe,describe_configs,create,read"],
                String::new(),
            )
            .await;
        }
        Self { broker, proxy, certificate }
    }

    fn operator(&self) -> String {
        self.broker.bootstrap_servers()
    }

    fn config(&self, mechanism: &str, user: &str, password: &str) -> KafkaSinkConfig {
        let mut config = config(self.proxy.address().to_string());
        for (name, value) in [
            ("security.protocol", "SASL_SSL"),
            ("sasl.mechanism", mechanism),
            ("sasl.username", user),
            ("sasl.password", password),
            ("ssl.ca.pem", &self.certificate),
        ] {
            config.properties.insert(name.to_owned(), value.to_owned());
        }
        config
    }

    fn plain(&self) -> KafkaSinkConfig {
        self.config("PLAIN", "plain", "plain-secret")
    }
}

#[tokio::test]
async fn sasl_plain_and_scram_over_tls() {
    needs!(kafka);
    if !java_is_here() {
        return;
    }
    let guarded = Guarded::get().await;
    for config in [guarded.plain(), guarded.config("SCRAM-SHA-512", "scram", "scram-secret")] {
        let topic = unique_name("own");
        let mut sink = KafkaSink::open(config.clone()).await.unwrap();
        write(&mut sink, vec![keyed(&topic, "k", "v")]).await.unwrap();
        assert_eq!(read(&guarded.operator(), &topic).await.len(), 1);

        let mut store = KafkaCheckpointStore::open(KafkaCheckpointConfig {
            properties: config.properties,
            topic: unique_name("own-offsets"),
            ..KafkaCheckpointConfig::new(config.bootstrap_servers)
        })
        .await
        .unwrap();
        store.save("orders", &SourceOffset::default()).await.unwrap();
        assert_eq!(store.load("orders").await.unwrap(), Some(SourceOffset::default()));
    }
}

#[tokio::test]
async fn refused_credentials_and_certificates_are_told_at_once() {
    needs!(kafka);
    if !java_is_here() {
        return;
    }
    let guarded = Guarded::get().await;
    let wrong_password = guarded.config("PLAIN", "plain", "hunter2");
    let mut other_authority = guarded.plain();
    let other = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap().cert.pem();
    other_authority.properties.insert("ssl.ca.pem".into(), other);
    for config in [wrong_password, other_authority] {
        let began = tokio::time::Instant::now();
        let error = KafkaSink::open(config).await.err().unwrap();
        assert_eq!(error.class(), ErrorClass::Configuration, "{error}");
        assert!(error.fix().is_some() && !error.to_string().contains("hunter2"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn ops_04_a_certificate_that_nobody_vouches_for_is_refused_with_the_option_that_trusts_it() {
    needs!(kafka);
    if !java_is_here() {
        return;
    }
    let guarded = Guarded::get().await;
    let mut nothing_else = guarded.plain();
    nothing_else.properties.remove("ssl.ca.pem").unwrap();
    let error = KafkaSink::open(nothing_else).await.err().unwrap();
    assert_eq!(error.class(), ErrorClass::Configuration, "{error}");
    assert!(error.fix().is_some_and(|fix| fix.contains("ssl.ca.location")), "{error}");
    // The same for where the checkpoint is kept.
    let KafkaSinkConfig { mut properties, bootstrap_servers, .. } = guarded.plain();
    properties.remove("ssl.ca.pem").unwrap();
    let config = KafkaCheckpointConfig { properties, ..KafkaCheckpointConfig::new(bootstrap_servers) };
    let error = KafkaCheckpointStore::open(config).await.err().unwrap();
    assert_eq!(error.class(), ErrorClass::Configuration, "{error}");
    assert!(error.fix().is_some_and(|fix| fix.contains("ssl.ca.location")), "{error}");
}

#[tokio::test]
async fn kaf_05_no_right_to_create() {
    needs!(kafka);
    if !java_is_here() {
        return;
    }
    let guarded = Guarded::get().await;
    let topic = unique_name("foreign");
    let mut sink = KafkaSink::open(guarded.plain()).await.unwrap();
    let error = write(&mut sink, vec![keyed(&topic, "k", "v")]).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Configuration, "{error}");
    assert!(error.message().contains(&topic) && error.fix().unwrap().contains("kafka-"), "{error}");
    assert_eq!(partitions(&guarded.operator(), &topic).await, None);
}

/// A topic that may be looked at and not written.
async fn read_only_topic(guarded: &Guarded) -> String {
    let topic = unique_name("readable");
    create(&guarded.operator(), &topic, 1, &[]).await;
    java(
        &["allow", &guarded.operator(), "User:plain", "topic", &topic, "describe,describe_configs"],
        String::new(),
    )
    .await;
    topic
}

#[tokio::test]
async fn kaf_14_one_topic_refuses_and_stops() {
    needs!(kafka);
    if !java_is_here() {
        return;
    }
    let guarded = Guarded::get().await;
    let (own, refusing) = (unique_name("own"), read_only_topic(guarded).await);
    let mut sink = KafkaSink::open(guarded.plain()).await.unwrap();
    let error = write(&mut sink, vec![keyed(&own, "k", "1"), keyed(&refusing, "k", "2")]).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Configuration, "{error}");
    assert!(error.message().contains(&refusing), "{error}");
    assert!(error.fix().unwrap().contains("--operation Write"), "{error}");
    assert!(sink.begin().await.is_err());
}

#[tokio::test]
async fn kaf_14_one_topic_refuses_and_its_records_are_dead_letters() {
    needs!(kafka);
    if !java_is_here() {
        return;
    }
    let guarded = Guarded::get().await;
    let (own, letters) = (unique_name("own"), unique_name("own-dead"));
    let readable = read_only_topic(guarded).await;
    let unseen = unique_name("foreign");
    create(&guarded.operator(), &unseen, 1, &[]).await;
    let mut config = guarded.plain();
    config.on_unauthorized = Rejected::DeadLetter;
    config.dead_letter_topic = Some(letters.clone());
    let mut sink = KafkaSink::open(config).await.unwrap();
    for n in 0..3 {
        let records = [&own, &readable, &unseen].map(|topic| keyed(topic, "k", &format!("{topic} {n}")));
        write(&mut sink, records.to_vec()).await.unwrap();
    }
    assert_eq!((sink.counters().delivered(), sink.counters().dead_lettered()), (3, 6));
    assert_eq!(read(&guarded.operator(), &own).await.len(), 3);
    let letters = read(&guarded.operator(), &letters).await;
    for topic in [&readable, &unseen] {
        let of_topic: Vec<String> = letters
            .iter()
            .filter(|letter| letter.header(dead_letter_header::TOPIC) == Some(topic))
            .map(crate::support::Got::text)
            .collect();
        assert_eq!(of_topic, [0, 1, 2].map(|n| format!("{topic} {n}")));
        assert_eq!(read(&guarded.operator(), topic).await, []);
    }
    assert_eq!(letters[0].header(dead_letter_header::ERROR_CLASS), Some("configuration"));
}

#[tokio::test]
async fn a_check_names_what_it_finds() {
    needs!(kafka);
    if !java_is_here() {
        return;
    }
    let guarded = Guarded::get().await;
    let limit = Duration::from_secs(30);
    let existing = unique_name("own");
    create(&guarded.operator(), &existing, 1, &[("max.message.bytes", "77777")]).await;
    let (missing, foreign) = (unique_name("own"), unique_name("foreign"));
    let mut config = guarded.plain();
    config.topic.partitions = Some(3);
    config.on_too_large = Rejected::DeadLetter;
    let letters = unique_name("own-dead");
    create(&guarded.operator(), &letters, 1, &[("max.message.bytes", "5000")]).await;
    config.dead_letter_topic = Some(letters.clone());
    let findings = check(&config, &[&existing, &missing, &foreign], limit).await;
    let found = |name: &str, subject: &str| {
        findings
            .iter()
            .find(|finding| finding.name == name && finding.subject == subject)
            .unwrap_or_else(|| panic!("{name} of {subject} is missing: {findings:?}"))
    };
    assert_eq!(found("kafka_configuration", &config.bootstrap_servers).severity, Severity::Ok);
    assert_eq!(found("broker_reachable", &config.bootstrap_servers).severity, Severity::Ok);
    let exists = found("topic_exists", &existing);
    assert!(exists.severity == Severity::Ok && exists.message.contains("77777"), "{exists}");
    assert_eq!(found("topic_partitions", &existing).severity, Severity::Warning);
    assert_eq!(found("topic_exists", &missing).severity, Severity::Ok);
    let refused = found("topic_exists", &foreign);
    assert!(refused.severity == Severity::Error && refused.fix.is_some(), "{refused}");
    assert_eq!(found("dead_letter_limit", &letters).severity, Severity::Warning);
    assert_eq!(partitions(&guarded.operator(), &missing).await, None, "a check creates nothing");

    config.create_topics = false;
    let findings = check(&config, &[&missing], limit).await;
    assert!(findings.iter().any(|finding| finding.subject == missing && finding.severity == Severity::Error));
}

#[tokio::test]
async fn a_check_keeps_its_time_limit() {
    let nobody = FaultProxy::start("127.0.0.1:1").unwrap();
    let began = tokio::time::Instant::now();
    let findings = check(&config(nobody.address().to_string()), &["orders"], Duration::from_secs(2)).await;
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    let last = findings.last().unwrap();
    assert_eq!((last.name, last.severity), ("broker_reachable", Severity::Unknown), "{findings:?}");
}
