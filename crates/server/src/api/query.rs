//! Queries of lists: every parameter is declared once, and from that declaration it is checked and
//! described. What is not declared is refused, because an unfiltered answer looks like a filtered one.

use super::App;
use super::problem::{Problem, shortened};
use super::time;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use countersign_client::wire;
use countersign_engine::port::{Beginning, Page, Range};
use countersign_kernel::Time;
use countersign_kernel::text::{hex, is_blank};
use std::marker::PhantomData;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, SchemaFormat, Type};
use uuid::Uuid;

pub const DEFAULT_LIMIT: usize = 50;
pub const MAX_LIMIT: usize = 500;
const CURSOR_VERSION: u8 = 1;
/// Of a text that is looked for.
const LEAST_CHARS: usize = 3;
const ORDERS: &[&str] = &["asc", "desc"];

/// A list: which letter its cursors bear, and by what it can be filtered.
pub trait List: Send + Sync + 'static {
    /// No two lists have the same.
    const TAG: u8;
    const AXES: &'static [Axis];
    /// `false` for a read that is no list and only has parameters.
    const PAGED: bool = true;
}

/// Every parameter of a list.
fn axes<L: List>() -> impl Iterator<Item = &'static Axis> {
    L::AXES.iter().chain(if L::PAGED { COMMON } else { &[] })
}

/// One parameter. Times come in pairs `…after` and `…before`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    Text(&'static str),
    Time(&'static str),
    Word(&'static str, &'static [&'static str]),
}

/// What every list understands.
const COMMON: &[Axis] = &[Axis::Text("limit"), Axis::Text("cursor"), Axis::Word("order", ORDERS)];

impl Axis {
    const fn name(self) -> &'static str {
        match self {
            Axis::Text(name) | Axis::Time(name) | Axis::Word(name, _) => name,
        }
    }

    fn check(self, value: &str) -> Result<(), Problem> {
        let name = self.name();
        if is_blank(value) {
            return Err(Problem::invalid_query(name, format!("`{name}` is blank; leave it out to ask for all")));
        }
        match self {
            Axis::Text(_) => Ok(()),
            Axis::Time(_) if time::parse(value).is_some() => Ok(()),
            Axis::Time(_) => Err(Problem::invalid_query(
                name,
                format!("`{name}` is no RFC 3339 time like 2026-11-15T19:47:28Z (in a query, + is written %2B)"),
            )),
            Axis::Word(_, words) if words.contains(&value) => Ok(()),
            Axis::Word(_, words) => {
                let value = shortened(value, 40);
                Err(Problem::invalid_query(name, format!("`{value}` is none of {}", words.join(", "))))
            }
        }
    }

    fn parameter(self) -> Parameter {
        let text = ObjectBuilder::new().schema_type(Type::String);
        let (schema, about) = match (self, self.name()) {
            (_, "limit") => {
                let number = ObjectBuilder::new().schema_type(Type::Integer);
                (number.minimum(Some(1)).maximum(Some(MAX_LIMIT)), "At most this many items (default 50)")
            }
            (_, "cursor") => (text, "The `next` of the page before"),
            (_, "order") => (text.enum_values(Some(ORDERS.iter().copied())), "Oldest first, or newest first"),
            (Axis::Text(_), _) => (text, "Exactly this value"),
            (Axis::Time(_), name) => {
                let text = text.format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)));
                (text, if name == "at" { "As it was at this time" } else { "An end of a range of time, inclusive" })
            }
            (Axis::Word(_, words), _) => (text.enum_values(Some(words.iter().copied())), "Exactly this value"),
        };
        ParameterBuilder::new()
            .name(self.name())
            .parameter_in(ParameterIn::Query)
            .description(Some(about))
            .schema(Some(schema))
            .build()
    }
}

/// How a subject or an id begins, as `q` gives it.
pub fn beginning(text: &str) -> Result<Beginning, Problem> {
    if text.chars().count() < LEAST_CHARS {
        let detail = format!("`q` is how a subject or an id begins; give at least {LEAST_CHARS} characters");
        return Err(Problem::invalid_query("q", detail));
    }
    Ok(Beginning::of(text))
}

