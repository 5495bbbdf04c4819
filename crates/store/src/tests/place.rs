//! A fresh store for each test. A database stays on the throw-away server, to be looked at after a failure.

use countersign_engine::port::{Batch, Committed, Loaded, LoadedBody, LoadedRun, Reader, Unit, Verdict, Writer};
use countersign_kernel::InstanceId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio_postgres::NoTls;

const VARIABLE: &str = "COUNTERSIGN_TEST_POSTGRES";

pub struct Place {
    pub url: String,
    pub is_postgres: bool,
    directory: Option<std::path::PathBuf>,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(directory) = &self.directory {
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}

fn unique() -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("{:x}_{:x}_{}", since.as_nanos(), std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed))
}

impl Place {
    pub fn sqlite() -> Place {
        let directory = std::env::temp_dir().join(format!("countersign-store-{}", unique()));
        std::fs::create_dir(&directory).unwrap();
        let url = format!("sqlite:{}", directory.join("store.db").display());
        Place { url, is_postgres: false, directory: Some(directory) }
    }

    pub async fn postgres() -> Place {
        let server = std::env::var(VARIABLE).expect("run it through scripts/with-postgres.sh");
        let name = format!("countersign_store_{}", unique());
        let (client, connection) = tokio_postgres::connect(&server, NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
        let (base, _) = server.rsplit_once('/').unwrap();
        Place { url: format!("{base}/{name}"), is_postgres: true, directory: None }
    }

    pub async fn open(&self) -> (Box<dyn Writer>, Arc<dyn Reader>) {
        crate::open(&self.url).await.unwrap().into_parts()
    }
}

pub async fn verdicts(writer: &mut dyn Writer, units: Vec<Unit>) -> Vec<Verdict> {
    let batch = Batch { registry_sequence: 0, changes_registry: false, units, checks: vec![] };
    match writer.commit(&batch).await.unwrap() {
        Committed::Done(verdicts) => verdicts,
        Committed::RegistryMoved => panic!("the registry has moved"),
    }
}

pub async fn commit(writer: &mut dyn Writer, units: Vec<Unit>) {
    let won = vec![Verdict::Won; units.len()];
    assert_eq!(verdicts(writer, units).await, won);
}

pub async fn load(writer: &mut dyn Writer, id: InstanceId) -> (Loaded, LoadedRun) {
    let mut all = writer.load(&[id]).await.unwrap();
    assert_eq!(all.len(), 1);
    let loaded = all.remove(0);
    match &loaded.body {
        LoadedBody::Run(run) => {
            let run = (**run).clone();
            (loaded, run)
        }
        LoadedBody::Process(_) => panic!("a run was loaded as a process"),
    }
}
