use std::cell::Cell;
use std::hash::Hasher;

use proptest::prelude::*;

use super::*;
use crate::Options;

fn parse(spec: &str) -> Result<Spec, SpecError> {
    spec.parse()
}

/// Stacked disks of `legs`, of every kind.
pub fn over(legs: impl Strategy<Value = Spec> + Clone) -> impl Strategy<Value = Spec> {
    let some = prop::collection::vec(legs.clone(), 1..4);
    let sizes = (0u32..30).prop_map(|shift| Size(512 << shift));
    let table = (prop::collection::vec(legs, 1..4), any::<u8>()).prop_map(|(mut legs, seed)| {
        legs.dedup();
        let mut unique: Vec<Spec> = Vec::new();
        for leg in legs {
            if !unique.contains(&leg) {
                unique.push(leg);
            }
        }
        Spec::Table(some_table(unique, seed))
    });
    prop_oneof![
        some.clone().prop_map(|legs| Spec::Linear { legs }),
        (sizes, some).prop_map(|(chunk, legs)| Spec::Striped { chunk, legs }),
        table,
    ]
}

/// A line for each leg, and one over all of them.
fn some_table(legs: Vec<Spec>, seed: u8) -> Table {
    let at = u64::from(seed) * SECTOR;
    let line = |leg| Target {
        start: leg as u64 * SECTOR,
        len: SECTOR,
        layout: Layout::Linear(Stretch { leg, at }),
    };
    let mut targets: Vec<_> = (0..legs.len()).map(line).collect();
    targets.push(Target {
        start: legs.len() as u64 * SECTOR,
        len: 8 * SECTOR,
        layout: Layout::Striped {
            chunk: 4 * SECTOR,
            stripes: (0..legs.len()).map(|leg| Stretch { leg, at }).collect(),
        },
    });
    Table { targets, legs }
}

fn file(path: &str) -> Spec {
    Spec::File {
        path: path.into(),
        settings: crate::file::Settings::default(),
    }
}

#[test]
fn what_dmsetup_prints_is_read() {
    let table = parse("table:0 6291456 striped 3 128 a.img 0 254:16 8 /dev/sdc 0").unwrap();
    let stretch = |leg, at| Stretch { leg, at };
    let expected = Table {
        targets: vec![Target {
            start: 0,
            len: 6_291_456 * 512,
            layout: Layout::Striped {
                chunk: 65536,
                stripes: vec![stretch(0, 0), stretch(1, 4096), stretch(2, 0)],
            },
        }],
        legs: vec![file("a.img"), file("/dev/block/254:16"), file("/dev/sdc")],
    };
    assert_eq!(table, Spec::Table(expected));
    let volume =
        "table:# a volume\nvg-lv: 0 8192 linear 8:2 2048\n\nvg-lv: 8192 8192 linear 8:2 20480\n";
    let Spec::Table(Table { targets, legs }) = parse(volume).unwrap() else {
        panic!("a table")
    };
    assert_eq!(
        (targets.len(), legs.len()),
        (2, 1),
        "the same disk is one leg"
    );
}

#[test]
fn legs_are_paths_or_anything_else() {
    let memory = |size| Spec::Memory { size: Size(size) };
    assert_eq!(
        parse("linear:a.img+memory:size=1M+8:1"),
        Ok(Spec::Linear {
            legs: vec![file("a.img"), memory(1 << 20), file("/dev/block/8:1")]
        })
    );
    let nested =
        parse("striped:chunk=4K:[linear:[file:path=x,cache=none]+b+c],memory:size=1M").unwrap();
    let Spec::Striped { legs, .. } = &nested else {
        panic!("a striped disk")
    };
    assert!(matches!(&legs[0], Spec::Linear { legs } if legs.len() == 3));
    assert_eq!(parse(&nested.to_string()), Ok(nested));
}

#[test]
fn a_leg_that_is_named_twice_is_refused_where_it_would_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("a.img");
    std::fs::write(&image, [0; 8192]).unwrap();
    let image = image.display();
    for spec in [
        format!("linear:{image}+{image}"),
        format!("striped:chunk=4K:{image},[file:path={image},cache=writethrough]"),
    ] {
        let spec = parse(&spec).unwrap();
        let told = spec.open(&Options::default()).err().unwrap().to_string();
        assert!(
            told.starts_with(&format!("{image} is named as two legs")),
            "{told}"
        );
        let read_only = Options::default().read_only(true);
        assert!(spec.open(&read_only).is_ok());
    }
}