/// The checked query of a list.
pub struct Params<L> {
    pairs: Vec<(String, String)>,
    limit: usize,
    descending: bool,
    /// The key of the last item of the page before.
    after: Option<Vec<u8>>,
    list: PhantomData<fn() -> L>,
}

impl<L: List> FromRequestParts<App> for Params<L> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _app: &App) -> Result<Self, Problem> {
        Params::parse(parts.uri.query().unwrap_or_default())
    }
}

impl<L: List> utoipa::IntoParams for Params<L> {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        axes::<L>().map(|axis| axis.parameter()).collect()
    }
}

impl<L: List> Params<L> {
    fn parse(raw: &str) -> Result<Self, Problem> {
        let pairs = decode(raw)?;
        for (i, (name, value)) in pairs.iter().enumerate() {
            let axis = axes::<L>().find(|axis| axis.name() == name).ok_or_else(|| unknown::<L>(name))?;
            if pairs[..i].iter().any(|(earlier, _)| earlier == name) {
                return Err(Problem::invalid_query(name, format!("`{name}` is given twice")));
            }
            axis.check(value)?;
        }
        let mut params = Params { pairs, limit: DEFAULT_LIMIT, descending: false, after: None, list: PhantomData };
        params.descending = params.get("order") == Some("desc");
        params.limit = params.limit_given()?;
        params.after = params.cursor_given()?;
        for axis in L::AXES {
            if let Axis::Time(name) = axis
                && let Some(stem) = name.strip_suffix("after")
            {
                params.check_range(stem)?;
            }
        }
        Ok(params)
    }

    fn limit_given(&self) -> Result<usize, Problem> {
        let Some(text) = self.get("limit") else { return Ok(DEFAULT_LIMIT) };
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let limit = text.parse().ok().filter(|limit| digits && (1..=MAX_LIMIT).contains(limit));
        limit.ok_or_else(|| Problem::invalid_query("limit", format!("`limit` is a number from 1 to {MAX_LIMIT}")))
    }

    fn cursor_given(&self) -> Result<Option<Vec<u8>>, Problem> {
        let Some(text) = self.get("cursor") else { return Ok(None) };
        let bytes = from_hex(text).unwrap_or_default();
        match bytes.strip_prefix(&self.cursor_head()) {
            Some(key) if !key.is_empty() => Ok(Some(key.to_vec())),
            _ => Err(bad_cursor()),
        }
    }

    fn check_range(&self, stem: &str) -> Result<(), Problem> {
        match self.range(stem) {
            Range { after: Some(after), before: Some(before) } if before < after => {
                let before = format!("{stem}before");
                Err(Problem::invalid_query(&before, format!("`{before}` lies earlier than `{stem}after`")))
            }
            _ => Ok(()),
        }
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self, name: &str) -> Option<String> {
        self.get(name).map(str::to_owned)
    }

    /// An id to filter by. Text that is no id of ours matches nothing, like an id that is not there.
    pub fn id<I: From<Uuid>>(&self, name: &str, parse: impl Fn(&str) -> Option<I>) -> Option<I> {
        self.get(name).map(|text| parse(text).unwrap_or_else(|| I::from(Uuid::max())))
    }

    /// The range `<stem>after` to `<stem>before`.
    pub fn range(&self, stem: &str) -> Range {
        let end = |name: &str| -> Option<Time> { self.get(&format!("{stem}{name}")).and_then(time::parse) };
        Range { after: end("after"), before: end("before") }
    }

    /// What the store is asked for: one item more than is shown, to know whether there are more.
    pub fn page(&self) -> Result<Page, Problem> {
        let after = match &self.after {
            None => None,
            Some(key) => Some(Uuid::from_slice(key).map_err(|_| bad_cursor())?),
        };
        Ok(Page { after, limit: self.limit + 1, descending: self.descending })
    }

