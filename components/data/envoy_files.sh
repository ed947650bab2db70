#!/bin/bash
# Gives a running Envoy a new set of files in an order in which it loses no request, and finds out what it took.
#
#   envoy_files.sh publish NEW FOLDER ADDRESS PORT   NEW holds the files, FOLDER is the one that Envoy reads
#   envoy_files.sh accepted NEW ADDRESS PORT         waits until Envoy has taken the files of NEW
#   envoy_files.sh rehearse NEW PORT COMMAND...      starts an Envoy on NEW, which must take all of it
#
# PORT is that of Envoy's status page. Files: bootstrap-*.yaml, eds-*.yaml, cds.yaml, rds-*.yaml, lds.yaml.
set -euo pipefail
shopt -s nullglob

patience_s=${PATIENCE_S:-30}
refusal_s=2 # a file may be refused for a moment, while the one that it needs is still being read
declare -A said=() refused=()

# What Envoy at an address says it took, into `said`; false when nobody answers.
ask() {
    local line
    said=()
    { exec 3<>"/dev/tcp/$1/$port"; } 2>/dev/null || return 1
    printf 'GET /taken HTTP/1.0\r\nHost: envoy\r\n\r\n' >&3
    if ! IFS= read -r -t 5 line <&3 || [[ $line != HTTP/1.?" 200"* ]]; then
        exec 3>&-
        return 1
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

# Puts files into the folder, each at once and whole. Every rename there makes Envoy read all of them again.
put() {
    local file
    for file; do
        cp "$file" "$folder/.new"
        mv "$folder/.new" "$folder/${file##*/}"
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

# Writes everything at once: nobody reads it yet.
publish_unread() {
    put "$new"/bootstrap-*.yaml "$new"/eds-*.yaml "$new/cds.yaml" "$new"/rds-*.yaml "$new/lds.yaml"
    remove_others
}

# Endpoints, clusters, then what names them, and only then are clusters taken away.
publish_to_running() {
    local endpoints=("$new"/eds-*.yaml) routes=("$new"/rds-*.yaml "$new/lds.yaml") used=() file
    remember_refusals "${endpoints[@]}" "$work/cds.yaml" "$new/cds.yaml" "${routes[@]}"
    # A cluster that changes while its endpoints are refused is left with none: first those of clusters in use.
    for file in "${endpoints[@]}"; do
        [[ ! $(version_taken "$file") ]] || used+=("$file")
    done
    put "$new"/bootstrap-*.yaml "${endpoints[@]}"
    wait_taken "$address" "${used[@]}" || return 1
    if [[ -e $folder/cds.yaml ]]; then
        write_both "$folder/cds.yaml" "$new/cds.yaml" >"$work/cds.yaml"
    else
        cp "$new/cds.yaml" "$work/cds.yaml"
    fi
    put "$work/cds.yaml"
    wait_taken "$address" "${endpoints[@]}" "$work/cds.yaml" || return 1
    put "${routes[@]}"
    wait_taken "$address" "${routes[@]}" || return 1
    put "$new/cds.yaml"
    wait_taken "$address" "$new/cds.yaml" || return 1
    remove_others
}

# Bootstraps stay: the one of an Envoy that is about to be replaced must be there until then.
remove_others() {
    local file
    for file in "$folder"/*.yaml; do
        [[ -e $new/${file##*/} || ${file##*/} == bootstrap-* ]] || rm "$file"
    done
}

# What was there before, in the opposite order.
put_back() {
    local files=("$old"/rds-*.yaml "$old/lds.yaml")
    [[ -e $old/lds.yaml && -e $old/cds.yaml ]] || return 0
    put "${files[@]}"
    wait_taken "$address" "${files[@]}" || true
    put "$old/cds.yaml" "$old"/eds-*.yaml
    wait_taken "$address" "$old/cds.yaml" "$old"/eds-*.yaml || return 0
    new=$old
    remove_others
}

command=$1 new=$2
shift 2
case $command in
publish)
    folder=$1 address=$2 port=$3
    work=${WORK:-/tmp/envoy-files} old=$work/old
    mkdir -p "$old"
    for file in "$folder"/*.yaml; do cp "$file" "$old"; done
    if ! ask "$address"; then
        publish_unread
        echo "written; no Envoy runs at $address yet"
    elif publish_to_running; then
        echo "Envoy at $address has taken it"
    else
        put_back
        echo "the files from before are back, and Envoy serves what it served; its own log says why it refused"
        exit 1
    fi
    ;;
accepted)
    address=$1 port=$2
    wait_taken "$address" "$new"/[celr]ds*.yaml
    ;;
rehearse)
    port=$1
    shift
    "$@" >/dev/null 2>"$new/.words" &
    envoy=$!
    trap 'kill "$envoy" 2>/dev/null; wait "$envoy" || true' EXIT
    taken=0
    wait_taken 127.0.0.1 "$new"/[celr]ds*.yaml || taken=1
    cat "$new/.words" # what it refused and why; warnings too
    exit "$taken"
    ;;
esac
