//! Real processes: what they are given, how they end, and that nothing of them stays behind.

#![expect(clippy::expect_used, reason = "a test's helpers may fail the test")]

use countersign_executor::Verdict;
use countersign_executor::artifact::ArtifactStore;
use countersign_executor::mask::Mask;
use countersign_executor::shell::{Artifacts, Command, ShellJob};
use countersign_kernel::lifecycle::FailureCategory;
use countersign_kernel::plan::{ShellWork, Template};
use std::path::Path;
use std::time::{Duration, Instant};

fn job(script: &str) -> ShellJob {
    ShellJob {
        command: Command::Text(script.to_owned()),
        env: [("GREETING".to_owned(), "hello there".to_owned())].into(),
        input_json: r#"{"order":7}"#.to_owned(),
        success: vec![0],
        retry: vec![75],
        timeout: Some(Duration::from_secs(30)),
        idempotency_key: "key-1".to_owned(),
        run_id: "run-1".to_owned(),
        step: "pack".to_owned(),
        attempt: 2,
        artifacts: None,
        mask: Mask::default(),
    }
}

async fn output(job: &ShellJob) -> String {
    match job.run().await {
        Verdict::Completed { output_json, outbound, .. } if outbound.is_empty() => output_json,
        other => panic!("{other:?}"),
    }
}

/// The error of a process that failed for good.
async fn dead(job: &ShellJob, category: FailureCategory) -> String {
    match job.run().await {
        Verdict::Dead { last_error, category: Some(found) } if found == category => last_error,
        other => panic!("{other:?}"),
    }
}

/// Whether a process is at work; one that only waits to be reaped is not.
fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next()).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..3000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}");
}

