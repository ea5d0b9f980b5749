{
  description = "Apple disk images and the HFS+ and APFS volumes in them";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" "aarch64-darwin" "x86_64-darwin" ];
      each = make: nixpkgs.lib.genAttrs systems (system: make nixpkgs.legacyPackages.${system});
    in {
      packages = each (pkgs: rec {
        bandsaw = pkgs.callPackage ./packaging/nix/package.nix { };
        default = bandsaw;
        # nativeBuildInputs = [ bandsaw.packages.${system}.undmg-hook ]; for a source that is a disk image
        undmg-hook = pkgs.makeSetupHook {
          name = "bandsaw-undmg-hook";
          propagatedBuildInputs = [ bandsaw ];
        } ./packaging/nix/undmg-hook.sh;
      });
    };
}
