# shellcheck shell=bash
# Functions that ask a server over HTTP what it has. `models.sh` and `accepted.sh` stand behind them.

# get ADDRESS PORT PATH: status and lines of the answer; fails where there is none.
get() {
  local line head=1
  status=0 lines=()
  { exec 3<>"/dev/tcp/$1/$2"; } 2>/dev/null || return 1
  # By the older protocol: the body then comes in one piece.
  printf 'GET %s HTTP/1.0\r\nHost: %s\r\n\r\n' "$3" "$1" >&3 2>/dev/null || :
  while read -r -t 5 line <&3 || [[ $line ]]; do
    line=${line%$'\r'}
    if [[ $status == 0 ]]; then
      # No here-string: older shells keep them in a file, and `accepted.sh` can write none.
      if [[ $line =~ ^HTTP/[0-9.]+\ ([0-9]+) ]]; then status=${BASH_REMATCH[1]}; else return 1; fi
    elif [[ $head && -z $line ]]; then
      head=
    elif [[ -z $head ]]; then
      lines+=("$line")
    fi
  done
  exec 3>&-
  [[ $status != 0 ]]
}

# get_states ADDRESS PORT MODEL: state[<version>], and why[<version>] where it went wrong.
get_states() {
  local rest string='"(([^"\\]|\\.)*)"' entry
  entry="\"version\": *\"([0-9]+)\", *\"state\": *\"([A-Z]+)\", *\"status\": *[{] *"
  entry+="\"error_code\": *\"([A-Z_]+)\", *\"error_message\": *$string"
  state=() why=()
  get "$1" "$2" "/v1/models/$3" || return 1
  rest=${lines[*]}
  while [[ $rest =~ $entry ]]; do
    state[${BASH_REMATCH[1]}]=${BASH_REMATCH[2]}
    if [[ ${BASH_REMATCH[3]} != OK ]]; then why[${BASH_REMATCH[1]}]=${BASH_REMATCH[4]}; fi
    rest=${rest#*"${BASH_REMATCH[0]}"}
  done
}

# names_version ADDRESS PORT MODEL LABEL VERSION: what a server says of a label.
names_version() {
  get "$1" "$2" "/v1/models/$3/labels/$4/metadata" && [[ $status == 200 && ${lines[*]} =~ \"version\":\ *\"$5\" ]]
}
