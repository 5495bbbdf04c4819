//! Lists: how many items to ask for, page after page, and how to print them.

use super::output::{self, printable};
use super::table::{Tint, tint};
use clap::Args;
use countersign_client::wire::Page;
use countersign_client::{Answer, Error};
use serde_json::{Value, json};

/// The server gives no more than this at once.
const LARGEST_PAGE: u32 = 500;

#[derive(Args, Clone, Debug)]
pub struct PageArgs {
    /// Print at most this many items
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
    /// Print all items
    #[arg(long, conflicts_with = "limit")]
    pub all: bool,
    /// Continue an earlier list from its `next` cursor (in its JSON)
    #[arg(long, value_name = "CURSOR")]
    pub cursor: Option<String>,
}

/// What was asked for, from as many pages as it took.
pub struct Listed<T> {
    pub items: Vec<T>,
    raw: Vec<Value>,
    next: Option<String>,
}

/// Fetches pages until there are enough items or no more.
pub async fn collect<T>(
    args: &PageArgs,
    fetch: impl AsyncFn(Option<u32>, Option<String>) -> Result<Answer<Page<T>>, Error>,
) -> Result<Listed<T>, Error> {
    let mut listed = Listed { items: Vec::new(), raw: Vec::new(), next: args.cursor.clone() };
    loop {
        let wanted = if args.all { LARGEST_PAGE } else { args.limit.saturating_sub(listed.count()).min(LARGEST_PAGE) };
        let asked_from = listed.next.clone();
        let mut page = fetch(Some(wanted), asked_from.clone()).await?;
        let got = page.body.items.len();
        listed.items.append(&mut page.body.items);
        if let Some(Value::Array(items)) = page.json.get_mut("items") {
            listed.raw.append(items);
        }
        listed.next = page.body.next;
        let enough = !args.all && listed.count() >= args.limit;
        let stuck = got == 0 && listed.next == asked_from;
        if listed.next.is_none() || enough || stuck {
            return Ok(listed);
        }
    }
}

impl<T> Listed<T> {
    fn count(&self) -> u32 {
        u32::try_from(self.items.len()).unwrap_or(u32::MAX)
    }

    /// Prints the list: as JSON, or as a table with a word when it is empty or goes on.
    pub fn print<D: std::fmt::Display>(
        &self,
        json: bool,
        table: impl FnOnce(&[T]) -> D,
        when_empty: &str,
    ) -> anyhow::Result<()> {
        if json {
            return output::json(&json!({"items": self.raw, "next": self.next}));
        }
        if self.items.is_empty() {
            return output::say(&printable(when_empty));
        }
        output::say(&table(&self.items).to_string())?;
        if self.next.is_some() {
            let more = format!("{} shown; there are more: --all, or --limit N", self.items.len());
            output::say(&tint(Tint::Dim, &more))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Serves the numbers from the cursor up to `total`, and notes what it was asked.
    async fn numbers(args: PageArgs, total: u32) -> (Vec<u32>, Option<String>, Vec<u32>) {
        let asked = RefCell::new(Vec::new());
        let fetched = collect(&args, async |limit: Option<u32>, cursor: Option<String>| {
            let limit = limit.unwrap_or(50);
            asked.borrow_mut().push(limit);
            let from: u32 = cursor.and_then(|cursor| cursor.parse().ok()).unwrap_or(0);
            let to = (from + limit).min(total);
            let body = Page { items: (from..to).collect::<Vec<u32>>(), next: (to < total).then(|| to.to_string()) };
            Ok(Answer { status: 200, json: serde_json::to_value(&body).expect("JSON"), body })
        });
        let listed = fetched.await.expect("a list");
        assert_eq!(listed.raw.len(), listed.items.len());
        (listed.items, listed.next, asked.into_inner())
    }

    fn args(limit: u32, all: bool, cursor: Option<&str>) -> PageArgs {
        PageArgs { limit, all, cursor: cursor.map(str::to_owned) }
    }

    #[tokio::test]
    async fn a_limit_is_kept_over_pages() {
        let (items, next, asked) = numbers(args(700, false, None), 2000).await;
        assert_eq!((items.len(), next.as_deref(), asked), (700, Some("700"), vec![500, 200]));
        let (items, next, _) = numbers(args(50, false, Some("1990")), 2000).await;
        assert_eq!((items.len(), next), (10, None));
    }

    #[tokio::test]
    async fn all_is_all() {
        let (items, next, asked) = numbers(args(50, true, None), 1200).await;
        assert_eq!((items.len(), next, asked.len()), (1200, None, 3));
        let (items, next, _) = numbers(args(50, true, None), 0).await;
        assert_eq!((items.len(), next), (0, None));
    }
}
