//! Lists the files of the built console, so that the binary carries them. It never runs npm: `make build` does. Where the console
//! was not built, the list is empty, and the server serves a page that says so.

use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

fn main() -> std::io::Result<()> {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../console/dist");
    // The directory is always there: its .gitignore is tracked.
    println!("cargo::rerun-if-changed={}", dist.display());
    let mut files = vec![];
    collect(&dist, &mut files)?;
    files.sort();
    let root = dist.canonicalize().unwrap_or_else(|_| dist.clone());
    if !files.iter().any(|path| path.ends_with("index.html")) {
        println!("cargo::warning=the console is not built; `make build` builds it");
    }
    let mut list = String::from("&[\n");
    for path in files.iter().filter(|path| !is_twin(path)) {
        let name = path.strip_prefix(&root).unwrap_or(path).display();
        let mut hasher = DefaultHasher::new();
        fs::read(path)?.hash(&mut hasher);
        let twin = |ending: &str| {
            let twin = PathBuf::from(format!("{}{ending}", path.display()));
            if twin.exists() { format!("Some(include_bytes!({twin:?}))") } else { "None".to_owned() }
        };
        let (brotli, gzip) = (twin(".br"), twin(".gz"));
        let entry = format!(
            "File {{ path: \"/{name}\", tag: \"\\\"{:016x}\\\"\", plain: include_bytes!({path:?}), brotli: {brotli}, gzip: {gzip} }},",
            hasher.finish()
        );
        writeln!(list, "{entry}").map_err(std::io::Error::other)?;
    }
    list.push(']');
    let out = std::env::var_os("OUT_DIR").ok_or_else(|| std::io::Error::other("OUT_DIR is not set"))?;
    fs::write(Path::new(&out).join("console.rs"), list)
}

/// A compressed form of another file.
fn is_twin(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "br" || ending == "gz")
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let Ok(entries) = fs::read_dir(directory) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.file_name().is_some_and(|name| name != ".gitignore" && name != ".stamp") {
            files.push(path.canonicalize()?);
        }
    }
    Ok(())
}
