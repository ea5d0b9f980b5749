# Completion of bandsaw for fish. The program itself finds the candidates.

function __bandsaw_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct | string unescape)
    set -q current[1]
    or set current ''
    set -l lines ($words[1] __complete words -- $words[2..] $current 2>/dev/null)
    switch "$lines[1]"
        case files
            __fish_complete_path $current
        case folders
            __fish_complete_directories $current
    end
    printf '%s\n' $lines[2..]
end

complete -c bandsaw -f -a '(__bandsaw_complete)'

# Links of these names that are this program, not Apple's.
for tool in hdiutil diskutil
    set -l link (command -s $tool)
    and test (path resolve $link) = (path resolve (command -s bandsaw))
    and complete -c $tool -f -a '(__bandsaw_complete)'
end
