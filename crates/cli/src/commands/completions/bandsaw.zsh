#compdef bandsaw
# Completion of bandsaw for zsh. The program itself finds the candidates.

_bandsaw() {
    local line value also
    local -a lines ended open ended_shown open_shown
    lines=("${(@f)$("${(Q)words[1]}" __complete words -- "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    also=$lines[1]
    shift lines
    for line in $lines; do
        value=${line%%$'\t'*}
        # A folder, an image or an option with a value goes on.
        if [[ $value == *[/:=] ]]; then
            open+=("$value")
            open_shown+=("${line/$'\t'/  -- }")
        else
            ended+=("$value")
            ended_shown+=("${line/$'\t'/  -- }")
        fi
    done
    (( $#ended )) && compadd -d ended_shown -- $ended
    (( $#open )) && compadd -S '' -d open_shown -- $open
    case $also in
        files) _files ;;
        folders) _files -/ ;;
    esac
}

# Links of these names that are this program, not Apple's.
() {
    local tool
    for tool in hdiutil diskutil; do
        [[ -n ${commands[$tool]} && ${commands[$tool]} -ef ${commands[bandsaw]} ]] && compdef _bandsaw $tool
    done
    true
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _bandsaw "$@"
else
    compdef _bandsaw bandsaw
fi