#[tokio::test]
async fn the_last_line_is_the_output_if_it_is_json() {
    for (script, expected) in [
        ("echo working; echo '{\"n\": 1.50}'", r#"{"n": 1.50}"#),
        ("echo 42; echo", "42"),
        ("printf '[1]'", "[1]"),
        ("echo '{\"a\":1}'; echo done", "null"),
        ("true", "null"),
        ("echo '{\"result\": \"fine\"}'", r#"{"result": "fine"}"#),
        ("printf '\\377\\n'", "null"),
        ("echo '\"x\"' >&2", "null"),
    ] {
        assert_eq!(output(&job(script)).await, expected, "{script}");
    }
}

#[tokio::test]
async fn the_input_comes_on_standard_input_and_ends() {
    assert_eq!(output(&job("cat")).await, r#"{"order":7}"#);
    // A process that never reads it, although it is more than a pipe holds, is not waited for.
    let mut unread = job("exec 0<&-; echo 1");
    unread.input_json = format!("\"{}\"", "x".repeat(1_000_000));
    assert_eq!(output(&unread).await, "1");
    unread.command = Command::Text("echo 2".to_owned());
    assert_eq!(output(&unread).await, "2");
    unread.command = Command::Text("wc -c".to_owned());
    assert_eq!(output(&unread).await, "1000002");
}

#[tokio::test]
async fn the_environment_holds_what_was_declared_and_nothing_of_ours() {
    let verdict = job("env | sort >&2; exit 9");
    let told = dead(&verdict, FailureCategory::AgentError).await;
    let mut names: Vec<&str> =
        told.trim_start_matches("exit code 9: ").lines().map(|l| l.split('=').next().unwrap()).collect();
    names.retain(|name| !matches!(*name, "PWD" | "_" | "SHLVL" | "OLDPWD"));
    let expected = [
        "COUNTERSIGN_ATTEMPT",
        "COUNTERSIGN_IDEMPOTENCY_KEY",
        "COUNTERSIGN_RUN_ID",
        "COUNTERSIGN_STEP",
        "GREETING",
        "HOME",
        "LANG",
        "PATH",
    ];
    assert_eq!(names, expected);
    for line in [
        "COUNTERSIGN_ATTEMPT=2",
        "COUNTERSIGN_IDEMPOTENCY_KEY=key-1",
        "COUNTERSIGN_RUN_ID=run-1",
        "COUNTERSIGN_STEP=pack",
        "GREETING=hello there",
        "LANG=C.UTF-8",
        "PATH=/usr/bin:/bin",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
}

#[tokio::test]
async fn names_that_are_ours_or_no_names_are_refused() {
    for name in ["COUNTERSIGN_RUN_ID", "", "A=B", "A\0"] {
        let mut job = job("true");
        job.env.insert(name.to_owned(), "x".to_owned());
        assert!(dead(&job, FailureCategory::Validation).await.contains("`env` cannot set"), "{name:?}");
    }
    let mut nul = job("true");
    nul.env.insert("A".to_owned(), "b\0c".to_owned());
    assert!(dead(&nul, FailureCategory::Validation).await.contains("cannot be started"));
}

#[tokio::test]
async fn a_list_is_run_as_it_is() {
    let mut list = job("");
    list.command = Command::List(["printf", "\"%s\"", "$HOME; `id` && x"].map(str::to_owned).to_vec());
    assert_eq!(output(&list).await, "\"$HOME; `id` && x\"");
    list.command = Command::List(vec!["no-such-program-here".to_owned()]);
    assert!(
        dead(&list, FailureCategory::Validation)
            .await
            .starts_with("the command cannot be started: no-such-program-here: ")
    );
    for blank in [Command::List(vec![]), Command::List(vec![" ".to_owned()]), Command::Text(" \n".to_owned())] {
        list.command = blank;
        assert_eq!(dead(&list, FailureCategory::Validation).await, "`command` is blank");
    }
}

#[tokio::test]
async fn the_working_directory_is_new_empty_and_removed() {
    let script =
        r#"test "$PWD" = "$HOME" && test -z "$(ls -A)" && mkdir -p a/b && echo x > a/b/c && printf '"%s"' "$PWD""#;
    let path = output(&job(script)).await;
    assert!(!Path::new(path.trim_matches('"')).exists(), "{path}");
    assert_ne!(path, output(&job(script)).await);
}

#[tokio::test]
async fn exit_codes_decide() {
    let mut coded = job("echo '{\"a\":1}'; echo first >&2; echo last >&2; exit 3");
    assert_eq!(dead(&coded, FailureCategory::AgentError).await, "exit code 3: first\nlast");
    coded.retry = vec![3];
    let retry = Verdict::Retry {
        last_error: "exit code 3: first\nlast".to_owned(),
        backoff: None,
        category: Some(FailureCategory::Transient),
    };
    assert_eq!(coded.run().await, retry);
    coded.success = vec![0, 3];
    assert_eq!(output(&coded).await, r#"{"a":1}"#);
    assert_eq!(dead(&job("exit 1"), FailureCategory::AgentError).await, "exit code 1");
    assert_eq!(dead(&job("kill -9 $$"), FailureCategory::AgentError).await, "exit code 137");
    assert!(dead(&job("no-such-command"), FailureCategory::AgentError).await.starts_with("exit code 127"));
    coded.success = vec![1];
    coded.command = Command::Text("true".to_owned());
    assert_eq!(dead(&coded, FailureCategory::AgentError).await, "exit code 0");
}

#[tokio::test]
async fn a_line_with_a_result_is_a_report() {
    let line =
        r#"{"result":"completed","output":{"n":1.50},"outbound_events":[{"type":"packed","data":[1]},{"type":"x"}]}"#;
    let Verdict::Completed { output_json, outbound, .. } = job(&format!("echo '{line}'")).run().await else {
        panic!("completed")
    };
    assert_eq!(output_json, r#"{"n":1.50}"#);
    let events: Vec<(&str, &str)> = outbound.iter().map(|event| (event.event_type.as_str(), &*event.data)).collect();
    assert_eq!(events, [("packed", "[1]"), ("x", "null")]);

    let line = r#"{"result":"waiting","waiting_event_type":"paid","timeout_ms":1500,"waiting_facet":"waiting_human"}"#;
    match job(&format!("echo '{line}'")).run().await {
        Verdict::Waiting { event_type, timeout, facet, outbound } => {
            assert_eq!((event_type.as_deref(), timeout), (Some("paid"), Some(Duration::from_millis(1500))));
            assert_eq!((facet.map(|facet| facet.as_str()), outbound.len()), (Some("waiting_human"), 0));
        }
        other => panic!("{other:?}"),
    }

    let line = r#"{"result":"retry","last_error":"busy","backoff_ms":250,"error_category":"external"}"#;
    let retry = Verdict::Retry {
        last_error: "busy".to_owned(),
        backoff: Some(Duration::from_millis(250)),
        category: Some(FailureCategory::External),
    };
    assert_eq!(job(&format!("echo '{line}'")).run().await, retry);

    let line = r#"{"result":"dead","last_error":"no such order"}"#;
    let verdict = Verdict::Dead { last_error: "no such order".to_owned(), category: None };
    assert_eq!(job(&format!("echo '{line}'")).run().await, verdict);
    assert_eq!(output(&job("echo '{\"result\":\"completed\"}'")).await, "null");
}

#[tokio::test]
async fn a_report_with_a_mistake_is_told_and_not_passed_over() {
    for (line, told) in [
        (r#"{"result":"completed","rows":5}"#, "unknown field `rows`"),
        (
            r#"{"result":"completed","outbound_events":[{"type":"a"},{"type":" "}]}"#,
            "`outbound_events[1].type` is blank",
        ),
        (r#"{"result":"waiting"}"#, "a wait needs"),
        (r#"{"result":"waiting","timeout_ms":-1}"#, "timeout_ms"),
        (r#"{"result":"waiting","timeout_ms":1,"waiting_facet":"godot"}"#, "`godot` is no waiting_facet"),
        (r#"{"result":"retry"}"#, "missing field `last_error`"),
        (r#"{"result":"dead","last_error":" "}"#, "`last_error` is blank"),
        (r#"{"result":"dead","last_error":"x","error_category":"cosmic"}"#, "`cosmic` is no error_category"),
        (r#"{"a":1,"a":2}"#, "the key `a` stands twice"),
        ("9007199254740993", "beyond"),
    ] {
        let error = dead(&job(&format!("echo '{line}'")), FailureCategory::Validation).await;
        // serde names the tagged variant's own fault in its own words.
        assert!(error.contains(told) || (line.contains("-1") && error.contains("no report")), "{line}: {error}");
    }
}

#[tokio::test]
async fn a_flood_is_drained_and_only_its_end_is_kept() {
    let flood = "yes | head -c 20000000; yes error | head -c 5000000 >&2";
    assert_eq!(output(&job(&format!("{flood}; echo; echo 7"))).await, "7");
    let told = dead(&job(&format!("{flood}; echo the end >&2; exit 4")), FailureCategory::AgentError).await;
    assert!(told.starts_with("exit code 4: error\n") && told.ends_with("the end") && told.len() < 5000, "{told}");
    let long = "printf '['; head -c 2000000 /dev/zero | tr '\\0' '1'; echo ']'";
    assert!(dead(&job(long), FailureCategory::Validation).await.starts_with("OUTPUT_TOO_LARGE"));
}

#[tokio::test]
async fn a_timeout_kills_the_whole_group() {
    let shared = tempfile::tempdir().expect("a directory");
    let pids = shared.path().join("pids");
    let mut job = job(&format!(
        "sleep 100 & echo $! > {0}; (sleep 100 & echo $! >> {0}; wait) & echo soon >&2; wait",
        pids.display()
    ));
    job.timeout = Some(Duration::from_secs(3));
    let begun = Instant::now();
    let killed = Verdict::Dead {
        last_error: "STEP_TIMEOUT: the process was killed: soon".to_owned(),
        category: Some(FailureCategory::Timeout),
    };
    assert_eq!(job.run().await, Verdict::Unknown { instead: Box::new(killed) });
    assert!(begun.elapsed() < Duration::from_secs(60));
    let pids = std::fs::read_to_string(pids).expect("pids");
    assert_eq!(pids.lines().count(), 2);
    for pid in pids.lines() {
        assert!(!is_alive(pid), "{pid} is still there");
    }
}

#[tokio::test]
async fn what_a_process_leaves_running_ends_with_it() {
    let begun = Instant::now();
    let pid = output(&job("sleep 100 & echo $!")).await;
    assert!(begun.elapsed() < Duration::from_secs(60), "its child kept the pipe open");
    assert!(!is_alive(&pid), "{pid} is still there");
    // One that has left the group cannot be killed with it, but is not waited for either.
    let begun = Instant::now();
    let pid = output(&job(
        "setsid sh -c 'echo $$ > pid; exec sleep 100' & while ! test -s pid; do sleep 0.01; done; cat pid",
    ))
    .await;
    assert!(begun.elapsed() < Duration::from_secs(60));
    std::process::Command::new("kill").arg(pid.trim()).status().expect("kill");
}

#[tokio::test]
async fn a_cancelled_job_leaves_nothing_behind() {
    let shared = tempfile::tempdir().expect("a directory");
    let told = shared.path().join("told");
    let script = format!("sleep 100 & echo $! > {0}.new; echo $PWD >> {0}.new; mv {0}.new {0}; wait", told.display());
    let running = tokio::spawn(async move { job(&script).run().await });
    eventually("it begins", || told.exists()).await;
    running.abort();
    assert!(running.await.is_err());
    let told = std::fs::read_to_string(&told).expect("told");
    let (pid, directory) = told.trim().split_once('\n').expect("two lines");
    eventually("the child is killed", || !is_alive(pid)).await;
    eventually("the directory is removed", || !Path::new(directory).exists()).await;
}

#[test]
fn a_job_is_made_of_a_step_with_its_templates_filled_in() {
    let template = |text: &str| Template(text.into());
    let work = ShellWork { command: template("\"${x}\""), env: None, success: vec![0, 2], retry: vec![75] };
    let job = ShellJob::filled(&work, r#"["ls","-l"]"#, Some(r#"{"A":"b"}"#)).expect("a job");
    assert_eq!(job.command, Command::List(vec!["ls".to_owned(), "-l".to_owned()]));
    let shown = format!("{job:?}");
    assert!(shown.contains(r#"["A"]"#) && !shown.contains(r#""b""#), "{shown}");
    assert_eq!((job.env["A"].as_str(), job.success, job.retry), ("b", vec![0, 2], vec![75]));
    assert_eq!(ShellJob::filled(&work, "\"ls\"", None).expect("a job").command, Command::Text("ls".to_owned()));
    assert!(ShellJob::filled(&work, "7", None).is_err());
    assert!(ShellJob::filled(&work, "\"ls\"", Some(r#"{"A":[1]}"#)).is_err());
}

/// The test runs itself once more, as the server that is killed.
#[tokio::test]
async fn no_process_outlives_a_server_that_is_killed() {
    const FILE: &str = "COUNTERSIGN_TEST_FILE";
    if let Ok(file) = std::env::var(FILE) {
        // Not the process that was started writes, but one that it has started.
        job(&format!("(while :; do echo >> '{file}'; sleep 0.01; done) & echo $! > '{file}.pid'; wait")).run().await;
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("written");
    let pid = || std::fs::read_to_string(file.with_extension("pid")).unwrap_or_default();
    let mut server = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "no_process_outlives_a_server_that_is_killed"])
        .env(FILE, &file)
        .spawn()
        .unwrap();
    eventually("nothing is written", || file.exists() && pid().ends_with('\n')).await;
    let pid = pid();
    assert!(is_alive(&pid));
    server.kill().unwrap();
    server.wait().unwrap();
    eventually("the process goes on", || !is_alive(&pid)).await;
}

#[tokio::test]
async fn numbers_and_truth_values_are_written_as_text() {
    let work = ShellWork { command: Template("\"\"".into()), env: None, success: vec![0], retry: vec![75] };
    let filled = |command: &str, env: &str| ShellJob::filled(&work, command, Some(env));
    let job = filled(r#"["echo", 5, true, "x"]"#, r#"{"N":5.5}"#).expect("a job");
    assert_eq!(job.command, Command::List(["echo", "5", "true", "x"].map(str::to_owned).to_vec()));
    assert_eq!(job.env["N"], "5.5");
    for (command, env) in
        [(r#"["echo", null]"#, "{}"), (r#"["echo", [1]]"#, "{}"), ("7", "{}"), (r#""true""#, r#"{"N":{}}"#)]
    {
        assert!(filled(command, env).is_err(), "{command} {env}");
    }
}

const SECRET: &str = "hunter2/hunter2";

fn secretive(script: &str) -> ShellJob {
    ShellJob { env: [("KEY".to_owned(), SECRET.to_owned())].into(), mask: Mask::of([SECRET]), ..job(script) }
}

/// Whatever a command says, and in whichever of its ways.
#[tokio::test]
async fn a_secret_is_masked_in_everything_that_is_reported() {
    let scripts = [
        r#"printf '{"k":"%s","b":"%s"}' "$KEY" "$(printf "u:$KEY" | base64)""#,
        r#"printf '{"result":"completed","output":["%s"],"outbound_events":[{"type":"a.%s","data":"%s"}]}' "$KEY" "$KEY" "$KEY""#,
        r#"printf '{"result":"waiting","waiting_event_type":"%s"}' "$KEY""#,
        r#"printf '{"result":"retry","last_error":"%s"}' "$KEY""#,
        r#"printf '{"result":"dead","last_error":"%s","%s":1}' "$KEY" "$KEY""#,
        r#"echo "it is $KEY" >&2; exit 1"#,
        r#"echo "it is $KEY" >&2; exit 75"#,
    ];
    for script in scripts {
        let verdict = format!("{:?}", secretive(script).run().await);
        assert!(verdict.contains("***") && !verdict.contains("hunter2"), "{script}: {verdict}");
    }
    let mut late = secretive(r#"echo "it is $KEY" >&2; sleep 60"#);
    late.timeout = Some(Duration::from_millis(700));
    let verdict = format!("{:?}", late.run().await);
    assert!(verdict.contains("it is ***") && !verdict.contains("hunter2"), "{verdict}");
}

/// What is kept of a long output may begin, and what is told of it may end, inside of a secret.
#[tokio::test]
async fn no_part_of_a_secret_is_told_where_output_is_cut() {
    let long = "0123456789abcdef".repeat(16);
    let shown = |verdict: Verdict| format!("{verdict:?}");
    for script in ["yes \"$KEY\" | head -n 900 >&2; exit 1", "yes \"$KEY\" | head -n 900 | tr -d '\\n' >&2; exit 1"] {
        let mask = Mask::of([long.as_str()]);
        let job = ShellJob { env: [("KEY".to_owned(), long.clone())].into(), mask, ..job(script) };
        let told = shown(job.run().await);
        assert!(told.contains("***") && !told.contains("0123456789abcdef"), "{told}");
    }
}

#[tokio::test]
async fn secrets_for_keys_make_no_output() {
    let error = dead(&secretive(r#"printf '{"%s":1,"x":2,"***":3}' "$KEY""#), FailureCategory::Validation).await;
    assert!(error.contains("secrets for keys"), "{error}");
}

fn leaving(script: &str, paths: &[&str], kept: &Path) -> ShellJob {
    let store = ArtifactStore::open(kept, 1000).expect("a store");
    let paths = paths.iter().map(|path| (*path).to_owned()).collect();
    ShellJob { artifacts: Some(Artifacts { paths, store }), ..job(script) }
}

#[tokio::test]
async fn artifacts_are_kept_when_the_step_succeeds() {
    let kept = tempfile::tempdir().expect("a directory");
    let script = "mkdir sub && echo hello > sub/a.txt && : > b; pwd; echo '{\"n\":1}'";
    let Verdict::Completed { output_json, artifacts, .. } =
        leaving(script, &["sub/a.txt", "b"], kept.path()).run().await
    else {
        panic!("completed")
    };
    assert_eq!(output_json, r#"{"n":1}"#);
    let shown: Vec<String> = artifacts.iter().map(|a| format!("{} {} {}", a.path, a.sha256, a.size_bytes)).collect();
    assert_eq!(
        shown,
        [
            "sub/a.txt 5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03 6",
            "b e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 0",
        ]
    );
    assert!(kept.path().join("58").join(artifacts[0].sha256.to_string()).is_file());
}

#[tokio::test]
async fn a_step_without_its_artifacts_has_failed() {
    let kept = tempfile::tempdir().expect("a directory");
    for (script, told) in [
        ("echo x > other", "ARTIFACT_MISSING: a"),
        ("ln -s /etc/passwd a", "ARTIFACT_REFUSED: a: it is a symbolic link"),
        ("mkdir a", "ARTIFACT_REFUSED: a: it is not a regular file"),
        ("head -c 1001 /dev/zero > a", "ARTIFACT_TOO_LARGE: a: `artifacts.max_bytes` allows 1000 bytes"),
        // A failure of the process itself goes before.
        ("echo broken >&2; exit 3", "exit code 3: broken"),
    ] {
        assert_eq!(dead(&leaving(script, &["a"], kept.path()), FailureCategory::AgentError).await, told);
    }
    // A report that is no success needs none.
    let retried = leaving(r#"echo '{"result":"retry","last_error":"not yet"}'"#, &["a"], kept.path()).run().await;
    assert!(matches!(retried, Verdict::Retry { .. }), "{retried:?}");
}

/// Each attempt has a directory of its own, and nothing of it stays.
#[tokio::test]
async fn a_working_directory_is_one_attempts_own() {
    let kept = tempfile::tempdir().expect("a directory");
    let mut seen = vec![];
    for _ in 0..2 {
        let Verdict::Completed { output_json, .. } = leaving(
            "echo x > a; ls -A | wc -l >&2; test $(ls -A | wc -l) = 1 && printf '\"%s\"' $PWD",
            &["a"],
            kept.path(),
        )
        .run()
        .await
        else {
            panic!("completed")
        };
        seen.push(output_json.trim_matches('"').to_owned());
    }
    assert!(seen[0] != seen[1] && seen.iter().all(|path| !Path::new(path).exists()), "{seen:?}");
}

#[tokio::test]
async fn a_probes_value_is_what_it_prints() {
    for (script, value) in [
        ("echo noise; echo '{\"a\": 1}'", r#"{"a": 1}"#),
        ("echo 'abc  manifest.json'", r#""abc  manifest.json""#),
        ("printf 'one\\ntwo\\n\\n'", r#""one\ntwo\n""#),
        ("true", r#""""#),
        // Too large for a number is text, and stays exact.
        ("echo 12345678901234567890", r#""12345678901234567890""#),
        ("echo '{\"result\":\"dead\",\"last_error\":\"x\"}'", r#"{"result":"dead","last_error":"x"}"#),
    ] {
        assert_eq!(job(script).probe().await.as_deref(), Ok(value), "{script}");
    }
    for (script, told) in [
        ("echo gone >&2; exit 1", "exit code 1: gone"),
        ("exit 75", "exit code 75"),
        ("printf '\\377'", "not text"),
        ("printf 'a\\0b'", "not text"),
        ("head -c 70000 /dev/zero | tr '\\0' x", "larger than 65536 bytes"),
        ("head -c 2000000 /dev/zero | tr '\\0' x", "more than 1048576 bytes"),
    ] {
        let why = job(script).probe().await.expect_err(script);
        assert!(why.contains(told), "{script}: {why}");
    }
    assert_eq!(secretive("echo \"it is $KEY\"").probe().await.as_deref(), Ok(r#""it is ***""#));
    let why = secretive("echo \"it is $KEY\" >&2; exit 1").probe().await.expect_err("a failure");
    assert_eq!(why, "exit code 1: it is ***");
    let late = ShellJob { timeout: Some(Duration::from_millis(100)), ..job("sleep 60") };
    assert!(late.probe().await.expect_err("late").contains("took too long"));
}
