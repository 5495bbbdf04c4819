//! "Did you mean `guard`?": the candidate closest to what was written, if it is close.

/// Longer words are never slips of a field's name, and the distance costs their product.
const MAX_CHARS: usize = 64;

/// How many candidates are weighed.
const MAX_CANDIDATES: usize = 200;

/// The candidate with the fewest slips, if a third of the longer word or less is wrong.
pub(crate) fn closest<'a>(written: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let original = written;
    let lower = written.to_lowercase();
    let written: Vec<char> = written.chars().take(MAX_CHARS + 1).collect();
    candidates
        .into_iter()
        .take(MAX_CANDIDATES)
        .filter_map(|candidate| {
            let chars: Vec<char> = candidate.chars().take(MAX_CHARS + 1).collect();
            let longer = written.len().max(chars.len());
            let allowed = if longer > MAX_CHARS { 0 } else { (longer / 3).max(1) };
            let other_case = candidate.to_lowercase() == lower && candidate != original;
            if other_case {
                return Some((0, candidate));
            }
            let distance = distance(&written, &chars);
            (distance > 0 && distance <= allowed && distance < longer).then_some((distance, candidate))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// What other formats call a field of this one.
const FOREIGN: &[(&str, &str)] = &[
    ("retries", "retryPolicy"),
    ("maxRetries", "retryPolicy"),
    ("script", "command"),
    ("cmd", "command"),
    ("type", "run"),
    ("needs", "dependsOn"),
    ("after", "dependsOn"),
    ("if", "when"),
    ("condition", "when"),
    ("with", "input"),
    ("params", "input"),
    ("id", "name"),
    ("uses", "workflow"),
    ("assignee", "pic"),
    ("onError", "onFailure"),
    ("onFailure", "failurePolicy"),
    ("duration", "for"),
    ("approver", "approver_ref"),
    ("initial", "initial_state"),
    ("terminal", "terminal_states"),
    ("final_states", "terminal_states"),
    ("cron", "schedule"),
    ("trigger", "on"),
    ("triggers", "on"),
    ("tasks", "steps"),
    ("jobs", "steps"),
];

/// The field that goes by this name elsewhere, if it is among the candidates.
pub(crate) fn synonym<'a>(written: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (_, meant) = FOREIGN.iter().find(|(foreign, _)| *foreign == written)?;
    candidates.into_iter().find(|candidate| candidate == meant)
}

/// Insertions, deletions, replacements and swaps of neighbours (optimal string alignment).
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before_last[j - 2] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::closest;

    #[test]
    fn slips_are_recognised_and_strangers_are_not() {
        let fields = ["from", "action", "to", "guard", "initial_state", "approver_ref"];
        for (written, expected) in [
            ("gaurd", Some("guard")),
            ("Guard", Some("guard")),
            ("TO", Some("to")),
            ("initialState", Some("initial_state")),
            ("approver", Some("approver_ref")),
            ("form", Some("from")),
            ("colour", None),
            ("x", None),
            ("", None),
            ("guard", None),
        ] {
            assert_eq!(closest(written, fields), expected, "{written}");
        }
        assert_eq!(closest(&"guard".repeat(100_000), fields), None);
    }
}
