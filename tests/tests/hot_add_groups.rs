//! Disks that share limits, and come and go: the limits are those that were answered, also after the daemon was killed.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::fs;

use pollux_tests::hot::Hot;
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;

/// Whether it comes before the other of its group or after it; the list is written while that is there or when it has
/// gone.
#[test]
fn a_disk_that_is_missing_is_kept_with_the_limits_of_its_group() {
    let mut hot = Hot::start().unwrap();
    let image = hot.image("image", MIB).unwrap();
    let elsewhere = hot.images().join("elsewhere");
    let file = format!("file:path={}", image.display());
    let mut comes_back_with = |missing: &str, there: &str, change: Option<u64>| {
        for (name, disk) in [(missing, &*file), (there, "memory:size=1M")] {
            let limits = json!({ "iops_total": 5 });
            let body = json!({ "disk": disk, "limit_group": "g", "limits": limits });
            assert_eq!(hot.put(name, &body).unwrap().0, 201);
        }
        fs::rename(&image, &elsewhere).unwrap();
        hot.restart().unwrap();
        assert_eq!(hot.names().unwrap(), [there]);
        assert_eq!(hot.get("/v1/health").unwrap()["missing"], json!([missing]));
        if let Some(iops) = change {
            let limits = json!({ "limits": { "iops_total": iops } });
            assert_eq!(hot.patch(there, &limits).unwrap().0, 200);
            assert_eq!(hot.list()[missing]["limits"], limits["limits"]);
        }
        assert_eq!(hot.remove(there, "").unwrap().0, 204);
        fs::rename(&elsewhere, &image).unwrap();
        hot.restart().unwrap();
        assert_eq!(hot.names().unwrap(), [missing]);
        let disk = hot.get(&format!("/v1/disks/{missing}")).unwrap();
        assert_eq!(hot.remove(missing, "").unwrap().0, 204);
        disk["limits"]["iops_total"].clone()
    };
    for (missing, there) in [("a", "b"), ("b", "a")] {
        assert_eq!(comes_back_with(missing, there, None), 5);
        assert_eq!(comes_back_with(missing, there, Some(7)), 7);
    }
    hot.ends_well();
}

#[test]
fn the_limits_of_a_group_come_back_whichever_disk_they_were_given_to() {
    let mut hot = Hot::start().unwrap();
    let member =
        |limits: Value| json!({ "disk": "memory:size=1M", "limit_group": "g", "limits": limits });
    let all = |hot: &Hot, limit: Value| {
        for name in ["a", "b"] {
            let disk = hot.get(&format!("/v1/disks/{name}")).unwrap();
            assert_eq!(disk["limits"]["iops_total"], limit, "{disk}");
        }
    };
    for first in [json!({}), json!({ "iops_total": 5 })] {
        assert_eq!(hot.put("a", &member(first)).unwrap().0, 201);
        assert_eq!(hot.put("b", &member(json!({}))).unwrap().0, 201);
        let limits = json!({ "limits": { "iops_total": 7 } });
        assert_eq!(hot.patch("b", &limits).unwrap().0, 200);
        all(&hot, 7.into());
        hot.restart().unwrap();
        all(&hot, 7.into());
        // The same request once more changes nothing.
        assert_eq!(hot.put("b", &member(json!({}))).unwrap().0, 200);
        all(&hot, 7.into());
        assert_eq!(
            hot.put("b", &member(json!({ "iops_total": 9 }))).unwrap().0,
            200
        );
        hot.restart().unwrap();
        all(&hot, 9.into());
        assert_eq!(hot.patch("a", &json!({ "limits": null })).unwrap().0, 200);
        hot.restart().unwrap();
        all(&hot, Value::Null);
        for name in ["a", "b"] {
            assert_eq!(hot.remove(name, "").unwrap().0, 204);
        }
    }
    hot.ends_well();
}
