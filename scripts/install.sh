#!/bin/sh
# Installs the command of a release for this user, after its SHA-256 sum was compared:
#
#     sh install.sh [FOLDER]
#
# The command goes to FOLDER/bin (default ~/.local), manual pages and completions to FOLDER/share.
# BANDSAW_RELEASE is the address of the release's files: https://…, or file:///… for a local copy.
set -eu

version=0.1.0
release=${BANDSAW_RELEASE:-https://github.com/bandsaw/bandsaw/releases/download/v$version}
folder=${1:-$HOME/.local}

fail() {
    printf 'install.sh: %s\nnothing was changed\n' "$*" >&2
    exit 1
}

sum=sha256sum
case $(uname -s)-$(uname -m) in
    Linux-x86_64 | Linux-amd64) target=x86_64-unknown-linux-musl ;;
    Linux-aarch64 | Linux-arm64) target=aarch64-unknown-linux-musl ;;
    Darwin-x86_64 | Darwin-arm64)
        target=universal-apple-darwin
        sum='shasum -a 256'
        ;;
    *) fail "there is no build for $(uname -s) on $(uname -m): use cargo install --path crates/cli" ;;
esac
for program in curl "${sum%% *}" tar; do
    command -v "$program" >/dev/null || fail "$program is not installed"
done

name=bandsaw-$version-$target
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT INT TERM
for file in SHA256SUMS "$name.tar.gz"; do
    curl --fail --silent --show-error --location --output "$scratch/$file" "$release/$file" ||
        fail "$release/$file cannot be downloaded"
done
grep " $name.tar.gz\$" "$scratch/SHA256SUMS" >"$scratch/sum" || fail "SHA256SUMS has no sum of $name.tar.gz"
(cd "$scratch" && $sum --status --check sum) || fail "$name.tar.gz does not have the sum of SHA256SUMS: it is damaged"
tar -xzf "$scratch/$name.tar.gz" -C "$scratch" || fail "$name.tar.gz cannot be unpacked"
"$scratch/$name/bandsaw" --version >/dev/null || fail 'the command does not run on this system'

share=$folder/share
mkdir -p "$folder/bin" "$share/man/man1" "$share/bash-completion/completions" "$share/fish/vendor_completions.d" \
    "$share/zsh/site-functions"
cp "$scratch/$name/man/"*.1 "$share/man/man1/"
cp "$scratch/$name/completions/bandsaw.bash" "$share/bash-completion/completions/bandsaw"
cp "$scratch/$name/completions/bandsaw.fish" "$share/fish/vendor_completions.d/bandsaw.fish"
cp "$scratch/$name/completions/bandsaw.zsh" "$share/zsh/site-functions/_bandsaw"
# A command that is running is replaced by its name, not overwritten.
cp "$scratch/$name/bandsaw" "$folder/bin/.bandsaw.new"
mv -f "$folder/bin/.bandsaw.new" "$folder/bin/bandsaw"
printf 'installed %s\n' "$folder/bin/bandsaw"
case :$PATH: in
    *:"$folder/bin":*) ;;
    *) printf '%s is not in PATH\n' "$folder/bin" ;;
esac
