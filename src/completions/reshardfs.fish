# SPDX-License-Identifier: Apache-2.0
# fish completion of reshardfs.  What it offers is what --help-all says.

# The value of an option, or nothing: __reshardfs_value OPTION HELP...
function __reshardfs_value
    for line in $argv[2..]
        set -l found (string match -r -- '^  (?:-., |    )?(?:.*, )?'$argv[1]' ([^ ]+)' $line)
        if set -q found[2]
            echo $found[2]
            return
        end
    end
end

function __reshardfs_offer
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l program $words[1]
    set -l commands ($program --help-all 2>/dev/null |
        string replace -rf -- '^  ([a-z]+)  +(.*)' '$1\t$2')
    set -l command
    set -l at 0
    for i in (seq 2 (count $words))
        if string match -q -- $words[$i]\t\* $commands
            set command $words[$i]
            set at $i
            break
        end
    end
    set -l help ($program $command --help-all 2>/dev/null)

    # The value of --name=value, or of the option before it.
    set -l named (string match -r -- '^(--[a-z0-9-]+)=' $current)
    set -l value
    if set -q named[2]
        set value (__reshardfs_value $named[2] $help)
    else if string match -q -- '-*' $words[-1]
        set value (__reshardfs_value $words[-1] $help)
    end
    if test -n "$value"
        set -l before (string replace -r -- '[^=]*$' '' $current)
        for word in (string split '|' -- $value | string match -rv '^\[?[A-Z]')
            echo $before$word
        end
        __fish_complete_path (string replace -r -- '^--[a-z0-9-]+=' '' $current)
        return
    end
    if string match -q -- '-*' $current
        string replace -rf -- '^ +(?:-., )?(--[a-z0-9-]+)(?: [^ ]+)?(?:  +(.*))?$' '$1\t$2' $help
        return
    end
    if test $at -eq 0
        printf '%s\n' $commands
    else if test $at -eq (count $words)
        # The words of a first operand such as list|show|check.
        set -l operand (string match -r -- '\[options\] ([^ ]+)' $help[1])
        string split '|' -- (string trim -c '[]' -- "$operand[2]") |
            string match -r '^[a-z].*'
    end
    __fish_complete_path $current
end

complete -c reshardfs -f -a '(__reshardfs_offer)'
