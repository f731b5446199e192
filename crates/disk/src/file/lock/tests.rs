use std::cell::Cell;

use pollux_memory::uring::Ring;

use super::*;
use crate::file::Cache;
use crate::{File as Disk, Options};

const WE_WRITE: Access = Access::ReadWrite;
const WE_READ: Access = Access::ReadOnly;

fn image() -> tempfile::NamedTempFile {
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(1 << 20).unwrap();
    image
}

fn open(path: &Path, access: Access) -> Result<Disk, OpenError> {
    let options = Options {
        read_only: access == Access::ReadOnly,
        ..Options::default()
    };
    Disk::open(path, Cache::Writeback, &options)
}

fn told(path: &Path, access: Access) -> String {
    open(path, access).unwrap_err().to_string()
}

/// The image as another process has it open, which has locked such bytes.
fn other(path: &Path, bytes: &[u32]) -> File {
    let file = File::open(path).unwrap();
    for &byte in bytes {
        lock_shared(&file, byte..=byte).unwrap();
    }
    file
}

#[test]
fn one_writer_or_any_number_of_readers() {
    let image = image();
    let path = image.path();
    let writer = open(path, WE_WRITE).unwrap();
    for access in [WE_WRITE, WE_READ] {
        let told = told(path, access);
        assert!(told.contains("this process has it open already"), "{told}");
        assert!(told.contains("an image of its own"), "{told}");
    }
    drop(writer);
    let readers = [open(path, WE_READ).unwrap(), open(path, WE_READ).unwrap()];
    let told = told(path, WE_WRITE);
    assert!(
        told.contains("or open all of them read-only (`--read-only`;"),
        "{told}"
    );
    drop(readers);
    open(path, WE_WRITE).unwrap();
}

#[test]
fn what_others_do_and_forbid_is_respected() {
    // The other process, as QEMU locks the image, and whether we may read or write beside it.
    let table: [(&str, &[u32], bool, bool); 8] = [
        ("none", &[], true, true),
        ("qemu-img info", &[100], true, true),
        ("a machine that reads", &[100, 201], true, false),
        ("a machine that writes", &[100, 101, 201], false, false),
        ("qemu-storage-daemon that writes", &[100, 101], false, false),
        ("qemu-img resize", &[100, 101, 103], false, false),
        ("one that changes the size only", &[103], false, false),
        ("one that lets no other read", &[200], false, false),
    ];
    for (name, bytes, reads, writes) in table {
        let image = image();
        let other = other(image.path(), bytes);
        assert_eq!(open(image.path(), WE_READ).is_ok(), reads, "{name}");
        assert_eq!(open(image.path(), WE_WRITE).is_ok(), writes, "{name}");
        drop(other);
        open(image.path(), WE_WRITE).unwrap();
    }
}

#[test]
fn others_see_what_we_do_and_forbid() {
    let seen = |access| {
        let image = image();
        let _disk = open(image.path(), access).unwrap();
        let other = File::open(image.path()).unwrap();
        ALL.filter(|&byte| is_locked_by_others(&other, byte) == Ok(true))
            .collect::<Vec<_>>()
    };
    assert_eq!(seen(WE_WRITE), [100, 101, 201, 203]);
    assert_eq!(seen(WE_READ), [100, 201, 203]);
}

#[test]
fn what_is_refused_leaves_nothing_locked() {
    let image = image();
    let locked = |file: &File| {
        ALL.filter(|&byte| is_locked_by_others(file, byte) == Ok(true))
            .collect::<Vec<_>>()
    };
    for bytes in [&[100, 101, 201][..], &[100, 101], &[200]] {
        let other = other(image.path(), bytes);
        let refused = image.reopen().unwrap();
        Lock::take(&refused, image.path(), WE_WRITE, Duration::ZERO).unwrap_err();
        assert!(locked(&other).is_empty(), "{bytes:?}");
        drop(other);
        // The file of the one that was refused is open still.
        let _next = open(image.path(), WE_WRITE).unwrap();
    }
}

/// Its locks are shared: taken twice, they would be let go for both by the first that goes.
#[test]
fn an_open_file_that_is_in_use_is_not_taken_once_more() {
    let image = image();
    for access in [WE_WRITE, WE_READ] {
        let options = Options {
            read_only: access == WE_READ,
            ..Options::default()
        };
        let opened = File::options().read(true).write(true).open(image.path());
        let file = opened.unwrap();
        let adopt = || {
            let file = file.try_clone().unwrap();
            Disk::adopt(file, image.path(), Cache::Writeback, &options)
        };
        let first = adopt().unwrap();
        let told = adopt().unwrap_err().to_string();
        assert!(told.contains("the very descriptor"), "{told}");
        let told = self::told(image.path(), WE_WRITE);
        assert!(told.contains("is in use"), "still locked: {told}");
        drop(first);
        adopt().unwrap();
    }
}

