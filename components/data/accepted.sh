#!/bin/bash
# Waits until every Envoy and every server of a stack says that it has what the stack's ConfigMaps ask for. The
# kubelet brings their text when it likes, and they read it then: this only asks, and changes nothing.
#
#   accepted.sh SETTINGS
#
# SETTINGS has lines:
#   wait <seconds>
#   brought <seconds>                by when the kubelet has brought all files
#   envoy <host> <port>              where each Envoy has its status page
#   taken <statistic> <version>      what is to stand there
#   pool <host> <port>               the servers of a pool, by their REST interface; all that follows is theirs
#   model <model> <base path>
#   versions <model> latest <n> | all | specific <version>...
#   label <model> <label>=<version>
#
# A host is the name of a headless Service: all pods behind it that are ready. Of `latest` and `all` only the
# servers know which versions there are: some must be loaded, and of `latest` no more than so many.
#
# 1 where it was in vain; the last line says why. Of tools it needs getent and sleep alone.
set -euo pipefail
trap '' PIPE # a server that goes away while it is asked is no reason to end

settings=$1
refusal_s=2 # the statistics are of a moment in which the file may have been half read
patience=60
brought_s=0
missing=
lines=() addresses=()
declare -A state=() why=() said=() refused=() refused_at=() earlier=()
# shellcheck source=/dev/null
. "${BASH_SOURCE%/*}/server_status.sh"

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

# pods HOST: their addresses.
pods() {
  local address kind
  addresses=()
  while read -r address kind _; do
    if [[ $kind == STREAM ]]; then addresses+=("$address"); fi
  done < <(getent ahostsv4 "$1" || :)
}

# every HOST PORT CHECK...: until each pod behind a name passes; those that are there change meanwhile.
every() {
  local host=$1 port=$2 address
  shift 2
  while :; do
    missing=
    pods "$host"
    if ((${#addresses[@]} == 0)); then missing="no pod behind $host is ready"; fi
    for address in "${addresses[@]}"; do
      if ! "$@" "$address" "$port"; then break; fi
    done
    if [[ -z $missing ]]; then break; fi
    if ((SECONDS >= patience)); then fail "after $patience s $missing"; fi
    sleep 0.5
  done
  printf '%s: %s\n' "$host" "${addresses[*]}"
}

# envoy_took STATISTIC VERSION ADDRESS PORT
envoy_took() {
  local file=$1 wanted=$2 at=$3 line no
  said=()
  if ! get "$at" "$4" /taken || [[ $status != 200 ]]; then
    missing="Envoy at $at does not answer"
    return 1
  fi
  for line in "${lines[@]}"; do said[${line%%: *}]=${line#*: }; done
  line=${said[$file.version_text]:-}
  if [[ ${line//\"/} == "$wanted" ]]; then
    if [[ ${said[cluster_manager.warming_clusters]:-0} == 0 ]]; then return 0; fi
    missing="Envoy at $at still warms up clusters"
    return 1
  fi
  missing="Envoy at $at has not taken $file"
  # How often it refused the file before anybody looked is no news: that may be of another text.
  no=$((${said[$file.update_rejected]:-0} + ${said[$file.update_failure]:-0}))
  if [[ -z ${refused[$at $file]:-} ]]; then refused[$at $file]=$no; fi
  if ((no > ${refused[$at $file]})); then
    : "${refused_at[$at $file]:=$SECONDS}"
    if ((SECONDS >= ${refused_at[$at $file]} + refusal_s)); then
      fail "Envoy at $at refused $file and serves what it served; its own log says why"
    fi
  elif ((no)); then
    missing+=", of which it refused $no before"
  fi
  return 1
}

# loaded MODEL POLICY ADDRESS PORT: those versions that the policy asks for, and none that it does not.
loaded() {
  local model=$1 at=$3 version there=() policy this
  # shellcheck disable=SC2206 # words without anything that a shell would expand
  policy=($2)
  if ! get_states "$at" "$4" "$model"; then
    missing="server $at does not answer"
    return 1
  fi
  for version in "${!state[@]}"; do
    if [[ ${state[$version]} == AVAILABLE ]]; then there+=("$version"); fi
  done
  case ${policy[0]} in
    specific)
      for version in "${policy[@]:1}"; do
        if [[ ${state[$version]:-} == AVAILABLE ]]; then continue; fi
        # What it said before it had the files is no news, until it has tried again.
        this="$at $4 $model $version"
        if [[ -z ${earlier[$this]+x} || (${state[$version]:-} && -z ${why[$version]:-}) ]]; then
          earlier[$this]=${why[$version]:-}
        fi
        if [[ ${why[$version]:-} ]] &&
          { [[ ${why[$version]} != "${earlier[$this]}" ]] || ((SECONDS >= brought_s)); }; then
          fail "server $at cannot load version $version of $model: ${why[$version]}"
        fi
        missing="server $at has not loaded version $version of $model${why[$version]:+ (${why[$version]})}"
        return 1
      done
      for version in "${there[@]}"; do
        if [[ " ${policy[*]:1} " != *" $version "* ]]; then
          missing="server $at still has version $version of $model"
          return 1
        fi
      done
      ;;
    latest)
      if ((${#there[@]} > policy[1])); then
        missing="server $at still has versions ${there[*]} of $model, more than ${policy[1]}"
        return 1
      fi
      ;;
  esac
  if ((${#there[@]} == 0)); then
    missing="server $at has loaded no version of $model"
    return 1
  fi
}

# named MODEL LABEL VERSION ADDRESS PORT
named() {
  if names_version "$4" "$5" "$1" "$2" "$3"; then return 0; fi
  missing="label $2 of $1 does not name version $3 on server $4"
  return 1
}

host='' port=''
while read -r kind first second rest; do
  case $kind in
    wait) patience=$first ;;
    brought) brought_s=$first ;;
    envoy | pool) host=$first port=$second ;;
    taken) every "$host" "$port" envoy_took "$first" "$second" ;;
    versions) every "$host" "$port" loaded "$first" "$second $rest" ;;
    label) every "$host" "$port" named "$first" "${second%=*}" "${second#*=}" ;;
  esac
done <"$settings"
printf 'all have it\n'
