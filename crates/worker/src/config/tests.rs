use std::collections::BTreeMap;
use std::path::Path;

use super::*;

const CANARY: &str = "CANARY-pa55";

const SMALLEST: &str = r#"
name = "orders"
[source]
url = "postgres://app@localhost/shop"
tables = ["public.orders"]
[envelope]
type = "debezium"
[sink]
type = "kafka"
bootstrap_servers = "localhost:9092"
[checkpoint]
store = "kafka"
"#;

fn read(text: &str, environment: &[(&str, &str)], set: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let environment: BTreeMap<&str, &str> = environment.iter().copied().collect();
    let lookup = |name: &str| environment.get(name).map(|value| (*value).to_owned());
    let mut entries = Entries::from_toml(text, Path::new("crabka.toml"), &lookup)?;
    for (name, value) in set {
        entries.set(name, value, "--set");
    }
    Config::from_entries(entries)
}

fn error(text: &str) -> String {
    read(text, &[], &[]).unwrap_err().to_string()
}

/// The smallest configuration with one line put after `[section]`.
fn with(section: &str, line: &str) -> String {
    SMALLEST.replacen(&format!("[{section}]\n"), &format!("[{section}]\n{line}\n"), 1)
}

#[test]
fn docs_config_md_is_what_the_declarations_say() {
    let page = include_str!("../../../../docs/CONFIG.md");
    assert!(
        page == reference(),
        "docs/CONFIG.md is not up to date; to write it again: cargo run -p crabka -- config reference > docs/CONFIG.md"
    );
}

#[test]
fn every_integer_says_its_unit() {
    for group in GROUPS {
        for option in group.options.iter().filter(|option| option.type_name == "integer") {
            assert!(option.unit().is_some(), "no unit: {}", group.path(option.name));
        }
    }
}

