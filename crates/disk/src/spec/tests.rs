use proptest::prelude::*;

use super::options::{BUFFERS, CACHES, ENGINES, INLINE};
use super::*;
use crate::file::{Buffers, Cache, Engine, Format, Inline, Locked};
use crate::qcow2::Backing;

fn parse(spec: &str) -> Result<Spec, SpecError> {
    spec.parse()
}

#[test]
fn every_kind_is_read() {
    let size = Size(2 << 30);
    assert_eq!(parse("null:size=2G"), Ok(Spec::Null { size }));
    assert_eq!(parse("memory:size=2048M"), Ok(Spec::Memory { size }));
    let file = |path: &str, cache: Cache| {
        Ok(Spec::File {
            path: path.into(),
            settings: cache.into(),
        })
    };
    assert_eq!(parse("file:path=a.img"), file("a.img", Cache::Writeback));
    assert_eq!(
        parse("file:path=a,engine=threads,inline=off,lock=running"),
        Ok(Spec::File {
            path: "a".into(),
            settings: Settings {
                engine: Engine::Threads,
                inline: Inline::Off,
                lock: Locked::Running,
                ..Settings::default()
            },
        })
    );
    assert_eq!(
        parse("file:cache=none,path=/dev/sd:b=c"),
        file("/dev/sd:b=c", Cache::None)
    );
    assert_eq!(
        parse("file:path=a,,b,,,,c,cache=writethrough"),
        file("a,b,,c", Cache::Writethrough)
    );
    assert_eq!(
        parse("qcow2:path=a.qcow2,backing=none,cache=none"),
        Ok(Spec::Qcow2 {
            path: "a.qcow2".into(),
            settings: qcow2::Settings {
                file: Cache::None.into(),
                backing: Backing::None,
            },
        })
    );
    let elsewhere = parse("qcow2:path=a.qcow2,backing=/srv/a,,b.raw").unwrap();
    assert!(
        matches!(&elsewhere, Spec::Qcow2 { settings, .. } if settings.backing == Backing::At("/srv/a,b.raw".into()))
    );
    let nowhere = parse("qcow2:path=a.qcow2,backing=").unwrap_err();
    assert!(
        nowhere.to_string().contains("`named`, `none` or the path"),
        "{nowhere}"
    );
}

#[test]
fn disks_of_other_daemons_are_read_and_not_opened_here() {
    let path: PathBuf = "/run/d,1.sock".into();
    let within = |ms| Some(Duration::from_millis(ms));
    for (options, queues, reconnect) in [
        ("", None, None),
        (",queues=4", Some(4), None),
        (",reconnect=1500ms", None, within(1500)),
        (",queues=1,reconnect=300s", Some(1), within(300_000)),
    ] {
        let text = &format!("vhost-user:path=/run/d,,1.sock{options}");
        let spec = Spec::VhostUser(VhostUser {
            path: path.clone(),
            queues,
            reconnect,
        });
        assert_eq!(parse(text).as_ref(), Ok(&spec));
        assert_eq!(spec.to_string(), *text);
        let refused = spec.open(&Options::default()).map(|_| ()).unwrap_err();
        assert!(matches!(refused, OpenError::NoDriver { .. }), "{refused}");
    }
    for bad in ["queues=0", "queues=x", "queues=65536"] {
        let error = parse(&format!("vhost-user:path=a,{bad}")).unwrap_err();
        assert!(error.to_string().contains("from 1 to 65535"), "{error}");
    }
    assert_eq!(
        parse("vhost-user:path=a,reconnect=5m"),
        parse("vhost-user:path=a,reconnect=300s")
    );
    for bad in ["0s", "30", "s", "1.5s", "", "9999999999h"] {
        let error = parse(&format!("vhost-user:path=a,reconnect={bad}")).unwrap_err();
        assert!(error.to_string().contains("use a time such as"), "{error}");
    }
}

#[test]
fn every_mistake_is_named_with_its_remedy() {
    let table = [
        ("", "no disk is described; write `null:size=2G`"),
        (
            "memory",
            "`size` is missing; write for example `memory:size=1G`",
        ),
        (
            "disk.img",
            "`disk.img` does not begin with a kind of disk and a colon; for a file write `file:path=disk.img`, else",
        ),
        ("disk:x", "no disk of the kind `disk`; write `null:size=2G`"),
        (
            "null:",
            "`size` is missing; write for example `null:size=2G`",
        ),
        ("memory:size=1G,", "`` is not KEY=VALUE; write for example"),
        ("memory:1G", "`1G` is not KEY=VALUE"),
        (
            "memory:size=",
            "`size` is missing; write for example `memory:size=1G`",
        ),
        (
            "memory:size=1X",
            "`size=1X` is not a size; write for example `memory:size=1G`",
        ),
        ("memory:size=1G,size=1G", "`size` is given twice"),
        (
            "null:size=1G,color=red",
            "the kind `null` has no `color`; it has size: write for example",
        ),
        ("memory:sise=1G", "the kind `memory` has no `sise`"),
        ("file:cache=none", "`path` is missing"),
        ("file:path=a,b", "`b` is not KEY=VALUE"),
        (
            "file:path=a,cache=on",
            "no `cache=on`; use `writeback`, `none` or `writethrough`",
        ),
        (
            "file:path=a,inline=yes",
            "no `inline=yes`; use `on` or `off`",
        ),
        (
            "file:path=a,engine=threads,buffers=registered",
            "`buffers=registered` needs `engine=io_uring`",
        ),
    ];
    for (spec, expected) in table {
        let told = parse(spec).unwrap_err().to_string();
        assert!(told.contains(expected), "{spec}: {told}");
    }
}

