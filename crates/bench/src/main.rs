//! `make bench`: how fast a gated process runs (start → open → approve → fire), in process and over HTTP, on
//! both stores, compared with the limit of the same store for the same rows in the same run. Only ratios
//! mean anything: machines differ, and so do their neighbours.

mod cells;
mod commands;
mod endurance;
mod language;
mod limits;
mod log;
mod peers;
mod report;
mod restart;
mod runbooks;
mod story;
mod stream;
mod target;
mod workflows;

use anyhow::Context;
use clap::Parser;
use report::{Report, Row};
use std::time::Duration;
use story::Story;
use target::Target;

const TURNS: u32 = 6;

/// What can be measured by itself.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// The dearest commands in the language of definitions.
    Language,
    /// Workflows, cells, and the long run.
    Workflows,
    /// Workers that lease their steps over HTTP.
    Leased,
    /// What a page reads of a large run.
    Cells,
    /// The dearest commands on a large run.
    Commands,
    /// Workflows in the long run: --finished, --pinned, --live, an idle server.
    Endurance,
    /// Starts of the server beside live runs (--live).
    Restart,
    /// The live stream.
    Stream,
    /// The log.
    Log,
    /// Gated processes.
    Processes,
}

#[derive(Parser)]
struct Args {
    /// Seconds for each measurement.
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Stores to measure.
    #[arg(long, value_delimiter = ',', default_value = "sqlite,postgres")]
    stores: Vec<String>,
    /// Numbers of clients.
    #[arg(long, value_delimiter = ',', default_value = "1,8,64")]
    clients: Vec<usize>,
    /// Measure one part and nothing else.
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Leave out the comparison at different numbers of stored instances.
    #[arg(long)]
    no_growth: bool,
    /// Numbers of stored instances to compare the cost of a command at.
    #[arg(long, value_delimiter = ',', default_value = "10000,1000000")]
    instances: Vec<u64>,
    /// Leave out the measurements over HTTP.
    #[arg(long)]
    no_http: bool,
    /// Runs of W1.
    #[arg(long, default_value_t = 3000)]
    runs: usize,
    /// Workers of W1 and W3 in process.
    #[arg(long, default_value_t = 256)]
    workers: usize,
    /// Workers of W1 over HTTP.
    #[arg(long, default_value_t = 256)]
    leased: usize,
    /// Runs that have ended before W1 is measured again; 1000000 takes minutes. 0 leaves it out.
    #[arg(long, default_value_t = 20_000)]
    finished: usize,
    /// Live runs beside which the server is started; 1000000 takes minutes. 0 leaves it out.
    #[arg(long, default_value_t = 20_000)]
    live: usize,
    /// Seconds of W1 while an old snapshot is held on PostgreSQL. 0 leaves it out.
    #[arg(long, default_value_t = 20)]
    pinned: u64,
    /// Leave out what the log costs and gives.
    #[arg(long)]
    no_log: bool,
    /// Entries of the log that proofs are made in; 10000000 takes a few minutes to fill.
    #[arg(long, default_value_t = 1_000_000)]
    log_entries: u64,
    /// Instances of an export, made once with a tenth of them and once with all; 1000000 takes minutes. 0 leaves it out.
    #[arg(long, default_value_t = 20_000)]
    exported: u64,
    /// Results of peers in the same run, as bench/peers/run.sh prints them, for comparison.
    #[arg(long)]
    peers: Option<std::path::PathBuf>,
    /// Where the results go.
    #[arg(long, default_value = "target/bench/latest.json")]
    output: std::path::PathBuf,
}

/// The server's own: measured is what runs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(run(Args::parse()))
}

impl Args {
    /// Whether one of these is to be measured.
    fn wants(&self, parts: &[Part]) -> bool {
        self.only.is_none_or(|only| parts.contains(&only))
    }
}

async fn run(args: Args) -> anyhow::Result<()> {
    let mut report = Report::default();
    let time = Duration::from_secs_f64(args.seconds);
    if args.wants(&[Part::Language]) {
        language::measure(time, &mut report);
    }
    for store in args.stores.iter().filter(|_| args.only != Some(Part::Language)) {
        measure_store(store, time, &args, &mut report).await.with_context(|| format!("measuring {store}"))?;
    }
    if let Some(path) = &args.peers {
        peers::stand_beside(path, &mut report)?;
    }
    report.print();
    report.write(&args.output)
}

