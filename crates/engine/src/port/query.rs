//! Parts of queries: where to begin, and how much of the past to read.

use uuid::Uuid;

/// What somebody types who looks for a run: how its subject begins, or its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// From this text on and before that one.
    pub subject: (String, String),
    /// From this id to that one, where the text may be the beginning of one.
    pub ids: Option<(Uuid, Uuid)>,
}

impl Beginning {
    pub fn of(text: &str) -> Beginning {
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        let is_id = (4..=32).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let filled = |with: char| -> Option<Uuid> {
            let all: String = digits.chars().chain(std::iter::repeat(with)).take(32).collect();
            Uuid::try_parse(&all).ok()
        };
        Beginning {
            // No text that begins like this comes behind the last character there is.
            subject: (text.to_owned(), format!("{text}{}", char::MAX)),
            ids: if is_id { filled('0').zip(filled('f')) } else { None },
        }
    }
}

/// How much of a process's past is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Past {
    #[default]
    Whole,
    /// Neither history nor gates.
    Nothing,
    /// Every gate, and so many firings from this one on.
    Firings { from: u64, limit: usize },
}

impl Past {
    /// The first firing that is read, and how many at most.
    pub fn firings(self) -> (i64, i64) {
        let int = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        match self {
            Past::Whole => (0, i64::MAX),
            Past::Nothing => (0, 0),
            Past::Firings { from, limit } => (int(from), int(limit as u64)),
        }
    }
}
