//! Refusals as `application/problem+json` (RFC 9457): status, headers and title of each code.

use crate::pages::{INTERNAL_ERROR, summary};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use countersign_client::wire;
use countersign_kernel::refusal::{Code, Refusal};
use serde::Serialize;

pub const PROBLEM_JSON: &str = "application/problem+json";

/// What a request can hold is repeated in the answer, up to here.
const MAX_DETAIL_CHARS: usize = 1000;
const MAX_FIELD_CHARS: usize = 300;

/// A refusal on its way out.
#[derive(Clone, Debug)]
pub struct Problem(Box<wire::Problem>);

impl Problem {
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Problem::from(Refusal::new(code, detail))
    }

    pub fn invalid_request(detail: impl Into<String>) -> Self {
        Problem::new(Code::InvalidRequest, detail)
    }

    /// A fault of the query, at this parameter.
    pub fn invalid_query(field: &str, detail: impl Into<String>) -> Self {
        Problem::new(Code::InvalidQuery, detail).at(field)
    }

    pub fn at(mut self, field: impl AsRef<str>) -> Self {
        self.0.field = Some(shortened(field.as_ref(), MAX_FIELD_CHARS));
        self
    }

    /// The same fault of a value, found in a query.
    pub fn into_query(self) -> Self {
        let wire::Problem { detail, field, .. } = *self.0;
        Problem::from(Refusal { field, ..Refusal::new(Code::InvalidQuery, detail) })
    }

    pub fn with_problems(mut self, problems: Vec<wire::DefinitionProblem>) -> Self {
        self.0.problems = problems;
        self
    }

    /// For refusals whose status HTTP itself knows better: a wrong method, a body that never came.
    pub fn with_status(mut self, status: StatusCode) -> Self {
        self.0.status = status.as_u16();
        self
    }

    /// The same with what else there is to say, beside its members.
    pub fn with_members(self, members: impl Serialize) -> Response {
        let status = self.0.status;
        let body = serde_json::to_vec(&Extended { problem: *self.0, members }).unwrap_or_default();
        answer(status, body)
    }

    pub fn internal() -> Self {
        Problem(Box::new(wire::Problem {
            type_uri: format!("/errors/{INTERNAL_ERROR}"),
            title: "Unexpected server error.".to_owned(),
            status: 500,
            code: INTERNAL_ERROR.to_owned(),
            detail: "the server failed unexpectedly, and its log says why; check whether the action was \
                     carried out before you repeat it"
                .to_owned(),
            field: None,
            problems: vec![],
        }))
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let Refusal { code, detail, field, .. } = refusal;
        Problem(Box::new(wire::Problem {
            type_uri: format!("/errors/{code}"),
            title: summary(code).to_owned(),
            status: status(code).as_u16(),
            code: code.as_str().to_owned(),
            detail: shortened(&detail, MAX_DETAIL_CHARS),
            field: field.map(|field| shortened(&field, MAX_FIELD_CHARS)),
            problems: vec![],
        }))
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        // Text and numbers always serialise.
        answer(self.0.status, serde_json::to_vec(&*self.0).unwrap_or_default())
    }
}

#[derive(Serialize)]
struct Extended<T> {
    #[serde(flatten)]
    problem: wire::Problem,
    #[serde(flatten)]
    members: T,
}

fn answer(status: u16, body: Vec<u8>) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, body).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
    match status {
        StatusCode::UNAUTHORIZED => {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        StatusCode::TOO_MANY_REQUESTS => {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("2"));
        }
        _ => {}
    }
    response
}

pub const fn status(code: Code) -> StatusCode {
    match code {
        Code::InvalidRequest | Code::InvalidQuery | Code::InvalidDeclaration | Code::InvalidDefinition => {
            StatusCode::BAD_REQUEST
        }
        Code::InvalidCredential => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied | Code::Unauthorized => StatusCode::FORBIDDEN,
        Code::NotKnown => StatusCode::NOT_FOUND,
        Code::Terminal
        | Code::InvalidTransition
        | Code::NotGuarded
        | Code::GateNotAvailable
        | Code::AlreadyOpen
        | Code::GateNotOpen
        | Code::GateNotCleared
        | Code::NotPending
        | Code::NotActive
        | Code::AlreadyReleased
        | Code::NotEligible
        | Code::UnderLegalHold
        | Code::LeaseLost
        | Code::AlreadyTerminal
        | Code::TransitionRefusedByGuard
        | Code::NothingToSeal
        | Code::Conflict => StatusCode::CONFLICT,
        Code::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Code::Overloaded => StatusCode::TOO_MANY_REQUESTS,
        Code::RecordingFailure => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// The text, cut where it grows too long to be read.
pub fn shortened(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_that_of_the_codes_page() {
        for code in Code::ALL {
            let page = crate::pages::page(*code);
            assert!(page.contains(&format!("**HTTP status:** {}\n", status(*code).as_u16())), "{code}");
        }
    }

    #[test]
    fn a_refusal_says_when_to_come_back_and_how_to_be_known() {
        for (code, header, value) in [
            (Code::Overloaded, RETRY_AFTER, "1"),
            (Code::RecordingFailure, RETRY_AFTER, "2"),
            (Code::InvalidCredential, WWW_AUTHENTICATE, "Bearer"),
        ] {
            let response = Problem::new(code, "later").into_response();
            assert_eq!(
                (response.status(), &response.headers()[&header]),
                (status(code), &HeaderValue::from_static(value))
            );
        }
    }

    #[test]
    fn what_is_repeated_is_bounded() {
        let problem = Problem::invalid_request("é".repeat(5000)).at("f".repeat(5000));
        assert_eq!(problem.0.detail.chars().count(), MAX_DETAIL_CHARS + 1);
        assert_eq!(problem.0.field.map(|field| field.chars().count()), Some(MAX_FIELD_CHARS + 1));
    }
}