async fn measure_store(store: &str, time: Duration, args: &Args, report: &mut Report) -> anyhow::Result<()> {
    let most = args.clients.iter().copied().max().unwrap_or(64);
    let sizes = workflows::Sizes { runs: args.runs, workers: args.workers, leased: args.leased };
    if args.wants(&[Part::Workflows]) {
        workflows::measure(store, &sizes, report).await?;
    }
    if args.wants(&[Part::Workflows, Part::Cells]) {
        cells::measure(store, report).await?;
    }
    if args.wants(&[Part::Workflows, Part::Commands]) {
        commands::measure(store, report).await?;
    }
    if args.wants(&[Part::Workflows, Part::Leased]) && !args.no_http {
        workflows::over_http(store, &sizes, report).await?;
    }
    if args.wants(&[Part::Workflows, Part::Endurance]) {
        let pinned = Duration::from_secs(args.pinned);
        let sizes = endurance::Sizes { runs: args.runs, workers: args.workers, finished: args.finished, pinned };
        endurance::measure(store, &sizes, report).await?;
    }
    if args.wants(&[Part::Endurance, Part::Restart]) {
        restart::measure(store, args.live, report).await?;
    }
    if args.wants(&[Part::Stream]) && !args.no_http {
        stream::measure(store, time, report).await?;
    }
    if args.wants(&[Part::Log]) && !args.no_log {
        log::measure(store, most, time, args.log_entries, args.exported, report).await?;
    }
    if args.wants(&[Part::Processes]) {
        processes(store, time, args, report).await?;
    }
    Ok(())
}

/// Gated processes, compared with the limit of the store for the same rows.
async fn processes(store: &str, time: Duration, args: &Args, report: &mut Report) -> anyhow::Result<()> {
    let most = args.clients.iter().copied().max().unwrap_or(64);
    eprintln!("{store}: bare transactions and raw rows …");
    let (mut bare_store, raw) = limits::raw_limits(store, most).await?;
    let one = &raw.one_command;
    report.add(Row::new("one command's rows, one transaction", store, "raw", 1, &one.samples, one.elapsed));
    report.add(Row::rate("rows of these commands", store, "raw", 1, raw.rows_per_s));

    for clients in &args.clients {
        eprintln!("{store}: {clients} in process …");
        let target = Target::in_process(store).await?;
        let story = Story::in_process(&target).await?;
        let (mut run, mut bare) = (story::Run::default(), limits::Bare::default());
        // Bare transactions in turns with them: a neighbour that wakes up in between disturbs both.
        for _ in 0..TURNS {
            if *clients == 1 {
                bare_store.run(time / TURNS / 2, &mut bare).await?;
            }
            run.add(story.run(*clients, time / TURNS).await?);
        }
        let mut row = Row::new("gated process", store, "in process", *clients, &run.samples, run.elapsed);
        row.ratio_to_limit = Some(match clients {
            1 => bare.p50_ms() / row.p50_ms,
            _ => row.ops_per_s * raw.rows_per_command / raw.rows_per_s,
        });
        if *clients == 1 {
            report.add(Row::new("bare transaction", store, "raw", 1, &bare.samples, bare.elapsed));
        }
        report.add(row);
        eprintln!("       {}", run.by_command());
        target.close().await?;
    }
    bare_store.remove().await?;
    if !args.no_http {
        for clients in &args.clients {
            eprintln!("{store}: {clients} over HTTP …");
            let target = Target::http(store).await?;
            let story = Story::over_http(&target).await?;
            let run = story.run(*clients, time).await?;
            let mut row = Row::new("gated process", store, "http", *clients, &run.samples, run.elapsed);
            row.ratio_to_limit = Some(row.ops_per_s * raw.rows_per_command / raw.rows_per_s);
            report.add(row);
            target.close().await?;
        }
    }
    if !args.no_growth {
        measure_growth(store, most, time, args, report).await?;
    }
    Ok(())
}

/// The cost of a command as the store fills: new processes, and commands on old ones that no cache holds.
async fn measure_growth(
    store: &str,
    clients: usize,
    time: Duration,
    args: &Args,
    report: &mut Report,
) -> anyhow::Result<()> {
    let target = Target::in_process_without_cache(store).await?;
    let story = Story::in_process(&target).await?;
    let mut first: Option<(f64, f64)> = None;
    for goal in &args.instances {
        eprintln!("{store}: filling up to {goal} instances …");
        let ids = story.fill(*goal).await?;
        let fresh = story.run(clients, time).await?;
        let cold = story.run_cold(&ids, clients, time).await?;
        let mut fresh = Row::new(
            &format!("gated process, {goal} stored"),
            store,
            "in process",
            clients,
            &fresh.samples,
            fresh.elapsed,
        );
        let mut cold = Row::new(
            &format!("open+approve+fire on old, {goal} stored"),
            store,
            "in process",
            clients,
            &cold.samples,
            cold.elapsed,
        );
        let (first_fresh, first_cold) = *first.get_or_insert((fresh.ops_per_s, cold.ops_per_s));
        fresh.ratio_to_limit = Some(fresh.ops_per_s / first_fresh);
        cold.ratio_to_limit = Some(cold.ops_per_s / first_cold);
        report.add(fresh);
        report.add(cold);
    }
    target.close().await
}