    pub fn is_descending(&self) -> bool {
        self.descending
    }

    /// The same for a list whose key is no id: at most this many, after this key.
    pub fn keyed_page(&self) -> (usize, Option<&[u8]>) {
        (self.limit + 1, self.after.as_deref())
    }

    /// Makes an answer of what the store gave for [`Params::keyed_page`].
    pub fn answer_keyed<T, W>(
        &self,
        mut rows: Vec<T>,
        key: impl Fn(&T) -> Vec<u8>,
        to_wire: impl Fn(T) -> Result<W, Problem>,
    ) -> Result<wire::Page<W>, Problem> {
        let more = rows.len() > self.limit;
        rows.truncate(self.limit);
        let next = rows.last().filter(|_| more).map(|row| self.cursor(&key(row)));
        Ok(wire::Page { items: rows.into_iter().map(to_wire).collect::<Result<_, _>>()?, next })
    }

    /// Makes an answer of what the store gave for [`Params::page`].
    pub fn answer<T, W>(
        &self,
        rows: Vec<T>,
        id: impl Fn(&T) -> Uuid,
        to_wire: impl Fn(T) -> Result<W, Problem>,
    ) -> Result<wire::Page<W>, Problem> {
        self.answer_keyed(rows, |row| id(row).as_bytes().to_vec(), to_wire)
    }

    /// A page of a list that is kept in memory, in the order of its keys.
    pub fn answer_from<T, W>(&self, mut items: Vec<(Vec<u8>, T)>, to_wire: impl Fn(T) -> W) -> wire::Page<W> {
        items.sort_by(|(a, _), (b, _)| if self.descending { b.cmp(a) } else { a.cmp(b) });
        if let Some(after) = &self.after {
            items.retain(|(key, _)| if self.descending { key < after } else { key > after });
        }
        let more = items.len() > self.limit;
        items.truncate(self.limit);
        let next = items.last().filter(|_| more).map(|(key, _)| self.cursor(key));
        wire::Page { items: items.into_iter().map(|(_, item)| to_wire(item)).collect(), next }
    }

    fn cursor_head(&self) -> [u8; 3] {
        [CURSOR_VERSION, L::TAG, u8::from(self.descending)]
    }

    fn cursor(&self, key: &[u8]) -> String {
        hex(&[&self.cursor_head()[..], key].concat())
    }
}

/// For reads of one thing, which have nothing to filter.
pub struct NoQuery;

impl FromRequestParts<App> for NoQuery {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _app: &App) -> Result<Self, Problem> {
        match decode(parts.uri.query().unwrap_or_default())?.first() {
            None => Ok(NoQuery),
            Some((name, _)) => Err(Problem::invalid_query(name, "this read has no query parameters")),
        }
    }
}

fn unknown<L: List>(name: &str) -> Problem {
    let shown = shortened(name, 64);
    let known = || axes::<L>().map(|axis| axis.name());
    let meant = known().find(|known| {
        !name.is_empty() && (known.starts_with(name) || name.starts_with(known) || known.replace('_', "") == name)
    });
    let hint = match meant {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("it has {}", known().collect::<Vec<_>>().join(", ")),
    };
    let what = if L::PAGED { "filter of this list" } else { "parameter of this read" };
    Problem::invalid_query(&shown, format!("`{shown}` is not a {what}; {hint}"))
}

pub fn bad_cursor() -> Problem {
    Problem::invalid_query("cursor", "this list did not give out this cursor, or not in this order")
}

/// `application/x-www-form-urlencoded`, decoded without forgiveness.
pub fn decode(raw: &str) -> Result<Vec<(String, String)>, Problem> {
    let part = |text: &str, name: &str| {
        percent_decoded(text)
            .filter(|text| !text.contains('\0'))
            .ok_or_else(|| Problem::invalid_query(name, "the query is not percent-encoded UTF-8"))
    };
    raw.split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = part(name, name)?;
            let value = part(value, &name)?;
            Ok((name, value))
        })
        .collect()
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => (nibble(rest.next()?)? << 4) | nibble(rest.next()?)?,
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) {
        return None;
    }
    text.as_bytes().chunks_exact(2).map(|pair| Some((nibble(pair[0])? << 4) | nibble(pair[1])?)).collect()
}

