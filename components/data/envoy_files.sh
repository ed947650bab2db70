# Functions that give Envoy a set of files and find out what it took of them. `publish.sh` goes on with them.
#
# NEW is a folder with eds-*.yaml, cds.yaml, rds-*.yaml and lds.yaml; FOLDER the one that Envoy reads; ADDRESS
# and PORT are those of Envoy's status page. Of tools it needs what `publish.sh` needs.
shopt -s nullglob
trap '' PIPE # a connection that is reset while something is sent is an error, and not the end of all

patience_s=${PATIENCE_S:-15}
refusal_s=2 # a file may be refused for a moment, while the one that it needs is still being read
declare -A said=() refused=()

# What Envoy at an address says it took, into `said`. 1 when nobody listens there, 2 when there is no good answer.
ask() {
    local line
    said=()
    { exec 3<>"/dev/tcp/$1/$port"; } 2>/dev/null || return 1
    printf 'GET /taken HTTP/1.0\r\nHost: envoy\r\n\r\n' >&3 2>/dev/null || :
    if ! IFS= read -r -t 5 line <&3 || [[ $line != HTTP/1.?" 200"* ]]; then
        exec 3>&-
        return 2
    fi
    while IFS= read -r -t 5 line <&3; do
        line=${line//[$'"\r']/}
        [[ $line != *": "* ]] || said[${line%%: *}]=${line#*: }
    done
    exec 3>&-
}

# Where Envoy's statistics of a file begin.
statistics() {
    local name=${1##*/}
    name=${name%.yaml}
    case $name in
    cds) echo cluster_manager.cds ;;
    lds) echo listener_manager.lds ;;
    rds-*) echo "http.${name#rds-}.rds.${name#rds-}" ;;
    eds-*) echo "cluster.${name#eds-}" ;;
    esac
}

# The version that a file is of: its first line is version_info.
version() {
    local text
    read -r _ text <"$1"
    echo "${text//\"/}"
}

version_taken() {
    echo "${said[$(statistics "$1").version_text]:-}"
}

# How often Envoy has refused a file so far: for what it says, or because it could not read it at all.
refusals() {
    local name
    name=$(statistics "$1")
    echo $((${said[$name.update_rejected]:-0} + ${said[$name.update_failure]:-0}))
}

remember_refusals() {
    local file
    for file; do refused[$file]=$(refusals "$file"); done
}

# Waits until Envoy at an address has taken these files; false, and said why, when it refuses one.
wait_taken() {
    local address=$1 file deadline=$((SECONDS + patience_s)) first_refusal= missing no
    shift
    while :; do
        missing="an answer from Envoy at $address:$port"
        no=
        if ask "$address"; then
            missing=
            for file; do
                [[ $(version_taken "$file") == "$(version "$file")" ]] && continue
                missing+=" ${file##*/}"
                (($(refusals "$file") <= ${refused[$file]:-0})) || no+=" ${file##*/}"
            done
            [[ $missing || ${said[cluster_manager.warming_clusters]:-0} != 0 ]] || return 0
        fi
        if [[ $no ]]; then
            : "${first_refusal:=$SECONDS}"
            if ((SECONDS >= first_refusal + refusal_s)); then
                echo "Envoy refused:$no"
                return 1
            fi
        fi
        if ((SECONDS >= deadline)); then
            echo "Envoy has not taken within $patience_s s:${missing:- (clusters are still warming up)}"
            return 1
        fi
        sleep 0.1
    done
}

# Every file of a folder has been taken.
taken_already() {
    local file
    for file in "$new"/[celr]ds*.yaml; do
        [[ $(version_taken "$file") == "$(version "$file")" ]] || return 1
    done
}

# give FOLDER FILES: each appears there at once and whole. Every rename makes Envoy read all of them again.
give() {
    local folder=$1 file
    shift
    for file; do
        cp "$file" "$folder/.new" && mv "$folder/.new" "$folder/${file##*/}" || return 1
    done
}

