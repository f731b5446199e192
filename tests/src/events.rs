//! A client of a daemon's control socket that listens to events.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use serde_json::Value;

/// A client that is told of all that happens from now on.
pub struct Events(BufReader<UnixStream>);

impl Events {
    /// Asks for them on a connection that is there.
    ///
    /// # Panics
    /// When it is answered with something else.
    pub fn on(mut stream: UnixStream) -> io::Result<Self> {
        stream.write_all(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")?;
        let mut events = BufReader::new(stream);
        let mut head = String::new();
        while !head.contains(": events") {
            assert_ne!(events.read_line(&mut head)?, 0, "it ended: {head}");
        }
        assert!(head.contains("text/event-stream"), "{head}");
        Ok(Self(events))
    }

    /// The events that are told until one of the kind `last`.
    ///
    /// # Panics
    /// When none comes.
    pub fn until(&mut self, last: &str) -> Vec<Value> {
        let mut all = Vec::new();
        loop {
            let mut line = String::new();
            let read = self.0.read_line(&mut line).expect("it can be read");
            assert_ne!(read, 0, "the stream ended: {all:?}");
            if let Some(at) = line.find("data: ") {
                let event: Value = serde_json::from_str(&line[at + 6..]).expect("it is JSON");
                let is_last = event["event"] == last;
                all.push(event);
                if is_last {
                    return all;
                }
            }
        }
    }

    /// Waits until the daemon ends the connection.
    pub fn ended(mut self) -> io::Result<()> {
        self.0.read_to_end(&mut Vec::new()).map(drop)
    }
}
