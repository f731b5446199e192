//! An image that two have open, and one after the other uses: `lock=running`.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use pollux_disk::file::{Locked, Settings as FileSettings};
use pollux_disk::qcow2::Settings;
use pollux_disk::{Disk, Event, Image, Op, Options};
use pollux_disk_conformance::{Client, pattern};

use super::images::Lab;

fn open(path: &Path) -> Image {
    let settings = Settings {
        file: FileSettings {
            lock: Locked::Running,
            ..FileSettings::default()
        },
        ..Settings::default()
    };
    Image::open(path, settings, &Options::default()).unwrap()
}

#[test]
fn an_image_is_handed_to_and_fro_and_each_sees_what_the_other_wrote() {
    let Some(lab) = Lab::new() else { return };
    std::fs::write(lab.path("base.raw"), pattern(9, 4 << 20)).unwrap();
    let options = "cluster_size=4k,backing_file=base.raw,backing_fmt=raw";
    let path = lab.create("handed.qcow2", options, 4 << 20);
    let images = [open(&path), open(&path)];
    let mut clients = images.each_ref().map(|image| Client::new(image));
    let mut model = pattern(9, 4 << 20);
    for round in 0..8u64 {
        let (now, then) = if round % 2 == 0 { (0, 1) } else { (1, 0) };
        images[now].acquire().unwrap();
        images[now].acquire().unwrap();
        let refused = images[then].acquire().unwrap_err().to_string();
        assert!(refused.contains("in use"), "{refused}");
        let client = &mut clients[now];
        assert!(client.read_bytes(0, model.len()) == model, "round {round}");
        for number in 0..20 {
            let at = (round * 7 + number * 11) * 8192 % (4 << 20);
            let bytes = pattern(round * 100 + number, 6144);
            client.write_bytes(at, &bytes).unwrap();
            let at = usize::try_from(at).unwrap();
            model[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        let at = round * 65536;
        client.run(Op::Discard { at, len: 32768 }).unwrap();
        let at = usize::try_from(at).unwrap();
        let left = client.read_bytes(at as u64, 32768);
        model[at..at + 32768].copy_from_slice(&left);
        images[now].release().unwrap();
        images[now].release().unwrap();
        assert_eq!(lab.check(&path), 0, "it is closed");
        assert!(lab.raw(&path) == model);
    }
}

#[test]
fn an_image_that_is_not_in_use_is_neither_read_nor_written() {
    let Some(lab) = Lab::new() else { return };
    let path = lab.create("idle.qcow2", "", 1 << 20);
    let image = open(&path);
    let mut client = Client::new(&image);
    client.run(Op::Discard { at: 0, len: 65536 }).unwrap_err();
    image.resize(Some(2 << 20)).unwrap_err();
    image.acquire().unwrap();
    client.write_bytes(0, &pattern(1, 4096)).unwrap();
    image.release().unwrap();
    client.write_bytes(0, &pattern(2, 4096)).unwrap_err();
    // Others may do what they like with it.
    lab.img("resize idle.qcow2 3M");
    let (told, heard) = std::sync::mpsc::channel();
    let _subscription = image
        .events()
        .subscribe(move |event| told.send(event).unwrap());
    image.acquire().unwrap();
    assert_eq!(heard.try_recv(), Ok(Event::Changed));
    assert_eq!(image.geometry().bytes, 3 << 20);
    assert!(client.read_bytes(0, 4096) == pattern(1, 4096));
    client.write_bytes(2 << 20, &pattern(3, 4096)).unwrap();
    image.release().unwrap();
    lab.create("idle.qcow2", "cluster_size=4k", 1 << 20);
    let refused = image.acquire().unwrap_err().to_string();
    assert!(refused.contains("another image"), "{refused}");
    lab.io(&path, &["write 0 4k".to_owned()]);
}

/// As soon as it is in use it can be enlarged: here by threads that try all the time, before the one that has taken it
/// gets to know its size, as that waits for the processors that the others use.
#[test]
fn an_image_that_is_enlarged_while_it_is_taken_is_as_large_as_was_said() {
    let Some(lab) = Lab::new() else { return };
    let path = lab.create("grows.qcow2", "", 1 << 20);
    let image = open(&path);
    let told = image.resize(None).unwrap_err().to_string();
    assert!(told.contains("enlarged to a size"), "{told}");
    for larger in (1..=30).map(|step| (1 << 20) + step * 65536) {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while image.resize(Some(larger)).is_err() && !over.load(Ordering::Relaxed) {}
                over.store(true, Ordering::Relaxed);
            });
            for _ in 0..4 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            scope.spawn(|| {
                rustix::process::nice(19).unwrap();
                if let Err(error) = image.acquire() {
                    over.store(true, Ordering::Relaxed);
                    panic!("{error}");
                }
            });
        });
        assert_eq!(image.geometry().bytes, larger);
        image.release().unwrap();
    }
}
