use proptest::prelude::*;

use super::*;

fn rules(rules: &str) -> Vec<Rule> {
    let spec = format!("fault:{rules},on=null:size=1G").parse();
    let Ok(Spec::Fault { faults, .. }) = spec else {
        panic!("{rules}: {spec:?}")
    };
    faults.rules
}

#[test]
fn rules_are_read_with_their_conditions() {
    let ms = Duration::from_millis;
    let read = rules(
        "delay=1ms-5ms,op=read,error=ENOSPC,op=write+discard,range=0-1M,after=7,every=100,chance=2.5%,times=3,\
         torn=4K,then=ok,hang=device",
    );
    let error = When {
        ops: [Kind::Write, Kind::Discard].into_iter().collect(),
        range: Some(0..1 << 20),
        after: 7,
        every: NonZeroU64::new(100).unwrap(),
        chance: Chance::new(25_000).unwrap(),
        times: Some(3),
    };
    let rule = |action, when| Rule { action, when };
    let (keep, then) = (Keep::First(4096), Then::Ok);
    assert_eq!(
        read,
        [
            rule(
                Action::Delay(Delay::Uniform(ms(1), ms(5))),
                When::all([Kind::Read].into_iter().collect())
            ),
            rule(Action::Error(Failure::Io(Errno::NOSPC)), error),
            rule(Action::Torn { keep, then }, When::all(Ops::WRITE)),
            rule(Action::Hang(Hang::Device), When::all(Ops::ALL)),
        ]
    );
}

#[test]
fn every_delay_is_read() {
    let us = Duration::from_micros;
    for (text, delay) in [
        ("0s", Delay::Fixed(us(0))),
        ("1500ns", Delay::Fixed(Duration::from_nanos(1500))),
        ("200us", Delay::Fixed(us(200))),
        ("3600s", Delay::Fixed(Delay::LONGEST)),
        ("0us-1ms", Delay::Uniform(us(0), us(1000))),
        ("exp:3ms", Delay::Exponential(us(3000))),
        ("pareto:50us", Delay::Pareto(us(50))),
    ] {
        let read = rules(&format!("delay={text}"));
        assert_eq!(read[0].action, Action::Delay(delay), "{text}");
    }
}

#[test]
fn the_disk_below_is_taken_as_it_stands() {
    let spec: Spec = "fault:seed=7,delay=1ms,on=file:path=a,,b on=c.img,cache=none"
        .parse()
        .unwrap();
    let Spec::Fault { faults, on } = spec else {
        panic!("{spec:?}")
    };
    assert_eq!((faults.seed, faults.rules.len()), (7, 1));
    assert_eq!(on.to_string(), "file:path=a,,b on=c.img,cache=none");
    assert!(matches!(*on, Spec::File { path, .. } if path.ends_with("a,b on=c.img")));
}

