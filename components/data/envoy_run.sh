#!/bin/bash
# Process 1 of the front end's container: runs Envoy, and has another one take over from it while clients ask.
#
#   envoy_run.sh FOLDER ADMIN_PORT
#
# FOLDER/envoy.run says what is to run, a line each: the image that the binary is from, the name of the binary in
# FOLDER, how many seconds one that is replaced may go on with its requests, and Envoy's arguments. When that
# changes, the next Envoy is started beside the one that runs, takes its sockets (hot restart), and that one ends
# once it has answered what it had. What became of it is said in FOLDER/.said/envoy: `serves` or `refuses`, then
# the lines of `envoy.run` that are meant, an empty line, and why. FOLDER/.good.run, of the same lines, is what served
# last: it is started where `envoy.run` cannot be, as after a change that was killed.
#
# A script that is replaced is read when the container is started the next time. Of tools it needs mv and rm alone.
set -uo pipefail

folder=$1
admin_port=$2
start_patience_s=${START_PATIENCE_S:-20}
whole_patience_s=${WHOLE_PATIENCE_S:-5} # for an answer of one that a busy machine keeps waiting
said=$folder/.said/envoy
running=() refused=() version=
envoy= epoch=0    # the one that serves
before= before_s= # one that ends what it had, and when it must be through
stopping=

say() { printf 'front end: %s\n' "$*" >&2; }

# tell WORD RUN... -- WHY...: for who waits. Nobody may be there to read it, so it cannot fail.
tell() {
    local word=$1 run=()
    shift
    while [[ $1 != -- ]]; do run+=("$1") && shift; done
    shift
    { printf '%s\n' "$word" "${run[@]}" "" "$@" >"$said.new" && mv -f "$said.new" "$said"; } 2>/dev/null || :
}

