//! Compiles the contracts without protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["common", "record", "registry", "admin", "group", "command", "snapshot", "raft", "nodes"]
        .map(|name| format!("proto/thalweg/v1/{name}.proto"));
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(&files, ["proto"])?;
    tonic_prost_build::configure().bytes(".").btree_map(".").compile_fds(descriptors)?;
    Ok(())
}
