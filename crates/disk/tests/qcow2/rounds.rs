//! Random operations, by Pollux and QEMU in turns, beside a copy in memory.

use std::fs;
use std::path::PathBuf;

use fastrand::Rng;
use pollux_disk::file::{Cache, Settings as FileSettings};
use pollux_disk::qcow2::Settings;
use pollux_disk::{Disk, Image, Op, Options, Unmap};
use pollux_disk_conformance::{Buffer, Client, pattern, read, write, zeroes};

use super::images::Lab;

const SIZE: usize = 4 << 20;
const BLOCK: usize = 512;

/// So many sequences, from `seed` on.
pub fn sequences(count: u64, seed: u64) {
    let Some(lab) = Lab::new() else { return };
    for seed in seed..seed + count {
        println!("sequence {seed}");
        Sequence::new(&lab, seed).run();
    }
}

struct Sequence<'lab> {
    lab: &'lab Lab,
    random: Rng,
    image: PathBuf,
    /// What the disk holds.
    model: Vec<u8>,
    settings: Settings,
}

impl<'lab> Sequence<'lab> {
    fn new(lab: &'lab Lab, seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        for entry in fs::read_dir(lab.path("")).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        let settings = settings(&mut random);
        let mut clusters = ["512", "4k", "64k", "64k", "1M"].as_slice();
        if settings.file.cache == Cache::None {
            // It does not serve clusters of less than a page.
            clusters = &clusters[1..];
        }
        let mut options = format!("cluster_size={}", clusters[random.usize(..clusters.len())]);
        let version_3 = random.u8(..4) > 0;
        let mut data_file = false;
        if version_3 {
            options += [
                "",
                ",lazy_refcounts=on",
                ",refcount_bits=1",
                ",refcount_bits=64",
            ][random.usize(..4)];
            data_file = random.u8(..6) == 0;
        } else {
            options += ",compat=0.10";
        }
        let backing = if data_file { 0 } else { random.u8(..4) };
        if data_file {
            options += ",data_file=data.raw";
        }
        let mut sequence = Self {
            lab,
            image: lab.path("image.qcow2"),
            model: vec![0; SIZE],
            settings,
            random,
        };
        match backing {
            1 => sequence.on_raw(&mut options),
            2 => sequence.on_qcow2(&mut options),
            _ if sequence.random.bool() => options += ",preallocation=metadata",
            _ => {}
        }
        lab.create("image.qcow2", &options, SIZE as u64);
        println!("  {options}, {:?}", sequence.settings);
        sequence
    }

    /// A raw backing file, which may be shorter.
    fn on_raw(&mut self, options: &mut String) {
        let len = self.random.usize(1..=SIZE / BLOCK) * BLOCK;
        self.model[..len].copy_from_slice(&pattern(self.random.u64(..), len));
        fs::write(self.lab.path("base.raw"), &self.model[..len]).unwrap();
        *options += ",backing_file=base.raw,backing_fmt=raw";
    }

    /// A compressed backing file.
    fn on_qcow2(&mut self, options: &mut String) {
        for _ in 0..self.random.usize(1..20) {
            let (at, len) = self.range();
            let byte = self.random.u8(1..);
            self.model[at..at + len].fill(byte);
        }
        fs::write(self.lab.path("base.raw"), &self.model).unwrap();
        self.lab
            .img("convert -c -f raw -O qcow2 base.raw base.qcow2");
        *options += ",backing_file=base.qcow2,backing_fmt=qcow2";
    }

    fn run(mut self) {
        for _ in 0..self.random.usize(2..5) {
            match self.random.u8(..8) {
                0..2 => self.by_qemu(),
                2 => self.compressed(),
                3 if self.can_snapshot() => self.lab.img("snapshot -c one image.qcow2"),
                _ => self.by_pollux(),
            }
        }
        self.by_pollux();
    }

    /// One bit counts no two references, and data in another file is not counted.
    fn can_snapshot(&self) -> bool {
        let info = self.lab.tool("qemu-img", &["info", "image.qcow2"]);
        let info = String::from_utf8(info.stdout).unwrap();
        !info.contains("refcount bits: 1\n") && !info.contains("data file:")
    }

    /// Any of the disk, in blocks.
    fn range(&mut self) -> (usize, usize) {
        let most = [1, 8, 64, 512, 2048][self.random.usize(..5)];
        let at = self.random.usize(..SIZE / BLOCK);
        let len = self.random.usize(1..=most.min(SIZE / BLOCK - at));
        (at * BLOCK, len * BLOCK)
    }

    fn by_qemu(&mut self) {
        let mut commands = Vec::new();
        let mut unknown = Vec::new();
        for _ in 0..self.random.usize(1..12) {
            let (at, len) = self.range();
            match self.random.u8(..4) {
                0 => {
                    commands.push(format!("discard {at} {len}"));
                    unknown.push(at..at + len);
                }
                1 => {
                    commands.push(format!("write -z {at} {len}"));
                    self.model[at..at + len].fill(0);
                }
                _ => {
                    let byte = self.random.u8(1..);
                    commands.push(format!("write -P {byte} {at} {len}"));
                    self.model[at..at + len].fill(byte);
                }
            }
        }
        self.lab.io(&self.image, &commands);
        let now = self.lab.raw(&self.image);
        for range in unknown {
            self.model[range.clone()].copy_from_slice(&now[range]);
        }
        assert!(now == self.model, "QEMU reads what it wrote");
    }

