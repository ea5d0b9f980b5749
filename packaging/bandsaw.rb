# Homebrew: `brew install --build-from-source ./bandsaw.rb`, or from a tap.
class Bandsaw < Formula
  desc "Apple disk images and the HFS+ and APFS volumes in them"
  homepage "https://github.com/bandsaw/bandsaw"
  license any_of: ["MIT", "Apache-2.0"]
  head "https://github.com/bandsaw/bandsaw.git", branch: "main"

  depends_on "rust" => :build

  def install
    system "cargo", "install", *std_cargo_args(path: "crates/cli")
    man1.install Dir["docs/man/*.1"]
    generate_completions_from_executable(bin/"bandsaw", "completions")
  end

  test do
    system bin/"bandsaw", "create", "Docs.sparsebundle", "--size", "64m", "--volname", "Docs"
    assert_match "Docs", shell_output("#{bin}/bandsaw info Docs.sparsebundle")
  end
end
