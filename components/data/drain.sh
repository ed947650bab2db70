# Functions that have Envoy leave an instance alone before it is replaced, and send to it again afterwards.
#
# A drained instance's endpoints are called DRAINING in the files that Envoy reads. FOLDER/drain.conf says where
# Envoy and the instances are: `envoy <address> <port of /hosts and /taken> <port of metrics> <seconds>`, and for
# each instance `<name> <address> <address of the one that it follows, or ->`. Whoever drains an instance keeps
# FOLDER/.drains/<name>, `<time> <address or ->`: once that time is over it counts no longer, so that one who is
# killed drains nobody for ever. Nothing here fails: what cannot be drained is replaced without it.
# Of tools it needs mkdir, mv, rm and sleep.
shopt -s nullglob
trap '' PIPE

alive_s=10                           # a mark that is not renewed counts for so long
most_s=${MOST_S:-10}                 # for each thing that Envoy is to say or to do
before_s=${BEFORE_S:-20}             # for the one before to serve again
still_there_s=${STILL_THERE_S:-60}   # what has not been replaced by then, will not be
away_s=${AWAY_S:-180}                # Envoy's own check has failed by then

# page PORT PATH: what Envoy answers there, a line each, into `lines`. False where it does not answer well.
page() {
    local line until=$((SECONDS + 5))
    lines=()
    { exec 3<>"/dev/tcp/$envoy/$1"; } 2>/dev/null || return 1
    printf 'GET %s HTTP/1.0\r\nHost: envoy\r\n\r\n' "$2" >&3 2>/dev/null || :
    if ! IFS= read -r -t 5 line <&3 || [[ $line != HTTP/1.?" 200"* ]]; then
        exec 3>&-
        return 1
    fi
    while ((SECONDS <= until)) && IFS= read -r -t 5 line <&3; do lines+=("${line%$'\r'}"); done
    exec 3>&-
}

# What Envoy says of each host of a pool's clusters, by `<cluster> <address>`: into `flags` and `active`.
hosts() {
    local line host
    declare -gA flags=() active=()
    page "$status_port" /hosts || return 1
    for line in "${lines[@]}"; do
        [[ $line =~ ^((rest|grpc)-[^:]*)::([^:]+):[0-9]+::(rq_active|health_flags)::(.*)$ ]] || continue
        host="${BASH_REMATCH[1]} ${BASH_REMATCH[3]}"
        if [[ ${BASH_REMATCH[4]} == rq_active ]]; then
            active[$host]=${BASH_REMATCH[5]}
        else
            flags[$host]=${BASH_REMATCH[5]}
        fi
    done
}

# ask_hosts: `hosts`, for as long as Envoy may take to answer, as while it is replaced.
ask_hosts() {
    local until=$((SECONDS + most_s))
    until hosts; do
        ((SECONDS < until)) || return 1
        sleep 0.5
    done
}