fn nibble(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::IntoResponse;

    struct Things;

    impl List for Things {
        const TAG: u8 = b't';
        const AXES: &'static [Axis] = &[
            Axis::Text("subject_ref"),
            Axis::Word("state", &["Pending", "Approved"]),
            Axis::Time("made_after"),
            Axis::Time("made_before"),
        ];
    }

    struct Others;

    impl List for Others {
        const TAG: u8 = b'o';
        const AXES: &'static [Axis] = &[];
    }

    async fn field(raw: &str) -> String {
        let problem = Params::<Things>::parse(raw).err().expect(raw);
        let body = axum::body::to_bytes(problem.into_response().into_body(), 10_000).await.expect("a body");
        let problem: wire::Problem = serde_json::from_slice(&body).expect("a problem");
        assert_eq!((problem.status, problem.code.as_str()), (400, "invalid-query"), "{raw}");
        problem.field.expect("a field")
    }

    #[tokio::test]
    async fn what_is_not_declared_or_not_meant_is_refused() {
        for (raw, at) in [
            ("subject=x", "subject"),
            ("subject_ref=", "subject_ref"),
            ("subject_ref", "subject_ref"),
            ("subject_ref=%20", "subject_ref"),
            ("subject_ref=%E2%80%8B", "subject_ref"),
            ("subject_ref=a&subject_ref=a", "subject_ref"),
            ("subject_ref=%ff", "subject_ref"),
            ("subject_ref=%0", "subject_ref"),
            ("subject_ref=%00a", "subject_ref"),
            ("state=open", "state"),
            ("state=pending", "state"),
            ("limit=0", "limit"),
            ("limit=501", "limit"),
            ("limit=-1", "limit"),
            ("limit=%2B5", "limit"),
            ("limit=99999999999999999999", "limit"),
            ("order=up", "order"),
            ("cursor=zz", "cursor"),
            ("cursor=0", "cursor"),
            ("cursor=017400", "cursor"),
            ("made_after=yesterday", "made_after"),
            ("made_after=2026-01-01T00:00:00+01:00", "made_after"),
            ("made_after=2026-01-02T00:00:00Z&made_before=2026-01-01T00:00:00Z", "made_before"),
        ] {
            assert_eq!(field(raw).await, at, "{raw}");
        }
    }

    #[test]
    fn a_query_is_decoded_and_pages_follow_each_other() {
        let params = Params::<Things>::parse(
            "subject_ref=a%26b+%C3%A9&&limit=2&made_after=1970-01-01T00:00:00Z&made_before=1970-01-01T00:00:00Z",
        )
        .expect("a query");
        assert_eq!(params.text("subject_ref").as_deref(), Some("a&b é"));
        assert_eq!(params.range("made_"), Range { after: Some(Time(0)), before: Some(Time(0)) });
        assert_eq!(params.page().ok().map(|page| (page.limit, page.descending)), Some((3, false)));

        let names = || ["c", "a", "d", "b"].map(|name| (name.as_bytes().to_vec(), name)).to_vec();
        let mut seen = Vec::new();
        let mut query = "order=desc&limit=3".to_owned();
        loop {
            let params = Params::<Things>::parse(&query).expect("a query");
            let page = params.answer_from(names(), |name| name);
            seen.extend(page.items);
            match page.next {
                None => break,
                Some(next) => query = format!("order=desc&limit=3&cursor={next}"),
            }
        }
        assert_eq!(seen, ["d", "c", "b", "a"]);
        let next = query.rsplit_once('=').expect("a cursor").1;
        assert!(Params::<Things>::parse(&format!("cursor={next}")).is_err(), "another order");
        assert!(Params::<Others>::parse(&format!("order=desc&cursor={next}")).is_err(), "another list");
    }
}