/// The options in effect as `config show` prints them, without the comments.
fn shown(config: &Config) -> Vec<String> {
    config
        .show(&Follows::new())
        .lines()
        .map(|line| line.split("  # ").next().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn the_smallest_configuration_is_enough() {
    let config = read(SMALLEST, &[], &[]).unwrap();
    assert_eq!(config.name, "orders");
    assert_eq!(config.source.tables, ["public.orders"]);
    assert!(matches!(&config.sink, SinkConfig::Kafka(kafka) if kafka.bootstrap_servers == "localhost:9092"));
    assert!(matches!(config.checkpoint, CheckpointConfig::Kafka(_)));
    assert!(matches!(config.envelope, EnvelopeConfig::Debezium(_)));
}

#[test]
fn every_configuration_that_is_shown_is_taken() {
    let shown = [
        ("README.md", include_str!("../../../../README.md")),
        ("docs/CONFIG.md", include_str!("../../../../docs/CONFIG.md")),
        ("docker/crabka.toml", concat!("```toml\n", include_str!("../../../../docker/crabka.toml"), "```\n")),
    ];
    for (page, text) in shown {
        let blocks: Vec<&str> =
            text.split("```toml\n").skip(1).filter_map(|rest| Some(rest.split_once("```")?.0)).collect();
        assert!(!blocks.is_empty(), "{page}");
        for block in blocks {
            let entries = Entries::from_toml(block, Path::new(page), &|_| Some("secret".to_owned())).unwrap();
            let config = Config::from_entries(entries).unwrap_or_else(|error| panic!("{page}: {error}"));
            // Each part takes its share as well.
            crate::pipeline::pipeline(&config, None).unwrap_or_else(|error| panic!("{page}: {error}"));
        }
    }
}

#[test]
fn every_default_keeps_to_its_own_check() {
    // A default that is written down must be taken.
    let written = shown(&read(SMALLEST, &[], &[]).unwrap()).join("\n");
    let again = read(&written.replace(":***@", "@"), &[], &[]).unwrap();
    assert_eq!(shown(&again).join("\n"), written);
}

#[test]
fn ops_02_an_unknown_option_names_the_nearest_and_its_line() {
    assert_eq!(
        error(&with("source", "tabels = []")),
        "crabka.toml:4: source.tabels unknown option; did you mean source.tables?"
    );
    assert_eq!(
        error(&with("sink", "\n[sourc]\nx = 1")),
        "crabka.toml:11: [sourc] unknown section; did you mean [source]?; sink.type must be given"
    );
    assert_eq!(
        error(&format!("url = 1\n{SMALLEST}\n[htp]\n")),
        "crabka.toml:1: url unknown option here; did you mean source.url?; \
         crabka.toml:15: [htp] unknown section; did you mean [http]?"
    );
    assert!(
        error(&with("source", "qqqqqqqqq = 1")).ends_with("`crabka config reference` prints every option")
    );
}

#[test]
fn ops_02_an_option_of_another_section_is_found() {
    assert_eq!(
        error(&with("source", "listen = \"127.0.0.1:1\"")),
        "crabka.toml:4: source.listen unknown option here; did you mean http.listen?"
    );
}

#[test]
fn ops_02_an_option_without_effect_is_refused() {
    assert_eq!(
        error(&with("sink", "path = \"x\"")),
        "crabka.toml:9: sink.path has no effect here: it is an option of sink.type = \"file\""
    );
    assert_eq!(
        error(&SMALLEST.replace("store = \"kafka\"", "store = \"memory\"\npath = \"x\"")),
        "crabka.toml:13: checkpoint.path has no effect here: it is an option of checkpoint.store = \"file\""
    );
}

#[test]
fn ops_02_a_wrong_type_names_what_is_expected() {
    for (line, message) in [
        ("max_batch_age_ms = \"500ms\"", "expected integer, milliseconds, found a string"),
        ("max_batch_age_ms = 0.5", "expected integer, milliseconds, found a float"),
        ("max_batch_bytes = 0", "must be from 1 to 17179869184: 0"),
        ("max_batch_bytes = -1", "must be from 0 to 18446744073709551615"),
        ("max_batch_bytes = 99999999999999999999", "must be from 0 to 18446744073709551615"),
        ("retry_max_attempts = 0", "must be at least 1: 0"),
    ] {
        let name = line.split(' ').next().unwrap();
        let text = format!("{SMALLEST}[runtime]\n{line}\n");
        assert_eq!(error(&text), format!("crabka.toml:14: runtime.{name} {message}"));
    }
    assert_eq!(
        error(&with("source", "binary = \"fals\"")),
        "crabka.toml:4: source.binary must be one of auto, true, false; did you mean false?: fals"
    );
    assert_eq!(
        error(&SMALLEST.replace("[\"public.orders\"]", "\"public.orders\"")),
        "crabka.toml:5: source.tables expected array of strings, found a string"
    );
    assert_eq!(
        error(&SMALLEST.replace("type = \"kafka\"", "type = [1]")),
        "crabka.toml:9: sink.type expected one of kafka, file, stdout, null, found an array"
    );
}

#[test]
fn binary_is_a_word_or_a_boolean() {
    for (line, expected) in
        [("true", Binary::On), ("false", Binary::Off), ("\"auto\"", Binary::Auto), ("\"true\"", Binary::On)]
    {
        let config = read(&with("source", &format!("binary = {line}")), &[], &[]).unwrap();
        assert_eq!(config.source.binary, expected);
    }
    let config = read(SMALLEST, &[], &[("source.binary", "false")]).unwrap();
    assert_eq!(config.source.binary, Binary::Off);
}

#[test]
fn flags_set_over_the_file_and_are_typed_by_the_option() {
    let set = [
        ("name", "other"),
        ("source.tables", "public.a, public.b"),
        ("runtime.max_batch_records", "1_000"),
        ("source.create", "false"),
        ("sink.compression", "zstd"),
        ("sink.properties.security.protocol", "SASL_SSL"),
        ("http.listen", "127.0.0.1:0"),
    ];
    let config = read(SMALLEST, &[], &set).unwrap();
    assert_eq!(config.name, "other");
    assert_eq!(config.source.tables, ["public.a", "public.b"]);
    assert_eq!(config.runtime.max_batch_records, 1_000);
    assert!(!config.source.create);
    let SinkConfig::Kafka(kafka) = &config.sink else { panic!("not kafka") };
    assert_eq!(kafka.properties.iter().collect::<Vec<_>>(), [("security.protocol", "SASL_SSL")]);
    assert!(config.show(&Follows::new()).contains("name = \"other\"  # --set\n"));

    let quoted = read(SMALLEST, &[], &[("source.tables", "[\"a.\\\"b,c\\\"\"]")]).unwrap();
    assert_eq!(quoted.source.tables, ["a.\"b,c\""]);
    for (name, value, message) in [
        ("source.tabels", "x", "--set: source.tabels unknown option; did you mean source.tables?"),
        ("nam", "x", "--set: nam unknown option; did you mean name?"),
        ("source.create", "yes", "--set: source.create expected boolean, found text"),
        ("name.x", "y", "--set: [name] unknown section; there are [source]"),
    ] {
        let error = read(SMALLEST, &[], &[(name, value)]).unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
    }
    // A later one wins, and nothing is expanded in a flag.
    let config = read(SMALLEST, &[], &[("name", "a"), ("name", "${HOME}$$")]).unwrap();
    assert_eq!(config.name, "${HOME}$$");
}

#[test]
fn properties_are_written_with_dots_or_quotes() {
    let text =
        format!("{SMALLEST}[sink.properties]\nsasl.mechanism = \"PLAIN\"\n\"linger.ms\" = 5\nssl.x = true\n");
    let config = read(&text, &[], &[]).unwrap();
    let SinkConfig::Kafka(kafka) = &config.sink else { panic!("not kafka") };
    let mut properties: Vec<_> = kafka.properties.iter().collect();
    properties.sort_unstable();
    assert_eq!(properties, [("linger.ms", "5"), ("sasl.mechanism", "PLAIN"), ("ssl.x", "true")]);
}

#[test]
fn environment_variables_are_expanded_once_and_missing_ones_named() {
    let text =
        SMALLEST.replace("app@localhost", "app:${PGPASS}@localhost").replace("\"orders\"", "\"${NAME:-n}\"");
    let config = read(&text, &[("PGPASS", "p${NAME}$$")], &[]).unwrap();
    assert_eq!(config.source.url.expose(), "postgres://app:p${NAME}$$@localhost/shop");
    assert_eq!(config.name, "n");
    assert_eq!(
        read(&text, &[], &[]).unwrap_err().to_string(),
        "crabka.toml:4: source.url environment variable is not set: PGPASS"
    );
}

#[test]
fn broken_toml_is_told_by_line_and_without_quoting_it() {
    let error = error(&SMALLEST.replace("app@localhost/shop\"", &format!("app:{CANARY}@localhost/shop")));
    assert!(error.starts_with("crabka.toml:4: "), "{error}");
    assert!(!error.contains(CANARY), "{error}");
}

#[test]
fn ops_05_a_secret_appears_nowhere() {
    let secret = [
        ("url", format!("postgres://app:{CANARY}@localhost/shop?sslpassword={CANARY}")),
        ("sasl.password", CANARY.to_owned()),
        ("ssl.key.pem", CANARY.to_owned()),
        ("sasl.oauthbearer.client.secret", CANARY.to_owned()),
    ];
    let text = SMALLEST.replace("postgres://app@localhost/shop", &secret[0].1);
    let properties: Vec<String> =
        secret[1..].iter().map(|(name, value)| format!("\"{name}\" = \"{value}\"")).collect();
    let text = format!("{text}[sink.properties]\n{}\n", properties.join("\n"));
    let text = text
        .replace("store = \"kafka\"", &format!("store = \"postgres\"\nurl = \"postgres://a:{CANARY}@h/d\""));

    let config = read(&text, &[], &[]).unwrap();
    assert!(config.source.url.expose().contains(CANARY));
    for output in [format!("{config:?}"), format!("{config:#?}"), config.show(&Follows::new())] {
        assert!(!output.contains(CANARY), "{output}");
    }
    // Errors about a secret option do not repeat what it holds either.
    for broken in [
        text.replace("postgres://a:", "mysql://a:"),
        text.replace("postgres://app:", "host=x password="),
        text.replace(
            &format!("\"sasl.password\" = \"{CANARY}\""),
            &format!("\"sasl.password\" = [\"{CANARY}\"]"),
        ),
        text.replace("url = \"postgres://app", "urll = \"postgres://app"),
    ] {
        let error = read(&broken, &[], &[]).unwrap_err();
        assert!(!format!("{error} {error:?}").contains(CANARY), "{error}");
    }
}

#[path = "../../../../fuzz/replay.rs"]
mod replay;

#[test]
fn corpus_of_configurations() {
    // The others in the corpus are pages of their time: a page may change without them.
    let seeds = BTreeMap::from([
        ("secret".to_owned(), SMALLEST.replace("app@", "app:${SECRET}@").into_bytes()),
        ("nested".to_owned(), format!("a = {}1{}", "[".repeat(60), "]".repeat(60)).into_bytes()),
    ]);
    replay::corpus("configuration", &seeds, super::fuzz::configuration);
}