    /// Compressed clusters, as a backup has them: those that nothing was written to are.
    fn compressed(&mut self) {
        if self.settings.file.cache == Cache::None {
            return;
        }
        let info = self.lab.tool("qemu-img", &["info", "image.qcow2"]);
        let info = String::from_utf8(info.stdout).unwrap();
        if info.contains("data file:") {
            return;
        }
        let cluster = info.split("cluster_size: ").nth(1).unwrap();
        let cluster: usize = cluster.split('\n').next().unwrap().parse().unwrap();
        let at = self.random.usize(..SIZE / cluster) * cluster;
        let byte = self.random.u8(1..);
        let write = format!("write -c -P {byte} {at} {cluster}");
        let arguments = ["-f", "qcow2", "-c", &write, "image.qcow2"];
        // QEMU compresses what has no cluster yet, and refuses the rest.
        if self.lab.tool("qemu-io", &arguments).status.success() {
            self.model[at..at + cluster].fill(byte);
        }
    }

    fn by_pollux(&mut self) {
        let image = Image::open(&self.image, self.settings.clone(), &Options::default()).unwrap();
        assert_eq!(image.geometry().bytes, SIZE as u64);
        let mut clients = [Client::new(&image), Client::new(&image)];
        for _ in 0..self.random.usize(1..30) {
            let client = &mut clients[self.random.usize(..2)];
            Self::step(&mut self.random, &mut self.model, client);
            if self.random.u8(..12) == 0 {
                self.killed_now();
            }
        }
        let whole = clients[0].read_bytes(0, SIZE);
        assert!(whole == self.model, "what was written is read");
        drop((clients, image));
        assert_eq!(
            self.lab.check(&self.image),
            0,
            "a closed image leaks nothing"
        );
        assert!(self.lab.raw(&self.image) == self.model, "QEMU reads it");
    }

    /// Some requests at once, which do not touch each other.
    fn step(random: &mut Rng, model: &mut [u8], client: &mut Client) {
        let parts = random.usize(1..6);
        let slice = SIZE / parts / BLOCK;
        let (mut ops, mut buffers, mut reads, mut unknown) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for part in 0..parts {
            let from = random.usize(..slice);
            let most = [1, 16, 300, 4000][random.usize(..4)];
            let len = random.usize(1..=most.min(slice - from)) * BLOCK;
            let at = (part * slice + from) * BLOCK;
            let here = at as u64;
            match random.u8(..8) {
                0 => {
                    let len = len as u64;
                    ops.push(Op::Discard { at: here, len });
                    unknown.push(at..at + usize::try_from(len).unwrap());
                }
                1 => {
                    let unmap = [Unmap::Allowed, Unmap::Forbidden][random.usize(..2)];
                    ops.push(zeroes(here, len as u64, unmap));
                    model[at..at + len].fill(0);
                }
                2 => ops.push(Op::Flush),
                3 | 4 => {
                    let buffer = Buffer::cut(len, &[random.usize(..), random.usize(..)]);
                    ops.push(read(here, &buffer));
                    reads.push((at, buffers.len()));
                    buffers.push(buffer);
                }
                _ => {
                    let bytes = pattern(random.u64(..), len);
                    let buffer = Buffer::holding(&bytes);
                    ops.push(write(here, &buffer));
                    buffers.push(buffer);
                    model[at..at + len].copy_from_slice(&bytes);
                }
            }
        }
        for (op, result) in ops.iter().zip(client.run_all(&ops)) {
            assert_eq!(result, Ok(()), "{op:?}");
        }
        for (at, buffer) in reads {
            let bytes = buffers[buffer].bytes();
            assert!(bytes == model[at..at + bytes.len()], "read at {at}");
        }
        for range in unknown {
            let now = client.read_bytes(range.start as u64, range.len());
            let was = &mut model[range];
            let either = now
                .iter()
                .zip(&*was)
                .all(|(now, was)| *now == 0 || now == was);
            assert!(either, "a discarded range is as it was, or zero");
            was.copy_from_slice(&now);
        }
    }

    /// A copy of the files is what a process leaves that is killed now: an image without an error, which holds all that
    /// was completed.
    fn killed_now(&mut self) {
        let left = self.lab.path("left.qcow2");
        fs::copy(&self.image, &left).unwrap();
        let _leaks = self.lab.check(&left);
        assert!(
            self.lab.raw(&left) == self.model,
            "a killed process loses nothing"
        );
        fs::remove_file(&left).unwrap();
    }
}

fn settings(random: &mut Rng) -> Settings {
    let cache = [Cache::Writeback, Cache::None, Cache::Writethrough][random.usize(..3)];
    Settings {
        file: FileSettings::from(cache),
        ..Settings::default()
    }
}
