//! Timelines: where a server left the history that another one, or it itself before, was on.
//!
//! <https://www.postgresql.org/docs/18/protocol-replication.html#PROTOCOL-REPLICATION-TIMELINE-HISTORY>

use crate::{Error, Lsn};

/// Where the history of a server left `timeline`, from the content of its history file; `None` when its history never
/// was on that timeline.
///
/// Each line of the file is a timeline, where it was left, and why; blank lines and comments may occur.
pub(crate) fn switch_point(history: &str, timeline: u32) -> Result<Option<Lsn>, Error> {
    for line in history.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut fields = line.split_ascii_whitespace();
        let (Some(parent), Some(left_at)) = (fields.next(), fields.next()) else {
            return Err(Error::protocol("a line of the timeline history has no position"));
        };
        if parent.parse() == Ok(timeline) {
            let position = left_at.parse();
            return position
                .map(Some)
                .map_err(|_| Error::protocol("a position in the timeline history is not one"));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HISTORY: &str =
        "1\t0/3000148\tno recovery target specified\n\n# a comment\n2\t16/B374D848\treached\n";

    #[test]
    fn a_history_tells_where_each_timeline_was_left() {
        assert_eq!(switch_point(HISTORY, 1).unwrap(), Some(Lsn::new(0x0300_0148)));
        assert_eq!(switch_point(HISTORY, 2).unwrap(), Some(Lsn::new(0x16_B374_D848)));
        assert_eq!(switch_point(HISTORY, 3).unwrap(), None);
        assert_eq!(switch_point("", 1).unwrap(), None);
        assert!(switch_point("1", 1).is_err());
        assert!(switch_point("1\tnowhere\tx", 1).is_err());
    }
}
