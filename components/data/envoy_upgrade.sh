# Functions that bring Envoy's binary to its volume, and have it take over from the Envoy that runs there. They
# stand behind those of `envoy_files.sh`, in what `publish.sh` goes on with.
#
# FOLDER is the one that `envoy_run.sh` reads; it says there what `.said/envoy` and `envoy.run` hold.

# stage_run WANTED BINARY FOLDER ADDRESS PORT: puts the binary of this image into FOLDER, under a name with a hash
# of it, and what is to run into FOLDER/.next: WANTED has its lines, but that of the binary. Where no Envoy runs, it
# is in use at once.
stage_run() {
    local binary=$2 folder=$3 address=$4 port=$5 lines hash name
    mapfile -t lines <"$1"
    read -r hash _ < <(sha256sum "$binary") && name=envoy-${hash:0:16} || return 1
    [[ -e $folder/$name ]] || put "$binary" 0755 - "$name" || return 1
    mkdir -p "$folder/.said" && chmod 0777 "$folder/.said" || return 1 # Envoy's user says there what it runs
    printf '%s\n' "${lines[0]}" "$name" "${lines[@]:1}" >"$folder/.next/envoy.run" || return 1
    if [[ ! -e $folder/envoy.run ]] || ! runs_there "$address"; then
        give "$folder" "$folder/.next/envoy.run"
    fi
}

# take_over NEW FOLDER ADDRESS PORT SECONDS: waits until the Envoy of NEW/envoy.run serves, and has taken the files
# in FOLDER. False where it does not; where it does not even serve, what ran before is what is to run.
take_over() {
    local new=$1 folder=$2 address=$3 port=$4 seconds=$5 wanted good=$2/.good.run
    mapfile -t wanted <"$new/envoy.run"
    [[ -s $good ]] || give_as "$folder/envoy.run" "$good" || return 1
    forget_refusal || return 1
    [[ $(<"$folder/envoy.run") == "$(<"$new/envoy.run")" ]] || give "$folder" "$new/envoy.run" || return 1
    deadline=$((SECONDS + seconds))
    if ! wait_serves; then
        give_as "$good" "$folder/envoy.run"
        echo "the Envoy from before goes on; when its container starts again, it is that one too"
        return 1
    fi
    deadline=$((SECONDS + patience_s))
    if ! wait_taken "$address" "$folder"/[celr]ds*.yaml; then
        echo "Envoy of ${wanted[0]} serves, and goes on with what it has taken"
        return 1
    fi
    give_as "$folder/envoy.run" "$good" && remove_other_binaries
    echo "Envoy of ${wanted[0]} serves"
}

# A refusal that is said before anything was given is one of a try that was killed: it is no answer to this one, and
# who refused does not try the same again. So what ran before is to run first.
forget_refusal() {
    local told wanted
    { mapfile -t told <"$folder/.said/envoy"; } 2>/dev/null || return 0
    same "$new/envoy.run" "$folder/envoy.run" && ! same "$good" "$folder/envoy.run" || return 0
    mapfile -t wanted <"$folder/envoy.run"
    [[ ${told[*]:0:${#wanted[@]} + 1} == "refuses ${wanted[*]}" ]] || return 0
    give_as "$good" "$folder/envoy.run" && mapfile -t wanted <"$good" || return 1
    deadline=$((SECONDS + put_back_s))
    wait_serves
}

# What is said of the Envoy that is to run.
wait_serves() {
    local told
    while :; do
        { mapfile -t told <"$folder/.said/envoy"; } 2>/dev/null || told=()
        if [[ ${told[*]:1:${#wanted[@]}} == "${wanted[*]}" ]]; then
            [[ ${told[0]} != serves ]] || return 0
            echo "the next Envoy does not run in the front end's container:"
            printf '%s\n' "${told[@]:${#wanted[@]} + 2}"
            return 1
        fi
        if ((SECONDS >= deadline)); then
            echo "the next Envoy does not serve within $seconds s: see the log of the front end's container; while" \
                "one that was replaced still ends its requests (at most ${wanted[2]} s), the next one waits"
            return 1
        fi
        sleep 0.1
    done
}

remove_other_binaries() {
    local binary
    for binary in "$folder"/envoy-*; do
        [[ ${binary##*/} == "${wanted[1]}" ]] || rm -f "$binary"
    done
}