#[test]
fn every_mistake_is_named() {
    let short = format!("`{}…` does not begin", "ä".repeat(80));
    for (spec, expected) in [
        ("linear:", "`` is no leg"),
        ("linear:a++b", "`` is no leg"),
        ("linear:a,b", "`a,b` has a comma; join the legs"),
        ("linear:[a.img", "a bracket without its pair"),
        ("striped:a,b", "`chunk` is missing"),
        ("striped:chunk=64K", "`:LEG,LEG` is missing; write for"),
        ("striped:chunk=64K,a,b", "`:LEG,LEG` is missing"),
        (
            "linear:[null:size=1M]x+b",
            "`[null:size=1M]x` goes on after its bracket",
        ),
        (
            "linear:[null:size=1M][null:size=1M]",
            "`[null:size=1M][null:size=1M]` goes on after its bracket",
        ),
        (
            r"linear:x].img+b",
            r"the leg in brackets with a backslash before it: `[file:path=x\].img]`",
        ),
        ("striped:chunk=3X:a,b", "`chunk=3X` is not a size"),
        (
            "striped:chunk=4K:a+b",
            "`a+b` is one leg; join the legs of `striped` by `,`",
        ),
        ("table:", "`a line of the table` is missing"),
        (
            "table:x",
            "`x` does not begin with its first sector; write for example `0 2097152 linear disk.img 0`, in sectors of \
             512 bytes",
        ),
        (&format!("table:{}", "ä".repeat(1000)), &short),
        (
            "table:0 8 mirror core",
            "not known here; use `linear` or `striped`",
        ),
        ("table:0 8 linear a", "`a` has no offset in sectors"),
        ("table:0 8 linear a 0 b", "goes on after its last leg"),
        (
            "table:0 8 striped 2 8 a 0",
            "not as many legs with offsets as it says, one at least; write for example `0 4194304 striped 2 128",
        ),
        (
            "table:0 99999999999999999999 linear a 0",
            "has no length in sectors",
        ),
        (
            "table:a: 0 8 linear a 0;b: 8 8 linear a 8",
            "is of another device",
        ),
    ] {
        let told = parse(spec).unwrap_err().to_string();
        assert!(told.contains(expected), "{spec}: {told}");
    }
    let deep = format!("{}a{}", "linear:[".repeat(5000), "]".repeat(5000));
    let told = parse(&deep).unwrap_err().to_string();
    assert!(told.contains("`linear:` is nested more than"), "{told}");
    for (disks, fits) in [(32, true), (33, false)] {
        // One that can be written as a path alone is no less deep than one that cannot.
        for leg in ["a", "file:path=a", "[file:path=a]"] {
            let (open, shut) = ("linear:[".repeat(disks - 1), "]".repeat(disks - 1));
            let deep = format!("{open}linear:{leg}{shut}");
            assert_eq!(parse(&deep).is_ok(), fits, "{deep}");
        }
    }
    let deep = format!(
        "{}null:size=1{}",
        "linear:[fault:on=".repeat(5000),
        "]".repeat(5000)
    );
    assert!(parse(&deep).is_err());
}

#[test]
fn a_stacked_disk_opens_and_says_why_not() {
    let open = |spec: &str| parse(spec).unwrap().open(&Options::default());
    let size = |spec: &str| open(spec).unwrap().geometry().bytes;
    assert_eq!(size("linear:memory:size=1M+memory:size=2M"), 3 << 20);
    assert_eq!(
        size("striped:chunk=64K:memory:size=1M,memory:size=2M"),
        2 << 20
    );
    assert_eq!(
        size(
            "table:0 100 linear memory:size=1M 0;100 3 striped 2 1 memory:size=1M 100 null:size=1M 0"
        ),
        103 * 512
    );
    let told = open("table:0 4096 linear memory:size=1M 0")
        .map(|_| ())
        .unwrap_err();
    let source = std::error::Error::source(&told).unwrap().to_string();
    let words =
        "cannot stack `table:0 4096 linear [memory:size=1M] 0` (leg 1 is `[memory:size=1M]`)";
    assert_eq!(told.to_string(), words);
    assert!(source.contains("leg 1 holds 1048576 bytes"), "{source}");
}

#[test]
fn only_what_would_be_read_otherwise_is_escaped() {
    let (open, shut) = ("linear:[".repeat(16), "]".repeat(16));
    for leg in [
        // As long at any depth.
        format!(r"{open}file:path=a\b{shut}"),
        format!("{open}file:path=a[b]{shut}"),
        r"linear:[file:path=a\\]".to_owned(),
        r"linear:[file:path=\[]".to_owned(),
        r"linear:[linear:[file:path=\\\]]]".to_owned(),
    ] {
        assert_eq!(parse(&leg).unwrap().to_string(), leg);
    }
}

/// Something that counts how often it is compared with another.
#[derive(Clone)]
struct Compared<'a>(u32, &'a Cell<usize>);

impl PartialEq for Compared<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.1.set(self.1.get() + 1);
        self.0 == other.0
    }
}

impl Eq for Compared<'_> {}

impl Hash for Compared<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[test]
fn a_leg_is_not_compared_with_all_that_came_before() {
    const LEGS: u32 = 20_000;
    let compared = Cell::new(0);
    let mut legs = Numbered::default();
    for _ in 0..2 {
        for leg in 0..LEGS {
            assert_eq!(legs.number(Compared(leg, &compared)), leg as usize);
        }
    }
    // One by one it would be twice 200 million.
    assert!(compared.get() < 4 * LEGS as usize, "{}", compared.get());
    assert!(
        (0..)
            .zip(legs.in_order())
            .all(|(number, leg)| leg.0 == number)
    );
}
