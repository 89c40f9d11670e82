//! `--explain`: adds the control arms that split effects into reach and placement.

use host::Host;
use host::admit::{Privilege, Terms};
use study::comparison::{Design, Khugepaged};

use crate::failure::Failure;

/// Adds to the design, for each policy, a control arm with the policy's frames and split leaves. As root, also stops
/// khugepaged, which would collapse the split memory again.
///
/// # Errors
/// There is nothing to split, or the baseline has large pages itself.
pub fn explained(mut design: Design, host: &Host) -> Result<Design, Failure> {
    if let Some(why) = design.explain_obstacle() {
        return Err(Failure::Input(format!("--explain: {why}")));
    }
    hold_khugepaged(&mut design, host);
    Ok(design.with_frames())
}

/// Lets khugepaged sleep during the comparison, if this user may do that.
pub fn hold_khugepaged(design: &mut Design, host: &Host) {
    let terms = Terms::of_this_process(host, tracer::try_tracing);
    if terms.privilege == Privilege::Root && host::admit::khugepaged_settings(host, &terms).is_ok() {
        design.khugepaged = Khugepaged::Off;
    }
}
