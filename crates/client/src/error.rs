//! What can go wrong between a caller and the server, in a form that tells the caller what to do.

use crate::wire::Problem;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server understood the request and said no. This is a normal answer.
    #[error("{}: {}", .0.code, .0.detail)]
    Refused(Box<Problem>),

    #[error("no server answers at {url}: start one with `countersign serve`, or name another address")]
    Unreachable { url: String, source: reqwest::Error },

    /// The request was sent and no answer came. It may have been carried out.
    #[error(
        "the server at {url} took the request but did not answer: look whether it was carried out before repeating it"
    )]
    NoAnswer { url: String, source: reqwest::Error },

    /// Something answered, but not as this contract says.
    #[error("unexpected answer from {url} (status {status}): {detail}")]
    Unexpected { url: String, status: u16, detail: String },

    /// The request could not even be composed.
    #[error("{0}")]
    Unusable(String),
}

impl Error {
    /// The refusal, if this is one.
    pub fn refusal(&self) -> Option<&Problem> {
        match self {
            Error::Refused(problem) => Some(problem),
            Error::Unreachable { .. } | Error::NoAnswer { .. } | Error::Unexpected { .. } | Error::Unusable(_) => None,
        }
    }

    /// The refusal's code, if this is a refusal.
    pub fn code(&self) -> Option<&str> {
        self.refusal().map(|problem| problem.code.as_str())
    }
}
