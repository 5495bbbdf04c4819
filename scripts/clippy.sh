# Sourced, not run. From here on cargo compiles the crates of the workspace with clippy, and a warning is an error. The compiler and the
# linter then do their common work once: `cargo clippy` and `cargo test` one after the other compile everything twice.
#
# clippy-driver optimises nothing in the middle of the compiler, which makes no difference at opt-level 0, where tests run. Release
# builds never use it.
RUSTC_WORKSPACE_WRAPPER=$(command -v clippy-driver)
export RUSTC_WORKSPACE_WRAPPER CLIPPY_ARGS=-Dwarnings
