//! The page of every refusal code, compiled in: the command line explains with them, the server serves them where a
//! problem's `type` points, and their summaries are the problems' titles.

use countersign_kernel::Code;

macro_rules! pages {
    ($($code:ident = $name:literal,)*) => {
        /// The page of a code. A code without a page does not compile.
        pub const fn page(code: Code) -> &'static str {
            match code {
                $(Code::$code => include_str!(concat!(
                    env!("CARGO_MANIFEST_DIR"), "/../../docs/errors/", $name, ".md"
                )),)*
            }
        }
    };
}

pages! {
    InvalidRequest = "invalid-request",
    InvalidQuery = "invalid-query",
    InvalidDeclaration = "invalid-declaration",
    InvalidDefinition = "invalid-definition",
    InvalidCredential = "invalid-credential",
    PermissionDenied = "permission-denied",
    Unauthorized = "unauthorized",
    NotKnown = "not-known",
    Terminal = "terminal",
    InvalidTransition = "invalid-transition",
    NotGuarded = "not-guarded",
    GateNotAvailable = "gate-not-available",
    AlreadyOpen = "already-open",
    GateNotOpen = "gate-not-open",
    GateNotCleared = "gate-not-cleared",
    NotPending = "not-pending",
    NotActive = "not-active",
    AlreadyReleased = "already-released",
    NotEligible = "not-eligible",
    UnderLegalHold = "under-legal-hold",
    LeaseLost = "lease-lost",
    AlreadyTerminal = "already-terminal",
    TransitionRefusedByGuard = "transition_refused_by_guard",
    Conflict = "conflict",
    NothingToSeal = "nothing-to-seal",
    TooLarge = "too-large",
    Overloaded = "overloaded",
    RecordingFailure = "recording-failure",
}

/// The first line under the page's title.
pub fn summary(code: Code) -> &'static str {
    page(code).lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#')).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_own_page() {
        for code in Code::ALL {
            assert_eq!(page(*code).lines().next(), Some(format!("# {code}").as_str()));
            assert!(summary(*code).ends_with('.'), "{code}: {}", summary(*code));
        }
    }
}
