#!/bin/sh
# man_page.sh PROGRAM NAME SECTION VERSION FILE [EMULATOR]: writes the man page of freshetd or freshet, made from what the program prints for --help. A program
# for another processor is run by the emulator.
#
# In those texts a line that begins with two blanks and a word is an option or a command, with what it does after two more blanks or on the next line; lines
# that are indented further continue it; a blank line ends a paragraph; the lines before the first blank line are the synopsis.
set -eu
program=$1 name=$2 section=$3 version=$4 emulator=${6:-}
exec >"$5"

run() { ${emulator:+"$emulator"} "$program" "$@"; }

# Text of --help to the body of a page: SYNOPSIS is "keep" (its lines as they are) or "skip".
body() {
    awk -v synopsis="$1" '
    function plain(text) {
        gsub(/\\/, "\\e", text); gsub(/-/, "\\-", text)
        return text ~ /^[.\x27]/ ? "\\&" text : text
    }
    !past && /^$/ { if (synopsis == "keep") print ".fi"; past = 1; next }
    !past { if (synopsis == "keep") { if (NR == 1) print ".nf"; print plain($0) } next }
    /^$/ { print ".PP"; item = 0; next }
    /^  [^ ]/ {
        line = substr($0, 3)
        print ".TP"
        if (match(line, /  +/)) { print ".B " plain(substr(line, 1, RSTART - 1)); print plain(substr(line, RSTART + RLENGTH)) }
        else print ".B " plain(line)
        item = 1
        next
    }
    /^[^ ]/ && item { print ".PP"; item = 0 }
    { sub(/^ +/, ""); print plain($0) }'
}

# The lines of the commands in `freshet --help`, by name.
commands() { run --help | awk 'past && /^  [a-z]/ { print $1 } /^$/ { past = 1 }'; }

printf '.TH %s %s "" "Freshet %s" "Freshet"\n.SH NAME\n' "$(echo "$name" | tr a-z A-Z)" "$section" "$version"
case $name in
freshetd)
    echo 'freshetd \- trains a click model while the clicks arrive'
    echo '.SH SYNOPSIS'
    run --help | sed -n '/^$/q;s/-/\\-/g;p'
    printf '%s\n' '.SH DESCRIPTION' 'Reads labelled samples from Kafka topics or files, learns from them at once, and publishes what changed to a Kafka topic,' \
        'which replicas follow.' '.SH OPTIONS'
    run --help | body skip
    echo '.SH INIT'
    run init --help | body keep
    printf '%s\n' '.SH FILES' '.TP' '.B /etc/freshet/MODEL.yaml' 'the configuration of the unit freshetd@MODEL.service' '.TP' '.B /var/lib/freshet/MODEL' 'its state' \
        '.SH SEE ALSO' '.BR freshet (1)' '.PP' 'docs/operating.md and conf/OPTIONS.md in /usr/share/doc/freshet'
    ;;
freshet)
    echo 'freshet \- produces samples for, follows and examines models of freshetd'
    printf '%s\n' '.SH SYNOPSIS' '.B freshet' '.I COMMAND' '[options]' '.SH COMMANDS'
    run --help | body skip
    for command in $(commands); do
        printf '.SH %s\n' "$(echo "$command" | tr a-z A-Z)"
        run "$command" --help | body keep
    done
    printf '%s\n' '.SH SEE ALSO' '.BR freshetd (8)' '.PP' 'docs/commands.md in /usr/share/doc/freshet'
    ;;
esac
