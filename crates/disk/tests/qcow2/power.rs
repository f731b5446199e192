//! The power fails at any moment, and of what was not synced any part survives: what is left is an image without an
//! error, which holds all that was flushed or stable.

use std::fs;
use std::path::PathBuf;

use fastrand::Rng;
use pollux_disk::{Durability, Image, Op, Unmap};
use pollux_disk_conformance::{Buffer, Client};

use super::images::{Lab, open};
use super::recorder::Recorder;

const SIZE: usize = 2 << 20;
const BLOCK: usize = 4096;
const SECTOR: usize = 512;
/// How often the power fails in each story,
const CUTS: usize = 12;
/// and how often after these while the image is closed.
const CLOSING: usize = 4;

/// So many stories, from `seed` on.
pub fn stories(count: u64, seed: u64) {
    let Some(lab) = Lab::new() else { return };
    let mut leaks = 0;
    for seed in seed..seed + count {
        println!("story {seed}");
        let Some(more) = Story::tell(&lab, seed) else {
            return;
        };
        leaks += more;
    }
    let images = count * (CUTS + CLOSING) as u64;
    println!("{leaks} of {images} images leak clusters");
}

/// What a block was made at some time: all of it this byte.
#[derive(Clone, Copy, Debug)]
struct Change {
    byte: u8,
    /// It may as well be what it was before, as a discard leaves it.
    perhaps: bool,
    /// How many writes there were before it was asked for.
    asked: usize,
    /// Which of all steps it was.
    step: usize,
    /// How many writes there were when it was stable, if it was to be.
    stable: Option<usize>,
}

/// A flush that has completed.
struct Flushed {
    /// The first step that it need not cover.
    before: usize,
    /// How many writes there were once it was known.
    known: usize,
}

struct Story {
    random: Rng,
    image: PathBuf,
    recorder: Recorder,
    history: Vec<Vec<Change>>,
    flushes: Vec<Flushed>,
    step: usize,
    /// Some of its requests are stable.
    has_stable: bool,
}

impl Story {
    /// How many images leak; `None` where the record cannot be.
    fn tell(lab: &Lab, seed: u64) -> Option<u64> {
        let mut random = Rng::with_seed(seed);
        for entry in fs::read_dir(lab.path("")).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        let image = made(lab, &mut random);
        let before = lab.raw(&image);
        let recorder = Recorder::over(&image)?;
        let first = |block: &[u8]| {
            assert!(block.iter().all(|byte| *byte == block[0]));
            vec![Change {
                byte: block[0],
                perhaps: false,
                asked: 0,
                step: 0,
                stable: Some(0),
            }]
        };
        let mut story = Self {
            random,
            image,
            recorder,
            history: before.chunks(BLOCK).map(first).collect(),
            flushes: Vec::new(),
            step: 1,
            // Each syncs a lot, so that less is lost in such a story.
            has_stable: seed % 3 == 2,
        };
        let closing = story.happens();
        Some(story.ends(lab, closing))
    }

    /// How many writes were there before the image was closed?
    fn happens(&mut self) -> usize {
        let image = open(&self.image);
        let mut client = Client::new(&image);
        for _ in 0..self.random.usize(10..60) {
            self.some(&image, &mut client);
            self.step += 1;
            if self.random.u8(..4) == 0 {
                client.run(Op::Flush).unwrap();
                let (before, known) = (self.step, self.recorder.count());
                self.flushes.push(Flushed { before, known });
            }
        }
        // Until it is closed.
        drop(client);
        let closing = self.recorder.count();
        drop(image);
        closing
    }

    /// Some requests at once, which do not touch each other.
    fn some(&mut self, image: &Image, client: &mut Client) {
        let asked = self.recorder.count();
        let is_stable = self.has_stable && self.step.is_multiple_of(3);
        let durability = [Durability::Volatile, Durability::Stable][usize::from(is_stable)];
        let parts = self.random.usize(1..4);
        let slice = SIZE / BLOCK / parts;
        let (mut ops, mut buffers) = (Vec::new(), Vec::new());
        for part in 0..parts {
            let most = [1, 4, 40, 200][self.random.usize(..4)].min(slice);
            let len = self.random.usize(1..=most);
            let from = part * slice + self.random.usize(..=slice - len);
            let (at, bytes) = ((from * BLOCK) as u64, len * BLOCK);
            let (byte, perhaps) = match self.random.u8(..10) {
                0..2 => {
                    let len = bytes as u64;
                    ops.push(Op::Discard { at, len });
                    (0, true)
                }
                2..4 => {
                    let unmap = [Unmap::Allowed, Unmap::Forbidden][self.random.usize(..2)];
                    let len = bytes as u64;
                    ops.push(Op::WriteZeroes {
                        at,
                        len,
                        unmap,
                        durability,
                    });
                    (0, false)
                }
                _ => {
                    let byte = self.random.u8(1..);
                    let buffer = Buffer::holding(&vec![byte; bytes]);
                    let from = buffer.spans();
                    ops.push(Op::Write {
                        at,
                        from,
                        durability,
                    });
                    buffers.push(buffer);
                    (byte, false)
                }
            };
            for block in &mut self.history[from..from + len] {
                block.push(Change {
                    byte,
                    perhaps,
                    asked,
                    step: self.step,
                    stable: None,
                });
            }
        }
        for (op, result) in ops.iter().zip(client.run_all(&ops)) {
            assert_eq!(result, Ok(()), "{op:?} of {image:?}");
        }
        if is_stable {
            let known = self.recorder.count();
            let changes = self.history.iter_mut().flatten();
            changes
                .filter(|change| change.step == self.step && !change.perhaps)
                .for_each(|change| change.stable = Some(known));
        }
    }

