# The command from this tree.
{ lib, rustPlatform, installShellFiles }:

rustPlatform.buildRustPackage {
  pname = "bandsaw";
  version = "0.1.0";
  src = lib.cleanSource ../..;
  cargoLock.lockFile = ../../Cargo.lock;
  cargoBuildFlags = [ "--package" "bandsaw-cli" ];
  # The other tests need programs and kernels that a build has not.
  cargoTestFlags = [ "--no-default-features" "--package" "bandsaw-cli" "--test" "smoke" ];
  nativeBuildInputs = [ installShellFiles ];
  postInstall = ''
    installManPage docs/man/*.1
    for shell in bash fish zsh; do
      $out/bin/bandsaw completions $shell > bandsaw.$shell
      installShellCompletion bandsaw.$shell
    done
  '';
  meta = {
    description = "Apple disk images and the HFS+ and APFS volumes in them";
    homepage = "https://github.com/bandsaw/bandsaw";
    license = with lib.licenses; [ mit asl20 ];
    mainProgram = "bandsaw";
  };
}
