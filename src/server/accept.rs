//! Goes on where a connection could not be accepted. With no file descriptor left every attempt fails at once, and each is
//! made again at once: without a pause that keeps a processor busy, beside the checks of those who are connected.

use std::io;
use std::time::Duration;

use futures_util::stream::{Stream, StreamExt};

use crate::store::clock;
use crate::telemetry::once::OncePerMinute;

/// Short beside the patience of whoever connects.
const PAUSE: Duration = Duration::from_millis(100);

/// The same connections, with a pause behind each failure that the next attempt would meet too.
pub fn paced<C: Send>(incoming: impl Stream<Item = io::Result<C>> + Send) -> impl Stream<Item = io::Result<C>> + Send {
    let lines = OncePerMinute::new(1);
    incoming.then(move |accepted| {
        let failed = accepted.as_ref().err().filter(|error| !is_of_one_connection(error));
        if let Some(error) = failed
            && lines.is_due((), clock::now())
        {
            tracing::warn!(%error, "connections cannot be accepted: if too many files are open, raise that limit (ulimit -n)");
        }
        let pause = failed.map(|_| tokio::time::sleep(PAUSE));
        async move {
            if let Some(pause) = pause {
                pause.await;
            }
            accepted
        }
    })
}

/// Whether only this connection came to nothing, as when its client has gone already.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | Interrupted)
}
