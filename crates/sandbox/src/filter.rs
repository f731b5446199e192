//! Rules become programs for the kernel.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule,
};

use crate::calls::{REFUSED, Rule, When, errno};

/// Lets only `rules` pass. Anything else is a [violation](crate::violation).
pub fn only<'a>(rules: impl IntoIterator<Item = &'a Rule>) -> Result<BpfProgram, BackendError> {
    compile(rules, SeccompAction::Trap, SeccompAction::Allow)
}

/// Lets only `rules` pass, and says to anything else that it is not permitted: to a library that may have been updated
/// since, and goes on without.
pub fn permitting<'a>(
    rules: impl IntoIterator<Item = &'a Rule>,
) -> Result<BpfProgram, BackendError> {
    let refuse = SeccompAction::Errno(errno(libc::EPERM));
    compile(rules, refuse, SeccompAction::Allow)
}

/// Answers with an error what is to be refused and lets everything else pass: a program for each error.
pub fn refusing() -> Result<Vec<BpfProgram>, BackendError> {
    let programs = REFUSED
        .iter()
        .map(|(error, rules)| compile(*rules, SeccompAction::Allow, SeccompAction::Errno(*error)));
    programs.collect()
}

fn compile<'a>(
    rules: impl IntoIterator<Item = &'a Rule>,
    otherwise: SeccompAction,
    then: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let mut calls: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let mut whatever = Vec::new();
    for rule in rules {
        let ways = calls.entry(rule.call).or_default();
        let conditions = conditions(rule.when)?;
        if conditions.is_empty() {
            whatever.push(rule.call);
        } else {
            ways.push(SeccompRule::new(conditions)?);
        }
    }
    // No condition at all is what stands for "whatever the arguments are".
    for call in whatever {
        calls.entry(call).or_default().clear();
    }
    let here = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(calls, otherwise, then, here)?.try_into()
}

/// All of these hold; none: whatever the arguments are.
fn conditions(when: When) -> Result<Vec<SeccompCondition>, BackendError> {
    let holds = |argument, operator, value: u32| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value.into())
    };
    let masked = |bits: u32| SeccompCmpOp::MaskedEq(bits.into());
    let conditions = match when {
        When::Always => vec![],
        When::Is(argument, value) => vec![holds(argument, SeccompCmpOp::Eq, value)],
        When::IsThisProcess(argument) => {
            vec![holds(argument, SeccompCmpOp::Eq, std::process::id())]
        }
        When::NoneOf(argument, values) => {
            let differs = |value: &u32| holds(argument, SeccompCmpOp::Ne, *value);
            values.iter().map(differs).collect()
        }
        When::Has(argument, bits) => vec![holds(argument, masked(bits), bits)],
        When::Lacks(argument, bits) => vec![holds(argument, masked(bits), 0)],
    };
    conditions.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use pollux_threads::Kind;

    use super::*;
    use crate::calls::allowed;
    use crate::plan::Needs;

    #[test]
    fn every_kind_has_a_program_that_the_kernel_takes() {
        let all = Needs {
            files: true,
            images: true,
            io_uring: true,
            driver: true,
            control: true,
            cluster: true,
            opener: true,
        };
        for kind in Kind::ALL {
            let program = only(&allowed(kind, all)).unwrap();
            // The kernel's BPF_MAXINSNS.
            assert!((10..=4096).contains(&program.len()), "{kind:?}");
        }
    }
}
