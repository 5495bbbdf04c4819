//! `make torture`: crashes, races, lost answers and random commands for as long as you like, on both stores,
//! with everything checked after each part. A failure names the seed that repeats it.

use clap::Parser;
use countersign_testing::place::Kind;
use countersign_testing::torture::{PARTS, Part, seed_of};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Crash the server again and again and check that nothing was lost
#[derive(Parser)]
struct Args {
    /// How long; the first round is always finished
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// What everything is drawn from [default: the time]
    #[arg(long)]
    seed: Option<u64>,
    /// sqlite, postgres or both
    #[arg(long, default_value = "both")]
    store: String,
    /// Only parts whose name holds this
    #[arg(long)]
    only: Option<String>,
    /// Only this round
    #[arg(long)]
    round: Option<u64>,
    /// Be a worker that is to be killed, in this directory
    #[arg(long, hide = true, requires = "id")]
    worker: Option<PathBuf>,
    #[arg(long, hide = true)]
    id: Option<usize>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    if let (Some(directory), Some(id)) = (&args.worker, args.id) {
        return match countersign_testing::crash::worker::work(directory, id, args.seed.unwrap_or(0)).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("worker {id}: {error:#}");
                ExitCode::FAILURE
            }
        };
    }
    let stores: &[Kind] = match args.store.as_str() {
        "both" => &Kind::ALL,
        "sqlite" => &[Kind::Sqlite],
        "postgres" => &[Kind::Postgres],
        other => {
            eprintln!("there is no store `{other}`: sqlite, postgres or both");
            return ExitCode::from(2);
        }
    };
    let wanted = |part: &Part| {
        part.needs_only(stores) && args.only.as_ref().is_none_or(|only| part.name().contains(only.as_str()))
    };
    let parts: Vec<(usize, Part)> = PARTS.iter().copied().enumerate().filter(|(_, part)| wanted(part)).collect();
    if parts.is_empty() {
        let names: Vec<String> = PARTS.iter().map(|part| part.name()).collect();
        eprintln!("no part of that name on this store; there are: {}", names.join(", "));
        return ExitCode::from(2);
    }
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = args.seed.unwrap_or(since_epoch.as_secs());
    println!("torture: seed {seed}, {} parts, {} minutes", parts.len(), args.minutes);
    rounds(&args, seed, &parts).await
}

async fn rounds(args: &Args, seed: u64, parts: &[(usize, Part)]) -> ExitCode {
    let (start, time) = (Instant::now(), Duration::from_secs_f64(args.minutes.max(0.0) * 60.0));
    let first = args.round.unwrap_or(1);
    let mut done = 0;
    for round in first.. {
        for (number, part) in parts {
            let before = Instant::now();
            match part.run(seed_of(seed, round, *number)).await {
                Ok(told) => {
                    let (at, took) = (start.elapsed().as_secs(), before.elapsed().as_secs_f64());
                    println!("{at:>6} s  round {round}  {:<22} {took:>6.1} s  {told}", part.name());
                }
                Err(error) => {
                    println!("FAILED  round {round}  {}: {error:?}", part.name());
                    println!("to repeat: --seed {seed} --round {round} --only {}", part.name());
                    return ExitCode::FAILURE;
                }
            }
            done += 1;
            if round > first && start.elapsed() >= time {
                break;
            }
        }
        if args.round.is_some() || start.elapsed() >= time {
            break;
        }
    }
    println!("torture: {done} parts passed in {} s, seed {seed}", start.elapsed().as_secs());
    ExitCode::SUCCESS
}