#[test]
fn a_spec_opens_the_disk_it_describes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a,b.img");
    std::fs::write(&path, [7; 8192]).unwrap();
    let path = path.to_str().unwrap().replace(',', ",,");
    let options = Options {
        read_only: true,
        block_size: Some(4096),
        ..Options::default()
    };
    for spec in [
        "null:size=8K",
        "memory:size=8K",
        &format!("file:path={path}"),
        "fault:error=EIO,on=memory:size=8K",
    ] {
        let disk = parse(spec).unwrap().open(&options).unwrap();
        let geometry = disk.geometry();
        assert_eq!((geometry.bytes, geometry.block), (8192, 4096), "{spec}");
        assert_eq!(geometry.access, crate::Access::ReadOnly);
    }
    let odd = parse("memory:size=8193").unwrap().open(&options);
    assert!(matches!(odd, Err(OpenError::PartialBlock { .. })));
    let huge = parse("memory:size=4194304T").unwrap();
    assert!(matches!(
        huge.open(&Options::default()),
        Err(OpenError::NoMemory { .. })
    ));
}

fn specs() -> impl Strategy<Value = Spec> {
    let low = || prop_oneof![plain_specs(), fault::tests::over(plain_specs())].boxed();
    let stacked = stack::tests::over(low()).boxed();
    let over = stack::tests::over(prop_oneof![low(), stacked.clone()].boxed());
    prop_oneof![low(), stacked, fault::tests::over(over)]
}

fn plain_specs() -> impl Strategy<Value = Spec> {
    let sizes = || (1..=i64::MAX.cast_unsigned()).prop_map(Size);
    let settings = || {
        let cache = prop::sample::select(CACHES.map(|(_, cache)| cache).to_vec());
        let engine = prop::sample::select(ENGINES.map(|(_, engine)| engine).to_vec());
        let inline = prop::sample::select(INLINE.map(|(_, inline)| inline).to_vec());
        let buffers = prop::sample::select(BUFFERS.map(|(_, buffers)| buffers).to_vec());
        let lock = prop::sample::select(LOCKS.map(|(_, lock)| lock).to_vec());
        let format = prop::sample::select(FORMATS.map(|(_, format)| format).to_vec());
        let all = (cache, engine, inline, buffers, lock, format);
        all.prop_map(|(cache, engine, inline, buffers, lock, format)| Settings {
            cache,
            engine,
            inline,
            // Threads register nothing.
            buffers: match engine {
                Engine::Threads => Buffers::Plain,
                _ => buffers,
            },
            lock,
            format,
        })
    };
    let file = |(path, settings): (String, Settings)| Spec::File {
        path: path.into(),
        settings,
    };
    let backing = || {
        prop_oneof![
            Just(Backing::Named),
            Just(Backing::None),
            "/.+".prop_map(|path| Backing::At(path.into())),
        ]
    };
    let image = |(path, settings, backing): (String, Settings, Backing)| Spec::Qcow2 {
        path: path.into(),
        settings: qcow2::Settings {
            file: Settings {
                format: Format::Probe,
                ..settings
            },
            backing,
        },
    };
    prop_oneof![
        (".+", settings(), backing()).prop_map(image),
        sizes().prop_map(|size| Spec::Null { size }),
        sizes().prop_map(|size| Spec::Memory { size }),
        (".+", settings()).prop_map(file),
        (r"[,=:a+;\[\]\\ ]+", settings()).prop_map(file),
    ]
}

proptest! {
    #[test]
    fn what_is_printed_is_read_back(spec in specs()) {
        prop_assert_eq!(parse(&spec.to_string()), Ok(spec));
    }

    #[test]
    fn no_text_makes_it_panic(text in any::<String>(), options in "[a-z=,:0-9KMGT]*", lines in r"[a:0-9 ;+,\[\]\\]*") {
        let faults = format!("fault:error={options},on=null:size=1");
        let texts = [
            format!("file:{options}"),
            format!("fault:{options}"),
            format!("linear:{lines}"),
            format!("striped:chunk=4K:{lines}"),
            format!("table:{lines}"),
            faults,
            options,
            text,
        ];
        for text in texts {
            match parse(&text) {
                Ok(spec) => prop_assert_eq!(parse(&spec.to_string()), Ok(spec)),
                Err(told) => prop_assert!(!told.to_string().is_empty()),
            }
        }
    }
}
