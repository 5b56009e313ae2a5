use super::*;

const PAGE: &str = include_str!("../../../../../docs/METRICS.md");

#[test]
fn the_page_is_the_reference() {
    assert!(PAGE == reference(), "docs/METRICS.md is not what `crabka metrics reference` prints");
}

#[test]
fn names_follow_the_conventions() {
    let letters = |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    for metric in METRICS {
        let name = metric.full_name();
        assert!(letters(&name) && metric.labels.iter().all(|label| letters(label)), "{name}");
        // Base units only, and a unit never twice.
        assert!(matches!(metric.unit, None | Some("bytes" | "seconds")), "{name}");
        assert!(!metric.name.ends_with("bytes") && !metric.name.ends_with("seconds"), "{name}");
        assert!(metric.help.ends_with('.'), "{name}");
        let same = METRICS.iter().filter(|other| other.full_name() == name).count();
        assert_eq!(same, 1, "{name}");
    }
}
