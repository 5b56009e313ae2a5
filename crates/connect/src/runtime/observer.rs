//! Named points on the way of a batch, for crash tests and simulations.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

/// A point on the way of a batch at which a crash has its own consequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Point {
    /// Source and sink are open and the source was sought to the stored offset, if there was one.
    Opened,
    /// A poll returned records; nothing was done with them.
    Read,
    /// A batch is cut and its offset taken; the sink has not seen it.
    Cut,
    /// The sink began the batch.
    Begun,
    /// The sink took the records; they are not known to be durable.
    Put,
    /// The sink's commit returned; the offset is not saved.
    Durable,
    /// The offset is saved; the source does not know.
    Checkpointed,
    /// The source is about to be told.
    BeforeAcknowledge,
    /// The source was told.
    Acknowledged,
}

impl Point {
    /// All points, in the order in which a batch passes them.
    pub const ALL: [Self; 9] = [
        Self::Opened,
        Self::Read,
        Self::Cut,
        Self::Begun,
        Self::Put,
        Self::Durable,
        Self::Checkpointed,
        Self::BeforeAcknowledge,
        Self::Acknowledged,
    ];

    /// The name by which a test harness selects the point.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Read => "read",
            Self::Cut => "cut",
            Self::Begun => "begun",
            Self::Put => "put",
            Self::Durable => "durable",
            Self::Checkpointed => "checkpointed",
            Self::BeforeAcknowledge => "before_acknowledge",
            Self::Acknowledged => "acknowledged",
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Is called at every [`Point`], once per batch or poll and never per record. A test kills the process here,
/// or parks it by never returning. Without an observer nothing is called.
#[async_trait]
pub trait Observer: Send + Sync + 'static {
    /// The run has reached `point` and goes on when this returns.
    async fn reached(&self, point: Point);
}

/// Tells the observer, if there is one.
pub(super) async fn reached(observer: Option<&Arc<dyn Observer>>, point: Point) {
    if let Some(observer) = observer {
        observer.reached(point).await;
    }
}
