//! An id names a process or a run, and does not tell which. Commands that work on both ask for a process first.

use countersign_client::Error;

/// What became of it as a process or, where there is none with this id, as a run.
pub async fn process_or_run<T>(
    process: impl Future<Output = Result<T, Error>>,
    run: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    match process.await {
        Err(of_process) if says_nothing(&of_process) => match run.await {
            // It is neither, or the caller may know of neither: the first answer is as good as the second.
            Err(of_run) if says_nothing(&of_run) => Err(of_process),
            answer => answer,
        },
        answer => answer,
    }
}

/// Whether the refusal leaves open what the id stands for. Permission is asked before existence.
fn says_nothing(error: &Error) -> bool {
    let Some(problem) = error.refusal() else { return false };
    match problem.code.as_str() {
        "permission-denied" => true,
        "not-known" => matches!(problem.field.as_deref(), Some("instance_id" | "run_id")),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersign_client::wire::Problem;

    fn refused(code: &str, field: &str) -> Result<(), Error> {
        Err(Error::Refused(Box::new(Problem {
            type_uri: String::new(),
            title: String::new(),
            status: 409,
            code: code.into(),
            detail: String::new(),
            field: Some(field.into()),
            problems: vec![],
        })))
    }

    #[tokio::test]
    async fn a_run_is_asked_for_where_there_is_no_such_process() {
        let unknown = || refused("not-known", "instance_id");
        for (process, run, expected) in [
            (Ok(()), refused("not-known", "run_id"), "done"),
            (unknown(), Ok(()), "done"),
            (unknown(), refused("not-pending", "action"), "not-pending"),
            (unknown(), refused("not-known", "run_id"), "not-known"),
            (refused("not-known", "step_id"), Ok(()), "not-known"),
            (refused("permission-denied", "x"), Ok(()), "done"),
            (refused("not-pending", "action"), Ok(()), "not-pending"),
        ] {
            let answer = process_or_run(async { process }, async { run }).await;
            let told = answer.as_ref().map_or_else(|error| error.code().unwrap_or_default(), |()| "done");
            assert_eq!(told, expected);
        }
    }
}
