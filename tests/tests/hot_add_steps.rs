//! The daemon is killed before and after each system call of a change to its disks: the next one has the disks of
//! before or of after, and those of after once the change was answered.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use pollux_tests::control::change;
use pollux_tests::hot::Hot;
use pollux_tests::stepping::Stepping;
use rustix::process::Signal;
use serde_json::{Value, json};

/// Far more than a change takes.
const MOST_CALLS: u32 = 2000;

/// A change, and what is asked to see whether it was made.
struct Change {
    /// The thread that is killed at its calls.
    thread: &'static str,
    method: &'static str,
    path: &'static str,
    body: Value,
    /// The state before it, and after.
    made: fn(&Hot) -> bool,
}

fn has(hot: &Hot, name: &str) -> bool {
    hot.names().unwrap().iter().any(|there| there == name)
}

/// Kills the daemon after so many stops. Was the change over before?
fn killed_after(hot: &mut Hot, stops: u32, change_it: &Change) -> bool {
    let thread = hot.process().thread_named(change_it.thread).unwrap();
    let thread = Stepping::stop(thread).unwrap();
    let control = hot.control();
    let (over, answered) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let Change {
                method, path, body, ..
            } = change_it;
            // One that was killed says nothing.
            let (status, said) = change(&control, method, path, body).unwrap_or_default();
            assert!([0, 200, 201, 204].contains(&status), "{method}: {said}");
            status != 0
        });
        let is_over = || asking.is_finished();
        let over = (0..stops).any(|_| !thread.next_call(is_over).unwrap());
        hot.server().signal(Signal::KILL).unwrap();
        (over, asking.join().unwrap())
    });
    drop(thread);
    hot.restart().unwrap();
    let made = (change_it.made)(hot);
    assert!(
        made || !answered,
        "{} was answered, and is lost",
        change_it.method
    );
    over
}

fn put(thread: &'static str) -> Change {
    Change {
        thread,
        method: "PUT",
        path: "/v1/disks/new",
        body: json!({ "disk": "null:size=1M" }),
        made: |hot| has(hot, "new"),
    }
}

#[test]
fn a_daemon_killed_at_any_step_of_a_change_leaves_the_old_or_the_new() {
    let mut hot = Hot::start().unwrap();
    hot.add("kept", "null:size=1M").unwrap();
    let changes = [
        put("opener"),
        put("keeper"),
        Change {
            thread: "keeper",
            method: "PATCH",
            path: "/v1/disks/new",
            body: json!({ "limits": { "iops_total": 5 } }),
            made: |hot| !hot.get("/v1/disks/new").unwrap()["limits"]["iops_total"].is_null(),
        },
        Change {
            thread: "keeper",
            method: "DELETE",
            path: "/v1/disks/new",
            body: Value::Null,
            made: |hot| !has(hot, "new"),
        },
    ];
    for change_it in &changes {
        // As the last one has left it.
        match change_it.method {
            "PUT" => hot.remove("new", "").map(drop).unwrap(),
            _ => hot.add("new", "null:size=1M").map(drop).unwrap(),
        }
        let mut made = [0, 0];
        for stops in 0..MOST_CALLS {
            let over = killed_after(&mut hot, stops, change_it);
            assert!(has(&hot, "kept"), "{} takes another", change_it.method);
            let is_made = (change_it.made)(&hot);
            made[usize::from(is_made)] += 1;
            if over {
                assert!(is_made, "{} was over", change_it.method);
                break;
            }
            // As it was before.
            match change_it.method {
                "PUT" if is_made => hot.remove("new", "").map(drop).unwrap(),
                "PATCH" if is_made => {
                    let body = json!({ "limits": null });
                    hot.patch("new", &body).map(drop).unwrap();
                }
                "DELETE" if is_made => hot.add("new", "null:size=1M").map(drop).unwrap(),
                _ => {}
            }
        }
        // That this can fail: it was killed early and late.
        assert!(
            made.iter().all(|times| *times > 0),
            "{} in the thread `{}`: {made:?}",
            change_it.method,
            change_it.thread
        );
    }
    hot.ends_well();
}