# is ADDRESS WORD: some cluster has the host, and says of it `healthy` or another flag.
is() {
    local host
    for host in "${!flags[@]}"; do
        [[ ${host#* } != "$1" || ${flags[$host]} != *"$2"* ]] || return 0
    done
    return 1
}

# all_say ADDRESS WORD: each cluster that has the host has this flag of it. They check on their own, one a moment
# before the other.
all_say() {
    local host found=
    for host in "${!flags[@]}"; do
        [[ ${host#* } == "$1" ]] || continue
        [[ ${flags[$host]} == *"$2"* ]] || return 1
        found=1
    done
    [[ $found ]]
}

# Requests in flight at ADDRESS, into `flying`: where somebody else is well. Where nobody is, requests still come.
in_flight() {
    local host other
    flying=0
    for host in "${!active[@]}"; do
        [[ ${host#* } == "$1" ]] || continue
        for other in "${!flags[@]}"; do
            if [[ ${other% *} == "${host% *}" && $other != "$host" && ${flags[$other]} == healthy ]]; then
                flying=$((flying + active[$host]))
                break
            fi
        done
    done
}

now() { printf '%(%s)T' -1; }

# mark ADDRESS: the instance is drained until this is called with `-`, or no longer.
mark() {
    printf '%s %s\n' "$(($(now) + alive_s))" "$1" >"$folder/.drains/.$instance" &&
        mv -f "$folder/.drains/.$instance" "$folder/.drains/$instance"
} 2>/dev/null

# Who is drained now, into `drained`, addresses by name.
read_marks() {
    local file until address time
    declare -gA drained=()
    time=$(now)
    for file in "$folder"/.drains/*; do
        { read -r until address <"$file"; } 2>/dev/null || continue
        [[ $address == - ]] || ((until < time)) || drained[${file##*/}]=$address
    done
}

# marked FILE: its text into `text`, with the endpoints of those that are drained called so, and no others.
marked() {
    local line k start= begin='' suffix='' name
    local -A here=()
    mapfile -t text_lines <"$1"
    for k in "${!text_lines[@]}"; do
        line=${text_lines[k]}
        if [[ $line =~ ^(\ *)-\ health_status:\ \"DRAINING\"$ ]]; then
            begin="${BASH_REMATCH[1]}- "
            unset "text_lines[k]"
            continue
        fi
        if [[ $begin ]]; then
            line="$begin${line#"${begin//-/ }"}"
            text_lines[k]=$line
            begin=
        fi
        if [[ $line =~ ^\ *-\ endpoint:$ ]]; then
            start=$k
        elif [[ $start && $line =~ ^\ *address:\ \"(.*)\"$ ]]; then
            for name in "${!drained[@]}"; do
                [[ ${drained[$name]} == "${BASH_REMATCH[1]}" ]] || continue
                line=${text_lines[start]}
                text_lines[start]="${line%endpoint:}health_status: \"DRAINING\""$'\n'
                text_lines[start]+="${line%- endpoint:}  endpoint:"
                here[$name]=1
            done
            start=
        fi
    done
    for name in "${!here[@]}"; do suffix+="!$name"; done
    if [[ ${text_lines[0]} =~ ^version_info:\ \"([^\"!]*) ]]; then
        text_lines[0]="version_info: \"${BASH_REMATCH[1]}$suffix\""
    fi
    printf -v text '%s\n' "${text_lines[@]}"
}

# Writes into the files who is drained. Two may do so at once: each looks again at who is, after it wrote.
write_marks() {
    local file before='' seen
    while :; do
        read_marks
        seen="/${!drained[*]}"
        [[ $seen != "$before" ]] || break
        before=$seen
        for file in "$folder"/eds-*.yaml; do
            marked "$file"
            [[ $text == "$(<"$file")"$'\n' ]] || {
                printf '%s' "$text" >"$folder/.new.$instance" && mv -f "$folder/.new.$instance" "$file"
            } || return 1
        done
    done
}

# Envoy has taken the files with the endpoints of ADDRESS as they are.
taken() {
    local file version name said
    page "$status_port" /taken || return 1
    printf -v said '%s\n' "${lines[@]}"
    for file in "$folder"/eds-*.yaml; do
        [[ $(<"$file") == *"address: \"$1\""* ]] || continue
        read -r _ version <"$file"
        name=${file##*/eds-}
        [[ $said == *"cluster.${name%.yaml}.version_text: $version"$'\n'* ]] || return 1
    done
}

# wait_until_taken [-]: false where that takes too long. The mark is renewed meanwhile, unless there is none.
wait_until_taken() {
    local until=$((SECONDS + most_s))
    until taken "$address"; do
        ((SECONDS < until)) || return 1
        [[ ${1:-} == - ]] || mark "$address"
        sleep 0.1
    done
}

# What the instance's metrics page says behind Envoy, which asks it whatever it thinks of it: into `status`.
ask_instance() {
    local page=/instances/$instance/metrics
    status=
    { exec 3<>"/dev/tcp/$envoy/$metrics_port"; } 2>/dev/null || return 0
    printf 'GET %s HTTP/1.1\r\nHost: envoy\r\nConnection: close\r\n\r\n' "$page" >&3 2>/dev/null || :
    IFS= read -r -t 5 status <&3 || :
    exec 3>&-
    status=${status#* }
}

# read_settings: where everything is; false where it is not told.
read_settings() {
    local name first second third fourth
    envoy='' address=''
    [[ -r $folder/drain.conf ]] || return 1
    while read -r name first second third fourth; do
        if [[ $name == envoy ]]; then
            envoy=$first status_port=$second metrics_port=$third timeout_s=$fourth
        elif [[ $name == "$instance" ]]; then
            address=$first before=$second
        fi
    done <"$folder/drain.conf"
    [[ $envoy && $address ]]
}

# wait_for_the_one_before: it serves again, as far as Envoy knows; also where whoever drained it was killed.
wait_for_the_one_before() {
    local until=$((SECONDS + before_s))
    [[ $before != - ]] || return 0
    while :; do
        if ! write_marks || ! ask_hosts; then
            echo "Envoy does not say whether it sends to $before again; going on all the same"
            return 0
        fi
        is "$before" / || return 0
        ((SECONDS < until)) || { echo "Envoy does not send to $before again; going on all the same"; return 0; }
        sleep 0.3
    done
}

# wait_until_idle: no request has been there for a second, or it took too long.
wait_until_idle() {
    local until=$((SECONDS + timeout_s)) idle=0 asked=$SECONDS
    flying=0
    while :; do
        mark "$address"
        if hosts; then
            asked=$SECONDS
            in_flight "$address"
            idle=$((flying == 0 ? idle + 1 : 0))
            ((idle < 5)) || { echo "no request is in flight"; return 0; }
        elif ((SECONDS - asked >= most_s)); then
            echo "Envoy does not say whether requests are in flight"
            return 0
        else
            idle=0
        fi
        ((SECONDS < until)) || { echo "$flying requests are still in flight after $timeout_s s"; return 0; }
        sleep 0.2
    done
}

# wait_until_replaced: the instance went and is back, or Envoy sees itself that it is away.
wait_until_replaced() {
    local gone= until=$((SECONDS + still_there_s))
    while [[ -e $folder/.drains/$instance ]]; do
        mark "$address"
        if hosts && all_say "$address" failed_active_hc; then
            echo "Envoy sees that it is away"
            return
        fi
        ask_instance
        if [[ $status == 5* ]]; then
            [[ $gone ]] || until=$((SECONDS + away_s))
            gone=1
        elif [[ $gone && $status == 200* ]]; then
            echo "it answers again"
            return
        fi
        ((SECONDS < until)) || { echo "it is still there"; return; }
        sleep 0.3
    done
}

# put_back: Envoy may send to the instance. The mark stays until the files say so.
put_back() {
    [[ -e $folder/.drains/$instance ]] || return 0 # somebody else does
    mark - && write_marks
    rm -f "$folder/.drains/$instance"
}

# undrain: whoever drained this instance before and was killed may have left it so; that one is gone by now.
undrain() {
    rm -f "$folder/.drains/$instance"
    write_marks || return 0
    wait_until_taken - && hosts || :
}

# drain FOLDER INSTANCE DONE: the file DONE appears once the instance may be stopped; ends when it is back.
drain() {
    folder=$1 instance=$2
    local done=$3
    read_settings || { echo "$instance is not one of those that Envoy sends to"; return; }
    # Made by the first acceptance.
    [[ -d $folder/.drains ]] || { echo "no Envoy has served yet"; return; }
    ask_hosts || { echo "Envoy at $envoy:$status_port does not answer: not drained"; return; }
    is "$address" healthy || undrain
    is "$address" healthy || { echo "Envoy sends nothing to $address"; return; }
    wait_for_the_one_before
    trap 'put_back; exit 0' TERM
    if ! { mark "$address" && write_marks; }; then
        echo "the endpoints cannot be written: not drained"
        put_back
        return
    fi
    if wait_until_taken; then
        wait_until_idle
    else
        echo "Envoy does not take the endpoints"
    fi
    : >"$done"
    wait_until_replaced
    put_back
    echo "Envoy may send to it"
}

# end_drains FOLDER: nobody is drained any more, whoever was.
end_drains() {
    folder=$1 instance=-
    local there
    mkdir -p "$folder/.drains"
    there=("$folder"/.drains/*)
    rm -f "$folder"/.drains/*
    # Those that drain see that it is over, and write no more.
    ((${#there[@]} == 0)) || sleep 1
    write_marks
}
