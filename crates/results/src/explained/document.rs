//! The parts of an effect, in JSON.

use serde_json::{Value, json};
use study::comparison::Comparison;
use study::control::Role;
use study::stats::{Parts, Share};

use super::scatter_of;

/// The object of a compared arm with `explained` and `frame_blocks`.
pub(crate) fn of_arm(comparison: &Comparison, arm: usize, mut object: Value) -> Value {
    let analysis = comparison.analysis.as_ref().and_then(|analysis| analysis.arms.get(arm));
    object["explained"] = analysis.and_then(|analysis| analysis.parts.as_ref()).map(parts).into();
    object["frame_blocks"] = frame_blocks(comparison, arm);
    object
}

/// The object of a control arm with `frames_of` and `frame_blocks`.
pub(crate) fn of_control(comparison: &Comparison, arm: usize, mut object: Value) -> Value {
    object["frames_of"] = match comparison.design.arms[arm].role {
        Role::Frames { of } => of.into(),
        _ => Value::Null,
    };
    object["frame_blocks"] = frame_blocks(comparison, arm);
    object
}

/// The change of user time, its parts, and that of system time, as shares of the baseline's.
fn parts(parts: &Parts) -> Value {
    let share = |share: Share| json!({ "ratio": share.ratio, "low_ratio": share.low, "high_ratio": share.high });
    json!({
        "blocks": parts.blocks,
        "user_time": share(parts.user),
        "reach": parts.reach.map(share),
        "placement": parts.placement.map(share),
        "system_time": parts.system.map(share),
    })
}

/// Medians of the blocks of PMD size that hold the memory, and of the fewest that could.
fn frame_blocks(comparison: &Comparison, arm: usize) -> Value {
    let scatter = scatter_of(comparison, arm);
    scatter.map_or(Value::Null, |[blocks, least]| json!({ "median": blocks, "least": least }))
}
