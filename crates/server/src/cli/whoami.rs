//! `countersign whoami`: who the server takes the caller for, and what others have added to them.

use super::connection::Context;
use super::output::{self, printable, shell_word};
use super::table::{Tint, tint};
use countersign_client::wire::Whoami;

pub async fn run(context: &Context) -> anyhow::Result<()> {
    let answer = context.client()?.whoami().await?;
    if context.json() {
        return output::json(&answer.json);
    }
    let caller = &answer.body;
    let line = |name: &str, value: &str| format!("{} {}", tint(Tint::Dim, &format!("{name:<6}")), printable(value));
    output::say(&line("actor", &caller.actor_ref))?;
    if let Some(name) = &caller.display_name {
        output::say(&line("name", name))?;
    }
    output::say(&line("scopes", &caller.scopes.join(" ")))?;
    notice(caller);
    Ok(())
}

/// Keys and tokens that an actor did not add themselves are something they should know of.
pub fn notice(caller: &Whoami) {
    if caller.added_by_others > 0 {
        output::complain(&format!(
            "{} of your keys and tokens were added by others. See who and when: countersign actor key list {}",
            caller.added_by_others,
            shell_word(&caller.actor_ref)
        ));
    }
}
