# Functions that give Envoy a set of files and find out what it took of them. `publish.sh` goes on with them.
#
# NEW is a folder with eds-*.yaml, cds.yaml, rds-*.yaml and lds.yaml; FOLDER the one that Envoy reads; ADDRESS
# and PORT are those of Envoy's status page. Of tools it needs what `publish.sh` needs.
shopt -s nullglob
trap '' PIPE # a connection that is reset while something is sent is an error, and not the end of all

# All of it, and then as much as is needed to put back what was there: both end before who waits for them gives up.
patience_s=${PATIENCE_S:-25}
put_back_s=${PUT_BACK_S:-15}
# What the publisher does once it has tried the files: with the trial it ends before who waits for it gives up.
staged_s=${STAGED_S:-20}
refusal_s=2 # a file may be refused for a moment, while the one that it needs is still being read
deadline=$((SECONDS + patience_s))
declare -A said=() refused=()

# What Envoy at an address says it took, into `said`. 1 when nobody listens there, 2 when there is no good answer.
ask() {
    local line until=$((SECONDS + 5))
    said=()
    { exec 3<>"/dev/tcp/$1/$port"; } 2>/dev/null || return 1
    printf 'GET /taken HTTP/1.0\r\nHost: envoy\r\n\r\n' >&3 2>/dev/null || :
    if ! IFS= read -r -t 5 line <&3 || [[ $line != HTTP/1.?" 200"* ]]; then
        exec 3>&-
        return 2
    fi
    while ((SECONDS <= until)) && IFS= read -r -t 5 line <&3; do
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

# Waits until Envoy at an address has taken these files; false, and said why, when it refuses one, or when the
# deadline of all has come.
wait_taken() {
    local address=$1 file first_refusal= missing no
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
            echo "Envoy has not taken in time:${missing:- (clusters are still warming up)}"
            return 1
        fi
        sleep 0.1
    done
}

# flush FILES: what a rename makes visible must outlive a loss of power that the rename outlives.
flush() {
    if [[ -n $(type -P sync) ]]; then sync "$@" || return 1; fi
}

# give_as FILE NAME: appears there at once and whole.
give_as() {
    cp "$1" "$2.new" && flush "$2.new" && mv "$2.new" "$2"
}

# same FILE FILE: both are there and say the same.
same() {
    [[ -e $1 && -e $2 && $(<"$1") == "$(<"$2")" ]]
}

# Every file has been taken, and Envoy would find the same ones if it started again.
taken_already() {
    local file
    for file in "$new"/[celr]ds*.yaml; do
        same "$file" "$folder/${file##*/}" || return 1
        [[ $(version_taken "$file") == "$(version "$file")" ]] || return 1
    done
}

# keep_good NEW FOLDER: what Envoy has taken. One of FOLDER/.good and FOLDER/.good.old is there and whole.
keep_good() {
    local good=$2/.good
    rm -rf "$good.new" && mkdir "$good.new" && cp "$1"/[celr]ds*.yaml "$good.new" || return 1
    flush "$good.new"/* "$good.new" || return 1
    if [[ -e $good ]]; then
        rm -rf "$good.old" && mv "$good" "$good.old" || return 1
    fi
    mv "$good.new" "$good" && rm -rf "$good.old"
}

# find_good FOLDER: the folder with what Envoy took last, into `good`. What lies in FOLDER itself may be half of a
# change that was killed, and refused.
find_good() {
    for good in "$1/.good" "$1/.good.old"; do
        [[ ! -e $good ]] || return 0
    done
    good=$1
}

# give FOLDER FILES: each appears there at once and whole. Every rename makes Envoy read all of them again.
give() {
    local folder=$1 file
    shift
    for file; do
        cp "$file" "$folder/.new" && flush "$folder/.new" && mv "$folder/.new" "$folder/${file##*/}" || return 1
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
    local code
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

# checks_of CLUSTER: the models that its instances are asked for, into `checks`.
checks_of() {
    local line inside=
    checks=' '
    while IFS= read -r line; do
        if [[ $line == "    health_checks:" ]]; then
            inside=1
        elif [[ $line != "      "* ]]; then
            inside=
        elif [[ $inside && $line =~ ^'      - name: "'(.*)'"'$ ]]; then
            checks+="${BASH_REMATCH[1]} "
        fi
    done <<<"$1"
}

# kept_checks OLD NEW: of each cluster that is in both files, the checks of models that stay, into `kept_check` by
# the cluster's name. A cluster that loses none is left out, and so is one that keeps none: none of its requests
# are for what stays.
kept_checks() {
    local name model of_old kept
    local -A of_new=()
    declare -gA kept_check=()
    read_clusters "$2"
    for name in "${!cluster_text[@]}"; do
        checks_of "${cluster_text[$name]}"
        of_new[$name]=$checks
    done
    read_clusters "$1"
    for name in "${!cluster_text[@]}"; do
        [[ ${of_new[$name]:-} ]] || continue
        checks_of "${cluster_text[$name]}"
        of_old=$checks kept=' '
        for model in $of_old; do
            [[ ${of_new[$name]} != *" $model "* ]] || kept+="$model "
        done
        [[ $kept == ' ' || $kept == "$of_old" ]] || kept_check[$name]=$kept
    done
}

# write_fewer_checks OLD NEW: the clusters of OLD, whose instances are asked only for models that NEW has too.
# False where they are asked for no other.
write_fewer_checks() {
    local line kept= inside= skipped=
    kept_checks "$1" "$2"
    ((${#kept_check[@]})) || return 1
    printf 'version_info: "%s~%s"\n' "$(version "$1")" "$(version "$2")"
    {
        read -r _
        while IFS= read -r line; do
            if [[ $line =~ ^'    name: "'(.*)'"'$ ]]; then
                kept=${kept_check[${BASH_REMATCH[1]}]:-}
            fi
            if [[ $line == "    health_checks:" ]]; then
                inside=1
            elif [[ $line != "      "* ]]; then
                inside= skipped=
            elif [[ $inside && $kept && $line =~ ^'      - name: "'(.*)'"'$ ]]; then
                skipped=
                [[ $kept == *" ${BASH_REMATCH[1]} "* ]] || skipped=1
            fi
            [[ $skipped ]] || printf '%s\n' "$line"
        done
    } <"$1"
}

# ask_less NEW FOLDER ADDRESS: models that NEW lacks are about to leave the servers, and an instance that is asked
# for one that it does not have any more gets no requests. So Envoy stops asking for them before they go.
ask_less() {
    local new=$1 folder=$2 address=$3 work=${WORK:-/tmp/envoy} good file
    mkdir -p "$work"
    if [[ $(version_taken "$folder/cds.yaml") == "$(version "$folder/cds.yaml")" ]] &&
        write_fewer_checks "$folder/cds.yaml" "$new/cds.yaml" >"$work/cds.yaml"; then
        cp "$folder/cds.yaml" "$work/before.yaml"
        remember_refusals "$work/cds.yaml"
        give "$folder" "$work/cds.yaml"
        if ! wait_taken "$address" "$work/cds.yaml"; then
            cp "$work/before.yaml" "$work/cds.yaml"
            give "$folder" "$work/cds.yaml"
            return 1
        fi
        echo "models that go are no longer asked for"
    fi
    # What would be put back must not ask for them either.
    find_good "$folder"
    if [[ $good != "$folder" ]] && write_fewer_checks "$good/cds.yaml" "$new/cds.yaml" >"$work/cds.yaml"; then
        give "$good" "$work/cds.yaml"
    fi
}

# How often Envoy's listeners have taken a certificate, by what it said last.
certificates_taken() {
    local name sum=0
    for name in "${!said[@]}"; do
        [[ $name != *.ssl_context_update_by_sds ]] || sum=$((sum + said[$name]))
    done
    echo "$sum"
}

# note_certificate DIGEST FOLDER ADDRESS PORT: before its files are put there; `await_certificate` comes after. A
# file says by what digest they go, as nobody here may read them. Where it is the one that FOLDER has a note of,
# where there is no note yet, or no Envoy that encrypts, nothing is waited for.
note_certificate() {
    local address=$3 port=$4 tried=$2/.certificate.tried
    certificates=0 certificate=$1 certificate_note=$2/.certificate
    if same "$certificate" "$certificate_note"; then
        rm -f "$tried"
        return
    fi
    [[ -e $certificate_note ]] && ask "$address" || return 0
    # Envoy may have taken it since it was waited for, and takes the same one only once.
    if [[ -e $tried && $(<"$tried") == *$'\n'"$(<"$certificate")" ]]; then
        read -r certificates <"$tried"
        # An Envoy that began since then has read it.
        [[ ! $2/.said/envoy -nt $tried ]] || certificates=0
        return 0
    fi
    certificates=$(certificates_taken)
    { echo "$certificates" && cat "$certificate"; } >"$tried.new" && flush "$tried.new" && mv "$tried.new" "$tried"
}

# await_certificate ADDRESS PORT: until Envoy serves it, which is noted then. It keeps the one from before where it
# cannot read both files.
await_certificate() {
    local address=$1 port=$2
    if ((certificates)); then
        until ask "$address" && (($(certificates_taken) != certificates)); do
            if ((SECONDS >= deadline)); then
                echo "Envoy at $address still serves the certificate from before; its own log says more"
                return 1
            fi
            sleep 0.2
        done
        echo "Envoy at $address serves the new certificate"
    fi
    give_as "$certificate" "$certificate_note" && rm -f "$certificate_note.tried"
}

# stage NEW FOLDER ADDRESS PORT: keeps the files in FOLDER/.next for `apply`. Where no Envoy runs, or none on this
# folder yet (that of a node that is renamed still does, on another one), they are in use at once.
stage() {
    local new=$1 folder=$2 address=$3 port=$4
    rm -rf "$folder/.next"
    mkdir "$folder/.next"
    cp "$new"/*.yaml "$folder/.next"
    if [[ -e $folder/lds.yaml ]] && runs_there "$address"; then
        ask_less "$new" "$folder" "$address" || return 1
        echo "staged for the Envoy that runs at $address"
        return
    fi
    give "$folder" "$new"/eds-*.yaml "$new/cds.yaml" "$new"/rds-*.yaml "$new/lds.yaml"
    remove_others "$folder" "$new"
    echo "written; no Envoy runs on them yet"
}

# apply NEW FOLDER ADDRESS PORT: waits until Envoy has taken the files. When it does not, those that it took last
# are put back, and false is the answer.
apply() {
    local new=$1 folder=$2 address=$3 port=$4 good
    local work=${WORK:-/tmp/envoy} old=${WORK:-/tmp/envoy}/old
    find_good "$folder"
    { mkdir -p "$old" && cp "$good"/[celr]ds*.yaml "$old" && wait_for_envoy; } || return 1
    if taken_already || change "$new"; then
        remove_others "$folder" "$new" && keep_good "$new" "$folder" || return 1
        echo "Envoy at $address has taken it"
        return
    fi
    if put_back; then
        echo "the files from before are back, and Envoy serves what it served; its own log says more"
    else
        echo "Envoy does not say that it has taken the files from before again; its own log says more"
    fi
    return 1
}

wait_for_envoy() {
    until ask "$address"; do
        ((SECONDS < deadline)) || { echo "no Envoy answers at $address:$port"; return 1; }
        sleep 0.2
    done
}

# change NEW: endpoints, clusters, then what names them, and only then are clusters taken away.
change() {
    local new=$1 endpoints=("$1"/eds-*.yaml) routes=("$1"/rds-*.yaml "$1/lds.yaml") used=() file clusters=$old/cds.yaml
    # Those that Envoy has, whoever put them there: its routes may name any of them.
    [[ $(version_taken "$folder/cds.yaml") != "$(version "$folder/cds.yaml")" ]] || clusters=$folder/cds.yaml
    write_both "$clusters" "$new/cds.yaml" >"$work/cds.yaml" || return 1
    remember_refusals "${endpoints[@]}" "$work/cds.yaml" "$new/cds.yaml" "${routes[@]}"
    # A cluster that changes while its endpoints are refused is left with none: first those of clusters in use.
    for file in "${endpoints[@]}"; do
        [[ ! $(version_taken "$file") ]] || used+=("$file")
    done
    give "$folder" "${endpoints[@]}" && wait_taken "$address" "${used[@]}" || return 1
    give "$folder" "$work/cds.yaml" && wait_taken "$address" "${endpoints[@]}" "$work/cds.yaml" || return 1
    give "$folder" "${routes[@]}" && wait_taken "$address" "${routes[@]}" || return 1
    give "$folder" "$new/cds.yaml" && wait_taken "$address" "$new/cds.yaml"
}

# What Envoy took last, in the same order; and where that fails too, all of it at once.
put_back() {
    local well=0
    deadline=$((SECONDS + put_back_s))
    if ! change "$old"; then
        well=1
        give "$folder" "$old"/eds-*.yaml "$old/cds.yaml" "$old"/rds-*.yaml "$old/lds.yaml"
    fi
    remove_others "$folder" "$old" && return "$well"
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
