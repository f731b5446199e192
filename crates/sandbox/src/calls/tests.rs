use std::os::fd::AsRawFd;
use std::thread;

use super::table::AF_UNIX;
use libc::c_long;

use super::*;
use crate::Cage;
use crate::plan::Plan;

const ALL: Needs = Needs {
    files: true,
    images: true,
    io_uring: true,
    driver: true,
    control: true,
    opener: true,
    cluster: true,
};

fn calls(of: Kind, needs: Needs) -> BTreeSet<c_long> {
    allowed(of, needs).iter().map(|rule| rule.call).collect()
}

#[test]
fn nobody_starts_programs_or_talks_to_the_network() {
    for kind in Kind::ALL {
        let calls = calls(kind, ALL);
        for never in [
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_ptrace,
            libc::SYS_process_vm_writev,
            libc::SYS_setuid,
            libc::SYS_mount,
            libc::SYS_bpf,
            libc::SYS_kill,
            // What the handler of a violation ends the process with.
            libc::SYS_getppid,
        ] {
            assert!(!calls.contains(&never), "{kind:?} may do {never}");
        }
        let any_ioctl = Rule {
            call: libc::SYS_ioctl,
            when: When::Always,
        };
        assert!(!allowed(kind, ALL).contains(&any_ioctl), "{kind:?}");
        for socket in [libc::SYS_bind, libc::SYS_listen] {
            assert_eq!(calls.contains(&socket), kind == Opener, "{kind:?}");
        }
    }
    let sockets = allowed(Opener, ALL);
    let mut sockets = sockets.iter().filter(|rule| rule.call == libc::SYS_socket);
    assert!(sockets.all(|rule| rule.when == When::Is(0, AF_UNIX)));
}

#[test]
fn what_no_disk_needs_nobody_may() {
    let none = Needs::default();
    for kind in Kind::ALL {
        let calls = calls(kind, none);
        for idle in [
            libc::SYS_io_uring_setup,
            libc::SYS_fallocate,
            libc::SYS_socket,
            libc::SYS_connect,
            libc::SYS_pwritev2,
        ] {
            assert!(!calls.contains(&idle), "{kind:?} may do {idle}");
        }
    }
    assert!(!calls(Worker, none).contains(&libc::SYS_clone));
}

#[test]
fn a_thread_may_what_those_may_that_it_starts() {
    for parent in Kind::ALL {
        for child in starts(parent, ALL) {
            assert!(calls(parent, ALL).is_superset(&calls(child, ALL)));
        }
    }
}

/// In the sandbox itself: what is not allowed ends this process by SIGSYS.
#[test]
fn the_thread_of_an_image_may_start_one_for_syncs() {
    let needs = Needs {
        files: true,
        images: true,
        ..Needs::default()
    };
    let plan = Plan {
        needs,
        ..Plan::default()
    };
    let cage = Cage::new(&plan).unwrap();
    let file = tempfile::tempfile().unwrap();
    thread::scope(|scope| {
        let image = scope.spawn(|| {
            cage.confine(Main, Pool).unwrap().seccomp.unwrap();
            let syncs = thread::Builder::new().name("pool".to_owned());
            let syncs = syncs.spawn_scoped(scope, || file.sync_data()).unwrap();
            syncs.join().unwrap().unwrap();
        });
        image.join().unwrap();
    });
}

/// A daemon that is started from a shell has its terminal.
#[test]
fn the_threads_of_a_cluster_do_not_type_into_a_terminal() {
    let needs = Needs {
        cluster: true,
        ..Needs::default()
    };
    let plan = Plan {
        needs,
        ..Plan::default()
    };
    let cage = Cage::new(&plan).unwrap();
    let file = tempfile::tempfile().unwrap();
    let asks = |request: u32| {
        // SAFETY: on a file that is no terminal, either request does nothing.
        let done = unsafe { libc::ioctl(file.as_raw_fd(), request.into(), c"x".as_ptr()) };
        assert_eq!(done, -1);
        std::io::Error::last_os_error().raw_os_error().unwrap()
    };
    thread::scope(|scope| {
        let client = scope.spawn(|| {
            assert_eq!(asks(TYPING[0]), libc::ENOTTY);
            cage.confine(Main, Cluster).unwrap().seccomp.unwrap();
            for request in TYPING {
                assert_eq!(asks(*request), libc::EPERM);
            }
            assert_eq!(asks(0x5401), libc::ENOTTY, "TCGETS");
        });
        client.join().unwrap();
    });
}