    /// The power fails at some moments, and this is what is left.
    fn ends(mut self, lab: &Lab, closing: usize) -> u64 {
        let count = self.recorder.count();
        let mut leaks = 0;
        for first in [[0; CUTS].as_slice(), &[closing; CLOSING]].concat() {
            let cut = self.random.usize(first..=count);
            let left = lab.path("left.qcow2");
            let bytes = self.recorder.after_power_cut(cut, &mut self.random);
            fs::write(&left, bytes).unwrap();
            leaks += u64::from(lab.check(&left) > 0);
            let raw = lab.raw(&left);
            self.holds_what_was_promised(cut, &raw);
            // Nothing is so damaged that it is not opened again.
            drop(open(&left));
            assert_eq!(lab.raw(&left), raw);
        }
        leaks
    }

    fn holds_what_was_promised(&self, cut: usize, raw: &[u8]) {
        let flushed = self.flushes.iter().rev().find(|flush| flush.known <= cut);
        let covered = flushed.map_or(0, |flush| flush.before);
        let is_durable = |change: &Change| {
            change.step < covered || change.stable.is_some_and(|known| known <= cut)
        };
        for (number, (history, block)) in self.history.iter().zip(raw.chunks(BLOCK)).enumerate() {
            let last = history.iter().rposition(is_durable).unwrap();
            let mut first = last;
            while history[first].perhaps && first > 0 {
                first -= 1;
            }
            let later = history[last + 1..]
                .iter()
                .take_while(|change| change.asked <= cut);
            let may: Vec<u8> = history[first..=last]
                .iter()
                .chain(later)
                .map(|change| change.byte)
                .collect();
            for sector in block.chunks(SECTOR) {
                let byte = sector[0];
                let whole = sector.iter().all(|other| *other == byte);
                assert!(
                    whole && may.contains(&byte),
                    "at {:#x}, cut after {cut}: {byte}, not of {may:?}, of {history:?}",
                    number * BLOCK
                );
            }
        }
    }
}

/// An image with a past: other files below, compressed clusters, a snapshot, what was discarded.
fn made(lab: &Lab, random: &mut Rng) -> PathBuf {
    let clusters = ["512", "4k", "4k", "64k"];
    let mut options = format!("cluster_size={}", clusters[random.usize(..clusters.len())]);
    let below = random.u8(..3);
    if below > 0 {
        let blocks = (0..SIZE / BLOCK).flat_map(|_| [random.u8(..); BLOCK]);
        fs::write(lab.path("base.raw"), blocks.collect::<Vec<u8>>()).unwrap();
    }
    match below {
        1 => options += ",backing_file=base.raw,backing_fmt=raw",
        2 => lab.img(&format!(
            "convert -c -O qcow2 -o {options} base.raw image.qcow2"
        )),
        _ => {}
    }
    let path = lab.path("image.qcow2");
    if below != 2 {
        lab.create("image.qcow2", &options, SIZE as u64);
    }
    let commands = |random: &mut Rng| -> Vec<String> {
        let some = |_| {
            let at = random.usize(..SIZE / BLOCK);
            let len = random.usize(1..=(SIZE / BLOCK - at).min(40)) * BLOCK;
            let (at, byte) = (at * BLOCK, random.u8(1..));
            match random.u8(..6) {
                0 => format!("discard {at} {len}"),
                1 => format!("write -z {at} {len}"),
                _ => format!("write -P {byte} {at} {len}"),
            }
        };
        (0..8).map(some).collect()
    };
    lab.io(&path, &commands(random));
    if random.u8(..3) == 0 {
        lab.img("snapshot -c one image.qcow2");
        lab.io(&path, &commands(random));
    }
    path
}