#[test]
fn every_mistake_is_named_with_its_remedy() {
    let table = [
        ("", "`on` is missing; write for example `fault:"),
        ("error=EIO", "`on` is missing"),
        (
            "error=EIO,file:path=a.img",
            "`file:path=a.img` names the disk below; write `on=` before it",
        ),
        ("on=", "no disk is described"),
        ("on=memory:size=1X", "`size=1X` is not a size"),
        ("on=fault:on=null:size=1G", "write all rules into one"),
        ("error", "`error` is not KEY=VALUE"),
        ("error=EIO,,on=null:size=1G", "`` is not KEY=VALUE"),
        ("color=red,on=null:size=1G", "`fault` has no `color`"),
        ("seed=1,seed=2,", "`seed` is given twice"),
        ("log=a,log=b,", "`log` is given twice"),
        ("log=,on=null:size=1G", "`log=` names no file"),
        (
            "on=null:size=1G",
            "`RULE` is missing; write for example `fault:",
        ),
        ("seed=1,on=null:size=1G", "`RULE` is missing"),
        (
            "seed=x,",
            "`seed=x` is not a number; write a whole number, such as",
        ),
        ("error=EFOO,", "`error=EFOO` is not an error"),
        ("delay=1d,", "`delay=1d` is not a delay"),
        ("delay=3601s,", "at most 3600s"),
        ("delay=5ms-1ms,", "is not a delay"),
        ("torn=x,", "is no part of a write"),
        ("hang=x,", "neither `request` nor `device`"),
        ("op=read,error=EIO,", "is a condition of nothing"),
        ("error=EIO,op=erase,", "names no operations"),
        (
            "error=EIO,op=read,op=write,",
            "`op of one rule` is given twice",
        ),
        ("error=EIO,range=2M-1M,", "not a range"),
        (
            "error=EIO,every=0,",
            "`every=0` is no count; write a whole number from 1 on",
        ),
        ("error=EIO,after=abc,", "`after=abc` is no count"),
        ("error=EIO,times=+1,", "`times=+1` is no count"),
        ("error=EIO,chance=0%,", "is no chance"),
        ("error=EIO,chance=100.1%,", "is no chance"),
        ("error=EIO,chance=0.5,", "is no chance"),
        ("error=EIO,chance=0.00001%,", "is no chance"),
        ("error=EIO,then=ok,", "is for `torn=` only"),
        ("torn=0,op=write,", "only writes are torn"),
        ("torn=0,then=no,", "none of `fail`, `ok` and `hang`"),
    ];
    for (rules, expected) in table {
        let told = parse(rules, 0).unwrap_err().to_string();
        assert!(told.contains(expected), "{rules}: {told}");
        assert!(told.contains("; "), "{rules}: no remedy: {told}");
    }
}

fn delays() -> impl Strategy<Value = Delay> {
    let times = || (0..=3_600_000_000_000u64).prop_map(Duration::from_nanos);
    prop_oneof![
        times().prop_map(Delay::Fixed),
        (times(), times()).prop_map(|(a, b)| Delay::Uniform(a.min(b), a.max(b))),
        times().prop_map(Delay::Exponential),
        times().prop_map(Delay::Pareto),
    ]
}

fn one_of<T: Copy + std::fmt::Debug + 'static>(
    table: &[(&str, T)],
) -> impl Strategy<Value = T> + use<T> {
    let values: Vec<T> = table.iter().map(|&(_, value)| value).collect();
    prop::sample::select(values)
}

fn some_rules() -> impl Strategy<Value = Rule> {
    let sizes = || 0..=i64::MAX.cast_unsigned();
    let keep = prop_oneof![Just(Keep::Random), sizes().prop_map(Keep::First)];
    let torn = (keep, one_of(&THEN)).prop_map(|(keep, then)| Action::Torn { keep, then });
    let action = prop_oneof![
        delays().prop_map(Action::Delay),
        one_of(&ERRORS).prop_map(Action::Error),
        one_of(&HANG).prop_map(Action::Hang),
        torn,
    ];
    let range = (sizes(), sizes())
        .prop_map(|(a, b)| a.min(b)..a.max(b))
        .prop_filter("a range holds something", |range| !range.is_empty());
    let when = (
        prop::sample::subsequence(Kind::ALL.to_vec(), 1..=5),
        prop::option::of(range),
        any::<u64>(),
        1..=u64::MAX,
        1..=1_000_000u32,
        prop::option::of(1..=u64::MAX),
    );
    (action, when).prop_map(
        |(action, (kinds, range, after, every, chance, times))| Rule {
            action,
            when: When {
                ops: match action {
                    Action::Torn { .. } => Ops::WRITE,
                    _ => kinds.into_iter().collect(),
                },
                range,
                after,
                every: NonZeroU64::new(every).unwrap(),
                chance: Chance::new(chance).unwrap(),
                times,
            },
        },
    )
}

/// Any faults over a disk of that kind.
pub fn over(on: impl Strategy<Value = Spec>) -> impl Strategy<Value = Spec> {
    let rules = prop::collection::vec(some_rules(), 0..4);
    let log = prop::option::of("[a-z/= ]{1,9}".prop_map(Into::into));
    let faults = (log, rules).prop_filter("a rule, or a log", |(log, rules)| {
        log.is_some() || !rules.is_empty()
    });
    (any::<u64>(), faults, on).prop_map(|(seed, (log, rules), on)| Spec::Fault {
        faults: Faults { seed, log, rules },
        on: Box::new(on),
    })
}
