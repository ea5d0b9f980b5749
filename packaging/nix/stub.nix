# A stand-in for nixpkgs with what the flake uses, to evaluate it without nixpkgs (`scripts/test --full`). It builds nothing.
let
  systems = [ "x86_64-linux" "aarch64-linux" "aarch64-darwin" "x86_64-darwin" ];
  lib = {
    cleanSource = path: path;
    genAttrs = names: make: builtins.listToAttrs (map (name: { inherit name; value = make name; }) names);
    licenses = { mit = "MIT"; asl20 = "Apache-2.0"; };
  };
  pkgs = {
    inherit lib;
    installShellFiles = "installShellFiles";
    rustPlatform.buildRustPackage = attributes: attributes;
    makeSetupHook = attributes: script: attributes // { inherit script; };
    callPackage = file: more:
      let function = import file;
      in function (builtins.intersectAttrs (builtins.functionArgs function) pkgs // more);
  };
in {
  inherit lib;
  legacyPackages = lib.genAttrs systems (system: pkgs);
}
