//! `compare --shares` in JSON: how much of the memory brings how much of the gain.

use serde_json::{Value, json};
use study::comparison::Comparison;
use study::control::Role;
use study::shares::WindowOrder;
use study::stats::{Curve, CurvePoint, LinePoint, Share};

/// Adds the field `shares` to the object of a compared arm.
pub(crate) fn of_arm(comparison: &Comparison, arm: usize, mut object: Value) -> Value {
    let analysis = comparison.analysis.as_ref().and_then(|analysis| analysis.arms.get(arm));
    object["shares"] = analysis.and_then(|analysis| analysis.curve.as_ref()).map(curve).into();
    object
}

/// Adds the field `share_of` to the object of a control arm.
pub(crate) fn of_control(comparison: &Comparison, arm: usize, mut object: Value) -> Value {
    object["share_of"] = match comparison.design.arms[arm].role {
        Role::Share { of, share, order } => {
            let (order, hotter_half) = self::order(order);
            json!({ "arm": of, "share": share, "order": order, "hotter_half_ratio": hotter_half })
        }
        _ => Value::Null,
    };
    object
}

/// The name of the order in which windows become large. For the hottest first, also the share of accesses to the hotter
/// half of the windows.
fn order(order: WindowOrder) -> (&'static str, Option<f64>) {
    match order {
        WindowOrder::Growing => ("growing", None),
        WindowOrder::Random => ("random", None),
        WindowOrder::Hottest { half_percent } => ("hottest", Some(f64::from(half_percent) / 100.0)),
    }
}

fn curve(curve: &Curve) -> Value {
    json!({
        "blocks": curve.blocks,
        "points": curve.points.iter().map(point).collect::<Vec<_>>(),
        "line": curve.line.iter().map(line_point).collect::<Vec<_>>(),
        "nine_tenths": curve.enough,
    })
}

fn share(share: Share) -> Value {
    json!({ "ratio": share.ratio, "low_ratio": share.low, "high_ratio": share.high })
}

fn point(point: &CurvePoint) -> Value {
    json!({
        "arm": point.arm,
        "asked_ratio": point.asked_ratio,
        "seen_ratio": point.seen_ratio,
        "is_as_asked": point.is_as_asked,
        "change": share(point.change),
        "gain_share": point.gain.map(share),
    })
}

fn line_point(point: &LinePoint) -> Value {
    json!({ "share_ratio": point.share_ratio, "change": share(point.change) })
}
