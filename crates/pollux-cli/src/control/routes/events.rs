//! `GET /v1/events`: what happens, as server-sent events, for as long as the client listens.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Bytes, Frame};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::control::state::State;
use crate::disks::Served;
use crate::model::Event;
use crate::news::{self, Happening, News};

type Heard = (Result<News, RecvError>, Receiver<News>);

/// The events from now on: a body without an end. It goes with its connection, and takes nothing while nothing happens.
pub struct Events {
    state: Arc<State>,
    /// The next one. It is made anew after each.
    next: Pin<Box<dyn Future<Output = Heard> + Send>>,
    is_new: bool,
}

impl Events {
    pub fn new(state: Arc<State>) -> Self {
        Self {
            state,
            next: Box::pin(hear(news::listen())),
            is_new: true,
        }
    }
}

async fn hear(mut told: Receiver<News>) -> Heard {
    let heard = told.recv().await;
    (heard, told)
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.is_new {
            self.is_new = false;
            // The client knows by it that nothing is missed from here on.
            return frame(": events\n\n".into());
        }
        let (heard, told) = ready!(self.next.as_mut().poll(context));
        self.next = Box::pin(hear(told));
        match heard {
            Ok(news) => frame(written(&event(&self.state, news))),
            Err(RecvError::Lagged(missed)) => frame(written(&Event {
                event: Happening::Missed,
                name: None,
                disk: None,
                message: None,
                missed: Some(missed),
            })),
            Err(RecvError::Closed) => Poll::Ready(None),
        }
    }
}

fn frame(text: Bytes) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
    Poll::Ready(Some(Ok(Frame::data(text))))
}

/// What the client is told of these news.
fn event(state: &State, news: News) -> Event {
    let disks = state.disks();
    let of = news.disk.as_deref();
    // The log calls a disk by its socket.
    let known = disks
        .iter()
        .find(|disk| Some(&*disk.name) == of || Some(&*disk.socket) == of);
    Event {
        event: news.happening,
        name: known.map(|disk| disk.name.clone()).or(news.disk),
        disk: known
            .filter(|_| news.happening != Happening::Error)
            .map(Served::disk),
        message: news.message,
        missed: None,
    }
}

fn written(event: &Event) -> Bytes {
    let kind = serde_json::to_value(event.event).expect("plain structures can be written");
    let data = serde_json::to_string(event).expect("plain structures can be written");
    format!(
        "event: {}\ndata: {data}\n\n",
        kind.as_str().unwrap_or_default()
    )
    .into()
}
