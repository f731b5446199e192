//! The disk grows under a guest that uses it.

use std::fs::File;
use std::path::Path;

use pollux_tests::control::change;
use pollux_tests::guest::{Export, Lab, System};
use pollux_tests::subject::Program;
use serde_json::{Value, json};

use super::MIB;

/// Its file grows at our word, then by somebody else's: the kernel of the guest sees both under running I/O.
pub fn a_disk_grows_under_load(system: impl Into<System>) {
    let Some(lab) = opened(system) else {
        return;
    };
    let image = lab.path("image");
    let file = File::create(&image).expect("the lab's folder is ours");
    let enlarged = |mib: u64| file.set_len(mib * MIB).expect("it takes a sparse file");
    enlarged(64);
    grows(lab, &image, |mib| {
        if mib == 128 {
            return json!({ "bytes": mib * MIB });
        }
        enlarged(mib);
        json!({})
    });
}

/// A lab for a daemon that can be told of it.
pub fn opened(system: impl Into<System>) -> Option<Lab> {
    let lab = Lab::open(system)?;
    if lab.program() == Program::Pollux {
        return Some(lab);
    }
    lab.skip("it is told by Pollux' control socket");
    None
}

/// `image` grows from 64 MiB to 128 and 192: `enlarge` has done its part of that when it says what to ask for.
pub fn grows(mut lab: Lab, image: &Path, enlarge: impl Fn(u64) -> Value) {
    let disk = lab.serve(&Export::file(image).controlled());
    let control = lab.path("0.control");
    let guest = lab.guest(include_str!("../../guest/cases/resize.sh"));
    let mut guest = lab.starts(guest.disk(disk));
    lab.hears(&mut guest, "under load");
    for mib in [128, 192] {
        let answer = change(&control, "POST", "/v1/disks/0/resize", &enlarge(mib));
        let (status, disk) = answer.expect("the server answers");
        if (status, disk["bytes"].as_u64()) != (200, Some(mib * MIB)) {
            lab.fail(&format!("not {mib} MiB: {status} {disk}"));
        }
        lab.hears(&mut guest, &format!("grown to {mib}"));
    }
    lab.ends_well(guest);
}
