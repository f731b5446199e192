use super::*;

fn read(text: &str) -> Result<DiskLimits, BadLimit> {
    text.parse().map(|LimitsOption(limits)| limits.into())
}

#[test]
fn limits_are_written_in_qemus_words() {
    let all = read("iops-total=5K,iops-total-max=20000,bps-write=100M").unwrap();
    let wanted = DiskLimits {
        iops_total: Some(5000),
        iops_total_max: Some(20_000),
        bps_write: Some(100 << 20),
        ..DiskLimits::default()
    };
    assert_eq!(all, wanted);
    let words = [
        ("iops-total".to_owned(), 5000),
        ("iops-total-max".to_owned(), 20_000),
        ("bps-write".to_owned(), 100 << 20),
    ];
    assert_eq!(wanted.by_word(), words);
    assert_eq!(read("iops-read=none").unwrap(), DiskLimits::default());
}

#[test]
fn what_is_wrong_is_named_with_its_remedy() {
    for (text, field, words) in [
        ("iops=1", "limits.iops", "there are iops-total"),
        ("iops-total", "limits.iops_total", "iops-total=5000"),
        ("iops-total=x", "limits.iops_total", "iops-total=5000"),
        ("bps-read=-1", "limits.bps_read", "bps-read=100M"),
        ("iops-total=5G", "limits.iops_total", "with K or M"),
        ("bps-read=5T5", "limits.bps_read", "with K, M or G"),
        ("bps-read=0", "limits.bps_read", "would stop the disk"),
        (
            "bps-read-max=5",
            "limits.bps_read_max",
            "give bps-read as well",
        ),
        (
            "iops-read=9,iops-read-max=8",
            "limits.iops_read_max",
            "at least 9",
        ),
        (
            "iops-read=99999999999999999999",
            "limits.iops_read",
            "a whole number",
        ),
        (
            "iops-read=99999999999999999M",
            "limits.iops_read",
            "a whole number",
        ),
        ("", "limits.", "there is no limit ``"),
        (
            "iops-total=1,iops-total=2",
            "limits.iops_total",
            "iops-total is given twice",
        ),
    ] {
        let bad = read(text).unwrap_err();
        assert_eq!(bad.field().as_deref(), Some(field), "{text}");
        assert!(bad.to_string().contains(words), "{text}: {bad}");
    }
}

#[test]
fn none_stands_alone() {
    for text in ["none", "none,iops-total=3"] {
        assert_eq!(read(text).unwrap_err(), BadLimit::NotAlone, "{text}");
    }
}

#[test]
fn a_group_has_one_limit() {
    let limits = |text: &str| text.parse::<LimitsOption>().unwrap().0;
    let mut groups = Groups::default();
    let first = groups.limiter(Some("a"), limits("iops-total=5")).unwrap();
    assert_eq!(groups.limits(Some("a")), Some(Limits::default()));
    first.set(limits("iops-total=5"));
    let second = groups.limiter(Some("a"), Limits::default()).unwrap();
    assert!(Arc::ptr_eq(&first, &second));
    assert_eq!(groups.limits(Some("a")), Some(limits("iops-total=5")));
    assert_eq!(
        (groups.limits(Some("b")), groups.limits(None)),
        (None, None)
    );
    let own = groups.limiter(None, limits("iops-total=7")).unwrap();
    assert!(!Arc::ptr_eq(&first, &own));
    let disks = |names: &[&'static str]| {
        let limits = limits("iops-total=5");
        let limited = [("a", limits), ("a", Limits::default())];
        let unlimited = names.iter().map(|name| (*name, Limits::default()));
        are_set(limited.into_iter().chain(unlimited))
    };
    assert_eq!(disks(&["a"]), Ok(()));
    assert_eq!(disks(&["b"]), Err(BadLimit::Unset("b".to_owned())));
    let other = groups.limiter(Some("a"), limits("iops-total=6"));
    assert_eq!(other.unwrap_err(), BadLimit::Group("a".to_owned()));
}
