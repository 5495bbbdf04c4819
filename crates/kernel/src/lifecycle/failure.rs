//! Failure classes: what kind of failure it was, and what follows where a step does not say otherwise.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FailureCategory {
    Transient,
    AgentError,
    Timeout,
    Validation,
    External,
    Governance,
}

/// What follows a failure of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Response {
    /// Try again, as the step's retry policy says.
    Retry,
    /// Skip the step and go on.
    Skip,
    /// The step has failed: its `onFailure` decides.
    Fail,
    /// The step is blocked until somebody with authority clears it.
    Block,
}

pub struct FailureClass {
    pub category: FailureCategory,
    pub default_response: Response,
    /// Whether a step may choose another response (`errors:`).
    pub configurable: bool,
}

impl FailureCategory {
    pub const REGISTRY: &'static [FailureClass] = &[
        FailureClass { category: Self::Transient, default_response: Response::Retry, configurable: false },
        FailureClass { category: Self::AgentError, default_response: Response::Fail, configurable: true },
        FailureClass { category: Self::Timeout, default_response: Response::Fail, configurable: false },
        FailureClass { category: Self::Validation, default_response: Response::Fail, configurable: false },
        FailureClass { category: Self::External, default_response: Response::Retry, configurable: true },
        FailureClass { category: Self::Governance, default_response: Response::Block, configurable: false },
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            FailureCategory::Transient => "transient",
            FailureCategory::AgentError => "agent_error",
            FailureCategory::Timeout => "timeout",
            FailureCategory::Validation => "validation",
            FailureCategory::External => "external",
            FailureCategory::Governance => "governance",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::REGISTRY.iter().map(|class| class.category).find(|category| category.as_str() == text)
    }

    pub fn class(self) -> &'static FailureClass {
        // The registry names every category, in the order of the enum.
        &Self::REGISTRY[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_category_finds_its_own_class() {
        for class in FailureCategory::REGISTRY {
            assert_eq!(class.category.class().category, class.category);
            assert_eq!(FailureCategory::parse(class.category.as_str()), Some(class.category));
        }
        assert_eq!(FailureCategory::REGISTRY.len(), 6);
    }
}
