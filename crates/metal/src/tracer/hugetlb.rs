//! x
use super::calls::Scene;
use super::paused::*;
use super::tasks::Space;
/// x
#[derive(Clone, Debug, Default)]
pub struct HugeMap;
/// x
pub fn serve(_scene: &mut Scene, _space: &mut Space, paused: Paused) -> Result<(), Lost> {
    paused.pass()
}
