//! Descriptions of disks: whatever parses is printed so that it parses to the same, and whatever does not
//! is answered with an example that does.

use pollux_disk::Spec;
use pollux_disk::spec::SpecError;

/// One description.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match text.parse::<Spec>() {
        Ok(spec) => {
            let printed = spec.to_string();
            let again = printed.parse::<Spec>();
            assert_eq!(again.as_ref(), Ok(&spec), "{printed:?} is what was parsed");
        }
        Err(error) => {
            let said = error.to_string();
            assert!(said.contains('`'), "{said:?} names what is wrong");
            let (SpecError::NoValue { example, .. }
            | SpecError::UnknownKey { example, .. }
            | SpecError::Missing { example, .. }
            | SpecError::Size { example, .. }) = error
            else {
                return;
            };
            assert!(said.contains(example), "{said:?} shows the example");
            let parsed = example.parse::<Spec>();
            parsed.unwrap_or_else(|error| panic!("{example:?} is no example: {error}"));
        }
    }
}
