//! `compare --explain` in JSON: the parts of an effect.

use serde_json::{Value, json};
use study::comparison::Comparison;
use study::control::Role;
use study::stats::{Parts, Share};

use super::scatter_of;

/// Adds the fields `explained` and `frame_blocks` to the object of a compared arm.
pub(crate) fn of_arm(comparison: &Comparison, arm: usize, mut object: Value) -> Value {
    let analysis = comparison.analysis.as_ref().and_then(|analysis| analysis.arms.get(arm));
    object["explained"] = analysis.and_then(|analysis| analysis.parts.as_ref()).map(parts).into();
    object["frame_blocks"] = frame_blocks(comparison, arm);
    object
}

/// Adds the fields `frames_of` and `frame_blocks` to the object of a control arm.
pub(crate) fn of_control(comparison: &Comparison, arm: usize, mut object: Value) -> Value {
    object["frames_of"] = match comparison.design.arms[arm].role {
        Role::Frames { of } => of.into(),
        _ => Value::Null,
    };
    object["frame_blocks"] = frame_blocks(comparison, arm);
    object
}

/// The change of user time, its parts, and the change of system time, as shares of the baseline's user time.
pub(crate) fn parts(parts: &Parts) -> Value {
    let share = |share: Share| json!({ "ratio": share.ratio, "low_ratio": share.low, "high_ratio": share.high });
    json!({
        "blocks": parts.blocks,
        "user_time": share(parts.user),
        "reach": parts.reach.map(share),
        "placement": parts.placement.map(share),
        "system_time": parts.system.map(share),
    })
}

/// Medians over trials: the blocks of PMD size that hold the memory, and the fewest that could hold it.
fn frame_blocks(comparison: &Comparison, arm: usize) -> Value {
    let scatter = scatter_of(comparison, arm);
    scatter.map_or(Value::Null, |[blocks, least]| json!({ "median": blocks, "least": least }))
}