/// Two logs may be one file, and neither lies in an image, nor an image in one.
#[test]
fn what_is_appended_to_is_no_image() {
    let image = image();
    let append = || {
        let mut options = File::options();
        options.read(true).append(true).open(image.path()).unwrap()
    };
    let (one, other) = (append(), append());
    assert_eq!((may_append(&one), may_append(&other)), (Ok(true), Ok(true)));
    open(image.path(), WE_WRITE).unwrap_err();
    drop((one, other));
    let _disk = open(image.path(), WE_WRITE).unwrap();
    assert_eq!(may_append(&append()), Ok(false));
}

#[test]
fn a_lock_ends_when_it_is_dropped_although_the_open_file_lives_on() {
    let image = image();
    let file = File::options()
        .read(true)
        .write(true)
        .open(image.path())
        .unwrap();
    let lock = Lock::take(&file, image.path(), WE_WRITE, LINGERS).unwrap();
    assert!(open(image.path(), WE_WRITE).is_err());
    drop(lock);
    open(image.path(), WE_WRITE).unwrap();
}

#[test]
fn a_lock_without_a_holder_is_waited_for_and_one_with_a_holder_is_not() {
    let claimed = |holder| Claimed {
        conflict: Conflict::Writes,
        holder,
    };
    let mut looks = 0;
    let ended = until_told(LINGERS, || {
        looks += 1;
        Ok((looks < 3).then(|| claimed(None)))
    });
    assert_eq!((ended, looks), (Ok(None), 3));
    let (mut looks, held) = (0, claimed(Some(Holder::of(1))));
    let told = until_told(LINGERS, || {
        looks += 1;
        Ok(Some(held.clone()))
    });
    assert_eq!((told, looks), (Ok(Some(held)), 1));
    let (mut looks, nobody) = (0, claimed(None));
    let told = until_told(Duration::ZERO, || {
        looks += 1;
        Ok(Some(nobody.clone()))
    });
    assert_eq!((told, looks), (Ok(Some(nobody)), 1));
}

#[test]
fn a_lock_whose_process_has_gone_is_waited_for_by_one_that_holds_its_own() {
    let image = image();
    // As an `io_uring` keeps the file of a process that was killed, for a while.
    let lingers = || {
        let gone = other(image.path(), &[100, 101, 201, 203]);
        Ring::new(&gone).unwrap()
    };
    let file = image.reopen().unwrap();
    let ring = lingers();
    let refused = Lock::take(&file, image.path(), WE_WRITE, LOOK_EVERY).unwrap_err();
    let nobody = matches!(refused, OpenError::InUse { holder: None, .. });
    assert!(nobody, "{refused}");
    drop(ring);
    let ring = lingers();
    thread::scope(|scope| {
        scope.spawn(move || {
            thread::sleep(5 * LOOK_EVERY);
            drop(ring);
        });
        Lock::take(&file, image.path(), WE_WRITE, LINGERS).unwrap();
    });
}

#[test]
fn a_device_that_is_let_go_is_opened_and_one_that_is_not_stays_busy() {
    let image = image();
    let tries = Cell::new(0);
    let open = |busy| {
        tries.set(tries.get() + 1);
        if tries.get() <= busy {
            return Err(Errno::BUSY);
        }
        Ok(image.reopen().unwrap())
    };
    let opened = |busy| open_busy(image.path(), WE_WRITE, || open(busy)).unwrap();
    assert!(opened(3).is_ok());
    assert_eq!(tries.get(), 4);
    assert_eq!(opened(u32::MAX).err(), Some(Errno::BUSY));
    let _other = other(image.path(), &[100, 101]);
    let named = open_busy(image.path(), WE_WRITE, || unreachable!("it is in use"));
    assert!(matches!(named, Err(OpenError::InUse { .. })));
}

#[test]
fn locks_are_read_as_the_kernel_prints_them() {
    let line = "lock:\t1: OFDLCK  ADVISORY  READ -1 fe:00:9994247 100 101";
    let covered = |line: &str| {
        (98..=103)
            .filter(|&byte| covers(line, byte))
            .collect::<Vec<_>>()
    };
    assert_eq!(covered(line), [100, 101]);
    assert_eq!(covered(&line.replace("101", "EOF")), [100, 101, 102, 103]);
    for other in ["pos:\t100", "lock:", "lock: 1: 2 x y", ""] {
        assert!(covered(other).is_empty(), "{other:?}");
    }
}
