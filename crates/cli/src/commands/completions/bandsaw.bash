# Completion of bandsaw for bash. The program itself finds the candidates.

_bandsaw() {
    local word
    local -a lines
    mapfile -t lines < <("${COMP_WORDS[0]}" __complete bash "${COMP_LINE:0:COMP_POINT}" "$COMP_WORDBREAKS" 2>/dev/null)
    COMPREPLY=("${lines[@]:1}")
    if [ ${#COMPREPLY[@]} -eq 0 ]; then
        case ${lines[0]-} in
            files) compopt -o default ;;
            folders) compopt -o dirnames ;;
        esac
        return
    fi
    if [ "${lines[0]}" = files ]; then
        word=${COMP_WORDS[COMP_CWORD]}
        mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$word")
    fi
    # A folder, an image or an option with a value goes on.
    case ${COMPREPLY[0]} in
        */ | *: | *=) compopt -o nospace ;;
    esac
}

complete -F _bandsaw bandsaw

# Links of these names that are this program, not Apple's.
for _bandsaw_tool in hdiutil diskutil; do
    if [[ $(type -P $_bandsaw_tool) -ef $(type -P bandsaw) ]]; then
        complete -F _bandsaw $_bandsaw_tool
    fi
done
unset _bandsaw_tool
