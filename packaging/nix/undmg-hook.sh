# shellcheck shell=bash
# Unpacks disk images in the unpack phase of nixpkgs: names, modes and symbolic links are kept, so that signatures of
# apps stay valid. All volumes, local or not, compressed or not.
unpackCmdHooks+=(_tryBandsaw)
_tryBandsaw() {
    # shellcheck disable=SC2154 # curSrc is set by nixpkgs
    case $curSrc in
        *.[dD][mM][gG] | *.sparseimage | *.sparsebundle | *.asif) ;;
        *) return 1 ;;
    esac
    bandsaw extract "$curSrc" .
}
