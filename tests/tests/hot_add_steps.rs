//! The daemon is killed before and after each system call of a change to its disks: the next one has the disks of before
//! or of after, and those of after once the change was answered.

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
    let opener = hot.process().thread_named("opener").unwrap();
    let opener = Stepping::stop(opener).unwrap();
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
        let over = (0..stops).any(|_| !opener.next_call(is_over).unwrap());
        hot.server().signal(Signal::KILL).unwrap();
        (over, asking.join().unwrap())
    });
    drop(opener);
    hot.restart().unwrap();
    let made = (change_it.made)(hot);
    assert!(
        made || !answered,
        "{} was answered, and is lost",
        change_it.method
    );
    over
}

#[test]
fn a_daemon_killed_at_any_step_of_a_change_leaves_the_old_or_the_new() {
    let mut hot = Hot::start().unwrap();
    hot.add("kept", "null:size=1M").unwrap();
    let changes = [
        Change {
            method: "PUT",
            path: "/v1/disks/new",
            body: json!({ "disk": "null:size=1M" }),
            made: |hot| has(hot, "new"),
        },
        Change {
            method: "PATCH",
            path: "/v1/disks/new",
            body: json!({ "limits": { "iops_total": 5 } }),
            made: |hot| !hot.get("/v1/disks/new").unwrap()["limits"]["iops_total"].is_null(),
        },
        Change {
            method: "DELETE",
            path: "/v1/disks/new",
            body: Value::Null,
            made: |hot| !has(hot, "new"),
        },
    ];
    for (number, change_it) in changes.iter().enumerate() {
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
            match number {
                0 if is_made => hot.remove("new", "").map(drop).unwrap(),
                1 if is_made => {
                    let body = json!({ "limits": null });
                    change(&hot.control(), "PATCH", change_it.path, &body)
                        .map(drop)
                        .unwrap();
                }
                2 if is_made => {
                    let body = json!({ "disk": "null:size=1M" });
                    hot.put("new", &body).map(drop).unwrap();
                }
                _ => {}
            }
        }
        // That this can fail: it was killed early and late.
        assert!(
            made.iter().all(|times| *times > 2),
            "{}: {made:?}",
            change_it.method
        );
    }
    hot.ends_well();
}
