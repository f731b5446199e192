//! What happens to a disk as a whole, told to its users.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, Weak};

use pollux_threads::lock;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Its geometry has changed: ask for it again.
    Changed,
    /// It is gone: requests fail from now on.
    Lost,
}

type Listener = dyn Fn(Event) + Send + Sync;

/// The listeners of one disk. A stacked disk listens to its legs and tells its own listeners.
#[derive(Default)]
pub struct Events {
    listeners: Mutex<Vec<Weak<Listener>>>,
}

/// Keeps a listener subscribed until it is dropped.
#[must_use = "a dropped subscription hears nothing"]
pub struct Subscription(#[expect(dead_code, reason = "held for its drop")] Arc<Listener>);

impl Events {
    /// Calls `listener` on every event, on the thread that tells it, until the subscription is dropped.
    pub fn subscribe(&self, listener: impl Fn(Event) + Send + Sync + 'static) -> Subscription {
        let listener: Arc<Listener> = Arc::new(listener);
        let mut listeners = lock(&self.listeners);
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(Arc::downgrade(&listener));
        Subscription(listener)
    }

    /// Tells every listener. One that panics ends neither this thread nor what the others hear: a disk whose thread
    /// is gone would not be noticed to go.
    pub fn tell(&self, event: Event) {
        let listeners = lock(&self.listeners).clone();
        for listener in listeners.iter().filter_map(Weak::upgrade) {
            if catch_unwind(AssertUnwindSafe(|| listener(event))).is_err() {
                tracing::error!(?event, "a listener of a disk has panicked");
            }
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn listeners_hear_until_they_unsubscribe() {
        let events = Events::default();
        let heard = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&heard);
        let subscription = events.subscribe(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        events.tell(Event::Changed);
        drop(subscription);
        events.tell(Event::Lost);
        assert_eq!(heard.load(Ordering::Relaxed), 1);
    }
}
