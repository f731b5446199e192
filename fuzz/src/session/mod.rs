//! A frontend that says anything, in any order, with any descriptors, and a guest that writes anything
//! into its rings meanwhile.
//!
//! The session answers or ends; when it has ended, no descriptor and no thread is left of it. A
//! neighbour, another disk on the same workers, has requests in flight all the time: they end well, and all of its disk
//! stays as it wrote it.

mod guest;
mod message;
mod neighbour;
mod stage;

use std::io::Read;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use arbitrary::{Arbitrary, Unstructured};

use self::guest::Write;
use self::message::{Fd, Fds, Message};
use self::stage::Stage;

/// One step of the frontend or its guest.
#[derive(Arbitrary, Debug)]
enum Step {
    Say {
        message: Message,
        need_reply: bool,
    },
    /// Bytes that are no message, or half of one.
    Bytes(Vec<u8>),
    Guest(Write),
    Kick {
        queue: bool,
    },
    /// Cuts memory that is shared to so many pages.
    Cut {
        pages: u8,
    },
    /// Waits for an answer to all that was said, and for the neighbour's requests.
    Settle,
}

#[derive(Arbitrary, Debug)]
struct Input {
    /// Does it begin as QEMU would, with two queues that run?
    up: bool,
    features: u64,
    record: Option<Fd>,
    log: Option<Fd>,
    steps: Vec<Step>,
}

/// One session.
pub fn run(data: &[u8]) {
    let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(data)) else {
        return;
    };
    stage::with(|stage| {
        let before = stage::footprint();
        hold(stage, &input);
        assert_eq!(stage::footprint(), before, "descriptors and threads");
        stage.neighbour.check();
    });
}

/// Runs the session to its end. The neighbour looks at its disk now and then.
fn hold(stage: &Stage, input: &Input) {
    stage.memory.clear();
    let mut talk = Talk::new(stage);
    if input.up {
        for message in Message::bring_up(input.features, input.record, input.log) {
            talk.say(&message, false);
        }
    }
    for step in &input.steps {
        if talk.ended {
            break;
        }
        match step {
            Step::Say {
                message,
                need_reply,
            } => talk.say(message, *need_reply),
            Step::Bytes(bytes) => {
                talk.whole &= bytes.is_empty();
                talk.send(bytes, &Fds::default());
            }
            Step::Guest(write) => write.apply(&stage.memory),
            Step::Kick { queue } => talk.fds.kick(*queue),
            Step::Cut { pages } => talk.fds.cut(*pages),
            Step::Settle => {
                talk.settle();
                stage.neighbour.check();
            }
        }
    }
    talk.end();
}

/// One end of a session.
struct Talk<'a> {
    stage: &'a Stage,
    socket: UnixStream,
    fds: message::Descriptors,
    answers: Answers,
    /// Have only whole messages been sent?
    whole: bool,
    /// Has the other end closed it?
    ended: bool,
}

impl<'a> Talk<'a> {
    fn new(stage: &'a Stage) -> Self {
        let (socket, theirs) = UnixStream::pair().expect("a socket pair can be made");
        socket.set_nonblocking(true).expect("it is a socket");
        stage.serve(theirs);
        Self {
            stage,
            socket,
            fds: message::Descriptors::new(stage.memory.file()),
            answers: Answers::default(),
            whole: true,
            ended: false,
        }
    }

    fn say(&mut self, message: &Message, need_reply: bool) {
        let said = message.said(need_reply);
        self.whole &= said.whole;
        self.send(&said.bytes, &said.fds);
    }

    /// Sends all of it, unless the other end is gone.
    fn send(&mut self, bytes: &[u8], fds: &Fds) {
        let mut rest = bytes;
        let mut fds = Some(fds);
        while !rest.is_empty() && !self.ended {
            match self.fds.send(&self.socket, rest, fds) {
                Ok(sent) => {
                    rest = &rest[sent..];
                    fds = None;
                }
                Err(message::Unsent::Full) => stage::wait_for(&self.socket),
                Err(message::Unsent::Gone) => self.ended = true,
            }
            self.listen();
        }
    }

    /// Reads what has been answered so far.
    fn listen(&mut self) {
        let mut bytes = [0; 4096];
        loop {
            match (&self.socket).read(&mut bytes) {
                Ok(0) => self.ended = true,
                Ok(count) => {
                    self.answers.add(&bytes[..count]);
                    continue;
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => self.ended = true,
            }
            return;
        }
    }

    /// Whoever has sent whole messages only is answered, or has its session ended.
    fn settle(&mut self) {
        if !self.whole || self.ended {
            return;
        }
        self.listen();
        self.answers.last = None;
        self.say(&Message::question(), false);
        while !self.ended && !self.answers.last_is(1) {
            stage::wait_for(&self.socket);
            self.listen();
        }
    }

    fn end(mut self) {
        // Fails where the other end is gone already.
        let _ = self.socket.shutdown(Shutdown::Write);
        while !self.ended {
            stage::wait_for(&self.socket);
            self.listen();
        }
        self.stage.served();
    }
}

/// What the back end has said.
#[derive(Default)]
struct Answers {
    bytes: Vec<u8>,
    last: Option<u32>,
}

impl Answers {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        while let Some(header) = self.bytes.first_chunk::<12>() {
            let [code, flags, len] = words(*header);
            // Version 1, and an answer.
            assert_eq!(flags & 7, 5, "flags of an answer");
            assert!(len <= 4096, "an answer of {len} bytes");
            let all = 12 + len as usize;
            if self.bytes.len() < all {
                return;
            }
            self.bytes.drain(..all);
            self.last = Some(code);
        }
    }

    /// Is `code` what the last answer answers?
    fn last_is(&self, code: u32) -> bool {
        self.last == Some(code)
    }
}

fn words(header: [u8; 12]) -> [u32; 3] {
    let (words, _) = header.as_chunks();
    let word = |at: usize| u32::from_le_bytes(words[at]);
    [word(0), word(1), word(2)]
}
