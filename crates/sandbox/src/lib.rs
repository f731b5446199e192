//! What the threads of a daemon may still do once it serves.
//!
//! Three things of the kernel's, none of which asks for privileges: `no_new_privs`, so that no program that is
//! started gains rights; Landlock, which puts files, ports and other processes out of reach; and
//! seccomp, which lets each [kind of thread](pollux_threads::Kind) make the system calls that it makes
//! anyway.
//!
//! A thread is confined as it is born, and the main thread once all that has to be opened is open. Threads share
//! their memory: what one may do, code that has taken over another can make it do. So what protects the
//! machine from this process is all of them together; that each has its own filter keeps faults small and
//! shows them early.

mod calls;
mod cluster;
mod files;
mod filter;
mod plan;
mod violation;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use landlock::{RulesetCreated, RulesetError};
use pollux_threads::Kind;
use seccompiler::{BackendError, BpfProgram, apply_filter};

use crate::files::Landlock;
pub use crate::plan::{Level, Needs, Plan};

/// Why there is no sandbox.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the messages say they are")]
pub enum SandboxError {
    /// It was required.
    #[error("--sandbox require: {missing}; `--sandbox on` goes without")]
    Incomplete { missing: String },
    /// The filters make no sense to their compiler, on this architecture for instance.
    #[error("cannot make the filters of the sandbox; `--sandbox off` goes without")]
    Filters(#[from] BackendError),
    /// The rules were refused.
    #[error("cannot make the sandbox's rules for files; `--sandbox off` goes without")]
    Rules(#[from] RulesetError),
    /// The machine lacks something.
    #[error("cannot {doing} for the sandbox")]
    Machine {
        doing: &'static str,
        source: io::Error,
    },
    /// What worked for one thread did not for another.
    #[error("cannot confine a thread of the kind `{}`: {why}", .kind.name())]
    Thread { kind: Kind, why: String },
}

/// A sandbox that threads enter as they are born.
#[derive(Debug)]
pub struct Sandbox(Option<Arc<Cage>>);

#[derive(Debug)]
struct Cage {
    ruleset: RulesetCreated,
    /// For the threads of a cluster's library.
    of_cluster: RulesetCreated,
    /// For the thread that opens disks.
    of_opener: RulesetCreated,
    /// For the thread that keeps the list of them.
    of_keeper: RulesetCreated,
    /// Empty where the kernel has no seccomp.
    filters: HashMap<Kind, BpfProgram>,
    refusing: Vec<BpfProgram>,
    /// What holds for the main thread, for the log.
    in_force: String,
    /// Is the main thread inside? Then others have inherited what holds for all.
    entered: AtomicBool,
}

/// What a thread has met on its way in.
struct Entered {
    landlock: Landlock,
    seccomp: Result<(), seccompiler::Error>,
}

impl Sandbox {
    /// Finds out what the kernel can do, says in the log what it cannot, and has all threads confined that are born
    /// from now on. Called once in a process, before anything is opened that starts threads.
    ///
    /// # Errors
    ///
    /// When more was required than the kernel can do.
    pub fn prepare(level: Level, plan: &Plan) -> Result<Self, SandboxError> {
        if level == Level::Off {
            tracing::warn!("no sandbox, as asked (--sandbox off)");
            return Ok(Self(None));
        }
        violation::handle().map_err(machine("handle SIGSYS"))?;
        let mut cage = Cage::new(plan)?;
        // A thread tries it, so that it is known before anything depends on it, and this one stays free.
        let tried = std::thread::scope(|scope| {
            let trial = std::thread::Builder::new().name("sandbox-trial".to_owned());
            let trial = trial.spawn_scoped(scope, || cage.confine(Kind::Main, Kind::Main));
            let trial = trial.map_err(machine("start a thread"))?;
            trial.join().expect("entering does not panic")
        })?;
        let missing = tried.missing();
        if level == Level::Require && !missing.is_empty() {
            let missing = missing.join("; ");
            return Err(SandboxError::Incomplete { missing });
        }
        if tried.seccomp.is_err() {
            cage.filters.clear();
            cage.refusing.clear();
        }
        cage.in_force = tried.in_force().join("; ");
        for what in missing {
            tracing::warn!("sandbox without {what}");
        }
        let cage = Arc::new(cage);
        let births = Arc::clone(&cage);
        pollux_threads::tell(move |parent, kind| {
            if let Err(error) = births.admit(parent, kind) {
                tracing::error!("{error}");
                std::process::abort();
            }
        });
        Ok(Self(Some(cage)))
    }

    /// Confines the calling thread, the process's main one, and says by what in the log: what it could open, it has
    /// opened. When this returns, all threads are inside.
    ///
    /// # Errors
    ///
    /// When the kernel refuses what it took before.
    pub fn enter(&self) -> Result<(), SandboxError> {
        let Some(cage) = &self.0 else { return Ok(()) };
        cage.admit(Kind::Main, Kind::Main)?;
        // Some were started by disks, inherited nothing, and may be on their way in still.
        pollux_threads::settle();
        cage.entered.store(true, Ordering::SeqCst);
        tracing::info!("sandbox in force: {}", cage.in_force);
        Ok(())
    }
}

impl Cage {
    fn new(plan: &Plan) -> Result<Self, SandboxError> {
        let program = |kind| {
            let allowed = calls::allowed(kind, plan.needs);
            let program = match kind {
                Kind::Cluster => filter::permitting(&allowed),
                _ => filter::only(&allowed),
            };
            Ok((kind, program?))
        };
        let filters: Result<_, BackendError> = Kind::ALL.into_iter().map(program).collect();
        Ok(Self {
            ruleset: files::ruleset(plan)?,
            of_cluster: files::of_cluster(plan)?,
            of_opener: files::ruleset_of_opener(plan)?,
            of_keeper: files::ruleset_of_keeper(plan)?,
            filters: filters?,
            refusing: filter::refusing()?,
            in_force: String::new(),
            entered: AtomicBool::new(false),
        })
    }

    /// Confines the calling thread, as the trial was.
    fn admit(&self, parent: Kind, kind: Kind) -> Result<(), SandboxError> {
        let Entered { seccomp, .. } = self.confine(parent, kind)?;
        seccomp.map_err(|error| SandboxError::Thread {
            kind,
            why: error.to_string(),
        })
    }

    fn confine(&self, parent: Kind, kind: Kind) -> Result<Entered, SandboxError> {
        let mut landlock = Landlock::Inherited;
        let mut programs = Vec::new();
        // Once the main thread is inside, others inherit it: but not from the thread that opens disks.
        if !self.entered.load(Ordering::SeqCst) || parent == Kind::Opener {
            // There is none where there is no seccomp.
            let but_for_opening = self.refusing.get(..1).unwrap_or_default();
            let (ruleset, refusing) = match kind {
                // They open files.
                Kind::Cluster => (&self.of_cluster, but_for_opening),
                Kind::Opener => (&self.of_opener, but_for_opening),
                Kind::Keeper => (&self.of_keeper, but_for_opening),
                _ => (&self.ruleset, &self.refusing[..]),
            };
            let ruleset = ruleset.try_clone();
            let ruleset = ruleset.map_err(machine("copy the rules for files"))?;
            landlock = ruleset.restrict_self()?.into();
            programs.extend(refusing);
        }
        programs.extend(self.filters.get(&kind));
        let seccomp = programs
            .into_iter()
            .try_for_each(|program| apply_filter(program));
        Ok(Entered { landlock, seccomp })
    }
}

impl Entered {
    fn in_force(&self) -> Vec<String> {
        let mut parts = vec!["no_new_privs".to_owned()];
        if let Landlock::InForce { abi } = self.landlock {
            parts.push(format!("Landlock version {abi} ({})", Landlock::reach(abi)));
        }
        if self.seccomp.is_ok() {
            parts.push("seccomp (system calls, by kind of thread)".to_owned());
        }
        parts
    }

    fn missing(&self) -> Vec<String> {
        let mut parts = Vec::new();
        if let Landlock::Missing { why } = self.landlock {
            parts.push(format!("Landlock: {why}"));
        }
        if let Err(error) = &self.seccomp {
            parts.push(format!("seccomp: {error}"));
        }
        parts
    }
}

fn machine(doing: &'static str) -> impl FnOnce(io::Error) -> SandboxError {
    move |source| SandboxError::Machine { doing, source }
}
