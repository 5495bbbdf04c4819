//! What a page reads of a run: all its steps, or those that changed (ADR 41). Shapes only.

use super::{RunStepView, RunView};
use crate::rows::RecordRow;
use countersign_kernel::lifecycle::StepCode;
use countersign_kernel::plan::StepSeq;
use std::sync::Arc;

/// What is read of a run to draw it, all of one state.
#[derive(Clone, Debug)]
pub struct RunCells {
    pub run: RunView,
    /// Without outputs, errors and data of events.
    pub steps: Vec<RunStepView>,
    /// Every step was read.
    pub full: bool,
    /// What the choice was made from; nothing where none was made.
    pub chosen_from: Option<(Vec<RecordRow>, Vec<HeldStep>)>,
}

/// A step that waits, is blocked or has failed, or shows the colour of its child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldStep {
    pub step_seq: StepSeq,
    pub state: StepCode,
    pub has_child: bool,
}

/// Which steps a reader needs that knows the run as of `since`; `None`: all of them. It is asked within the snapshot, with the
/// run, its records since then and the steps that hold it up.
pub type Choose = Arc<dyn Fn(&RunView, &[RecordRow], &[HeldStep]) -> Option<Vec<StepSeq>> + Send + Sync>;

/// What changed in a run since one of its records.
#[derive(Clone)]
pub struct Since {
    pub sequence: u64,
    /// More records than this are not looked through: then all steps are read.
    pub records: usize,
    pub choose: Choose,
}
