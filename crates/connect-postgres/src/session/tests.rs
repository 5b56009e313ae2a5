use super::*;
use crate::position::Position;

#[tokio::test]
async fn del_39_a_session_that_panics_is_an_error_and_no_open_stream() {
    let figures = Arc::<SourceFigures>::default();
    figures.session_begins(Position::at(Lsn::new(1)), Lsn::new(1), 1);
    assert_eq!(figures.snapshot().state, StreamState::Streaming);
    let meter = Meter::new(Arc::clone(&figures));
    let (queue, batches) = mpsc::channel(1);
    let task = tokio::spawn(async move {
        let _owned = (meter, queue);
        panic!("on purpose");
    });
    let mut handle = SessionHandle {
        batches,
        acknowledged: watch::channel(Lsn::ZERO).0,
        received: Arc::default(),
        stop: oneshot::channel().0,
        task,
    };
    // The queue closes, and that is what the source waits for.
    assert!(handle.batches.recv().await.is_none());
    let error = handle.end().await.unwrap_err();
    assert!(matches!(error, ConnectError::Bug(_)), "{error}");
    assert_eq!(figures.snapshot().state, StreamState::Closed);
}
