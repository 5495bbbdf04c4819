//! A refusal is a normal answer: the seeds' exact code, what was wrong, and where.

use crate::lifecycle::Guard;
use std::fmt;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Every code that a caller can be answered with. The text is the wire form.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            pub const ALL: &'static [Code] = &[$(Code::$name,)*];

            pub const fn as_str(self) -> &'static str {
                match self { $(Code::$name => $text,)* }
            }

            pub fn parse(text: &str) -> Option<Code> {
                match text { $($text => Some(Code::$name),)* _ => None }
            }
        }
    };
}

codes! {
    /// The request itself is malformed: a blank, an unknown field, a wrong type.
    InvalidRequest = "invalid-request",
    /// A read with an unknown filter, a blank value or a range that ends before it starts.
    InvalidQuery = "invalid-query",
    /// The process declaration contradicts itself.
    InvalidDeclaration = "invalid-declaration",
    /// A definition document that cannot be published.
    InvalidDefinition = "invalid-definition",
    /// No credential, or one that names nobody.
    InvalidCredential = "invalid-credential",
    /// The actor holds no grant for this scope.
    PermissionDenied = "permission-denied",
    /// The actor is not the one whom this gate names.
    Unauthorized = "unauthorized",
    /// There is no such thing.
    NotKnown = "not-known",
    /// The process has ended.
    Terminal = "terminal",
    /// The declaration has no such transition from the current state.
    InvalidTransition = "invalid-transition",
    /// The transition needs no gate: fire it.
    NotGuarded = "not-guarded",
    /// No gate can be opened on an ended process.
    GateNotAvailable = "gate-not-available",
    /// A gate is bound already and not yet resolved.
    AlreadyOpen = "already-open",
    /// No gate was opened for this transition.
    GateNotOpen = "gate-not-open",
    /// The gate's approval is missing, undecided, refused or spent.
    GateNotCleared = "gate-not-cleared",
    /// The approval step or chain has been decided already.
    NotPending = "not-pending",
    /// The grant, assignment or definition has ended.
    NotActive = "not-active",
    /// The legal hold has been released already.
    AlreadyReleased = "already-released",
    /// The record may not be purged: its retention has not elapsed, or its content is gone already.
    NotEligible = "not-eligible",
    /// A legal hold keeps the record from being purged.
    UnderLegalHold = "under-legal-hold",
    /// The lease has expired, was revoked, or was never this one.
    LeaseLost = "lease-lost",
    /// The run has ended.
    AlreadyTerminal = "already-terminal",
    /// A guard of the lifecycle says no.
    TransitionRefusedByGuard = "transition_refused_by_guard",
    /// The same key or name stands for something else.
    Conflict = "conflict",
    /// Nothing was recorded since the last seal.
    NothingToSeal = "nothing-to-seal",
    /// The request is larger than the server accepts.
    TooLarge = "too-large",
    /// More work is waiting than the server can hold; try again.
    Overloaded = "overloaded",
    /// The store could not record it. Nothing was written.
    RecordingFailure = "recording-failure",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Refusal {
    pub code: Code,
    /// One or two sentences for the person who asked: what is wrong and what to do.
    pub detail: String,
    /// The place at fault, as a path into the request: `transitions[2].to`.
    pub field: Option<String>,
    /// The guard that says no, where one does.
    pub guard: Option<Guard>,
    /// What else refuses, where several guards of one transition do.
    pub also: Vec<Refusal>,
}

impl Refusal {
    /// Whether the same may be accepted a moment later, although nothing has changed.
    pub const fn passes(&self) -> bool {
        matches!(self.code, Code::Overloaded | Code::RecordingFailure)
    }

    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Refusal { code, detail: detail.into(), field: None, guard: None, also: vec![] }
    }

    /// A guard of the lifecycle says no: it is named, and so is what would satisfy it.
    pub fn by_guard(guard: Guard, detail: impl fmt::Display) -> Self {
        let detail = format!("the guard `{}` refuses: {detail}", guard.name());
        Refusal { guard: Some(guard), ..Refusal::new(Code::TransitionRefusedByGuard, detail) }
    }

    pub fn is_by_guard(&self, guard: Guard) -> bool {
        self.guard == Some(guard)
    }

    /// This refusal, and each of those that it carries.
    pub fn all(mut self) -> Vec<Refusal> {
        let also = std::mem::take(&mut self.also);
        std::iter::once(self).chain(also).collect()
    }

    /// Everything that refuses: the guard, or the code where none is named, and what it says.
    pub fn problems(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let name = |no: &Refusal| no.guard.map_or(no.code.as_str(), Guard::name);
        std::iter::once(self).chain(&self.also).map(move |no| (name(no), no.detail.as_str()))
    }

    pub fn at(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    pub fn blank(field: impl Into<String>) -> Self {
        let field = field.into();
        Refusal::new(Code::InvalidRequest, format!("`{field}` is blank; it needs at least one visible character"))
            .at(field)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)
    }
}

impl std::error::Error for Refusal {}

/// `Ok` when the text has something to see and can be stored anywhere; otherwise `invalid-request` at `field`.
pub fn require_text(field: &str, text: &str) -> Result<(), Refusal> {
    if crate::text::is_blank(text) {
        return Err(Refusal::blank(field));
    }
    if text.contains('\0') {
        return Err(Refusal::new(Code::InvalidRequest, format!("`{field}` holds the character U+0000")).at(field));
    }
    Ok(())
}

/// References and names are compared, indexed and shown; a longer one is a document in the wrong place.
pub const MAX_REF_BYTES: usize = 1000;

/// A reference: a text of bearable length.
pub fn require_ref(field: &str, text: &str) -> Result<(), Refusal> {
    require_text(field, text)?;
    if text.len() > MAX_REF_BYTES {
        let detail = format!("`{field}` has {} bytes; at most {MAX_REF_BYTES} are allowed", text.len());
        return Err(Refusal::new(Code::InvalidRequest, detail).at(field));
    }
    Ok(())
}

/// A text that has to be there and says something.
pub fn require_present(field: &str, text: Option<&str>) -> Result<(), Refusal> {
    match text {
        Some(text) => require_text(field, text),
        None => Err(Refusal::new(Code::InvalidRequest, format!("`{field}` is missing")).at(field)),
    }
}

/// An optional text may be absent, but not present and blank.
pub fn require_optional_text(field: &str, text: Option<&str>) -> Result<(), Refusal> {
    text.map_or(Ok(()), |text| require_text(field, text))
}
