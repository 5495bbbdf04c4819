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

/// Where nothing is known but that the server failed. It refuses nothing, so it is no [`Code`].
pub const INTERNAL_ERROR: &str = "internal-error";
const INTERNAL_PAGE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors/internal-error.md"));

/// Everything that an answer can be called, with its page.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    Code::ALL.iter().map(|code| (code.as_str(), page(*code))).chain([(INTERNAL_ERROR, INTERNAL_PAGE)])
}

pub fn find(name: &str) -> Option<(&'static str, &'static str)> {
    all().find(|(code, _)| *code == name)
}

/// The first line under the page's title.
pub fn summary(code: Code) -> &'static str {
    summary_of(page(code))
}

pub fn summary_of(page: &'static str) -> &'static str {
    page.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#')).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_own_page() {
        for (code, page) in all() {
            assert_eq!(page.lines().next(), Some(format!("# {code}").as_str()));
            assert!(summary_of(page).ends_with('.'), "{code}: {}", summary_of(page));
        }
    }
}