# read_wanted [FILE]: what is to run, into `wanted`. False where that is not said, or not all of it.
read_wanted() {
    { mapfile -t wanted <"${1:-$folder/envoy.run}"; } 2>/dev/null || return 1
    [[ ${#wanted[@]} -ge 4 && ${wanted[1]} && ${wanted[2]} =~ ^[0-9]+$ ]]
}

# read_good: what served last, into `wanted`.
read_good() { read_wanted "$folder/.good.run" && [[ -x $folder/${wanted[1]} ]]; }

lives() { [[ $1 ]] && kill -0 "$1" 2>/dev/null; }

# Waits a moment, without a process of its own for that.
pause() { read -rt 0.2 -u "$never" _ || :; }

# Whether Envoy's admin page says that the one of this epoch serves.
serves() {
    local line live= its_epoch= admin
    { exec {admin}<>"/dev/tcp/127.0.0.1/$admin_port"; } 2>/dev/null || return 1
    printf 'GET /server_info HTTP/1.1\r\nHost: front-end\r\nConnection: close\r\n\r\n' >&"$admin" 2>/dev/null || :
    while IFS= read -rt 5 line <&"$admin"; do
        [[ $line != *'"state": "LIVE"'* ]] || live=1
        if [[ $line =~ '"restart_epoch": '([0-9]+) ]]; then
            its_epoch=${BASH_REMATCH[1]}
            break
        fi
    done
    exec {admin}>&-
    [[ $live && $its_epoch == "$1" ]]
}

# start EPOCH SECONDS RUN...: starts an Envoy, into `started`.
start() {
    local epoch=$1 seconds=$2
    shift 2
    "$folder/$2" "${@:4}" --restart-epoch "$epoch" --parent-shutdown-time-s "$seconds" &
    started=$!
}

# The next Envoy takes over. False, and `why`, where it does not; the one that runs then goes on.
take_over() {
    local binary=$folder/${wanted[1]} arguments=("${wanted[@]:3}") deadline code
    # Before anything is taken from the one that runs: does it run in this container, and with this bootstrap?
    if ! why=$("$binary" "${arguments[@]}" --mode validate 2>&1); then
        return 1
    fi
    why=$("$binary" --hot-restart-version 2>&1)
    if [[ $why != "$version" ]]; then
        why="cannot take over: its hot restart version is $why, that of the Envoy that runs $version"
        return 1
    fi
    # What is in flight may have begun while requests could take longer.
    seconds=$((wanted[2] > running[2] ? wanted[2] : running[2]))
    start $((epoch + 1)) "$seconds" "${wanted[@]}"
    deadline=$((SECONDS + start_patience_s))
    until serves $((epoch + 1)); do
        if ! lives "$started" || ((SECONDS >= deadline)) || [[ $stopping ]]; then
            code="did not serve within $start_patience_s s"
            lives "$started" || { wait "$started" || code="ended with code $?"; }
            kill -KILL "$started" 2>/dev/null
            why="$code; why is in the log of this container; restart it before another one is to take over"
            return 1
        fi
        pause
    done
    before=$envoy before_s=$((SECONDS + seconds + 60))
    envoy=$started epoch=$((epoch + 1)) running=("${wanted[@]}")
}

# The one that runs still serves. One that ended while it took over may have closed its parent's listeners.
await_whole() {
    local deadline=$((SECONDS + whole_patience_s))
    until serves "$epoch"; do
        [[ ! $stopping ]] || return 0
        lives "$envoy" && ((SECONDS < deadline)) || return 1
        pause
    done
}

# first: starts what is in `wanted`; nothing runs yet.
first() {
    running=("${wanted[@]}")
    start 0 "${running[2]}" "${running[@]}"
    envoy=$started
    version=$("$folder/${running[1]}" --hot-restart-version 2>&1)
}

# fall_back: where the first Envoy ended and never served, what served last is started in its place.
fall_back() {
    local code=0
    [[ ! $served && ! $stopping && ! ${refused[*]} ]] && read_good && [[ ${wanted[*]} != "${running[*]}" ]] || return 1
    wait "$envoy" || code=$?
    refused=("${running[@]}")
    why="as the first one it ended with code $code before it served; why is in the log of this container"
    say "${running[0]}: $why; what served last is started"
    first
}

stop() {
    stopping=1
    kill -TERM $envoy $before ${started:-} 2>/dev/null || :
}

main() {
    local why= started= seconds= told= served= code=0
    exec {never}<> <(:)
    rm -f "$said" 2>/dev/null
    trap stop TERM INT
    if ! read_wanted; then
        read_good || { say "no $folder/envoy.run says what to run"; exit 1; }
        say "no $folder/envoy.run says what to run: what served last is started"
    elif [[ ! -x $folder/${wanted[1]} ]]; then
        refused=("${wanted[@]}") why="$folder/${wanted[1]} is not there"
        read_good || { say "$why"; exit 1; }
        say "$why: what served last is started"
    fi
    first
    while :; do
        if ! lives "$envoy"; then
            fall_back || break
        fi
        pause
        [[ ! $stopping ]] || break
        if [[ ! $told ]] && serves "$epoch"; then
            if [[ ${refused[*]} ]]; then
                tell refuses "${refused[@]}" -- "$why"
            else
                tell serves "${running[@]}" --
            fi
            told=1 served=1
        fi
        if [[ $before ]] && ! lives "$before"; then
            wait "$before" || say "the Envoy before ended with code $?"
            before=
        elif [[ $before ]] && ((SECONDS > before_s)); then
            kill -KILL "$before"
        fi
        read_wanted || continue
        if [[ "${wanted[*]}" == "${running[*]}" ]]; then
            [[ ! ${refused[*]} ]] || refused=() told=
        elif [[ ! $told && "${wanted[*]}" != "${refused[*]}" ]]; then
            say "other things are to run than what does not serve yet: from the beginning"
            served=1 # what ends now does not because it cannot serve
            kill -TERM "$envoy"
        elif [[ "${wanted[*]}" != "${refused[*]}" && ! $before ]]; then
            say "another Envoy is to take over: ${wanted[0]}, ${wanted[1]}"
            told=
            if take_over; then
                refused=()
                say "it serves; the one before has $seconds s for what it is at"
            else
                refused=("${wanted[@]}")
                say "it does not: $why"
                tell refuses "${wanted[@]}" -- "$why"
                told=1
                if ! await_whole; then
                    say "the Envoy from before does not serve any more: from the beginning"
                    kill -TERM "$envoy" 2>/dev/null
                fi
            fi
        fi
    done
    wait "$envoy" || code=$?
    [[ ! $stopping ]] || while lives "$before"; do wait "$before"; done
    # With what is interrupted by a signal, the code is that of the signal and not yet Envoy's.
    while lives "$envoy"; do wait "$envoy"; code=$?; done
    exit "$code"
}

main "$@"
