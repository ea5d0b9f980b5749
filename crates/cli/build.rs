//! How the command is linked.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |key: &str, value: &str| env::var(key).is_ok_and(|found| found == value);
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        // The program itself has a fixed address. Anywhere else, tens of thousands of pointers
        // would have to be set whenever it starts, which takes longer than `info` does. Libraries,
        // heap and stacks are at random addresses all the same; whoever packages it and wants that
        // of the program too sets RUSTFLAGS="-C link-arg=-pie", which has the last word.
        println!("cargo::rustc-link-arg-bins=-no-pie");
        // What unwinds after a panic, as an archive. As the shared library that it is by default it
        // would be loaded, and ask the processor what it can, at every start: a tenth of the time
        // of `info`. It comes with every GCC.
        println!("cargo::rustc-link-lib=gcc_eh");
    }
}