# remove_others FOLDER NEW: what Envoy has no use for any more.
remove_others() {
    local file
    for file in "$1"/[celr]ds*.yaml; do
        [[ -e $2/${file##*/} ]] || rm "$file"
    done
}

# The clusters of a file, one after the other, into `cluster_text` by name.
read_clusters() {
    local line name= text=
    declare -gA cluster_text=()
    while IFS= read -r line; do
        if [[ $line == "  - "* ]]; then
            [[ -z $name ]] || cluster_text[$name]=$text
            name= text=
        fi
        [[ ! $line =~ ^'    name: "'(.*)'"'$ ]] || name=${BASH_REMATCH[1]}
        text+=$line$'\n'
    done < <(cat "$1" && echo "  - ")
}

# A file with the clusters of both: those of the first that the second lacks are still in use.
write_both() {
    local old=$1 new=$2 name
    local -A of_old=()
    read_clusters "$old"
    for name in "${!cluster_text[@]}"; do of_old[$name]=${cluster_text[$name]}; done
    read_clusters "$new"
    for name in "${!cluster_text[@]}"; do unset "of_old[$name]"; done
    printf 'version_info: "%s+%s"\n' "$(version "$new")" "$(version "$old")"
    {
        read -r _
        cat
    } <"$new"
    for name in "${!of_old[@]}"; do printf '%s' "${of_old[$name]}"; done
}

# Whether an Envoy runs at an address. One that takes connections and does not answer runs, so this fails.
runs_there() {
    local deadline=$((SECONDS + patience_s)) code
    while :; do
        code=0
        ask "$1" || code=$?
        ((code == 2 && SECONDS < deadline)) || break
        sleep 0.2
    done
    if ((code == 2)); then
        echo "something listens at $1:$port and does not answer" >&2
        exit 1
    fi
    return "$code"
}

# stage NEW FOLDER ADDRESS PORT: keeps the files in FOLDER/.next for `apply`. Where no Envoy runs, or none on this
# folder yet (that of a node that is renamed still does, on another one), they are in use at once.
stage() {
    local new=$1 folder=$2 address=$3 port=$4
    rm -rf "$folder/.next"
    mkdir "$folder/.next"
    cp "$new"/*.yaml "$folder/.next"
    if [[ -e $folder/lds.yaml ]] && runs_there "$address"; then
        echo "staged for the Envoy that runs at $address"
        return
    fi
    give "$folder" "$new"/eds-*.yaml "$new/cds.yaml" "$new"/rds-*.yaml "$new/lds.yaml"
    remove_others "$folder" "$new"
    echo "written; no Envoy runs on them yet"
}

# apply NEW FOLDER ADDRESS PORT: waits until Envoy has taken the files. When it does not, those from before are
# put back, and false is the answer.
apply() {
    local new=$1 folder=$2 address=$3 port=$4
    local work=${WORK:-/tmp/envoy} old=${WORK:-/tmp/envoy}/old
    { mkdir -p "$old" && cp "$folder"/*ds*.yaml "$old" && wait_for_envoy; } || return 1
    if taken_already || { change && remove_others "$folder" "$new"; }; then
        echo "Envoy at $address has taken it"
        return
    fi
    put_back
    echo "the files from before are back, and Envoy serves what it served; its own log says more"
    return 1
}

wait_for_envoy() {
    local deadline=$((SECONDS + patience_s))
    until ask "$address"; do
        ((SECONDS < deadline)) || { echo "no Envoy answers at $address:$port"; return 1; }
        sleep 0.2
    done
}

# Endpoints, clusters, then what names them, and only then are clusters taken away.
change() {
    local endpoints=("$new"/eds-*.yaml) routes=("$new"/rds-*.yaml "$new/lds.yaml") used=() file
    remember_refusals "${endpoints[@]}" "$work/cds.yaml" "$new/cds.yaml" "${routes[@]}"
    # A cluster that changes while its endpoints are refused is left with none: first those of clusters in use.
    for file in "${endpoints[@]}"; do
        [[ ! $(version_taken "$file") ]] || used+=("$file")
    done
    give "$folder" "${endpoints[@]}" && wait_taken "$address" "${used[@]}" || return 1
    write_both "$old/cds.yaml" "$new/cds.yaml" >"$work/cds.yaml" || return 1
    give "$folder" "$work/cds.yaml" && wait_taken "$address" "${endpoints[@]}" "$work/cds.yaml" || return 1
    give "$folder" "${routes[@]}" && wait_taken "$address" "${routes[@]}" || return 1
    give "$folder" "$new/cds.yaml" && wait_taken "$address" "$new/cds.yaml"
}

# What was there before, in the opposite order.
put_back() {
    local routes=("$old"/rds-*.yaml "$old/lds.yaml") clusters=("$old/cds.yaml" "$old"/eds-*.yaml)
    give "$folder" "${routes[@]}"
    wait_taken "$address" "${routes[@]}" || true
    give "$folder" "${clusters[@]}"
    wait_taken "$address" "${clusters[@]}" || true
    remove_others "$folder" "$old"
}

# rehearse NEW PORT COMMAND...: starts an Envoy of its own, which must take all of NEW.
rehearse() {
    local new=$1 port=$2 envoy taken=0
    shift 2
    "$@" >/dev/null 2>"$new/.words" &
    envoy=$!
    wait_taken 127.0.0.1 "$new"/[celr]ds*.yaml || taken=1
    cat "$new/.words" # what it refused and why; warnings too
    kill "$envoy" 2>/dev/null || true
    wait "$envoy" || true
    return "$taken"
}
